// Operators along one axis in which places depend on each other: running sums, reversed parts, the largest elements.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <limits>
#include <numeric>

#include "arith/simplify.h"
#include "import/onnx/dynamic/runtime_parameter.h"
#include "import/onnx/operators/data_size.h"
#include "import/onnx/operators/handlers.h"
#include "import/onnx/operators/structures.h"

namespace tessera::inline onnx_import {
namespace {

using Ints = std::vector<int64_t>;

ValueId cumulated(NodeContext& c, ValueId x, size_t axis, const std::string& kind, bool exclusive, bool reverse) {
  const Attrs attrs = {
      {"axis", static_cast<int64_t>(axis)}, {"kind", kind}, {"exclusive", exclusive}, {"reverse", reverse}};
  return c.op("cumulate", {x}, attrs);
}

}  // namespace

ValueId running_sum(NodeContext& c, ValueId x, size_t axis) { return cumulated(c, x, axis, "sum", false, false); }

namespace {

// CumSum and CumProd.
void import_cumulative(NodeContext& c) {
  c.require_inputs(2, 2);
  const ValueId x = c.in(0);
  const bool exclusive = c.attrs.get_int("exclusive", 0) != 0, reverse = c.attrs.get_int("reverse", 0) != 0;
  const auto along = [&](int64_t axis) {
    return cumulated(c, x, static_cast<size_t>(axis), c.primitive(), exclusive, reverse);
  };
  if (!c.is_runtime(1)) return c.out(0, along(c.axis(c.const_int(1, "axis"), c.rank(x))));
  if (c.num_elements(c.in(1)) != 1)
    c.malformed(fmt::format("{} is {}", c.input_name(1, "axis"), c.type(c.in(1)).to_string()), "one element");
  AxisChoice choice{c.rank(x), c.dims(x), {}, {}, {}};
  choice.shape_of = [&](const Ints&) { return std::make_optional(choice.shape); };
  choice.key = [](const Ints& axes) { return axes; };
  choice.compute = [&](const Ints& axes) { return along(axes[0]); };
  c.out(0, choose_axes(c, 1, "axis", choice));
}

// The first sequence_lens[b] places of each batch in the opposite order.
void import_reverse_sequence(NodeContext& c) {
  c.require_inputs(2, 2);
  const ValueId x = c.in(0);
  const Ints dims = c.dims(x);
  const int64_t time = c.attrs.get_int("time_axis", 0), batch = c.attrs.get_int("batch_axis", 1);
  if (dims.size() < 2 || time == batch || time < 0 || time > 1 || batch < 0 || batch > 1)
    c.malformed(
        fmt::format("time_axis = {}, batch_axis = {} for an operand of type {}", time, batch, c.type(x).to_string()),
        "0 and 1 in either order, and rank 2 or more");
  if (c.dims(c.in(1)) != Ints{dims[static_cast<size_t>(batch)]})
    c.malformed(fmt::format("sequence_lens of type {}", c.type(c.in(1)).to_string()), "one length for each batch");
  const Ints plane = {dims[0], dims[1]};
  Ints along(2, 1);
  along[static_cast<size_t>(batch)] = dims[static_cast<size_t>(batch)];
  const ValueId lengths = c.reshape(c.cast(c.in(1), DType::kI64), along);
  const ValueId t = c.iota(plane, time);
  const ValueId back = c.sub(c.sub(lengths, t), c.integer(1));
  const ValueId from = c.op("select", {c.op("lt", {t, lengths}), back, t});
  // Places of the first two dimensions as one.
  const auto scale = [&](ValueId v, int64_t axis) { return axis == 0 ? c.mul(v, c.integer(dims[1])) : v; };
  const ValueId place = c.add(scale(from, time), scale(c.iota(plane, batch), batch));
  Ints flat = {dims[0] * dims[1]};
  flat.insert(flat.end(), dims.begin() + 2, dims.end());
  c.out(0, c.op("gather", {c.reshape(x, flat), place}, {{"axis", int64_t{0}}}));
}

// An element that no other stands behind; NaN is the largest.
Tensor last_in_order(DType dtype, bool descending) {
  using Limits = std::numeric_limits<double>;
  Tensor last(dtype, {});
  if (is_float(dtype)) {
    last.set_double(0, descending ? -Limits::infinity() : Limits::quiet_NaN());
  } else {
    const int bits = dtype_bits(dtype);
    const bool is_unsigned = is_unsigned_int(dtype);
    const uint64_t most = is_unsigned ? UINT64_MAX >> (64 - bits) : UINT64_MAX >> (65 - bits);
    last.set_int(0, static_cast<int64_t>(descending ? (is_unsigned ? 0 : ~most) : most));
  }
  return last;
}

// The places of the first `k` elements along each line of x, in order.
ValueId first_places(NodeContext& c, ValueId x, size_t axis, int64_t k, bool largest) {
  // The axis last, each line along it a row.
  Ints perm(static_cast<size_t>(c.rank(x)));
  std::iota(perm.begin(), perm.end(), 0);
  std::swap(perm[axis], perm.back());
  Shape result = c.shape(c.transpose(x, perm));
  result.back() = k;
  const Expr rows = Emitter::count(Shape(result.begin(), result.end() - 1));
  const ValueId lines = c.reshape(c.transpose(x, perm), {rows, c.shape(x)[axis], 1});
  const ValueId first = c.op("order", {lines}, {{"count", k}, {"descending", largest}});
  return c.transpose(c.reshape(first, result), perm);
}

// A K that is an expression of sizes: as many are put in order as it may be at most, among the elements and as many
// that come behind all others.
void import_symbolic_top_k(NodeContext& c, ValueId x, size_t axis, const Expr& k, bool largest) {
  constexpr int64_t kMost = 64;  // what can be put in order among a number that is open
  const Expr extent = c.shape(x)[axis];
  const int64_t most = size_range(k).hi.value_or(INT64_MAX);
  if (!size_at_most(0, k) || !size_at_most(k, extent))
    c.malformed(fmt::format("k = {} for dimension {} of {}", to_string(k), axis, c.type(x).to_string()),
                fmt::format("0 to {}", to_string(extent)));
  if (most > kMost) c.unsupported(fmt::format("a K that depends on sizes, of up to {}", most));
  Ints low(static_cast<size_t>(c.rank(x)), 0), high = low;
  high[axis] = most;
  const ValueId last = c.constant_value(last_in_order(c.dtype(x), largest));
  const ValueId more = c.op("pad", {x, last}, {{"low", low}, {"high", high}, {"mode", std::string("constant")}});
  const ValueId chosen = first_slices(c, first_places(c, more, axis, most, largest), static_cast<int64_t>(axis), k);
  c.out(0, c.op("gather_elements", {x, chosen}, {{"axis", static_cast<int64_t>(axis)}}));
  c.out(1, chosen);
}

void import_top_k(NodeContext& c) {
  c.require_inputs(c.version() < 10 ? 1 : 2, c.version() < 10 ? 1 : 2);
  const ValueId x = c.in(0);
  const Shape dims = c.shape(x);
  const auto axis = static_cast<size_t>(c.axis(c.attrs.get_int("axis", -1), c.rank(x)));
  if (c.version() >= 10 && !c.is_runtime(1) && !c.constant(c.in(1))) {
    c.attrs.ignore("sorted");
    return import_symbolic_top_k(c, x, axis, c.const_size(1, "K"), c.attrs.get_int("largest", 1) != 0);
  }
  const auto declared = [&]() -> Ints {
    const Ints shape = c.require_declared(1, "K", c.declared_dims(0) ? 0 : 1);
    if (shape.size() != dims.size())
      c.unsupported(
          fmt::format("the declared shape {} for an operand of type {}", dims_text(shape), c.type(x).to_string()));
    return {shape[axis]};
  };
  // Without a declaration all are put in order, and a step of the run cuts off those beyond the K-th.
  const bool open = c.version() >= 10 && c.is_runtime(1) && !c.declared_dims(0) && !c.declared_dims(1);
  if (open && (c.dtype(c.in(1)) != DType::kI64 || c.num_elements(c.in(1)) != 1))
    c.malformed(fmt::format("{} is {}", c.input_name(1, "K"), c.type(c.in(1)).to_string()), "one i64");
  const int64_t k = c.version() < 10  ? c.attrs.require_int("k")
                    : open            ? c.dims(x)[axis]
                    : c.is_runtime(1) ? ints_or_expected(c, 1, "K", declared)[0]
                                      : c.const_int(1, "K");
  const bool largest = c.attrs.get_int("largest", 1) != 0;
  c.attrs.ignore("sorted");  // sorted is a legal order of what is not
  const Expr extent = dims[axis];
  if (!size_at_most(k, extent)) require_at_least(c, extent, k);
  if (k < 0 || !size_at_most(k, extent))
    c.malformed(fmt::format("k = {} for dimension {} of {}", k, axis, c.type(x).to_string()),
                fmt::format("0 to {}", to_string(extent)));
  const ValueId chosen = first_places(c, x, axis, k, largest);
  const ValueId values = c.op("gather_elements", {x, chosen}, {{"axis", static_cast<int64_t>(axis)}});
  if (open && may_bind_sizes(c)) {
    const ValueId wanted = c.reshape(c.in(1), {});
    const ValueId fits =
        c.op("logical_and", {c.op("ge", {wanted, c.integer(0)}), c.op("le", {wanted, c.integer(extent)})});
    c.check_when_run(1, "K", fits, c.reshape(wanted, {1}), fmt::format("0 to {}", to_string(extent)));
    const Expr size = bind_size(c, wanted, extent);
    c.out(0, first_slices(c, values, static_cast<int64_t>(axis), size));
    return c.out(1, first_slices(c, chosen, static_cast<int64_t>(axis), size));
  }
  if (open) {
    const SlotId count = c.slot(Binding(c.reshape(c.in(1), {1})));
    give_first(c, 0, values, static_cast<int64_t>(axis), count);
    return give_first(c, 1, chosen, static_cast<int64_t>(axis), count);
  }
  c.out(0, values);
  c.out(1, chosen);
}

// One operand of an einsum: its value and a label for each dimension.
struct Labelled {
  ValueId value;
  std::string labels;
};

struct Equation {
  std::vector<std::string> operands;
  std::string result;
};

// Labels of the dimensions that an ellipsis stands for: characters that no equation can contain, from the last one on.
constexpr size_t kMostHidden = 31;

std::string ellipsis_labels(size_t count) {
  std::string labels;
  for (size_t i = count; i-- > 0;) labels += static_cast<char>(i + 1);
  return labels;
}

Equation parse_equation(NodeContext& c, std::string text, const std::vector<ValueId>& operands) {
  text.erase(std::remove(text.begin(), text.end(), ' '), text.end());
  const auto bad = [&](const std::string& why) { c.malformed(fmt::format("equation {}: {}", text, why), "an einsum"); };
  for (const char label : text)
    if (!std::isalpha(static_cast<unsigned char>(label)) && label != ',' && label != '.' && label != '-' &&
        label != '>')
      bad(fmt::format("the character {}", static_cast<int>(label)));
  const size_t arrow = text.find("->");
  const std::string left = text.substr(0, arrow);
  Equation equation;
  size_t widest = 0;
  size_t start = 0;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (start > left.size()) bad(fmt::format("{} operands are given", operands.size()));
    const size_t end = std::min(left.find(',', start), left.size());
    std::string labels = left.substr(start, end - start);
    start = end + 1;
    const auto rank = static_cast<size_t>(c.rank(operands[i]));
    if (const size_t dots = labels.find("..."); dots != std::string::npos) {
      if (labels.size() - 3 > rank) bad("more labels than dimensions");
      const size_t hidden = rank - (labels.size() - 3);
      if (hidden > kMostHidden) bad(fmt::format("an ellipsis for {} dimensions", hidden));
      widest = std::max(widest, hidden);
      labels.replace(dots, 3, ellipsis_labels(hidden));
    }
    if (labels.size() != rank) bad(fmt::format("operand {} has {} dimensions", i + 1, rank));
    equation.operands.push_back(labels);
  }
  if (start <= left.size()) bad(fmt::format("{} operands are given", operands.size()));
  if (arrow != std::string::npos) {
    equation.result = text.substr(arrow + 2);
    if (const size_t dots = equation.result.find("..."); dots != std::string::npos)
      equation.result.replace(dots, 3, ellipsis_labels(widest));
  } else {
    // Without an arrow: what an ellipsis stands for, then the labels that stand once, in alphabetical order.
    std::string all;
    for (const std::string& labels : equation.operands) all += labels;
    equation.result = ellipsis_labels(widest);
    std::sort(all.begin(), all.end());
    for (const char label : all)
      if (label > 32 && std::count(all.begin(), all.end(), label) == 1) equation.result += label;
  }
  for (const char label : equation.result) {
    const auto has = [&](const std::string& labels) { return labels.find(label) != std::string::npos; };
    if (std::none_of(equation.operands.begin(), equation.operands.end(), has))
      bad("a result's label that no operand has");
  }
  return equation;
}

// A label that stands twice: the diagonal.
Labelled diagonal(NodeContext& c, Labelled x) {
  for (size_t i = 0; i < x.labels.size(); ++i) {
    const size_t j = x.labels.find(x.labels[i], i + 1);
    if (j == std::string::npos) continue;
    // Both dimensions last; their joint place p * (n + 1).
    Ints perm;
    for (size_t d = 0; d < x.labels.size(); ++d)
      if (d != i && d != j) perm.push_back(static_cast<int64_t>(d));
    perm.push_back(static_cast<int64_t>(i));
    perm.push_back(static_cast<int64_t>(j));
    Ints dims = c.dims(c.transpose(x.value, perm));
    const int64_t n = dims.back();
    if (dims[dims.size() - 2] != n) c.malformed("a repeated label of two extents", "equal extents");
    const ValueId turned = c.transpose(x.value, perm);
    dims.pop_back();
    dims.back() = n * n;
    const ValueId flat = c.reshape(turned, dims);
    Ints starts(dims.size(), 0), sizes = dims, steps(dims.size(), 1);
    sizes.back() = n;
    steps.back() = n > 1 ? n + 1 : 1;
    std::string labels;
    for (size_t d = 0; d < x.labels.size(); ++d)
      if (d != i && d != j) labels += x.labels[d];
    labels += x.labels[i];
    return diagonal(c, {c.slice(flat, starts, sizes, steps), labels});
  }
  return x;
}

Labelled summed(NodeContext& c, const Labelled& x, const std::string& keep) {
  Ints axes;
  std::string labels;
  for (size_t d = 0; d < x.labels.size(); ++d) {
    if (keep.find(x.labels[d]) == std::string::npos) axes.push_back(static_cast<int64_t>(d));
    else labels += x.labels[d];
  }
  return axes.empty() ? x : Labelled{c.reduce("sum", x.value, axes, false), labels};
}

// The dimensions in the order of `labels`, those that are missing with extent 1.
ValueId arranged(NodeContext& c, const Labelled& x, const std::string& labels) {
  Ints perm;
  Shape dims;
  for (const char label : labels) {
    const size_t d = x.labels.find(label);
    if (d == std::string::npos) {
      dims.push_back(1);
      continue;
    }
    perm.push_back(static_cast<int64_t>(d));
    dims.push_back(c.shape(x.value)[d]);
  }
  return c.reshape(c.transpose(x.value, perm), dims);
}

// Two operands: a batched matrix product over the labels that both have and that are not kept.
Labelled multiplied(NodeContext& c, const Labelled& a, const Labelled& b, const std::string& keep) {
  const auto has = [](const std::string& labels, char label) { return labels.find(label) != std::string::npos; };
  std::string batch, inner, left, right;
  for (const char label : a.labels) {
    if (!has(b.labels, label)) left += label;
    else if (has(keep, label)) batch += label;
    else inner += label;
  }
  for (const char label : b.labels)
    if (!has(a.labels, label)) right += label;
  const auto extent = [&](const Labelled& x, const std::string& labels) {
    Shape extents;
    for (const char label : labels) extents.push_back(c.shape(x.value)[x.labels.find(label)]);
    return Emitter::count(extents);
  };
  if (inner.empty() || std::any_of(batch.begin(), batch.end(), [&](char label) {
        return !equal_sizes(extent(a, std::string(1, label)), extent(b, std::string(1, label)));
      })) {
    const std::string labels = batch + inner + left + right;
    return summed(c, {c.mul(arranged(c, a, labels), arranged(c, b, labels)), labels}, keep);
  }
  for (const char label : inner)
    if (!equal_sizes(extent(a, std::string(1, label)), extent(b, std::string(1, label))))
      c.malformed("a label of two extents", "equal extents");
  const Expr depth = extent(a, inner);
  const auto shape = [&](const std::string& labels, const Labelled& x, Shape dims) {
    for (auto label = labels.rbegin(); label != labels.rend(); ++label)
      dims.insert(dims.begin(), c.shape(x.value)[x.labels.find(*label)]);
    return dims;
  };
  const ValueId rows = c.reshape(arranged(c, a, batch + left + inner), shape(batch, a, {extent(a, left), depth}));
  const ValueId columns = c.reshape(arranged(c, b, batch + inner + right), shape(batch, b, {depth, extent(b, right)}));
  const Shape result = shape(batch, a, shape(left, a, shape(right, b, {})));
  return {c.reshape(c.op("matmul", {rows, columns}), result), batch + left + right};
}

void import_einsum(NodeContext& c) {
  c.require_inputs(1, -1);
  const std::vector<ValueId> operands = c.all_inputs();
  const Equation equation = parse_equation(c, c.attrs.get_string("equation", ""), operands);
  // What later operands and the result still need after operand i.
  const auto needed = [&](size_t i) {
    std::string labels = equation.result;
    for (size_t k = i + 1; k < operands.size(); ++k) labels += equation.operands[k];
    return labels;
  };
  const auto operand = [&](size_t i, const std::string& keep) {
    return summed(c, diagonal(c, {operands[i], equation.operands[i]}), keep);
  };
  Labelled x = operand(0, needed(0));
  for (size_t i = 1; i < operands.size(); ++i) x = multiplied(c, x, operand(i, needed(i) + x.labels), needed(i));
  x = summed(c, x, equation.result);
  c.out(0, arranged(c, x, equation.result));
}

}  // namespace

OperatorFamily ordering_operators() {
  static constexpr OperatorImporter standard[] = {
      OperatorImporter{"CumProd", 26, import_cumulative, "prod"},
      OperatorImporter{"CumSum", 11, import_cumulative, "sum"},
      OperatorImporter{"Einsum", 12, import_einsum},
      OperatorImporter{"ReverseSequence", 10, import_reverse_sequence},
      OperatorImporter{"TopK", 1, import_top_k},
  };
  return {{"", standard}};
}

}  // namespace tessera::inline onnx_import
