// A model to run, from whatever file the user has: a module, or an ONNX model that is compiled (or interpreted) first.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "driver/cache.h"
#include "driver/model.h"
#include "driver/options.h"
#include "driver/pass_runner.h"

namespace tessera {

enum class Engine : uint8_t { kNative, kInterp };

struct OpenOptions {
  DriverOptions driver;
  Engine engine = Engine::kNative;
  int num_threads = 0;    // of the session; 0: as the runtime decides
  bool use_cache = true;  // for ONNX models
  Warn warn;              // must be set
};

struct OpenedModel {
  std::unique_ptr<Model> model;
  double compile_seconds = 0;  // 0 for modules and cached models
  double load_seconds = 0;     // mapping and checking the module
  bool from_cache = false;
  std::vector<StepTime> times;  // of the compile's steps, as far as there was one
};

// True when the file begins as a module does (ELF). False for everything else, files that cannot be read included.
bool looks_like_module(const std::string& path);

OpenedModel open_model(const std::string& path, const OpenOptions& options);

}  // namespace tessera
