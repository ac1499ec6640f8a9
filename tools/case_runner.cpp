#include "case_runner.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "package/anonymous_file.h"
#include "support/error.h"

namespace tessera {

namespace {

using Clock = std::chrono::steady_clock;

// A case in a process of its own. The answer comes through a pipe: the verdict's letter, then the reason.
struct Child {
  size_t index = 0;
  pid_t pid = -1;
  int answer = -1;         // the pipe's read end
  AnonymousFile messages;  // the child's standard error
  Clock::time_point begin, deadline;
  std::string text;  // of the answer so far
};

[[noreturn]] void be_child(int answer, int messages, const std::string& folder, const CaseBody& body) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // an interrupted run leaves no cases behind
  dup2(messages, STDERR_FILENO);
  const CaseResult result = body(folder);
  const std::string text = static_cast<char>(result.verdict) + result.reason;
  write_fully(answer, std::as_bytes(std::span(text)), "an answer");
  _exit(0);  // no destructors: the parent's state is not ours to clean up
}

Child start(size_t index, const std::string& folder, double timeout_seconds, const CaseBody& body) {
  int ends[2];
  check(pipe2(ends, O_CLOEXEC) == 0, "no pipe for a test case");
  Child child{
      .index = index, .messages = AnonymousFile("tessera-case"), .begin = Clock::now(), .deadline = {}, .text = {}};
  child.deadline =
      child.begin + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(timeout_seconds));
  child.pid = fork();
  check(child.pid >= 0, "no process for a test case");
  if (child.pid == 0) be_child(ends[1], child.messages.fd(), folder, body);
  close(ends[1]);
  child.answer = ends[0];
  return child;
}

std::string last_line(const AnonymousFile& file) {
  const std::vector<std::byte> bytes = file.contents();
  std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  while (!text.empty() && text.back() == '\n') text.pop_back();
  const size_t line = text.rfind('\n');
  return text.substr(line == std::string::npos ? 0 : line + 1).substr(0, 300);
}

CaseResult finish(Child& child, bool timed_out, double timeout_seconds) {
  if (timed_out) kill(child.pid, SIGKILL);
  int status = 0;
  while (waitpid(child.pid, &status, 0) < 0 && errno == EINTR) {
  }
  close(child.answer);
  if (timed_out) return {CaseVerdict::kFail, fmt::format("timed out after {} s", timeout_seconds)};
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0 && !child.text.empty()) {
    return {static_cast<CaseVerdict>(child.text[0]), child.text.substr(1)};
  }
  const std::string message = last_line(child.messages);
  return {CaseVerdict::kFail,
          fmt::format("crashed: {}{}{}", WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "exit without an answer",
                      message.empty() ? "" : ": ", message)};
}

// True at the end of the answer.
bool read_some(Child& child) {
  char buffer[4096];
  const ssize_t got = read(child.answer, buffer, sizeof(buffer));
  if (got < 0 && errno == EINTR) return false;
  if (got > 0) child.text.append(buffer, static_cast<size_t>(got));
  return got <= 0;
}

// Waits until an answer can be read or a deadline is near.
std::vector<bool> wait_for_answers(const std::vector<Child>& children) {
  std::vector<pollfd> polls;
  Clock::time_point first = Clock::time_point::max();
  for (const Child& child : children) {
    polls.push_back({child.answer, POLLIN, 0});
    first = std::min(first, child.deadline);
  }
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(first - Clock::now()).count();
  poll(polls.data(), polls.size(), static_cast<int>(std::clamp<int64_t>(left, 0, 60'000)));
  std::vector<bool> ready;
  for (const pollfd& entry : polls) ready.push_back(entry.revents != 0);
  return ready;
}

struct Finished {
  CaseResult result;
  double seconds = 0;
};

}  // namespace

void run_isolated(const std::vector<std::string>& cases, const RunnerSettings& settings, const CaseBody& body,
                  const CaseReport& report) {
  std::vector<Child> children;
  std::map<size_t, Finished> finished;  // not yet reported
  size_t started = 0, reported = 0;
  while (reported < cases.size()) {
    while (started < cases.size() && children.size() < static_cast<size_t>(settings.jobs)) {
      children.push_back(start(started, cases[started], settings.timeout_seconds, body));
      ++started;
    }
    const std::vector<bool> ready = wait_for_answers(children);
    std::vector<Child> running;
    for (size_t i = 0; i < children.size(); ++i) {
      Child& child = children[i];
      const bool ended = ready[i] && read_some(child);
      const bool timed_out = !ended && Clock::now() >= child.deadline;
      if (!ended && !timed_out) {
        running.push_back(std::move(child));
        continue;
      }
      const std::chrono::duration<double> taken = Clock::now() - child.begin;
      finished[child.index] = {finish(child, timed_out, settings.timeout_seconds), taken.count()};
    }
    children = std::move(running);
    for (auto it = finished.find(reported); it != finished.end(); it = finished.find(++reported)) {
      report(cases[reported], it->second.result, it->second.seconds);
      finished.erase(it);
    }
  }
}

}  // namespace tessera
