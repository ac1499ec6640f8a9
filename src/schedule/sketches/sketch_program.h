// What a sketch's trace is applied to, and what comes out of it.
#pragma once

#include <string>
#include <variant>

#include "schedule/choose.h"
#include "schedule/primitives/schedule.h"
#include "te/tensor_program.h"

namespace tessera::inline schedule {

// The kernel's naive loops under names that do not depend on the model: parameters p0, p1, .. and y, loops over the
// output i0, i1, .., over what is reduced r0, r1, .., and acc. So a trace fits every kernel that computes the same.
Schedule sketch_schedule(const TensorProgram& kernel, const Target& target);

// Why the scheduled program should not become code although it is legal: copies of unrolled loops, or memory, out of
// proportion. Empty when it may.
std::string sketch_objection(const Schedule& schedule, const Target& target);

// Stores that one call executes, about: of two schedules of one kernel, how much one computes again and again.
double executed_stores(const LoopProgram& program);

// Vectors of registers that the allocations in registers take.
int64_t register_vectors(const Schedule& schedule, const Target& target);

// The program as a rule would answer it: the kernel's names, packed parameters with one dimension.
ScheduledKernel finished_sketch(const Schedule& schedule, const TensorProgram& kernel);

}  // namespace tessera::inline schedule
