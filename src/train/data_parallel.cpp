#include "train/data_parallel.h"

#include <fmt/format.h>

#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "support/error.h"
#include "train/graph_ops.h"
#include "train/shards.h"
#include "types/mesh.h"

namespace tessera::inline train {
namespace {

constexpr size_t kCount = 1;  // its place among the results
constexpr const char* kAxis = "data";

[[noreturn]] void refuse(const std::string& found, const std::string& legal) {
  throw UserError({.id = "TSR-2085", .message = found, .node = {}, .legal = legal, .hint = {}});
}

class Sharing {
 public:
  Sharing(const Graph& step, size_t num_batched, size_t num_statistics, const DataParallel& how, const OpTable& ops,
          std::ptrdiff_t part)
      : step_(step),
        num_batched_(num_batched),
        num_statistics_(num_statistics),
        how_(how),
        ops_(ops),
        part_(part < 0 ? -1 : step.inputs[static_cast<size_t>(part)]) {}

  Graph run() { return how_.leaves > 0 ? gathered() : reduced(); }

 private:
  std::string name_of(size_t result) const { return step_.value(step_.outputs[result]).name; }
  const TensorType& type_of(size_t result) const { return step_.type(step_.outputs[result]); }

  // Of gradients, each rank's part is all that it needs.
  bool is_cut(size_t result) const { return how_.is_cut() && result > kCount + num_statistics_; }

  ValueId shared(const GraphOps& o, const char* op, ValueId operand, size_t result, const char* kind = nullptr) const {
    o.builder.set_loc(fmt::format("{} {}", op, name_of(result)));
    return collective(o, op, operand, how_, kind, name_of(result) + ".shared");
  }

  ValueId mean(const GraphOps& o, ValueId sum, size_t result) const {
    return result == kCount ? sum : o.times(sum, 1.0 / static_cast<double>(how_.parts()));
  }

  // One part a rank.
  Graph reduced() const {
    Graph graph = part_ < 0 ? step_ : of_one_part(how_.rank);
    GraphBuilder builder(graph);
    const GraphOps o{builder, ops_};
    for (size_t r = 0; r < step_.outputs.size(); ++r) {
      if (r > kCount && r <= kCount + num_statistics_) continue;
      const bool scatters = is_cut(r) && how_.zero > 1;
      const Shards shards(o, how_);
      const ValueId part = scatters ? shards.row(graph.outputs[r]) : graph.outputs[r];
      ValueId sum = shared(o, scatters ? "reduce_scatter" : "all_reduce", part, r, "sum");
      if (is_cut(r) && !scatters) sum = shards.own(shards.row(sum));
      give(graph, r, mean(o, sum, r));
    }
    return graph;
  }

  // The step of a part of this number.
  Graph of_one_part(int64_t number) const {
    Graph graph;
    graph.copy_header(step_);
    GraphBuilder builder(graph);
    builder.set_loc("training.part");
    std::vector<ValueId> map(step_.values().size(), -1);
    for (const ValueId input : step_.inputs)
      if (input != part_) map[static_cast<size_t>(input)] = graph.add_input(step_.value(input).name, step_.type(input));
    map[static_cast<size_t>(part_)] = GraphOps{builder, ops_}.integer(number);
    append_nodes(graph, step_, map);
    for (const ValueId output : step_.outputs) graph.outputs.push_back(map[static_cast<size_t>(output)]);
    return graph;
  }

  // The name of a result goes over to what it is now.
  void give(Graph& graph, size_t result, ValueId value) const {
    const std::string name = name_of(result);
    if (graph.value(graph.outputs[result]).name == name)
      graph.rename(graph.outputs[result], graph.unique_name(name + ".part"));
    graph.rename(value, name);
    graph.outputs[result] = value;
  }

  static Shape with_first(int64_t extent, const Shape& shape) {
    Shape result = shape;
    result.insert(result.begin(), extent);
    return result;
  }

  ValueId reshaped(const GraphOps& o, ValueId v, Shape shape) const { return o.op("reshape", {v}, {{"shape", shape}}); }

  // What this rank has of a result in the end.
  Shape shape_of(size_t result) const {
    return is_cut(result) ? Shape{shard_size(type_of(result).num_elements(), how_.ranks)} : type_of(result).shape;
  }

  // Of one part: what all ranks have made of theirs, one row each.
  GraphPtr body() const {
    auto body = std::make_shared<Graph>();
    body->name = "part";
    body->symbols = step_.symbols;
    const ValueId own = body->add_input("part", TensorType{DType::kI64, {}, {}});  // of this rank's
    std::vector<ValueId> map(step_.values().size(), -1);
    for (const ValueId input : step_.inputs)
      if (input != part_) map[static_cast<size_t>(input)] = body->add_input(step_.value(input).name, step_.type(input));
    GraphBuilder builder(*body);
    const GraphOps o{builder, ops_};
    builder.set_loc("training.part");
    if (part_ >= 0)  // DataParallel::part()
      map[static_cast<size_t>(part_)] = o.add(o.mul(own, o.integer(how_.ranks)), o.integer(how_.rank));
    append_nodes(*body, step_, map);
    for (size_t r = 0; r < step_.outputs.size(); ++r) {
      const ValueId own = map[static_cast<size_t>(step_.outputs[r])];
      if (is_cut(r)) {
        const ValueId parts = shared(o, "all_to_all", Shards(o, how_).row(own), r);
        body->outputs.push_back(reshaped(o, parts, with_first(how_.ranks, shape_of(r))));
      } else {
        body->outputs.push_back(shared(o, "all_gather", reshaped(o, own, with_first(1, type_of(r).shape)), r));
      }
    }
    return body;
  }

  Graph gathered() const {
    Graph graph;
    graph.copy_header(step_);
    GraphBuilder builder(graph);
    const GraphOps o{builder, ops_};
    std::vector<ValueId> operands;
    const int64_t parts = how_.parts_of_rank();
    for (size_t i = 0; i < step_.inputs.size(); ++i) {
      if (step_.inputs[i] == part_) continue;
      TensorType type = step_.type(step_.inputs[i]);
      const bool is_batched = i < num_batched_;
      const Shape part = type.shape;
      if (is_batched) {
        const auto samples = part.empty() ? std::nullopt : as_int(part[0]);
        if (!samples)
          refuse(fmt::format("input '{}' is {}", step_.value(step_.inputs[i]).name, type.to_string()),
                 "samples along dimension 0, as many as a number says");
        type.shape[0] = *samples * parts;
      }
      const ValueId input = graph.add_input(step_.value(step_.inputs[i]).name, type);
      operands.push_back(is_batched ? reshaped(o, input, with_first(parts, part)) : input);
    }
    builder.set_loc("parts");
    const std::vector<ValueId> rows =
        builder.add_multi(ops_.get("loop"), operands, {{"num_scanned", static_cast<int64_t>(num_batched_)}}, {body()});
    for (size_t r = 0; r < rows.size(); ++r) {
      builder.set_loc(name_of(r) + ".leaves");
      const Shape shape = shape_of(r);
      const ValueId sum = tree(o, reshaped(o, rows[r], with_first(how_.leaves, shape)), shape);
      graph.outputs.push_back(-1);
      const ValueId value = mean(o, sum, r);
      graph.rename(value, name_of(r));
      graph.outputs.back() = value;
    }
    return graph;
  }

  ValueId tree(const GraphOps& o, ValueId rows, const Shape& shape) const {
    PartTree sum(o);
    const Shape all = o.type(rows).shape;
    for (int64_t leaf = 0; leaf < how_.leaves; ++leaf) {
      std::vector<int64_t> starts(all.size(), 0), steps(all.size(), 1);
      starts[0] = leaf;
      Shape sizes = all;
      sizes[0] = 1;
      sum.add(reshaped(o, o.op("slice", {rows}, {{"starts", starts}, {"sizes", sizes}, {"steps", steps}}), shape));
    }
    return sum.sum();
  }

  const Graph& step_;
  const size_t num_batched_, num_statistics_;
  const DataParallel& how_;
  const OpTable& ops_;
  const ValueId part_;  // the input that is its number; -1: none
};

}  // namespace

void check_data_parallel(const DataParallel& how) {
  if (how.ranks < 1 || how.leaves < 0 || how.leaves % how.ranks != 0)
    refuse(fmt::format("{} leaves for {} ranks", how.leaves, how.ranks), "as many leaves for each rank");
  check_pipeline(how.pipeline);
  const int64_t micro_batches = how.pipeline.micro_batches;
  if (how.pipeline.is_used() && how.leaves > 0 && how.leaves != how.ranks * micro_batches)
    refuse(fmt::format("{} leaves for {} micro-batches of {} ranks", how.leaves, micro_batches, how.ranks),
           "as many leaves as micro-batches");
  if (how.pipeline.is_used() && how.leaves > 0 && how.ranks > 1 && (micro_batches & (micro_batches - 1)) != 0)
    refuse(fmt::format("leaves of {} micro-batches of several ranks", micro_batches),
           "a power of two of micro-batches, whose sum is a part of the tree");
  if (how.pipeline.is_used() && how.zero > 2) refuse("zero = 3 of a pipeline", "zero = 0, 1 or 2");
  if (how.zero < 0 || how.zero > 3) refuse(fmt::format("zero = {}", how.zero), "0, or a stage from 1 to 3");
}

Mesh mesh_of(const DataParallel& how) {
  Mesh mesh{{{kAxis, how.ranks}}};
  if (how.pipeline.is_used()) mesh.axes.push_back({"stage", how.pipeline.stages});
  if (how.tensor > 1) mesh.axes.push_back({"model", how.tensor});
  return mesh;
}

void PartTree::add(ValueId part) {
  sums_.emplace_back(1, part);
  while (sums_.size() > 1 && sums_[sums_.size() - 2].first == sums_.back().first) {
    const auto [count, right] = sums_.back();
    sums_.pop_back();
    sums_.back() = {2 * count, o_.add(sums_.back().second, right)};
  }
}

ValueId PartTree::sum() const {
  check(!sums_.empty(), "the sum of no parts");
  ValueId sum = sums_.back().second;
  for (size_t i = sums_.size() - 1; i-- > 0;) sum = o_.add(sums_[i].second, sum);
  return sum;
}

Graph share_batch(const Graph& step, size_t num_batched, size_t num_statistics, const DataParallel& how,
                  const OpTable& ops, std::ptrdiff_t part) {
  check_data_parallel(how);
  return how.is_used() ? Sharing(step, num_batched, num_statistics, how, ops, part).run() : step;
}

ValueId collective(const GraphOps& o, const char* op, ValueId v, const DataParallel& how, const char* kind,
                   const std::string& name, const std::string& along, int64_t turn) {
  Attrs attrs = {{"axes", along}, {"mesh", mesh_of(how).to_string()}};
  if (turn != 0) attrs.set("turn", turn);
  if (kind) attrs.set("kind", std::string(kind));
  return o.builder.add(o.ops.get(op), {v}, std::move(attrs), name);
}

}  // namespace tessera::inline train
