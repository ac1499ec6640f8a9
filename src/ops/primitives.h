// The primitive operators, each defined in the file named behind it. Only op_table.cpp needs them; everyone else looks
// operators up by name. The objects live for the whole program and are immutable. A new one is two lines here: its
// declaration, and its place in the list.
#pragma once

#include <vector>

#include "graph/op_def.h"

namespace tessera::inline ops {

// Families whose members differ by one expression.
const std::vector<OpDef>& unary_ops();    // unary.cpp
const std::vector<OpDef>& binary_ops();   // binary.cpp
const std::vector<OpDef>& compare_ops();  // compare.cpp

const OpDef& all_gather_op();            // collectives.cpp
const OpDef& all_reduce_op();            // collectives.cpp
const OpDef& all_to_all_op();            // collectives.cpp
const OpDef& rank_shift_op();            // collectives.cpp
const OpDef& bind_size_op();             // bind_size.cpp
const OpDef& bitcast_op();               // bitcast.cpp
const OpDef& broadcast_op();             // broadcast.cpp
const OpDef& call_op();                  // call.cpp
const OpDef& cast_op();                  // cast.cpp
const OpDef& channel_shuffle_op();       // channel_shuffle.cpp
const OpDef& composite_op();             // composite.cpp
const OpDef& concat_op();                // concat.cpp
const OpDef& constant_op();              // constant.cpp
const OpDef& compute_op();               // compute.cpp
const OpDef& conv_op();                  // conv.cpp
const OpDef& conv_weights_op();          // conv_weights.cpp
const OpDef& cumulate_op();              // cumulate.cpp
const OpDef& dequantize_blocks_op();     // dequantize_blocks.cpp
const OpDef& dynamic_slice_op();         // dynamic_slice.cpp
const OpDef& dynamic_update_slice_op();  // dynamic_slice.cpp
const OpDef& fma_op();                   // fma.cpp
const OpDef& gather_op();                // gather.cpp
const OpDef& gather_elements_op();       // gather_elements.cpp
const OpDef& group_op();                 // composite.cpp
const OpDef& if_op();                    // if.cpp
const OpDef& iota_op();                  // iota.cpp
const OpDef& loop_op();                  // loop.cpp
const OpDef& scaled_matmul_op();         // scaled_matmul.cpp
const OpDef& matmul_op();                // matmul.cpp
const OpDef& order_op();                 // order.cpp
const OpDef& pad_op();                   // pad.cpp
const OpDef& random_bits_op();           // random_bits.cpp
const OpDef& receive_op();               // collectives.cpp
const OpDef& reduce_op();                // reduce.cpp
const OpDef& reduce_window_op();         // reduce_window.cpp
const OpDef& reduce_scatter_op();        // collectives.cpp
const OpDef& region_pool_gradient_op();  // region_pool.cpp
const OpDef& region_pool_largest_op();   // region_pool.cpp
const OpDef& region_pool_op();           // region_pool.cpp
const OpDef& relayout_op();              // relayout.cpp
const OpDef& reshape_op();               // reshape.cpp
const OpDef& resize_op();                // resize.cpp
const OpDef& scatter_op();               // scatter.cpp
const OpDef& select_op();                // select.cpp
const OpDef& sizes_op();                 // sizes.cpp
const OpDef& slice_op();                 // slice.cpp
const OpDef& send_op();                  // collectives.cpp
const OpDef& suppress_op();              // suppress.cpp
const OpDef& transpose_op();             // transpose.cpp

// All but the families.
inline constexpr const OpDef& (*kPrimitives[])() = {
    all_gather_op,
    all_reduce_op,
    all_to_all_op,
    rank_shift_op,
    bind_size_op,
    bitcast_op,
    broadcast_op,
    call_op,
    cast_op,
    channel_shuffle_op,
    composite_op,
    compute_op,
    concat_op,
    constant_op,
    conv_op,
    conv_weights_op,
    cumulate_op,
    dequantize_blocks_op,
    dynamic_slice_op,
    dynamic_update_slice_op,
    fma_op,
    gather_op,
    gather_elements_op,
    group_op,
    if_op,
    iota_op,
    loop_op,
    matmul_op,
    scaled_matmul_op,
    order_op,
    pad_op,
    random_bits_op,
    receive_op,
    reduce_op,
    reduce_window_op,
    reduce_scatter_op,
    region_pool_gradient_op,
    region_pool_largest_op,
    region_pool_op,
    relayout_op,
    reshape_op,
    resize_op,
    scatter_op,
    select_op,
    send_op,
    sizes_op,
    slice_op,
    suppress_op,
    transpose_op,
};

}  // namespace tessera::inline ops
