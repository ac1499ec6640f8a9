#include "peer_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "npy.h"
#include "peer_scripts.h"

namespace tessera {

namespace {

// How far bf16 results may be from f32 ones; as for `diff` and `run`.
constexpr double kBf16Tolerance = 0x1p-5;

std::string python() {
  const char* named = std::getenv("TESSERA_PYTHON");
  return named && *named ? named : "python3";
}

// Numpy's name of the type that write_npy and read_npy give `dtype`.
std::string_view numpy_name(DType dtype) {
  switch (dtype) {
    case DType::kF64: return "float64";
    case DType::kF16: return "float16";
    case DType::kI64: return "int64";
    case DType::kI32: return "int32";
    case DType::kI16: return "int16";
    case DType::kI8: return "int8";
    case DType::kU64: return "uint64";
    case DType::kU32: return "uint32";
    case DType::kU16: return "uint16";
    case DType::kU8: return "uint8";
    case DType::kBool: return "bool";
    default: return "float32";
  }
}

}  // namespace

const std::vector<PeerKind>& peer_kinds() {
  static const std::vector<PeerKind> kinds = {
      {"onnxruntime", "ONNX Runtime", "onnxruntime and numpy", "onnxruntime", kOnnxruntimeAdapter},
      {"openvino", "OpenVINO", "openvino and numpy", "openvino", kOpenvinoAdapter},
      {"openvino-bf16", "OpenVINO in bf16", "openvino and numpy", "openvino", kOpenvinoAdapter, kBf16Tolerance},
      {"iree", "IREE", "iree-base-compiler, iree-base-runtime, onnx and numpy",
       "iree-base-compiler iree-base-runtime onnx", kIreeAdapter},
      {"tvm", "TVM", "apache-tvm, onnx and numpy", "apache-tvm onnx", kTvmAdapter},
      {"mnn", "MNN", "mnn, onnx and numpy", "mnn onnx", kMnnAdapter},
      {"torch", "PyTorch", "torch, onnx2torch, onnx and numpy", "torch torchvision onnx2torch onnx", kTorchAdapter},
      {"torch-compile", "PyTorch's Inductor", "torch, onnx2torch, onnx and numpy", "torch torchvision onnx2torch onnx",
       kTorchAdapter},
  };
  return kinds;
}

std::string peer_names() {
  std::string names;
  for (const PeerKind& kind : peer_kinds()) names += (names.empty() ? "" : ", ") + std::string(kind.name);
  return names;
}

const PeerKind& find_peer_kind(std::string_view name) {
  for (const PeerKind& kind : peer_kinds())
    if (kind.name == name) return kind;
  throw UserError({.id = "TSR-4045",
                   .message = fmt::format("--against '{}' is no engine to measure beside", name),
                   .node = {},
                   .legal = peer_names(),
                   .hint = "separate several by commas"});
}

PeerError::PeerError(const PeerKind& kind, std::string reason)
    : UserError({.id = "TSR-4044",
                 .message = fmt::format("{} cannot be used beside us: {}", kind.label, reason),
                 .node = {},
                 .legal = fmt::format("a Python with the packages {}, and a model that it runs", kind.packages),
                 .hint = fmt::format("pip install {}; set TESSERA_PYTHON to that Python if it is not 'python3'",
                                     kind.install)}),
      reason_(std::move(reason)) {}

PeerProcess::PeerProcess(const PeerKind& kind, const std::string& model_path,
                         const std::vector<std::string>& input_names, const std::vector<Tensor>& inputs,
                         const std::vector<DType>& output_types, const Options& options)
    : kind_(kind), options_(options) {
  try {
    start(model_path);
    const std::string folder = nlohmann::json::parse(ask("")).at("folder").get<std::string>();
    for (size_t i = 0; i < inputs.size(); ++i) write_npy(fmt::format("{}/input_{}.npy", folder, i), inputs[i]);
    nlohmann::json request = {{"inputs", input_names}, {"outputs", nlohmann::json::array()}};
    for (const DType dtype : output_types) request["outputs"].push_back(numpy_name(dtype));
    const nlohmann::json ready =
        nlohmann::json::parse(ask(request.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n"));
    version_ = ready.at("version").get<std::string>();
    costs_ = {ready.at("import_s"), ready.at("open_s"), ready.at("first_ms"), ready.at("run_ms"),
              ready.at("peak_bytes")};
    for (size_t i = 0; i < ready.at("outputs").get<size_t>(); ++i)
      outputs_.push_back(read_npy(fmt::format("{}/output_{}.npy", folder, i)));
  } catch (const nlohmann::json::exception&) {
    stop();
    throw PeerError(kind_, fmt::format("'{}' gave an answer that does not follow the protocol", python()));
  } catch (...) {
    stop();
    throw;
  }
}

PeerProcess::~PeerProcess() { stop(); }

void PeerProcess::start(const std::string& model_path) {
  int there[2], back[2];
  if (pipe2(there, O_CLOEXEC) != 0) throw PeerError(kind_, std::strerror(errno));
  if (pipe2(back, O_CLOEXEC) != 0) {
    const int error = errno;
    close(there[0]);
    close(there[1]);
    throw PeerError(kind_, std::strerror(error));
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, there[0], 0);
  posix_spawn_file_actions_adddup2(&actions, back[1], 1);
  const std::string program = python(), threads = std::to_string(options_.threads), name(kind_.name);
  const std::string script = std::string(kind_.adapter) + "\n\n" + kPeerHost;
  const char* arguments[] = {program.c_str(), "-c",   script.c_str(), name.c_str(), model_path.c_str(),
                             threads.c_str(), nullptr};
  const int failed =
      posix_spawnp(&process_, program.c_str(), &actions, nullptr, const_cast<char* const*>(arguments), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(there[0]);
  close(back[1]);
  to_ = there[1];
  from_ = back[0];
  if (failed != 0) {
    process_ = -1;
    throw PeerError(kind_, fmt::format("'{}' cannot be started: {}", program, std::strerror(failed)));
  }
}

void PeerProcess::stop() noexcept {
  if (to_ >= 0) close(to_);
  if (process_ > 0) waitpid(process_, nullptr, 0);
  if (from_ >= 0) close(from_);
  to_ = from_ = process_ = -1;
}

std::string PeerProcess::ask(const std::string& line) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
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
    int wait_ms = -1;
    if (options_.limit_seconds > 0) {
      const double left = options_.limit_seconds - std::chrono::duration<double>(Clock::now() - begin).count();
      if (left <= 0) throw PeerError(kind_, fmt::format("no answer within {} s", options_.limit_seconds));
      wait_ms = static_cast<int>(std::min(left * 1e3, 1e6)) + 1;
    }
    pollfd waited = {.fd = from_, .events = POLLIN, .revents = 0};
    if (poll(&waited, 1, wait_ms) <= 0) continue;
    char bytes[65536];
    const ssize_t count = read(from_, bytes, sizeof(bytes));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) throw PeerError(kind_, fmt::format("'{}' ended without an answer", python()));
    unread_.append(bytes, static_cast<size_t>(count));
  }
  const std::string text = unread_.substr(0, end);
  unread_.erase(0, end + 1);
  const nlohmann::json told = nlohmann::json::parse(text);
  if (told.contains("error")) throw PeerError(kind_, told.at("error").get<std::string>());
  return text;
}

std::vector<double> PeerProcess::time_round(int warm_up, int repeat) {
  const nlohmann::json request = {{"warm_up", warm_up}, {"repeat", repeat}};
  return nlohmann::json::parse(ask(request.dump() + "\n")).at("ms").get<std::vector<double>>();
}

}  // namespace tessera
