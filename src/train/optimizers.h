// Optimizers: what one step makes of a parameter and of the moments that belong to it. The formulas, and the meaning of
// every number, are those of torch.optim, in its order of operations, so that trajectories agree.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "train/graph_ops.h"

namespace tessera::inline train {

enum class OptimizerKind : uint8_t { kSgd, kAdam, kAdamW, kRmsProp, kAdagrad };

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::kAdam;
  double weight_decay = 0;
  double momentum = 0;                // kSgd, kRmsProp
  double dampening = 0;               // kSgd
  bool nesterov = false;              // kSgd; needs a momentum
  double beta1 = 0.9, beta2 = 0.999;  // kAdam, kAdamW
  double alpha = 0.99;                // kRmsProp: how much of the mean of squares stays
  bool centered = false;              // kRmsProp
  double rate_decay = 0;              // kAdagrad
  double epsilon = -1;                // -1: that of the kind: 1e-10 for kAdagrad, else 1e-8
};

// "sgd", "adam", "adamw", "rmsprop", "adagrad"
const std::vector<std::string_view>& optimizer_names();
// UserError TSR-2080 for another name.
OptimizerKind optimizer_kind(const std::string& name);
// UserError TSR-2081 for numbers that the optimizer cannot work with.
void check_optimizer(const OptimizerOptions& options);

// What one step of all parameters shares.
struct StepNumbers {
  ValueId rate;    // f64[]: the learning rate
  ValueId number;  // f64[]: 1 for the first step
  // bool[]: false leaves parameter and moments what they are, whatever the gradient has; -1: always true. The formulas'
  // own factors become 0 or 1 then, so that a step remains one pass over memory.
  ValueId ok = -1;
};

// The names of the moments that the optimizer keeps for each parameter, each of the parameter's type and first 0.
std::vector<std::string> moment_names(const OptimizerOptions& options);

// The parameter after the step, then its moments.
std::vector<ValueId> optimizer_step(const GraphOps& o, const OptimizerOptions& options, const StepNumbers& step,
                                    ValueId parameter, ValueId gradient, const std::vector<ValueId>& moments);

}  // namespace tessera::inline train
