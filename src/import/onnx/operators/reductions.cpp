// Reductions.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "import/onnx/dynamic/runtime_parameter.h"
#include "import/onnx/operators/handlers.h"

namespace tessera::inline onnx_import {
namespace {

using Ints = std::vector<int64_t>;

// `axes` is an attribute first and an operand later. None or an empty list means all dimensions, unless
// noop_with_empty_axes says that it means none.
void import_over_axes(NodeContext& c,
                      const std::function<ValueId(ValueId x, const Ints& axes, bool keepdims)>& reduce) {
  const int64_t since = c.op_type() == "ReduceSum" ? 13 : 18;
  c.require_inputs(1, c.version() < since ? 1 : 2);
  const ValueId x = c.in(0);
  const int rank = c.rank(x);
  const bool none = c.version() >= since && c.attrs.get_int("noop_with_empty_axes", 0) != 0;
  const bool keepdims = c.attrs.get_int("keepdims", 1) != 0;
  if (c.version() >= since && c.is_runtime(1)) {
    const Ints dims = c.dims(x);
    AxisChoice choice{rank, c.require_declared(1, "axes"), {}, {}, {}};
    choice.shape_of = [&](const Ints& axes) {
      Ints shape;
      for (int64_t d = 0; d < rank; ++d) {
        if (std::find(axes.begin(), axes.end(), d) == axes.end()) shape.push_back(dims[static_cast<size_t>(d)]);
        else if (keepdims) shape.push_back(1);
      }
      return std::make_optional(shape);
    };
    // Dimensions of extent 1 make no difference to what is reduced together.
    choice.key = [&](Ints axes) {
      std::erase_if(axes, [&](int64_t axis) { return dims[static_cast<size_t>(axis)] == 1; });
      return axes;
    };
    choice.compute = [&](const Ints& axes) { return reduce(x, axes, keepdims); };
    return c.out(0, choose_axes(c, 1, "axes", choice));
  }
  Ints axes(static_cast<size_t>(rank));
  std::iota(axes.begin(), axes.end(), 0);
  const auto given = c.ints_attr_or_input("axes", since, 1);
  if (given && !given->empty()) axes = c.axes(*given, rank);
  else if (none) axes = {};
  c.out(0, reduce(x, axes, keepdims));
}

void import_reduce(NodeContext& c) {
  import_over_axes(c, [&](ValueId x, const Ints& axes, bool keepdims) {
    return axes.empty() ? x : c.reduce(c.primitive(), x, axes, keepdims);
  });
}

void import_reduce_composite(NodeContext& c) {
  import_over_axes(c, [&](ValueId x, const Ints& axes, bool keepdims) {
    return c.composite(c.primitive(), {x}, {{"axes", axes}, {"keepdims", keepdims}});
  });
}

// The place of the extremum is the smallest (or with select_last_index the largest) index whose element equals it.
void import_arg_reduce(NodeContext& c) {
  c.require_inputs(1, 1);
  const ValueId x = c.in(0);
  const Shape shape = c.shape(x);
  const int axis = c.axis(c.attrs.get_int("axis", 0), c.rank(x));
  const bool keeps = c.attrs.get_int("keepdims", 1) != 0;
  const bool last = c.attrs.get_int("select_last_index", 0) != 0;
  const ValueId extremum = c.reduce(c.primitive(), x, {axis}, true);
  const ValueId places = c.iota(shape, axis);
  const ValueId outside = c.integer(last ? Expr(-1) : shape[static_cast<size_t>(axis)]);
  const ValueId candidates = c.op("select", {c.op("eq", {x, extremum}), places, outside});
  // Of the extremum's own shape, so that both are one kernel.
  const ValueId place = c.reduce(last ? "max" : "min", candidates, {axis}, true);
  Shape without = shape;
  without.erase(without.begin() + axis);
  c.out(0, keeps ? place : c.reshape(place, without));
}

}  // namespace

OperatorFamily reductions_operators() {
  static constexpr OperatorImporter standard[] = {
      OperatorImporter{"ArgMax", 1, import_arg_reduce, "max"},
      OperatorImporter{"ArgMin", 1, import_arg_reduce, "min"},
      OperatorImporter{"ReduceL1", 1, import_reduce_composite, "reduce_l1"},
      OperatorImporter{"ReduceL2", 1, import_reduce_composite, "reduce_l2"},
      OperatorImporter{"ReduceLogSum", 1, import_reduce_composite, "reduce_log_sum"},
      OperatorImporter{"ReduceLogSumExp", 1, import_reduce_composite, "reduce_log_sum_exp"},
      OperatorImporter{"ReduceMax", 1, import_reduce, "max"},
      OperatorImporter{"ReduceMean", 1, import_reduce_composite, "reduce_mean"},
      OperatorImporter{"ReduceMin", 1, import_reduce, "min"},
      OperatorImporter{"ReduceProd", 1, import_reduce, "prod"},
      OperatorImporter{"ReduceSum", 1, import_reduce, "sum"},
      OperatorImporter{"ReduceSumSquare", 1, import_reduce_composite, "reduce_sum_square"},
  };
  return {{"", standard}};
}

}  // namespace tessera::inline onnx_import
