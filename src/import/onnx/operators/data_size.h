// Sizes that data decide, as symbols of the graph (graph/data_sizes.h): for handlers whose number of results depends on
// values.
#pragma once

#include "import/onnx/node_context.h"

namespace tessera::inline onnx_import {

// Whether such a size may become a symbol here. Elsewhere a step of the run cuts off what is not there.
bool may_bind_sizes(NodeContext& c);

// The size that `count`, an i64 scalar, gives in a run, kept within 0 and `bound`: what is at most as large in the
// model, too. The same for every call with the same count.
Expr bind_size(NodeContext& c, ValueId count, const Expr& bound);

// Of sizes that data decide among the shapes of `operands`, those that may be 0 and need not: a run that finds 0 is
// refused from here on. False when there are none.
bool require_elements(NodeContext& c, const std::vector<ValueId>& operands);

// That `size`, a symbol that data give a value, is at least this: a run that finds less is refused. False where that
// cannot be asked.
bool require_at_least(NodeContext& c, const Expr& size, int64_t least);

// What no element of a tensor of integers exceeds, as far as the operators that compute it tell: a number of true
// elements, a size, a place along an axis, and what is computed from those. Null where nothing is known.
Expr largest_element(NodeContext& c, ValueId v);

// The elements of operand `i`, a list of sizes: those that are known, and symbols for those that data decide. Where
// nothing bounds one, UnsupportedNode.
Shape bound_sizes(NodeContext& c, int i, const std::string& name);

// The first `size` slices of `v` along `axis`, which has at least as many.
ValueId first_slices(NodeContext& c, ValueId v, int64_t axis, const Expr& size);

}  // namespace tessera::inline onnx_import
