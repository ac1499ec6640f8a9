#include "interp/ranks.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include <fmt/format.h>

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
  if (collective.is_message()) {
    collective.peer = node.attrs.get<int64_t>("peer");
    collective.message = node.attrs.get<int64_t>("message");
  }
  collective.shift = node.attrs.get_or<int64_t>("by", 0);
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
  if (c.kind == CollectiveKind::kShift) {
    const int64_t from = own - c.shift;
    return from >= 0 && from < n ? operand(from) : Tensor(type.dtype, *static_dims(type.shape));
  }
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

// Ranks go on with their own nodes, each until it waits for others.
class Evaluation {
 public:
  Evaluation(const std::vector<Graph>& graphs, const std::vector<std::vector<Tensor>>& inputs)
      : graphs_(graphs), values_(graphs.size()), next_(graphs.size(), 0), expected_(graphs.size()) {
    for (size_t r = 0; r < graphs.size(); ++r)
      for (size_t i = 0; i < graphs[r].inputs.size(); ++i) values_[r].emplace(graphs[r].inputs[i], inputs[r][i]);
  }

  std::vector<std::vector<Tensor>> run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t r = 0; r < graphs_.size(); ++r)
        while (next_[r] < graphs_[r].nodes().size() && step(r)) moved = true;
    }
    std::vector<std::vector<Tensor>> outputs(graphs_.size());
    for (size_t r = 0; r < graphs_.size(); ++r) {
      check(next_[r] == graphs_[r].nodes().size(), fmt::format("rank {} waits for others, which do not come", r));
      for (const ValueId output : graphs_[r].outputs) {
        check(is_there(r, output), fmt::format("rank {} waits for a message that nobody sends", r));
        outputs[r].push_back(values_[r].at(output));
      }
    }
    return outputs;
  }

 private:
  // False where the rank has to wait.
  bool step(size_t rank) {
    const Graph& graph = graphs_[rank];
    const auto id = static_cast<NodeId>(next_[rank]);
    const Node& node = graph.node(id);
    auto& values = values_[rank];
    if (!std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId v) { return is_there(rank, v); }))
      return false;
    if (const std::optional<Collective> collective = collective_of(node)) {
      check(static_cast<size_t>(collective->mesh.ranks()) == graphs_.size(), "ranks with another mesh");
      if (!(collective->is_message() ? message(rank, node, *collective) : together(rank, node, *collective)))
        return false;
    } else if (node.op->kind == OpKind::kConstant) {
      values.emplace(node.outputs[0], *node.attrs.get<TensorPtr>("value"));
    } else {
      // The node alone; constants that it reads are inputs of that graph, too.
      const Subgraph part = subgraph_of(graph, {id});
      const Graph alone = extract(graph, part);
      std::vector<Tensor> operands;
      for (const ValueId input : part.inputs) operands.push_back(values.at(input));
      std::vector<Tensor> results = interpreter_.evaluate(alone, operands);
      for (size_t i = 0; i < part.outputs.size(); ++i) values.emplace(part.outputs[i], std::move(results[i]));
    }
    ++next_[rank];
    return true;
  }

  // Sends, and begins to receive: only who reads what is received waits for it.
  bool message(size_t rank, const Node& node, const Collective& c) {
    if (c.kind == CollectiveKind::kSend) {
      check(sent_.emplace(std::tuple{static_cast<int64_t>(rank), c.peer, c.message}, values_[rank].at(node.inputs[0]))
                .second,
            "a message is sent twice");
      values_[rank].emplace(node.outputs[0], Tensor(DType::kU8, {0}));
      return true;
    }
    expected_[rank].emplace(node.outputs[0], std::tuple{c.peer, static_cast<int64_t>(rank), c.message});
    return true;
  }

  bool is_there(size_t rank, ValueId value) {
    if (values_[rank].contains(value)) return true;
    const auto expected = expected_[rank].find(value);
    if (expected == expected_[rank].end()) return false;
    const auto found = sent_.find(expected->second);
    if (found == sent_.end()) return false;
    const TensorType& wanted = graphs_[rank].type(value);
    check(found->second.dtype() == wanted.dtype && found->second.dims() == *static_dims(wanted.shape),
          "a message of another type than is received");
    values_[rank].emplace(value, found->second);
    return true;
  }

  // The k-th collective of a rank in a group meets the k-th of each other one.
  bool together(size_t rank, const Node& node, const Collective& c) {
    const std::vector<int64_t> group = c.mesh.group_of(static_cast<int64_t>(rank), c.axes);
    size_t& count = counts_[{rank, group}];
    Meeting& meeting = meetings_[{group, count}];
    if (!meeting.here.count(rank)) {
      meeting.here.emplace(rank, values_[rank].at(node.inputs[0]));
      meeting.ops.insert(node.op);
    }
    if (meeting.here.size() < group.size()) return false;
    check(meeting.ops.size() == 1, "ranks with different collectives");
    std::vector<const Tensor*> operands(graphs_.size(), nullptr);
    for (const auto& [other, tensor] : meeting.here) operands[other] = &tensor;
    values_[rank].emplace(node.outputs[0],
                          collect(c, operands, static_cast<int64_t>(rank), graphs_[rank].type(node.outputs[0])));
    ++count;
    return true;
  }

  struct Meeting {
    std::map<size_t, Tensor> here;
    std::set<const OpDef*> ops;
  };
  const std::vector<Graph>& graphs_;
  std::vector<std::map<ValueId, Tensor>> values_;
  std::vector<size_t> next_;                                      // node, by rank
  std::map<std::tuple<int64_t, int64_t, int64_t>, Tensor> sent_;  // from, to, number
  std::vector<std::map<ValueId, std::tuple<int64_t, int64_t, int64_t>>> expected_;
  std::map<std::pair<size_t, std::vector<int64_t>>, size_t> counts_;
  std::map<std::pair<std::vector<int64_t>, size_t>, Meeting> meetings_;
  GraphInterpreter interpreter_;
};

}  // namespace

std::vector<std::vector<Tensor>> evaluate_ranks(const std::vector<Graph>& graphs,
                                                const std::vector<std::vector<Tensor>>& inputs) {
  return Evaluation(graphs, inputs).run();
}

}  // namespace tessera::inline interp
