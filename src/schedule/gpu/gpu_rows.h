// Kernels on GPUs that hand rows to one another, joined into one: a block of threads for each row, what lies between
// two of them in the block's shared memory. A softmax or a norm reads its operand once instead of three times, and is
// one launch instead of four.
//
// Rows are all axes but the last one, which all members have in common; each reads the others' results at its own row.
// Members compute an element for each column, or reduce the columns of their row. What they compute is a joined
// program (te/joined_program.h), as of the chains of a CPU (schedule/fusion/fuse_rows.h).
#pragma once

#include <functional>

#include "program/program.h"
#include "schedule/gpu/gpu_rules.h"
#include "te/joined_program.h"

namespace tessera::inline schedule {

inline constexpr std::string_view kGpuRows = "gpu_rows";

// The loops of a joined program of rows. Declined when it is none, or a row does not fit in shared memory.
GpuRuleResult gpu_rows(const JoinedProgram& joined, const GpuLimits& limits);

// Joins calls whose kernels `limits_of` knows the device of; null: it runs elsewhere.
void join_rows_on_gpus(Program& program, const std::function<const GpuLimits*(const Kernel&)>& limits_of);

}  // namespace tessera::inline schedule
