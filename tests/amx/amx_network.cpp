// A whole network as compiled for AMX, beside the same in multiply-adds of f32 on this machine's own processor:
//
//   amx_network MODEL.onnx TARGET PRECISION FP32 THREADS TOLERANCE [MODULE.so]
//   amx_network mobilenet_v2.onnx x86-64-v4,+amx-tile,+amx-bf16 bf16 fma 2 0.05
//
// Inputs are random. Prints how many kernels each rule took and how many instructions ran; fails when max|d| is beyond
// TOLERANCE * max|reference|. MODULE.so is written for `LD_PRELOAD=libamx_preload.so tessera run`.
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <map>
#include <random>

#include "amx/amx_emulator.h"
#include "driver/compile.h"
#include "driver/engine/model.h"
#include "driver/engine/native_model.h"

namespace {

using namespace tessera;

std::vector<Tensor> random_inputs(const Model& model) {
  std::mt19937_64 random(1);
  std::vector<Tensor> inputs;
  for (const TensorInfo& info : model.inputs()) {
    Tensor& tensor = inputs.emplace_back(info.dtype, info.dims);
    for (int64_t i = 0; i < tensor.num_elements(); ++i)
      tensor.set_double(i, is_float(info.dtype) ? std::uniform_real_distribution<double>(-1, 1)(random)
                                                : static_cast<double>(random() % 2));
  }
  return inputs;
}

std::unique_ptr<Model> compiled(const std::string& path, const CompileOptions& options, const char* module) {
  DriverOptions driver;
  driver.compile = options;
  Compiled result = compile_model(path, driver);
  if (emulate_amx()) forget_amx(result.info.features);
  std::map<std::string, int> rules;
  for (const Kernel& kernel : result.program.kernels) ++rules[kernel.rule];
  std::string text;
  for (const auto& [rule, count] : rules) text += fmt::format(" {} {}", count, rule);
  fmt::print("{}:{}\n", options.target, text);
  if (module) write_module(result, module);
  return load_module(module_in_memory(result), "network", options.num_threads);
}

int compare(int argc, char** argv) {
  CompileOptions options;
  options.num_threads = std::stoi(argv[5]);
  const std::string path = argv[1];
  const auto plain = compiled(path, options, nullptr);
  options.target = argv[2];
  options.precision = argv[3];
  options.fp32 = argv[4];
  const auto tiles = compiled(path, options, argc > 7 ? argv[7] : nullptr);
  const std::vector<Tensor> inputs = random_inputs(*plain);
  plain->bind(inputs);
  plain->run();
  tiles->bind(inputs);
  const auto begin = std::chrono::steady_clock::now();
  tiles->run();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  const AmxCounts n = amx_counts();
  fmt::print("{:.1f} s; {} products of bf16, {} of int8, {} loads, {} configurations, {} left configured\n",
             seconds.count(), n.bf16_products, n.int8_products, n.loads, n.configures, n.configured_threads);
  bool agrees = n.configured_threads == 0;
  for (size_t o = 0; o < plain->results().size(); ++o) {
    const Tensor &want = plain->results()[o], &got = tiles->results()[o];
    double largest = 0, distance = 0;
    for (int64_t i = 0; i < want.num_elements(); ++i) {
      const double d = std::fabs(want.get_double(i) - got.get_double(i));
      largest = std::max(largest, std::fabs(want.get_double(i)));
      distance = std::isnan(d) ? INFINITY : std::max(distance, d);
    }
    fmt::print("{}: max|d| {:.3g} of {:.3g}\n", plain->outputs()[o].name, distance, largest);
    agrees &= distance <= std::stod(argv[6]) * largest;
  }
  fmt::print("{}\n", agrees ? "agrees" : "DIFFERS");
  return agrees ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 7) {
    fmt::print(stderr, "amx_network MODEL.onnx TARGET PRECISION FP32 THREADS TOLERANCE [MODULE.so]\n");
    return 2;
  }
  try {
    return compare(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 2;
  }
}
