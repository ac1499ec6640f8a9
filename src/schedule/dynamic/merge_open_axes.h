// Neighbouring open axes as one: the rows and columns of a picture that a kernel goes over place by place (a
// convolution whose window has one place, what is added to a picture) are one line of height * width places. Windows
// along a line are larger than those along rows, and a line has one end where a picture has one for each row.
#pragma once

#include "te/tensor_program.h"

namespace tessera::inline schedule {

// The kernel with open axes of the output merged with their neighbours, as far as every load that moves with one of two
// axes has both side by side, whole, and in dimensions of the same extents. Its parameters have the same memory.
TensorProgram merge_open_axes(const TensorProgram& kernel);

}  // namespace tessera::inline schedule
