// tessera-runner-ARCHITECTURE: runs and times modules for `tessera worker --runner`, on the machine that they are for.
// It is built for that machine (src/runner/CMakeLists.txt) and has the run time in it, and no compiler.
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "diagnose/machine_probe.h"
#include "runner/bench_module.h"
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
  if (bytes.size() != sizeof(limits)) throw BenchFailure("limits of another form");
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
      case RunnerOp::kCaches: leave_caches(bytes, static_cast<int>(request.argument)); return {};
      case RunnerOp::kLoad:
        modules_.push_back(std::make_unique<BenchModule>(
            std::as_bytes(std::span(bytes)), static_cast<int>(request.argument), std::as_bytes(std::span(inputs_))));
        return {};
      case RunnerOp::kRun: {
        const double us = module(request.argument).timed_run(walk_ ? &*walk_ : nullptr, distances_);
        return {reinterpret_cast<const char*>(&us), sizeof(us)};
      }
      case RunnerOp::kResult: {
        const std::span<const std::byte> result = module(request.argument).result();
        return {reinterpret_cast<const char*>(result.data()), result.size()};
      }
    }
    throw BenchFailure("a request that this runner does not know");
  }

 private:
  void leave_caches(const std::string& bytes, int threads) {
    std::vector<int64_t> numbers(bytes.size() / sizeof(int64_t));
    if (numbers.size() < 2 || bytes.size() % sizeof(int64_t) != 0) throw BenchFailure("distances of another form");
    std::memcpy(numbers.data(), bytes.data(), bytes.size());
    distances_ = {{numbers.begin() + 2, numbers.end()}, numbers[0], numbers[1]};
    walk_.emplace(*std::max_element(numbers.begin(), numbers.end()), threads);
  }

  BenchModule& module(uint32_t number) {
    if (number >= modules_.size()) throw BenchFailure("a module that was not loaded");
    return *modules_[number];
  }

  std::string inputs_;
  ReuseDistances distances_;
  std::optional<CacheWalk> walk_;
  std::vector<std::unique_ptr<BenchModule>> modules_;
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
    } catch (const std::runtime_error& failure) {  // BenchFailure, or no thread
      header.failed = 1;
      text = failure.what();
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
