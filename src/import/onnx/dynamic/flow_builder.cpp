#include "import/onnx/dynamic/flow_builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>

#include "graph/op_def.h"
#include "support/error.h"

namespace tessera::inline onnx_import {

namespace {

// Every slot that a step or its blocks read.
void collect_reads(const FlowStep& step, std::set<SlotId>& slots) {
  slots.insert(step.inputs.begin(), step.inputs.end());
  for (const FlowBlock& block : step.blocks)
    for (const FlowStep& inner : block.steps) collect_reads(inner, slots);
}

}  // namespace

SlotId FlowParts::new_slot(FlowType type) {
  slots.push_back(std::move(type));
  return static_cast<SlotId>(slots.size()) - 1;
}

int64_t FlowParts::string_number(const std::string& text) {
  const auto [it, is_new] = string_numbers.emplace(text, static_cast<int64_t>(strings.size()));
  if (is_new) strings.push_back(text);
  return it->second;
}

SlotId FlowBuilder::slot_of(ValueId value) {
  if (const auto it = inputs_.find(value); it != inputs_.end()) return it->second;
  const auto [it, is_new] = exports_.emplace(value, -1);
  if (is_new) {
    const TensorType& type = graph_.type(value);
    it->second = parts_.new_slot({{}, is_string(value) ? DType::kString : type.dtype, DType::kI64, type.dims()});
  }
  return it->second;
}

ValueId FlowBuilder::value_of(SlotId slot, DType dtype, const std::vector<int64_t>& dims) {
  // A value that a step only hands on.
  for (const auto& [value, exported] : exports_)
    if (exported == slot) return value;
  const TensorType type{dtype == DType::kString ? DType::kI64 : dtype, make_shape(dims), {}};
  const auto [it, is_new] = input_values_.emplace(std::make_pair(slot, type.to_string()), -1);
  if (is_new) {
    it->second = graph_.add_input(graph_.unique_name(fmt::format("slot{}", slot)), type);
    inputs_[it->second] = slot;
    if (dtype == DType::kString) mark_string(it->second);
  }
  return it->second;
}

SlotId FlowBuilder::slot_of(const Binding& binding, const std::string& loc) {
  if (binding.is_value()) return slot_of(binding.value);
  const Structure& parts = *binding.parts;
  if (parts.kind == Structure::Kind::kSlot) return parts.slot;
  std::vector<SlotId> items;
  for (const Binding& item : parts.items) items.push_back(slot_of(item, loc));
  const SlotId made = parts_.new_slot(parts.type);
  if (parts.kind == Structure::Kind::kSequence) {
    add({FlowOp::kSequence, items, {made}, {static_cast<int64_t>(parts.type.dtype)}, -1, {}, loc});
  } else {
    add({FlowOp::kOptional, {items.empty() ? -1 : items[0]}, {made}, {}, -1, {}, loc});
  }
  return made;
}

// Gives the piece the nodes that `value` needs and no piece has.
void FlowBuilder::need(ValueId value, size_t piece) {
  std::vector<ValueId> pending{value};
  while (!pending.empty()) {
    const ValueId id = pending.back();
    pending.pop_back();
    const NodeId producer = graph_.value(id).producer;
    if (producer < 0 || is_constant(id) || piece_of_[static_cast<size_t>(producer)] >= 0) continue;
    piece_of_[static_cast<size_t>(producer)] = static_cast<int>(piece);
    pieces_[piece].nodes.push_back(producer);
    const Node& node = graph_.node(producer);
    pending.insert(pending.end(), node.inputs.begin(), node.inputs.end());
  }
}

FlowBlock FlowBuilder::finish(const std::vector<SlotId>& results,
                              const std::vector<std::pair<ValueId, RuntimeCheck>>& checks) {
  constant_.assign(graph_.values().size(), false);
  for (const Node& node : graph_.nodes()) {
    const bool constant =
        std::all_of(node.inputs.begin(), node.inputs.end(), [this](ValueId id) { return is_constant(id); });
    for (const ValueId output : node.outputs) constant_[static_cast<size_t>(output)] = constant;
  }
  piece_of_.assign(graph_.nodes().size(), -1);
  std::map<SlotId, ValueId> exported;
  for (const auto& [value, slot] : exports_) exported[slot] = value;

  // Which nodes belong to which piece.
  for (size_t k = 0; k <= steps_.size(); ++k) {
    std::set<SlotId> reads;
    if (k < steps_.size()) collect_reads(steps_[k], reads);
    else reads.insert(results.begin(), results.end());
    pieces_.push_back({k});
    for (const SlotId slot : reads)
      if (const auto it = exported.find(slot); it != exported.end() && !made_.count(it->second)) {
        need(it->second, pieces_.size() - 1);
        // A value may come from a piece before this one, which now has to give it.
        const NodeId producer = graph_.value(it->second).producer;
        const size_t maker = is_constant(it->second) ? pieces_.size() - 1
                                                     : static_cast<size_t>(piece_of_[static_cast<size_t>(producer)]);
        made_[it->second] = maker;
        pieces_[maker].outputs.push_back(it->second);
      }
    if (k == steps_.size())
      for (const auto& [value, check] : checks) {
        need(value, pieces_.size() - 1);
        pieces_.back().checks.emplace_back(value, check);
      }
  }
  // What one piece computes and another reads.
  for (size_t p = 0; p < pieces_.size(); ++p) {
    std::sort(pieces_[p].nodes.begin(), pieces_[p].nodes.end());
    std::vector<ValueId> reads;
    for (const NodeId id : pieces_[p].nodes) {
      const Node& node = graph_.node(id);
      reads.insert(reads.end(), node.inputs.begin(), node.inputs.end());
    }
    for (const auto& [value, check] : pieces_[p].checks) reads.push_back(value);
    for (const ValueId value : reads) {
      const NodeId producer = graph_.value(value).producer;
      if (producer < 0 || is_constant(value)) continue;
      const auto maker = static_cast<size_t>(piece_of_[static_cast<size_t>(producer)]);
      if (maker == p || !made_.emplace(value, maker).second) continue;
      slot_of(value);
      pieces_[maker].outputs.push_back(value);
    }
  }
  FlowBlock block;
  for (size_t p = 0; p < pieces_.size(); ++p) {
    if (!pieces_[p].outputs.empty() || !pieces_[p].checks.empty()) {
      FlowStep step;
      step.op = FlowOp::kPiece;
      build(pieces_[p], step);
      block.steps.push_back(std::move(step));
    }
    if (p < steps_.size()) block.steps.push_back(std::move(steps_[p]));
  }
  return block;
}

// The piece as a graph of its own.
void FlowBuilder::build(Piece& piece, FlowStep& step) {
  Graph result;
  std::map<ValueId, ValueId> map;
  std::function<ValueId(ValueId)> mapped;
  const auto copy = [&](const Node& source) {
    Node node = source;
    for (ValueId& input : node.inputs) input = mapped(input);
    std::vector<TensorType> types;
    std::vector<std::string> names;
    for (const ValueId output : source.outputs) {
      types.push_back(graph_.type(output));
      names.push_back(graph_.value(output).name);
    }
    const auto copies = result.node(result.add_node(std::move(node), std::move(types), std::move(names))).outputs;
    for (size_t i = 0; i < copies.size(); ++i) map[source.outputs[i]] = copies[i];
  };
  mapped = [&](ValueId value) -> ValueId {
    if (const auto it = map.find(value); it != map.end()) return it->second;
    if (is_constant(value)) {  // each piece has its own
      copy(graph_.node(graph_.value(value).producer));
      return map.at(value);
    }
    step.inputs.push_back(slot_of(value));
    return map[value] = result.add_input(graph_.value(value).name, graph_.type(value));
  };
  for (const NodeId id : piece.nodes) copy(graph_.node(id));
  for (const ValueId value : piece.outputs) {
    step.outputs.push_back(slot_of(value));
    step.ints.push_back(is_string(value));
    result.outputs.push_back(mapped(value));
  }
  for (auto& [value, check] : piece.checks) {
    result.outputs.push_back(mapped(value));
    result.checks.push_back(std::move(check));
  }
  step.piece = static_cast<int32_t>(parts_.pieces.size());
  result.name = fmt::format("piece{}", step.piece);
  parts_.pieces.push_back(std::move(result));
}

}  // namespace tessera::inline onnx_import
