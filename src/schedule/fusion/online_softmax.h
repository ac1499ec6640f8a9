// Attention without whole rows of scores: blocks of rows meet blocks of columns, and what a row knows so far is
// corrected when a larger score comes along.
//
// For a block of rows, m is the largest score so far, l the sum of exp(score - m) and a the sum of those times the rows
// of values. With the maximum m' of m and of a further block of columns, p = exp(score - m') and c = exp(m - m'),
//
//   l' = c l + sum p        a' = c a + sum p v
//
// and in the end a / l is the softmax times the values (Milakov, Gimelshein, "Online normalizer calculation for
// softmax", 2018; Dao et al., "FlashAttention", 2022, algorithm 1, with one division at the end as in
// "FlashAttention-2", Dao 2023). A block of scores stays in the second level of cache, as do the keys and values of its
// columns while its rows pass by; whole rows of scores would not.
//
// Each correction is off by the rounding of exp and of one product, in all terms so far alike: of B blocks, l and the
// sum of the terms' magnitudes in a are off by at most B times that, relatively, beside what the sums themselves are
// off by. m begins with the lowest finite number instead of -inf, so that a block of columns that are all masked adds
// zeros; rows that are masked as a whole, or have a score of +inf or NaN, become NaN as they do by the definition.
// Columns that a later score makes nothing of count until then: where their values alone, near the end of the range,
// add up to infinity, the row becomes NaN.
#pragma once

#include <optional>
#include <vector>

#include "schedule/fusion/chain.h"
#include "target/target.h"

namespace tessera::inline schedule {

// Sets `columns` of a chain whose rows are found. False when it is not scores of f32, their largest in each row,
// exponentials, sums and a product with values, or something else in it reads scores or computes with the number of a
// column.
bool find_column_blocks(Chain& chain);
// Sets the sizes of blocks, and `pieces`, of a chain with columns. False when its rows are short enough to stay whole.
bool choose_column_blocks(Chain& chain, const Target& target);

bool is_load_of(const Expr& e, const BufferPtr& buffer);
bool reads(const Stage& stage, const BufferPtr& buffer);
// The parameter of member `m` that member `w` writes.
size_t param_from(const Chain& chain, size_t m, size_t w);
// By parameter of member `m`, the dimension that is columns. Empty when columns are used in another way.
std::optional<std::vector<size_t>> column_dims(const Chain& chain, size_t m);

}  // namespace tessera::inline schedule
