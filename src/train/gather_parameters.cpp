#include "train/gather_parameters.h"

#include <algorithm>
#include <map>
#include <vector>

#include "train/graph_ops.h"
#include "train/shards.h"
#include "types/collective.h"

namespace tessera::inline train {
namespace {

size_t index(ValueId v) { return static_cast<size_t>(v); }

class Gathering {
 public:
  Gathering(const Graph& graph, size_t first, size_t num_parameters, size_t num_alike, const DataParallel& how,
            const OpTable& ops)
      : graph_(graph), first_(first), num_parameters_(num_parameters), how_(how), ops_(ops), builder_(result_) {
    find_forward(2 + num_alike);
    find_order();
    plan_gathers();
  }

  Graph run() {
    result_.copy_header(graph_);
    map_.assign(graph_.values().size(), -1);
    for (size_t i = 0; i < graph_.inputs.size(); ++i) {
      const ValueId input = graph_.inputs[i];
      TensorType type = graph_.type(input);
      if (is_parameter(i)) type.shape = {shard_size(type.num_elements(), how_.ranks)};
      map_[index(input)] = result_.add_input(graph_.value(input).name, type);
    }
    for (size_t at = 0; at < order_.size(); ++at) {
      const auto [begin, end] = gathers_.equal_range(at);
      for (auto gather = begin; gather != end; ++gather) put_together(gather->second.parameter, gather->second.turn);
      copy(order_[at]);
    }
    for (const ValueId output : graph_.outputs) result_.outputs.push_back(map_[index(output)]);
    return std::move(result_);
  }

 private:
  struct Gather {
    size_t parameter = 0;  // number of an input
    int64_t turn = 1;      // forwards, or 2: backwards
  };

  bool is_parameter(size_t input) const { return input >= first_ && input < first_ + num_parameters_; }

  void find_forward(size_t num_results) {
    std::vector<bool> needed(graph_.values().size(), false);
    for (size_t i = 0; i < num_results; ++i) needed[index(graph_.outputs[i])] = true;
    is_forward_.assign(graph_.nodes().size(), false);
    for (size_t n = graph_.nodes().size(); n-- > 0;) {
      const Node& node = graph_.nodes()[n];
      is_forward_[n] =
          std::any_of(node.outputs.begin(), node.outputs.end(), [&](ValueId v) { return needed[index(v)]; });
      if (!is_forward_[n]) continue;
      for (const ValueId input : node.inputs) needed[index(input)] = true;
    }
  }

  // Collectives, and what only prepares their operands, as soon as they can be; all others in their order.
  void find_order() {
    const std::vector<std::vector<NodeId>> users = graph_.users();
    const size_t count = graph_.nodes().size();
    std::vector<bool> eager(count, false), done(count, false);
    for (size_t n = count; n-- > 0;) {
      const Node& node = graph_.nodes()[n];
      eager[n] = find_collective_kind(node.op->name).has_value();
      if (eager[n] || (node.op->name != "reshape" && node.op->name != "pad")) continue;
      const std::vector<NodeId>& readers = users[index(node.outputs[0])];
      eager[n] = !readers.empty() && std::all_of(readers.begin(), readers.end(),
                                                 [&](NodeId reader) { return eager[static_cast<size_t>(reader)]; });
    }
    const auto is_ready = [&](NodeId n) {
      return std::all_of(graph_.node(n).inputs.begin(), graph_.node(n).inputs.end(), [&](ValueId v) {
        const NodeId producer = graph_.value(v).producer;
        return producer < 0 || done[static_cast<size_t>(producer)] ||
               graph_.node(producer).op->kind == OpKind::kConstant;
      });
    };
    const auto put = [&](const auto& self, NodeId n) -> void {
      for (const ValueId input : graph_.node(n).inputs)  // constants that stand further behind
        if (const NodeId producer = graph_.value(input).producer; producer >= 0 && !done[static_cast<size_t>(producer)])
          self(self, producer);
      done[static_cast<size_t>(n)] = true;
      order_.push_back(n);
      for (const ValueId output : graph_.node(n).outputs)
        for (const NodeId reader : users[index(output)])
          if (eager[static_cast<size_t>(reader)] && !done[static_cast<size_t>(reader)] && is_ready(reader))
            self(self, reader);
    };
    for (NodeId n = 0; static_cast<size_t>(n) < count; ++n)
      if (!done[static_cast<size_t>(n)]) put(put, n);
  }

  void plan_gathers() {
    for (const int64_t turn : {1, 2}) {
      struct Use {
        size_t at = 0, parameter = 0;
        int64_t bytes = 0;
      };
      std::vector<Use> uses;  // the first of each, in order
      size_t begin = order_.size();
      std::vector<bool> seen(graph_.inputs.size(), false);
      for (size_t at = 0; at < order_.size(); ++at) {
        if (is_forward_[static_cast<size_t>(order_[at])] != (turn == 1)) continue;
        const Node& node = graph_.node(order_[at]);
        if (node.op->kind != OpKind::kConstant) begin = std::min(begin, at);
        for (const ValueId input : node.inputs)
          for (size_t i = first_; i < first_ + num_parameters_; ++i) {
            if (graph_.inputs[i] != input || seen[i]) continue;
            seen[i] = true;
            uses.push_back({at, i, dtype_bytes(graph_.type(input).dtype, graph_.type(input).num_elements())});
          }
      }
      // While the one before it is read, of those that are worth it: a bias hides nothing.
      constexpr int64_t kMuchLess = 4;
      for (size_t u = 0; u < uses.size(); ++u) {
        size_t at = begin;
        for (size_t before = u; before-- > 0;) {
          if (uses[before].bytes * kMuchLess < uses[u].bytes) continue;
          at = uses[before].at;
          break;
        }
        gathers_.emplace(at, Gather{uses[u].parameter, turn});
      }
    }
  }

  void put_together(size_t parameter, int64_t turn) {
    const ValueId input = graph_.inputs[parameter];
    builder_.set_loc("all_gather " + graph_.value(input).name);
    const GraphOps o{builder_, ops_};
    const ValueId part = result_.inputs[parameter];
    map_[index(input)] = Shards(o, how_).whole(part, graph_.type(input).shape, turn);
  }

  void copy(NodeId n) {
    Node node = graph_.node(n);
    std::vector<TensorType> types;
    std::vector<std::string> names;
    for (ValueId& input : node.inputs) input = map_[index(input)];
    for (const ValueId output : node.outputs) {
      types.push_back(graph_.type(output));
      names.push_back(graph_.value(output).name);
    }
    const std::vector<ValueId> outputs = std::exchange(node.outputs, {});
    const NodeId id = result_.add_node(std::move(node), std::move(types), std::move(names));
    for (size_t i = 0; i < outputs.size(); ++i) map_[index(outputs[i])] = result_.node(id).outputs[i];
  }

  const Graph& graph_;
  const size_t first_, num_parameters_;
  const DataParallel& how_;
  const OpTable& ops_;
  Graph result_;
  GraphBuilder builder_;
  std::vector<bool> is_forward_;  // by node
  std::vector<NodeId> order_;
  std::multimap<size_t, Gather> gathers_;  // before which place of the order
  std::vector<ValueId> map_;
};

}  // namespace

Graph gather_parameters(const Graph& graph, size_t first, size_t num_parameters, size_t num_alike,
                        const DataParallel& how, const OpTable& ops) {
  return Gathering(graph, first, num_parameters, num_alike, how, ops).run();
}

}  // namespace tessera::inline train
