#include "codegen/common/vector_plan.h"

#include <algorithm>

#include "codegen/common/local_plan.h"

namespace tessera::inline codegen {
namespace {

constexpr int64_t kMaxPrivateElements = 256;  // per lane; more does not fit the stack times the lanes

bool loads_from(const Expr& e, const Buffer* buffer) {
  bool found = false;
  walk(e, [&](const Expr& node) { found |= node->kind == ExprKind::kLoad && node->buffer.get() == buffer; });
  return found;
}

bool any_uses(const std::vector<Expr>& list, const Var& var) {
  return std::any_of(list.begin(), list.end(), [&](const Expr& e) { return uses_var(e, var); });
}

// Loads nested in indices as well.
bool loads_any(const Expr& e, const std::unordered_set<const Buffer*>& buffers) {
  bool found = false;
  walk(e, [&](const Expr& node) { found |= node->kind == ExprKind::kLoad && buffers.count(node->buffer.get()); });
  return found;
}

// Whether iterations of the loop over `var` surely have different indices: one of them grows with it, or, joined with
// the quotient that belongs to it, a remainder does.
bool tells_apart(std::vector<Expr> indices, const Var& var) {
  for (Expr& index : indices) {
    index = simplify(index);
    if (linear_coefficient(index, var).value_or(0) != 0) return true;
  }
  for (size_t i = 0; i < indices.size(); ++i) {
    const Expr rest = indices[i];
    if (rest->kind != ExprKind::kBinary || rest->binary != BinaryOp::kFloorMod ||
        as_int(rest->operands[1]).value_or(0) <= 0)
      continue;
    const Expr quotient = simplify(floordiv(rest->operands[0], rest->operands[1]));
    const auto other = std::find_if(indices.begin(), indices.end(),
                                    [&](const Expr& index) { return structurally_equal(index, quotient); });
    if (other == indices.end()) continue;
    *other = rest->operands[0];
    indices.erase(indices.begin() + static_cast<std::ptrdiff_t>(i));
    return tells_apart(std::move(indices), var);
  }
  return false;
}

bool same_indices(const std::vector<Expr>& a, const std::vector<Expr>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Expr& x, const Expr& y) { return structurally_equal(x, y); });
}

bool is_load_of(const Expr& e, const StmtNode& store) {
  return e->kind == ExprKind::kLoad && e->buffer == store.buffer && same_indices(e->operands, store.indices);
}

// The combiner by which the store folds its value into what it overwrites.
Combiner reduction_of(const StmtNode& store) {
  const Expr& value = store.value;
  const auto folds = [&](const Expr& acc, std::initializer_list<Expr> others) {
    return is_load_of(acc, store) &&
           std::none_of(others.begin(), others.end(), [&](const Expr& e) { return loads_from(e, store.buffer.get()); });
  };
  if (value->kind == ExprKind::kFma && folds(value->operands[2], {value->operands[0], value->operands[1]}))
    return Combiner::kSum;
  if (value->kind != ExprKind::kBinary) return Combiner::kNone;
  const Expr& a = value->operands[0];
  const Expr& b = value->operands[1];
  if (!folds(a, {b}) && !folds(b, {a})) return Combiner::kNone;
  switch (value->binary) {
    case BinaryOp::kAdd: return Combiner::kSum;
    case BinaryOp::kMul: return Combiner::kProd;
    case BinaryOp::kMin: return Combiner::kMin;
    case BinaryOp::kMax: return Combiner::kMax;
    default: return Combiner::kNone;
  }
}

struct Planner {
  const StmtNode& loop;
  VectorPlan plan{};
  std::vector<const StmtNode*>
      uniform_stores{};  // to memory that outlives an iteration, at an address it does not choose
  std::unordered_set<const StmtNode*> conditional{};  // of these, which may not run
  int conditions = 0;                                 // around the statement visited
  std::vector<Var> inner_vars{};

  void refuse(const std::string& reason) {
    if (plan.refused.empty()) plan.refused = reason;
  }

  void value(const Expr& e) {
    plan.element_bits = std::max(plan.element_bits, compute_bits(e.dtype()));
    visit_value(e);
  }

  // Data only: the integers of indices and of padding conditions do not decide the number of lanes.
  void visit_value(const Expr& e) {
    std::unordered_set<const ExprNode*> seen;
    visit_value(e, seen);
  }
  void visit_value(const Expr& e, std::unordered_set<const ExprNode*>& seen) {
    if (!seen.insert(e.get()).second) return;
    if (e->kind == ExprKind::kLoad) {
      plan.element_bits = std::max(plan.element_bits, compute_bits(e->dtype));
      access(*e->buffer, e->operands);
      for (const Expr& index : e->operands) visit_index(index);
      return;
    }
    if (e->kind == ExprKind::kCast && is_float(e->dtype))
      plan.element_bits = std::max(plan.element_bits, compute_bits(e->dtype));
    for (const Expr& operand : e->operands) visit_value(operand, seen);
  }

  // The loads in an index. They are integers, which do not decide the number of lanes.
  void visit_index(const Expr& index) {
    walk(index, [&](const Expr& e) {
      if (e->kind == ExprKind::kLoad) access(*e->buffer, e->operands);
    });
  }

  // Of the whole body, whatever is refused in it: loops without vectors need constant indices as well.
  void find_registers() {
    std::vector<Var> chosen = {loop.var};  // by it, through the ranges of loops inside
    const auto find = [&](const Buffer& buffer, const std::vector<Expr>& indices) {
      if (buffer.scope == MemoryScope::kRegister)
        for (const Var& var : chosen) plan.indexes_registers |= any_uses(indices, var);
    };
    walk(
        loop.stmts[0],
        [&](const Stmt& s) {
          if (s->kind == StmtKind::kStore) find(*s->buffer, s->indices);
          if (s->kind != StmtKind::kFor) return;
          if (std::any_of(chosen.begin(), chosen.end(),
                          [&](const Var& var) { return any_uses({s->begin, s->extent}, var); }))
            chosen.push_back(s->var);
        },
        [&](const Expr& e) {
          if (e->kind == ExprKind::kLoad) find(*e->buffer, e->operands);
        });
  }

  // Indices and ranges are numbers of all lanes, or grow with the vector variable: what each lane has computed for
  // itself, even if it is the same in all of them, is a vector.
  void check_private_indices() {
    if (plan.private_buffers.empty()) return;
    const auto is_private = [&](const Expr& e) { return loads_any(e, plan.private_buffers); };
    const auto check_indices = [&](const std::string& name, const std::vector<Expr>& indices) {
      if (std::any_of(indices.begin(), indices.end(), is_private))
        refuse("an index of " + name + " is computed by each iteration");
    };
    walk(
        loop.stmts[0],
        [&](const Stmt& s) {
          if (s->kind == StmtKind::kStore) check_indices(s->buffer->name, s->indices);
          if (s->kind == StmtKind::kFor && (is_private(s->begin) || is_private(s->extent)))
            refuse("the bounds of loop " + s->var->name + " inside are computed by each iteration");
        },
        [&](const Expr& e) {
          if (e->kind == ExprKind::kLoad) check_indices(e->buffer->name, e->operands);
        });
  }

  void access(const Buffer& buffer, const std::vector<Expr>& indices) {
    if (plan.private_buffers.count(&buffer) && any_uses(indices, loop.var))
      refuse("the buffer " + buffer.name + " of each iteration is indexed by the vector variable");
  }

  // Anywhere in the loop: a maximum may be written as a condition, a sum in two steps.
  bool reads(const Buffer* buffer) const {
    bool found = false;
    walk(loop.stmts[0], nullptr,
         [&](const Expr& e) { found |= e->kind == ExprKind::kLoad && e->buffer.get() == buffer; });
    return found;
  }

  void visit(const Stmt& s) {
    switch (s->kind) {
      case StmtKind::kSeq:
        for (const Stmt& child : s->stmts) visit(child);
        return;
      case StmtKind::kFor: {
        if (is_concurrent(s->for_kind)) return refuse("a parallel loop inside");
        if (uses_var(s->begin, loop.var) || uses_var(s->extent, loop.var))
          return refuse("the bounds of loop " + s->var->name + " inside depend on the vector variable");
        if (s->for_kind == ForKind::kVectorized) return refuse("a vectorized loop inside");
        plan.has_inner_loop = true;
        visit_index(s->begin);
        visit_index(s->extent);
        inner_vars.push_back(s->var);
        const std::optional<int64_t> extent = as_int(s->extent);
        const bool may_be_empty = !extent || *extent < 1;
        conditions += may_be_empty;
        visit(s->stmts[0]);
        conditions -= may_be_empty;
        return;
      }
      case StmtKind::kIf:
        visit_value(s->condition);
        ++conditions;
        for (const Stmt& child : s->stmts) visit(child);
        --conditions;
        return;
      case StmtKind::kAlloc: {
        const auto elements = constant_elements(*s->buffer);
        if (!elements || *elements > kMaxPrivateElements)
          return refuse("the buffer " + s->buffer->name + " of each iteration is too large");
        plan.private_buffers.insert(s->buffer.get());
        return visit(s->stmts[0]);
      }
      case StmtKind::kTensorized: return visit(s->stmts[0]);
      case StmtKind::kStore: {
        value(s->value);
        access(*s->buffer, s->indices);
        for (const Expr& index : s->indices) visit_index(index);
        if (!plan.private_buffers.count(s->buffer.get()) && !any_uses(s->indices, loop.var)) {
          uniform_stores.push_back(s.get());
          if (conditions) conditional.insert(s.get());
        } else if (!plan.private_buffers.count(s->buffer.get()) && reads(s->buffer.get()) &&
                   !tells_apart(s->indices, loop.var)) {
          refuse("iterations may fold values into one element of " + s->buffer->name);
        }
        return;
      }
    }
  }

  // Every store to an address that all iterations share must be a reduction, the only access to its buffer.
  void check_uniform_stores() {
    for (const StmtNode* store : uniform_stores) {
      const std::string& name = store->buffer->name;
      const Combiner combiner = reduction_of(*store);
      if (combiner == Combiner::kNone) {
        return refuse("all iterations store to one element of " + name +
                      " and the value is no sum, product, minimum or maximum");
      }
      for (const Var& var : inner_vars)
        if (any_uses(store->indices, var))
          return refuse("the element of " + name + " that is reduced into changes inside the loop");
      int accesses = 0;
      walk(
          loop.stmts[0], [&](const Stmt& s) { accesses += s->kind == StmtKind::kStore && s->buffer == store->buffer; },
          nullptr);
      walk(
          loop.stmts[0],
          [&](const Stmt& s) {
            if (s.get() == store) return;
            for (const Expr* e : {&s->begin, &s->extent, &s->condition, &s->value})
              if (*e && loads_from(*e, store->buffer.get())) ++accesses;
            for (const Expr& index : s->indices)
              if (loads_from(index, store->buffer.get())) ++accesses;
          },
          nullptr);
      if (accesses != 1)
        return refuse("the element of " + name + " that is reduced into is used elsewhere in the loop");
      plan.reductions.push_back({store, combiner, conditional.count(store) > 0});
    }
  }
};

}  // namespace

int compute_bits(DType dtype) {
  if (dtype == DType::kBool) return 8;
  // Parts of bytes are loaded and stored one by one: more lanes would only be more code.
  if (dtype_bits(dtype) < 8) return 32;
  return is_float(dtype) ? std::max(dtype_bits(dtype), 32) : dtype_bits(dtype);
}

VectorPlan plan_vector_loop(const StmtNode& loop) {
  Planner planner{loop};
  planner.plan.element_bits = 8;
  planner.find_registers();
  planner.visit(loop.stmts[0]);
  planner.check_private_indices();
  planner.check_uniform_stores();
  return std::move(planner.plan);
}

std::vector<Chunk> chunks_of(int64_t extent, int lanes) {
  std::vector<Chunk> chunks;
  for (int64_t begin = 0; begin < extent;) {
    while (lanes > extent - begin) lanes /= 2;
    chunks.push_back({begin, lanes});
    begin += lanes;
  }
  return chunks;
}

int native_lanes(const Target& target, int bits) { return std::min(target.vector_bits() / bits, 64); }

}  // namespace tessera::inline codegen
