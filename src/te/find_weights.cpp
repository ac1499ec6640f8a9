#include "te/find_weights.h"

#include <algorithm>
#include <optional>

#include "arith/simplify.h"
#include "te/index_map.h"

namespace tessera::inline tensor_programs {
namespace {

// The axis of the output whose elements lie side by side; none of an output of one element.
std::optional<size_t> innermost_axis(const Stage& output) {
  const Layout& layout = output.layout;
  if (const LayoutDim block = layout.inner_block(); block.axis >= 0) return static_cast<size_t>(block.axis);
  for (size_t a = output.out->shape.size(); a-- > 0;)
    if (!is_const_int(output.out->shape[a], 1)) return a;
  return std::nullopt;
}

// Outputs that read an element, from which on it pays to store it otherwise: where it is read in vectors of what lies
// apart; and where rows could be read as they are, of which that many terms make pages too many for one tile's columns.
// The latter is 2 to 15 % slower, a product of few rows by a matrix of long ones three times; and packing a matrix
// takes one to five copies of it (Zen 4: with 8 rows, both ways take the same time, with 16, packing wins by 20 %).
constexpr int64_t kLeastReuse = 8, kLeastReuseOfRows = 96, kLeastTerms = 256;
// Bytes of a row: short ones of whole cache lines are one tile's, and read as they are.
constexpr int64_t kShortRow = 512, kLongRow = 8192, kLine = 64;

// Whether elements of 32 bits and more lie side by side along `inner`: narrower ones are multiplied in groups.
bool lies_in_rows(const IndexMap& map, size_t inner) {
  return dtype_bits(map.operand->dtype) >= 32 && map.dims.back().sole == AxisRef{false, inner};
}

int count_loads(const Expr& e, const Buffer* buffer) {
  int count = 0;
  walk(e, [&](const Expr& node) { count += node->kind == ExprKind::kLoad && node->buffer.get() == buffer; });
  return count;
}

// Of two factors, the one that is the load of `buffer`, possibly cast; null when none is, or both read it.
const ExprNode* factor_of(const Expr& product, const Buffer* buffer, Expr& other) {
  if (product->kind != ExprKind::kBinary || product->binary != BinaryOp::kMul) return nullptr;
  for (size_t side = 0; side < 2; ++side) {
    Expr factor = product->operands[side];
    while (factor->kind == ExprKind::kCast) factor = factor->operands[0];
    if (factor->kind != ExprKind::kLoad || factor->buffer.get() != buffer) continue;
    other = product->operands[1 - side];
    return count_loads(other, buffer) == 0 ? factor.get() : nullptr;
  }
  return nullptr;
}

bool is_weight(const TensorProgram& program, const Stage& reduction, const TensorParam& param, size_t inner,
               int64_t calls) {
  const Buffer* buffer = param.buffer.get();
  if (!param.layout.row_major() || dtype_bits(buffer->dtype) < 8) return false;
  const bool fixed = std::all_of(buffer->shape.begin(), buffer->shape.end(),
                                 [](const Expr& extent) { return as_int(extent).value_or(0) > 0; });
  if (!fixed) return false;
  for (const Stage& stage : program.stages)
    if (&stage != &reduction && count_loads(stage.body.value, buffer) > 0) return false;
  Expr other;
  if (!factor_of(reduction.body.value, buffer, other)) return false;
  for (const TensorParam& constant : program.params)
    if (constant.is_constant() && count_loads(other, constant.buffer.get()) > 0) return false;
  const std::vector<IndexMap> maps = index_maps(reduction.body, buffer);
  if (maps.size() != 1) return false;
  const IndexMap& map = maps[0];
  if (std::any_of(map.dims.begin(), map.dims.end(), [](const IndexDim& dim) { return dim.by_data; })) return false;
  if (!map.mentions({false, inner})) return false;

  int64_t reuse = 1;
  for (size_t a = 0; a < reduction.body.axes.size(); ++a) {
    const int64_t extent = typical_size(reduction.body.axes[a].extent);
    if (extent == 1) continue;
    if (!map.mentions({false, a})) {
      reuse = std::min<int64_t>(reuse * std::max<int64_t>(extent, 1), INT32_MAX);
      continue;
    }
    // A batch: the other factor has elements of its own for each place, too.
    if (a == inner) continue;
    for (const IndexMap& theirs : index_maps(reduction.body))
      if (theirs.operand.get() != buffer && theirs.mentions({false, a})) return false;
  }
  if (!lies_in_rows(map, inner)) return reuse >= kLeastReuse;
  const int64_t row = dtype_bytes(buffer->dtype, *as_int(buffer->shape.back()));
  int64_t terms = 1;
  for (const Axis& axis : reduction.body.reduce_axes) terms *= typical_size(axis.extent);
  const int64_t least = row >= kLongRow ? kLeastReuse : kLeastReuseOfRows;
  return reuse >= kLeastReuse && reuse * calls >= least && terms >= kLeastTerms &&
         (row > kShortRow || row % kLine != 0);
}

}  // namespace

void find_weights(TensorProgram& program, const std::vector<int64_t>& calls) {
  const Stage* reduction = program.reductions().size() == 1 ? program.reduction() : nullptr;
  if (!reduction || reduction->body.combiner != Combiner::kSum || !program.windows.empty()) return;
  const auto inner = innermost_axis(program.output());
  if (!inner || reduction->body.axes.size() != program.output().out->shape.size()) return;
  for (size_t i = 0; i < program.params.size(); ++i) {
    TensorParam& param = program.params[i];
    const int64_t times = i < calls.size() ? calls[i] : 1;
    if (param.kind == OperandKind::kActivation && is_weight(program, *reduction, param, *inner, times))
      param.kind = OperandKind::kWeight;
  }
}

}  // namespace tessera::inline tensor_programs
