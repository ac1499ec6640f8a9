// What a compile is asked for beyond the public options: where to look inside, and what to leave out.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <string>

#include "driver/decisions.h"
#include "driver/graph_choice.h"
#include "driver/observer.h"
#include "tessera/compiler.h"

namespace tessera::inline driver {

// What a compile ends with. Each level is a stop of its own; kModule is all the way, and
// kExecutable is the same: a module with a program around it. kCSource is a planned program as C, a header and a
// source; kWasm the same as a WebAssembly module; kGpuSource the source of its kernels on the GPU that the target
// names.
enum class Emit : uint8_t {
  kModule,
  kExecutable,
  kCSource,
  kWasm,
  kGpuSource,
  kGraph,
  kLoop,
  kProgram,
  kLlvm,
  kAsm,
  kObj
};

// How the steps of a compile are checked and shown.
struct RunnerOptions {
  bool verify_each = false;           // after every pass; always on in builds with assertions
  std::string print_ir_after;         // a step's name, "all", or empty
  std::ostream* ir_stream = nullptr;  // for print_ir_after; not null when that is set
  std::string save_temps;             // folder for the text after every step and the object code; empty: none
};

struct DriverOptions {
  CompileOptions compile;
  Emit emit = Emit::kModule;
  std::string c_name = {};  // kCSource: of the files, without what stands behind the point; empty: the model's name
  int64_t max_applications = INT64_MAX;  // of optional passes (pass_application.h)
  bool for_training = false;             // ImportOptions
  GraphChoice graph_choice;              // what is done otherwise than by default
  RunnerOptions runner;
  std::shared_ptr<Decisions> decisions = default_decisions();  // never null
  Observers observers;
};

}  // namespace tessera::inline driver
