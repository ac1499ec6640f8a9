// How a model is read that is to be trained: with what inference has no use for (ImportOptions::for_training), and with
// the steps of recurrent layers written out, since loops have no gradients.
#pragma once

#include <string>

#include "driver/options.h"
#include "driver/pass_runner.h"
#include "graph/flow.h"

namespace tessera::inline driver {

// As read_model.
ImportedModel read_model_to_train(const std::string& path, const DriverOptions& options, PassRunner& runner);

}  // namespace tessera::inline driver
