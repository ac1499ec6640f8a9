#include "train/not_finite.h"

#include <fmt/format.h>

#include <algorithm>

#include "ops/op_util.h"
#include "support/error.h"
#include "train/graph_ops.h"

namespace tessera::inline train {
namespace {

bool is_watched(const Graph& graph, const Node& node) {
  if (node.op->kind == OpKind::kConstant) return false;
  return std::any_of(node.outputs.begin(), node.outputs.end(), [&](ValueId v) {
    const TensorType& type = graph.type(v);
    return is_real(type.dtype) && type.is_static() && type.num_elements() > 0;
  });
}

// 0, 1 or 2, of all elements of `v`.
ValueId answer_of(const GraphOps& o, ValueId v) {
  const ValueId nan = o.cast(o.op("is_nan", {v}), DType::kI64), infinite = o.cast(o.op("is_inf", {v}), DType::kI64);
  const ValueId each = o.add(o.times(nan, 2), infinite);
  return o.over_all("max", each);
}

}  // namespace

FiniteProbe finite_probe(const Graph& step, const OpTable& ops) {
  FiniteProbe probe;
  Graph& graph = probe.graph = step;
  graph.states.clear();
  graph.checks.clear();
  graph.outputs.clear();
  GraphBuilder builder(graph);
  const GraphOps o{builder, ops};
  builder.set_loc("finite");
  for (size_t n = 0; n < step.nodes().size(); ++n) {
    const Node& node = step.nodes()[n];
    if (!is_watched(step, node)) continue;
    ValueId answer = -1;
    for (const ValueId v : node.outputs) {
      const TensorType& type = step.type(v);
      if (!is_real(type.dtype) || !type.is_static() || type.num_elements() == 0) continue;
      const ValueId own = answer_of(o, v);
      answer = answer < 0 ? own : o.op("max", {answer, own});
    }
    graph.outputs.push_back(answer);
    probe.nodes.push_back(static_cast<NodeId>(n));
  }
  return probe;
}

std::string first_not_finite(const Graph& step, const FiniteProbe& probe, const std::vector<int64_t>& found) {
  check(found.size() == probe.nodes.size(), "an answer for each node of a probe");
  const auto first = std::find_if(found.begin(), found.end(), [](int64_t answer) { return answer != 0; });
  if (first == found.end()) return "";
  const Node& node = step.node(probe.nodes[static_cast<size_t>(first - found.begin())]);
  const std::string kind = node.attrs.get_or<std::string>("name", node.op->name);
  const std::string place = node.loc.empty() ? step.value(node.outputs[0]).name : node.loc;
  return fmt::format("{} '{}' is the first operator whose result has {}", kind, place,
                     *first >= 2 ? "NaN" : "infinite numbers");
}

}  // namespace tessera::inline train
