// split, fuse, reorder, tile, pad; vectorize, unroll, parallel, bind.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <set>

#include "loop/concurrency.h"
#include "loop/printer.h"
#include "loop/verify.h"
#include "schedule/primitives/rewriter.h"
#include "schedule/primitives/unrolled_copies.h"
#include "support/error.h"

namespace tessera::inline schedule {
namespace {

constexpr int64_t kMaxFactor = int64_t{1} << 40;
constexpr int64_t kMostElements = int64_t{1} << 28;  // of an allocation, which every thread has of its own

bool has_load(const Expr& e) {
  bool found = false;
  walk(e, [&](const Expr& node) { found |= node->kind == ExprKind::kLoad; });
  return found;
}

void require_serial(const Stmt& loop, const char* primitive) {
  if (loop->for_kind == ForKind::kSerial) return;
  refuse(refusal::kStructure,
         fmt::format("{}: '{}' is {} already", primitive, summary(loop), for_kind_name(loop->for_kind)),
         "a serial loop",
         fmt::format("put '{}' before the line that made it {}", primitive, for_kind_name(loop->for_kind)));
}

// `s` where the condition holds; the `if` stands around its stores, so that loops stay directly in each other.
Stmt guarded(const Expr& condition, const Stmt& s) {
  switch (s->kind) {
    case StmtKind::kSeq: {
      std::vector<Stmt> children;
      for (const Stmt& child : s->stmts) children.push_back(guarded(condition, child));
      return seq(children);
    }
    case StmtKind::kFor:
      if (has_load(s->begin) || has_load(s->extent)) break;
      return with_body(s, guarded(condition, s->stmts[0]));
    case StmtKind::kAlloc: return alloc(s->buffer, guarded(condition, s->stmts[0]));
    case StmtKind::kIf:
      if (s->stmts.size() > 1 || has_load(s->condition)) break;
      return if_then(logical_and(condition, s->condition), s->stmts[0]);
    default: break;
  }
  return if_then(condition, s);
}

// Loops that stand directly in each other, from the first named one (in the order of the nest) to the last.
std::vector<Stmt> chain_of(const LoopProgram& program, const Names& names, const char* primitive, StmtPath& outermost) {
  std::set<std::string> left(names.begin(), names.end());
  if (left.size() != names.size())
    refuse(refusal::kArguments, fmt::format("{}: a loop is named twice", primitive), "each loop once");
  if (names.size() < 2)
    refuse(refusal::kArguments, fmt::format("{} needs two loops or more", primitive), "loops of one nest");
  std::optional<StmtPath> deepest;
  for (const std::string& name : names) {
    StmtPath path = loop_named(program, name);
    if (!deepest || path.nodes.size() > deepest->nodes.size()) deepest = std::move(path);
  }
  size_t first = deepest->nodes.size();
  for (size_t i = deepest->nodes.size(); i-- > 0;)
    if (deepest->nodes[i]->kind == StmtKind::kFor && left.erase(deepest->nodes[i]->var->name)) first = i;
  if (!left.empty())
    refuse(refusal::kStructure,
           fmt::format("{}: loop {} is not around or inside loop {}", primitive, *left.begin(),
                       deepest->stmt()->var->name),
           "loops of one nest");
  std::vector<Stmt> chain;
  for (size_t i = first; i < deepest->nodes.size(); ++i) {
    const Stmt& s = deepest->nodes[i];
    if (s->kind != StmtKind::kFor) {
      std::string what = fmt::format("'{}'", summary(s));
      if (s->kind == StmtKind::kSeq) {
        for (size_t c = 0; c < s->stmts.size(); ++c)
          if (c != deepest->children[i]) {
            what =
                fmt::format("'{}' stands beside '{}'", summary(s->stmts[c]), summary(s->stmts[deepest->children[i]]));
            break;
          }
      } else {
        what += " stands between them";
      }
      refuse(refusal::kStructure,
             fmt::format("{}: loops {} and {} are not directly in each other: {}", primitive, chain.back()->var->name,
                         deepest->stmt()->var->name, what),
             "loops with nothing else between them",
             "decompose_reduction or store_at moves statements and allocations out of the way");
    }
    chain.push_back(s);
  }
  outermost = deepest->prefix(first + 1);
  return chain;
}

Names names_of(const std::vector<Stmt>& loops) {
  Names names;
  for (const Stmt& loop : loops) names.push_back(loop->var->name);
  return names;
}

struct Problem {
  const char* id = refusal::kStructure;
  std::string text;  // empty: none
};

// Why loops that stand directly in each other cannot become one.
Problem fuse_problem(const std::vector<Stmt>& chain) {
  int64_t total = 1;
  for (size_t i = 0; i < chain.size(); ++i) {
    const Stmt& loop = chain[i];
    if (loop->for_kind != ForKind::kSerial)
      return {refusal::kStructure, fmt::format("'{}' is {} already", summary(loop), for_kind_name(loop->for_kind))};
    for (size_t j = 0; j < i; ++j)
      if (uses_var(loop->begin, chain[j]->var) || uses_var(loop->extent, chain[j]->var))
        return {refusal::kStructure,
                fmt::format("the range of '{}' depends on {}", summary(loop), chain[j]->var->name)};
    if (has_load(loop->begin) || has_load(loop->extent))
      return {refusal::kStructure, fmt::format("the range of '{}' is loaded from memory", summary(loop))};
    const auto extent = as_int(loop->extent);
    const int64_t so_far = total;
    if (extent && __builtin_mul_overflow(total, *extent, &total))
      return {refusal::kArguments,
              fmt::format("{} times {} iterations are more than 64 bits can count", so_far, *extent)};
  }
  return {};
}

// Pairs of loops that could become one.
std::string legal_pairs(const LoopProgram& program) {
  Names pairs;
  for (const StmtPath& path : find_statements(program.body, [](const Stmt& s) { return s->kind == StmtKind::kFor; })) {
    const Stmt &outer = path.stmt(), &inner = outer->stmts[0];
    const bool is_tensorized = std::any_of(path.nodes.begin(), path.nodes.end(),
                                           [](const Stmt& s) { return s->kind == StmtKind::kTensorized; });
    if (inner->kind == StmtKind::kFor && !is_tensorized && fuse_problem({outer, inner}).text.empty())
      pairs.push_back(fmt::format("[{}, {}]", outer->var->name, inner->var->name));
  }
  return pairs.empty() ? "no loops of this program" : "fuse of " + listed(pairs);
}

// Why the accesses inside the chain do not allow `order` (places in the chain, outermost first); empty when they do.
std::optional<Carried> order_violation(const LoopProgram& program, size_t depth, const std::vector<Stmt>& chain,
                                       const std::vector<size_t>& order) {
  const size_t n = chain.size();
  std::vector<Access> inside;
  for (Access& access : accesses_of(program))
    if (access.loops.size() >= depth + n && access.loops[depth + n - 1].same_node(chain[n - 1]))
      inside.push_back(std::move(access));
  std::vector<size_t> place(n);  // in the new order
  for (size_t i = 0; i < n; ++i) place[order[i]] = i;
  for (const Access& a : inside) {
    for (const Access& b : inside) {
      if (a.buffer != b.buffer || (!a.is_write && !b.is_write) || same_reduction(a, b)) continue;
      // `p`: the first loop that tells the iterations apart now, a's first; `r`: then, b's first.
      for (size_t p = 0; p < n; ++p) {
        for (size_t r = p + 1; r < n; ++r) {
          if (place[r] > place[p]) continue;
          std::vector<Relation> relations(depth + n, Relation::kAny);
          std::fill(relations.begin(), relations.begin() + static_cast<std::ptrdiff_t>(depth + p), Relation::kEqual);
          for (size_t q = 0; q < n; ++q)
            if (place[q] < place[r]) relations[depth + q] = Relation::kEqual;
          if (relations[depth + p] == Relation::kEqual) continue;
          relations[depth + p] = Relation::kLess;
          relations[depth + r] = Relation::kGreater;
          if (may_conflict(a, b, relations)) return Carried{a, b};
        }
      }
    }
  }
  return std::nullopt;
}

// Why loops that stand directly in each other cannot stand in `order`.
Problem order_problem(const LoopProgram& program, size_t depth, const std::vector<Stmt>& chain,
                      const std::vector<size_t>& order) {
  Names names;
  for (size_t i = 0; i < order.size(); ++i) {
    const Stmt& loop = chain[order[i]];
    names.push_back(loop->var->name);
    if (has_load(loop->begin) || has_load(loop->extent))
      return {refusal::kStructure, fmt::format("the range of '{}' is loaded from memory", summary(loop))};
    for (size_t j = i + 1; j < order.size(); ++j) {
      const Stmt& inner = chain[order[j]];
      if (uses_var(loop->begin, inner->var) || uses_var(loop->extent, inner->var))
        return {refusal::kStructure, fmt::format("the range of '{}' depends on {}, which would stand inside it",
                                                 summary(loop), inner->var->name)};
    }
  }
  if (const auto violation = order_violation(program, depth, chain, order))
    return {refusal::kDependence,
            fmt::format("the order {} changes the result: {}", listed(names), describe(*violation))};
  return {};
}

// The loops of the chain in an order in which those with `names` take each other's places.
std::vector<size_t> order_of(const std::vector<Stmt>& chain, const Names& names) {
  std::vector<size_t> order;
  size_t next = 0;
  for (size_t i = 0; i < chain.size(); ++i) {
    const bool named = std::find(names.begin(), names.end(), chain[i]->var->name) != names.end();
    size_t place = i;
    if (named)
      for (place = 0; chain[place]->var->name != names[next];) ++place;
    next += named;
    order.push_back(place);
  }
  return order;
}

// Orders of the named loops that differ from the one they are in.
std::string legal_orders(const LoopProgram& program, size_t depth, const std::vector<Stmt>& chain, Names names) {
  constexpr size_t kMostNames = 4, kMostOrders = 3;  // of the first, all orders are tried
  Names orders;
  std::sort(names.begin(), names.end());
  do {
    const std::vector<size_t> order = order_of(chain, names);
    if (names.size() > kMostNames || orders.size() == kMostOrders) break;
    if (!std::is_sorted(order.begin(), order.end()) && order_problem(program, depth, chain, order).text.empty())
      orders.push_back(fmt::format("[{}]", listed(names)));
  } while (std::next_permutation(names.begin(), names.end()));
  if (names.size() > kMostNames) return "orders in which the earlier iteration stays earlier";
  return orders.empty() ? "only the order they are in" : "reorder of " + listed(orders);
}

// Programs that nothing could read back or judge in a sensible time.
void refuse_too_large(const Stmt& body, const std::string& primitive) {
  constexpr int kMaxDepth = 100;
  constexpr int64_t kMaxStatements = 2000;
  constexpr int64_t kMaxNodes = 100'000;
  int64_t statements = 0;
  int64_t nodes = 0;
  const std::function<int(const Stmt&)> depth = [&](const Stmt& s) {
    ++statements;
    int below = 0;
    for (const Stmt& child : s->stmts) below = std::max(below, depth(child));
    return below + 1;
  };
  const int deep = depth(body);
  walk(body, nullptr, [&](const Expr&) { ++nodes; });
  if (deep > kMaxDepth || statements > kMaxStatements || nodes > kMaxNodes)
    refuse(refusal::kTooLarge,
           fmt::format("{}: the program would have {} statements, {} in each other, and expressions of {} nodes",
                       primitive, statements, deep, nodes),
           fmt::format("up to {} statements, {} in each other, {} nodes", kMaxStatements, kMaxDepth, kMaxNodes));
  walk(
      body,
      [&](const Stmt& s) {
        if (s->kind != StmtKind::kAlloc) return;
        int64_t elements = 1;
        for (const Expr& dim : s->buffer->shape)
          if (__builtin_mul_overflow(elements, as_int(dim).value_or(1), &elements) || elements > kMostElements)
            refuse(refusal::kTooLarge, fmt::format("{}: '{}' would be too large", primitive, summary(s)),
                   fmt::format("allocations of up to {} elements", kMostElements), "split a loop first");
      },
      nullptr);
}

// Refuses where the iterations, rounded up to whole multiples, cannot be counted from the loop's first one on.
void refuse_uncountable(const Stmt& loop, int64_t multiple, const char* primitive) {
  const auto extent = as_int(loop->extent);
  const int64_t begin = std::max<int64_t>(as_int(loop->begin).value_or(0), 0);
  int64_t end = 0;
  if (extent && (__builtin_add_overflow(*extent, multiple, &end) || __builtin_add_overflow(end, begin, &end)))
    refuse(refusal::kArguments,
           fmt::format("{}: the iterations of '{}', rounded up to a multiple of {}, are more than 64 bits can count",
                       primitive, summary(loop), multiple),
           fmt::format("loops that end at {} at most", INT64_MAX - multiple));
}

}  // namespace

Schedule::Schedule(LoopProgram program, std::optional<Target> target, Intrinsics declared)
    : program_(with_unique_names(program)), target_(std::move(target)), declared_(std::move(declared)) {}

void Schedule::commit(Stmt body, TraceStep step) {
  LoopProgram next = program_;
  next.body = std::move(body);
  commit(std::move(next), std::move(step));
}

void Schedule::commit(LoopProgram next, TraceStep step) {
  refuse_too_large(next.body, step.primitive);
  if (const std::string problem = too_many_copies(program_.body, next.body); !problem.empty())
    refuse(refusal::kTooLarge, fmt::format("{}: {}", step.primitive, problem), legal_copies(), "split a loop first");
  if (const std::string problem = concurrency_problem(next.body).text; !problem.empty())
    refuse(refusal::kStructure, fmt::format("{}: {}", step.primitive, problem),
           "primitives that leave concurrent loops as they must be", "put 'parallel' and 'bind' after this line");
  if (verify_each) {
    const auto check_intrinsic = [&](const Stmt& s) {
      if (s->kind != StmtKind::kTensorized || !s->intrinsic) return;
      if (const std::string reason = match_intrinsic(*s->intrinsic, s->stmts[0]); !reason.empty())
        refuse(refusal::kIntrinsic,
               fmt::format("{}: the body of {} does not match the intrinsic: {}", step.primitive, s->intrinsic->name,
                           reason),
               "primitives that leave tensorized nests alone", "put 'tensorize' after this line");
    };
    walk(next.body, check_intrinsic, nullptr);
    verify_or_throw(next, step.primitive);
  }
  program_ = std::move(next);
  steps_.push_back(std::move(step));
}

Names Schedule::split(const std::string& name, const std::vector<std::optional<int64_t>>& factors, Names as) {
  const StmtPath path = loop_named(program_, name);
  const Stmt& loop = path.stmt();
  refuse_tensorized(path, "loop " + name);
  require_serial(loop, "split");
  refuse_changing_range(loop, "split");
  if (factors.size() < 2 || factors.size() > 8)
    refuse(refusal::kArguments, fmt::format("split of {} into {} loops", name, factors.size()), "2 to 8 factors");
  int64_t product = 1;
  size_t open = factors.size();
  TraceArg list = TraceArg::of_list({});
  for (size_t i = 0; i < factors.size(); ++i) {
    list.list.push_back(factors[i] ? TraceArg::integer(*factors[i]) : TraceArg::open());
    if (!factors[i]) {
      if (open < factors.size()) refuse(refusal::kArguments, "split with two open factors", "at most one '_'");
      open = i;
    } else if (*factors[i] < 1) {
      refuse(refusal::kArguments, fmt::format("split of {} by {}", name, *factors[i]), "factors of 1 or more");
    } else if (__builtin_mul_overflow(product, *factors[i], &product) || product > kMaxFactor) {
      refuse(refusal::kArguments, fmt::format("split of {} by {}: that is too large", name, *factors[i]),
             fmt::format("factors whose product is at most {}", kMaxFactor));
    }
  }
  refuse_uncountable(loop, product, "split");
  const auto extent = as_int(loop->extent);
  std::vector<Expr> extents(factors.size());
  for (size_t i = 0; i < factors.size(); ++i)
    extents[i] = i == open ? simplify(ceildiv(loop->extent, product)) : Expr(*factors[i]);
  bool exact = false;
  if (open < factors.size()) {
    exact = extent && *extent % product == 0;
  } else {
    if (!extent)
      refuse(refusal::kArguments, fmt::format("split: the extent of '{}' is not constant", summary(loop)),
             "one factor must be open ('_')");
    if (product < *extent)
      refuse(refusal::kArguments,
             fmt::format("split: {} iterations do not cover the {} of '{}'", product, *extent, summary(loop)),
             fmt::format("factors whose product is at least {}, or one '_'", *extent));
    exact = product == *extent;
  }
  Names wishes;
  for (size_t i = 0; i < factors.size(); ++i) wishes.push_back(fmt::format("{}_{}", name, i));
  const Names names = new_names(program_, as, wishes);

  std::vector<Var> vars;
  for (const std::string& n : names) vars.push_back(make_var(n));
  Expr flat = vars[0];
  for (size_t i = 1; i < vars.size(); ++i) flat = flat * extents[i] + vars[i];
  Stmt body = substitute(loop->stmts[0], {{loop->var.get(), loop->begin + flat}});
  if (!exact) body = guarded(flat < loop->extent, body);
  for (size_t i = vars.size(); i-- > 0;) body = for_loop(vars[i], 0, extents[i], ForKind::kSerial, body);
  body = simplified(body, bounds_of_loops(program_, path.loops()));
  commit(replaced(path, body), {names, "split", {TraceArg::name(name), list}, {}, {}});
  return names;
}

std::string Schedule::fuse(const Names& names, std::string as) {
  StmtPath outermost;
  const std::vector<Stmt> chain = chain_of(program_, names, "fuse", outermost);
  refuse_tensorized(outermost, "loop " + names[0]);
  if (chain.size() != names.size())
    refuse(refusal::kStructure, "fuse: other loops stand between those named",
           "all loops of the nest from the first to the last");
  for (size_t i = 0; i < chain.size(); ++i)
    if (chain[i]->var->name != names[i])
      refuse(refusal::kArguments, fmt::format("fuse: loop {} stands inside loop {}", names[i], chain[i]->var->name),
             fmt::format("the loops from the outside to the inside: {}", listed(names_of(chain))));
  if (const Problem problem = fuse_problem(chain); !problem.text.empty())
    refuse(problem.id, "fuse: " + problem.text, legal_pairs(program_));
  Expr total = 1;
  for (const Stmt& loop : chain) total = total * loop->extent;
  std::string wish;
  for (const std::string& n : names) wish += n + "_";
  const std::string name = new_names(program_, as.empty() ? Names{} : Names{as}, {wish + "fused"})[0];
  const Var var = make_var(name);
  VarMap map;
  Expr rest = var;
  for (size_t i = chain.size(); i-- > 0;) {
    map[chain[i]->var.get()] = chain[i]->begin + (i == 0 ? rest : floormod(rest, chain[i]->extent));
    rest = floordiv(rest, chain[i]->extent);
  }
  Stmt fused = for_loop(var, 0, simplify(total), ForKind::kSerial, substitute(chain.back()->stmts[0], map));
  fused = simplified(fused, bounds_of_loops(program_, outermost.loops()));
  commit(replaced(outermost, fused), {{name}, "fuse", {TraceArg::names(names)}, {}, {}});
  return name;
}

void Schedule::reorder(const Names& names) {
  StmtPath outermost;
  const std::vector<Stmt> chain = chain_of(program_, names, "reorder", outermost);
  refuse_tensorized(outermost, "loop " + names[0]);
  const std::vector<size_t> order = order_of(chain, names);
  const size_t depth = outermost.loops().size();
  if (const Problem problem = order_problem(program_, depth, chain, order); !problem.text.empty())
    refuse(problem.id, fmt::format("reorder: {}", problem.text), legal_orders(program_, depth, chain, names));
  Stmt nest = chain.back()->stmts[0];
  for (size_t i = order.size(); i-- > 0;) nest = with_body(chain[order[i]], nest);
  const Stmt body = replaced(outermost, nest);
  for (size_t i = 0; i < order.size(); ++i)
    if (std::any_of(order.begin() + static_cast<ptrdiff_t>(i), order.end(), [&](size_t j) { return j < order[i]; }))
      recheck_kind(program_, body, chain[order[i]]->var->name, "reorder",
                   "orders in which the loops that carry a dependence stay outside of it");
  commit(body, {{}, "reorder", {TraceArg::names(names)}, {}, {}});
}

Names Schedule::tile(const std::string& i, const std::string& j, int64_t i_factor, int64_t j_factor, Names as) {
  StmtPath outermost;
  for (const Stmt& loop : chain_of(program_, {i, j}, "tile", outermost))
    if (loop->var->name == i || loop->var->name == j) require_serial(loop, "tile");
  Schedule attempt = *this;
  const Names wishes = {i + "_0", j + "_0", i + "_1", j + "_1"};
  const Names names = new_names(program_, as, wishes);
  try {
    attempt.split(i, {std::nullopt, i_factor}, {names[0], names[2]});
    attempt.split(j, {std::nullopt, j_factor}, {names[1], names[3]});
    attempt.reorder({names[0], names[1], names[2], names[3]});
  } catch (const UserError& error) {
    // In the words of what the user wrote.
    Diagnostic said = error.diagnostic();
    for (const std::string part : {"split", "reorder"})
      if (said.message.starts_with(part)) said.message.replace(0, part.size(), "tile");
    throw UserError(std::move(said));
  }
  commit(attempt.program_.body,
         {names,
          "tile",
          {TraceArg::name(i), TraceArg::name(j), TraceArg::integer(i_factor), TraceArg::integer(j_factor)},
          {},
          {}});
  return names;
}

void Schedule::pad(const std::string& name, int64_t multiple) {
  const StmtPath path = loop_named(program_, name);
  const Stmt& loop = path.stmt();
  refuse_tensorized(path, "loop " + name);
  require_serial(loop, "pad");
  refuse_changing_range(loop, "pad");
  if (multiple < 1 || multiple > kMaxFactor)
    refuse(
        refusal::kArguments,
        fmt::format("pad of {} to a multiple of {}: that is too {}", name, multiple, multiple < 1 ? "small" : "large"),
        fmt::format("1 to {}", kMaxFactor));
  refuse_uncountable(loop, multiple, "pad");
  Expr extent = simplify(ceildiv(loop->extent, multiple) * Expr(multiple));
  Stmt body = loop->stmts[0];
  if (!is_true(simplify(equal(extent, loop->extent)))) body = guarded(loop->var < loop->begin + loop->extent, body);
  commit(replaced(path, for_loop(loop->var, loop->begin, extent, ForKind::kSerial, body)),
         {{}, "pad", {TraceArg::name(name), TraceArg::integer(multiple)}, {}, {}});
}

namespace {

// Why the loop cannot become `kind`; empty when it can. `words` is what an error says, without the legal choices.
std::string kind_problem(const LoopProgram& program, const StmtPath& path, ForKind kind, const char** id) {
  const Stmt& loop = path.stmt();
  *id = refusal::kStructure;
  if (loop->for_kind != ForKind::kSerial)
    return fmt::format("'{}' is {} already", summary(loop), for_kind_name(loop->for_kind));
  for (const Stmt& s : path.nodes)
    if (s->kind == StmtKind::kTensorized) return fmt::format("'{}' is part of a tensorized nest", summary(loop));
  if (!is_concurrent(kind) && !as_int(loop->extent))
    return fmt::format("'{}' has no constant extent, and {} loops need one", summary(loop), for_kind_name(kind));
  if (kind == ForKind::kUnrolled) {
    *id = refusal::kTooLarge;
    return too_many_copies(program.body, replaced(path, with_kind(loop, kind)));
  }
  for (size_t i = 0; i + 1 < path.nodes.size(); ++i) {
    const Stmt& outer = path.nodes[i];
    if (outer->kind == StmtKind::kFor && outer->for_kind == ForKind::kVectorized)
      return fmt::format("'{}' stands inside '{}'", summary(loop), summary(outer));
  }
  Stmt inner;
  walk(
      loop->stmts[0],
      [&](const Stmt& s) {
        const bool is_vector = s->kind == StmtKind::kFor && s->for_kind == ForKind::kVectorized;
        if (kind == ForKind::kVectorized && (is_vector || s->kind == StmtKind::kTensorized)) inner = s;
      },
      nullptr);
  if (inner) return fmt::format("'{}' stands around '{}'", summary(loop), summary(inner));
  const ConcurrencyProblem problem = concurrency_problem(replaced(path, with_kind(loop, kind)));
  if (problem.threads > 0) *id = refusal::kTooLarge;
  if (!problem.text.empty()) return problem.text;
  *id = refusal::kDependence;
  if (const auto carried = carried_dependence(program, path, kind == ForKind::kVectorized))
    return fmt::format("iterations of '{}' are not independent: {}", summary(loop), describe(*carried));
  return "";
}

constexpr std::array kAxes = {ForKind::kBlockX,  ForKind::kBlockY,  ForKind::kBlockZ,
                              ForKind::kThreadX, ForKind::kThreadY, ForKind::kThreadZ};

// The loops that could become `kind`, and the axes that this loop could be bound to instead.
std::string legal_kinds(const LoopProgram& program, const StmtPath& path, ForKind kind, const char* primitive) {
  const char* unused = nullptr;
  const auto is_legal = [&](const StmtPath& loop, ForKind k) {
    return kind_problem(program, loop, k, &unused).empty();
  };
  const Names loops = loops_where(program, [&](const StmtPath& other) { return is_legal(other, kind); });
  Names axes;
  if (is_block_axis(kind) || is_thread_axis(kind))
    for (const ForKind axis : kAxes)
      if (is_legal(path, axis)) axes.emplace_back(for_kind_name(axis));
  if (!axes.empty()) return fmt::format("{} of {} to {}", primitive, path.stmt()->var->name, listed(axes));
  return loops.empty() ? "no loop of this program" : fmt::format("{} of {}", primitive, listed(loops));
}

Stmt with_loop_kind(const LoopProgram& program, const std::string& name, ForKind kind, const char* primitive) {
  const StmtPath path = loop_named(program, name);
  const char* id = nullptr;
  if (const std::string problem = kind_problem(program, path, kind, &id); !problem.empty()) {
    const std::string choices = legal_kinds(program, path, kind, primitive);
    if (std::string_view(id) == refusal::kTooLarge) {
      const std::string bound =
          is_thread_axis(kind) ? fmt::format("up to {} threads of a block", kMostThreads) : legal_copies();
      refuse(id, fmt::format("{}: {}", primitive, problem), fmt::format("{}: {}", bound, choices),
             fmt::format("split loop {}, and {} the inner part", name, primitive));
    }
    refuse(id, fmt::format("{}: {}", primitive, problem), choices);
  }
  return replaced(path, with_kind(path.stmt(), kind));
}

}  // namespace

void Schedule::vectorize(const std::string& loop) {
  commit(with_loop_kind(program_, loop, ForKind::kVectorized, "vectorize"),
         {{}, "vectorize", {TraceArg::name(loop)}, {}, {}});
}

void Schedule::unroll(const std::string& loop) {
  commit(with_loop_kind(program_, loop, ForKind::kUnrolled, "unroll"), {{}, "unroll", {TraceArg::name(loop)}, {}, {}});
}

void Schedule::parallel(const std::string& loop) {
  commit(with_loop_kind(program_, loop, ForKind::kParallel, "parallel"),
         {{}, "parallel", {TraceArg::name(loop)}, {}, {}});
}

void Schedule::bind(const std::string& loop, const std::string& axis) {
  const auto kind = std::find_if(kAxes.begin(), kAxes.end(), [&](ForKind k) { return axis == for_kind_name(k); });
  if (kind == kAxes.end()) {
    Names names;
    for (const ForKind k : kAxes) names.emplace_back(for_kind_name(k));
    refuse(refusal::kAxis, fmt::format("bind: {} is no axis of threads", axis), listed(names));
  }
  commit(with_loop_kind(program_, loop, *kind, "bind"),
         {{}, "bind", {TraceArg::name(loop), TraceArg::name(axis)}, {}, {}});
}

}  // namespace tessera::inline schedule
