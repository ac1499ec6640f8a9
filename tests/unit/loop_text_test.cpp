// The text form of loop programs: what it looks like, that it round-trips, and what each mistake is told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "arith/expr_parser.h"
#include "loop/intrinsic.h"
#include "loop/parser.h"
#include "loop/printer.h"
#include "support/error.h"

namespace tessera {
namespace {

constexpr const char* kConv = R"(kernel @conv_0<n>(x: f32[1,4,n,16], w: f32[64,2,16]) -> (y: f32[224,2,14,16]) {
  parallel for t in 0..224 {
    alloc acc: f32[2,14,16] register
    unrolled for v in 0..2 { unrolled for p in 0..14 { vectorized for l in 0..16 { acc[v, p, l] = 0:f32 } } }
    for k in 0..64 {
      tensorized "x86.avx512.fma.f32" {
        unrolled for v_1 in 0..2 {
          unrolled for p_1 in 0..14 {
            vectorized for l_1 in 0..16 {
              acc[v_1, p_1, l_1] = fma(x[0, 0, (p_1 + t), floormod(k, 16)], w[k, v_1, l_1], acc[v_1, p_1, l_1])
            }
          }
        }
      }
    }
    if ((t < 3) & (0 <= t)) {
      for p_2 in 2..14 { y[t, 0, p_2, 0] = max(acc[0, p_2, 0], -0.1:f32) }
    } else {
      for p_3 in (t * 2)..+(n - 1) { y[t, 0, p_3, 0] = select(isnan(acc[1, p_3, 0]), 1e+20:f32, cast:f32(t)) }
      for q in 0..0 {
      }
    }
  }
}
)";

TEST(LoopText, RoundTripIsIdentical) {
  const LoopProgram program = parse_loop_program(kConv);
  EXPECT_EQ(program.params.size(), 3u);
  EXPECT_EQ(program.num_outputs, 1);
  EXPECT_EQ(program.symbols.size(), 1u);
  EXPECT_EQ(print(program), kConv);
}

TEST(LoopText, LoopsThatPrefetchRoundTrip) {
  const char* text = R"(kernel @k(x: f32[4,8]) -> (y: f32[4,8]) {
  for i in 0..4 prefetch x[(i + 1), 0] { for j in 0..8 { y[i, j] = x[i, j] } }
}
)";
  const LoopProgram program = parse_loop_program(text);
  ASSERT_EQ(program.body->buffer, program.params[0]);
  EXPECT_EQ(print(program), text);
}

TEST(LoopText, AllocationLivesToTheEndOfItsBraces) {
  const char* text = R"(kernel @k(x: f32[4]) -> (y: f32[4]) {
  {
    alloc a: f32[4] local
    a[0] = x[0]
    y[0] = a[0]
  }
  alloc b: f32[1] register
  alloc c: f32[1] register
  b[0] = x[1]
  y[1] = b[0]
}
)";
  const LoopProgram program = parse_loop_program(text);
  ASSERT_EQ(program.body->kind, StmtKind::kSeq);
  ASSERT_EQ(program.body->stmts.size(), 2u);
  EXPECT_EQ(program.body->stmts[0]->kind, StmtKind::kAlloc);
  EXPECT_EQ(program.body->stmts[1]->stmts[0]->kind, StmtKind::kAlloc);
  EXPECT_EQ(print(program), text);
}

TEST(LoopText, ChainsOfConditions) {
  const char* text = R"(kernel @k(x: f32[4]) -> (y: f32[4]) {
  for i in 0..4 {
    if (i < 1) {
      y[i] = 0:f32
    } else if (i < 2) {
      y[i] = 1:f32
    } else if (i < 3) {
    } else {
      y[i] = x[i]
      if (x[i] < 0:f32) {
        y[i] = 2:f32
      }
    }
  }
}
)";
  EXPECT_EQ(print(parse_loop_program(text)), text);
}

TEST(LoopText, DuplicateAndOddNamesAreMadeUnique) {
  const BufferPtr x = make_buffer("/model/x.0", DType::kF32, {4});
  const BufferPtr y = make_buffer("for", DType::kF32, {4});
  const Var i = make_var("i");
  const Var j = make_var("i");
  LoopProgram program;
  program.name = "odd name";
  program.params = {x, y};
  const auto nest = [&](const Var& v) { return for_loop(v, 0, 4, ForKind::kSerial, store(y, {v}, load(x, {v}))); };
  program.body = seq({nest(i), nest(j), nest(i)});  // the last defines the same variable again
  const std::string text = print(program);
  EXPECT_EQ(text, R"(kernel @"odd name"(_model_x_0: f32[4]) -> (for_1: f32[4]) {
  for i in 0..4 { for_1[i] = _model_x_0[i] }
  for i_1 in 0..4 { for_1[i_1] = _model_x_0[i_1] }
  for i_2 in 0..4 { for_1[i_2] = _model_x_0[i_2] }
}
)");
  EXPECT_EQ(print(parse_loop_program(text)), text);
}

TEST(LoopText, SharedSubexpressionsAreNamedAndStayShared) {
  const BufferPtr x = make_buffer("x", DType::kF32, {4});
  const BufferPtr y = make_buffer("y", DType::kF32, {4});
  Expr e = load(x, {0});
  for (int i = 0; i < 40; ++i) e = e * e + e;  // 2^40 nodes and more when printed as a tree
  LoopProgram program;
  program.name = "k";
  program.params = {x, y};
  program.body = store(y, {0}, e);
  const std::string text = print(program);
  EXPECT_LT(text.size(), 4000u);
  EXPECT_THAT(text, testing::HasSubstr("let $0 = "));
  EXPECT_EQ(print(parse_loop_program(text)), text);
}

TEST(LoopText, DeepExpressionsRoundTrip) {
  const BufferPtr x = make_buffer("x", DType::kF32, {4});
  const BufferPtr y = make_buffer("y", DType::kF32, {4});
  Expr e = load(x, {0});
  for (int i = 0; i < 2000; ++i) e = unary(UnaryOp::kTanh, e);
  LoopProgram program{"k", {x, y}, 1, {}, store(y, {1}, e)};
  const std::string text = print(program);
  EXPECT_EQ(print(parse_loop_program(text)), text);
}

TEST(LoopText, ConstantsKeepTheirBits) {
  const BufferPtr y = make_buffer("y", DType::kF32, {});
  std::mt19937 random(7);
  for (int i = 0; i < 2000; ++i) {
    const uint32_t bits = random();
    float value;
    std::memcpy(&value, &bits, 4);
    if (std::isnan(value)) continue;
    LoopProgram program{"k", {y}, 1, {}, store(y, {}, const_float(DType::kF32, value))};
    const LoopProgram back = parse_loop_program(print(program));
    EXPECT_EQ(static_cast<float>(back.body->value->float_value), value) << print(program);
    EXPECT_EQ(std::signbit(back.body->value->float_value), std::signbit(value));
  }
}

TEST(LoopText, PrecedenceWithoutParentheses) {
  const LoopProgram program = parse_loop_program(
      "kernel @k(x: i64[99]) -> (y: i64[99]) { // a comment\n"
      "  for i in 0..3 { y[i * 4 + 1 - 2] = select(i + 1 < 3 & i >= 1 | i == 0, x[i]*2 - 1, -3) }\n}");
  EXPECT_THAT(print(program),
              testing::HasSubstr("y[(((i * 4) + 1) - 2)] = select(((((i + 1) < 3) & (i >= 1)) | (i == 0)), "
                                 "((x[i] * 2) - 1), -3)"));
}

struct Mistake {
  const char* name;
  const char* body;
  const char* id;
  const char* place;
  const char* message;
};
void PrintTo(const Mistake& mistake, std::ostream* out) { *out << mistake.name; }

class LoopTextMistake : public testing::TestWithParam<Mistake> {};

TEST_P(LoopTextMistake, IsTold) {
  const Mistake& mistake = GetParam();
  const std::string text =
      std::string("kernel @k(x: f32[4], i8s: i8[2]) -> (y: f32[4]) {\n  ") + mistake.body + "\n}\n";
  try {
    parse_loop_program(text, "k.loop");
    FAIL() << "accepted: " << text;
  } catch (const UserError& error) {
    EXPECT_EQ(error.diagnostic().id, mistake.id) << error.what();
    EXPECT_EQ(error.diagnostic().node, std::string("k.loop:") + mistake.place) << error.what();
    EXPECT_THAT(error.diagnostic().message, testing::HasSubstr(mistake.message));
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, LoopTextMistake,
    testing::Values(
        Mistake{"Buffer", "z[0] = 0:f32", "TSR-3102", "2:3", "no buffer 'z'"},
        Mistake{"Variable", "y[i] = 0:f32", "TSR-3102", "2:5", "no variable 'i'"},
        Mistake{"Function", "y[0] = frob(x[0])", "TSR-3102", "2:10", "no function 'frob'"},
        Mistake{"LoadOf", "y[0] = q[0]", "TSR-3102", "2:10", "no buffer 'q'"},
        Mistake{"OutOfScope", "for i in 0..4 { } y[i] = 0:f32", "TSR-3102", "2:23", "no variable 'i'"},
        Mistake{"Rank", "y[0, 1] = 0:f32", "TSR-3103", "2:3", "1 dimensions, found 2 indices"},
        Mistake{"LoadRank", "y[0] = x[0, 1]", "TSR-3103", "2:10", "1 dimensions, found 2 indices"},
        Mistake{"Arity", "y[0] = fma(x[0], x[1])", "TSR-3103", "2:10", "takes 3 operands, found 2"},
        Mistake{"NoIndex", "y[0] = x", "TSR-3103", "2:10", "without indices"},
        Mistake{"Float", "y[0] = 0.5", "TSR-3104", "2:10", "0.5 is no constant of type i64"},
        Mistake{"SmallInt", "i8s[0] = 300:i8", "TSR-3104", "2:12", "300 is no constant of type i8"},
        Mistake{"Huge", "y[0] = cast:f32(99999999999999999999)", "TSR-3104", "2:19", "no constant of type i64"},
        Mistake{"MixedTypes", "y[0] = x[0] + 1", "TSR-3105", "2:10", "operands of add are f32 and i64"},
        Mistake{"NoSuchOp", "y[0] = floordiv(x[0], x[0])", "TSR-3105", "2:10", "floordiv does not exist on f32"},
        Mistake{"FloatIndex", "y[0:f32] = 0:f32", "TSR-3105", "2:5", "an index or dimension is f32"},
        Mistake{"Select", "y[0] = select(1, x[0], x[0])", "TSR-3105", "2:10", "select of i64, f32 and f32"},
        Mistake{"Bitcast", "y[0] = bitcast:f32(1:i8)", "TSR-3105", "2:10", "bitcast from i8 to f32"},
        Mistake{"HugeShape", "alloc a: f32[9999999999,9999999999] local", "TSR-3106", "2:15", "too many elements"},
        Mistake{"Negative", "alloc a: f32[-1] local", "TSR-3106", "2:15", "negative"},
        Mistake{"ElementType", "alloc a: f33[1] local", "TSR-3107", "2:12", "'f33' is no element type"},
        Mistake{"Keyword", "for if in 0..3 { }", "TSR-3121", "2:7", "'if' is a word of the language"},
        Mistake{"Redefined", "for x in 0..3 { }", "TSR-3122", "2:7", "'x' is defined already"},
        Mistake{"RedefinedAlloc", "alloc y: f32[1] local", "TSR-3122", "2:9", "'y' is defined already"},
        Mistake{"Value", "y[0] = 1", "TSR-3124", "2:3", "a value of type i64 is stored to 'y' of type f32"},
        Mistake{"Condition", "if (x[0]) { }", "TSR-3124", "2:6", "the condition of if is f32"},
        Mistake{"Range", "for i in 0..x[0] { }", "TSR-3124", "2:15", "the range of a loop is f32"},
        Mistake{"Intrinsic", "tensorized \"x87.fma\" { }", "TSR-3125", "2:14", "no tensor intrinsic 'x87.fma'"},
        Mistake{"OpenRange", "for i in 0..4 { for j in i..4 { } }", "TSR-3126", "2:31", "constant begin and end"},
        Mistake{"PrefetchOf", "for i in 0..4 prefetch q[i] { }", "TSR-3102", "2:26", "no buffer 'q'"},
        Mistake{"PrefetchRank", "for i in 0..4 prefetch x[i, i] { }", "TSR-3103", "2:26", "1 dimensions, found 2"},
        Mistake{"PrefetchParallel", "parallel for i in 0..4 prefetch x[i] { }", "TSR-3126", "2:35", "only serial"},
        Mistake{"Unclosed", "for i in 0..4 {", "TSR-3001", "4:1", "expected a statement, found the end"},
        Mistake{"Scope", "alloc a: f32[1] heap", "TSR-3001", "2:19", "expected local or register"},
        Mistake{"NoScope", "alloc a: f32[1]\n  a[0] = 0:f32", "TSR-3001", "2:9", "expected local or register behind"},
        Mistake{"Garbage", "y[0] = \x01", "TSR-3001", "2:10", "expected an expression"}),
    [](const auto& info) { return info.param.name; });

TEST(LoopText, NestingIsLimited) {
  std::string text = "kernel @k() -> (y: f32[1]) { y[0] = ";
  for (int i = 0; i < 100000; ++i) text += "exp(";
  EXPECT_THROW(parse_loop_program(text), UserError);
  text = "kernel @k() -> (y: f32[1]) { ";
  for (int i = 0; i < 100000; ++i) text += "if (true) {";
  EXPECT_THROW(parse_loop_program(text), UserError);
  text = "kernel @k(b: bool[1]) -> (y: f32[1]) { if b[0] { }";
  for (int i = 0; i < 100000; ++i) text += " else if b[0] { }";
  EXPECT_THROW(parse_loop_program(text + "}"), UserError);
  text = "kernel @k() -> (y: f32[1]) { y[0] = ";
  for (int i = 0; i < 100000; ++i) text += "(";
  EXPECT_THROW(parse_loop_program(text), UserError);
}

// Whatever the bytes are, the answer is a program or a UserError.
TEST(LoopText, DamagedTextNeverCrashes) {
  std::mt19937 random(1);
  const std::string good = kConv;
  int accepted = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string text = good;
    for (int edits = 1 + static_cast<int>(random() % 4); edits > 0; --edits) {
      const size_t at = random() % text.size();
      switch (random() % 4) {
        case 0: text[at] = static_cast<char>(random()); break;
        case 1: text.erase(at, 1 + random() % 20); break;
        case 2: text.insert(at, good.substr(random() % good.size(), random() % 20)); break;
        default: text.resize(at); break;
      }
      if (text.empty()) text = " ";
    }
    try {
      const LoopProgram program = parse_loop_program(text);
      const std::string printed = print(program);
      EXPECT_EQ(print(parse_loop_program(printed)), printed);
      ++accepted;
    } catch (const UserError& error) {
      EXPECT_THAT(error.diagnostic().id, testing::StartsWith("TSR-3"));
    }
  }
  EXPECT_GT(accepted, 10);
}

TEST(Intrinsics, BestForTarget) {
  Target target;
  target.triple = "x86_64-unknown-linux-gnu";
  EXPECT_EQ(best_fma_intrinsic(target, DType::kF32)->name, "x86.sse.mul_add.f32");
  target.features = {"avx", "avx2", "fma"};
  EXPECT_EQ(best_fma_intrinsic(target, DType::kF32)->name, "x86.fma.f32");
  EXPECT_EQ(best_fma_intrinsic(target, DType::kF64)->lanes, 4);
  target.features.insert("avx512f");
  EXPECT_EQ(best_fma_intrinsic(target, DType::kF32)->name, "x86.avx512.fma.f32");
  EXPECT_EQ(best_fma_intrinsic(target, DType::kF32)->registers, 32);
  EXPECT_EQ(best_fma_intrinsic(target, DType::kI32), nullptr);
  target = {};
  target.triple = "aarch64-unknown-linux-gnu";
  EXPECT_EQ(best_fma_intrinsic(target, DType::kF32)->name, "aarch64.neon.fma.f32");
}

std::string match(const std::string& nest) {
  const LoopProgram program = parse_loop_program(
      "kernel @k(a: f32[64,14], b: f32[64,2,8], big: f32[64,14,16], d: f64[16]) -> (y: f32[1]) {\n"
      "  alloc acc: f32[2,14,8] register\n  alloc mem: f32[2,14,8] local\n  for k in 0..64 {" +
      nest + "}\n}");
  return match_intrinsic(*find_intrinsic("x86.fma.f32"), program.body->stmts[0]->stmts[0]->stmts[0]);
}

TEST(Intrinsics, PatternMatch) {
  const std::string good =
      "unrolled for v in 0..2 { unrolled for p in 0..14 { vectorized for l in 0..8 { "
      "acc[v, p, l] = fma(a[k, p], b[k, v, l], acc[v, p, l]) } } }";
  EXPECT_EQ(match(good), "");
  const auto with = [&](std::string from, const std::string& to) {
    std::string text = good;
    for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
      text.replace(at, from.size(), to);
    return match(text);
  };
  EXPECT_THAT(with("0..8", "0..4"), testing::HasSubstr("is 4, where the pattern has 8"));
  EXPECT_THAT(with("unrolled for p", "for p"), testing::HasSubstr("loop p is serial, and unrolled in the pattern"));
  EXPECT_EQ(with("0..14", "1..14"), "");
  EXPECT_THAT(with("v in 0..2", "v in 1..2"), testing::HasSubstr("loop v does not run from 0"));
  EXPECT_THAT(with("acc[", "mem["), testing::HasSubstr("mem is not in registers"));
  EXPECT_EQ(with("acc[v, p, l] =", "acc[v, p, l + 0 * k + k - k] ="), "") << "the same element, said otherwise";
  EXPECT_THAT(with("acc[v, p, l]", "acc[v, 0, l]"), testing::HasSubstr("places of c would meet"));
  EXPECT_THAT(with("a[k, p]", "acc[v, p, l]"), testing::HasSubstr("two different buffers"));
  EXPECT_EQ(with("a[k, p]", "b[k, v, l]"), "") << "a square";
  EXPECT_THAT(with("b[k, v, l]", "big[k, v, l * 2]"), testing::HasSubstr("bl would be 2; 0 to 1 are legal"));
  EXPECT_THAT(with("b[k, v, l]", "big[k, v, floormod(l, 3)]"), testing::HasSubstr("not affine in l"));
  EXPECT_THAT(with("a[k, p]", "1:f32"), testing::HasSubstr("'1:f32' stands where the pattern has 'a["));
  EXPECT_THAT(with("fma(a[k, p], b[k, v, l], acc[v, p, l])", "a[k, p]"),
              testing::HasSubstr("stands where the pattern has 'fma(a["));
  EXPECT_THAT(with("acc[v, p, l])", "acc[v, p, 0])"), testing::HasSubstr("the step of l through acc is 0"));
}

}  // namespace
}  // namespace tessera
