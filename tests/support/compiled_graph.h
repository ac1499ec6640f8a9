// Random graphs, compiled for every level of x86-64 that runs here, beside what the interpreter makes of them: what
// tests of kernels share.
#pragma once

#include <initializer_list>
#include <random>
#include <string>
#include <vector>

#include "arith/tensor_type.h"
#include "driver/options.h"
#include "graph/graph.h"
#include "program/program.h"
#include "types/tensor.h"

namespace tessera {

struct GraphCase {
  Graph graph;
  std::vector<TensorType> inputs;
  std::string text;
};

// Draws sizes, and builds the graph of one result that they are for.
class RandomGraphCase {
 public:
  explicit RandomGraphCase(unsigned seed) : random_(seed) {}

  int64_t pick(std::initializer_list<int64_t> choices) {
    return *(choices.begin() + static_cast<std::ptrdiff_t>(random_() % choices.size()));
  }
  bool coin() { return random_() % 2 == 0; }

 protected:
  ValueId input(const char* name, DType dtype, const std::vector<int64_t>& dims);
  ValueId add(const char* name, std::vector<ValueId> inputs, Attrs attrs = {});
  GraphCase done(ValueId y, std::string text);

  std::mt19937 random_;

 private:
  Graph graph_;
  std::vector<TensorType> types_;
};

// Numbers -span ... span, those of floats times `scale`. Open sizes are `open`.
Tensor random_tensor(const TensorType& type, std::mt19937& random, int span = 16, double scale = 0.125,
                     int64_t open = 1);

// How far floats may be apart, relative to the largest of the tensor or `least`, whichever is more.
struct Tolerance {
  double f32 = 1e-5, f64 = 1e-12, narrow = 1e-2, least = 0;
};
// The first element that differs, integers at all; "" when none does.
std::string difference(const Tensor& want, const Tensor& got, const Tolerance& tolerance);

// Those of x86-64-v2, v3 and v4 that this machine runs.
std::vector<std::string> levels_that_run();

DriverOptions options_for(const std::string& target, int threads);

struct CompiledRun {
  Program program;
  std::vector<Tensor> results;  // empty where the machine does not run the code
};
CompiledRun run_compiled(const Graph& graph, const std::vector<Tensor>& inputs, const DriverOptions& options);

}  // namespace tessera
