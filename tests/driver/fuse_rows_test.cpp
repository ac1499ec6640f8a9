// Kernels that run row by row together (schedule/fusion/fuse_rows.h) compute what they compute one after the other.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <iostream>
#include <random>

#include "codegen/llvm/target.h"
#include "driver/compile.h"
#include "driver/engine/native_model.h"
#include "interp/graph_interp.h"
#include "loop/printer.h"
#include "ops/composites/composites.h"
#include "ops/op_table.h"
#include "support/test_data.h"

namespace tessera {
namespace {

using Ints = std::vector<int64_t>;

struct Case {
  std::string composite;
  std::vector<Ints> operands;
  Attrs attrs;
  bool bool_mask = false;  // the last operand is one
};

std::string name_of(const Case& c) {
  std::string text = c.composite;
  for (const Ints& dims : c.operands) text += fmt::format(" [{}]", fmt::join(dims, ","));
  return text;
}

class Runner {
 public:
  explicit Runner(const Case& c) {
    std::mt19937_64 random(c.operands.size() + static_cast<size_t>(c.operands[0].back()));
    std::normal_distribution<float> normal;
    std::vector<ValueId> operands;
    for (size_t i = 0; i < c.operands.size(); ++i) {
      const bool is_mask = c.bool_mask && i + 1 == c.operands.size();
      const DType dtype = is_mask ? DType::kBool : DType::kF32;
      operands.push_back(graph_.add_input("x" + std::to_string(i), TensorType{dtype, make_shape(c.operands[i]), {}}));
      Tensor tensor(dtype, c.operands[i]);
      for (int64_t e = 0; e < tensor.num_elements(); ++e)
        if (is_mask) tensor.set_int(e, e % 3 != 1);
        else tensor.set_double(e, 3 * normal(random));
      inputs_.push_back(std::move(tensor));
    }
    GraphBuilder builder(graph_);
    graph_.outputs = {add_composite(builder, standard_ops(), c.composite, operands, c.attrs).at(0)};
    graph_.rename(graph_.outputs[0], "y");
    want_ = GraphInterpreter().evaluate(graph_, inputs_)[0];
  }

  // How many calls the program has; checks the result.
  size_t run(const std::string& target, int threads, bool joined) {
    DriverOptions options;
    options.compile.target = target;
    options.compile.num_threads = threads;
    options.runner.verify_each = true;
    if (!joined) options.compile.disabled_passes = {"fuse_rows"};
    PassRunner runner(options);
    const Compiled compiled = compile_graph(graph_, options, runner);
    const std::unique_ptr<Model> model = load_module(module_in_memory(compiled), "rows", threads);
    model->bind(inputs_);
    model->run();
    EXPECT_TRUE(tensors_agree(model->results()[0], want_));
    kernels_.clear();
    for (const Kernel& kernel : compiled.program.kernels) kernels_.push_back(kernel.program);
    return compiled.program.calls.size();
  }

  // Of the last run.
  const std::vector<LoopProgram>& kernels() const { return kernels_; }

 private:
  std::vector<LoopProgram> kernels_;
  Graph graph_;
  std::vector<Tensor> inputs_;
  Tensor want_;
};

Case softmax(Ints dims, int64_t axis) { return {"softmax", {std::move(dims)}, {{"axis", axis}}}; }

std::vector<Case> cases() {
  std::vector<Case> list;
  for (const int64_t rows : {8, 33, 257})
    for (const int64_t columns : {2, 5, 16, 100, 1000}) list.push_back(softmax({rows, columns}, 1));
  list.push_back(softmax({3, 7, 11, 13}, 3));
  list.push_back(softmax({40, 7, 9}, 1));  // rows are the outermost axis alone
  list.push_back(softmax({5, 12, 70, 3}, 2));
  list.push_back({"log_softmax", {{64, 50}}, {{"axis", int64_t{1}}}});
  // Rows that are longer than the caches, and one alone.
  for (const int64_t columns : {1, 63, 700, 50257}) list.push_back(softmax({1, columns}, 1));
  list.push_back(softmax({3, 13001}, 1));
  list.push_back(softmax({1, 1, 9000}, 2));
  list.push_back(softmax({9000}, 0));
  list.push_back({"log_softmax", {{2, 20000}}, {{"axis", int64_t{1}}}});
  const auto attention = [&](int64_t heads, int64_t rows, int64_t columns, int64_t depth, int64_t out, Ints mask,
                             bool bool_mask) {
    Case c{"attention",
           {{2, heads, rows, depth}, {2, heads, columns, depth}, {2, heads, columns, out}},
           {{"scale", 0.3}},
           bool_mask};
    if (!mask.empty()) c.operands.push_back(std::move(mask));
    list.push_back(std::move(c));
  };
  attention(3, 8, 8, 16, 16, {}, false);
  attention(2, 50, 37, 24, 40, {}, false);
  attention(1, 197, 197, 64, 64, {}, false);
  attention(2, 130, 60, 33, 17, {130, 60}, false);
  attention(2, 65, 129, 8, 8, {2, 1, 1, 129}, true);
  attention(4, 1, 77, 16, 16, {}, false);
  attention(1, 600, 1000, 16, 16, {600, 1000}, true);
  // Blocks of columns, with and without a rest, of rows and of columns.
  attention(2, 50, 1100, 16, 24, {}, false);
  attention(1, 1, 2048, 8, 8, {}, false);
  attention(1, 130, 1030, 9, 17, {130, 1030}, false);
  attention(1, 200, 1025, 8, 12, {2, 1, 1, 1025}, true);
  return list;
}

TEST(RowChain, AgreesWithTheInterpreter) {
  for (const Case& c : cases()) {
    Runner runner(c);
    for (const char* target : {"native", "x86-64-v2"}) {
      if (!runs_here(parse_target(target))) {
        std::cout << "skipped: this machine does not run " << target << "\n";
        continue;
      }
      for (const int threads : {1, 3}) {
        SCOPED_TRACE(fmt::format("{} for {}, {} threads", name_of(c), target, threads));
        runner.run(target, threads, true);
      }
    }
  }
}

TEST(RowChain, MakesOneKernelOfSoftmax) {
  EXPECT_EQ(Runner(softmax({64, 100}, 1)).run("native", 1, true), 1U);
  EXPECT_GT(Runner(softmax({64, 100}, 1)).run("native", 1, false), 3U);
}

// One thread goes through a long row three times: for its largest element, for the exponentials and their sum, and to
// divide in place.
TEST(RowChain, OneRowForOneThread) {
  EXPECT_EQ(Runner(softmax({1, 50257}, 1)).run("native", 1, true), 1U);
  EXPECT_EQ(Runner(softmax({1, 50257}, 1)).run("native", 2, true), 4U);
  Runner runner(softmax({1, 50257}, 1));
  runner.run("native", 1, true);
  const LoopProgram& loops = runner.kernels()[0];
  int64_t sweeps = 0, local_elements = 0;
  walk(
      loops.body,
      [&](const Stmt& s) {
        sweeps += s->kind == StmtKind::kFor && s->for_kind == ForKind::kSerial;
        if (s->kind == StmtKind::kAlloc && s->buffer->scope == MemoryScope::kLocal)
          local_elements += *as_int(s->buffer->shape[0]);
      },
      nullptr);
  EXPECT_EQ(sweeps, 3) << print(loops);
  EXPECT_EQ(local_elements, 2) << print(loops);
}

TEST(RowChain, KeepsTheScoresOfAttentionOutOfTheArena) {
  const Case c{"attention", {{4, 300, 32}, {4, 300, 32}, {4, 300, 32}}, {{"scale", 0.2}}};
  Runner runner(c);
  EXPECT_LE(runner.run("native", 1, true), 2U);  // the transposed keys, and the rest
  EXPECT_GE(runner.run("native", 1, false), 5U);
}

TEST(RowChain, LeavesRowsThatAreTooFewForTheThreads) {
  EXPECT_GT(Runner(softmax({2, 5000}, 1)).run("native", 4, true), 3U);
}

// Which columns a row may look at.
using Sees = std::function<bool(int64_t row, int64_t column)>;

// Attention behind attention, each with a constant mask of its own.
struct Masked {
  Graph graph;
  std::vector<Tensor> inputs;
  Tensor want;

  Masked(int64_t rows, int64_t columns, const std::vector<Sees>& masks) {
    std::mt19937_64 random(static_cast<uint64_t>(rows + columns));
    std::normal_distribution<float> normal;
    std::vector<ValueId> operands;
    for (const int64_t length : {rows, columns, columns}) {
      const Ints dims = {1, 2, length, 16};  // heads too few to be rows
      operands.push_back(
          graph.add_input("x" + std::to_string(operands.size()), TensorType{DType::kF32, make_shape(dims), {}}));
      Tensor tensor(DType::kF32, dims);
      for (float& value : tensor.as_mutable<float>()) value = normal(random);
      inputs.push_back(std::move(tensor));
    }
    GraphBuilder builder(graph);
    for (const Sees& sees : masks) {
      auto mask = std::make_shared<Tensor>(DType::kF32, Ints{rows, columns});
      for (int64_t e = 0; e < rows * columns; ++e)
        mask->set_double(e, sees(e / columns, e % columns) ? 0.25 * static_cast<double>(e % 5) : -INFINITY);
      const ValueId m = builder.add(standard_ops().get("constant"), {}, {{"value", TensorPtr(std::move(mask))}});
      operands[0] = add_composite(builder, standard_ops(), "attention", {operands[0], operands[1], operands[2], m},
                                  {{"scale", 0.3}})
                        .at(0);
    }
    graph.outputs = {operands[0]};
    graph.rename(graph.outputs[0], "y");
    want = GraphInterpreter().evaluate(graph, inputs)[0];
  }

  // The text of the chains; checks the result.
  std::string run(const std::string& target, int threads) {
    DriverOptions options;
    options.compile.target = target;
    options.compile.num_threads = threads;
    options.runner.verify_each = true;
    PassRunner runner(options);
    const Compiled compiled = compile_graph(graph, options, runner);
    const std::unique_ptr<Model> model = load_module(module_in_memory(compiled), "masked", threads);
    model->bind(inputs);
    model->run();
    EXPECT_TRUE(tensors_agree(model->results()[0], want));
    std::string text;
    for (const Kernel& kernel : compiled.program.kernels)
      if (kernel.rule == "fuse_rows") text += print(kernel.program);
    return text;
  }
};

TEST(RowChain, StopsWhereAMaskHidesTheRest) {
  const Sees all = [](int64_t, int64_t) { return true; };
  const Sees causal = [](int64_t r, int64_t c) { return c <= r; };
  const Sees window = [](int64_t r, int64_t c) { return c <= r && c + 40 > r; };
  const Sees ahead = [](int64_t r, int64_t c) { return c <= r + 30; };
  const Sees first = [](int64_t, int64_t c) { return c < 3; };
  const Sees ragged = [](int64_t r, int64_t c) { return c <= (r * 37) % 200; };
  const Sees scattered = [](int64_t r, int64_t c) { return c <= r && (c == 0 || (r * 7 + c * 3) % 5 != 0); };
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{197, 197}, {256, 256}, {100, 300}}) {
    // Kernels of the same shape whose masks differ are not one kernel.
    const std::vector<std::vector<Sees>> cases = {{all},    {causal}, {window},    {ahead},
                                                  {ragged}, {first},  {scattered}, {causal, all, first}};
    size_t whole = 0;
    for (size_t i = 0; i < cases.size(); ++i) {
      Masked masked(rows, columns, cases[i]);
      for (const char* target : {"native", "x86-64-v2"})
        for (const int threads : {1, 3}) {
          if (!runs_here(parse_target(target))) continue;
          SCOPED_TRACE(fmt::format("mask {}, {} x {} for {}, {} threads", i, rows, columns, target, threads));
          const size_t size = masked.run(target, threads).size();
          if (std::string(target) != "native" || threads != 1) continue;
          if (i == 0) whole = size;
          if (i == 1) {
            EXPECT_NE(size, whole) << "the rows are not treated apart";
          }
        }
    }
  }
}

// Nothing of the weights of a large layer is read again for each block.
TEST(RowChain, LeavesOperandsThatDoNotFitTheCache) {
  const Case c{"attention", {{1, 64, 512}, {1, 2048, 512}, {1, 2048, 512}}, {{"scale", 0.2}}};
  EXPECT_GE(Runner(c).run("native", 1, true), 2U);
}

}  // namespace
}  // namespace tessera
