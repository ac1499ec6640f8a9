#include "schedule/fusion/chain_rows.h"

#include <algorithm>

namespace tessera::inline schedule {
namespace {

// How many of the rows come before any other axis of all inner results that have them. `may_enclose`: axes of known
// extent between them count for nothing, as a block has all of such an axis.
size_t keep_leading(const Chain& chain, bool may_enclose = false) {
  size_t rows = chain.rows.size();
  for (size_t m = 0; m + 1 < chain.members.size(); ++m) {
    const Shape& shape = chain.members[m].definition->output().out->shape;
    const bool is_shared = chain.rows.back().axis[m] == kNoAxis;
    const size_t own = is_shared ? std::min(rows, chain.rows.size() - 1) : rows;
    size_t kept = 0;
    for (size_t axis = 0; axis < shape.size() && kept < own; ++axis) {
      if (chain.rows[kept].axis[m] == axis) {
        ++kept;
      } else if (as_int(shape[axis]) != 1 && !(may_enclose && as_int(shape[axis]))) {
        break;
      }
    }
    if (kept < own) rows = kept;
  }
  return rows;
}

// The axis in the members that have it, from the last one upwards. False when some member reads another's result
// along it in another way. Those without it do not reduce: they are done again for each piece of the rows.
bool follow(const Chain& chain, RowAxis& row) {
  std::vector<bool> is_shared(chain.members.size(), false);
  for (size_t m = chain.members.size(); m-- > 0;) {
    const TensorProgram& kernel = *chain.members[m].definition;
    if (is_shared[m] ? row.axis[m] != kNoAxis || kernel.reduction() : row.axis[m] == kNoAxis) return false;
    const std::vector<BufferId>& args = chain.members[m].args;
    for (size_t p = 0; p < kernel.params.size(); ++p) {
      if (!chain.inner.contains(args[p])) continue;
      const size_t from = writer_in(chain, args[p]);
      if (from >= m) return false;
      const Buffer* param = kernel.params[p].buffer.get();
      if (is_shared[m] || !depends_on(kernel, param, row.axis[m])) {
        is_shared[from] = true;
        continue;
      }
      size_t dim = 0;
      while (dim < param->shape.size() &&
             (!structurally_equal(param->shape[dim], row.size) || read_along(kernel, param, dim) != row.axis[m]))
        ++dim;
      if (dim == param->shape.size() || (row.axis[from] != kNoAxis && row.axis[from] != dim)) return false;
      row.axis[from] = dim;
    }
  }
  return true;
}

// What blocks of the last row axis need, in bytes.
struct Needs {
  int64_t row = 0;           // of inner results, for a row
  int64_t shared = 0;        // of what every block reads
  bool has_product = false;  // a reduction that reads an operand along other axes than its own
};

Needs needs_of(const Chain& chain) {
  Needs needs;
  int64_t rows = 1;
  for (const RowAxis& row : chain.rows) rows *= row.extent;
  for (size_t m = 0; m < chain.members.size(); ++m) {
    const TensorProgram& kernel = *chain.members[m].definition;
    const size_t axis = chain.rows.back().axis[m];
    if (axis == kNoAxis) continue;
    if (m + 1 < chain.members.size()) needs.row += bytes_of(*kernel.output().out) / rows;
    for (size_t p = 0; p < kernel.params.size(); ++p) {
      const Buffer& operand = *kernel.params[p].buffer;
      if (depends_on(kernel, &operand, axis)) continue;
      int64_t bytes = bytes_of(operand);
      for (size_t r = 0; r + 1 < chain.rows.size(); ++r)
        if (depends_on(kernel, &operand, chain.rows[r].axis[m])) bytes /= chain.rows[r].extent;
      if (bytes > 4096 && kernel.reduction()) needs.has_product = true;
      needs.shared += bytes;
    }
  }
  return needs;
}

// Why there are no blocks; empty when there are.
std::string_view choose_block(Chain& chain, const Target& target) {
  const Needs needs = needs_of(chain);
  if (needs.shared > target.l2_bytes / 2)
    return "what each block of rows reads is more than half of the second level of cache";
  int64_t rows = 1;
  for (const RowAxis& row : chain.rows) rows *= row.extent;
  const int64_t budget = needs.has_product ? target.l2_bytes / 4 : target.l1_bytes / 2;
  const int64_t extent = chain.rows.back().extent;
  int64_t block = std::clamp<int64_t>(budget / std::max<int64_t>(needs.row, 1), 1, extent);
  // Every thread gets some blocks; rows that are too few for that are better cut inside.
  const int64_t outer = rows / extent;
  const int64_t wanted = 4 * static_cast<int64_t>(target.num_threads);
  if (rows < wanted && (target.num_threads > 1 || has_products(chain))) return "there are too few rows";
  block = std::min(block, std::max<int64_t>(1, outer * extent / wanted));
  if (block > kTileRows && needs.has_product) block = block / kTileRows * kTileRows;
  chain.block = std::min(block, extent);
  return "";
}

// The same where some kernels (the copies of keys and values) are shared by the blocks of a row of the other axes.
// False where all rows fit the second level of cache: then nothing is won by cutting them.
bool choose_pieces(Chain& chain, const Target& target) {
  const Needs needs = needs_of(chain);
  const int64_t extent = chain.rows.back().extent;
  const int64_t budget = target.l2_bytes / 4;
  if (!needs.has_product || needs.row * extent <= budget) return false;
  // A block goes over what is shared once, so it need not stay near, but then a block must have some rows.
  constexpr int64_t kFarBlocks = 8;
  if (needs.shared > kFarBlocks * target.l2_bytes) return false;
  const int64_t most = std::max(kTileRows, budget / needs.row);
  const int64_t blocks = (extent + most - 1) / most;
  const int64_t even = (extent + blocks - 1) / blocks;
  chain.block = std::min((even + kTileRows - 1) / kTileRows * kTileRows, extent);
  chain.pieces = pieces_for_threads(chain, target);
  return may_cut_into(chain, chain.pieces);
}

}  // namespace

int64_t pieces_for_threads(const Chain& chain, const Target& target) {
  int64_t outer = 1;
  for (size_t r = 0; r + 1 < chain.rows.size(); ++r) outer *= std::max<int64_t>(chain.rows[r].extent, 1);
  const int64_t wanted = target.num_threads == 1 ? 1 : 4 * static_cast<int64_t>(target.num_threads);
  return (wanted + outer - 1) / outer;
}

bool may_cut_into(const Chain& chain, int64_t pieces) {
  constexpr int64_t kPieceRows = 128;
  return pieces == 1 || chain.rows.back().extent / pieces >= kPieceRows;
}

std::string_view find_rows(Chain& chain, const Target& target) {
  chain.rows.clear();
  const size_t count = chain.members.size();
  const Shape& last_shape = chain.members.back().definition->output().out->shape;
  std::vector<RowAxis> partial;  // that not all kernels have
  for (size_t axis = 0; axis < last_shape.size(); ++axis) {
    RowAxis row{std::vector<size_t>(count, kNoAxis), as_int(last_shape[axis]).value_or(0), last_shape[axis]};
    if (as_int(row.size) && row.extent < 2) continue;
    row.axis[count - 1] = axis;
    if (!follow(chain, row)) continue;
    const bool is_whole = std::find(row.axis.begin(), row.axis.end(), kNoAxis) == row.axis.end();
    (is_whole ? chain.rows : partial).push_back(std::move(row));
  }
  // One thread may take a row that is alone, but products are better off with the rows that they have.
  if (chain.rows.empty() && target.num_threads == 1 && !has_products(chain))
    for (size_t axis = 0; axis < last_shape.size() && chain.rows.empty(); ++axis) {
      RowAxis row{std::vector<size_t>(count, kNoAxis), 1, 1};
      row.axis[count - 1] = axis;
      if (as_int(last_shape[axis]) == 1 && follow(chain, row) &&
          std::find(row.axis.begin(), row.axis.end(), kNoAxis) == row.axis.end())
        chain.rows.push_back(std::move(row));
    }
  if (chain.rows.empty()) return "they do not hand rows to one another";
  // In the order of the first member's axes.
  std::sort(chain.rows.begin(), chain.rows.end(),
            [](const RowAxis& a, const RowAxis& b) { return a.axis[0] < b.axis[0]; });
  // Heads that share keys and values are rows of a block together with those of an open length.
  const bool is_open = chain.may_be_long && has_open_sizes(chain);
  if (is_open)
    std::stable_partition(partial.begin(), partial.end(), [](const RowAxis& row) { return row.extent == 0; });
  for (const RowAxis& last : partial) {
    Chain cut = chain;
    cut.rows.push_back(last);
    if (keep_leading(cut, is_open) == cut.rows.size() && (chain.may_be_long || choose_pieces(cut, target))) {
      chain = std::move(cut);
      return "";
    }
  }
  chain.rows.resize(keep_leading(chain));
  if (chain.rows.empty()) return "their rows are not the leading axes of what lies between them";
  return chain.may_be_long ? "" : choose_block(chain, target);
}

}  // namespace tessera::inline schedule
