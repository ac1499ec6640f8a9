#include "import/onnx/operators/ml_scores.h"

#include <fmt/format.h>

#include <numbers>

namespace tessera::inline onnx_import {

std::string read_post_transform(NodeContext& c) {
  std::string name = c.attrs.get_string("post_transform", "NONE");
  for (const char* known : {"NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT"})
    if (name == known) return name;
  c.malformed(fmt::format("post_transform = {}", name), "NONE, LOGISTIC, SOFTMAX, SOFTMAX_ZERO, PROBIT");
}

ValueId post_transformed(NodeContext& c, ValueId scores, const std::string& transform) {
  const auto number = [&](double value) { return c.scalar_like(scores, value); };
  if (transform == "LOGISTIC") return c.composite("sigmoid", {scores});
  if (transform == "SOFTMAX") return c.composite("softmax", {scores}, {{"axis", int64_t{1}}});
  if (transform == "SOFTMAX_ZERO") {
    const ValueId top = c.reduce("max", scores, {1}, true);
    const ValueId far = c.op("gt", {c.op("abs", {scores}), number(1e-7)});
    const ValueId small = c.mul(scores, c.op("exp", {c.op("neg", {top})}));
    const ValueId exps = c.op("select", {far, c.op("exp", {c.sub(scores, top)}), small});
    const ValueId total = c.reduce("sum", exps, {1}, true);
    const ValueId none = c.op("eq", {total, number(0)});
    return c.op("select", {none, number(0.5), c.div(exps, c.op("select", {none, number(1), total}))});
  }
  if (transform == "PROBIT") {
    // sqrt(2) times the inverse of erf at 2 s - 1, by the approximation that other runtimes use.
    const ValueId x = c.sub(c.add(scores, scores), number(1));
    const ValueId rest = c.mul(c.sub(number(1), x), c.add(number(1), x));
    const ValueId log = c.op("log", {rest});
    const ValueId v = c.add(c.mul(log, number(0.5)), number(2 / (std::numbers::pi * 0.147)));
    const ValueId root = c.op("sqrt", {c.sub(c.mul(v, v), c.mul(log, number(1 / 0.147)))});
    const ValueId size = c.op("sqrt", {c.sub(root, v)});
    const ValueId inverse = c.op("select", {c.op("lt", {x, number(0)}), c.op("neg", {size}), size});
    return c.mul(c.op("select", {c.op("eq", {rest, number(0)}), number(0), inverse}), number(1.41421356));
  }
  return scores;
}

ValueId largest_column(NodeContext& c, ValueId scores) {
  const int64_t columns = c.dims(scores)[1];
  const ValueId leads = c.op("eq", {scores, c.reduce("max", scores, {1}, true)});
  const ValueId last = c.integer(columns - 1);
  return c.reduce("min", c.op("select", {leads, c.iota({1, columns}, 1), last}), {1}, false);
}

int64_t label_count(NodeContext& c, const std::string& ints, const std::string& strings) {
  return std::max(std::ssize(c.attrs.get_ints(ints)), std::ssize(c.attrs.get_strings(strings)));
}

void give_labels(NodeContext& c, ValueId columns, const std::string& ints, const std::string& strings) {
  if (!c.wants(0)) return;
  if (const auto texts = c.attrs.get_strings(strings); !texts.empty()) {
    const ValueId labels = c.strings(texts, {std::ssize(texts)});
    return c.out(0, c.mark_string(c.op("gather", {labels, columns}, {{"axis", int64_t{0}}})));
  }
  const std::vector<int64_t> labels = c.attrs.get_ints(ints);
  if (labels.empty()) return c.out(0, columns);
  c.out(0, c.op("gather", {c.ints(labels), columns}, {{"axis", int64_t{0}}}));
}

ValueId feature_rows(NodeContext& c, ValueId x, bool keep_f64) {
  const std::vector<int64_t> dims = c.dims(x);
  if (dims.size() != 1 && dims.size() != 2)
    c.malformed(fmt::format("an operand of type {}", c.type(x).to_string()), "rank 1 or 2");
  const bool wide = keep_f64 && c.dtype(x) == DType::kF64;
  const ValueId rows = dims.size() == 1 ? c.reshape(x, {1, dims[0]}) : x;
  return c.cast(rows, wide ? DType::kF64 : DType::kF32);
}

ValueId float_table(NodeContext& c, DType dtype, const std::vector<double>& values, std::vector<int64_t> dims) {
  Tensor table(dtype, std::move(dims));
  for (size_t i = 0; i < values.size(); ++i) table.set_double(static_cast<int64_t>(i), values[i]);
  return c.constant_value(std::move(table));
}

}  // namespace tessera::inline onnx_import
