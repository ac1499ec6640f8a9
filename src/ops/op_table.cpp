#include "ops/op_table.h"

#include "ops/primitives.h"

namespace tessera::inline ops {
namespace {

std::vector<const OpDef*> list_ops() {
  std::vector<const OpDef*> ops = {
      &bitcast_op(),     &broadcast_op(),   &cast_op(),
      &composite_op(),   &concat_op(),      &constant_op(),
      &conv_op(),        &gather_op(),      &gather_elements_op(),
      &group_op(),       &iota_op(),        &matmul_op(),
      &pad_op(),         &reduce_op(),      &reduce_window_op(),
      &relayout_op(),    &reshape_op(),     &resize_op(),
      &select_op(),      &slice_op(),       &transpose_op(),
      &cumulate_op(),    &order_op(),       &scatter_op(),
      &suppress_op(),    &region_pool_op(), &channel_shuffle_op(),
      &if_op(),          &loop_op(),        &call_op(),
      &random_bits_op(), &sizes_op(),       &compute_op(),
  };
  for (const auto* family : {&unary_ops(), &binary_ops(), &compare_ops()})
    for (const OpDef& op : *family) ops.push_back(&op);
  return ops;
}

}  // namespace

const OpTable& standard_ops() {
  static const OpTable table(list_ops());
  return table;
}

}  // namespace tessera::inline ops
