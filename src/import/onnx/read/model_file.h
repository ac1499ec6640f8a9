// An ONNX model in memory, checked as far as it can be without looking at operators.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "import/onnx/read/external_data.h"
#include "onnx-ml.pb.h"

namespace tessera::inline onnx_import {

// Domain -> version; the standard domain is "" (the spelling "ai.onnx" is changed to it).
using OpsetVersions = std::map<std::string, int64_t>;

std::string standard_domain(const std::string& domain);  // "" for "ai.onnx"

// Everything that tensors and node lists borrow from; they hold a shared_ptr to it.
struct LoadedModel {
  onnx::ModelProto proto;
  std::deque<onnx::NodeProto>
      inlined;  // nodes of functions, renamed for one call each, and those that stand for others
  ExternalData external{""};
  OpsetVersions opsets;
  // Per function, in the order of proto.functions().
  std::vector<OpsetVersions> function_opsets;
};

// Opsets and IR versions that this reader knows.
constexpr int64_t kOldestOpset = 1;
constexpr int64_t kNewestOpset = 28;

// `what` names the source in errors: the path or "model". TSR-1002: not a model; TSR-1003: over 2 GB; TSR-1004: no
// graph; TSR-1005: IR version; TSR-1006: opset.
// `consumed`, when there, is told how many of the bytes have been read: they are not looked at again unless the model
// turns out to be none.
std::shared_ptr<LoadedModel> load_model(std::string_view bytes, const std::string& what, const std::string& folder,
                                        const std::function<void(size_t)>& consumed = {});

}  // namespace tessera::inline onnx_import
