// Language models in GGUF files as graphs (transformer.h says which).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "graph/evaluator.h"
#include "graph/graph.h"
#include "graph/op_def.h"
#include "import/common/options.h"
#include "import/gguf/gguf_file.h"
#include "import/gguf/hyperparameters.h"
#include "import/gguf/weights.h"

namespace tessera::inline gguf {

// The dimensions that a language model leaves open.
inline constexpr const char* kLength = "length";  // of the new tokens
inline constexpr const char* kPast = "past";      // tokens before them
inline constexpr const char* kKept = "kept";      // rows of logits

// Sequences of a run: one, and as many more as there are dimensions length.1, length.2, ... that somebody names.
struct SequenceNames {
  std::string length, past;
};
std::vector<SequenceNames> sequence_names(const std::function<bool(const std::string& name)>& is_named);

struct GgufModel {
  // `owner` keeps the bytes alive. UserError TSR-1070 to TSR-1073.
  GgufModel(std::string_view bytes, const std::string& place, std::shared_ptr<const void> owner);
  GgufModel(const GgufModel&) = delete;
  GgufModel& operator=(const GgufModel&) = delete;

  GgufFile file;
  Hyperparameters sizes;
  Weights weights;

  // What a dimension may be if nobody says: its name and range.
  DimRange declared(std::string_view name) const;
};

// With symbols for the three dimensions, in the ranges of `options` or those declared. Weights that are quantised
// become floats once for all calls. UserError TSR-1022 for more tokens than the model has positions, TSR-1074 for
// tensors that do not fit.
Graph gguf_graph(GgufModel& model, const ImportOptions& options, const OpTable& ops, Evaluator& evaluator);

// The file's metadata, tokenizer included, as one JSON object; what is no UTF-8 in a text is replaced. UserError
// TSR-1070.
std::string metadata_json(const GgufFile& file);

}  // namespace tessera::inline gguf
