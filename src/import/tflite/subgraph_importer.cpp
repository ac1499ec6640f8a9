#include "import/tflite/subgraph_importer.h"

#include <fmt/format.h>

#include <algorithm>

#include "import/tflite/operator_table.h"
#include "support/error.h"
#include "support/operator_rule_error.h"

namespace tessera::inline tflite_import {
namespace {

size_t num_tensors(const tflite::SubGraph& proto) { return proto.tensors() ? proto.tensors()->size() : 0; }

static bool is_empty(const tflite::Tensor& tensor) {
  return tensor.shape() &&
         std::any_of(tensor.shape()->begin(), tensor.shape()->end(), [](int32_t d) { return d == 0; });
}

}  // namespace

SubgraphImporter::SubgraphImporter(const TfliteModel& model, const tflite::SubGraph& proto, GraphLevel& level,
                                   Evaluator& evaluator, Subgraphs& subgraphs, FailureList& failures)
    : model_(model),
      proto_(proto),
      level_(level),
      subgraphs_(subgraphs),
      failures_(failures),
      state_{{level.ops, level.graph, level.builder, ConstantFinder(level.graph, evaluator)},
             model,
             proto,
             evaluator,
             subgraphs,
             level} {
  state_.lookup = [this](int32_t index) { return lookup(index); };
  state_.set_state = [this](int32_t index, ValueId value) { new_states_[index] = value; };
  check_definitions();
  find_needed();
  const size_t count = num_tensors(proto_);
  for (size_t i = 0; i < count; ++i) {
    // Tensors that nothing reads or makes may be of any kind.
    state_.tensors.push_back(used_[i] ? model_.tensor(proto_, static_cast<int32_t>(i)) : TfliteTensor{});
  }
  state_.values.resize(count);
  failed_.resize(count);
}

void SubgraphImporter::bind(int32_t tensor, SubgraphValue value) {
  if (value.resource >= 0) state_.resources[tensor] = value.resource;
  else state_.values[static_cast<size_t>(tensor)] = value.value;
}

void SubgraphImporter::add_state(int32_t tensor, ValueId value) { state_.values[static_cast<size_t>(tensor)] = value; }

void SubgraphImporter::import_operators() {
  if (!proto_.operators()) return;
  for (uint32_t i = 0; i < proto_.operators()->size(); ++i)
    if (needed_[i]) import(*proto_.operators()->Get(i));
}

SubgraphValue SubgraphImporter::result(int32_t tensor) {
  const auto handle = state_.resources.find(tensor);
  if (handle != state_.resources.end()) return {-1, handle->second};
  return {lookup(tensor), -1};
}

// Each tensor has at most one operator that makes it, which stands before those that read it.
void SubgraphImporter::check_definitions() const {
  const size_t count = num_tensors(proto_);
  std::vector<bool> defined(count), made(count);
  for (size_t i = 0; i < count; ++i) {
    const tflite::Tensor& tensor = *proto_.tensors()->Get(static_cast<uint32_t>(i));
    defined[i] = tensor.is_variable() || has_data(tensor);
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
  if (!proto_.outputs()) return;
  for (const int32_t index : *proto_.outputs())
    if (!defined[place(index)]) undefined(index, "the graph's outputs");
}

// In a buffer, or empty: a constant without elements has no bytes.
bool SubgraphImporter::has_data(const tflite::Tensor& tensor) const {
  const uint32_t buffer = tensor.buffer();
  const auto* buffers = model_.root().buffers();
  if (buffer == 0 || !buffers || buffer >= buffers->size()) return false;
  const tflite::Buffer& found = *buffers->Get(buffer);
  return found.offset() > 1 || (found.data() && found.data()->size() > 0) || is_empty(tensor);
}

std::string SubgraphImporter::tensor_name(int32_t index) const {
  const auto* name = proto_.tensors()->Get(static_cast<uint32_t>(index))->name();
  return name ? name->str() : fmt::format("tensor_{}", index);
}
void SubgraphImporter::twice(int32_t index) const {
  throw UserError({"TSR-1104", fmt::format("tensor '{}' is made twice", tensor_name(index)), "",
                   "one operator for each tensor", "convert the model again"});
}
void SubgraphImporter::undefined(int32_t index, const std::string& reader) const {
  throw UserError({"TSR-1104",
                   fmt::format("{} reads tensor '{}', which nothing has made before", reader, tensor_name(index)), "",
                   "operators in the order in which they run", "convert the model again"});
}

bool SubgraphImporter::changes_resources(const tflite::Operator& node) const {
  using enum tflite::BuiltinOperator;
  switch (model_.code(node)) {
    case CALL_ONCE:
    case ASSIGN_VARIABLE: return true;
    case IF: {
      const auto* options = node.builtin_options_as<tflite::IfOptions>();
      return options && (!subgraphs_.resources_of(options->then_subgraph_index()).empty() ||
                         !subgraphs_.resources_of(options->else_subgraph_index()).empty());
    }
    case WHILE: {
      const auto* options = node.builtin_options_as<tflite::WhileOptions>();
      return options && (!subgraphs_.resources_of(options->cond_subgraph_index()).empty() ||
                         !subgraphs_.resources_of(options->body_subgraph_index()).empty());
    }
    default: return false;
  }
}

// Operators that an output depends on, and those that change a state.
void SubgraphImporter::find_needed() {
  const size_t count = num_tensors(proto_);
  const size_t operators = proto_.operators() ? proto_.operators()->size() : 0;
  used_.assign(count, false);
  needed_.assign(operators, false);
  std::vector<bool> wanted(count);
  if (proto_.outputs())
    for (const int32_t index : *proto_.outputs())
      wanted[static_cast<size_t>(index)] = used_[static_cast<size_t>(index)] = true;
  for (uint32_t i = static_cast<uint32_t>(operators); i-- > 0;) {
    const tflite::Operator& node = *proto_.operators()->Get(i);
    bool counts = changes_resources(node);
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
}

ValueId SubgraphImporter::lookup(int32_t index) {
  std::optional<ValueId>& value = state_.values[static_cast<size_t>(index)];
  if (value) return *value;
  const TfliteTensor& tensor = state_.tensors[static_cast<size_t>(index)];
  if (tensor.is_resource) throw UnsupportedNode{fmt::format("the handle '{}' as a value", tensor.name)};
  if (tensor.is_complex) throw UnsupportedNode{fmt::format("the complex numbers '{}'", tensor.name)};
  if (tensor.is_variable) throw UnsupportedNode{"variables of a graph that an operator runs"};
  std::optional<Tensor> data = model_.data(proto_, index, tensor);
  if (!data && std::find(tensor.dims.begin(), tensor.dims.end(), 0) == tensor.dims.end())
    throw UserError({.id = "TSR-1030",
                     .message = fmt::format("tensor '{}' has no bytes", tensor.name),
                     .node = {},
                     .legal = "bytes for each element",
                     .hint = "get the file again, or convert the model again"});
  if (!data) data = Tensor(tensor.dtype, tensor.dims);  // without elements
  const std::string loc = level_.builder.loc();
  level_.builder.set_loc(tensor.name);
  value = level_.builder.add(state_.ops.get("constant"), {},
                             {{"value", std::make_shared<const Tensor>(*std::move(data))}}, tensor.name);
  level_.builder.set_loc(loc);
  return *value;
}

void SubgraphImporter::mark_failed(const tflite::Operator& node) {
  if (node.outputs())
    for (const int32_t index : *node.outputs()) failed_[static_cast<size_t>(index)] = true;
}

void SubgraphImporter::import(const tflite::Operator& node) {
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
  level_.builder.set_loc(context.label());
  try {
    handler(context);
    for (const auto& [index, value] : context.results()) name_result(index, value);
    if (node.outputs())
      for (const int32_t index : *node.outputs())
        check(state_.values[static_cast<size_t>(index)].has_value() || state_.resources.contains(index) ||
                  state_.complex.contains(index),
              "a handler leaves out a result");
  } catch (const SubgraphRefused&) {
    mark_failed(node);
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
void SubgraphImporter::name_result(int32_t index, ValueId value) {
  state_.values[static_cast<size_t>(index)] = value;
  const Node* producer = level_.graph.producer(value);
  if (producer && producer->op->kind != OpKind::kConstant && named_.insert(value).second)
    level_.graph.rename(value, level_.graph.unique_name(state_.tensors[static_cast<size_t>(index)].name));
}

}  // namespace tessera::inline tflite_import
