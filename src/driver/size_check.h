// Whether the program of all sizes computes what the model's own program for one size does, by running both on values
// that are made up: where their canonical forms (canonical_sizes.h) do not show it.
#pragma once

#include <cstdint>

#include "program/program.h"
#include "program/symbolic_sizes.h"

namespace tessera::inline driver {

enum class SizeDifference : uint8_t {
  kNone,
  kTooLarge,  // to be interpreted in a moment: nothing is known
  kValues,    // the results differ, on values that are made up
  kReads,     // the general program reads outside of a value
  kWrites,    // it writes there
};

// `general` has symbols, with these values; `own` has none; neither is scheduled or planned.
SizeDifference difference_at(const Program& general, const SizePoint& point, const Program& own);

}  // namespace tessera::inline driver
