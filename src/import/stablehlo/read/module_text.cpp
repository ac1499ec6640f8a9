#include "import/stablehlo/read/module_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "import/common/limits.h"
#include "import/stablehlo/read/constant_text.h"
#include "import/stablehlo/read/module_parser.h"
#include "support/error.h"

namespace tessera::inline stablehlo {
namespace {

constexpr std::pair<std::string_view, DType> kElementTypes[] = {
    {"f64", DType::kF64},
    {"f32", DType::kF32},
    {"f16", DType::kF16},
    {"bf16", DType::kBF16},
    {"f8E4M3FN", DType::kF8E4M3FN},
    {"f8E4M3FNUZ", DType::kF8E4M3FNUZ},
    {"f8E5M2", DType::kF8E5M2},
    {"f8E5M2FNUZ", DType::kF8E5M2FNUZ},
    {"f8E8M0FNU", DType::kF8E8M0},
    {"f4E2M1FN", DType::kF4E2M1},
    {"i64", DType::kI64},
    {"i32", DType::kI32},
    {"i16", DType::kI16},
    {"i8", DType::kI8},
    {"i4", DType::kI4},
    {"i2", DType::kI2},
    {"i1", DType::kBool},
    {"ui64", DType::kU64},
    {"ui32", DType::kU32},
    {"ui16", DType::kU16},
    {"ui8", DType::kU8},
    {"ui4", DType::kU4},
    {"ui2", DType::kU2},
    {"index", DType::kI64},
};

std::optional<DType> element_type(std::string_view name) {
  for (const auto& [known, dtype] : kElementTypes)
    if (known == name) return dtype;
  return std::nullopt;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

}  // namespace

bool HloType::is_static() const { return std::find(dims.begin(), dims.end(), kOpen) == dims.end(); }

const HloAttr* HloAttr::find(const std::string& name) const {
  for (size_t i = 0; i < names.size(); ++i)
    if (names[i] == name) return &items[i];
  return nullptr;
}

// ---- types and attributes ----

HloType ModuleParser::tensor_type() {
  reader_.expect("<");
  HloType result;
  std::string element;
  while (element.empty()) {
    std::string_view rest;
    if (reader_.accept("?")) {
      result.dims.push_back(HloType::kOpen);
      rest = reader_.word_characters("'x' behind a dimension");
      if (rest[0] != 'x') reader_.fail_expected("'x' behind a dimension");
      rest.remove_prefix(1);
    } else if (is_digit(reader_.peek()) || is_letter(reader_.peek())) {
      rest = reader_.word_characters("a dimension or an element type");
    } else {
      element = type().text;
      break;
    }
    while (!rest.empty() && is_digit(rest[0])) {
      int64_t extent = 0;
      const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), extent);
      if (error != std::errc() || extent > kMaxTensorElements || end == rest.data() + rest.size() || *end != 'x')
        reader_.fail("TSR-3001", fmt::format("'{}' is no dimension", rest), "0 to 2^40, followed by x");
      result.dims.push_back(extent);
      rest.remove_prefix(static_cast<size_t>(end - rest.data()) + 1);
      if (result.dims.size() > kMostDims)
        reader_.fail("TSR-3001", "a type with too many dimensions", fmt::format("at most {}", kMostDims));
    }
    element = rest;
    if (element == "complex" && reader_.accept("<")) {
      const std::string part = type().text;
      reader_.expect(">");
      result.part = element_type(part);
      if (result.part && !is_float(*result.part)) result.part.reset();
      element = fmt::format("complex<{}>", part);
    } else if (!element.empty() && reader_.accept("<")) {
      element += "<...>";
      skip_to(">");
    }
  }
  if (reader_.accept(",")) skip_to(">");
  else reader_.expect(">");
  for (const int64_t extent : result.dims) result.text += extent < 0 ? "?x" : fmt::format("{}x", extent);
  result.text = fmt::format("tensor<{}{}>", result.text, element);
  result.dtype = element_type(element);
  return result;
}

HloType ModuleParser::type() {
  const Depth depth(*this);
  HloType result;
  if (reader_.peek() == '(') {
    type_list();
    reader_.expect("->");
    result.results = type_list_of_one();
    result.text = "a function";
    return result;
  }
  const bool is_foreign = reader_.accept("!");
  const std::string name = reader_.symbol("a type");
  if (name == "tensor" && !is_foreign) return tensor_type();
  result.text = is_foreign ? "!" + name : name;
  if (reader_.accept("<")) skip_to(">");
  return result;
}

std::vector<HloType> ModuleParser::type_list_of_one() {
  if (reader_.peek() == '(') return type_list();
  return {type()};
}

std::vector<HloType> ModuleParser::type_list() {
  std::vector<HloType> result;
  if (!reader_.accept("(")) {
    do result.push_back(type());
    while (reader_.accept(","));
    return result;
  }
  if (reader_.accept(")")) return result;
  do {
    result.push_back(type());
    if (reader_.peek() == '{') attribute();
  } while (reader_.accept(","));
  reader_.expect(")");
  return result;
}

void ModuleParser::skip_to(std::string_view close) {
  const Depth depth(*this);
  while (!reader_.accept(close)) {
    const char c = reader_.peek();
    if (c == '\0') reader_.fail_expected(fmt::format("'{}'", close));
    if (c == '"') reader_.quoted("a string");
    else if (is_digit(c) || is_letter(c)) reader_.word_characters("a word");
    else if (reader_.accept("->")) continue;
    else if (reader_.accept("(")) skip_to(")");
    else if (reader_.accept("[")) skip_to("]");
    else if (reader_.accept("{")) skip_to("}");
    else if (reader_.accept("<")) skip_to(">");
    else if (c == ')' || c == ']' || c == '}' || c == '>') reader_.fail_expected(fmt::format("'{}'", close));
    else reader_.accept(std::string_view(&c, 1));
  }
}

std::string ModuleParser::location() {
  reader_.expect("(");
  std::string name;
  if (reader_.peek() == '"') {
    name = reader_.quoted("a name");
    if (reader_.peek() == ':') name.clear();  // a file
  } else if (reader_.peek() == '#') {
    name = "#" + reader_.name('#', "a location");
  }
  skip_to(")");
  return name;
}

HloAttr ModuleParser::number(bool typed) {
  HloAttr result{HloAttr::Kind::kInteger};
  const std::string_view bits = reader_.hex_number();
  const std::string_view text = bits.empty() ? reader_.number("an attribute") : bits;
  const char *begin = text.data(), *end = begin + text.size();
  if (!bits.empty()) {
    uint64_t value = 0;
    std::from_chars(begin + 2, end, value, 16);
    result.integer = static_cast<int64_t>(value);
  } else if (text.find_first_of(".eEinf") == text.npos) {
    if (std::from_chars(begin, end, result.integer).ec != std::errc())
      reader_.fail("TSR-3001", fmt::format("{} is no 64-bit integer", text));
    result.real = static_cast<double>(result.integer);
  } else {
    result.kind = HloAttr::Kind::kReal;
    std::from_chars(begin, end, result.real);
  }
  if (typed && reader_.accept(":")) result.type = type();
  return result;
}

HloAttr ModuleParser::list(std::string_view close, bool typed) {
  HloAttr result{HloAttr::Kind::kList};
  if (reader_.accept(close)) return result;
  do result.items.push_back(attribute(typed));
  while (reader_.accept(","));
  reader_.expect(close);
  return result;
}

HloAttr ModuleParser::dictionary(std::string_view close) {
  HloAttr result{HloAttr::Kind::kDictionary};
  if (reader_.accept(close)) return result;
  do {
    result.names.push_back(reader_.symbol("the name of an attribute"));
    result.items.push_back(reader_.accept("=") ? attribute() : HloAttr{HloAttr::Kind::kWord, "true"});
  } while (reader_.accept(","));
  reader_.expect(close);
  return result;
}

// "[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]" as three lists.
HloAttr ModuleParser::convolution_numbers() {
  HloAttr result{HloAttr::Kind::kList};
  for (int part = 0; part < 3; ++part) {
    if (part == 1) reader_.expect("x");
    if (part == 2) reader_.expect("->");
    HloAttr dims{HloAttr::Kind::kList};
    reader_.expect("[");
    do {
      const std::string_view word = reader_.word_characters("a dimension");
      dims.items.push_back({HloAttr::Kind::kWord, std::string(word)});
    } while (reader_.accept(","));
    reader_.expect("]");
    result.items.push_back(std::move(dims));
  }
  return result;
}

// #stablehlo<precision DEFAULT>, #stablehlo.dot<lhs_contracting_dimensions = [1]>, #loc3.
HloAttr ModuleParser::dialect_attribute() {
  reader_.expect("#");
  const std::string name = reader_.symbol("an attribute");
  HloAttr result{HloAttr::Kind::kWord, name};
  if (!reader_.accept("<")) return result;
  if (name == "stablehlo.conv" && reader_.peek() == '[') {
    result = convolution_numbers();
    reader_.expect(">");
  } else if (name == "stablehlo") {
    reader_.word("the kind of an attribute");
    result.text = reader_.peek() == '>' ? "" : reader_.symbol("a keyword");
    skip_to(">");
  } else if (name.starts_with("stablehlo.")) {
    result = dictionary(">");
  } else {
    skip_to(">");
  }
  return result;
}

HloAttr ModuleParser::attribute(bool typed) {
  const Depth depth(*this);
  const char c = reader_.peek();
  if (c == '"') {
    HloAttr result{HloAttr::Kind::kText, reader_.quoted("a string")};
    if (typed && reader_.accept(":")) result.type = type();
    return result;
  }
  if (c == '#') return dialect_attribute();
  if (c == '@') {
    HloAttr result{HloAttr::Kind::kWord, reader_.name('@', "a symbol")};
    while (reader_.accept("::")) result.text = reader_.name('@', "a symbol");
    return result;
  }
  if (reader_.accept("[")) return list("]", typed);
  if (reader_.accept("{")) return dictionary("}");
  if (is_digit(c) || c == '-') return number(typed);
  if (c == '(' || c == '!') return {.kind = HloAttr::Kind::kType, .type = type()};
  if (reader_.accept("array")) {
    reader_.expect("<");
    type();
    if (reader_.accept(":")) return list(">");
    reader_.expect(">");
    return {HloAttr::Kind::kList};
  }
  if (reader_.accept("dense")) {
    reader_.expect("<");
    const ConstantText text = read_constant_text(reader_);
    reader_.expect(">");
    reader_.expect(":");
    HloAttr result{HloAttr::Kind::kTensor};
    result.type = type();
    result.tensor = constant_of_text(text, result.type, reader_);
    return result;
  }
  if (reader_.peek_is("dense_resource"))
    reader_.fail(
        "TSR-1122", "the elements of a constant do not stand where it is used",
        "dense<...> with all elements: jax's as_text() and MLIR's --mlir-print-elementsattrs-with-hex-if-larger");
  if (reader_.accept("loc")) return {HloAttr::Kind::kWord, location()};
  if (reader_.peek_is("tensor")) return {.kind = HloAttr::Kind::kType, .type = type()};
  HloAttr result{HloAttr::Kind::kWord, reader_.symbol("an attribute")};
  if (reader_.accept("<")) skip_to(">");
  return result;
}

void ModuleParser::optional_dictionary(HloOperation& op) {
  if (!reader_.accept("{")) return;
  HloAttr more = dictionary("}");
  for (size_t i = 0; i < more.names.size(); ++i) {
    op.attributes.names.push_back(more.names[i]);
    op.attributes.items.push_back(std::move(more.items[i]));
  }
}

// ---- operations ----

std::string ModuleParser::value_name() {
  std::string name = reader_.name('%', "a value");
  const int64_t part = reader_.accept("#") ? reader_.integer("the number of a result") : 0;
  return fmt::format("{}#{}", name, part);
}

std::vector<std::string> ModuleParser::value_names(std::string_view close) {
  std::vector<std::string> result;
  if (reader_.accept(close)) return result;
  do result.push_back(value_name());
  while (reader_.accept(","));
  reader_.expect(close);
  return result;
}

HloArgument ModuleParser::argument() {
  HloArgument result;
  result.name = value_name();
  reader_.expect(":");
  result.type = type();
  if (reader_.accept("{")) result.attributes = dictionary("}");
  if (reader_.accept("loc")) result.loc = location();
  return result;
}

HloRegion ModuleParser::region() {
  const Depth depth(*this);
  reader_.expect("{");
  HloRegion result;
  if (reader_.peek() == '^') {
    reader_.name('^', "a block");
    if (reader_.accept("(") && !reader_.accept(")")) {
      do result.arguments.push_back(argument());
      while (reader_.accept(","));
      reader_.expect(")");
    }
    reader_.expect(":");
  }
  while (!reader_.accept("}")) {
    if (reader_.peek() == '^') reader_.fail("TSR-1121", "a region of several blocks", "regions of one block");
    result.operations.push_back(operation());
  }
  return result;
}

void ModuleParser::generic_form(HloOperation& op) {
  op.name = reader_.quoted("an operation");
  reader_.expect("(");
  op.operands = value_names(")");
  if (reader_.accept("[")) skip_to("]");
  if (reader_.accept("<")) {
    reader_.expect("{");
    op.attributes = dictionary("}");
    reader_.expect(">");
  }
  if (reader_.accept("(")) {
    do op.regions.push_back(region());
    while (reader_.accept(","));
    reader_.expect(")");
  }
  optional_dictionary(op);
  reader_.expect(":");
  op.result_types = result_types(op);
}

HloOperation ModuleParser::operation() {
  HloOperation op;
  op.place = reader_.position();
  if (reader_.peek() == '%') {
    do {
      const std::string name = reader_.name('%', "a value");
      const int64_t count = reader_.accept(":") ? reader_.integer("a number of results") : 1;
      if (count < 0 || count > 4096) reader_.fail("TSR-3001", fmt::format("{} results", count), "0 to 4096");
      for (int64_t i = 0; i < count; ++i) op.results.push_back(fmt::format("{}#{}", name, i));
    } while (reader_.accept(","));
    reader_.expect("=");
  }
  if (reader_.peek() == '"') generic_form(op);
  else pretty_form(op);
  if (reader_.accept("loc")) op.loc = location();
  if (op.result_types.size() < op.results.size())
    reader_.fail("TSR-3001",
                 fmt::format("{} types for {} results of {}", op.result_types.size(), op.results.size(), op.name),
                 "one for each");
  return op;
}

// ---- modules ----

// The generic form: "func.func"() <{function_type = ..., sym_name = "main"}> ({...}) : () -> ().
HloFunction ModuleParser::function_of(HloOperation op) {
  const HloAttr* name = op.attributes.find("sym_name");
  if (!name || op.regions.size() != 1) reader_.fail("TSR-1121", "a function without a name or a body", "both");
  HloFunction result;
  result.name = name->text;
  if (const HloAttr* attributes = op.attributes.find("res_attrs")) result.result_attributes = attributes->items;
  if (const HloAttr* type = op.attributes.find("function_type")) result.result_types = type->type.results;
  result.body = std::move(op.regions[0]);
  return result;
}

void ModuleParser::module_body(HloModule& module) {
  reader_.expect("{");
  while (!reader_.accept("}")) {
    if (reader_.peek() == '\0') reader_.fail_expected("'}'");
    top_level(module);
  }
}

void ModuleParser::top_level(HloModule& module) {
  const Depth depth(*this);
  const auto add = [&](HloFunction function) {
    const std::string name = function.name;
    if (!module.functions.emplace(name, std::move(function)).second)
      reader_.fail("TSR-1121", fmt::format("two functions are called '{}'", name), "one");
  };
  if (reader_.peek() == '#') {
    const std::string name = "#" + reader_.name('#', "an alias");
    reader_.expect("=");
    if (reader_.accept("loc")) locations_[name] = location();
    else attribute();
  } else if (reader_.peek() == '!') {
    reader_.fail("TSR-1121", "an alias of a type", "types where they are used");
  } else if (reader_.accept("{-#")) {
    skip_to("#-}");
  } else if (reader_.accept("module") || reader_.accept("builtin.module")) {
    if (reader_.peek() == '@') module.name = reader_.name('@', "a module");
    if (reader_.accept("attributes")) attribute();
    module_body(module);
    if (reader_.accept("loc")) location();
  } else if (reader_.accept("func.func") || reader_.accept("func")) {
    add(function());
  } else if (reader_.peek() == '"') {
    // A module or a function in generic form: its body is read like any other region.
    HloOperation op;
    op.name = reader_.quoted("an operation");
    reader_.expect("(");
    reader_.expect(")");
    if (reader_.accept("<")) {
      reader_.expect("{");
      op.attributes = dictionary("}");
      reader_.expect(">");
    }
    if (op.name == "builtin.module") {
      reader_.expect("(");
      if (const HloAttr* name = op.attributes.find("sym_name")) module.name = name->text;
      module_body(module);
      reader_.expect(")");
    } else if (reader_.accept("(")) {
      op.regions.push_back(region());
      reader_.expect(")");
    }
    optional_dictionary(op);
    reader_.expect(":");
    type_list();
    reader_.expect("->");
    type_list();
    if (reader_.accept("loc")) location();
    if (op.name == "func.func") add(function_of(std::move(op)));
    else if (op.name != "builtin.module")
      reader_.fail("TSR-1121", fmt::format("'{}' stands outside of a function", op.name), "functions");
  } else {
    const std::string name = reader_.symbol("a module or a function");
    if (name != "sdy.mesh")
      reader_.fail("TSR-1121", fmt::format("'{}' stands outside of a function", name), "functions");
    reader_.name('@', "a mesh");
    reader_.expect("=");
    reader_.expect("<");
    skip_to(">");
  }
}

std::string ModuleParser::resolved(std::string loc) const {
  for (int step = 0; step < 8 && loc.starts_with('#'); ++step) {
    const auto known = locations_.find(loc);
    loc = known == locations_.end() ? "" : known->second;
  }
  return loc.starts_with('#') ? "" : loc;
}

void ModuleParser::resolve_locations(HloRegion& region) const {
  for (HloArgument& argument : region.arguments) argument.loc = resolved(argument.loc);
  for (HloOperation& op : region.operations) {
    op.loc = resolved(op.loc);
    for (HloRegion& inner : op.regions) resolve_locations(inner);
  }
}

HloModule ModuleParser::run() {
  HloModule module;
  while (!reader_.at_end()) top_level(module);
  for (auto& [name, function] : module.functions) resolve_locations(function.body);
  const auto main = module.functions.find("main");
  if (main != module.functions.end()) module.main = &main->second;
  else if (module.functions.size() == 1) module.main = &module.functions.begin()->second;
  if (!module.main)
    reader_.fail("TSR-1121",
                 fmt::format("a module of {} functions, of which none is called main", module.functions.size()),
                 "one function, or a main");
  return module;
}

bool looks_like_mlir(std::string_view beginning) {
  // Comments and blanks, and then one of the words that a module begins with.
  size_t at = 0;
  while (at < beginning.size()) {
    if (beginning[at] == ' ' || beginning[at] == '\n' || beginning[at] == '\t' || beginning[at] == '\r') {
      ++at;
    } else if (beginning.substr(at, 2) == "//") {
      at = std::min(beginning.find('\n', at), beginning.size());
    } else {
      break;
    }
  }
  const std::string_view rest = beginning.substr(at);
  for (const std::string_view start : {"module @", "module {", "module attributes", "builtin.module",
                                       "\"builtin.module\"", "func.func ", "\"func.func\"", "#loc"})
    if (rest.starts_with(start)) return true;
  return false;
}

HloModule read_module_text(std::string_view text, const std::string& file) { return ModuleParser(text, file).run(); }

}  // namespace tessera::inline stablehlo
