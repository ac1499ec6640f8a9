#include "autodiff/gradients.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "arith/simplify.h"
#include "graph/adjoint.h"
#include "graph/no_gradient_error.h"
#include "ops/composites/composites.h"
#include "ops/op_util.h"
#include "support/error.h"

namespace tessera::inline autodiff {
namespace {

// The rule of a composite that has one of its own.
const CompositeDef* with_rule(const Graph& graph, const Node& node, const OpTable& ops) {
  if (node.op->kind != OpKind::kComposite) return nullptr;
  const CompositeDef* def = definition_of(graph, node, ops);
  return def && def->gradient ? def : nullptr;
}

bool is_opened(const Graph& graph, const Node& node, const OpTable& ops) {
  if (node.op->kind == OpKind::kComposite) return !with_rule(graph, node, ops);
  return node.op->kind == OpKind::kGroup || node.op->kind == OpKind::kCall;
}

class Differentiation {
 public:
  Differentiation(const Graph& source, const OpTable& ops) : known_(source.symbols), ops_(ops), builder_(graph_) {
    graph_.copy_header(source);
    for (const ValueId input : source.inputs) graph_.add_input(source.value(input).name, source.type(input));
    map_ = copy(source, graph_.inputs);
    for (const ValueId output : source.outputs) {
      graph_.outputs.push_back(mapped(output));
      keep_name(mapped(output), source.value(output).name);
    }
  }

  Graph run(ValueId output, const std::vector<ValueId>& wrt) {
    for (const ValueId value : wrt) require_real(mapped(value));
    require_real(mapped(output));
    sweep(mapped(output), wrt);
    std::vector<ValueId> results;
    for (const ValueId value : wrt) {
      const ValueId own = mapped(value), found = gradients_[index(own)];
      const std::string name = graph_.value(own).name + ".gradient";
      // Each result has a name of its own, even where two gradients are one value.
      results.push_back(found == Adjoint::kNone ? filled(0, own, name)
                                                : op("reshape", {found}, {{"shape", graph_.type(own).shape}}, name));
    }
    const auto behind = graph_.outputs.begin() + static_cast<ptrdiff_t>(graph_.num_own_outputs());
    graph_.outputs.insert(behind, results.begin(), results.end());
    return std::move(graph_);
  }

 private:
  static size_t index(ValueId id) { return static_cast<size_t>(id); }
  ValueId mapped(ValueId source) const { return map_[index(source)]; }

  void require_real(ValueId value) const {
    check(is_real(graph_.type(value).dtype), "the gradient of or to a value of type " + graph_.type(value).to_string());
  }

  ValueId op(std::string_view op, std::vector<ValueId> inputs, Attrs attrs, const std::string& name = "") {
    return builder_.add(ops_.get(op), std::move(inputs), std::move(attrs), name);
  }

  ValueId filled(double number, ValueId like, const std::string& name = "") {
    Tensor tensor(graph_.type(like).dtype, {});
    tensor.set_double(0, number);
    const ValueId scalar = op("constant", {}, {{"value", std::make_shared<const Tensor>(std::move(tensor))}});
    return op("broadcast", {scalar}, {{"shape", graph_.type(like).shape}}, name);
  }

  // What comes out of a composite that was opened has a name of the region's.
  void keep_name(ValueId value, const std::string& name) {
    if (graph_.value(value).name == name) return;
    for (size_t i = 0; i < graph_.values().size(); ++i)
      if (graph_.values()[i].name == name) graph_.rename(static_cast<ValueId>(i), graph_.unique_name(name));
    graph_.rename(value, name);
  }

  // The nodes of `part`, primitives alone; answers the value for each of its values.
  std::vector<ValueId> copy(const Graph& part, const std::vector<ValueId>& inputs) {
    std::vector<ValueId> map(part.values().size(), -1);
    for (size_t i = 0; i < inputs.size(); ++i) map[index(part.inputs[i])] = inputs[i];
    for (const Node& node : part.nodes()) {
      std::vector<ValueId> operands, results;
      for (const ValueId input : node.inputs) operands.push_back(map[index(input)]);
      if (is_opened(part, node, ops_)) {
        const Graph& region = *node.regions[0];
        const std::vector<ValueId> inner = copy(region, operands);
        for (const ValueId output : region.outputs) results.push_back(inner[index(output)]);
      } else {
        Node own = node;
        own.inputs = operands;
        own.outputs.clear();
        std::vector<TensorType> types;
        std::vector<std::string> names;
        for (const ValueId output : node.outputs) {
          types.push_back(part.type(output));
          names.push_back(part.value(output).name);
        }
        results = graph_.node(graph_.add_node(std::move(own), std::move(types), std::move(names))).outputs;
      }
      for (size_t i = 0; i < results.size(); ++i) map[index(node.outputs[i])] = results[i];
    }
    return map;
  }

  void sweep(ValueId output, const std::vector<ValueId>& wrt) {
    const size_t num_nodes = graph_.nodes().size(), num_values = graph_.values().size();
    // What the wanted values influence, through real numbers.
    std::vector<bool> depends(num_values, false);
    for (const ValueId value : wrt) depends[index(mapped(value))] = true;
    for (const Node& node : graph_.nodes())
      if (std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId v) { return depends[index(v)]; }))
        for (const ValueId result : node.outputs)
          depends[index(result)] = depends[index(result)] || is_real(graph_.type(result).dtype);
    gradients_.assign(num_values, Adjoint::kNone);
    if (depends[index(output)]) gradients_[index(output)] = filled(1, output);
    for (size_t n = num_nodes; n-- > 0;) {
      const Node node = graph_.nodes()[n];  // adding nodes moves them
      std::vector<ValueId> given;
      for (const ValueId result : node.outputs) given.push_back(gradients_[index(result)]);
      std::vector<bool> wanted;
      for (const ValueId operand : node.inputs) wanted.push_back(depends[index(operand)]);
      if (std::all_of(given.begin(), given.end(), [](ValueId g) { return g == Adjoint::kNone; }) ||
          std::none_of(wanted.begin(), wanted.end(), [](bool w) { return w; }))
        continue;
      builder_.set_loc(node.loc);
      Adjoint adjoint(builder_, ops_, node, given, wanted);
      const CompositeDef* composite = with_rule(graph_, node, ops_);
      const auto& rule = composite ? composite->gradient : node.op->gradient;
      std::vector<ValueId> answers(node.inputs.size(), Adjoint::kNone);
      try {
        if (!rule) adjoint.fail("the operator has no rule for it", "operators with a gradient");
        answers = rule(adjoint);
      } catch (const NoGradientError& error) {
        refused_.push_back(error.diagnostic());  // the sweep goes on, to find the others
        for (size_t i = 0; i < wanted.size(); ++i)
          if (wanted[i]) answers[i] = filled(0, node.inputs[i]);
      }
      check(answers.size() == node.inputs.size(), node.op->name + " has a gradient for each operand");
      for (size_t i = 0; i < answers.size(); ++i)
        if (wanted[i] && answers[i] != Adjoint::kNone) add_gradient(node.inputs[i], answers[i]);
    }
    if (!refused_.empty()) refuse();
  }

  // All operators without a gradient in one error.
  [[noreturn]] void refuse() const {
    if (refused_.size() == 1) throw UserError(refused_[0]);
    std::string found;
    std::set<std::string> seen;
    for (auto refused = refused_.rbegin(); refused != refused_.rend(); ++refused) {
      const std::string line =
          refused->node.empty() ? refused->message : fmt::format("{} ({})", refused->message, refused->node);
      if (seen.insert(line).second) found += (found.empty() ? "" : "; ") + line;
    }
    Diagnostic all = refused_.back();
    all.message = found;
    throw UserError(std::move(all));
  }

  void add_gradient(ValueId value, ValueId gradient) {
    check(same_shape(graph_.type(gradient).shape, graph_.type(value).shape) &&
              graph_.type(gradient).dtype == graph_.type(value).dtype,
          "a gradient of type " + graph_.type(gradient).to_string() + " for " + graph_.type(value).to_string());
    ValueId& sum = gradients_[index(value)];
    sum = sum == Adjoint::kNone ? gradient : op("add", {sum, gradient}, {});
  }

  const KnownSymbols known_;
  const OpTable& ops_;
  Graph graph_;
  GraphBuilder builder_;
  std::vector<ValueId> map_;         // by value of the source
  std::vector<Diagnostic> refused_;  // operators without a gradient, from the last to the first
  std::vector<ValueId> gradients_;   // by value of `graph_` that the source has, too
};

}  // namespace

Graph gradients(const Graph& graph, ValueId output, const std::vector<ValueId>& wrt, const OpTable& ops) {
  return Differentiation(graph, ops).run(output, wrt);
}

}  // namespace tessera::inline autodiff
