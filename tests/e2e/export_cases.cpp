// Writes graphs with control flow, states and symbols as ONNX models, with inputs and what the interpreter makes of
// them, in the form of the official cases: FOLDER/NAME/{model.onnx,input_0.pb,output_0.pb}. For exported_graphs.py.
#include <fmt/format.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "graph/bind_symbols.h"
#include "graph/parser.h"
#include "import/onnx/read/tensor_reader.h"
#include "import/onnx/write/onnx_export.h"
#include "interp/graph_interp.h"
#include "onnx-ml.pb.h"
#include "ops/op_table.h"
#include "support/symbolic_graphs.h"
#include "unit/random_control_flow.h"

namespace tessera {
namespace {

void write_tensor(const std::filesystem::path& path, const Tensor& tensor) {
  onnx::TensorProto proto;
  tensor_to_proto(tensor, proto);
  std::ofstream file(path, std::ios::binary);
  proto.SerializeToOstream(&file);
}

// `bound` is `graph` at one choice of sizes.
void write_case(const std::filesystem::path& folder, const Graph& graph, const Graph& bound,
                const std::vector<Tensor>& inputs) {
  std::filesystem::create_directories(folder);
  export_onnx_file(graph, (folder / "model.onnx").string());
  for (size_t i = 0; i < inputs.size(); ++i) write_tensor(folder / fmt::format("input_{}.pb", i), inputs[i]);
  GraphInterpreter interpreter;
  const std::vector<Tensor> outputs = interpreter.evaluate(bound, inputs);
  for (size_t i = 0; i < outputs.size(); ++i) write_tensor(folder / fmt::format("output_{}.pb", i), outputs[i]);
}

// The sums are a state; the loop ends early, goes backwards, and stands in a branch.
constexpr const char* kMixed = R"(
graph @main[n in 1..9](%x: f32[n,2], %c: bool[], %s: f32[2] state("sum")) -> (%y: f32[n,2], %t: f32[2] state("sum")) {
  %t, %y = if(%c, %x, %s) ({
    graph @then(%a: f32[n,2], %b: f32[2]) -> (%t: f32[2], %y: f32[n,2]) {
      %go = constant {value = dense<bool[] true>} : bool[]
      %t, %y = loop(%go, %b, %a) {has_condition = true, num_carried = 1, num_scanned = 1, scan_reversed = [1], stack_reversed = [1]} ({
        graph @body(%i: i64[], %u: f32[2], %e: f32[2]) -> (%more: bool[], %v: f32[2], %w: f32[2]) {
          %v = add(%u, %e) : f32[2]
          %w = exp(%e) : f32[2]
          %most = constant {value = dense<i64[] 3>} : i64[]
          %more = lt(%i, %most) : bool[]
        }
      }) : f32[2], f32[n,2]
    }
    graph @else(%a: f32[n,2], %b: f32[2]) -> (%b: f32[2], %y: f32[n,2]) {
      %y = neg(%a) : f32[n,2]
    }
  }) : f32[2], f32[n,2]
}
)";

int run(const std::filesystem::path& folder, uint64_t first, uint64_t count) {
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const Graph graph = random_control_flow(seed);
    write_case(folder / fmt::format("control_flow_{}", seed), graph, graph, control_flow_inputs(graph, seed));
    const Graph symbolic = symbolic_graphs::random_symbolic_graph(seed);
    const Graph bound = bind_symbols(symbolic, symbolic_graphs::points_of(symbolic, 3, seed).back());
    write_case(folder / fmt::format("symbols_{}", seed), symbolic, bound, symbolic_graphs::inputs_at(bound, seed));
  }
  const Graph mixed = parse_graph(kMixed, standard_ops());
  for (const int64_t n : {1, 3, 4, 7})
    for (const int64_t taken : {0, 1}) {
      const Graph bound = bind_symbols(mixed, std::vector<int64_t>{n});
      std::vector<Tensor> inputs = symbolic_graphs::inputs_at(bound, 1);
      inputs[1].set_int(0, taken);
      write_case(folder / fmt::format("mixed_{}_{}", n, taken), mixed, bound, inputs);
    }
  return 0;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  if (argc != 4) {
    fmt::print(stderr, "usage: export_cases FOLDER FIRST_SEED COUNT\n");
    return 64;
  }
  return tessera::run(argv[1], std::stoull(argv[2]), std::stoull(argv[3]));
}
