#include "runtime/cpu/affinity.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "runtime/cpu/thread_pool.h"
#include "tessera/tessera.h"

namespace tessera {
namespace {

// Sets or clears a variable for the length of a test.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* before = getenv(name)) before_ = before;
    value ? setenv(name, value, 1) : unsetenv(name);
  }
  ~Variable() { before_ ? setenv(name_, before_->c_str(), 1) : unsetenv(name_); }

 private:
  const char* name_;
  std::optional<std::string> before_;
};

// Binds this thread to its first `count` CPUs for the length of a test.
class Affinity {
 public:
  explicit Affinity(int count) {
    sched_getaffinity(0, sizeof(before_), &before_);
    cpu_set_t fewer;
    CPU_ZERO(&fewer);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&fewer) < count; ++cpu) {
      if (CPU_ISSET(cpu, &before_)) CPU_SET(cpu, &fewer);
    }
    sched_setaffinity(0, sizeof(fewer), &fewer);
  }
  ~Affinity() { sched_setaffinity(0, sizeof(before_), &before_); }

 private:
  cpu_set_t before_;
};

TEST(NumThreads, ParsesWholeNumbersInRangeOnly) {
  EXPECT_EQ(parse_thread_count("1", false), 1);
  EXPECT_EQ(parse_thread_count(" 12\t", false), 12);
  EXPECT_EQ(parse_thread_count("512", false), ThreadPool::kMaxThreads);
  for (const char* wrong :
       {"", " ", "0", "-1", "+2", "513", "2x", "x2", "1.5", "4,2", "0x10", "99999999999999999999"}) {
    EXPECT_EQ(parse_thread_count(wrong, false), 0) << wrong;
  }
  EXPECT_EQ(parse_thread_count(nullptr, false), 0);
  EXPECT_EQ(parse_thread_count("4,2,1", true), 4);
  EXPECT_EQ(parse_thread_count("3 , 2", true), 3);
  EXPECT_EQ(parse_thread_count(",2", true), 0);
  EXPECT_EQ(parse_thread_count("0,2", true), 0);
}

TEST(NumThreads, OwnVariableThenOpenMpThenMachine) {
  const Variable own("TESSERA_NUM_THREADS", "3"), openmp("OMP_NUM_THREADS", "5,2");
  EXPECT_EQ(tessera_default_num_threads(), 3);
  {
    const Variable none("TESSERA_NUM_THREADS", nullptr);
    EXPECT_EQ(tessera_default_num_threads(), 5);
    const Variable neither("OMP_NUM_THREADS", nullptr);
    EXPECT_EQ(tessera_default_num_threads(), usable_cpus());
  }
  for (const char* invalid : {"", "none", "0", "-4", "1e3", "2,2"}) {
    const Variable own_invalid("TESSERA_NUM_THREADS", invalid);
    EXPECT_EQ(tessera_default_num_threads(), 5) << "'" << invalid << "' is passed over";
    const Variable openmp_invalid("OMP_NUM_THREADS", "many");
    EXPECT_EQ(tessera_default_num_threads(), usable_cpus());
  }
}

TEST(NumThreads, FollowsAffinity) {
  const Variable own("TESSERA_NUM_THREADS", nullptr), openmp("OMP_NUM_THREADS", nullptr);
  const Affinity one(1);
  EXPECT_EQ(usable_cpus(), 1);
  EXPECT_EQ(tessera_default_num_threads(), 1);
}

class Cgroup : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "tessera-cgroup-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void put(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  int limit(const std::string& membership) {
    put("membership", membership);
    return cgroup_cpu_limit((root_ / "membership").c_str(), (root_ / "fs").c_str());
  }

  std::filesystem::path root_;
};

TEST_F(Cgroup, NoFilesNoLimit) {
  EXPECT_EQ(cgroup_cpu_limit((root_ / "absent").c_str(), root_.c_str()), 0);
  EXPECT_EQ(limit("0::/"), 0);
  EXPECT_EQ(limit("garbage\n:\n0:\n:::\n"), 0);
}

TEST_F(Cgroup, Version2RoundsUpAndTakesTheSmallestOnTheWay) {
  put("fs/a/b/cpu.max", "max 100000\n");
  EXPECT_EQ(limit("0::/a/b\n"), 0);
  put("fs/a/b/cpu.max", "250000 100000\n");
  EXPECT_EQ(limit("0::/a/b\n"), 3);
  put("fs/a/cpu.max", "150000 100000\n");
  EXPECT_EQ(limit("0::/a/b\n"), 2);
  put("fs/cpu.max", "1000 100000\n");
  EXPECT_EQ(limit("0::/a/b\n"), 1);
  EXPECT_EQ(limit("0::/a/b/not/visible/here\n"), 1);
  put("fs/cpu.max", "0 0\n");
  EXPECT_EQ(limit("0::/elsewhere\n"), 0);
}

TEST_F(Cgroup, Version1) {
  put("fs/cpu,cpuacct/docker/x/cpu.cfs_quota_us", "-1\n");
  put("fs/cpu,cpuacct/docker/x/cpu.cfs_period_us", "100000\n");
  const std::string membership = "5:memory:/docker/x\n4:cpu,cpuacct:/docker/x\n0::/\n";
  EXPECT_EQ(limit(membership), 0);
  put("fs/cpu,cpuacct/docker/x/cpu.cfs_quota_us", "350000\n");
  EXPECT_EQ(limit(membership), 4);
  put("fs/cpu/cpu.cfs_quota_us", "200000\n");  // mounted under the short name, seen as the root from inside
  put("fs/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(limit(membership), 2);
  EXPECT_EQ(limit("4:cpuset,cpuacct:/docker/x\n"), 0) << "no controller named cpu";
}

TEST(BindThreads, OnlyWhenTheVariableIsOne) {
  for (const char* off : {"0", "", "yes", "2"}) {
    const Variable variable("TESSERA_BIND_THREADS", off);
    EXPECT_FALSE(binding_wanted()) << off;
  }
  const Variable variable("TESSERA_BIND_THREADS", "1");
  EXPECT_TRUE(binding_wanted());
}

TEST(BindThreads, PicksOneCpuOfTheMask) {
  if (usable_cpus() < 2) GTEST_SKIP() << "binding is for machines with more than one CPU";
  const Affinity at_most_two(2);
  cpu_set_t first, second;
  bind_this_thread(0);
  sched_getaffinity(0, sizeof(first), &first);
  EXPECT_EQ(CPU_COUNT(&first), 1);
  {
    const Affinity again(1);  // now one CPU only: nothing to choose from
    bind_this_thread(1);
    sched_getaffinity(0, sizeof(second), &second);
    EXPECT_TRUE(CPU_EQUAL(&first, &second));
  }
}

TEST(LeaveCpu, MovesAndKeepsTheMask) {
  if (usable_cpus() < 2) GTEST_SKIP() << "there is no other CPU to move to";
  cpu_set_t before, after;
  sched_getaffinity(0, sizeof(before), &before);
  int moved = 0;
  for (int i = 0; i < 20; ++i) {
    const int cpu = sched_getcpu();
    leave_cpu(cpu);
    moved += sched_getcpu() != cpu;
  }
  EXPECT_GT(moved, 0);
  sched_getaffinity(0, sizeof(after), &after);
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
}

TEST(LeaveCpu, StaysWhenThereIsNoOther) {
  const Affinity one(1);
  const int cpu = sched_getcpu();
  leave_cpu(cpu);
  EXPECT_EQ(sched_getcpu(), cpu);
  leave_cpu(100000);
  EXPECT_EQ(sched_getcpu(), cpu);
}

TEST(BindThreads, WorkersAreBound) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer does not support threads in the child of a fork";
#endif
  if (usable_cpus() < 2) GTEST_SKIP() << "binding is for machines with more than one CPU";
  // In a process of its own, whose pool has not started its threads yet.
  const auto bound_worker = [] {
    static std::atomic<int> cpus_of_worker;
    setenv("TESSERA_BIND_THREADS", "1", 1);
    ThreadPool& pool = ThreadPool::process();
    if (pool.reserve(2) != 0 || !pool.begin_run(2)) _exit(10);
    const auto task = [](const void*, int64_t, int64_t, int32_t worker) {
      if (worker == 1) {
        cpu_set_t mask;
        sched_getaffinity(0, sizeof(mask), &mask);
        cpus_of_worker = CPU_COUNT(&mask);
      }
      while (cpus_of_worker == 0) usleep(10);
    };
    pool.parallel_for(task, nullptr, 2, 1);
    _exit(cpus_of_worker == 1 ? 0 : 11);
  };
  EXPECT_EXIT(bound_worker(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace tessera
