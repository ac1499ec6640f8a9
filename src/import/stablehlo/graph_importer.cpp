#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "graph/subgraph.h"
#include "import/common/failure_list.h"
#include "import/common/finished_graph.h"
#include "import/common/open_inputs.h"
#include "import/common/refused_model.h"
#include "import/common/region_emitter.h"
#include "import/stablehlo/operator_table.h"
#include "import/stablehlo/stablehlo_import.h"
#include "support/error.h"
#include "support/operator_rule_error.h"
#include "support/symbolic_shape_error.h"

namespace tessera::inline stablehlo {
namespace {

// Values by name while the operators of a function or a region are imported.
struct Frame {
  std::map<std::string, ValueId> values = {};
  bool isolated = false;  // a function, which sees nothing around it
};

// The whole module's graph, or a region's, while nodes are added to it.
struct Level {
  Level(const OpTable& ops, Evaluator& evaluator, Level* around)
      : builder(graph), state{ops, graph, builder, ConstantFinder(graph, evaluator)}, outer(around) {}

  Graph graph;
  GraphBuilder builder;
  EmitState state;
  std::vector<Frame> frames;
  Level* outer;                                    // null: the module's
  std::optional<RegionScope> scope = {};           // unless outer is null
  std::unordered_map<ValueId, ValueId> constants;  // of the graph around it, and what they are here
};

class HloImporter final : public HloWalk {
 public:
  HloImporter(const HloModule& module, const ImportOptions& options, const OpTable& ops, Evaluator& evaluator)
      : module_(module), options_(options), ops_(ops), evaluator_(evaluator), main_(ops, evaluator, nullptr) {
    level_ = &main_;
    main_.graph.symbols = options.symbols;
  }

  ReadOutcome run() {
    const HloBorder border = border_of(module_);
    Frame frame{.isolated = true};
    const std::vector<TensorType> types = input_types(border);
    for (size_t i = 0; i < types.size(); ++i)
      frame.values[module_.main->body.arguments[i].name] =
          main_.graph.add_input(main_.graph.unique_name(border.inputs[i].name), types[i]);
    main_.frames.push_back(std::move(frame));
    calls_.push_back(module_.main->name);
    std::vector<ValueId> results;
    try {
      results = operators_of(module_.main->body);
    } catch (const RegionRefused&) {
    }
    if (symbols_stop_) return *symbols_stop_;
    if (!failures_.empty()) {
      if (!options_.symbols.empty()) return NoGraph{first_refused_, failures_.refusal().diagnostic.message};
      return failures_.refusal();
    }
    if (results.empty())
      throw UserError({"TSR-1121", "the function has no results", module_.main->name, "one result or more",
                       "export a function that returns something"});
    for (size_t i = 0; i < results.size(); ++i)
      if (is_complex(results[i]))
        throw RefusedModel(RefusedModel::Reason::kUnsupported,
                           {"TSR-1024", fmt::format("result {} is complex", i), main_.graph.name,
                            "tensors of floats, integers or bools", "return its real and its imaginary part"});
    OutputList outputs(main_.builder, ops_);
    std::set<ValueId> named;
    for (size_t i = 0; i < results.size(); ++i) {
      const std::string name = i < border.outputs.size() ? border.outputs[i].name : fmt::format("result_{}", i);
      const Node* producer = main_.graph.producer(results[i]);
      if (producer && producer->op->kind != OpKind::kConstant && named.insert(results[i]).second)
        main_.graph.rename(results[i], main_.graph.unique_name(name));
      outputs.add(results[i], name);
    }
    main_.graph.name = module_.name;
    Graph graph = needed_part(main_.graph);
    if (const auto unlearned = unlearned_symbol(graph))
      return NoGraph{{}, fmt::format("no input has '{}' as a dimension by itself", *unlearned)};
    return ImportedModel{std::move(graph), nullptr};
  }

  // ---- HloWalk ----
  std::vector<ValueId> inlined(const HloRegion& region, const std::vector<ValueId>& arguments) override {
    return real(in_frame(region, arguments, false));
  }

  std::vector<ValueId> called(const std::string& function, const std::vector<ValueId>& arguments) override {
    const auto found = module_.functions.find(function);
    if (found == module_.functions.end())
      throw UserError({"TSR-1121", fmt::format("a call of '{}', which the module does not have", function), "",
                       "functions of the module", "export the module again"});
    if (std::find(calls_.begin(), calls_.end(), function) != calls_.end())
      throw UserError({"TSR-1121", fmt::format("the function '{}' calls itself", function), "", "functions that end",
                       "export the module again"});
    calls_.push_back(function);
    const size_t depth = calls_.size();
    try {
      std::vector<ValueId> results = in_frame(found->second.body, arguments, true);
      calls_.resize(depth - 1);
      return results;
    } catch (...) {
      calls_.resize(depth - 1);
      throw;
    }
  }

  std::unique_ptr<HloRegionGraph> begin_region(const std::string& name, const Emitter& around) override {
    return std::make_unique<Region>(*this, name, around);
  }

  ValueId complex_value(const ComplexParts& parts) override {
    complex_.push_back(parts);
    return kFailedValue - static_cast<ValueId>(complex_.size());
  }

  ComplexParts parts_of(ValueId complex) const override {
    return complex_.at(static_cast<size_t>(kFailedValue - complex) - 1);
  }

  std::optional<std::vector<Tensor>> sampled(const HloRegion& region, const std::vector<Tensor>& arguments) override {
    Level level(ops_, evaluator_, nullptr);
    Level* const around = level_;
    const size_t failures = failures_.size();
    const auto leave = [&] {
      level_ = around;
      sampling_ = false;
      failures_.truncate(failures);
    };
    level_ = &level;
    sampling_ = true;
    std::vector<ValueId> values;
    for (const Tensor& argument : arguments)
      values.push_back(
          level.builder.add(ops_.get("constant"), {}, {{"value", std::make_shared<const Tensor>(argument)}}));
    std::vector<Tensor> tables;
    try {
      for (const ValueId result : real(in_frame(region, values, true))) {
        const auto table = level.state.constants.find(result);
        if (!table) throw RegionRefused{};
        tables.push_back(*table);
      }
    } catch (const RegionRefused&) {
      leave();
      return std::nullopt;
    } catch (...) {
      leave();
      throw;
    }
    leave();
    return tables;
  }

 private:
  class Region final : public HloRegionGraph {
   public:
    Region(HloImporter& importer, const std::string& name, const Emitter& around)
        : importer_(importer),
          level_(importer.ops_, importer.evaluator_, importer.level_),
          emit_(level_.state, around, "TSR-1123") {
      level_.graph.name = name;
      level_.graph.symbols = importer.level_->graph.symbols;
      level_.builder.set_loc(around.label());
      level_.scope.emplace(level_.outer->graph, level_.outer->state.constants, importer.ops_, level_.graph,
                           level_.builder);
    }
    Emitter& emit() override { return emit_; }
    ValueId input(const TensorType& type) override {
      return level_.graph.add_input(level_.graph.unique_name("value"), type);
    }
    ValueId captured(ValueId outer) override { return importer_.captured(level_, outer); }
    std::vector<ValueId> run(const HloRegion& region, const std::vector<ValueId>& arguments) override {
      Level* const around = importer_.level_;
      importer_.level_ = &level_;
      try {
        std::vector<ValueId> results = real(importer_.in_frame(region, arguments, false));
        importer_.level_ = around;
        return results;
      } catch (...) {
        importer_.level_ = around;
        throw;
      }
    }
    // The graph's inputs are complete by now: what is one of them becomes a value of its own.
    void output(ValueId value) override { results_.push_back(value); }
    CapturedRegion finish() override {
      OutputList outputs(level_.builder, importer_.ops_);
      for (const ValueId value : results_) outputs.add(value, "", false);
      return level_.scope->finish(needed_part(level_.graph));
    }

   private:
    HloImporter& importer_;
    Level level_;
    RegionEmitter emit_;
    std::vector<ValueId> results_;
  };

  // ---- inputs ----
  std::vector<TensorType> input_types(const HloBorder& border) {
    std::vector<OpenInput> inputs;
    for (const HloBorderTensor& input : border.inputs) {
      if (!input.type.dtype)
        throw RefusedModel(RefusedModel::Reason::kUnsupported,
                           {"TSR-1024", fmt::format("input '{}' is a {}", input.name, input.type.text), "",
                            "tensors of floats, integers or bools", "prepare this input outside of the module"});
      inputs.push_back({input.name, input.type.text, {}});
      for (size_t d = 0; d < input.type.dims.size(); ++d) {
        const int64_t value = input.type.dims[d];
        const std::string symbol = input.symbols[d].empty() ? fmt::format("{}[{}]", input.name, d) : input.symbols[d];
        inputs.back().sizes.push_back(value == HloType::kOpen ? DeclaredSize{.text = symbol, .symbols = {symbol}}
                                                              : DeclaredSize{.value = value});
      }
    }
    const std::map<std::string, Expr> symbols = values_of_symbols(inputs, options_, "module");
    std::vector<TensorType> result;
    for (size_t i = 0; i < inputs.size(); ++i) {
      TensorType type{*border.inputs[i].type.dtype, {}, {}};
      for (const DeclaredSize& size : inputs[i].sizes)
        type.shape.push_back(size.text.empty() ? Expr(size.value) : symbols.at(size.text));
      require_size(inputs[i].name, type.shape);
      result.push_back(std::move(type));
    }
    return result;
  }

  // ---- values ----
  // What a region returns: operators with regions know no complex numbers.
  static std::vector<ValueId> real(std::vector<ValueId> results) {
    if (std::any_of(results.begin(), results.end(), is_complex))
      throw UnsupportedNode{"a region that returns complex numbers"};
    return results;
  }

  ValueId captured(Level& level, ValueId outer) {
    if (const auto known = level.constants.find(outer); known != level.constants.end()) return known->second;
    if (auto tensor = level.outer->state.constants.find(outer)) {
      const ValueId value =
          level.builder.add(ops_.get("constant"), {}, {{"value", std::make_shared<const Tensor>(*std::move(tensor))}});
      level.constants.emplace(outer, value);
      return value;
    }
    return level.scope->captured(outer);
  }

  // Empty: nothing before it makes such a value.
  std::optional<ValueId> find(Level& level, const std::string& name) {
    for (size_t i = level.frames.size(); i-- > 0;) {
      const Frame& frame = level.frames[i];
      if (const auto known = frame.values.find(name); known != frame.values.end()) return known->second;
      if (frame.isolated) return std::nullopt;
    }
    if (!level.outer) return std::nullopt;
    const auto outer = find(*level.outer, name);
    if (!outer || *outer == kFailedValue) return outer;
    if (is_complex(*outer)) {
      const ComplexParts parts = parts_of(*outer);
      return complex_value({captured(level, parts.re), captured(level, parts.im)});
    }
    return captured(level, *outer);
  }

  ValueId operand(const HloOperation& op, const std::string& name) {
    const auto value = find(*level_, name);
    if (!value)
      throw UserError({"TSR-1123", fmt::format("{} reads %{}, which nothing before it makes", op.name, name), op.place,
                       "values that are there", "export the module again"});
    return *value;
  }

  // ---- operators ----
  std::vector<ValueId> in_frame(const HloRegion& region, const std::vector<ValueId>& arguments, bool isolated) {
    if (region.arguments.size() != arguments.size())
      throw UserError(
          {"TSR-1123",
           fmt::format("{} values for a region or function of {}", arguments.size(), region.arguments.size()), "",
           "as many", "export the module again"});
    Frame frame{.isolated = isolated};
    for (size_t i = 0; i < arguments.size(); ++i) frame.values[region.arguments[i].name] = arguments[i];
    Level& level = *level_;
    level.frames.push_back(std::move(frame));
    const std::string loc = level.builder.loc();
    try {
      std::vector<ValueId> results = operators_of(region);
      level.frames.pop_back();
      level.builder.set_loc(loc);
      return results;
    } catch (...) {
      level.frames.pop_back();
      level.builder.set_loc(loc);
      throw;
    }
  }

  // In the frame that is there; what the region returns.
  std::vector<ValueId> operators_of(const HloRegion& region) {
    constexpr int64_t kMostOperators = 1'000'000;
    operators_ += std::ssize(region.operations);
    if (operators_ > kMostOperators)
      throw UserError({"TSR-1121", fmt::format("functions unfold to more than {} operators", kMostOperators), "",
                       "fewer calls of large functions", "export a smaller part"});
    for (const HloOperation& op : region.operations) {
      if (op.name != "func.return" && op.name != "stablehlo.return") {
        import(op);
        continue;
      }
      std::vector<ValueId> results;
      for (const std::string& name : op.operands) {
        results.push_back(operand(op, name));
        if (results.back() == kFailedValue) throw RegionRefused{};
      }
      return results;
    }
    throw UserError({"TSR-1123", "a function or region that returns nothing", "", "a return at its end",
                     "export the module again"});
  }

  void import(const HloOperation& op) {
    std::vector<ValueId> operands;
    bool failed = false;
    for (const std::string& name : op.operands) {
      operands.push_back(operand(op, name));
      failed = failed || operands.back() == kFailedValue;
    }
    const auto bind = [&](size_t i, ValueId value) {
      if (!level_->frames.back().values.emplace(op.results[i], value).second)
        throw UserError({"TSR-1123", fmt::format("the value %{} is made twice", op.results[i]), op.place,
                         "one operator for each value", "export the module again"});
    };
    // What depends on an operator that could not be imported cannot be judged.
    const auto fail = [&] {
      for (size_t i = 0; i < op.results.size(); ++i) bind(i, kFailedValue);
    };
    if (failed) return fail();
    const NodeLabel label{op.name, label_of(op)};
    const bool has_complex = std::any_of(operands.begin(), operands.end(), is_complex) ||
                             std::any_of(op.result_types.begin(), op.result_types.end(),
                                         [](const HloType& t) { return t.part.has_value(); });
    const HloOperator* known = has_complex ? find_complex_hlo_operator(op.name) : find_hlo_operator(op.name);
    const auto refuse = [&](auto&&... what) {
      if (first_refused_.empty()) first_refused_ = label.label;
      failures_.add(label, std::forward<decltype(what)>(what)...);
      fail();
    };
    if (!known)
      return refuse(UnsupportedNode{has_complex && find_hlo_operator(op.name)
                                        ? "it is not supported for complex numbers"
                                        : "the operator is not supported"});
    level_->builder.set_loc(label.label);
    HloContext context(level_->state, *this, op, std::move(operands));
    try {
      known->handler(context);
      for (size_t i = 0; i < op.results.size(); ++i) {
        if (context.results()[i] == kFailedValue) context.unsupported(fmt::format("its result {}", i));
        check_declared(context, i);
      }
    } catch (const RegionRefused&) {
      return fail();
    } catch (const UnsupportedNode& unsupported) {
      return refuse(unsupported);
    } catch (const OperatorRuleError& error) {
      return refuse(error.diagnostic(), true);
    } catch (const SymbolicShapeError& error) {
      if (!symbols_stop_) symbols_stop_ = NoGraph{label.label, error.diagnostic().message};
      return fail();
    } catch (const UserError& error) {
      return refuse(error.diagnostic(), false);
    }
    for (size_t i = 0; i < op.results.size(); ++i) bind(i, context.results()[i]);
  }

  // What the handler made is what the module declares: a difference would be a wrong answer without a word.
  void check_declared(const HloContext& context, size_t i) const {
    const HloType& declared = context.result_type(i);
    const bool complex = is_complex(context.results()[i]);
    const TensorType& made = level_->graph.type(complex ? parts_of(context.results()[i]).re : context.results()[i]);
    bool fits = (complex ? declared.part : declared.dtype) == made.dtype;
    // Regions of scalars are tried on vectors.
    if (!sampling_) {
      fits = fits && declared.dims.size() == made.shape.size();
      for (size_t d = 0; fits && d < made.shape.size(); ++d) {
        const auto extent = as_int(made.shape[d]);
        fits = !extent || declared.dims[d] == HloType::kOpen || declared.dims[d] == *extent;
      }
    }
    if (!fits)
      context.malformed(fmt::format("the result is declared as {} and would be {}", declared.text, made.to_string()),
                        "one type");
  }

  const HloModule& module_;
  const ImportOptions& options_;
  const OpTable& ops_;
  Evaluator& evaluator_;
  FailureList failures_;
  std::string first_refused_;
  std::optional<NoGraph> symbols_stop_;
  Level main_;
  Level* level_;
  std::vector<std::string> calls_;     // functions that are being imported
  std::vector<ComplexParts> complex_;  // complex_value(): kFailedValue - 1 is the first
  int64_t operators_ = 0;
  bool sampling_ = false;
};

}  // namespace

HloBorder border_of(const HloModule& module) {
  HloBorder border;
  std::set<std::string> taken;
  const auto add = [&](std::vector<HloBorderTensor>& to, std::string name, const std::string& otherwise,
                       const HloType& type) {
    if (name.empty() || !taken.insert(name).second) {
      name = otherwise;
      taken.insert(name);
    }
    to.push_back({name, type, std::vector<std::string>(type.dims.size())});
  };
  const HloFunction& main = *module.main;
  // What main hands on to functions, and as which of their arguments: jax's exports do nothing else.
  std::map<std::string, const HloArgument*> handed_on;
  for (const HloOperation& op : main.body.operations) {
    const HloAttr* callee = op.name == "func.call" ? op.attributes.find("callee") : nullptr;
    const auto function = callee ? module.functions.find(callee->text) : module.functions.end();
    if (function == module.functions.end()) continue;
    const std::vector<HloArgument>& arguments = function->second.body.arguments;
    for (size_t i = 0; i < std::min(arguments.size(), op.operands.size()); ++i)
      handed_on.emplace(op.operands[i], &arguments[i]);
  }
  for (size_t i = 0; i < main.body.arguments.size(); ++i) {
    const HloArgument& argument = main.body.arguments[i];
    const auto inner = handed_on.find(argument.name);
    add(border.inputs, argument.loc.empty() && inner != handed_on.end() ? inner->second->loc : argument.loc,
        fmt::format("arg{}", i), argument.type);
  }
  for (const HloOperation& op : main.body.operations) {
    if (op.name != "stablehlo.get_dimension_size" || op.results.size() != 1 || op.operands.size() != 1) continue;
    const auto inner = handed_on.find(op.results[0]);
    const HloAttr* symbol = inner == handed_on.end() ? nullptr : inner->second->attributes.find("jax.global_constant");
    const HloAttr* dimension = op.attributes.find("dimension");
    for (size_t i = 0; symbol && dimension && i < main.body.arguments.size(); ++i) {
      std::vector<std::string>& symbols = border.inputs[i].symbols;
      if (main.body.arguments[i].name == op.operands[0] && dimension->integer >= 0 &&
          dimension->integer < std::ssize(symbols))
        symbols[static_cast<size_t>(dimension->integer)] = symbol->text;
    }
  }
  for (size_t i = 0; i < main.result_types.size(); ++i) {
    const HloAttr* info =
        i < main.result_attributes.size() ? main.result_attributes[i].find("jax.result_info") : nullptr;
    add(border.outputs, info ? info->text : "", fmt::format("result_{}", i), main.result_types[i]);
  }
  return border;
}

ReadOutcome read_stablehlo(const HloModule& module, const ImportOptions& options, const OpTable& ops,
                           Evaluator& evaluator) {
  return HloImporter(module, options, ops, evaluator).run();
}

}  // namespace tessera::inline stablehlo
