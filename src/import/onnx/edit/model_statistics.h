// What an ONNX file holds, without importing it: for looking at models, those that cannot be imported included.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::inline onnx_import {

struct OnnxTensorEntry {
  std::string name;
  std::string type;  // "f32[batch,3,?,?]"; "a sequence" and the like for other values
};

struct OnnxNodeEntry {
  std::string label;    // its name, or "<OpType>#<index>"; nodes of a function are "<call>/<node>": as in Node::loc
  std::string op_type;  // "Conv"; operators of other domains with theirs: "com.microsoft.Gelu"
  std::vector<std::string> inputs, outputs;  // names of values; omitted ones are ""
};

struct OnnxStatistics {
  int64_t ir_version = 0;
  std::string producer;  // "pytorch 2.1"; may be empty
  std::string graph_name;
  std::map<std::string, int64_t> opsets;  // by domain, "ai.onnx" for the standard one
  std::vector<OnnxTensorEntry> inputs, outputs;
  std::vector<OnnxNodeEntry> nodes;          // calls of model-local functions opened
  std::map<std::string, int64_t> operators;  // how many nodes each operator has
  std::vector<std::string> unsupported;      // operators that cannot be imported, sorted
  int64_t functions = 0;                     // model-local ones
  int64_t inner_nodes = 0;                   // in the bodies of If, Loop and Scan, at any depth
  int64_t weights = 0;                       // initializers and the values of Constant nodes, those of bodies included
  int64_t weight_elements = 0, weight_bytes = 0;
  int64_t external_weights = 0;                    // those in other files
  std::map<std::string, int64_t> weight_bytes_of;  // by element type
};

// Of a model in binary form, which stands in `path` in some form. UserError TSR-10xx when it is no ONNX model, or has
// no sound list of nodes.
OnnxStatistics read_onnx_statistics(std::string_view bytes, const std::string& path);

}  // namespace tessera::inline onnx_import
