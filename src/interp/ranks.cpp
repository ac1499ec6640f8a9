#include "interp/ranks.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>

#include "graph/op_def.h"
#include "graph/subgraph.h"
#include "interp/graph_interp.h"
#include "support/error.h"
#include "types/collective.h"

namespace tessera::inline interp {
namespace {

std::optional<Collective> collective_of(const Node& node) {
  const auto kind = find_collective_kind(node.op->name);
  if (!kind) return std::nullopt;
  Collective collective{*kind, CollectiveCombiner::kNone, {}, {}, node.loc};
  check(parse_mesh(node.attrs.get<std::string>("mesh"), collective.mesh).empty() &&
            parse_mesh_axes(node.attrs.get<std::string>("axes"), collective.mesh, collective.axes).empty(),
        "a collective without a mesh");
  if (const auto combiner = find_collective_combiner(node.attrs.get_or<std::string>("kind", "none")))
    collective.combiner = *combiner;
  return collective;
}

double combined(CollectiveCombiner combiner, double a, double b) {
  switch (combiner) {
    case CollectiveCombiner::kSum: return a + b;
    case CollectiveCombiner::kProd: return a * b;
    case CollectiveCombiner::kMin: return std::min(a, b);
    default: return std::max(a, b);
  }
}

int64_t combined(CollectiveCombiner combiner, int64_t a, int64_t b) {
  const auto x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
  switch (combiner) {
    case CollectiveCombiner::kSum: return static_cast<int64_t>(x + y);
    case CollectiveCombiner::kProd: return static_cast<int64_t>(x * y);
    case CollectiveCombiner::kMin: return std::min(a, b);
    default: return std::max(a, b);
  }
}

// Element by element; `rank` gets the result.
Tensor collect(const Collective& c, const std::vector<const Tensor*>& operands, int64_t rank, const TensorType& type) {
  const std::vector<int64_t> group = c.mesh.group_of(rank, c.axes);
  const auto n = static_cast<int64_t>(group.size());
  const auto own = static_cast<int64_t>(std::find(group.begin(), group.end(), rank) - group.begin());
  const auto operand = [&](int64_t member) -> const Tensor& {
    return *operands[static_cast<size_t>(group[static_cast<size_t>(member)])];
  };
  const int64_t elements = operand(0).num_elements(), part = elements / n;
  Tensor result(type.dtype, *static_dims(type.shape));
  const bool is_real = is_float(type.dtype);
  for (int64_t i = 0; i < result.num_elements(); ++i) {
    const bool combines = c.kind == CollectiveKind::kAllReduce || c.kind == CollectiveKind::kReduceScatter;
    const bool scatters = c.kind == CollectiveKind::kReduceScatter || c.kind == CollectiveKind::kAllToAll;
    const int64_t each = c.kind == CollectiveKind::kAllGather ? elements : part;
    const int64_t first = combines ? 0 : i / each, at = (combines ? i : i % each) + (scatters ? own * part : 0);
    double real = is_real ? operand(first).get_double(at) : 0;
    int64_t whole = is_real ? 0 : operand(first).get_int(at);
    for (int64_t m = 1; combines && m < n; ++m) {
      if (is_real) real = combined(c.combiner, real, operand(m).get_double(at));
      else whole = combined(c.combiner, whole, operand(m).get_int(at));
    }
    if (is_real) result.set_double(i, real);
    else result.set_int(i, whole);
  }
  return result;
}

}  // namespace

std::vector<std::vector<Tensor>> evaluate_ranks(const std::vector<Graph>& graphs,
                                                const std::vector<std::vector<Tensor>>& inputs) {
  const size_t ranks = graphs.size();
  std::vector<std::map<ValueId, Tensor>> values(ranks);
  for (size_t r = 0; r < ranks; ++r)
    for (size_t i = 0; i < graphs[r].inputs.size(); ++i) values[r].emplace(graphs[r].inputs[i], inputs[r][i]);
  GraphInterpreter interpreter;
  for (size_t n = 0; n < graphs[0].nodes().size(); ++n) {
    const auto id = static_cast<NodeId>(n);
    const std::optional<Collective> collective = collective_of(graphs[0].node(id));
    for (size_t r = 0; r < ranks; ++r) {
      const Graph& graph = graphs[r];
      const Node& node = graph.node(id);
      check(node.op == graphs[0].node(id).op, "ranks with different graphs");
      if (node.op->kind == OpKind::kConstant) {
        values[r].emplace(node.outputs[0], *node.attrs.get<TensorPtr>("value"));
        continue;
      }
      if (collective) {
        check(collective_of(node) && static_cast<size_t>(collective->mesh.ranks()) == ranks, "ranks with another mesh");
        std::vector<const Tensor*> operands;
        for (size_t other = 0; other < ranks; ++other)
          operands.push_back(&values[other].at(graphs[other].node(id).inputs[0]));
        values[r].emplace(node.outputs[0],
                          collect(*collective, operands, static_cast<int64_t>(r), graph.type(node.outputs[0])));
        continue;
      }
      // The node alone; constants that it reads are inputs of that graph, too.
      const Subgraph part = subgraph_of(graph, {id});
      const Graph alone = extract(graph, part);
      std::vector<Tensor> operands;
      for (const ValueId input : part.inputs) operands.push_back(values[r].at(input));
      std::vector<Tensor> results = interpreter.evaluate(alone, operands);
      for (size_t i = 0; i < part.outputs.size(); ++i) values[r].emplace(part.outputs[i], std::move(results[i]));
    }
  }
  std::vector<std::vector<Tensor>> outputs(ranks);
  for (size_t r = 0; r < ranks; ++r)
    for (const ValueId output : graphs[r].outputs) outputs[r].push_back(values[r].at(output));
  return outputs;
}

}  // namespace tessera::inline interp
