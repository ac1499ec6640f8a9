#include "driver/declared_kernels.h"

#include <algorithm>
#include <chrono>
#include <random>

#include <fmt/format.h>

#include "codegen/llvm/target.h"
#include "diagnose/compare.h"
#include "driver/engine/loop_kernel.h"
#include "driver/engine/model.h"
#include "loop/fresh.h"
#include "loop/unify.h"
#include "loop/verify.h"
#include "loop_passes/pass.h"
#include "program/memory_plan.h"
#include "schedule/choose.h"
#include "support/error.h"

namespace tessera::inline driver {
namespace {

constexpr double kNeeded = 0.97;  // of our own kernel's time
constexpr double kMaxSeconds = 1;
constexpr int kLeastRounds = 7, kMostRounds = 50;

// A kernel's plain loops as a nest that a pattern may match, and what is left to do behind it.
struct Canonical {
  BufferPtr stage;  // that the nest computes; null: the output
  Stmt nest, rest;
};

Stmt around(const std::vector<Stmt>& loops, Stmt body) {
  for (size_t i = loops.size(); i-- > 0;)
    body = for_loop(loops[i]->var, loops[i]->begin, loops[i]->extent, loops[i]->for_kind, body);
  return body;
}

// Loops around one store, or around an accumulator of one element, its reduction, and the store of its result (what
// lowering writes). An accumulator becomes the element of the output, or of a stage, that it is for.
std::optional<Canonical> canonical(const LoopProgram& program) {
  std::vector<Stmt> loops;
  Stmt s = program.body;
  while (s->kind == StmtKind::kFor) {
    loops.push_back(s);
    s = s->stmts[0];
  }
  if (s->kind == StmtKind::kStore) return Canonical{nullptr, program.body, {}};
  if (s->kind != StmtKind::kAlloc || s->stmts[0]->kind != StmtKind::kSeq) return std::nullopt;
  const BufferPtr acc = s->buffer;
  std::vector<Stmt> parts = s->stmts[0]->stmts;
  const Stmt last = parts.back();
  parts.pop_back();
  if (last->kind != StmtKind::kStore || last->buffer == acc) return std::nullopt;
  const auto is_acc = [&](const Expr& e) { return e->kind == ExprKind::kLoad && e->buffer == acc; };
  Canonical result;
  BufferPtr to = last->buffer;
  std::vector<Expr> at = last->indices;
  if (!is_acc(last->value)) {
    std::vector<Expr> shape;
    at.clear();
    for (const Stmt& loop : loops) {
      if (!as_int(loop->extent) || !is_const_int(loop->begin, 0)) return std::nullopt;
      shape.push_back(loop->extent);
      at.push_back(loop->var);
    }
    to = result.stage = make_buffer("stage", acc->dtype, shape, MemoryScope::kLocal);
  }
  const auto replaced = [&](const Stmt& part) {
    return transform(
        part, [&](const Expr& e) { return is_acc(e) ? load(to, at) : Expr(); },
        [&](const Stmt& node) {
          return node->kind == StmtKind::kStore && node->buffer == acc ? store(to, at, node->value) : Stmt();
        });
  };
  result.nest = around(loops, replaced(seq(parts)));
  if (result.stage) result.rest = with_fresh_definitions(around(loops, replaced(last)));
  return result;
}

LoopProgram with_call(const LoopProgram& program, const Canonical& parts, const TensorIntrinsic& intrinsic,
                      const Stmt& nest) {
  LoopProgram result = program;
  result.body = tensorized(&intrinsic, nest);
  if (parts.stage) result.body = alloc(parts.stage, seq({result.body, parts.rest}));
  return result;
}

// The kernel alone, with the weights that its first call has.
Program alone(const Program& program, size_t number) {
  const Kernel& kernel = program.kernels[number];
  const auto call = std::find_if(program.calls.begin(), program.calls.end(),
                                 [&](const KernelCall& c) { return static_cast<size_t>(c.kernel) == number; });
  check(call != program.calls.end(), "a kernel that is not called: " + kernel.loc);
  Program result;
  result.name = kernel.program.name;
  KernelCall own;
  for (size_t i = 0; i < call->args.size(); ++i) {
    const ProgramBuffer& from = program.buffers[static_cast<size_t>(call->args[i])];
    ProgramBuffer buffer;
    buffer.name = fmt::format("arg{}", i);
    buffer.type.dtype = kernel.program.params[i]->dtype;
    buffer.type.shape = kernel.program.params[i]->shape;
    buffer.bytes = from.bytes;
    const auto id = static_cast<BufferId>(i);
    if (from.kind == BufferKind::kWeight && from.data && from.alias_of < 0) {
      buffer = from;
      buffer.offset = -1;
    } else if (i + static_cast<size_t>(kernel.program.num_outputs) >= call->args.size()) {
      buffer.kind = BufferKind::kOutput;
      buffer.index = static_cast<int32_t>(result.outputs.size());
      result.outputs.push_back(id);
    } else {
      buffer.kind = BufferKind::kInput;
      buffer.index = static_cast<int32_t>(result.inputs.size());
      result.inputs.push_back(id);
    }
    result.buffers.push_back(std::move(buffer));
    own.args.push_back(id);
  }
  result.kernels.push_back(kernel);
  result.calls.push_back(std::move(own));
  return result;
}

std::unique_ptr<Model> compiled(Program program, const Target& target, int opt_level,
                                const std::set<std::string>& disabled, const RuleNumerics& numerics) {
  schedule_program(program, target, opt_level, disabled, {}, {}, numerics);
  for (const LoopPass& pass : loop_pipeline())
    if (pass.min_level <= opt_level && !disabled.contains(std::string(pass.name)))
      for (Kernel& kernel : program.kernels) kernel.program = pass.run(kernel.program, {target, opt_level});
  plan_memory(program);
  return load_program(std::move(program), target, target.num_threads);
}

std::vector<Tensor> random_inputs(const Model& model) {
  std::mt19937_64 random(1);
  std::vector<Tensor> inputs;
  for (const TensorInfo& info : model.inputs()) {
    Tensor& t = inputs.emplace_back(info.dtype, info.dims);
    for (int64_t e = 0; e < t.num_elements(); ++e) {
      const uint64_t bits = random();
      if (is_float(info.dtype)) t.set_double(e, static_cast<double>(bits >> 11) * 0x1p-52 - 1);
      else t.set_int(e, static_cast<int64_t>(bits % (info.dtype == DType::kBool ? 2 : 5)));
    }
  }
  return inputs;
}

struct Times {
  double ours_ms = 0, theirs_ms = 0;  // medians
};

// Both in turn. UserError TSR-3133 when their results differ.
Times compare_ways(Model& ours, Model& theirs, const TensorIntrinsic& intrinsic, const std::string& loc) {
  using Clock = std::chrono::steady_clock;
  const std::vector<Tensor> inputs = random_inputs(ours);
  for (Model* model : {&ours, &theirs}) {
    model->bind(inputs);
    model->run();
  }
  for (size_t i = 0; i < ours.results().size(); ++i) {
    const Comparison result = compare(theirs.results()[i], ours.results()[i], {.rtol = 0, .atol = 0, .mtol = 1e-3});
    if (!result.agrees)
      throw UserError({.id = "TSR-3133",
                       .message = fmt::format("the function {} of '{}' computes something else than its pattern: {}",
                                              intrinsic.call, intrinsic.name, result.text),
                       .node = loc,
                       .legal = "what the pattern computes, to 1e-3 of the largest value",
                       .hint = {}});
  }
  std::vector<double> times[2];
  const auto begin = Clock::now();
  const auto since = [](Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  for (int round = 0; round < kMostRounds && (round < kLeastRounds || since(begin) < kMaxSeconds); ++round) {
    for (int which = 0; which < 2; ++which) {
      const auto start = Clock::now();
      (which == 0 ? ours : theirs).run();
      times[which].push_back(since(start) * 1e3);
    }
  }
  for (auto& list : times) std::nth_element(list.begin(), list.begin() + std::ssize(list) / 2, list.end());
  return {times[0][times[0].size() / 2], times[1][times[1].size() / 2]};
}

}  // namespace

void use_declared_kernels(Program& program, const Intrinsics& declared, const Target& target, int opt_level,
                          const std::set<std::string>& disabled, const RuleNumerics& numerics, Remarks* remarks) {
  constexpr char kPass[] = "kernels";
  for (size_t number = 0; number < program.kernels.size(); ++number) {
    Kernel& kernel = program.kernels[number];
    if (!kernel.definition) continue;
    const std::optional<Canonical> parts = canonical(kernel.program);
    for (const TensorIntrinsic* intrinsic : declared) {
      const auto refuse = [&](const std::string& reason) {
        kernel.refused.push_back(fmt::format("{}: {}", intrinsic->name, reason));
        if (remarks) remarks->refused(kPass, kernel.loc, fmt::format("{}: {}", intrinsic->name, reason));
      };
      if (intrinsic->call.empty()) continue;
      if (!has_intrinsic(target, *intrinsic)) {
        refuse(fmt::format("the target lacks one of {}", fmt::join(intrinsic->features, ", ")));
        continue;
      }
      if (!parts) {
        refuse("the kernel is no nest of loops around one reduction");
        continue;
      }
      Stmt nest = parts->nest;
      std::string reason = match_intrinsic(*intrinsic, nest);
      if (!reason.empty()) {
        nest = without_single_iterations(nest);
        reason = match_intrinsic(*intrinsic, nest);
      }
      if (!reason.empty()) {
        refuse(reason);
        continue;
      }
      const LoopProgram called = with_call(kernel.program, *parts, *intrinsic, nest);
      verify_or_throw(called, kPass);
      std::string measured = "not measured";
      if (!runs_here(target)) {
        if (!intrinsic->always) {
          refuse("code for this target cannot be measured here, and the declaration does not say 'use always'");
          continue;
        }
      } else {
        Program theirs = alone(program, number);
        theirs.kernels[0].program = called;
        theirs.kernels[0].definition = nullptr;
        const auto our_model = compiled(alone(program, number), target, opt_level, disabled, numerics);
        const auto their_model = compiled(std::move(theirs), target, opt_level, disabled, numerics);
        const Times times = compare_ways(*our_model, *their_model, *intrinsic, kernel.loc);
        measured = fmt::format("{:.4f} ms, ours {:.4f} ms", times.theirs_ms, times.ours_ms);
        if (!intrinsic->always && times.theirs_ms > kNeeded * times.ours_ms) {
          refuse("not faster: " + measured);
          continue;
        }
      }
      if (remarks) remarks->done(kPass, kernel.loc, fmt::format("calls {} ({})", intrinsic->call, measured));
      kernel.program = called;
      kernel.definition = nullptr;
      kernel.rule = "call " + intrinsic->name;
      break;
    }
  }
}

}  // namespace tessera::inline driver
