// Graph nodes to the stages of one kernel's definition.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "te/tensor_program.h"

namespace tessera::inline lower {

// A kernel's name: letters, digits and underscores from the model's node name.
std::string identifier(const std::string& text);

// Builds the stages of one kernel from the nodes of a region.
class KernelLowering {
 public:
  explicit KernelLowering(TensorProgram& program) : program_(program) {}

  // The buffer that stands for a value inside the kernel, or a scalar written into the expressions.
  struct Operand {
    BufferPtr buffer;
    Expr scalar;
  };

  Operand add_param(const std::string& name, const TensorType& type, OperandKind kind);
  static Operand scalar(const Tensor& value);
  Operand add_stage(const std::string& name, const TensorType& type, const Body& body,
                    const std::vector<Operand>& operands);
  // Stages that are results come last, in this order; results and reductions beside several results have the same axis
  // variables.
  void set_results(const std::vector<BufferPtr>& results);

 private:
  void share_axes();
  std::string fresh(const std::string& name);

  TensorProgram& program_;
  std::map<std::string, int> names_;
};

}  // namespace tessera::inline lower
