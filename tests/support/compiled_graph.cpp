#include "support/compiled_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <utility>

#include "codegen/llvm/target.h"
#include "driver/compile.h"
#include "driver/engine/model.h"
#include "driver/engine/native_model.h"
#include "ops/op_table.h"

namespace tessera {

ValueId RandomGraphCase::input(const char* name, DType dtype, const std::vector<int64_t>& dims) {
  types_.push_back({dtype, make_shape(dims), {}});
  return graph_.add_input(name, types_.back());
}

ValueId RandomGraphCase::add(const char* name, std::vector<ValueId> inputs, Attrs attrs) {
  return GraphBuilder(graph_).add(standard_ops().get(name), std::move(inputs), std::move(attrs));
}

GraphCase RandomGraphCase::done(ValueId y, std::string text) {
  graph_.outputs = {y};
  graph_.rename(y, "y");
  return {std::move(graph_), std::move(types_), std::move(text)};
}

Tensor random_tensor(const TensorType& type, std::mt19937& random, int span, double scale, int64_t open) {
  std::vector<int64_t> dims;
  for (const Expr& dim : type.shape) dims.push_back(as_int(dim).value_or(open));
  Tensor tensor(type.dtype, dims);
  for (int64_t i = 0; i < tensor.num_elements(); ++i) {
    const int value = static_cast<int>(random() % static_cast<unsigned>(2 * span + 1)) - span;
    if (is_float(type.dtype)) tensor.set_double(i, value * scale);
    else tensor.set_int(i, value);
  }
  return tensor;
}

std::string difference(const Tensor& want, const Tensor& got, const Tolerance& tolerance) {
  double scale = tolerance.least;
  for (int64_t i = 0; i < want.num_elements(); ++i) scale = std::max(scale, std::fabs(want.get_double(i)));
  const double bound = want.dtype() == DType::kF32   ? tolerance.f32 * scale
                       : want.dtype() == DType::kF64 ? tolerance.f64 * scale
                       : is_float(want.dtype())      ? tolerance.narrow * scale
                                                     : 0;
  for (int64_t i = 0; i < want.num_elements(); ++i)
    if (!(std::fabs(want.get_double(i) - got.get_double(i)) <= bound))
      return fmt::format("element {}: {} instead of {}", i, got.get_double(i), want.get_double(i));
  return "";
}

std::vector<std::string> levels_that_run() {
  std::vector<std::string> result;
  for (const char* level : {"x86-64-v2", "x86-64-v3", "x86-64-v4"})
    if (runs_here(parse_target(level))) result.emplace_back(level);
  return result;
}

DriverOptions options_for(const std::string& target, int threads) {
  DriverOptions options;
  options.compile.target = target;
  options.compile.num_threads = threads;
  return options;
}

CompiledRun run_compiled(const Graph& graph, const std::vector<Tensor>& inputs, const DriverOptions& options) {
  PassRunner runner(options);
  Compiled compiled = compile_graph(graph, options, runner);
  CompiledRun result;
  if (runs_here(parse_target(options.compile.target))) {
    const std::unique_ptr<Model> model =
        load_module(module_in_memory(compiled), "compiled", options.compile.num_threads);
    model->bind(inputs);
    model->run();
    for (const Tensor& value : model->results()) {
      Tensor& copy = result.results.emplace_back(value.dtype(), value.dims());
      std::memcpy(copy.mutable_bytes(), value.bytes(), static_cast<size_t>(value.num_bytes()));
    }
  }
  result.program = std::move(compiled.program);
  return result;
}

}  // namespace tessera
