// Tensor expressions of the public C++ API: their text, schedules of them, and what is refused.
// tests/python/te_cpp_test.py holds more texts against those of the Python package.
#include "tessera/te.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>
#include <type_traits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<te::Tensor> matmul(int64_t size) {
  const te::Tensor a = te::placeholder({size, size}, "A"), b = te::placeholder({size, size}, "B");
  const te::Axis k = te::reduce_axis(size, "k");
  return {a, b, te::compute({size, size}, "C", [&](te::Expr i, te::Expr j) { return te::sum(a(i, k) * b(k, j), k); })};
}

bool all_agree(const LoopSchedule& schedule) {
  const auto checks = schedule.check();
  return !checks.empty() && std::all_of(checks.begin(), checks.end(), [](const auto& check) { return check.agrees; });
}

tessera_tensor tensor_of(std::vector<float>& data, const std::vector<int64_t>& dims) {
  tessera_tensor tensor = {};
  tensor.data = data.data();
  tensor.dtype = TESSERA_F32;
  tensor.rank = static_cast<int32_t>(dims.size());
  std::copy(dims.begin(), dims.end(), tensor.dims);
  return tensor;
}

TEST(TensorExpressions, AreLoops) {
  EXPECT_EQ(te::lower(matmul(8), "product"), R"(kernel @product(A: f32[8,8], B: f32[8,8]) -> (C: f32[8,8]) {
  for i in 0..8 {
    for j in 0..8 {
      C[i, j] = 0:f32
      for k in 0..8 {
        C[i, j] = (C[i, j] + (A[i, k] * B[k, j]))
      }
    }
  }
}
)");
}

TEST(TensorExpressions, NamesOfAxes) {
  const te::Tensor x = te::placeholder({4, 4}, "x");
  const te::Axis j = te::reduce_axis(4, "j");
  // Default names leave out those of the reduction; an expression that is printed before has the first ones.
  const te::Tensor y = te::compute({4, 4}, "y", [&](te::Expr a, te::Expr b) { return te::sum(x(a, j) + x(j, b), j); });
  EXPECT_THAT(te::lower({x, y}), HasSubstr("y[i, k] = (y[i, k] + (x[i, j] + x[j, k]))"));
  // A loop never has a tensor's name, nor that of another loop.
  const te::Tensor i = te::compute({4}, "i", [&](te::Expr row) { return x(row, 0); });
  const te::Tensor z = te::compute({4}, "z", [&](te::Expr row) { return i(row) * 2; }, {"x"});
  EXPECT_THAT(te::lower({x, z}), HasSubstr("i[i_1] = x[i_1, 0]"));
  EXPECT_THAT(te::lower({x, z}), HasSubstr("z[x_1] = (i[x_1] * 2.0:f32)"));
}

TEST(TensorExpressions, KnowTheirTypes) {
  const te::Tensor x = te::placeholder({4}, "x", TESSERA_I8);
  EXPECT_EQ(x.name(), "x");
  EXPECT_THAT(x.shape(), ElementsAre(4));
  EXPECT_EQ(x.dtype(), TESSERA_I8);
  EXPECT_EQ((x(0) < 3).dtype(), TESSERA_BOOL);
  EXPECT_EQ((x(0) < 3).text(), "(x[0] < 3:i8)");
  EXPECT_EQ(te::cast(x(1), TESSERA_BF16).dtype(), TESSERA_BF16);
  const te::Axis k = te::reduce_axis(7, "k");
  EXPECT_EQ(k.name(), "k");
  EXPECT_EQ(k.extent(), 7);
  EXPECT_EQ((2 - k).text(), "(2 - k)");
  static_assert(!std::is_constructible_v<te::Operand, bool> && !std::is_constructible_v<te::Operand, te::Tensor>);
  static_assert(!std::is_default_constructible_v<te::Tensor> && !std::is_default_constructible_v<te::Expr>);
}

TEST(TensorExpressions, LongOnesNeedNoStack) {
  const te::Tensor x = te::placeholder({4}, "x");
  te::Expr sum = x(0);
  for (int i = 0; i < 3000; ++i) sum = sum + x(i % 4);
  const std::string text = sum.text();
  EXPECT_EQ(std::count(text.begin(), text.end(), '+'), 3000);
}

TEST(TensorExpressions, HaveEveryPrimitive) {
  te::Schedule s(matmul(32));
  const auto j = s.split("j", {0, 16});
  s.decompose_reduction("C", j[0]);
  s.reorder({"k", j[0], j[1]});
  s.vectorize(j[1]);
  const std::string packed = s.cache_read("B", "local");
  s.transform_layout(packed,
                     [](te::Expr k, te::Expr n) -> te::Index { return {te::floordiv(n, 16), k, te::floormod(n, 16)}; },
                     {"k", "n"});
  EXPECT_THAT(s.emit("trace"), HasSubstr("transform_layout(B_local, (k, n) -> [floordiv(n, 16), k, floormod(n, 16)])"));
  EXPECT_TRUE(all_agree(s));
  te::Schedule again(matmul(32));
  again.apply(s.emit("trace"));
  EXPECT_EQ(again.emit("loop"), s.emit("loop"));

  std::vector<float> a(32 * 32, 0.5F), b(32 * 32, 2), c(32 * 32);
  s.run({tensor_of(a, {32, 32}), tensor_of(b, {32, 32})}, {tensor_of(c, {32, 32})});
  EXPECT_THAT(c, ::testing::Each(32));
  EXPECT_GT(s.time(0.02).scheduled_ms, 0);
}

TEST(TensorExpressions, SeveralStages) {
  const te::Tensor x = te::placeholder({5, 7}, "x");
  const te::Axis k = te::reduce_axis(7, "k");
  const te::Tensor top = te::compute({5}, "top", [&](te::Expr i) { return te::max_reduce(x(i, k), k); });
  const te::Tensor e = te::compute({5, 7}, "e", [&](te::Expr i, te::Expr j) { return te::exp(x(i, j) - top(i)); });
  const te::Tensor total = te::compute({5}, "total", [&](te::Expr i) { return te::sum(e(i, k), k); });
  const te::Tensor y = te::compute({5, 7}, "y", [&](te::Expr i, te::Expr j) { return e(i, j) / total(i); });
  LoopSchedule s = te::Schedule({x, y});
  s.compute_inline("e");
  EXPECT_THAT(s.buffers(), ElementsAre("x", "y", "top", "total"));
  EXPECT_TRUE(all_agree(s));
}

struct Refused {
  std::string message;  // and its id TSR-4035, or the beginning of it: "TSR-3105"
  std::function<void()> make;
};

TEST(TensorExpressions, WrongOnesAreRefused) {
  const te::Tensor x = te::placeholder({4, 4}, "x"), n = te::placeholder({4}, "n", TESSERA_I32);
  const te::Axis k = te::reduce_axis(4, "k"), twin = te::reduce_axis(4, "k");
  std::optional<te::Expr> lost;
  te::compute({4}, "other", [&](te::Expr i) { return *(lost = n(i)); });
  const auto one = [&](const std::string& name) { return te::compute({4}, name, [&](te::Expr i) { return n(i); }); };
  const auto y = [](const std::function<te::Expr(te::Expr)>& value) { te::compute({4}, "y", value); };

  const std::vector<Refused> cases = {
      {"x has 2 dimensions and got 1 indices", [&] { x(0); }},
      {"the index n[0] of n is i32", [&] { n(n(0)); }},
      {"0.5 is no i64", [&] { n(0.5); }},
      {"inf is no i32", [&] { n(0) + std::numeric_limits<double>::infinity(); }},
      {"x[0, 0] is f32 and n[0] is i32", [&] { x(0, 0) * n(0); }},
      {"x[0, 0] is f32 and n[0] is i32", [&] { static_cast<void>(x(0, 0) < n(0)); }},
      {"x[0, 0] is f32 and n[0] is i32", [&] { te::select(n(0) > 0, x(0, 0), n(0)); }},
      {"x[0, 0] is f32 and n[0] is i32", [&] { te::fma(x(0, 0), x(0, 0), n(0)); }},
      {"the condition n[0] is i32", [&] { te::select(n(0), 1, n(0)); }},
      {"select between two numbers", [&] { te::select(n(0) > 0, 1, 0); }},
      {"max of two numbers", [&] { te::max(1, 0); }},
      {"'a b' cannot be a name", [&] { te::placeholder({4}, "a b"); }},
      {"'' cannot be a name", [&] { one(""); }},
      {"'1' cannot be a name", [&] { te::reduce_axis(4, "1"); }},
      {"the shape (4, 0) of x", [&] { te::placeholder({4, 0}); }},
      {"the shape (0) of k", [&] { te::reduce_axis(0); }},
      {"there are no loops over strings", [&] { te::placeholder({4}, "s", TESSERA_STRING); }},
      {"there is no element type 99", [&] { te::cast(n(0), static_cast<tessera_dtype>(99)); }},
      {"y has 1 dimensions and a function of 2 axes",
       [&] { te::compute({4}, "y", [&](te::Expr i, te::Expr j) { return x(i, j); }); }},
      {"y has 1 dimensions and names of 2 axes",
       [&] { te::compute({4}, "y", [&](te::Expr i) { return n(i); }, {"i", "j"}); }},
      {"two axes of y have the name i",
       [&] { te::compute({4, 4}, "y", [&](te::Expr i, te::Expr j) { return x(i, j); }, {"i", "i"}); }},
      {"two axes of y have the name k",
       [&] { te::compute({4}, "y", [&](te::Expr i) { return te::sum(x(i, k), k); }, {"k"}); }},
      {"two axes of y have the name k", [&] { y([&](te::Expr) { return te::sum(x(k, twin), {k, twin}); }); }},
      {"y is computed with the axis k, which is not one of its own", [&] { y([&](te::Expr i) { return x(i, k); }); }},
      {"y is computed with the axis k, which is not one of its own",
       [&] { y([&](te::Expr i) { return te::sum(x(i, k), twin); }); }},
      {"y is computed with the axis i, which is not one of its own", [&] { y([&](te::Expr) { return *lost; }); }},
      {"a reduction is part of an expression", [&] { te::sum(x(k, k), k) + 1; }},
      {"a reduction is part of an expression", [&] { te::exp(te::sum(x(k, k), k)); }},
      {"a reduction is part of an expression", [&] { x(0, te::sum(te::cast(n(k), TESSERA_I64), k)); }},
      {"a reduction without axes", [&] { te::sum(x(0, 0), std::vector<te::Axis>()); }},
      {"or of a reduction", [&] { te::sum(te::sum(x(k, k), k), k); }},
      {"max_reduce of bool", [&] { te::max_reduce(n(k) > 0, k); }},
      {"a program of x", [&] { te::lower({x}); }},
      {"a program of y, n", [&] { te::lower({one("y"), n}); }},
      {"a program of ", [&] { te::lower({}); }},
      {"n is read and not among the program's tensors", [&] { te::lower({one("y")}); }},
      {"n stands twice among the program's tensors", [&] { te::lower({n, n, one("y")}); }},
      {"two tensors of n, y, y have one name", [&] { te::lower({n, one("y"), one("y")}); }},
      {"two tensors of n, n have one name", [&] { te::lower({n, one("n")}); }},
      {"'a b' cannot be a name", [&] { te::lower({n, one("y")}, "a b"); }},
      {"names of 1 axes and a function of 2",
       [&] {
         te::Schedule({n, one("y")})
             .transform_layout("y", [](te::Expr i, te::Expr j) -> te::Index { return {j, i}; }, {"i"});
       }},
      // What only the loop language knows.
      {"TSR-3105", [&] { te::Schedule({n, te::compute({4}, "y", [&](te::Expr i) { return te::exp(n(i) > 0); })}); }},
      {"TSR-3121", [&] { te::Schedule({n, one("alloc")}); }},
  };
  for (const Refused& refused : cases) {
    SCOPED_TRACE(refused.message);
    try {
      refused.make();
      ADD_FAILURE() << "is not refused";
    } catch (const CompileError& error) {
      EXPECT_THAT(error.what(), HasSubstr(refused.message));
      if (!refused.message.starts_with("TSR-")) {
        EXPECT_EQ(error.details().id, "TSR-4035");
        EXPECT_NE(error.details().legal, "");
      }
    }
  }
}

}  // namespace
}  // namespace tessera
