// PyTorch's programs, as archives or as the JSON in them: bytes -> weights that lie in them, and a graph that verifies.
#include "import/aten/aten_import.h"
#include "interp/graph_interp.h"
#include "ops/op_table.h"
#include "reader_target.h"

using namespace tessera;

namespace {

void read(const AtenProgram& program) {
  border_of(program);
  for (const auto& [name, weight] : program.weights) weight_tensor(program, name);
  // Open sizes at the least that the program declares.
  ImportOptions options;
  for (const auto& [symbol, range] : program.ranges) options.dims[symbol] = {range.lo, range.lo};
  GraphInterpreter evaluator;
  fuzz::require_graph(read_aten_program(program, options, standard_ops(), evaluator));
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
