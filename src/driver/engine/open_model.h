// A model to run, from whatever file the user has: a module, or a model that is compiled (or interpreted) first.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "driver/engine/cache.h"
#include "driver/engine/input_sizes.h"
#include "driver/engine/model.h"
#include "driver/formats.h"
#include "driver/options.h"
#include "driver/pass_runner.h"

namespace tessera::inline driver {

enum class Engine : uint8_t { kNative, kInterp };

// What the cache of compiled modules is asked for when a model is opened.
enum class CacheUse : uint8_t {
  kNone,         // nothing: the module is only in memory
  kKeep,         // compile in every case, and keep the module
  kFindAndKeep,  // compile what is not there
};

struct OpenOptions {
  DriverOptions driver;
  Engine engine = Engine::kNative;
  int num_threads = 0;  // of the session; 0: as the runtime decides
  CacheUse cache = CacheUse::kFindAndKeep;
  Warn warn;  // must be set
  // The shapes of what the model will be run on: they fix sizes that it leaves open and `driver` does not fix. May be
  // null.
  ShapesOf input_shapes = {};
};

struct OpenedModel {
  std::unique_ptr<Model> model;
  double compile_seconds = 0;  // 0 for modules and cached models
  double load_seconds = 0;     // mapping and checking the module
  bool from_cache = false;
  std::vector<StepTime> times;     // of the compile's steps, as far as there was one
  std::vector<std::string> taken;  // what input_shapes decided, for people: lines of take_sizes
};

// A module by its contents, or, when it cannot be read, by its name.
bool is_module_path(const std::string& path);

// RefusedModel for a model that leaves sizes open, or is not supported; UserError for everything else that is wrong.
OpenedModel open_model(const std::string& path, const OpenOptions& options);

// Where the cache keeps the module of the file, which is compiled if it is not there; empty where no cache can take it.
// What the file is its size and time of change say: it is not read. UserError as a compile has it.
std::string cached_module(const std::string& path, const DriverOptions& options, const Warn& warn);

}  // namespace tessera::inline driver
