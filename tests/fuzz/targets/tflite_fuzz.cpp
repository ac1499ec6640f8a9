// The TFLite reader: bytes -> graph, verified.
#include "import/tflite/tflite_import.h"
#include "interp/graph_interp.h"
#include "ops/op_table.h"
#include "reader_target.h"

using namespace tessera;

namespace {

void import_and_verify(std::string_view bytes) {
  read_tflite_border(bytes);
  GraphInterpreter evaluator;
  fuzz::require_graph(read_tflite_model_bytes(bytes, {}, standard_ops(), evaluator));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::accepts([&] { import_and_verify(fuzz::text_of(data, size)); });
  return 0;
}
