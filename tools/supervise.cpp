#include "supervise.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <string_view>
#include <thread>

#include <fmt/format.h>

#include "commands.h"
#include "support/refuse.h"

namespace tessera {

namespace {

constexpr int kSignalled = 128;  // exit codes above it, as shells and mpirun have them

volatile sig_atomic_t wanted_signal = 0;
void remember_signal(int number) { wanted_signal = number; }

std::string find_mpirun() {
  if (const char* own = std::getenv("TESSERA_MPIRUN")) return own;
  const char* path = std::getenv("PATH");
  for (std::string_view rest = path ? path : ""; !rest.empty();) {
    const size_t colon = std::min(rest.find(':'), rest.size());
    const std::string candidate = std::string(rest.substr(0, colon)) + "/mpirun";
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
    rest.remove_prefix(std::min(colon + 1, rest.size()));
  }
  refuse("TSR-6252", "there is no mpirun", "an MPI whose mpirun is in PATH, or TESSERA_MPIRUN=FILE",
         "scripts/setup.sh installs one in .venv/bin");
}

std::string this_program() {
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path));
  return length > 0 ? std::string(path, static_cast<size_t>(length)) : "tessera";
}

// What changes whenever the checkpoint is written.
std::string stamp_of(const std::string& checkpoint) {
  struct stat about;
  if (checkpoint.empty() || stat(checkpoint.c_str(), &about) != 0) return "";
  return fmt::format("{} {} {}", about.st_ino, about.st_mtim.tv_sec, about.st_mtim.tv_nsec);
}

std::vector<pid_t> children() {
  std::vector<pid_t> found;
  DIR* folder = opendir("/proc");
  if (!folder) return found;
  while (const dirent* entry = readdir(folder)) {
    const pid_t pid = static_cast<pid_t>(std::strtol(entry->d_name, nullptr, 10));
    if (pid <= 0) continue;
    std::ifstream file(fmt::format("/proc/{}/stat", pid));
    const std::string stat((std::istreambuf_iterator<char>(file)), {});
    const size_t name_end = stat.rfind(')');
    if (name_end == std::string::npos || name_end + 4 > stat.size()) continue;
    if (std::strtol(stat.c_str() + name_end + 4, nullptr, 10) == getpid()) found.push_back(pid);
  }
  closedir(folder);
  return found;
}

// Ranks whose mpirun has been killed are this process's children then.
void end_all_children() {
  while (true) {
    for (const pid_t pid : children()) kill(pid, SIGKILL);
    if (waitpid(-1, nullptr, 0) < 0 && errno == ECHILD) return;
  }
}

pid_t start(const std::vector<std::string>& command) {
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const pid_t pid = fork();
  if (pid != 0) return pid;
  signal(SIGINT, SIG_DFL);
  signal(SIGTERM, SIG_DFL);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  execv(argv[0], argv.data());
  _exit(127);
}

// Its exit code, with signals as shells have them.
int wait_for(pid_t launcher) {
  while (true) {
    int status = 0;
    const pid_t ended = waitpid(-1, &status, 0);
    if (ended < 0 && errno == EINTR) {
      if (wanted_signal != 0) kill(launcher, wanted_signal);
      continue;
    }
    if (ended < 0) return kExitInternal;
    if (ended != launcher) continue;
    return WIFSIGNALED(status) ? kSignalled + WTERMSIG(status) : WEXITSTATUS(status);
  }
}

}  // namespace

std::vector<std::string> arguments_without(const std::vector<std::string>& names) {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  const std::string all((std::istreambuf_iterator<char>(file)), {});
  std::vector<std::string> arguments;
  for (size_t begin = 0; begin < all.size();) {
    const size_t end = std::min(all.find('\0', begin), all.size());
    arguments.push_back(all.substr(begin, end - begin));
    begin = end + 1;
  }
  std::vector<std::string> result;
  for (size_t i = 1; i < arguments.size(); ++i) {
    bool is_named = false, has_value = false;
    for (const std::string& name : names) {
      is_named = is_named || arguments[i] == name;
      has_value = has_value || arguments[i].starts_with(name + "=");
    }
    if (is_named) ++i;
    else if (!has_value) result.push_back(arguments[i]);
  }
  return result;
}

int supervise(const std::vector<std::string>& arguments, const SuperviseOptions& options) {
  std::vector<std::string> command = {find_mpirun()};
  if (geteuid() == 0) command.emplace_back("--allow-run-as-root");
  command.insert(command.end(), {"--oversubscribe", "-n", std::to_string(options.processes), this_program()});
  command.insert(command.end(), arguments.begin(), arguments.end());
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  struct sigaction action = {};
  action.sa_handler = remember_signal;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  bool has_written = false;
  int fruitless = 0;
  for (int64_t restart = 0;; ++restart) {
    const std::string before = stamp_of(options.checkpoint);
    const pid_t launcher = start(command);
    if (launcher < 0)
      refuse("TSR-6252", fmt::format("'{}' cannot be started: {}", command[0], std::strerror(errno)), "");
    const int code = wait_for(launcher);
    end_all_children();
    if (code == kExitOk || wanted_signal != 0) return code;
    const bool wrote = stamp_of(options.checkpoint) != before;
    has_written = has_written || wrote;
    fruitless = wrote ? 0 : fruitless + 1;
    constexpr int kMostFruitless = 3;
    if ((!has_written && code < kSignalled) || fruitless == kMostFruitless || restart == options.restarts) return code;
    fmt::print(stderr, "restart {} of {}: the group has ended with {}\n", restart + 1, options.restarts,
               code > kSignalled ? fmt::format("signal {}", code - kSignalled) : fmt::format("code {}", code));
  }
}

}  // namespace tessera
