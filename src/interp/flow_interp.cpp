#include "interp/flow_interp.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>

#include "interp/flow_strings.h"
#include "interp/flow_values.h"
#include "interp/graph_interp.h"
#include "support/error.h"
#include "support/utf8.h"

namespace tessera::inline interp {
namespace {

Tensor scalar_of(DType dtype, int64_t value) {
  Tensor tensor(dtype, {});
  tensor.set_int(0, value);
  return tensor;
}

// Strings and their numbers in the graphs of pieces.
class StringNumbers {
 public:
  int64_t number(const std::string& text) {
    const auto [it, is_new] = numbers_.emplace(text, static_cast<int64_t>(texts_.size()));
    if (is_new) texts_.push_back(text);
    return it->second;
  }
  const std::string& text(int64_t number) const { return texts_.at(static_cast<size_t>(number)); }

 private:
  std::vector<std::string> texts_;
  std::map<std::string, int64_t> numbers_;
};

class FlowRunner {
 public:
  explicit FlowRunner(const Flow& flow) : flow_(flow), slots_(flow.slots.size()) {
    for (const std::string& text : flow.strings) strings_.number(text);
  }

  std::vector<RunValue> run(const std::vector<RunValue>& inputs) {
    for (size_t i = 0; i < flow_.inputs.size(); ++i) {
      const FlowPort& port = flow_.inputs[i];
      require_utf8(port, inputs[i]);
      if (port.type.is_tensor() && port.type.dims) require_dims(port, inputs[i].tensor.dims());
      slot(port.slot) = inputs[i];
    }
    run_block(flow_.body);
    std::vector<RunValue> outputs;
    for (const FlowPort& port : flow_.outputs) {
      RunValue value = slot(port.slot);
      const bool wants_optional = !port.type.is_tensor() && port.type.wrappers[0] == ValueKind::kOptional;
      if (!wants_optional && value.kind == ValueKind::kOptional && value.items.size() == 1) value = value.items[0];
      const ValueKind wanted = port.type.is_tensor() ? ValueKind::kTensor : port.type.wrappers[0];
      if (value.kind != wanted && !wants_optional)
        throw UserError(
            {"TSR-7042",
             fmt::format("output '{}' is an optional without an element; legal: {}", port.name, port.type.to_string()),
             "", "", ""});
      outputs.push_back(std::move(value));
    }
    return outputs;
  }

 private:
  RunValue& slot(SlotId id) { return slots_[static_cast<size_t>(id)]; }

  static void require_utf8(const FlowPort& port, const RunValue& value) {
    for (const RunValue& item : value.items) require_utf8(port, item);
    const std::vector<std::string>& texts = value.tensor.strings();
    for (size_t i = 0; i < texts.size(); ++i)
      if (!is_utf8(texts[i]))
        throw UserError(
            {"TSR-7044",
             fmt::format("input '{}' has a string, number {}, that is not UTF-8; give strings in UTF-8", port.name, i),
             "", "", ""});
  }

  static void require_dims(const FlowPort& port, const std::vector<int64_t>& found) {
    const std::vector<int64_t>& wanted = *port.type.dims;
    bool fits = found.size() == wanted.size();
    for (size_t d = 0; fits && d < found.size(); ++d) fits = wanted[d] < 0 || wanted[d] == found[d];
    if (!fits)
      throw UserError({"TSR-7033",
                       fmt::format("input '{}' has shape [{}]; this module was compiled for [{}]", port.name,
                                   fmt::join(found, ","), fmt::join(wanted, ",")),
                       "", "", ""});
  }

  void run_block(const FlowBlock& block) {
    for (const FlowStep& step : block.steps) run_step(step);
  }

  const RunValue& input(const FlowStep& step, size_t i) { return slot(step.inputs.at(i)); }

  bool truth(const FlowStep& step, const RunValue& value) {
    if (!value.is_tensor() || value.tensor.dtype() != DType::kBool || value.tensor.num_elements() != 1)
      fail_step(step, fmt::format("the condition is {}; legal: one bool", text_of(value)));
    return value.tensor.get_int(0) != 0;
  }

  void run_step(const FlowStep& step) {
    switch (step.op) {
      case FlowOp::kPiece: return run_piece(step);
      case FlowOp::kElementwise: return run_elementwise(step);
      case FlowOp::kMove: {
        std::vector<RunValue> values;
        for (size_t i = 0; i < step.inputs.size(); ++i) values.push_back(input(step, i));
        for (size_t i = 0; i < values.size(); ++i) slot(step.outputs[i]) = values[i];
        return;
      }
      case FlowOp::kNumber: slot(step.outputs[0]) = scalar_of(DType::kI64, step.ints[0]); return;
      case FlowOp::kTruth: slot(step.outputs[0]) = scalar_of(DType::kBool, step.ints[0]); return;
      case FlowOp::kCount: slot(step.outputs[0]) = scalar_of(DType::kI64, input(step, 0).tensor.get_int(0) + 1); return;
      case FlowOp::kIf: return run_block(step.blocks[truth(step, input(step, 0)) ? 0 : 1]);
      case FlowOp::kWhile:
        while ((step.inputs[0] < 0 ||
                number_of(step, input(step, 2), "the count") < number_of(step, input(step, 0), "the trip count")) &&
               (step.inputs[1] < 0 || truth(step, input(step, 1))))
          run_block(step.blocks[0]);
        return;
      case FlowOp::kInsert:
        if (step.outputs[0] != step.inputs[0] || step.inputs[1] == step.inputs[0] || step.inputs[2] >= 0) break;
        return append(step, slot(step.outputs[0]), input(step, 1));
      default: break;
    }
    std::vector<const RunValue*> operands;
    for (const SlotId id : step.inputs) operands.push_back(id < 0 ? nullptr : &slot(id));
    std::vector<RunValue> results = step.op >= FlowOp::kStringConcat && step.op < FlowOp::kZipMap
                                        ? string_results(step, operands, flow_.strings)
                                        : std::vector<RunValue>{value_result(step, operands)};
    for (size_t i = 0; i < results.size(); ++i) slot(step.outputs[i]) = std::move(results[i]);
  }

  // A tensor as the graph of a piece has it: strings are numbers there.
  Tensor as_graph_input(const FlowStep& step, const RunValue& value, const TensorType& type, bool any_shape) {
    const DType dtype = value.tensor.dtype() == DType::kString ? DType::kI64 : value.tensor.dtype();
    if (!value.is_tensor() || dtype != type.dtype || (!any_shape && value.tensor.dims() != type.dims()))
      fail_step(step,
                fmt::format("an operand is {}; this module was compiled for {}", text_of(value), type.to_string()));
    if (value.tensor.dtype() != DType::kString) return value.tensor;
    Tensor numbers(DType::kI64, value.tensor.dims());
    for (int64_t i = 0; i < numbers.num_elements(); ++i)
      numbers.set_int(i, strings_.number(value.tensor.strings()[static_cast<size_t>(i)]));
    return numbers;
  }

  Tensor from_graph(const Tensor& tensor, bool is_string) {
    if (!is_string) return tensor;
    std::vector<std::string> texts;
    for (int64_t i = 0; i < tensor.num_elements(); ++i) texts.push_back(strings_.text(tensor.get_int(i)));
    return Tensor::of_strings(std::move(texts), tensor.dims());
  }

  // The piece for the operands at hand.
  Graph piece_of(const FlowStep& step, const OpenPiece& open) {
    std::vector<int64_t> values(open.symbols.size(), -1);
    const Graph& any = flow_.pieces[static_cast<size_t>(step.piece)];
    for (size_t i = 0; i < step.inputs.size(); ++i) {
      const RunValue& value = input(step, i);
      const std::vector<int32_t>& symbols = open.inputs[i];
      bool fits = value.is_tensor() && value.tensor.dims().size() == symbols.size();
      for (size_t d = 0; fits && d < symbols.size(); ++d) {
        if (symbols[d] < 0) continue;
        const auto number = static_cast<size_t>(symbols[d]);
        const int64_t dim = value.tensor.dims()[d];
        if (values[number] < 0) values[number] = dim;
        fits = values[number] == dim && dim >= open.symbols[number].lo && dim <= open.symbols[number].hi;
      }
      if (!fits)
        fail_step(step, fmt::format("an operand is {}; this module was compiled for {} of other dimensions",
                                    text_of(value), any.type(any.inputs[i]).to_string()));
    }
    GraphInterpreter evaluator;
    GraphOrRefusal graph = open.at(values, evaluator);
    if (const auto* refused = std::get_if<SizesRefused>(&graph)) throw UserError(refused->diagnostic);
    return std::get<Graph>(std::move(graph));
  }

  void run_piece(const FlowStep& step) {
    const auto open = flow_.open.find(step.piece);
    const std::optional<Graph> made =
        open == flow_.open.end() ? std::nullopt : std::optional(piece_of(step, open->second));
    const Graph& graph = made ? *made : flow_.pieces[static_cast<size_t>(step.piece)];
    std::vector<Tensor> inputs;
    for (size_t i = 0; i < step.inputs.size(); ++i)
      inputs.push_back(as_graph_input(step, input(step, i), graph.type(graph.inputs[i]), false));
    std::vector<Tensor> results = GraphInterpreter().evaluate(graph, inputs);
    const size_t own = graph.first_check();
    for (size_t i = 0; i < graph.checks.size(); ++i) require_check(graph.checks[i], results[own + i]);
    for (size_t i = 0; i < own; ++i) slot(step.outputs[i]) = from_graph(results[i], step.ints[i] != 0);
  }

  void run_elementwise(const FlowStep& step) {
    const Graph& graph = flow_.pieces[static_cast<size_t>(step.piece)];
    std::vector<Tensor> operands;
    std::vector<int64_t> dims;
    for (size_t i = 0; i < step.inputs.size(); ++i) {
      operands.push_back(as_graph_input(step, input(step, i), graph.type(graph.inputs[i]), true));
      dims = broadcast(step, dims, operands.back().dims());
    }
    std::vector<Tensor> results;
    for (const ValueId output : graph.outputs) results.emplace_back(graph.type(output).dtype, dims);
    const int64_t count = results[0].num_elements();
    for (int64_t begin = 0; begin < count; begin += kFlowBlock) {
      const int64_t size = std::min(kFlowBlock, count - begin);
      std::vector<Tensor> blocks;
      for (const Tensor& operand : operands) {
        Tensor block(operand.dtype(), {kFlowBlock});
        for (int64_t i = 0; i < size; ++i) copy_element(operand, broadcast_place(operand, dims, begin + i), block, i);
        blocks.push_back(std::move(block));
      }
      const std::vector<Tensor> made = GraphInterpreter().evaluate(graph, blocks);
      for (size_t k = 0; k < made.size(); ++k)
        for (int64_t i = 0; i < size; ++i) copy_element(made[k], i, results[k], begin + i);
    }
    for (size_t i = 0; i < results.size(); ++i) slot(step.outputs[i]) = from_graph(results[i], step.ints[i] != 0);
  }

  const Flow& flow_;
  std::vector<RunValue> slots_;
  StringNumbers strings_;
};

}  // namespace

std::vector<RunValue> run_flow(const Flow& flow, const std::vector<RunValue>& inputs) {
  return FlowRunner(flow).run(inputs);
}

void require_check(const RuntimeCheck& check, const Tensor& values) {
  if (values.get_int(0) != 0) return;
  constexpr int64_t kShown = 12;
  const int64_t count = values.num_elements() - 1;
  std::string text;
  for (int64_t i = 0; i < std::min(count, kShown); ++i)
    text += fmt::format("{}{}", i > 0 ? ", " : "", values.get_int(i + 1));
  if (count > kShown) text += ", ...";
  if (count != 1) text = "[" + text + "]";
  throw UserError({.id = "TSR-7040",
                   .message = fmt::format("{} is {}; this module was compiled for {}; the outputs are not valid",
                                          check.what, text, check.legal),
                   .node = {},
                   .legal = {},
                   .hint = {}});
}

}  // namespace tessera::inline interp
