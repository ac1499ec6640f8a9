#include "driver/engine/isolated.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <mutex>
#include <span>

#include <fmt/format.h>

#include "package/anonymous_file.h"
#include "support/error.h"

namespace tessera::inline driver {

namespace {

using Clock = std::chrono::steady_clock;

// Both standard streams of this process go nowhere.
void be_silent() {
  const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (nowhere < 0) return;
  dup2(nowhere, STDOUT_FILENO);
  dup2(nowhere, STDERR_FILENO);
}

// Reads until the other end is closed; false when that takes longer.
bool read_all(int from, Clock::time_point deadline, std::string& text) {
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return false;
    pollfd entry{from, POLLIN, 0};
    const int ready = poll(&entry, 1, static_cast<int>(std::min<int64_t>(left, 60'000)));
    if (ready <= 0) continue;
    char bytes[4096];
    const ssize_t count = read(from, bytes, sizeof(bytes));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return true;
    text.append(bytes, static_cast<size_t>(count));
  }
}

// The status of the child; it is killed, with its group, when it did not end in time.
std::string finish(pid_t child, bool in_time, const std::string& answer) {
  if (!in_time) kill(-child, SIGKILL);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!in_time) return "timeout";
  if (WIFSIGNALED(status)) return fmt::format("crash: {}", strsignal(WTERMSIG(status)));
  return answer.empty() ? fmt::format("exit {}", WEXITSTATUS(status)) : answer;
}

template <typename Child>
std::string in_child(const Child& work, double timeout_seconds) {
  int ends[2];
  // A child that another thread starts meanwhile would keep this pipe open: its end would come when both are done.
  static std::mutex starting;
  std::unique_lock lock(starting);
  check(pipe2(ends, O_CLOEXEC) == 0, "no pipe for a process");
  const auto deadline =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(timeout_seconds));
  const pid_t child = fork();
  check(child >= 0, "no process");
  if (child == 0) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // an interrupted search leaves nothing behind
    signal(SIGINT, SIG_DFL);
    be_silent();
    work(ends[1]);
    _exit(0);  // no destructors: the parent's state is not ours to clean up
  }
  setpgid(child, child);
  close(ends[1]);
  lock.unlock();
  std::string answer;
  const bool in_time = read_all(ends[0], deadline, answer);
  close(ends[0]);
  return finish(child, in_time, answer);
}

}  // namespace

std::string run_isolated(const std::function<std::string()>& work, double timeout_seconds) {
  return in_child(
      [&](int answer) {
        const std::string text = work();
        write_fully(answer, std::as_bytes(std::span(text)), "an answer");
      },
      timeout_seconds);
}

std::string run_shell(const std::string& command, double timeout_seconds) {
  return in_child(
      [&](int answer) {
        fcntl(answer, F_SETFD, 0);  // stays open in the command: its end is the end of the answer
        execl("/bin/sh", "sh", "-c", command.c_str(), static_cast<char*>(nullptr));
        _exit(127);
      },
      timeout_seconds);
}

}  // namespace tessera::inline driver
