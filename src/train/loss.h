// Losses of a training step, as nodes of its graph.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "train/graph_ops.h"

namespace tessera::inline train {

enum class LossKind : uint8_t {
  kCrossEntropy,           // of scores; the softmax that a model ends with is taken off
  kNegativeLogLikelihood,  // of log probabilities
  kMeanSquaredError,
};
// "cross_entropy", "nll", "mse". UserError TSR-2080 for another name.
LossKind loss_kind(const std::string& name);
const std::vector<std::string_view>& loss_names();

// Scores are [N, classes, ...] and targets [N, ...], numbers of classes or `ignored`; of kMeanSquaredError both are
// alike. The mean over what is not ignored.
ValueId loss_of(const GraphOps& o, LossKind kind, double label_smoothing, std::optional<int64_t> ignored,
                ValueId scores, ValueId target);

// How many targets have the largest score, i64[].
ValueId count_right(const GraphOps& o, ValueId scores, ValueId target);

// How far a student's scores are from a teacher's (Hinton et al. 2015): the divergence of their softmax at this
// temperature, the mean over samples, times its square; of kMeanSquaredError the mean squared difference.
ValueId distillation_loss(const GraphOps& o, LossKind kind, double temperature, ValueId student, ValueId teacher);

}  // namespace tessera::inline train
