// Attention on GPUs without the matrix of scores: a block of threads for each tile of queries, which goes through the
// keys and values tile by tile with an online softmax (schedule/fusion/online_softmax.h has the algebra; Dao et al.,
// "FlashAttention", 2022). The scores of a tile, the queries and the pieces of keys and values that are being
// multiplied lie in shared memory, the sums in registers; nothing else is stored but the result.
//
// The members of its joined program are the product of queries and keys, with whatever scales and masks its results,
// the largest score of each row, exponentials, their sum, and the product with the values. Keys and values may be those
// of several heads of queries. Where a constant mask hides the last keys from all rows of a tile, they are left out.
#pragma once

#include <functional>
#include <string_view>

#include "program/program.h"
#include "schedule/gpu/gpu_rules.h"
#include "support/remarks.h"
#include "te/joined_program.h"

namespace tessera::inline schedule {

inline constexpr std::string_view kGpuAttention = "gpu_attention";

// On tensor cores, where queries, keys and values are bf16 or f16 that are computed with in f32. The exponentials, too,
// are rounded to that type before they are multiplied; scores and sums stay f32. Keys of the next tile come by
// asynchronous copies while one is mixed, and a tile's values while its scores are computed.
GpuRuleResult gpu_attention_mma(const JoinedProgram& joined, const JoinedContext& context, const GpuLimits& limits);

// The loops of a joined program that is attention, on tensor cores or in f32. Declined when it is none, or tiles do not
// fit in shared memory.
GpuRuleResult gpu_attention(const JoinedProgram& joined, const JoinedContext& context, const GpuLimits& limits);

// Joins calls whose kernels `limits_of` knows the device of; null: it runs elsewhere. `remarks` (may be null) are told
// why what ends with a softmax times something is none.
void join_attention_on_gpus(Program& program, const std::function<const GpuLimits*(const Kernel&)>& limits_of,
                            Remarks* remarks = nullptr);

}  // namespace tessera::inline schedule
