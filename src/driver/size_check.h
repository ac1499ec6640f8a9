// Whether the program of all sizes computes what the model's own program for one size does.
//
// Programs of a few sizes become one (lower/generalize.h) although something may fall away at a size: a slice of all of
// a table, an axis of extent 1. That something else happens instead below some size, no formula shows; running both
// does.
#pragma once

#include <cstdint>

#include "program/program.h"
#include "program/symbolic_sizes.h"

namespace tessera::inline driver {

enum class SizeDifference : uint8_t {
  kNone,    // or the programs are too large to be interpreted in a moment
  kValues,  // the results differ, on values that are made up
  kReads,   // the general program reads outside of a value
  kWrites,  // it writes there
};

// `general` has symbols, with these values; `own` has none; neither is scheduled or planned.
SizeDifference difference_at(const Program& general, const SizePoint& point, const Program& own);

}  // namespace tessera::inline driver
