#include "import/aten/graph_importer.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_set>

#include "arith/simplify.h"
#include "graph/subgraph.h"
#include "import/aten/in_place.h"
#include "import/aten/operator_table.h"
#include "import/aten/program_inputs.h"
#include "import/aten/size_nodes.h"
#include "import/common/failure_list.h"
#include "import/common/finished_graph.h"
#include "support/error.h"
#include "support/operator_rule_error.h"
#include "support/symbolic_shape_error.h"

namespace tessera::inline aten {
namespace {

class AtenImporter {
 public:
  AtenImporter(const AtenProgram& program, const ImportOptions& options, const OpTable& ops, Evaluator& evaluator)
      : program_(program),
        options_(options),
        builder_(graph_),
        known_(options.symbols),
        state_{{ops, graph_, builder_, ConstantFinder(graph_, evaluator)}, program} {
    graph_.symbols = options.symbols;
    state_.lookup = [this](const std::string& name) { return lookup(name); };
  }

  void walk() {
    find_needed();
    add_inputs();
    for (size_t i = 0; i < program_.nodes.size(); ++i)
      if (needed_[i]) import(program_.nodes[i]);
  }

  ReadOutcome outcome() {
    if (symbols_stop_) return *symbols_stop_;
    if (!failures_.empty()) {
      if (!options_.symbols.empty()) return NoGraph{refused_[0].name, refused_[0].reason};
      return failures_.refusal();
    }
    set_outputs();
    Graph graph = needed_part(graph_);
    if (const auto unlearned = unlearned_symbol(graph))
      return NoGraph{{}, fmt::format("no input has '{}' as a dimension by itself", *unlearned)};
    return ImportedModel{std::move(graph), nullptr};
  }

  std::vector<RefusedAtenNode> refused() const { return refused_; }

 private:
  // Nodes that an output depends on.
  void find_needed() {
    std::set<std::string>& wanted = state_.read;
    for (const AtenOutput& output : program_.outputs)
      for (const ArgumentItem& item : output.argument.items) wanted.insert(item.name);
    needed_.assign(program_.nodes.size(), false);
    for (size_t i = program_.nodes.size(); i-- > 0;) {
      const AtenNode& node = program_.nodes[i];
      bool counts = !without_writing(node.target).empty();  // what it writes may be seen elsewhere
      for (const AtenArgument& output : node.outputs)
        for (const ArgumentItem& item : output.items)
          counts = counts || (!item.name.empty() && wanted.contains(item.name));
      if (!counts) continue;
      needed_[i] = true;
      for (const auto& [name, argument] : node.arguments)
        if (argument.kind != ArgumentKind::kString)
          for (const ArgumentItem& item : argument.items)
            if (!item.name.empty()) wanted.insert(item.name);
    }
  }

  void add_inputs() {
    const ProgramInputs inputs = resolve_inputs(program_, options_);
    state_.symbols = inputs.symbols;
    for (const AtenInput& input : program_.inputs)
      for (const ArgumentItem& item : input.argument.items) memory_.add_given(item.name);
    for (const auto& input : inputs.tensors)
      define(input.name, graph_.add_input(graph_.unique_name(input.name), input.type));
    for (const auto& [name, size] : program_.size_values)
      if (const auto type = type_of({DType::kI64, {}, {size}}, inputs.symbols))
        state_.sizes.emplace(name, type->shape[0]);
    std::set<std::string> changed;
    for (const AtenOutput& output : program_.outputs) changed.insert(output.buffer);
    for (const AtenInput& input : program_.inputs) {
      if (input.kind != AtenInput::Kind::kWeight) continue;
      const std::string& name = input.argument.items[0].name;
      weights_.emplace(name, input.weight);
      if (!input.is_buffer || !changed.contains(input.weight)) continue;
      auto initial = std::make_shared<const Tensor>(weight_tensor(program_, input.weight));
      define(name, graph_.add_input(graph_.unique_name(name), {initial->dtype(), make_shape(initial->dims()), {}}));
      states_.push_back({input.weight, name, std::move(initial)});
    }
  }

  void define(const std::string& name, ValueId value) {
    if (!state_.tensors.emplace(name, value).second)
      throw UserError({.id = "TSR-1114",
                       .message = fmt::format("{}: the value '{}' is made twice", program_.place, name),
                       .node = {},
                       .legal = "one node for each value",
                       .hint = "export the program again"});
  }

  std::optional<ValueId> lookup(const std::string& name) {
    if (const auto known = state_.tensors.find(name); known != state_.tensors.end()) return known->second;
    const auto weight = weights_.find(name);
    if (weight == weights_.end()) return std::nullopt;
    // Two names may stand for one weight.
    ValueId& value = constants_.emplace(weight->second, -1).first->second;
    if (value < 0) {
      auto tensor = std::make_shared<const Tensor>(weight_tensor(program_, weight->second));
      const std::string loc = builder_.loc();
      builder_.set_loc(name);
      value = builder_.add(state_.ops.get("constant"), {}, {{"value", std::move(tensor)}}, name);
      builder_.set_loc(loc);
    }
    state_.tensors.emplace(name, value);
    return value;
  }

  void import(const AtenNode& node) {
    for (const auto& [name, argument] : node.arguments)
      if (argument.kind != ArgumentKind::kString)
        for (const ArgumentItem& item : argument.items)
          if (unknown_.contains(item.name)) return depend(node, item.name);
    AtenContext context(state_, node);
    builder_.set_loc(node.name);
    const NodeLabel label{node.target, node.name};
    const auto refuse = [&](const std::string& reason) {
      refused_.push_back({node.name, node.target, reason});
      stand_in(node, context);
    };
    try {
      for (const std::string& name : context.results())
        if (const auto type = program_.types.find(name); type != program_.types.end() && !type->second.no_dtype.empty())
          throw UnsupportedNode{fmt::format("its result has {}", type->second.no_dtype)};
      if (!import_size_node(context, node.target)) {
        const std::string pure = without_writing(node.target);
        const AtenOperator* known = find_operator(pure.empty() ? node.target : pure);
        if (!known) throw UnsupportedNode{"the operator is not supported"};
        if (!pure.empty())
          if (const std::string reason = memory_.refusal(node); !reason.empty()) throw UnsupportedNode{reason};
        known->handler(context);
        if (!pure.empty() && context.outputs().contains(0)) write(node, context.outputs().at(0));
      }
      bind(context);
      memory_.add(node);
    } catch (const UnsupportedNode& unsupported) {
      failures_.add(label, unsupported);
      refuse(unsupported.reason);
    } catch (const OperatorRuleError& error) {
      failures_.add(label, error.diagnostic(), true);
      refuse(error.diagnostic().message);
    } catch (const SymbolicShapeError& error) {
      if (!symbols_stop_) symbols_stop_ = NoGraph{node.name, error.diagnostic().message};
      refuse(error.diagnostic().message);
    } catch (const UserError& error) {
      failures_.add(label, error.diagnostic(), false);
      refuse(error.diagnostic().message);
    }
  }

  // What reads a value that nothing can stand for cannot be judged, and is not the program's fault.
  void depend(const AtenNode& node, const std::string& operand) {
    refused_.push_back({node.name, node.target, fmt::format("it reads '{}', which is not read", operand)});
    stand_in(node, AtenContext(state_, node));
  }

  // The operand's names stand for the result.
  void write(const AtenNode& node, ValueId value) {
    for (const std::string& name : memory_.names_of_operand(node)) state_.tensors.insert_or_assign(name, value);
  }

  void bind(AtenContext& context) {
    const std::vector<std::string>& names = context.results();
    if (context.size_result()) {
      if (!names.empty()) state_.sizes.insert_or_assign(names[0], *context.size_result());
      return;
    }
    for (size_t i = 0; i < names.size(); ++i)
      if (context.wants(i) && !context.outputs().contains(i))
        context.unsupported(fmt::format("its result {}, '{}'", i, names[i]));
    for (const auto& [i, value] : context.outputs()) {
      if (i >= names.size() || names[i].empty()) continue;
      check_declared(names[i], value, context);
      define(names[i], value);
      const Node* producer = graph_.producer(value);
      if (producer && producer->op->kind != OpKind::kConstant && named_.insert(value).second)
        graph_.rename(value, graph_.unique_name(names[i]));
    }
  }

  // What the handler made is what the program declares: a difference would be a wrong answer without a word.
  void check_declared(const std::string& name, ValueId value, const AtenContext& context) const {
    const auto declared = program_.types.find(name);
    if (declared == program_.types.end()) return;
    const auto type = type_of(declared->second, state_.symbols);
    if (!type) return;
    const TensorType& made = graph_.type(value);
    bool fits = type->dtype == made.dtype && type->shape.size() == made.shape.size();
    for (size_t d = 0; fits && d < made.shape.size(); ++d) {
      const auto a = as_int(type->shape[d]), b = as_int(made.shape[d]);
      fits = !a || !b || *a == *b;
    }
    if (!fits)
      context.malformed(
          fmt::format("the result '{}' is declared as {} and would be {}", name, type->to_string(), made.to_string()),
          "one type");
  }

  // Values of the declared types for what a refused node would have made, so that what reads them is judged.
  void stand_in(const AtenNode& node, const AtenContext& context) {
    for (const std::string& name : context.results()) {
      if (name.empty() || state_.tensors.contains(name)) continue;
      const auto declared = program_.types.find(name);
      const auto type = declared == program_.types.end() ? std::nullopt : type_of(declared->second, state_.symbols);
      if (type) define(name, graph_.add_input(graph_.unique_name(name), *type));
      else unknown_.insert(name);
    }
  }

  void set_outputs() {
    OutputList outputs(builder_, state_.ops);
    for (const AtenOutput& output : program_.outputs)
      if (output.buffer.empty() && output.argument.kind == ArgumentKind::kTensor)
        outputs.add(output_value(output.argument.items[0].name), output.argument.items[0].name);
    for (const StateOfBuffer& state : states_) {
      const auto after = std::find_if(program_.outputs.begin(), program_.outputs.end(),
                                      [&](const AtenOutput& output) { return output.buffer == state.buffer; });
      outputs.add(output_value(after->argument.items[0].name), after->argument.items[0].name);
      graph_.states.push_back({graph_.value(*lookup(state.name)).name, state.initial});
    }
    if (graph_.outputs.size() == states_.size())
      throw UserError({"TSR-1013", "the program has no outputs", "", "one tensor or more", "export it again"});
  }

  ValueId output_value(const std::string& name) {
    const auto value = lookup(name);
    if (!value)
      throw UserError({.id = "TSR-1114",
                       .message = fmt::format("{}: no node makes the output '{}'", program_.place, name),
                       .node = {},
                       .legal = "outputs that are inputs or results",
                       .hint = "export the program again"});
    return *value;
  }

  struct StateOfBuffer {
    std::string buffer, name;  // the weight, and the input
    TensorPtr initial;
  };

  const AtenProgram& program_;
  const ImportOptions& options_;
  Graph graph_;
  GraphBuilder builder_;
  KnownSymbols known_;
  AtenImport state_;
  FailureList failures_;
  std::vector<RefusedAtenNode> refused_;
  std::optional<NoGraph> symbols_stop_;
  SharedMemory memory_;
  std::vector<bool> needed_;
  std::map<std::string, std::string> weights_;  // of the program's names
  std::map<std::string, ValueId> constants_;    // by weight
  std::set<std::string> unknown_;               // values that nothing can stand for
  std::vector<StateOfBuffer> states_;
  std::unordered_set<ValueId> named_;
};

}  // namespace

ReadOutcome build_graph(const AtenProgram& program, const ImportOptions& options, const OpTable& ops,
                        Evaluator& evaluator) {
  // Until no two sizes are left that the program needs to be equal; each time a symbol is gone.
  ImportOptions now = options;
  while (true) {
    try {
      AtenImporter importer(program, now, ops, evaluator);
      importer.walk();
      return importer.outcome();
    } catch (const EqualSizes& equal) {
      VarMap map;
      std::erase_if(now.symbols, [&](const SymbolRange& symbol) {
        if (symbol.var->name != equal.symbol) return false;
        map[symbol.var.get()] = equal.size;
        return true;
      });
      check(!map.empty(), "an import asks twice for the value of a symbol");
      for (auto& [name, size] : now.equal) size = substitute(size, map);
      now.equal[equal.symbol] = equal.size;
    }
  }
}

std::vector<RefusedAtenNode> find_refused(const AtenProgram& program, const ImportOptions& options, const OpTable& ops,
                                          Evaluator& evaluator) {
  AtenImporter importer(program, options, ops, evaluator);
  importer.walk();
  return importer.refused();
}

}  // namespace tessera::inline aten
