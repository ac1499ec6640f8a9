// Operands that a standard calls inputs and a compiler would like to be attributes (axes, shapes, repeats, ...), when
// they depend on the model's inputs. Values stay values: they are operands of what is computed. Shapes are fixed for
// the one that the model declares for the result, and a check (graph/runtime_check.h) refuses a run whose values ask
// for another.
//
// All functions add nodes to the graph and throw what NodeContext's do. Operand `i` is called `name` in messages.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "import/onnx/node_context.h"

namespace tessera::inline onnx_import {

// Operand `i` as i64[n], a scalar as i64[1]. UserError TSR-1044 unless it is a list of integers.
ValueId runtime_ints(NodeContext& c, int i, const std::string& name);

// Whether each element k of `values`, i64[n], is among legal[k] (not empty): one bool.
ValueId all_among(NodeContext& c, ValueId values, const std::vector<std::vector<int64_t>>& legal);
// Whether two lists of i64 of the same length are equal: one bool.
ValueId all_equal(NodeContext& c, ValueId a, ValueId b);

// Element k of operand `i` must be among legal[k] when the model runs. TSR-1044 when it has another number of elements.
void require_among(NodeContext& c, int i, const std::string& name, const std::vector<std::vector<int64_t>>& legal,
                   const std::string& text);
// It must be these numbers; any numeric type.
void require_ints(NodeContext& c, int i, const std::string& name, const std::vector<int64_t>& legal);
// Operand `i`, a list of integers: what it holds where that is known, else `expected` and a check that it is just that.
std::vector<int64_t> ints_or_expected(NodeContext& c, int i, const std::string& name,
                                      const std::function<std::vector<int64_t>()>& expected);
// The same for sizes, which may be expressions of the graph's symbols.
Shape sizes_or_expected(NodeContext& c, int i, const std::string& name,
                        const std::function<std::vector<int64_t>()>& expected);
// The shape that operands known only when the model runs give the result `output`, i64[rank], must be `declared`;
// `holds`, one bool, must hold too.
void require_shape(NodeContext& c, int output, ValueId shape, const std::vector<int64_t>& declared,
                   std::optional<ValueId> holds = {});

// The run must find `declared` elements for dimension `axis` of the result `output`; `found` is one i64.
void require_count(NodeContext& c, int output, int axis, ValueId found, int64_t declared);

// Lists of numbers for some axes, as values for every axis of rank `rank`.
struct PerAxis {
  ValueId named;                // bool[rank]
  std::vector<ValueId> values;  // i64[rank] each; 0 where the axis is not named
  ValueId legal;                // one bool: each axis is in range and named once
};
// `axes` and each of `lists` are i64[n].
PerAxis per_axis(NodeContext& c, ValueId axes, const std::vector<ValueId>& lists, int rank);
// Element `d` of i64[n], a scalar.
ValueId element(NodeContext& c, ValueId list, int64_t d);
// Slices of x along `axis`, which has elements, at the places of i64[n]: those outside are those at the ends.
ValueId take_clamped(NodeContext& c, ValueId x, int64_t axis, ValueId places);

// What depends on axes that are known when the model runs: it is computed for all axes that lead to the result's shape,
// and the one that was meant is selected; a check refuses other axes.
struct AxisChoice {
  int rank = 0;                // axes are in -rank .. rank-1
  std::vector<int64_t> shape;  // of the result
  // The result's shape for these axes (sorted); empty when they are not legal.
  std::function<std::optional<std::vector<int64_t>>(const std::vector<int64_t>& axes)> shape_of;
  // Axes with equal keys give equal elements.
  std::function<std::vector<int64_t>(const std::vector<int64_t>& axes)> key;
  std::function<ValueId(const std::vector<int64_t>& axes)> compute;
};
// UnsupportedNode when there are more than a few different results to choose from, or none.
ValueId choose_axes(NodeContext& c, int i, const std::string& name, const AxisChoice& choice);

std::string dims_text(const std::vector<int64_t>& dims);  // "[3,1]"

}  // namespace tessera::inline onnx_import
