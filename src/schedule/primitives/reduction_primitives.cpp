// fission, decompose_reduction, rfactor.
#include <fmt/format.h>

#include <algorithm>

#include "loop/fresh.h"
#include "loop/printer.h"
#include "schedule/kernel/guards.h"
#include "schedule/primitives/rewriter.h"
#include "te/body.h"

namespace tessera::inline schedule {
namespace {

// Copies of the statements of `path`, from its node number `from` (a loop) down to the sequence at its end: one with
// the children before number `cut`, one with the others. Siblings of the way stay on their side.
std::pair<Stmt, Stmt> distributed(const StmtPath& path, size_t from, size_t cut) {
  const Stmt& sequence = path.stmt();
  const auto middle = sequence->stmts.begin() + static_cast<std::ptrdiff_t>(cut);
  Stmt first = seq({sequence->stmts.begin(), middle});
  Stmt second = seq({middle, sequence->stmts.end()});
  for (size_t i = path.nodes.size() - 1; i-- > from;) {
    const Stmt& s = path.nodes[i];
    const size_t at = path.children[i];
    const auto wrap = [&](const Stmt& body, bool is_first) -> Stmt {
      switch (s->kind) {
        case StmtKind::kFor: return with_body(s, body);
        case StmtKind::kIf: return if_then(s->condition, body);
        case StmtKind::kAlloc:
          return reads_buffer(body, s->buffer.get()) || writes_buffer(body, s->buffer.get()) ? alloc(s->buffer, body)
                                                                                             : body;
        case StmtKind::kSeq: {
          std::vector<Stmt> children;
          if (is_first) children.assign(s->stmts.begin(), s->stmts.begin() + static_cast<std::ptrdiff_t>(at));
          children.push_back(body);
          if (!is_first)
            children.insert(children.end(), s->stmts.begin() + static_cast<std::ptrdiff_t>(at) + 1, s->stmts.end());
          return seq(children);
        }
        default: return body;
      }
    };
    first = wrap(first, true);
    second = wrap(second, false);
  }
  return {first, second};
}

// A copy in which the loops of these names have names that end in `suffix`.
Stmt copied(const Stmt& s, const std::vector<Stmt>& loops, const std::string& suffix) {
  return transform(with_fresh_definitions(s), nullptr, [&](const Stmt& node) -> Stmt {
    if (node->kind != StmtKind::kFor) return {};
    if (std::none_of(loops.begin(), loops.end(), [&](const Stmt& l) { return l->var->name == node->var->name; }))
      return {};
    const Var var = make_var(node->var->name + suffix, node->var.dtype());
    return for_loop(var, node->begin, node->extent, node->for_kind,
                    substitute(node->stmts[0], {{node->var.get(), var}}));
  });
}

bool is_inside(const Stmt& tree, const Stmt& s) {
  return contains(tree, [&](const Stmt& node) { return node.same_node(s); });
}

// The program's body after the loop at node number `from` of `path` (which ends at a sequence) was distributed.
Stmt distribute(const LoopProgram& program, const StmtPath& path, size_t from, size_t cut, const char* primitive,
                const std::string& suffix) {
  const Stmt& loop = path.nodes[from];
  for (size_t i = from; i + 1 < path.nodes.size(); ++i) {
    const Stmt& s = path.nodes[i];
    if (s->kind == StmtKind::kFor) refuse_changing_range(s, primitive, loop);
    if (s->kind == StmtKind::kTensorized)
      refuse(refusal::kStructure,
             fmt::format("{}: loop {} holds a tensorized nest in two parts", primitive, loop->var->name),
             "a loop with no tensorized nest around the statement", "put this line before 'tensorize'");
    for (const Expr* e : {&s->begin, &s->extent, &s->condition})
      if (*e)
        walk(*e, [&](const Expr& node) {
          if (node->kind == ExprKind::kLoad)
            refuse(refusal::kStructure,
                   fmt::format("{}: '{}' depends on what {} holds", primitive, summary(s), node->buffer->name),
                   "ranges and conditions that do not depend on memory");
        });
    if (s->kind == StmtKind::kIf && s->stmts.size() > 1)
      refuse(refusal::kStructure, fmt::format("{}: '{}' has two arms", primitive, summary(s)),
             "conditions without else");
  }
  const auto [first, second] = distributed(path, from, cut);
  for (size_t i = from; i + 1 < path.nodes.size(); ++i) {
    const Stmt& s = path.nodes[i];
    if (s->kind != StmtKind::kAlloc) continue;
    const Buffer* b = s->buffer.get();
    const auto uses = [&](const Stmt& part) { return reads_buffer(part, b) || writes_buffer(part, b); };
    if (uses(first) && uses(second))
      refuse(refusal::kStructure,
             fmt::format("{}: both parts of loop {} use {}, which is allocated inside of it", primitive,
                         loop->var->name, b->name),
             "parts that share no allocation",
             fmt::format("store_at({}, {}) moves the allocation out", b->name, loop->var->name));
  }
  // Nothing of the second part may have had to happen before something of the first.
  const size_t depth = path.prefix(from + 1).loops().size();
  std::vector<Access> earlier, later;
  for (Access& access : accesses_of(program)) {
    if (access.loops.size() <= depth || !access.loops[depth].same_node(loop)) continue;
    (is_inside(first, access.stmt) ? earlier : later).push_back(std::move(access));
  }
  for (const Access& b : later) {
    for (const Access& a : earlier) {
      const size_t common = common_loops(a, b);
      for (size_t p = depth; p < common; ++p) {
        std::vector<Relation> relations(p, Relation::kEqual);
        relations.push_back(Relation::kLess);
        if (may_conflict(b, a, relations))
          refuse(refusal::kDependence, fmt::format("{}: {}", primitive, describe({b, a})),
                 "a loop whose later iterations do not need what the second part did in earlier ones");
      }
    }
  }
  return replaced(path.prefix(from + 1), seq({copied(first, path.loops(), suffix), second}));
}

std::string offered_loops(const Names& loops) {
  return loops.empty() ? "no loop of this program" : (loops.size() == 1 ? "loop " : "loops ") + listed(loops);
}

// The sequence below `loop` on the way to `store`, and the child that leads there. `attempt`: the primitive with
// another loop, which is offered unless it is refused.
std::pair<StmtPath, size_t> sequence_before(const StmtPath& store, const StmtPath& loop, const char* primitive,
                                            const std::function<void(const std::string&)>& attempt) {
  const size_t at = loop.nodes.size() - 1;
  if (at >= store.nodes.size() || !store.nodes[at].same_node(loop.stmt())) {
    Names around;
    for (const Stmt& l : store.loops()) around.push_back(l->var->name);
    refuse(refusal::kStructure,
           fmt::format("{}: loop {} is not around '{}'", primitive, loop.stmt()->var->name, summary(store.stmt())),
           offered_loops(accepted(around, attempt)));
  }
  for (size_t i = at; i + 1 < store.nodes.size(); ++i)
    if (store.nodes[i]->kind == StmtKind::kSeq) return {store.prefix(i + 1), store.children[i]};
  refuse(refusal::kStructure,
         fmt::format("{}: '{}' stands alone in loop {}", primitive, summary(store.stmt()), loop.stmt()->var->name),
         "a loop with several statements");
}

}  // namespace

void Schedule::fission(const std::string& loop_name, const std::string& block) {
  const StmtPath loop = loop_named(program_, loop_name);
  refuse_tensorized(loop, "loop " + loop_name);
  const StmtPath store = store_named(program_, block);
  auto [path, cut] = sequence_before(store, loop, "fission", [&](const std::string& other) {
    Schedule attempt = *this;
    attempt.fission(other, block);
  });
  if (cut == 0) {
    // The deepest sequence in which something stands before it.
    for (size_t i = path.nodes.size(); i + 1 < store.nodes.size() && cut == 0; ++i)
      if (store.nodes[i]->kind == StmtKind::kSeq && store.children[i] > 0) {
        path = store.prefix(i + 1);
        cut = store.children[i];
      }
    if (cut == 0)
      refuse(refusal::kStructure,
             fmt::format("fission: nothing stands before '{}' in loop {}", summary(store.stmt()), loop_name),
             "a statement that is not the first of the loop");
  }
  const Stmt body = distribute(program_, path, loop.nodes.size() - 1, cut, "fission", "_before");
  LoopProgram next = program_;
  next.body = body;
  commit(with_unique_names(next).body, {{}, "fission", {TraceArg::name(loop_name), TraceArg::name(block)}, {}, {}});
}

void Schedule::decompose_reduction(const std::string& block, const std::string& loop_name) {
  const StmtPath loop = loop_named(program_, loop_name);
  refuse_tensorized(loop, "loop " + loop_name);
  const bool qualified = block.find_first_of(".#") != std::string::npos;
  const StmtPath init = store_named(program_, qualified ? block : block + ".init");
  const BufferPtr& buffer = init.stmt()->buffer;
  if (loads_buffer(init.stmt()->value, buffer.get()))
    refuse(refusal::kStructure, fmt::format("decompose_reduction: '{}' is an update", summary(init.stmt())),
           "the store that a reduction starts from");
  auto [path, child] = sequence_before(init, loop, "decompose_reduction", [&](const std::string& other) {
    Schedule attempt = *this;
    attempt.decompose_reduction(block, other);
  });
  // The deepest sequence on the way: there the initial store goes before its siblings.
  for (size_t i = path.nodes.size(); i + 1 < init.nodes.size(); ++i)
    if (init.nodes[i]->kind == StmtKind::kSeq) {
      path = init.prefix(i + 1);
      child = init.children[i];
    }
  for (size_t i = loop.nodes.size(); i + 1 < init.nodes.size(); ++i)
    if (init.nodes[i]->kind == StmtKind::kSeq && init.children[i] > 0)
      refuse(refusal::kStructure,
             fmt::format("decompose_reduction: '{}' stands before '{}' in loop {}", summary(init.nodes[i]->stmts[0]),
                         summary(init.stmt()), loop_name),
             "an initial store that is the first statement of the loop", "fission takes a loop apart anywhere");
  const Stmt body = distribute(program_, path, loop.nodes.size() - 1, 1, "decompose_reduction", "_init");
  LoopProgram next = program_;
  next.body = body;
  commit(with_unique_names(next).body,
         {{}, "decompose_reduction", {TraceArg::name(block), TraceArg::name(loop_name)}, {}, {}});
}

namespace {

// Refuses where iterations of the loops that choose the element of the update at `path` may choose the same one, as
// those of reduced and other loops fused into one do: each of them would fold the element's partial results in again.
void refuse_repeated_elements(const LoopProgram& program, const StmtPath& path, const std::vector<Stmt>& loops,
                              const std::function<bool(const Stmt&)>& is_reduced) {
  for (const Access& access : accesses_of(program)) {
    if (!access.is_write || !access.stmt.same_node(path.stmt())) continue;
    std::vector<Relation> relations;
    for (const Stmt& loop : access.loops) {
      const bool inside =
          std::any_of(loops.begin(), loops.end(), [&](const Stmt& other) { return other.same_node(loop); });
      relations.push_back(inside && is_reduced(loop) ? Relation::kAny : Relation::kEqual);
      if (!inside || is_reduced(loop)) continue;
      relations.back() = Relation::kLess;
      if (may_conflict(access, access, relations))
        refuse(refusal::kDependence,
               fmt::format("rfactor: iterations of '{}' may fold into one element: '{}'", summary(loop),
                           summary(path.stmt())),
               "a reduction whose other loops choose an element each", "rfactor before fuse");
      relations.back() = Relation::kEqual;
    }
  }
}

}  // namespace

std::string Schedule::rfactor(const std::string& block, const std::string& loop_name, std::string as) {
  const StmtPath path = store_named(program_, block);
  refuse_tensorized(path, "'" + block + "'");
  const Stmt& update = path.stmt();
  const auto reduction = reduction_update(update);
  if (!reduction)
    refuse(refusal::kStructure, fmt::format("rfactor: '{}' is no reduction", summary(update)),
           "an update y[..] = y[..] + v, or with *, min or max, that uses y nowhere else");
  const BufferPtr& buffer = update->buffer;
  // The loops that stand directly around the update, or around an `if` that leaves out what a split made too much.
  size_t first = path.nodes.size() - 1;
  Expr guard;
  if (first > 0 && path.nodes[first - 1]->kind == StmtKind::kIf && path.nodes[first - 1]->stmts.size() == 1) {
    guard = path.nodes[first - 1]->condition;
    walk(guard, [&](const Expr& e) {
      if (e->kind == ExprKind::kLoad)
        refuse(refusal::kStructure, fmt::format("rfactor: '{}' depends on memory", summary(path.nodes[first - 1])),
               "a condition on loops only");
    });
    --first;
  }
  const size_t innermost = first;
  while (first > 0 && path.nodes[first - 1]->kind == StmtKind::kFor) --first;
  std::vector<Stmt> loops(path.nodes.begin() + static_cast<std::ptrdiff_t>(first),
                          path.nodes.begin() + static_cast<std::ptrdiff_t>(innermost));
  const auto is_reduced = [&](const Stmt& loop) {
    return std::none_of(update->indices.begin(), update->indices.end(),
                        [&](const Expr& e) { return uses_var(e, loop->var); });
  };
  Names reduced;
  for (const Stmt& loop : loops)
    if (is_reduced(loop) && loop->for_kind == ForKind::kSerial && as_int(loop->extent))
      reduced.push_back(loop->var->name);
  const auto chosen =
      std::find_if(loops.begin(), loops.end(), [&](const Stmt& loop) { return loop->var->name == loop_name; });
  if (chosen == loops.end() || !is_reduced(*chosen) || (*chosen)->for_kind != ForKind::kSerial ||
      !as_int((*chosen)->extent)) {
    loop_named(program_, loop_name);
    refuse(refusal::kStructure,
           fmt::format("rfactor: loop {} is no serial loop of constant extent that '{}' reduces over", loop_name,
                       summary(update)),
           "loops " + listed(reduced));
  }
  const Stmt factor = *chosen;
  for (const Stmt& loop : loops)
    if (loop->for_kind != ForKind::kSerial)
      refuse(refusal::kStructure,
             fmt::format("rfactor: '{}' is {} already", summary(loop), for_kind_name(loop->for_kind)), "serial loops");
  for (const Stmt& outer : loops)
    for (const Stmt& inner : loops)
      if (uses_var(inner->begin, outer->var) || uses_var(inner->extent, outer->var))
        refuse(refusal::kStructure,
               fmt::format("rfactor: the range of '{}' depends on {}", summary(inner), outer->var->name),
               "loops whose ranges do not depend on each other");
  for (const Stmt& loop : loops) refuse_changing_range(loop, "rfactor", loops.front());
  refuse_repeated_elements(program_, path, loops, is_reduced);
  std::vector<Expr> shape = {factor->extent}, at = {simplify(factor->var - factor->begin)};
  for (size_t d = 0; d < update->indices.size(); ++d) {
    const bool inside =
        std::any_of(loops.begin(), loops.end(), [&](const Stmt& l) { return uses_var(update->indices[d], l->var); });
    if (!inside) continue;
    if (!as_int(buffer->shape[d]))
      refuse(refusal::kStructure, fmt::format("rfactor: {} has no constant shape", buffer->name),
             "a buffer of constant shape");
    shape.push_back(buffer->shape[d]);
    at.push_back(update->indices[d]);
  }
  const std::string name = new_names(program_, as.empty() ? Names{} : Names{as}, {buffer->name + "_rf"})[0];
  const BufferPtr partial = make_buffer(name, buffer->dtype, shape, MemoryScope::kLocal);
  const auto combine_values = [&](Expr a, Expr b) { return binary(reduction->op, std::move(a), std::move(b)); };
  const Combiner combiner = reduction->op == BinaryOp::kAdd   ? Combiner::kSum
                            : reduction->op == BinaryOp::kMul ? Combiner::kProd
                            : reduction->op == BinaryOp::kMin ? Combiner::kMin
                                                              : Combiner::kMax;
  // `keep`: which loops the nest has; the factor's is the outermost, or the innermost.
  const auto nest = [&](Stmt body, bool factor_outside, bool with_others) {
    const auto wrap = [&](const Stmt& loop) {
      body = for_loop(loop->var, loop->begin, loop->extent, ForKind::kSerial, body);
    };
    if (!factor_outside) wrap(factor);
    for (size_t i = loops.size(); i-- > 0;)
      if (!loops[i].same_node(factor) && (with_others || !is_reduced(loops[i]))) wrap(loops[i]);
    if (factor_outside) wrap(factor);
    return body;
  };
  // Conditions on what is reduced leave out terms; others say which sums there are.
  std::vector<Expr> conditions, of_sums;
  if (guard) split_conjunction(guard, conditions);
  for (const Expr& condition : conditions) {
    bool on_reduced = false, on_others = false;
    walk(condition, [&](const Expr& e) {
      if (e->kind != ExprKind::kVar) return;
      const bool reduced_var = std::any_of(
          loops.begin(), loops.end(), [&](const Stmt& loop) { return is_reduced(loop) && loop->var.same_node(e); });
      (reduced_var ? on_reduced : on_others) = true;
    });
    if (on_reduced && on_others)
      refuse(
          refusal::kStructure,
          fmt::format("rfactor: the condition '{}' is about what is reduced and about the sum", to_string(condition)),
          "conditions on loops that are reduced over, or on the others");
    if (!on_reduced) of_sums.push_back(condition);
  }
  const auto for_sums = [&](Stmt s) {
    for (const Expr& condition : of_sums) s = if_then(condition, s);
    return s;
  };
  const Stmt init_one = for_sums(store(partial, at, combiner_identity(combiner, buffer->dtype)));
  const Stmt init = copied(nest(init_one, true, false), loops, "_init");
  const Expr old = load(partial, at);
  const Stmt add =
      store(partial, at,
            update->value->kind == ExprKind::kFma ? fma(update->value->operands[0], update->value->operands[1], old)
                                                  : combine_values(old, reduction->value));
  const Stmt work = nest(guard ? if_then(guard, add) : add, true, true);
  const Stmt combine_one =
      for_sums(store(buffer, update->indices, combine_values(load(buffer, update->indices), load(partial, at))));
  const Stmt finish = copied(nest(combine_one, false, false), loops, "_final");
  LoopProgram next = program_;
  next.body = replaced(path.prefix(first + 1), alloc(partial, seq({init, work, finish})));
  commit(with_unique_names(next).body, {{name}, "rfactor", {TraceArg::name(block), TraceArg::name(loop_name)}, {}, {}});
  return name;
}

void Schedule::predicate(const std::string& statement) {
  const StmtPath path = store_named(program_, statement);
  refuse_tensorized(path, "'" + statement + "'");
  const Stmt& update = path.stmt();
  const auto reduction = reduction_update(update);
  if (!reduction || update->value->kind == ExprKind::kFma)
    refuse(refusal::kStructure, fmt::format("predicate: '{}' does not fold in a value", summary(update)),
           "an update y[..] = y[..] + v, or with *, min or max", "put this line before 'annotate'");
  const Combiner combiner = reduction->op == BinaryOp::kAdd   ? Combiner::kSum
                            : reduction->op == BinaryOp::kMul ? Combiner::kProd
                            : reduction->op == BinaryOp::kMin ? Combiner::kMin
                                                              : Combiner::kMax;
  std::vector<Expr> terms;
  const Expr value = take_guards(reduction->value, combiner, terms);
  for (const Expr& term : terms)
    walk(term, [&](const Expr& e) {
      if (e->kind == ExprKind::kLoad)
        refuse(refusal::kStructure,
               fmt::format("predicate: a condition of '{}' is loaded from memory", summary(update)),
               "conditions on loops only");
    });
  const Expr old = load(update->buffer, update->indices);
  const auto around = [](const std::vector<Expr>& conditions, Stmt body) {
    for (size_t i = conditions.size(); i-- > 0;) body = if_then(conditions[i], std::move(body));
    return body;
  };
  // Outwards through loops and conditions that hold nothing else.
  Stmt body = store(update->buffer, update->indices, binary(reduction->op, old, value));
  size_t at = path.nodes.size() - 1;
  for (; at > 0; --at) {
    const Stmt& parent = path.nodes[at - 1];
    if (parent->kind == StmtKind::kIf && parent->stmts.size() == 1) {
      bool loads = false;
      walk(parent->condition, [&](const Expr& e) { loads |= e->kind == ExprKind::kLoad; });
      if (loads) break;
      split_conjunction(parent->condition, terms);
      continue;
    }
    if (parent->kind != StmtKind::kFor || is_concurrent(parent->for_kind)) break;
    std::vector<Expr> inside, outside;
    for (const Expr& term : terms) (uses_var(term, parent->var) ? inside : outside).push_back(term);
    body = with_body(parent, around(inside, std::move(body)));
    terms = std::move(outside);
  }
  body = around(terms, std::move(body));
  const StmtPath outermost = path.prefix(at + 1);
  body = simplified(body, bounds_of_loops(program_, outermost.loops()));
  commit(replaced(outermost, body), {{}, "predicate", {TraceArg::name(statement)}, {}, {}});
}

}  // namespace tessera::inline schedule
