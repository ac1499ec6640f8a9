#include "schedule/rules/index_tables.h"

#include <bit>
#include <string>
#include <unordered_map>

namespace tessera::inline schedule {
namespace {

constexpr size_t kMostTables = 16;

bool is_costly(const Expr& node) {
  if (node->kind == ExprKind::kUnary) {
    return node->unary != UnaryOp::kNeg && node->unary != UnaryOp::kNot && node->unary != UnaryOp::kAbs &&
           node->unary != UnaryOp::kBitcast;
  }
  if (node->kind != ExprKind::kBinary) return false;
  switch (node->binary) {
    case BinaryOp::kDiv:
    case BinaryOp::kRem:
    case BinaryOp::kFloorDiv:
    case BinaryOp::kFloorMod: {
      const auto divisor = as_int(node->operands[1]);
      return !divisor || *divisor <= 0 || !std::has_single_bit(static_cast<uint64_t>(*divisor));
    }
    case BinaryOp::kPow: return true;
    default: return false;
  }
}

// Whether `e` is made of the variable and constants alone, and whether a part of it is costly.
struct Facts {
  bool alone = true, costly = false, varies = false;
};

class Taker {
 public:
  Taker(LinearKernel& kernel) : kernel_(kernel), last_(kernel.loops.back()) {}

  std::vector<IndexTable> run() {
    kernel_.value = take(kernel_.value);
    return std::move(tables_);
  }

 private:
  const Facts& facts(const Expr& e) {
    if (const auto it = facts_.find(e.get()); it != facts_.end()) return it->second;
    Facts f;
    f.alone = e->kind != ExprKind::kLoad && (e->kind != ExprKind::kVar || e.same_node(last_.var));
    f.varies = e.same_node(last_.var);
    f.costly = is_costly(e);
    for (const Expr& operand : e->operands) {
      const Facts& o = facts(operand);
      f.alone &= o.alone;
      f.costly |= o.costly;
      f.varies |= o.varies;
    }
    return facts_[e.get()] = f;
  }

  // Parents first, so that what is taken is as large as can be.
  Expr take(const Expr& e) {
    if (const auto it = taken_.find(e.get()); it != taken_.end()) return it->second;
    const Facts f = facts(e);
    if (!f.costly || !f.varies) return e;
    if (f.alone && e->dtype != DType::kBool) {
      if (tables_.size() == kMostTables) return e;
      const BufferPtr table =
          make_buffer("table" + std::to_string(tables_.size()), e->dtype, {Expr(last_.extent)}, MemoryScope::kLocal);
      tables_.push_back({table, e});
      return taken_[e.get()] = load(table, {last_.var});
    }
    Expr result = e;
    for (const Expr& operand : e->operands) {
      const Expr replaced = take(operand);
      if (replaced.same_node(operand)) continue;
      auto node = std::make_shared<ExprNode>(*result);
      for (size_t i = 0; i < node->operands.size(); ++i)
        if (e->operands[i].same_node(operand)) node->operands[i] = replaced;
      result = Expr(std::move(node));
    }
    return taken_[e.get()] = result;
  }

  LinearKernel& kernel_;
  const OutputLoop last_;
  std::vector<IndexTable> tables_;
  std::unordered_map<const ExprNode*, Facts> facts_;
  std::unordered_map<const ExprNode*, Expr> taken_;
};

}  // namespace

std::vector<IndexTable> take_index_tables(LinearKernel& kernel) { return Taker(kernel).run(); }

Stmt with_index_tables(const std::vector<IndexTable>& tables, const OutputLoop& last, Stmt body) {
  std::vector<Stmt> parts;
  for (const IndexTable& table : tables) {
    const Var place = make_var("place");
    parts.push_back(for_loop(place, 0, last.extent, ForKind::kVectorized,
                             store(table.buffer, {place}, substitute(table.value, {{last.var.get(), place}}))));
  }
  parts.push_back(std::move(body));
  Stmt result = seq(std::move(parts));
  for (const IndexTable& table : tables) result = alloc(table.buffer, result);
  return result;
}

}  // namespace tessera::inline schedule
