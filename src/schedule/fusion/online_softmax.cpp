#include "schedule/fusion/online_softmax.h"

#include <algorithm>
#include <set>

#include "schedule/fusion/chain_rows.h"
#include "schedule/fusion/fold_copies.h"

namespace tessera::inline schedule {
namespace {

// Of open sizes: multiples of what register tiles have, of which few are left of the usual lengths.
constexpr int64_t kOpenRows = 32, kOpenColumns = 64;
// Measured on Zen 5: blocks of 128 to 512 columns and of 48 to 288 rows differ by 3 %. Where a mask ends rows,
// computing the rest of a block is in vain.
constexpr int64_t kLeastColumns = 128, kMostColumns = 512, kColumnStep = 16;
constexpr int64_t kColumnBytes = 2048;  // of the second level of cache: keys and values of 64 elements take a quarter
constexpr int64_t kMostRows = 192;
// Of which blocks are faster even where all keys and values are near; where a mask ends rows, half of each is computed.
constexpr int64_t kLongRow = 1024, kLongMaskedRow = 2048;

// The dimension of `param` whose index in all of its loads in `value` is `var`, which has no other part in them;
// kNoAxis when it has none at all; empty when it is not like that.
std::optional<size_t> dimension_of(const Expr& value, const BufferPtr& param, const Var& var) {
  std::optional<size_t> found;
  bool ok = true;
  walk(value, [&](const Expr& node) {
    if (!is_load_of(node, param)) return;
    size_t dim = kNoAxis;
    for (size_t d = 0; d < node->operands.size(); ++d) {
      if (!uses_var(node->operands[d], var)) continue;
      ok &= node->operands[d].same_node(var) && dim == kNoAxis;
      dim = d;
    }
    ok &= !found || *found == dim;
    found = dim;
  });
  if (!ok) return std::nullopt;
  return found.value_or(kNoAxis);
}

// Whether `var` is nothing but an index of loads.
bool only_indexes(const Expr& value, const Var& var) {
  const Expr rest = transform(value, [&](const Expr& node) -> Expr {
    if (node->kind != ExprKind::kLoad) return {};
    std::vector<Expr> indices = node->operands;
    for (Expr& index : indices)
      if (index.same_node(var)) index = Expr(0);
    return load(node->buffer, indices);
  });
  return !uses_var(rest, var);
}

// The columns in a stage: an axis of its output, or what it reduces. Null when it has none.
Var column_var(const Chain& chain, size_t m, const Stage& stage) {
  const ColumnBlocks& columns = *chain.columns;
  if (columns.axis[m] != kNoAxis) return stage.body.axes[columns.axis[m]].var;
  if (stage.body.is_reduction() && (m == columns.maximum || m == columns.sum || m + 1 == chain.members.size()))
    return stage.body.reduce_axes[0].var;
  return {};
}

// Who reads what member `w` writes.
std::set<size_t> readers_of(const Chain& chain, size_t w) {
  std::set<size_t> readers;
  for (size_t m = 0; m < chain.members.size(); ++m) {
    const std::vector<BufferId>& args = chain.members[m].args;
    if (std::find(args.begin(), args.end() - 1, chain.members[w].args.back()) != args.end() - 1) readers.insert(m);
  }
  return readers;
}

// The reduction of f32 over one axis, alone or followed by one stage; null when it is none.
const Stage* reduction_of(const TensorProgram& kernel, Combiner combiner) {
  const Stage* reduction = kernel.reduction();
  if (!reduction || reduction != &kernel.stages[0] || kernel.stages.size() > 2 ||
      reduction->body.combiner != combiner || reduction->out->dtype != DType::kF32 ||
      reduction->body.reduce_axes.size() != 1)
    return nullptr;
  return reduction;
}

// Whether the kernel is the sum or its inverse. What else a user makes of it (a small number is added) would hide that
// a row is masked as a whole.
bool divides_by(const TensorProgram& kernel, const Stage& sum) {
  if (kernel.stages.size() == 1) return true;
  const Expr& value = kernel.output().body.value;
  return value->kind == ExprKind::kBinary && value->binary == BinaryOp::kDiv &&
         value->operands[0]->kind == ExprKind::kConst && is_load_of(value->operands[1], sum.out);
}

// Finds the members of a softmax and a product with its numerators.
bool find_softmax(Chain& chain) {
  ColumnBlocks& columns = *chain.columns;
  const size_t count = chain.members.size(), product = count - 1;
  const auto definition = [&](size_t m) -> const TensorProgram& { return *chain.members[m].definition; };
  columns.maximum = count;
  for (size_t m = 0; m < product; ++m)
    if (reduction_of(definition(m), Combiner::kMax) && definition(m).stages.size() == 1 &&
        definition(m).params.size() == 1 &&
        is_load_of(definition(m).reduction()->body.value, definition(m).params[0].buffer))
      columns.maximum = m;
  if (columns.maximum == count || !chain.inner.contains(chain.members[columns.maximum].args[0])) return false;
  const size_t scores = writer_in(chain, chain.members[columns.maximum].args[0]);
  const std::set<size_t> of_maximum = readers_of(chain, columns.maximum);
  if (of_maximum.size() != 1) return false;
  columns.exponential = *of_maximum.begin();
  const TensorProgram& exponential = definition(columns.exponential);
  if (readers_of(chain, scores) != std::set{columns.maximum, columns.exponential} || exponential.params.size() != 2 ||
      !subtracts_maximum(exponential, param_from(chain, columns.exponential, scores),
                         param_from(chain, columns.exponential, columns.maximum), definition(columns.maximum)) ||
      exponential.output().out->dtype != DType::kF32)
    return false;
  // Exponentials lie where the scores did.
  const Buffer& of_scores = *exponential.params[param_from(chain, columns.exponential, scores)].buffer;
  if (!same_elements(of_scores, *exponential.output().out) ||
      !reads_in_place(exponential, &of_scores, of_scores.shape.size()))
    return false;
  std::set<size_t> of_exponential = readers_of(chain, columns.exponential);
  if (of_exponential.size() != 2 || of_exponential.erase(product) != 1) return false;
  columns.sum = *of_exponential.begin();
  const Stage* sum = reduction_of(definition(columns.sum), Combiner::kSum);
  if (!sum || !divides_by(definition(columns.sum), *sum) || definition(columns.sum).params.size() != 1 ||
      !is_load_of(sum->body.value, definition(columns.sum).params[0].buffer) ||
      readers_of(chain, columns.sum) != std::set{product})
    return false;
  // The sum scales the product afterwards, and is no factor of it.
  const Stage* products = reduction_of(definition(product), Combiner::kSum);
  if (!products) return false;
  const TensorProgram& last = definition(product);
  const BufferPtr &numerators = last.params[param_from(chain, product, columns.exponential)].buffer,
                  &sums = last.params[param_from(chain, product, columns.sum)].buffer;
  const Expr& value = products->body.value;
  int factors = 0;
  bool others = false;
  walk(value, [&](const Expr& node) {
    factors += is_load_of(node, numerators);
    others |= is_load_of(node, sums);
  });
  const bool is_product = value->kind == ExprKind::kBinary && value->binary == BinaryOp::kMul && factors == 1 &&
                          (is_load_of(value->operands[0], numerators) || is_load_of(value->operands[1], numerators));
  for (const Stage& stage : last.stages)
    if (&stage != products) walk(stage.body.value, [&](const Expr& node) { others |= is_load_of(node, numerators); });
  return is_product && !others;
}

// Finds the columns in all members that have them.
bool find_columns(Chain& chain) {
  ColumnBlocks& columns = *chain.columns;
  const size_t count = chain.members.size(), product = count - 1;
  const auto definition = [&](size_t m) -> const TensorProgram& { return *chain.members[m].definition; };
  columns.axis.assign(count, kNoAxis);
  columns.total = definition(columns.maximum).reduction()->body.reduce_axes[0].extent;
  columns.extent = as_int(columns.total).value_or(0);
  for (size_t m = count; m-- > 0;) {
    const bool reduces = m == columns.maximum || m == columns.sum || m == product;
    if (reduces && (columns.axis[m] != kNoAxis ||
                    !structurally_equal(definition(m).reduction()->body.reduce_axes[0].extent, columns.total)))
      return false;
    if (columns.axis[m] == kNoAxis && !reduces) {
      // It runs once for a block of rows, and what it reads has no columns.
      if (definition(m).reduction() || chain.rows.back().axis[m] == kNoAxis) return false;
      continue;
    }
    const auto dims = column_dims(chain, m);
    if (!dims) return false;
    for (size_t p = 0; p < dims->size(); ++p) {
      const BufferId arg = chain.members[m].args[p];
      const TensorParam& param = definition(m).params[p];
      if (!chain.inner.contains(arg)) {
        if ((*dims)[p] != kNoAxis && !param.layout.row_major()) return false;
        continue;
      }
      size_t& axis = columns.axis[writer_in(chain, arg)];
      if ((*dims)[p] == kNoAxis) continue;
      if ((axis != kNoAxis && axis != (*dims)[p]) ||
          !structurally_equal(param.buffer->shape[(*dims)[p]], columns.total))
        return false;
      axis = (*dims)[p];
    }
  }
  // Nobody reads what has columns in another way.
  for (size_t m = 0; m < count; ++m) {
    const auto dims = column_dims(chain, m);
    for (size_t p = 0; p < definition(m).params.size(); ++p)
      if (const BufferId arg = chain.members[m].args[p]; chain.inner.contains(arg))
        if (columns.axis[writer_in(chain, arg)] != (dims ? (*dims)[p] : kNoAxis)) return false;
  }
  return columns.axis[columns.exponential] != kNoAxis;
}

// Whether some member reads for all rows of a block what the last axis of rows has no part in.
bool shares_operands(const Chain& chain) {
  for (size_t m = 0; m < chain.members.size(); ++m) {
    const TensorProgram& kernel = *chain.members[m].definition;
    if (chain.rows.back().axis[m] == kNoAxis || !kernel.reduction()) continue;
    for (const TensorParam& param : kernel.params)
      if (!depends_on(kernel, param.buffer.get(), chain.rows.back().axis[m])) return true;
  }
  return false;
}

bool choose_open_blocks(Chain& chain, const Target& target) {
  if (!shares_operands(chain)) return false;
  chain.columns->size = kOpenColumns;
  chain.block = kOpenRows;
  chain.pieces = pieces_for_threads(chain, target);
  return true;
}

}  // namespace

bool is_load_of(const Expr& e, const BufferPtr& buffer) { return e->kind == ExprKind::kLoad && e->buffer == buffer; }

bool reads(const Stage& stage, const BufferPtr& buffer) {
  bool found = false;
  walk(stage.body.value, [&](const Expr& node) { found |= is_load_of(node, buffer); });
  return found;
}

std::optional<std::vector<size_t>> column_dims(const Chain& chain, size_t m) {
  const TensorProgram& kernel = *chain.members[m].definition;
  std::vector<size_t> dims(kernel.params.size(), kNoAxis);
  for (const Stage& stage : kernel.stages) {
    const Var var = column_var(chain, m, stage);
    if (!var) continue;
    if (!only_indexes(stage.body.value, var)) return std::nullopt;
    for (size_t p = 0; p < dims.size(); ++p) {
      const BufferPtr& param = kernel.params[p].buffer;
      if (!reads(stage, param)) continue;
      const auto dim = dimension_of(stage.body.value, param, var);
      if (!dim || (dims[p] != kNoAxis && dims[p] != *dim)) return std::nullopt;
      dims[p] = *dim;
    }
  }
  return dims;
}

size_t param_from(const Chain& chain, size_t m, size_t w) {
  const std::vector<BufferId>& args = chain.members[m].args;
  return static_cast<size_t>(std::find(args.begin(), args.end(), chain.members[w].args.back()) - args.begin());
}

bool find_column_blocks(Chain& chain) {
  chain.columns.emplace();
  if (find_softmax(chain) && find_columns(chain)) return true;
  chain.columns.reset();
  return false;
}

bool choose_column_blocks(Chain& chain, const Target& target) {
  ColumnBlocks& columns = *chain.columns;
  if (has_open_sizes(chain)) return choose_open_blocks(chain, target);
  // What each block of rows reads as a whole: the keys and values of a head.
  int64_t shared = 0;
  for (size_t m = 0; m < chain.members.size(); ++m) {
    const TensorProgram& kernel = *chain.members[m].definition;
    if (chain.rows.back().axis[m] == kNoAxis || !kernel.reduction()) continue;
    for (const TensorParam& param : kernel.params) {
      if (depends_on(kernel, param.buffer.get(), chain.rows.back().axis[m])) continue;
      int64_t bytes = bytes_of(*param.buffer);
      for (size_t r = 0; r + 1 < chain.rows.size(); ++r)
        if (depends_on(kernel, param.buffer.get(), chain.rows[r].axis[m])) bytes /= chain.rows[r].extent;
      shared += bytes;
    }
  }
  const bool is_long = columns.extent >= (chain.masked ? kLongMaskedRow : kLongRow) || shared > target.l2_bytes / 2;
  const int64_t most_columns =
      chain.masked ? kLeastColumns : std::clamp(target.l2_bytes / kColumnBytes, kLeastColumns, kMostColumns);
  if (shared == 0 || !is_long || columns.extent <= most_columns) return false;
  // Threads that have no head of their own share one's rows, and each copies what the rows share.
  const int64_t extent = chain.rows.back().extent;
  const int64_t pieces = pieces_for_threads(chain, target);
  if (has_shared(chain) && !may_cut_into(chain, pieces)) return false;
  chain.pieces = has_shared(chain) ? pieces : 1;
  // Blocks of about one size.
  const auto even = [](int64_t all, int64_t most, int64_t step) {
    const int64_t blocks = (all + most - 1) / most, each = (all + blocks - 1) / blocks;
    return std::min((each + step - 1) / step * step, all);
  };
  columns.size = even(columns.extent, most_columns, kColumnStep);
  const int64_t most = std::min(target.l2_bytes / 8 / dtype_bytes(DType::kF32, columns.size), extent / pieces);
  chain.block = even(extent, std::clamp(most / kTileRows * kTileRows, kTileRows, kMostRows), kTileRows);
  return true;
}

}  // namespace tessera::inline schedule
