#include <algorithm>
#include <cmath>

#include "arith/simplify.h"
#include "graph_passes/rewrite/recognizers.h"
#include "graph_passes/support/graph_util.h"

namespace tessera::inline graph_passes {
namespace {

using Ints = std::vector<int64_t>;

// What the value is a reshape of. JAX takes dimensions away when it reduces them, and puts them back when it needs
// them.
ValueId unshaped(const Graph& graph, ValueId id) {
  const Node* node = graph.producer(id);
  for (; is_op(node, "reshape"); node = graph.producer(id)) id = node->inputs[0];
  return id;
}

// A reduction of this kind, of whatever shape.
const Node* reduction(const Graph& graph, ValueId id, std::string_view kind) {
  const Node* node = graph.producer(unshaped(graph, id));
  const bool fits =
      is_op(node, "reduce") && node->attrs.get<std::string>("kind") == kind && !node->attrs.get_ints("axes").empty();
  return fits ? node : nullptr;
}

// Whether the value has the shape of x, with extent 1 in the dimensions `axes`.
bool is_kept(const Graph& graph, ValueId id, ValueId x, const Ints& axes) {
  Shape kept = graph.type(x).shape;
  for (const int64_t axis : axes) kept[static_cast<size_t>(axis)] = 1;
  return equal_shapes(graph.type(id).shape, kept);
}

Ints sorted_axes(const Node& reduce) {
  Ints axes = reduce.attrs.get_ints("axes");
  std::sort(axes.begin(), axes.end());
  return axes;
}

// The dimension from which on all are reduced; empty when the axes are others.
std::optional<int64_t> last_dimensions(const Ints& axes, int rank) {
  for (size_t i = 0; i < axes.size(); ++i)
    if (axes[i] != rank - static_cast<int64_t>(axes.size() - i)) return std::nullopt;
  return axes[0];
}

// A value that is this size.
bool is_size(const Graph& graph, ValueId id, const Expr& size) {
  const Node* node = graph.producer(id);
  while (is_op(node, "reshape") || is_op(node, "cast")) node = graph.producer(node->inputs[0]);
  if (!is_op(node, "sizes")) return false;
  const Shape sizes = node->attrs.get_sizes("sizes");
  return sizes.size() == 1 && equal_sizes(sizes[0], size);
}

struct Mean {
  ValueId of;
  Ints axes;
};

// sum / count, or sum * (1 / count), of whatever shape.
std::optional<Mean> mean(const Graph& graph, ValueId id) {
  const Node* node = graph.producer(unshaped(graph, id));
  if (!is_op(node, "div") && !is_op(node, "mul")) return std::nullopt;
  const bool divides = node->op->name == "div";
  for (size_t i = 0; i < (divides ? 1 : 2); ++i) {
    const Node* sum = reduction(graph, node->inputs[i], "sum");
    if (!sum) continue;
    const TensorType& type = graph.type(sum->inputs[0]);
    Expr size = 1;
    for (const int64_t axis : sorted_axes(*sum)) size = size * type.shape[static_cast<size_t>(axis)];
    const auto known = as_int(normalize_size(size));
    const auto factor = splat_number(graph, node->inputs[1 - i]);
    const bool fits = known ? factor && near(divides ? *factor : 1 / *factor, static_cast<double>(*known), type.dtype)
                            : divides && is_size(graph, node->inputs[1 - i], size);
    if (fits) return Mean{sum->inputs[0], sorted_axes(*sum)};
  }
  return std::nullopt;
}

std::optional<ValueId> square(const Graph& graph, ValueId id) {
  const Node* node = graph.producer(id);
  if (is_op(node, "mul") && node->inputs[0] == node->inputs[1]) return node->inputs[0];
  if (is_op(node, "pow") && splat_number(graph, node->inputs[1]) == 2.0) return node->inputs[0];
  return std::nullopt;
}

struct Quotient {
  ValueId above, below;
  bool rooted = false;                 // divided by the root of `below`
  std::optional<ValueId> factor = {};  // and multiplied by this
};

// 1 / b, or b^-0.5, as a quotient without `above`.
std::optional<Quotient> inverse(const Graph& graph, ValueId id) {
  const Node* node = graph.producer(id);
  if (is_op(node, "div") && splat_number(graph, node->inputs[0]) == 1.0) return Quotient{-1, node->inputs[1]};
  if (is_op(node, "pow") && splat_number(graph, node->inputs[1]) == -0.5) return Quotient{-1, node->inputs[0], true};
  return std::nullopt;
}

// a / b, a * (1 / b), a * b^-0.5, or one of the latter two with a factor inside: a * (1 / b * c).
std::vector<Quotient> quotients(const Graph& graph, const Node& node) {
  std::vector<Quotient> found;
  if (is_op(&node, "div")) found.push_back({node.inputs[0], node.inputs[1]});
  if (!is_op(&node, "mul")) return found;
  for (size_t i = 0; i < 2; ++i) {
    const ValueId above = node.inputs[i], other = node.inputs[1 - i];
    if (const auto plain = inverse(graph, other)) found.push_back({above, plain->below, plain->rooted});
    const Node* product = graph.producer(other);
    for (size_t k = 0; is_op(product, "mul") && k < 2; ++k)
      if (const auto inner = inverse(graph, product->inputs[k]))
        found.push_back({above, inner->below, inner->rooted, product->inputs[1 - k]});
  }
  return found;
}

// sqrt(variance(x) + epsilon), or sqrt(mean(x^2) + epsilon): x, the axes and epsilon.
struct Deviation {
  ValueId of;
  Ints axes;
  double epsilon;
  bool is_variance = false;  // that of x, by mean(x^2) - mean(x)^2
};

// max(mean(x^2) - mean(x)^2, 0), which is never negative without roundings: mean(x).
std::optional<Mean> quick_variance(const Graph& graph, ValueId id) {
  const Node* node = graph.producer(unshaped(graph, id));
  if (is_op(node, "max"))
    for (size_t i = 0; i < 2; ++i)
      if (splat_number(graph, node->inputs[1 - i]) == 0.0) {
        node = graph.producer(unshaped(graph, node->inputs[i]));
        break;
      }
  if (!is_op(node, "sub")) return std::nullopt;
  const auto squares = mean(graph, node->inputs[0]);
  const auto of = squares ? square(graph, squares->of) : std::nullopt;
  const auto root = of ? square(graph, unshaped(graph, node->inputs[1])) : std::nullopt;
  const auto middle = root ? mean(graph, *root) : std::nullopt;
  return middle && middle->of == *of && middle->axes == squares->axes ? middle : std::nullopt;
}

std::optional<Deviation> deviation(const Graph& graph, const Quotient& quotient) {
  ValueId square_of_it = quotient.below;
  if (!quotient.rooted) {
    const Node* root = graph.producer(unshaped(graph, quotient.below));
    const bool power = is_op(root, "pow") && splat_number(graph, root->inputs[1]) == 0.5;
    if (!power && !is_op(root, "sqrt")) return std::nullopt;
    square_of_it = root->inputs[0];
  }
  const Node* sum = graph.producer(unshaped(graph, square_of_it));
  if (!is_op(sum, "add")) return std::nullopt;
  for (size_t i = 0; i < 2; ++i) {
    const auto epsilon = splat_number(graph, sum->inputs[1 - i]);
    const auto quick = epsilon ? quick_variance(graph, sum->inputs[i]) : std::nullopt;
    if (quick) return Deviation{quick->of, quick->axes, *epsilon, true};
    const auto squares = epsilon ? mean(graph, sum->inputs[i]) : std::nullopt;
    const auto of = squares ? square(graph, squares->of) : std::nullopt;
    if (of) return Deviation{*of, squares->axes, *epsilon};
  }
  return std::nullopt;
}

// x - mean(x): x.
std::optional<ValueId> centred(const Graph& graph, ValueId id, const Ints& axes) {
  const Node* node = graph.producer(id);
  if (!is_op(node, "sub")) return std::nullopt;
  const auto middle = mean(graph, node->inputs[1]);
  const bool fits = middle && middle->of == node->inputs[0] && middle->axes == axes &&
                    is_kept(graph, node->inputs[1], middle->of, axes);
  return fits ? std::optional(middle->of) : std::nullopt;
}

// One factor for each place of a part that is normalised from `axis` on: its dimensions before that are 1 or missing.
bool fits_affine(const Graph& graph, ValueId factor, ValueId normalized, int64_t axis) {
  const Shape& shape = graph.type(factor).shape;
  const int64_t leading = static_cast<int64_t>(shape.size()) - graph.type(normalized).rank() + axis;
  bool fits = factor != normalized;
  for (int64_t d = 0; d < leading; ++d) fits = fits && is_const_int(shape[static_cast<size_t>(d)], 1);
  return fits;
}

std::optional<Recognized> normalization(const Graph& graph, const Node& node) {
  for (const Quotient& quotient : quotients(graph, node)) {
    const ValueId above = quotient.above;
    const auto spread = deviation(graph, quotient);
    if (!spread) continue;
    const auto axis = last_dimensions(spread->axes, graph.type(node.outputs[0]).rank());
    if (!axis) continue;
    if (!is_kept(graph, quotient.below, spread->of, spread->axes)) continue;
    const Attrs attrs = {{"axis", *axis}, {"epsilon", spread->epsilon}};
    std::vector<ValueId> factor;
    if (quotient.factor) {
      if (!fits_affine(graph, *quotient.factor, above, *axis)) continue;
      factor = {*quotient.factor};
    }
    const auto found = [&](const char* name, ValueId x) {
      factor.insert(factor.begin(), x);
      return Recognized{name, factor, attrs};
    };
    const auto x = spread->is_variance ? std::optional(spread->of) : centred(graph, spread->of, spread->axes);
    if (x && centred(graph, above, spread->axes) == x) return found("layer_norm", *x);
    if (!x && above == spread->of) return found("rms_norm", above);
  }
  return std::nullopt;
}

std::optional<Recognized> softmax(const Graph& graph, const Node& node) {
  for (const auto& [above, below, rooted, factor] : quotients(graph, node)) {
    const Node* sum = rooted || factor ? nullptr : reduction(graph, below, "sum");
    const Node* exp = graph.producer(above);
    if (!sum || sum->inputs[0] != above || sorted_axes(*sum).size() != 1 || !is_op(exp, "exp")) continue;
    const Node* shifted = graph.producer(exp->inputs[0]);
    const Node* highest = is_op(shifted, "sub") ? reduction(graph, shifted->inputs[1], "max") : nullptr;
    if (highest && highest->inputs[0] == shifted->inputs[0] && sorted_axes(*highest) == sorted_axes(*sum) &&
        is_kept(graph, below, above, sorted_axes(*sum)) && is_kept(graph, shifted->inputs[1], above, sorted_axes(*sum)))
      return Recognized{"softmax", {shifted->inputs[0]}, {{"axis", sorted_axes(*sum)[0]}}};
  }
  return std::nullopt;
}

}  // namespace

std::optional<Recognized> recognize_normalization(const Graph& graph, const Node& node) {
  if (!is_float(graph.type(node.outputs[0]).dtype)) return std::nullopt;
  if (auto found = softmax(graph, node)) return found;
  return normalization(graph, node);
}

std::optional<Recognized> recognize_affine(const Graph& graph, const Node& node) {
  const bool scales = is_op(&node, "mul");
  if (!scales && !is_op(&node, "add")) return std::nullopt;
  for (size_t i = 0; i < 2; ++i) {
    const Node* inner = graph.producer(node.inputs[i]);
    const bool layer = is_composite(inner, "layer_norm"), rms = is_composite(inner, "rms_norm");
    if ((!layer && !rms) || (!scales && !layer) || inner->inputs.size() != (scales ? 1 : 2)) continue;
    if (inner->outputs.size() > 1) continue;  // the statistics are wanted as well
    const ValueId factor = node.inputs[1 - i];
    const Shape& normalized = graph.type(node.inputs[i]).shape;
    if (!same_shape(graph.type(node.outputs[0]).shape, normalized) ||
        !fits_affine(graph, factor, node.inputs[i], inner->attrs.get_int("axis")))
      continue;
    Recognized result{inner->attrs.get<std::string>("name"), inner->inputs, composite_attrs(*inner)};
    result.operands.push_back(factor);
    return result;
  }
  return std::nullopt;
}

}  // namespace tessera::inline graph_passes
