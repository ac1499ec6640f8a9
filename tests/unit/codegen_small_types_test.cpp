// Elements of a byte and less, from every pattern and into every pattern, against the interpreter, bit for bit; and
// stores of parts of bytes, by several threads and masked lanes.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "codegen_harness.h"
#include "loop/parser.h"

namespace tessera {
namespace {

const std::vector<DType> kSmall = {DType::kF8E4M3FN, DType::kF8E4M3FNUZ, DType::kF8E5M2, DType::kF8E5M2FNUZ,
                                   DType::kF8E8M0,   DType::kF4E2M1,     DType::kI4,     DType::kU4,
                                   DType::kI2,       DType::kU2};
const std::vector<DType> kWide = {DType::kF64, DType::kF32, DType::kF16, DType::kBF16, DType::kI64,
                                  DType::kI32, DType::kI16, DType::kI8,  DType::kU64,  DType::kU32,
                                  DType::kU16, DType::kU8,  DType::kBool};

// The element's bits as an integer of the same width, so that NaNs and signs of zeros are compared too.
Expr as_bits(const Expr& e) {
  if (!is_float(e.dtype())) return e;
  switch (dtype_bits(e.dtype())) {
    case 4: return bitcast(DType::kU4, e);
    case 8: return bitcast(DType::kU8, e);
    default: return e;
  }
}

// y = cast of x to every type in `types`, in vectors and in scalars.
void expect_casts(const Tensor& x, const std::vector<DType>& types) {
  const int64_t n = x.num_elements();
  const Var i = make_var("i");
  LoopProgram loops;
  loops.name = "casts_of_" + std::string(dtype_name(x.dtype()));
  loops.params = {make_buffer("x", x.dtype(), {Expr(n)})};
  std::vector<Stmt> stmts;
  for (const DType to : types)
    for (const ForKind kind : {ForKind::kVectorized, ForKind::kSerial})
      for (const bool bits : {false, true}) {
        const Expr cast_to = cast(to, load(loops.params[0], {i}));
        const Expr result = bits ? as_bits(cast_to) : cast_to;
        if (bits && result.same_node(cast_to)) continue;
        loops.params.push_back(make_buffer("y" + std::to_string(stmts.size()), result.dtype(), {Expr(n)}));
        stmts.push_back(for_loop(i, 0, n, kind, store(loops.params.back(), {i}, result)));
      }
  loops.num_outputs = static_cast<int>(stmts.size());
  loops.body = seq(stmts);
  expect_agrees(loops, {x}, 0);
}

TEST(CodegenSmallTypes, EveryPatternToEveryType) {
  for (const DType from : kSmall) {
    const int64_t n = int64_t{1} << dtype_bits(from);
    Tensor x(from, {n + 1});  // an odd number of elements; the last one is the first pattern
    for (int64_t k = 0; k < n; ++k) {
      if (is_int(from)) x.set_int(k, k);
      else if (dtype_bits(from) == 8) x.as_mutable<uint8_t>()[static_cast<size_t>(k)] = static_cast<uint8_t>(k);
      else x.as_mutable<uint8_t>()[static_cast<size_t>(k / 2)] |= static_cast<uint8_t>(k << (4 * (k % 2)));
    }
    std::vector<DType> types = kWide;
    types.insert(types.end(), kSmall.begin(), kSmall.end());
    expect_casts(x, types);
  }
}

// Every number of a small float, half the way to the next one, a little beside that, and what is out of range.
TEST(CodegenSmallTypes, FloatsRoundToEveryPattern) {
  std::vector<double> values = {0.0,
                                -0.0,
                                INFINITY,
                                -INFINITY,
                                std::nan(""),
                                1e300,
                                -1e300,
                                3.4e38,
                                -3.4e38,
                                1e-300,
                                1e-45,
                                std::ldexp(1.0, -126),
                                std::ldexp(1.0, -127),
                                std::ldexp(1.5, -127),
                                std::ldexp(1.0, 127),
                                std::ldexp(1.0, 128),
                                std::ldexp(1.5, 127)};
  for (const DType dtype : kSmall) {
    if (!is_float(dtype)) continue;
    const int codes = 1 << dtype_bits(dtype);
    for (int code = 0; code < codes; ++code) {
      const double value = decode_float(dtype, static_cast<uint32_t>(code));
      const double next = decode_float(dtype, static_cast<uint32_t>((code + 1) % codes));
      const double middle = (value + next) / 2;
      for (const double v : {value, middle, middle * (1 + 1e-7), middle * (1 - 1e-7), middle * (1 + 1e-15)})
        if (std::isfinite(v)) values.push_back(v);
    }
  }
  for (const DType from : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16}) {
    Tensor x(from, {static_cast<int64_t>(values.size())});
    for (size_t k = 0; k < values.size(); ++k) x.set_double(static_cast<int64_t>(k), values[k]);
    expect_casts(x, kSmall);
  }
}

TEST(CodegenSmallTypes, IntegersToEveryPattern) {
  for (const DType from : {DType::kI64, DType::kI32, DType::kI8, DType::kU8, DType::kU64, DType::kBool}) {
    std::vector<int64_t> values = {std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()};
    for (int64_t v = -300; v <= 300; ++v) values.push_back(v);
    for (int bit = 8; bit < 63; ++bit) values.push_back((int64_t{1} << bit) + 1);
    Tensor x(from, {static_cast<int64_t>(values.size())});
    for (size_t k = 0; k < values.size(); ++k) x.set_int(static_cast<int64_t>(k), values[k]);
    expect_casts(x, kSmall);
  }
}

// Arithmetic that the interpreter defines for them, though operators widen first.
TEST(CodegenSmallTypes, Arithmetic) {
  for (const DType dtype : kSmall) {
    if (dtype == DType::kF8E8M0) continue;  // rounds up, which is not arithmetic in f32 rounded once more
    const int64_t n = int64_t{1} << dtype_bits(dtype);
    const Var i = make_var("i");
    const Var j = make_var("j");
    LoopProgram loops;
    loops.name = "small";
    loops.params = {make_buffer("x", dtype, {Expr(n)})};
    const Expr a = load(loops.params[0], {i});
    const Expr b = load(loops.params[0], {j});
    std::vector<Stmt> stmts;
    std::vector<BinaryOp> ops = {BinaryOp::kAdd, BinaryOp::kSub, BinaryOp::kMul, BinaryOp::kDiv,
                                 BinaryOp::kMin, BinaryOp::kMax, BinaryOp::kLt,  BinaryOp::kEq};
    if (is_int(dtype)) ops.insert(ops.end(), {BinaryOp::kRem, BinaryOp::kFloorMod, BinaryOp::kXor, BinaryOp::kShr});
    for (const BinaryOp op : ops) {
      const Expr result = binary(op, a, b);
      loops.params.push_back(make_buffer("y" + std::to_string(stmts.size()), result.dtype(), {Expr(n), Expr(n)}));
      stmts.push_back(for_loop(i, 0, n, ForKind::kSerial,
                               for_loop(j, 0, n, ForKind::kVectorized, store(loops.params.back(), {i, j}, result))));
    }
    loops.num_outputs = static_cast<int>(stmts.size());
    loops.body = seq(stmts);
    Tensor x(dtype, {n});
    for (int64_t k = 0; k < n; ++k) {
      if (is_int(dtype)) x.set_int(k, k);
      else if (dtype_bits(dtype) == 8) x.as_mutable<uint8_t>()[static_cast<size_t>(k)] = static_cast<uint8_t>(k);
      else x.set_double(k, decode_float(dtype, static_cast<uint32_t>(k)));
    }
    expect_agrees(loops, {x}, 0);
  }
}

// Neighbours in a byte are stored by different threads, at odd places, backwards, in steps and under masks.
TEST(CodegenSmallTypes, StoresKeepTheirNeighbours) {
  for (const char* type : {"i4", "u2", "f4e2m1"}) {
    std::string text = R"(kernel @k(x: T[31,37]) -> (y: T[31,37], t: T[37,31], r: T[31,37], m: T[31,41]) {
      parallel for i in 0..31 { vectorized for j in 0..37 { y[i, j] = x[i, j] } }
      parallel for i2 in 0..37 { vectorized for j2 in 0..31 { t[i2, j2] = x[j2, i2] } }
      parallel for i3 in 0..31 { for j3 in 0..37 { r[i3, (36 - j3)] = x[i3, j3] } }
      parallel for i4 in 0..31 {
        vectorized for j4 in 0..41 { m[i4, j4] = select((j4 < 37), x[i4, min(j4, 36)], x[i4, 3]) }
      }
    })";
    for (size_t at; (at = text.find("T[")) != std::string::npos;) text.replace(at, 1, type);
    std::mt19937 random(3);
    const LoopProgram loops = parse_loop_program(text);
    expect_agrees(loops, {random_tensor(loops.params[0]->dtype, {31, 37}, random)}, 0);
  }
}

// Reductions in vectors begin with what changes nothing, which is no infinity in types that have none.
TEST(CodegenSmallTypes, ReductionsAndFunctions) {
  for (const char* type : {"f8e4m3fn", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz", "f4e2m1", "f8e8m0", "f16", "bf16"}) {
    std::string text =
        R"(kernel @k(x: T[41]) -> (least: T[1], most: T[1], y: T[41], z: T[41], s: T[41], u: T[41], w: T[41]) {
      least[0] = x[0]
      most[0] = x[0]
      vectorized for j in 0..40 { least[0] = min(least[0], x[(j + 1)]) }
      vectorized for j in 0..40 { most[0] = max(most[0], x[(j + 1)]) }
      vectorized for j in 0..41 { y[j] = exp(x[j]) }
      vectorized for j in 0..41 { z[j] = tanh(x[j]) }
      vectorized for j in 0..41 { s[j] = pow(abs(x[j]), 0.5:T) }
      vectorized for j in 0..41 { u[j] = erf(x[j]) }
      vectorized for j in 0..41 { w[j] = abs(neg(x[j])) } })";
    for (size_t at; (at = text.find("T[")) != std::string::npos;) text.replace(at, 1, type);
    for (size_t at; (at = text.find(":T)")) != std::string::npos;) text.replace(at + 1, 1, type);
    std::mt19937 random(7);
    const LoopProgram loops = parse_loop_program(text);
    Tensor x = random_tensor(loops.params[0]->dtype, {41}, random);
    for (int64_t i = 0; i < 41; ++i)
      if (!std::isfinite(x.get_double(i))) x.set_double(i, 1);
    expect_agrees(loops, {x}, 0);
  }
  // Zeros without a sign.
  expect_agrees(R"(kernel @k(n: i32[16]) -> (y: f32[16], z: f32[16]) {
    for j in 0..16 { y[j] = 1:f32 / cast:f32(neg(cast:f8e4m3fnuz(n[j] * 0:i32))) }
    vectorized for j in 0..16 { z[j] = 1:f32 / cast:f32(neg(cast:f8e5m2(n[j] * 0:i32))) } })");
}

// What is behind the last element is 0.
TEST(CodegenSmallTypes, PaddingIsZero) {
  const LoopProgram loops = parse_loop_program(
      "kernel @k(x: i32[7]) -> (y: i4[7], z: u2[7]) {\n"
      "vectorized for i in 0..7 { y[i] = cast:i4(x[i]) }\nfor j in 0..7 { z[j] = cast:u2(x[j]) } }");
  Tensor x(DType::kI32, {7});
  for (int64_t k = 0; k < 7; ++k) x.set_int(k, -1);
  const std::vector<Tensor> got = NativeModule(program_of(loops), native_target()).run({x});
  EXPECT_EQ(std::to_integer<int>(got[0].bytes()[2]), 0xff);
  EXPECT_EQ(std::to_integer<int>(got[0].bytes()[3]), 0x0f);
  EXPECT_EQ(std::to_integer<int>(got[1].bytes()[0]), 0xff);
  EXPECT_EQ(std::to_integer<int>(got[1].bytes()[1]), 0x3f);
}

}  // namespace
}  // namespace tessera
