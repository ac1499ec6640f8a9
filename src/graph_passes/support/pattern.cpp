#include "graph_passes/support/pattern.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>

#include "graph_passes/support/graph_util.h"
#include "support/error.h"

namespace tessera::inline graph_passes {
namespace {

class TermParser {
 public:
  explicit TermParser(std::string_view text) : text_(text) {}

  Term run() {
    Term term = parse();
    check(at_ == text_.size(), "a pattern goes on after its end: " + std::string(text_));
    return term;
  }

 private:
  Term parse() {
    Term term;
    if (std::isdigit(peek()) || peek() == '-' || text_.substr(at_, 3) == "inf") {
      const std::string rest(text_.substr(at_));
      char* end = nullptr;
      term.kind = Term::Kind::kNumber;
      term.number = std::strtod(rest.c_str(), &end);
      at_ += static_cast<size_t>(end - rest.c_str());
      return term;
    }
    term.name = word();
    if (accept(':')) term.label = word();
    if (!accept('(')) {
      check(term.name.size() == 1 || term.label.empty(), "a pattern with a label on a value: " + std::string(text_));
      const bool constant = term.name.size() == 1 && term.name[0] <= 'd';
      term.kind = constant ? Term::Kind::kConstant : Term::Kind::kValue;
      return term;
    }
    term.kind = Term::Kind::kNode;
    if (text_.substr(at_, 3) == "...") {
      at_ += 3;
      term.any_operands = true;
    } else {
      do {
        skip_blanks();
        term.operands.push_back(parse());
      } while (accept(','));
    }
    check(accept(')'), "a pattern without ')': " + std::string(text_));
    return term;
  }

  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void skip_blanks() {
    while (peek() == ' ') ++at_;
  }
  bool accept(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  std::string word() {
    std::string result;
    while (std::isalnum(peek()) || peek() == '_' || peek() == '*') result += text_[at_++];
    check(!result.empty(), "a pattern without a name: " + std::string(text_));
    return result;
  }

  std::string_view text_;
  size_t at_ = 0;
};

class Finder {
 public:
  explicit Finder(Match& match) : match_(match) {}

  bool node(const Term& term, const Node& node, ValueId result) {
    if (term.name != "*" && node.op->name != term.name) return false;
    if (node.op->kind == OpKind::kComposite || node.op->kind == OpKind::kGroup || node.outputs.size() > 1) return false;
    if (!term.label.empty()) {
      match_.nodes[term.label] = node;
      if (result >= 0) match_.values[term.label] = result;
    }
    if (result >= 0) match_.inner.push_back(result);
    if (term.any_operands) {
      match_.rest = node.inputs;
      return true;
    }
    if (term.operands.size() != node.inputs.size()) return false;
    const std::vector<ValueId> inputs = node.inputs;
    if (inputs.size() != 2 || !is_commutative(term.name)) return operands(term, inputs);
    const State before = save();
    if (operands(term, inputs)) return true;
    restore(before);
    return operands(term, {inputs[1], inputs[0]});
  }

 private:
  struct State {
    std::map<std::string, ValueId> values;
    std::map<std::string, Node> nodes;
    std::vector<ValueId> rest, inner;
  };
  State save() const { return {match_.values, match_.nodes, match_.rest, match_.inner}; }
  void restore(const State& state) {
    match_.values = state.values;
    match_.nodes = state.nodes;
    match_.rest = state.rest;
    match_.inner = state.inner;
  }

  bool operands(const Term& term, const std::vector<ValueId>& inputs) {
    // Leaves that narrow most come first: a constant must not be taken for the x of `add(x, c)`.
    for (const bool leaves : {true, false})
      for (size_t i = 0; i < inputs.size(); ++i) {
        const Term& operand = term.operands[i];
        const bool narrow = operand.kind == Term::Kind::kConstant || operand.kind == Term::Kind::kNumber;
        if (narrow == leaves && !value(operand, inputs[i])) return false;
      }
    return true;
  }

  bool value(const Term& term, ValueId id) {
    if (term.kind == Term::Kind::kNode) {
      const Node* producer = match_.graph.producer(id);
      return producer && node(term, *producer, id);
    }
    const Tensor* tensor = constant_value(match_.graph, id);
    if (tensor && tensor->dtype() == DType::kString) tensor = nullptr;
    if (term.kind == Term::Kind::kNumber) return tensor && splat_value(*tensor) == term.number;
    if (term.kind == Term::Kind::kConstant && !tensor) return false;
    return match_.values.emplace(term.name, id).first->second == id;
  }

  Match& match_;
};

class Builder {
 public:
  explicit Builder(const Match& match) : match_(match) {
    std::vector<std::string> locs;
    for (auto inner = match.inner.rbegin(); inner != match.inner.rend(); ++inner)
      locs.push_back(match.graph.producer(*inner)->loc);
    locs.push_back(match.root.loc);
    loc_ = join_locs(locs);
  }

  Replacement root(const Term& term) {
    if (term.kind == Term::Kind::kNumber) {
      // A number in place of a whole tensor: stretched to its shape.
      Node node = make("broadcast", {constant(number(term, match_.type.dtype))});
      node.attrs.set("shape", match_.type.shape);
      return {-1, std::move(node)};
    }
    if (term.kind != Term::Kind::kNode) return {match_.value(term.name), {}};
    return {-1, node(term)};
  }

 private:
  Node make(const std::string& op, std::vector<ValueId> inputs) const {
    Node node;
    node.op = &match_.ctx.ops.get(op);
    node.inputs = std::move(inputs);
    node.loc = loc_;
    return node;
  }

  static Tensor number(const Term& term, DType dtype) {
    Tensor tensor(dtype, {});
    tensor.set_double(0, term.number);
    return tensor;
  }

  ValueId constant(Tensor tensor) const {
    return add_constant(match_.graph, match_.ctx.ops, std::move(tensor), match_.name + ".constant", loc_);
  }

  static bool constants_only(const Term& term) {
    if (term.kind != Term::Kind::kNode) return term.kind != Term::Kind::kValue;
    return !term.any_operands && std::all_of(term.operands.begin(), term.operands.end(), constants_only);
  }

  // Of a term of constants alone; numbers in it take the type `dtype`.
  Tensor evaluate(const Term& term, DType dtype) const {
    if (term.kind == Term::Kind::kNumber) return number(term, dtype);
    if (term.kind == Term::Kind::kConstant) return match_.constant(term.name);
    Graph alone;
    GraphBuilder builder(alone);
    std::vector<Tensor> operands;
    std::vector<ValueId> inputs;
    for (const Term& operand : term.operands) {
      operands.push_back(evaluate(operand, dtype));
      inputs.push_back(alone.add_input("in", {operands.back().dtype(), make_shape(operands.back().dims()), {}}));
    }
    alone.outputs = {builder.add(match_.ctx.ops.get(term.name), std::move(inputs))};
    return match_.ctx.evaluator.evaluate(alone, operands)[0];
  }

  Node node(const Term& term) {
    std::vector<ValueId> inputs = match_.rest;
    if (!term.any_operands) {
      inputs.assign(term.operands.size(), -1);
      DType dtype = match_.type.dtype;
      for (size_t i = 0; i < inputs.size(); ++i)
        if (term.operands[i].kind != Term::Kind::kNumber) {
          inputs[i] = value(term.operands[i]);
          dtype = match_.graph.type(inputs[i]).dtype;
        }
      for (size_t i = 0; i < inputs.size(); ++i)
        if (inputs[i] < 0) inputs[i] = constant(number(term.operands[i], dtype));
    }
    Node result = make(term.name == "*" ? match_.root.op->name : term.name, std::move(inputs));
    if (const auto attrs = match_.attrs.find(term.label); attrs != match_.attrs.end()) result.attrs = attrs->second;
    return result;
  }

  ValueId value(const Term& term) {
    if (term.kind != Term::Kind::kNode) return match_.value(term.name);
    if (constants_only(term)) return constant(evaluate(term, match_.type.dtype));
    Node inner = node(term);
    Graph& graph = match_.graph;
    std::vector<TensorType> types;
    for (const ValueId input : inner.inputs) types.push_back(graph.type(input));
    const TensorType type = infer_types(*inner.op, types, inner.attrs, {}, inner.loc)[0];
    const std::string name = match_.name + "." + inner.op->name;
    return graph.node(graph.add_node(std::move(inner), {type}, {name})).outputs[0];
  }

  const Match& match_;
  std::string loc_;
};

}  // namespace

Term parse_term(std::string_view text) { return TermParser(text).run(); }

const Tensor& Match::constant(const std::string& name) const { return *constant_value(graph, value(name)); }

bool is_commutative(std::string_view op) {
  static constexpr std::array<std::string_view, 12> kOps = {"add",         "mul",         "min",         "max",
                                                            "eq",          "ne",          "logical_and", "logical_or",
                                                            "logical_xor", "bitwise_and", "bitwise_or",  "bitwise_xor"};
  return std::find(kOps.begin(), kOps.end(), op) != kOps.end();
}

bool find_pattern(const Term& pattern, Match& match) { return Finder(match).node(pattern, match.root, -1); }

Replacement build_replacement(const Term& term, const Match& match) { return Builder(match).root(term); }

}  // namespace tessera::inline graph_passes
