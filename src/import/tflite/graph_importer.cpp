#include "import/tflite/graph_importer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <unordered_set>

#include "graph/subgraph.h"
#include "import/common/failure_list.h"
#include "import/common/finished_graph.h"
#include "import/common/limits.h"
#include "import/tflite/operator_context.h"
#include "import/tflite/operator_table.h"
#include "support/error.h"
#include "support/operator_rule_error.h"

namespace tessera::inline tflite_import {
namespace {

using Ints = std::vector<int64_t>;

class TfliteImporter {
 public:
  TfliteImporter(const TfliteModel& model, const ImportOptions& options, const OpTable& ops, Evaluator& evaluator)
      : model_(model),
        proto_(model.subgraph(0)),
        options_(options),
        builder_(graph_),
        state_{{ops, graph_, builder_, ConstantFinder(graph_, evaluator)}, model, proto_, evaluator} {
    state_.lookup = [this](int32_t index) { return lookup(index); };
    state_.set_state = [this](int32_t index, ValueId value) { new_states_[index] = value; };
  }

  ReadOutcome run() {
    const size_t count = proto_.tensors() ? proto_.tensors()->size() : 0;
    check_definitions(count);
    find_needed();
    for (size_t i = 0; i < count; ++i) {
      // Tensors that nothing reads or makes may be of any kind.
      state_.tensors.push_back(used_[i] ? model_.tensor(proto_, static_cast<int32_t>(i)) : TfliteTensor{});
    }
    state_.values.resize(count);
    add_inputs();
    add_states();
    failed_.resize(count);
    if (proto_.operators())
      for (uint32_t i = 0; i < proto_.operators()->size(); ++i)
        if (needed_[i]) import(*proto_.operators()->Get(i));
    if (!failures_.empty()) return failures_.refusal();
    set_outputs();
    return ImportedModel{needed_part(graph_), nullptr};
  }

 private:
  // Each tensor has at most one operator that makes it, which stands before those that read it.
  void check_definitions(size_t count) {
    std::vector<bool> defined(count), made(count);
    for (size_t i = 0; i < count; ++i) {
      const tflite::Tensor& tensor = *proto_.tensors()->Get(static_cast<uint32_t>(i));
      defined[i] = tensor.is_variable() || has_data(tensor);
      may_be_read_.push_back(defined[i]);
    }
    const auto place = [&](int32_t index) { return static_cast<size_t>(index); };
    if (proto_.inputs()) {
      for (const int32_t index : *proto_.inputs()) {
        if (made[place(index)]) twice(index);
        defined[place(index)] = made[place(index)] = true;
      }
    }
    if (proto_.operators()) {
      for (const tflite::Operator* node : *proto_.operators()) {
        if (node->inputs())
          for (const int32_t index : *node->inputs())
            if (index >= 0 && !defined[place(index)]) undefined(index, model_.name_of(*node));
        if (!node->outputs()) continue;
        for (const int32_t index : *node->outputs()) {
          if (made[place(index)]) twice(index);
          defined[place(index)] = made[place(index)] = true;
        }
      }
    }
    if (!proto_.outputs() || proto_.outputs()->size() == 0)
      throw UserError({"TSR-1013", "the graph has no outputs", "", "one output or more", "convert the model again"});
    for (const int32_t index : *proto_.outputs())
      if (!defined[place(index)]) undefined(index, "the graph's outputs");
  }

  // In a buffer, or empty: a constant without elements has no bytes.
  bool has_data(const tflite::Tensor& tensor) const {
    const uint32_t buffer = tensor.buffer();
    const auto* buffers = model_.root().buffers();
    if (buffer == 0 || !buffers || buffer >= buffers->size()) return false;
    const tflite::Buffer& found = *buffers->Get(buffer);
    return found.offset() > 1 || (found.data() && found.data()->size() > 0) || is_empty(tensor);
  }
  static bool is_empty(const tflite::Tensor& tensor) {
    return tensor.shape() &&
           std::any_of(tensor.shape()->begin(), tensor.shape()->end(), [](int32_t d) { return d == 0; });
  }

  std::string tensor_name(int32_t index) const {
    const auto* name = proto_.tensors()->Get(static_cast<uint32_t>(index))->name();
    return name ? name->str() : fmt::format("tensor_{}", index);
  }
  [[noreturn]] void twice(int32_t index) const {
    throw UserError({"TSR-1104", fmt::format("tensor '{}' is made twice", tensor_name(index)), "",
                     "one operator for each tensor", "convert the model again"});
  }
  [[noreturn]] void undefined(int32_t index, const std::string& reader) const {
    throw UserError({"TSR-1104",
                     fmt::format("{} reads tensor '{}', which nothing has made before", reader, tensor_name(index)), "",
                     "operators in the order in which they run", "convert the model again"});
  }

  // Operators that an output depends on, and those that change a state.
  void find_needed() {
    const size_t count = proto_.tensors() ? proto_.tensors()->size() : 0;
    const size_t operators = proto_.operators() ? proto_.operators()->size() : 0;
    used_.assign(count, false);
    needed_.assign(operators, false);
    std::vector<bool> wanted(count);
    for (const int32_t index : *proto_.outputs()) wanted[static_cast<size_t>(index)] = true;
    for (uint32_t i = static_cast<uint32_t>(operators); i-- > 0;) {
      const tflite::Operator& node = *proto_.operators()->Get(i);
      bool counts = false;
      if (node.outputs())
        for (const int32_t index : *node.outputs()) counts = counts || wanted[static_cast<size_t>(index)];
      if (node.inputs())
        for (const int32_t index : *node.inputs())
          counts = counts || (index >= 0 && proto_.tensors()->Get(static_cast<uint32_t>(index))->is_variable());
      if (!counts) continue;
      needed_[i] = true;
      const auto use = [&](const flatbuffers::Vector<int32_t>* list, bool reads) {
        if (!list) return;
        for (const int32_t index : *list)
          if (index >= 0) {
            used_[static_cast<size_t>(index)] = true;
            if (reads) wanted[static_cast<size_t>(index)] = true;
          }
      };
      use(node.inputs(), true);
      use(node.outputs(), false);
      use(node.intermediates(), false);
    }
    if (proto_.inputs())
      for (const int32_t index : *proto_.inputs()) used_[static_cast<size_t>(index)] = true;
    for (const int32_t index : *proto_.outputs()) used_[static_cast<size_t>(index)] = true;
  }

  void add_inputs() {
    std::set<std::string> shapes, dims, known, names;
    for (const auto& [name, shape] : options_.shapes) shapes.insert(name);
    for (const auto& [name, range] : options_.dims) dims.insert(name);
    if (!proto_.inputs()) return check_options(shapes, dims, known, names);
    for (const int32_t index : *proto_.inputs()) {
      TfliteTensor& tensor = state_.tensors[static_cast<size_t>(index)];
      if (tensor.is_string)
        throw UserError({"TSR-1024", fmt::format("input '{}' has strings", tensor.name), "",
                         "floats, integers or bools", "change the model's input"});
      names.insert(tensor.name);
      Ints extents = tensor.dims;
      for (size_t d = 0; d < extents.size(); ++d) {
        const std::string dim = fmt::format("{}[{}]", tensor.name, d);
        if (d < tensor.open.size() && tensor.open[d]) known.insert(dim);
        const auto given = options_.dims.find(dim);
        if (given == options_.dims.end()) continue;
        dims.erase(dim);
        if (given->second.lo != given->second.hi)
          throw UserError({"TSR-1025",
                           fmt::format("--dim {}={}..{}: TFLite models are read for one size", dim, given->second.lo,
                                       given->second.hi),
                           "", "one value", ""});
        set_extent(tensor, extents, d, given->second.lo);
      }
      if (const auto given = options_.shapes.find(tensor.name); given != options_.shapes.end()) {
        shapes.erase(tensor.name);
        if (given->second.size() != extents.size())
          throw UserError({"TSR-1022",
                           fmt::format("--shape gives {} dimensions for input '{}', which has {}", given->second.size(),
                                       tensor.name, extents.size()),
                           "", fmt::format("{} dimensions", extents.size()), ""});
        for (size_t d = 0; d < extents.size(); ++d) set_extent(tensor, extents, d, given->second[d]);
      }
      if (!checked_num_elements(extents))
        throw UserError({"TSR-1023",
                         fmt::format("input '{}' would have the shape [{}]", tensor.name, fmt::join(extents, ",")), "",
                         "at most 2^40 elements", ""});
      state_.values[static_cast<size_t>(index)] =
          graph_.add_input(graph_.unique_name(tensor.name), {tensor.dtype, make_shape(extents), {}});
    }
    check_options(shapes, dims, known, names);
  }

  void set_extent(const TfliteTensor& tensor, Ints& extents, size_t d, int64_t value) const {
    const bool open = d < tensor.open.size() && tensor.open[d];
    if (!open && value != extents[d])
      throw UserError({"TSR-1022",
                       fmt::format("dimension {} of input '{}' is {} in the model, and {} is asked for", d, tensor.name,
                                   extents[d], value),
                       "", fmt::format("{}", extents[d]), ""});
    extents[d] = value;
  }

  void check_options(const std::set<std::string>& shapes, const std::set<std::string>& dims,
                     const std::set<std::string>& known, const std::set<std::string>& names) const {
    if (!shapes.empty())
      throw UserError({"TSR-1021", fmt::format("--shape names '{}', which is no input of the model", *shapes.begin()),
                       "", fmt::format("{}", fmt::join(names, ", ")), ""});
    if (!dims.empty())
      throw UserError({"TSR-1021", fmt::format("--dim names '{}', which the model does not leave open", *dims.begin()),
                       "", known.empty() ? "no dimension is open" : fmt::format("{}", fmt::join(known, ", ")), ""});
  }

  void add_states() {
    for (size_t i = 0; i < state_.tensors.size(); ++i) {
      const TfliteTensor& tensor = state_.tensors[i];
      if (!tensor.is_variable || state_.values[i]) continue;
      constexpr int64_t kMost = int64_t{1} << 28;
      if (*checked_num_elements(tensor.dims) > kMost)
        throw UserError({"TSR-1103",
                         fmt::format("the variable '{}' has the shape [{}]", tensor.name, fmt::join(tensor.dims, ",")),
                         "", fmt::format("at most {} elements", kMost), "convert the model again"});
      state_.values[i] = graph_.add_input(graph_.unique_name(tensor.name), {tensor.dtype, make_shape(tensor.dims), {}});
      states_.push_back(static_cast<int32_t>(i));
    }
  }

  ValueId lookup(int32_t index) {
    std::optional<ValueId>& value = state_.values[static_cast<size_t>(index)];
    if (value) return *value;
    const TfliteTensor& tensor = state_.tensors[static_cast<size_t>(index)];
    std::optional<Tensor> data = model_.data(proto_, index, tensor);
    if (!data && std::find(tensor.dims.begin(), tensor.dims.end(), 0) == tensor.dims.end())
      throw UserError({.id = "TSR-1030",
                       .message = fmt::format("tensor '{}' has no bytes", tensor.name),
                       .node = {},
                       .legal = "bytes for each element",
                       .hint = "get the file again, or convert the model again"});
    if (!data) data = Tensor(tensor.dtype, tensor.dims);  // without elements
    const std::string loc = builder_.loc();
    builder_.set_loc(tensor.name);
    value = builder_.add(state_.ops.get("constant"), {}, {{"value", std::make_shared<const Tensor>(*std::move(data))}},
                         tensor.name);
    builder_.set_loc(loc);
    return *value;
  }

  void mark_failed(const tflite::Operator& node) {
    if (node.outputs())
      for (const int32_t index : *node.outputs()) failed_[static_cast<size_t>(index)] = true;
  }

  void import(const tflite::Operator& node) {
    OperatorContext context(state_, node);
    const NodeLabel label{context.op_type(), context.label()};
    const TfliteOperator* known = find_operator(context.code());
    const CustomHandler handler = context.code() == tflite::BuiltinOperator::CUSTOM
                                      ? find_custom_operator(context.op_type())
                                  : known ? known->handler
                                          : nullptr;
    if (!handler) {
      failures_.add(label, UnsupportedNode{"the operator is not supported"});
      return mark_failed(node);
    }
    // What depends on an operator that could not be imported cannot be judged.
    if (node.inputs())
      for (const int32_t index : *node.inputs())
        if (index >= 0 && failed_[static_cast<size_t>(index)]) return mark_failed(node);
    builder_.set_loc(context.label());
    try {
      handler(context);
      for (const auto& [index, value] : context.results()) bind(index, value);
      if (node.outputs())
        for (const int32_t index : *node.outputs())
          check(state_.values[static_cast<size_t>(index)].has_value(), "a handler leaves out a result");
    } catch (const UnsupportedNode& unsupported) {
      failures_.add(label, unsupported);
      mark_failed(node);
    } catch (const OperatorRuleError& error) {
      failures_.add(label, error.diagnostic(), true);
      mark_failed(node);
    } catch (const UserError& error) {
      failures_.add(label, error.diagnostic(), false);
      mark_failed(node);
    }
  }

  // A value that an operator made gets the tensor's name, unless it has a name of the model's already.
  void bind(int32_t index, ValueId value) {
    state_.values[static_cast<size_t>(index)] = value;
    const Node* producer = graph_.producer(value);
    if (producer && producer->op->kind != OpKind::kConstant && named_.insert(value).second)
      graph_.rename(value, graph_.unique_name(state_.tensors[static_cast<size_t>(index)].name));
  }

  void set_outputs() {
    OutputList outputs(builder_, state_.ops);
    for (const int32_t index : *proto_.outputs()) outputs.add(lookup(index), tensor_name(index));
    for (const int32_t index : states_) {
      const auto after = new_states_.find(index);
      const ValueId before = *state_.values[static_cast<size_t>(index)];
      const ValueId value = after == new_states_.end() ? before : after->second;
      outputs.add(value, tensor_name(index));
      graph_.states.push_back({graph_.value(before).name, initial_value(state_.tensors[static_cast<size_t>(index)])});
    }
  }

  // What stands for zero; null: zeros.
  static TensorPtr initial_value(const TfliteTensor& tensor) {
    const Ints& zeros = tensor.quantization.zero_points;
    if (tensor.dtype != DType::kI8 || zeros.size() != 1 || zeros[0] == 0) return nullptr;
    auto value = std::make_shared<Tensor>(tensor.dtype, tensor.dims);
    for (int64_t i = 0; i < value->num_elements(); ++i) value->set_int(i, zeros[0]);
    return value;
  }

  const TfliteModel& model_;
  const tflite::SubGraph& proto_;
  const ImportOptions& options_;
  Graph graph_;
  GraphBuilder builder_;
  TfliteImport state_;
  FailureList failures_;
  std::vector<bool> may_be_read_, used_, needed_, failed_;
  std::vector<int32_t> states_;  // tensors
  std::map<int32_t, ValueId> new_states_;
  std::unordered_set<ValueId> named_;
};

}  // namespace

ReadOutcome build_graph(const TfliteModel& model, const ImportOptions& options, const OpTable& ops,
                        Evaluator& evaluator) {
  return TfliteImporter(model, options, ops, evaluator).run();
}

}  // namespace tessera::inline tflite_import
