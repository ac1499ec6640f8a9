// The sizes of a kernel's open axes as variables, one for each axis. Queries and keys are as many as there are words,
// so scores have two axes of one size; a kernel that goes along one of them in tiles must tell them apart, and needs
// not know what the sizes have to do with each other.
#pragma once

#include <vector>

#include "loop/stmt.h"
#include "te/tensor_program.h"

namespace tessera::inline schedule {

struct AxisSize {
  Var var;
  Expr value;   // of the variable, in terms of the program's symbols
  Expr extent;  // of the axis: a multiple of that
  Expr named;   // the extent in terms of the variable
};

struct SizedKernel {
  TensorProgram program;
  std::vector<AxisSize> sizes;
};

// The kernel with a variable for the extent of each open axis, output axes first, and for the dimensions of buffers
// that are read or written along that axis and nowhere else. Other open dimensions stay as they are.
enum class NamedAxes : uint8_t {
  kOpen,
  kAllOutsideOpen,  // fixed axes of the output, too, that have an open one within: what lies along them has open
                    // strides
};
SizedKernel name_axis_sizes(const TensorProgram& kernel, NamedAxes which = NamedAxes::kOpen);

VarMap values_of(const SizedKernel& kernel);

// The loop program with these values for variables, in the shapes of its parameters, too.
LoopProgram with_values(const LoopProgram& program, const VarMap& values);
// The statement with loads and stores of the buffers `to` instead of `from`, which are as many.
Stmt on_buffers(const Stmt& s, const std::vector<BufferPtr>& from, const std::vector<BufferPtr>& to);

}  // namespace tessera::inline schedule
