#include "schedule/gpu/gpu_loops.h"

#include <unordered_set>
#include <utility>

#include "arith/walk_certain.h"

namespace tessera::inline schedule {

void FlatAxes::values_at(const Expr& index, const Bounds& bounds, VarMap& values) const {
  Expr rest = index;
  for (size_t i = axes.size(); i-- > 0;) {
    const Expr& own = axes[i].extent;
    const bool is_one = is_const_int(own, 1);
    // What is left for the first one is its own value: the index is below the product of all.
    values[axes[i].var.get()] = is_one ? Expr(0) : i == 0 ? rest : simplify(floormod(rest, own), bounds);
    if (!is_one) rest = simplify(floordiv(rest, own), bounds);
  }
}

Expr FlatAxes::tiles(int64_t tile) const {
  return tile == 1 ? size : simplify(floordiv(size + Expr(tile - 1), Expr(tile)));
}

bool FlatAxes::is_at_most(int64_t most, int64_t tile) const {
  const auto largest = as_int(size) ? as_int(size) : size_range(size).hi;
  return largest && (*largest + tile - 1) / tile <= most;
}

bool reads_neighbours(const Expr& value, const Var& var, const Bounds& bounds) {
  bool loads = false, near = true;
  VarMap next;
  next[var.get()] = var + Expr(1);
  walk(value, [&](const Expr& e) {
    if (e->kind != ExprKind::kLoad || e->operands.size() != 1 || !uses_var(e, var)) return;
    const Expr& here = e->operands[0];
    loads = true;
    near = near && as_int(simplify(substitute(here, next) - here, bounds)) == 1;
  });
  return loads && near;
}

std::vector<Expr> certain_loads(const Expr& value) {
  std::vector<Expr> loads;
  std::unordered_set<const ExprNode*> seen;
  walk_certain(value, seen, [&](const Expr& e) {
    if (e->kind == ExprKind::kLoad) loads.push_back(e);
    return true;
  });
  return loads;
}

BufferPtr flat_memory(const Buffer& buffer) {
  Expr elements = 1;
  for (const Expr& extent : buffer.shape) elements = elements * extent;
  return make_buffer(buffer.name, buffer.dtype, {elements});
}

LoopProgram gpu_program(const std::string& name, const LinearKernel& kernel, Stmt body) {
  LoopProgram program;
  program.name = name;
  program.params = kernel.params;
  program.num_outputs = static_cast<int>(kernel.num_results());
  program.body = std::move(body);
  return program;
}

Var var_below(const std::string& name, const Expr& extent, Bounds& bounds) {
  const Var var = make_var(name);
  const auto most = as_int(extent) ? as_int(extent) : size_range(extent).hi;
  bounds.set(var, Interval{0, most ? std::optional(*most - 1) : std::nullopt});
  return var;
}

Stmt loop_over(const std::string& name, const Expr& extent, ForKind kind, const std::function<Stmt(const Var&)>& body,
               Bounds& bounds) {
  const Var var = var_below(name, extent, bounds);
  return for_loop(var, 0, extent, kind, body(var));
}

Stmt thread_nest(const std::string& name, int64_t height, int64_t width,
                 const std::function<Stmt(const Expr& y, const Expr& x)>& body, Bounds& bounds) {
  if (height == 1)
    return loop_over(name, width, ForKind::kThreadX, [&](const Var& x) { return body(Expr(0), x); }, bounds);
  return loop_over(
      name + "_y", height, ForKind::kThreadY,
      [&](const Var& y) {
        return loop_over(name + "_x", width, ForKind::kThreadX, [&](const Var& x) { return body(y, x); }, bounds);
      },
      bounds);
}

Stmt serial_loop(const std::string& name, const Expr& extent, const std::function<Stmt(const Var&)>& body,
                 Bounds& bounds) {
  return loop_over(name, extent, ForKind::kSerial, body, bounds);
}

Stmt unrolled_loop(const std::string& name, int64_t extent, const std::function<Stmt(const Var&)>& body,
                   Bounds& bounds) {
  return loop_over(name, extent, ForKind::kUnrolled, body, bounds);
}

}  // namespace tessera::inline schedule
