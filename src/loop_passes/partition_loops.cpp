#include "loop_passes/partition_loops.h"

#include <algorithm>
#include <set>
#include <unordered_set>

#include "arith/int_ops.h"
#include "arith/simplify.h"
#include "loop/fresh.h"
#include "loop_passes/simplify_loops.h"

namespace tessera::inline loop_passes {
namespace {

constexpr size_t kMaxPieces = 32, kMostPiecesOfFew = 8;  // the latter where pieces have few iterations
constexpr double kMinGain = 0.1;                         // of the loop's work
constexpr int64_t kMaxGrowth = 4;                        // times the nodes of the loop ...
constexpr int64_t kFreeNodes = 400;                      // ... or this many nodes in all
constexpr int64_t kMaxBody = 20000;                      // nodes; larger loops are left alone to bound compile time
constexpr double kUnknownTrips = 8;

int64_t count_nodes(const Stmt& s) {
  int64_t nodes = 0;
  walk(s, [&](const Stmt&) { ++nodes; }, [&](const Expr&) { ++nodes; });
  return nodes;
}

// What one execution costs, in operations: shared nodes once, the larger operand of every choice. Addresses are free,
// because back ends keep them in step with the loops, but for the choices inside them.
double cost(const Expr& e, bool is_address, std::unordered_set<const ExprNode*>& seen) {
  if (!seen.insert(e.get()).second) return 0;
  if (e->kind == ExprKind::kSelect) {
    const double condition = cost(e->operands[0], false, seen);
    const double if_true = cost(e->operands[1], is_address, seen);
    return 1 + condition + std::max(if_true, cost(e->operands[2], is_address, seen));
  }
  double work = is_address && e->kind != ExprKind::kLoad ? 0 : 1;
  for (const Expr& operand : e->operands) work += cost(operand, is_address || e->kind == ExprKind::kLoad, seen);
  return work;
}

double expr_work(const Expr& e, bool is_address = false) {
  std::unordered_set<const ExprNode*> seen;
  return cost(e, is_address, seen);
}

double work_of(const Stmt& s, const Bounds& bounds) {
  switch (s->kind) {
    case StmtKind::kSeq: {
      double work = 0;
      for (const Stmt& child : s->stmts) work += work_of(child, bounds);
      return work;
    }
    case StmtKind::kStore: {
      double work = 1 + expr_work(s->value);
      for (const Expr& index : s->indices) work += expr_work(index, true);
      return work;
    }
    case StmtKind::kIf: {
      double work = work_of(s->stmts[0], bounds);
      if (s->stmts.size() > 1) work = std::max(work, work_of(s->stmts[1], bounds));
      return work + expr_work(s->condition);
    }
    case StmtKind::kAlloc:
    case StmtKind::kTensorized: return work_of(s->stmts[0], bounds);
    case StmtKind::kFor: break;
  }
  Bounds inner = bounds;
  inner.set(s->var, loop_range(s, bounds));
  const Interval trips = bounds_of(s->extent, bounds);
  const double count = trips.is_point() ? static_cast<double>(*trips.lo) : kUnknownTrips;
  return 1 + count * work_of(s->stmts[0], inner);
}

// The values of one loop variable at which some condition in the body may begin or cease to be decided.
class Breakpoints {
 public:
  Breakpoints(const Var& var, int64_t begin, int64_t end) : var_(var), begin_(begin), end_(end) {}

  void collect(const Stmt& s, const Bounds& bounds) {
    for (const Expr* e : {&s->begin, &s->extent, &s->value})
      if (*e) expression(*e, bounds);
    for (const Expr& index : s->indices) expression(index, bounds);
    if (s->condition) condition(s->condition, bounds);
    Bounds inner = bounds;
    if (s->kind == StmtKind::kFor) inner.set(s->var, loop_range(s, bounds));
    for (const Stmt& child : s->stmts) collect(child, inner);
  }

  // Beginnings of the pieces after the first, ascending.
  const std::set<int64_t>& places() const { return places_; }

 private:
  void expression(const Expr& e, const Bounds& bounds) {
    walk(e, [&](const Expr& node) {
      if (node->kind == ExprKind::kSelect) condition(node->operands[0], bounds);
    });
  }

  void condition(const Expr& e, const Bounds& bounds) {
    if (e->kind == ExprKind::kUnary && e->unary == UnaryOp::kNot) return condition(e->operands[0], bounds);
    if (e->kind != ExprKind::kBinary) return;
    const Expr& a = e->operands[0];
    const Expr& b = e->operands[1];
    if (e->binary == BinaryOp::kAnd || e->binary == BinaryOp::kOr) {
      condition(a, bounds);
      condition(b, bounds);
      return;
    }
    if (!is_comparison(e->binary) || a.dtype() != DType::kI64) return;
    const bool both = e->binary == BinaryOp::kEq || e->binary == BinaryOp::kNe;
    if (both || e->binary == BinaryOp::kLe || e->binary == BinaryOp::kGt) below_one(a - b, bounds);
    if (both || e->binary == BinaryOp::kGe || e->binary == BinaryOp::kLt) below_one(b - a, bounds);
  }

  // Where `difference` <= 0 changes between true for all values of the other variables, undecided, and false for all.
  void below_one(const Expr& difference, const Bounds& bounds) {
    const Expr sum = simplify(difference, bounds);
    const auto c = linear_coefficient(sum, var_, bounds);
    if (!c || *c == 0 || *c == INT64_MIN) return;
    const Interval rest = bounds_of(sum - var_ * Expr(*c), bounds);
    for (const auto& end : {rest.lo, rest.hi}) {
      if (!end || *end == INT64_MIN) continue;
      // c * var + end <= 0 holds up to (c > 0) or from (c < 0) some value of the variable.
      const int64_t place = *c > 0 ? floor_div(-*end, *c) + 1 : -floor_div(-*end, -*c);
      if (place > begin_ && place < end_) places_.insert(place);
    }
  }

  Var var_;
  int64_t begin_, end_;
  std::set<int64_t> places_;
};

struct Piece {
  int64_t begin, end;
  Stmt body;
};

Stmt partition(const Stmt& s, const Bounds& bounds);

// The pieces of a loop over constant bounds; empty when it should stay whole.
std::vector<Piece> split(const Stmt& s, int64_t begin, int64_t end, const Bounds& bounds) {
  const int64_t nodes = count_nodes(s);
  if (nodes > kMaxBody) return {};
  Bounds whole = bounds;
  whole.set(s->var, begin, end - 1);
  Breakpoints breakpoints(s->var, begin, end);
  breakpoints.collect(s->stmts[0], whole);
  const auto most = std::clamp<size_t>(static_cast<size_t>(end - begin) / 2, kMostPiecesOfFew, kMaxPieces);
  if (breakpoints.places().empty() || breakpoints.places().size() >= most) return {};
  std::vector<int64_t> ends(breakpoints.places().begin(), breakpoints.places().end());
  ends.push_back(end);
  std::vector<Piece> pieces;
  int64_t new_nodes = 0;
  double new_work = 0;
  for (const int64_t piece_end : ends) {
    const int64_t piece_begin = pieces.empty() ? begin : pieces.back().end;
    Bounds inner = bounds;
    inner.set(s->var, piece_begin, piece_end - 1);
    Stmt body = simplify_statement(s->stmts[0], inner);
    new_nodes += count_nodes(body);
    new_work += static_cast<double>(piece_end - piece_begin) * work_of(body, inner);
    pieces.push_back({piece_begin, piece_end, std::move(body)});
  }
  const double work = static_cast<double>(end - begin) * work_of(s->stmts[0], whole);
  if (new_work > (1 - kMinGain) * work || new_nodes > std::max(kFreeNodes, kMaxGrowth * nodes)) return {};
  return pieces;
}

// The body as a piece of its own, for values of the loop variable in [begin, end).
Stmt finish(const Piece& piece, const Var& var, const Bounds& bounds, bool is_first) {
  Bounds inner = bounds;
  inner.set(var, piece.begin, piece.end - 1);
  return partition(is_first ? piece.body : with_fresh_definitions(piece.body), inner);
}

Stmt partition_loop(const Stmt& s, const Bounds& bounds) {
  const auto begin = as_int(s->begin);
  const auto extent = as_int(s->extent);
  int64_t end = 0;
  if (begin && extent && *extent > 1 && !__builtin_add_overflow(*begin, *extent, &end)) {
    const std::vector<Piece> pieces = split(s, *begin, end, bounds);
    if (!pieces.empty() && s->for_kind == ForKind::kSerial) {
      std::vector<Stmt> loops;
      for (const Piece& piece : pieces) {
        // A loop that runs once is its body; the variable's copies need definitions of their own.
        const bool is_first = loops.empty();
        Stmt body = finish(piece, s->var, bounds, is_first);
        if (piece.end - piece.begin == 1) {
          loops.push_back(simplify_statement(substitute(body, {{s->var.get(), Expr(piece.begin)}}), bounds));
          continue;
        }
        const Var var = is_first ? s->var : make_var(s->var->name);
        if (!is_first) body = substitute(body, {{s->var.get(), var}});
        const Stmt loop = for_loop(var, piece.begin, piece.end - piece.begin, s->for_kind, std::move(body));
        loops.push_back(
            keep_prefetch(loop, s, [&](const Expr& index) { return substitute(index, {{s->var.get(), Expr(var)}}); }));
      }
      return seq(std::move(loops));
    }
    if (!pieces.empty()) {
      Stmt chain;
      for (size_t i = pieces.size(); i-- > 0;) {
        Stmt body = finish(pieces[i], s->var, bounds, i == 0);
        chain = chain ? if_then(s->var < Expr(pieces[i].end), std::move(body), std::move(chain)) : std::move(body);
      }
      return for_loop(s->var, *begin, *extent, s->for_kind, std::move(chain));
    }
  }
  Bounds inner = bounds;
  inner.set(s->var, loop_range(s, bounds));
  const Stmt result = for_loop(s->var, s->begin, s->extent, s->for_kind, partition(s->stmts[0], inner));
  return keep_prefetch(result, s, [](const Expr& index) { return index; });
}

Stmt partition(const Stmt& s, const Bounds& bounds) {
  switch (s->kind) {
    case StmtKind::kSeq: {
      std::vector<Stmt> stmts;
      for (const Stmt& child : s->stmts) stmts.push_back(partition(child, bounds));
      return seq(std::move(stmts));
    }
    case StmtKind::kIf:
      return if_then(s->condition, partition(s->stmts[0], narrowed(bounds, s->condition, true)),
                     s->stmts.size() > 1 ? partition(s->stmts[1], narrowed(bounds, s->condition, false)) : Stmt());
    case StmtKind::kAlloc: return alloc(s->buffer, partition(s->stmts[0], bounds));
    case StmtKind::kFor:
      if (s->for_kind == ForKind::kSerial || is_concurrent(s->for_kind)) return partition_loop(s, bounds);
      return s;
    case StmtKind::kStore:
    case StmtKind::kTensorized: return s;
  }
  return s;
}

}  // namespace

LoopProgram partition_loops(const LoopProgram& program, const LoopPassContext&) {
  LoopProgram result = program;
  Bounds bounds;
  for (const Var& symbol : program.symbols) bounds.set(symbol, Interval{0, std::nullopt});
  result.body = partition(program.body, bounds);
  return result;
}

}  // namespace tessera::inline loop_passes
