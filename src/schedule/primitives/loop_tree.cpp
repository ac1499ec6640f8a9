#include "schedule/primitives/loop_tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "loop/printer.h"

namespace tessera::inline schedule {
namespace {

void find(const Stmt& s, const std::function<bool(const Stmt&)>& wanted, StmtPath& at, std::vector<StmtPath>& found) {
  at.nodes.push_back(s);
  if (wanted(s)) found.push_back(at);
  for (size_t i = 0; i < s->stmts.size(); ++i) {
    at.children.push_back(i);
    find(s->stmts[i], wanted, at, found);
    at.children.pop_back();
  }
  at.nodes.pop_back();
}

class Renamer {
 public:
  explicit Renamer(std::unordered_set<std::string> taken) : taken_(std::move(taken)) {}

  Stmt rename(const Stmt& s) {
    auto node = std::make_shared<StmtNode>(*s.get());
    for (Expr* e : {&node->begin, &node->extent, &node->condition, &node->value})
      if (*e) *e = rename(*e);
    for (Expr& index : node->indices) index = rename(index);
    if (s->kind == StmtKind::kFor) {
      const std::string name = unique_name(s->var->name, taken_);
      if (name != s->var->name || vars_.count(s->var.get())) {
        node->var = make_var(name, s->var.dtype());
      }
      vars_[s->var.get()] = node->var;
    } else if (s->kind == StmtKind::kAlloc) {
      const std::string name = unique_name(s->buffer->name, taken_);
      std::vector<Expr> shape;
      for (const Expr& dim : s->buffer->shape) shape.push_back(rename(dim));
      if (name != s->buffer->name) node->buffer = make_buffer(name, s->buffer->dtype, shape, s->buffer->scope);
      buffers_[s->buffer.get()] = node->buffer;
    } else if (s->kind == StmtKind::kStore) {
      if (const auto it = buffers_.find(s->buffer.get()); it != buffers_.end()) node->buffer = it->second;
    }
    for (Stmt& child : node->stmts) child = rename(child);
    return Stmt(std::move(node));
  }

 private:
  Expr rename(const Expr& e) {
    return transform(e, [&](const Expr& node) -> Expr {
      if (node->kind == ExprKind::kVar) {
        const auto it = vars_.find(node.get());
        return it == vars_.end() ? Expr() : it->second;
      }
      if (node->kind == ExprKind::kLoad) {
        const auto it = buffers_.find(node->buffer.get());
        return it == buffers_.end() ? Expr() : load(it->second, node->operands);
      }
      return {};
    });
  }

  std::unordered_set<std::string> taken_;
  VarMap vars_;
  std::unordered_map<const Buffer*, BufferPtr> buffers_;
};

bool same_indices(const std::vector<Expr>& a, const std::vector<Expr>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Expr& x, const Expr& y) { return structurally_equal(x, y); });
}

void visit_buffers(const Stmt& s, const std::function<void(const Buffer*, bool is_write)>& visit) {
  walk(
      s,
      [&](const Stmt& node) {
        if (node->kind == StmtKind::kStore) visit(node->buffer.get(), true);
      },
      [&](const Expr& e) {
        if (e->kind == ExprKind::kLoad) visit(e->buffer.get(), false);
      });
}

std::vector<const Buffer*> touched(const Stmt& s, bool writes) {
  std::unordered_set<const Buffer*> own;
  walk(
      s,
      [&](const Stmt& node) {
        if (node->kind == StmtKind::kAlloc) own.insert(node->buffer.get());
      },
      nullptr);
  std::vector<const Buffer*> found;
  visit_buffers(s, [&](const Buffer* buffer, bool is_write) {
    if (is_write == writes && !own.count(buffer) && std::find(found.begin(), found.end(), buffer) == found.end())
      found.push_back(buffer);
  });
  return found;
}

}  // namespace

std::vector<Stmt> StmtPath::loops(bool inclusive) const {
  std::vector<Stmt> result;
  for (size_t i = 0; i + (inclusive ? 0 : 1) < nodes.size(); ++i)
    if (nodes[i]->kind == StmtKind::kFor) result.push_back(nodes[i]);
  return result;
}

StmtPath StmtPath::prefix(size_t count) const {
  StmtPath result;
  result.nodes.assign(nodes.begin(), nodes.begin() + static_cast<std::ptrdiff_t>(count));
  if (count > 0) result.children.assign(children.begin(), children.begin() + static_cast<std::ptrdiff_t>(count - 1));
  return result;
}

std::vector<StmtPath> find_statements(const Stmt& root, const std::function<bool(const Stmt&)>& wanted) {
  StmtPath at;
  std::vector<StmtPath> found;
  find(root, wanted, at, found);
  return found;
}

std::optional<StmtPath> find_loop(const Stmt& root, const std::string& name) {
  auto found = find_statements(root, [&](const Stmt& s) { return s->kind == StmtKind::kFor && s->var->name == name; });
  if (found.empty()) return std::nullopt;
  return std::move(found[0]);
}

std::optional<StmtPath> find_alloc(const Stmt& root, const Buffer* buffer) {
  auto found =
      find_statements(root, [&](const Stmt& s) { return s->kind == StmtKind::kAlloc && s->buffer.get() == buffer; });
  if (found.empty()) return std::nullopt;
  return std::move(found[0]);
}

Stmt replaced(const StmtPath& path, Stmt by) {
  for (size_t i = path.nodes.size() - 1; i-- > 0;) {
    const Stmt& parent = path.nodes[i];
    if (!by && parent->kind != StmtKind::kSeq && !(parent->kind == StmtKind::kIf && parent->stmts.size() > 1)) continue;
    auto copy = std::make_shared<StmtNode>(*parent.get());
    if (by) {
      copy->stmts[path.children[i]] = std::move(by);
    } else if (parent->kind == StmtKind::kIf) {
      if (path.children[i] == 1) copy->stmts.pop_back();
      else copy->stmts[0] = seq({});
    } else {
      copy->stmts.erase(copy->stmts.begin() + static_cast<std::ptrdiff_t>(path.children[i]));
      if (copy->stmts.empty()) continue;
    }
    by = copy->kind == StmtKind::kSeq ? seq(copy->stmts) : Stmt(std::move(copy));
  }
  return by ? by : seq({});
}

LoopProgram with_unique_names(const LoopProgram& program) {
  std::unordered_set<std::string> taken;
  for (const Var& symbol : program.symbols) taken.insert(symbol->name);
  for (const BufferPtr& param : program.params) taken.insert(param->name);
  LoopProgram result = program;
  result.body = Renamer(std::move(taken)).rename(program.body);
  return result;
}

std::vector<std::string> loop_names(const LoopProgram& program) {
  std::vector<std::string> names;
  walk(
      program.body,
      [&](const Stmt& s) {
        if (s->kind == StmtKind::kFor) names.push_back(s->var->name);
      },
      nullptr);
  return names;
}

std::vector<BufferPtr> buffers_of(const LoopProgram& program) {
  std::vector<BufferPtr> buffers = program.params;
  walk(
      program.body,
      [&](const Stmt& s) {
        if (s->kind == StmtKind::kAlloc) buffers.push_back(s->buffer);
      },
      nullptr);
  return buffers;
}

std::string free_name(const LoopProgram& program, const std::string& wish) {
  std::unordered_set<std::string> taken;
  for (const Var& symbol : program.symbols) taken.insert(symbol->name);
  for (const BufferPtr& buffer : buffers_of(program)) taken.insert(buffer->name);
  for (const std::string& name : loop_names(program)) taken.insert(name);
  return unique_name(wish, taken);
}

Bounds bounds_of_loops(const LoopProgram& program, const std::vector<Stmt>& loops) {
  Bounds bounds;
  for (const Var& symbol : program.symbols) bounds.set(symbol, Interval{0, std::nullopt});
  for (const Stmt& loop : loops)
    bounds.set(loop->var,
               Interval{bounds_of(loop->begin, bounds).lo, bounds_of(loop->begin + loop->extent - Expr(1), bounds).hi});
  return bounds;
}

Stmt rewrite_accesses(const Stmt& s, const Buffer* buffer,
                      const std::function<Expr(const std::vector<Expr>& indices)>& rewrite_load,
                      const std::function<Stmt(const Stmt& store)>& rewrite_store) {
  return transform(
      s,
      [&](const Expr& e) -> Expr {
        return rewrite_load && e->kind == ExprKind::kLoad && e->buffer.get() == buffer ? rewrite_load(e->operands)
                                                                                       : Expr();
      },
      [&](const Stmt& node) -> Stmt {
        return rewrite_store && node->kind == StmtKind::kStore && node->buffer.get() == buffer ? rewrite_store(node)
                                                                                               : Stmt();
      });
}

bool loads_buffer(const Expr& e, const Buffer* buffer) {
  bool found = false;
  walk(e, [&](const Expr& node) { found |= node->kind == ExprKind::kLoad && node->buffer.get() == buffer; });
  return found;
}

bool reads_buffer(const Stmt& s, const Buffer* buffer) {
  bool found = false;
  visit_buffers(s, [&](const Buffer* b, bool is_write) { found |= b == buffer && !is_write; });
  return found;
}

bool writes_buffer(const Stmt& s, const Buffer* buffer) {
  bool found = false;
  visit_buffers(s, [&](const Buffer* b, bool is_write) { found |= b == buffer && is_write; });
  return found;
}

std::vector<const Buffer*> buffers_read(const Stmt& s) { return touched(s, false); }
std::vector<const Buffer*> buffers_written(const Stmt& s) { return touched(s, true); }

std::optional<ReductionUpdate> reduction_update(const Stmt& store) {
  if (store->kind != StmtKind::kStore) return std::nullopt;
  const Buffer* buffer = store->buffer.get();
  const auto is_old = [&](const Expr& e) {
    return e->kind == ExprKind::kLoad && e->buffer.get() == buffer && same_indices(e->operands, store->indices);
  };
  for (const Expr& index : store->indices)
    if (loads_buffer(index, buffer)) return std::nullopt;
  const Expr& v = store->value;
  if (v->kind == ExprKind::kFma) {
    if (!is_old(v->operands[2]) || loads_buffer(v->operands[0], buffer) || loads_buffer(v->operands[1], buffer))
      return std::nullopt;
    return ReductionUpdate{BinaryOp::kAdd, v->operands[0] * v->operands[1]};
  }
  if (v->kind != ExprKind::kBinary) return std::nullopt;
  switch (v->binary) {
    case BinaryOp::kAdd:
    case BinaryOp::kMul:
    case BinaryOp::kMin:
    case BinaryOp::kMax: break;
    default: return std::nullopt;
  }
  const Expr& a = v->operands[0];
  const Expr& b = v->operands[1];
  if (is_old(a) && !loads_buffer(b, buffer)) return ReductionUpdate{v->binary, b};
  if (is_old(b) && !loads_buffer(a, buffer)) return ReductionUpdate{v->binary, a};
  return std::nullopt;
}

bool is_reduction_update(const Stmt& store) { return reduction_update(store).has_value(); }

}  // namespace tessera::inline schedule
