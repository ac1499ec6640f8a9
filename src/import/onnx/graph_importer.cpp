#include "import/onnx/graph_importer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <unordered_map>
#include <unordered_set>
#include <variant>

#include "arith/simplify.h"
#include "graph/data_sizes.h"
#include "graph/subgraph.h"
#include "import/common/failure_list.h"
#include "import/common/finished_graph.h"
#include "import/common/refused_model.h"
#include "import/common/region_scope.h"
#include "import/onnx/dynamic/declared_shapes.h"
#include "import/onnx/dynamic/flow_types.h"
#include "import/onnx/dynamic/open_operator.h"
#include "import/onnx/dynamic/recurrent_loop.h"
#include "import/onnx/dynamic/string_rules.h"
#include "import/onnx/dynamic/when_run.h"
#include "import/onnx/node_context.h"
#include "import/onnx/operator_table.h"
#include "import/onnx/operators/data_size.h"
#include "import/onnx/read/dtypes.h"
#include "import/onnx/read/model_inputs.h"
#include "import/onnx/read/model_states.h"
#include "import/onnx/read/tensor_reader.h"
#include "import/onnx/write/own_domain.h"
#include "support/error.h"
#include "support/operator_rule_error.h"
#include "support/symbolic_shape_error.h"

namespace tessera::inline onnx_import {
namespace {

// What the blocks of one import share: the model's own graph, and subgraphs that run as blocks of a flow.
struct ImportShared {
  std::shared_ptr<LoadedModel> model;
  const OpTable& ops;
  Evaluator& evaluator;
  DeclaredShapes declared_shapes = {};
  FailureList failures = {};
  FlowParts parts = {};
  OpenNodes open_nodes = {};
  bool loop_nodes = false;    // ImportOptions
  bool for_training = false;  // ImportOptions
  bool graph_alone = false;
  NoGraph first_step = {};  // the first node that needs steps of a run, once there is one
};

// As messages name it.
NodeLabel label_of(const FlatNode& node) {
  const std::string domain = standard_domain(node.proto->domain());
  const std::string& type = node.proto->op_type();
  return {
      fmt::format("{} ({}:{})", type.empty() ? "''" : type, domain.empty() ? "ai.onnx" : domain, opset_version(node)),
      node.label};
}

// Ends an import from within the handlers of nodes around the one where it is found.
struct StopImport {
  NoGraph why;
};

// While it lives, what is known of elements counts for nothing.
class NumbersScope {
 public:
  explicit NumbersScope(ImportState& state) : state_(state) { state_.keeps_numbers = false; }
  ~NumbersScope() { state_.keeps_numbers = true; }
  NumbersScope(const NumbersScope&) = delete;
  NumbersScope& operator=(const NumbersScope&) = delete;

 private:
  ImportState& state_;
};

// Imports the model's graph, or, with a `parent`, what is put into a block of a flow.
class GraphImporter {
 public:
  explicit GraphImporter(ImportShared& shared, GraphImporter* parent = nullptr)
      : shared_(shared),
        parent_(parent),
        proto_(shared.model->proto.graph()),
        model_(shared.model),
        builder_(graph_),
        flow_(graph_, shared.parts),
        state_{{shared.ops, graph_, builder_, ConstantFinder(graph_, shared.evaluator)},
               model_,
               flow_,
               shared.failures,
               [this](const std::string& name) { return lookup(name); },
               [this](const onnx::GraphProto& graph, const FlatNode& node, const std::vector<Binding>& inputs) {
                 return open_subgraph(graph, node, inputs);
               },
               [this](const onnx::GraphProto& graph, const FlatNode& node, const std::vector<BlockInput>& inputs,
                      std::vector<FlowStep> first) { return open_block(graph, node, inputs, std::move(first)); },
               [this](const FlatNode& node, const std::string& name, const std::vector<TensorType>& inputs,
                      const RegionBody& body) { return open_region(node, name, inputs, body); },
               [this] { return checkpoint(); },
               [this](const FlatNode& node, std::vector<SlotId>& inputs, std::vector<FlowType>& results) {
                 return elementwise_piece(node, inputs, results);
               },
               [this](const std::string& name) {
                 return declared_shapes_.find(name, [this](const std::string& other) { return one_element(other); });
               }} {
    state_.loop_nodes = shared.loop_nodes;
    state_.for_training = shared.for_training;
  }

  BuildOutcome run(const ImportOptions& options) {
    symbolic_ = !options.symbols.empty() || options.data_sizes;
    graph_.symbols = options.symbols;
    states_ = read_states(model_->proto);
    size_values_ = read_size_values(model_->proto);
    KnownSymbols known(graph_.symbols);
    if (symbolic_) state_.known_symbols = &known;
    read_initializers();
    const std::set<std::string> defined = read_input_names();
    std::vector<FlatNode> nodes = flatten_nodes(*model_, defined, [](const FlatNode& node) {
      return find_importer(standard_domain(node.proto->domain()), node.proto->op_type()) != nullptr;
    });
    check_outputs(nodes, defined);
    nodes = needed(std::move(nodes));
    for (const FlatNode& node : nodes) check_supported(node);
    const RunTimeValues found = find_run_time_values(proto_, nodes);
    const NoGraph border{{}, "the model has strings, sequences, optionals or maps as inputs or outputs"};
    if (symbolic_ && found.at_border) return border;
    if (found.at_border) shared_.graph_alone = false;  // it is a flow whatever its nodes are
    if (auto other = add_inputs(options, nodes, found)) return *std::move(other);
    declared_shapes_.add_graph(proto_);
    const DeclaredShapes::Scope scope(declared_shapes_, nodes);
    for (const FlatNode& node : nodes) {
      import(node);
      if (flow_.num_steps() > 0 && shared_.first_step.reason.empty())
        shared_.first_step = {node.label, fmt::format("{} gives what only a run knows", node.proto->op_type())};
      if (shared_.graph_alone && flow_.num_steps() > 0) return shared_.first_step;
    }
    if (!failures_.empty()) return failures_.refusal();
    const bool steps = flow_.num_steps() > 0, parts = any_parts_in_outputs();
    NoGraph why = found.at_border ? border
                  : steps         ? shared_.first_step
                  : parts         ? NoGraph{{}, "an output is no tensor of a shape that is known while compiling"}
                                  : NoGraph{};
    if (symbolic_ && (steps || parts)) return why;
    if (found.at_border || options.leave_open || steps || parts)
      return ImportedModel{{}, finished_flow(std::move(why))};
    set_outputs();
    set_states();
    Graph graph = needed_part(graph_);
    if (symbolic_)
      if (const auto symbol = unlearned_symbol(graph))
        return NoGraph{{}, fmt::format("no input has the dimension {} by itself", *symbol)};
    return ImportedModel{std::move(graph), nullptr};
  }

 private:
  void read_initializers() {
    if (proto_.sparse_initializer_size() > 0)
      throw UserError({"TSR-1035",
                       fmt::format("the model has {} sparse initializers, the first is '{}'",
                                   proto_.sparse_initializer_size(), proto_.sparse_initializer(0).values().name()),
                       "", "dense initializers", "convert them to dense tensors"});
    for (auto& tensor : *model_->proto.mutable_graph()->mutable_initializer()) {
      if (tensor.name().empty())
        throw UserError({"TSR-1007", "an initializer has no name", "", "a name for every initializer", ""});
      if (!initializers_.emplace(tensor.name(), &tensor).second)
        throw UserError({"TSR-1007", fmt::format("there are two initializers named '{}'", tensor.name()), "",
                         "one definition of each name", ""});
    }
  }

  // Names of inputs and initializers. An initializer may also be listed as an input (before IR version 4 it had to).
  std::set<std::string> read_input_names() const {
    std::set<std::string> names;
    for (const auto& input : proto_.input()) {
      if (input.name().empty())
        throw UserError({"TSR-1007", "a graph input has no name", "", "a name for every input", ""});
      if (!names.insert(input.name()).second)
        throw UserError({"TSR-1007", fmt::format("there are two graph inputs named '{}'", input.name()), "",
                         "one definition of each name", ""});
    }
    for (const auto& [name, tensor] : initializers_) names.insert(name);
    return names;
  }

  void check_outputs(const std::vector<FlatNode>& nodes, const std::set<std::string>& defined) const {
    if (proto_.output_size() == 0)
      throw UserError({"TSR-1013", "the graph has no outputs", "", "one output or more", ""});
    std::unordered_set<std::string> produced;
    for (const FlatNode& node : nodes) produced.insert(node.proto->output().begin(), node.proto->output().end());
    std::unordered_set<std::string> seen;
    for (const auto& output : proto_.output()) {
      if (output.name().empty() || (!produced.count(output.name()) && !defined.count(output.name())))
        throw UserError({"TSR-1013", fmt::format("nothing produces the graph output '{}'", output.name()), "",
                         "names of node outputs, graph inputs or initializers", ""});
      if (!seen.insert(output.name()).second)
        throw UserError({"TSR-1014", fmt::format("the graph output '{}' is listed twice", output.name()), "",
                         "each output once", ""});
    }
  }

  // Without the nodes that no output depends on.
  std::vector<FlatNode> needed(std::vector<FlatNode> nodes) const {
    std::unordered_set<std::string> names;
    for (const auto& output : proto_.output()) names.insert(output.name());
    std::vector<FlatNode> kept;
    for (size_t i = nodes.size(); i-- > 0;) {
      const auto& outputs = nodes[i].proto->output();
      if (std::none_of(outputs.begin(), outputs.end(), [&](const std::string& name) { return names.count(name); }))
        continue;
      const std::vector<std::string> reads = read_names(*nodes[i].proto);
      names.insert(reads.begin(), reads.end());
      kept.push_back(std::move(nodes[i]));
    }
    std::reverse(kept.begin(), kept.end());
    return kept;
  }

  // What can be said about a node without its operands' types.
  void check_supported(const FlatNode& node) {
    const std::string domain = standard_domain(node.proto->domain());
    const int64_t version = opset_version(node);
    const OperatorImporter* importer = find_importer(domain, node.proto->op_type());
    std::string reason;
    if (domain == kOwnDomain && version == 1) return;  // its handler knows
    if (node.proto->op_type().empty()) reason = "the node has no operator";
    else if (version == 0)
      reason =
          fmt::format("the model does not import an opset of the domain '{}'", domain.empty() ? "ai.onnx" : domain);
    else if (!importer) reason = "the operator is not supported";
    else if (version < importer->since) reason = fmt::format("the operator exists from opset {} on", importer->since);
    else if (version > importer->until) reason = fmt::format("the operator exists up to opset {}", importer->until);
    if (reason.empty()) return;
    failures_.add(label_of(node), UnsupportedNode{reason});
    mark_failed(node);
  }

  void mark_failed(const FlatNode& node) {
    failed_nodes_.insert(node.proto);
    for (const std::string& output : node.proto->output())
      if (!output.empty()) failed_.insert(output);
  }

  // For each value the first node that reads it.
  static std::map<std::string, std::string> first_readers(const std::vector<FlatNode>& nodes) {
    std::map<std::string, std::string> readers;
    for (const FlatNode& node : nodes)
      for (const std::string& input : node.proto->input()) readers.emplace(input, node.label);
    return readers;
  }

  // Answers what becomes of the model when its inputs have no place in a graph.
  std::optional<BuildOutcome> add_inputs(const ImportOptions& options, const std::vector<FlatNode>& nodes,
                                         const RunTimeValues& found) {
    std::set<std::string> constants;
    for (const auto& [name, tensor] : initializers_) constants.insert(name);
    for (const ModelState& state : states_) constants.erase(state.input);
    std::vector<ModelInput> inputs;
    try {
      inputs = resolve_inputs(proto_, constants, options, first_readers(nodes), found.structures);
    } catch (const UserError&) {
      // Shapes do not help a model whose operators are not supported.
      if (!failures_.empty()) return failures_.refusal();
      throw;
    }
    for (ModelInput& input : inputs) {
      if (symbolic_) {
        if (!input.shape) return NoGraph{{}, fmt::format("input '{}': {}", input.name, input.no_shape)};
        declared_shapes_.bind_dims(proto_, input.name, *input.type.dims);
        values_[input.name] = graph_.add_input(input.name, {input.type.dtype, *input.shape, {}});
        continue;
      }
      const SlotId slot = shared_.parts.new_slot(input.type);
      flow_inputs_.push_back({input.name, input.type, slot});
      if (!input.type.is_fixed()) {
        values_[input.name] = Binding(Structure{Structure::Kind::kSlot, input.type, {}, slot});
        continue;
      }
      const bool strings = input.type.dtype == DType::kString;
      declared_shapes_.bind_dims(proto_, input.name, *input.type.dims);
      const ValueId value =
          graph_.add_input(input.name, {strings ? DType::kI64 : input.type.dtype, make_shape(*input.type.dims), {}});
      if (strings) flow_.mark_string(value);
      flow_.bind_input(value, slot);
      values_[input.name] = value;
    }
    return std::nullopt;
  }

  // Whether a value that was imported already is a single number, which broadcasts to every shape.
  bool one_element(const std::string& name) {
    const auto found = lookup(name);
    if (!found || !found->is_value()) return false;
    const auto dims = static_dims(graph_.type(found->value).shape);
    return dims && (dims->empty() || *dims == std::vector<int64_t>{1});
  }

  std::optional<Binding> lookup(const std::string& name) {
    if (const auto it = values_.find(name); it != values_.end()) return it->second;
    const auto it = initializers_.find(name);
    if (it == initializers_.end()) {
      if (!parent_) return std::nullopt;
      const auto outer = parent_->lookup(name);
      if (!outer) return std::nullopt;
      return values_[name] = captured(*outer);
    }
    // The tensor takes its bytes out of the model, so that they go when it goes and not with the last of all weights.
    const auto own = std::make_shared<onnx::TensorProto>();
    own->Swap(it->second);
    it->second->set_name(name);
    Tensor tensor = tensor_from_proto(*own, own, model_->external, name);
    return values_[name] = constant(std::move(tensor), name);
  }

  ValueId constant(Tensor tensor, const std::string& name) {
    const bool strings = tensor.dtype() == DType::kString;
    if (strings) tensor = string_numbers(tensor, shared_.parts);
    const std::string loc = builder_.loc();
    builder_.set_loc(name);
    const ValueId value = builder_.add(state_.ops.get("constant"), {},
                                       {{"value", std::make_shared<const Tensor>(std::move(tensor))}}, name);
    builder_.set_loc(loc);
    if (strings) flow_.mark_string(value);
    return value;
  }

  // What stands around a block, as the block sees it.
  Binding captured(const Binding& outer) {
    if (outer.is_value()) {
      const TensorType& type = parent_->graph_.type(outer.value);
      const bool strings = parent_->flow_.is_string(outer.value);
      if (const auto known = parent_->state_.constants.find(outer.value)) {
        // Weights that learn stay where they are, one for all iterations.
        const bool may_learn = shared_.for_training && region_ && is_float(known->dtype()) && !known->dims().empty();
        const std::string& name = parent_->graph_.value(outer.value).name;
        const ValueId value = may_learn ? region_->captured(outer.value) : constant(*known, name);
        if (may_learn) state_.constants.remember(value, *known);
        if (strings) flow_.mark_string(value);
        return value;
      }
      if (!region_)
        return flow_.value_of(parent_->flow_.slot_of(outer.value), strings ? DType::kString : type.dtype, type.dims());
      const ValueId value = region_->captured(outer.value);
      if (strings) flow_.mark_string(value);
      return value;
    }
    if (outer.parts->kind == Structure::Kind::kSlot) {
      reads_slots_ = true;
      return outer;
    }
    Structure parts = *outer.parts;
    for (Binding& item : parts.items) item = captured(item);
    return Binding(std::move(parts));
  }

  std::variant<ImportedRegion, NotInGraph> open_region(const FlatNode& node, const std::string& name,
                                                       const std::vector<TensorType>& inputs, const RegionBody& body) {
    GraphImporter child(shared_, this);
    child.region_.emplace(graph_, state_.constants, shared_.ops, child.graph_, child.builder_);
    child.symbolic_ = symbolic_;
    child.graph_.symbols = graph_.symbols;
    child.graph_.name = name;
    std::vector<ValueId> values;
    for (const TensorType& type : inputs) values.push_back(child.graph_.add_input("in", type));
    child.builder_.set_loc(node.label);
    NodeContext context(child.state_, node, opset_version(node), "");
    auto results = body(context, values);
    if (auto* refused = std::get_if<NotInGraph>(&results)) return std::move(*refused);
    if (child.flow_.num_steps() > 0 || child.reads_slots_)
      return NotInGraph{NotInGraph::Why::kRun, "a region with values that only a run knows"};
    child.graph_.outputs = std::get<std::vector<ValueId>>(std::move(results));
    std::vector<bool> strings;
    for (const ValueId output : child.graph_.outputs) strings.push_back(child.flow_.is_string(output));
    std::vector<RuntimeCheck> checks;
    for (auto& [list, check] : child.state_.checks) {
      child.graph_.outputs.push_back(list);
      checks.push_back(std::move(check));
    }
    CapturedRegion region = child.region_->finish(needed_part(child.graph_));
    return ImportedRegion{std::move(region.graph), std::move(region.captured), std::move(checks), std::move(strings)};
  }

  bool is_failed(const std::string& name) const {
    return failed_.count(name) != 0 || (parent_ && parent_->is_failed(name));
  }

  void import(const FlatNode& node) {
    if (failed_nodes_.count(node.proto)) return;
    const std::vector<std::string> inputs = read_names(*node.proto);
    // What depends on a node that could not be imported cannot be judged.
    if (std::any_of(inputs.begin(), inputs.end(), [this](const std::string& name) { return is_failed(name); }))
      return mark_failed(node);
    builder_.set_loc(node.label);
    try {
      const size_t checks = state_.checks.size(), steps = flow_.num_steps();
      const auto handle = [](NodeContext& context, const OperatorImporter* importer) {
        importer ? importer->handler(context) : import_own_node(context);
      };
      if (symbolic_) return import_symbolic(node, inputs, [&] { import_with(node, handle); });
      try {
        import_with(node, handle);
      } catch (const UnsupportedNode& first) {
        if (is_block_) throw;
        if (shared_.graph_alone) throw StopImport{{node.label, first.reason}};
        // Shapes may be values that only a run knows.
        const auto take_back = [&] {
          state_.checks.resize(checks);
          flow_.truncate(steps);
        };
        try {
          if (!import_when_run(node, take_back)) throw UnsupportedNode(first);
          if (shared_.first_step.reason.empty()) shared_.first_step = {node.label, first.reason};
        } catch (const UnsupportedNode& second) {
          // What has nothing to do with shapes, so that the form for open ones is refused for it, too, is said as it
          // was found.
          throw second.refusal == Refusal::kOperator || second.cause != first.reason ? UnsupportedNode(second)
                                                                                     : UnsupportedNode(first);
        }
      }
    } catch (const UnsupportedNode& unsupported) {
      if (symbolic_) throw StopImport{{node.label, unsupported.reason}};
      failures_.add(label_of(node), unsupported);
      mark_failed(node);
    } catch (const UnsupportedSubgraph&) {
      mark_failed(node);
    } catch (const StaticShapeNeeded& needed) {
      if (!symbolic_) throw;
      throw StopImport{{node.label, fmt::format("{}: {}", node.proto->op_type(), needed.what())}};
    } catch (const SymbolicShapeError& error) {
      const Diagnostic& found = error.diagnostic();
      if (symbolic_)
        throw StopImport{{node.label, fmt::format("{}: {}{}{}", node.proto->op_type(), found.message,
                                                  found.legal.empty() ? "" : "; legal: ", found.legal)}};
      failures_.add(label_of(node), error.diagnostic(), true);
      mark_failed(node);
    } catch (const OperatorRuleError& error) {
      failures_.add(label_of(node), error.diagnostic(), true);
      mark_failed(node);
    } catch (const RefusedModel& refused) {
      failures_.add(label_of(node), refused.diagnostic(), false,
                    refused.reason() == RefusedModel::Reason::kUnsupported);
      mark_failed(node);
    } catch (const UserError& error) {
      failures_.add(label_of(node), error.diagnostic(), false);
      mark_failed(node);
    }
  }

  // What has no meaning for a size that data decide and that may be 0 may have one where there are elements.
  template <typename Import>
  void import_symbolic(const FlatNode& node, const std::vector<std::string>& names, const Import& import_once) {
    const size_t checks = state_.checks.size();
    try {
      import_once();
    } catch (const EqualSizes&) {
      throw;
    } catch (...) {
      std::vector<ValueId> operands;
      for (const std::string& name : names)
        if (const auto binding = lookup(name); binding && binding->is_value()) operands.push_back(binding->value);
      state_.checks.resize(checks);
      NodeContext context(state_, node, opset_version(node), "");
      if (!require_elements(context, operands)) throw;
      import_once();
    }
  }

  // Of a CastLike only the type of the second operand matters, whatever its shape.
  onnx::NodeProto as_cast(const FlatNode& node) {
    const FlowType like = operand_type(node, 1);
    NodeContext context(state_, node, opset_version(node), "");
    if (!like.is_tensor()) context.malformed(fmt::format("input 1 is {}", like.to_string()), "a tensor");
    onnx::NodeProto cast = *node.proto;
    cast.set_op_type("Cast");
    cast.mutable_input()->RemoveLast();
    onnx::AttributeProto& to = *cast.add_attribute();
    to.set_name("to");
    to.set_type(onnx::AttributeProto::INT);
    to.set_i(like.dtype == DType::kString ? onnx::TensorProto::STRING : onnx_of_dtype(like.dtype));
    return cast;
  }

  // Whether it is a recurrent operator that needs a Loop. Of an LSTM and its like one step is an operator of its own,
  // which does not.
  bool has_open_length(const FlatNode& node) {
    if (!is_recurrent(*node.proto) || opset_version(node) < 7 || node.proto->input_size() == 0) return false;
    const FlowType x = operand_type(node, 0);
    return x.is_tensor() && x.dims && x.dims->size() == 3 &&
           (*x.dims)[static_cast<size_t>(length_axis(*node.proto))] < 0;
  }

  FlowType operand_type(const FlatNode& node, int i) {
    NodeContext context(state_, node, opset_version(node), "");
    return context.flow_type(lookup(node.proto->input(i)).value());
  }

  // As a Loop over the steps.
  bool import_recurrent(const FlatNode& node) {
    NodeContext context(state_, node, opset_version(node), "");
    const FlowType type = operand_type(node, 0);
    if (!type.is_tensor() || type.dtype == DType::kString) context.malformed("operand 0 is no tensor of numbers", "");
    std::vector<onnx::NodeProto> nodes = loop_of_recurrent(*node.proto, onnx_of_dtype(type.dtype));
    const size_t failures = failures_.size();
    for (onnx::NodeProto& made : nodes) {
      // Its constants borrow from it.
      model_->inlined.push_back(std::move(made));
      import({&model_->inlined.back(), node.label, node.opsets});
    }
    if (failures_.size() == failures) return true;
    const UnsupportedNode refused = failures_.last_as(Refusal::kOpenLength);
    failures_.truncate(failures);
    throw UnsupportedNode(refused);
  }

  // By a step of a flow, or as pieces with open dimensions. False when there is neither; `take_back` undoes what was
  // tried.
  bool import_when_run(const FlatNode& node, const std::function<void()>& take_back) {
    if (node.proto->domain() == kOwnDomain || contradicts_declaration(node)) return false;
    if (node.proto->op_type() == "CastLike" && node.proto->input_size() == 2) {
      const onnx::NodeProto cast = as_cast(node);
      return import_when_run({&cast, node.label, node.opsets}, take_back);
    }
    if (has_open_length(node)) {
      take_back();
      return import_recurrent(node);
    }
    std::optional<UnsupportedNode> reason;
    if (const WhenRun when_run = find_when_run(*node.proto)) {
      take_back();
      try {
        import_with(node, [&](NodeContext& context, const OperatorImporter*) { when_run(context); });
        return true;
      } catch (const UnsupportedNode& unsupported) {
        reason = unsupported;
      }
    }
    if (const std::vector<std::string> names = read_names(*node.proto);
        std::any_of(names.begin(), names.end(), [this](const std::string& name) { return has_numbers(name); })) {
      take_back();
      try {
        const NumbersScope scope(state_);
        import_with(node, [&](NodeContext& context, const OperatorImporter* importer) { importer->handler(context); });
        return true;
      } catch (const UnsupportedNode&) {
        // As with any other operand.
      }
    }
    for (const auto& attribute : node.proto->attribute())
      if (attribute.has_g()) return false;
    take_back();
    try {
      import_with(node, [&](NodeContext& context, const OperatorImporter*) {
        import_open(context, shared_.evaluator, shared_.open_nodes,
                    [model = model_, ops = &shared_.ops](
                        const FlatNode& alone, const std::vector<AloneOperand>& operands, Evaluator& evaluator) {
                      ImportShared shared{model, *ops, evaluator};
                      return GraphImporter(shared).import_alone(alone, operands);
                    });
      });
      return true;
    } catch (const UnsupportedNode& unsupported) {
      take_back();
      if (unsupported.refusal == Refusal::kOpenDimensions) reason = unsupported;
    }
    if (reason) throw *reason;
    return false;
  }

  // Where operands have fixed shapes and the result's is declared, what the run brings has to fit that.
  bool contradicts_declaration(const FlatNode& node) {
    for (const std::string& name : node.proto->input()) {
      const auto binding = name.empty() ? std::nullopt : lookup(name);
      if (binding && !binding->is_value()) return false;
    }
    return std::any_of(node.proto->output().begin(), node.proto->output().end(),
                       [&](const std::string& name) { return !name.empty() && state_.declared(name).has_value(); });
  }

  bool has_numbers(const std::string& name) {
    const auto binding = lookup(name);
    return binding && !binding->is_value() && !binding->parts->type.numbers.empty();
  }

  AloneOutcome import_alone(const FlatNode& node, const std::vector<AloneOperand>& operands) {
    for (const AloneOperand& operand : operands) {
      if (operand.constant) {
        values_[operand.name] = constant(*operand.constant, operand.name);
        continue;
      }
      const SlotId slot = shared_.parts.new_slot({{}, operand.dtype, DType::kI64, operand.dims});
      const ValueId value = graph_.add_input(operand.name, {operand.dtype, make_shape(operand.dims), {}});
      flow_.bind_input(value, slot);
      values_[operand.name] = value;
    }
    import(node);
    if (!failures_.empty()) return failures_.last_as(Refusal::kOperator);
    AloneNode result;
    std::vector<SlotId> results;
    for (const std::string& name : node.proto->output()) {
      auto found = name.empty() ? values_.end() : values_.find(name);
      // A result that is an operand has a piece all the same, as it has for other sizes.
      if (found != values_.end() && found->second.is_value() && graph_.value(found->second.value).producer < 0)
        found->second = Binding(builder_.add(state_.ops.get("reshape"), {found->second.value},
                                             {{"shape", graph_.type(found->second.value).dims()}}));
      result.outputs.push_back(found == values_.end() ? -1 : flow_.slot_of(found->second, node.label));
      if (result.outputs.back() >= 0) results.push_back(result.outputs.back());
    }
    result.block = flow_.finish(results, state_.checks);
    result.parts = std::move(shared_.parts);
    return result;
  }

  template <typename Handle>
  void import_with(const FlatNode& node, const Handle& handle) {
    const size_t first_value = graph_.values().size();
    const bool own = node.proto->domain() == kOwnDomain;
    const OperatorImporter* importer =
        own ? nullptr : find_importer(standard_domain(node.proto->domain()), node.proto->op_type());
    NodeContext context(state_, node, opset_version(node), own ? "" : importer->primitive);
    // Before opset 6 about thirty operators could say whose memory they take over: that never changed a value.
    if (!own && context.version() < 6) context.attrs.ignore("consumed_inputs");
    const bool strings = check_strings(context);
    handle(context, importer);
    if (const auto unread = context.attrs.unread(); !unread.empty())
      throw UnsupportedNode{fmt::format("attribute '{}' is not supported", fmt::join(unread, "', '"))};
    for (size_t i = first_value; i < graph_.values().size(); ++i) context.check_size(static_cast<ValueId>(i));
    if (strings) mark_strings(context);
    for (const auto& [name, binding] : context.results()) {
      if (binding.is_value()) bind(name, binding.value, first_value);
      else values_[name] = binding;
      if (size_values_.count(name)) bind_size_value(context, name);
    }
    for (const std::string& output : node.proto->output())
      if (!output.empty() && !values_.count(output))
        throw UserError({"TSR-1045", fmt::format("{} has no output '{}'", node.proto->op_type(), output), node.label,
                         fmt::format("{} outputs", context.results().size()), ""});
  }

  // The file says that the value is a size which data decide: what it is given to is known to be that size.
  void bind_size_value(NodeContext& context, const std::string& name) {
    const Binding count = values_.at(name);
    if (!may_bind_sizes(context) || !count.is_value() || context.rank(count.value) != 0 ||
        context.dtype(count.value) != DType::kI64)
      return;
    if (const Expr most = largest_element(context, count.value))
      values_[name] = context.integer(bind_size(context, count.value, most));
  }

  // Takes back what was imported since; weights that were read stay, as they can be read only once.
  std::function<void()> checkpoint() {
    return [this, values = values_, initializers = initializers_, failed = failed_, failed_nodes = failed_nodes_,
            failures = failures_.size(), checks = state_.checks.size(), steps = flow_.num_steps(),
            conditions = state_.conditions.size()] {
      auto restored = values;
      for (const auto& [name, tensor] : initializers)
        if (const auto it = values_.find(name); it != values_.end()) restored.insert(*it);
      values_ = std::move(restored);
      initializers_ = initializers;
      failed_ = failed;
      failed_nodes_ = failed_nodes;
      failures_.truncate(failures);
      state_.checks.resize(checks);
      flow_.truncate(steps);
      state_.conditions.resize(conditions);
    };
  }

  void add_defined(std::set<std::string>& defined) const {
    if (parent_) parent_->add_defined(defined);
    for (const auto& [name, value] : values_) defined.insert(name);
    for (const auto& [name, tensor] : initializers_) defined.insert(name);
    defined.insert(failed_.begin(), failed_.end());
  }

  std::optional<OpenBlock> open_block(const onnx::GraphProto& graph, const FlatNode& node,
                                      const std::vector<BlockInput>& inputs, std::vector<FlowStep> first) {
    const auto child = std::make_shared<GraphImporter>(shared_, this);
    for (FlowStep& step : first) child->flow_.add(std::move(step));
    NodeContext context(child->state_, node, opset_version(node), "");
    std::vector<Binding> bindings;
    for (const BlockInput& input : inputs) bindings.push_back(context.from_slot(input.slot, input.type, input.fixed));
    child->builder_.set_loc(node.label);
    const auto results = child->open_subgraph(graph, node, bindings);
    if (!results) return std::nullopt;
    OpenBlock block;
    for (const Binding& result : *results) {
      const FlowType type = context.flow_type(result);
      block.results.push_back({context.slot(result), type, result.is_value()});
    }
    block.finish = [child](std::vector<FlowStep> last) {
      for (FlowStep& step : last) child->flow_.add(std::move(step));
      return child->flow_.finish({}, child->state_.checks);
    };
    return block;
  }

  int32_t elementwise_piece(const FlatNode& node, std::vector<SlotId>& inputs, std::vector<FlowType>& results) {
    GraphImporter child(shared_, this);
    child.is_block_ = true;
    std::set<std::string> seen;
    for (const std::string& name : node.proto->input()) {
      if (name.empty() || !seen.insert(name).second) continue;
      const Binding outer = lookup(name).value();
      if (outer.is_value() && graph_.type(outer.value).num_elements() == 1 && state_.constants.find(outer.value)) {
        child.values_[name] =
            child.constant(Tensor(*state_.constants.find(outer.value)).with_dims({}), graph_.value(outer.value).name);
        continue;
      }
      NodeContext context(state_, node, opset_version(node), "");
      const FlowType type = context.flow_type(outer);
      if (!type.is_tensor()) context.malformed(fmt::format("an operand that is {}", type.to_string()), "tensors");
      const bool strings = type.dtype == DType::kString;
      const ValueId value =
          child.graph_.add_input(name, {strings ? DType::kI64 : type.dtype, make_shape({kFlowBlock}), {}});
      if (strings) child.flow_.mark_string(value);
      child.values_[name] = value;
      inputs.push_back(context.slot(outer));
    }
    const size_t failures = failures_.size();
    child.import(node);
    if (failures_.size() > failures) {
      const UnsupportedNode refused = failures_.last_as(Refusal::kOpenElements);
      failures_.truncate(failures);
      throw UnsupportedNode(refused);
    }
    check(child.state_.checks.empty() && child.flow_.num_steps() == 0, "an elementwise operator with checks or steps");
    for (const std::string& name : node.proto->output()) {
      if (name.empty()) continue;
      const ValueId value = child.values_.at(name).value;
      const TensorType& type = child.graph_.type(value);
      if (type.dims() != std::vector<int64_t>{kFlowBlock})
        throw UnsupportedNode{fmt::format("a result {} of operands whose shapes only a run knows", type.to_string())};
      results.push_back({{}, child.flow_.is_string(value) ? DType::kString : type.dtype, DType::kI64, std::nullopt});
      child.graph_.outputs.push_back(value);
    }
    Graph piece = needed_part(child.graph_);
    piece.name = fmt::format("piece{}", shared_.parts.pieces.size());
    shared_.parts.pieces.push_back(std::move(piece));
    return static_cast<int32_t>(shared_.parts.pieces.size()) - 1;
  }

  std::optional<std::vector<Binding>> open_subgraph(const onnx::GraphProto& graph, const FlatNode& node,
                                                    const std::vector<Binding>& inputs) {
    if (graph.sparse_initializer_size() > 0) throw UnsupportedNode{"sparse initializers in a subgraph"};
    std::set<std::string> defined;
    add_defined(defined);
    std::vector<std::string> own;  // names that end with the subgraph: its neighbour may use them again
    const auto claim = [&](const std::string& name, const char* what) {
      if (name.empty() || !defined.insert(name).second)
        throw UserError({"TSR-1011", fmt::format("an {} of a subgraph is called '{}'", what, name), node.label,
                         "a name that nothing else has", ""});
      own.push_back(name);
    };
    for (int i = 0; i < graph.input_size(); ++i) claim(graph.input(i).name(), "input");
    for (const auto& tensor : graph.initializer()) claim(tensor.name(), "initializer");
    for (int i = 0; i < graph.input_size(); ++i) values_[graph.input(i).name()] = inputs.at(static_cast<size_t>(i));
    // A body that is opened for every step of a loop has its weights once.
    for (const auto& tensor : graph.initializer()) {
      if (const auto it = subgraph_constants_.find(&tensor); it != subgraph_constants_.end())
        values_[tensor.name()] = it->second;
      else initializers_.emplace(tensor.name(), &subgraph_initializers_.emplace_back(tensor));
    }
    const std::vector<FlatNode> nodes = flatten_subgraph(graph, node, defined);
    declared_shapes_.add_graph(graph);
    const DeclaredShapes::Scope scope(declared_shapes_, nodes);
    for (const FlatNode& inner : nodes) {
      own.insert(own.end(), inner.proto->output().begin(), inner.proto->output().end());
      check_supported(inner);
      import(inner);
    }
    std::vector<Binding> results;
    bool complete = true;
    for (const auto& output : graph.output()) {
      const auto value = lookup(output.name());
      if (value) results.push_back(*value);
      else if (is_failed(output.name())) complete = false;
      else
        throw UserError({"TSR-1010", fmt::format("nothing defines the output '{}' of a subgraph", output.name()),
                         node.label, "names of its nodes, or of values around it", ""});
    }
    for (const auto& tensor : graph.initializer())
      if (const auto it = values_.find(tensor.name()); it != values_.end())
        subgraph_constants_[&tensor] = it->second.value;
    for (const std::string& name : own) values_.erase(name), initializers_.erase(name), failed_.erase(name);
    builder_.set_loc(node.label);
    if (!complete) return std::nullopt;
    return results;
  }

  // The value takes over the ONNX name when this node made it and the name is free.
  void bind(const std::string& name, ValueId value, size_t first_value) {
    values_[name] = value;
    if (static_cast<size_t>(value) >= first_value && named_.insert(value).second)
      graph_.rename(value, graph_.unique_name(name));
  }

  bool any_parts_in_outputs() {
    return std::any_of(proto_.output().begin(), proto_.output().end(),
                       [this](const auto& output) { return !lookup(output.name())->is_value(); });
  }

  std::shared_ptr<const Flow> finished_flow(NoGraph why) {
    auto flow = std::make_shared<Flow>();
    flow->why = std::move(why);
    std::vector<SlotId> results;
    for (const auto& output : proto_.output()) {
      const Binding binding = *lookup(output.name());
      FlowType type = binding.is_value()
                          ? FlowType{{},
                                     flow_.is_string(binding.value) ? DType::kString : graph_.type(binding.value).dtype,
                                     DType::kI64,
                                     graph_.type(binding.value).dims()}
                          : binding.parts->type;
      check_declared(output, type);
      if (const auto declared = flow_type_of(output.type()); declared && declared->dtype == type.dtype)
        type.wrappers = declared->wrappers;
      results.push_back(flow_.slot_of(binding, output.name()));
      flow->outputs.push_back({output.name(), std::move(type), results.back()});
    }
    flow->inputs = flow_inputs_;
    flow->body = flow_.finish(results, state_.checks);
    flow->slots = shared_.parts.slots;
    flow->pieces = std::move(shared_.parts.pieces);
    flow->open = std::move(shared_.parts.open);
    flow->strings = shared_.parts.strings;
    return flow;
  }

  void set_outputs() {
    OutputList outputs(builder_, state_.ops);
    for (const auto& output : proto_.output()) {
      const ValueId value = lookup(output.name())->value;
      const TensorType& type = graph_.type(value);
      check_declared(output, {{}, type.dtype, DType::kI64, static_dims(type.shape)});
      outputs.add(value, output.name(), false);
    }
    for (auto& [value, check] : state_.checks) {
      graph_.outputs.push_back(value);
      graph_.checks.push_back(std::move(check));
    }
    std::unordered_map<std::string, ValueId> holders;
    for (size_t i = 0; i < graph_.values().size(); ++i) holders[graph_.values()[i].name] = static_cast<ValueId>(i);
    for (int i = 0; i < proto_.output_size(); ++i) {
      const std::string& name = proto_.output(i).name();
      const ValueId value = graph_.outputs[static_cast<size_t>(i)];
      if (graph_.value(value).name == name) continue;
      if (const auto holder = holders.find(name);
          holder != holders.end() && graph_.value(holder->second).name == name) {
        const std::string other = graph_.unique_name(name);
        graph_.rename(holder->second, other);
        holders[other] = holder->second;
      }
      graph_.rename(value, name);
    }
  }

  // Declared types of outputs are hints, but a wrong element type means that the file contradicts itself. Declared
  // shapes are often stale (another batch size) or those of another form of the model (scikit-learn's converter
  // declares labels of rank 1 where it computes a column), so that they are not held against the model.
  void check_declared(const onnx::ValueInfoProto& output, const FlowType& type) const {
    if (!output.has_type()) return;
    const auto& declared = output.type();
    const auto fail = [&](const std::string& text) {
      throw UserError({"TSR-1015", fmt::format("the graph output '{}' is declared as {}", output.name(), text), "",
                       fmt::format("{}, as its node computes it", type.to_string()), ""});
    };
    if (!declared.has_tensor_type()) {
      if (declared.value_case() == onnx::TypeProto::VALUE_NOT_SET) return;
      if (type.is_tensor()) fail("something other than a tensor");
      const auto found = flow_type_of(declared);
      if (!found || found->dtype != type.dtype) fail(found ? found->to_string() : "something that is not supported");
      return;
    }
    // An element of an optional or of a sequence may be all that a run finds in it.
    const auto& tensor = declared.tensor_type();
    if (tensor.elem_type() != onnx::TensorProto::UNDEFINED && tensor.elem_type() != onnx_of_dtype(type.dtype))
      fail(onnx_dtype_name(tensor.elem_type()));
    if (!type.is_tensor()) fail("a tensor");
  }

  // Inputs and outputs of states go behind the graph's own. (In a flow they are like any others.)
  void set_states() {
    std::vector<ValueId> inputs, outputs;
    for (const ModelState& state : states_) {
      const ValueId input = values_.at(state.input).value;
      size_t place = 0;
      while (proto_.output(static_cast<int>(place)).name() != state.output) ++place;
      const ValueId output = graph_.outputs[place];
      if (!(graph_.type(input) == graph_.type(output)))
        throw UserError({"TSR-1016",
                         fmt::format("state '{}' is {} before a run and {} behind it", state.input,
                                     graph_.type(input).to_string(), graph_.type(output).to_string()),
                         "", "one type", "remove the metadata's entry"});
      inputs.push_back(input);
      outputs.push_back(output);
      onnx::TensorProto& tensor = *initializers_.at(state.input);
      const auto own = std::make_shared<onnx::TensorProto>();
      own->Swap(&tensor);
      tensor.set_name(state.input);
      graph_.states.push_back(
          {state.input, std::make_shared<const Tensor>(tensor_from_proto(*own, own, model_->external, state.input))});
    }
    const auto move_behind = [](std::vector<ValueId>& list, const std::vector<ValueId>& moved, ptrdiff_t end) {
      std::erase_if(list, [&](ValueId value) { return std::find(moved.begin(), moved.end(), value) != moved.end(); });
      list.insert(list.begin() + end - std::ssize(moved), moved.begin(), moved.end());
    };
    move_behind(graph_.inputs, inputs, std::ssize(graph_.inputs));
    move_behind(graph_.outputs, outputs, std::ssize(graph_.outputs) - std::ssize(graph_.checks));
  }

  ImportShared& shared_;
  GraphImporter* parent_;
  std::optional<RegionScope> region_;  // of a node with control flow in the parent's graph
  bool is_block_ = false;              // an operator on one block of elements: shapes are known
  bool symbolic_ = false;     // shapes are expressions of the graph's symbols, and nothing becomes a step of a run
  bool reads_slots_ = false;  // of what stands around a region
  const onnx::GraphProto& proto_;
  std::shared_ptr<LoadedModel> model_;
  Graph graph_;
  GraphBuilder builder_;
  FlowBuilder flow_;
  ImportState state_;
  DeclaredShapes& declared_shapes_ = shared_.declared_shapes;
  FailureList& failures_ = shared_.failures;
  std::vector<ModelState> states_;
  std::set<std::string> size_values_;
  std::vector<FlowPort> flow_inputs_;
  std::unordered_map<std::string, onnx::TensorProto*> initializers_;
  std::deque<onnx::TensorProto> subgraph_initializers_;                       // copies: a subgraph is read only
  std::unordered_map<const onnx::TensorProto*, ValueId> subgraph_constants_;  // those that were read, by the original
  std::unordered_map<std::string, Binding> values_;
  std::unordered_set<std::string> failed_;  // values whose node could not be imported
  std::unordered_set<const onnx::NodeProto*> failed_nodes_;
  std::unordered_set<ValueId> named_;
};

}  // namespace

BuildOutcome build_model(std::shared_ptr<LoadedModel> model, const ImportOptions& options, Wanted wanted,
                         const OpTable& ops, Evaluator& evaluator) {
  ImportShared shared{std::move(model), ops, evaluator};
  shared.loop_nodes = options.loop_nodes;
  shared.for_training = options.for_training;
  shared.graph_alone = wanted == Wanted::kFixedGraph;
  try {
    return GraphImporter(shared).run(options);
  } catch (const StopImport& stop) {
    return stop.why;
  } catch (const EqualSizes& equal) {
    return equal;
  }
}

}  // namespace tessera::inline onnx_import
