#include "records/records.h"

#include <gtest/gtest.h>
#include <signal.h>
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
