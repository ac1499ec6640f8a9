// Modules of graphs with symbols: passes, lowering, schedules for open sizes, machine code and the runtime, at several
// sizes each, against the interpreter on the graph that is bound at these sizes.
#include <gtest/gtest.h>

#include <chrono>

#include "../support/symbolic_graphs.h"
#include "codegen/llvm/llvm_codegen.h"
#include "codegen/llvm/target.h"
#include "graph/bind_symbols.h"
#include "graph/printer.h"
#include "graph_passes/pass.h"
#include "interp/graph_interp.h"
#include "loop_passes/pass.h"
#include "lower/generalize.h"
#include "lower/lower.h"
#include "package/link.h"
#include "package/module_writer.h"
#include "program/memory_plan.h"
#include "program/pass.h"
#include "schedule/choose.h"
#include "support/error.h"
#include "tessera/tessera.h"

namespace tessera {
namespace {

using namespace symbolic_graphs;

Program program_of(Graph graph, const Target& target, const std::set<std::string>& without) {
  const KnownSymbols known(graph.symbols);
  GraphInterpreter evaluator;
  const PassContext context{standard_ops(), evaluator, target};
  for (const GraphPass& pass : graph_pipeline())
    if (!without.contains(std::string(pass.name))) graph = pass.run(graph, context);
  return lower_graph(graph);
}

std::vector<std::byte> module_of(Program program, const Target& target, const std::set<std::string>& without) {
  const auto run = [&](ProgramPhase phase) {
    for (const ProgramPass& pass : program_pipeline())
      if (pass.phase == phase) pass.run(program, target);
  };
  run(ProgramPhase::kLowered);
  schedule_program(program, target, 3, without);
  for (const LoopPass& pass : loop_pipeline())
    for (Kernel& kernel : program.kernels) kernel.program = pass.run(kernel.program, {target, 3});
  run(ProgramPhase::kScheduled);
  plan_memory(program);
  CodegenOptions options;
  options.opt_level = 3;
  options.module_name = "symbolic";
  const ObjectCode object = generate_llvm(program, target, options);
  program.scratch_bytes = object.scratch_bytes;
  ModuleInfo info;
  info.model_name = "symbolic";
  info.model_digest = "0";
  info.producer = "test";
  info.target_triple = target.triple;
  info.target_cpu = target.cpu;
  const std::vector<std::byte> code = link_shared_object(object.object, {.files = object.link});
  return write_module_memory({code, program, info}).contents();
}

std::vector<std::byte> module_of(const Graph& graph, const std::set<std::string>& without = {}) {
  const Target target = parse_target("native");
  return module_of(program_of(graph, target, without), target, without);
}

// What the programs of a few sizes have in common, as it is made where the graph of a model cannot say its sizes.
std::vector<std::byte> module_of_samples(const Graph& graph) {
  const Target target = parse_target("native");
  std::vector<SizePoint> points = first_points(graph.symbols);
  while (true) {
    SizeFormulas formulas(graph.symbols, points);
    std::vector<Program> programs;
    for (const SizePoint& point : points) programs.push_back(program_of(bind_symbols(graph, point), target, {}));
    std::vector<const Program*> all;
    for (const Program& program : programs) all.push_back(&program);
    auto result = generalize(all, formulas);
    if (formulas.doubt() && points.size() < 20) {
      points.insert(points.begin() + 1, *formulas.doubt());
      continue;
    }
    if (const auto* unlike = std::get_if<Unlike>(&result)) throw InternalError(unlike->where + ": " + unlike->what);
    return module_of(std::move(std::get<Program>(result)), target, {});
  }
}

class Session {
 public:
  explicit Session(const std::vector<std::byte>& bytes) {
    tessera_error error = {};
    check(tessera_module_load_memory(bytes.data(), bytes.size(), nullptr, &module_, &error) == TESSERA_OK,
          error.message);
    check(tessera_session_create(module_, nullptr, &session_, &error) == TESSERA_OK, error.message);
  }
  ~Session() {
    tessera_session_free(session_);
    tessera_module_free(module_);
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Into `outputs`, which have the shapes that are expected. The message of the error, if any.
  std::string run(const std::vector<Tensor>& inputs, std::vector<Tensor>& outputs) {
    std::vector<tessera_tensor> in, out;
    for (const Tensor& tensor : inputs) in.push_back(described(tensor, const_cast<std::byte*>(tensor.bytes())));
    for (Tensor& tensor : outputs) out.push_back(described(tensor, tensor.mutable_bytes()));
    tessera_error error = {};
    const auto status = tessera_session_run(session_, in.data(), static_cast<int32_t>(in.size()), out.data(),
                                            static_cast<int32_t>(out.size()), &error);
    return status == TESSERA_OK ? "" : error.message;
  }

 private:
  static tessera_tensor described(const Tensor& tensor, std::byte* data) {
    tessera_tensor result = {};
    result.data = data;
    result.dtype = tensor.dtype() == DType::kF32 ? TESSERA_F32 : TESSERA_I64;
    result.rank = static_cast<int32_t>(tensor.dims().size());
    std::copy(tensor.dims().begin(), tensor.dims().end(), result.dims);
    return result;
  }

  tessera_module* module_ = nullptr;
  tessera_session* session_ = nullptr;
};

bool agree(const Tensor& a, const Tensor& b) {
  for (int64_t i = 0; i < a.num_elements(); ++i) {
    if (is_float(a.dtype()) ? !(std::abs(a.get_double(i) - b.get_double(i)) <= 1e-3 * (1 + std::abs(b.get_double(i))))
                            : a.get_int(i) != b.get_int(i))
      return false;
  }
  return true;
}

void check_module(const Graph& graph, size_t points, const std::set<std::string>& without = {}) {
  Session session(module_of(graph, without));
  for (const Ints& point : points_of(graph, points, 3)) {
    const Graph bound = bind_symbols(graph, point);
    const std::vector<Tensor> inputs = inputs_at(bound, 7);
    const std::vector<Tensor> want = GraphInterpreter().evaluate(bound, inputs);
    std::vector<Tensor> found;
    for (const Tensor& tensor : want) found.emplace_back(tensor.dtype(), tensor.dims());
    ASSERT_EQ(session.run(inputs, found), "");
    for (size_t i = 0; i < want.size(); ++i)
      ASSERT_TRUE(agree(found[i], want[i]))
          << "at " << fmt::format("{}", fmt::join(point, ", ")) << ", output " << i << " of\n"
          << print(graph, {.elide_constants = true});
  }
}

// Least times in milliseconds of a module with symbols, of one that is made from samples and of one for the size alone,
// run in turn.
void print_times(const std::string& name, const Graph& graph, const std::vector<Ints>& points) {
  const auto begin = std::chrono::steady_clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); };
  Session symbolic(module_of(graph));
  const double first = seconds();
  Session samples(module_of_samples(graph));
  fmt::print("{}: compiled in {:.1f} s, from samples in {:.1f} s\n", name, first, seconds() - first);
  for (const Ints& point : points) {
    const Graph bound = bind_symbols(graph, point);
    Session fixed(module_of(bound));
    const std::vector<Tensor> inputs = inputs_at(bound, 7);
    std::vector<Tensor> outputs;
    for (const ValueId id : bound.outputs) outputs.emplace_back(bound.type(id).dtype, bound.type(id).dims());
    double least[3] = {1e9, 1e9, 1e9};
    Session* sessions[] = {&symbolic, &samples, &fixed};
    for (int round = 0; round < 30; ++round)
      for (int i = 0; i < 3; ++i) {
        const double start = seconds();
        ASSERT_EQ(sessions[i]->run(inputs, outputs), "");
        if (round > 1) least[i] = std::min(least[i], (seconds() - start) * 1e3);
      }
    fmt::print("  at {}: {:.2f} ms, from samples {:.2f} ms, fixed {:.2f} ms: {:.3f} of fixed, {:.3f} of samples\n",
               fmt::join(point, ", "), least[0], least[1], least[2], least[0] / least[2], least[0] / least[1]);
  }
}

TEST(SymbolicModules, DISABLED_TimesOfBatches) {
  print_times("ResNet-50, batch", resnet50(range("n", 1, 16), range("h", 224, 224), range("w", 224, 224)), {{1}, {3}});
}
TEST(SymbolicModules, DISABLED_TimesOfPictures) {
  print_times("ResNet-50, pictures", resnet50(range("n", 1, 1), range("h", 64, 512, 32), range("w", 64, 512, 32)),
              {{224, 224}, {160, 320}});
}
TEST(SymbolicModules, DISABLED_TimesOfSentences) {
  print_times("4 layers of BERT-base", bert(range("n", 1, 8), range("l", 8, 512), 4), {{1, 128}, {2, 100}, {8, 32}});
}

TEST(SymbolicModules, Networks) {
  check_module(residual_network(1), 5);
  check_module(residual_network(32), 4);
  check_module(encoder(), 6);
}

TEST(SymbolicModules, EveryPassDisabledOnce) {
  std::set<std::string> passes;
  for (const GraphPass& pass : graph_pipeline())
    if (pass.min_level > 0) passes.insert(std::string(pass.name));
  for (const std::string& pass : passes) {
    SCOPED_TRACE(pass);
    check_module(encoder(), 2, {pass});
    if (pass == "assign_layouts" || pass == "fuse_groups") check_module(residual_network(32, 64), 2, {pass});
  }
}

TEST(SymbolicModules, WhatModelsDoWithSizes) {
  for (const Graph& graph : graphs_about_sizes()) check_module(graph, 6);
}

TEST(SymbolicModules, RandomGraphs) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    check_module(random_symbolic_graph(seed), 5);
    if (testing::Test::HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace tessera
