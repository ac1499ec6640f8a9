#include "import/onnx_json/onnx_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "import/onnx_json/schema.h"
#include "support/error.h"

namespace tessera::inline onnx_json {
namespace {

using Json = nlohmann::json;

constexpr int kMostDepth = 200;  // of messages, as for models in binary form

// How protobuf writes a field's contents.
enum WireType : uint32_t { kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5 };

class Encoder {
 public:
  explicit Encoder(const std::string& file) : file_(file) {}

  std::string message(const Json& json, const JsonMessage& message, const std::string& place, int depth) const {
    if (!json.is_object()) fail(place, "is no object", fmt::format("an object, a {}", message.name));
    if (depth > kMostDepth) fail(place, "lies too deep", fmt::format("at most {} messages in one another", kMostDepth));
    std::string bytes;
    for (const auto& [name, value] : json.items()) {
      const std::string inner = place.empty() ? name : place + "." + name;
      if (value.is_null()) continue;
      const JsonField* field = find(message, name);
      if (!field) fail(inner, "is unknown", fmt::format("a field of {}", message.name));
      if (!field->repeated) {
        add(*field, value, inner, depth, bytes);
        continue;
      }
      if (!value.is_array()) fail(inner, "is no list", "a list");
      const bool packed = wire_type(*field) != kLengthDelimited;
      std::string elements;
      for (size_t i = 0; i < value.size(); ++i) {
        const std::string element = fmt::format("{}[{}]", inner, i);
        if (packed) add_content(*field, value[i], element, depth, elements);
        else add(*field, value[i], element, depth, bytes);
      }
      if (packed && !elements.empty()) add_sized(field->number, elements, bytes);
    }
    return bytes;
  }

  [[noreturn]] void fail(const std::string& place, const std::string& problem, const std::string& legal) const {
    throw UserError({"TSR-1002",
                     fmt::format("'{}' is not an ONNX model in JSON: {} {}", file_,
                                 place.empty() ? std::string("the text") : place, problem),
                     "", legal, "write it again: onnx.save(model, 'model.onnxjson')"});
  }

 private:
  // By its name in the schema, or the same in lowerCamelCase.
  static const JsonField* find(const JsonMessage& message, const std::string& name) {
    std::string plain;
    for (const char c : name) {
      if (c >= 'A' && c <= 'Z') plain += '_';
      plain += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    }
    const auto it = std::find_if(message.fields.begin(), message.fields.end(),
                                 [&](const JsonField& field) { return field.name == name || field.name == plain; });
    return it == message.fields.end() ? nullptr : &*it;
  }

  static WireType wire_type(const JsonField& field) {
    switch (field.kind) {
      case FieldKind::kInt:
      case FieldKind::kEnum: return kVarint;
      case FieldKind::kFloat: return kFixed32;
      case FieldKind::kDouble: return kFixed64;
      case FieldKind::kText:
      case FieldKind::kBytes:
      case FieldKind::kMessage: return kLengthDelimited;
    }
    return kVarint;
  }

  static void add_varint(uint64_t value, std::string& bytes) {
    for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
    bytes += static_cast<char>(value);
  }
  template <typename Number>
  static void add_fixed(Number value, std::string& bytes) {
    for (size_t i = 0; i < sizeof value; ++i) bytes += static_cast<char>(value >> (8 * i));
  }
  static void add_sized(uint32_t number, const std::string& content, std::string& bytes) {
    add_varint(number << 3 | kLengthDelimited, bytes);
    add_varint(content.size(), bytes);
    bytes += content;
  }

  void add(const JsonField& field, const Json& value, const std::string& place, int depth, std::string& bytes) const {
    if (wire_type(field) == kLengthDelimited) {
      std::string content;
      add_content(field, value, place, depth, content);
      return add_sized(field.number, content, bytes);
    }
    add_varint(field.number << 3 | wire_type(field), bytes);
    add_content(field, value, place, depth, bytes);
  }

  // Without number and length.
  void add_content(const JsonField& field, const Json& value, const std::string& place, int depth,
                   std::string& bytes) const {
    switch (field.kind) {
      case FieldKind::kInt: return add_varint(integer(value, place), bytes);
      case FieldKind::kFloat:
        return add_fixed(std::bit_cast<uint32_t>(static_cast<float>(number(value, place))), bytes);
      case FieldKind::kDouble: return add_fixed(std::bit_cast<uint64_t>(number(value, place)), bytes);
      case FieldKind::kText:
        if (!value.is_string()) fail(place, "is no text", "text");
        bytes += value.get_ref<const std::string&>();
        return;
      case FieldKind::kBytes: return add_base64(value, place, bytes);
      case FieldKind::kEnum: return add_varint(word(field, value, place), bytes);
      case FieldKind::kMessage: bytes += message(value, *field.message, place, depth + 1); return;
    }
  }

  // Negative ones in two's complement, as protobuf has them.
  uint64_t integer(const Json& value, const std::string& place) const {
    if (value.is_number_unsigned()) return value.get<uint64_t>();
    if (value.is_number_integer()) return static_cast<uint64_t>(value.get<int64_t>());
    if (value.is_string()) {
      const std::string& text = value.get_ref<const std::string&>();
      const char *begin = text.data(), *end = text.data() + text.size();
      int64_t with_sign = 0;
      uint64_t without = 0;
      if (const auto [stop, error] = std::from_chars(begin, end, with_sign); error == std::errc() && stop == end)
        return static_cast<uint64_t>(with_sign);
      if (const auto [stop, error] = std::from_chars(begin, end, without); error == std::errc() && stop == end)
        return without;
    }
    fail(place, "is no integer", "an integer of 64 bits, as a number or as text");
  }

  double number(const Json& value, const std::string& place) const {
    if (value.is_number()) return value.get<double>();
    if (value == "NaN") return std::numeric_limits<double>::quiet_NaN();
    if (value == "Infinity") return std::numeric_limits<double>::infinity();
    if (value == "-Infinity") return -std::numeric_limits<double>::infinity();
    fail(place, "is no number", "a number, \"NaN\", \"Infinity\" or \"-Infinity\"");
  }

  uint64_t word(const JsonField& field, const Json& value, const std::string& place) const {
    if (!value.is_string()) return integer(value, place);
    for (const JsonWord& word : field.words)
      if (word.name == value.get_ref<const std::string&>()) return static_cast<uint64_t>(word.number);
    fail(place, fmt::format("is {}", value.dump()), "a word of the schema's");
  }

  void add_base64(const Json& value, const std::string& place, std::string& bytes) const {
    if (!value.is_string()) fail(place, "is no text", "bytes in base64");
    std::string_view text = value.get_ref<const std::string&>();
    while (text.ends_with('=')) text.remove_suffix(1);
    bytes.reserve(bytes.size() + text.size() / 4 * 3 + 2);
    uint32_t bits = 0;
    int count = 0;
    for (const char c : text) {
      const int digit = digit_of(c);
      if (digit < 0) fail(place, "is no base64", "bytes in base64");
      bits = bits << 6 | static_cast<uint32_t>(digit);
      count += 6;
      if (count < 8) continue;
      count -= 8;
      bytes += static_cast<char>(bits >> count);
    }
    if (count == 6) fail(place, "is no base64: it is cut off", "bytes in base64");
  }
  static int digit_of(char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    if (c == '+' || c == '-') return 62;  // '-' and '_' in the alphabet for URLs
    return c == '/' || c == '_' ? 63 : -1;
  }

  const std::string& file_;
};

}  // namespace

bool looks_like_onnx_json(std::string_view beginning) {
  const size_t first = beginning.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && beginning[first] == '{';
}

std::string onnx_of_json(std::string_view text, const std::string& file) {
  const Encoder encoder(file);
  const Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) encoder.fail("", "is no JSON", "a ModelProto in protobuf's JSON form");
  return encoder.message(json, kModelMessage, "", 0);
}

}  // namespace tessera::inline onnx_json
