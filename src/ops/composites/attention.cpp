// Scaled dot product attention: softmax(q k^T * scale, masked) v. q[..., S, D], k[..., T, D], v[..., T, E]; the
// dimensions before the last two are equal. Grouped: where q has G times as many heads (the dimension before the last
// two) as k and v, G neighbouring heads of q share one of theirs.
#include <fmt/format.h>

#include "arith/simplify.h"
#include "graph/adjoint.h"
#include "ops/composites/composites.h"
#include "ops/composites/softmax.h"
#include "ops/op_util.h"

namespace tessera::inline ops {
namespace {

using Ints = std::vector<int64_t>;

struct Extents {
  Shape batch;         // the dimensions before the heads
  Expr heads = 1;      // of k and v
  int64_t groups = 1;  // heads of q for each
  Expr rows, columns, depth, result_depth;
  bool has_heads = false;
};

const Shape& shape_of(CompositeBody& b, size_t operand) { return b.type(b.operand(operand)).shape; }

// q = groups * k, groups being a number; 0 when there is none.
int64_t groups_of(const Expr& q, const Expr& k) {
  if (equal_extents(q, k)) return 1;
  const auto groups = as_int(normalize_size(floordiv(q, max(k, 1))));
  return groups && equal_extents(q, k * Expr(*groups)) ? *groups : 0;
}

Extents extents_of(CompositeBody& b) {
  for (size_t i = 0; i < 3; ++i) {
    require_dtype(b.context(), i, is_real, kRealTypes);
    const int rank = b.type(b.operand(0)).rank();
    require_rank(b.context(), i, i == 0 ? 2 : rank, i == 0 ? std::numeric_limits<int>::max() : rank);
  }
  const Shape &q = shape_of(b, 0), &k = shape_of(b, 1), &v = shape_of(b, 2);
  const size_t rank = q.size();
  Extents e;
  e.rows = q[rank - 2];
  e.depth = q[rank - 1];
  e.columns = k[rank - 2];
  e.result_depth = v[rank - 1];
  e.has_heads = rank >= 3;
  bool fits = equal_extents(k[rank - 1], e.depth) && equal_extents(v[rank - 2], e.columns);
  if (e.has_heads) {
    e.batch.assign(q.begin(), q.end() - 3);
    e.heads = k[rank - 3];
    e.groups = groups_of(q[rank - 3], e.heads);
    fits = fits && e.groups > 0 && equal_extents(v[rank - 3], e.heads);
    for (size_t d = 0; d + 3 < rank; ++d) fits = fits && equal_extents(q[d], k[d]) && equal_extents(q[d], v[d]);
  }
  if (!fits)
    b.context().fail("TSR-2024",
                     fmt::format("{}, {} and {}", describe_operand(b.context(), 0), describe_operand(b.context(), 1),
                                 describe_operand(b.context(), 2)),
                     "q[..., S, D], k[..., T, D], v[..., T, E] with equal dimensions before them, or a whole multiple "
                     "of heads in q");
  return e;
}

// batch, then heads and groups apart, then the matrix.
Shape split(const Extents& e, int64_t groups, const Expr& rows, const Expr& columns) {
  Shape dims = e.batch;
  for (const Expr& d : {e.heads, Expr(groups), rows, columns}) dims.push_back(d);
  return dims;
}

// The mask as it broadcasts to the scores with heads and groups apart.
ValueId split_mask(CompositeBody& b, const Extents& e) {
  const ValueId mask = b.operand(3);
  Shape dims = shape_of(b, 3);
  if (dims.size() < 3) return mask;
  const size_t heads = dims.size() - 3;
  const bool shared = is_const_int(dims[heads], 1);
  if (!shared) dims[heads] = e.heads;
  dims.insert(dims.begin() + static_cast<std::ptrdiff_t>(heads) + 1, shared ? 1 : e.groups);
  return b.add("reshape", {mask}, {{"shape", dims}});
}

std::vector<ValueId> attention(CompositeBody& b) {
  const Extents e = extents_of(b);
  ValueId q = b.operand(0), k = b.operand(1), v = b.operand(2);
  const Shape q_shape = b.type(q).shape;
  // With one head of k and v they broadcast as they are.
  const bool grouped = e.groups > 1 && !is_const_int(e.heads, 1);
  if (grouped) {
    q = b.add("reshape", {q}, {{"shape", split(e, e.groups, e.rows, e.depth)}});
    k = b.add("reshape", {k}, {{"shape", split(e, 1, e.columns, e.depth)}});
    v = b.add("reshape", {v}, {{"shape", split(e, 1, e.columns, e.result_depth)}});
  }
  const int rank = b.type(q).rank();
  Ints perm;
  for (int axis = 0; axis < rank; ++axis) perm.push_back(axis);
  std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
  ValueId scores = b.add("matmul", {q, b.add("transpose", {k}, {{"perm", perm}})});
  const double scale = b.attrs().get<double>("scale");
  if (scale != 1) scores = b.add_scalar("mul", scores, scale);
  if (b.num_operands() == 4) {
    Shape wanted = q_shape;
    wanted.back() = e.columns;
    if (!same_shape(broadcast_shapes(b.context(), wanted, b.type(b.operand(3)).shape), wanted))
      b.context().fail("TSR-2023", describe_operand(b.context(), 3),
                       fmt::format("a mask that broadcasts to the scores {}", to_string(wanted)));
    const ValueId mask = grouped ? split_mask(b, e) : b.operand(3);
    if (b.type(mask).dtype == DType::kBool) {
      const ValueId fill = b.scalar(b.attrs().get_or<double>("fill", -std::numeric_limits<double>::infinity()));
      scores = b.add("select", {mask, scores, fill});
    } else {
      scores = b.add("add", {scores, mask});
    }
  }
  const ValueId exps = b.add("exp", {b.add("sub", {scores, b.reduce("max", scores, {rank - 1})})});
  const ValueId weights = divide_by_total(b, exps, b.reduce("sum", exps, {rank - 1}));
  ValueId result = b.add("matmul", {weights, v});
  if (grouped) {
    Shape dims = q_shape;
    dims.back() = e.result_depth;
    result = b.add("reshape", {result}, {{"shape", dims}});
  }
  return {result};
}

// With P = softmax(S): dv = P' g, dS = P * (dP - sum(dP * P)) where dP = g v', dq = dS k * scale, dk = dS' q * scale.
// P is computed once more: what lies inside of the composite is its own.
std::vector<ValueId> attention_gradient(Adjoint& a) {
  const Shape q_shape = a.type(a.in(0)).shape, k_shape = a.type(a.in(1)).shape, v_shape = a.type(a.in(2)).shape;
  const size_t rank = q_shape.size();
  const int64_t groups = rank >= 3 ? groups_of(q_shape[rank - 3], k_shape[rank - 3]) : 1;
  const double scale = a.attrs().get<double>("scale");
  // Heads and groups apart, so that k and v broadcast along the groups.
  const auto apart = [&](Shape shape, int64_t own) {
    if (groups == 1) return shape;
    shape[rank - 3] = k_shape[rank - 3];
    shape.insert(shape.end() - 2, Expr(own));
    return shape;
  };
  const auto split_operand = [&](ValueId v, const Shape& shape, int64_t own) {
    return a.reshape(v, apart(shape, own));
  };
  Shape g_shape = q_shape;
  g_shape.back() = v_shape.back();
  const ValueId q = split_operand(a.in(0), q_shape, groups), k = split_operand(a.in(1), k_shape, 1),
                v = split_operand(a.in(2), v_shape, 1), g = split_operand(a.gradient(), g_shape, groups);
  const auto product = [&](ValueId x, ValueId y, bool transpose_x, bool transpose_y) {
    return a.op("matmul", {x, y}, {{"transpose_a", transpose_x}, {"transpose_b", transpose_y}});
  };
  const auto scaled = [&](ValueId x) { return scale == 1 ? x : a.mul(x, a.scalar(scale, x)); };
  ValueId scores = scaled(product(q, k, false, true));
  const Shape scores_shape = a.type(scores).shape;
  ValueId mask = Adjoint::kNone;
  if (a.num_operands() == 4) {
    mask = a.in(3);
    Shape dims = a.type(mask).shape;
    if (groups > 1 && dims.size() >= 3) {
      const size_t heads = dims.size() - 3;
      const bool shared = is_const_int(dims[heads], 1);
      if (!shared) dims[heads] = k_shape[rank - 3];
      dims.insert(dims.end() - 2, shared ? Expr(1) : Expr(groups));
      mask = a.reshape(mask, dims);
    }
    if (a.type(mask).dtype != DType::kBool) scores = a.add(scores, mask);
    else
      scores = a.select(mask, scores,
                        a.scalar(a.attrs().get_or<double>("fill", -std::numeric_limits<double>::infinity()), scores));
  }
  const std::vector<int64_t> last = {static_cast<int64_t>(scores_shape.size()) - 1};
  const ValueId exps = a.op("exp", {a.sub(scores, a.reduce("max", scores, last, true))});
  const ValueId weights = a.div(exps, a.reduce("sum", exps, last, true));
  std::vector<ValueId> gradients(a.num_operands(), Adjoint::kNone);
  const auto whole = [&](ValueId of_operand, ValueId like, size_t i) {
    return a.reshape(a.sum_to(of_operand, like), a.type(a.in(i)).shape);
  };
  if (a.wants(2)) gradients[2] = whole(product(weights, g, true, false), v, 2);
  const ValueId of_weights = product(g, v, false, true);
  const ValueId total = a.reduce("sum", a.mul(of_weights, weights), last, true);
  ValueId of_scores = a.mul(weights, a.sub(of_weights, total));
  if (mask != Adjoint::kNone && a.type(mask).dtype != DType::kBool) {
    if (a.wants(3)) gradients[3] = whole(of_scores, mask, 3);
  } else if (mask != Adjoint::kNone) {
    of_scores = a.select(mask, of_scores, a.scalar(0, of_scores));
  }
  if (a.wants(0)) gradients[0] = whole(scaled(product(of_scores, k, false, false)), q, 0);
  if (a.wants(1)) gradients[1] = whole(scaled(product(of_scores, q, true, false)), k, 1);
  return gradients;
}

}  // namespace

const std::vector<CompositeDef>& attention_composites() {
  static const std::vector<CompositeDef> list = {
      {"attention",
       "softmax(q k^T * scale) v over the last two dimensions; a fourth operand is added to the scores, or, a bool, "
       "says "
       "which of them count. q may have a multiple of the heads of k and v.",
       3,
       4,
       {{"scale", AttrKind::kFloat, true, "the factor of the scores, mostly 1 / sqrt(D)"},
        {"fill", AttrKind::kFloat, false, "what stands where a bool mask is false; default -inf"}},
       attention,
       "attention(q: f32[2,1], k: f32[2,1], v: f32[2,2], m: f32[2,2]) {scale = 2.0}\n"
       "run q = 1 1 ; k = 3 3 ; v = 1 2 3 4 ; m = 0 0 0 -1000 -> y = 2 3 1 2",
       attention_gradient}};
  return list;
}

}  // namespace tessera::inline ops
