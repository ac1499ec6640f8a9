// What a training says of itself, as JSON.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "driver/training/train_model.h"

namespace tessera::inline driver {

nlohmann::json training_json(const std::string& model, const std::string& output, const TrainingOutcome& outcome);

}  // namespace tessera::inline driver
