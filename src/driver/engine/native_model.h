// A compiled module as a Model.
#pragma once

#include <memory>
#include <string>

#include "driver/engine/model.h"
#include "package/anonymous_file.h"

namespace tessera::inline driver {

// `num_threads` 0: as the runtime decides. UserError with the runtime's own id and words (TSR-70xx).
// `name` is the model's; empty: the path.
std::unique_ptr<Model> load_module(const std::string& path, int num_threads, const std::string& name = "");
// The same for a module in memory.
std::unique_ptr<Model> load_module(AnonymousFile file, const std::string& name, int num_threads);

}  // namespace tessera::inline driver
