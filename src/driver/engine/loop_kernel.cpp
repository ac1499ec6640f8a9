#include "driver/engine/loop_kernel.h"

#include <algorithm>
#include <random>
#include <unordered_set>

#include <fmt/format.h>

#include "arith/simplify.h"
#include "codegen/common/local_plan.h"
#include "codegen/llvm/llvm_codegen.h"
#include "driver/build_module.h"
#include "driver/engine/native_model.h"
#include "interp/loop_interp.h"
#include "loop/verify.h"
#include "loop_passes/pass.h"
#include "program/memory_plan.h"
#include "program/single_kernel_program.h"
#include "support/error.h"

namespace tessera::inline driver {

namespace {

[[noreturn]] void fail(const std::string& message, const std::string& legal) {
  throw UserError({.id = "TSR-3421", .message = message, .node = {}, .legal = legal, .hint = {}});
}

LoopProgram lowered(const LoopProgram& program, const Target& target, int opt_level) {
  if (!program.symbols.empty())
    fail(fmt::format("kernel {} has sizes that only a run knows: {}", program.name, program.symbols[0]->name),
         "kernels of constant sizes");
  for (const BufferPtr& param : program.params)
    if (!constant_elements(*param))
      fail(fmt::format("parameter {} has no constant shape", param->name), "constant shapes");
  walk(
      program.body,
      [&](const Stmt& s) {
        if (s->kind == StmtKind::kAlloc && !constant_elements(*s->buffer))
          fail(fmt::format("the allocation {} has no constant shape", s->buffer->name), "constant shapes");
      },
      nullptr);
  LoopProgram result = program;
  const LoopPassContext context{target, opt_level};
  for (const LoopPass& pass : loop_pipeline())
    if (pass.min_level <= opt_level) {
      result = pass.run(result, context);
      verify_or_throw(result, pass.name);
    }
  return result;
}

Program planned_program(const LoopProgram& loops) {
  Program program = program_of(loops);
  plan_memory(program);
  return program;
}

double count(const LoopProgram& program, const std::function<double(const Stmt& store)>& cost) {
  const std::function<double(const Stmt&, Bounds)> visit = [&](const Stmt& s, Bounds bounds) -> double {
    double times = 1;
    if (s->kind == StmtKind::kStore) return cost(s);
    if (s->kind == StmtKind::kFor) {
      const Interval trips = bounds_of(s->extent, bounds);
      times = trips.hi ? static_cast<double>(std::max<int64_t>(*trips.hi, 0)) : 1;
      bounds.set(s->var,
                 Interval{bounds_of(s->begin, bounds).lo, bounds_of(s->begin + s->extent - Expr(1), bounds).hi});
    }
    double sum = 0;
    for (const Stmt& child : s->stmts) sum += visit(child, bounds);
    return times * sum;
  };
  return visit(program.body, {});
}

}  // namespace

ObjectCode compile_loops(const LoopProgram& program, const Target& target, const CodegenOptions& options) {
  CodegenOptions own = options;
  own.module_name = program.name;
  return generate_llvm(planned_program(lowered(program, target, options.opt_level)), target, own);
}

std::unique_ptr<Model> load_loops(const LoopProgram& program, const Target& target, int num_threads,
                                  std::vector<std::string>* remarks) {
  return load_program(planned_program(lowered(program, target, 3)), target, num_threads, remarks);
}

std::unique_ptr<Model> load_program(Program planned, const Target& target, int num_threads,
                                    std::vector<std::string>* remarks) {
  CodegenOptions options;
  options.module_name = planned.name;
  ModuleInfo info = module_info(planned.name, target);
  info.model_digest = "0";
  const std::string name = planned.name;
  return load_module(build_module(std::move(planned), target, info, options, remarks), name, num_threads);
}

std::vector<Tensor> random_loop_inputs(const LoopProgram& program, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Tensor> inputs;
  for (size_t i = 0; i + static_cast<size_t>(program.num_outputs) < program.params.size(); ++i) {
    const Buffer& buffer = *program.params[i];
    std::vector<int64_t> dims;
    for (const Expr& extent : buffer.shape) {
      const auto value = as_int(extent);
      if (!value) fail(fmt::format("parameter {} has no constant shape", buffer.name), "constant shapes");
      dims.push_back(*value);
    }
    Tensor& t = inputs.emplace_back(buffer.dtype, dims);
    const int64_t low = buffer.dtype == DType::kBool || is_unsigned_int(buffer.dtype) ? 0 : -4;
    for (int64_t e = 0; e < t.num_elements(); ++e) {
      const uint64_t bits = random();
      if (is_float(buffer.dtype)) t.set_double(e, static_cast<double>(bits >> 11) * 0x1p-52 - 1);
      else
        t.set_int(e,
                  buffer.dtype == DType::kBool ? static_cast<int64_t>(bits & 1) : low + static_cast<int64_t>(bits % 9));
    }
  }
  return inputs;
}

std::vector<Tensor> interpret_loops(const LoopProgram& program, const std::vector<Tensor>& inputs) {
  std::vector<Tensor> all = inputs;
  for (size_t i = inputs.size(); i < program.params.size(); ++i) {
    std::vector<int64_t> dims;
    for (const Expr& extent : program.params[i]->shape) dims.push_back(as_int(extent).value());
    all.emplace_back(program.params[i]->dtype, dims);
  }
  std::vector<Tensor*> params;
  for (Tensor& tensor : all) params.push_back(&tensor);
  interpret(program, std::span<Tensor* const>(params));
  return {all.begin() + static_cast<std::ptrdiff_t>(inputs.size()), all.end()};
}

double loop_flops(const LoopProgram& program) {
  return count(program, [](const Stmt& store) {
    double ops = 0;
    walk(store->value, [&](const Expr& e) {
      if (!is_float(e.dtype())) return;
      if (e->kind == ExprKind::kFma) ops += 2;
      else if (e->kind == ExprKind::kUnary || e->kind == ExprKind::kBinary) ops += 1;
    });
    return ops;
  });
}

double loop_stores(const LoopProgram& program) {
  return count(program, [](const Stmt&) { return 1.0; });
}

}  // namespace tessera::inline driver
