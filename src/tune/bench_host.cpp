#include "tune/bench_host.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "driver/native_model.h"
#include "support/error.h"

namespace tessera {

namespace {

constexpr double kLeastUs = 1e-3;

class ThisProcess : public BenchHost {
 public:
  explicit ThisProcess(const KernelBench& bench) : bench_(bench) {}

  size_t load(const BuiltKernel& built) override {
    // A descriptor of its own: loading takes it.
    AnonymousFile copy("candidate");
    write_fully(copy.fd(), built.file->contents(), "a module");
    auto model = load_module(std::move(copy), "bench", bench_.target.num_threads);
    std::vector<Tensor> inputs;
    for (size_t p = 0; p < bench_.operands.size(); ++p)
      if (!bench_.kernel->params[p].is_constant) inputs.push_back(*bench_.operands[p]);
    model->bind(std::move(inputs));
    model->run();
    models_.push_back(std::move(model));
    return models_.size() - 1;
  }
  Tensor result(size_t module) override { return models_.at(module)->results()[0]; }
  double timed_run(size_t module) override {
    std::vector<double> calls;
    for (const KernelSpan& span : models_.at(module)->run_traced())
      if (span.worker == 0) calls.push_back(static_cast<double>(span.end_ns - span.begin_ns) / 1e3);
    return std::max(kLeastUs, median_of(std::move(calls)));
  }

 private:
  const KernelBench& bench_;
  std::vector<std::unique_ptr<Model>> models_;
};

class InRunner : public BenchHost {
 public:
  InRunner(const KernelBench& bench, const BenchLimits& limits) : bench_(bench), runner_(bench.runner) {
    const RunnerLimits most{limits.run_seconds, limits.memory_bytes};
    runner_.ask(RunnerOp::kLimit, 0, std::as_bytes(std::span(&most, 1)), 0);
    std::vector<std::byte> inputs;
    for (size_t p = 0; p < bench.operands.size(); ++p) {
      const Tensor& operand = *bench.operands[p];
      if (bench.kernel->params[p].is_constant) continue;
      inputs.insert(inputs.end(), operand.bytes(), operand.bytes() + operand.num_bytes());
    }
    runner_.ask(RunnerOp::kInputs, 0, inputs, 0);
  }

  size_t load(const BuiltKernel& built) override {
    runner_.ask(RunnerOp::kLoad, static_cast<uint32_t>(bench_.target.num_threads), built.file->contents(), 0);
    return loaded_++;
  }
  Tensor result(size_t module) override {
    Tensor tensor = result_tensor(bench_);
    const auto size = static_cast<size_t>(tensor.num_bytes());
    const std::string bytes = runner_.ask(RunnerOp::kResult, static_cast<uint32_t>(module), {}, size);
    if (bytes.size() != size) throw RunnerFailure("a result of another size");
    std::memcpy(tensor.mutable_bytes(), bytes.data(), size);
    return tensor;
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

}  // namespace tessera
