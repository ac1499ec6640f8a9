// tensorize, virtual_thread, software_pipeline, annotate; sampled decisions.
#include <fmt/format.h>

#include <algorithm>

#include "loop/fresh.h"
#include "loop/intrinsic.h"
#include "loop/intrinsic_text.h"
#include "loop/loop_range.h"
#include "loop/printer.h"
#include "loop/unify.h"
#include "schedule/primitives/rewriter.h"
#include "support/error.h"
#include "support/nearest_names.h"

namespace tessera::inline schedule {
namespace {

// y + a * b as fma(a, b, y), in stores of floats.
Stmt with_fma(const Stmt& store_stmt) {
  const Expr& v = store_stmt->value;
  if (v->kind != ExprKind::kBinary || v->binary != BinaryOp::kAdd || !is_float(v.dtype())) return {};
  const auto is_product = [](const Expr& e) { return e->kind == ExprKind::kBinary && e->binary == BinaryOp::kMul; };
  const bool second = is_product(v->operands[1]);
  if (!second && !is_product(v->operands[0])) return {};
  const Expr& product = v->operands[second ? 1 : 0];
  return store(store_stmt->buffer, store_stmt->indices,
               fma(product->operands[0], product->operands[1], v->operands[second ? 0 : 1]));
}

std::string pattern_text(const TensorIntrinsic& intrinsic) {
  const std::string text = print(*intrinsic.patterns.at(0).program);
  return text.substr(0, text.size() - 1);
}

}  // namespace

const TensorIntrinsic& Schedule::intrinsic_named(const std::string& name) const {
  Names legal, all;
  const auto note = [&](const TensorIntrinsic& intrinsic) {
    all.push_back(intrinsic.name);
    if (!target_ || has_intrinsic(*target_, intrinsic)) legal.push_back(intrinsic.name);
  };
  for (const TensorIntrinsic& intrinsic : all_intrinsics()) note(intrinsic);
  for (const TensorIntrinsic* intrinsic : declared_) note(*intrinsic);
  const TensorIntrinsic* intrinsic = find_intrinsic(name, declared_);
  if (!intrinsic) {
    const Names near = nearest_names(name, all, 2);
    refuse(refusal::kIntrinsic, fmt::format("there is no tensor intrinsic '{}'", name), listed(legal),
           near.empty() ? "" : "did you mean " + listed(near) + "?");
  }
  if (target_ && !has_intrinsic(*target_, *intrinsic))
    refuse(refusal::kIntrinsic, fmt::format("the target {} has no {}", target_->cpu, name), listed(legal));
  return *intrinsic;
}

std::vector<int64_t> Schedule::intrinsic(const std::string& name, const std::vector<int64_t>& decision, Names as) {
  const std::vector<int64_t> shape = intrinsic_shape(intrinsic_named(name));
  if (!decision.empty() && decision != shape)
    refuse(refusal::kArguments,
           fmt::format("intrinsic: [{}] are not the numbers of {}", fmt::join(decision, ", "), name),
           fmt::format("[{}]: lanes, depth", fmt::join(shape, ", ")));
  const Names names = as.empty() ? Names{"lanes", "depth"} : as;
  if (names.size() != shape.size())
    refuse(refusal::kArguments, fmt::format("{} names are given for {} results", names.size(), shape.size()),
           "lanes, depth");
  commit(program_.body, {names, "intrinsic", {TraceArg::quoted(name)}, shape, {}});
  chosen_ = name;
  return shape;
}

void Schedule::tensorize(const std::string& loop_name, const std::string& name) {
  StmtPath path = loop_named(program_, loop_name);
  // A block that begins at the loop gives way.
  if (path.nodes.size() > 1) {
    const Stmt& parent = path.nodes[path.nodes.size() - 2];
    if (parent->kind == StmtKind::kTensorized && parent->intrinsic->name == "block") {
      const Stmt loop = path.stmt();
      path = path.prefix(path.nodes.size() - 1);
      refuse_tensorized(path.prefix(path.nodes.size() - 1), "loop " + loop_name);
      tensorize_nest(path, loop, loop_name, name);
      return;
    }
  }
  refuse_tensorized(path, "loop " + loop_name);
  tensorize_nest(path, path.stmt(), loop_name, name);
}

void Schedule::tensorize_nest(const StmtPath& path, const Stmt& nest, const std::string& loop_name,
                              const std::string& name) {
  if (name.empty() && chosen_.empty())
    refuse(refusal::kIntrinsic, "tensorize: no intrinsic is named",
           "tensorize(LOOP, \"NAME\"), or a line 'lanes, depth = intrinsic(\"NAME\")' before it");
  const TensorIntrinsic& intrinsic = intrinsic_named(name.empty() ? chosen_ : name);
  if (intrinsic.code == IntrinsicCode::kBlock)
    refuse(refusal::kIntrinsic, "tensorize: a block is no instruction", "blockize(LOOP)");
  Stmt body = nest;
  if (intrinsic.code == IntrinsicCode::kMultiplyAdd)
    body = transform(nest, nullptr,
                     [&](const Stmt& s) -> Stmt { return s->kind == StmtKind::kStore ? with_fma(s) : Stmt(); });
  std::string reason = match_intrinsic(intrinsic, body);
  if (!reason.empty()) {
    const Stmt smaller = without_single_iterations(body);
    const std::string other = match_intrinsic(intrinsic, smaller);
    if (other.empty()) body = smaller;
    if (other.empty()) reason.clear();
    else if (nest_depth(smaller) < nest_depth(body) && other != reason)
      reason += fmt::format("; without loops of one iteration: {}", other);
  }
  if (!reason.empty())
    refuse(refusal::kIntrinsic,
           fmt::format("tensorize: the nest at '{}' is not {}: {}", summary(nest), intrinsic.name, reason),
           pattern_text(intrinsic));
  commit(replaced(path, tensorized(&intrinsic, body)),
         {{}, "tensorize", {TraceArg::name(loop_name), TraceArg::quoted(intrinsic.name)}, {}, {}});
}

void Schedule::blockize(const std::string& loop_name) {
  const StmtPath path = loop_named(program_, loop_name);
  refuse_tensorized(path, "loop " + loop_name);
  if (contains(path.stmt(), [](const Stmt& s) {
        return s->kind == StmtKind::kTensorized || (s->kind == StmtKind::kFor && is_concurrent(s->for_kind));
      }))
    refuse(refusal::kStructure,
           fmt::format("blockize: '{}' holds a parallel loop or a tensorized nest", summary(path.stmt())),
           "a nest of other loops");
  commit(replaced(path, tensorized(find_intrinsic("block"), path.stmt())),
         {{}, "blockize", {TraceArg::name(loop_name)}, {}, {}});
}

void Schedule::annotate(const std::string& statement, const std::string& key, int64_t value) {
  if (key != "fma" || value != 1)
    refuse(refusal::kArguments, fmt::format("annotate: nothing is known of {}={}", key, value),
           "fma, with the value 1");
  const StmtPath path = store_named(program_, statement);
  refuse_tensorized(path, "'" + statement + "'");
  const Stmt changed = with_fma(path.stmt());
  if (!changed)
    refuse(refusal::kStructure, fmt::format("annotate: '{}' does not add a product of floats", summary(path.stmt())),
           "a value x + a * b");
  commit(replaced(path, changed),
         {{}, "annotate", {TraceArg::name(statement), TraceArg::name(key), TraceArg::integer(value)}, {}, {}});
}

namespace {

constexpr int64_t kMostSideBySide = 64;  // iterations of a virtual thread

// Moves the loop over `var` into `s`, around each store, as copies.
class Jam {
 public:
  Jam(const Stmt& loop, LoopProgram program) : loop_(loop), program_(std::move(program)) {}

  Stmt push(const Stmt& s) {
    switch (s->kind) {
      case StmtKind::kSeq: {
        std::vector<Stmt> children;
        for (const Stmt& child : s->stmts) children.push_back(push(child));
        return seq(children);
      }
      case StmtKind::kFor:
        if (uses_var(s->begin, loop_->var) || uses_var(s->extent, loop_->var) || s->for_kind == ForKind::kVectorized)
          return copies(s);
        return with_body(s, push(s->stmts[0]));
      case StmtKind::kIf:
        if (uses_var(s->condition, loop_->var)) return copies(s);
        return if_then(s->condition, push(s->stmts[0]), s->stmts.size() > 1 ? push(s->stmts[1]) : Stmt());
      case StmtKind::kAlloc: {
        std::vector<Expr> shape = {loop_->extent};
        shape.insert(shape.end(), s->buffer->shape.begin(), s->buffer->shape.end());
        const BufferPtr each = make_buffer(s->buffer->name, s->buffer->dtype, shape, s->buffer->scope);
        const auto index = [&](const std::vector<Expr>& indices) {
          std::vector<Expr> result = {simplify(loop_->var - loop_->begin)};
          result.insert(result.end(), indices.begin(), indices.end());
          return result;
        };
        const Stmt body = rewrite_accesses(
            s->stmts[0], s->buffer.get(), [&](const std::vector<Expr>& indices) { return load(each, index(indices)); },
            [&](const Stmt& node) { return store(each, index(node->indices), node->value); });
        return alloc(each, push(body));
      }
      case StmtKind::kTensorized:
      case StmtKind::kStore: break;
    }
    return copies(s);
  }

 private:
  Stmt copies(const Stmt& s) {
    return with_fresh_definitions(for_loop(loop_->var, loop_->begin, loop_->extent, ForKind::kUnrolled, s));
  }

  const Stmt& loop_;
  LoopProgram program_;
};

}  // namespace

namespace {

struct Problem {
  const char* id = refusal::kStructure;
  std::string text;  // empty: none
};

// Why the iterations of the loop cannot stand side by side.
Problem side_by_side_problem(const LoopProgram& program, const StmtPath& path) {
  const Stmt& loop = path.stmt();
  const auto extent = as_int(loop->extent);
  if (loop->for_kind != ForKind::kSerial)
    return {refusal::kStructure, fmt::format("'{}' is {} already", summary(loop), for_kind_name(loop->for_kind))};
  if (!extent || *extent > kMostSideBySide || *extent < 1)
    return {refusal::kStructure, fmt::format("'{}' has no constant extent of 1 to {}", summary(loop), kMostSideBySide)};
  if (contains(loop, [](const Stmt& s) { return s->kind == StmtKind::kFor && is_concurrent(s->for_kind); }))
    return {refusal::kStructure, fmt::format("a parallel loop stands in loop {}", loop->var->name)};
  for (const Stmt& s : path.nodes) {
    if (s->kind == StmtKind::kFor && s->for_kind == ForKind::kVectorized)
      return {refusal::kStructure, fmt::format("loop {} stands inside '{}'", loop->var->name, summary(s))};
    if (s->kind == StmtKind::kTensorized)
      return {refusal::kStructure, fmt::format("loop {} is part of a tensorized nest", loop->var->name)};
  }
  if (changes_own_range(loop))
    return {refusal::kStructure,
            fmt::format("the range of '{}' is loaded from what the loop stores to", summary(loop))};
  if (const auto carried = carried_dependence(program, path, true))
    return {refusal::kDependence,
            fmt::format("iterations of '{}' are not independent: {}", summary(loop), describe(*carried))};
  return {};
}

}  // namespace

void Schedule::virtual_thread(const std::string& loop_name) {
  const StmtPath path = loop_named(program_, loop_name);
  refuse_tensorized(path, "loop " + loop_name);
  const Stmt& loop = path.stmt();
  if (const Problem problem = side_by_side_problem(program_, path); !problem.text.empty()) {
    const Names legal = loops_where(
        program_, [&](const StmtPath& other) { return side_by_side_problem(program_, other).text.empty(); });
    const auto extent = as_int(loop->extent);
    refuse(problem.id, "virtual_thread: " + problem.text,
           legal.empty() ? "no loop of this program" : "virtual_thread of " + listed(legal),
           extent && *extent > kMostSideBySide ? fmt::format("split loop {} first", loop_name) : "");
  }
  LoopProgram next = program_;
  next.body = replaced(path, Jam(loop, program_).push(loop->stmts[0]));
  commit(with_unique_names(next).body, {{}, "virtual_thread", {TraceArg::name(loop_name)}, {}, {}});
}

void Schedule::software_pipeline(const std::string& loop_name, int64_t count) {
  const StmtPath path = loop_named(program_, loop_name);
  refuse_tensorized(path, "loop " + loop_name);
  const Stmt& loop = path.stmt();
  const auto extent = as_int(loop->extent);
  if (loop->for_kind != ForKind::kSerial || !extent || *extent < 2)
    refuse(refusal::kStructure,
           fmt::format("software_pipeline: '{}' is no serial loop of a constant extent of 2 or more", summary(loop)),
           "a serial loop");
  refuse_changing_range(loop, "software_pipeline");
  // The body: allocations around a sequence.
  std::vector<BufferPtr> buffers;
  Stmt body = loop->stmts[0];
  while (body->kind == StmtKind::kAlloc) {
    buffers.push_back(body->buffer);
    body = body->stmts[0];
  }
  if (body->kind != StmtKind::kSeq)
    refuse(
        refusal::kStructure,
        fmt::format("software_pipeline: the body of loop {} has one statement only, '{}': nothing can run ahead of it",
                    loop_name, summary(body)),
        "a loop whose body has two statements or more",
        "cache_read, and compute_at of the copy into the loop, put a statement before it");
  if (count < 1 || static_cast<size_t>(count) >= body->stmts.size())
    refuse(refusal::kStructure,
           fmt::format("software_pipeline: the body of loop {} has {} statements, {} of them are to run ahead",
                       loop_name, body->stmts.size(), count),
           body->stmts.size() == 2 ? "1" : fmt::format("1 to {}", body->stmts.size() - 1));
  const auto middle = body->stmts.begin() + static_cast<std::ptrdiff_t>(count);
  Stmt first = seq({body->stmts.begin(), middle});
  Stmt second = seq({middle, body->stmts.end()});
  // An iteration's first part now comes before the second part of the one before it.
  const size_t depth = path.loops().size();
  std::vector<Access> ahead, behind;
  for (Access& access : accesses_of(program_)) {
    if (access.loops.size() <= depth || !access.loops[depth].same_node(loop)) continue;
    if (std::find_if(buffers.begin(), buffers.end(), [&](const BufferPtr& b) { return b.get() == access.buffer; }) !=
        buffers.end())
      continue;
    const bool in_first = contains(first, [&](const Stmt& s) { return s.same_node(access.stmt); });
    (in_first ? ahead : behind).push_back(std::move(access));
  }
  std::vector<Relation> relations(depth, Relation::kEqual);
  relations.push_back(Relation::kLess);
  for (const Access& b : behind)
    for (const Access& a : ahead)
      if (may_conflict(b, a, relations))
        refuse(refusal::kDependence, fmt::format("software_pipeline: {}", describe({b, a})),
               "a first part that does not need the second part of the iteration before");
  // What goes from the first part to the second has room for two iterations.
  const Expr parity = floormod(simplify(loop->var - loop->begin), 2);
  std::vector<BufferPtr> doubled;
  for (const BufferPtr& buffer : buffers) {
    const auto uses = [&](const Stmt& s) { return reads_buffer(s, buffer.get()) || writes_buffer(s, buffer.get()); };
    const bool shared = uses(first) && uses(second);
    if (shared && buffer->scope == MemoryScope::kRegister)
      refuse(
          refusal::kStructure,
          fmt::format("software_pipeline: {} is in registers, which two iterations cannot take turns in", buffer->name),
          fmt::format("set_scope({}, local)", buffer->name));
    if (shared && reads_buffer(first, buffer.get()) && writes_buffer(second, buffer.get()))
      refuse(refusal::kDependence, fmt::format("software_pipeline: both parts store to {}", buffer->name),
             "a buffer that the first part fills");
    std::vector<Expr> shape = buffer->shape;
    if (shared) shape.insert(shape.begin(), Expr(2));
    const BufferPtr next = make_buffer(buffer->name, buffer->dtype, shape, buffer->scope);
    const auto index = [&](std::vector<Expr> indices) {
      if (shared) indices.insert(indices.begin(), parity);
      return indices;
    };
    for (Stmt* part : {&first, &second})
      *part = rewrite_accesses(
          *part, buffer.get(), [&](const std::vector<Expr>& indices) { return load(next, index(indices)); },
          [&](const Stmt& node) { return store(next, index(node->indices), node->value); });
    doubled.push_back(next);
  }
  const auto at = [&](const Stmt& part, const Expr& where) {
    return with_fresh_definitions(substitute(part, {{loop->var.get(), where}}));
  };
  const Stmt prologue = at(first, loop->begin);
  const Stmt steady =
      for_loop(loop->var, loop->begin, *extent - 1, ForKind::kSerial, seq({at(first, loop->var + Expr(1)), second}));
  const Stmt epilogue = at(second, loop->begin + Expr(*extent - 1));
  Stmt result = simplified(seq({prologue, steady, epilogue}), bounds_of_loops(program_, path.loops()));
  for (size_t i = doubled.size(); i-- > 0;) result = alloc(doubled[i], result);
  LoopProgram next = program_;
  next.body = replaced(path, result);
  commit(with_unique_names(next).body,
         {{}, "software_pipeline", {TraceArg::name(loop_name), TraceArg::integer(count)}, {}, {}});
}

std::vector<int64_t> Schedule::sample_perfect_tile(const std::string& loop_name, int64_t count, int64_t max_innermost,
                                                   std::mt19937_64* random, const std::vector<int64_t>& decision,
                                                   Names as) {
  const StmtPath path = loop_named(program_, loop_name);
  const auto extent = as_int(path.stmt()->extent);
  if (!extent || *extent < 1)
    refuse(refusal::kStructure, fmt::format("sample_perfect_tile: '{}' has no constant extent", summary(path.stmt())),
           "a loop of constant extent");
  if (count < 2 || count > 8 || max_innermost < 1)
    refuse(refusal::kArguments,
           fmt::format("sample_perfect_tile: {} factors, the last at most {}", count, max_innermost),
           "2 to 8 factors, the last at most 1 or more");
  std::vector<int64_t> factors = decision;
  if (factors.empty()) {
    if (!random)
      refuse(refusal::kArguments, "sample_perfect_tile: nothing was decided",
             "a line that ends in 'decided [..]' when a schedule is replayed");
    // Prime by prime to a factor at random; the last takes no more than it may.
    factors.assign(static_cast<size_t>(count), 1);
    int64_t rest = *extent;
    for (int64_t p = 2; rest > 1; p = p * p > rest ? rest : p + 1) {
      while (rest % p == 0) {
        rest /= p;
        size_t at = (*random)() % factors.size();
        if (at + 1 == factors.size() && factors.back() * p > max_innermost) at = (*random)() % (factors.size() - 1);
        factors[at] *= p;
      }
    }
  }
  int64_t product = 1;
  bool legal = factors.size() == static_cast<size_t>(count) && factors.back() <= max_innermost;
  for (const int64_t f : factors) legal = legal && f >= 1 && !__builtin_mul_overflow(product, f, &product);
  if (!legal || product != *extent)
    refuse(refusal::kArguments,
           fmt::format("sample_perfect_tile: [{}] are not {} factors of {} with the last at most {}",
                       fmt::join(factors, ", "), count, *extent, max_innermost),
           fmt::format("{} numbers whose product is {}", count, *extent));
  Names wishes;
  for (int64_t i = 0; i < count; ++i) wishes.push_back(fmt::format("{}_f{}", loop_name, i));
  const Names names = as.empty() ? wishes : as;
  if (names.size() != factors.size()) refuse_names(names.size(), factors.size());
  commit(program_.body, {names,
                         "sample_perfect_tile",
                         {TraceArg::name(loop_name), TraceArg::integer(count), TraceArg::integer(max_innermost)},
                         factors,
                         {}});
  return factors;
}

int64_t Schedule::sample_categorical(const std::vector<int64_t>& candidates, std::mt19937_64* random,
                                     const std::vector<int64_t>& decision, std::string as) {
  if (candidates.empty())
    refuse(refusal::kArguments, "sample_categorical: there is nothing to choose from", "one number or more");
  if (decision.empty() && !random)
    refuse(refusal::kArguments, "sample_categorical: nothing was decided",
           "a line that ends in 'decided [..]' when a schedule is replayed");
  const int64_t chosen = decision.empty() ? candidates[(*random)() % candidates.size()] : decision[0];
  if (decision.size() > 1 || std::find(candidates.begin(), candidates.end(), chosen) == candidates.end())
    refuse(refusal::kArguments,
           fmt::format("sample_categorical: [{}] is not one of {}", fmt::join(decision, ", "),
                       fmt::join(candidates, ", ")),
           fmt::format("one of {}", fmt::join(candidates, ", ")));
  TraceArg list = TraceArg::of_list({});
  for (const int64_t candidate : candidates) list.list.push_back(TraceArg::integer(candidate));
  const Names names = as.empty() ? Names{"choice"} : Names{std::move(as)};
  commit(program_.body, {names, "sample_categorical", {list}, {chosen}, {}});
  return chosen;
}

std::string Schedule::sample_compute_location(const std::string& stage, std::mt19937_64* random,
                                              const std::vector<int64_t>& decision, std::string as) {
  buffer_named(program_, stage);
  const Names legal = accepted(loop_names(program_), [&](const std::string& loop) {
    Schedule attempt = *this;
    attempt.compute_at(stage, loop);
  });
  if (decision.empty() && !random)
    refuse(refusal::kArguments, "sample_compute_location: nothing was decided",
           "a line that ends in 'decided [..]' when a schedule is replayed");
  const int64_t chosen = decision.empty() ? static_cast<int64_t>((*random)() % (legal.size() + 1)) - 1 : decision[0];
  if (decision.size() > 1 || chosen < -1 || chosen >= static_cast<int64_t>(legal.size()))
    refuse(refusal::kArguments, fmt::format("sample_compute_location: [{}] is no place", fmt::join(decision, ", ")),
           fmt::format("-1 (the stage stays), or the number, from 0, of a loop of {}", listed(legal)));
  const Names names = as.empty() ? Names{"place"} : Names{std::move(as)};
  commit(program_.body, {names, "sample_compute_location", {TraceArg::name(stage)}, {chosen}, {}});
  sampled_place_ = chosen < 0 ? kRootLocation : legal[static_cast<size_t>(chosen)];
  return sampled_place_;
}

}  // namespace tessera::inline schedule
