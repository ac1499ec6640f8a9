// What `tessera worker --runner` and the runner of candidates, src/runner/runner.cpp, tell each other: over the
// runner's standard input and output, so that the command in front of it may be an emulator, or `ssh` to another
// machine.
//
// Each message is a header and as many bytes as it says; every request has one answer. Integers are little-endian, as
// are both machines.
#pragma once

#include <bit>
#include <cstdint>

namespace tessera {

static_assert(std::endian::native == std::endian::little);

inline constexpr uint32_t kRunnerProtocol = 2;

enum class RunnerOp : uint32_t {
  // Bytes: features, as find_missing_cpu_features takes them. Answer: text, "tessera-runner PROTOCOL ARCHITECTURE
  // GFLOPS GBYTES [MISSING FEATURES]": measured peaks of one thread.
  kHello = 1,
  // Bytes: RunnerLimits. From then on; beyond them the runner ends.
  kLimit = 2,
  // Bytes: the data of all inputs of the modules to come, in their order.
  kInputs = 3,
  // Argument: threads. Bytes: a module. It is loaded, and run once; modules are numbered from 0.
  kLoad = 4,
  // Argument: a module. Runs it; answer: a double, the median time of its calls in microseconds.
  kRun = 5,
  // Argument: a module. Answer: the data of its first output after the last run.
  kResult = 6,
  // Argument: threads. Bytes: distances (bench_module.h) as 64-bit integers, of the output, the weights and each input.
  // From then on runs begin with operands that far away.
  kCaches = 7,
};

struct RunnerRequest {
  RunnerOp op = RunnerOp::kHello;
  uint32_t argument = 0;
  uint64_t bytes = 0;
};

struct RunnerAnswer {
  uint32_t failed = 0;  // nonzero: the bytes are the reason
  uint32_t reserved = 0;
  uint64_t bytes = 0;
};

struct RunnerLimits {
  double seconds = 0;
  int64_t memory_bytes = 0;  // of addresses; 0: none. Emulators do not keep it; the worker limits them themselves.
};

}  // namespace tessera
