#include "loop_passes/pack_bytes.h"

#include <cstdlib>
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

// Vectors of bytes that are stored one behind the other as `along` counts.
struct ByteVectors {
  Var along, lane;
  int64_t lanes = 0, group = 0;  // lanes of a vector, vectors that are packed together
  Stmt store;
  Expr number;  // which becomes the byte
};

// Of a vectorized loop over `loop`; none where it is no such loop.
std::optional<ByteVectors> byte_vectors(const TensorIntrinsic& pack, const Var& along, const Stmt& loop) {
  if (loop->kind != StmtKind::kFor || loop->for_kind != ForKind::kVectorized || as_int(loop->begin) != 0)
    return std::nullopt;
  const auto lanes = as_int(loop->extent);
  const Stmt& store = loop->stmts[0];
  if (!lanes || *lanes < 1 || pack.lanes % *lanes != 0 || store->kind != StmtKind::kStore ||
      store->indices.size() != 1 || store->buffer->scope == MemoryScope::kRegister)
    return std::nullopt;
  const int64_t group = pack.lanes / *lanes;
  if (linear_coefficient(store->indices[0], loop->var) != 1 ||
      (group > 1 && linear_coefficient(store->indices[0], along) != *lanes))
    return std::nullopt;
  const Expr number = packed_number(store->value);
  if (!number) return std::nullopt;
  // All of a group is read before any of it is stored.
  bool reads_result = false;
  walk(number, [&](const Expr& e) { reads_result |= e->kind == ExprKind::kLoad && e->buffer == store->buffer; });
  if (reads_result) return std::nullopt;
  return ByteVectors{along, loop->var, *lanes, group, store, number};
}

// The group of vectors whose first one is number `first`; null where the machine has no code for it.
Stmt packed_group(const TensorIntrinsic& pack, const ByteVectors& vectors, const Expr& first) {
  const Var p = make_var(vectors.along->name), l = make_var(vectors.lane->name), all = make_var("b");
  const BufferPtr numbers = make_buffer("numbers", DType::kF32, {pack.lanes}, MemoryScope::kLocal);
  const VarMap in_group = {{vectors.along.get(), first + p}, {vectors.lane.get(), l}};
  const Stmt make =
      for_loop(p, 0, vectors.group, ForKind::kUnrolled,
               for_loop(l, 0, vectors.lanes, ForKind::kVectorized,
                        store(numbers, {p * Expr(vectors.lanes) + l}, substitute(vectors.number, in_group))));
  const VarMap at_first = {{vectors.along.get(), first}, {vectors.lane.get(), Expr(0)}};
  const Expr begin = simplify(substitute(vectors.store->indices[0], at_first));
  const Stmt nest = for_loop(all, 0, pack.lanes, ForKind::kVectorized,
                             store(vectors.store->buffer, {begin + all}, byte_of(load(numbers, {all}), 0, 255)));
  if (!match_intrinsic(pack, nest).empty()) return {};
  return alloc(numbers, seq({make, tensorized(&pack, nest)}));
}

// Of an unrolled loop over vectors; null where the statement is none.
Stmt packed_loop(const TensorIntrinsic& pack, const Stmt& s) {
  const auto count = as_int(s->extent);
  if (s->for_kind != ForKind::kUnrolled || as_int(s->begin) != 0 || !count) return {};
  const Stmt& inner = s->stmts[0];
  const auto vectors = byte_vectors(pack, s->var, inner);
  const int64_t groups = vectors ? *count / vectors->group : 0;
  if (groups == 0) return {};
  const Var g = make_var("g");
  const Stmt group = packed_group(pack, *vectors, g * Expr(vectors->group));
  if (!group) return {};
  std::vector<Stmt> parts = {for_loop(g, 0, groups, ForKind::kUnrolled, group)};
  if (const int64_t packed = groups * vectors->group; packed < *count) {
    // What is left begins at 0 for itself.
    const Var rest = make_var(s->var->name);
    const VarMap moved = {{s->var.get(), rest + Expr(packed)}};
    const Stmt& one = vectors->store;
    parts.push_back(
        for_loop(rest, 0, *count - packed, ForKind::kUnrolled,
                 for_loop(inner->var, 0, vectors->lanes, ForKind::kVectorized,
                          store(one->buffer, {substitute(one->indices[0], moved)}, substitute(one->value, moved)))));
  }
  return seq(std::move(parts));
}

// Of rows that lie one behind the other, each with a vector in several places that are further apart than all rows:
// groups of rows instead. Null where the statement is no such loop.
Stmt packed_rows(const TensorIntrinsic& pack, const Stmt& s) {
  const auto rows = as_int(s->extent);
  if (s->for_kind != ForKind::kSerial || as_int(s->begin) != 0 || !rows) return {};
  const Stmt& inner = s->stmts[0];
  const bool in_places = inner->kind == StmtKind::kFor && inner->for_kind == ForKind::kUnrolled;
  const auto vectors = byte_vectors(pack, s->var, in_places ? inner->stmts[0] : inner);
  if (!vectors || vectors->group < 2 || *rows % vectors->group != 0) return {};
  if (in_places) {
    const auto apart = linear_coefficient(vectors->store->indices[0], inner->var);
    if (!apart || std::abs(*apart) < *rows * vectors->lanes) return {};
  }
  const Var g = make_var("g");
  const Stmt group = packed_group(pack, *vectors, g * Expr(vectors->group));
  if (!group) return {};
  return for_loop(g, 0, *rows / vectors->group, ForKind::kSerial,
                  in_places ? for_loop(inner->var, inner->begin, inner->extent, ForKind::kUnrolled, group) : group);
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
  result.body = rewrite_statements(program.body, [&](const Stmt& s) -> Stmt {
    if (s->kind != StmtKind::kFor) return {};
    const Stmt packed = packed_loop(*pack, s);
    return packed ? packed : packed_rows(*pack, s);
  });
  return result;
}

}  // namespace tessera::inline loop_passes
