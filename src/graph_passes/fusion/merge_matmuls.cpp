#include "graph_passes/fusion/merge_matmuls.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "graph_passes/support/graph_util.h"

namespace tessera::inline graph_passes {
namespace {

using Ints = std::vector<int64_t>;

struct Product {
  NodeId matmul = -1;
  NodeId bias = -1;  // the addition behind it; -1 when there is none
};

class Merger {
 public:
  Merger(const Graph& graph, const PassContext& ctx)
      : graph_(graph), ctx_(ctx), users_(graph.users()), outputs_(output_mask(graph)), rewriter_(graph) {
    find_sets();
  }

  Graph run() {
    NodeId next = 0;
    return rewriter_.run([&](GraphRewriter&, const Node&, const std::vector<ValueId>& inputs) -> std::vector<ValueId> {
      const NodeId id = next++;
      if (const auto first = sets_.find(id); first != sets_.end()) build(first->second);
      if (const auto part = parts_.find(id); part != parts_.end()) return {part->second};
      // The product in front of a merged bias: nobody else reads it, so any value will do.
      if (const auto inner = inner_.find(id); inner != inner_.end()) return {inputs[0]};
      return {};
    });
  }

 private:
  ValueId result(NodeId id) const { return graph_.node(id).outputs[0]; }

  // Whether whoever reads `id` only moves it.
  bool is_moved(ValueId id) const {
    const auto& readers = users_[static_cast<size_t>(id)];
    if (outputs_[static_cast<size_t>(id)] || readers.empty()) return false;
    return std::all_of(readers.begin(), readers.end(), [&](NodeId reader) {
      const Node* node = &graph_.node(reader);
      return is_op(node, "reshape") || is_op(node, "transpose") || is_op(node, "slice") ||
             is_composite(node, "attention");
    });
  }

  std::optional<Product> product(NodeId id) const {
    const Node& node = graph_.node(id);
    if (!is_op(&node, "matmul") || node.attrs.get_or<bool>("transpose_a", false)) return std::nullopt;
    const Tensor* weights = constant_value(graph_, node.inputs[1]);
    if (!weights || weights->dims().size() != 2 || dtype_bits(weights->dtype()) < 8 ||
        constant_value(graph_, node.inputs[0]))
      return std::nullopt;
    const bool transposed = node.attrs.get_or<bool>("transpose_b", false);
    Product found{id, -1};
    const auto& readers = users_[static_cast<size_t>(node.outputs[0])];
    if (readers.size() == 1 && is_op(&graph_.node(readers[0]), "add") &&
        !outputs_[static_cast<size_t>(node.outputs[0])]) {
      const Node& add = graph_.node(readers[0]);
      const Tensor* bias = constant_value(graph_, add.inputs[add.inputs[0] == node.outputs[0] ? 1 : 0]);
      if (bias && bias->dims() == Ints{weights->dims()[transposed ? 0 : 1]}) found.bias = readers[0];
    }
    return is_moved(result(found.bias >= 0 ? found.bias : id)) ? std::optional(found) : std::nullopt;
  }

  void find_sets() {
    std::map<std::tuple<ValueId, bool, bool, DType>, std::vector<Product>> by_operand;
    for (size_t i = 0; i < graph_.nodes().size(); ++i)
      if (const auto found = product(static_cast<NodeId>(i))) {
        const Node& node = graph_.nodes()[i];
        by_operand[{node.inputs[0], node.attrs.get_or<bool>("transpose_b", false), found->bias >= 0,
                    ctx_.precision_of(node)}]
            .push_back(*found);
      }
    for (const auto& [key, products] : by_operand) {
      if (products.size() < 2) continue;
      for (const Product& p : products)
        if (p.bias >= 0) inner_.emplace(p.matmul, true);
      sets_[products[0].matmul] = products;
    }
  }

  // The matrices side by side: along their columns, which are rows when the product transposes them.
  Tensor joint_weights(const std::vector<Product>& products, bool transposed) const {
    std::vector<const Tensor*> pieces;
    for (const Product& p : products) pieces.push_back(constant_value(graph_, graph_.node(p.matmul).inputs[1]));
    const size_t axis = transposed ? 0 : 1;
    Ints dims = pieces[0]->dims();
    for (size_t i = 1; i < pieces.size(); ++i) dims[axis] += pieces[i]->dims()[axis];
    return joined(pieces, dims, transposed ? 1 : dims[0]);
  }

  // Row by row what each piece has of it.
  static Tensor joined(const std::vector<const Tensor*>& pieces, const Ints& dims, int64_t rows) {
    Tensor result(pieces[0]->dtype(), dims);
    std::byte* to = result.mutable_bytes();
    for (int64_t row = 0; row < rows; ++row)
      for (const Tensor* piece : pieces) {
        const int64_t bytes = piece->num_bytes() / std::max<int64_t>(rows, 1);
        std::memcpy(to, piece->bytes() + row * bytes, static_cast<size_t>(bytes));
        to += bytes;
      }
    return result;
  }

  Tensor joint_bias(const std::vector<Product>& products) const {
    std::vector<const Tensor*> pieces;
    Ints dims = {0};
    for (const Product& p : products) {
      const Node& add = graph_.node(p.bias);
      pieces.push_back(constant_value(graph_, add.inputs[add.inputs[0] == result(p.matmul) ? 1 : 0]));
      dims[0] += pieces.back()->dims()[0];
    }
    return joined(pieces, dims, 1);
  }

  void build(const std::vector<Product>& products) {
    const Node& first = graph_.node(products[0].matmul);
    const std::string& name = graph_.value(first.outputs[0]).name;
    const bool biased = products[0].bias >= 0;
    std::vector<std::string> locs;
    for (const Product& p : products) {
      locs.push_back(graph_.node(p.matmul).loc);
      if (biased) locs.push_back(graph_.node(p.bias).loc);
    }
    Graph& target = rewriter_.target();
    GraphBuilder builder(target);
    builder.set_loc(join_locs(locs));
    const bool transposed = first.attrs.get_or<bool>("transpose_b", false);
    const ValueId weights =
        add_constant(target, ctx_.ops, joint_weights(products, transposed), name + ".weights", builder.loc());
    ValueId joint = builder.add(*first.op, {rewriter_.mapped(first.inputs[0]), weights}, first.attrs, name + ".joint");
    if (biased) {
      const ValueId bias = add_constant(target, ctx_.ops, joint_bias(products), name + ".bias", builder.loc());
      joint = builder.add(ctx_.ops.get("add"), {joint, bias}, {}, name + ".biased");
    }
    if (ctx_.remarks)
      ctx_.remarks->done("merge_matmuls", builder.loc(),
                         fmt::format("{} products that share their left operand are one", products.size()));
    int64_t start = 0;
    for (const Product& p : products) {
      const NodeId last = biased ? p.bias : p.matmul;
      const Shape& sizes = graph_.type(result(last)).shape;
      Ints starts(sizes.size(), 0);
      starts.back() = start;
      start += constant_value(graph_, graph_.node(p.matmul).inputs[1])->dims()[transposed ? 0 : 1];
      builder.set_loc(graph_.node(p.matmul).loc);
      parts_[last] = builder.add(ctx_.ops.get("slice"), {joint},
                                 {{"starts", starts}, {"sizes", sizes}, {"steps", Ints(sizes.size(), 1)}},
                                 graph_.value(result(last)).name);
    }
  }

  const Graph& graph_;
  const PassContext& ctx_;
  const std::vector<std::vector<NodeId>> users_;
  const std::vector<bool> outputs_;
  GraphRewriter rewriter_;
  std::map<NodeId, std::vector<Product>> sets_;  // by the first product of each
  std::map<NodeId, bool> inner_;                 // products whose bias is merged with them
  std::map<NodeId, ValueId> parts_;              // by the node that a slice stands for
};

}  // namespace

Graph merge_matmuls(const Graph& graph, const PassContext& ctx) { return Merger(graph, ctx).run(); }

}  // namespace tessera::inline graph_passes
