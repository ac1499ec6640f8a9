// What the classifiers and regressors of ai.onnx.ml share: scores [N, C] become probabilities and labels.
#pragma once

#include <optional>
#include <string>

#include "import/onnx/node_context.h"

namespace tessera::inline onnx_import {

// The attribute post_transform; UserError TSR-1044 when it is unknown.
std::string read_post_transform(NodeContext& c);
// NONE, LOGISTIC, SOFTMAX, SOFTMAX_ZERO (zeros stay zeros) or PROBIT of each row.
ValueId post_transformed(NodeContext& c, ValueId scores, const std::string& transform);

// The column of the largest score of each row, the first of equals: i64 [N].
ValueId largest_column(NodeContext& c, ValueId scores);
// How many labels the node has, of either kind; `ints` and `strings` are its attributes.
int64_t label_count(NodeContext& c, const std::string& ints, const std::string& strings);
// Labels of columns i64 [N], strings where the node has those.
void give_labels(NodeContext& c, ValueId columns, const std::string& ints, const std::string& strings);

// The operand [N, F] of a model as f32, or f64 where the operator computes in it; a vector is one row.
ValueId feature_rows(NodeContext& c, ValueId x, bool keep_f64 = false);
// Constants as a tensor of a type.
ValueId float_table(NodeContext& c, DType dtype, const std::vector<double>& values, std::vector<int64_t> dims);

}  // namespace tessera::inline onnx_import
