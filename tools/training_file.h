// The .npz files that a model is trained on.
#pragma once

#include <string>

#include "driver/training/training_data.h"

namespace tessera {

struct TrainingFile {
  std::string path;
  std::string samples, targets;  // names of its arrays; empty: found by the names that such files use
  double scale = 1;              // every number of the samples is multiplied by it
};

// UserError TSR-6211 to TSR-6213 for the file, TSR-6230 where its arrays are not samples, targets and places of rows
// that fit each other, TSR-4080 for the scale.
TrainingData read_training_data(const TrainingFile& file);

}  // namespace tessera
