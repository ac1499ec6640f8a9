// What is known while compiling of tensors that steps of a flow make: their rank, dimensions that are fixed, what the
// others do not exceed, and, of lists of integers that are made from shapes, their elements.
#pragma once

#include <optional>
#include <vector>

#include "import/onnx/node_context.h"

namespace tessera::inline onnx_import {

// A dimension, or an element of a list.
struct Extent {
  int64_t value = -1;  // -1: a run knows it
  int64_t most = kFlowMost;

  bool is_fixed() const { return value >= 0; }
};
using Extents = std::optional<std::vector<Extent>>;  // none: not even how many there are

Extents dims_of(const FlowType& type);
Extents numbers_of(const FlowType& type);
void set_dims(FlowType& type, const Extents& dims);
// Of a list (or a scalar, when there is one and `type` has rank 0); nothing when none is known.
void set_numbers(FlowType& type, const Extents& numbers);

// The type of operand `i` with all that is known of it, constants included.
FlowType known_type(NodeContext& c, int i);

// The elements of a constant list, or what else is known of operand `i`.
Extents list_of(NodeContext& c, int i);

Extents broadcast_extents(const std::vector<Extents>& operands);
// Of ONNX Slice; what is not known of the operands is none.
Extents sliced(const Extents& dims, const Extents& starts, const Extents& ends, const Extents& axes, bool has_axes,
               const Extents& steps, bool has_steps);
Extents reshaped(const Extents& dims, const Extents& shape, bool allow_zero);
int64_t product_of_most(const std::vector<Extent>& extents);  // at most kFlowMost^2

// Result 0 is `list`, a list or scalar of i64, as a constant when all of it is known; else what `step` makes.
void give_numbers(NodeContext& c, const Extents& numbers, bool scalar, FlowOp op, std::vector<SlotId> inputs,
                  FlowType type, std::vector<int64_t> ints);

}  // namespace tessera::inline onnx_import
