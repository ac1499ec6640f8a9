// The StableHLO reader: text -> graph, verified.
#include "import/stablehlo/stablehlo_import.h"
#include "interp/graph_interp.h"
#include "ops/op_table.h"
#include "reader_target.h"

using namespace tessera;

namespace {

void import_and_verify(std::string_view text) {
  const HloModule module = read_module_text(text, "f.mlir");
  border_of(module);
  GraphInterpreter evaluator;
  fuzz::require_graph(read_stablehlo(module, {}, standard_ops(), evaluator));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::accepts([&] { import_and_verify(fuzz::text_of(data, size)); });
  return 0;
}
