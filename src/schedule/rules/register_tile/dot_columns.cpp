#include <algorithm>

#include "schedule/rules/register_tile/tiling.h"

// A vector of which the output has one lane costs as much as a whole one. Where the factor with the rows is contiguous
// along the reduction, such columns are dot products: vectors run along the reduction, rows share what is loaded of a
// column, columns share what is loaded of a row, and lanes are added up at the end.
namespace tessera::inline schedule {
namespace {

// Sums that hide the latency of multiply-adds.
constexpr int64_t kMostRows = 14;

int64_t rows_at_once(int64_t columns, int registers) {
  return std::min<int64_t>(kMostRows, (registers - 1 - columns) / columns);
}

// Whether the columns take less time so, in multiply-adds of a vector for each row: one more column of vectors takes
// one a step; dot products take theirs, adding up lanes, and reading the row once more, from the second level of cache.
bool pays(const Tiling& t, int64_t columns, int64_t rows) {
  constexpr double kOverhead = 1.25, kFinish = 16, kLine = 64, kReadLine = 3, kLeastGain = 0.02;
  const ReduceLoop& loop = t.reduce[0];
  if (loop.extent < 2 * t.width) return false;
  const auto steps = static_cast<double>(loop.extent);
  const double vectors = steps / static_cast<double>(t.width);
  const double lines = steps * static_cast<double>(dtype_bytes(t.kernel.reduce_dtype, 1)) / kLine;
  const auto issued = static_cast<double>(std::max(columns * rows, columns + rows)) / static_cast<double>(rows);
  const double dots = vectors * kOverhead * issued + kFinish * static_cast<double>(columns) + kReadLine * lines;
  return steps - dots > kLeastGain * steps * static_cast<double>(t.full_blocks + 1);
}

// factor_of_rows along the only reduced loop, if dot products take all of it.
std::optional<size_t> factor_of_dots(const Tiling& t) {
  const LinearKernel& k = t.kernel;
  if (t.blocked || t.partial_lanes == 0 || t.dot || k.combiner != Combiner::kSum || t.reduce.size() != 1 ||
      t.packed.size() != 1 || !t.guards.empty() || !t.row_guards.empty())
    return std::nullopt;
  const ReduceLoop& loop = t.reduce[0];
  if (loop.expanded || loop.dynamic_extent || loop.multiplier != 1) return std::nullopt;
  // [block][step][lane]: the same weights for all other axes.
  const PackSpec& spec = t.packed[0].parts[0];
  if (t.packed[0].parts.size() != 1 || spec.axes.size() != 2 || spec.dims.size() != 3) return std::nullopt;
  return factor_of_rows(t, loop);
}

}  // namespace

std::optional<size_t> factor_of_rows(const Tiling& t, const ReduceLoop& loop) {
  const LinearKernel& k = t.kernel;
  if (t.update->kind != ExprKind::kBinary || t.update->binary != BinaryOp::kMul || !is_float(t.update->dtype))
    return std::nullopt;
  const BufferPtr& weights = k.params[t.packed[0].param];
  for (const size_t rows : {0U, 1U}) {
    const Expr &along = t.update->operands[rows], &other = t.update->operands[1 - rows];
    if (other->kind != ExprKind::kLoad || other->buffer != weights) continue;
    bool contiguous = true, in_memory = false;
    walk(along, [&](const Expr& node) {
      if (node->kind != ExprKind::kLoad) return;
      const auto c = linear_coefficient(node->operands[0], loop.var, k.bounds);
      contiguous &= c == 0 || c == 1;
      in_memory |= c == 1;
    });
    if (contiguous && in_memory && !uses_var(along, t.vector.var) && !uses_var(along, t.block.var)) return rows;
  }
  return std::nullopt;
}

void choose_dot_columns(Tiling& t, Knobs& knobs) {
  const auto rows = factor_of_dots(t);
  if (!rows) return;
  const int64_t steps = t.reduce[0].extent, columns = t.partial_lanes;
  const int64_t at_once = rows_at_once(columns, t.target->vector_registers());
  if (at_once < 1 || !knobs.choose_flag("dots", pays(t, columns, at_once))) return;
  t.partial_lanes = 0;
  DotColumns& dots = t.dots;
  dots.count = columns;
  dots.rows = at_once;
  dots.column = make_var("c");
  t.kernel.bounds.set(dots.column, 0, columns - 1);

  // The columns lie behind the whole blocks: [column][step], filled up with zeros to whole vectors.
  std::vector<PackSpec>& parts = t.packed[0].parts;
  PackSpec tail = parts[0];
  const int64_t padded = (steps + t.width - 1) / t.width * t.width;
  tail.offset += t.full_blocks * t.width * tail.axes[0].stride;
  tail.axes[0].extent = columns;
  tail.dims = {{columns, 0, 1}, {padded, parts[0].dims[1].axis, 1}};
  parts[0].dims[0].extent = t.full_blocks;
  const int64_t first = parts[0].num_elements();
  if (t.full_blocks == 0) parts.clear();
  parts.push_back(std::move(tail));
  dots.elements = columns * padded;

  const BufferPtr packed = t.kernel.params[t.packed[0].param];
  const BufferPtr weights = make_buffer(packed->name, packed->dtype, {first + dots.elements});
  t.kernel.params[t.packed[0].param] = weights;
  const Expr column = load(weights, {Expr(first) + dots.column * Expr(padded) + t.reduce[0].var});
  dots.update = t.update->operands[*rows] * column;
  t.update = transform(t.update, [&](const Expr& node) -> Expr {
    if (node->kind != ExprKind::kLoad || node->buffer != packed) return {};
    return load(weights, node->operands);
  });
}

Stmt emit_dot_columns(const Tiling& t, const VarMap& outer, const Expr& first_row, int64_t rows) {
  const DotColumns& dots = t.dots;
  const DType dtype = t.kernel.reduce_dtype;
  const Expr zero = combiner_identity(Combiner::kSum, dtype);
  const TensorIntrinsic* intrinsic = best_fma_intrinsic(*t.target, dtype);
  const int64_t steps = t.reduce[0].extent, vectors = steps / t.width, rest = steps % t.width;
  const auto tile = [&](const Expr& row, int64_t count) {
    const BufferPtr acc = make_buffer("acc", dtype, {dots.count, count, t.width}, MemoryScope::kRegister);
    const BufferPtr sums = make_buffer("sums", dtype, {count, dots.count}, MemoryScope::kRegister);
    const auto over = [&](const std::function<Stmt(const Var&, const Var&, const Var&)>& body) {
      return unrolled("c", 0, dots.count, [&](const Var& c) {
        return unrolled("p", 0, count, [&](const Var& p) {
          return vectorized("l", t.width, [&](const Var& l) { return body(c, p, l); });
        });
      });
    };
    const auto add = [&](const Expr& first_step, const Var& c, const Var& p, const Var& l) {
      VarMap map = outer;
      map[dots.column.get()] = c;
      if (t.row) map[t.row->var.get()] = row + p;
      map[t.reduce[0].var.get()] = first_step + l;
      return store(acc, {c, p, l},
                   fma(substitute(dots.update->operands[0], map), substitute(dots.update->operands[1], map),
                       load(acc, {c, p, l})));
    };
    std::vector<Stmt> body;
    body.push_back(over([&](const Var& c, const Var& p, const Var& l) { return store(acc, {c, p, l}, zero); }));
    if (vectors > 0) {
      const Var k = make_var(t.reduce[0].var->name);
      Stmt step = over([&](const Var& c, const Var& p, const Var& l) { return add(k * Expr(t.width), c, p, l); });
      if (intrinsic && intrinsic->lanes == t.width && match_intrinsic(*intrinsic, step).empty())
        step = tensorized(intrinsic, step);
      body.push_back(for_loop(k, 0, vectors, ForKind::kSerial, step));
    }
    if (rest > 0)
      body.push_back(over([&](const Var& c, const Var& p, const Var& l) {
        return if_then(l < Expr(rest), add(vectors * t.width, c, p, l));
      }));
    const auto add_lanes = [&](const Var& c, const Var& p) {
      const BufferPtr sum = make_buffer("sum", dtype, {1}, MemoryScope::kRegister);
      const Stmt lanes = vectorized(
          "l", t.width, [&](const Var& l) { return store(sum, {0}, load(sum, {0}) + load(acc, {c, p, l})); });
      return alloc(sum, seq({store(sum, {0}, zero), lanes, store(sums, {p, c}, load(sum, {0}))}));
    };
    body.push_back(unrolled("c", 0, dots.count, [&](const Var& c) {
      return unrolled("p", 0, count, [&](const Var& p) { return add_lanes(c, p); });
    }));
    body.push_back(unrolled("p", 0, count, [&](const Var& p) {
      return vectorized("c", dots.count, [&](const Var& c) {
        VarMap map = outer;
        map[t.block.var.get()] = t.full_blocks;
        map[t.vector.var.get()] = c;
        if (t.row) map[t.row->var.get()] = row + p;
        VarMap values = map;
        values[t.kernel.result_var.get()] = load(sums, {p, c});
        return store_each(t.kernel, map, values);
      });
    }));
    return alloc(acc, alloc(sums, seq(std::move(body))));
  };
  // Pieces of nearly the same number of rows, the larger ones first.
  const int64_t pieces = (rows + dots.rows - 1) / dots.rows, size = rows / pieces, larger = rows % pieces;
  const auto some = [&](const Expr& row, int64_t number, int64_t count) {
    if (number == 0) return seq({});
    if (number == 1) return tile(row, count);
    const Var q = make_var("q");
    return for_loop(q, 0, number, ForKind::kSerial, tile(row + q * Expr(count), count));
  };
  return seq({some(first_row, larger, size + 1), some(first_row + Expr(larger * (size + 1)), pieces - larger, size)});
}

}  // namespace tessera::inline schedule
