// Every rule of the loop verifier: a program that breaks it is named with kernel, statement and rule.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "loop/intrinsic.h"
#include "loop/parser.h"
#include "loop/verify.h"
#include "support/error.h"

namespace tessera {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> violations(const std::string& body) {
  return verify(parse_loop_program("kernel @k<n>(x: f32[4,n], a: f32[8]) -> (y: f32[4,8]) {\n" + body + "\n}"));
}

std::string violation(const std::string& body) {
  const auto all = violations(body);
  return all.empty() ? "none" : all[0];
}

TEST(LoopVerify, LegalPrograms) {
  EXPECT_THAT(violations(R"(
    parallel for i in 0..4 {
      alloc s: f32[8,n] local
      for j in 0..8 { for k in 0..n { s[j, k] = x[i, k] } }
      unrolled for u in 0..8 { y[i, u] = s[u, n - 1] + a[7 - u] }
      vectorized for l in 2..8 { y[i, l] = a[l] }
      for b in 0..2 { for r in (b * 4)..+4 { y[i, r] = a[r] } }
      if (i + 4 < 4) { y[i + 100, 0] = 0:f32 }
      y[i, 0] = select(i > 100, a[i * 77], 0:f32)
      for never in 0..0 { y[i, never + 9] = 0:f32 }
      for some in 0..n { y[i, some + 7] = 0:f32 }
    })"),
              IsEmpty());
  EXPECT_THAT(violations(R"(
    blockIdx.y for i in 0..4 {
      blockIdx.x for j in 0..2 { threadIdx.x for l in 0..4 { y[i, j * 4 + l] = a[l] } }
    })"),
              IsEmpty());
}

TEST(LoopVerify, Structure) {
  EXPECT_THAT(
      violation("parallel for i in 0..4 { for q in 0..2 { parallel for j in 0..4 { y[i, j] = 0:f32 } } }"),
      HasSubstr("kernel k: concurrent loops: 'parallel for j in 0..+4' stands inside 'parallel for i in 0..+4'"));
  EXPECT_THAT(violation("threadIdx.x for i in 0..4 { blockIdx.x for j in 0..4 { y[i, j] = 0:f32 } }"),
              HasSubstr("'blockIdx.x for j in 0..+4' stands inside 'threadIdx.x for i in 0..+4'"));
  EXPECT_THAT(violation("threadIdx.y for i in 0..4 { threadIdx.y for j in 0..4 { y[i, j] = 0:f32 } }"),
              HasSubstr("'threadIdx.y for j in 0..+4' stands inside 'threadIdx.y for i"));
  EXPECT_THAT(violation("blockIdx.y for i in 0..4 { parallel for j in 0..4 { y[i, j] = 0:f32 } }"),
              HasSubstr("'parallel for j in 0..+4' stands inside 'blockIdx.y for i"));
  EXPECT_THAT(violation("blockIdx.z for i in 1..4 { y[i, 0] = 0:f32 }"),
              HasSubstr("'blockIdx.z for i in 1..+3' does not begin at 0"));
  EXPECT_THAT(violation("threadIdx.z for i in 0..n { y[0, 0] = 0:f32 }"),
              HasSubstr("'threadIdx.z for i in 0..+n' has no constant extent"));
  EXPECT_THAT(violation("threadIdx.z for i in 0..65 { y[0, 0] = 0:f32 }"), HasSubstr("threadIdx.z at most 64"));
  EXPECT_THAT(violation("blockIdx.y for i in 0..65536 { y[0, 0] = 0:f32 }"), HasSubstr("blockIdx.y at most 65535"));
  EXPECT_THAT(violation("blockIdx.x for i in 0..4 { threadIdx.x for j in 0..64 { y[0, 0] = 0:f32 } "
                        "threadIdx.y for k in 0..32 { y[0, 0] = 0:f32 } }"),
              HasSubstr("blocks of 'blockIdx.x for i in 0..+4' have 2048 threads, 64 x 32 x 1"));
  EXPECT_THAT(violation("blockIdx.x for i in 0..4 { blockIdx.y for j in 0..(i + 1) { y[i, 0] = 0:f32 } }"),
              HasSubstr("the extent of 'blockIdx.y for j in 0..+(i + 1)' depends on 'blockIdx.x for i"));
  EXPECT_THAT(violation("vectorized for i in 0..4 { blockIdx.y for j in 0..4 { y[i, j] = 0:f32 } }"),
              HasSubstr("'blockIdx.y for j in 0..+4' stands inside 'vectorized for i"));
  EXPECT_THAT(violation("alloc t: f32[1] register t[0] = a[0] parallel for i in 0..4 { y[i, 0] = t[0] }"),
              HasSubstr("'parallel for i in 0..+4' uses t, which is in registers of the thread outside of it"));
  EXPECT_THAT(violation("unrolled for i in 0..n { y[0, 0] = 0:f32 }"),
              HasSubstr("unrolled for i in 0..+n: unrolled loops need a constant extent"));
  EXPECT_THAT(violation("vectorized for i in 0..n { y[0, 0] = 0:f32 }"),
              HasSubstr("vectorized loops need a constant extent"));
  EXPECT_THAT(violation("alloc r: f32[n] register r[0] = 0:f32"),
              HasSubstr("alloc r: a register buffer of runtime extent n"));
  EXPECT_THAT(violation("alloc r: f32[1] global r[0] = 0:f32"), HasSubstr("an allocation in global memory"));
  EXPECT_THAT(violation("tensorized \"x86.fma.f32\" { y[0, 0] = 0:f32 }"),
              HasSubstr("tensorized x86.fma.f32: the body does not match the intrinsic: "));
}

TEST(LoopVerify, Bounds) {
  EXPECT_THAT(violation("for i in 0..5 { y[i, 0] = 0:f32 }"),
              HasSubstr("kernel k: y[i, 0] = ...: index 0 of y is 0..4, outside its extent 4"));
  EXPECT_THAT(violation("for i in 0..4 { y[i, 0] = a[i * 3 - 1] }"),
              HasSubstr("index 0 of a is -1..8, outside its extent 8"));
  EXPECT_THAT(violation("for b in 0..3 { for r in (b * 4)..+4 { y[0, r] = 0:f32 } }"),
              HasSubstr("index 1 of y is 0..11"));
  EXPECT_THAT(violation("y[0, 8] = 0:f32"), HasSubstr("index 1 of y is 8..8"));
  EXPECT_THAT(violation("for i in 0..4 { for j in 0..4 { y[i, j - i] = 0:f32 } }"), HasSubstr("index 1 of y is -3..3"));
  EXPECT_THAT(violation("for i in 0..4 { y[i, i - i] = a[i + 4 - i + i * 0] }"), HasSubstr("none"));
}

TEST(LoopVerify, ScopesAndTypesOfHandMadePrograms) {
  const BufferPtr y = make_buffer("y", DType::kF32, {4});
  const BufferPtr other = make_buffer("other", DType::kF32, {4});
  const Var i = make_var("i");
  const auto check_body = [&](Stmt body) {
    const auto all = verify(LoopProgram{"k", {y}, 1, {}, std::move(body)});
    return all.empty() ? std::string("none") : all[0];
  };
  const Stmt zero = store(y, {i}, const_float(DType::kF32, 0));
  EXPECT_EQ(check_body(for_loop(i, 0, 4, ForKind::kSerial, zero)), "none");
  EXPECT_THAT(check_body(zero), HasSubstr("y[i] = ...: variable i is used outside its loop"));
  EXPECT_THAT(check_body(store(other, {0}, const_float(DType::kF32, 0))),
              HasSubstr("buffer other is used outside its allocation"));
  EXPECT_THAT(check_body(store(y, {0}, load(other, {0}))), HasSubstr("buffer other is used outside its allocation"));
  const Stmt loop = for_loop(i, 0, 4, ForKind::kSerial, zero);
  EXPECT_THAT(check_body(seq({loop, loop})), HasSubstr("variable i is defined more than once"));
  EXPECT_THAT(check_body(for_loop(i, 0, 4, ForKind::kSerial, loop)), HasSubstr("variable i is defined more than once"));
  const Stmt block = alloc(make_buffer("t", DType::kF32, {1}, MemoryScope::kLocal), seq({}));
  EXPECT_THAT(check_body(seq({block, block})), HasSubstr("buffer t is defined more than once"));
  EXPECT_THAT(check_body(for_loop(make_var("j", DType::kI32), 0, 4, ForKind::kSerial, seq({}))),
              HasSubstr("variable j is i32 instead of i64"));
  EXPECT_THAT(check_body(for_loop(i, const_int(DType::kI32, 0), 4, ForKind::kSerial, seq({}))),
              HasSubstr("the range is not i64"));
  EXPECT_THAT(check_body(Stmt()), HasSubstr("the kernel has no body"));
  EXPECT_THAT(check_body(tensorized(nullptr, loop)), HasSubstr("no intrinsic"));

  auto node = std::make_shared<StmtNode>(*zero.get());
  node->value = const_int(DType::kI64, 0);
  EXPECT_THAT(check_body(for_loop(i, 0, 4, ForKind::kSerial, Stmt(node))),
              HasSubstr("a value of type i64 is stored to y of type f32"));
  node = std::make_shared<StmtNode>(*zero.get());
  node->indices = {};
  EXPECT_THAT(check_body(for_loop(i, 0, 4, ForKind::kSerial, Stmt(node))),
              HasSubstr("y has 1 dimensions but 0 indices"));
  node = std::make_shared<StmtNode>(*if_then(i < Expr(3), zero).get());
  node->condition = i;
  EXPECT_THAT(check_body(for_loop(i, 0, 4, ForKind::kSerial, Stmt(node))), HasSubstr("the condition is not bool"));

  LoopProgram program{"k", {make_buffer("y", DType::kF32, {4}, MemoryScope::kLocal)}, 1, {}, seq({})};
  EXPECT_THAT(verify(program)[0], HasSubstr("parameter y: a parameter is not in global memory"));
  program = {"k", {y}, 2, {}, seq({})};
  EXPECT_THAT(verify(program)[0], HasSubstr("2 outputs of 1 parameters"));
  program = {"k", {y, y}, 1, {}, seq({})};
  EXPECT_THAT(verify(program)[0], HasSubstr("buffer y is defined more than once"));
}

TEST(LoopVerify, Prefetch) {
  const BufferPtr y = make_buffer("y", DType::kF32, {4});
  const BufferPtr index = make_buffer("index", DType::kI64, {4});
  const BufferPtr other = make_buffer("other", DType::kF32, {4});
  const Var i = make_var("i");
  const Stmt loop = for_loop(i, 0, 4, ForKind::kSerial, store(y, {i}, const_float(DType::kF32, 0)));
  const auto violations = [&](const Stmt& body) { return verify(LoopProgram{"k", {index, y}, 1, {}, body}); };
  EXPECT_THAT(violations(prefetching(loop, y, {i * 100 - 50})), testing::IsEmpty());
  EXPECT_THAT(violations(prefetching(loop, other, {i})), testing::ElementsAre(HasSubstr("a prefetch of other")));
  EXPECT_THAT(violations(prefetching(loop, y, {load(index, {i})})),
              testing::ElementsAre(HasSubstr("a prefetch whose index loads")));
}

TEST(LoopVerify, ThrowsNamingThePass) {
  const LoopProgram program = parse_loop_program("kernel @k() -> (y: f32[1]) { y[1] = 0:f32 }");
  try {
    verify_or_throw(program, "partition_loops");
    FAIL();
  } catch (const InternalError& error) {
    EXPECT_THAT(
        error.what(),
        HasSubstr("after partition_loops:\n  kernel k: y[1] = ...: index 0 of y is 1..1, outside its extent 1"));
  }
}

}  // namespace
}  // namespace tessera
