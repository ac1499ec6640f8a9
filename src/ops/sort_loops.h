// Ordering in loops: keys that are integers, so that one kind of comparison serves every element type, and a radix sort
// over them.
#pragma once

#include "ops/loop_util.h"

namespace tessera::inline ops {

// TSR-2024 unless dimension `axis` of the operand, if its extent is known, is below 2^31 - 64: their numbers are i32.
void require_sortable(const OpContext& ctx, size_t operand, size_t axis);
// i32, or i64 for the types whose elements do not fit.
DType sort_key_type(DType dtype);
// An integer for an element: keys compare as elements do; equal elements (0 and -0 are, and NaNs) have equal keys, and
// NaN is above everything. `descending` turns the order round.
Expr sort_key(const Expr& element, bool descending);

// How many of `lanes` keys precede each of them: ranks[e] is e's place in the order, in which equal keys stay as they
// are. Both are register or local buffers of `lanes` elements, the ranks i32; the first `count` keys are compared with.
Stmt rank_keys(const BufferPtr& keys, const BufferPtr& ranks, int64_t lanes, const Expr& count);

inline constexpr int64_t kFewToSort = 64;  // up to here each key is compared with all others

// Sorts pairs of key and number stably, ascending by key.
struct RadixSort {
  RadixSort(DType key_type, int64_t capacity);

  BufferPtr keys,
      numbers;  // [2, at least capacity + 1]: two halves, of which `half` says which one holds the pairs; i32
  Cell half;    // i64

  Expr key(const Expr& at) const { return load(keys, {half.get(), at}); }
  Expr number(const Expr& at) const { return index_of(load(numbers, {half.get(), at})); }
  Stmt put(const Expr& at, const Expr& key, const Expr& number) const;  // into the present half
  // Sorts the first `count` pairs.
  Stmt sort(const Expr& count) const;
  Stmt sort_few(const Expr& count) const;   // REQUIRES: count <= kFewToSort
  Stmt sort_many(const Expr& count) const;  // REQUIRES: count > 0
  // `body` with the buffers around it, `half` being 0.
  Stmt around(const std::vector<Stmt>& body) const;
};

}  // namespace tessera::inline ops
