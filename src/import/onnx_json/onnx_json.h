// ONNX models as JSON: the mapping that protobuf defines for every message, which the Python package onnx writes into
// files *.onnxjson. Names of fields may be those of the schema or in lowerCamelCase, integers may be text, bytes are
// base64.
#pragma once

#include <string>
#include <string_view>

namespace tessera::inline onnx_json {

// Whether a file that begins so may be one: the first character that is no white space is a brace.
bool looks_like_onnx_json(std::string_view beginning);

// The model's bytes in protobuf's binary form. UserError TSR-1002, which names the place ("graph.node[3].attribute"),
// for text that is no JSON or does not fit the schema. `file` is for messages.
std::string onnx_of_json(std::string_view text, const std::string& file);

}  // namespace tessera::inline onnx_json
