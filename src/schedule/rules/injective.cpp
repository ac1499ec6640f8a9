#include <algorithm>

#include "schedule/kernel/linear_kernel.h"
#include "schedule/kernel/loop_builder.h"
#include "schedule/rules/index_tables.h"
#include "schedule/rules/regions.h"
#include "schedule/rules/rules.h"
#include "schedule/rules/transpose_tiles.h"
#include "support/error.h"

namespace tessera::inline schedule {
namespace {

constexpr int64_t kChunk = 4096;      // elements; rows of two or more of these are cut, so that threads can share them
constexpr int64_t kRowsOfTable = 16;  // that share the tables of the last axis

// The rows over `outer`, several of them behind `tables`.
Stmt rows_with_tables(const std::vector<OutputLoop>& outer, const OutputLoop& last,
                      const std::vector<IndexTable>& tables, const std::function<Stmt(const VarMap&)>& row) {
  int64_t rows = 1;
  for (const OutputLoop& loop : outer) rows *= loop.extent;
  const Var group = make_var("t"), within = make_var("r");
  VarMap at;
  Expr rest = group * Expr(kRowsOfTable) + within;
  for (size_t i = outer.size(); i-- > 0;) {
    at[outer[i].var.get()] = i == 0 ? rest : floormod(rest, outer[i].extent);
    rest = floordiv(rest, outer[i].extent);
  }
  const Expr count = min(Expr(kRowsOfTable), Expr(rows) - group * Expr(kRowsOfTable));
  Stmt body = with_index_tables(tables, last, for_loop(within, 0, count, ForKind::kSerial, row(at)));
  return for_loop(group, 0, (rows + kRowsOfTable - 1) / kRowsOfTable, ForKind::kParallel, std::move(body));
}

// One region's loops. The names of its knobs end in `suffix`.
Stmt region_loops(LinearKernel kernel, const Target& target, Knobs& knobs, const std::string& suffix, bool in_windows) {
  const Expr guard = guard_of(kernel);
  merge_loops(kernel, [&](const OutputLoop& outer, const OutputLoop& inner) {
    return !guard || (outer.part == LayoutDim::Part::kWhole && inner.part == LayoutDim::Part::kWhole);
  });

  std::vector<IndexTable> tables;
  if (!guard && kernel.loops.size() > 1) {
    const int64_t columns = kernel.loops.back().extent;
    int64_t rows = 1;
    for (const OutputLoop& loop : kernel.loops) rows *= loop.extent;
    rows /= columns;
    if (kernel.num_results() == 1 && columns >= 8 && columns < 2 * kChunk && rows >= kRowsOfTable &&
        knobs.choose_flag("tables" + suffix, true))
      tables = take_index_tables(kernel);
  }

  const auto guarded = [&](const VarMap& at, const Stmt& body) {
    return guard ? if_then(substitute(guard, at), body) : body;
  };
  if (kernel.loops.empty())
    return with_results(kernel, 1, [&](const StoreResults& store_at) { return guarded({}, store_at({}, 0)); });

  const OutputLoop last = kernel.loops.back();
  const int64_t width =
      std::max<int64_t>(4, target.f32_lanes()) * knobs.choose("vectors" + suffix, {1, 2, 4, 8, 16}, 4);
  const int64_t parallel = knobs.choose("parallel" + suffix, kParallelChoices, target.num_threads <= 4 ? 32 : 256);
  // Elements along the last loop from `begin` (an expression) on, in vectors of `width` and a shorter one.
  const auto along_last = [&](const Expr& begin, int64_t count, const VarMap& outer) {
    std::vector<Stmt> parts;
    const int64_t whole = count / width;
    const auto vector_at = [&](const Expr& start, int64_t lanes) {
      const Var lane = make_var("l");
      VarMap at = outer;
      at[last.var.get()] = start + lane;
      return with_results(kernel, lanes, [&](const StoreResults& store_at) {
        return for_loop(lane, 0, lanes, ForKind::kVectorized, guarded(at, store_at(at, lane)));
      });
    };
    if (whole > 0) {
      const Var step = make_var("s");
      parts.push_back(for_loop(step, 0, whole, ForKind::kSerial, vector_at(begin + step * Expr(width), width)));
    }
    if (count % width != 0) parts.push_back(vector_at(begin + Expr(whole * width), count % width));
    return seq(std::move(parts));
  };

  if (!guard && kernel.num_results() == 1 && knobs.choose_flag("turn" + suffix, true)) {
    if (Stmt tiles = transpose_tiles(kernel, target, along_last)) return tiles;
  }
  // 0: rows are not cut. Neither are parts of an output, which one thread computes.
  const int64_t chunk = knobs.choose("chunk" + suffix, {0, 1024, 4096, 16384}, in_windows ? 0 : kChunk);
  const bool cut = chunk > 0 && last.extent >= 2 * chunk;
  std::vector<OutputLoop> outer(kernel.loops.begin(), kernel.loops.end() - 1);
  const auto whole_row = [&](const VarMap& at) { return along_last(0, last.extent, at); };
  if (!tables.empty()) return rows_with_tables(outer, last, tables, whole_row);
  if (!cut) return outer_nest(outer, parallel, whole_row);
  OutputLoop chunks = last;
  chunks.var = make_var("chunk");
  chunks.extent = last.extent / chunk;
  std::vector<OutputLoop> with_chunks = outer;
  with_chunks.push_back(chunks);
  std::vector<Stmt> parts;
  parts.push_back(outer_nest(with_chunks, kJoinAll, [&](const VarMap& at) {
    return along_last(at.at(chunks.var.get()) * Expr(chunk), chunk, at);
  }));
  if (last.extent % chunk != 0)
    parts.push_back(outer_nest(
        outer, parallel, [&](const VarMap& at) { return along_last(chunks.extent * chunk, last.extent % chunk, at); }));
  return seq(std::move(parts));
}

}  // namespace

RuleResult injective(const TensorProgram& program, const Target& target, Knobs& knobs) {
  std::string why;
  const auto kernel = make_linear_kernel(program, why, Results::kSeveral);
  if (!kernel) return Declined{why};
  if (kernel->combiner != Combiner::kNone) return Declined{"the kernel reduces"};

  std::vector<Stmt> parts;
  const std::vector<LinearKernel> regions = decided_regions(*kernel);
  for (size_t i = 0; i < regions.size(); ++i)
    parts.push_back(
        region_loops(regions[i], target, knobs, i == 0 ? "" : "." + std::to_string(i), !program.windows.empty()));
  ScheduledKernel result;
  result.program.name = program.name;
  result.program.params = kernel->params;
  result.program.num_outputs = static_cast<int>(kernel->num_results());
  result.program.body = seq(std::move(parts));
  return result;
}

}  // namespace tessera::inline schedule
