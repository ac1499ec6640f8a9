#include "graph_passes/rewrite/sink_casts.h"

#include <algorithm>

#include "graph_passes/rewrite/algebra_conditions.h"
#include "graph_passes/rewrite/simplify_algebra.h"
#include "graph_passes/support/graph_util.h"

namespace tessera::inline graph_passes {
namespace {

constexpr Numerics kExact = Numerics::kExact;
constexpr bool kOnce = true;

// The cast i behind the move o.
bool cast_behind(Match& m) {
  m.attrs["o"] = m.root.attrs;
  m.attrs["i"] = m.node("i").attrs;
  return true;
}

bool widens(Match& m) { return dtype_bits(m.type_of("x").dtype) < dtype_bits(m.type.dtype) && cast_behind(m); }

// The cast, which is the root, in front of the move i.
bool narrows(Match& m) {
  if (dtype_bits(m.type.dtype) >= dtype_bits(m.type_of("x").dtype)) return false;
  m.attrs["o"] = m.root.attrs;
  m.attrs["i"] = m.node("i").attrs;
  return true;
}

// Both operands are cast from one type, and no two values become one.
bool same_lossless(Match& m) {
  return m.type_of("x").dtype == m.type_of("y").dtype &&
         cast_keeps_values(m.type_of("x").dtype, m.node("i").attrs.get<DType>("to"));
}

bool same_source(Match& m) {
  m.attrs["k"] = {{"to", m.type.dtype}};
  return m.type_of("y").dtype == m.type_of("z").dtype;
}

bool all_widened(Match& m) {
  std::vector<ValueId> sources;
  for (const ValueId piece : m.rest) {
    const Node* cast = m.graph.producer(piece);
    if (!is_op(cast, "cast")) return false;
    sources.push_back(cast->inputs[0]);
    if (m.graph.type(sources.back()).dtype != m.graph.type(sources[0]).dtype) return false;
  }
  if (dtype_bits(m.graph.type(sources[0]).dtype) >= dtype_bits(m.type.dtype)) return false;
  m.rest = sources;
  m.attrs["o"] = m.root.attrs;
  m.attrs["k"] = {{"to", m.type.dtype}};
  return true;
}

constexpr AlgebraRule kRules[] = {
    {"reshape_cast", "reshape:o(cast:i(x))", "cast:i(reshape:o(x))", kExact, "the cast widens", widens, kOnce},
    {"transpose_cast", "transpose:o(cast:i(x))", "cast:i(transpose:o(x))", kExact, "the cast widens", widens, kOnce},
    {"slice_cast", "slice:o(cast:i(x))", "cast:i(slice:o(x))", kExact, "nobody else reads the cast", cast_behind,
     kOnce},
    {"gather_cast", "gather:o(cast:i(x), y)", "cast:i(gather:o(x, y))", kExact, "the cast widens", widens, kOnce},
    {"concat_casts", "concat:o(...)", "cast:k(concat:o(...))", kExact, "all operands are widened from one type",
     all_widened},
    {"cast_transpose", "cast:o(transpose:i(x))", "transpose:i(cast:o(x))", kExact, "the cast narrows", narrows, kOnce},
    {"eq_casts", "eq(cast:i(x), cast(y))", "eq(x, y)", kExact, "from one type, and every value is kept", same_lossless},
    {"ne_casts", "ne(cast:i(x), cast(y))", "ne(x, y)", kExact, "from one type, and every value is kept", same_lossless},
    {"select_casts", "select(x, cast(y), cast(z))", "cast:k(select(x, y, z))", kExact, "from one type", same_source,
     kOnce},
    {"cast_bool_ne_zero", "ne(cast(x), 0)", "x", kExact, "x is bool", x_bool},
    {"cast_bool_eq_zero", "eq(cast(x), 0)", "logical_not(x)", kExact, "x is bool", x_bool},
    {"cast_bool_eq_one", "eq(cast(x), 1)", "x", kExact, "x is bool", x_bool},
    {"cast_bool_gt_zero", "gt(cast(x), 0)", "x", kExact, "x is bool", x_bool},
};

}  // namespace

std::span<const AlgebraRule> cast_rules() { return kRules; }

Graph sink_casts(const Graph& graph, const PassContext& ctx) { return apply_rules(graph, ctx, cast_rules()); }

}  // namespace tessera::inline graph_passes
