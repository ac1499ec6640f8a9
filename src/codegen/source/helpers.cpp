#include "codegen/source/helpers.h"

#include <cmath>
#include <map>
#include <optional>
#include <regex>

#include <fmt/format.h>

#include "support/error.h"

namespace tessera::inline source_codegen {

namespace {

// @T is the type, @U the unsigned one of its width (at least 32 bits), @B its bits.
const std::map<std::string, std::string>& templates() {
  static const std::map<std::string, std::string> kTexts = {
      {"min", "static inline @T min_@T(@T a, @T b) { return b < a ? b : a; }"},
      {"max", "static inline @T max_@T(@T a, @T b) { return a < b ? b : a; }"},
      {"abs", "static inline @T abs_@T(@T a) { return a < 0 ? (@T)((@U)0 - (@U)a) : a; }"},
      {"sign", "static inline @T sign_@T(@T a) { return (@T)((a > 0) - (a < 0)); }"},
      // Division by zero gives 0, or the dividend as a remainder; the least integer by -1 wraps.
      {"div",
       "static inline @T div_@T(@T a, @T b) {\n"
       "  return b == 0 ? 0 : b == -1 ? (@T)((@U)0 - (@U)a) : (@T)(a / b);\n}"},
      {"rem", "static inline @T rem_@T(@T a, @T b) { return b == 0 ? a : b == -1 ? 0 : (@T)(a % b); }"},
      {"floordiv",
       "static inline @T floordiv_@T(@T a, @T b) {\n"
       "  const @T q = div_@T(a, b), r = rem_@T(a, b);\n"
       "  return b != 0 && r != 0 && (r < 0) != (b < 0) ? (@T)(q - 1) : q;\n}"},
      {"floormod",
       "static inline @T floormod_@T(@T a, @T b) {\n"
       "  const @T r = rem_@T(a, b);\n"
       "  return b != 0 && r != 0 && (r < 0) != (b < 0) ? (@T)(r + b) : r;\n}"},
      // Shifting by the width or more moves every bit out.
      {"shl", "static inline @T shl_@T(@T a, @T b) { return (@U)b < @B ? (@T)((@U)a << (@U)b) : 0; }"},
      {"shr", "static inline @T shr_@T(@T a, @T b) { return (@T)(a >> ((@U)b < @B ? (@U)b : @B - 1)); }"}};
  return kTexts;
}

const std::map<std::string, std::string>& texts() {
  static const std::map<std::string, std::string> kTexts = {
      {"shr_u8", "static inline u8 shr_u8(u8 a, u8 b) { return b < 8 ? (u8)(a >> b) : 0; }"},
      {"shr_u16", "static inline u16 shr_u16(u16 a, u16 b) { return b < 16 ? (u16)(a >> b) : 0; }"},
      {"shr_u32", "static inline u32 shr_u32(u32 a, u32 b) { return b < 32 ? a >> b : 0; }"},
      {"shr_u64", "static inline u64 shr_u64(u64 a, u64 b) { return b < 64 ? a >> b : 0; }"},
      {"div_u8", "static inline u8 div_u8(u8 a, u8 b) { return b == 0 ? 0 : (u8)(a / b); }"},
      {"div_u16", "static inline u16 div_u16(u16 a, u16 b) { return b == 0 ? 0 : (u16)(a / b); }"},
      {"div_u32", "static inline u32 div_u32(u32 a, u32 b) { return b == 0 ? 0 : a / b; }"},
      {"div_u64", "static inline u64 div_u64(u64 a, u64 b) { return b == 0 ? 0 : a / b; }"},
      {"rem_u8", "static inline u8 rem_u8(u8 a, u8 b) { return b == 0 ? a : (u8)(a % b); }"},
      {"rem_u16", "static inline u16 rem_u16(u16 a, u16 b) { return b == 0 ? a : (u16)(a % b); }"},
      {"rem_u32", "static inline u32 rem_u32(u32 a, u32 b) { return b == 0 ? a : a % b; }"},
      {"rem_u64", "static inline u64 rem_u64(u64 a, u64 b) { return b == 0 ? a : a % b; }"},
      // NaN when either operand is NaN.
      {"min_f32",
       "static inline f32 min_f32(f32 a, f32 b) { return /* math */ isnan(a) || isnan(b) ? a + b : b < a ? b : a; }"},
      {"max_f32",
       "static inline f32 max_f32(f32 a, f32 b) { return /* math */ isnan(a) || isnan(b) ? a + b : a < b ? b : a; }"},
      {"min_f64",
       "static inline f64 min_f64(f64 a, f64 b) { return /* math */ isnan(a) || isnan(b) ? a + b : b < a ? b : a; }"},
      {"max_f64",
       "static inline f64 max_f64(f64 a, f64 b) { return /* math */ isnan(a) || isnan(b) ? a + b : a < b ? b : a; }"},
      {"sign_f32", "static inline f32 sign_f32(f32 a) { return a > 0 ? 1.0f : a < 0 ? -1.0f : a; }"},
      {"sign_f64", "static inline f64 sign_f64(f64 a) { return a > 0 ? 1.0 : a < 0 ? -1.0 : a; }"},
      {"bits_of_f32",
       "static inline u32 bits_of_f32(f32 a) {\n  u32 bits;\n  memcpy(&bits, &a, 4);\n  return bits;\n}"},
      {"f32_of_bits", "static inline f32 f32_of_bits(u32 bits) {\n  f32 a;\n  memcpy(&a, &bits, 4);\n  return a;\n}"},
      {"bits_of_f64",
       "static inline u64 bits_of_f64(f64 a) {\n  u64 bits;\n  memcpy(&bits, &a, 8);\n  return bits;\n}"},
      {"f64_of_bits", "static inline f64 f64_of_bits(u64 bits) {\n  f64 a;\n  memcpy(&a, &bits, 8);\n  return a;\n}"},
      {"f32_of_bf16", "static inline f32 f32_of_bf16(u16 a) { return f32_of_bits((u32)a << 16); }"},
      {"bf16_of_f32",
       "static inline u16 bf16_of_f32(f32 a) {\n"
       "  const u32 bits = bits_of_f32(a);\n"
       "  if ((bits & 0x7fffffffu) > 0x7f800000u) return (u16)(bits >> 16 | 0x40u);\n"
       "  return (u16)((bits + (bits >> 16 & 1u) + 0x7fffu) >> 16);\n}"},
      {"f32_of_f16",
       "static inline f32 f32_of_f16(u16 a) {\n"
       "  const u32 sign = (u32)(a & 0x8000u) << 16, magnitude = a & 0x7fffu;\n"
       "  const u32 shifted = magnitude << 13;\n"
       "  if (magnitude >= 0x7c00u) return f32_of_bits(sign | shifted | 0x7f800000u);\n"
       "  if (magnitude < 0x400u) return f32_of_bits(sign | bits_of_f32((f32)magnitude * 5.9604644775390625e-8f));\n"
       "  return f32_of_bits(sign | (shifted + (112u << 23)));\n}"},
      // Below 2^-14 the result counts multiples of 2^-24, which is the spacing of floats just above one half.
      {"f16_of_f32",
       "static inline u16 f16_of_f32(f32 a) {\n"
       "  const u32 bits = bits_of_f32(a), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;\n"
       "  if (magnitude > 0x7f800000u) return (u16)(sign | 0x7e00u);\n"
       "  if (magnitude < 0x38800000u) return (u16)(sign | (bits_of_f32(f32_of_bits(magnitude) + 0.5f) - "
       "0x3f000000u));\n"
       "  const u32 rebased = magnitude - (112u << 23), rounded = (rebased + (rebased >> 13 & 1u) + 0xfffu) >> 13;\n"
       "  return (u16)(sign | (rounded < 0x7c00u ? rounded : 0x7c00u));\n}"},
      // Truncates, and makes the last bit odd when something was cut off: a second rounding then gives what one would.
      {"f32_odd_of_f64",
       "static inline f32 f32_odd_of_f64(f64 a) {\n"
       "  const f32 nearest = (f32)a;\n"
       "  const f64 back = nearest;\n"
       "  u32 bits = bits_of_f32(nearest);\n"
       "  if (!(back < a || back > a)) return nearest;\n"
       "  bits -= (back < 0 ? -back : back) > (a < 0 ? -a : a);\n"
       "  return f32_of_bits(bits | 1u);\n}"}};
  return kTexts;
}

struct Parts {
  std::string operation, type;
};
Parts parts_of(const std::string& name) {
  const size_t cut = name.rfind('_');
  return {name.substr(0, cut), name.substr(cut + 1)};
}

int bits_of(const std::string& type) { return std::stoi(type.substr(1)); }

std::string filled(std::string text, const std::string& type) {
  const auto replace = [&](const std::string& what, const std::string& with) {
    for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + with.size()))
      text.replace(at, what.size(), with);
  };
  const int bits = bits_of(type);
  replace("@T", type);
  replace("@U", bits > 32 ? "u64" : "u32");
  replace("@B", fmt::format("{}u", bits));
  return text;
}

// "i8_of_f32": truncates towards zero and saturates; NaN gives 0. The limits are powers of two, which floats have.
std::string saturating_cast(const std::string& to, const std::string& from) {
  const int bits = bits_of(to);
  const std::string end = from == "f32" ? ".0f" : ".0";
  const auto power = [&](int exponent) {
    return fmt::format("{}{}", fmt::format("{:.0f}", std::ldexp(1.0, exponent)), end);
  };
  if (to[0] == 'u') {
    const std::string most = bits == 64 ? "UINT64_MAX" : fmt::format("UINT{}_MAX", bits);
    return fmt::format("static inline {0} {0}_of_{1}({1} a) {{ return !(a > 0) ? 0 : a >= {2} ? {3} : ({0})a; }}", to,
                       from, power(bits), most);
  }
  return fmt::format(
      "static inline {0} {0}_of_{1}({1} a) {{\n"
      "  return !(a < {2}) ? (a >= {2} ? INT{3}_MAX : 0) : a <= -{2} ? INT{3}_MIN : ({0})a;\n}}",
      to, from, power(bits - 1), bits);
}

const std::regex& cast_pattern() {
  static const std::regex kPattern("([iu](?:8|16|32|64))_of_(f32|f64)");
  return kPattern;
}

// Empty when there is no such helper: a language has functions of its own that are called alike.
std::optional<std::string> find_helper(const std::string& name, const Dialect& dialect) {
  static constexpr std::string_view kFunction = "static inline";
  for (const auto& [own, text] : dialect.helpers)
    if (own == name) return fmt::format("{} {}", dialect.function, text);
  const auto in_dialect = [&](const std::string& text) {
    return std::string(dialect.function) + text.substr(kFunction.size());
  };
  if (const auto own = texts().find(name); own != texts().end()) return in_dialect(own->second);
  std::smatch match;
  if (std::regex_match(name, match, cast_pattern())) return in_dialect(saturating_cast(match[1], match[2]));
  const Parts parts = parts_of(name);
  const auto form = templates().find(parts.operation);
  if (form == templates().end()) return std::nullopt;
  return in_dialect(filled(form->second, parts.type));
}

}  // namespace

std::string text_of_helper(const std::string& name, const Dialect& dialect) {
  const auto text = find_helper(name, dialect);
  check(text.has_value(), "there is no helper " + name + " in C");
  return *text;
}

std::vector<std::string> helpers_called_by(const std::string& name, const Dialect& dialect) {
  const std::string text = text_of_helper(name, dialect);
  static const std::regex kCall("([a-z0-9]+(?:_[a-z0-9]+)+)\\(");
  std::vector<std::string> called;
  for (auto it = std::sregex_iterator(text.begin(), text.end(), kCall); it != std::sregex_iterator(); ++it)
    if ((*it)[1] != name && find_helper((*it)[1], dialect)) called.push_back((*it)[1]);
  return called;
}

}  // namespace tessera::inline source_codegen
