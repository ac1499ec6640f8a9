// Loop passes on random programs: every pass, and the passes one after the other, keep all values and legality.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <iostream>
#include <random>

#include "interp/loop_interp.h"
#include "loop/fresh.h"
#include "loop/parser.h"
#include "loop/printer.h"
#include "loop/verify.h"
#include "loop_passes/pass.h"
#include "loop_passes/simplify_loops.h"

namespace tessera {
namespace {

constexpr int64_t kSize = 48;

// Random nests over x: i64[48] -> y: i64[48]; indices are brought into range, so that every program is legal.
class Generator {
 public:
  explicit Generator(unsigned seed)
      : random_(seed), x_(make_buffer("x", DType::kI64, {kSize})), y_(make_buffer("y", DType::kI64, {kSize})) {}

  LoopProgram program() {
    LoopProgram program{"random", {x_, y_}, 1, {}, {}};
    std::vector<Stmt> stmts;
    for (int64_t count = 1 + pick(2); count > 0; --count) stmts.push_back(loop(3, true));
    program.body = seq(std::move(stmts));
    return program;
  }

 private:
  int64_t pick(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }

  Stmt loop(int depth, bool outermost) {
    static constexpr int64_t kExtents[] = {0, 1, 2, 3, 5, 8, 9, 16};
    ForKind kind = ForKind::kSerial;
    if (outermost && pick(3) == 0) kind = ForKind::kParallel;
    else if (depth <= 1)
      kind = std::vector{ForKind::kSerial, ForKind::kUnrolled, ForKind::kVectorized}[static_cast<size_t>(pick(3))];
    const Var var = make_var(std::string(1, static_cast<char>('i' + vars_.size())));
    const int64_t begin = pick(3) == 0 ? pick(5) : 0;
    Expr start = begin;
    Expr extent = kExtents[pick(8)];
    if (kind == ForKind::kSerial && !vars_.empty() && pick(4) == 0) {
      start = affine();
      if (pick(2)) extent = min(extent, Expr(6) - vars_.back());
    }
    vars_.push_back(var);
    // One parallel iteration must not see another's stores: such loops only store where they alone store.
    const bool was_parallel = parallel_;
    parallel_ = parallel_ || kind == ForKind::kParallel;
    std::vector<Stmt> stmts;
    for (int64_t count = 1 + pick(2); count > 0; --count) stmts.push_back(statement(depth - 1));
    parallel_ = was_parallel;
    vars_.pop_back();
    return for_loop(var, start, extent, kind, seq(std::move(stmts)));
  }

  Stmt statement(int depth) {
    const int64_t choice = pick(8);
    if (depth > 0 && choice < 4) return loop(depth, false);
    if (choice == 4) return if_then(condition(2), statement(depth), pick(2) ? statement(depth) : Stmt());
    if (choice == 5) {
      const BufferPtr t = make_buffer("t", DType::kI64, {2}, MemoryScope::kLocal);
      return alloc(t, seq({store(t, {0}, value(2)), store(t, {1}, value(2)), put(load(t, {floormod(affine(), 2)}))}));
    }
    return put(value(3));
  }

  Stmt put(const Expr& value) {
    const Expr index = floormod(affine(), kSize);
    return store(y_, {index}, load(y_, {index}) * Expr(3) + value);
  }

  Expr affine() {
    Expr sum = pick(9) - 4;
    for (const Var& var : vars_)
      if (pick(2)) sum = sum + var * Expr(std::vector<int64_t>{1, 2, 8, -1, 3}[static_cast<size_t>(pick(5))]);
    return sum;
  }

  Expr condition(int depth) {
    if (depth > 0 && pick(3) == 0) return logical_and(condition(depth - 1), condition(depth - 1));
    if (depth > 0 && pick(6) == 0) return logical_or(condition(depth - 1), condition(depth - 1));
    if (depth > 0 && pick(8) == 0) return unary(UnaryOp::kNot, condition(depth - 1));
    static constexpr BinaryOp kOps[] = {BinaryOp::kLt, BinaryOp::kLe, BinaryOp::kGt,
                                        BinaryOp::kGe, BinaryOp::kEq, BinaryOp::kNe};
    return binary(kOps[pick(6)], affine(), pick(3) ? Expr(pick(12)) : affine());
  }

  Expr value(int depth) {
    switch (depth > 0 ? pick(5) : 0) {
      case 1: return value(depth - 1) + value(depth - 1);
      case 2: return select(condition(1), value(depth - 1), value(depth - 1));
      case 3: return floordiv(affine(), Expr(4)) + max(affine(), value(depth - 1));
      case 4: {  // a load that only the condition makes legal
        const Expr index = affine();
        return select(logical_and(index >= Expr(0), index < Expr(kSize)), load(x_, {index}), affine());
      }
      default: return load(x_, {floormod(affine(), kSize)});
    }
  }

  std::mt19937 random_;
  BufferPtr x_, y_;
  std::vector<Var> vars_;
  bool parallel_ = false;
};

std::vector<int64_t> run(const LoopProgram& program) {
  Tensor x(DType::kI64, {kSize});
  Tensor y(DType::kI64, {kSize});
  for (int64_t i = 0; i < kSize; ++i) x.set_int(i, i * i - 7);
  Tensor* params[] = {&x, &y};
  interpret(program, std::span<Tensor* const>(params));
  const auto values = y.as<int64_t>();
  return {values.begin(), values.end()};
}

int count_nodes(const LoopProgram& program) {
  int nodes = 0;
  walk(program.body, [&](const Stmt&) { ++nodes; }, [&](const Expr&) { ++nodes; });
  return nodes;
}

int count_choices(const LoopProgram& program) {
  int choices = 0;
  walk(
      program.body, [&](const Stmt& s) { choices += s->kind == StmtKind::kIf; },
      [&](const Expr& e) { choices += e->kind == ExprKind::kSelect; });
  return choices;
}

TEST(LoopPasses, KeepTheValuesOfRandomPrograms) {
  const Target target;
  int split = 0;
  int64_t nodes_before = 0;
  int64_t nodes_after = 0;
  for (unsigned seed = 0; seed < 800; ++seed) {
    const LoopProgram before = Generator(seed).program();
    ASSERT_THAT(verify(before), testing::IsEmpty()) << print(before);
    const std::vector<int64_t> expected = run(before);
    LoopProgram all = before;
    for (const LoopPass& pass : loop_pipeline()) {
      const LoopProgram alone = pass.run(before, {target, 3});
      ASSERT_THAT(verify(alone), testing::IsEmpty()) << pass.name << " on seed " << seed << "\n"
                                                     << print(before) << print(alone);
      ASSERT_EQ(run(alone), expected) << pass.name << " on seed " << seed << "\n" << print(before) << print(alone);
      if (pass.name == "partition_loops") split += print(alone) != print(before);
      if (pass.name == "simplify_loops") {
        nodes_before += count_nodes(before);
        nodes_after += count_nodes(alone);
        EXPECT_LE(count_choices(alone), count_choices(before));
      }
      all = pass.run(all, {target, 3});
    }
    ASSERT_EQ(run(all), expected) << "all passes on seed " << seed << "\n" << print(before) << print(all);
    const std::string text = print(all);
    ASSERT_EQ(print(parse_loop_program(text)), text);
    ASSERT_EQ(run(parse_loop_program(text)), expected);
  }
  std::cout << "[ info     ] " << split << " of 800 programs were partitioned; simplified to "
            << 100 * nodes_after / nodes_before << " % of their nodes\n";
  EXPECT_GT(split, 100);
  EXPECT_LT(nodes_after, nodes_before);
}

TEST(LoopPasses, LoopsThatRunOnceStayWhereTheyPrefetch) {
  const auto simplified = [](const char* text) {
    LoopProgram program = parse_loop_program(text, "test");
    program.body = simplify_statement(program.body, {});
    return print(program);
  };
  const std::string text = simplified(
      "kernel @k(x: f32[64]) -> (y: f32[4]) { for i in 0..4 prefetch x[(i * 16)] { for z in 0..1 prefetch x[((i + 0) * "
      "8)] "
      "{ for u in 0..1 { y[(i + u)] = x[i] } } } }");
  EXPECT_THAT(text, testing::HasSubstr("for z in 0..1 prefetch x[(i * 8)] {"));
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("for u")));
}

TEST(LoopPasses, FreshCopiesCanStandBesideTheOriginal) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    LoopProgram program = Generator(seed).program();
    const std::vector<int64_t> once = run(program);
    LoopProgram copy = program;
    copy.body = with_fresh_definitions(program.body);
    EXPECT_EQ(run(copy), once);
    program.body = seq({program.body, copy.body});
    EXPECT_THAT(verify(program), testing::IsEmpty());
  }
}

TEST(LoopPasses, WhatConditionsTeach) {
  const Var i = make_var("i");
  const Var j = make_var("j");
  Bounds bounds;
  bounds.set(i, 0, 100);
  bounds.set(j, 0, 15);
  const auto range = [&](const Expr& condition, bool holds = true) {
    const Interval r = narrowed(bounds, condition, holds).of(i.get());
    return std::to_string(*r.lo) + ".." + std::to_string(*r.hi);
  };
  EXPECT_EQ(range(i < Expr(7)), "0..6");
  EXPECT_EQ(range(i < Expr(7), false), "7..100");
  EXPECT_EQ(range(i * 3 <= Expr(20)), "0..6");
  EXPECT_EQ(range(Expr(20) - i * 3 < Expr(0)), "7..100");
  EXPECT_EQ(range(i * 16 + j < Expr(50)), "0..3");
  EXPECT_EQ(range(i * 16 + j >= Expr(50)), "3..100");
  EXPECT_EQ(range(equal(i, 5)), "5..5");
  EXPECT_EQ(range(binary(BinaryOp::kNe, i, 5), false), "5..5");
  EXPECT_EQ(range(logical_and(i > Expr(2), i <= Expr(9))), "3..9");
  EXPECT_EQ(range(logical_or(i <= Expr(2), i > Expr(9)), false), "3..9");
  EXPECT_EQ(range(logical_or(i <= Expr(2), i > Expr(9))), "0..100");
  EXPECT_EQ(range(i > Expr(200)), "0..100");  // cannot hold: nothing is learnt
  EXPECT_EQ(range(unary(UnaryOp::kNot, i < Expr(7))), "7..100");
}

}  // namespace
}  // namespace tessera
