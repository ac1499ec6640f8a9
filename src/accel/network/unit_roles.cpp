#include "accel/network/unit_roles.h"

#include <algorithm>
#include <optional>

#include "accel/stream.h"
#include "arith/tensor_type.h"

namespace tessera::inline network {

namespace {

// The store of a kernel that is loops around one statement.
Stmt only_store(const LoopProgram& kernel) {
  Stmt s = kernel.body;
  while (s->kind == StmtKind::kFor) s = s->stmts[0];
  return s->kind == StmtKind::kStore ? s : Stmt();
}

std::optional<size_t> param_of(const LoopProgram& kernel, const Buffer* buffer) {
  for (size_t p = 0; p < kernel.params.size(); ++p)
    if (kernel.params[p].get() == buffer) return p;
  return std::nullopt;
}

Expr without_cast(const Expr& e) { return e->kind == ExprKind::kCast ? e->operands[0] : e; }

int64_t extent_of(const Buffer& buffer, size_t dim) { return as_int(buffer.shape[dim]).value_or(0); }

std::optional<UnitProduct> product_of(const UnitInstruction& instruction) {
  const LoopProgram& kernel = *instruction.intrinsic->pattern();
  const Stmt s = only_store(kernel);
  if (!s || s->indices.size() != 1 || s->value->kind != ExprKind::kBinary || s->value->binary != BinaryOp::kAdd)
    return std::nullopt;
  const Expr &sum = s->value->operands[0], &product = s->value->operands[1];
  if (sum->kind != ExprKind::kLoad || sum->buffer != s->buffer || product->kind != ExprKind::kBinary ||
      product->binary != BinaryOp::kMul)
    return std::nullopt;
  Expr x = without_cast(product->operands[0]), w = without_cast(product->operands[1]);
  if (x->kind != ExprKind::kLoad || w->kind != ExprKind::kLoad) return std::nullopt;
  if (x->operands.size() == 2) std::swap(x, w);
  if (x->operands.size() != 1 || w->operands.size() != 2) return std::nullopt;
  UnitProduct result;
  result.instruction = &instruction;
  const auto px = param_of(kernel, x->buffer.get()), pw = param_of(kernel, w->buffer.get()),
             pd = param_of(kernel, s->buffer.get());
  if (!px || !pw || !pd) return std::nullopt;
  result.x = *px, result.w = *pw, result.d = *pd;
  const Expr &o = s->indices[0], &k = x->operands[0];
  result.out_first = w->operands[0].same_node(o) && w->operands[1].same_node(k);
  if (!result.out_first && !(w->operands[0].same_node(k) && w->operands[1].same_node(o))) return std::nullopt;
  result.in = extent_of(*x->buffer, 0);
  result.out = extent_of(*s->buffer, 0);
  result.x_dtype = x->buffer->dtype;
  result.w_dtype = w->buffer->dtype;
  return result;
}

// One loop over all places of the result; operands are read at that place.
std::optional<UnitMap> map_of(const UnitInstruction& instruction, int64_t lanes) {
  const LoopProgram& kernel = *instruction.intrinsic->pattern();
  if (kernel.num_outputs != 1 || kernel.body->kind != StmtKind::kFor) return std::nullopt;
  const Stmt s = only_store(kernel);
  if (!s || kernel.body->stmts[0].get() != s.get() || s->indices.size() != 1 ||
      !s->indices[0].same_node(kernel.body->var) || extent_of(*s->buffer, 0) != lanes)
    return std::nullopt;
  bool regular = true;
  walk(s->value, [&](const Expr& e) {
    if (e->kind == ExprKind::kLoad)
      regular = regular && e->operands.size() == 1 && e->operands[0].same_node(s->indices[0]);
  });
  if (!regular) return std::nullopt;
  return UnitMap{&instruction, s->value, s->indices[0], s->buffer->dtype};
}

// Moves what its parameter holds, and nothing else.
bool is_copy(const UnitInstruction& instruction) {
  const LoopProgram& kernel = *instruction.intrinsic->pattern();
  const Stmt s = only_store(kernel);
  if (!s || kernel.params.size() != 2 || s->value->kind != ExprKind::kLoad) return false;
  if (s->indices.size() != s->value->operands.size()) return false;
  for (size_t d = 0; d < s->indices.size(); ++d)
    if (!s->indices[d].same_node(s->value->operands[d])) return false;
  return true;
}

}  // namespace

UnitRoles roles_of(const Accelerator& unit, std::string& why) {
  UnitRoles roles;
  for (const UnitInstruction& instruction : unit.instructions) {
    if (instruction.dram_operand() >= 0) continue;
    if (const auto product = product_of(instruction); product && !roles.product.instruction) roles.product = *product;
  }
  if (!roles.product.instruction) {
    why = "no instruction multiplies a vector by a matrix and adds to sums";
    return roles;
  }
  const UnitProduct& product = roles.product;
  const auto memory_of = [&](size_t p) { return product.instruction->operands[p]; };
  const auto& params = product.instruction->intrinsic->pattern()->params;
  const auto same_shape_as = [&](const Buffer& buffer, size_t p) {
    return buffer.dtype == params[p]->dtype && same_shape(buffer.shape, params[p]->shape);
  };
  for (const UnitInstruction& instruction : unit.instructions) {
    if (&instruction == product.instruction) continue;
    const LoopProgram& kernel = *instruction.intrinsic->pattern();
    const size_t last = kernel.params.size() - 1;
    const Buffer& result = *kernel.params[last];
    const int to = instruction.operands[last], dram = instruction.dram_operand();
    if (dram >= 0 && !is_written(instruction, static_cast<size_t>(dram))) {
      if (!is_copy(instruction)) continue;
      const bool moves = instruction.intrinsic->patterns[0].rules.any_type;
      if (to == memory_of(product.x) && same_shape_as(result, product.x)) roles.load_x = &instruction;
      else if (to == memory_of(product.w) && same_shape_as(result, product.w)) roles.load_w = &instruction;
      else if (to == memory_of(product.d) && dtype_bits(result.dtype) == 32 && result.shape.size() == 1 &&
               extent_of(result, 0) == product.out)
        roles.load_sums = &instruction, roles.moves_any_type = moves;
      continue;
    }
    const auto map = map_of(instruction, product.out);
    if (!map) continue;
    bool of_sums = true;
    for (size_t p = 0; p < last; ++p) of_sums = of_sums && instruction.operands[p] == memory_of(product.d);
    if (!of_sums) continue;
    if (dram >= 0) roles.stores.push_back(*map);
    else if (to == memory_of(product.d) && kernel.params.size() == 1 && is_const_int(map->value, 0))
      roles.clear = &instruction;
    else if (to == memory_of(product.d) && kernel.params.size() > 1) roles.maps.push_back(*map);
  }
  if (!roles.load_x) why = "no instruction loads the vector that it multiplies";
  else if (!roles.load_w) why = "no instruction loads the matrix that it multiplies by";
  else if (!roles.clear) why = "no instruction clears sums";
  else if (roles.stores.empty()) why = "no instruction stores sums";
  return roles;
}

}  // namespace tessera::inline network
