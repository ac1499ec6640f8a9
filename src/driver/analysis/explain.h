// A compile that is watched: what became of every node of a model, and why.
#pragma once

#include <string>

#include "diagnose/explain.h"
#include "diagnose/model_outline.h"
#include "driver/options.h"

namespace tessera::inline driver {

struct ModelExplanation {
  ModelOutline model;
  Explanation explanation;
};

// Compiles the model at `path`, of any format of formats.h, up to its planned program, as compile_model would, and
// keeps nothing but what became of its nodes. UserError TSR-4041 when `path` is a module, and whatever compile_model
// throws.
ModelExplanation explain_model(const std::string& path, DriverOptions options);

}  // namespace tessera::inline driver
