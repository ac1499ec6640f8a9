// Transposed convolutions read an input with gaps: a term counts only where `(o + d * k + c) mod s = 0`, o a row or a
// column of the output and k one of the window. Which window places count depends on o mod s alone, so every residue
// of o (a phase) is a convolution of its own with a shorter window and no gaps, whose results are stored s apart.
// (The sub-pixel view of transposed convolution: Shi et al., "Is the deconvolution layer the same as a convolutional
// layer?", 2016.)
#pragma once

#include <vector>

#include "schedule/kernel/linear_kernel.h"

namespace tessera::inline schedule {

// Kernels over disjoint parts of the output which together cover it.
struct Phases {
  std::vector<LinearKernel> sums;   // only the kernel itself where it has no gaps
  std::vector<LinearKernel> empty;  // no place of the window counts: they do not reduce, but store what an empty sum is
};

// Splits an axis when it is a whole output loop other than the innermost, and d and s have no common divisor.
Phases split_phases(LinearKernel kernel);

}  // namespace tessera::inline schedule
