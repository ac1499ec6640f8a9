// The StableHLO reader: text -> graph, verified.
#include "fuzz_target.h"
#include "graph/verify.h"
#include "import/stablehlo/stablehlo_import.h"
#include "interp/graph_interp.h"
#include "ops/op_table.h"
#include "support/error.h"

using namespace tessera;

namespace {

void import_and_verify(std::string_view text) {
  const HloModule module = read_module_text(text, "f.mlir");
  border_of(module);
  GraphInterpreter evaluator;
  ReadOutcome outcome = read_stablehlo(module, {}, standard_ops(), evaluator);
  if (const auto* refused = std::get_if<NodesRefused>(&outcome)) throw UserError(refused->diagnostic);
  const auto* model = std::get_if<ImportedModel>(&outcome);
  fuzz::require(model != nullptr && model->flow == nullptr, "a StableHLO module without a graph");
  const std::vector<std::string> violations = verify(model->graph);
  fuzz::require(violations.empty(), violations.empty() ? "" : "graph: " + violations[0]);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::accepts([&] { import_and_verify(fuzz::text_of(data, size)); });
  return 0;
}
