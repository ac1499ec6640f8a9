// tessera-runner-ARCHITECTURE: runs and times modules for `tessera worker --runner`, on the machine that they are for.
// It is built for that machine (src/runner/CMakeLists.txt) and has the run time in it, and no compiler.
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "diagnose/machine_probe.h"
#include "runner/runner_protocol.h"
#include "runtime/cpu/cpu_features.h"
#include "tessera/tessera.h"

namespace tessera {

namespace {

// False at the end of the input.
bool read_fully(void* to, size_t count) {
  auto* at = static_cast<char*>(to);
  while (count > 0) {
    const ssize_t done = read(STDIN_FILENO, at, count);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return false;
    at += done;
    count -= static_cast<size_t>(done);
  }
  return true;
}

void write_fully(const void* from, size_t count) {
  const auto* at = static_cast<const char*>(from);
  while (count > 0) {
    const ssize_t done = write(STDOUT_FILENO, at, count);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) std::exit(1);  // nobody listens
    at += done;
    count -= static_cast<size_t>(done);
  }
}

// Memory for a tensor, aligned as a vector of any machine wants it.
class TensorMemory {
 public:
  explicit TensorMemory(size_t bytes)
      : bytes_(bytes), data_(std::aligned_alloc(kAlignment, (bytes / kAlignment + 1) * kAlignment)) {
    if (!data_) throw std::bad_alloc();
    std::memset(data_.get(), 0, bytes);
  }
  void* data() const { return data_.get(); }
  size_t size() const { return bytes_; }

 private:
  static constexpr size_t kAlignment = 64;
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  size_t bytes_;
  std::unique_ptr<void, Free> data_;
};

size_t bytes_of(const tessera_tensor_info& info) {
  size_t count = 1;
  for (int32_t i = 0; i < info.rank; ++i) count *= static_cast<size_t>(info.dims[i]);
  return (count * static_cast<size_t>(tessera_dtype_bits(info.dtype)) + 7) / 8;
}

// Times of a run's kernel calls.
struct CallTimes {
  using Clock = std::chrono::steady_clock;
  Clock::time_point begin;
  std::vector<double> us;

  static void on_kernel(void* user, int32_t, int32_t phase) {
    auto& times = *static_cast<CallTimes*>(user);
    const Clock::time_point now = Clock::now();
    if (phase == 0) times.begin = now;
    else times.us.push_back(std::chrono::duration<double, std::micro>(now - times.begin).count());
  }
  double median() {
    if (us.empty()) return 0;
    std::sort(us.begin(), us.end());
    return (us[(us.size() - 1) / 2] + us[us.size() / 2]) / 2;
  }
};

struct Failure {
  std::string reason;
};

class LoadedModule {
 public:
  // `inputs`: the data of all of them, one behind the other.
  LoadedModule(const std::string& file, int threads, const std::string& inputs) {
    tessera_error error = {};
    tessera_module* module = nullptr;
    need(tessera_module_load_memory(file.data(), file.size(), nullptr, &module, &error), error);
    module_.reset(module);
    const tessera_session_options options = {sizeof(tessera_session_options), threads};
    tessera_session* session = nullptr;
    need(tessera_session_create(module, &options, &session, &error), error);
    session_.reset(session);
    tessera_tensor_info info;
    size_t taken = 0;
    for (int32_t i = 0; tessera_module_input(module, i, &info) == TESSERA_OK; ++i) {
      const size_t bytes = bytes_of(info);
      if (bytes > inputs.size() - taken) throw Failure{"there are fewer bytes of inputs than the module takes"};
      std::memcpy(add(inputs_, info), inputs.data() + taken, bytes);
      taken += bytes;
    }
    if (taken != inputs.size()) throw Failure{"there are more bytes of inputs than the module takes"};
    for (int32_t i = 0; tessera_module_output(module, i, &info) == TESSERA_OK; ++i) add(outputs_, info);
    if (outputs_.empty()) throw Failure{"a module without outputs"};
    run();
  }

  void run() {
    tessera_error error = {};
    need(tessera_session_run(session_.get(), inputs_.data(), static_cast<int32_t>(inputs_.size()), outputs_.data(),
                             static_cast<int32_t>(outputs_.size()), &error),
         error);
  }

  double timed_run() {
    CallTimes times;
    times.us.reserve(static_cast<size_t>(tessera_module_num_kernels(module_.get())));
    tessera_session_set_trace(session_.get(), CallTimes::on_kernel, &times);
    run();
    tessera_session_set_trace(session_.get(), nullptr, nullptr);
    return times.median();
  }

  std::string result() const { return {static_cast<const char*>(outputs_[0].data), memory_[inputs_.size()].size()}; }

 private:
  struct FreeModule {
    void operator()(tessera_module* module) const { tessera_module_free(module); }
  };
  struct FreeSession {
    void operator()(tessera_session* session) const { tessera_session_free(session); }
  };

  static void need(tessera_status status, const tessera_error& error) {
    if (status != TESSERA_OK) throw Failure{error.message};
  }

  void* add(std::vector<tessera_tensor>& to, const tessera_tensor_info& info) {
    tessera_tensor tensor = {};
    tensor.dtype = info.dtype;
    tensor.rank = info.rank;
    std::copy_n(info.dims, info.rank, tensor.dims);
    tensor.data = memory_.emplace_back(bytes_of(info)).data();
    to.push_back(tensor);
    return tensor.data;
  }

  std::unique_ptr<tessera_module, FreeModule> module_;
  std::unique_ptr<tessera_session, FreeSession> session_;
  std::vector<TensorMemory> memory_;  // inputs, then outputs
  std::vector<tessera_tensor> inputs_, outputs_;
};

std::string hello(const std::string& features) {
  ProbeOptions options;
  options.seconds = 0.02;
  options.rounds = 8;
  options.only_floats = true;
  const MachinePeaks peaks = measure_machine(options);
  struct utsname machine{};
  uname(&machine);
  char missing[512] = "";
  find_missing_cpu_features(features.c_str(), missing, sizeof(missing));
  char text[1024];
  std::snprintf(text, sizeof(text), "tessera-runner %u %s %.6g %.6g %s", kRunnerProtocol, machine.machine,
                peaks.fma_f32.one_thread / 1e9, peaks.levels.empty() ? 0 : peaks.levels.back().one_thread / 1e9,
                missing);
  return text;
}

void limit(const std::string& bytes) {
  RunnerLimits limits;
  if (bytes.size() != sizeof(limits)) throw Failure{"limits of another form"};
  std::memcpy(&limits, bytes.data(), sizeof(limits));
  if (limits.seconds > 0 && limits.seconds < 1e6) alarm(static_cast<unsigned>(std::ceil(limits.seconds)));
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // their shadow alone is larger
  if (limits.memory_bytes <= 0) return;
  const auto most = static_cast<rlim_t>(limits.memory_bytes);
  const rlimit addresses{most, most};
  setrlimit(RLIMIT_AS, &addresses);
#endif
}

class Runner {
 public:
  std::string answer(const RunnerRequest& request, std::string bytes) {
    switch (request.op) {
      case RunnerOp::kHello: return hello(bytes);
      case RunnerOp::kLimit: limit(bytes); return {};
      case RunnerOp::kInputs: inputs_ = std::move(bytes); return {};
      case RunnerOp::kLoad:
        modules_.push_back(std::make_unique<LoadedModule>(bytes, static_cast<int>(request.argument), inputs_));
        return {};
      case RunnerOp::kRun: {
        const double us = module(request.argument).timed_run();
        return {reinterpret_cast<const char*>(&us), sizeof(us)};
      }
      case RunnerOp::kResult: return module(request.argument).result();
    }
    throw Failure{"a request that this runner does not know"};
  }

 private:
  LoadedModule& module(uint32_t number) {
    if (number >= modules_.size()) throw Failure{"a module that was not loaded"};
    return *modules_[number];
  }

  std::string inputs_;
  std::vector<std::unique_ptr<LoadedModule>> modules_;
};

int serve() {
  constexpr uint64_t kMostBytes = uint64_t{1} << 40;
  Runner runner;
  RunnerRequest request;
  while (read_fully(&request, sizeof(request))) {
    RunnerAnswer header;
    std::string text;
    try {
      if (request.bytes > kMostBytes) return 1;
      std::string bytes(request.bytes, '\0');
      if (!read_fully(bytes.data(), bytes.size())) return 1;
      text = runner.answer(request, std::move(bytes));
    } catch (const Failure& failure) {
      header.failed = 1;
      text = failure.reason;
    } catch (const std::bad_alloc&) {
      std::fprintf(stderr, "no memory\n");
      return 1;
    }
    header.bytes = text.size();
    write_fully(&header, sizeof(header));
    write_fully(text.data(), text.size());
  }
  return 0;
}

}  // namespace

}  // namespace tessera

int main(int argc, char**) {
  if (argc > 1 || isatty(STDIN_FILENO)) {
    std::fprintf(stderr,
                 "Runs modules for 'tessera worker --runner', which starts it and talks to it over standard input and "
                 "output.\n");
    return 2;
  }
  return tessera::serve();
}
