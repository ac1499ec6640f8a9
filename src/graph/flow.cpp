#include "graph/flow.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "graph/printer.h"
#include "graph/verify.h"
#include "support/error.h"

namespace tessera::inline graph {
namespace {

struct OpName {
  FlowOp op;
  const char* name;
  int min_inputs, max_inputs;  // -1: any number
  int outputs;
};

constexpr std::array kOps = {
    OpName{FlowOp::kPiece, "piece", 0, -1, -1},
    OpName{FlowOp::kElementwise, "elementwise", 1, -1, -1},
    OpName{FlowOp::kMove, "move", 0, -1, -1},
    OpName{FlowOp::kNumber, "number", 0, 0, 1},
    OpName{FlowOp::kTruth, "truth", 0, 0, 1},
    OpName{FlowOp::kCount, "count", 1, 1, 1},
    OpName{FlowOp::kIf, "if", 1, 1, 0},
    OpName{FlowOp::kWhile, "while", 3, 3, 0},
    OpName{FlowOp::kSequence, "sequence", 0, -1, 1},
    OpName{FlowOp::kInsert, "insert", 3, 3, 1},
    OpName{FlowOp::kErase, "erase", 2, 2, 1},
    OpName{FlowOp::kAt, "at", 2, 2, 1},
    OpName{FlowOp::kLength, "length", 1, -1, 1},
    OpName{FlowOp::kSplit, "split", 2, 2, 1},
    OpName{FlowOp::kJoin, "join", 1, 1, 1},
    OpName{FlowOp::kOptional, "optional", 1, 1, 1},
    OpName{FlowOp::kHasElement, "has_element", 1, 1, 1},
    OpName{FlowOp::kGetElement, "get_element", 1, 1, 1},
    OpName{FlowOp::kShape, "shape", 1, 1, 1},
    OpName{FlowOp::kSize, "size", 1, 1, 1},
    OpName{FlowOp::kSlice, "slice", 5, 5, 1},
    OpName{FlowOp::kReshape, "reshape", 2, 2, 1},
    OpName{FlowOp::kSqueeze, "squeeze", 2, 2, 1},
    OpName{FlowOp::kUnsqueeze, "unsqueeze", 2, 2, 1},
    OpName{FlowOp::kTranspose, "transpose", 1, 1, 1},
    OpName{FlowOp::kGather, "gather", 2, 2, 1},
    OpName{FlowOp::kExpand, "expand", 2, 2, 1},
    OpName{FlowOp::kConcat, "concat", 1, -1, 1},
    OpName{FlowOp::kFlatten, "flatten", 1, 1, 1},
    OpName{FlowOp::kRange, "range", 3, 3, 1},
    OpName{FlowOp::kPad, "pad", 4, 4, 1},
    OpName{FlowOp::kStringConcat, "string_concat", 2, 2, 1},
    OpName{FlowOp::kStringSplit, "string_split", 1, 1, 2},
    OpName{FlowOp::kStringNormalize, "string_normalize", 1, 1, 1},
    OpName{FlowOp::kToString, "to_string", 1, 1, 1},
    OpName{FlowOp::kFromString, "from_string", 1, 1, 1},
    OpName{FlowOp::kStringRank, "string_rank", 1, 1, 1},
    OpName{FlowOp::kZipMap, "zip_map", 2, 2, 1},
    OpName{FlowOp::kDictVectorize, "dict_vectorize", 2, 2, 1},
    OpName{FlowOp::kCastMap, "cast_map", 1, 1, 1},
};

const OpName& row_of(FlowOp op) {
  const auto row = std::find_if(kOps.begin(), kOps.end(), [&](const OpName& name) { return name.op == op; });
  check(row != kOps.end(), "a flow step of an unknown kind");
  return *row;
}

void collect(const FlowBlock& block, std::vector<const FlowStep*>& steps) {
  for (const FlowStep& step : block.steps) {
    steps.push_back(&step);
    for (const FlowBlock& inner : step.blocks) collect(inner, steps);
  }
}

std::string slot_text(SlotId slot) { return slot < 0 ? "-" : fmt::format("s{}", slot); }

std::string slots_text(const std::vector<SlotId>& slots) {
  std::string text;
  for (const SlotId slot : slots) text += (text.empty() ? "" : ", ") + slot_text(slot);
  return text;
}

void print_block(const FlowBlock& block, const Flow& flow, int indent, std::string& text) {
  for (const FlowStep& step : block.steps) {
    text += std::string(static_cast<size_t>(indent), ' ');
    if (!step.outputs.empty()) text += slots_text(step.outputs) + " = ";
    text += flow_op_name(step.op);
    if (step.piece >= 0) text += fmt::format(" @{}", step.piece);
    text += fmt::format("({})", slots_text(step.inputs));
    if (!step.ints.empty()) text += fmt::format(" [{}]", fmt::join(step.ints, ","));
    if (!step.loc.empty()) text += fmt::format(" loc(\"{}\")", step.loc);
    for (size_t i = 0; i < step.blocks.size(); ++i) {
      text += i == 0 ? " {\n" : " else {\n";
      print_block(step.blocks[i], flow, indent + 2, text);
      text += std::string(static_cast<size_t>(indent), ' ') + "}";
    }
    text += '\n';
  }
}

}  // namespace

ImportedModel as_flow_because(ImportedModel model, const NoGraph& why) {
  if (!model.flow) return model;
  auto flow = std::make_shared<Flow>(*model.flow);
  flow->why = why;
  model.flow = std::move(flow);
  return model;
}

bool FlowType::is_fixed() const {
  return is_tensor() && dims && std::none_of(dims->begin(), dims->end(), [](int64_t dim) { return dim < 0; });
}

FlowType FlowType::element() const {
  check(!is_tensor(), "a tensor has no element type");
  FlowType inner = *this;
  inner.wrappers.erase(inner.wrappers.begin());
  return inner;
}

FlowType FlowType::in(ValueKind wrapper) const {
  FlowType outer = *this;
  outer.wrappers.insert(outer.wrappers.begin(), wrapper);
  return outer;
}

FlowType FlowType::of_any_shape() const {
  FlowType type = *this;
  type.dims.reset();
  type.most.clear(), type.numbers.clear(), type.most_numbers.clear();
  return type;
}

int64_t FlowType::most_of(size_t dim) const {
  if (dims && dims->at(dim) >= 0) return dims->at(dim);
  return dim < most.size() ? most[dim] : kFlowMost;
}

std::string FlowType::to_string() const {
  if (is_tensor()) {
    if (!dims) return fmt::format("{}[*]", dtype_name(dtype));
    std::vector<std::string> parts;
    for (const int64_t dim : *dims) parts.push_back(dim < 0 ? "?" : fmt::format("{}", dim));
    return fmt::format("{}[{}]", dtype_name(dtype), fmt::join(parts, ","));
  }
  const std::string inner = element().to_string();
  switch (wrappers[0]) {
    case ValueKind::kSequence: return fmt::format("seq({})", inner);
    case ValueKind::kOptional: return fmt::format("opt({})", inner);
    default: return fmt::format("map({},{})", dtype_name(key), dtype_name(dtype));
  }
}

const char* flow_op_name(FlowOp op) { return row_of(op).name; }

std::vector<const FlowStep*> steps_in_order(const FlowBlock& block) {
  std::vector<const FlowStep*> steps;
  collect(block, steps);
  return steps;
}

std::vector<std::string> verify(const Flow& flow) {
  std::vector<std::string> violations;
  const auto report = [&](const std::string& where, const std::string& rule) {
    violations.push_back(fmt::format("flow {}: {}: {}", flow.name, where, rule));
  };
  const auto slot = [&](const std::string& where, SlotId id, bool optional) {
    if ((id < 0 && !(optional && id == -1)) || id >= std::ssize(flow.slots))
      report(where, fmt::format("no slot {}", id));
  };
  for (const FlowPort& port : flow.inputs) slot("input " + port.name, port.slot, false);
  for (const FlowPort& port : flow.outputs) slot("output " + port.name, port.slot, false);
  if (flow.strings.empty() || !flow.strings[0].empty()) report("strings", "the first is not empty");
  for (const FlowStep* step : steps_in_order(flow.body)) {
    const OpName& op = row_of(step->op);
    const std::string where = fmt::format("step {} {}", op.name, step->loc);
    const auto inputs = std::ssize(step->inputs), outputs = std::ssize(step->outputs);
    if (inputs < op.min_inputs || (op.max_inputs >= 0 && inputs > op.max_inputs) ||
        (op.outputs >= 0 && outputs != op.outputs))
      report(where, fmt::format("{} inputs and {} outputs", inputs, outputs));
    for (const SlotId id : step->inputs) slot(where, id, true);
    for (const SlotId id : step->outputs) slot(where, id, false);
    const size_t blocks = step->op == FlowOp::kIf ? 2 : step->op == FlowOp::kWhile ? 1 : 0;
    if (step->blocks.size() != blocks) report(where, fmt::format("{} blocks", step->blocks.size()));
    if (step->op == FlowOp::kMove && inputs != outputs) report(where, "as many slots are read as written");
    const bool runs_piece = step->op == FlowOp::kPiece || step->op == FlowOp::kElementwise;
    if (!runs_piece) continue;
    if (step->piece < 0 || step->piece >= std::ssize(flow.pieces)) {
      report(where, fmt::format("no piece {}", step->piece));
      continue;
    }
    const Graph& piece = flow.pieces[static_cast<size_t>(step->piece)];
    if (inputs != std::ssize(piece.inputs) || outputs != static_cast<ptrdiff_t>(piece.num_own_outputs()) ||
        step->ints.size() != step->outputs.size())
      report(where, fmt::format("{} inputs and {} outputs for piece {} of {} and {}", inputs, outputs, step->piece,
                                piece.inputs.size(), piece.num_own_outputs()));
  }
  for (const auto& [number, piece] : flow.open) {
    const bool known = number >= 0 && number < std::ssize(flow.pieces);
    if (!known || piece.inputs.size() != flow.pieces[static_cast<size_t>(number)].inputs.size() || !piece.at)
      report(fmt::format("piece {}", number), "open sizes of another piece");
  }
  for (const Graph& piece : flow.pieces)
    for (std::string& violation : verify(piece)) violations.push_back(std::move(violation));
  return violations;
}

std::string print(const Flow& flow, bool elide_constants) {
  const auto ports = [](const std::vector<FlowPort>& list) {
    std::string text;
    for (const FlowPort& port : list)
      text += fmt::format("{}{} \"{}\": {}", text.empty() ? "" : ", ", slot_text(port.slot), port.name,
                          port.type.to_string());
    return text;
  };
  std::string text = fmt::format("flow @{}({}) -> ({}) {{\n", flow.name, ports(flow.inputs), ports(flow.outputs));
  for (size_t i = 1; i < flow.strings.size(); ++i) text += fmt::format("  string {} = \"{}\"\n", i, flow.strings[i]);
  for (size_t i = 0; i < flow.slots.size(); ++i) text += fmt::format("  s{}: {}\n", i, flow.slots[i].to_string());
  print_block(flow.body, flow, 2, text);
  for (const auto& [number, piece] : flow.open) {
    text += fmt::format("  piece @{} of any", number);
    for (const SymbolRange& symbol : piece.symbols)
      text += fmt::format(" {}={}..{}", symbol.var->name, symbol.lo, symbol.hi);
    text += '\n';
  }
  text += "}\n";
  for (size_t i = 0; i < flow.pieces.size(); ++i)
    text += fmt::format("// piece @{}\n{}\n", i, print(flow.pieces[i], {.elide_constants = elide_constants}));
  return text;
}

}  // namespace tessera::inline graph
