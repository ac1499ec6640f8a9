// A model as a function of real numbers: the same graph in f64.
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/op_def.h"

namespace tessera::inline diagnose {

struct RealGraph {
  Graph graph;  // without states and checks: a state is an input, and its next value an output
  // Constants that became inputs, behind the model's own and its states: those of real numbers, of rank 1 or more.
  std::vector<std::string> parameters;
  std::vector<Tensor> values;  // of the parameters
};

// Every value of f32, f16 or bf16 is f64, in regions, too; casts among these types do nothing any more. What works on
// the bits of a number, or takes no f64, keeps its own types between two casts.
RealGraph in_f64(const Graph& model, const OpTable& ops);

// The elements as f64; tensors of other than real numbers as they are.
Tensor in_f64(const Tensor& tensor);

}  // namespace tessera::inline diagnose
