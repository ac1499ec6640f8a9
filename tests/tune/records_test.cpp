#include "records/records.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "support/error.h"

namespace tessera {
namespace {

class Records : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("tessera-records-" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name) const { return folder_ / name; }

  static TrialRecord trial(int64_t machine, int64_t number, double us) {
    TrialRecord result;
    result.key = {"00000000000000aa", machine, 1};
    result.payload = {"rule point", "injective{vectors=2}", 1, 1};
    result.status = "ok";
    result.us = us;
    result.number = number;
    return result;
  }
  static ChoiceRecord choice(int64_t machine, double us) {
    ChoiceRecord result;
    result.key = {"00000000000000aa", machine, 1};
    result.payload = {"rule point", "injective{vectors=2}", 1, 1};
    result.us = us;
    result.default_us = 10;
    return result;
  }
  static std::string error_of(const std::function<void()>& work) {
    try {
      work();
    } catch (const UserError& error) {
      return error.diagnostic().id;
    }
    return "";
  }

  std::filesystem::path folder_;
};

TEST_F(Records, WhatIsAddedIsThere) {
  int64_t machine = 0;
  {
    RecordFile records(path("a.db"), RecordFile::Open::kWrite);
    machine = records.add_machine({0, "facts", 100, 10});
    EXPECT_EQ(records.add_machine({0, "facts", 390, 12}), machine) << "peaks vary";
    EXPECT_NE(records.add_machine({0, "facts", 410, 12}), machine);
    EXPECT_NE(records.add_machine({0, "others", 100, 10}), machine);
    records.add_kernel({"00000000000000aa", "text", "conv"});
    records.add_trial(trial(machine, 0, 10));
    records.set_choice(choice(machine, 8));
    records.set_choice(choice(machine, 7));
  }
  const RecordFile records(path("a.db"), RecordFile::Open::kRead);
  ASSERT_EQ(records.trials().size(), 1u);
  EXPECT_EQ(records.trials({"00000000000000aa", machine, 1})[0].payload.text, "injective{vectors=2}");
  EXPECT_TRUE(records.trials({"00000000000000aa", machine, 2}).empty());
  ASSERT_TRUE(records.choice({"00000000000000aa", machine, 1}));
  EXPECT_EQ(records.choice({"00000000000000aa", machine, 1})->us, 7);
  EXPECT_EQ(records.kernel("00000000000000aa")->name, "conv");
  EXPECT_FALSE(records.kernel("00000000000000ab"));
}

TEST(MachineFacts, AreReadBack) {
  Target target;
  target.triple = "x86_64-unknown-linux-gnu";
  target.cpu = "x86-64-v3";
  target.features = {"avx2", "fma"};
  target.l2_bytes = 512 << 10;
  const auto read = target_of_facts(machine_facts(target));
  ASSERT_TRUE(read);
  EXPECT_EQ(machine_facts(*read), machine_facts(target));
  EXPECT_TRUE(read->has("fma"));
  EXPECT_NE(machine_facts(target, Fp32Products::kPieces), machine_facts(target));
  EXPECT_TRUE(target_of_facts(machine_facts(target, Fp32Products::kPieces)));
  EXPECT_TRUE(target_of_facts(machine_facts(target, Fp32Products::kPiecesIfFaster)));
  EXPECT_FALSE(target_of_facts(machine_facts(target) + " fp32 fma"));
  target.features.clear();
  ASSERT_TRUE(target_of_facts(machine_facts(target)));
  EXPECT_TRUE(target_of_facts(machine_facts(target))->features.empty());
  for (const char* text :
       {"", "x y [a L1 1 L2 2 L3 3", "x y [a] L1 1 L2 2", "x y [a] L1 1 L2 2 L3 z", "x y [a] L2 1 L1 2 L3 3"})
    EXPECT_FALSE(target_of_facts(text)) << text;
}

TEST_F(Records, MergeAddsWhatIsNotThereAndKeepsTheLargerGain) {
  {
    RecordFile a(path("a.db"), RecordFile::Open::kWrite);
    a.set_choice(choice(a.add_machine({0, "facts", 100, 10}), 8));
    RecordFile b(path("b.db"), RecordFile::Open::kWrite);
    b.add_machine({0, "another", 50, 5});
    const int64_t machine = b.add_machine({0, "facts", 110, 10});
    for (int i = 0; i < 3; ++i) b.add_trial(trial(machine, i, 10 - i));
    b.set_choice(choice(machine, 6));
  }
  RecordFile a(path("a.db"), RecordFile::Open::kWrite);
  const RecordFile b(path("b.db"), RecordFile::Open::kRead);
  EXPECT_EQ(a.merge(b).trials, 3);
  EXPECT_EQ(a.merge(b).trials, 0) << "a second time nothing is new";
  EXPECT_EQ(a.count_trials(), 3);
  EXPECT_EQ(a.choices()[0].us, 6);
  EXPECT_EQ(a.choices().size(), 1u) << "the machine with the same facts is the same";
  EXPECT_EQ(a.prune(1), 1);
  ASSERT_EQ(a.count_trials(), 2);
  EXPECT_EQ(a.trials()[0].number, 0) << "times are compared with the default's";
  EXPECT_EQ(a.trials()[1].us, 8);
  EXPECT_EQ(a.prune(0), 2);
  EXPECT_EQ(a.choices().size(), 1u);
}

TEST_F(Records, MergePutsNoRevertedChoiceInTheWay) {
  const auto reverted = [](ChoiceRecord choice) {
    choice.state = "reverted";
    return choice;
  };
  RecordFile a(path("a.db"), RecordFile::Open::kWrite), b(path("b.db"), RecordFile::Open::kWrite);
  const int64_t here = a.add_machine({0, "facts", 100, 10}), there = b.add_machine({0, "facts", 100, 10});
  a.set_choice(choice(here, 8));
  b.set_choice(reverted(choice(there, 2)));
  EXPECT_EQ(a.merge(b).choices, 0) << "a larger gain that was reverted";
  EXPECT_EQ(a.choices()[0].us, 8);
  EXPECT_EQ(b.merge(a).choices, 1) << "a smaller gain that is used";
  EXPECT_EQ(b.choices()[0].state, "won");
  EXPECT_EQ(b.choices()[0].us, 8);
  a.set_choice(reverted(choice(here, 8)));
  b.set_choice(reverted(choice(there, 7)));
  EXPECT_EQ(a.merge(b).choices, 1);
  EXPECT_EQ(a.choices()[0].us, 7) << "of two that were reverted the larger gain";
}

TEST_F(Records, MergeNamesTheFileThatIsBroken) {
  RecordFile a(path("a.db"), RecordFile::Open::kWrite), b(path("b.db"), RecordFile::Open::kWrite);
  b.add_trial(trial(77, 0, 10));
  try {
    a.merge(b);
    FAIL() << "records of no machine";
  } catch (const UserError& error) {
    EXPECT_EQ(error.diagnostic().id, "TSR-6402");
    EXPECT_NE(error.diagnostic().message.find("b.db' has records of a machine 77"), std::string::npos);
  }
}

TEST_F(Records, ForeignAndDamagedFilesAreRefusedAndLeftAlone) {
  EXPECT_EQ(error_of([&] { RecordFile(path("none.db"), RecordFile::Open::kRead); }), "TSR-6401");
  EXPECT_EQ(error_of([&] { RecordFile("/nowhere/none.db", RecordFile::Open::kWrite); }), "TSR-6401");
  EXPECT_EQ(error_of([&] { RecordFile(folder_, RecordFile::Open::kWrite); }), "TSR-6401");
  std::ofstream(path("text.db")) << std::string(5000, 'x');
  for (const auto mode : {RecordFile::Open::kRead, RecordFile::Open::kWrite})
    EXPECT_EQ(error_of([&] { RecordFile(path("text.db"), mode); }), "TSR-6402");
  EXPECT_EQ(std::filesystem::file_size(path("text.db")), 5000u);
  {
    RecordFile records(path("a.db"), RecordFile::Open::kWrite);
    const int64_t machine = records.add_machine({0, "facts", 100, 10});
    for (int i = 0; i < 300; ++i) records.add_trial(trial(machine, i, 10));
  }
  // Every file that is cut or overwritten somewhere is refused or read; nothing worse.
  std::mt19937 random(3);
  const auto size = std::filesystem::file_size(path("a.db"));
  for (int i = 0; i < 40; ++i) {
    std::filesystem::copy_file(path("a.db"), path("bad.db"), std::filesystem::copy_options::overwrite_existing);
    if (i % 2 == 0) std::filesystem::resize_file(path("bad.db"), random() % size);
    else {
      std::fstream file(path("bad.db"), std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(static_cast<std::streamoff>(random() % size));
      const std::string noise(400, static_cast<char>(random()));
      file << noise;
    }
    try {
      const RecordFile records(path("bad.db"), RecordFile::Open::kRead);
      records.trials();
    } catch (const UserError& error) {
      EXPECT_TRUE(error.diagnostic().id.starts_with("TSR-640")) << error.what();
    }
  }
}

TEST_F(Records, CandidatesStandBesideChoices) {
  const RecordKey key{"00000000000000aa", 1, 1};
  {
    RecordFile a(path("a.db"), RecordFile::Open::kWrite);
    ASSERT_EQ(a.add_machine({0, "facts", 100, 10}), 1);
    a.set_choice(choice(1, 8));
    EXPECT_FALSE(a.candidate(key));
    a.set_candidate(choice(1, 7));
    EXPECT_EQ(a.choice(key)->us, 8) << "a candidate leaves what is used alone";
    EXPECT_EQ(a.choices().size(), 1u);
    RecordFile b(path("b.db"), RecordFile::Open::kWrite);
    b.set_candidate(choice(b.add_machine({0, "facts", 100, 10}), 6));
    EXPECT_EQ(b.prune(0), 0);
    EXPECT_EQ(b.machines().size(), 1u) << "its machine is referred to";
    EXPECT_EQ(a.merge(b).choices, 0) << "it is no choice";
  }
  {
    const RecordFile a(path("a.db"), RecordFile::Open::kRead);
    ASSERT_TRUE(a.candidate(key));
    EXPECT_EQ(a.candidate(key)->us, 6) << "of two the larger gain";
    EXPECT_EQ(a.candidate(key)->state, "won alone");
    EXPECT_EQ(a.candidates().size(), 1u);
    EXPECT_EQ(a.choice(key)->us, 8);
  }
  RecordFile a(path("a.db"), RecordFile::Open::kWrite);
  a.drop_candidate(key);
  EXPECT_TRUE(a.candidates().empty());
  EXPECT_TRUE(a.tried().empty());
  for (int i = 0; i < 3; ++i) a.add_trial(trial(1, i, 10));
  ASSERT_EQ(a.tried().size(), 1u);
  EXPECT_EQ(a.tried()[0].kernel, key.kernel);
}

TEST_F(Records, FilesFromBeforeCandidatesAreRead) {
  {
    RecordFile(path("old.db"), RecordFile::Open::kWrite).set_choice(choice(1, 8));
  }
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(path("old.db").c_str(), &db), SQLITE_OK);
  EXPECT_EQ(sqlite3_exec(db, "DROP TABLE candidates", nullptr, nullptr, nullptr), SQLITE_OK);
  sqlite3_close(db);
  {
    const RecordFile old(path("old.db"), RecordFile::Open::kRead);
    EXPECT_TRUE(old.candidates().empty());
    EXPECT_FALSE(old.candidate({"00000000000000aa", 1, 1}));
    EXPECT_EQ(old.choices().size(), 1u);
    RecordFile other(path("new.db"), RecordFile::Open::kWrite);
    EXPECT_EQ(error_of([&] { other.merge(old); }), "TSR-6402") << "its machine 1 is not described";
  }
  RecordFile old(path("old.db"), RecordFile::Open::kWrite);
  old.set_candidate(choice(1, 7));
  EXPECT_EQ(old.candidates().size(), 1u);
}

// What a process that may write nothing reads of a file: its number of trials, or the id of its error.
std::string read_by_nobody(const std::string& file) {
  int ends[2];
  if (pipe(ends) != 0) return "no pipe";
  if (fork() == 0) {
    std::string answer;
    constexpr uid_t kNobody = 65534;
    if (geteuid() == 0 && setuid(kNobody) != 0) answer = "no setuid";
    try {
      if (answer.empty()) answer = std::to_string(RecordFile(file, RecordFile::Open::kRead).count_trials());
    } catch (const UserError& error) {
      answer = error.diagnostic().id + " " + error.diagnostic().message;
    }
    _exit(write(ends[1], answer.data(), answer.size()) == static_cast<ssize_t>(answer.size()) ? 0 : 1);
  }
  close(ends[1]);
  std::string answer;
  char buffer[256];
  for (ssize_t size; (size = read(ends[0], buffer, sizeof(buffer))) > 0;)
    answer.append(buffer, static_cast<size_t>(size));
  close(ends[0]);
  wait(nullptr);
  return answer;
}

TEST_F(Records, AreReadWhereNothingMayBeWritten) {
  namespace fs = std::filesystem;
  const std::string name = "a %?#.db";  // means nothing in a path
  constexpr auto kReadOnly = fs::perms::owner_read | fs::perms::group_read | fs::perms::others_read;
  constexpr auto kEnter = fs::perms::owner_exec | fs::perms::group_exec | fs::perms::others_exec;
  {
    RecordFile records(path(name), RecordFile::Open::kWrite);
    for (int i = 0; i < 3; ++i) records.add_trial(trial(1, i, 10));
    // As a process that was killed leaves it.
    for (const char* end : {"", "-wal"}) fs::copy_file(path(name) + end, path("killed.db") + end);
  }
  ASSERT_FALSE(fs::exists(path(name) + "-wal"));
  ASSERT_GT(fs::file_size(path("killed.db-wal")), 0u);
  for (const auto& entry : fs::directory_iterator(folder_)) fs::permissions(entry.path(), kReadOnly);
  fs::permissions(folder_, kReadOnly | kEnter);
  EXPECT_EQ(read_by_nobody(path(name)), "3");
  const std::string refused = read_by_nobody(path("killed.db"));
  EXPECT_TRUE(refused.starts_with("TSR-6401") && refused.find("killed.db-wal' holds a part") != std::string::npos)
      << refused;
  fs::permissions(folder_, fs::perms::owner_all | kReadOnly | kEnter);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 3) << "reading made no file";
}

// kill -9 at ten random moments: what was there before the last record is there.
TEST_F(Records, SurviveKills) {
  std::mt19937 random(11);
  int64_t before = 0;
  for (int i = 0; i < 10; ++i) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
      close(ends[0]);
      RecordFile records(path("k.db"), RecordFile::Open::kWrite);
      const int64_t machine = records.add_machine({0, "facts", 100, 10});
      for (int64_t n = 0;; ++n) {
        records.add_trial(trial(machine, n, 10));
        if (write(ends[1], "x", 1) != 1) _exit(1);  // this one is surely there
      }
    }
    close(ends[1]);
    char byte;
    ASSERT_EQ(read(ends[0], &byte, 1), 1);
    int64_t told = 1;
    usleep(static_cast<useconds_t>(random() % 20000));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    while (read(ends[0], &byte, 1) == 1) ++told;
    close(ends[0]);
    RecordFile records(path("k.db"), RecordFile::Open::kWrite);
    const int64_t there = records.count_trials() - before;
    EXPECT_GE(there, told);
    EXPECT_LE(there, told + 1);
    before += there;
  }
}

}  // namespace
}  // namespace tessera
