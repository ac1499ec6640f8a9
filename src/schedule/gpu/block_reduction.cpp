#include "schedule/gpu/block_reduction.h"

#include <utility>
#include <vector>

#include <fmt/format.h>

namespace tessera::inline schedule {

Stmt in_turns(const Expr& rounds, const std::function<Stmt(const Expr&)>& body, Bounds& bounds) {
  constexpr int64_t kMostWrittenOut = 8;
  if (is_const_int(rounds, 1)) return body(Expr(0));
  const bool few = as_int(rounds).value_or(INT64_MAX) <= kMostWrittenOut;
  return loop_over("round", rounds, few ? ForKind::kUnrolled : ForKind::kSerial, body, bounds);
}

int64_t BlockReduction::shared_bytes() const {
  int64_t bytes = 0;
  for (const LinearReduction& reduction : reductions) bytes += (dtype_bytes(reduction.dtype, threads) + 15) / 16 * 16;
  return bytes;
}

Stmt BlockReduction::build(Bounds& bounds, const std::function<Stmt(const VarMap&)>& finish) const {
  const Partials partial = make_partials(reductions, "partial", {threads}, MemoryScope::kLocal);
  std::vector<Stmt> parts;
  parts.push_back(thread_nest(
      "thread", 1, threads,
      [&](const Expr&, const Expr& thread) {
        const Partials sums = make_partials(reductions, "acc", {1});
        std::vector<Stmt> all = {clear_partials(reductions, sums, {0})};
        all.push_back(in_turns(
            steps.tiles(threads),
            [&](const Expr& round) {
              const Expr step = round * Expr(threads) + thread;
              VarMap here = at;
              steps.values_at(step, bounds, here);
              const Stmt update = add_element(reductions, sums, {0}, here);
              const Expr there = steps.has_whole(threads) ? inside : logical_and(inside, step < steps.size);
              return is_true(there) ? update : if_then(there, update);
            },
            bounds));
        for (size_t r = 0; r < reductions.size(); ++r) all.push_back(store(partial[r], {thread}, load(sums[r], {0})));
        return alloc_all(sums, seq(std::move(all)));
      },
      bounds));
  for (int64_t half = threads / 2; half > 0; half /= 2)
    parts.push_back(thread_nest(
        fmt::format("pair{}", half), 1, half,
        [&](const Expr&, const Expr& thread) {
          return add_partials(reductions, partial, {thread}, partial, {thread + Expr(half)});
        },
        bounds));
  parts.push_back(thread_nest(
      "last", 1, 1,
      [&](const Expr&, const Expr&) {
        VarMap finished = at;
        finish_partials(reductions, partial, {0}, finished);
        const Stmt body = finish(finished);
        return is_true(inside) ? body : if_then(inside, body);
      },
      bounds));
  return alloc_all(partial, seq(std::move(parts)));
}

}  // namespace tessera::inline schedule
