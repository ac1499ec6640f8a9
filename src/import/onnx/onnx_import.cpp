#include "import/onnx/onnx_import.h"

#include <fmt/format.h>

#include <filesystem>

#include "import/onnx/graph_importer.h"
#include "support/mapped_file.h"

namespace tessera {

Graph import_onnx_file(const std::string& path, const OnnxImportOptions& options, const OpTable& ops,
                       Evaluator& evaluator) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::shared_ptr<LoadedModel> model;
  {
    // The mapping is given back as protobuf makes its own copy of the weights: they are in memory once.
    const auto file = MappedFile::open(path, "model", "TSR-1001");
    model = load_model(file->text(), fmt::format("'{}'", path), folder.empty() ? "." : folder.string(),
                       [&](size_t consumed) { file->forget(consumed); });
  }
  return build_graph(std::move(model), options, ops, evaluator);
}

Graph import_onnx_bytes(std::string_view bytes, const OnnxImportOptions& options, const OpTable& ops,
                        Evaluator& evaluator, const std::string& folder) {
  return build_graph(load_model(bytes, "the model", folder), options, ops, evaluator);
}

}  // namespace tessera
