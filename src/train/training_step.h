// A training step as a graph: forward, loss, gradients, and the update of the parameters, which are states.
//
// From a model whose weights are constants, as readers make it. Its inputs stay; two are added behind them:
//   target         what the first output should be: i64 numbers of classes, or, for mean squared error, numbers of the
//                  output's type and shape
//   learning_rate  f64[]: another one for each step costs nothing
// The results are `loss`, the mean over the batch, and `correct`, how many targets have the largest score (i64[]; 0 for
// mean squared error). States, in order: the parameters under their constants' names, running statistics of batch
// normalisations, the optimizer's moments ("NAME.squares", in f32 for parameters of 16 bits), and the number of steps
// done ("training.step", i64[]).
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/op_def.h"
#include "train/data_parallel.h"
#include "train/optimizers.h"

namespace tessera::inline train {

enum class LossKind : uint8_t {
  kCrossEntropy,           // of scores; the softmax that a model ends with is taken off
  kNegativeLogLikelihood,  // of log probabilities
  kMeanSquaredError,
};
// "cross_entropy", "nll", "mse". UserError TSR-2080 for another name.
LossKind loss_kind(const std::string& name);
const std::vector<std::string_view>& loss_names();

struct TrainingOptions {
  LossKind loss = LossKind::kCrossEntropy;
  OptimizerOptions optimizer;
  // Of a loss of classes: the share of a target that all classes have together (Szegedy et al. 2016, section 7),
  // below 1.
  double label_smoothing = 0;
  double clip_norm = 0;             // the gradients' common norm does not exceed it; 0: it may be any
  std::vector<std::string> frozen;  // names of constants that stay what they are
  DataParallel parallel;            // the model's batch is one part then
};

// What is learnt: constants of the first output's element type and of rank 1 or more that it depends on, the running
// statistics of batch normalisations aside. By name, in the order of the graph.
std::vector<std::string> parameter_names(const Graph& model, const OpTable& ops);

// The states are the parameters, the statistics, the moments and, last, the number of steps done.
struct TrainingStep {
  Graph graph;
  std::vector<std::string> parameters, statistics;
};

// `model` with constants of their own for the running mean and variance of a batch normalisation whose numbers
// something else reads, too: exporters keep equal initializers once, ones for a new scale and a new variance, which
// training moves apart.
Graph with_own_statistics(const Graph& model, const OpTable& ops);

// `model` with one constant for those that are the same numbers in memory, whatever their shapes: importers give a
// weight that is read in several shapes a constant for each, and it is one weight still.
Graph with_shared_constants(const Graph& model, const OpTable& ops);

// With `parallel`, the step's batch is all parts of one rank, and its results are those of all ranks'
// (data_parallel.h); batch normalisations take the mean and variance of all ranks' samples then.
// UserError TSR-2085 (parts, or leaves of a model with batch normalisations, whose statistics are a whole batch's),
// TSR-2081 (numbers), TSR-2082 (the model has states, or no output that the loss takes), TSR-2083 (a frozen name that
// is no parameter, or nothing to learn), TSR-2072 (operators without a gradient).
TrainingStep training_step(const Graph& model, const TrainingOptions& options, const OpTable& ops);

// `model` with these constants as states that no call changes: what a training step has learnt is given to it.
Graph with_states(const Graph& model, const std::vector<std::string>& names);

// `model` with these constants in place of its own of the same names, and of those that are the same numbers in
// memory. REQUIRES: of their types.
Graph with_constants(const Graph& model, const std::vector<std::string>& names, const std::vector<TensorPtr>& values);

}  // namespace tessera::inline train
