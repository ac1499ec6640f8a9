// The handlers of the operator table, by file. A handler turns one ONNX node into nodes of our graph; it throws
// UserError for a malformed node and UnsupportedNode for a legal one that we cannot express.
#pragma once

#include "import/onnx/node_context.h"

namespace tessera::inline onnx_import {

// attention.cpp
void import_attention(NodeContext& c);
void import_rotary_embedding(NodeContext& c);
void import_fused_matmul(NodeContext& c);
void import_fused_gelu(NodeContext& c);  // primitive: how it is computed
void import_quick_gelu(NodeContext& c);
void import_skip_normalization(NodeContext& c);  // primitive: the norm
void import_flex_attention(NodeContext& c);

// contrib_attention.cpp, of com.microsoft
void import_fused_attention(NodeContext& c);
void import_multi_head_attention(NodeContext& c);
void import_group_query_attention(NodeContext& c);
void import_contrib_rotary_embedding(NodeContext& c);

// contrib_quantization.cpp, of com.microsoft
void import_matmul_nbits(NodeContext& c);
void import_qlinear_binary(NodeContext& c);  // primitive of the same meaning
void import_qlinear_unary(NodeContext& c);   // composite of the same meaning
void import_qlinear_average_pool(NodeContext& c);
void import_qlinear_concat(NodeContext& c);
void import_qlinear_where(NodeContext& c);
void import_qgemm(NodeContext& c);
void import_matmul_integer_to_float(NodeContext& c);  // primitive "dynamic": the first operand comes in floats
void import_fused_conv(NodeContext& c);

// control_flow.cpp
void import_if(NodeContext& c);
void import_scan(NodeContext& c);
void import_loop(NodeContext& c);

// image_patches.cpp
void import_col2im(NodeContext& c);
void import_affine_grid(NodeContext& c);
void import_deform_conv(NodeContext& c);

// linear_algebra.cpp
void import_det(NodeContext& c);

// ml_features.cpp, of ai.onnx.ml
void import_binarizer(NodeContext& c);
void import_array_feature_extractor(NodeContext& c);
void import_scaler(NodeContext& c);
void import_normalizer(NodeContext& c);
void import_imputer(NodeContext& c);
void import_feature_vectorizer(NodeContext& c);
void import_one_hot_encoder(NodeContext& c);
void import_label_encoder(NodeContext& c);
void import_category_mapper(NodeContext& c);
void import_zip_map(NodeContext& c);
void import_dict_vectorizer(NodeContext& c);
void import_cast_map(NodeContext& c);

// ml_linear.cpp, of ai.onnx.ml
void import_linear_regressor(NodeContext& c);
void import_linear_classifier(NodeContext& c);
void import_svm_regressor(NodeContext& c);
void import_svm_classifier(NodeContext& c);

// ml_trees.cpp, of ai.onnx.ml
void import_tree_regressor(NodeContext& c);
void import_tree_classifier(NodeContext& c);
void import_tree_ensemble(NodeContext& c);

// ngrams.cpp
void import_tfidf(NodeContext& c);

// linear_attention.cpp
void import_linear_attention(NodeContext& c);
void import_causal_conv(NodeContext& c);

// elementwise.cpp
// A cast as ONNX has it: to 8-bit floats it saturates when asked to.
ValueId cast_to(NodeContext& c, ValueId x, DType to, bool saturate);
void import_unary(NodeContext& c);   // primitive of the same meaning
void import_binary(NodeContext& c);  // ditto, equal dtypes
void import_bit_shift(NodeContext& c);
void import_mod(NodeContext& c);
void import_pow(NodeContext& c);
void import_variadic(NodeContext& c);  // Sum, Max, Min: folded with the primitive
void import_mean(NodeContext& c);
void import_where(NodeContext& c);
void import_bit_cast(NodeContext& c);
void import_cast(NodeContext& c);
void import_cast_like(NodeContext& c);
void import_identity(NodeContext& c);
void import_dropout(NodeContext& c);
void import_is_inf(NodeContext& c);
void import_is_nan(NodeContext& c);
void import_reciprocal(NodeContext& c);
void import_clip(NodeContext& c);

// activations.cpp
void import_activation(NodeContext& c);        // composite of the same meaning without attributes
void import_alpha_activation(NodeContext& c);  // LeakyRelu, Elu, Celu
void import_hard_sigmoid(NodeContext& c);
void import_selu(NodeContext& c);
void import_gelu(NodeContext& c);
void import_prelu(NodeContext& c);
void import_thresholded_relu(NodeContext& c);
void import_shrink(NodeContext& c);
void import_swiglu(NodeContext& c);
void import_swish(NodeContext& c);
void import_softmax(NodeContext& c);  // and LogSoftmax
void import_hardmax(NodeContext& c);

// contractions.cpp
ValueId convolution(NodeContext& c);  // of the operands 0 and 1 with the bias 2, if any
void import_conv(NodeContext& c);
void import_conv_transpose(NodeContext& c);
void import_conv_integer(NodeContext& c);
void import_gemm(NodeContext& c);
void import_matmul(NodeContext& c);
void import_matmul_integer(NodeContext& c);
void import_qlinear_conv(NodeContext& c);
void import_qlinear_matmul(NodeContext& c);

// losses.cpp
void import_negative_log_likelihood_loss(NodeContext& c);
void import_softmax_cross_entropy_loss(NodeContext& c);

// random.cpp
void import_random_uniform(NodeContext& c);  // primitive "like": shape and type of an operand
void import_random_normal(NodeContext& c);   // ditto
void import_bernoulli(NodeContext& c);
void import_multinomial(NodeContext& c);

// choosing.cpp
void import_compress(NodeContext& c);
void import_non_zero(NodeContext& c);
void import_unique(NodeContext& c);
void import_non_max_suppression(NodeContext& c);

// sequences.cpp
void import_sequence_construct(NodeContext& c);
void import_sequence_empty(NodeContext& c);
void import_sequence_insert(NodeContext& c);
void import_sequence_erase(NodeContext& c);
void import_sequence_at(NodeContext& c);
void import_sequence_length(NodeContext& c);
void import_split_to_sequence(NodeContext& c);
void import_concat_from_sequence(NodeContext& c);
void import_sequence_map(NodeContext& c);
void import_optional(NodeContext& c);
void import_optional_has_element(NodeContext& c);
void import_optional_get_element(NodeContext& c);

// strings.cpp
void import_string_concat(NodeContext& c);
void import_string_split(NodeContext& c);
void import_string_normalizer(NodeContext& c);
// A cast of strings, or to strings.
ValueId cast_strings(NodeContext& c, ValueId x, DType to);

// training.cpp
void import_adagrad(NodeContext& c);
void import_adam(NodeContext& c);
void import_momentum(NodeContext& c);

// ordering.cpp
// Of each place along `axis` the sum of those up to it.
ValueId running_sum(NodeContext& c, ValueId x, size_t axis);
void import_cumulative(NodeContext& c);  // CumSum, CumProd; primitive: how two values are joined
void import_reverse_sequence(NodeContext& c);
void import_top_k(NodeContext& c);
void import_einsum(NodeContext& c);

// quantization.cpp
// x / scale + zero, rounded to even and kept within the type of `zero`.
ValueId quantized(NodeContext& c, ValueId x, ValueId scale, ValueId zero);
// The scale and zero point that put the range of x, and 0 in any case, into u8, and x in them.
struct DynamicRange {
  ValueId values, scale, zero;
};
DynamicRange dynamic_range(NodeContext& c, ValueId x);
void import_quantize_linear(NodeContext& c);
void import_dequantize_linear(NodeContext& c);
void import_dynamic_quantize_linear(NodeContext& c);

// recurrent.cpp
void import_lstm(NodeContext& c);
void import_gru(NodeContext& c);
void import_rnn(NodeContext& c);

// scattering.cpp
// x [P] with updates [U] at places i64 [U], the last one of each place; those outside are left out.
ValueId scattered(NodeContext& c, ValueId x, ValueId places, ValueId updates);
void import_scatter_elements(NodeContext& c);
void import_scatter_nd(NodeContext& c);
void import_tensor_scatter(NodeContext& c);

// sampling.cpp
void import_grid_sample(NodeContext& c);
void import_roi_align(NodeContext& c);
void import_max_unpool(NodeContext& c);

// pooling.cpp
ValueId average_pool(NodeContext& c, ValueId x);  // by the node's attributes
void import_max_pool(NodeContext& c);
void import_average_pool(NodeContext& c);
void import_lp_pool(NodeContext& c);
void import_global_pool(NodeContext& c);
void import_global_lp_pool(NodeContext& c);

// normalization.cpp
void import_batch_normalization(NodeContext& c);
void import_instance_normalization(NodeContext& c);
void import_layer_normalization(NodeContext& c);
void import_group_normalization(NodeContext& c);
void import_rms_normalization(NodeContext& c);
void import_lp_normalization(NodeContext& c);
void import_mean_variance_normalization(NodeContext& c);
void import_lrn(NodeContext& c);

// reductions.cpp
void import_reduce(NodeContext& c);            // primitive: the kind
void import_reduce_composite(NodeContext& c);  // primitive: the composite
void import_arg_reduce(NodeContext& c);        // ArgMax, ArgMin

// resizing.cpp
void import_resize(NodeContext& c);
void import_upsample(NodeContext& c);

// shapes.cpp
void import_reshape(NodeContext& c);
void import_flatten(NodeContext& c);
void import_squeeze(NodeContext& c);
void import_unsqueeze(NodeContext& c);
void import_transpose(NodeContext& c);
void import_expand(NodeContext& c);
void import_tile(NodeContext& c);
void import_shape(NodeContext& c);
void import_size(NodeContext& c);
void import_depth_to_space(NodeContext& c);
void import_space_to_depth(NodeContext& c);

// slicing.cpp
void import_concat(NodeContext& c);
void import_split(NodeContext& c);
void import_slice(NodeContext& c);
void import_pad(NodeContext& c);
void import_center_crop_pad(NodeContext& c);

// indexing.cpp
void import_gather(NodeContext& c);
void import_gather_elements(NodeContext& c);
void import_gather_nd(NodeContext& c);
void import_trilu(NodeContext& c);
void import_one_hot(NodeContext& c);

// fourier.cpp
void import_dft(NodeContext& c);
void import_stft(NodeContext& c);
void import_mel_weight_matrix(NodeContext& c);

// generators.cpp
void import_constant(NodeContext& c);
void import_constant_of_shape(NodeContext& c);
void import_range(NodeContext& c);
void import_eye_like(NodeContext& c);
void import_window_function(NodeContext& c);

}  // namespace tessera::inline onnx_import
