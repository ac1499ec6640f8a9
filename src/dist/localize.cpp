#include "dist/localize.h"

#include <fmt/format.h>

#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "dist/forms.h"
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
  Localizer(const Graph& graph, const ShardingPlan& plan, int64_t rank, const OpTable& ops, const Mesh& within)
      : graph_(graph),
        plan_(plan),
        rank_(rank),
        ops_(ops),
        mesh_text_(within.to_string()),
        builder_(local_),
        forms_(graph, plan.mesh, plan.speed) {}

  Graph run() {
    local_.name = graph_.name;
    for (size_t i = 0; i < graph_.num_own_inputs(); ++i) {
      const ValueId input = graph_.inputs[i];
      const ValueId whole = local_.add_input(graph_.value(input).name, graph_.type(input));
      const Sharding all = Sharding::replicated(graph_.type(input).shape.size());
      have_[{input, all.to_string()}] = whole;
      builder_.set_loc(graph_.value(input).name);
      moved(input, all, moves_between(all, plan_.values[index(input)], graph_.type(input), plan_.mesh, plan_.speed));
      made(input);
    }
    for (size_t i = 0; i < graph_.states.size(); ++i) add_state(i);
    for (size_t n = 0; n < graph_.nodes().size(); ++n) add(graph_.nodes()[n], plan_.nodes[n]);
    for (size_t o = 0; o < graph_.outputs.size(); ++o) {
      const ValueId output = graph_.outputs[o];
      builder_.set_loc("outputs");
      ValueId whole = needed(output, sharding_of_output(graph_, plan_, o));
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

  void add_state(size_t number) {
    const ValueId input = graph_.state_input(number);
    const Sharding& sharding = plan_.values[index(input)];
    const ValueId own =
        local_.add_input(graph_.value(input).name, local_type(graph_.type(input), sharding, plan_.mesh));
    have_[{input, sharding.to_string()}] = own;
    State state = graph_.states[number];
    if (state.initial) state.initial = own_part(state.initial, sharding);
    local_.states.push_back(std::move(state));
    made(input);
  }

  TensorPtr own_part(const TensorPtr& whole, const Sharding& sharding) const {
    if (sharding.is_replicated()) return whole;
    return std::make_shared<const Tensor>(part_of(*whole, local_begin(sharding, whole->dims(), plan_.mesh, rank_),
                                                  local_dims(sharding, whole->dims(), plan_.mesh)));
  }

  // The value as the plan's node needs it.
  ValueId needed(ValueId value, const Sharding& sharding) {
    const auto [from, moves] = forms_.bring(value, sharding);
    return moved(value, from, moves);
  }

  // It is there as the plan has it.
  void made(ValueId value) {
    forms_.add(value, plan_.values[index(value)]);
    if (!plan_.forms.empty() && plan_.forms[index(value)]) needed(value, *plan_.forms[index(value)]);
  }

  ValueId moved(ValueId value, const Sharding& from, const std::vector<Move>& moves) {
    Sharding now = from;
    ValueId at = have_.at({value, from.to_string()});
    for (const Move& move : moves) {
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
    Attrs attrs = {{"mesh", mesh_text_}, {"axes", move.axis}};
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
    for (const NodePlan::Window& window : plan.windows) inputs[0] = with_halo(node, window, inputs[0], attrs);
    if (!plan.looked_up.empty()) {
      have_[{node.outputs[0], plan.results[0].to_string()}] = look_up(node, plan, inputs, attrs, names[0]);
      made(node.outputs[0]);
      return;
    }
    const std::vector<ValueId> results = builder_.add_multi(*node.op, inputs, attrs, node.regions, names);
    for (size_t i = 0; i < results.size(); ++i) {
      const TensorType want = local_type(graph_.type(node.outputs[i]), plan.results[i], plan_.mesh);
      check(static_dims(local_.type(results[i]).shape) == static_dims(want.shape),
            "a part of another shape than planned: " + graph_.value(node.outputs[i]).name);
      have_[{node.outputs[i], plan.results[i].to_string()}] = results[i];
      made(node.outputs[i]);
    }
  }

  ValueId rows(ValueId value, int d, int64_t begin, int64_t count) {
    std::vector<int64_t> sizes = *static_dims(local_.type(value).shape), starts(sizes.size(), 0),
                         steps(sizes.size(), 1);
    if (begin == 0 && count == sizes[static_cast<size_t>(d)]) return value;
    starts[static_cast<size_t>(d)] = begin;
    sizes[static_cast<size_t>(d)] = count;
    return op("slice", {value}, {{"starts", starts}, {"sizes", sizes}, {"steps", steps}});
  }

  // The rows that this rank's windows need: neighbours give each other what stands at their borders, as much as any of
  // them needs. What is padding is said by the attributes.
  ValueId with_halo(const Node& node, const NodePlan::Window& window, ValueId own, Attrs& attrs) {
    const Halo halo = halo_of(graph_, node, window, plan_.mesh);
    const int d = window.dim;
    const auto dim = static_cast<size_t>(d);
    const int64_t places = plan_.mesh.group_size({window.axis});
    const int64_t place = plan_.mesh.place_of(rank_)[static_cast<size_t>(plan_.mesh.find(window.axis))];
    const int64_t all = static_dims(graph_.type(node.inputs[0]).shape)->at(dim), each = all / places;
    const int64_t iterations = static_dims(graph_.type(node.outputs[0]).shape)->at(dim) / places;
    const int64_t low = place * iterations * window.reach.step + window.reach.low;
    const int64_t high = ((place + 1) * iterations - 1) * window.reach.step + window.reach.high;
    const int64_t first = std::max<int64_t>(low, 0), last = std::min(high, all - 1);
    for (const auto& [name, padding] : {std::pair{"pads_begin", first - low}, std::pair{"pads_end", high - last}}) {
      auto pads = attrs.get<std::vector<int64_t>>(name);
      pads[dim - 2] = padding;
      attrs.set(name, pads);
    }
    const auto from_neighbour = [&](int64_t begin, int64_t count, int64_t by) {
      if (count == 0) return ValueId{-1};
      const std::string name = graph_.value(node.inputs[0]).name, loc = builder_.loc();
      const ValueId border = rows(own, d, begin, count);
      builder_.set_loc("halo " + name);
      const ValueId given =
          op("rank_shift", {border}, {{"mesh", mesh_text_}, {"axes", window.axis}, {"by", by}}, name + ".halo");
      builder_.set_loc(loc);
      return given;
    };
    const ValueId above = from_neighbour(each - halo.before, halo.before, 1), below = from_neighbour(0, halo.after, -1);
    const int64_t before = std::max<int64_t>(place * each - first, 0),
                  after = std::max<int64_t>(last + 1 - (place + 1) * each, 0);
    const int64_t begin = std::max<int64_t>(first - place * each, 0), end = std::min(last + 1 - place * each, each);
    std::vector<ValueId> parts;
    if (before > 0) parts.push_back(rows(above, d, halo.before - before, before));
    parts.push_back(rows(own, d, begin, end - begin));
    if (after > 0) parts.push_back(rows(below, d, 0, after));
    return parts.size() == 1 ? parts[0] : op("concat", parts, {{"axis", int64_t{d}}});
  }

  ValueId number(int64_t value, DType dtype) {
    Tensor tensor(dtype, {});
    tensor.set_int(0, value);
    return op("constant", {}, {{"value", TensorPtr(std::make_shared<const Tensor>(std::move(tensor)))}});
  }

  // Rows of the whole table that this rank has, and zeros for the others.
  ValueId look_up(const Node& node, const NodePlan& plan, const std::vector<ValueId>& inputs, const Attrs& attrs,
                  const std::string& name) {
    const int64_t axis = attrs.get<int64_t>("axis");
    const auto d = static_cast<size_t>(axis);
    const int64_t rows = static_dims(graph_.type(node.inputs[0]).shape)->at(d);
    const int64_t own = static_dims(local_.type(inputs[0]).shape)->at(d);
    const int64_t first =
        local_begin(plan.operands[0], *static_dims(graph_.type(node.inputs[0]).shape), plan_.mesh, rank_)[d];
    const ValueId zero = number(0, DType::kI64);
    const ValueId wanted = op("cast", {inputs[1]}, {{"to", DType::kI64}});
    // As the operator has it: negative ones count from the end, what is still outside is clamped.
    const ValueId from_front =
        op("select", {op("lt", {wanted, zero}, {}), op("add", {wanted, number(rows, DType::kI64)}, {}), wanted}, {});
    const ValueId inside = op("max", {op("min", {from_front, number(rows - 1, DType::kI64)}, {}), zero}, {});
    const ValueId here = op("sub", {inside, number(first, DType::kI64)}, {});
    ValueId is_here =
        op("logical_and", {op("ge", {here, zero}, {}), op("lt", {here, number(own, DType::kI64)}, {})}, {});
    const ValueId place = op("max", {op("min", {here, number(own - 1, DType::kI64)}, {}), zero}, {});
    const ValueId found = builder_.add(*node.op, {inputs[0], place}, attrs);
    if (node.op->name == "gather") {  // the indices' dimensions stand at the axis's place
      std::vector<int64_t> shape(static_dims(local_.type(found).shape)->size(), 1);
      const std::vector<int64_t> of_indices = *static_dims(local_.type(is_here).shape);
      std::copy(of_indices.begin(), of_indices.end(), shape.begin() + axis);
      if (shape != of_indices) is_here = op("reshape", {is_here}, {{"shape", shape}});
    }
    Tensor nothing(local_.type(found).dtype, {});
    const ValueId none = op("constant", {}, {{"value", TensorPtr(std::make_shared<const Tensor>(std::move(nothing)))}});
    return op("select", {is_here, found, none}, {}, name);
  }

  void add_constant(const Node& node) {
    const ValueId value = node.outputs[0];
    const Sharding& sharding = plan_.values[index(value)];
    Attrs attrs = node.attrs;
    attrs.set("value", own_part(node.attrs.get<TensorPtr>("value"), sharding));
    have_[{value, sharding.to_string()}] = builder_.add(*node.op, {}, attrs, graph_.value(value).name);
    made(value);
  }

  const Graph& graph_;
  const ShardingPlan& plan_;
  const int64_t rank_;
  const OpTable& ops_;
  const std::string mesh_text_;
  Graph local_;
  GraphBuilder builder_;
  std::map<std::pair<ValueId, std::string>, ValueId> have_;  // by value and sharding
  Forms forms_;
};

}  // namespace

Graph localize(const Graph& graph, const ShardingPlan& plan, int64_t rank, const OpTable& ops, const Mesh* within) {
  return Localizer(graph, plan, rank, ops, within ? *within : plan.mesh).run();
}

std::vector<PlannedMove> planned_collectives(const Graph& graph, const ShardingPlan& plan) {
  std::vector<PlannedMove> planned;
  Forms forms(graph, plan.mesh, plan.speed);
  size_t before = 0;  // the node that is next
  const auto bring = [&](ValueId value, const Sharding& to) {
    auto [now, moves] = forms.bring(value, to);
    for (const Move& move : moves) {
      const int64_t bytes = local_bytes(graph.type(value), now, plan.mesh);
      now = after_move(now, move);
      if (move.kind != MoveKind::kKeepPart)
        planned.push_back({graph.value(value).name, move, sent_bytes(move, bytes, plan.mesh), bytes, before});
    }
  };
  const auto made = [&](ValueId value) {
    forms.add(value, plan.values[index(value)]);
    if (!plan.forms.empty() && plan.forms[index(value)]) bring(value, *plan.forms[index(value)]);
  };
  for (const ValueId input : graph.inputs) made(input);
  for (size_t n = 0; n < graph.nodes().size(); ++n) {
    const Node& node = graph.nodes()[n];
    for (size_t i = 0; i < node.inputs.size(); ++i) bring(node.inputs[i], plan.nodes[n].operands[i]);
    for (const NodePlan::Window& window : plan.nodes[n].windows)
      if (const int64_t bytes = halo_bytes(graph, node, plan.nodes[n], window, plan.mesh); bytes > 0)
        planned.push_back({graph.value(node.inputs[0]).name + ".halo",
                           {MoveKind::kShift, window.axis, CollectiveCombiner::kNone, -1, -1},
                           bytes,
                           bytes,
                           n});
    before = n + 1;
    for (const ValueId output : node.outputs) made(output);
  }
  for (size_t i = 0; i < graph.outputs.size(); ++i) bring(graph.outputs[i], sharding_of_output(graph, plan, i));
  return planned;
}

}  // namespace tessera::inline dist
