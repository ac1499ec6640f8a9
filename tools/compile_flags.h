// The flags that every verb which may compile has.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "driver/options.h"
#include "driver/pass_runner.h"

namespace CLI {
class App;
}

namespace tessera {

// Of a session (runtime/cpu/thread_pool.h); more are of no use to a compile either.
inline constexpr int kMostThreads = 512;

class FlagUse;

// Values as parsed; `driver_options` makes sense of them.
struct CompileFlags {
  const CLI::App* app = nullptr;  // the verb, which knows what was given
  int opt_level = 3;
  std::string target = "native";
  std::string precision = "f32";
  std::string fp32 = "fma";
  std::string numerics = "default";
  int threads = 0;
  std::string per_layer;
  std::vector<std::string> keep_f32;
  std::vector<std::string> dims, shapes, disabled_passes, kernels, places, variants;
  std::string print_ir_after, save_temps, db;
  bool time_passes = false, verify_each = false;
  int64_t max_applications = INT64_MAX;
  int64_t max_memory = 0;  // bytes; 0: no limit
  double max_seconds = 0;  // 0: no limit
};

// Adds the flags to a verb; `flags` must outlive it.
void add_compile_flags(CLI::App& app, CompileFlags& flags);
// --dim and --shape alone, of one value each.
void add_fixed_size_flags(CLI::App& app, CompileFlags& flags);
// --max-compile-time, for verbs that keep a CompileWatch while they compile.
void add_time_limit_flag(CLI::App& app, CompileFlags& flags);

// The flags above that were given and that only a compile can follow: not --threads, --dim, --shape.
std::vector<std::string> given_compile_flags(const CompileFlags& flags);
// UserError TSR-4060 when there are any: `module` is compiled already.
void refuse_compile_flags(const CompileFlags& flags, const std::string& module);

// What the file of --per-layer says; "" without it. UserError TSR-6211.
std::string per_layer_text(const CompileFlags& flags);

// What --time-passes prints; empty without it.
std::string time_report(const CompileFlags& flags, const std::vector<StepTime>& times);

// The flags for debugging a compile stand in a group of their own.
inline constexpr char kInsideGroup[] = "Looking into a compile";

// UserError TSR-4022 for a --dim or --shape that cannot be read, TSR-640x for --db. `use` (may be null; outlives the
// options) is told what a compile with them makes of --db and --kernel.
DriverOptions driver_options(const CompileFlags& flags, FlagUse* use = nullptr);

}  // namespace tessera
