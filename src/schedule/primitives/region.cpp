#include "schedule/primitives/region.h"

#include <fmt/format.h>

#include <algorithm>

#include "loop/printer.h"
#include "schedule/primitives/rewriter.h"

namespace tessera::inline schedule {
namespace {

bool uses_any(const Expr& e, const std::vector<Stmt>& loops) {
  return std::any_of(loops.begin(), loops.end(), [&](const Stmt& loop) { return uses_var(e, loop->var); });
}

// The range of one index over the loops inside (outermost first).
std::optional<Side> side_of(Expr index, const std::vector<Stmt>& inside, const Bounds& bounds) {
  int64_t lo = 0, hi = 0;
  index = simplify(index, bounds);
  for (size_t i = inside.size(); i-- > 0;) {
    const Stmt& loop = inside[i];
    const auto c = linear_coefficient(index, loop->var, bounds);
    const auto trips = bounds_of(loop->extent, bounds).hi;
    if (!c || (*c != 0 && !trips)) return std::nullopt;
    if (*c == 0) continue;
    int64_t reach = 0;
    if (__builtin_mul_overflow(*c, std::max<int64_t>(*trips, 1) - 1, &reach)) return std::nullopt;
    if (__builtin_add_overflow(reach < 0 ? lo : hi, reach, reach < 0 ? &lo : &hi)) return std::nullopt;
    index = simplify(substitute(index, {{loop->var.get(), loop->begin}}), bounds);
  }
  if (uses_any(index, inside)) return std::nullopt;
  bool loads = false;
  walk(index, [&](const Expr& e) { loads |= e->kind == ExprKind::kLoad; });
  if (loads) return std::nullopt;
  return Side{simplify(index + Expr(lo), bounds), hi - lo + 1, false};
}

class BoxFinder {
 public:
  BoxFinder(const Buffer& buffer, bool loads, bool stores) : buffer_(buffer), loads_(loads), stores_(stores) {}

  std::optional<Box> run(const Stmt& s, const Bounds& bounds) {
    visit(s, bounds);
    if (!touched_) return std::nullopt;
    Box box;
    for (size_t d = 0; d < buffer_.shape.size(); ++d) {
      const auto shape = as_int(buffer_.shape[d]);
      std::optional<Side>& side = sides_[d];
      if (!side || (shape && side->extent >= *shape)) {
        if (!shape) return std::nullopt;
        side = Side{0, *shape, true};
      }
      box.push_back(*side);
    }
    return box;
  }

 private:
  void expression(const Expr& e, const Bounds& bounds) {
    if (!e || !loads_) return;
    walk(e, [&](const Expr& node) {
      if (node->kind == ExprKind::kLoad && node->buffer.get() == &buffer_) access(node->operands, bounds);
    });
  }

  void access(const std::vector<Expr>& indices, const Bounds& bounds) {
    if (!touched_) {
      touched_ = true;
      for (const Expr& index : indices) sides_.push_back(side_of(index, inside_, bounds));
      return;
    }
    for (size_t d = 0; d < indices.size(); ++d) {
      if (!sides_[d]) continue;
      const auto other = side_of(indices[d], inside_, bounds);
      const auto distance = other ? as_int(simplify(other->begin - sides_[d]->begin, bounds)) : std::nullopt;
      if (!distance) {
        sides_[d].reset();
        continue;
      }
      const int64_t begin = std::min<int64_t>(0, *distance);
      const int64_t end = std::max(sides_[d]->extent, *distance + other->extent);
      sides_[d] = Side{simplify(sides_[d]->begin + Expr(begin), bounds), end - begin, false};
    }
  }

  void visit(const Stmt& s, Bounds bounds) {
    for (const Expr* e : {&s->begin, &s->extent, &s->condition, &s->value}) expression(*e, bounds);
    for (const Expr& index : s->indices) expression(index, bounds);
    if (s->kind == StmtKind::kStore && stores_ && s->buffer.get() == &buffer_) access(s->indices, bounds);
    if (s->kind == StmtKind::kFor) {
      bounds.set(s->var,
                 Interval{bounds_of(s->begin, bounds).lo, bounds_of(s->begin + s->extent - Expr(1), bounds).hi});
      inside_.push_back(s);
    }
    for (const Stmt& child : s->stmts) visit(child, bounds);
    if (s->kind == StmtKind::kFor) inside_.pop_back();
  }

  const Buffer& buffer_;
  bool loads_, stores_, touched_ = false;
  std::vector<std::optional<Side>> sides_;
  std::vector<Stmt> inside_;
};

// Loads of the buffer that are no reduction's own.
bool has_foreign_load(const Stmt& s, const Buffer* buffer) {
  bool found = false;
  walk(
      s,
      [&](const Stmt& node) {
        if (node->kind == StmtKind::kStore && node->buffer.get() == buffer) {
          for (const Expr& index : node->indices) found |= loads_buffer(index, buffer);
          walk(node->value, [&](const Expr& e) {
            if (e->kind != ExprKind::kLoad || e->buffer.get() != buffer) return;
            for (size_t d = 0; d < e->operands.size(); ++d)
              found |= !structurally_equal(e->operands[d], node->indices[d]);
          });
          return;
        }
        for (const Expr* e : {&node->begin, &node->extent, &node->condition, &node->value})
          if (*e) found |= loads_buffer(*e, buffer);
        for (const Expr& index : node->indices) found |= loads_buffer(index, buffer);
      },
      nullptr);
  return found;
}

}  // namespace

std::optional<Box> touched_box(const Stmt& s, const Buffer& buffer, bool loads, bool stores, const Bounds& bounds) {
  return BoxFinder(buffer, loads, stores).run(s, bounds);
}

StagePlace stage_place(const LoopProgram& program, const BufferPtr& buffer, const char* primitive, const Stmt& beside) {
  StagePlace place;
  if (auto alloc = find_alloc(program.body, buffer.get())) {
    place.parent = std::move(*alloc);
    place.parent.children.push_back(0);
    place.parent.nodes.push_back(place.parent.stmt()->stmts[0]);
  } else {
    place.parent.nodes = {program.body};
  }
  for (;;) {
    const Stmt s = place.parent.stmt();
    const bool is_seq = s->kind == StmtKind::kSeq;
    place.children = is_seq ? s->stmts : std::vector<Stmt>{s};
    place.producers.clear();
    place.consumers.clear();
    std::optional<size_t> mixed;
    for (size_t i = 0; i < place.children.size(); ++i) {
      const Stmt& child = place.children[i];
      if (writes_buffer(child, buffer.get())) {
        place.producers.push_back(i);
        if (has_foreign_load(child, buffer.get()) ||
            (beside && contains(child, [&](const Stmt& node) { return node.same_node(beside); })))
          mixed = i;
      } else if (reads_buffer(child, buffer.get())) {
        place.consumers.push_back(i);
      }
    }
    if (place.producers.empty())
      refuse(refusal::kStructure, fmt::format("{}: nothing stores to {}", primitive, buffer->name),
             "a buffer that is computed");
    if (!mixed) break;
    const Stmt& inner = place.children[*mixed];
    if (place.producers.size() + place.consumers.size() > 1 || inner->stmts.size() != 1 ||
        (!is_seq && s->kind == StmtKind::kIf))
      refuse(refusal::kStructure,
             fmt::format("{}: '{}' both computes {} and uses it", primitive, summary(inner), buffer->name),
             "a stage whose stores and uses stand in different nests", "fission takes a nest apart");
    if (is_seq) {
      place.parent.children.push_back(*mixed);
      place.parent.nodes.push_back(inner);
    }
    const Stmt& at = place.parent.stmt();
    if (at->kind == StmtKind::kFor) ++place.loops_inside;
    place.parent.children.push_back(0);
    place.parent.nodes.push_back(at->stmts[0]);
  }
  if (!place.consumers.empty() && place.consumers.front() < place.producers.back())
    refuse(refusal::kStructure, fmt::format("{}: {} is used before it is stored to again", primitive, buffer->name),
           "a buffer that is computed once");
  return place;
}

std::optional<IndexLoop> index_loop(const Expr& index, const std::vector<Stmt>& loops) {
  std::optional<IndexLoop> found;
  for (const Stmt& loop : loops) {
    if (!uses_var(index, loop->var)) continue;
    if (found) return std::nullopt;
    const auto offset = as_int(simplify(index - loop->var));
    if (!offset) return std::nullopt;
    found = IndexLoop{loop, *offset};
  }
  return found;
}

bool covers_buffer(const StmtPath& path, size_t from) {
  const Stmt& store = path.stmt();
  Bounds bounds;
  std::vector<Stmt> loops;
  for (size_t i = from; i < path.nodes.size(); ++i) {
    const Stmt& s = path.nodes[i];
    if (s->kind != StmtKind::kFor) continue;
    const auto extent = as_int(s->extent);
    if (!extent || *extent < 1 || as_int(s->begin) != 0) return false;
    bounds.set(s->var, 0, *extent - 1);
    loops.push_back(s);
  }
  std::vector<const ExprNode*> used;
  for (size_t d = 0; d < store->indices.size(); ++d) {
    const auto shape = as_int(store->buffer->shape[d]);
    if (!shape) return false;
    Expr rest = simplify(store->indices[d], bounds);
    std::vector<std::pair<int64_t, int64_t>> terms;  // coefficient, extent
    for (const Stmt& loop : loops) {
      const auto c = linear_coefficient(rest, loop->var, bounds);
      if (!c || *c < 0) return false;
      if (*c == 0) continue;
      if (std::find(used.begin(), used.end(), loop->var.get()) != used.end()) return false;
      used.push_back(loop->var.get());
      terms.emplace_back(*c, *as_int(loop->extent));
      rest = simplify(substitute(rest, {{loop->var.get(), Expr(0)}}), bounds);
    }
    if (as_int(rest) != 0) return false;
    std::sort(terms.begin(), terms.end());
    int64_t reach = 1;  // elements 0 .. reach - 1 are met
    for (const auto& [c, extent] : terms) {
      if (c > reach) return false;
      reach += c * (extent - 1);
    }
    if (reach < *shape) return false;
  }
  // Conditions may only say that an index is inside its extent.
  for (size_t i = from; i < path.nodes.size(); ++i) {
    const Stmt& s = path.nodes[i];
    if (s->kind != StmtKind::kIf) continue;
    if (path.children[i] != 0) return false;
    std::vector<Expr> terms = {s->condition};
    while (!terms.empty()) {
      const Expr term = terms.back();
      terms.pop_back();
      if (term->kind == ExprKind::kBinary && term->binary == BinaryOp::kAnd) {
        terms.push_back(term->operands[0]);
        terms.push_back(term->operands[1]);
        continue;
      }
      bool harmless = can_prove(term, bounds);
      for (size_t d = 0; d < store->indices.size() && !harmless; ++d)
        harmless = term->kind == ExprKind::kBinary && term->binary == BinaryOp::kLt &&
                   is_const_int(simplify(term->operands[0] - store->indices[d], bounds), 0) &&
                   as_int(term->operands[1]) && *as_int(term->operands[1]) >= *as_int(store->buffer->shape[d]);
      if (!harmless) return false;
    }
  }
  return true;
}

}  // namespace tessera::inline schedule
