#include "onnxruntime_peer.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "npy.h"
#include "onnxruntime_peer_script.h"
#include "support/error.h"

namespace tessera {

namespace {

[[noreturn]] void fail(const std::string& reason) {
  throw UserError({.id = "TSR-4044",
                   .message = fmt::format("ONNX Runtime cannot be used beside us: {}", reason),
                   .node = {},
                   .legal = "a Python with the packages onnxruntime and numpy, and a model that it runs",
                   .hint = "pip install onnxruntime; set TESSERA_PYTHON to that Python if it is not 'python3'"});
}

std::string python() {
  const char* named = std::getenv("TESSERA_PYTHON");
  return named && *named ? named : "python3";
}

}  // namespace

OnnxRuntimePeer::OnnxRuntimePeer(const std::string& model_path, const std::vector<std::string>& input_names,
                                 const std::vector<Tensor>& inputs, int threads) {
  std::string pattern = (std::filesystem::temp_directory_path() / "tessera-peer-XXXXXX").string();
  if (!mkdtemp(pattern.data())) fail(fmt::format("no temporary folder: {}", std::strerror(errno)));
  folder_ = pattern;
  try {
    for (size_t i = 0; i < inputs.size(); ++i) write_npy(fmt::format("{}/input_{}.npy", folder_, i), inputs[i]);
    std::ofstream(folder_ + "/inputs.json")
        << nlohmann::json(input_names).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    start(model_path, threads);
    const nlohmann::json ready = nlohmann::json::parse(ask(""));
    if (ready.contains("error")) fail(ready.at("error").get<std::string>());
    version_ = ready.at("version").get<std::string>();
    for (size_t i = 0; i < ready.at("outputs").get<size_t>(); ++i)
      outputs_.push_back(read_npy(fmt::format("{}/output_{}.npy", folder_, i)));
  } catch (...) {
    stop();
    throw;
  }
}

OnnxRuntimePeer::~OnnxRuntimePeer() { stop(); }

void OnnxRuntimePeer::start(const std::string& model_path, int threads) {
  int there[2], back[2];
  if (pipe2(there, O_CLOEXEC) != 0) fail(std::strerror(errno));
  if (pipe2(back, O_CLOEXEC) != 0) {
    close(there[0]);
    close(there[1]);
    fail(std::strerror(errno));
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, there[0], 0);
  posix_spawn_file_actions_adddup2(&actions, back[1], 1);
  const std::string program = python(), count = std::to_string(threads);
  std::string script(kOnnxRuntimePeerScript);
  const char* arguments[] = {program.c_str(), "-c",          script.c_str(), model_path.c_str(),
                             folder_.c_str(), count.c_str(), nullptr};
  const int failed =
      posix_spawnp(&process_, program.c_str(), &actions, nullptr, const_cast<char* const*>(arguments), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(there[0]);
  close(back[1]);
  to_ = there[1];
  from_ = back[0];
  if (failed != 0) {
    process_ = -1;
    fail(fmt::format("'{}' cannot be started: {}", program, std::strerror(failed)));
  }
}

void OnnxRuntimePeer::stop() noexcept {
  if (to_ >= 0) close(to_);
  if (from_ >= 0) close(from_);
  if (process_ > 0) waitpid(process_, nullptr, 0);
  to_ = from_ = process_ = -1;
  std::error_code error;
  if (!folder_.empty()) std::filesystem::remove_all(folder_, error);
}

std::string OnnxRuntimePeer::ask(const std::string& line) {
  // A peer that has died is noticed by its silence, not by a signal.
  const auto before = signal(SIGPIPE, SIG_IGN);
  for (size_t at = 0; at < line.size();) {
    const ssize_t count = write(to_, line.data() + at, line.size() - at);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    at += static_cast<size_t>(count);
  }
  signal(SIGPIPE, before);
  size_t end;
  while ((end = unread_.find('\n')) == std::string::npos) {
    char bytes[65536];
    const ssize_t count = read(from_, bytes, sizeof(bytes));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) fail(fmt::format("'{}' ended without an answer", python()));
    unread_.append(bytes, static_cast<size_t>(count));
  }
  std::string answer = unread_.substr(0, end);
  unread_.erase(0, end + 1);
  return answer;
}

std::vector<double> OnnxRuntimePeer::time_round(int repeat) {
  return nlohmann::json::parse(ask(fmt::format("{}\n", repeat))).at("ms").get<std::vector<double>>();
}

}  // namespace tessera
