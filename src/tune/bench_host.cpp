#include "tune/bench_host.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>

#include "runner/bench_module.h"
#include "support/error.h"

namespace tessera::inline tune {

namespace {

constexpr double kLeastUs = 1e-3;

// The data of the kernel's inputs, one behind the other.
std::vector<std::byte> input_bytes(const KernelBench& bench) {
  std::vector<std::byte> bytes;
  for (size_t p = 0; p < bench.operands.size(); ++p) {
    const Tensor& operand = *bench.operands[p];
    if (!bench.kernel.params()[p].is_constant())
      bytes.insert(bytes.end(), operand.bytes(), operand.bytes() + operand.num_bytes());
  }
  return bytes;
}

Tensor result_from(const KernelBench& bench, std::span<const std::byte> bytes) {
  Tensor tensor = result_tensor(bench);
  if (bytes.size() != static_cast<size_t>(tensor.num_bytes())) throw RunnerFailure("a result of another size");
  std::memcpy(tensor.mutable_bytes(), bytes.data(), bytes.size());
  return tensor;
}

int64_t farthest(const ReuseDistances& distances) {
  int64_t most = std::max(distances.output, distances.weights);
  for (const int64_t distance : distances.inputs) most = std::max(most, distance);
  return most;
}

class ThisProcess : public BenchHost {
 public:
  explicit ThisProcess(const KernelBench& bench) : bench_(bench), inputs_(input_bytes(bench)) {
    if (bench.distances) walk_.emplace(farthest(*bench.distances), bench.target.num_threads);
  }

  size_t load(const BuiltKernel& built) override {
    modules_.push_back(
        std::make_unique<BenchModule>(built.file->contents(), bench_.target.num_threads, std::span(inputs_)));
    return modules_.size() - 1;
  }
  Tensor result(size_t module) override { return result_from(bench_, modules_.at(module)->result()); }
  double timed_run(size_t module) override {
    const ReuseDistances distances = bench_.distances.value_or(ReuseDistances());
    return std::max(kLeastUs, modules_.at(module)->timed_run(walk_ ? &*walk_ : nullptr, distances));
  }

 private:
  const KernelBench& bench_;
  std::vector<std::byte> inputs_;
  std::optional<CacheWalk> walk_;
  std::vector<std::unique_ptr<BenchModule>> modules_;
};

class InRunner : public BenchHost {
 public:
  InRunner(const KernelBench& bench, const BenchLimits& limits) : bench_(bench), runner_(bench.runner) {
    const RunnerLimits most{limits.run_seconds, limits.memory_bytes};
    runner_.ask(RunnerOp::kLimit, 0, std::as_bytes(std::span(&most, 1)), 0);
    runner_.ask(RunnerOp::kInputs, 0, input_bytes(bench), 0);
    if (!bench.distances) return;
    std::vector<int64_t> numbers = {bench.distances->output, bench.distances->weights};
    numbers.insert(numbers.end(), bench.distances->inputs.begin(), bench.distances->inputs.end());
    runner_.ask(RunnerOp::kCaches, static_cast<uint32_t>(bench.target.num_threads), std::as_bytes(std::span(numbers)),
                0);
  }

  size_t load(const BuiltKernel& built) override {
    runner_.ask(RunnerOp::kLoad, static_cast<uint32_t>(bench_.target.num_threads), built.file->contents(), 0);
    return loaded_++;
  }
  Tensor result(size_t module) override {
    const auto size = static_cast<size_t>(result_tensor(bench_).num_bytes());
    const std::string bytes = runner_.ask(RunnerOp::kResult, static_cast<uint32_t>(module), {}, size);
    return result_from(bench_, std::as_bytes(std::span(bytes)));
  }
  double timed_run(size_t module) override {
    double us = 0;
    const std::string bytes = runner_.ask(RunnerOp::kRun, static_cast<uint32_t>(module), {}, sizeof(us));
    if (bytes.size() != sizeof(us)) throw RunnerFailure("a time of another size");
    std::memcpy(&us, bytes.data(), sizeof(us));
    // Not a number is no time, either.
    if (!(us >= 0 && us < 1e12)) throw RunnerFailure("a time that is none");
    return std::max(kLeastUs, us);
  }

 private:
  const KernelBench& bench_;
  RunnerProcess runner_;
  size_t loaded_ = 0;
};

}  // namespace

std::unique_ptr<BenchHost> make_bench_host(const KernelBench& bench, const BenchLimits& limits) {
  if (bench.runner.empty()) return std::make_unique<ThisProcess>(bench);
  return std::make_unique<InRunner>(bench, limits);
}

}  // namespace tessera::inline tune
