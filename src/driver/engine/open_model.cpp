#include "driver/engine/open_model.h"

#include <sys/stat.h>

#include <chrono>
#include <filesystem>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "driver/api/version.h"
#include "driver/compile.h"
#include "driver/devices.h"
#include "driver/engine/interpreted_model.h"
#include "driver/engine/native_model.h"
#include "driver/model_file.h"
#include "driver/open_sizes.h"
#include "import/common/refused_model.h"
#include "loop/intrinsic_text.h"
#include "support/error.h"
#include "support/hash.h"
#include "support/mapped_file.h"

namespace tessera::inline driver {

namespace fs = std::filesystem;

namespace {

class StopWatch {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count(); }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

// Everything that the module's bytes depend on but the model and its sizes.
void add_options(Hasher& hasher, const DriverOptions& options) {
  const Target target = resolve_target(options.compile);
  hasher.add(build_identity());
  hasher.add(target.triple);
  hasher.add(target.cpu);
  for (const std::string& feature : target.features) hasher.add(feature);
  for (const int64_t number :
       {target.l1_bytes, target.l2_bytes, target.l3_bytes, int64_t{target.num_threads},
        int64_t{options.compile.opt_level}, options.max_applications, options.compile.max_memory}) {
    hasher.add(static_cast<uint64_t>(number));
  }
  hasher.add(options.compile.precision);
  for (const std::string& line : options.compile.layer_precisions) hasher.add(line);
  hasher.add(uint64_t{options.compile.layer_precisions.size()});
  hasher.add(options.compile.fp32);
  hasher.add(options.compile.numerics);
  for (const std::string& pass : options.compile.disabled_passes) hasher.add(pass);
  hasher.add(options.decisions->digest());
  for (const std::string& place : places_of(options.compile)) hasher.add(place);
  hasher.add(static_cast<uint64_t>(device_target(options.compile) != nullptr));
  for (const std::string& variant : options.compile.variants) hasher.add(variant);
  for (const std::string& file : options.compile.kernels) {
    const std::string text(MappedFile::open(file, "kernel declaration", "TSR-4026")->text());
    hasher.add(text);
    for (const TensorIntrinsic* kernel : parse_intrinsics(text, file))
      for (const std::string& object : kernel->link)
        hasher.add(MappedFile::open(object, "object file", "TSR-4026")->text());
  }
}

std::string cache_key(const ImportedModel& model, const DriverOptions& options) {
  Hasher hasher;
  add_options(hasher, options);
  return fmt::format("{}-{:016x}", model_digest(model), hasher.value());
}

// Of a file by its name, size and time.
std::string cache_key(const std::string& path, const struct stat& about, const DriverOptions& options) {
  Hasher hasher;
  add_options(hasher, options);
  hasher.add(fs::absolute(path).string());
  for (const int64_t number : {int64_t{about.st_size}, int64_t{about.st_mtim.tv_sec}, int64_t{about.st_mtim.tv_nsec}})
    hasher.add(static_cast<uint64_t>(number));
  for (const auto& [name, bounds] : options.compile.dims)
    hasher.add(fmt::format("{}={}..{}:{}", name, bounds.lo, bounds.hi, bounds.step));
  for (const auto& [name, shape] : options.compile.shapes)
    hasher.add(fmt::format("{}={}", name, fmt::join(shape, "x")));
  return fmt::format("{}-{:016x}", fs::path(path).stem().string(), hasher.value());
}

// Keeps the module for the next time. A failure costs only that.
void store(const ModuleCache& cache, const std::string& key, const Compiled& compiled, const Warn& warn) {
  const std::string place = cache.place_for(key);
  if (place.empty()) return;
  try {
    write_module(compiled, place);
    cache.trim(key);
  } catch (const UserError& error) {
    warn(fmt::format("the compiled module is not cached: {}", error.diagnostic().message));
  }
}

OpenedModel open_source(const std::string& path, const OpenOptions& options) {
  OpenedModel opened;
  const StopWatch compile_watch;
  PassRunner runner(options.driver);
  if (options.engine == Engine::kInterp) refuse_ranges(options.driver.compile, "the interpreter");
  ImportedModel model = read_model(path, options.driver, runner);
  if (options.engine == Engine::kInterp) {
    refuse_ranges(model, "the interpreter");
    opened.model = model.flow ? interpret_flow(*model.flow, path) : interpret_graph(std::move(model.graph), path);
    opened.times = runner.times();
    return opened;
  }
  // Whoever wants to see the steps wants them to happen.
  const RunnerOptions& watched = options.driver.runner;
  const bool wants_steps = !watched.print_ir_after.empty() || !watched.save_temps.empty();
  const ModuleCache cache = options.cache != CacheUse::kNone && !wants_steps
                                ? ModuleCache::from_environment(options.warn)
                                : ModuleCache("", 0, options.warn);
  const std::string key = cache.enabled() ? cache_key(model, options.driver) : "";
  const StopWatch find_watch;
  if (options.cache == CacheUse::kFindAndKeep) opened.model = cache.find(key, path, options.num_threads);
  if (opened.model) {
    opened.load_seconds = find_watch.seconds();
    opened.from_cache = true;
    opened.times = runner.times();
    return opened;
  }
  const Compiled compiled = compile_imported(std::move(model), options.driver, runner);
  opened.compile_seconds = compile_watch.seconds();
  opened.times = compiled.times;
  if (cache.enabled()) store(cache, key, compiled, options.warn);
  const StopWatch load_watch;
  // The first run is as the next ones are, from the file: its pages are large ones, and the weights are in memory once.
  opened.model = cache.find(key, path, options.num_threads);
  if (!opened.model) opened.model = load_module(module_in_memory(compiled), path, options.num_threads);
  opened.load_seconds = load_watch.seconds();
  return opened;
}

// The same with the sizes that the inputs have, where the model leaves sizes open that nothing else fixes.
OpenedModel open_for_inputs(const std::string& path, const OpenOptions& options) {
  try {
    return open_source(path, options);
  } catch (const RefusedModel& refused) {
    if (refused.reason() != RefusedModel::Reason::kOpenSizes || !options.input_shapes) throw;
  }
  OpenOptions sized = options;
  std::vector<std::string> taken;
  if (const auto declared = declarations_of_file(path))
    taken = take_sizes(declared->inputs, options.input_shapes(declared->inputs), sized.driver.compile);
  OpenedModel opened = open_source(path, sized);
  opened.taken = std::move(taken);
  return opened;
}

}  // namespace

bool is_module_path(const std::string& path) { return looks_like_module(path) || path.ends_with(".so"); }

OpenedModel open_model(const std::string& path, const OpenOptions& options) {
  if (!is_module_path(path)) return open_for_inputs(path, options);
  if (options.engine == Engine::kInterp) {
    throw UserError({.id = "TSR-4030",
                     .message = fmt::format("'{}' is a compiled module, which the interpreter cannot run", path),
                     .node = {},
                     .legal = "a model with --engine interp, or a module with --engine native",
                     .hint = "give the model that the module was compiled from"});
  }
  OpenedModel opened;
  const StopWatch watch;
  opened.model = load_module(path, options.num_threads);
  opened.load_seconds = watch.seconds();
  return opened;
}

std::string cached_module(const std::string& path, const DriverOptions& options, const Warn& warn) {
  const ModuleCache cache = ModuleCache::from_environment(warn);
  struct stat about = {};
  if (!cache.enabled() || stat(path.c_str(), &about) != 0) return "";
  const std::string key = cache_key(path, about, options);
  const std::string place = cache.place_for(key);
  if (place.empty() || cache.find(key, path, 1)) return place;
  if (static_cast<uint64_t>(about.st_size) > cache.capacity_bytes()) {  // nor would the module fit
    cache.trim(key);
    return "";
  }
  PassRunner runner(options);
  store(cache, key, compile_imported(read_model(path, options, runner), options, runner), warn);
  return fs::exists(place) ? place : "";
}

}  // namespace tessera::inline driver
