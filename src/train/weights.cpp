#include "train/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <tuple>

#include "graph/subgraph.h"
#include "ops/op_util.h"
#include "support/error.h"
#include "train/dropout.h"
#include "train/graph_ops.h"

namespace tessera::inline train {
namespace {

bool is_composite(const Node& node, const char* name) {
  return node.op->kind == OpKind::kComposite && node.attrs.get_or<std::string>("name", "") == name;
}

size_t index(ValueId v) { return static_cast<size_t>(v); }

// Which constants are one: those of these numbers in memory.
using Numbers = std::tuple<const std::byte*, int64_t, DType>;

// Of constants of rank 1 or more; others are numbers of the operators.
std::optional<Numbers> numbers_of(const Node& node) {
  if (node.op->kind != OpKind::kConstant) return std::nullopt;
  const TensorPtr value = node.attrs.get<TensorPtr>("value");
  if (value->dims().empty() || value->num_elements() == 0) return std::nullopt;
  return Numbers{value->bytes(), value->num_elements(), value->dtype()};
}

}  // namespace

Graph with_states(const Graph& model, const std::vector<std::string>& names) {
  Graph result;
  result.copy_header(model);
  std::vector<ValueId> map(model.values().size(), -1);
  for (const ValueId input : model.inputs)
    map[index(input)] = result.add_input(model.value(input).name, model.type(input));
  std::vector<ValueId> states(names.size(), -1);
  std::vector<State> added(names.size());
  for (const Node& node : model.nodes()) {
    if (node.op->kind != OpKind::kConstant) continue;
    const ValueId value = node.outputs[0];
    const auto found = std::find(names.begin(), names.end(), model.value(value).name);
    if (found == names.end()) continue;
    const auto i = static_cast<size_t>(found - names.begin());
    states[i] = value;
    added[i] = {*found, node.attrs.get<TensorPtr>("value")};
  }
  for (ValueId& state : states)
    state = map[index(state)] = result.add_input(model.value(state).name, model.type(state));
  result.states.insert(result.states.end(), added.begin(), added.end());
  for (const Node& node : model.nodes()) {
    if (map[index(node.outputs[0])] >= 0) continue;
    Node copy = node;
    for (ValueId& input : copy.inputs) input = map[index(input)];
    copy.outputs.clear();
    std::vector<TensorType> types;
    std::vector<std::string> value_names;
    for (const ValueId output : node.outputs) {
      types.push_back(model.type(output));
      value_names.push_back(model.value(output).name);
    }
    const NodeId id = result.add_node(std::move(copy), std::move(types), std::move(value_names));
    for (size_t i = 0; i < node.outputs.size(); ++i) map[index(node.outputs[i])] = result.node(id).outputs[i];
  }
  for (const ValueId output : model.outputs) result.outputs.push_back(map[index(output)]);
  result.outputs.insert(result.outputs.begin() + static_cast<std::ptrdiff_t>(model.first_check()), states.begin(),
                        states.end());
  return result;
}

Graph with_own_statistics(const Graph& model, const OpTable& ops) {
  std::map<Numbers, size_t> uses;
  const std::vector<std::vector<NodeId>> users = model.users();
  for (const Node& node : model.nodes())
    if (const auto numbers = numbers_of(node)) {
      const ValueId value = node.outputs[0];
      uses[*numbers] += users[index(value)].size() +
                        static_cast<size_t>(std::count(model.outputs.begin(), model.outputs.end(), value));
    }
  GraphRewriter rewriter(model);
  return rewriter.run([&](GraphRewriter& to, const Node& node, const std::vector<ValueId>& inputs) {
    std::vector<ValueId> own = inputs;
    if (is_composite(node, "batch_norm"))
      for (const auto& [i, name] : {std::pair<size_t, const char*>{3, "mean"}, {4, "variance"}}) {
        const Node* producer = model.producer(node.inputs[i]);
        const auto numbers = producer ? numbers_of(*producer) : std::nullopt;
        if (!numbers || uses.at(*numbers) < 2) continue;
        const TensorPtr shared = producer->attrs.get<TensorPtr>("value");
        Tensor copy(shared->dtype(), shared->dims());
        std::memcpy(copy.mutable_bytes(), shared->bytes(), static_cast<size_t>(shared->num_bytes()));
        own[i] = GraphBuilder(to.target())
                     .add(ops.get("constant"), {}, {{"value", std::make_shared<const Tensor>(std::move(copy))}},
                          fmt::format("{}.running_{}", model.value(node.outputs[0]).name, name));
      }
    return to.copy(node, own);
  });
}

Graph with_shared_constants(const Graph& model, const OpTable& ops) {
  std::map<Numbers, ValueId> first;  // of the model
  GraphRewriter rewriter(model);
  return rewriter.run([&](GraphRewriter& to, const Node& node, const std::vector<ValueId>&) -> std::vector<ValueId> {
    const auto numbers = numbers_of(node);
    if (!numbers) return {};
    const auto [found, is_new] = first.emplace(*numbers, node.outputs[0]);
    if (is_new) return {};
    const ValueId shared = to.mapped(found->second);
    const Shape& shape = model.type(node.outputs[0]).shape;
    if (same_shape(to.target().type(shared).shape, shape)) return {shared};
    return {GraphBuilder(to.target()).add(ops.get("reshape"), {shared}, {{"shape", shape}})};
  });
}

namespace {

bool is_one(const Graph& model, ValueId value) {
  const Node* node = model.producer(value);
  if (node && (node->op->name == "broadcast" || is_composite(*node, "dropout"))) return is_one(model, node->inputs[0]);
  if (!node || node->op->kind != OpKind::kConstant) return false;
  const TensorPtr tensor = node->attrs.get<TensorPtr>("value");
  return tensor->num_elements() == 1 && is_real(tensor->dtype()) && tensor->get_double(0) == 1;
}

}  // namespace

Graph without_dropouts(const Graph& model) {
  GraphRewriter rewriter(model);
  bool has_masks = false;
  Graph result = rewriter.run(
      [&](GraphRewriter& rewriting, const Node& node, const std::vector<ValueId>& inputs) -> std::vector<ValueId> {
        if (is_composite(node, "dropout")) return {inputs[0]};
        if (std::any_of(node.regions.begin(), node.regions.end(), [](const GraphPtr& r) { return has_dropouts(*r); })) {
          Node copy = node;
          for (GraphPtr& region : copy.regions) region = std::make_shared<const Graph>(without_dropouts(*region));
          return rewriting.copy(copy, inputs);
        }
        // Of a dropout whose mask has a name: numbers times what became of ones.
        const Node* factors = node.op->name == "mul" ? model.producer(node.inputs[1]) : nullptr;
        if (!factors || !is_composite(*factors, "dropout") || !is_one(model, node.inputs[1])) return {};
        has_masks = true;
        return {inputs[0]};
      });
  return has_masks ? needed_part(result) : result;
}

TensorPtr as_dtype(const TensorPtr& tensor, DType dtype) {
  if (tensor->dtype() == dtype) return tensor;
  Tensor other(dtype, tensor->dims());
  for (int64_t i = 0; i < other.num_elements(); ++i) other.set_double(i, tensor->get_double(i));
  return std::make_shared<const Tensor>(std::move(other));
}

Graph without_states(const Graph& model, const std::vector<TensorPtr>& values, const OpTable& ops) {
  check(values.size() == model.states.size(), "a value for each state");
  Graph result;
  result.copy_header(model);
  result.states.clear();
  GraphBuilder builder(result);
  std::vector<ValueId> map(model.values().size(), -1);
  for (size_t i = 0; i < model.num_own_inputs(); ++i) {
    const ValueId input = model.inputs[i];
    map[index(input)] = result.add_input(model.value(input).name, model.type(input));
  }
  for (size_t i = 0; i < values.size(); ++i) {
    const ValueId state = model.state_input(i);
    check(model.state_output(i) == state, "a state that a call changes");
    map[index(state)] = builder.add(ops.get("constant"), {}, {{"value", values[i]}}, model.value(state).name);
  }
  append_nodes(result, model, map);
  for (size_t i = 0; i < model.outputs.size(); ++i)
    if (i < model.num_own_outputs() || i >= model.first_check()) result.outputs.push_back(map[index(model.outputs[i])]);
  return result;
}

Graph with_constants(const Graph& model, const std::vector<std::string>& names, const std::vector<TensorPtr>& values) {
  Graph result = model;
  std::map<ValueId, TensorPtr> named;
  std::map<Numbers, TensorPtr> others;
  for (const Node& node : model.nodes()) {
    if (node.op->kind != OpKind::kConstant) continue;
    const ValueId value = node.outputs[0];
    const auto found = std::find(names.begin(), names.end(), model.value(value).name);
    if (found == names.end()) continue;
    named[value] = as_dtype(values[static_cast<size_t>(found - names.begin())], model.type(value).dtype);
    if (const auto numbers = numbers_of(node)) others[*numbers] = named[value];
  }
  check(named.size() == names.size(), "a model has no constant of a name that was learnt");
  for (size_t n = 0; n < result.nodes().size(); ++n) {
    Node& node = result.node(static_cast<NodeId>(n));
    if (node.op->kind != OpKind::kConstant) continue;
    if (const auto found = named.find(node.outputs[0]); found != named.end()) {
      node.attrs.set("value", found->second);
    } else if (const auto numbers = numbers_of(node); numbers && others.count(*numbers)) {
      const TensorPtr& given = others.at(*numbers);
      const std::vector<int64_t> dims = node.attrs.get<TensorPtr>("value")->dims();
      node.attrs.set("value", TensorPtr(std::make_shared<const Tensor>(given->dtype(), dims, given, given->bytes())));
    }
  }
  return result;
}

}  // namespace tessera::inline train
