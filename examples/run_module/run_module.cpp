// Runs a module in C++ and says what it gives: the header tessera.hpp, one library of 90 kB, no compiler.
//
//   tessera compile model.onnx -o model.so
//   c++ -std=c++17 run_module.cpp $(pkg-config --cflags --libs tessera) -o run_module
//   ./run_module model.so
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "tessera/tessera.hpp"

namespace rt = tessera::run_time;

namespace {

void print(const char* what, const rt::TensorInfo& info) {
  std::printf("%s '%s': %s[", what, info.name.c_str(), tessera_dtype_name(info.dtype));
  for (std::size_t d = 0; d < info.shape.size(); ++d)
    std::printf("%s%lld", d == 0 ? "" : ",", static_cast<long long>(info.shape[d]));
  std::printf("]\n");
}

int run(const char* path) {
  const rt::Module module(path);
  rt::Session session(module);
  // Zeros; open dimensions become 1.
  std::vector<rt::Tensor> inputs;
  for (const rt::TensorInfo& info : module.inputs()) {
    print("input", info);
    rt::Shape shape = info.shape;
    std::replace_if(shape.begin(), shape.end(), [](std::int64_t extent) { return extent < 0; }, 1);
    inputs.emplace_back(info.dtype, shape);
  }
  const std::vector<rt::TensorView> views(inputs.begin(), inputs.end());
  const std::vector<rt::Tensor> outputs = session.run(views);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    print("output", session.output(i));
    if (outputs[i].dtype() != TESSERA_F32 || outputs[i].size() == 0) continue;
    const float* y = outputs[i].data<float>();
    std::printf("  largest: element %lld\n", static_cast<long long>(std::max_element(y, y + outputs[i].size()) - y));
  }
  // Later runs write where the first did, and allocate nothing.
  const std::vector<rt::TensorView> results(outputs.begin(), outputs.end());
  constexpr int kRuns = 20;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kRuns; ++i) session.run(views, results);
  const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - begin;
  std::printf("%.3g ms a run, on %d threads\n", taken.count() / kRuns, session.num_threads());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "run_module MODULE.so\n");
    return 64;
  }
  try {
    return run(argv[1]);
  } catch (const rt::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
