#include "codegen/source/c_text.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <limits>
#include <map>
#include <regex>

#include <fmt/format.h>

#include "codegen/source/helpers.h"
#include "support/error.h"

namespace tessera::inline source_codegen {

namespace {

bool is_narrow(DType dtype) { return dtype == DType::kF16 || dtype == DType::kBF16; }

// Of the same width, without a sign, and at least 32 bits: where wrapping is defined and nothing is promoted to int.
std::string_view wide_unsigned(DType dtype) { return dtype_bits(dtype) > 32 ? "u64" : "u32"; }

}  // namespace

bool has_c_type(DType dtype) {
  if (dtype == DType::kBool || dtype == DType::kF64 || dtype == DType::kF32 || is_narrow(dtype)) return true;
  return is_int(dtype) && dtype_bits(dtype) >= 8;
}

std::string_view storage_type(DType dtype) {
  if (is_narrow(dtype)) return "u16";
  return dtype == DType::kBool ? "u8" : dtype_name(dtype);
}

std::string_view value_type(DType dtype) {
  if (is_narrow(dtype)) return "f32";
  return dtype == DType::kBool ? "int" : dtype_name(dtype);
}

std::string_view public_type(DType dtype) {
  static const std::map<std::string_view, std::string_view> kNames = {
      {"f64", "double"}, {"f32", "float"},    {"i64", "int64_t"},  {"i32", "int32_t"},  {"i16", "int16_t"},
      {"i8", "int8_t"},  {"u64", "uint64_t"}, {"u32", "uint32_t"}, {"u16", "uint16_t"}, {"u8", "uint8_t"}};
  return kNames.at(storage_type(dtype));
}

std::string identifier(std::string_view text) {
  static const std::set<std::string> kTaken = {
      "auto",     "break",   "case",     "char",   "const",  "continue", "default", "do",      "double",  "else",
      "enum",     "extern",  "float",    "for",    "goto",   "if",       "inline",  "int",     "long",    "register",
      "restrict", "return",  "short",    "signed", "sizeof", "static",   "struct",  "switch",  "typedef", "union",
      "unsigned", "void",    "volatile", "while",  "NAN",    "INFINITY", "isnan",   "isinf",   "class",   "new",
      "delete",   "private", "public",   "this",   "true",   "false",    "bool",    "template"};
  std::string name;
  for (const char c : text) name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  if (name.empty() || std::isdigit(static_cast<unsigned char>(name[0]))) name.insert(0, "x");
  if (name[0] == '_') name.insert(0, "x");
  // Functions that kernels call, ours and the library's, and what <stdint.h> and <stddef.h> name.
  static const std::regex library(
      "(fabs|sqrt|floor|ceil|rint|trunc|exp|log|pow|fma|fmin|fmax|fmod|sin|cos|tan|tanh|erf|round|copysign|ldexp|"
      "signbit)f?"
      "|mem(cpy|set|move|cmp)|NULL|offsetof|size_t|(u?int|ptr|uptr|intptr|uintptr|wchar|max_align|ptrdiff)[a-z0-9_]*_t"
      "|U?INT[A-Z0-9_]*|SIZE_MAX|PTRDIFF_(MIN|MAX)|ANY_ELEMENT"
      "|[a-z]+(_[a-z]+)*_([iu](8|16|32|64)|b?f16|f32|f64|bool)|([iu](8|16|32|64)|b?f16|f32|f64|bool)_of_.*");
  if (kTaken.contains(name) || std::regex_match(name, library)) name += '_';
  return name.substr(0, 60);
}

std::string_view without_parentheses(std::string_view text) {
  if (!text.starts_with('(') || !text.ends_with(')')) return text;
  int depth = 0;
  for (size_t i = 0; i + 1 < text.size(); ++i) {
    depth += text[i] == '(' ? 1 : text[i] == ')' ? -1 : 0;
    if (depth == 0) return text;  // the first one closes before the end
  }
  return text.substr(1, text.size() - 2);
}

// Of an integer type; by exclusive or, as compilers warn of complements of what they promote.
std::string all_ones(DType dtype) {
  if (is_signed_int(dtype)) return "-1";
  switch (dtype_bits(dtype)) {
    case 8: return "0xff";
    case 16: return "0xffff";
    case 32: return "UINT32_C(0xffffffff)";
    default: return "UINT64_C(0xffffffffffffffff)";
  }
}

// ---- numbers ----

std::string COps::number(DType dtype, double value) {
  const bool is_double = dtype == DType::kF64;
  if (std::isnan(value) || std::isinf(value)) {
    needs_math_ = true;
    const std::string name = std::isnan(value) ? "NAN" : "INFINITY";
    return !std::isnan(value) && value < 0 ? "(-" + name + ")" : name;
  }
  std::string text = is_double ? fmt::format("{}", value) : fmt::format("{}", static_cast<float>(value));
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  if (!is_double) text += 'f';
  return text.starts_with('-') ? "(" + text + ")" : text;
}

std::string COps::number(DType dtype, int64_t value) {
  switch (dtype) {
    case DType::kI64:
      return value == std::numeric_limits<int64_t>::min() ? "(-INT64_C(9223372036854775807) - 1)"
             : value < 0                                  ? fmt::format("(-INT64_C({}))", -value)
             : value > 0x7fff                             ? fmt::format("INT64_C({})", value)
                                                          : fmt::format("{}", value);
    case DType::kU64: return fmt::format("UINT64_C({})", static_cast<uint64_t>(value));
    case DType::kU32: return fmt::format("{}u", static_cast<uint32_t>(value));
    case DType::kI32:
      if (value == std::numeric_limits<int32_t>::min()) return "(-2147483647 - 1)";
      return value < 0 ? fmt::format("({})", value) : fmt::format("{}", value);
    case DType::kU8: return fmt::format("{}", value & 0xff);
    case DType::kU16: return fmt::format("{}", value & 0xffff);
    default: return value < 0 ? fmt::format("({})", value) : fmt::format("{}", value);
  }
}

std::string COps::constant(const ExprNode& node) {
  return is_float(node.dtype) ? number(node.dtype, node.float_value) : number(node.dtype, node.int_value);
}

// ---- memory ----

std::string COps::from_storage(DType dtype, std::string stored) {
  if (is_narrow(dtype)) return call(fmt::format("f32_of_{}", dtype_name(dtype)), dtype, {stored});
  return dtype == DType::kBool ? fmt::format("({} != 0)", stored) : stored;
}

std::string COps::to_storage(DType dtype, std::string value) {
  if (is_narrow(dtype)) return call(fmt::format("{}_of_f32", dtype_name(dtype)), dtype, {value});
  return dtype == DType::kBool ? fmt::format("(u8){}", value) : value;
}

std::string COps::rounded(DType dtype, std::string value) {
  return is_narrow(dtype) ? from_storage(dtype, to_storage(dtype, std::move(value))) : value;
}

// ---- helpers ----

void COps::want(const std::string& helper) {
  if (!known_.insert(helper).second) return;
  const std::string text = text_of_helper(helper, dialect_);
  needs_math_ = needs_math_ || text.find("/* math */") != std::string::npos;
  needs_string_ = needs_string_ || text.find("memcpy") != std::string::npos;
  for (const std::string& other : helpers_called_by(helper, dialect_)) want(other);
  wanted_.push_back(helper);
}

std::string COps::call(const std::string& helper, DType, const std::vector<std::string>& arguments) {
  want(helper);
  std::string text = helper + "(";
  for (size_t i = 0; i < arguments.size(); ++i)
    text += (i ? ", " : "") + std::string(without_parentheses(arguments[i]));
  return text + ")";
}

std::string COps::math(std::string_view function, DType dtype, const std::string& a) {
  needs_math_ = true;
  return rounded(dtype, fmt::format("{}{}({})", function, dtype == DType::kF64 ? "" : "f", without_parentheses(a)));
}

std::string COps::helper_text() const {
  std::string text;
  for (const std::string& helper : wanted_) {
    std::string body = text_of_helper(helper, dialect_);
    if (const size_t mark = body.find("/* math */ "); mark != std::string::npos) body.erase(mark, 11);
    text += body + '\n';
  }
  return text;
}

// ---- operations ----

std::string COps::wrapped(DType dtype, const std::string& a, std::string_view op, const std::string& b) const {
  const std::string_view wide = wide_unsigned(dtype);
  return fmt::format("({})(({}){} {} ({}){})", value_type(dtype), wide, a, op, wide, b);
}

std::string COps::unary(UnaryOp op, DType operand, DType result, const std::string& a) {
  const bool real = is_float(operand);
  const std::string type(dtype_name(operand));
  switch (op) {
    case UnaryOp::kBitcast: {
      if (operand == result) return a;
      const auto bits = [&](DType dtype, const std::string& value) {
        if (is_narrow(dtype)) return to_storage(dtype, value);
        if (!is_float(dtype)) return value;
        return call(fmt::format("bits_of_{}", dtype_name(dtype)), dtype, {value});
      };
      const std::string given = bits(operand, a);
      if (is_narrow(result)) return from_storage(result, given);
      if (is_float(result))
        return call(fmt::format("{}_of_bits", dtype_name(result)), result,
                    {fmt::format("({}){}", wide_unsigned(result), given)});
      return fmt::format("(({}){})", value_type(result), given);
    }
    case UnaryOp::kNeg:
      if (real) return fmt::format("(-{})", a);
      return wrapped(operand, dtype_bits(operand) > 32 ? "0" : "0u", "-", a);
    case UnaryOp::kAbs:
      if (real) return math("fabs", operand, a);
      return is_signed_int(operand) ? call("abs_" + type, operand, {a}) : a;
    case UnaryOp::kNot:
      return operand == DType::kBool ? fmt::format("(!{})", a)
                                     : fmt::format("(({})({} ^ {}))", value_type(operand), a, all_ones(operand));
    case UnaryOp::kSqrt: return math("sqrt", operand, a);
    case UnaryOp::kFloor: return real ? math("floor", operand, a) : a;
    case UnaryOp::kCeil: return real ? math("ceil", operand, a) : a;
    case UnaryOp::kRound: return real ? math("rint", operand, a) : a;
    case UnaryOp::kTrunc: return real ? math("trunc", operand, a) : a;
    case UnaryOp::kSign:
      if (operand == DType::kBool) return a;
      if (!real && !is_signed_int(operand)) return fmt::format("(({})({} != 0))", value_type(operand), a);
      return call("sign_" + std::string(value_type(operand)), operand, {a});
    case UnaryOp::kIsNan:
    case UnaryOp::kIsInf:
      if (!real) return "0";
      needs_math_ = true;
      return fmt::format("({}({}) != 0)", op == UnaryOp::kIsNan ? "isnan" : "isinf", without_parentheses(a));
    default: break;
  }
  throw InternalError(std::string("C generation met ") + unary_name(op) + "; expand_math must run before");
}

std::string COps::binary(BinaryOp op, DType operand, const std::string& a, const std::string& b) {
  const bool real = is_float(operand);
  const std::string type(value_type(operand));
  const auto infix = [&](std::string_view sign) { return fmt::format("({} {} {})", a, sign, b); };
  const auto helper = [&](const char* name) { return call(fmt::format("{}_{}", name, type), operand, {a, b}); };
  switch (op) {
    case BinaryOp::kEq: return infix("==");
    case BinaryOp::kNe: return infix("!=");
    case BinaryOp::kLt: return infix("<");
    case BinaryOp::kLe: return infix("<=");
    case BinaryOp::kGt: return infix(">");
    case BinaryOp::kGe: return infix(">=");
    default: break;
  }
  if (real) {
    switch (op) {
      case BinaryOp::kAdd: return rounded(operand, infix("+"));
      case BinaryOp::kSub: return rounded(operand, infix("-"));
      case BinaryOp::kMul: return rounded(operand, infix("*"));
      case BinaryOp::kDiv: return rounded(operand, infix("/"));
      case BinaryOp::kFloorDiv: return math("floor", operand, infix("/"));
      case BinaryOp::kMin: return helper("min");
      case BinaryOp::kMax: return helper("max");
      default: break;
    }
    throw InternalError(std::string("C generation met ") + binary_name(op) + " on floats; expand_math must run before");
  }
  if (operand == DType::kBool) {
    switch (op) {
      case BinaryOp::kAdd:
      case BinaryOp::kMax:
      case BinaryOp::kOr: return infix("||");
      case BinaryOp::kMul:
      case BinaryOp::kMin:
      case BinaryOp::kAnd: return infix("&&");
      case BinaryOp::kSub:
      case BinaryOp::kXor: return infix("!=");
      default: throw InternalError(std::string("C generation met ") + binary_name(op) + " on bools");
    }
  }
  switch (op) {
    case BinaryOp::kAdd: return wrapped(operand, a, "+", b);
    case BinaryOp::kSub: return wrapped(operand, a, "-", b);
    case BinaryOp::kMul: return wrapped(operand, a, "*", b);
    case BinaryOp::kDiv: return helper("div");
    case BinaryOp::kRem: return helper("rem");
    case BinaryOp::kFloorDiv: return helper(is_signed_int(operand) ? "floordiv" : "div");
    case BinaryOp::kFloorMod: return helper(is_signed_int(operand) ? "floormod" : "rem");
    case BinaryOp::kMin: return helper("min");
    case BinaryOp::kMax: return helper("max");
    case BinaryOp::kAnd: return fmt::format("({}){}", type, infix("&"));
    case BinaryOp::kOr: return fmt::format("({}){}", type, infix("|"));
    case BinaryOp::kXor: return fmt::format("({}){}", type, infix("^"));
    case BinaryOp::kShl: return helper("shl");
    case BinaryOp::kShr: return helper("shr");
    default: break;
  }
  throw InternalError(std::string("C generation met ") + binary_name(op) + " on integers; expand_math must run before");
}

std::string COps::fma(DType dtype, const std::string& a, const std::string& b, const std::string& c) {
  if (dialect_.fuses && !is_narrow(dtype))
    return fmt::format("fma{}({}, {}, {})", dtype == DType::kF64 ? "" : "f", a, b, c);
  return rounded(dtype, fmt::format("({} * {} + {})", a, b, c));
}

std::string COps::cast(DType to, DType from, const std::string& a) {
  if (to == from) return a;
  if (to == DType::kBool) return fmt::format("({} != 0)", a);
  if (!is_float(from)) {
    if (!is_narrow(to)) return fmt::format("(({}){})", value_type(to), a);
    if (from == DType::kBool || dtype_bits(from) <= 16) return rounded(to, fmt::format("(f32){}", a));
    return rounded(to, call("f32_odd_of_f64", to, {fmt::format("(f64){}", a)}));
  }
  if (!is_float(to)) return call(fmt::format("{}_of_{}", value_type(to), value_type(from)), to, {a});
  if (from == DType::kF64) {
    if (is_narrow(to)) return rounded(to, call("f32_odd_of_f64", to, {a}));
    return fmt::format("((f32){})", a);
  }
  if (to == DType::kF64) return fmt::format("((f64){})", a);
  return rounded(to, a);
}

}  // namespace tessera::inline source_codegen
