// Random loop programs: shapes, loop kinds, access patterns, conditions and types are drawn; native code must agree
// with the interpreter on every instruction set. A failure names the seed and prints the program.
#include <gtest/gtest.h>

#include "codegen_harness.h"
#include "loop/printer.h"

namespace tessera {
namespace {

class Generator {
 public:
  explicit Generator(uint32_t seed) : random_(seed) {}

  LoopProgram program() {
    static constexpr DType kTypes[] = {DType::kF32, DType::kF32, DType::kF32, DType::kF64, DType::kF16,
                                       DType::kI32, DType::kI64, DType::kU8,  DType::kI16};
    dtype_ = kTypes[pick(std::size(kTypes))];
    rows_ = 1 + pick(6);
    columns_ = 1 + pick(50);
    const auto in = [&](const char* name, DType dtype, std::vector<Expr> shape) {
      inputs_.push_back(make_buffer(name, dtype, std::move(shape)));
      return inputs_.back();
    };
    matrix_ = in("a", dtype_, {Expr(rows_), Expr(columns_)});
    other_ = in("b", dtype_, {Expr(rows_ + 2), Expr(2 * columns_ + 7)});
    row_ = in("c", dtype_, {Expr(columns_)});
    column_ = in("d", dtype_, {Expr(rows_)});
    index_ = in("n", DType::kI64, {Expr(columns_)});
    flags_ = in("f", DType::kBool, {Expr(columns_)});

    std::vector<Stmt> stmts;
    const int64_t count = 1 + pick(3);
    for (int64_t k = 0; k < count; ++k) stmts.push_back(nest(k));
    LoopProgram loops;
    loops.name = "random";
    loops.params = inputs_;
    loops.params.insert(loops.params.end(), outputs_.begin(), outputs_.end());
    loops.num_outputs = static_cast<int>(outputs_.size());
    loops.body = seq(stmts);
    return loops;
  }

 private:
  int64_t pick(size_t n) { return static_cast<int64_t>(random_() % n); }
  bool chance(int percent) { return pick(100) < percent; }

  BufferPtr output(std::vector<Expr> shape) {
    outputs_.push_back(make_buffer("y" + std::to_string(outputs_.size()), dtype_, std::move(shape)));
    return outputs_.back();
  }

  Stmt nest(int64_t number) {
    i_ = make_var("i" + std::to_string(number));
    j_ = make_var("j" + std::to_string(number));
    const ForKind outer =
        std::array{ForKind::kSerial, ForKind::kParallel, ForKind::kUnrolled}[static_cast<size_t>(pick(3))];
    const ForKind inner = chance(80) ? ForKind::kVectorized : chance(50) ? ForKind::kSerial : ForKind::kUnrolled;
    const bool reorders = dtype_ != DType::kF16;  // sums of f16 would depend on the order
    if (reorders && chance(25)) return for_loop(i_, 0, rows_, outer, reduction(inner));
    if (reorders && chance(20)) return for_loop(i_, 0, rows_, outer, for_loop(j_, 0, columns_, inner, private_sum()));
    const BufferPtr y = output({Expr(rows_), Expr(2 * columns_)});
    const int pattern = static_cast<int>(pick(4));
    const Expr at = pattern == 0   ? j_ * Expr(2)
                    : pattern == 1 ? Expr(columns_ - 1) - j_
                                   : j_ + Expr(pick(3) == 0 ? columns_ : 0);
    Stmt body = store(y, {i_, at}, value(3));
    if (chance(40)) body = if_then(condition(), body, chance(50) ? store(y, {i_, at}, value(2)) : Stmt());
    if (chance(20)) {
      const BufferPtr z = output({Expr(rows_), Expr(columns_)});
      body = seq({body, store(z, {i_, j_}, value(2)),
                  if_then(condition(), store(z, {i_, j_}, load(z, {i_, j_}) + constant()))});
    }
    return for_loop(i_, 0, rows_, outer, for_loop(j_, 0, columns_, inner, body));
  }

  // y[i] folds f(i, j) over j.
  Stmt reduction(ForKind inner) {
    const BufferPtr y = output({Expr(rows_)});
    const Expr old = load(y, {i_});
    const BinaryOp op = std::array{BinaryOp::kAdd, BinaryOp::kMin, BinaryOp::kMax}[static_cast<size_t>(pick(3))];
    Stmt update = store(y, {i_}, chance(50) ? binary(op, old, value(2)) : binary(op, value(2), old));
    if (chance(30)) update = if_then(condition(), update);
    return seq({store(y, {i_}, constant()), for_loop(j_, 0, columns_, inner, update)});
  }

  // An accumulator of each iteration, and a loop inside.
  Stmt private_sum() {
    const BufferPtr y = output({Expr(rows_), Expr(columns_)});
    const BufferPtr acc = make_buffer("acc" + std::to_string(outputs_.size()), dtype_, {Expr(2)},
                                      chance(50) ? MemoryScope::kRegister : MemoryScope::kLocal);
    const Var k = make_var("k" + std::to_string(outputs_.size()));
    const Expr term = load(other_, {k, j_ + k}) * value(1);
    Stmt update = store(acc, {1}, load(acc, {1}) + term);
    if (chance(40)) update = if_then(condition(), update);
    return alloc(acc, seq({store(acc, {0}, value(1)), store(acc, {1}, load(acc, {0})),
                           for_loop(k, 0, Expr(1 + pick(static_cast<size_t>(rows_))), ForKind::kSerial, update),
                           store(y, {i_, j_}, load(acc, {1}) - load(acc, {0}))}));
  }

  Expr constant() { return const_of(dtype_, static_cast<double>(pick(7)) - (is_unsigned_int(dtype_) ? 0 : 3)); }

  Expr access() {
    switch (pick(9)) {
      case 0: return load(row_, {j_});
      case 1: return load(column_, {i_});
      case 2: return load(other_, {i_ + Expr(pick(3)), j_ * Expr(2) + Expr(pick(8))});
      case 3: return load(other_, {i_, Expr(2 * columns_ + 6) - j_});
      case 4: return load(other_, {i_, floordiv(j_, Expr(1 + pick(4))) + Expr(pick(7))});
      case 5: return load(row_, {min(max(load(index_, {j_}), 0), Expr(columns_ - 1))});
      case 6: return load(other_, {floormod(j_, Expr(rows_)), j_ + i_});
      default: return load(matrix_, {i_, j_});
    }
  }

  Expr value(int depth) {
    if (depth == 0 || chance(20)) return chance(15) ? constant() : access();
    switch (pick(is_float(dtype_) ? 11 : 9)) {
      case 0: return value(depth - 1) + value(depth - 1);
      case 1: return value(depth - 1) - value(depth - 1);
      case 2: return value(depth - 1) * constant();
      case 3: return min(value(depth - 1), value(depth - 1));
      case 4: return max(value(depth - 1), value(depth - 1));
      case 5: return select(condition(), value(depth - 1), value(depth - 1));
      case 6: return padded();
      case 7: return cast(dtype_, chance(50) ? j_ : i_ + j_);
      case 8: return cast(dtype_, cast(DType::kI32, value(depth - 1)));
      case 9: return fma(value(depth - 1), constant(), value(depth - 1));
      default: return unary(UnaryOp::kFloor, value(depth - 1));
    }
  }

  // A load that is legal only where its condition holds.
  Expr padded() {
    const int64_t shift = pick(5) - 2;
    const Expr at = j_ + Expr(shift);
    return select(logical_and(at >= Expr(0), at < Expr(columns_)), load(matrix_, {i_, at}), constant());
  }

  Expr condition() {
    switch (pick(6)) {
      case 0: return j_ < Expr(pick(static_cast<size_t>(columns_) + 2));
      case 1: return equal(floormod(j_, 3), Expr(1));
      case 2: return i_ >= Expr(pick(static_cast<size_t>(rows_)));
      case 3: return load(flags_, {j_});
      case 4: return logical_and(load(flags_, {j_}), load(row_, {j_}) < constant());
      default: return access() < access();
    }
  }

  std::mt19937 random_;
  DType dtype_ = DType::kF32;
  int64_t rows_ = 1, columns_ = 1;
  std::vector<BufferPtr> inputs_, outputs_;
  BufferPtr matrix_, other_, row_, column_, index_, flags_;
  Var i_, j_;
};

void check_seeds(uint32_t first, uint32_t count) {
  for (uint32_t seed = first; seed < first + count; ++seed) {
    const LoopProgram loops = Generator(seed).program();
    expect_agrees(loops, random_inputs(loops, seed), 1e-5);
    if (testing::Test::HasFailure()) {
      ADD_FAILURE() << "seed " << seed << "\n" << print(loops);
      return;
    }
  }
}

TEST(CodegenRandom, Programs) { check_seeds(1, 120); }

}  // namespace
}  // namespace tessera
