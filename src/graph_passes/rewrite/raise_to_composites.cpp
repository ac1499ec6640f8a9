#include "graph_passes/rewrite/raise_to_composites.h"

#include <algorithm>
#include <array>
#include <set>

#include "graph_passes/rewrite/dce.h"
#include "graph_passes/rewrite/recognizers.h"
#include "graph_passes/support/graph_util.h"
#include "ops/composites/composites.h"

namespace tessera::inline graph_passes {
namespace {

// Each stage may build on what the ones before it found.
constexpr std::array<Recognizer, 4> kFirst = {recognize_normalization, recognize_activation, nullptr, nullptr};
constexpr std::array<Recognizer, 4> kSecond = {recognize_affine, recognize_activation, recognize_attention, nullptr};
constexpr std::array<Recognizer, 4> kThird = {recognize_affine, recognize_activation, nullptr, nullptr};

class Stage {
 public:
  Stage(const Graph& graph, const PassContext& ctx, std::span<const Recognizer> recognizers)
      : graph_(graph),
        ctx_(ctx),
        recognizers_(recognizers),
        users_(graph.users()),
        outputs_(output_mask(graph)),
        rewriter_(graph) {}

  Graph run() {
    return dce(
        rewriter_.run([&](GraphRewriter&, const Node& node, const std::vector<ValueId>&) { return visit(node); }),
        ctx_);
  }

 private:
  std::vector<ValueId> visit(const Node& node) {
    const bool candidate = node.op->kind == OpKind::kExpression && node.outputs.size() == 1 &&
                           is_float(graph_.type(node.outputs[0]).dtype);
    if (!candidate) return {};
    for (const Recognizer recognizer : recognizers_) {
      const auto found = recognizer ? recognizer(graph_, node) : std::nullopt;
      std::vector<std::string> locs;
      if (found && is_closed(node, *found, locs)) return build(node, *found, locs);
    }
    return {};
  }

  // Whether only the pattern itself reads what lies between its result and its operands. Collects the locations.
  bool is_closed(const Node& root, const Recognized& found, std::vector<std::string>& locs) const {
    std::set<NodeId> inside = {graph_.value(root.outputs[0]).producer};
    for (auto id = inside.rbegin(); id != inside.rend();) {
      const NodeId node = *id;
      for (const ValueId input : graph_.node(node).inputs) {
        const NodeId producer = graph_.value(input).producer;
        const bool leaf = producer < 0 || graph_.node(producer).op->kind == OpKind::kConstant ||
                          std::find(found.operands.begin(), found.operands.end(), input) != found.operands.end();
        if (leaf) continue;
        // Producers come before their readers, so the walk from the last to the first node sees every one.
        inside.insert(producer);
        if (outputs_[static_cast<size_t>(input)]) return false;
      }
      id = std::set<NodeId>::reverse_iterator(inside.find(node));
    }
    for (const NodeId node : inside) {
      locs.push_back(graph_.node(node).loc);
      if (node == *inside.rbegin()) break;
      for (const ValueId output : graph_.node(node).outputs)
        for (const NodeId user : users_[static_cast<size_t>(output)])
          if (!inside.count(user)) return false;
    }
    return true;
  }

  std::vector<ValueId> build(const Node& root, const Recognized& found, const std::vector<std::string>& locs) {
    GraphBuilder builder(rewriter_.target());
    builder.set_loc(join_locs(locs));
    std::vector<ValueId> operands;
    for (size_t i = 0; i < found.operands.size(); ++i) {
      ValueId operand = rewriter_.mapped(found.operands[i]);
      if (const auto perm = found.transposed.find(i); perm != found.transposed.end())
        operand = builder.add(ctx_.ops.get("transpose"), {operand}, {{"perm", perm->second}});
      operands.push_back(operand);
    }
    Attrs attrs = found.attrs;
    std::vector<ValueId> results = add_composite(builder, ctx_.ops, found.name, operands, std::move(attrs));
    if (!(rewriter_.target().type(results[0]) == graph_.type(root.outputs[0]))) return {};
    rewriter_.target().rename(results[0], rewriter_.target().unique_name(graph_.value(root.outputs[0]).name));
    if (ctx_.remarks && locs.size() > 1)
      ctx_.remarks->done("raise_to_composites", builder.loc(), "together these nodes are one " + found.name);
    return results;
  }

  const Graph& graph_;
  const PassContext& ctx_;
  std::span<const Recognizer> recognizers_;
  const std::vector<std::vector<NodeId>> users_;
  const std::vector<bool> outputs_;
  GraphRewriter rewriter_;
};

}  // namespace

Graph raise_to_composites(const Graph& graph, const PassContext& ctx) {
  // What nobody needs any more reads values inside of patterns as well.
  Graph result = dce(graph, ctx);
  for (const auto* stage : {&kFirst, &kSecond, &kThird}) result = Stage(result, ctx, *stage).run();
  return result;
}

std::span<const std::string_view> recognized_composites() {
  static constexpr std::string_view kNames[] = {"attention",  "gelu",    "hard_sigmoid", "hard_swish",
                                                "layer_norm", "mish",    "rms_norm",     "sigmoid",
                                                "silu",       "softmax", "softplus"};
  return kNames;
}

}  // namespace tessera::inline graph_passes
