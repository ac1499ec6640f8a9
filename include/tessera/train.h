// Training of a model's weights by compiled steps (docs/training.md): what `tessera train` does, as a function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/compiler.h"
#include "tessera/tessera.h"

namespace tessera {

struct TrainSettings {
  std::string loss = "cross_entropy";  // or "nll", "mse"
  double label_smoothing = 0;          // the share of a target that all classes have together, below 1
  std::optional<int64_t> ignored;      // the target of samples that count nothing
  bool classes_last = false;           // scores are [N, ..., classes]

  std::string optimizer = "adam";     // or "sgd", "adamw", "rmsprop", "adagrad"
  double rate = 1e-3;                 // the learning rate
  std::string schedule = "constant";  // or "cosine", "linear": how it falls to 0
  int64_t warmup = 0;                 // steps in which it grows to its value
  double momentum = 0;                // of sgd and rmsprop
  bool nesterov = false;
  double weight_decay = 0;
  double clip_norm = 0;             // the largest norm of all gradients together; 0: any
  std::vector<std::string> frozen;  // names of constants that stay what they are

  int64_t epochs = 20;
  int64_t batch = 32;     // samples in a step, where the model leaves that open
  uint64_t seed = 0;      // of the order of samples, and of dropouts
  bool in_order = false;  // every epoch sees the samples in their order
  int64_t leaves = 0;     // parts of a batch whose gradients are summed in a fixed order; 0: one for each process
  int64_t zero = 0;       // what each process keeps a part of only, as the stages of ZeRO number it

  std::string products = "f32";  // or "bf16", "f16": what products are of
  double loss_scale = 0;         // the loss is multiplied by it at first; 0: not

  std::string teacher;          // the path of a model whose answers are learnt, too; empty: none
  double distill_weight = 0.9;  // how much of the loss that is
  double temperature = 4;
  std::vector<std::pair<std::string, std::string>>
      features;  // values of the teacher, and of the model that follow them
  double feature_weight = 1;

  std::string prune;              // "0.8", "2:4", "channels:0.5"; empty: nothing
  std::string importance = "l1";  // of channels; or "taylor", "bn"
  bool qat = false;               // with fake quantisation; what is written has integers
  int64_t qat_bits = 8;           // of weights

  // `output`, a module, is a bundle: "infer", the model with its weights as states, and "step", the training step, over
  // the same states. Of one process, without channels that are cut out.
  bool with_step = false;

  std::string checkpoint;        // a file that parameters and moments are kept in after each epoch; empty: none
  int64_t checkpoint_steps = 0;  // and after every so many steps; 0: not
  std::string resume;            // one to go on from
  std::string step;              // a file that the step is written to, as a graph
};

// A model in stages, one behind the other, which batches go through in parts (docs/parallel.md).
struct PipelineSettings {
  int64_t stages = 1, micro_batches = 1;
  std::string kind = "1f1b";  // or "gpipe", "interleaved": what a stage does when
  int64_t chunks = 0;         // of the model on each stage; 0: 2 where they are interleaved, else 1
  int64_t tensor = 1;         // so many processes share each layer
};

// Borrowed until the call returns. Dimension 0 numbers the samples.
struct TrainRows {
  tessera_tensor samples, targets;
};

struct TrainEpoch {
  int64_t epoch = 0;    // from 1
  double loss = 0;      // the mean of its steps
  double accuracy = 0;  // the part of its samples that were right; of classes alone
  int64_t test_right = 0, test_total = 0;
  double test_loss = 0;  // without classes: the mean squared error
  double steps_per_second = 0;
};

// Trains the model at `model` and writes it to `output`: a module, FILE.onnx or FILE.graph; empty: nothing is written.
// `test` may be null. `on_epoch` hears of each epoch, and ends the training where it answers false: what is written
// then is what has been learnt. `processes`: as one of those that mpirun or torchrun has started, all of which call it
// alike, and have the same answers of `on_epoch`; null: alone. Answers a report as JSON, as `tessera train --json`
// prints it. Of `options` the sizes, the target, the threads and max_memory matter; is_cancelled is asked while the
// model is compiled. CompileError as the command (docs/errors.md).
std::string train_file(const std::string& model, const std::string& output, const TrainSettings& settings,
                       const TrainRows& train, const TrainRows* test = nullptr,
                       const std::function<bool(const TrainEpoch&)>& on_epoch = {}, const CompileOptions& options = {},
                       const PipelineSettings* processes = nullptr);

}  // namespace tessera
