// Builds one block of a flow while its nodes are imported. Values of fixed shapes are values of the block's graph;
// steps read them from slots, and what a step gives can be an input of the graph. When the block is complete, the graph
// is cut into pieces: each computes, right before a step, what that step reads and no piece before has computed.
#pragma once

#include <map>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "graph/flow.h"

namespace tessera::inline onnx_import {

struct Structure;

// What an ONNX name stands for: a value of the graph, or parts.
struct Binding {
  ValueId value = -1;                           // a tensor of fixed shape
  std::shared_ptr<const Structure> parts = {};  // else

  Binding() = default;
  Binding(ValueId v) : value(v) {}  // NOLINT: a tensor is a binding
  explicit Binding(Structure structure);
  bool is_value() const { return value >= 0; }
};

// Sequences and optionals whose parts are known while compiling are no objects of a run: whoever takes an element gets
// the element. Everything else is in a slot.
struct Structure {
  enum class Kind : uint8_t { kSequence, kOptional, kSlot } kind = Kind::kSlot;
  FlowType type;
  std::vector<Binding> items = {};  // kSequence; kOptional: none or one
  SlotId slot = -1;                 // kSlot
};

inline Binding::Binding(Structure structure) : parts(std::make_shared<const Structure>(std::move(structure))) {}

// What all blocks of a flow share.
struct FlowParts {
  std::vector<FlowType> slots;
  std::vector<Graph> pieces;
  std::map<int32_t, OpenPiece> open = {};
  std::vector<std::string> strings = {""};
  std::map<std::string, int64_t> string_numbers = {{"", 0}};

  SlotId new_slot(FlowType type);
  int64_t string_number(const std::string& text);
};

class FlowBuilder {
 public:
  FlowBuilder(Graph& graph, FlowParts& parts) : graph_(graph), parts_(parts) {}

  FlowParts& parts() { return parts_; }
  // Values of the graph that are numbers of strings.
  bool is_string(ValueId value) const { return strings_.count(value) != 0; }
  void mark_string(ValueId value) { strings_.insert(value); }

  // The slot in which steps find `value`.
  SlotId slot_of(ValueId value);
  // The same for anything; known parts become an object by a step of this place.
  SlotId slot_of(const Binding& binding, const std::string& loc);
  // The tensor in `slot`, which has this shape, as an input of the graph.
  ValueId value_of(SlotId slot, DType dtype, const std::vector<int64_t>& dims);
  // `value`, an input of the graph, is what `slot` holds.
  void bind_input(ValueId value, SlotId slot) { inputs_[value] = slot; }

  void add(FlowStep step) { steps_.push_back(std::move(step)); }
  size_t num_steps() const { return steps_.size(); }
  void truncate(size_t steps) { steps_.resize(steps); }

  // The steps with the pieces between them. `results` are read behind the last step; `checks` belong to the last piece.
  FlowBlock finish(const std::vector<SlotId>& results, const std::vector<std::pair<ValueId, RuntimeCheck>>& checks);

 private:
  struct Piece {
    size_t before = 0;               // the step that it precedes
    std::vector<NodeId> nodes = {};  // in order, without constants
    std::vector<ValueId> outputs = {};
    std::vector<std::pair<ValueId, RuntimeCheck>> checks = {};
  };
  void need(ValueId value, size_t piece);
  void build(Piece& piece, FlowStep& step);
  bool is_constant(ValueId value) const { return constant_[static_cast<size_t>(value)]; }

  Graph& graph_;
  FlowParts& parts_;
  std::vector<FlowStep> steps_;
  std::unordered_set<ValueId> strings_;
  std::map<ValueId, SlotId> exports_;                               // values that steps or other pieces read
  std::map<ValueId, SlotId> inputs_;                                // of the graph
  std::map<std::pair<SlotId, std::string>, ValueId> input_values_;  // by slot and type
  // While finishing:
  std::vector<bool> constant_;      // values that are computed from constants alone
  std::vector<int> piece_of_;       // node -> piece; -1
  std::map<ValueId, size_t> made_;  // value -> the piece that gives it
  std::vector<Piece> pieces_;
};

}  // namespace tessera::inline onnx_import
