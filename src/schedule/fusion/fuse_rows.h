// Kernels that hand rows to one another, joined into one that goes through them block of rows by block of rows.
//
// A softmax is four kernels: the largest of each row, the exponentials, their sum, the quotient. Attention puts a
// matrix product before and behind it. Each of them reads of what the others wrote only the rows that it is at. So
// instead of one kernel after the other over all rows, all of them run over a few rows, and what lies between them
// stays in the cache: it needs no place in the arena, and the n x n scores of attention are never in memory as a whole
// (the idea of FlashAttention, Dao et al. 2022, section 3.1). Rows of scores are whole where they are short; long ones
// are gone through block of columns by block of columns, with an online softmax (schedule/fusion/online_softmax.h).
//
// Rows are the axes along which every kernel of the chain reads the others' results at its own index; they must be the
// leading axes of those results. What a block of rows computes is asked of the schedule rules, as a window of each
// kernel's output. Where rows of a head are more than the second level of cache holds, kernels that only copy (its keys
// and values) may lack the last axis of rows: they run once, before the blocks that share what they stored. Otherwise
// an operand of which each block reads all must fit into half of that cache. Copies that a product can do without are
// folded into it (schedule/fusion/fold_copies.h).
// A chain needs a reduction over a result of its own: joining the rest is fusion's business.
// A row alone is a chain for one thread only: several are better off with its kernels, which cut it.
// What does not fit the first level of cache between two kernels lies where the output will, if the output replaces it
// element by element, and is summed up while it is made (schedule/fusion/join_sweeps.h).
// Where a constant mask hides the last columns of all rows of a block, they are not computed
// (schedule/fusion/masked_columns.h): causal attention does about half of the work.
// Of kernels whose sizes a run decides, only attention is joined, always with blocks of columns
// (schedule/fusion/open_attention.h).
#pragma once

#include <string_view>

#include "schedule/fusion/join_planner.h"

namespace tessera::inline schedule {

inline constexpr std::string_view kFuseRows = "fuse_rows";

// Plans these chains of the calls that are free.
void plan_fused_rows(JoinPlanner& planner);

}  // namespace tessera::inline schedule
