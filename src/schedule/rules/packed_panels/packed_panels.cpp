#include <fmt/format.h>

#include <algorithm>

#include "loop/intrinsic.h"
#include "schedule/kernel/guards.h"
#include "schedule/rules/packed_panels/panels.h"
#include "schedule/rules/rules.h"

namespace tessera::inline schedule {
namespace {

// Steps of a block. A function of the kernel's shape alone, because sums depend on it: not of the machine.
constexpr int64_t kBlockSteps = 256;

bool is_factor(const Expr& e) {
  return e->kind == ExprKind::kLoad ||
         (e->kind == ExprKind::kCast && e->operands[0]->kind == ExprKind::kLoad && is_float(e->operands[0].dtype()));
}

bool uses_any(const std::vector<Expr>& exprs, const Var& var) {
  return std::any_of(exprs.begin(), exprs.end(), [&](const Expr& e) { return uses_var(e, var); });
}

bool reads(const Expr& e, const BufferPtr& buffer) {
  bool found = false;
  walk(e, [&](const Expr& node) { found |= node->kind == ExprKind::kLoad && node->buffer == buffer; });
  return found;
}

// Cuts the loops of which a factor reads only the quotient by a number: output channels, of whose group an image's
// channels depend.
void split_by_quotients(LinearKernel& k, std::vector<Expr>& factors) {
  for (size_t i = 0; i < k.loops.size(); ++i) {
    const OutputLoop whole = k.loops[i];
    int64_t divisor = 0;
    for (const Expr& factor : factors)
      walk(factor, [&](const Expr& e) {
        if (e->kind != ExprKind::kBinary || e->binary != BinaryOp::kFloorDiv) return;
        const auto by = as_int(e->operands[1]);
        if (by && *by > 1 && whole.extent % *by == 0 && e->operands[0].same_node(whole.var)) divisor = *by;
      });
    if (divisor == 0 || divisor == whole.extent) continue;
    OutputLoop outer = whole, inner = whole;
    outer.var = make_var(whole.var->name + "q");
    outer.extent = whole.extent / divisor;
    outer.stride = whole.stride * divisor;
    inner.var = make_var(whole.var->name + "r");
    inner.extent = divisor;
    k.bounds.set(outer.var, 0, outer.extent - 1);
    k.bounds.set(inner.var, 0, divisor - 1);
    const VarMap map{{whole.var.get(), outer.var * Expr(divisor) + inner.var}};
    const auto cut = [&](Expr& e) { e = simplify(substitute(e, map), k.bounds); };
    for (Expr& factor : factors) cut(factor);
    for (Expr& index : k.logical) cut(index);
    cut(k.out_index);
    cut(k.value);
    for (LinearResult& result : k.more_results) cut(result.value);
    k.loops[i] = outer;
    k.loops.insert(k.loops.begin() + static_cast<std::ptrdiff_t>(i) + 1, inner);
    ++i;
  }
}

// One variable for several loops, outermost first.
Var join_loops(LinearKernel& k, const std::vector<OutputLoop>& loops, const char* name, int64_t& extent,
               std::vector<Expr*>& exprs) {
  extent = 1;
  for (const OutputLoop& loop : loops) extent *= loop.extent;
  if (loops.size() == 1) return loops[0].var;
  const Var joined = make_var(name);
  k.bounds.set(joined, 0, extent - 1);
  VarMap map;
  Expr rest = joined;
  for (size_t i = loops.size(); i-- > 0; rest = floordiv(rest, loops[i].extent))
    map[loops[i].var.get()] = i == 0 ? rest : floormod(rest, loops[i].extent);
  for (Expr* e : exprs) *e = simplify(substitute(*e, map), k.bounds);
  return joined;
}

// Joins reduced axes that both factors pass through as one.
void join_steps(PanelProduct& p) {
  const Bounds& bounds = p.kernel.bounds;
  const auto joined = [&](const Expr& e, const Axis& outer, const Axis& inner) {
    bool ok = !uses_any(p.column_guards, outer.var) && !uses_any(p.column_guards, inner.var);
    walk(e, [&](const Expr& node) {
      if (node->kind == ExprKind::kSelect) ok = false;
      if (node->kind != ExprKind::kLoad) return;
      const auto o = linear_coefficient(node->operands[0], outer.var, bounds);
      const auto i = linear_coefficient(node->operands[0], inner.var, bounds);
      ok &= o && i && *o == *i * *as_int(inner.extent);
    });
    return ok;
  };
  for (size_t i = p.steps.size(); i-- > 1;) {
    const Axis outer = p.steps[i - 1], inner = p.steps[i];
    if (!joined(p.of_rows, outer, inner) || !joined(p.of_columns, outer, inner)) continue;
    p.steps[i].extent = *as_int(outer.extent) * *as_int(inner.extent);
    p.kernel.bounds.set(inner.var, 0, *as_int(p.steps[i].extent) - 1);
    for (Expr* e : {&p.of_rows, &p.of_columns})
      *e = simplify(substitute(*e, {{outer.var.get(), Expr(0)}}), p.kernel.bounds);
    p.steps.erase(p.steps.begin() + static_cast<std::ptrdiff_t>(i) - 1);
  }
}

// The reason why the kernel is no such product; empty when it is.
std::string find_product(PanelProduct& p) {
  LinearKernel& k = p.kernel;
  if (k.combiner != Combiner::kSum || !is_float(k.reduce_dtype)) return "it is no sum of floats";
  if (k.padded) return "the output has padding";
  VarMap zero;
  for (const Axis& axis : k.reduce) {
    if (*as_int(axis.extent) == 0) return "the sum is empty";
    if (is_const_int(axis.extent, 1)) zero[axis.var.get()] = 0;
    else p.steps.push_back(axis);
  }
  for (const OutputLoop& loop : k.loops)
    if (loop.extent == 1) zero[loop.var.get()] = 0;
  std::vector<Expr> conditions;
  const Expr value = simplify(substitute(k.reduce_value, zero), k.bounds);
  const Expr product = take_guards(value, k.combiner, conditions);
  if (product->kind != ExprKind::kBinary || product->binary != BinaryOp::kMul || !is_factor(product->operands[0]) ||
      !is_factor(product->operands[1]))
    return "it is no sum of products of two operands";
  for (size_t i = 0; i + 1 < k.params.size(); ++i)
    if (k.kinds[i] == OperandKind::kConstant && reads(product, k.params[i]))
      return "a factor is constant, and packed while compiling";
  k.out_index = simplify(substitute(k.out_index, zero), k.bounds);
  k.value = simplify(substitute(k.value, zero), k.bounds);
  for (LinearResult& result : k.more_results) result.value = simplify(substitute(result.value, zero), k.bounds);
  std::vector<OutputLoop> loops;
  for (const OutputLoop& loop : k.loops)
    if (loop.extent > 1) loops.push_back(loop);
  if (loops.size() < 2 || p.steps.empty()) return "it has no rows, columns and steps";
  k.loops = std::move(loops);

  std::vector<Expr> factors = {product->operands[0], product->operands[1]};
  // Conditions stay with a factor that has all their variables of the output.
  std::vector<Expr> taken[2];
  for (const Expr& condition : conditions) {
    size_t of = 2;
    for (size_t f = 0; f < 2; ++f) {
      const bool other_alone = std::any_of(k.loops.begin(), k.loops.end(), [&](const OutputLoop& loop) {
        return uses_var(condition, loop.var) && !uses_var(factors[f], loop.var);
      });
      if (!other_alone && of == 2) of = f;
    }
    if (of == 2) return "a condition depends on rows and columns";
    taken[of].push_back(condition);
  }
  // Loads alone, then with the conditions.
  factors.insert(factors.end(), taken[0].begin(), taken[0].end());
  const size_t second = factors.size();
  factors.insert(factors.end(), taken[1].begin(), taken[1].end());
  split_by_quotients(k, factors);
  const auto conditions_of = [&](size_t f) {
    return f == 0 ? std::vector<Expr>(factors.begin() + 2, factors.begin() + static_cast<std::ptrdiff_t>(second))
                  : std::vector<Expr>(factors.begin() + static_cast<std::ptrdiff_t>(second), factors.end());
  };

  const Var& last = k.loops.back().var;
  if (uses_var(factors[0], last) == uses_var(factors[1], last)) return "both factors change along neighbouring outputs";
  const size_t c = uses_var(factors[0], last) ? 0 : 1;
  p.of_columns = factors[c];
  p.of_rows = factors[1 - c];
  p.column_guards = conditions_of(c);
  for (const Expr& condition : conditions_of(1 - c))
    p.of_rows = select(condition, p.of_rows, const_float(p.of_rows.dtype(), 0));
  std::vector<OutputLoop> rows, columns;
  bool behind = true;  // all loops behind this one are columns
  for (size_t i = k.loops.size(); i-- > 0;) {
    const OutputLoop& loop = k.loops[i];
    const bool in_rows = uses_var(p.of_rows, loop.var);
    const bool in_columns = uses_var(p.of_columns, loop.var) || uses_any(p.column_guards, loop.var);
    behind &= in_columns && !in_rows;
    std::vector<OutputLoop>& into = behind ? columns : in_rows && !in_columns ? rows : p.others;
    into.insert(into.begin(), loop);
  }
  if (rows.empty()) return "it has no rows that share columns";
  // The simplifier does not see that the output's address is linear in the joined columns.
  VarMap first;
  int64_t apart = 1;
  for (size_t i = columns.size(); i-- > 0; apart *= columns[i].extent) {
    if (linear_coefficient(k.out_index, columns[i].var, k.bounds) != apart)
      return "columns are no neighbours in the output";
    first[columns[i].var.get()] = 0;
  }
  const Expr row_begin = simplify(substitute(k.out_index, first), k.bounds);
  std::vector<Expr*> exprs = {&p.of_rows, &p.of_columns, &k.out_index, &k.value};
  for (LinearResult& result : k.more_results) exprs.push_back(&result.value);
  for (Expr& guard : p.column_guards) exprs.push_back(&guard);
  p.column = join_loops(k, columns, "j", p.num_columns, exprs);
  k.out_index = row_begin + p.column;
  p.row = join_loops(k, rows, "m", p.num_rows, exprs);
  join_steps(p);
  return "";
}

// Rows are read where they are if that is one number for each row and step, at places that lie evenly apart, and not so
// that those of a tile, or of neighbouring steps, compete for the same lines of the first level of cache.
RowOrder best_order_of_rows(const PanelProduct& p) {
  constexpr int64_t kSets = 4096, kLine = 64;
  if (p.of_rows->kind != ExprKind::kLoad) return RowOrder::kByRow;
  const Expr& address = p.of_rows->operands[0];
  const auto step = [&](const Var& var) { return linear_coefficient(address, var, p.kernel.bounds); };
  const auto bytes = [&](int64_t elements) { return dtype_bytes(p.of_rows.dtype(), std::abs(elements)); };
  const auto apart = step(p.row), along = step(p.steps.back().var);
  const bool by_step = apart && std::abs(*apart) == 1 && along && bytes(*along) >= kLine;
  const bool even =
      apart && std::all_of(p.steps.begin(), p.steps.end(), [&](const Axis& axis) { return step(axis.var); });
  if (p.of_rows.dtype() != p.kernel.reduce_dtype || !even) return by_step ? RowOrder::kByStep : RowOrder::kByRow;
  if (by_step && bytes(*along) >= 4 * kLine) return RowOrder::kByStep;
  return *apart != 0 && bytes(*apart) % kSets == 0 ? RowOrder::kByRow : RowOrder::kInPlace;
}

// Blocks of about as many steps, in whole vectors where they are cut along the innermost axis.
void choose_block(const PanelProduct& p, PanelTiling& t) {
  int64_t within = 1;
  t.cut = p.steps.size() - 1;
  const auto extent = [&](size_t i) { return *as_int(p.steps[i].extent); };
  while (t.cut > 0 && within * extent(t.cut) <= kBlockSteps) within *= extent(t.cut--);
  const int64_t most = std::max<int64_t>(1, kBlockSteps / within), all = extent(t.cut);
  if (within == 1) {
    t.block = std::min(all, kBlockSteps);
  } else {
    const int64_t blocks = (all + most - 1) / most;
    t.block = (all + blocks - 1) / blocks;
  }
}

// The least time for all tiles, in multiply-adds. Rows that are copied step by step are so in pieces of 8, and both
// factors come from far away: tiles whose columns stay in the first level of cache take 22.8 ms instead of 25.3,
// measured on Zen 4 with 256 x 16384 x 256.
void choose_registers(const PanelProduct& p, PanelTiling& t) {
  constexpr double kLatency = 10;
  if (t.row_order == RowOrder::kByStep && p.num_rows >= 8) {
    t.vectors = 2;
    t.rows = 8;
    return;
  }
  const int64_t blocks = (p.num_columns + t.lanes - 1) / t.lanes;
  // One is left for what LLVM keeps across the loops around (a zero, places of lanes): it would spill an accumulator.
  const int64_t registers = t.target->vector_registers() - (t.target->has_fma() ? 1 : 2);
  double least = -1;
  for (int64_t vectors = 1; vectors <= std::min<int64_t>(blocks, 6); ++vectors)
    for (int64_t rows = 1; rows <= std::min<int64_t>(p.num_rows, 28); ++rows) {
      if (vectors * rows + vectors + 1 > registers) continue;
      const auto tile = [&](int64_t r) {
        const auto products = static_cast<double>(vectors * r), loads = static_cast<double>(vectors + r);
        return r == 0 ? 0 : std::max({products, kLatency, loads}) + 0.15 * loads + 0.5;
      };
      const auto panels = static_cast<double>((blocks + vectors - 1) / vectors);
      const double cost = panels * (static_cast<double>(p.num_rows / rows) * tile(rows) + tile(p.num_rows % rows));
      if (least >= 0 && cost >= least) continue;
      least = cost;
      t.vectors = vectors;
      t.rows = rows;
    }
}

// What a task packs and sums stays in the second level of cache; and there are tasks for all threads.
void choose_chunks(const PanelProduct& p, PanelTiling& t) {
  const int64_t most_rows = t.row_order == RowOrder::kInPlace ? 512 : 256;
  const int64_t all_panels = (p.num_columns + t.width() - 1) / t.width();
  const int64_t all_tiles = (p.num_rows + t.rows - 1) / t.rows;
  const auto split = [](int64_t all, int64_t most) {
    const int64_t parts = (all + most - 1) / most;
    return (all + parts - 1) / parts;
  };
  t.tiles_down = split(all_tiles, std::max<int64_t>(1, most_rows / t.rows));
  const int64_t column_bytes = dtype_bytes(p.kernel.reduce_dtype, block_steps(p, t) + t.tiles_down * t.rows);
  t.panels = split(all_panels, std::max<int64_t>(1, t.target->l2_bytes / 2 / (column_bytes * t.width())));
  if (t.target->num_threads == 1) return;
  int64_t others = 1;
  for (const OutputLoop& loop : p.others) others *= loop.extent;
  // A task reads its rows anew for each block, which takes as long as half a panel, and packs columns, which takes as
  // long as some rows.
  constexpr double kReading = 0.5, kPacking = 6;
  const int64_t most_panels = t.panels, most_tiles = t.tiles_down;
  double least = -1;
  for (int64_t tiles = most_tiles; tiles >= 1; tiles = tiles == 1 ? 0 : (tiles + 1) / 2)
    for (int64_t panels = most_panels; panels >= 1; --panels) {
      const int64_t tasks = others * ((all_panels + panels - 1) / panels) * ((all_tiles + tiles - 1) / tiles);
      const int64_t rounds = (tasks + t.target->num_threads - 1) / t.target->num_threads;
      const double time = static_cast<double>(rounds) * (static_cast<double>(panels) + kReading) *
                          (static_cast<double>(tiles * t.rows) + kPacking);
      if (least >= 0 && time >= least) continue;
      least = time;
      t.panels = panels;
      t.tiles_down = tiles;
    }
}

// Whether the factor is a weight, which register_tile gets packed.
bool is_weight(const LinearKernel& k, const Expr& factor) {
  bool found = false;
  for (size_t i = 0; i + 1 < k.params.size(); ++i)
    found |= k.kinds[i] == OperandKind::kWeight && reads(factor, k.params[i]);
  return found;
}

// Whether other rules have no better answer: register_tile reads columns that lie side by side, which streams both
// factors well unless rows lie side by side, too, and neither stays in cache; or unless steps lie so far apart that a
// few sets of the caches have to hold them all. Weights for few rows are better packed once, outside of a loop, than by
// each kernel.
bool pays(const PanelProduct& p, const PanelTiling& t) {
  constexpr int64_t kRows = 16, kLeastRows = 4, kFewSteps = 32, kManySteps = 8192, kManyVectors = 12;
  constexpr int64_t kSets = 1024, kStepsOfSets = 512, kRowsOfWeights = 64, kStepsOfWeights = 4096;
  constexpr int64_t kFar = 16 << 10, kRowsOfFar = 1024;
  if (p.num_rows < kLeastRows || 2 * p.num_columns < t.lanes) return false;
  int64_t steps = 1;
  for (const Axis& axis : p.steps) steps *= *as_int(axis.extent);
  bool side_by_side = true;
  walk(p.of_columns, [&](const Expr& e) {
    if (e->kind == ExprKind::kLoad) side_by_side = linear_coefficient(e->operands[0], p.column, p.kernel.bounds) == 1;
  });
  if (!side_by_side) {
    const bool packed_before = is_weight(p.kernel, p.of_columns) && steps <= kStepsOfWeights;
    return steps >= kFewSteps && p.num_rows >= (packed_before ? kRowsOfWeights : kRows);
  }
  // A panel of so many steps stays in no cache, unless it is cut.
  if (steps >= kManySteps && p.num_rows >= kRowsOfWeights && p.num_columns >= kManyVectors * t.lanes) return true;
  // Rows of which each step lies in a page of its own.
  if (t.row_order == RowOrder::kByStep && steps >= kFewSteps && p.num_rows >= kRowsOfFar &&
      p.num_columns >= kManyVectors * t.lanes) {
    const auto apart = linear_coefficient(p.of_rows->operands[0], p.steps.back().var, p.kernel.bounds);
    if (apart && dtype_bytes(p.of_rows.dtype(), std::abs(*apart)) >= kFar) return true;
  }
  if (t.row_order == RowOrder::kByStep && steps >= kStepsOfSets && p.num_rows >= kRowsOfWeights) {
    const auto apart = linear_coefficient(p.of_rows->operands[0], p.steps.back().var, p.kernel.bounds);
    if (apart && dtype_bytes(p.of_rows.dtype(), std::abs(*apart)) % kSets == 0) return true;
  }
  return t.row_order == RowOrder::kByStep && steps >= kManySteps && p.num_columns >= kManyVectors * t.lanes &&
         dtype_bytes(p.of_rows.dtype(), steps * p.num_rows) > t.target->l2_bytes;
}

}  // namespace

RuleResult packed_panels(const TensorProgram& program, const Target& target, Knobs& knobs) {
  if (!program.windows.empty()) return Declined{"it computes a part of its output"};
  const bool in_rows = std::all_of(program.params.begin(), program.params.end(),
                                   [](const TensorParam& param) { return param.layout.row_major(); });
  if (!in_rows || !program.output().layout.row_major()) return Declined{"an operand or the output is in blocks"};
  std::string why;
  auto made = make_linear_kernel(program, why, Results::kSeveral);
  if (!made) return Declined{why};
  if (!made->more_reductions.empty()) return Declined{"it has several reductions"};
  PanelProduct product;
  product.kernel = std::move(*made);
  if (why = find_product(product); !why.empty()) return Declined{why};
  PanelTiling tiling;
  tiling.target = &target;
  tiling.lanes = target.vector_bits() / dtype_bits(product.kernel.reduce_dtype);
  tiling.row_order = best_order_of_rows(product);
  if (!knobs.asked() && !pays(product, tiling)) return Declined{"the factors are read side by side, in few steps"};
  choose_block(product, tiling);
  choose_registers(product, tiling);
  tiling.vectors = knobs.choose("vectors", {1, 2, 3, 4, 5, 6}, tiling.vectors);
  tiling.rows = knobs.choose("rows", {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 20, 24, 28}, tiling.rows);
  const int64_t needed = tiling.vectors * tiling.rows + tiling.vectors + 1;
  if (needed > target.vector_registers() && tiling.vectors * tiling.rows > 1)
    return Declined{fmt::format("{} vectors x {} rows need {} registers, of {}", tiling.vectors, tiling.rows, needed,
                                target.vector_registers())};
  choose_chunks(product, tiling);

  ScheduledKernel result;
  result.program.name = program.name;
  result.program.params = product.kernel.params;
  result.program.num_outputs = static_cast<int>(product.kernel.num_results());
  result.program.body = emit_panels(product, tiling);
  return result;
}

}  // namespace tessera::inline schedule
