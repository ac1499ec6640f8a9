#include "tune/kernel_bench.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <random>
#include <thread>

#include <fmt/format.h>

#include "driver/build_module.h"
#include "driver/engine/isolated.h"
#include "loop/naive_loops.h"
#include "loop_passes/pass.h"
#include "program/memory_plan.h"
#include "schedule/choose.h"
#include "support/error.h"
#include "tune/bench_host.h"

namespace tessera::inline tune {

namespace {

std::function<void()>& candidate_hook() {
  static std::function<void()> hook;
  return hook;
}

std::vector<int64_t> physical_dims(const BufferPtr& buffer, const Layout& layout) {
  return *static_dims(physical_shape(buffer->shape, layout));
}

int64_t elements_of(const std::vector<int64_t>& dims) {
  int64_t count = 1;
  for (const int64_t dim : dims) count *= dim;
  return count;
}

// Whether each element of a tensor with `layout` is one of the logical ones; the others are padding.
std::vector<bool> logical_places(const BufferPtr& buffer, const Layout& layout) {
  const std::vector<int64_t> dims = physical_dims(buffer, layout);
  std::vector<bool> inside(static_cast<size_t>(elements_of(dims)), true);
  if (layout.row_major()) return inside;
  const std::vector<int64_t> extents = *static_dims(buffer->shape);
  for (size_t flat = 0; flat < inside.size(); ++flat) {
    std::vector<int64_t> index(extents.size(), 0);
    auto rest = static_cast<int64_t>(flat);
    for (size_t d = dims.size(); d-- > 0; rest /= dims[d]) {
      const LayoutDim& dim = layout.dims[d];
      const int64_t scale = dim.part == LayoutDim::Part::kQuotient ? dim.block : 1;
      index[static_cast<size_t>(dim.axis)] += rest % dims[d] * scale;
    }
    for (size_t axis = 0; axis < extents.size(); ++axis) inside[flat] = inside[flat] && index[axis] < extents[axis];
  }
  return inside;
}

TensorPtr random_operand(const TensorParam& param, std::mt19937& random) {
  auto tensor = std::make_shared<Tensor>(param.buffer->dtype, physical_dims(param.buffer, param.layout));
  std::uniform_real_distribution<double> real(-1, 1);
  // Integers may be indices: only 0 is surely one.
  const bool is_real = is_float(param.buffer->dtype);
  const std::vector<bool> inside = logical_places(param.buffer, param.layout);
  for (int64_t i = 0; i < tensor->num_elements(); ++i)
    tensor->set_double(i, is_real && inside[static_cast<size_t>(i)] ? real(random) : 0);
  return tensor;
}

// The module's program: one call of the kernel.
Program bench_program(const KernelBench& bench) {
  Program program;
  program.name = "bench";
  const TaskKernel& kernel = bench.kernel;
  Kernel entry;
  entry.definition = kernel.single();
  entry.joined = kernel.joined();
  entry.program = entry.joined ? naive_loops(*entry.joined) : naive_loops(*entry.definition);
  for (const SymbolRange& symbol : kernel.symbols()) entry.program.symbols.push_back(symbol.var);
  program.symbols = kernel.symbols();
  entry.loc = entry.program.name;
  if (entry.definition) {
    entry.flops = count_flops(*entry.definition);
    entry.bytes = count_bytes(*entry.definition);
  }
  KernelCall call;
  call.loc = entry.loc;
  program.kernels.push_back(std::move(entry));
  const auto add = [&](BufferKind kind, const std::string& name, DType dtype, const std::vector<int64_t>& dims,
                       TensorPtr data) {
    ProgramBuffer buffer;
    buffer.name = name;
    buffer.kind = kind;
    buffer.type = {dtype, make_shape(dims), {}};
    buffer.bytes = dtype_bytes(dtype, elements_of(dims));
    buffer.data = std::move(data);
    auto* signature = kind == BufferKind::kInput    ? &program.inputs
                      : kind == BufferKind::kOutput ? &program.outputs
                                                    : nullptr;
    if (signature) {
      buffer.index = static_cast<int32_t>(signature->size());
      signature->push_back(static_cast<BufferId>(program.buffers.size()));
    }
    program.buffers.push_back(std::move(buffer));
    return static_cast<BufferId>(program.buffers.size() - 1);
  };
  for (size_t p = 0; p < bench.operands.size(); ++p) {
    const TensorPtr& operand = bench.operands[p];
    const bool is_weight = kernel.params()[p].is_constant();
    call.args.push_back(add(is_weight ? BufferKind::kWeight : BufferKind::kInput, fmt::format("x{}", p),
                            operand->dtype(), operand->dims(), is_weight ? operand : nullptr));
  }
  const TensorParam output = kernel.result();
  call.args.push_back(
      add(BufferKind::kOutput, "y", output.buffer->dtype, physical_dims(output.buffer, output.layout), {}));
  program.calls.push_back(std::move(call));
  return program;
}

// Writes the module to `file`; the reason when there is none.
std::string build_into(const KernelBench& bench, const KnobPoint* point, int file) {
  try {
    Program program = bench_program(bench);
    const ChoosePoint choose = [&](const Kernel&) { return TunedChoice{*point, ""}; };
    // Whoever chose a point knows which rules are wanted.
    const RuleNumerics numerics{.fp32 = point ? Fp32Products::kPieces : Fp32Products::kFma};
    schedule_program(program, bench.target, 3, {}, {}, point ? choose : ChoosePoint(), numerics);
    const Kernel& kernel = program.kernels[0];
    if (point && !kernel.refused_tuning.empty()) return "refused: " + kernel.refused_tuning;
    for (Kernel& each : program.kernels) each.program = bench.kernel.at_usual_sizes(each.program);
    program.symbols.clear();
    for (const LoopPass& pass : loop_pipeline())
      for (Kernel& each : program.kernels) each.program = pass.run(each.program, {bench.target, 3});
    plan_memory(program);
    CodegenOptions codegen;
    codegen.module_name = "bench";
    const AnonymousFile written =
        build_module(std::move(program), bench.target, module_info("bench", bench.target), codegen);
    write_fully(file, written.contents(), "a module");
    return "ok";
  } catch (const std::exception& error) {
    return std::string("build failed: ") + error.what();
  }
}

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

std::string disagreement(const KernelBench& bench, const Tensor& want, const Tensor& got) {
  const TensorParam output = bench.kernel.result();
  const std::vector<bool> inside = logical_places(output.buffer, output.layout);
  const bool real = is_float(want.dtype());
  double scale = 0, worst = 0;
  for (int64_t i = 0; i < want.num_elements(); ++i) {
    if (!inside[static_cast<size_t>(i)]) continue;
    const double a = want.get_double(i), b = got.get_double(i);
    if (std::isnan(a) && std::isnan(b)) continue;
    if (std::isfinite(a)) scale = std::max(scale, std::fabs(a));
    worst = a == b ? worst : std::isfinite(a - b) ? std::max(worst, std::fabs(a - b)) : INFINITY;
  }
  // 16-bit results are rounded at the end: one unit in their last place may differ.
  const double bound = !real ? 0 : want.dtype() == DType::kBF16 ? 1e-2 : want.dtype() == DType::kF16 ? 2e-3 : 1e-4;
  return worst <= bound * scale ? "" : fmt::format("differs by {:.3g}, of values up to {:.3g}", worst, scale);
}

// In the child: the rounds as text.
std::string compare_here(const KernelBench& bench, const BuiltKernel& a, const BuiltKernel& b,
                         const BenchLimits& limits) {
  try {
    const auto host = make_bench_host(bench, limits);
    const size_t incumbent = host->load(a);
    if (candidate_hook()) candidate_hook()();
    const size_t candidate = host->load(b);
    if (const std::string why = disagreement(bench, host->result(incumbent), host->result(candidate)); !why.empty())
      return "wrong result:" + why;
    host->timed_run(incumbent);
    host->timed_run(candidate);
    const Clock::time_point begin = Clock::now();
    std::string text = "ok:";
    int64_t behind = 0;
    for (int64_t round = 0; round < limits.most_rounds; ++round) {
      // Who is first changes with every round.
      double x = 0, y = 0;
      if (round % 2 == 0) x = host->timed_run(incumbent);
      y = host->timed_run(candidate);
      if (round % 2 == 1) x = host->timed_run(incumbent);
      text += fmt::format("{:.4f} {:.4f};", x, y);
      if (y > 1.1 * x) ++behind;
      // Clearly slower: no more time for it.
      if (round + 1 >= 3 && behind == round + 1) break;
      if (round + 1 >= limits.least_rounds && (seconds_since(begin) > limits.most_seconds || 2 * behind > round + 1))
        break;
    }
    return text;
  } catch (const std::exception& error) {
    return std::string("crash:") + error.what();
  }
}

}  // namespace

Tensor result_tensor(const KernelBench& bench) {
  const TensorParam output = bench.kernel.result();
  return Tensor(output.buffer->dtype, physical_dims(output.buffer, output.layout));
}

void set_candidate_hook(std::function<void()> hook) { candidate_hook() = std::move(hook); }

KernelBench make_kernel_bench(TaskKernel kernel, const Target& target, const std::vector<int64_t>& reuse) {
  KernelBench bench;
  bench.kernel = std::move(kernel);
  bench.target = target;
  std::mt19937 random(7);
  for (const TensorParam& param : bench.kernel.params()) bench.operands.push_back(random_operand(param, random));
  if (reuse.empty()) return bench;
  const std::span<const TensorParam> params = bench.kernel.params();
  check(reuse.size() == params.size() + 1, "a distance for each parameter and for the result");
  // Behind twice the last cache nothing is left of an operand.
  const int64_t most = 2 * target.l3_bytes;
  ReuseDistances& distances = bench.distances.emplace();
  distances.output = std::min(reuse.back(), most);
  for (size_t p = 0; p < params.size(); ++p) {
    const int64_t distance = std::min(reuse[p], most);
    if (params[p].is_constant()) distances.weights = std::max(distances.weights, distance);
    else distances.inputs.push_back(distance);
  }
  return bench;
}

BuiltKernel build_kernel(const KernelBench& bench, const KnobPoint* point, const BenchLimits& limits) {
  BuiltKernel built;
  built.file = std::make_shared<AnonymousFile>("kernel");
  const std::string answer =
      run_isolated([&] { return build_into(bench, point, built.file->fd()); }, limits.build_seconds);
  if (answer != "ok") {
    built.failure = answer.starts_with("crash") ? "build failed: " + answer : answer;
    built.file = nullptr;
  }
  return built;
}

std::vector<BuiltKernel> build_kernels(const KernelBench& bench, const std::vector<KnobPoint>& points,
                                       const BenchLimits& limits) {
  std::vector<BuiltKernel> built(points.size());
  std::atomic<size_t> next{0};
  // These threads only start processes and wait for them.
  const auto work = [&] {
    for (size_t i = next++; i < points.size(); i = next++) built[i] = build_kernel(bench, &points[i], limits);
  };
  std::vector<std::thread> threads;
  for (int i = 1; i < limits.jobs; ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  return built;
}

KernelComparison compare_kernels(const KernelBench& bench, const BuiltKernel& incumbent, const BuiltKernel& candidate,
                                 const BenchLimits& limits) {
  check(incumbent.file && candidate.file, "a kernel that was not built cannot be compared");
  const std::string answer =
      run_isolated([&] { return compare_here(bench, incumbent, candidate, limits); }, limits.run_seconds);
  KernelComparison result;
  const size_t colon = answer.find(':');
  result.status = answer.substr(0, colon);
  result.detail = colon == std::string::npos ? "" : answer.substr(colon + 1);
  if (result.status != "ok") {
    if (result.status.starts_with("exit")) result.status = "crash", result.detail = answer;
    return result;
  }
  const char* at = result.detail.c_str();
  for (double x = 0, y = 0; *at;) {
    char* end = nullptr;
    x = std::strtod(at, &end);
    y = std::strtod(end, &end);
    check(end != at && *end == ';', "a comparison's answer");
    result.times.rounds.emplace_back(x, y);
    at = end + 1;
  }
  result.detail.clear();
  return result;
}

}  // namespace tessera::inline tune
