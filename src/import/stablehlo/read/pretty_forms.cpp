// The forms of StableHLO operations that jax and MLIR print by default. Nearly all are lists of operands, words and
// NAME = VALUE, which are read as such and then given the names of the generic form.
#include <fmt/format.h>

#include <algorithm>

#include "import/stablehlo/read/module_parser.h"

namespace tessera::inline stablehlo {
namespace {

struct Renamed {
  std::string_view operation, pretty, generic;
};
constexpr Renamed kRenamed[] = {
    {"stablehlo.broadcast_in_dim", "dims", "broadcast_dimensions"},
    {"stablehlo.dynamic_broadcast_in_dim", "dims", "broadcast_dimensions"},
    {"stablehlo.transpose", "dims", "permutation"},
    {"stablehlo.reverse", "dims", "dimensions"},
    {"stablehlo.iota", "dim", "iota_dimension"},
    {"stablehlo.dynamic_iota", "dim", "iota_dimension"},
    {"stablehlo.concatenate", "dim", "dimension"},
    {"stablehlo.get_dimension_size", "dim", "dimension"},
    {"stablehlo.pad", "low", "edge_padding_low"},
    {"stablehlo.pad", "high", "edge_padding_high"},
    {"stablehlo.pad", "interior", "interior_padding"},
    {"stablehlo.dynamic_slice", "sizes", "slice_sizes"},
    {"stablehlo.convolution", "dim_numbers", "dimension_numbers"},
    {"stablehlo.convolution", "stride", "window_strides"},
    {"stablehlo.convolution", "pad", "padding"},
    {"stablehlo.convolution", "lhs_dilate", "lhs_dilation"},
    {"stablehlo.convolution", "rhs_dilate", "rhs_dilation"},
    {"stablehlo.convolution", "reverse", "window_reversal"},
    {"stablehlo.reduce_precision", "format", "format"},
    {"stablehlo.fft", "type", "fft_type"},
    {"stablehlo.fft", "length", "fft_length"},
};

void add(HloOperation& op, std::string name, HloAttr value) {
  for (const Renamed& row : kRenamed)
    if (row.operation == op.name && row.pretty == name) {
      name = row.generic;
      break;
    }
  op.attributes.names.push_back(std::move(name));
  op.attributes.items.push_back(std::move(value));
}

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

}  // namespace

// [0:3, 0:4:2]
void ModuleParser::slice_ranges(HloOperation& op) {
  HloAttr lists[3] = {{HloAttr::Kind::kList}, {HloAttr::Kind::kList}, {HloAttr::Kind::kList}};
  reader_.expect("[");
  if (!reader_.accept("]")) {
    do {
      for (size_t part = 0; part < 3; ++part) {
        HloAttr value{HloAttr::Kind::kInteger};
        value.integer = 1;
        if (part == 0 || reader_.accept(":")) value.integer = reader_.integer("a place");
        else if (part == 1) reader_.fail_expected("':'");
        lists[part].items.push_back(std::move(value));
      }
    } while (reader_.accept(","));
    reader_.expect("]");
  }
  add(op, "start_indices", std::move(lists[0]));
  add(op, "limit_indices", std::move(lists[1]));
  add(op, "strides", std::move(lists[2]));
}

// Operands, words, symbols, NAME = VALUE, with or without commas. `inside`: of parentheses, up to the one that closes
// them.
void ModuleParser::items(HloOperation& op, bool inside) {
  const Depth depth(*this);
  while (true) {
    const char c = reader_.peek();
    if (inside ? c == ')' : c == ':' || c == '}' || c == '^' || c == '\0') return;
    if (c == '%') {
      op.operands.push_back(value_name());
    } else if (c == '@') {
      add(op, op.name == "stablehlo.custom_call" ? "call_target_name" : "callee", attribute(false));
    } else if (c == '"') {
      add(op, "name", attribute(false));
    } else if (c == '[' && op.name == "stablehlo.slice") {
      slice_ranges(op);
    } else if (c == '[' && op.name == "stablehlo.get_tuple_element") {
      reader_.expect("[");
      add(op, "index", number(false));
      reader_.expect("]");
    } else if (c == '{') {
      optional_dictionary(op);
    } else if (reader_.accept("(")) {
      items(op, true);
      reader_.expect(")");
    } else if (reader_.peek_is("dense")) {
      add(op, "value", attribute(false));
      return;
    } else if (reader_.peek_is("dense_resource")) {
      attribute(false);  // says what is wrong
    } else if (is_letter(c)) {
      const std::string word = reader_.symbol("an operand or attribute");
      if (!reader_.accept("=")) {
        if (op.name == "stablehlo.return" || op.name == "func.return") reader_.fail_expected("operands");
        add(op, fmt::format("word{}", op.attributes.names.size()), {HloAttr::Kind::kWord, word});
      } else if (op.name == "stablehlo.convolution" && word == "dim_numbers") {
        add(op, word, convolution_numbers());
      } else if (op.name == "stablehlo.convolution" && word == "window") {
        reader_.expect("{");
        HloAttr window = dictionary("}");
        for (size_t i = 0; i < window.names.size(); ++i) add(op, window.names[i], std::move(window.items[i]));
      } else if (word == "algorithm" && reader_.accept("<")) {
        skip_to(">");
      } else {
        HloAttr value = attribute(false);
        // contracting_dims = [1] x [0]
        if (reader_.accept("x")) {
          add(op, word + ".lhs", std::move(value));
          value = attribute(false);
          add(op, word + ".rhs", std::move(value));
        } else {
          add(op, word, std::move(value));
        }
      }
    } else {
      reader_.fail_expected("an operand or an attribute");
    }
    // The body of a region may follow what has no type: "stablehlo.return".
    if (!reader_.accept(",") && !inside && reader_.peek() == '%' && !op.operands.empty()) return;
  }
}

// reduce(%x init: %i), (%y init: %j) across dimensions = [1] : types reducer(%a: t, %b: t) (...) {...}, or
// reduce(%x init: %i) applies stablehlo.add across dimensions = [1] : types
void ModuleParser::reduce_form(HloOperation& op) {
  std::vector<std::string> initial;
  do {
    reader_.expect("(");
    op.operands.push_back(value_name());
    reader_.expect("init");
    reader_.expect(":");
    initial.push_back(value_name());
    reader_.expect(")");
  } while (reader_.accept(","));
  op.operands.insert(op.operands.end(), initial.begin(), initial.end());
  const std::string applied = reader_.accept("applies") ? reader_.symbol("an operation") : "";
  reader_.expect("across");
  reader_.expect("dimensions");
  reader_.expect("=");
  add(op, "dimensions", attribute(false));
  optional_dictionary(op);
  reader_.expect(":");
  op.result_types = result_types(op);
  if (!applied.empty()) {
    HloRegion body;
    HloOperation step, end;
    for (const char* name : {"a#0", "b#0"}) {
      body.arguments.push_back({.name = name, .type = {}});
      step.operands.emplace_back(name);
    }
    step.name = applied;
    step.results = {"c#0"};
    HloType element = op.result_types.at(0);
    element.dims.clear();
    step.result_types = {element};
    step.place = end.place = op.place;
    end.name = "stablehlo.return";
    end.operands = step.results;
    body.operations = {std::move(step), std::move(end)};
    op.regions.push_back(std::move(body));
    return;
  }
  // In front of the body, in any of these places.
  if (reader_.accept("loc")) op.loc = location();
  reader_.expect("reducer");
  std::vector<HloArgument> first, second;
  while (reader_.accept("(")) {
    first.push_back(argument());
    reader_.expect(",");
    second.push_back(argument());
    reader_.expect(")");
  }
  HloRegion body = region();
  body.arguments = std::move(first);
  body.arguments.insert(body.arguments.end(), second.begin(), second.end());
  op.regions.push_back(std::move(body));
}

// while(%a = %x, %b = %y) : types cond {...} do {...}
void ModuleParser::while_form(HloOperation& op) {
  std::vector<HloArgument> arguments;
  reader_.expect("(");
  if (!reader_.accept(")")) {
    do {
      arguments.push_back({.name = value_name(), .type = {}});
      reader_.expect("=");
      op.operands.push_back(value_name());
    } while (reader_.accept(","));
    reader_.expect(")");
  }
  reader_.expect(":");
  op.result_types = result_types(op);
  if (op.result_types.size() != arguments.size()) reader_.fail_expected("a type for each value");
  for (size_t i = 0; i < arguments.size(); ++i) arguments[i].type = op.result_types[i];
  if (reader_.accept("loc")) op.loc = location();
  if (reader_.accept("attributes")) optional_dictionary(op);
  for (const char* part : {"cond", "do"}) {
    reader_.expect(part);
    HloRegion body = region();
    body.arguments = arguments;
    op.regions.push_back(std::move(body));
  }
}

std::vector<HloType> ModuleParser::result_types(const HloOperation& op) {
  std::vector<HloType> types = type_list();
  if (reader_.accept("->")) return type_list();
  // Without an arrow: the type of operands and results, of all of them, or the result's behind others.
  if (op.name == "stablehlo.while" || op.name == "stablehlo.optimization_barrier") return types;
  if (types.empty()) return types;
  return std::vector<HloType>(std::max<size_t>(1, op.results.size()), types.back());
}

void ModuleParser::pretty_form(HloOperation& op) {
  op.name = reader_.symbol("an operation");
  if (op.name == "return" || op.name == "call") op.name = "func." + op.name;
  if (op.name == "stablehlo.reduce") return reduce_form(op);
  if (op.name == "stablehlo.while") return while_form(op);
  items(op, false);
  HloAttr& attributes = op.attributes;
  if (const HloAttr* value = attributes.find("value"); value && value->kind == HloAttr::Kind::kTensor) {
    op.result_types = {value->type};
  } else if (reader_.accept(":")) {
    op.result_types = result_types(op);
  }
  const auto rename = [&](const std::string& from, const std::string& to) {
    const auto at = std::find(attributes.names.begin(), attributes.names.end(), from);
    if (at != attributes.names.end()) *at = to;
  };
  if (op.name == "stablehlo.compare") {
    rename("word0", "comparison_direction");
    rename("word1", "compare_type");
  } else if (op.name == "stablehlo.dot_general") {
    HloAttr numbers{HloAttr::Kind::kDictionary};
    for (const auto& [pretty, generic] : {std::pair{"batching_dims.lhs", "lhs_batching_dimensions"},
                                          {"batching_dims.rhs", "rhs_batching_dimensions"},
                                          {"contracting_dims.lhs", "lhs_contracting_dimensions"},
                                          {"contracting_dims.rhs", "rhs_contracting_dimensions"}})
      if (const HloAttr* dims = attributes.find(pretty)) {
        numbers.names.emplace_back(generic);
        numbers.items.push_back(*dims);
      }
    add(op, "dot_dimension_numbers", std::move(numbers));
  } else if (op.name == "stablehlo.reduce_precision") {
    // e8m7
    if (const HloAttr* format = attributes.find("format")) {
      int exponent = 0, mantissa = 0;
      if (std::sscanf(format->text.c_str(), "e%dm%d", &exponent, &mantissa) == 2) {
        HloAttr bits{HloAttr::Kind::kInteger};
        bits.integer = exponent;
        add(op, "exponent_bits", bits);
        bits.integer = mantissa;
        add(op, "mantissa_bits", bits);
      }
    }
  }
}

// func.func public @main(%arg0: type {...} loc(...)) -> (type {...}) attributes {...} {...}
HloFunction ModuleParser::function() {
  HloFunction result;
  if (!reader_.accept("public") && !reader_.accept("private")) reader_.accept("nested");
  result.name = reader_.name('@', "a function");
  std::vector<HloArgument> arguments;
  reader_.expect("(");
  if (!reader_.accept(")")) {
    do arguments.push_back(argument());
    while (reader_.accept(","));
    reader_.expect(")");
  }
  if (reader_.accept("->")) {
    if (reader_.accept("(")) {
      if (!reader_.accept(")")) {
        do {
          result.result_types.push_back(type());
          HloAttr attributes{HloAttr::Kind::kDictionary};
          if (reader_.accept("{")) attributes = dictionary("}");
          result.result_attributes.push_back(std::move(attributes));
        } while (reader_.accept(","));
        reader_.expect(")");
      }
    } else {
      result.result_types.push_back(type());
    }
  }
  if (reader_.accept("attributes")) attribute();
  result.body = region();
  result.body.arguments = std::move(arguments);
  if (reader_.accept("loc")) location();
  return result;
}

}  // namespace tessera::inline stablehlo
