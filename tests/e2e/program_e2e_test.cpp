// Real models down to programs with planned memory, run by the program interpreter, against the graph interpreter: what
// graph passes, lowering, schedules, loop passes and the memory plan do together, without any machine code. Every level
// is verified on the way, and its text reads back.
#include <fmt/format.h>

#include <chrono>
#include <iostream>

#include "graph_passes/pass.h"
#include "import/onnx/onnx_import.h"
#include "interp/graph_interp.h"
#include "interp/program_interp.h"
#include "loop/parser.h"
#include "loop/printer.h"
#include "loop/verify.h"
#include "loop_passes/pass.h"
#include "lower/lower.h"
#include "npy.h"
#include "ops/op_table.h"
#include "program/memory_plan.h"
#include "program/parser.h"
#include "program/pass.h"
#include "program/printer.h"
#include "program/verify.h"
#include "schedule/choose.h"
#include "support/test_data.h"

namespace tessera {
namespace {

Target machine(int bits) {
  Target target;
  target.triple = "x86_64-unknown-linux-gnu";
  if (bits >= 256) target.features = {"avx", "avx2", "fma"};
  if (bits >= 512) target.features.insert({"avx512f", "avx512bw", "avx512dq", "avx512vl"});
  target.num_threads = 2;
  return target;
}

Program compile(Graph graph, const Target& target, int opt_level) {
  GraphInterpreter evaluator;
  const PassContext ctx{standard_ops(), evaluator, target, opt_level};
  for (const GraphPass& pass : graph_pipeline())
    if (opt_level >= pass.min_level) graph = pass.run(graph, ctx);
  Program program = lower_graph(graph);
  verify_or_throw(program, "lower");
  const auto run_program_passes = [&](ProgramPhase phase) {
    for (const ProgramPass& pass : program_pipeline()) {
      if (pass.phase != phase || opt_level < pass.min_level) continue;
      pass.run(program, target);
      verify_or_throw(program, pass.name);
    }
  };
  run_program_passes(ProgramPhase::kLowered);
  schedule_program(program, target, opt_level);
  verify_or_throw(program, "schedule");
  for (const LoopPass& pass : loop_pipeline()) {
    if (opt_level < pass.min_level) continue;
    for (Kernel& kernel : program.kernels) {
      kernel.program = pass.run(kernel.program, {target, opt_level});
      verify_or_throw(kernel.program, pass.name);
    }
  }
  run_program_passes(ProgramPhase::kScheduled);
  plan_memory(program);
  verify_or_throw(program, "plan_memory");
  return program;
}

struct Setting {
  int bits, opt_level;
};
void PrintTo(const Setting& setting, std::ostream* out) {
  *out << fmt::format("{} bits, O{}", setting.bits, setting.opt_level);
}

class ProgramE2E : public testing::TestWithParam<Setting> {
 protected:
  void run_case(const std::string& folder, const std::string& name) {
    const auto path = find_test_data(folder);
    if (!path) GTEST_SKIP() << missing_test_data(folder);
    GraphInterpreter interpreter;
    const Graph graph = import_onnx_file((*path / "model.onnx").string(), {}, standard_ops(), interpreter);
    const Program program = compile(graph, machine(GetParam().bits), GetParam().opt_level);
    const std::string text = print(program, {.elide_constants = true});
    EXPECT_EQ(print(parse_program(text), {.elide_constants = true}), text);
    const int64_t bound = arena_lower_bound(program);
    std::cout << fmt::format("[ info     ] {}: {} calls, arena {} KiB, lower bound {} KiB, weights {} KiB\n", folder,
                             program.calls.size(), program.arena_bytes >> 10, bound >> 10, program.weight_bytes >> 10);
    EXPECT_LE(program.arena_bytes, bound + bound / 10);

    std::vector<Tensor> inputs;
    for (size_t i = 0; i < program.inputs.size(); ++i)
      inputs.push_back(read_npy((*path / fmt::format("input_{}_{}.npy", name, i)).string()));
    const auto begin = std::chrono::steady_clock::now();
    const std::vector<Tensor> outputs = interpret(program, inputs, ProgramRun{{}, true});
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    int64_t flops = 0;
    for (const KernelCall& call : program.calls)
      flops += std::max<int64_t>(0, program.kernels[static_cast<size_t>(call.kernel)].flops);
    std::cout << fmt::format("[ info     ] interpreted in {:.2f} s, {:.0f} MFLOP/s\n", seconds,
                             static_cast<double>(flops) / seconds / 1e6);
    const std::vector<Tensor> expected = interpreter.evaluate(graph, inputs);
    ASSERT_EQ(outputs.size(), expected.size());
    for (size_t i = 0; i < outputs.size(); ++i) EXPECT_TRUE(tensors_agree(outputs[i], expected[i])) << "output " << i;
  }
};

TEST_P(ProgramE2E, MnistOfOnnxRuntimeExamples) { run_case("real/mnist-ort-examples", "digit3"); }

TEST_P(ProgramE2E, MnistOptimised) { run_case("real/mnist-opt-wonnx", "digit7"); }

TEST_P(ProgramE2E, UltraFace) { run_case("real/ultraface-rfb-320", "photo2"); }

INSTANTIATE_TEST_SUITE_P(Settings, ProgramE2E,
                         testing::Values(Setting{512, 3}, Setting{256, 3}, Setting{128, 1}, Setting{256, 0}),
                         [](const auto& info) {
                           return fmt::format("{}bitsO{}", info.param.bits, info.param.opt_level);
                         });

}  // namespace
}  // namespace tessera
