// What a compile is asked for beyond the public options: where to look inside, and what to leave out.
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <string>
#include <string_view>

#include "driver/graph_choice.h"
#include "schedule/choose.h"
#include "support/remarks.h"
#include "tessera/compiler.h"

namespace tessera::inline graph {
class Graph;
}
namespace tessera::inline program {
struct Program;
}

namespace tessera::inline driver {

class PassLimit;

// What a compile ends with. Each level is a stop of its own; kModule is all the way, and
// kExecutable is the same: a module with a program around it. kCSource is a planned program as C, a header and a
// source.
enum class Emit : uint8_t { kModule, kExecutable, kCSource, kGraph, kLoop, kProgram, kLlvm, kAsm, kObj };

// How the steps of a compile are watched. Nothing in it but the two functions for tests changes the result.
struct RunnerOptions {
  bool verify_each = false;           // after every pass; always on in builds with assertions
  std::string print_ir_after;         // a step's name, "all", or empty
  std::ostream* ir_stream = nullptr;  // for print_ir_after; not null when that is set
  std::string save_temps;             // folder for the text after every step and the object code; empty: none
  std::function<void(std::string_view step)> on_step;  // at the begin of every step; may be null
  // After every step that gives a graph or a program, with it; may be null.
  std::function<void(std::string_view step, const Graph& graph)> on_graph;
  std::function<void(std::string_view step, const Program& program)> on_program;
  // For tests of what finds miscompilations: change what a step gives. May be null.
  std::function<void(std::string_view step, Graph& graph)> spoil_graph;
  std::function<void(std::string_view step, Program& program)> spoil_program;
};

struct DriverOptions {
  CompileOptions compile;
  Emit emit = Emit::kModule;
  std::string c_name = {};     // kCSource: of the files, without what stands behind the point; empty: the model's name
  Remarks* remarks = nullptr;  // told what passes decided and why; may be null
  int64_t max_applications = INT64_MAX;  // of optional passes (pass_limit.h)
  PassLimit* pass_limit = nullptr;       // counts instead, with a limit of its own; may be null
  // Schedules that were found better than the rules' own choice (schedule/choose.h), and a text that differs when
  // they do, for caches; may be empty.
  ChoosePoint tuned;
  std::string tuned_digest;
  // What is done otherwise than by default, or who knows it by the hash of the program that the default gives
  // (graph_choice.h; asked for models without open sizes, may be null).
  GraphChoice graph_choice;
  std::vector<std::string>* chains = nullptr;  // told the names of those that are offered; may be null
  std::function<TunedGraph(const std::string& model_hash)> tuned_graph;
  RunnerOptions runner;
};

}  // namespace tessera::inline driver
