// A training step as a graph: forward, loss, gradients, and the update of the parameters, which are states.
//
// From a model whose weights are constants, as readers make it. Its inputs stay; two are added behind them:
//   target         what the first output should be: i64 numbers of classes, or, for mean squared error, numbers of the
//                  output's type and shape
//   learning_rate  f64[]: another one for each step costs nothing
// The results are `loss`, the mean over the batch, and `correct`, how many targets have the largest score (i64[]; 0 for
// mean squared error); with a guard or a scaled loss `finite`, too. States, in order: the parameters under their
// constants' names, running statistics of batch normalisations and ranges of fake quantisations, maps between features
// ("distill.NAME.weight", "distill.NAME.bias"), the optimizer's moments ("NAME.squares", in f32 for parameters of 16
// bits), masks ("NAME.mask"), importance of channels ("NAME.importance"), those of a scaled loss
// ("training.loss_scale", "training.scaled_steps", "training.updates"), and the number of steps done
// ("training.step", i64[]).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/op_def.h"
#include "train/data_parallel.h"
#include "train/loss.h"
#include "train/optimizers.h"

namespace tessera::inline train {

constexpr int64_t kScaleGrowth = 2000;  // torch.amp.GradScaler's

// A value of the teacher that one of the model learns to be like (Romero et al. 2015), by their names. Where they
// differ in one dimension, the channels of an image or the last one, a linear map that is learnt with the model, states
// "distill.STUDENT.weight" and ".bias", is between them.
struct FeaturePair {
  std::string teacher, student;
};

// A model whose answers another one learns. Its weights stay what they are.
struct Distillation {
  const Graph* teacher = nullptr;  // of the same input and output types; null: none
  double weight = 0.9;             // how much of the loss it is; the rest is that of the targets
  double temperature = 4;          // that scores are divided by
  std::vector<FeaturePair> features = {};
  double feature_weight = 1;  // of each pair's mean squared difference, which is added to the loss
};

// How much a loss changes without what dimension `dim` of a parameter numbers: the square of the sum of weights times
// their gradients (Molchanov et al. 2019), of which the state "NAME.importance" f32[extent] has a moving average.
struct WeighedDim {
  std::string parameter;
  size_t dim = 0;
};
constexpr double kImportanceMomentum = 0.9;

struct TrainingOptions {
  LossKind loss = LossKind::kCrossEntropy;
  OptimizerOptions optimizer;
  // Of a loss of classes: the share of a target that all classes have together (Szegedy et al. 2016, section 7),
  // below 1.
  double label_smoothing = 0;
  std::optional<int64_t> ignored;  // of a loss of classes: the target of samples that count nothing
  bool classes_last = false;       // scores are [N, ..., classes], as language models give them
  double clip_norm = 0;            // the gradients' common norm does not exceed it; 0: it may be any
  // A step whose loss, or, with clip_norm, whose gradients' norm is no finite number leaves all states what they are;
  // the third result `finite` (i64[]) is 0 then, else 1.
  bool guarded = false;
  std::vector<std::string> frozen;  // names of constants that stay what they are
  DataParallel parallel;            // the model's batch is one part then
  uint64_t seed = 0;                // of dropouts
  Distillation distillation;
  // Products of f32 are computed of numbers of this type, 16 bits, with sums and all else in f32.
  DType products = DType::kF32;
  // Parameters of 16 bits are states of f32, and rounded where they are read.
  bool master_weights = false;
  // Of parameters that have them: tensors of ones and zeros that parameters are multiplied with after each step, states
  // "NAME.mask".
  std::vector<std::string> masked;
  std::vector<WeighedDim> weighed;  // one of a parameter
  // The loss is multiplied by it before gradients are taken, and these are divided by it, so that small ones are no
  // zeros in 16 bits; 0: not. A step whose gradients are not finite changes nothing but the scale, which is halved then
  // and doubled after kScaleGrowth steps that were done.
  double loss_scale = 0;
};

// What is learnt: constants of the first output's element type and of rank 1 or more that it depends on, the running
// statistics of batch normalisations aside. By name, in the order of the graph.
std::vector<std::string> parameter_names(const Graph& model, const OpTable& ops);

// A state that each rank has its part of (shards.h), and what it is as a whole.
struct CutState {
  std::string name;
  TensorType whole;
};

// A state of all stages of a pipeline, and which of them have it, the same numbers each; none: all.
struct PlacedState {
  std::string name;
  TensorType type;
  std::vector<int64_t> stages;
  bool is_cut = false;  // each row of stages has a part
};

// A state that the ranks of the mesh axis "model" have equal parts of, along one dimension.
struct ShardedState {
  std::string name;
  TensorType whole;
  size_t dim = 0;
};

// The states are the parameters, the statistics, the moments and, last, the number of steps done.
struct TrainingStep {
  Graph graph;
  std::vector<std::string> parameters, statistics;  // of all stages
  std::vector<CutState> cut;
  std::vector<PlacedState> placed;    // of a pipeline: all states, in the order of one process's
  std::vector<ShardedState> sharded;  // where ranks share layers: those of this rank
};

// The model with its loss, for one part of a batch, as a pipeline cuts it (pipeline.h).
struct ModelWithLoss {
  Graph graph;
  size_t num_batched = 0;
};

// With `parallel`, the step's batch is all parts of one rank, and its results are those of all ranks'
// (data_parallel.h); batch normalisations take the mean and variance of all ranks' samples then, and of a leaf or
// micro-batch its own, whose running values are averaged.
// UserError TSR-2085 (parts), TSR-2086 (stages of a pipeline), TSR-2081 (numbers), TSR-2082 (the model has states, or
// no output that the loss takes), TSR-2083 (a frozen name that is no parameter, or nothing to learn), TSR-2072
// (operators without a gradient).
TrainingStep training_step(const Graph& model, const TrainingOptions& options, const OpTable& ops);
// The same errors.
ModelWithLoss model_with_loss(const Graph& model, const TrainingOptions& options, const OpTable& ops);

}  // namespace tessera::inline train
