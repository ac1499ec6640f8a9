// What rules of operators share that read or write at places which other values name.
#pragma once

#include "graph/adjoint.h"

namespace tessera::inline ops {

// The product of the extents of dimensions first .. end - 1.
Expr elements_of(const Shape& shape, size_t first, size_t end);

// Indices as i64 within 0 .. extent - 1, by the rule of index_in_range (ops/op_util.h).
ValueId places_in_range(Adjoint& a, ValueId indices, const Expr& extent);

// The adjoint of reading x, of shape `shape`, at `places` (i64, any shape) of dimension `axis`, as gather does: `g` has
// the dimensions of `places` where x has the axis. What was read twice is added.
ValueId added_at(Adjoint& a, ValueId g, ValueId places, const Shape& shape, size_t axis);

// 0, 1, ..., extent - 1: what an operator that only moves elements along a dimension makes of it are the places that
// the elements of its result come from.
ValueId numbers_along(Adjoint& a, const Expr& extent);

// The permutation of dimensions that moves dimension `from` to place `to`, and the one that undoes another.
std::vector<int64_t> moved_axis(size_t rank, size_t from, size_t to);
std::vector<int64_t> inverse_of(const std::vector<int64_t>& perm);

}  // namespace tessera::inline ops
