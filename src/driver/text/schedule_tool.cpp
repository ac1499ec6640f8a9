#include "driver/text/schedule_tool.h"

#include <algorithm>
#include <chrono>

#include <fmt/format.h>

#include "codegen/gpu/gpu_codegen.h"
#include "codegen/gpu/gpu_dialects.h"
#include "codegen/llvm/target.h"
#include "device/thread_form.h"
#include "diagnose/machine_probe.h"
#include "driver/analysis/mca.h"
#include "driver/compile.h"
#include "driver/engine/loop_kernel.h"
#include "interp/loop_interp.h"
#include "interp/thread_interp.h"
#include "loop/intrinsic_text.h"
#include "loop/parser.h"
#include "loop/printer.h"
#include "loop/verify.h"
#include "loop_passes/pass.h"
#include "program/single_kernel_program.h"
#include "schedule/primitives/trace.h"
#include "support/error.h"

namespace tessera::inline driver {

namespace {

constexpr double kMaxInterpretedStores = 20e6;
constexpr int64_t kMaxSimulatedAccesses = 2'000'000'000;

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

LoopProgram read_kernel(const ScheduleJob& job, const Intrinsics& declared) {
  std::vector<LoopProgram> kernels = parse_loop_programs(job.text, job.file, declared);
  std::vector<std::string> names;
  for (const LoopProgram& kernel : kernels) names.push_back(kernel.name);
  const auto chosen = std::find_if(kernels.begin(), kernels.end(), [&](const LoopProgram& kernel) {
    return job.kernel.empty() ? kernels.size() == 1 : kernel.name == job.kernel;
  });
  if (chosen == kernels.end())
    throw UserError({.id = "TSR-3420",
                     .message = job.kernel.empty() ? fmt::format("the text has {} kernels", kernels.size())
                                                   : fmt::format("there is no kernel '{}'", job.kernel),
                     .node = job.file,
                     .legal = names.empty() ? "a text with a kernel" : fmt::format("{}", fmt::join(names, ", ")),
                     .hint = names.size() > 1 ? "name one with --kernel" : ""});
  if (const std::vector<std::string> violations = verify(*chosen); !violations.empty())
    throw UserError({.id = "TSR-3300",
                     .message = fmt::format("the loop program breaks its rules: {}", fmt::join(violations, "; ")),
                     .node = job.file,
                     .legal = {},
                     .hint = {}});
  return std::move(*chosen);
}

void require_runs_here(const ScheduledLoops& loops, const char* flag) {
  if (runs_here(loops.target)) return;
  throw UserError({.id = "TSR-3424",
                   .message = fmt::format("{}: code for this target does not run on this machine", flag),
                   .node = {},
                   .legal = "--target native, or a target whose features this machine has",
                   .hint = "--emit works for every target"});
}

// The body beside the pattern, in the interpreter, with some number for each symbol.
void check_body(const TensorIntrinsic& intrinsic, const std::string& file) {
  const auto fixed = [](const LoopProgram& program) {
    LoopProgram result = program;
    VarMap numbers;
    for (const Var& symbol : program.symbols) numbers[symbol.get()] = Expr(24);
    std::unordered_map<const Buffer*, BufferPtr> buffers;
    for (BufferPtr& param : result.params) {
      std::vector<Expr> shape;
      for (const Expr& extent : param->shape) shape.push_back(substitute(extent, numbers));
      const BufferPtr with_numbers = make_buffer(param->name, param->dtype, shape, param->scope);
      buffers[param.get()] = with_numbers;
      param = with_numbers;
    }
    const auto same = [&](const BufferPtr& buffer) {
      const auto it = buffers.find(buffer.get());
      return it == buffers.end() ? buffer : it->second;
    };
    result.symbols.clear();
    result.body = transform(
        substitute(program.body, numbers),
        [&](const Expr& e) { return e->kind == ExprKind::kLoad ? load(same(e->buffer), e->operands) : Expr(); },
        [&](const Stmt& s) {
          return s->kind == StmtKind::kStore ? store(same(s->buffer), s->indices, s->value) : Stmt();
        });
    return result;
  };
  const LoopProgram pattern = fixed(*intrinsic.pattern()), body = fixed(*intrinsic.body);
  double elements = std::max(loop_stores(pattern), loop_stores(body));
  for (const BufferPtr& param : pattern.params) {
    double size = 1;
    for (const Expr& extent : param->shape) size *= static_cast<double>(as_int(extent).value_or(1));
    elements = std::max(elements, size);
  }
  if (elements > kMaxInterpretedStores)
    throw UserError({.id = "TSR-3130",
                     .message = fmt::format("the pattern of '{}' is too large to be tried", intrinsic.name),
                     .node = file,
                     .legal = "up to 20 million elements and stores",
                     .hint = {}});
  // What they store to has contents before, too.
  LoopProgram all_inputs = pattern;
  all_inputs.num_outputs = 0;
  const auto run = [&](const LoopProgram& program) {
    std::vector<Tensor> values = random_loop_inputs(all_inputs, 1);
    std::vector<Tensor*> params;
    for (Tensor& value : values) params.push_back(&value);
    interpret(program, std::span<Tensor* const>(params));
    return values;
  };
  std::vector<Tensor> want, got;
  std::string problem;
  try {
    want = run(pattern);
    got = run(body);
  } catch (const InternalError& error) {
    problem = error.what();
  }
  for (size_t i = 0; i < got.size() && problem.empty(); ++i) {
    const Comparison result = compare(got[i], want[i], {.rtol = 0, .atol = 0, .mtol = 1e-4});
    if (!result.agrees) problem = fmt::format("{}: {}", pattern.params[i]->name, result.text);
  }
  if (!problem.empty())
    throw UserError(
        {.id = "TSR-3132",
         .message = fmt::format("the body of '{}' does not compute what its pattern does: {}", intrinsic.name, problem),
         .node = file,
         .legal = "the same results for all values",
         .hint = {}});
}

std::vector<Tensor> run_once(const LoopProgram& program, const ScheduledLoops& loops,
                             const std::vector<Tensor>& inputs) {
  const std::unique_ptr<Model> model = load_loops(program, loops.target, loops.num_threads);
  model->bind(inputs);
  model->run();
  return model->results();
}

}  // namespace

Intrinsics declared_intrinsics(const std::vector<std::pair<std::string, std::string>>& texts) {
  Intrinsics all;
  for (const auto& [text, file] : texts) {
    for (const TensorIntrinsic* intrinsic : parse_intrinsics(text, file)) {
      if (find_intrinsic(intrinsic->name, all))
        throw UserError({.id = "TSR-3130",
                         .message = fmt::format("'{}' is declared twice", intrinsic->name),
                         .node = file,
                         .legal = "a name that no other declaration has",
                         .hint = {}});
      all.push_back(intrinsic);
      if (intrinsic->body) check_body(*intrinsic, file);
    }
  }
  return all;
}

OpenedSchedule open_schedule(const ScheduleJob& job) {
  const Target target = resolve_target(job.compile);
  Intrinsics declared = declared_intrinsics(job.intrinsics);
  if (job.accelerator) {
    const Intrinsics own = job.accelerator->intrinsics();
    declared.insert(declared.end(), own.begin(), own.end());
  }
  return {target, Schedule(read_kernel(job, declared), target, declared)};
}

ScheduledLoops apply_schedules(const ScheduleJob& job) {
  auto [target, schedule] = open_schedule(job);
  ScheduledLoops result;
  result.target = target;
  result.num_threads = target.num_threads;
  result.original = schedule.program();
  for (const auto& [text, file] : job.traces) replay(schedule, parse_trace(text, file));
  schedule.check_finished();
  result.scheduled = schedule.program();
  result.steps = schedule.steps();
  return result;
}

namespace {

std::string gpu_text(const ScheduledLoops& loops, const Dialect& dialect) {
  const LoopProgram expanded = find_loop_pass("expand_math")->run(loops.scheduled, {loops.target});
  if (const std::string why = no_gpu_code(expanded); !why.empty())
    throw UserError({.id = "TSR-3427",
                     .message = fmt::format("the program cannot be written for a GPU: {}", why),
                     .node = {},
                     .legal = "blocks of threads whose memory is their own or their block's",
                     .hint = {}});
  Program program = program_of(expanded);
  program.devices.push_back({"gpu", "gpu"});
  program.kernels[0].device = 1;
  return generate_gpu_source(program, 1, dialect);
}

// The results of the program's threads.
std::vector<Tensor> interpret_as_threads(const LoopProgram& program, const DeviceKernel& form,
                                         const std::vector<Tensor>& inputs, ThreadOrder order) {
  std::vector<Tensor> values = inputs;
  for (size_t i = inputs.size(); i < program.params.size(); ++i)
    values.emplace_back(program.params[i]->dtype, *static_dims(program.params[i]->shape));
  std::vector<Tensor*> params;
  for (Tensor& value : values) params.push_back(&value);
  interpret_threads(program, form, params, order);
  return {values.begin() + static_cast<std::ptrdiff_t>(inputs.size()), values.end()};
}

bool has_axes(const LoopProgram& program) {
  bool found = false;
  walk(
      program.body,
      [&](const Stmt& s) {
        found = found || (s->kind == StmtKind::kFor && (is_block_axis(s->for_kind) || is_thread_axis(s->for_kind)));
      },
      nullptr);
  return found;
}

}  // namespace

std::string emit_scheduled(const ScheduledLoops& loops, ScheduleEmit emit, const std::optional<CacheShape>& l1,
                           const std::optional<CacheShape>& l2) {
  switch (emit) {
    case ScheduleEmit::kCache: {
      const CacheShape first = l1.value_or(CacheShape{loops.target.l1_bytes, 8});
      const CacheShape second = l2.value_or(CacheShape{loops.target.l2_bytes, 8});
      return cache_text(simulate_caches(loops.scheduled, first, second, kMaxSimulatedAccesses), first, second);
    }
    case ScheduleEmit::kLoop: return print(loops.scheduled);
    case ScheduleEmit::kTrace: return print_trace(loops.steps);
    case ScheduleEmit::kOpenCl: return gpu_text(loops, opencl_c());
    case ScheduleEmit::kCuda: return gpu_text(loops, cuda_cpp());
    default: break;
  }
  CodegenOptions options;
  options.want_ir = emit == ScheduleEmit::kLlvm;
  options.want_asm = emit != ScheduleEmit::kLlvm;
  const ObjectCode code = compile_loops(loops.scheduled, loops.target, options);
  if (emit == ScheduleEmit::kLlvm) return code.llvm_ir;
  return emit == ScheduleEmit::kAsm ? code.assembly : analyze_inner_loop(code.assembly, loops.target);
}

namespace {

// The program as it was written: what is wrong with it is its writer's.
std::vector<Tensor> interpret_original(const LoopProgram& program, const std::vector<Tensor>& inputs) {
  try {
    return interpret_loops(program, inputs);
  } catch (const LoopFault& fault) {
    throw UserError({.id = "TSR-3426",
                     .message = fault.message(),
                     .node = {},
                     .legal = "indices inside of the buffer, and elements that were stored to, for any inputs",
                     .hint =
                         "--check runs the program on random inputs: bound indices that are loaded from them, as by "
                         "floormod(n[i], 10)"});
  }
}

}  // namespace

std::vector<Tensor> outputs_of_original(const ScheduledLoops& loops, const std::vector<Tensor>& inputs) {
  if (loop_stores(loops.original) <= kMaxInterpretedStores) return interpret_original(loops.original, inputs);
  require_runs_here(loops, "--check of a program too large for the interpreter");
  return run_once(loops.original, loops, inputs);
}

std::vector<ScheduleCheck> check_schedule(const ScheduledLoops& loops) {
  const bool native = runs_here(loops.target);
  const double stores = std::max(loop_stores(loops.original), loop_stores(loops.scheduled));
  const bool small = stores <= kMaxInterpretedStores;
  if (!small) require_runs_here(loops, "--check of a program too large for the interpreter");
  const std::vector<Tensor> inputs = random_loop_inputs(loops.original, 1);
  const std::vector<Tensor> want =
      small ? interpret_original(loops.original, inputs) : run_once(loops.original, loops, inputs);
  const std::string against = small ? "the original in the interpreter" : "the original, compiled";
  std::vector<ScheduleCheck> checks;
  const auto add = [&](const std::string& how, const std::vector<Tensor>& got) {
    const size_t first = loops.original.params.size() - got.size();
    for (size_t i = 0; i < got.size(); ++i) {
      const DType dtype = want[i].dtype();
      const bool narrow = dtype == DType::kF16 || dtype == DType::kBF16;
      const Tolerance tolerance{.rtol = 0, .atol = 0, .mtol = narrow ? 2e-2 : 1e-4};
      checks.push_back({fmt::format("scheduled, {}, against {}", how, against), loops.original.params[first + i]->name,
                        compare(got[i], want[i], tolerance)});
    }
  };
  if (small) add("in the interpreter", interpret_loops(loops.scheduled, inputs));
  if (native) add("compiled", run_once(loops.scheduled, loops, inputs));
  if (small && has_axes(loops.scheduled)) {
    const DeviceKernel form = thread_form(loops.scheduled);
    if (form.problem.empty())
      for (const auto& [order, how] :
           {std::pair{ThreadOrder::kForwards, "forwards"}, std::pair{ThreadOrder::kBackwards, "backwards"},
            std::pair{ThreadOrder::kShuffled, "in some order"}})
        add(fmt::format("as threads, {}", how), interpret_as_threads(loops.scheduled, form, inputs, order));
  }
  return checks;
}

ScheduleBench bench_schedule(const ScheduledLoops& loops, double seconds, bool only_scheduled) {
  require_runs_here(loops, "--bench");
  using Clock = std::chrono::steady_clock;
  ScheduleBench bench;
  bench.flops = loop_flops(loops.original);
  const std::vector<Tensor> inputs = random_loop_inputs(loops.original, 1);
  std::vector<std::unique_ptr<Model>> models;
  if (!only_scheduled) models.push_back(load_loops(loops.original, loops.target, loops.num_threads));
  models.push_back(load_loops(loops.scheduled, loops.target, loops.num_threads, &bench.remarks));
  for (const auto& model : models) {
    model->bind(inputs);
    model->run();  // pages are touched, threads are started
  }
  ProbeOptions probe;
  probe.threads = loops.num_threads;
  probe.rounds = 3;
  probe.only_floats = true;
  probe.memory = false;
  std::vector<double> times[2];
  const auto begin = Clock::now();
  const auto elapsed = [&](Clock::time_point since) {
    return std::chrono::duration<double>(Clock::now() - since).count();
  };
  while (bench.rounds < 3 || elapsed(begin) < seconds) {
    if (bench.rounds > 0 && elapsed(begin) > 10 * seconds) break;
    const MachinePeaks peaks = measure_machine(probe);
    const double peak = loops.num_threads == 1 ? peaks.fma_f32.one_thread : peaks.fma_f32.all_threads;
    bench.peak_gflops = std::max(bench.peak_gflops, peak / 1e9);
    for (size_t m = 0; m < models.size(); ++m) {
      // Short programs several times a round.
      const auto start = Clock::now();
      int runs = 0;
      do {
        const auto run = Clock::now();
        models[m]->run();
        times[m + (only_scheduled ? 1 : 0)].push_back(elapsed(run) * 1e3);
      } while (++runs < 100 && elapsed(start) < seconds / 20);
    }
    ++bench.rounds;
  }
  if (!only_scheduled) bench.original_ms = median(times[0]);
  bench.scheduled_ms = median(times[1]);
  return bench;
}

}  // namespace tessera::inline driver
