// The C++ header over the C API: load a module (argument 1), run it in both ways, read an error.
#include "tessera/tessera.hpp"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

namespace rt = tessera::run_time;

static void check(bool condition, int line) {
  if (condition) return;
  std::printf("cpp_api_test.cpp:%d does not hold\n", line);
  std::exit(1);
}
#define CHECK(condition) check((condition), __LINE__)

template <typename Action>
static rt::Error error_of(Action action) {
  try {
    action();
  } catch (const rt::Error& error) {
    return error;
  }
  return rt::Error(TESSERA_OK, "", "no error");
}

int main(int argc, char** argv) {
  if (argc != 2) return 64;
  const rt::Error missing = error_of([] { rt::Module("/nonexistent/module.so"); });
  CHECK(missing.status() == TESSERA_NOT_FOUND && missing.id() == "TSR-7001");
  CHECK(std::string(missing.what()).find("TSR-7001: ") == 0);

  const rt::Module module(argv[1]);
  CHECK(module.num_inputs() == 1 && module.num_outputs() == 1);
  const rt::TensorInfo info = module.input(0);
  CHECK(info.dtype == TESSERA_F32 && info.shape == rt::Shape{4} && !info.is_open());
  CHECK(module.outputs().size() == 1 && module.states().empty());
  CHECK(error_of([&] { module.input(1); }).status() == TESSERA_NOT_FOUND);
  CHECK(!module.metadata().empty());

  rt::Session session(module, {2});
  CHECK(session.num_threads() == 2);
  const std::array<float, 4> x = {1, 10, 100, 1000};
  std::vector<float> y(4);
  session.run({rt::view(x, {4})}, {rt::view(y, {4})});
  CHECK((y == std::vector<float>{2, 30, 500, 7000}));
  const std::vector<rt::Tensor> results = session.run({rt::view(x, {4})});
  CHECK(results.size() == 1 && results[0].shape() == rt::Shape{4} && results[0].data<float>()[3] == 7000);
  CHECK(error_of([&] { results[0].data<std::int32_t>(); }).status() == TESSERA_INVALID_ARGUMENT);
  CHECK(error_of([&] { rt::view(y, {5}); }).status() == TESSERA_INVALID_ARGUMENT);
  std::vector<std::int32_t> wrong(4);
  CHECK(error_of([&] { session.run({rt::view(wrong, {4})}, {rt::view(y, {4})}); }).id() == "TSR-7031");

  // Both move; bytes in memory are a module, too.
  std::ifstream file(argv[1], std::ios::binary);
  const std::string contents{std::istreambuf_iterator<char>(file), {}};
  rt::Module copied(contents.data(), contents.size());
  const rt::Module moved = std::move(copied);
  rt::Session first(moved);
  rt::Session second = std::move(first);
  CHECK(second.run({rt::view(x, {4})})[0].data<float>()[0] == 2);
  std::printf("cpp_api_test: all holds\n");
  return 0;
}
