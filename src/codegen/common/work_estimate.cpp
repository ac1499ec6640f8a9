#include "codegen/common/work_estimate.h"

#include <algorithm>
#include <unordered_set>

#include "codegen/common/vector_plan.h"
#include "loop/intrinsic.h"

namespace tessera::inline codegen {
namespace {

constexpr double kNsPerCycle = 0.4;

// Cycles of one scalar or vector evaluation. Index arithmetic counts a quarter: most of it leaves the loop.
double expr_cycles(const Expr& e, std::unordered_set<const ExprNode*>& seen) {
  if (!e || !seen.insert(e.get()).second) return 0;
  double cycles = 0;
  for (const Expr& operand : e->operands) cycles += expr_cycles(operand, seen);
  switch (e->kind) {
    case ExprKind::kConst:
    case ExprKind::kVar: return 0;
    case ExprKind::kLoad: return cycles / 4 + (e->buffer->scope == MemoryScope::kRegister ? 0 : 1);
    case ExprKind::kUnary: return cycles + (e->unary >= UnaryOp::kExp && e->unary <= UnaryOp::kAtanh ? 15 : 0.5);
    case ExprKind::kBinary:
      if (e->binary == BinaryOp::kPow) return cycles + 30;
      if (e->binary == BinaryOp::kDiv || e->binary == BinaryOp::kRem) return cycles + 5;
      return cycles + 0.5;
    default: return cycles + 0.5;
  }
}

// Stores that a nest of constant extents runs.
double stores_in(const Stmt& s) {
  double count = s->kind == StmtKind::kStore ? 1 : 0;
  for (const Stmt& child : s->stmts) count += stores_in(child);
  return s->kind == StmtKind::kFor ? count * static_cast<double>(as_int(s->extent).value_or(8)) : count;
}

double cycles_of(const Stmt& s, const Target& target) {
  if (s->kind == StmtKind::kTensorized && s->intrinsic->code == IntrinsicCode::kTileDot) {
    // One instruction in 16 cycles, and the loads beside it.
    constexpr double kTileCycles = 20, kSide = static_cast<double>(kTileSide);
    return stores_in(s) / (kSide * kSide * kSide * s->intrinsic->depth) * kTileCycles;
  }
  double cycles = 0;
  for (const Stmt& child : s->stmts) {
    const double one = cycles_of(child, target);
    cycles = s->kind == StmtKind::kIf ? std::max(cycles, one) : cycles + one;  // one arm runs, the longer one perhaps
  }
  switch (s->kind) {
    case StmtKind::kFor: {
      const double trips = static_cast<double>(as_int(s->extent).value_or(64));
      if (s->for_kind == ForKind::kVectorized) {
        const int lanes = native_lanes(target, 32);
        return cycles * std::max(1.0, trips / lanes);
      }
      return trips * (cycles + (s->for_kind == ForKind::kUnrolled ? 0 : 1));
    }
    case StmtKind::kIf:
    case StmtKind::kStore: {
      std::unordered_set<const ExprNode*> seen;
      cycles += expr_cycles(s->condition, seen) + expr_cycles(s->value, seen);
      for (const Expr& index : s->indices) cycles += expr_cycles(index, seen) / 4;
      const bool registers = s->buffer && s->buffer->scope == MemoryScope::kRegister;
      return cycles + (registers ? 0 : 1);
    }
    case StmtKind::kTensorized: return cycles / 6;  // loads are shared, products overlap
    default: return cycles;
  }
}

}  // namespace

double estimate_ns(const Stmt& s, const Target& target) { return cycles_of(s, target) * kNsPerCycle; }

}  // namespace tessera::inline codegen
