// Which parts of a tensor are contiguous bytes of its buffer: what may be a view, or be written in place by whoever
// computes it.
#pragma once

#include <cstdint>
#include <optional>

#include "graph/graph.h"

namespace tessera::inline graph {

// Where `part`, the elements of `whole` from `start` on along `axis` (all of them along the other axes), begins in the
// buffer of `whole`, in bytes, a size like any other; empty when its elements are not contiguous there in the order of
// `part`'s own layout. Contiguous means that the buffer's dimensions outside of the axis have the extent 1: the batch
// of one image, whose channels (or blocks of channels, when the part begins and ends with one) follow each other.
std::optional<Expr> contiguous_part(const TensorType& whole, const TensorType& part, int axis, const Expr& start);

// The same for the result of a slice node within its operand.
std::optional<Expr> contiguous_slice(const Graph& graph, const Node& slice);

// Whether concat_in_place has decided that the node, a concat or a slice, moves no bytes: it has `in_place` = 1.
bool is_in_place(const Node& node);

// The value whose buffer holds the bytes of `id`: the operand of the views that lead to it.
ValueId storage_value(const Graph& graph, ValueId id);

// What of the operands of an in-place concat is written where it belongs by the kernel that computes it. The others are
// copied there.
struct PlacedOperand {
  ValueId storage = -1;  // the value that is computed into the result's buffer; -1: the operand is copied
  Expr offset;           // in bytes
};

// For every in-place concat (by its node) where its operands are. A value is placed in one concat at most, the last of
// those that could have it: prefixes of it then are placed in it as a whole. Empty lists for other nodes.
std::vector<std::vector<PlacedOperand>> place_operands(const Graph& graph);

}  // namespace tessera::inline graph
