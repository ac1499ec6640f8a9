#include "autodiff/nest_loops.h"

#include <cmath>
#include <memory>

#include "autodiff/control_flow.h"
#include "graph/control_flow.h"

namespace tessera::inline autodiff {
namespace {

constexpr int64_t kLeastTrip = 16;

size_t index(ValueId id) { return static_cast<size_t>(id); }

int64_t bytes_of(const TensorType& type) {
  return type.is_static() ? type.num_elements() * dtype_bits(type.dtype) / 8 : 0;
}

TensorType row_major(TensorType type) {
  type.layout = {};
  return type;
}

std::optional<int64_t> known_trip(const Graph& graph, const Node& loop) {
  const LoopParts parts = loop_parts(loop);
  if (parts.counted || parts.has_condition) return std::nullopt;
  return as_int(parts.max_trip ? *parts.max_trip : graph.type(loop.inputs[parts.first_scanned()]).shape[0]);
}

class Nesting {
 public:
  Nesting(const Graph& graph, const Node& loop, const OpTable& ops, int64_t trip)
      : source_(graph),
        loop_(loop),
        ops_(ops),
        builder_(result_.graph),
        body_(*loop.regions[0]),
        parts_(loop_parts(loop)),
        length_(static_cast<int64_t>(std::sqrt(static_cast<double>(trip)))),
        count_(trip / length_),
        trip_(trip) {}

  NestedLoop run() {
    Graph& graph = result_.graph;
    builder_.set_loc(loop_.loc);
    std::vector<ValueId> carried, scanned, same;
    for (size_t i = 0; i < loop_.inputs.size(); ++i) {
      const ValueId v = graph.add_input(source_.value(loop_.inputs[i]).name, row_major(source_.type(loop_.inputs[i])));
      (i < parts_.first_scanned() ? carried : i < parts_.first_invariant() ? scanned : same).push_back(v);
    }
    // The parts, each a loop of its own.
    const int64_t main = count_ * length_;
    std::vector<ValueId> operands = carried;
    for (size_t i = 0; i < scanned.size(); ++i) {
      Shape shape = graph.type(scanned[i]).shape;
      const ValueId rows = rows_of(scanned[i], parts_.scan_reversed[i] ? trip_ - main : 0, main);
      shape[0] = Expr(count_);
      shape.insert(shape.begin() + 1, Expr(length_));
      operands.push_back(op("reshape", {rows}, {{"shape", shape}}));
    }
    operands.insert(operands.end(), same.begin(), same.end());
    std::vector<ValueId> results = builder_.add_multi(ops_.get("loop"), operands, attrs(count_), {part()}, {});
    result_.outer = graph.value(results[0]).producer;
    for (size_t i = 0; i < parts_.stacked; ++i) {
      Shape shape = graph.type(results[parts_.carried + i]).shape;
      shape.erase(shape.begin());
      shape[0] = Expr(main);
      results[parts_.carried + i] = op("reshape", {results[parts_.carried + i]}, {{"shape", shape}});
    }
    if (main < trip_) {
      operands.assign(results.begin(), results.begin() + static_cast<std::ptrdiff_t>(parts_.carried));
      for (size_t i = 0; i < scanned.size(); ++i)
        operands.push_back(rows_of(scanned[i], parts_.scan_reversed[i] ? 0 : main, trip_ - main));
      operands.insert(operands.end(), same.begin(), same.end());
      operands.push_back(number(main));
      const std::vector<ValueId> rest =
          builder_.add_multi(ops_.get("loop"), operands, attrs(trip_ - main), {step()}, {});
      for (size_t i = 0; i < rest.size(); ++i) {
        if (i < parts_.carried) {
          results[i] = rest[i];
          continue;
        }
        const bool backwards = parts_.stack_reversed[i - parts_.carried] != 0;
        results[i] = op(
            "concat", backwards ? std::vector<ValueId>{rest[i], results[i]} : std::vector<ValueId>{results[i], rest[i]},
            {{"axis", int64_t{0}}});
      }
    }
    graph.outputs = results;
    return std::move(result_);
  }

 private:
  ValueId op(std::string_view name, std::vector<ValueId> inputs, Attrs attrs) {
    return builder_.add(ops_.get(name), std::move(inputs), std::move(attrs));
  }
  ValueId number(int64_t value) {
    Tensor tensor(DType::kI64, {});
    tensor.set_int(0, value);
    return op("constant", {}, {{"value", std::make_shared<const Tensor>(std::move(tensor))}});
  }
  ValueId rows_of(ValueId v, int64_t first, int64_t count) {
    Shape sizes = result_.graph.type(v).shape;
    sizes[0] = Expr(count);
    std::vector<int64_t> starts(sizes.size(), 0), steps(sizes.size(), 1);
    starts[0] = first;
    return op("slice", {v}, {{"starts", starts}, {"sizes", sizes}, {"steps", steps}});
  }
  Attrs attrs(int64_t trip) const {
    Attrs attrs = loop_.attrs;
    attrs.set("max_trip", Shape{Expr(trip)});
    return attrs;
  }

  // The body, whose iterations are counted from a further invariant on.
  std::shared_ptr<const Graph> step() const {
    auto graph = std::make_shared<Graph>();
    graph->name = body_.name;
    GraphBuilder builder(*graph);
    std::vector<ValueId> inputs;
    for (const ValueId v : body_.inputs) inputs.push_back(graph->add_input(body_.value(v).name, body_.type(v)));
    const ValueId first = graph->add_input("first", {DType::kI64, {}, {}});
    inputs[0] = builder.add(ops_.get("add"), {inputs[0], first});
    std::vector<ValueId> map(body_.values().size(), -1);
    for (size_t i = 0; i < inputs.size(); ++i) map[index(body_.inputs[i])] = inputs[i];
    for (const Node& node : body_.nodes()) {
      Node copy = node;
      std::vector<TensorType> types;
      std::vector<std::string> names;
      for (ValueId& v : copy.inputs) v = map[index(v)];
      for (const ValueId v : node.outputs) {
        types.push_back(body_.type(v));
        names.push_back(body_.value(v).name);
      }
      const std::vector<ValueId> made =
          graph->node(graph->add_node(std::move(copy), std::move(types), std::move(names))).outputs;
      for (size_t i = 0; i < made.size(); ++i) map[index(node.outputs[i])] = made[i];
    }
    for (const ValueId v : body_.outputs) graph->outputs.push_back(map[index(v)]);
    return graph;
  }

  // A part: `length_` iterations.
  std::shared_ptr<const Graph> part() const {
    auto graph = std::make_shared<Graph>();
    graph->name = body_.name + ".part";
    GraphBuilder builder(*graph);
    const ValueId i = graph->add_input("part", {DType::kI64, {}, {}});
    std::vector<ValueId> operands;
    for (size_t k = 0; k < loop_.inputs.size(); ++k) {
      TensorType type = row_major(source_.type(loop_.inputs[k]));
      if (k >= parts_.first_scanned() && k < parts_.first_invariant()) type.shape[0] = Expr(length_);
      operands.push_back(graph->add_input(source_.value(loop_.inputs[k]).name, type));
    }
    Tensor length(DType::kI64, {});
    length.set_int(0, length_);
    const ValueId factor =
        builder.add(ops_.get("constant"), {}, {{"value", std::make_shared<const Tensor>(std::move(length))}});
    operands.push_back(builder.add(ops_.get("mul"), {i, factor}));
    builder.set_loc(loop_.loc);
    graph->outputs = builder.add_multi(ops_.get("loop"), operands, attrs(length_), {step()}, {});
    return graph;
  }

  const Graph& source_;
  const Node& loop_;
  const OpTable& ops_;
  NestedLoop result_;
  GraphBuilder builder_;
  const Graph& body_;
  const LoopParts parts_;
  const int64_t length_, count_, trip_;
};

}  // namespace

int64_t bytes_kept(const Graph& graph, const Node& loop) {
  const auto trip = known_trip(graph, loop);
  if (!trip) return 0;
  const Graph& body = *loop.regions[0];
  const LoopParts parts = loop_parts(loop);
  int64_t bytes = 0;
  for (size_t i = 0; i < parts.carried; ++i) bytes += bytes_of(body.type(body.inputs[parts.kFirstCarriedInput + i]));
  for (const Node& node : body.nodes())
    if (!is_cheap_again(node))
      for (const ValueId v : node.outputs) bytes += bytes_of(body.type(v));
  return bytes * *trip;
}

std::optional<NestedLoop> nested(const Graph& graph, const Node& loop, const OpTable& ops) {
  const auto trip = known_trip(graph, loop);
  if (!trip || *trip < kLeastTrip) return std::nullopt;
  return Nesting(graph, loop, ops, *trip).run();
}

}  // namespace tessera::inline autodiff
