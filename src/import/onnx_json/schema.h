// The messages of onnx-ml.proto that a model is made of: for each field its name, number and kind.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace tessera::inline onnx_json {

enum class FieldKind : uint8_t {
  kInt,      // int32, int64, uint64
  kFloat,    // 32 bits
  kDouble,   // 64 bits
  kText,     // UTF-8
  kBytes,    // base64
  kEnum,     // a word of `words`, or its number
  kMessage,  // of type `type`
};

struct JsonMessage;
struct JsonWord {
  std::string_view name;
  int64_t number;
};

struct JsonField {
  std::string_view name;
  uint32_t number;
  FieldKind kind;
  bool repeated = false;
  const JsonMessage* message = nullptr;  // of kMessage
  std::span<const JsonWord> words = {};  // of kEnum
};

struct JsonMessage {
  std::string_view name;
  std::span<const JsonField> fields;
};

extern const JsonMessage kModelMessage;

}  // namespace tessera::inline onnx_json
