#include "import/tflite/tflite_import.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "import/tflite/graph_importer.h"
#include "support/error.h"
#include "support/mapped_file.h"

namespace tessera::inline tflite_import {
namespace {

struct AlignedCopy {
  std::string_view bytes;
  std::shared_ptr<const void> owner;
};

// In whole units of max_align_t, which is what tables and weights want of their places.
AlignedCopy aligned_copy(std::string_view bytes) {
  const auto copy = std::make_shared<std::vector<std::max_align_t>>(bytes.size() / sizeof(std::max_align_t) + 1);
  char* to = reinterpret_cast<char*>(copy->data());
  std::copy(bytes.begin(), bytes.end(), to);
  return {{to, bytes.size()}, copy};
}

ReadOutcome read(std::string_view bytes, std::shared_ptr<const void> owner, const std::string& place,
                 const ImportOptions& options, const OpTable& ops, Evaluator& evaluator) {
  const TfliteModel model(bytes, std::move(owner), place);
  if (!options.symbols.empty()) return NoGraph{{}, "the reader of TFLite models knows sizes as numbers only"};
  return build_graph(model, options, ops, evaluator);
}

}  // namespace

bool looks_like_tflite(std::string_view beginning) { return beginning.size() >= 8 && beginning.substr(4, 4) == "TFL3"; }

ReadOutcome read_tflite_model(const std::string& path, const ImportOptions& options, const OpTable& ops,
                              Evaluator& evaluator) {
  const auto file = MappedFile::open(path, "model", "TSR-1001");
  return read(file->text(), file, fmt::format("'{}'", path), options, ops, evaluator);
}

ReadOutcome read_tflite_model_bytes(std::string_view bytes, const ImportOptions& options, const OpTable& ops,
                                    Evaluator& evaluator) {
  const AlignedCopy copy = aligned_copy(bytes);
  return read(copy.bytes, copy.owner, "the model", options, ops, evaluator);
}

TfliteBorder read_tflite_border(std::string_view bytes) {
  const AlignedCopy copy = aligned_copy(bytes);
  const TfliteModel model(copy.bytes, copy.owner, "the model");
  const tflite::SubGraph& graph = model.subgraph(0);
  TfliteBorder border;
  const auto add = [&](const flatbuffers::Vector<int32_t>* list, std::vector<TfliteTensor>& to) {
    if (!list) return;
    for (const int32_t index : *list) to.push_back(model.tensor(graph, index));
  };
  add(graph.inputs(), border.inputs);
  add(graph.outputs(), border.outputs);
  return border;
}

}  // namespace tessera::inline tflite_import
