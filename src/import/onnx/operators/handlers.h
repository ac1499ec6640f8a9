// The families of operators, a file each, and what they share. A handler turns one ONNX node into nodes of our graph;
// it throws UserError for a malformed node and UnsupportedNode for a legal one that we cannot express. It stands in its
// family's file, with a row in the list at the end of the file.
#pragma once

#include "import/onnx/node_context.h"
#include "import/onnx/operator_table.h"

namespace tessera::inline onnx_import {

// Each in the file of its name; only operator_table.cpp needs them.
OperatorFamily activations_operators();
OperatorFamily attention_operators();
OperatorFamily contractions_operators();
OperatorFamily contrib_attention_operators();
OperatorFamily contrib_quantization_operators();
OperatorFamily control_flow_operators();
OperatorFamily elementwise_operators();
OperatorFamily fourier_operators();
OperatorFamily generators_operators();
OperatorFamily image_patches_operators();
OperatorFamily indexing_operators();
OperatorFamily linear_algebra_operators();
OperatorFamily linear_attention_operators();
OperatorFamily losses_operators();
OperatorFamily ml_features_operators();
OperatorFamily ml_linear_operators();
OperatorFamily ml_trees_operators();
OperatorFamily ngrams_operators();
OperatorFamily normalization_operators();
OperatorFamily ordering_operators();
OperatorFamily pooling_operators();
OperatorFamily quantization_operators();
OperatorFamily random_operators();
OperatorFamily recurrent_operators();
OperatorFamily reductions_operators();
OperatorFamily resizing_operators();
OperatorFamily sampling_operators();
OperatorFamily scattering_operators();
OperatorFamily selection_operators();
OperatorFamily sequences_operators();
OperatorFamily shapes_operators();
OperatorFamily slicing_operators();
OperatorFamily strings_operators();
OperatorFamily training_operators();

// elementwise.cpp
// A cast as ONNX has it: to 8-bit floats it saturates when asked to.
ValueId cast_to(NodeContext& c, ValueId x, DType to, bool saturate);

// contractions.cpp
ValueId convolution(NodeContext& c);  // of the operands 0 and 1 with the bias 2, if any

// strings.cpp
// A cast of strings, or to strings.
ValueId cast_strings(NodeContext& c, ValueId x, DType to);

// ordering.cpp
// Of each place along `axis` the sum of those up to it.
ValueId running_sum(NodeContext& c, ValueId x, size_t axis);

// quantization.cpp
// x / scale + zero, rounded to even and kept within the type of `zero`.
ValueId quantized(NodeContext& c, ValueId x, ValueId scale, ValueId zero);
// The scale and zero point that put the range of x, and 0 in any case, into u8, and x in them.
struct DynamicRange {
  ValueId values, scale, zero;
};
DynamicRange dynamic_range(NodeContext& c, ValueId x);

// scattering.cpp
// x [P] with updates [U] at places i64 [U], the last one of each place; those outside are left out.
ValueId scattered(NodeContext& c, ValueId x, ValueId places, ValueId updates);

// pooling.cpp
ValueId average_pool(NodeContext& c, ValueId x);  // by the node's attributes

}  // namespace tessera::inline onnx_import
