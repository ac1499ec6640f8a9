#include "loop_passes/pack_bytes.h"

#include <optional>

#include "arith/simplify.h"
#include "loop/intrinsic.h"
#include "loop_passes/byte_exprs.h"

namespace tessera::inline loop_passes {
namespace {

// The byte of a number: of NaN the lower limit.
Expr byte_of(const Expr& x, double low, double high) {
  return cast(DType::kU8, bitcast(DType::kI32, within(x, low, high) + f32_number(kRoundingAddend)));
}

// A number so that byte_of(it, 0, 255) is `e`; null where e is none.
Expr packed_number(const Expr& e) {
  if (e->kind != ExprKind::kCast || e.dtype() != DType::kU8 || e->operands[0].dtype() != DType::kI32) return {};
  const Expr& bits = e->operands[0];
  if (bits->kind != ExprKind::kUnary || bits->operands.empty() || bits->operands[0].dtype() != DType::kF32) return {};
  const Expr& sum = bits->operands[0];
  if (!is_binary(sum, BinaryOp::kAdd) || !is_binary(sum->operands[0], BinaryOp::kMin)) return {};
  const auto high = as_f32(sum->operands[0]->operands[1]);
  const Expr& floor = sum->operands[0]->operands[0];
  if (!high || floor->kind != ExprKind::kSelect) return {};
  const auto low = as_f32(floor->operands[2]);
  const Expr& x = floor->operands[1];
  if (!low || *low < 0 || *high > 255 || !structurally_equal(e, byte_of(x, *low, *high))) return {};
  Expr number = *low == 0 ? x : floor;
  return *high == 255 ? number : min(number, f32_number(*high));
}

// Null where the statement is no loop whose vectors are packed.
Stmt packed_loop(const TensorIntrinsic& pack, const Stmt& s) {
  if (s->kind != StmtKind::kFor) return {};
  const Stmt& inner = s->stmts[0];
  const auto count = as_int(s->extent);
  if (s->for_kind != ForKind::kUnrolled || as_int(s->begin) != 0 || !count || inner->kind != StmtKind::kFor ||
      inner->for_kind != ForKind::kVectorized || as_int(inner->begin) != 0)
    return {};
  const auto lanes = as_int(inner->extent);
  const Stmt& store_stmt = inner->stmts[0];
  if (!lanes || *lanes < 1 || pack.lanes % *lanes != 0 || store_stmt->kind != StmtKind::kStore ||
      store_stmt->indices.size() != 1 || store_stmt->buffer->scope == MemoryScope::kRegister)
    return {};
  const int64_t group = pack.lanes / *lanes, groups = *count / group;
  if (groups == 0 || linear_coefficient(store_stmt->indices[0], inner->var) != 1 ||
      (group > 1 && linear_coefficient(store_stmt->indices[0], s->var) != *lanes))
    return {};
  const Expr number = packed_number(store_stmt->value);
  if (!number) return {};
  // All of a group is read before any of it is stored.
  bool reads_result = false;
  walk(number, [&](const Expr& e) { reads_result |= e->kind == ExprKind::kLoad && e->buffer == store_stmt->buffer; });
  if (reads_result) return {};

  const Var g = make_var("g"), p = make_var(s->var->name), l = make_var(inner->var->name), all = make_var("b");
  const BufferPtr numbers = make_buffer("numbers", DType::kF32, {pack.lanes}, MemoryScope::kLocal);
  const VarMap in_group = {{s->var.get(), g * Expr(group) + p}, {inner->var.get(), l}};
  const Stmt make = for_loop(p, 0, group, ForKind::kUnrolled,
                             for_loop(l, 0, *lanes, ForKind::kVectorized,
                                      store(numbers, {p * Expr(*lanes) + l}, substitute(number, in_group))));
  const VarMap at_first = {{s->var.get(), g * Expr(group)}, {inner->var.get(), Expr(0)}};
  const Expr first = simplify(substitute(store_stmt->indices[0], at_first));
  const Stmt nest = for_loop(all, 0, pack.lanes, ForKind::kVectorized,
                             store(store_stmt->buffer, {first + all}, byte_of(load(numbers, {all}), 0, 255)));
  if (!match_intrinsic(pack, nest).empty()) return {};
  std::vector<Stmt> parts = {
      for_loop(g, 0, groups, ForKind::kUnrolled, alloc(numbers, seq({make, tensorized(&pack, nest)})))};
  if (groups * group < *count) {
    // What is left begins at 0 for itself.
    const Var rest = make_var(s->var->name);
    const VarMap moved = {{s->var.get(), rest + Expr(groups * group)}};
    parts.push_back(for_loop(rest, 0, *count - groups * group, ForKind::kUnrolled,
                             for_loop(inner->var, 0, *lanes, ForKind::kVectorized,
                                      store(store_stmt->buffer, {substitute(store_stmt->indices[0], moved)},
                                            substitute(store_stmt->value, moved)))));
  }
  return seq(std::move(parts));
}

}  // namespace

LoopProgram pack_bytes(const LoopProgram& program, const LoopPassContext& ctx) {
  const TensorIntrinsic* pack = best_pack_intrinsic(ctx.target);
  if (!pack) return program;
  bool any = false;
  walk(
      program.body, [&](const Stmt& s) { any |= s->kind == StmtKind::kStore && s->buffer->dtype == DType::kU8; },
      nullptr);
  if (!any) return program;
  LoopProgram result = program;
  result.body = rewrite_statements(program.body, [&](const Stmt& s) { return packed_loop(*pack, s); });
  return result;
}

}  // namespace tessera::inline loop_passes
