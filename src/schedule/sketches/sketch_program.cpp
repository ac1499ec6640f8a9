#include "schedule/sketches/sketch_program.h"

#include <algorithm>

#include <fmt/format.h>

#include "arith/simplify.h"
#include "loop/naive_loops.h"
#include "support/error.h"

namespace tessera::inline schedule {
namespace {

// Statements with buffers exchanged; `loads` of those in `flat` get one index.
Stmt exchanged(const Stmt& s, const std::unordered_map<const Buffer*, BufferPtr>& by,
               const std::unordered_map<const Buffer*, bool>& flat) {
  const auto indices_of = [&](const Buffer* old, const std::vector<Expr>& indices) -> std::vector<Expr> {
    if (const auto it = flat.find(old); it == flat.end() || !it->second) return indices;
    Expr place = 0;
    for (size_t d = 0; d < indices.size(); ++d) place = place * old->shape[d] + indices[d];
    return {place};
  };
  return transform(
      s,
      [&](const Expr& e) -> Expr {
        if (e->kind != ExprKind::kLoad) return {};
        const auto it = by.find(e->buffer.get());
        return it == by.end() ? Expr() : load(it->second, indices_of(e->buffer.get(), e->operands));
      },
      [&](const Stmt& node) -> Stmt {
        if (node->kind == StmtKind::kStore)
          if (const auto it = by.find(node->buffer.get()); it != by.end())
            return store(it->second, node->indices, node->value);
        return {};
      });
}

Stmt renamed_loops(const Stmt& s, bool reduced, int& outputs, int& reductions) {
  switch (s->kind) {
    case StmtKind::kSeq: {
      std::vector<Stmt> stmts;
      for (const Stmt& child : s->stmts) stmts.push_back(renamed_loops(child, reduced, outputs, reductions));
      return seq(std::move(stmts));
    }
    case StmtKind::kAlloc: return alloc(s->buffer, renamed_loops(s->stmts[0], true, outputs, reductions));
    case StmtKind::kFor: {
      const Var var = make_var(reduced ? fmt::format("r{}", reductions++) : fmt::format("i{}", outputs++));
      return for_loop(var, s->begin, s->extent, s->for_kind,
                      renamed_loops(substitute(s->stmts[0], {{s->var.get(), var}}), reduced, outputs, reductions));
    }
    default: return s;
  }
}

void visit_expanded(const Stmt& s, double copies, int lanes, double& stores) {
  if (s->kind == StmtKind::kStore) {
    stores += copies;
    return;
  }
  if (s->kind == StmtKind::kFor && (s->for_kind == ForKind::kUnrolled || s->for_kind == ForKind::kVectorized)) {
    const auto extent = static_cast<double>(as_int(s->extent).value_or(1));
    copies *= s->for_kind == ForKind::kUnrolled ? extent : std::max(1.0, extent / lanes);
  }
  for (const Stmt& child : s->stmts) visit_expanded(child, copies, lanes, stores);
}

double count_executed(const Stmt& s, double times) {
  if (s->kind == StmtKind::kStore) return times;
  if (s->kind == StmtKind::kFor) times *= static_cast<double>(as_int(s->extent).value_or(1));
  double stores = 0;
  for (const Stmt& child : s->stmts) stores += count_executed(child, times);
  return stores;
}

double bytes_of(const Buffer& buffer) {
  double elements = 1;
  for (const Expr& dim : buffer.shape) elements *= static_cast<double>(as_int(dim).value_or(1));
  return elements * dtype_bits(buffer.dtype) / 8;
}

}  // namespace

Schedule sketch_schedule(const TensorProgram& kernel, const Target& target) {
  LoopProgram program = naive_loops(kernel);
  std::unordered_map<const Buffer*, BufferPtr> names;
  Names constants;
  for (size_t p = 0; p < program.params.size(); ++p) {
    const bool output = p + 1 == program.params.size();
    BufferPtr& param = program.params[p];
    const BufferPtr named = make_buffer(output ? "y" : fmt::format("p{}", p), param->dtype, param->shape, param->scope);
    names[param.get()] = named;
    if (!output && kernel.params[p].may_be_packed()) constants.push_back(named->name);
    param = named;
  }
  int outputs = 0, reductions = 0;
  program.body = renamed_loops(exchanged(program.body, names, {}), false, outputs, reductions);
  Schedule schedule(std::move(program), target);
  schedule.set_constants(std::move(constants));
  return schedule;
}

std::string sketch_objection(const Schedule& schedule, const Target& target) {
  constexpr double kMostStores = 3000, kMostRegisters = 16 << 10, kMostMemory = 256 << 20;
  double stores = 0, registers = 0, memory = 0;
  visit_expanded(schedule.program().body, 1, std::max(1, target.f32_lanes()), stores);
  if (stores > kMostStores) return fmt::format("{:.0f} copies of statements, more than {:.0f}", stores, kMostStores);
  walk(
      schedule.program().body,
      [&](const Stmt& s) {
        if (s->kind == StmtKind::kAlloc)
          (s->buffer->scope == MemoryScope::kRegister ? registers : memory) += bytes_of(*s->buffer);
      },
      nullptr);
  if (registers > kMostRegisters) return fmt::format("{:.0f} bytes are to be in registers", registers);
  if (memory > kMostMemory) return fmt::format("{:.0f} bytes of memory are to be allocated", memory);
  return "";
}

double executed_stores(const LoopProgram& program) { return count_executed(program.body, 1); }

int64_t register_vectors(const Schedule& schedule, const Target& target) {
  double bytes = 0;
  walk(
      schedule.program().body,
      [&](const Stmt& s) {
        if (s->kind == StmtKind::kAlloc && s->buffer->scope == MemoryScope::kRegister) bytes += bytes_of(*s->buffer);
      },
      nullptr);
  return static_cast<int64_t>(bytes * 8 / target.vector_bits());
}

ScheduledKernel finished_sketch(const Schedule& schedule, const TensorProgram& kernel) {
  ScheduledKernel result;
  result.program = schedule.program();
  result.packed = schedule.packed();
  std::unordered_map<const Buffer*, BufferPtr> names;
  std::unordered_map<const Buffer*, bool> flat;
  for (size_t p = 0; p < result.program.params.size(); ++p) {
    BufferPtr& param = result.program.params[p];
    const bool output = p + 1 == result.program.params.size();
    const std::string& name = output ? kernel.output().out->name : kernel.params[p].buffer->name;
    const auto packed =
        std::find_if(result.packed.begin(), result.packed.end(), [&](const PackedParam& q) { return q.param == p; });
    BufferPtr named;
    if (packed != result.packed.end()) {
      named = make_buffer(name + "_packed", param->dtype, {packed->num_elements()});
      flat[param.get()] = true;
    } else {
      named = make_buffer(name, param->dtype, param->shape, param->scope);
    }
    names[param.get()] = named;
    param = named;
  }
  result.program.body = exchanged(result.program.body, names, flat);
  return result;
}

}  // namespace tessera::inline schedule
