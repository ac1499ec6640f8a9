#include "loop/concurrency.h"

#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include <fmt/format.h>

#include "loop/printer.h"

namespace tessera::inline loop {
namespace {

bool is_axis(ForKind kind) { return is_block_axis(kind) || is_thread_axis(kind); }

int64_t most_of(ForKind axis) {
  if (is_thread_axis(axis)) return axis == ForKind::kThreadZ ? 64 : kMostThreads;
  return axis == ForKind::kBlockX ? INT32_MAX : UINT16_MAX;
}

class Checker {
 public:
  ConcurrencyProblem run(const Stmt& body) {
    statement(body);
    return std::move(problem_);
  }

 private:
  void report(std::string text) {
    if (problem_.text.empty()) problem_.text = std::move(text);
  }

  void expression(const Expr& e) {
    if (!e) return;
    walk(e, [&](const Expr& node) {
      if (node->kind == ExprKind::kLoad) use(*node->buffer, node->operands);
    });
  }

  // Whether the first indices are the variables of the loops within the allocation, all of them over threads.
  bool is_own(int64_t outside, const std::vector<Expr>& indices) const {
    const auto first = loops_.begin() + outside;
    const auto count = loops_.end() - first;
    return std::ssize(indices) >= count && std::all_of(first, loops_.end(), [&](const Stmt& loop) {
             const auto is_index = [&](const Expr& index) { return index.same_node(loop->var); };
             return is_thread_axis(loop->for_kind) && std::any_of(indices.begin(), indices.begin() + count, is_index);
           });
  }

  void use(const Buffer& buffer, const std::vector<Expr>& indices) {
    const auto known = registers_.find(&buffer);
    if (known == registers_.end() || known->second == concurrent_ || is_own(known->second, indices)) return;
    report(fmt::format("'{}' uses {}, which is in registers of the thread outside of it",
                       summary(loops_[static_cast<size_t>(known->second)]), buffer.name));
  }

  void statement(const Stmt& s) {
    if (!s || !problem_.text.empty()) return;
    for (const Expr& index : s->indices) expression(index);
    for (const Expr& e : {s->begin, s->extent, s->condition, s->value}) expression(e);
    if (s->kind == StmtKind::kStore) use(*s->buffer, s->indices);
    if (s->kind == StmtKind::kFor) return loop(s);
    const bool in_registers = s->kind == StmtKind::kAlloc && s->buffer->scope == MemoryScope::kRegister;
    if (in_registers) registers_[s->buffer.get()] = concurrent_;
    for (const Stmt& child : s->stmts) statement(child);
    if (in_registers) registers_.erase(s->buffer.get());
  }

  void loop(const Stmt& s) {
    const bool concurrent = is_concurrent(s->for_kind);
    for (const Stmt& outer : loops_)
      if (!may_nest(outer->for_kind, s->for_kind))
        return report(fmt::format("'{}' stands inside '{}'", summary(s), summary(outer)));
    if (s->for_kind == ForKind::kVectorized) vectorized_.push_back(s);
    else if (concurrent)
      for (const Stmt& outer : vectorized_)
        return report(fmt::format("'{}' stands inside '{}'", summary(s), summary(outer)));
    if (is_axis(s->for_kind)) axis(s);
    if (concurrent) loops_.push_back(s), ++concurrent_;
    statement(s->stmts[0]);
    if (concurrent) loops_.pop_back(), --concurrent_;
    if (s->for_kind == ForKind::kVectorized) vectorized_.pop_back();
  }

  void axis(const Stmt& s) {
    const char* name = for_kind_name(s->for_kind);
    if (!is_const_int(s->begin, 0)) return report(fmt::format("'{}' does not begin at 0", summary(s)));
    const auto extent = as_int(s->extent);
    if (!extent && is_thread_axis(s->for_kind)) return report(fmt::format("'{}' has no constant extent", summary(s)));
    if (extent && *extent > most_of(s->for_kind))
      return report(
          fmt::format("'{}' has {} iterations, and {} at most {}", summary(s), *extent, name, most_of(s->for_kind)));
    bool loads = false;
    walk(s->extent, [&](const Expr& e) { loads |= e->kind == ExprKind::kLoad; });
    if (loads) return report(fmt::format("the extent of '{}' is loaded from memory", summary(s)));
    for (const Stmt& outer : loops_)
      if (uses_var(s->extent, outer->var))
        return report(fmt::format("the extent of '{}' depends on '{}'", summary(s), summary(outer)));
    if (loops_.empty()) launch(s);
  }

  // All blocks of one launch have as many threads.
  void launch(const Stmt& s) {
    std::array<int64_t, 3> extents = {1, 1, 1};
    walk(
        s,
        [&](const Stmt& node) {
          if (node->kind != StmtKind::kFor || !is_thread_axis(node->for_kind)) return;
          int64_t& most = extents[static_cast<size_t>(node->for_kind) - static_cast<size_t>(ForKind::kThreadX)];
          most = std::max(most, std::min(as_int(node->extent).value_or(1), 2 * kMostThreads));
        },
        nullptr);
    const int64_t threads = extents[0] * extents[1] * extents[2];
    if (threads <= kMostThreads) return;
    report(fmt::format("blocks of '{}' have {} threads, {} x {} x {}", summary(s), threads, extents[0], extents[1],
                       extents[2]));
    problem_.threads = threads;
  }

  ConcurrencyProblem problem_;
  std::vector<Stmt> loops_, vectorized_;        // around: concurrent ones, and those of vectors
  std::map<const Buffer*, int64_t> registers_;  // with the number of concurrent loops around the allocation
  int64_t concurrent_ = 0;                      // loops around
};

}  // namespace

ConcurrencyProblem concurrency_problem(const Stmt& body) { return Checker().run(body); }

}  // namespace tessera::inline loop
