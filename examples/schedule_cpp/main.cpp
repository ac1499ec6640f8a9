// A matrix product from plain loops to vectors in registers, with the C++ API: tensor expressions (tessera/te.h) and
// their schedules (tessera/schedule.h).
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "tessera/te.h"

namespace te = tessera::te;

namespace {

constexpr int64_t kSize = 128;

// The program: what an element of C is.
std::vector<te::Tensor> matmul() {
  const te::Tensor a = te::placeholder({kSize, kSize}, "A"), b = te::placeholder({kSize, kSize}, "B");
  const te::Axis k = te::reduce_axis(kSize, "k");
  const te::Tensor c =
      te::compute({kSize, kSize}, "C", [&](te::Expr i, te::Expr j) { return te::sum(a(i, k) * b(k, j), k); });
  return {a, b, c};
}

tessera_tensor tensor_of(std::vector<float>& data) {
  tessera_tensor tensor = {};
  tensor.data = data.data();
  tensor.dtype = TESSERA_F32;
  tensor.rank = 2;
  tensor.dims[0] = tensor.dims[1] = kSize;
  return tensor;
}

}  // namespace

int main() try {
  std::printf("%s\n", te::lower(matmul()).c_str());  // the plain loops
  te::Schedule s(matmul());
  const std::string sum = s.cache_write("C", "local");  // C is summed up in a buffer of its own
  const auto i = s.split("i", {0, 4});                  // 4 rows
  const auto j = s.split("j", {0, 16});                 // and 16 columns at a time
  s.reorder({i[0], j[0], i[1], j[1]});
  s.decompose_reduction(sum, i[1]);
  s.reorder({"k", i[1], j[1]});
  s.reverse_compute_at("C", j[0]);
  s.set_scope(sum, "register");
  for (const std::string& loop : {i[1], i[1] + "_init", std::string("C_0")}) s.unroll(loop);
  for (const std::string& loop : {j[1], j[1] + "_init", std::string("C_1")}) s.vectorize(loop);
  s.annotate(sum + ".update", "fma", 1);
  std::printf("%s\n%s", s.emit("trace").c_str(), s.emit("loop").c_str());

  try {
    s.vectorize("k");
  } catch (const tessera::CompileError& error) {
    std::printf("\nrefused, and nothing changed:\n%s\n", error.what());
  }
  for (const auto& check : s.check()) {
    std::printf("%s: %s: %s\n", check.output.c_str(), check.how.c_str(), check.text.c_str());
    if (!check.agrees) return EXIT_FAILURE;
  }

  std::vector<float> a(kSize * kSize, 0.5F), b(kSize * kSize, 2), c(kSize * kSize);
  s.run({tensor_of(a), tensor_of(b)}, {tensor_of(c)});
  std::printf("C[0, 0] = %g\n", static_cast<double>(c[0]));
  if (c[0] != kSize) return EXIT_FAILURE;
  const auto times = s.time(0.2);
  std::printf("%.3f ms instead of %.3f ms, %.1f of %.1f GFLOP/s\n", times.scheduled_ms, times.original_ms, times.gflops,
              times.peak_gflops);
  return EXIT_SUCCESS;
} catch (const tessera::CompileError& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return EXIT_FAILURE;
}
