// What the targets of readers of whole models share.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "fuzz_target.h"
#include "graph/verify.h"
#include "import/common/options.h"

namespace tessera::fuzz {

// What a reader made is a graph that verifies, or is refused as users are told.
inline void require_graph(const ReadOutcome& outcome) {
  if (const auto* refused = std::get_if<NodesRefused>(&outcome)) throw UserError(refused->diagnostic);
  const auto* model = std::get_if<ImportedModel>(&outcome);
  require(model != nullptr && model->flow == nullptr, "a model without a graph");
  const std::vector<std::string> violations = verify(model->graph);
  require(violations.empty(), violations.empty() ? "" : "graph: " + violations[0]);
}

}  // namespace tessera::fuzz
