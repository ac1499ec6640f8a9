// Reductions.
#include <fmt/format.h>

#include <numeric>

#include "import/onnx/operators/handlers.h"

namespace tessera {
namespace {

// `axes` is an attribute first and an operand later. None or an empty list means all dimensions, unless
// noop_with_empty_axes says that it means none.
std::vector<int64_t> read_axes(NodeContext& c, int rank) {
  const int64_t since = c.op_type() == "ReduceSum" ? 13 : 18;
  c.require_inputs(1, c.version() < since ? 1 : 2);
  const auto given = c.ints_attr_or_input("axes", since, 1);
  const bool none = c.version() >= since && c.attrs.get_int("noop_with_empty_axes", 0) != 0;
  if (given && !given->empty()) return c.axes(*given, rank);
  if (none) return {};
  std::vector<int64_t> all(static_cast<size_t>(rank));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

}  // namespace

void import_reduce(NodeContext& c) {
  const ValueId x = c.in(0);
  const auto axes = read_axes(c, c.rank(x));
  const bool keepdims = c.attrs.get_int("keepdims", 1) != 0;
  c.out(0, axes.empty() ? x : c.reduce(c.primitive(), x, axes, keepdims));
}

void import_reduce_composite(NodeContext& c) {
  const ValueId x = c.in(0);
  const auto axes = read_axes(c, c.rank(x));
  const bool keepdims = c.attrs.get_int("keepdims", 1) != 0;
  c.out(0, c.composite(c.primitive(), {x}, {{"axes", axes}, {"keepdims", keepdims}}));
}

// The place of the extremum is the smallest (or with select_last_index the largest) index whose element equals it.
void import_arg_reduce(NodeContext& c) {
  c.require_inputs(1, 1);
  const ValueId x = c.in(0);
  const std::vector<int64_t> dims = c.dims(x);
  const int axis = c.axis(c.attrs.get_int("axis", 0), c.rank(x));
  const bool keepdims = c.attrs.get_int("keepdims", 1) != 0;
  const bool last = c.attrs.get_int("select_last_index", 0) != 0;
  const ValueId extremum = c.reduce(c.primitive(), x, {axis}, true);
  const ValueId places = c.iota(dims, axis);
  const ValueId outside = c.scalar(DType::kI64, last ? -1 : static_cast<double>(dims[static_cast<size_t>(axis)]));
  const ValueId candidates = c.op("select", {c.op("eq", {x, extremum}), places, outside});
  c.out(0, c.reduce(last ? "max" : "min", candidates, {axis}, keepdims));
}

}  // namespace tessera
