// PyTorch's programs, as archives or as the JSON in them: bytes -> weights that lie in them, and a graph that verifies.
#include "fuzz_target.h"
#include "graph/verify.h"
#include "import/aten/aten_import.h"
#include "interp/graph_interp.h"
#include "ops/op_table.h"
#include "support/error.h"

using namespace tessera;

namespace {

void read(const AtenProgram& program) {
  border_of(program);
  for (const auto& [name, weight] : program.weights) weight_tensor(program, name);
  // Open sizes at the least that the program declares.
  ImportOptions options;
  for (const auto& [symbol, range] : program.ranges) options.dims[symbol] = {range.lo, range.lo};
  GraphInterpreter evaluator;
  ReadOutcome outcome = read_aten_program(program, options, standard_ops(), evaluator);
  if (const auto* refused = std::get_if<NodesRefused>(&outcome)) throw UserError(refused->diagnostic);
  const auto* model = std::get_if<ImportedModel>(&outcome);
  fuzz::require(model != nullptr && model->flow == nullptr, "a program without a graph");
  const std::vector<std::string> violations = verify(model->graph);
  fuzz::require(violations.empty(), violations.empty() ? "" : "graph: " + violations[0]);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes = fuzz::text_of(data, size);
  // The checksums of an archive keep what is behind them from being reached.
  fuzz::accepts([&] {
    read(looks_like_pt2(bytes) ? open_pt2(bytes, nullptr, "file") : program_of_json(bytes, "model.json", "file"));
  });
  return 0;
}
