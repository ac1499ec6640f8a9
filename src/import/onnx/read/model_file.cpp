#include "import/onnx/read/model_file.h"

#include <fmt/format.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>

#include "import/common/refused_model.h"
#include "support/error.h"

namespace tessera::inline onnx_import {
namespace {

// Deep enough for subgraphs of subgraphs; protobuf's stack use per level is small.
constexpr int kRecursionLimit = 200;

// What a file that is not a model probably is.
std::string guess(std::string_view bytes) {
  if (bytes.empty()) return "the file is empty";
  if (bytes.starts_with("version https://git-lfs"))
    return "it is a Git LFS pointer: fetch the real file with 'git lfs pull'";
  if (bytes.starts_with("<")) return "it looks like a web page: download the file itself";
  if (bytes.starts_with("PK"))
    return "it is a zip archive (perhaps a PyTorch checkpoint): export the model to ONNX first";
  if (bytes.starts_with("\x7f"
                        "ELF"))
    return "it is an ELF file: a compiled module is run without importing it";
  if (bytes.size() > 8 && bytes.substr(4, 4) == "TFL3")
    return "it is a TensorFlow Lite model: convert it to ONNX first";
  const std::string_view start = bytes.substr(0, 64);
  if (std::all_of(start.begin(), start.end(),
                  [](char c) { return (c >= 32 && c < 127) || c == '\n' || c == '\r' || c == '\t'; }))
    return "it looks like a text file";
  return "the file may be truncated: compare its size with the original";
}

OpsetVersions read_opsets(const google::protobuf::RepeatedPtrField<onnx::OperatorSetIdProto>& imports,
                          const std::string& where) {
  OpsetVersions versions;
  for (const auto& import : imports) {
    const std::string domain = standard_domain(import.domain());
    const auto [it, inserted] = versions.emplace(domain, import.version());
    if (!inserted && it->second != import.version())
      throw RefusedModel(RefusedModel::Reason::kUnsupported,
                         {"TSR-1006",
                          fmt::format("{} imports the opset of domain '{}' twice, as {} and {}", where,
                                      domain.empty() ? "ai.onnx" : domain, it->second, import.version()),
                          "", "one version of each domain", ""});
  }
  const auto standard = versions.find("");
  if (standard != versions.end() && (standard->second < kOldestOpset || standard->second > kNewestOpset))
    throw RefusedModel(RefusedModel::Reason::kUnsupported,
                       {"TSR-1006", fmt::format("{} uses opset {} of ai.onnx", where, standard->second), "",
                        fmt::format("opset {} to {}", kOldestOpset, kNewestOpset),
                        "convert the model with onnx.version_converter, or export it again with another opset"});
  return versions;
}

// The bytes in blocks; asking for the next says that the one before has been read.
class BlockStream : public google::protobuf::io::ArrayInputStream {
 public:
  BlockStream(std::string_view bytes, const std::function<void(size_t)>& consumed)
      : ArrayInputStream(bytes.data(), static_cast<int>(bytes.size()), kBlock), consumed_(consumed) {}

  bool Next(const void** data, int* size) override {
    if (consumed_) consumed_(static_cast<size_t>(ByteCount()));
    return ArrayInputStream::Next(data, size);
  }

 private:
  static constexpr int kBlock = 4 << 20;
  const std::function<void(size_t)>& consumed_;
};

}  // namespace

std::string standard_domain(const std::string& domain) { return domain == "ai.onnx" ? "" : domain; }

std::shared_ptr<LoadedModel> load_model(std::string_view bytes, const std::string& what, const std::string& folder,
                                        const std::function<void(size_t)>& consumed) {
  if (bytes.size() > INT32_MAX)
    throw UserError({"TSR-1003", fmt::format("{} has {} bytes", what, bytes.size()), "",
                     "less than 2 GB, the limit of protobuf", "save the model with external data"});
  auto model = std::make_shared<LoadedModel>();
  BlockStream blocks(bytes, consumed);
  google::protobuf::io::CodedInputStream stream(&blocks);
  stream.SetRecursionLimit(kRecursionLimit);
  if (bytes.empty() || !model->proto.ParseFromCodedStream(&stream) || !stream.ConsumedEntireMessage())
    throw UserError(
        {"TSR-1002", fmt::format("{} is not an ONNX model", what), "", "a serialised ONNX ModelProto", guess(bytes)});
  const onnx::ModelProto& proto = model->proto;
  if (!proto.has_graph())
    throw UserError({"TSR-1004", fmt::format("{} has no graph", what), "", "a serialised ONNX ModelProto with a graph",
                     guess(bytes)});
  if (proto.ir_version() > onnx::IR_VERSION)
    throw UserError({"TSR-1005", fmt::format("{} has the IR version {}", what, proto.ir_version()), "",
                     fmt::format("IR version 1 to {}", static_cast<int64_t>(onnx::IR_VERSION)),
                     "save the model with an older IR version (model.ir_version in Python)"});
  model->external = ExternalData(folder);
  model->opsets = read_opsets(proto.opset_import(), what);
  for (const auto& function : proto.functions())
    model->function_opsets.push_back(read_opsets(function.opset_import(), fmt::format("function {}", function.name())));
  if (model->opsets.empty() && proto.has_ir_version() && proto.ir_version() < 3) model->opsets[""] = 1;
  if (model->opsets.empty())
    throw RefusedModel(RefusedModel::Reason::kUnsupported,
                       {"TSR-1006", fmt::format("{} imports no opset", what), "",
                        fmt::format("opset {} to {} of ai.onnx", kOldestOpset, kNewestOpset),
                        "export the model again: only models before IR version 3 need no opset"});
  return model;
}

}  // namespace tessera::inline onnx_import
