#include "graph_passes/rewrite/algebra_conditions.h"

#include <algorithm>
#include <cmath>

#include "arith/simplify.h"
#include "graph_passes/support/graph_util.h"
#include "graph_passes/support/operand_access.h"
#include "support/error.h"

namespace tessera::inline graph_passes {
namespace {

using Ints = std::vector<int64_t>;

bool is_wide(DType dtype) { return dtype == DType::kF64 || dtype == DType::kF32 || is_int(dtype); }

// Whether constants of these shapes broadcast to more elements than the larger one has.
bool grows(Ints a, Ints b) {
  if (a.size() < b.size()) std::swap(a, b);
  b.insert(b.begin(), static_cast<std::ptrdiff_t>(a.size() - b.size()), 1);
  bool a_stretches = false, b_stretches = false;
  for (size_t i = 0; i < a.size(); ++i) {
    a_stretches |= a[i] < b[i];
    b_stretches |= b[i] < a[i];
  }
  return a_stretches && b_stretches;
}

template <typename Test>
bool all_elements(const Tensor& tensor, const Test& test) {
  for (int64_t i = 0; i < tensor.num_elements(); ++i)
    if (!test(tensor.get_double(i))) return false;
  return true;
}

bool is_regular(double v) { return std::fabs(v) >= 0x1p-60 && std::fabs(v) <= 0x1p60; }

bool all_zero(const Shape& list) {
  return std::all_of(list.begin(), list.end(), [](const Expr& v) { return is_const_int(v, 0); });
}

Attrs reshape_to_result(const Match& m) { return {{"shape", m.type.shape}}; }

bool never_negative(const Graph& graph, ValueId id, int depth) {
  if (const Tensor* tensor = constant_value(graph, id)) {
    if (tensor->dtype() == DType::kString || tensor->num_elements() > 4096) return false;
    return all_elements(*tensor, [](double v) { return v >= 0 && !std::signbit(v); });
  }
  const Node* node = graph.producer(id);
  if (!node || depth == 0 || !is_float(graph.type(id).dtype)) return false;
  const auto operand = [&](size_t i) { return never_negative(graph, node->inputs[i], depth - 1); };
  const std::string& op = node->op->name;
  if (op == "abs" || op == "exp") return true;
  if (op == "mul" && node->inputs[0] == node->inputs[1]) return true;
  if (op == "mul" || op == "div" || op == "add" || op == "min") return operand(0) && operand(1);
  if (op == "max") {
    // max(-0, 0) may be either zero.
    const auto positive = [&](size_t i) {
      const Tensor* bound = constant_value(graph, node->inputs[i]);
      return bound && splat_value(*bound).value_or(0) > 0;
    };
    return (operand(0) && operand(1)) || positive(0) || positive(1);
  }
  if (op == "reduce")
    return node->attrs.get<std::string>("kind") != "min" && node->attrs.get<std::string>("kind") != "max" && operand(0);
  if (op == "sqrt" || op == "reshape" || op == "transpose" || op == "broadcast" || op == "slice") return operand(0);
  return false;
}

}  // namespace

bool floats(Match& m) { return is_float(m.type.dtype); }
bool ints(Match& m) { return is_int(m.type.dtype); }
bool unsigned_ints(Match& m) { return is_unsigned_int(m.type.dtype); }
bool not_unsigned(Match& m) { return !unsigned_ints(m); }
bool wide(Match& m) { return is_wide(m.type.dtype); }
bool x_bool(Match& m) { return m.type_of("x").dtype == DType::kBool; }
bool x_int(Match& m) { return is_int(m.type_of("x").dtype); }

bool never_negative(const Graph& graph, ValueId id) { return never_negative(graph, id, 5); }
bool x_not_negative(Match& m) { return never_negative(m.graph, m.value("x")); }
bool wide_x_not_negative(Match& m) { return wide(m) && x_not_negative(m); }

bool constants_do_not_grow(Match& m) { return !grows(m.constant("c").dims(), m.constant("d").dims()); }

bool d_not_above_c(Match& m) {
  const auto c = splat_value(m.constant("c")), d = splat_value(m.constant("d"));
  return c && d && *d <= *c;
}

bool sums_of_constants(Match& m) {
  const auto finite = [](double v) { return std::isfinite(v); };
  return wide(m) && same_shape(m.type_of("x").shape, m.type.shape) && constants_do_not_grow(m) &&
         all_elements(m.constant("c"), finite) && all_elements(m.constant("d"), finite);
}

bool products_of_constants(Match& m) {
  if (!sums_of_constants(m)) return false;
  return is_int(m.type.dtype) ||
         (all_elements(m.constant("c"), is_regular) && all_elements(m.constant("d"), is_regular));
}

bool quotients_of_constants(Match& m) { return floats(m) && products_of_constants(m); }

bool powers_of_two(Match& m) {
  if (m.type.dtype != DType::kF32 && m.type.dtype != DType::kF64) return false;
  return all_elements(m.constant("c"), [](double v) {
    // Within the normal numbers of f32 the reciprocal is exact too.
    int exponent = 0;
    return v != 0 && std::isfinite(v) && std::fabs(std::frexp(v, &exponent)) == 0.5 && std::abs(exponent) <= 120;
  });
}

bool swap_arms(Match& m) {
  m.values["y2"] = m.value("z");
  m.values["z2"] = m.value("y");
  return true;
}

bool cast_to_result(Match& m) {
  m.attrs["k"] = {{"to", m.type.dtype}};
  return true;
}

bool keeps_order(Match& m) {
  const Ints& perm = m.node("t").attrs.get_ints("perm");
  return std::is_sorted(perm.begin(), perm.end());
}

bool steps_forward(Match& m) {
  // With as many elements in steps of at least 1 it takes all of them.
  const Ints& steps = m.node("s").attrs.get_ints("steps");
  return std::all_of(steps.begin(), steps.end(), [](int64_t s) { return s > 0; });
}

bool pads_nothing(Match& m) {
  return all_zero(m.node("p").attrs.get_sizes("low")) && all_zero(m.node("p").attrs.get_sizes("high"));
}

bool keep_outer(Match& m) {
  m.attrs["o"] = m.root.attrs;
  return true;
}

bool compose_transposes(Match& m) {
  const Ints& inner = m.node("i").attrs.get_ints("perm");
  Ints perm;
  for (const int64_t axis : m.root.attrs.get_ints("perm")) perm.push_back(inner[static_cast<size_t>(axis)]);
  m.attrs["o"] = {{"perm", perm}};
  return true;
}

bool transposes_only_ones(Match& m) {
  if (!m.type.layout.row_major() || !m.type_of("x").layout.row_major()) return false;
  int64_t last = -1;
  for (size_t i = 0; i < m.type.shape.size(); ++i) {
    if (is_const_int(m.type.shape[i], 1)) continue;
    const int64_t axis = m.node("t").attrs.get_ints("perm")[i];
    if (axis < last) return false;
    last = axis;
  }
  m.attrs["o"] = reshape_to_result(m);
  return true;
}

bool compose_slices(Match& m) {
  const Attrs& inner = m.node("i").attrs;
  Shape starts = m.root.attrs.get_sizes("starts");
  const Shape sizes = m.root.attrs.get_sizes("sizes"), inner_starts = inner.get_sizes("starts");
  Ints steps = m.root.attrs.get_ints("steps");
  for (size_t d = 0; d < starts.size(); ++d) {
    const int64_t step = inner.get_ints("steps")[d];
    // Where no element is taken, start and step are anything: products might overflow.
    const bool empty = is_const_int(sizes[d], 0);
    // With no elements of the inner slice to choose from, no place within its operand is sure to be there.
    if (!empty && !as_int(sizes[d]) && (step < 0 || steps[d] < 0)) return false;
    starts[d] = empty ? Expr(0) : normalize_size(inner_starts[d] + starts[d] * Expr(step));
    steps[d] = empty || is_const_int(sizes[d], 1) ? 1 : steps[d] * step;
    const Expr last = starts[d] + (sizes[d] - Expr(1)) * Expr(steps[d]);
    if (!as_int(last) && (!size_at_most(0, starts[d]) || !size_at_most(last, m.type_of("x").shape[d] - Expr(1))))
      return false;
  }
  m.attrs["o"] = {{"starts", starts}, {"sizes", sizes}, {"steps", steps}};
  return true;
}

bool compose_pads(Match& m) {
  const Attrs& inner = m.node("i").attrs;
  Shape low = m.root.attrs.get_sizes("low"), high = m.root.attrs.get_sizes("high");
  const Shape inner_lows = inner.get_sizes("low"), inner_highs = inner.get_sizes("high");
  if (inner.get<std::string>("mode") != "constant" || m.root.attrs.get<std::string>("mode") != "constant") return false;
  for (size_t d = 0; d < low.size(); ++d) {
    for (const Expr& amount : {low[d], high[d], inner_lows[d], inner_highs[d]})
      if (!size_at_most(0, amount)) return false;
    low[d] = normalize_size(low[d] + inner_lows[d]);
    high[d] = normalize_size(high[d] + inner_highs[d]);
  }
  m.attrs["o"] = {{"low", low}, {"high", high}, {"mode", std::string("constant")}};
  return true;
}

bool slice_inside_pad(Match& m) {
  const Attrs& pad = m.node("i").attrs;
  Shape starts = m.root.attrs.get_sizes("starts");
  const Shape sizes = m.root.attrs.get_sizes("sizes"), lows = pad.get_sizes("low");
  const Ints& steps = m.root.attrs.get_ints("steps");
  const Shape& x = m.type_of("x").shape;
  if (pad.get<std::string>("mode") != "constant") return false;
  for (size_t d = 0; d < starts.size(); ++d) {
    if (!size_at_most(1, sizes[d])) return false;
    starts[d] = normalize_size(starts[d] - lows[d]);
    const Expr last = normalize_size(starts[d] + (sizes[d] - Expr(1)) * Expr(steps[d]));
    for (const Expr& end : {starts[d], last})
      if (!size_at_most(0, end) || !size_at_most(end, x[d] - Expr(1))) return false;
  }
  m.attrs["o"] = {{"starts", starts}, {"sizes", sizes}, {"steps", steps}};
  return true;
}

bool slice_of_one_piece(Match& m) {
  const auto axis = static_cast<size_t>(m.node("k").attrs.get_int("axis"));
  Shape starts = m.root.attrs.get_sizes("starts");
  const Expr size = m.root.attrs.get_sizes("sizes")[axis];
  const int64_t step = m.root.attrs.get_ints("steps")[axis];
  if (!size_at_most(1, size)) return false;
  const Expr first = starts[axis], last = normalize_size(first + (size - Expr(1)) * Expr(step));
  const Expr &low = step > 0 ? first : last, &high = step > 0 ? last : first;
  Expr begin = 0;
  for (const ValueId piece : m.rest) {
    const Expr end = normalize_size(begin + m.graph.type(piece).shape[axis]);
    if (size_at_most(begin, low) && size_at_most(high + Expr(1), end)) {
      starts[axis] = normalize_size(first - begin);
      m.values["p"] = piece;
      m.attrs["o"] = m.root.attrs;
      m.attrs["o"].set("starts", starts);
      return true;
    }
    begin = end;
  }
  return false;
}

bool flatten_concat(Match& m) {
  std::vector<ValueId> flat;
  for (const ValueId piece : m.rest) {
    const Node* inner = m.graph.producer(piece);
    if (is_op(inner, "concat") && inner->attrs.get_int("axis") == m.root.attrs.get_int("axis")) {
      flat.insert(flat.end(), inner->inputs.begin(), inner->inputs.end());
    } else {
      flat.push_back(piece);
    }
  }
  if (flat.size() == m.rest.size()) return false;
  m.rest = flat;
  return keep_outer(m);
}

bool join_neighbour_slices(Match& m) {
  const auto axis = static_cast<size_t>(m.root.attrs.get_int("axis"));
  const auto slice_at = [&](size_t i) -> const Node* {
    const Node* node = m.graph.producer(m.rest[i]);
    if (!is_op(node, "slice")) return nullptr;
    const Ints& steps = node->attrs.get_ints("steps");
    return std::all_of(steps.begin(), steps.end(), [](int64_t s) { return s == 1; }) ? node : nullptr;
  };
  for (size_t i = 0; i + 1 < m.rest.size(); ++i) {
    const Node* first = slice_at(i);
    const Node* second = slice_at(i + 1);
    if (!first || !second || first->inputs != second->inputs) continue;
    const Shape starts = first->attrs.get_sizes("starts"), next_starts = second->attrs.get_sizes("starts");
    Shape sizes = first->attrs.get_sizes("sizes");
    const Shape next_sizes = second->attrs.get_sizes("sizes");
    bool neighbours = equal_sizes(next_starts[axis], starts[axis] + sizes[axis]);
    for (size_t d = 0; d < starts.size(); ++d)
      neighbours =
          neighbours && (d == axis || (equal_sizes(starts[d], next_starts[d]) && equal_sizes(sizes[d], next_sizes[d])));
    if (!neighbours) continue;
    sizes[axis] = normalize_size(sizes[axis] + next_sizes[axis]);
    const ValueId source = first->inputs[0];
    GraphBuilder builder(m.graph);
    builder.set_loc(m.root.loc);
    m.rest[i] = builder.add(m.ctx.ops.get("slice"), {source},
                            {{"starts", starts}, {"sizes", sizes}, {"steps", Ints(sizes.size(), 1)}});
    m.rest.erase(m.rest.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    return keep_outer(m);
  }
  return false;
}

bool gather_one(Match& m) {
  const auto axis = static_cast<size_t>(m.root.attrs.get_int("axis"));
  Shape sizes = m.type_of("x").shape;
  const Expr extent = sizes[axis];
  if (m.constant("c").num_elements() != 1 || !size_at_most(1, extent)) return false;
  const int64_t index = m.constant("c").get_int(0);
  Shape starts(sizes.size(), Expr(0));
  starts[axis] = normalize_size(max(min(index < 0 ? Expr(index) + extent : Expr(index), extent - Expr(1)), 0));
  sizes[axis] = 1;
  m.attrs["s"] = {{"starts", starts}, {"sizes", sizes}, {"steps", Ints(sizes.size(), 1)}};
  m.attrs["o"] = reshape_to_result(m);
  return true;
}

bool reduces_ones(Match& m) {
  const TensorType& x = m.type_of("x");
  for (const int64_t axis : m.root.attrs.get_ints("axes"))
    if (!is_const_int(x.shape[static_cast<size_t>(axis)], 1)) return false;
  if (!x.layout.row_major()) return false;
  m.attrs["o"] = reshape_to_result(m);
  return true;
}

bool cast_keeps_values(DType from, DType to) {
  if (from == to) return true;
  if (from == DType::kBool)
    return to == DType::kF64 || to == DType::kF32 || to == DType::kF16 || to == DType::kBF16 || is_int(to);
  if (is_int(from) && is_int(to)) {
    if (is_signed_int(from)) return is_signed_int(to) && dtype_bits(to) >= dtype_bits(from);
    return dtype_bits(to) > dtype_bits(from);
  }
  if (is_int(from))
    return (to == DType::kF64 && dtype_bits(from) <= 32) || (to == DType::kF32 && dtype_bits(from) <= 16);
  return is_float(from) && is_float(to) &&
         (to == DType::kF64 || (to == DType::kF32 && (from == DType::kF16 || from == DType::kBF16)));
}

bool inner_cast_keeps_values(Match& m) {
  const DType from = m.type_of("x").dtype, to = m.node("i").attrs.get<DType>("to");
  // A float cast saturates to an integer, an integer cast wraps.
  if (is_int(from) && is_float(to) && is_int(m.type.dtype)) return false;
  return cast_keeps_values(from, to) && keep_outer(m);
}

bool skip_broadcast(Match& m) {
  if (m.root.op->kind != OpKind::kExpression || m.root.inputs.size() < 2) return false;
  const auto producer = [&](ValueId id) {
    const Node* node = m.graph.producer(id);
    return is_op(node, "broadcast") ? node : nullptr;
  };
  if (std::none_of(m.rest.begin(), m.rest.end(), producer)) return false;
  if (!accesses_of(m.graph, m.root).elementwise()) return false;
  for (size_t i = 0; i < m.rest.size(); ++i) {
    const Node* inner = producer(m.rest[i]);
    if (!inner) continue;
    std::vector<ValueId> operands = m.rest;
    operands[i] = inner->inputs[0];
    std::vector<TensorType> types;
    for (const ValueId operand : operands) types.push_back(m.graph.type(operand));
    try {
      if (!(infer_types(*m.root.op, types, m.root.attrs, {}, m.root.loc)[0] == m.type)) continue;
    } catch (
        const UserError&) {  // a concat with a part of no elements reads the others one by one, but broadcasts none
      continue;
    }
    m.rest = operands;
    return keep_outer(m);
  }
  return false;
}

bool both_transposed(Match& m) {
  const Ints swap = swap_of_last_two(m.type.rank());
  for (const char* side : {"l", "r"})
    if (m.node(side).attrs.get_ints("perm") != swap) return false;
  const auto flag = [&](const char* name) { return m.root.attrs.get_or<bool>(name, false); };
  if (flag("transpose_a") || flag("transpose_b")) return false;
  m.attrs["o"] = {{"perm", swap}};
  return true;
}

// A matrix that a product of few rows reads once is turned as it is packed (schedule/rules/packed_panels): measured on
// Zen 4, 128 x 768 x 768 takes 8 % less time so, and 128 x 3072 x 768 16 %. `columns` has those of the product as rows.
bool turns_columns_itself(const Match& m, const Shape& columns) {
  constexpr int64_t kLeastRows = 16, kMostRows = 512, kLeastColumns = 16, kLeastSteps = 256;
  const auto x = static_dims(m.type_of("x").shape), y = static_dims(columns);
  if (!x || !y || x->size() < 2 || y->size() != 2 || m.type.dtype != DType::kF32) return false;
  int64_t rows = 1;
  for (size_t d = 0; d + 1 < x->size(); ++d) rows *= (*x)[d];
  return m.ctx.precision == DType::kF32 && !m.root.attrs.get_or<bool>("transpose_a", false) && rows >= kLeastRows &&
         rows <= kMostRows && (*y)[0] >= kLeastColumns && (*y)[1] >= kLeastSteps;
}

bool turned_by_product(Match& m) {
  const bool transposed = m.root.attrs.get_or<bool>("transpose_b", false);
  const Shape& columns = m.type_of("y").shape;
  if (columns.size() < 2 || m.node("t").attrs.get_ints("perm") != swap_of_last_two(static_cast<int>(columns.size())))
    return false;
  if (!transposed && (constant_value(m.graph, m.value("y")) || !turns_columns_itself(m, columns))) return false;
  m.attrs["p"] = m.root.attrs;
  m.attrs["p"].set("transpose_b", !transposed);
  return true;
}

bool swaps_factors(Match& m) {
  const auto& product = m.node("m").attrs;
  if (m.root.attrs.get_ints("perm") != Ints{1, 0} || !product.get_or<bool>("transpose_a", false)) return false;
  m.attrs["p"] = {{"transpose_a", !product.get_or<bool>("transpose_b", false)}, {"transpose_b", false}};
  return true;
}

bool worth_transposing(Match& m) {
  constexpr int64_t kRows = 4;
  const int rank = m.type_of("y").rank();
  if (!m.root.attrs.get_or<bool>("transpose_b", false) || constant_value(m.graph, m.value("y"))) return false;
  const Node* weights = m.graph.producer(m.value("y"));
  while (is_op(weights, "cast")) weights = m.graph.producer(weights->inputs[0]);
  if (is_op(weights, "dequantize_blocks")) return false;
  const auto rows = m.type.rank() >= 2 ? as_int(m.type.shape[m.type.shape.size() - 2]) : std::nullopt;
  if (rank < 2 || (rows && *rows < kRows)) return false;
  if (turns_columns_itself(m, m.type_of("y").shape)) return false;
  m.attrs["p"] = m.root.attrs;
  m.attrs["p"].set("transpose_b", false);
  m.attrs["o"] = {{"perm", swap_of_last_two(rank)}};
  return true;
}

}  // namespace tessera::inline graph_passes
