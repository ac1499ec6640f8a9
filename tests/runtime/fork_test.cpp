// A process that forks: the child has no worker threads; old sessions work alone, new ones start threads again.
#include <sys/wait.h>

#include "module_fixture.h"
#include "runtime/cpu/thread_pool.h"

namespace tessera {
namespace {

bool scales(const SessionPtr& session) {
  const float x[4] = {1, 2, 3, 4};
  float y[4] = {};
  return run_outcome(session, {tensor(x, TESSERA_F32, {4})}, {tensor(y, TESSERA_F32, {4})}) == "ok" && y[0] == 2 &&
         y[1] == 6 && y[2] == 15 && y[3] == 28;
}

// Runs `child` in a fork and gives its exit code.
template <typename Child>
int in_child(Child child) {
  const pid_t pid = fork();
  if (pid == 0) _exit(child());
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + status;
}

TEST(Fork, ChildrenRunOldAndNewSessions) {
  if (kThreadSanitizer) GTEST_SKIP() << "ThreadSanitizer does not support threads in the child of a fork";
  const ModulePtr module = load_bytes(ModuleSpec().build());
  const SessionPtr session = make_session(module, 3);
  ASSERT_TRUE(scales(session));
  const auto child = [&] {
    alarm(20);  // a deadlock ends the child by a signal
    ThreadPool& pool = ThreadPool::process();
    if (pool.begin_run(3)) return 1;  // no workers yet
    for (int i = 0; i < 100; ++i) {
      if (!scales(session)) return 2;
    }
    const SessionPtr fresh = make_session(module, 2);
    if (!pool.begin_run(2)) return 3;
    pool.end_run();
    for (int i = 0; i < 100; ++i) {
      if (!scales(fresh) || !scales(session)) return 4;
    }
    return 0;
  };
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(in_child(child), 0);
    EXPECT_TRUE(scales(session)) << "the parent goes on";
  }
}

TEST(Fork, InsideARunTheChildGoesOnAlone) {
  if (kThreadSanitizer) GTEST_SKIP() << "ThreadSanitizer does not support threads in the child of a fork";
  const ModulePtr module = load_bytes(ModuleSpec().build());
  const SessionPtr session = make_session(module, 3);
  static pid_t pid;
  pid = -1;
  const auto fork_at_begin = [](void*, int32_t, int32_t phase) {
    if (phase == 0) pid = fork();
  };
  tessera_session_set_trace(session.get(), fork_at_begin, nullptr);
  const bool good = scales(session);
  if (pid == 0) _exit(good ? 0 : 1);
  EXPECT_TRUE(good);
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

}  // namespace
}  // namespace tessera
