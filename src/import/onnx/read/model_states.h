// States of a graph in an ONNX file: an input that has an initializer of its name, which is the value before the first
// call, an output of the same type, and an entry of the metadata that says that they belong together. For whoever does
// not know the entry the model is as it stands: the state may be given, and its next value is an output. In the same
// way an entry names a value that is a size which data decide (graph/data_sizes.h).
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "onnx-ml.pb.h"

namespace tessera::inline onnx_import {

inline constexpr std::string_view kStateKey = "tessera.state.";  // and the input's name; the value is the output's

inline constexpr std::string_view kSizeKey = "tessera.size.";  // and the value's name

struct ModelState {
  std::string input, output;
};

// In the order of the entries. UserError TSR-1016 for an entry whose input, initializer or output is missing, or is
// that of another state.
std::vector<ModelState> read_states(const onnx::ModelProto& model);

// The names of values that are sizes, as the metadata says; they may be anything.
std::set<std::string> read_size_values(const onnx::ModelProto& model);

}  // namespace tessera::inline onnx_import
