#include <fmt/format.h>

#include <algorithm>

#include "schedule/kernel/linear_kernel.h"
#include "schedule/kernel/loop_builder.h"
#include "schedule/rules/rules.h"

// Products of few rows by a large matrix that is used once, as it lies in memory. What such a product takes is the time
// in which memory gives the matrix, so it is read row by row, a few rows side by side, each from its begin to its end;
// sums of all columns wait in cache. A tile of columns that goes down all rows of the matrix (register_tile) reads one
// or two cache lines of each, a page apart, which no prefetcher follows; and packing the matrix first would move it
// three times.
namespace tessera::inline schedule {
namespace {

constexpr int64_t kMostRows = 8;
constexpr int64_t kLeastBytes = 256 << 10;  // of the matrix: smaller ones stay in cache, where it does not matter
constexpr int64_t kLeastSteps = 128;        // fewer rows of the matrix are read side by side by tiles, too
constexpr int64_t kSteps = 8;               // rows of the matrix that are read side by side
constexpr int64_t kManyRows = 5;
// More rows of the result take so much arithmetic that memory waits for it. Of a matrix that comes from there, the next
// rows are asked for beforehand, fewer side by side; out of a cache both only cost.
constexpr int64_t kFarBytes = 16 << 20;
constexpr int64_t kFarSteps = 4;
constexpr int64_t kDistance = 5;  // vectors between the sums of two rows

struct StreamedProduct {
  LinearKernel kernel;
  Axis step;
  std::vector<OutputLoop> rows;
  OutputLoop column;
  Expr of_rows, of_columns;
  int64_t num_rows = 1;
};

bool is_load(const Expr& e) { return e->kind == ExprKind::kLoad; }

// The reason why the kernel is no such product; empty when it is.
std::string find_product(StreamedProduct& p) {
  LinearKernel& k = p.kernel;
  if (k.combiner != Combiner::kSum || !is_float(k.reduce_dtype)) return "it is no sum of floats";
  VarMap zero;
  std::vector<Axis> steps;
  for (const Axis& axis : k.reduce) {
    if (is_const_int(axis.extent, 1)) zero[axis.var.get()] = 0;
    else steps.push_back(axis);
  }
  if (steps.size() != 1) return "it is no sum along one axis";
  p.step = steps[0];
  for (const OutputLoop& loop : k.loops)
    if (loop.extent == 1) zero[loop.var.get()] = 0;
  const auto without = [&](const Expr& e) { return simplify(substitute(e, zero), k.bounds); };
  const Expr product = without(k.reduce_value);
  k.out_index = without(k.out_index);
  k.value = without(k.value);
  if (product->kind != ExprKind::kBinary || product->binary != BinaryOp::kMul || !is_load(product->operands[0]) ||
      !is_load(product->operands[1]))
    return "it is no sum of products of two operands";
  std::erase_if(k.loops, [](const OutputLoop& loop) { return loop.extent == 1; });
  if (k.loops.empty()) return "it has one output";
  p.column = k.loops.back();
  p.rows.assign(k.loops.begin(), k.loops.end() - 1);
  for (const OutputLoop& loop : p.rows) p.num_rows *= loop.extent;
  if (uses_var(product->operands[0], p.column.var) == uses_var(product->operands[1], p.column.var))
    return "not one factor alone changes along neighbouring outputs";
  const size_t of_columns = uses_var(product->operands[0], p.column.var) ? 0 : 1;
  p.of_columns = product->operands[of_columns];
  p.of_rows = product->operands[1 - of_columns];
  if (p.of_columns.dtype() != k.reduce_dtype || p.of_rows.dtype() != k.reduce_dtype) return "factors are converted";
  const Expr& address = p.of_columns->operands[0];
  if (p.column.stride != 1 || linear_coefficient(address, p.column.var, k.bounds) != 1)
    return "the matrix is not contiguous along the output's innermost axis";
  const auto apart = linear_coefficient(address, p.step.var, k.bounds);
  if (!apart || *apart != p.column.extent) return "the matrix's rows do not follow each other";
  for (const OutputLoop& loop : p.rows)
    if (uses_var(address, loop.var)) return "rows have a matrix each";
  for (size_t i = 0; i + 1 < k.params.size(); ++i)
    if (k.kinds[i] == OperandKind::kConstant && k.params[i] == p.of_columns->buffer)
      return "the matrix is constant, and packed while compiling";
  return "";
}

class Emitter {
 public:
  Emitter(const StreamedProduct& product, int64_t lanes, int64_t steps, int64_t chunk, bool asks)
      : p_(product),
        dtype_(product.kernel.reduce_dtype),
        lanes_(lanes),
        steps_(steps),
        chunk_(chunk),
        asks_(asks),
        row_distance_(product.num_rows < kManyRows ? chunk + kDistance * lanes : chunk) {
    sums_ = make_buffer("sums", dtype_, {p_.num_rows * row_distance_}, MemoryScope::kLocal);
  }

  Stmt emit() const {
    OutputLoop chunks;
    chunks.var = make_var("chunk");
    chunks.extent = (p_.column.extent + chunk_ - 1) / chunk_;
    return outer_nest({chunks}, chunks.extent == 1 ? 1 : kJoinAll, [&](const VarMap& outer) {
      const Expr first = outer.at(chunks.var.get()) * Expr(chunk_);
      const int64_t rest = p_.column.extent % chunk_;
      if (rest == 0) return task(first, chunk_);
      if (chunks.extent == 1) return task(0, rest);
      return if_then(first + Expr(chunk_) <= Expr(p_.column.extent), task(first, chunk_), task(first, rest));
    });
  }

 private:
  // `columns` of the output from `first` on.
  Stmt task(const Expr& first, int64_t columns) const {
    const int64_t extent = *as_int(p_.step.extent);
    const Var block = make_var("k");
    std::vector<Stmt> parts = {over_vectors(columns, [&](const Expr& begin, int64_t lanes) {
      return each_row([&](int64_t row, const VarMap&) {
        return vectorized(
            "l", lanes, [&](const Var& lane) { return store(sums_, {at(row, begin + lane)}, const_float(dtype_, 0)); });
      });
    })};
    if (extent >= steps_)
      parts.push_back(for_loop(block, 0, extent / steps_, ForKind::kSerial,
                               add_steps(first, columns, block * Expr(steps_), steps_)));
    if (extent % steps_ != 0) parts.push_back(add_steps(first, columns, extent - extent % steps_, extent % steps_));
    parts.push_back(over_vectors(columns, [&](const Expr& begin, int64_t lanes) {
      return each_row([&](int64_t row, const VarMap& rows) {
        return vectorized("l", lanes, [&](const Var& lane) {
          VarMap map = rows;
          map[p_.column.var.get()] = first + begin + lane;
          const Expr to = substitute(p_.kernel.out_index, map);
          map[p_.kernel.result_var.get()] = load(sums_, {at(row, begin + lane)});
          return store(p_.kernel.out(), {to}, substitute(p_.kernel.value, map));
        });
      });
    }));
    return alloc(sums_, seq(std::move(parts)));
  }

  // So many rows of the matrix, multiplied and added to the sums of all columns.
  Stmt add_steps(const Expr& first, int64_t columns, const Expr& step, int64_t steps) const {
    return over_vectors(columns, [&](const Expr& begin, int64_t lanes) {
      const BufferPtr acc = make_buffer("acc", dtype_, {p_.num_rows, lanes}, MemoryScope::kRegister);
      const auto move = [&](bool in) {
        return each_row([&](int64_t row, const VarMap&) {
          return vectorized("l", lanes, [&](const Var& lane) {
            if (in) return store(acc, {Expr(row), lane}, load(sums_, {at(row, begin + lane)}));
            return store(sums_, {at(row, begin + lane)}, load(acc, {Expr(row), lane}));
          });
        });
      };
      std::vector<Stmt> parts = {move(true)};
      for (int64_t s = 0; s < steps; ++s)
        parts.push_back(each_row([&](int64_t row, const VarMap& rows) {
          return vectorized("l", lanes, [&](const Var& lane) {
            VarMap map = rows;
            map[p_.column.var.get()] = first + begin + lane;
            map[p_.step.var.get()] = step + Expr(s);
            return store(
                acc, {Expr(row), lane},
                fma(substitute(p_.of_rows, map), substitute(p_.of_columns, map), load(acc, {Expr(row), lane})));
          });
        }));
      parts.push_back(move(false));
      return asking(alloc(acc, seq(std::move(parts))), first + begin, step + Expr(steps), steps);
    });
  }

  // `body` with requests for `steps` rows of the matrix from `step` on.
  Stmt asking(Stmt body, const Expr& column, const Expr& step, int64_t steps) const {
    if (!asks_) return body;
    for (int64_t s = steps; s-- > 0;) {
      const Expr at =
          substitute(p_.of_columns->operands[0], {{p_.column.var.get(), column}, {p_.step.var.get(), step + Expr(s)}});
      body = with_prefetch(p_.of_columns->buffer, at, std::move(body));
    }
    return body;
  }

  // Whole vectors of columns, and those that are left.
  template <typename Body>
  Stmt over_vectors(int64_t columns, const Body& body) const {
    std::vector<Stmt> parts;
    const Var vector = make_var("v");
    if (columns >= lanes_)
      parts.push_back(for_loop(vector, 0, columns / lanes_, ForKind::kSerial, body(vector * Expr(lanes_), lanes_)));
    if (columns % lanes_ != 0) parts.push_back(body(Expr(columns - columns % lanes_), columns % lanes_));
    return seq(std::move(parts));
  }

  template <typename Body>
  Stmt each_row(const Body& body) const {
    std::vector<Stmt> parts;
    for (int64_t row = 0; row < p_.num_rows; ++row) {
      VarMap map;
      int64_t rest = row;
      for (size_t i = p_.rows.size(); i-- > 0; rest /= p_.rows[i].extent)
        map[p_.rows[i].var.get()] = rest % p_.rows[i].extent;
      parts.push_back(body(row, map));
    }
    return seq(std::move(parts));
  }

  Expr at(int64_t row, const Expr& column) const { return column + Expr(row * row_distance_); }

  const StreamedProduct& p_;
  const DType dtype_;
  const int64_t lanes_, steps_, chunk_;
  const bool asks_;             // for rows of the matrix before they are used
  const int64_t row_distance_;  // of sums; apart from a power of two in the second level, whose sets they would share

  BufferPtr sums_;
};

}  // namespace

RuleResult streamed_product(const TensorProgram& program, const Target& target, Knobs& knobs) {
  if (!program.windows.empty()) return Declined{"it computes a part of its output"};
  std::string why;
  StreamedProduct product;
  auto made = make_flat_reduction(program, why);
  if (!made) return Declined{why};
  product.kernel = std::move(*made);
  if (why = find_product(product); !why.empty()) return Declined{why};
  const int64_t extent = *as_int(product.step.extent), columns = product.column.extent;
  if (product.num_rows > kMostRows) return Declined{fmt::format("it has more than {} rows", kMostRows)};
  const int64_t lanes = target.vector_bits() / dtype_bits(product.kernel.reduce_dtype);
  const int64_t bytes = dtype_bytes(product.kernel.reduce_dtype, extent * columns);
  if (!knobs.asked() && (bytes < kLeastBytes || columns < 8 * lanes || extent < kLeastSteps))
    return Declined{"the matrix stays in cache, or has few rows"};
  const bool asks = product.num_rows >= kManyRows && bytes >= kFarBytes;
  const int64_t steps = knobs.choose("steps", {1, 2, 4, 8, 16}, asks ? kFarSteps : kSteps);
  // Sums of few rows stay in half of the second level of cache, and rows of the matrix are long; those of more rows
  // move more than the matrix does, and stay in a third of the first. Threads have several chunks each: one may be
  // late.
  const int64_t cache = product.num_rows < kManyRows ? target.l2_bytes / 2 : target.l1_bytes / 3;
  const int64_t most = std::max(lanes, cache / dtype_bytes(product.kernel.reduce_dtype, product.num_rows));
  const int64_t least_chunks = target.num_threads == 1 ? 1 : 4 * target.num_threads;
  const int64_t chunks =
      std::max((columns + most - 1) / most, std::min(least_chunks, std::max<int64_t>(1, columns / (4 * lanes))));
  const int64_t preferred = ((columns + chunks - 1) / chunks + lanes - 1) / lanes * lanes;
  const int64_t chunk = knobs.choose("columns", {128, 256, 512, 1024, 2048, 4096, 8192}, preferred);
  ScheduledKernel result;
  result.program.name = program.name;
  result.program.params = product.kernel.params;
  result.program.body = Emitter(product, lanes, steps, std::min(chunk, columns), asks).emit();
  return result;
}

}  // namespace tessera::inline schedule
