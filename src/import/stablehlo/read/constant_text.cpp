#include "import/stablehlo/read/constant_text.h"

#include <fmt/format.h>

#include <bit>
#include <charconv>
#include <cstring>

#include "import/common/limits.h"

namespace tessera::inline stablehlo {
namespace {

constexpr size_t kMostNested = kMostDims;

[[noreturn]] void does_not_fit(TextReader& reader, const std::string& what) {
  reader.fail("TSR-1122", what, "as many elements, and of such values, as the type says");
}

// One number, true or false, or bits in hexadecimal digits.
std::string_view read_number(TextReader& reader) {
  if (reader.peek_is("true") || reader.peek_is("false")) return reader.word_characters("an element");
  if (reader.peek() == '0') {
    // 0x7FC00000, or a number.
    const std::string_view digits = reader.hex_number();
    if (!digits.empty()) return digits;
  }
  return reader.number("an element");
}

void read_elements(TextReader& reader, ConstantText& result, size_t depth, bool first) {
  if (!reader.accept("[")) {
    if (reader.peek() == '"') {
      result.is_foreign = true;
      reader.quoted("an element");
      return;
    }
    if (depth != result.nesting.size()) does_not_fit(reader, "brackets of different depths");
    const bool is_complex = reader.accept("(");
    if (!result.numbers.empty() && is_complex != result.is_complex)
      does_not_fit(reader, "real numbers beside complex ones");
    result.is_complex = is_complex;
    result.numbers.push_back(read_number(reader));
    if (!is_complex) return;
    reader.expect(",");
    result.numbers.push_back(read_number(reader));
    reader.expect(")");
    return;
  }
  if (depth >= kMostNested) does_not_fit(reader, "brackets inside each other without end");
  if (first) result.nesting.push_back(0);
  if (depth >= result.nesting.size()) does_not_fit(reader, "brackets of different depths");
  int64_t count = 0;
  if (!reader.accept("]")) {
    do read_elements(reader, result, depth + 1, first && count == 0);
    while (++count, reader.accept(","));
    reader.expect("]");
  }
  if (first) result.nesting[depth] = count;
  else if (result.nesting[depth] != count) does_not_fit(reader, "rows of different lengths");
}

int hex_value(char c) { return c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10; }

// The bytes of an element's bits, or of all elements; little endian.
TensorPtr of_bytes(const std::string& digits, const HloType& type, TextReader& reader) {
  const DType dtype = *type.dtype;
  const int64_t count = *checked_num_elements(type.dims);
  const auto given = static_cast<int64_t>(digits.size() / 2);
  const auto byte = [&](int64_t i) {
    const auto at = static_cast<size_t>(i) * 2;
    return static_cast<uint8_t>(hex_value(digits[at]) * 16 + hex_value(digits[at + 1]));
  };
  if (dtype == DType::kBool) {
    // A byte each, or bits, eight in a byte, as older releases of MLIR write them; one byte of equal bits stands for
    // all.
    const bool splat = given == 1 && count != 1 && (byte(0) == 0 || byte(0) == 0xff);
    const bool whole_bytes = given == count;
    if (!splat && !whole_bytes && given != (count + 7) / 8)
      does_not_fit(reader, fmt::format("{} bytes for {} bits", given, count));
    Tensor tensor(dtype, splat ? std::vector<int64_t>{} : type.dims);
    for (int64_t i = 0; i < tensor.num_elements(); ++i)
      tensor.set_int(i, whole_bytes ? byte(i) & 1 : byte(i / 8) >> (i % 8) & 1);
    return std::make_shared<const Tensor>(std::move(tensor));
  }
  const int bits = dtype_bits(dtype);
  const int64_t bytes = bits < 8 ? 1 : bits / 8;  // of an element; smaller ones have a byte each
  const bool splat = given == bytes && count != 1;
  if (!splat && given != count * bytes)
    does_not_fit(reader, fmt::format("{} bytes for {} elements of {} bytes", given, count, bytes));
  Tensor tensor(dtype, splat ? std::vector<int64_t>{} : type.dims);
  if (bits < 8) {
    for (int64_t i = 0; i < tensor.num_elements(); ++i) tensor.set_int(i, byte(i));
  } else {
    std::byte* to = tensor.mutable_bytes();
    for (int64_t i = 0; i < tensor.num_bytes(); ++i) to[i] = static_cast<std::byte>(byte(i));
  }
  return std::make_shared<const Tensor>(std::move(tensor));
}

void set_element(Tensor& tensor, int64_t i, std::string_view text, TextReader& reader) {
  const DType dtype = tensor.dtype();
  const char *begin = text.data(), *end = begin + text.size();
  if (text.starts_with("0x")) {
    uint64_t value = 0;
    const auto [stop, error] = std::from_chars(begin + 2, end, value, 16);
    if (error != std::errc() || stop != end) does_not_fit(reader, fmt::format("{} as an element", text));
    // Of floats these are the bits.
    if (is_float(dtype) && dtype_bits(dtype) >= 8)
      return void(std::memcpy(tensor.mutable_bytes() + i * (dtype_bits(dtype) / 8), &value,
                              static_cast<size_t>(dtype_bits(dtype) / 8)));
    return tensor.set_int(i, static_cast<int64_t>(value));
  }
  if (text == "true" || text == "false") return tensor.set_int(i, text == "true");
  if (is_float(dtype)) {
    double value = 0;
    const auto [stop, error] = std::from_chars(begin, end, value);
    // Beyond the largest and below the smallest double there is a value, too; the text has the nearest.
    if (stop != end || (error != std::errc() && error != std::errc::result_out_of_range))
      does_not_fit(reader, fmt::format("{} as an element", text));
    return tensor.set_double(i, value);
  }
  int64_t value = 0;
  auto result = std::from_chars(begin, end, value);
  if (result.ec == std::errc::result_out_of_range) {
    uint64_t large = 0;
    result = std::from_chars(begin, end, large);
    value = static_cast<int64_t>(large);
  }
  if (result.ec != std::errc() || result.ptr != end) does_not_fit(reader, fmt::format("{} as an element", text));
  tensor.set_int(i, value);
}

// Complex numbers, as pairs along a last dimension that the type does not have.
TensorPtr constant_of_parts(const ConstantText& text, const HloType& type, TextReader& reader) {
  HloType pairs = type;
  pairs.dtype = type.part;
  pairs.dims.push_back(2);
  const auto count = checked_num_elements(pairs.dims);
  if (!type.is_static() || !count) does_not_fit(reader, fmt::format("a constant of type {}", type.text));
  const bool splat = text.is_bytes ? std::ssize(text.bytes) / 2 == 2 * dtype_bits(*type.part) / 8
                                   : text.is_complex && text.nesting.empty() && text.numbers.size() == 2;
  if (splat) pairs.dims = {2};
  if (text.is_bytes) return of_bytes(text.bytes, pairs, reader);
  if (!splat && *count != std::ssize(text.numbers))
    does_not_fit(reader, fmt::format("{} parts for the type {}", text.numbers.size(), type.text));
  if (!splat && *count != 0 && (!text.is_complex || text.nesting != type.dims))
    does_not_fit(reader, fmt::format("brackets that are no {}", type.text));
  Tensor tensor(*type.part, pairs.dims);
  for (size_t i = 0; i < text.numbers.size(); ++i)
    set_element(tensor, static_cast<int64_t>(i), text.numbers[i], reader);
  return std::make_shared<const Tensor>(std::move(tensor));
}

}  // namespace

ConstantText read_constant_text(TextReader& reader) {
  ConstantText result;
  if (reader.peek() == '>') return result;
  if (reader.peek() == '"') {
    std::string text = reader.quoted("the bytes of a constant");
    result.is_bytes = text.starts_with("0x") && text.size() % 2 == 0;
    for (size_t i = 2; result.is_bytes && i < text.size(); ++i)
      result.is_bytes = std::isxdigit(static_cast<unsigned char>(text[i])) != 0;
    result.is_foreign = !result.is_bytes;
    if (result.is_bytes) result.bytes = text.substr(2);
    return result;
  }
  read_elements(reader, result, 0, true);
  return result;
}

TensorPtr constant_of_text(const ConstantText& text, const HloType& type, TextReader& reader) {
  if (type.part && !text.is_foreign) return constant_of_parts(text, type, reader);
  if (!type.dtype || text.is_foreign) return nullptr;
  const auto count = checked_num_elements(type.dims);
  if (!type.is_static() || !count) does_not_fit(reader, fmt::format("a constant of type {}", type.text));
  if (text.is_complex) does_not_fit(reader, fmt::format("complex numbers for the type {}", type.text));
  if (text.is_bytes) return of_bytes(text.bytes, type, reader);
  const bool splat = text.nesting.empty() && text.numbers.size() == 1;
  if (!splat && *count != std::ssize(text.numbers))
    does_not_fit(reader, fmt::format("{} elements for the type {}", text.numbers.size(), type.text));
  if (!splat && *count != 0 && text.nesting != type.dims)
    does_not_fit(reader, fmt::format("brackets that are no {}", type.text));
  Tensor tensor(*type.dtype, splat ? std::vector<int64_t>{} : type.dims);
  for (size_t i = 0; i < text.numbers.size(); ++i)
    set_element(tensor, static_cast<int64_t>(i), text.numbers[i], reader);
  return std::make_shared<const Tensor>(std::move(tensor));
}

}  // namespace tessera::inline stablehlo
