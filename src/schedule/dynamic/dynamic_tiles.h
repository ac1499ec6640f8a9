// Kernels of shapes that a run decides.
//
// Where a kernel does the same for every step along an axis of unknown extent (the images of a batch, the rows of a
// matrix), the rules are asked for the kernel of a fixed number of steps, and loops around what they write move it
// along: tiles of a good size, then smaller ones for the rest, down to single steps. All memory that a step touches
// must move by the same distance, and nothing else may depend on where the step is. Whatever is not like that gets
// loops of its own.
#pragma once

#include "schedule/choose.h"

namespace tessera::inline schedule {

// Whether some extent of the kernel is not constant.
bool is_symbolic(const TensorProgram& kernel);

// The rule's kernels for tiles of the output's axes of unknown extents. The result has no symbols yet.
std::variant<ScheduledKernel, Declined> apply_by_tiles(const ScheduleRule& rule, const TensorProgram& kernel,
                                                       const Target& target);

// The rule's kernels for windows of the output's open axes: for kernels whose strides are open, too. No symbols yet.
std::variant<ScheduledKernel, Declined> apply_by_windows(const ScheduleRule& rule, const TensorProgram& kernel,
                                                         const std::vector<SymbolRange>& symbols, const Target& target);

bool same_packing(const std::vector<PackedParam>& a, const std::vector<PackedParam>& b);
// The statement with its parallel loops serial.
Stmt without_threads(const Stmt& s);

}  // namespace tessera::inline schedule
