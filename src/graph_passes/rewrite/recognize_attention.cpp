#include <algorithm>

#include "arith/simplify.h"
#include "graph_passes/rewrite/recognizers.h"
#include "graph_passes/support/graph_util.h"

namespace tessera::inline graph_passes {
namespace {

using Ints = std::vector<int64_t>;

// Takes factors off `id`: x * c, x / c. Returns their product.
double take_scale(const Graph& graph, ValueId& id) {
  double scale = 1;
  for (const Node* node = graph.producer(id); is_op(node, "mul") || is_op(node, "div"); node = graph.producer(id)) {
    const bool first = splat_number(graph, node->inputs[0]).has_value();
    const auto factor = splat_number(graph, node->inputs[first ? 0 : 1]);
    const ValueId rest = node->inputs[first ? 1 : 0];
    if (!factor || *factor == 0 || (first && node->op->name == "div") ||
        !same_shape(graph.type(rest).shape, graph.type(id).shape))
      break;
    scale *= node->op->name == "mul" ? *factor : 1 / *factor;
    id = rest;
  }
  return scale;
}

struct Scores {
  ValueId q, k;  // k as the product reads it: the depth in the dimension before the last, or `transposed`
  bool transposed = false;
  double scale = 1;
};

// scale * (q k^T), the factors anywhere.
std::optional<Scores> product(const Graph& graph, ValueId id) {
  Scores scores;
  scores.scale = take_scale(graph, id);
  const Node* node = graph.producer(id);
  if (!is_op(node, "matmul") || node->attrs.get_or<bool>("transpose_a", false)) return std::nullopt;
  scores.transposed = node->attrs.get_or<bool>("transpose_b", false);
  scores.q = node->inputs[0];
  scores.k = node->inputs[1];
  scores.scale *= take_scale(graph, scores.q);
  scores.scale *= take_scale(graph, scores.k);
  return scores;
}

// k or v repeated for groups of heads: [.., H, T, D] -> [.., H, 1, T, D] -> [.., H, G, T, D] -> [.., H*G, T, D].
std::optional<ValueId> repeated(const Graph& graph, ValueId id) {
  const Node* merge = graph.producer(id);
  const Node* stretch = is_op(merge, "reshape") ? graph.producer(merge->inputs[0]) : nullptr;
  const Node* split = is_op(stretch, "broadcast") ? graph.producer(stretch->inputs[0]) : nullptr;
  if (!is_op(split, "reshape")) return std::nullopt;
  const Shape &from = graph.type(split->inputs[0]).shape, &to = graph.type(id).shape;
  const Shape &one = graph.type(stretch->inputs[0]).shape, &many = graph.type(merge->inputs[0]).shape;
  if (from.size() < 3 || to.size() != from.size()) return std::nullopt;
  const auto heads = static_cast<std::ptrdiff_t>(from.size()) - 3;
  Shape want = from;
  want.insert(want.begin() + heads + 1, Expr(1));
  if (!equal_shapes(one, want) || many.size() != want.size()) return std::nullopt;
  want[static_cast<size_t>(heads) + 1] = many[static_cast<size_t>(heads) + 1];
  if (!equal_shapes(many, want)) return std::nullopt;
  Shape merged = from;
  Expr& together = merged[static_cast<size_t>(heads)];
  together = together * want[static_cast<size_t>(heads) + 1];
  return equal_shapes(to, merged) ? std::optional(split->inputs[0]) : std::nullopt;
}

// Whether q, k and v (k as [.., T, D] in dims) are what the composite takes.
bool fits(const Shape& q, const Shape& k, const Shape& v) {
  const size_t rank = q.size();
  if (k.size() != rank || v.size() != rank || rank < 2) return false;
  if (!equal_sizes(k[rank - 1], q[rank - 1]) || !equal_sizes(v[rank - 2], k[rank - 2])) return false;
  for (size_t d = 0; d + 2 < rank; ++d) {
    if (!equal_sizes(k[d], v[d])) return false;
    if (equal_sizes(k[d], q[d])) continue;
    const auto heads = as_int(k[d]), all = as_int(q[d]);
    if (d + 3 != rank || !heads || !all || *heads == 0 || *all % *heads != 0) return false;
  }
  return true;
}

}  // namespace

std::optional<Recognized> recognize_attention(const Graph& graph, const Node& node) {
  if (!is_op(&node, "matmul") || node.attrs.get_or<bool>("transpose_a", false) ||
      node.attrs.get_or<bool>("transpose_b", false))
    return std::nullopt;
  const Node* softmax = graph.producer(node.inputs[0]);
  const int rank = graph.type(node.inputs[0]).rank();
  if (!is_composite(softmax, "softmax") || softmax->attrs.get_int("axis") != rank - 1) return std::nullopt;

  Recognized result{"attention", {}, {}};
  ValueId masked = softmax->inputs[0], mask = -1;
  auto scores = product(graph, masked);
  if (!scores) {
    const Node* masking = graph.producer(masked);
    if (is_op(masking, "add")) {
      for (size_t i = 0; i < 2 && !scores; ++i) {
        scores = product(graph, masking->inputs[i]);
        mask = masking->inputs[1 - i];
      }
    } else if (is_op(masking, "select")) {
      const auto fill = splat_number(graph, masking->inputs[2]);
      if (!fill) return std::nullopt;
      scores = product(graph, masking->inputs[1]);
      mask = masking->inputs[0];
      result.attrs.set("fill", *fill);
    }
    if (!scores) return std::nullopt;
  }

  // k as [.., T, D]: a transpose that already ends in [.., D, T] gets another order of its dimensions.
  ValueId k = scores->k, v = node.inputs[1];
  if (graph.type(k).rank() != rank || graph.type(scores->q).rank() != rank || graph.type(v).rank() != rank)
    return std::nullopt;
  Ints order;  // of k's dimensions, when it is to be transposed
  if (!scores->transposed) {
    order = swap_of_last_two(rank);
    if (const Node* transpose = graph.producer(k); is_op(transpose, "transpose")) {
      const Ints& perm = transpose->attrs.get_ints("perm");
      Ints joint;
      for (const int64_t axis : order) joint.push_back(perm[static_cast<size_t>(axis)]);
      order = joint;
      k = transpose->inputs[0];
      scores->scale *= take_scale(graph, k);
      if (std::is_sorted(order.begin(), order.end())) order.clear();
    }
  }
  if (order.empty()) {
    const auto single_k = repeated(graph, k), single_v = repeated(graph, v);
    if (single_k && single_v) {
      k = *single_k;
      v = *single_v;
    }
  }
  const Shape& q_shape = graph.type(scores->q).shape;
  Shape k_shape = graph.type(k).shape;
  if (!order.empty()) {
    Shape turned;
    for (const int64_t axis : order) turned.push_back(k_shape[static_cast<size_t>(axis)]);
    k_shape = turned;
    result.transposed[1] = order;
  }
  if (!fits(q_shape, k_shape, graph.type(v).shape)) return std::nullopt;
  result.operands = {scores->q, k, v};
  if (mask >= 0) {
    // The scores have the result's shape but for the last dimension; a mask must not stretch them.
    if (!same_shape(graph.type(masked).shape, graph.type(node.inputs[0]).shape)) return std::nullopt;
    Shape want = q_shape;
    want.back() = graph.type(node.inputs[0]).shape.back();
    if (!same_shape(graph.type(masked).shape, want) || graph.type(mask).rank() > rank) return std::nullopt;
    result.operands.push_back(mask);
  }
  result.attrs.set("scale", scores->scale);
  return result;
}

}  // namespace tessera::inline graph_passes
