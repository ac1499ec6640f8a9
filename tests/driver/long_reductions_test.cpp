// Reductions of many elements to few, compiled: parts that threads compute, against the interpreter, and with the same
// bits for all numbers of threads.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <random>

#include "interp/graph_interp.h"
#include "ops/op_table.h"
#include "support/compiled_graph.h"

namespace tessera {
namespace {

using Ints = std::vector<int64_t>;

Tensor run(const Graph& graph, const std::vector<Tensor>& inputs, const std::string& level, int threads) {
  return std::move(run_compiled(graph, inputs, options_for(level, threads)).results.at(0));
}

TEST(LongReductions, InParts) {
  struct Row {
    DType dtype;
    Ints dims, axes;
  };
  const Row rows[] = {{DType::kF32, {131072}, {0}},
                      {DType::kF32, {131077 + 64}, {0}},
                      {DType::kF32, {3, 200003}, {1}},
                      {DType::kF32, {2, 5, 17, 1031}, {0, 1, 2, 3}},
                      {DType::kF32, {40, 2, 61, 63}, {0, 2, 3}},
                      {DType::kF32, {1031, 131}, {0, 1}},
                      {DType::kF64, {4, 140001}, {1}},
                      {DType::kBF16, {140001}, {0}},
                      {DType::kI32, {150000}, {0}},
                      {DType::kI8, {300001}, {0}},
                      {DType::kF32, {16, 8191}, {0, 1}}};  // just fewer elements than parts are made of
  std::mt19937 random(3);
  GraphInterpreter interpreter;
  for (const Row& row : rows)
    for (const char* kind : {"sum", "max"}) {
      SCOPED_TRACE(fmt::format("{} of {} {} over {}", kind, dtype_name(row.dtype), fmt::join(row.dims, "x"),
                               fmt::join(row.axes, ",")));
      Graph graph;
      GraphBuilder builder(graph);
      const ValueId x = graph.add_input("x", TensorType{row.dtype, make_shape(row.dims), {}});
      const ValueId y = builder.add(standard_ops().get("reduce"), {x},
                                    {{"axes", row.axes}, {"keepdims", false}, {"kind", std::string(kind)}});
      graph.outputs = {builder.add(standard_ops().get("neg"), {y}, {})};
      Tensor input(row.dtype, row.dims);
      for (int64_t i = 0; i < input.num_elements(); ++i) {
        if (is_float(row.dtype)) input.set_double(i, std::ldexp(static_cast<double>(random() % 4096), -12) - 0.25);
        else input.set_int(i, static_cast<int64_t>(random() % 21) - 10);
      }
      const std::vector<Tensor> inputs = {input};
      const Tensor want = interpreter.evaluate(graph, inputs).at(0);
      for (const std::string& level : levels_that_run()) {
        const Tensor one = run(graph, inputs, level, 1);
        const double scale = row.dtype == DType::kF32 ? 1e-5 : row.dtype == DType::kF64 ? 1e-13 : 1e-2;
        for (int64_t i = 0; i < want.num_elements(); ++i)
          EXPECT_NEAR(one.get_double(i), want.get_double(i),
                      is_float(row.dtype) ? scale * std::max(1.0, std::fabs(want.get_double(i))) : 0)
              << level;
        for (const int threads : {2, 3})
          EXPECT_EQ(std::memcmp(one.bytes(), run(graph, inputs, level, threads).bytes(),
                                static_cast<size_t>(one.num_bytes())),
                    0)
              << level << ", threads: " << threads;
      }
    }
}

}  // namespace
}  // namespace tessera
