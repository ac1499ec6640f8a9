#include "import/onnx/operator_table.h"

#include <algorithm>
#include <array>

#include "import/onnx/operators/handlers.h"

namespace tessera {
namespace {

// Sorted by name.
constexpr std::array kTable = {
    OperatorImporter{"Abs", 1, import_unary, "abs"},
    OperatorImporter{"Acos", 7, import_unary, "acos"},
    OperatorImporter{"Acosh", 9, import_unary, "acosh"},
    OperatorImporter{"Add", 1, import_binary, "add"},
    OperatorImporter{"AffineGrid", 20, import_affine_grid},
    OperatorImporter{"And", 1, import_binary, "logical_and"},
    OperatorImporter{"ArgMax", 1, import_arg_reduce, "max"},
    OperatorImporter{"ArgMin", 1, import_arg_reduce, "min"},
    OperatorImporter{"Asin", 7, import_unary, "asin"},
    OperatorImporter{"Asinh", 9, import_unary, "asinh"},
    OperatorImporter{"Atan", 7, import_unary, "atan"},
    OperatorImporter{"Atanh", 9, import_unary, "atanh"},
    OperatorImporter{"Attention", 23, import_attention},
    OperatorImporter{"AveragePool", 1, import_average_pool},
    OperatorImporter{"BatchNormalization", 1, import_batch_normalization},
    OperatorImporter{"Bernoulli", 15, import_bernoulli},
    OperatorImporter{"BitCast", 26, import_bit_cast},
    OperatorImporter{"BitShift", 11, import_bit_shift},
    OperatorImporter{"BitwiseAnd", 18, import_binary, "bitwise_and"},
    OperatorImporter{"BitwiseNot", 18, import_unary, "bitwise_not"},
    OperatorImporter{"BitwiseOr", 18, import_binary, "bitwise_or"},
    OperatorImporter{"BitwiseXor", 18, import_binary, "bitwise_xor"},
    OperatorImporter{"BlackmanWindow", 17, import_window_function},
    OperatorImporter{"Cast", 1, import_cast},
    OperatorImporter{"CastLike", 15, import_cast_like},
    OperatorImporter{"CausalConvWithState", 27, import_causal_conv},
    OperatorImporter{"Ceil", 1, import_unary, "ceil"},
    OperatorImporter{"Celu", 12, import_alpha_activation, "celu"},
    OperatorImporter{"CenterCropPad", 18, import_center_crop_pad},
    OperatorImporter{"Clip", 1, import_clip},
    OperatorImporter{"Col2Im", 18, import_col2im},
    OperatorImporter{"Compress", 9, import_compress},
    OperatorImporter{"Concat", 1, import_concat},
    OperatorImporter{"Constant", 1, import_constant},
    OperatorImporter{"ConstantOfShape", 9, import_constant_of_shape},
    OperatorImporter{"Conv", 1, import_conv},
    OperatorImporter{"ConvInteger", 10, import_conv_integer},
    OperatorImporter{"ConvTranspose", 1, import_conv_transpose},
    OperatorImporter{"Cos", 7, import_unary, "cos"},
    OperatorImporter{"Cosh", 9, import_unary, "cosh"},
    OperatorImporter{"CumProd", 26, import_cumulative, "mul"},
    OperatorImporter{"CumSum", 11, import_cumulative, "add"},
    OperatorImporter{"DFT", 17, import_dft},
    OperatorImporter{"DeformConv", 19, import_deform_conv},
    OperatorImporter{"DepthToSpace", 1, import_depth_to_space},
    OperatorImporter{"DequantizeLinear", 10, import_dequantize_linear},
    OperatorImporter{"Det", 11, import_det},
    OperatorImporter{"Div", 1, import_binary, "div"},
    OperatorImporter{"Dropout", 1, import_dropout},
    OperatorImporter{"DynamicQuantizeLinear", 11, import_dynamic_quantize_linear},
    OperatorImporter{"Einsum", 12, import_einsum},
    OperatorImporter{"Elu", 1, import_alpha_activation, "elu"},
    OperatorImporter{"Equal", 1, import_binary, "eq"},
    OperatorImporter{"Erf", 9, import_unary, "erf"},
    OperatorImporter{"Exp", 1, import_unary, "exp"},
    OperatorImporter{"Expand", 8, import_expand},
    OperatorImporter{"EyeLike", 9, import_eye_like},
    OperatorImporter{"Flatten", 1, import_flatten},
    OperatorImporter{"Floor", 1, import_unary, "floor"},
    OperatorImporter{"GRU", 1, import_gru},
    OperatorImporter{"Gather", 1, import_gather},
    OperatorImporter{"GatherElements", 11, import_gather_elements},
    OperatorImporter{"GatherND", 11, import_gather_nd},
    OperatorImporter{"Gelu", 20, import_gelu},
    OperatorImporter{"Gemm", 1, import_gemm},
    OperatorImporter{"GlobalAveragePool", 1, import_global_pool, "global_average_pool"},
    OperatorImporter{"GlobalLpPool", 1, import_global_lp_pool},
    OperatorImporter{"GlobalMaxPool", 1, import_global_pool, "global_max_pool"},
    OperatorImporter{"Greater", 1, import_binary, "gt"},
    OperatorImporter{"GreaterOrEqual", 12, import_binary, "ge"},
    OperatorImporter{"GridSample", 16, import_grid_sample},
    OperatorImporter{"GroupNormalization", 21, import_group_normalization},
    OperatorImporter{"HammingWindow", 17, import_window_function},
    OperatorImporter{"HannWindow", 17, import_window_function},
    OperatorImporter{"HardSigmoid", 1, import_hard_sigmoid},
    OperatorImporter{"HardSwish", 14, import_activation, "hard_swish"},
    OperatorImporter{"Hardmax", 1, import_hardmax},
    OperatorImporter{"Identity", 1, import_identity},
    OperatorImporter{"If", 1, import_if},
    OperatorImporter{"InstanceNormalization", 1, import_instance_normalization},
    OperatorImporter{"IsInf", 10, import_is_inf},
    OperatorImporter{"IsNaN", 9, import_is_nan},
    OperatorImporter{"LRN", 1, import_lrn},
    OperatorImporter{"LSTM", 1, import_lstm},
    OperatorImporter{"LayerNormalization", 17, import_layer_normalization},
    OperatorImporter{"LeakyRelu", 1, import_alpha_activation, "leaky_relu"},
    OperatorImporter{"Less", 1, import_binary, "lt"},
    OperatorImporter{"LessOrEqual", 12, import_binary, "le"},
    OperatorImporter{"LinearAttention", 27, import_linear_attention},
    OperatorImporter{"Log", 1, import_unary, "log"},
    OperatorImporter{"LogSoftmax", 1, import_softmax, "log_softmax"},
    OperatorImporter{"Loop", 7, import_loop},
    OperatorImporter{"LpNormalization", 1, import_lp_normalization},
    OperatorImporter{"LpPool", 1, import_lp_pool},
    OperatorImporter{"MatMul", 1, import_matmul},
    OperatorImporter{"MatMulInteger", 10, import_matmul_integer},
    OperatorImporter{"Max", 1, import_variadic, "max"},
    OperatorImporter{"MaxPool", 1, import_max_pool},
    OperatorImporter{"MaxUnpool", 9, import_max_unpool},
    OperatorImporter{"Mean", 1, import_mean},
    OperatorImporter{"MeanVarianceNormalization", 9, import_mean_variance_normalization},
    OperatorImporter{"MelWeightMatrix", 17, import_mel_weight_matrix},
    OperatorImporter{"Min", 1, import_variadic, "min"},
    OperatorImporter{"Mish", 18, import_activation, "mish"},
    OperatorImporter{"Mod", 10, import_mod},
    OperatorImporter{"Mul", 1, import_binary, "mul"},
    OperatorImporter{"Multinomial", 7, import_multinomial},
    OperatorImporter{"Neg", 1, import_unary, "neg"},
    OperatorImporter{"NegativeLogLikelihoodLoss", 12, import_negative_log_likelihood_loss},
    OperatorImporter{"NonMaxSuppression", 10, import_non_max_suppression},
    OperatorImporter{"NonZero", 9, import_non_zero},
    OperatorImporter{"Not", 1, import_unary, "logical_not"},
    OperatorImporter{"OneHot", 9, import_one_hot},
    OperatorImporter{"Or", 1, import_binary, "logical_or"},
    OperatorImporter{"PRelu", 1, import_prelu},
    OperatorImporter{"Pad", 1, import_pad},
    OperatorImporter{"Pow", 1, import_pow},
    OperatorImporter{"QLinearConv", 10, import_qlinear_conv},
    OperatorImporter{"QLinearMatMul", 10, import_qlinear_matmul},
    OperatorImporter{"QuantizeLinear", 10, import_quantize_linear},
    OperatorImporter{"RMSNormalization", 23, import_rms_normalization},
    OperatorImporter{"RNN", 1, import_rnn},
    OperatorImporter{"RandomNormal", 7, import_random_normal},
    OperatorImporter{"RandomNormalLike", 7, import_random_normal, "like"},
    OperatorImporter{"RandomUniform", 7, import_random_uniform},
    OperatorImporter{"RandomUniformLike", 7, import_random_uniform, "like"},
    OperatorImporter{"Range", 11, import_range},
    OperatorImporter{"Reciprocal", 1, import_reciprocal},
    OperatorImporter{"ReduceL1", 1, import_reduce_composite, "reduce_l1"},
    OperatorImporter{"ReduceL2", 1, import_reduce_composite, "reduce_l2"},
    OperatorImporter{"ReduceLogSum", 1, import_reduce_composite, "reduce_log_sum"},
    OperatorImporter{"ReduceLogSumExp", 1, import_reduce_composite, "reduce_log_sum_exp"},
    OperatorImporter{"ReduceMax", 1, import_reduce, "max"},
    OperatorImporter{"ReduceMean", 1, import_reduce_composite, "reduce_mean"},
    OperatorImporter{"ReduceMin", 1, import_reduce, "min"},
    OperatorImporter{"ReduceProd", 1, import_reduce, "prod"},
    OperatorImporter{"ReduceSum", 1, import_reduce, "sum"},
    OperatorImporter{"ReduceSumSquare", 1, import_reduce_composite, "reduce_sum_square"},
    OperatorImporter{"Relu", 1, import_activation, "relu"},
    OperatorImporter{"Reshape", 1, import_reshape},
    OperatorImporter{"Resize", 10, import_resize},
    OperatorImporter{"ReverseSequence", 10, import_reverse_sequence},
    OperatorImporter{"RoiAlign", 10, import_roi_align},
    OperatorImporter{"RotaryEmbedding", 23, import_rotary_embedding},
    OperatorImporter{"Round", 11, import_unary, "round"},
    OperatorImporter{"STFT", 17, import_stft},
    OperatorImporter{"Scan", 8, import_scan},
    OperatorImporter{"Scatter", 9, import_scatter_elements, "", 10},
    OperatorImporter{"ScatterElements", 11, import_scatter_elements},
    OperatorImporter{"ScatterND", 11, import_scatter_nd},
    OperatorImporter{"Selu", 1, import_selu},
    OperatorImporter{"Shape", 1, import_shape},
    OperatorImporter{"Shrink", 9, import_shrink},
    OperatorImporter{"Sigmoid", 1, import_activation, "sigmoid"},
    OperatorImporter{"Sign", 9, import_unary, "sign"},
    OperatorImporter{"Sin", 7, import_unary, "sin"},
    OperatorImporter{"Sinh", 9, import_unary, "sinh"},
    OperatorImporter{"Size", 1, import_size},
    OperatorImporter{"Slice", 1, import_slice},
    OperatorImporter{"Softmax", 1, import_softmax, "softmax"},
    OperatorImporter{"SoftmaxCrossEntropyLoss", 12, import_softmax_cross_entropy_loss},
    OperatorImporter{"Softplus", 1, import_activation, "softplus"},
    OperatorImporter{"Softsign", 1, import_activation, "softsign"},
    OperatorImporter{"SpaceToDepth", 1, import_space_to_depth},
    OperatorImporter{"Split", 1, import_split},
    OperatorImporter{"Sqrt", 1, import_unary, "sqrt"},
    OperatorImporter{"Squeeze", 1, import_squeeze},
    OperatorImporter{"Sub", 1, import_binary, "sub"},
    OperatorImporter{"Sum", 1, import_variadic, "add"},
    OperatorImporter{"SwiGLU", 28, import_swiglu},
    OperatorImporter{"Swish", 24, import_swish},
    OperatorImporter{"Tan", 7, import_unary, "tan"},
    OperatorImporter{"Tanh", 1, import_unary, "tanh"},
    OperatorImporter{"TensorScatter", 24, import_tensor_scatter},
    OperatorImporter{"TfIdfVectorizer", 9, import_tfidf},
    OperatorImporter{"ThresholdedRelu", 10, import_thresholded_relu},
    OperatorImporter{"Tile", 1, import_tile},
    OperatorImporter{"TopK", 1, import_top_k},
    OperatorImporter{"Transpose", 1, import_transpose},
    OperatorImporter{"Trilu", 14, import_trilu},
    OperatorImporter{"Unique", 11, import_unique},
    OperatorImporter{"Unsqueeze", 1, import_unsqueeze},
    OperatorImporter{"Upsample", 1, import_upsample, "", 9},
    OperatorImporter{"Where", 9, import_where},
    OperatorImporter{"Xor", 1, import_binary, "logical_xor"},
};

constexpr bool sorted_by_name() {
  for (size_t i = 1; i < kTable.size(); ++i)
    if (!(kTable[i - 1].op_type < kTable[i].op_type)) return false;
  return true;
}
static_assert(sorted_by_name());

// Of the domain com.microsoft, which has one version. Sorted by name.
constexpr std::array kContribTable = {
    OperatorImporter{"Attention", 1, import_fused_attention},
    OperatorImporter{"BiasGelu", 1, import_fused_gelu, "none"},
    OperatorImporter{"DequantizeLinear", 1, import_dequantize_linear},
    OperatorImporter{"DynamicQuantizeMatMul", 1, import_matmul_integer_to_float, "dynamic"},
    OperatorImporter{"FastGelu", 1, import_fused_gelu, "tanh"},
    OperatorImporter{"FusedConv", 1, import_fused_conv},
    OperatorImporter{"FusedMatMul", 1, import_fused_matmul},
    OperatorImporter{"Gelu", 1, import_fused_gelu, "none"},
    OperatorImporter{"GroupQueryAttention", 1, import_group_query_attention},
    OperatorImporter{"MatMulIntegerToFloat", 1, import_matmul_integer_to_float},
    OperatorImporter{"MatMulNBits", 1, import_matmul_nbits},
    OperatorImporter{"MultiHeadAttention", 1, import_multi_head_attention},
    OperatorImporter{"QGemm", 1, import_qgemm},
    OperatorImporter{"QLinearAdd", 1, import_qlinear_binary, "add"},
    OperatorImporter{"QLinearAveragePool", 1, import_qlinear_average_pool},
    OperatorImporter{"QLinearConcat", 1, import_qlinear_concat},
    OperatorImporter{"QLinearGlobalAveragePool", 1, import_qlinear_unary, "global_average_pool"},
    OperatorImporter{"QLinearLeakyRelu", 1, import_qlinear_unary, "leaky_relu"},
    OperatorImporter{"QLinearMul", 1, import_qlinear_binary, "mul"},
    OperatorImporter{"QLinearReduceMean", 1, import_qlinear_unary, "reduce_mean"},
    OperatorImporter{"QLinearSigmoid", 1, import_qlinear_unary, "sigmoid"},
    OperatorImporter{"QLinearSoftmax", 1, import_qlinear_unary, "softmax"},
    OperatorImporter{"QLinearWhere", 1, import_qlinear_where},
    OperatorImporter{"QuantizeLinear", 1, import_quantize_linear},
    OperatorImporter{"QuickGelu", 1, import_quick_gelu},
    OperatorImporter{"RotaryEmbedding", 1, import_contrib_rotary_embedding},
    OperatorImporter{"SkipLayerNormalization", 1, import_skip_normalization, "layer_norm"},
    OperatorImporter{"SkipSimplifiedLayerNormalization", 1, import_skip_normalization, "rms_norm"},
};

// Of the domain ai.onnx.ml. Sorted by name.
constexpr std::array kMlTable = {
    OperatorImporter{"ArrayFeatureExtractor", 1, import_array_feature_extractor},
    OperatorImporter{"Binarizer", 1, import_binarizer},
    OperatorImporter{"FeatureVectorizer", 1, import_feature_vectorizer},
    OperatorImporter{"Imputer", 1, import_imputer},
    OperatorImporter{"LabelEncoder", 1, import_label_encoder},
    OperatorImporter{"LinearClassifier", 1, import_linear_classifier},
    OperatorImporter{"LinearRegressor", 1, import_linear_regressor},
    OperatorImporter{"Normalizer", 1, import_normalizer},
    OperatorImporter{"OneHotEncoder", 1, import_one_hot_encoder},
    OperatorImporter{"SVMClassifier", 1, import_svm_classifier},
    OperatorImporter{"SVMRegressor", 1, import_svm_regressor},
    OperatorImporter{"Scaler", 1, import_scaler},
    OperatorImporter{"TreeEnsemble", 5, import_tree_ensemble},
    OperatorImporter{"TreeEnsembleClassifier", 1, import_tree_classifier},
    OperatorImporter{"TreeEnsembleRegressor", 1, import_tree_regressor},
    OperatorImporter{"ZipMap", 1, import_zip_map},
};

// Of the domain ai.onnx.preview, which has one version.
constexpr std::array kPreviewTable = {
    OperatorImporter{"FlexAttention", 1, import_flex_attention},
};

// Of the domain ai.onnx.preview.training, which has one version. Sorted by name.
constexpr std::array kTrainingTable = {
    OperatorImporter{"Adagrad", 1, import_adagrad},
    OperatorImporter{"Adam", 1, import_adam},
    OperatorImporter{"Momentum", 1, import_momentum},
};

const OperatorImporter* find_in(std::span<const OperatorImporter> table, std::string_view op_type) {
  const auto it = std::lower_bound(table.begin(), table.end(), op_type,
                                   [](const OperatorImporter& row, std::string_view key) { return row.op_type < key; });
  return it != table.end() && it->op_type == op_type ? &*it : nullptr;
}

}  // namespace

std::span<const OperatorImporter> contrib_importers() { return kContribTable; }

std::span<const OperatorImporter> operator_importers() { return kTable; }

const OperatorImporter* find_importer(std::string_view domain, std::string_view op_type) {
  if (domain.empty()) return find_in(kTable, op_type);
  if (domain == kContribDomain) return find_in(kContribTable, op_type);
  if (domain == kMlDomain) return find_in(kMlTable, op_type);
  if (domain == kPreviewDomain) return find_in(kPreviewTable, op_type);
  if (domain == kTrainingDomain) return find_in(kTrainingTable, op_type);
  return nullptr;
}

}  // namespace tessera
