// The schedule rules, one file each. See schedule.h for what a rule promises.
#pragma once

#include <variant>

#include "schedule/schedule.h"

namespace tessera {

using RuleResult = std::variant<ScheduledKernel, Declined>;

// Reductions whose output has an axis along which all operands are read contiguously or not at all: convolutions,
// matrix products, depthwise convolutions, pooling, column sums. A tile of outputs (vectors x rows) is accumulated in
// registers over the whole reduction; constant operands are packed in the order of use.
RuleResult register_tile(const TensorProgram& kernel, const Target& target);

// Reductions along contiguous memory (row sums, softmax maxima): lanes of partial results, combined at the end.
RuleResult row_reduce(const TensorProgram& kernel, const Target& target);

// Everything without a reduction: contiguous vectors along the innermost dimension of the output, loops merged as far
// as the operands' addresses allow.
RuleResult injective(const TensorProgram& kernel, const Target& target);

// What no other rule takes: one output element at a time, the outer loops in parallel.
RuleResult scalar_loops(const TensorProgram& kernel, const Target& target);

}  // namespace tessera
