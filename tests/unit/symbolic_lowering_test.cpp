// Graphs with symbols through the graph passes and lowering: the program, at some sizes, computes what the interpreter
// computes from the graph that is bound at these sizes.
#include <gtest/gtest.h>

#include <cstring>

#include "../support/symbolic_graphs.h"
#include "graph/bind_symbols.h"
#include "graph/printer.h"
#include "graph/verify.h"
#include "graph_passes/pass.h"
#include "interp/graph_interp.h"
#include "interp/loop_interp.h"
#include "lower/lower.h"
#include "program/symbolic_sizes.h"
#include "support/error.h"

namespace tessera {
namespace {

using namespace symbolic_graphs;

// Calls one after the other through the loop interpreter, every buffer with memory of its own.
class ProgramAt {
 public:
  ProgramAt(const Program& program, SizePoint point, const std::vector<Tensor>& inputs)
      : program_(program), point_(std::move(point)), inputs_(inputs), own_(program.buffers.size()) {}

  std::vector<Tensor> run() {
    for (const KernelCall& call : program_.calls) {
      const LoopProgram& kernel = program_.kernels.at(static_cast<size_t>(call.kernel)).program;
      std::vector<int64_t> symbols;
      for (const Var& symbol : kernel.symbols) symbols.push_back(value(symbol));
      std::vector<BufferView> views;
      for (size_t i = 0; i < call.args.size(); ++i) {
        BufferView view{kernel.params[i]->dtype, {}, memory(call.args[i]), false};
        for (const Expr& extent : kernel.params[i]->shape) view.dims.push_back(value(extent));
        view.writable = i + static_cast<size_t>(kernel.num_outputs) >= call.args.size();
        views.push_back(std::move(view));
      }
      interpret(kernel, std::span<const BufferView>(views), symbols);
    }
    std::vector<Tensor> outputs;
    for (const BufferId id : program_.outputs) {
      std::vector<int64_t> dims;
      for (const Expr& extent : at(id).type.shape) dims.push_back(value(extent));
      Tensor& output = outputs.emplace_back(at(id).type.dtype, dims);
      std::memcpy(output.mutable_bytes(), memory(id), static_cast<size_t>(output.num_bytes()));
    }
    return outputs;
  }

 private:
  const ProgramBuffer& at(BufferId id) const { return program_.buffers.at(static_cast<size_t>(id)); }
  int64_t value(const Expr& e) const { return value_at(e, program_.symbols, point_); }

  std::byte* memory(BufferId id) {
    int64_t begin = 0;
    for (; at(id).alias_of >= 0; id = at(id).alias_of)
      begin += at(id).view_offset_formula ? value(at(id).view_offset_formula) : at(id).view_offset;
    const ProgramBuffer& buffer = at(id);
    if (buffer.kind == BufferKind::kInput)
      return const_cast<std::byte*>(inputs_.at(static_cast<size_t>(buffer.index)).bytes()) + begin;
    if (buffer.kind == BufferKind::kWeight) return const_cast<std::byte*>(buffer.data->bytes()) + begin;
    auto& own = own_[static_cast<size_t>(id)];
    if (own.empty()) own.resize(static_cast<size_t>(bytes_at(buffer.type, program_.symbols, point_)) + 64);
    return own.data() + begin;
  }

  const Program& program_;
  const SizePoint point_;
  const std::vector<Tensor>& inputs_;
  std::vector<std::vector<std::byte>> own_;
};

bool agree(const Tensor& a, const Tensor& b) {
  if (a.dims() != b.dims() || a.dtype() != b.dtype()) return false;
  for (int64_t i = 0; i < a.num_elements(); ++i) {
    if (is_float(a.dtype()) ? !(std::abs(a.get_double(i) - b.get_double(i)) <= 1e-4 * (1 + std::abs(b.get_double(i))))
                            : a.get_int(i) != b.get_int(i))
      return false;
  }
  return true;
}

Program lowered(Graph graph, const std::set<std::string>& without = {}) {
  const KnownSymbols known(graph.symbols);
  GraphInterpreter evaluator;
  Target target;
  target.features = {"avx", "avx2", "fma"};
  const PassContext context{standard_ops(), evaluator, target};
  for (const GraphPass& pass : graph_pipeline()) {
    if (without.contains(std::string(pass.name))) continue;
    graph = pass.run(graph, context);
    verify_or_throw(graph, pass.name);
  }
  return lower_graph(graph);
}

void check_lowering(const Graph& graph, size_t points, const std::set<std::string>& without = {}) {
  ASSERT_EQ(fmt::format("{}", fmt::join(verify(graph), "\n")), "");
  const Program program = lowered(graph, without);
  for (const Ints& point : points_of(graph, points, 3)) {
    const Graph bound = bind_symbols(graph, point);
    ASSERT_EQ(fmt::format("{}", fmt::join(verify(bound), "\n")), "");
    const std::vector<Tensor> inputs = inputs_at(bound, 7);
    const std::vector<Tensor> want = GraphInterpreter().evaluate(bound, inputs);
    const std::vector<Tensor> open = GraphInterpreter().evaluate(graph, inputs);
    const std::vector<Tensor> found = ProgramAt(program, point, inputs).run();
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_TRUE(agree(open[i], want[i])) << "the interpreter, with symbols";
      ASSERT_TRUE(agree(found[i], want[i]))
          << "at " << fmt::format("{}", fmt::join(point, ", ")) << ", output " << i << " of\n"
          << print(graph, {.elide_constants = true});
    }
  }
}

TEST(SymbolicLowering, Networks) {
  check_lowering(residual_network(1, 40), 4);
  check_lowering(residual_network(32, 64), 2);
  check_lowering(encoder(), 4);
}

TEST(SymbolicLowering, EveryPassDisabledOnce) {
  std::set<std::string> passes;
  for (const GraphPass& pass : graph_pipeline())
    if (pass.min_level > 0) passes.insert(std::string(pass.name));
  for (const std::string& pass : passes) {
    SCOPED_TRACE(pass);
    check_lowering(residual_network(1, 33), 1, {pass});
    check_lowering(encoder(), 2, {pass});
  }
}

TEST(SymbolicLowering, WhatModelsDoWithSizes) {
  for (const Graph& graph : graphs_about_sizes()) check_lowering(graph, 5);
}

TEST(SymbolicLowering, RandomGraphs) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(seed);
    check_lowering(random_symbolic_graph(seed), 4);
    if (testing::Test::HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace tessera
