// Places that are quotients of open sizes go to tables: which do, and that kernels with tables compute what they did.
#include "lower/place_tables.h"

#include <gtest/gtest.h>

#include <cstring>

#include "arith/simplify.h"
#include "interp/loop_interp.h"
#include "loop/naive_loops.h"

namespace tessera {
namespace {

// Kernels y[i < m, j < width] of x[n, width] and w[n], with the open sizes n and m.
class PlaceTables : public testing::Test {
 protected:
  const Var n_ = make_var("n"), m_ = make_var("m"), i_ = make_var("i"), j_ = make_var("j");
  const KnownSymbols known_{{{n_, 1, 64}, {m_, 1, 64}}};
  const BufferPtr x_ = make_buffer("x", DType::kF32, {n_, 16}), w_ = make_buffer("w", DType::kF32, {n_});

  TensorProgram kernel(const Expr& value, const Expr& width = 16) const {
    TensorProgram program{.name = "resize",
                          .params = {{x_, {}, OperandKind::kActivation}, {w_, {}, OperandKind::kActivation}},
                          .stages = {}};
    Stage stage;
    stage.out = make_buffer("y", DType::kF32, {m_, width});
    stage.body.axes = {{i_, m_}, {j_, width}};
    stage.body.value = value;
    program.stages.push_back(std::move(stage));
    return program;
  }

  // The row of x that is nearest to row i of y.
  Expr nearest() const { return floordiv(i_ * n_, m_); }

  static Tensor run(const TensorProgram& program, const std::vector<Var>& symbols, std::vector<Tensor>& params,
                    const std::vector<int64_t>& values) {
    LoopProgram loops = naive_loops(program);
    loops.symbols = symbols;
    VarMap map;
    for (size_t s = 0; s < symbols.size(); ++s) map[symbols[s].get()] = Expr(values[s]);
    std::vector<int64_t> dims;
    for (const Expr& extent : program.output().out->shape) dims.push_back(*as_int(simplify(substitute(extent, map))));
    Tensor result(program.output().out->dtype, dims);
    result.mutable_bytes();
    std::vector<Tensor*> all;
    for (Tensor& param : params) all.push_back(&param);
    all.push_back(&result);
    interpret(loops, std::span<Tensor* const>(all), values);
    return result;
  }

  // Takes the tables out of the kernel and compares with what it was at several sizes.
  std::vector<PlaceTable> take(TensorProgram program) const {
    const TensorProgram before = program;
    std::vector<PlaceTable> tables = take_place_tables(program);
    EXPECT_EQ(program.params.size(), before.params.size() + tables.size());
    for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{1, 1}, {7, 3}, {3, 7}, {64, 64}, {5, 64}, {64, 5}}) {
      std::vector<Tensor> params = {Tensor(DType::kF32, {sizes[0], 16}), Tensor(DType::kF32, {sizes[0]})};
      for (Tensor& param : params)
        for (int64_t k = 0; k < param.num_elements(); ++k) param.set_double(k, static_cast<double>(k % 101) - 50);
      const Tensor want = run(before, {n_, m_}, params, sizes);
      for (const PlaceTable& table : tables) {
        std::vector<Tensor> none;
        params.push_back(run(table.program, {n_, m_}, none, sizes));
      }
      const Tensor found = run(program, {n_, m_}, params, sizes);
      EXPECT_EQ(std::memcmp(found.bytes(), want.bytes(), static_cast<size_t>(want.num_bytes())), 0)
          << to_string(program) << "\n"
          << sizes[0] << " " << sizes[1];
    }
    return tables;
  }
};

TEST_F(PlaceTables, APlaceIsFoundOnceForARow) {
  const std::vector<PlaceTable> tables = take(kernel(load(x_, {nearest(), j_})));
  ASSERT_EQ(tables.size(), 1u);
  EXPECT_EQ(tables[0].buffer->dtype, DType::kI64);
  EXPECT_EQ(to_string(tables[0].buffer->shape[0]), "m");
  EXPECT_TRUE(tables[0].program.params.empty());
}

TEST_F(PlaceTables, EqualPlacesShareATable) {
  EXPECT_EQ(take(kernel(load(x_, {nearest(), j_}) * load(w_, {nearest()}))).size(), 1u);
  const Expr next = min(nearest() + Expr(1), n_ - Expr(1));
  EXPECT_EQ(take(kernel(load(x_, {nearest(), j_}) + load(x_, {next, j_}))).size(), 1u) << "one more is no quotient";
}

TEST_F(PlaceTables, AWeightIsOneTableWithItsQuotient) {
  const Expr fraction = binary(BinaryOp::kDiv, cast(DType::kF32, floormod(i_ * n_, m_)), cast(DType::kF32, m_));
  const std::vector<PlaceTable> tables = take(kernel(load(x_, {nearest(), j_}) * fraction));
  ASSERT_EQ(tables.size(), 2u);
  EXPECT_EQ(tables[0].buffer->dtype == DType::kF32, tables[1].buffer->dtype != DType::kF32) << "a place and a weight";
}

TEST_F(PlaceTables, WhatStays) {
  EXPECT_TRUE(take(kernel(load(x_, {nearest(), 0}), 4)).empty()) << "few elements for each place";
  EXPECT_TRUE(take(kernel(load(x_, {floordiv(i_ * n_, 64), j_}))).empty()) << "a known divisor";
  EXPECT_TRUE(take(kernel(load(x_, {floormod(floordiv(i_, m_), n_), j_}))).empty()) << "an index that is split";
  EXPECT_TRUE(take(kernel(load(x_, {floormod(floordiv((i_ + j_) * n_, m_ + Expr(16)), n_), j_}))).empty())
      << "a place that depends on two axes";
}

TEST_F(PlaceTables, NoMoreThanEight) {
  Expr sum = load(w_, {nearest()});
  for (int64_t k = 1; k < 12; ++k) sum = sum + load(w_, {floordiv(i_ * n_, m_ + Expr(k))});
  EXPECT_EQ(take(kernel(sum)).size(), 8u);
}

}  // namespace
}  // namespace tessera
