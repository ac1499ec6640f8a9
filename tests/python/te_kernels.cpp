// Kernels as tensor expressions in C++. te_cpp_test.py has the same in Python, and holds the texts against each other.
#include <cstdio>
#include <limits>

#include "tessera/te.h"

namespace te = tessera::te;

namespace {

void print(const char* name, const std::vector<te::Tensor>& program) {
  std::printf("// %s\n%s", name, te::lower(program, name).c_str());
}

void matmul() {
  const te::Tensor a = te::placeholder({24, 20}, "A"), b = te::placeholder({20, 48}, "B");
  const te::Axis k = te::reduce_axis(20, "k");
  const te::Tensor c =
      te::compute({24, 48}, "C", [&](te::Expr i, te::Expr j) { return te::sum(a(i, k) * b(k, j), k); });
  print("matmul", {a, b, c});
}

// 3x3, with a border of zeros that a stage of its own puts around the picture.
void conv2d() {
  const te::Tensor x = te::placeholder({1, 8, 14, 14}, "x"), w = te::placeholder({16, 8, 3, 3}, "w");
  const te::Tensor padded =
      te::compute({1, 8, 16, 16}, "padded",
                  [&](te::Expr n, te::Expr c, te::Expr y, te::Expr z) {
                    return te::select((y >= 1) & (y < 15) & (z >= 1) & (z < 15), x(n, c, y - 1, z - 1), 0.0);
                  },
                  {"n", "c", "y", "z"});
  const te::Axis c = te::reduce_axis(8, "c"), dy = te::reduce_axis(3, "dy"), dz = te::reduce_axis(3, "dz");
  const te::Tensor out = te::compute({1, 16, 14, 14}, "out",
                                     [&](te::Expr n, te::Expr o, te::Expr y, te::Expr z) {
                                       return te::sum(padded(n, c, y + dy, z + dz) * w(o, c, dy, dz), {c, dy, dz});
                                     },
                                     {"n", "o", "y", "z"});
  print("conv2d", {x, w, out});
}

// Axes of one name in several stages, and a name that a tensor has as well.
void softmax() {
  const te::Tensor x = te::placeholder({5, 7}, "x");
  const te::Axis m = te::reduce_axis(7, "j"), k = te::reduce_axis(7, "k");
  const te::Tensor top = te::compute({5}, "top", [&](te::Expr i) { return te::max_reduce(x(i, m), m); });
  const te::Tensor e = te::compute({5, 7}, "i", [&](te::Expr i, te::Expr j) { return te::exp(x(i, j) - top(i)); });
  const te::Tensor total = te::compute({5}, "total", [&](te::Expr i) { return te::sum(e(i, k), k); });
  const te::Tensor y = te::compute({5, 7}, "y", [&](te::Expr i, te::Expr j) { return e(i, j) / total(i); });
  print("softmax", {x, y});
}

void bytes() {
  const te::Tensor a = te::placeholder({8, 32}, "a", TESSERA_U8), b = te::placeholder({32, 16}, "b", TESSERA_I8);
  const te::Axis k = te::reduce_axis(32, "k");
  const te::Tensor c = te::compute({8, 16}, "c", [&](te::Expr i, te::Expr j) {
    return te::sum(te::cast(a(i, k), TESSERA_I32) * te::cast(b(k, j), TESSERA_I32), k);
  });
  print("bytes", {a, b, c});
}

void scalar() {
  const te::Tensor x = te::placeholder({6, 9}, "x");
  const te::Axis i = te::reduce_axis(6, "i"), j = te::reduce_axis(9, "j");
  const te::Tensor total = te::compute({}, "total", [&] { return te::sum(x(i, j), {i, j}); });
  const te::Tensor mean = te::compute({}, "mean", [&] { return total() / 54; });
  print("scalar", {x, total, mean});
}

void extremes() {
  std::vector<te::Tensor> inputs, outputs;
  for (const tessera_dtype dtype :
       {TESSERA_F64, TESSERA_BF16, TESSERA_I64, TESSERA_I32, TESSERA_I16, TESSERA_I8, TESSERA_U64, TESSERA_U8}) {
    const std::string name = std::to_string(static_cast<int>(dtype));
    inputs.push_back(te::placeholder({3}, "x" + name, dtype));
    const te::Tensor x = inputs.back();
    const te::Axis k = te::reduce_axis(3);
    outputs.push_back(te::compute({}, "least" + name, [&] { return te::min_reduce(x(k), k); }));
    outputs.push_back(te::compute({}, "most" + name, [&] { return te::max_reduce(x(k), k); }));
  }
  inputs.insert(inputs.end(), outputs.begin(), outputs.end());
  print("extremes", inputs);
}

// Every operation, and numbers of all kinds.
void operations() {
  const te::Tensor x = te::placeholder({4, 4}, "x"), n = te::placeholder({4, 4}, "n", TESSERA_I32),
                   u = te::placeholder({4, 4}, "u", TESSERA_U64), d = te::placeholder({}, "d", TESSERA_F64);
  const te::Tensor floats = te::compute({4, 4}, "floats", [&](te::Expr i, te::Expr j) {
    const te::Expr v = x(i, j);
    return te::fma(te::sqrt(te::max(v, 0)), te::tanh(-v), te::erf(te::min(v, 1e-5))) + te::log(te::exp(v)) * 3 -
           1 / (v - 2.5F) + v * 0.1F + v * 1e16 + v * 123456789.0 - v * -0.0 + v * 1e22 +
           te::select(v <= std::numeric_limits<double>::infinity(), v, -std::numeric_limits<double>::infinity());
  });
  const te::Tensor whole = te::compute({4, 4}, "whole", [&](te::Expr i, te::Expr j) {
    const te::Expr v = n(te::floormod(i + j, 4), te::floordiv(i * 2 + 1, 3));
    return te::select((v > 7) | (v >= 3), (v & 15) ^ 2.0, te::floordiv(v, -3)) + te::cast(i, TESSERA_I32);
  });
  const te::Tensor large = te::compute({4, 4}, "large", [&](te::Expr i, te::Expr j) {
    return te::min(te::max(u(3 - i, 2.0), 18446744073709551615ULL), 1e19) - te::cast(j, TESSERA_U64);
  });
  // Python's and C++'s ways to write the shortest text of a number.
  const te::Tensor doubles = te::compute({}, "doubles", [&] {
    te::Expr sum = d();
    for (const double number :
         {0.1, 1e15, 1e16, 123456789012345680.0, 1e-4, 1e-5, 1.5e-7, 5e-324, 1e300, 2.0 / 3, -0.0})
      sum = sum + number;
    return sum;
  });
  print("operations", {x, n, u, d, floats, whole, large, doubles});
}

}  // namespace

int main() {
  matmul();
  conv2d();
  softmax();
  bytes();
  scalar();
  extremes();
  operations();
}
