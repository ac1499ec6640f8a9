#include "train/pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "autodiff/functions.h"
#include "graph/subgraph.h"
#include "ops/op_util.h"
#include "support/error.h"
#include "train/graph_ops.h"
#include "train/shards.h"

namespace tessera::inline train {
namespace {

constexpr size_t kOwnResults = 2;  // the loss and the count

size_t index(ValueId v) { return static_cast<size_t>(v); }

[[noreturn]] void refuse(const std::string& found, const std::string& legal, const std::string& hint = "") {
  throw UserError({.id = "TSR-2086", .message = found, .node = {}, .legal = legal, .hint = hint});
}

// What of a model with its loss depends on what, and who reads it.
class Flow {
 public:
  Flow(const Graph& forward, size_t num_batched)
      : forward_(forward),
        early_(forward.values().size(), true),
        learns_(forward.values().size(), false),
        last_reader_(forward.values().size(), -1) {
    for (size_t i = 0; i < forward.inputs.size(); ++i) {
      const bool is_parameter = i > num_batched;
      early_[index(forward.inputs[i])] = is_parameter;
      learns_[index(forward.inputs[i])] = is_parameter;
    }
    const auto count = static_cast<NodeId>(forward.nodes().size());
    for (NodeId n = 0; n < count; ++n) {
      const Node& node = forward.node(n);
      const auto any = [&](const std::vector<bool>& of, bool wanted) {
        return std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId v) { return of[index(v)] == wanted; });
      };
      const bool is_early = !any(early_, false), learns = any(learns_, true);
      for (const ValueId output : node.outputs) {
        early_[index(output)] = is_early;
        learns_[index(output)] = learns && is_real(forward.type(output).dtype);
      }
    }
    for (NodeId n = 0; n < count; ++n)
      if (!is_early(n))
        for (const ValueId input : forward.node(n).inputs) last_reader_[index(input)] = n;
    // Statistics stay where they are computed.
    for (size_t i = 0; i < std::min(kOwnResults, forward.outputs.size()); ++i)
      last_reader_[index(forward.outputs[i])] = count;
  }

  // Nodes that follow from parameters and constants alone: of no chunk by themselves.
  bool is_early(NodeId n) const {
    const Node& node = forward_.node(n);
    return node.outputs.empty() || early_[index(node.outputs[0])];
  }
  bool learns(ValueId v) const { return learns_[index(v)]; }

  // Values computed before node `at` that something from there on needs.
  std::vector<ValueId> crossing(int64_t at) const {
    std::vector<ValueId> values;
    for (NodeId n = 0; n < at; ++n)
      if (!is_early(n))
        for (const ValueId output : forward_.node(n).outputs)
          if (last_reader_[index(output)] >= at) values.push_back(output);
    return values;
  }

  // The nodes that need each input of the model, by way of early nodes, too, ascending.
  std::map<ValueId, std::vector<NodeId>> readers() const {
    std::vector<std::set<ValueId>> from(forward_.values().size());  // of early values: which inputs
    for (const ValueId input : forward_.inputs)
      if (early_[index(input)]) from[index(input)] = {input};
    std::map<ValueId, std::vector<NodeId>> result;
    for (NodeId n = 0; static_cast<size_t>(n) < forward_.nodes().size(); ++n) {
      const Node& node = forward_.node(n);
      std::set<ValueId> read;
      for (const ValueId input : node.inputs) read.insert(from[index(input)].begin(), from[index(input)].end());
      if (is_early(n)) {
        for (const ValueId output : node.outputs) from[index(output)] = read;
        continue;
      }
      for (const ValueId input : read) result[input].push_back(n);
    }
    return result;
  }

 private:
  const Graph& forward_;
  std::vector<bool> early_;   // by value: of parameters and constants alone
  std::vector<bool> learns_;  // by value: a real number that depends on parameters
  std::vector<NodeId> last_reader_;
};

int64_t bytes_of(const Graph& graph, const std::vector<ValueId>& values) {
  int64_t bytes = 0;
  for (const ValueId v : values) bytes += dtype_bytes(graph.type(v).dtype, graph.type(v).num_elements());
  return bytes;
}

// At most `most` of them: those that the least goes over, and of equal ones every so many.
std::vector<CutPlace> thinned(std::vector<CutPlace> places, size_t most) {
  if (places.size() <= most) return places;
  std::vector<int64_t> bytes;
  for (const CutPlace& place : places) bytes.push_back(place.bytes);
  std::nth_element(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(most), bytes.end());
  const int64_t limit = bytes[most];
  size_t below = 0, equal = 0;
  for (const CutPlace& place : places) (place.bytes < limit ? below : equal) += place.bytes <= limit ? 1 : 0;
  const size_t room = most - below;
  size_t seen = 0;
  std::vector<CutPlace> result;
  for (CutPlace& place : places) {
    if (place.bytes > limit) continue;
    bool stays = place.bytes < limit;
    if (!stays) {
      stays = (seen + 1) * room / equal > seen * room / equal;
      ++seen;
    }
    if (stays) result.push_back(std::move(place));
  }
  return result;
}

}  // namespace

std::vector<CutPlace> cut_places(const Graph& forward, size_t num_batched, size_t most) {
  const Flow flow(forward, num_batched);
  const auto readers = flow.readers();
  std::vector<CutPlace> places;
  bool is_first = true;
  for (NodeId n = 0; static_cast<size_t>(n) < forward.nodes().size(); ++n) {
    if (flow.is_early(n)) continue;
    if (std::exchange(is_first, false)) continue;
    CutPlace place{n, flow.crossing(n), 0};
    place.bytes = bytes_of(forward, place.values);
    for (const auto& [input, nodes] : readers)
      if (is_real(forward.type(input).dtype) && nodes.front() < n && nodes.back() >= n)
        place.bytes += bytes_of(forward, {input});
    places.push_back(std::move(place));
  }
  if (places.size() <= most) return places;
  std::vector<CutPlace> narrow;
  for (size_t i = 0; i < places.size(); ++i)
    if ((i == 0 || places[i].bytes <= places[i - 1].bytes) &&
        (i + 1 == places.size() || places[i].bytes <= places[i + 1].bytes))
      narrow.push_back(places[i]);
  return thinned(std::move(narrow), most);
}

PipelineChunk pipeline_chunk(const Graph& forward, size_t num_batched, int64_t begin, int64_t end, const OpTable& ops) {
  const Flow flow(forward, num_batched);
  PipelineChunk chunk;
  chunk.given = flow.crossing(begin);
  const bool is_last = static_cast<size_t>(end) == forward.nodes().size();
  const auto own_end = forward.outputs.begin() + std::min<std::ptrdiff_t>(kOwnResults, std::ssize(forward.outputs));
  chunk.results = is_last ? std::vector<ValueId>(forward.outputs.begin(), own_end) : flow.crossing(end);
  std::vector<ValueId> outputs = chunk.results;
  for (NodeId n = static_cast<NodeId>(begin); n < static_cast<NodeId>(end); ++n)
    for (const ValueId output : forward.node(n).outputs)
      if (std::find(own_end, forward.outputs.end(), output) != forward.outputs.end())
        chunk.statistics.push_back(output), outputs.push_back(output);
  Subgraph part{{}, chunk.given, outputs};
  std::vector<bool> needed(forward.values().size(), false);
  const std::set<ValueId> given(chunk.given.begin(), chunk.given.end());
  const auto need = [&](ValueId v) {
    if (!given.contains(v)) needed[index(v)] = true;
  };
  for (const ValueId output : outputs) need(output);
  for (auto n = static_cast<NodeId>(end); n-- > 0;) {
    const Node& node = forward.node(n);
    if (node.op->kind == OpKind::kConstant) continue;  // extract() adds those that are read
    if (std::none_of(node.outputs.begin(), node.outputs.end(), [&](ValueId v) { return needed[index(v)]; })) continue;
    check(n >= begin || flow.is_early(n), "a chunk of a pipeline needs what stands before it: " + node.loc);
    part.nodes.insert(n);
    for (const ValueId input : node.inputs) need(input);
  }
  std::vector<size_t> wrt;
  for (size_t i = 0; i < chunk.given.size(); ++i)
    if (flow.learns(chunk.given[i])) wrt.push_back(i), chunk.wrt.push_back(chunk.given[i]);
  for (size_t i = 0; i < forward.inputs.size(); ++i) {
    const ValueId input = forward.inputs[i];
    if (!needed[index(input)]) continue;
    if (i > num_batched && is_real(forward.type(input).dtype))
      wrt.push_back(part.inputs.size()), chunk.wrt.push_back(input);
    part.inputs.push_back(input);
    chunk.own.push_back(input);
  }
  chunk.graph = vector_jacobian(extract(forward, part), wrt, ops, chunk.results.size());
  const Graph& graph = chunk.graph;
  std::vector<bool> of_results(graph.values().size(), false);
  for (size_t i = 0; i < outputs.size(); ++i) of_results[index(graph.outputs[i])] = true;
  chunk.is_forward.assign(graph.nodes().size(), false);
  for (size_t n = graph.nodes().size(); n-- > 0;) {
    const Node& node = graph.nodes()[n];
    chunk.is_forward[n] =
        std::any_of(node.outputs.begin(), node.outputs.end(), [&](ValueId v) { return of_results[index(v)]; });
    if (!chunk.is_forward[n]) continue;
    for (const ValueId input : node.inputs) of_results[index(input)] = true;
  }
  return chunk;
}

namespace {

void check_cuts(const Graph& forward, const PipelineShape& how) {
  const auto count = static_cast<int64_t>(forward.nodes().size());
  int64_t before = 0;
  for (const int64_t cut : how.cuts) {
    if (cut <= before || cut >= count)
      refuse(fmt::format("a cut before node {} of {}", cut, count), "cuts that rise, each behind a node of its own");
    before = cut;
  }
  if (std::ssize(how.cuts) + 1 != how.num_chunks())
    refuse(fmt::format("{} cuts for {} chunks", how.cuts.size(), how.num_chunks()), "one cut less than chunks");
}

// The chunks that need each input behind the learning rate, ascending.
std::map<ValueId, std::vector<int64_t>> chunks_of_inputs(const Graph& forward, size_t num_batched,
                                                         const PipelineShape& how) {
  const Flow flow(forward, num_batched);
  std::map<ValueId, std::vector<int64_t>> result;
  for (const auto& [input, nodes] : flow.readers())
    for (const NodeId n : nodes) {
      const int64_t chunk = std::upper_bound(how.cuts.begin(), how.cuts.end(), int64_t{n}) - how.cuts.begin();
      std::vector<int64_t>& chunks = result[input];
      if (chunks.empty() || chunks.back() != chunk) chunks.push_back(chunk);
    }
  return result;
}

}  // namespace

std::vector<std::vector<int64_t>> stages_of_parameters(const Graph& forward, size_t num_batched,
                                                       const PipelineShape& how) {
  check_cuts(forward, how);
  const auto chunks = chunks_of_inputs(forward, num_batched, how);
  std::vector<std::vector<int64_t>> stages;
  for (size_t i = num_batched + 1; i < forward.inputs.size(); ++i) {
    stages.emplace_back();
    if (const auto found = chunks.find(forward.inputs[i]); found != chunks.end())
      for (const int64_t chunk : found->second)
        if (const int64_t stage = how.stage_of(chunk);
            std::find(stages.back().begin(), stages.back().end(), stage) == stages.back().end())
          stages.back().push_back(stage);
  }
  return stages;
}

namespace {

class RankGraph {
 public:
  RankGraph(const Graph& forward, size_t num_batched, const DataParallel& how, const OpTable& ops, std::ptrdiff_t part)
      : forward_(forward),
        num_batched_(num_batched),
        how_(how),
        pipeline_(how.pipeline),
        ops_(ops),
        part_(part < 0 ? -1 : forward.inputs[static_cast<size_t>(part)]),
        builder_(graph_) {}

  PipelineStep run(const std::vector<ValueId>& wrt) {
    const std::vector<std::vector<int64_t>> stages = stages_of_parameters(forward_, num_batched_, pipeline_);
    chunks_of_ = chunks_of_inputs(forward_, num_batched_, pipeline_);
    graph_.copy_header(forward_);
    for (size_t i = 0; i < forward_.inputs.size(); ++i) {
      const ValueId input = forward_.inputs[i];
      TensorType type = forward_.type(input);
      if (input == part_) continue;
      if (i < num_batched_) type.shape[0] = samples(input) * pipeline_.micro_batches;
      if (i > num_batched_ && is_real(type.dtype) && !is_of_stage(stages[i - num_batched_ - 1], pipeline_.stage))
        continue;
      inputs_[input] = graph_.add_input(forward_.value(input).name, type);
    }
    for (int64_t c = 0; c < pipeline_.num_chunks(); ++c) {
      const int64_t begin = c == 0 ? 0 : cut(c - 1);
      const int64_t end = c + 1 == pipeline_.num_chunks() ? std::ssize(forward_.nodes()) : cut(c);
      if (is_mine(c)) chunks_.emplace(c, pipeline_chunk(forward_, num_batched_, begin, end, ops_));
    }
    number_messages();
    builder_.set_loc("pipeline");
    order_ = constant(Tensor(DType::kU8, {0}));
    const std::vector<PipelineSlot> slots = pipeline_slots(pipeline_, pipeline_.stage);
    for (size_t i = 0; i < slots.size(); ++i) {
      receive(slots[i]);
      // Ranks that share layers meet within slots, and whoever waits for that waits for all messages that were begun
      // before: none may be that the other stage sends only later.
      if (i + 1 < slots.size() && how_.tensor == 1) receive(slots[i + 1]);
      slots[i].forward ? forward(slots[i]) : backward(slots[i]);
    }
    give_results(wrt);
    return {std::move(graph_)};
  }

 private:
  using Place = std::pair<int64_t, int64_t>;  // chunk and micro-batch

  GraphOps o() { return {builder_, ops_}; }
  // What nobody reads is the first stage's.
  static bool is_of_stage(const std::vector<int64_t>& stages, int64_t stage) {
    return stages.empty() ? stage == 0 : std::find(stages.begin(), stages.end(), stage) != stages.end();
  }
  bool is_mine(int64_t chunk) const { return pipeline_.stage_of(chunk) == pipeline_.stage; }
  int64_t cut(int64_t number) const { return pipeline_.cuts[static_cast<size_t>(number)]; }
  bool is_last(int64_t chunk) const { return chunk + 1 == pipeline_.num_chunks(); }

  ValueId constant(Tensor tensor) {
    return builder_.add(ops_.get("constant"), {}, {{"value", std::make_shared<const Tensor>(std::move(tensor))}});
  }
  ValueId filled(const TensorType& type, double value) {
    Tensor tensor(type.dtype, {});
    tensor.set_double(0, value);
    const ValueId scalar = constant(std::move(tensor));
    return type.shape.empty() ? scalar : o().op("broadcast", {scalar}, {{"shape", type.shape}});
  }

  int64_t samples(ValueId input) const {
    const Shape& shape = forward_.type(input).shape;
    const auto count = shape.empty() ? std::nullopt : as_int(shape[0]);
    if (!count)
      refuse(fmt::format("input '{}' is {}", forward_.value(input).name, forward_.type(input).to_string()),
             "samples along dimension 0, as many as a number says");
    return *count;
  }

  // A micro-batch of an input.
  ValueId part(ValueId input, int64_t micro_batch) {
    const auto [known, is_new] = parts_.try_emplace({input, micro_batch}, -1);
    if (!is_new) return known->second;
    if (input == part_) {
      builder_.set_loc("training.part");
      return known->second = o().integer(how_.part(micro_batch));
    }
    const ValueId whole = inputs_.at(input);
    const size_t place =
        static_cast<size_t>(std::find(forward_.inputs.begin(), forward_.inputs.end(), input) - forward_.inputs.begin());
    if (place >= num_batched_ || pipeline_.micro_batches == 1) return known->second = whole;
    Shape sizes = graph_.type(whole).shape;
    std::vector<int64_t> starts(sizes.size(), 0), steps(sizes.size(), 1);
    sizes[0] = samples(input);
    starts[0] = samples(input) * micro_batch;
    builder_.set_loc(forward_.value(input).name + ".part");
    return known->second = o().op("slice", {whole}, {{"starts", starts}, {"sizes", sizes}, {"steps", steps}});
  }

  // ---- messages ----

  // The same numbers on all ranks: of the values that go over each cut, forwards and then their gradients backwards.
  void number_messages() {
    const Flow flow(forward_, num_batched_);
    int64_t next = 0;
    for (int64_t c = 0; c + 1 < pipeline_.num_chunks(); ++c) {
      crossing_.push_back(flow.crossing(cut(c)));
      for (const ValueId v : crossing_.back())
        if (flow.learns(v)) learning_.insert(v);
      first_message_.push_back(next);
      next += 2 * std::ssize(crossing_.back()) * pipeline_.micro_batches;
    }
    for (const auto& [input, chunks] : chunks_of_) {
      if (chunks.size() < 2) continue;
      first_of_shared_[input] = next;
      next += std::ssize(chunks) * pipeline_.micro_batches;
    }
    constexpr int64_t kMost = 1 << 15;
    if (next > kMost)
      refuse(fmt::format("{} messages a step", next), fmt::format("at most {}", kMost), "choose fewer micro-batches");
  }
  int64_t message_number(int64_t chunk, size_t value, int64_t micro_batch, bool forward) const {
    return first_message_[static_cast<size_t>(chunk)] +
           2 * (static_cast<int64_t>(value) * pipeline_.micro_batches + micro_batch) + (forward ? 0 : 1);
  }
  Attrs message_attrs(int64_t stage, int64_t number) const {
    const Mesh mesh = mesh_of(how_);
    std::vector<int64_t> place = {how_.rank, stage};
    if (how_.tensor > 1) place.push_back(how_.tensor_rank);
    return {{"axes", std::string(how_.tensor > 1 ? "data,stage,model" : "data,stage")},
            {"mesh", mesh.to_string()},
            {"peer", mesh.rank_at(place)},
            {"message", number}};
  }
  void send_to(int64_t stage, int64_t number, const std::string& name, ValueId what) {
    builder_.set_loc("send " + name);
    order_ = builder_.add(ops_.get("send"), {what, order_}, message_attrs(stage, number), name + ".sent");
  }
  ValueId receive_from(int64_t stage, int64_t number, const std::string& name, const TensorType& type) {
    Attrs attrs = message_attrs(stage, number);
    attrs.set("shape", type.shape);
    attrs.set("dtype", type.dtype);
    builder_.set_loc("receive " + name);
    return builder_.add(ops_.get("receive"), {order_}, std::move(attrs), name + ".received");
  }

  void send(int64_t over, size_t value, int64_t micro_batch, bool forward, ValueId what) {
    send_to(pipeline_.stage_of(forward ? over + 1 : over), message_number(over, value, micro_batch, forward),
            message_name(over, value, micro_batch, forward), what);
  }
  ValueId receive_one(int64_t over, size_t value, int64_t micro_batch, bool forward) {
    return receive_from(
        pipeline_.stage_of(forward ? over : over + 1), message_number(over, value, micro_batch, forward),
        message_name(over, value, micro_batch, forward), forward_.type(crossing_[static_cast<size_t>(over)][value]));
  }
  std::string message_name(int64_t over, size_t value, int64_t micro_batch, bool forward) const {
    return fmt::format("{}{}.{}", forward_.value(crossing_[static_cast<size_t>(over)][value]).name,
                       forward ? "" : ".gradient", micro_batch);
  }

  // What a slot needs of another rank, once.
  void receive(const PipelineSlot& slot) {
    const Place place{slot.chunk, slot.micro_batch};
    const int64_t over = slot.forward ? slot.chunk - 1 : slot.chunk;  // the cut, by the chunk before it
    if (over < 0 || (!slot.forward && is_last(slot.chunk)) || is_mine(slot.forward ? over : over + 1)) return;
    auto& arrived = slot.forward ? given_ : given_back_;
    const auto [known, is_new] = arrived.try_emplace(place);
    if (!is_new) return;
    const std::vector<ValueId>& values = crossing_[static_cast<size_t>(over)];
    for (size_t i = 0; i < values.size(); ++i)
      if (slot.forward || learning_.contains(values[i]))
        known->second[values[i]] = receive_one(over, i, slot.micro_batch, slot.forward);
  }

  // ---- slots ----

  void append(const PipelineSlot& slot) {
    const PipelineChunk& chunk = chunks_.at(slot.chunk);
    std::vector<ValueId>& map = maps_.at({slot.chunk, slot.micro_batch});
    const std::string suffix = fmt::format(".{}", slot.micro_batch);
    for (size_t n = 0; n < chunk.graph.nodes().size(); ++n) {
      if (chunk.is_forward[n] != slot.forward) continue;
      Node node = chunk.graph.nodes()[n];
      for (ValueId& input : node.inputs) input = map[index(input)];
      std::vector<TensorType> types;
      std::vector<std::string> names;
      for (const ValueId output : node.outputs) {
        types.push_back(chunk.graph.type(output));
        names.push_back(chunk.graph.value(output).name + suffix);
      }
      const std::vector<ValueId> outputs = std::exchange(node.outputs, {});
      const NodeId id = graph_.add_node(std::move(node), std::move(types), std::move(names));
      for (size_t i = 0; i < outputs.size(); ++i) map[index(outputs[i])] = graph_.node(id).outputs[i];
    }
  }

  void forward(const PipelineSlot& slot) {
    const PipelineChunk& chunk = chunks_.at(slot.chunk);
    const Place place{slot.chunk, slot.micro_batch};
    std::vector<ValueId>& map = maps_.try_emplace(place, chunk.graph.values().size(), -1).first->second;
    for (size_t i = 0; i < chunk.given.size(); ++i)
      map[index(chunk.graph.inputs[i])] = given_.at(place).at(chunk.given[i]);
    for (size_t i = 0; i < chunk.own.size(); ++i)
      map[index(chunk.graph.inputs[chunk.given.size() + i])] = part(chunk.own[i], slot.micro_batch);
    append(slot);
    const auto result = [&](size_t i) { return map[index(chunk.graph.outputs[i])]; };
    for (size_t i = 0; i < chunk.statistics.size(); ++i) {
      builder_.set_loc(forward_.value(chunk.statistics[i]).name);
      statistics_.try_emplace(chunk.statistics[i], PartTree(ops_of_tree_))
          .first->second.add(result(chunk.results.size() + i));
    }
    if (is_last(slot.chunk)) {
      losses_.push_back(result(0));
      counts_.push_back(result(1));
      return;
    }
    for (size_t i = 0; i < chunk.results.size(); ++i) {
      if (is_mine(slot.chunk + 1)) given_[{slot.chunk + 1, slot.micro_batch}][chunk.results[i]] = result(i);
      else send(slot.chunk, i, slot.micro_batch, true, result(i));
    }
  }

  void backward(const PipelineSlot& slot) {
    const PipelineChunk& chunk = chunks_.at(slot.chunk);
    const Place place{slot.chunk, slot.micro_batch};
    std::vector<ValueId>& map = maps_.at(place);
    size_t input = chunk.given.size() + chunk.own.size();
    for (const ValueId result : chunk.results) {
      const TensorType& type = forward_.type(result);
      if (!is_real(type.dtype)) continue;
      builder_.set_loc("pipeline");
      map[index(chunk.graph.inputs[input++])] = is_last(slot.chunk)          ? filled(type, 1)
                                                : learning_.contains(result) ? given_back_.at(place).at(result)
                                                                             : filled(type, 0);
    }
    append(slot);
    for (size_t i = 0; i < chunk.wrt.size(); ++i) {
      const ValueId gradient = map[index(chunk.graph.outputs[chunk.results.size() + chunk.statistics.size() + i])];
      const auto& given = chunk.given;
      const auto found = std::find(given.begin(), given.end(), chunk.wrt[i]);
      if (found == given.end()) {
        builder_.set_loc(forward_.value(chunk.wrt[i]).name + ".gradient");
        if (is_exact(chunk.wrt[i])) terms_[{chunk.wrt[i], slot.chunk}].push_back(gradient);
        else gradients_.try_emplace({chunk.wrt[i], slot.chunk}, PartTree(ops_of_tree_)).first->second.add(gradient);
      } else if (is_mine(slot.chunk - 1)) {
        given_back_[{slot.chunk - 1, slot.micro_batch}][chunk.wrt[i]] = gradient;
      } else {
        send(slot.chunk - 1, static_cast<size_t>(found - given.begin()), slot.micro_batch, false, gradient);
      }
    }
    maps_.erase(place);
  }

  // ---- results ----

  // Of several chunks, and to be added as one process does: of each micro-batch over all chunks, the last one first,
  // then over micro-batches.
  bool is_exact(ValueId parameter) const { return how_.leaves > 0 && chunks_of_.at(parameter).size() > 1; }

  // The gradient of a parameter over all micro-batches of this row; -1: it has none.
  ValueId gradient_of(ValueId parameter) {
    const auto known = chunks_of_.find(parameter);
    if (known == chunks_of_.end()) return -1;
    const std::vector<int64_t>& chunks = known->second;
    if (chunks.size() == 1) return gradients_.at({parameter, chunks[0]}).sum();
    const int64_t rows = is_exact(parameter) ? pipeline_.micro_batches : 1;
    // What a chunk gives: one term for each row.
    std::map<int64_t, std::vector<ValueId>> terms;
    for (const int64_t chunk : chunks)
      if (is_mine(chunk))
        terms[chunk] = is_exact(parameter) ? terms_.at({parameter, chunk})
                                           : std::vector<ValueId>{gradients_.at({parameter, chunk}).sum()};
    std::set<int64_t> others;
    for (const int64_t chunk : chunks)
      if (!is_mine(chunk)) others.insert(pipeline_.stage_of(chunk));
    PartTree sum(ops_of_tree_);
    for (int64_t row = 0; row < rows; ++row) {
      const auto number = [&](size_t place) {
        return first_of_shared_.at(parameter) + static_cast<int64_t>(place) * pipeline_.micro_batches + row;
      };
      const auto name = [&](size_t place) {
        return fmt::format("{}.gradient.chunk{}.{}", forward_.value(parameter).name, chunks[place], row);
      };
      for (size_t place = 0; place < chunks.size(); ++place)
        if (is_mine(chunks[place]))
          for (const int64_t stage : others)
            send_to(stage, number(place), name(place), terms[chunks[place]][static_cast<size_t>(row)]);
      ValueId all = -1;
      for (size_t place = chunks.size(); place-- > 0;) {
        const ValueId term = is_mine(chunks[place]) ? terms[chunks[place]][static_cast<size_t>(row)]
                                                    : receive_from(pipeline_.stage_of(chunks[place]), number(place),
                                                                   name(place), forward_.type(parameter));
        builder_.set_loc(forward_.value(parameter).name + ".gradient");
        all = all < 0 ? term : o().add(all, term);
      }
      sum.add(all);
    }
    return sum.sum();
  }

  // The sum over rows of stages, in the order of the parts where that counts. `scatters`: this rank's part of it.
  ValueId over_rows(ValueId own, const std::string& name, bool scatters = false) {
    if (scatters) return part_over_rows(own, name);
    return how_.ranks > 1 ? added_over_rows(own, name) : own;
  }

  // Of gradients of which each row keeps a part: a sum of parts where that is less to send.
  ValueId part_over_rows(ValueId own, const std::string& name) {
    const GraphOps ops = o();
    const Shards shards(ops, how_);
    if (how_.zero < 2 || how_.leaves > 0) return shards.own(shards.row(added_over_rows(own, name)));
    builder_.set_loc("reduce_scatter " + name);
    return shards.sum(own);
  }

  ValueId added_over_rows(ValueId own, const std::string& name) {
    builder_.set_loc("all_reduce " + name);
    if (how_.leaves == 0) return collective(o(), "all_reduce", own, how_, "sum", name + ".shared", "data");
    const Shape shape = graph_.type(own).shape;
    Shape row = shape, all = shape;
    row.insert(row.begin(), 1);
    all.insert(all.begin(), how_.ranks);
    const ValueId rows = collective(o(), "all_gather", o().op("reshape", {own}, {{"shape", row}}), how_, nullptr,
                                    name + ".shared", "data");
    const GraphOps ops = o();
    PartTree sum(ops);
    for (int64_t r = 0; r < how_.ranks; ++r) {
      std::vector<int64_t> starts(all.size(), 0), steps(all.size(), 1);
      starts[0] = r;
      const ValueId one = ops.op("slice", {rows}, {{"starts", starts}, {"sizes", row}, {"steps", steps}});
      sum.add(ops.op("reshape", {one}, {{"shape", shape}}));
    }
    return sum.sum();
  }

  // Of what the last stage has, for all stages: the others add zeros.
  ValueId over_stages(const std::vector<ValueId>& parts, ValueId like, const std::string& name) {
    builder_.set_loc(name);
    ValueId sum = -1;
    if (parts.empty()) {
      sum = filled(forward_.type(like), 0);
    } else {
      PartTree tree(ops_of_tree_);
      for (const ValueId part : parts) tree.add(part);
      sum = tree.sum();
    }
    sum = over_rows(sum, name);
    if (pipeline_.stages == 1) return sum;
    builder_.set_loc("all_reduce " + name);
    return collective(o(), "all_reduce", sum, how_, "sum", name + ".of_stages", "stage");
  }

  void give_results(const std::vector<ValueId>& wrt) {
    const double share = 1.0 / static_cast<double>(how_.parts());
    std::vector<ValueId> outputs;
    const auto give = [&](ValueId value, const std::string& name) {
      builder_.set_loc(name);
      const ValueId own = o().op("reshape", {value}, {{"shape", graph_.type(value).shape}});
      graph_.rename(own, graph_.unique_name(name));
      outputs.push_back(own);
    };
    const ValueId loss = over_stages(losses_, forward_.outputs[0], "loss");
    const ValueId count = over_stages(counts_, forward_.outputs[1], "correct");
    give(o().times(loss, share), "loss");
    give(count, "correct");
    for (size_t i = kOwnResults; i < forward_.outputs.size(); ++i)
      if (const auto sum = statistics_.find(forward_.outputs[i]); sum != statistics_.end()) {
        const std::string name = forward_.value(forward_.outputs[i]).name;
        const ValueId all = over_rows(sum->second.sum(), name);
        builder_.set_loc(name);
        give(o().times(all, share), name);
      }
    for (const ValueId parameter : wrt) {
      const auto found = inputs_.find(parameter);
      if (found == inputs_.end()) continue;
      const std::string name = forward_.value(parameter).name + ".gradient";
      ValueId own = gradient_of(parameter);
      builder_.set_loc(name);
      if (own < 0) own = filled(forward_.type(parameter), 0);
      const ValueId all = over_rows(own, name, how_.is_cut());
      builder_.set_loc(name);
      give(o().times(all, share), name);
    }
    outputs.push_back(order_);
    graph_.outputs = std::move(outputs);
  }

  const Graph& forward_;
  const size_t num_batched_;
  const DataParallel& how_;
  const PipelineShape& pipeline_;
  const OpTable& ops_;
  const ValueId part_;  // the input that is its number; -1: none
  Graph graph_;
  GraphBuilder builder_;
  const GraphOps ops_of_tree_{builder_, ops_};
  std::map<ValueId, std::vector<int64_t>> chunks_of_;               // by input of `forward_` behind the learning rate
  std::map<ValueId, int64_t> first_of_shared_;                      // messages of those of several chunks
  std::map<ValueId, ValueId> inputs_;                               // by input of `forward_`
  std::map<std::pair<ValueId, int64_t>, ValueId> parts_;            // of inputs, by micro-batch
  std::map<int64_t, PipelineChunk> chunks_;                         // this stage's
  std::vector<std::vector<ValueId>> crossing_;                      // by the chunk before the cut
  std::set<ValueId> learning_;                                      // of them: those with gradients
  std::vector<int64_t> first_message_;                              // by the chunk before the cut
  std::map<Place, std::map<ValueId, ValueId>> given_, given_back_;  // values, and gradients of results
  std::map<Place, std::vector<ValueId>> maps_;                      // by value of the chunk's graph
  std::map<Place, PartTree> gradients_;                             // by parameter and chunk
  std::map<Place, std::vector<ValueId>> terms_;                     // the same, by micro-batch, where they are exact
  std::map<ValueId, PartTree> statistics_;                          // by output of `forward_`
  std::vector<ValueId> losses_, counts_;                            // of micro-batches
  ValueId order_ = -1;                                              // behind the last message
};

}  // namespace

PipelineStep pipeline_step(const Graph& forward, size_t num_batched, const std::vector<ValueId>& wrt,
                           const DataParallel& how, const OpTable& ops, std::ptrdiff_t part) {
  check_data_parallel(how);
  return RankGraph(forward, num_batched, how, ops, part).run(wrt);
}

}  // namespace tessera::inline train
