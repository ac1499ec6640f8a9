// Places that are found by dividing by a size that only a run knows are found once.
//
// Where an element's neighbours lie in a resized picture is a quotient of sizes, and depends on the place along one
// axis alone. Of a fixed size a rule keeps such places in tables beside its loops (schedule/rules/index_tables.h); of
// an open one each place becomes an element of a buffer that a kernel of its own fills, so that what is left of a
// resize reads memory at indices that are data, and rules treat it as they treat any gather.
#pragma once

#include <vector>

#include "te/tensor_program.h"

namespace tessera::inline lower {

struct PlaceTable {
  BufferPtr buffer;       // i64, or the float that a weight is: one element for each place along the axis
  TensorProgram program;  // computes it, of no parameters
};

// Takes them out of the kernel, which then has a parameter for each behind its others. Quotients of a place itself,
// which only split an index in two, stay.
std::vector<PlaceTable> take_place_tables(TensorProgram& kernel);

}  // namespace tessera::inline lower
