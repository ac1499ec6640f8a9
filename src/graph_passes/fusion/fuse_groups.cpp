#include "graph_passes/fusion/fuse_groups.h"

#include <algorithm>
#include <map>
#include <utility>

#include "graph_passes/fusion/fusion_plan.h"
#include "graph_passes/fusion/merge_groups.h"
#include "graph_passes/rewrite/dce.h"
#include "graph_passes/support/graph_util.h"
#include "support/error.h"

namespace tessera::inline graph_passes {
namespace {

class Rebuilder {
 public:
  Rebuilder(const Graph& graph, const FusionPlan& plan, const OpTable& ops)
      : graph_(graph), plan_(plan), ops_(ops), map_(graph.values().size(), -1) {}

  Graph run() {
    result_.copy_header(graph_);
    for (const ValueId input : graph_.inputs)
      map_[static_cast<size_t>(input)] = result_.add_input(graph_.value(input).name, graph_.type(input));
    members_.resize(static_cast<size_t>(plan_.num_groups));
    for (size_t i = 0; i < graph_.nodes().size(); ++i)
      if (plan_.group_of[i] >= 0) members_[static_cast<size_t>(plan_.group_of[i])].push_back(static_cast<NodeId>(i));
    for (size_t i = 0; i < graph_.nodes().size(); ++i) {
      const int group = plan_.group_of[i];
      const bool waits = group >= 0 && !members_[static_cast<size_t>(group)].empty() &&
                         members_[static_cast<size_t>(group)].back() != static_cast<NodeId>(i);
      if (!waits) add(static_cast<NodeId>(i));
    }
    for (const ValueId output : graph_.outputs) result_.outputs.push_back(map_[static_cast<size_t>(output)]);
    return std::move(result_);
  }

 private:
  // Adds the node, or its group, behind all that it reads: what another result of a merged group is read by may stand
  // before that group's last node.
  void add(NodeId id) {
    const int group = plan_.group_of[static_cast<size_t>(id)];
    const bool is_added = group < 0 ? map_[static_cast<size_t>(graph_.node(id).outputs[0])] >= 0
                                    : members_[static_cast<size_t>(group)].empty();
    if (is_added) return;
    const std::vector<NodeId> nodes =
        group < 0 ? std::vector{id} : std::exchange(members_[static_cast<size_t>(group)], {});
    for (const NodeId node : nodes)
      for (const ValueId input : graph_.node(node).inputs)
        if (map_[static_cast<size_t>(input)] < 0 && !is_member(input, group)) add(graph_.value(input).producer);
    if (group < 0) copy(graph_.node(id));
    else add_group(nodes, plan_.results[static_cast<size_t>(group)]);
  }

  void copy(const Node& node) {
    Node clone = node;
    for (ValueId& input : clone.inputs) input = map_[static_cast<size_t>(input)];
    append(std::move(clone), node.outputs);
  }

  void append(Node node, const std::vector<ValueId>& source_outputs) {
    std::vector<TensorType> types;
    std::vector<std::string> names;
    for (const ValueId output : source_outputs) {
      types.push_back(graph_.type(output));
      names.push_back(graph_.value(output).name);
    }
    const auto outputs = result_.node(result_.add_node(std::move(node), std::move(types), std::move(names))).outputs;
    for (size_t i = 0; i < outputs.size(); ++i) map_[static_cast<size_t>(source_outputs[i])] = outputs[i];
  }

  void add_group(const std::vector<NodeId>& members, const std::vector<NodeId>& result_nodes) {
    auto region = std::make_shared<Graph>();
    region->name = "group";
    Node group;
    group.op = &ops_.get("group");
    std::map<ValueId, ValueId> inside;  // from values of the graph to values of the region
    std::vector<std::string> locs;
    // Operands come before all nodes of the region.
    for (const NodeId id : members)
      for (const ValueId input : graph_.node(id).inputs) {
        if (inside.count(input) || is_member(input, plan_.group_of[static_cast<size_t>(id)]) || is_scalar(input))
          continue;
        inside[input] = region->add_input(graph_.value(input).name, graph_.type(input));
        group.inputs.push_back(map_[static_cast<size_t>(input)]);
      }
    for (const NodeId id : members) {
      const Node& node = graph_.node(id);
      for (const ValueId input : node.inputs)
        if (!inside.count(input) && is_scalar(input)) add_inside(*region, inside, *graph_.producer(input));
      add_inside(*region, inside, node);
      locs.push_back(node.loc);
    }
    std::vector<ValueId> results;
    for (const NodeId id : result_nodes) {
      results.push_back(graph_.node(id).outputs[0]);
      region->outputs.push_back(inside.at(results.back()));
    }
    group.regions = {region};
    group.loc = join_locs(locs);
    append(std::move(group), results);
  }

  void add_inside(Graph& region, std::map<ValueId, ValueId>& inside, const Node& node) {
    Node clone = node;
    for (ValueId& input : clone.inputs) input = inside.at(input);
    const ValueId source = node.outputs[0];
    inside[source] =
        region.node(region.add_node(std::move(clone), {graph_.type(source)}, {graph_.value(source).name})).outputs[0];
  }

  bool is_member(ValueId id, int group) const {
    const NodeId producer = graph_.value(id).producer;
    return producer >= 0 && group >= 0 && plan_.group_of[static_cast<size_t>(producer)] == group;
  }
  // A number that each kernel has in its expressions: a constant, or a size.
  bool is_scalar(ValueId id) const {
    if (is_op(graph_.producer(id), "sizes")) return is_one_element(graph_.type(id));
    const Tensor* tensor = constant_value(graph_, id);
    return tensor && tensor->num_elements() == 1;
  }

  const Graph& graph_;
  const FusionPlan& plan_;
  const OpTable& ops_;
  Graph result_;
  std::vector<ValueId> map_;
  std::vector<std::vector<NodeId>> members_;  // of groups that have not been added
};

}  // namespace

Graph fuse_groups(const Graph& graph, const PassContext& ctx) {
  FusionPlan plan = plan_fusion(graph, ctx.remarks);
  merge_groups(graph, plan, ctx.remarks);
  return dce(Rebuilder(graph, plan, ctx.ops).run(), ctx);
}

}  // namespace tessera::inline graph_passes
