// What raise_to_composites looks for, one function per family of operators. Each sees one node of a graph and says
// which composite the node's result is, if any.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "graph_passes/pass.h"

namespace tessera::inline graph_passes {

struct Recognized {
  std::string name;
  std::vector<ValueId> operands;  // of the graph that was looked at
  Attrs attrs;
  // Of operand i, when not empty: the order of dimensions in which it is passed on.
  std::map<size_t, std::vector<int64_t>> transposed{};
};

using Recognizer = std::optional<Recognized> (*)(const Graph& graph, const Node& node);

// gelu, sigmoid, silu, hard_sigmoid, hard_swish, softplus, mish
std::optional<Recognized> recognize_activation(const Graph& graph, const Node& node);
// softmax, layer_norm and rms_norm without scale
std::optional<Recognized> recognize_normalization(const Graph& graph, const Node& node);
// layer_norm and rms_norm that take over a scale or bias behind them
std::optional<Recognized> recognize_affine(const Graph& graph, const Node& node);
std::optional<Recognized> recognize_attention(const Graph& graph, const Node& node);

// ---- what they share ----

// The number of which every element of a constant float is; empty for other values.
std::optional<double> splat_number(const Graph& graph, ValueId id);
// Equal up to the rounding of constants of this type.
bool near(double a, double b, DType dtype);
// A polynomial in two values x and t: coefficients by exponents.
using Polynomial = std::map<std::pair<int, int>, double>;
// `id` as a polynomial of x (and t when it is not -1); empty when it is none, or one of a high degree.
std::optional<Polynomial> as_polynomial(const Graph& graph, ValueId id, ValueId x, ValueId t);
// Whether the polynomials agree, coefficients of 0 left out or not.
bool near(const Polynomial& a, const Polynomial& b, DType dtype);
// The values that `id` may be seen as arithmetic with constants of: itself first, then what its operators read.
std::vector<ValueId> bases_of(const Graph& graph, ValueId id);

}  // namespace tessera::inline graph_passes
