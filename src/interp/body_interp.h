// Evaluates operator bodies (te/body.h) on tensors: the slow, obvious meaning of the graph level.
#pragma once

#include <unordered_map>
#include <vector>

#include "te/body.h"
#include "types/tensor.h"

namespace tessera::inline interp {

// Values of named dimensions, by variable.
using SymbolValues = std::unordered_map<const ExprNode*, int64_t>;

// The value of an integer expression without loads. InternalError when it uses a variable without a value.
int64_t evaluate_index(const Expr& e, const SymbolValues& symbols);

// `inputs` stand for body.inputs in order. Sums of floats are accumulated in f64 and rounded once. InternalError,
// naming buffer and index, for a load outside its buffer, and when a tensor is not what its buffer declares.
Tensor evaluate_body(const Body& body, const std::vector<const Tensor*>& inputs, const SymbolValues& symbols);

}  // namespace tessera::inline interp
