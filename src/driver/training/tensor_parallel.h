// Layers that several ranks share (tensor parallel: Shoeybi et al. 2019, Megatron-LM).
#pragma once

#include "train/data_parallel.h"
#include "train/training_step.h"

namespace tessera::inline driver {

// The part of a training step that this rank does, of those that are one behind the other along the mesh axis "model":
// which part of each operator, follows from the parameters (dist/propagate.h), whose moments lie as they do. Messages
// between stages, and states of which ranks of a batch have parts (ZeRO), are whole on all of them. `keeps_bits`: no
// sum is divided. Nothing changes where each rank does whole layers.
void share_layers(TrainingStep& step, const DataParallel& how, bool keeps_bits);

}  // namespace tessera::inline driver
