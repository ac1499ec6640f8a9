#include "dist/localize.h"

#include <fmt/format.h>

#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "support/error.h"

namespace tessera::inline dist {
namespace {

size_t index(ValueId v) { return static_cast<size_t>(v); }

// Elements begin .. begin + dims of a tensor of bytes or larger elements.
Tensor part_of(const Tensor& whole, const std::vector<int64_t>& begin, const std::vector<int64_t>& dims) {
  Tensor part(whole.dtype(), dims);
  const int64_t size = dtype_bits(whole.dtype()) / 8;
  const size_t rank = dims.size();
  const int64_t row = rank == 0 ? 1 : dims[rank - 1];
  const int64_t rows = part.num_elements() / std::max<int64_t>(row, 1);
  for (int64_t r = 0; r < rows; ++r) {
    int64_t rest = r, at = 0, stride = 1;
    std::vector<int64_t> place(rank, 0);
    for (size_t d = rank > 0 ? rank - 1 : 0; d-- > 0;) {
      place[d] = rest % dims[d];
      rest /= dims[d];
    }
    for (size_t d = rank; d-- > 0;) {
      at += (begin[d] + place[d]) * stride;
      stride *= whole.dims()[d];
    }
    std::memcpy(part.mutable_bytes() + r * row * size, whole.bytes() + at * size, static_cast<size_t>(row * size));
  }
  return part;
}

class Localizer {
 public:
  Localizer(const Graph& graph, const ShardingPlan& plan, int64_t rank, const OpTable& ops)
      : graph_(graph), plan_(plan), rank_(rank), ops_(ops), builder_(local_) {}

  Graph run() {
    local_.name = graph_.name;
    for (const ValueId input : graph_.inputs) {
      const ValueId whole = local_.add_input(graph_.value(input).name, graph_.type(input));
      Sharding all = Sharding::replicated(graph_.type(input).shape.size());
      have_[{input, all.to_string()}] = whole;
      builder_.set_loc(graph_.value(input).name);
      moved(input, all, plan_.values[index(input)]);
    }
    for (size_t n = 0; n < graph_.nodes().size(); ++n) add(graph_.nodes()[n], plan_.nodes[n]);
    for (const ValueId output : graph_.outputs) {
      builder_.set_loc("outputs");
      ValueId whole = needed(output, Sharding::replicated(graph_.type(output).shape.size()));
      // A graph's outputs are values of their own, under their names.
      local_.outputs.push_back(whole);
      const std::string& name = graph_.value(output).name;
      if (local_.value(whole).name == name) continue;
      for (size_t i = 0; i < local_.values().size(); ++i)
        if (local_.values()[i].name == name) local_.rename(static_cast<ValueId>(i), local_.unique_name(name + ".part"));
      local_.rename(whole, name);
    }
    return std::move(local_);
  }

 private:
  ValueId op(const char* name, std::vector<ValueId> inputs, Attrs attrs, const std::string& result = "") {
    return builder_.add(ops_.get(name), std::move(inputs), std::move(attrs), result);
  }

  // The value as the plan's node needs it.
  ValueId needed(ValueId value, const Sharding& sharding) { return moved(value, plan_.values[index(value)], sharding); }

  ValueId moved(ValueId value, const Sharding& from, const Sharding& to) {
    Sharding now = from;
    ValueId at = have_.at({value, from.to_string()});
    for (const Move& move : moves_between(from, to)) {
      now = after_move(now, move);
      const auto [known, is_new] = have_.try_emplace({value, now.to_string()}, -1);
      if (is_new) known->second = do_move(value, at, move);
      at = known->second;
    }
    return at;
  }

  ValueId do_move(ValueId value, ValueId at, const Move& move) {
    const std::string& name = graph_.value(value).name;
    const size_t rank = local_.type(at).shape.size();
    const int64_t places = plan_.mesh.group_size({move.axis});
    if (move.kind == MoveKind::kKeepPart) {
      std::vector<int64_t> sizes = *static_dims(local_.type(at).shape), starts(rank, 0), steps(rank, 1);
      const auto d = static_cast<size_t>(move.to);
      sizes[d] /= places;
      starts[d] = sizes[d] * plan_.mesh.place_of(rank_)[static_cast<size_t>(plan_.mesh.find(move.axis))];
      return op("slice", {at}, {{"starts", starts}, {"sizes", sizes}, {"steps", steps}}, name + ".part");
    }
    Attrs attrs = {{"mesh", plan_.mesh.to_string()}, {"axes", move.axis}};
    if (move.combiner != CollectiveCombiner::kNone)
      attrs.set("kind", std::string(collective_combiner_name(move.combiner)));
    const std::string loc = builder_.loc();
    builder_.set_loc(fmt::format("{} {}", move_kind_name(move.kind), name));
    ValueId result = -1;
    switch (move.kind) {
      case MoveKind::kAllReduce: result = op("all_reduce", {at}, attrs, name + ".shared"); break;
      case MoveKind::kReduceScatter:
        result = from_front(op("reduce_scatter", {to_front(at, move.to)}, attrs, name + ".shared"), move.to);
        break;
      case MoveKind::kAllGather:
        result = from_front(op("all_gather", {to_front(at, move.from)}, attrs, name + ".shared"), move.from);
        break;
      default: {
        // The parts along `to` in front; what comes from the ranks are parts along `from`, outermost there.
        const auto to = static_cast<size_t>(move.to), from = static_cast<size_t>(move.from);
        const std::vector<int64_t> dims = *static_dims(local_.type(at).shape);
        std::vector<int64_t> cut = dims;  // to -> [places, rest]
        cut[to] = dims[to] / places;
        cut.insert(cut.begin() + static_cast<std::ptrdiff_t>(to), places);
        const ValueId front = to_front(op("reshape", {at}, {{"shape", cut}}), static_cast<int>(to));
        ValueId exchanged = op("all_to_all", {front}, attrs, name + ".shared");
        exchanged = from_front(exchanged, static_cast<int>(from));  // [.., places, from, ..]
        std::vector<int64_t> joined = dims;
        joined[to] /= places;
        joined[from] *= places;
        result = op("reshape", {exchanged}, {{"shape", joined}});
      }
    }
    builder_.set_loc(loc);
    return result;
  }

  // Dimension d becomes the first one, and back.
  ValueId to_front(ValueId value, int d) {
    if (d == 0) return value;
    std::vector<int64_t> order = {d};
    for (int i = 0; i < static_cast<int>(local_.type(value).shape.size()); ++i)
      if (i != d) order.push_back(i);
    return op("transpose", {value}, {{"perm", order}});
  }
  ValueId from_front(ValueId value, int d) {
    if (d == 0) return value;
    std::vector<int64_t> order;
    for (int i = 0; i < static_cast<int>(local_.type(value).shape.size()); ++i)
      order.push_back(i < d ? i + 1 : i == d ? 0 : i);
    return op("transpose", {value}, {{"perm", order}});
  }

  void add(const Node& node, const NodePlan& plan) {
    builder_.set_loc(node.loc);
    if (node.op->kind == OpKind::kConstant) return add_constant(node);
    std::vector<ValueId> inputs;
    for (size_t i = 0; i < node.inputs.size(); ++i) inputs.push_back(needed(node.inputs[i], plan.operands[i]));
    builder_.set_loc(node.loc);
    const bool is_whole = std::all_of(plan.results.begin(), plan.results.end(), [](const Sharding& s) {
      return std::all_of(s.dims.begin(), s.dims.end(), [](const auto& axes) { return axes.empty(); });
    });
    Attrs attrs = node.attrs;
    if (!is_whole) {
      const std::optional<Attrs> own = local_attrs(graph_, node, plan, plan_.mesh);
      check(own.has_value(), "a node was divided that cannot be: " + graph_.value(node.outputs[0]).name);
      attrs = *own;
    }
    std::vector<std::string> names;
    for (const ValueId output : node.outputs) names.push_back(graph_.value(output).name);
    const std::vector<ValueId> results = builder_.add_multi(*node.op, inputs, attrs, node.regions, names);
    for (size_t i = 0; i < results.size(); ++i) {
      const TensorType want = local_type(graph_.type(node.outputs[i]), plan.results[i], plan_.mesh);
      check(static_dims(local_.type(results[i]).shape) == static_dims(want.shape),
            "a part of another shape than planned: " + graph_.value(node.outputs[i]).name);
      have_[{node.outputs[i], plan.results[i].to_string()}] = results[i];
    }
  }

  void add_constant(const Node& node) {
    const ValueId value = node.outputs[0];
    const Sharding& sharding = plan_.values[index(value)];
    const TensorPtr whole = node.attrs.get<TensorPtr>("value");
    Attrs attrs = node.attrs;
    if (!sharding.is_replicated())
      attrs.set("value", TensorPtr(std::make_shared<const Tensor>(
                             part_of(*whole, local_begin(sharding, whole->dims(), plan_.mesh, rank_),
                                     local_dims(sharding, whole->dims(), plan_.mesh)))));
    have_[{value, sharding.to_string()}] = builder_.add(*node.op, {}, attrs, graph_.value(value).name);
  }

  const Graph& graph_;
  const ShardingPlan& plan_;
  const int64_t rank_;
  const OpTable& ops_;
  Graph local_;
  GraphBuilder builder_;
  std::map<std::pair<ValueId, std::string>, ValueId> have_;  // by value and sharding
};

}  // namespace

Graph localize(const Graph& graph, const ShardingPlan& plan, int64_t rank, const OpTable& ops) {
  return Localizer(graph, plan, rank, ops).run();
}

std::vector<PlannedMove> planned_collectives(const Graph& graph, const ShardingPlan& plan) {
  std::vector<PlannedMove> moves;
  std::set<std::pair<ValueId, std::string>> have;
  const auto bring = [&](ValueId value, const Sharding& from, const Sharding& to) {
    Sharding now = from;
    for (const Move& move : moves_between(from, to)) {
      const TensorType part = local_type(graph.type(value), now, plan.mesh);
      int64_t elements = 1;
      for (const int64_t d : part.dims()) elements *= d;
      now = after_move(now, move);
      if (!have.emplace(value, now.to_string()).second || move.kind == MoveKind::kKeepPart) continue;
      moves.push_back({graph.value(value).name, move, sent_bytes(move, dtype_bytes(part.dtype, elements), plan.mesh)});
    }
  };
  for (size_t n = 0; n < graph.nodes().size(); ++n)
    for (size_t i = 0; i < graph.nodes()[n].inputs.size(); ++i) {
      const ValueId value = graph.nodes()[n].inputs[i];
      bring(value, plan.values[index(value)], plan.nodes[n].operands[i]);
    }
  for (const ValueId output : graph.outputs)
    bring(output, plan.values[index(output)], Sharding::replicated(graph.type(output).shape.size()));
  return moves;
}

}  // namespace tessera::inline dist
