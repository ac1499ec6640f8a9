#include "tune/runner_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <utility>

#include <fmt/format.h>

#include "codegen/llvm/target.h"
#include "driver/engine/isolated.h"
#include "support/error.h"

namespace tessera::inline tune {

namespace {

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(std::move(word));
  return words;
}

// As `uname -m` says it.
std::string architecture_of(const Target& target) {
  const std::string name = target.triple.substr(0, target.triple.find('-'));
  return name == "arm64" ? "aarch64" : name == "amd64" ? "x86_64" : name;
}

std::string joined(const std::vector<std::string>& words, const char* between) {
  return fmt::format("{}", fmt::join(words, between));
}

[[noreturn]] void refuse(const std::string& message, const std::string& legal, const std::string& hint) {
  throw UserError({.id = "TSR-6412", .message = message, .node = {}, .legal = legal, .hint = hint});
}

}  // namespace

RunnerCommand runner_command(const std::string& prefix, const std::string& program, const Target& target) {
  RunnerCommand command{words_of(prefix)};
  if (!program.empty()) {
    command.words.push_back(program);
    return command;
  }
  std::error_code none;
  const auto here = std::filesystem::read_symlink("/proc/self/exe", none).parent_path();
  const std::string architecture = architecture_of(target);
  const std::string path = (here / ("tessera-runner-" + architecture)).string();
  if (access(path.c_str(), F_OK) != 0)
    refuse(fmt::format("there is no runner for {}: '{}' is missing", architecture, path),
           "tessera-runner-ARCHITECTURE beside tessera, or the one that --runner-program names",
           architecture == "aarch64"
               ? "a build makes it where aarch64-linux-gnu-g++ is there (scripts/setup.sh installs it): cmake --preset "
                 "release, and build again"
               : "build src/runner for that machine, as src/runner/CMakeLists.txt does, and name it with "
                 "--runner-program");
  command.words.push_back(path);
  return command;
}

RunnerProcess::RunnerProcess(const RunnerCommand& command) {
  check(!command.empty(), "a runner without a command");
  int ends[2], errors[2], failure[2];
  check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "no socket for a runner");
  // Never full in a way that would stop the runner: what does not fit is lost.
  check(pipe2(errors, O_CLOEXEC | O_NONBLOCK) == 0 && pipe2(failure, O_CLOEXEC) == 0, "no pipe for a runner");
  std::vector<char*> words;
  for (const std::string& word : command.words) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  child_ = fork();
  check(child_ >= 0, "no process for a runner");
  if (child_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(ends[1], STDIN_FILENO);
    dup2(ends[1], STDOUT_FILENO);
    dup2(errors[1], STDERR_FILENO);
    // execvp would give a program of another machine to the shell.
    if (strchr(words[0], '/')) execv(words[0], words.data());
    else execvp(words[0], words.data());
    const int reason = errno;
    [[maybe_unused]] const ssize_t told = write(failure[1], &reason, sizeof(reason));
    _exit(127);
  }
  socket_ = ends[0];
  errors_ = errors[0];
  for (const int end : {ends[1], errors[1], failure[1]}) close(end);
  int reason = 0;
  ssize_t count = 0;
  while ((count = read(failure[0], &reason, sizeof(reason))) < 0 && errno == EINTR) {
  }
  close(failure[0]);
  if (count != sizeof(reason)) return;
  waitpid(std::exchange(child_, -1), nullptr, 0);
  close(socket_);
  close(errors_);
  throw RunnerFailure(fmt::format("'{}' cannot be started: {}", command.words[0], strerror(reason)));
}

RunnerProcess::~RunnerProcess() {
  close(socket_);
  close(errors_);
  if (child_ < 0) return;
  kill(child_, SIGKILL);
  while (waitpid(child_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void RunnerProcess::fail() {
  shutdown(socket_, SHUT_RDWR);
  int status = 0;
  while (waitpid(std::exchange(child_, -1), &status, 0) < 0 && errno == EINTR) {
  }
  std::string said(65536, '\0');
  said.resize(static_cast<size_t>(std::max<ssize_t>(0, read(errors_, said.data(), said.size()))));
  // The first line: an emulator says there what is wrong.
  said = said.substr(0, std::min<size_t>(said.find('\n'), 300));
  const std::string how = WIFSIGNALED(status) ? strsignal(WTERMSIG(status))
                                              : fmt::format("the runner ended with exit code {}", WEXITSTATUS(status));
  throw RunnerFailure(said.empty() ? how : fmt::format("{}: {}", how, said));
}

void RunnerProcess::send(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t done = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) fail();
    bytes = bytes.subspan(static_cast<size_t>(done));
  }
}

void RunnerProcess::receive(void* to, size_t count) {
  auto* at = static_cast<char*>(to);
  while (count > 0) {
    const ssize_t done = recv(socket_, at, count, 0);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) fail();
    at += done;
    count -= static_cast<size_t>(done);
  }
}

std::string RunnerProcess::ask(RunnerOp op, uint32_t argument, std::span<const std::byte> bytes, size_t most_bytes) {
  constexpr size_t kMostReason = 2000;
  const RunnerRequest request{op, argument, bytes.size()};
  send(std::as_bytes(std::span(&request, 1)));
  send(bytes);
  RunnerAnswer answer;
  receive(&answer, sizeof(answer));
  if (answer.failed > 1 || answer.bytes > (answer.failed ? kMostReason : most_bytes))
    throw RunnerFailure("what answers is no runner of this version");
  std::string text(answer.bytes, '\0');
  receive(text.data(), text.size());
  if (answer.failed) throw RunnerFailure(text);
  return text;
}

RunnerPeaks check_runner(const RunnerCommand& command, const Target& target, double seconds) {
  const std::string shown = joined(command.words, " ");
  const std::string features = joined(required_features(target), ",");
  std::string answer = run_isolated(
      [&]() -> std::string {
        try {
          constexpr size_t kMostHello = 4096;
          RunnerProcess runner(command);
          return "ok " + runner.ask(RunnerOp::kHello, 0, std::as_bytes(std::span(features)), kMostHello);
        } catch (const RunnerFailure& failure) {
          return std::string("failed ") + failure.what();
        }
      },
      seconds);
  const std::string architecture = architecture_of(target);
  const std::string legal =
      fmt::format("a command that runs programs for {}, as 'qemu-{} -L FOLDER' does, or an empty one on such a machine",
                  architecture, architecture);
  if (!answer.starts_with("ok ")) {
    const std::string reason = answer.starts_with("failed ") ? answer.substr(7) : answer;
    refuse(fmt::format("the runner '{}' does not run: {}", shown, reason), legal,
           reason.find(strerror(ENOEXEC)) != std::string::npos
               ? fmt::format("this machine does not run it: name an emulator, as --runner \"qemu-{} -L FOLDER\"",
                             architecture)
           : reason.find("cannot be started") != std::string::npos
               ? "check the spelling; Debian's package qemu-user has qemu's commands"
           : reason.find("/lib/ld-") != std::string::npos
               ? fmt::format("name the folder with libraries for {} as Debian has it: qemu-{} -L /usr/{}-linux-gnu",
                             architecture, architecture, architecture)
               : "try the command in a terminal: the program prints a line about itself");
  }
  std::istringstream words(answer.substr(3));
  std::string name, machine, missing;
  uint32_t protocol = 0;
  RunnerPeaks peaks;
  words >> name >> protocol >> machine >> peaks.gflops >> peaks.memory_gbytes;
  if (!words || name != "tessera-runner" || protocol != kRunnerProtocol || !(peaks.gflops > 0))
    refuse(fmt::format("the runner '{}' is of another version", shown), legal,
           "take the program of the same build as this worker");
  std::getline(words >> std::ws, missing);
  if (machine != architecture)
    refuse(fmt::format("the runner '{}' runs on {}, and the target is {}", shown, machine, target.triple), legal,
           "give a --target and a --runner that belong together");
  if (!missing.empty())
    refuse(fmt::format("the machine of the runner '{}' lacks {}", shown, missing), legal,
           "leave the features out of --target, or have the emulator offer them (qemu: -cpu max)");
  return peaks;
}

}  // namespace tessera::inline tune
