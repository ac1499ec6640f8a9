// The ONNX reader: bytes -> graph or flow, verified; small graphs then go through all graph passes, verified after
// each.
#include <algorithm>
#include <cstring>
#include <random>

#include "fuzz_target.h"
#include "graph/flow.h"
#include "graph/verify.h"
#include "graph_passes/pass.h"
#include "import/onnx/onnx_import.h"
#include "interp/graph_interp.h"
#include "ops/op_table.h"
#include "target/target.h"
#include "wire_mutator.h"

using namespace tessera;

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace {

// Elements of all values together: what the passes fold stays a matter of milliseconds.
bool is_small(const Graph& graph) {
  int64_t elements = 0;
  for (const Value& value : graph.values()) {
    if (!value.type.is_static()) return false;
    int64_t own = 1;
    for (const Expr& extent : value.type.shape) {
      if (__builtin_mul_overflow(own, std::max<int64_t>(*as_int(extent), 1), &own)) return false;
    }
    if (__builtin_add_overflow(elements, own, &elements) || elements > 20'000) return false;
  }
  return graph.nodes().size() < 200;
}

void run_passes(Graph graph) {
  GraphInterpreter evaluator;
  Target target;
  target.triple = "x86_64-unknown-linux-gnu";
  target.features = {"avx", "avx2", "fma"};
  const PassContext context{standard_ops(), evaluator, target, 3};
  for (const GraphPass& pass : graph_pipeline()) {
    graph = pass.run(graph, context);
    verify_or_throw(graph, pass.name);
  }
}

void import_and_verify(std::string_view bytes) {
  GraphInterpreter evaluator;
  const ImportedModel model = imported(read_onnx_model_bytes(bytes, {}, standard_ops(), evaluator));
  if (model.flow) {
    const std::vector<std::string> violations = verify(*model.flow);
    fuzz::require(violations.empty(), violations.empty() ? "" : "flow: " + violations[0]);
    print(*model.flow);
    for (const Graph& piece : model.flow->pieces) {
      if (is_small(piece)) run_passes(piece);
    }
    return;
  }
  const std::vector<std::string> violations = verify(model.graph);
  fuzz::require(violations.empty(), violations.empty() ? "" : "graph: " + violations[0]);
  if (is_small(model.graph)) run_passes(model.graph);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::accepts([&] { import_and_verify(fuzz::text_of(data, size)); });
  return 0;
}

// Bytes changed at random are seldom a protobuf message; most changes are made to the message's fields. libFuzzer's own
// changes keep their part, as the only ones that use the dictionary.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned int seed) {
  std::mt19937_64 random(seed);
  if (random() % 8 == 0) return LLVMFuzzerMutate(data, size, max_size);
  std::string bytes(reinterpret_cast<const char*>(data), size);
  for (uint64_t changes = 1 + random() % 3; changes > 0; --changes) bytes = mutate_message(bytes, random);
  if (bytes.size() > max_size || bytes.empty()) return LLVMFuzzerMutate(data, size, max_size);
  std::memcpy(data, bytes.data(), bytes.size());
  return bytes.size();
}
