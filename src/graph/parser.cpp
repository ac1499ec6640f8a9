#include "graph/parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "arith/simplify.h"
#include "graph/tensor_text.h"
#include "graph/verify.h"
#include "support/error.h"
#include "support/text_reader.h"

namespace tessera::inline graph {
namespace {

constexpr int kMaxRegionDepth = 16;
constexpr int64_t kMaxAllSplatBytes = 4 * kMaxSplatBytes;

class GraphParser {
 public:
  GraphParser(TextReader& reader, const OpTable& ops) : reader_(reader), ops_(ops) {}

  Graph parse(const SymbolScope& outer_symbols, int depth) {
    if (depth > kMaxRegionDepth)
      reader_.fail("TSR-3008", "regions are nested too deeply", fmt::format("at most {} levels", kMaxRegionDepth));
    Scope scope{outer_symbols, {}};
    Graph graph;
    reader_.expect("graph");
    graph.name = reader_.name('@', "the name of the graph");
    if (reader_.accept("[")) graph.symbols = parse_symbols(reader_, scope.symbols);
    const KnownSymbols known(graph.symbols);
    reader_.expect("(");
    while (!reader_.peek_is(")")) {
      if (!graph.inputs.empty()) reader_.expect(",");
      const std::string name = new_name(scope, "an input");
      reader_.expect(":");
      scope.values[name] = graph.add_input(name, normalized(parse_type(reader_, scope.symbols)));
    }
    reader_.expect(")");
    reader_.expect("->");
    reader_.expect("(");
    std::vector<Result> results;
    while (!reader_.peek_is(")")) {
      if (!results.empty()) reader_.expect(",");
      std::string at = reader_.position();
      std::string name = reader_.name('%', "a result");
      reader_.expect(":");
      results.push_back({std::move(at), std::move(name), parse_type(reader_, scope.symbols)});
      if (!graph.checks.empty() || reader_.peek_is("check")) graph.checks.push_back(parse_check());
    }
    reader_.expect(")");
    reader_.expect("{");
    while (!reader_.peek_is("}")) parse_node(graph, scope, depth);
    reader_.expect("}");
    for (const Result& result : results) {
      const auto it = scope.values.find(result.name);
      if (it == scope.values.end())
        fail_at(result.at, "TSR-3003", fmt::format("result %{} is not defined", result.name));
      const TensorType& defined = graph.type(it->second);
      if (!types_agree(defined, result.type) || !(defined.layout == result.type.layout))
        fail_at(result.at, "TSR-3007",
                fmt::format("result %{} is declared as {}", result.name, result.type.to_string()),
                fmt::format("{}, as it is defined", defined.to_string()));
      graph.outputs.push_back(it->second);
    }
    return graph;
  }

 private:
  struct Scope {
    SymbolScope symbols;
    std::unordered_map<std::string, ValueId> values;
  };
  struct Result {
    std::string at, name;
    TensorType type;
  };

  static TensorType normalized(TensorType type) {
    for (Expr& dim : type.shape) dim = normalize_size(dim);
    return type;
  }

  [[noreturn]] static void fail_at(const std::string& at, const std::string& id, const std::string& message,
                                   const std::string& legal = "") {
    throw UserError({id, message, at, legal, ""});
  }

  std::string new_name(const Scope& scope, std::string_view what) {
    const std::string at = reader_.position();
    std::string name = reader_.name('%', what);
    if (name.empty()) fail_at(at, "TSR-3001", "a value with an empty name", "%name");
    if (scope.values.count(name))
      fail_at(at, "TSR-3004", fmt::format("%{} is defined twice", name), "one definition for each name");
    return name;
  }

  // Checks follow the graph's own results, so that behind the first one each result has one.
  RuntimeCheck parse_check() {
    RuntimeCheck check;
    reader_.expect("check");
    reader_.expect("(");
    check.what = reader_.quoted("what is checked");
    reader_.expect(",");
    check.legal = reader_.quoted("what is legal");
    reader_.expect(")");
    return check;
  }

  void parse_node(Graph& graph, Scope& scope, int depth) {
    const std::string at = reader_.position();
    std::vector<std::string> names;
    do {
      names.push_back(new_name(scope, "a value"));
    } while (reader_.accept(","));
    reader_.expect("=");
    const std::string op_at = reader_.position();
    const std::string op_name = reader_.word("an operator");
    Node node;
    node.op = ops_.find(op_name);
    if (!node.op) fail_at(op_at, "TSR-3002", fmt::format("unknown operator '{}'", op_name), near_names(op_name));

    std::vector<TensorType> input_types;
    bool regions_follow = false;
    if (reader_.accept("(")) {
      if (reader_.accept("{")) {
        regions_follow = true;
      } else {
        while (!reader_.peek_is(")")) {
          if (!node.inputs.empty()) reader_.expect(",");
          const std::string operand_at = reader_.position();
          const std::string operand = reader_.name('%', "an operand");
          const auto it = scope.values.find(operand);
          if (it == scope.values.end())
            fail_at(operand_at, "TSR-3003", fmt::format("%{} is used but not defined before", operand),
                    "graph inputs and results of earlier nodes");
          node.inputs.push_back(it->second);
          input_types.push_back(graph.type(it->second));
        }
        reader_.expect(")");
      }
    }
    if (!regions_follow && reader_.accept("{")) node.attrs = parse_attrs(*node.op, scope.symbols);
    if (!regions_follow && reader_.accept("(")) {
      reader_.expect("{");
      regions_follow = true;
    }
    if (regions_follow) {
      while (!reader_.peek_is("}"))
        node.regions.push_back(std::make_shared<const Graph>(parse(scope.symbols, depth + 1)));
      reader_.expect("}");
      reader_.expect(")");
    }
    std::vector<TensorType> given;
    const std::string types_at = reader_.position();
    if (reader_.accept(":")) do {
        given.push_back(parse_type(reader_, scope.symbols));
      } while (reader_.accept(","));
    if (reader_.accept("loc")) {
      reader_.expect("(");
      node.loc = reader_.quoted("a location");
      reader_.expect(")");
    }

    std::vector<TensorType> types =
        infer_types(*node.op, input_types, node.attrs, node.regions, node.loc.empty() ? at : node.loc);
    if (types.size() != names.size() || (!given.empty() && given.size() != types.size()))
      fail_at(at, "TSR-3007", fmt::format("{} names for the results of {}", names.size(), op_name),
              fmt::format("{} names and types", types.size()));
    for (size_t i = 0; i < given.size(); ++i) {
      if (!types_agree(given[i], types[i]))
        fail_at(types_at, "TSR-3007", fmt::format("%{} is declared as {}", names[i], given[i].to_string()),
                fmt::format("{}, which {} gives for its operands", types[i].to_string(), op_name));
      types[i] = normalized(given[i]);
    }
    const NodeId id = graph.add_node(std::move(node), std::move(types), names);
    if (const auto problems = verify_node(graph, graph.node(id)); !problems.empty())
      fail_at(at, "TSR-3009", problems[0]);
    for (size_t i = 0; i < names.size(); ++i) scope.values[names[i]] = graph.node(id).outputs[i];
  }

  // Operators that share the first letters with an unknown one, or all when there are none.
  std::string near_names(const std::string& name) const {
    std::string near, all;
    for (const OpDef* op : ops_.all()) {
      all += (all.empty() ? "" : ", ") + op->name;
      if (op->name.compare(0, 2, name, 0, 2) == 0) near += (near.empty() ? "" : ", ") + op->name;
    }
    return near.empty() ? all : near;
  }

  Attrs parse_attrs(const OpDef& op, const SymbolScope& symbols) {
    Attrs attrs;
    bool first = true;
    while (!reader_.peek_is("}")) {
      if (!first) reader_.expect(",");
      first = false;
      const std::string at = reader_.position();
      const std::string name = reader_.word("an attribute");
      if (attrs.has(name)) fail_at(at, "TSR-3004", fmt::format("attribute {} is given twice", name));
      reader_.expect("=");
      const auto def = std::find_if(op.attrs.begin(), op.attrs.end(), [&](const AttrDef& d) { return d.name == name; });
      if (def != op.attrs.end() && def->kind == AttrKind::kSizes && reader_.peek() == '[') {
        attrs.set(name, parse_sizes(symbols));
        continue;
      }
      Attr value = parse_attr();
      if (def != op.attrs.end()) convert_numbers(value, def->kind);
      attrs.set(name, std::move(value));
    }
    reader_.expect("}");
    return attrs;
  }

  Attr parse_sizes(const SymbolScope& symbols) {
    Shape sizes;
    reader_.expect("[");
    while (!reader_.peek_is("]")) {
      if (!sizes.empty()) reader_.expect(",");
      sizes.push_back(normalize_size(parse_size(reader_, symbols)));
    }
    reader_.expect("]");
    return sizes;
  }

  // `1` where a number is wanted means 1.0.
  static void convert_numbers(Attr& value, AttrKind kind) {
    if (const auto* i = std::get_if<int64_t>(&value); i && kind == AttrKind::kFloat) value = static_cast<double>(*i);
    if (const auto* list = std::get_if<std::vector<int64_t>>(&value); list && kind == AttrKind::kFloats)
      value = std::vector<double>(list->begin(), list->end());
  }

  static bool is_integer(std::string_view number) {
    return number.find_first_not_of("-0123456789") == std::string_view::npos;
  }
  // fmt, not from_chars, prints them; strtod would depend on the locale.
  double to_double(std::string_view number, const std::string& at) const {
    double value = 0;
    if (std::from_chars(number.data(), number.data() + number.size(), value).ec != std::errc())
      fail_at(at, "TSR-3006", fmt::format("{} does not fit into f64", number));
    return value;
  }

  Attr parse_attr() {
    const char next = reader_.peek();
    if (next == '"') return reader_.quoted("a string");
    if (next == '{') return parse_layout(reader_);
    if (next == '[') return parse_list();
    const std::string at = reader_.position();
    if ((next >= '0' && next <= '9') || next == '-' || reader_.peek_is("inf") || reader_.peek_is("nan")) {
      const std::string number(reader_.number("a number"));
      if (!is_integer(number)) return to_double(number, at);
      return to_int(number, at);
    }
    const std::string word = reader_.word("an attribute's value");
    if (word == "true" || word == "false") return word == "true";
    if (word == "floats") {
      reader_.expect("[");
      reader_.expect("]");
      return std::vector<double>{};
    }
    if (word == "dense" || word == "splat" || word == "hex" || word == "elided") {
      TensorPtr tensor = parse_tensor(reader_, word);
      if (word == "splat") splat_bytes_ += tensor->num_bytes();
      if (splat_bytes_ > kMaxAllSplatBytes)
        fail_at(at, "TSR-3006", "the splats of this text are too large together",
                fmt::format("at most {} bytes", kMaxAllSplatBytes));
      return tensor;
    }
    if (const auto dtype = parse_dtype(word)) return *dtype;
    fail_at(at, "TSR-3001", fmt::format("'{}' is no value of an attribute", word),
            "true, 1, 1.0, \"text\", [1, 2], [1.0], f32, {0,1/16,1%16}, dense<...>, splat<...>, hex<...>, elided<...>");
  }

  int64_t to_int(const std::string& number, const std::string& at) const {
    int64_t value = 0;
    if (std::from_chars(number.data(), number.data() + number.size(), value).ec != std::errc())
      fail_at(at, "TSR-3006", fmt::format("{} does not fit into i64", number));
    return value;
  }

  Attr parse_list() {
    reader_.expect("[");
    std::vector<std::pair<std::string, std::string>> numbers;  // text and place
    bool integers = true;
    while (!reader_.peek_is("]")) {
      if (!numbers.empty()) reader_.expect(",");
      std::string at = reader_.position();
      numbers.emplace_back(reader_.number("a number"), std::move(at));
      integers &= is_integer(numbers.back().first);
    }
    reader_.expect("]");
    if (integers) {
      std::vector<int64_t> list;
      for (const auto& [text, at] : numbers) list.push_back(to_int(text, at));
      return list;
    }
    std::vector<double> list;
    for (const auto& [text, at] : numbers) list.push_back(to_double(text, at));
    return list;
  }

  TextReader& reader_;
  const OpTable& ops_;
  int64_t splat_bytes_ = 0;
};

}  // namespace

Graph parse_graph(std::string_view text, const OpTable& ops, std::string_view file) {
  TextReader reader(text, std::string(file));
  Graph graph = GraphParser(reader, ops).parse({}, 0);
  if (!reader.at_end()) reader.fail_expected("the end of the text");
  return graph;
}

}  // namespace tessera::inline graph
