#include "interp/flow_strings.h"

#include <fmt/format.h>
#include <locale.h>
#include <wctype.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <memory>
#include <set>

#include "interp/flow_values.h"
#include "support/error.h"
#include "support/utf8.h"

namespace tessera::inline interp {
namespace {

using Texts = std::vector<std::string>;

// ---- StringSplit ----

bool is_space(uint32_t c) {
  return c == ' ' || (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x1f) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

Texts words(std::string_view text, int64_t splits) {
  Texts parts;
  const auto skip = [&] {
    while (!text.empty()) {
      std::string_view rest = text;
      if (!is_space(next_character(rest))) return;
      text = rest;
    }
  };
  for (skip(); !text.empty(); skip()) {
    if (splits >= 0 && std::ssize(parts) == splits) {
      parts.emplace_back(text);
      break;
    }
    std::string_view rest = text;
    size_t size = 0;
    for (; !rest.empty(); size = text.size() - rest.size()) {
      std::string_view behind = rest;
      if (is_space(next_character(behind))) break;
      rest = behind;
    }
    size = text.size() - rest.size();
    parts.emplace_back(text.substr(0, size));
    text.remove_prefix(size);
  }
  return parts;
}

Texts parts_between(const std::string& text, const std::string& delimiter, int64_t splits) {
  Texts parts;
  size_t begin = 0;
  for (size_t at; (splits < 0 || std::ssize(parts) < splits) && (at = text.find(delimiter, begin)) != std::string::npos;
       begin = at + delimiter.size())
    parts.push_back(text.substr(begin, at - begin));
  parts.push_back(text.substr(begin));
  return parts;
}

std::vector<RunValue> split(const FlowStep& step, const Tensor& x, const Texts& strings) {
  std::vector<Texts> all;
  size_t most = 0;
  Tensor counts(DType::kI64, x.dims());
  for (const std::string& text : x.strings()) {
    all.push_back(step.ints[0] < 0 ? words(text, step.ints[1])
                                   : parts_between(text, strings.at(static_cast<size_t>(step.ints[0])), step.ints[1]));
    counts.set_int(std::ssize(all) - 1, std::ssize(all.back()));
    most = std::max(most, all.back().size());
  }
  Texts filled;
  for (Texts& parts : all) {
    parts.resize(most);
    filled.insert(filled.end(), parts.begin(), parts.end());
  }
  std::vector<int64_t> dims = x.dims();
  dims.push_back(static_cast<int64_t>(most));
  return {Tensor::of_strings(std::move(filled), std::move(dims)), counts};
}

// ---- StringNormalizer ----

std::string with_case(std::string_view text, bool upper) {
  // The library's mappings of Unicode, of which the runtime has tables of its own.
  static const locale_t kUnicode = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  std::string result;
  while (!text.empty()) {
    const uint32_t c = next_character(text);
    if (kUnicode == nullptr && c >= 0x80) append_character(result, c);
    else
      append_character(result,
                       static_cast<uint32_t>(kUnicode ? (upper ? towupper_l(c, kUnicode) : towlower_l(c, kUnicode))
                                                      : (upper ? towupper(c) : towlower(c))));
  }
  return result;
}

RunValue normalize(const FlowStep& step, const Tensor& x, const Texts& strings) {
  const std::vector<int64_t>& dims = x.dims();
  if (dims.size() != 1 && !(dims.size() == 2 && dims[0] == 1))
    fail_step(step, fmt::format("an operand of shape [{}]; legal: [C] or [1,C]", fmt::join(dims, ",")));
  const bool sensitive = step.ints[1] != 0;
  const auto compared = [&](const std::string& text) { return sensitive ? text : with_case(text, false); };
  std::set<std::string> stops;
  for (size_t i = 2; i < step.ints.size(); ++i) stops.insert(compared(strings.at(static_cast<size_t>(step.ints[i]))));
  Texts kept;
  for (const std::string& text : x.strings()) {
    if (stops.count(compared(text))) continue;
    kept.push_back(step.ints[0] == 0 ? text : with_case(text, step.ints[0] == 2));
  }
  if (kept.empty()) kept.emplace_back();
  const auto count = std::ssize(kept);
  return Tensor::of_strings(std::move(kept),
                            dims.size() == 1 ? std::vector<int64_t>{count} : std::vector<int64_t>{1, count});
}

// ---- casts ----

template <typename Float>
std::string float_text(Float value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char text[64];
  const double size = std::abs(static_cast<double>(value));
  const auto format =
      size != 0 && (size < 1e-4 || size >= 1e16) ? std::chars_format::scientific : std::chars_format::fixed;
  std::string result(text, std::to_chars(text, text + sizeof(text), value, format).ptr);
  return format == std::chars_format::fixed && result.find('.') == std::string::npos ? result + ".0" : result;
}

RunValue to_string(const Tensor& x) {
  Texts texts;
  for (int64_t i = 0; i < x.num_elements(); ++i) {
    if (x.dtype() == DType::kF32) texts.push_back(float_text(static_cast<float>(x.get_double(i))));
    else if (x.dtype() == DType::kF64) texts.push_back(float_text(x.get_double(i)));
    else if (x.dtype() == DType::kU64) texts.push_back(fmt::format("{}", static_cast<uint64_t>(x.get_int(i))));
    else if (x.dtype() == DType::kBool) texts.emplace_back(x.get_int(i) ? "True" : "False");
    else texts.push_back(fmt::format("{}", x.get_int(i)));
  }
  return Tensor::of_strings(std::move(texts), x.dims());
}

RunValue from_string(const FlowStep& step, const Tensor& x) {
  const auto dtype = static_cast<DType>(step.ints[0]);
  Tensor result(dtype, x.dims());
  for (int64_t i = 0; i < x.num_elements(); ++i) {
    const std::string& text = x.strings()[static_cast<size_t>(i)];
    const auto refuse = [&] {
      std::string shown = text.substr(0, 60);
      std::replace_if(shown.begin(), shown.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; }, '?');
      fail_step(step, fmt::format("'{}' is no number; legal: {}", shown,
                                  dtype == DType::kF64 ? "numbers such as 3.14 or 1e-5" : "integers of 64 bits"));
    };
    try {
      size_t begin = 0, length = 0;
      while (begin < text.size() && is_space(static_cast<unsigned char>(text[begin]))) ++begin;
      const std::string number = text.substr(begin);
      if (dtype == DType::kF64) {
        char* stop = nullptr;
        result.set_double(i, std::strtod(number.c_str(), &stop));
        length = static_cast<size_t>(stop - number.c_str());
      } else if (dtype == DType::kU64) {
        if (number.find('-') != std::string::npos) refuse();
        result.set_int(i, static_cast<int64_t>(std::stoull(number, &length)));
      } else {
        result.set_int(i, std::stoll(number, &length));
      }
      size_t end = begin + length;
      while (end < text.size() && is_space(static_cast<unsigned char>(text[end]))) ++end;
      if (length == 0 || end != text.size() || text.size() > 127) refuse();
    } catch (const std::logic_error&) {  // stoll and stoull
      refuse();
    }
  }
  return result;
}

RunValue rank(const Tensor& x) {
  const std::set<std::string> sorted(x.strings().begin(), x.strings().end());
  Tensor result(DType::kI64, x.dims());
  for (int64_t i = 0; i < x.num_elements(); ++i)
    result.set_int(i, std::distance(sorted.begin(), sorted.find(x.strings()[static_cast<size_t>(i)])));
  return result;
}

}  // namespace

std::vector<RunValue> string_results(const FlowStep& step, const std::vector<const RunValue*>& operands,
                                     const Texts& strings) {
  const Tensor& x = operands[0]->tensor;
  if (step.op == FlowOp::kToString) return {to_string(x)};
  for (size_t i = 0; i < operands.size(); ++i)
    if (!operands[i]->is_tensor() || operands[i]->tensor.dtype() != DType::kString)
      fail_step(step, fmt::format("operand {} is no tensor of strings; legal: strings", i));
  switch (step.op) {
    case FlowOp::kStringConcat: {
      const Tensor& y = operands[1]->tensor;
      const std::vector<int64_t> dims = broadcast(step, x.dims(), y.dims());
      Texts texts;
      for (int64_t i = 0; i < Tensor(DType::kI64, dims).num_elements(); ++i)
        texts.push_back(x.strings()[static_cast<size_t>(broadcast_place(x, dims, i))] +
                        y.strings()[static_cast<size_t>(broadcast_place(y, dims, i))]);
      return {Tensor::of_strings(std::move(texts), dims)};
    }
    case FlowOp::kStringSplit: return split(step, x, strings);
    case FlowOp::kStringNormalize: return {normalize(step, x, strings)};
    case FlowOp::kFromString: return {from_string(step, x)};
    default: return {rank(x)};
  }
}

}  // namespace tessera::inline interp
