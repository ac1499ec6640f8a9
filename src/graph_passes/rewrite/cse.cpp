#include "graph_passes/rewrite/cse.h"

#include <cstring>
#include <unordered_map>

#include "graph/hash.h"
#include "graph/printer.h"
#include "support/hash.h"

namespace tessera::inline graph_passes {
namespace {

bool equal_attrs(const Attr& a, const Attr& b) {
  if (a.index() != b.index()) return false;
  const auto* ta = std::get_if<TensorPtr>(&a);
  const auto* tb = std::get_if<TensorPtr>(&b);
  if (!ta) return attr_text(a) == attr_text(b);  // the text reads back to the same value, so it identifies it
  if (*ta == *tb) return true;
  const Tensor& x = **ta;
  const Tensor& y = **tb;
  return x.dtype() == y.dtype() && x.dims() == y.dims() && x.has_data() && y.has_data() &&
         std::memcmp(x.bytes(), y.bytes(), static_cast<size_t>(x.num_bytes())) == 0;
}

// `b_inputs`: the operands of `b`, mapped into the target, where `a` is. Regions are compared by their text.
bool equal_nodes(const Node& a, const Node& b, const std::vector<ValueId>& b_inputs) {
  if (a.op != b.op || a.inputs != b_inputs || a.outputs.size() != b.outputs.size()) return false;
  if (a.attrs.all().size() != b.attrs.all().size() || a.regions.size() != b.regions.size()) return false;
  for (const auto& [name, attr] : a.attrs.all()) {
    const auto it = b.attrs.all().find(name);
    if (it == b.attrs.all().end() || !equal_attrs(attr, it->second)) return false;
  }
  for (size_t i = 0; i < a.regions.size(); ++i)
    if (a.regions[i] != b.regions[i] && print(*a.regions[i], {.locs = false}) != print(*b.regions[i], {.locs = false}))
      return false;
  return true;
}

uint64_t node_hash(const Node& node, const std::vector<ValueId>& inputs) {
  Hasher hasher;
  hasher.add(node.op->name);
  for (const ValueId input : inputs) hasher.add(static_cast<uint64_t>(input));
  for (const auto& [name, attr] : node.attrs.all()) {
    hasher.add(name);
    const auto* tensor = std::get_if<TensorPtr>(&attr);
    tensor ? hasher.add((*tensor)->content_hash()) : hasher.add(attr_text(attr));
  }
  for (const GraphPtr& region : node.regions) hasher.add(structural_hash(*region));
  return hasher.value();
}

}  // namespace

Graph cse(const Graph& graph, const PassContext& ctx) {
  std::unordered_multimap<uint64_t, NodeId> seen;  // nodes of the target
  return GraphRewriter(graph).run(
      [&](GraphRewriter& rewriter, const Node& node, const std::vector<ValueId>& inputs) -> std::vector<ValueId> {
        const uint64_t hash = node_hash(node, inputs);
        const auto [begin, end] = seen.equal_range(hash);
        for (auto it = begin; it != end; ++it) {
          const Node& earlier = rewriter.target().node(it->second);
          if (!equal_nodes(earlier, node, inputs)) continue;
          bool same_types = true;
          for (size_t i = 0; i < node.outputs.size(); ++i)
            same_types &= rewriter.target().type(earlier.outputs[i]) == graph.type(node.outputs[i]);
          if (!same_types) continue;
          if (ctx.remarks && earlier.loc != node.loc && node.op->kind != OpKind::kConstant)
            ctx.remarks->done("cse", node.loc, "the same as an earlier node", earlier.loc);
          return earlier.outputs;
        }
        const std::vector<ValueId> outputs = rewriter.copy(node, inputs);
        seen.emplace(hash, rewriter.target().value(outputs[0]).producer);
        return outputs;
      });
}

}  // namespace tessera::inline graph_passes
