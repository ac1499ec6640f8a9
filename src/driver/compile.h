// From a model to a module: the one list of the compiler's steps.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "driver/compile_options.h"
#include "driver/formats.h"
#include "driver/options.h"
#include "driver/pass_runner.h"
#include "driver/read_model.h"
#include "graph/flow.h"
#include "package/anonymous_file.h"
#include "package/module_writer.h"
#include "program/program.h"

namespace tessera::inline driver {

// The result of a compile as far as `emit` asked it to go.
struct Compiled {
  std::string text;                 // kGraph, kLoop, kProgram, kLlvm, kAsm, kCSource, kGpuSource
  std::string header;               // kCSource, whose .c file is `text`
  std::vector<std::byte> code;      // kObj: the object; kModule: the shared object; kWasm: the file
  Program program;                  // kModule: planned, with the weights
  std::vector<DeviceImage> images;  // kModule: the code of its devices
  ModuleInfo info;                  // kModule
  std::vector<StepTime> times;
  std::optional<NoGraph> flow;  // why the model is steps of a run and no graph, when it is
};

// Compiles the model at `path`, of any format of formats.h. UserError for what the user can mend, InternalError
// otherwise. Thread-safe.
Compiled compile_model(const std::string& path, const DriverOptions& options);
Compiled compile_model(const ModelBytes& model, const DriverOptions& options);

// The second half, of what read_model.h reads. Checks the options first.
Compiled compile_imported(ImportedModel model, const DriverOptions& options, PassRunner& runner);
Compiled compile_graph(Graph graph, const DriverOptions& options, PassRunner& runner);
// Of the program that these options make of it (graph_choice.h), and of what they leave out behind that; choices and
// remarks aside.
std::string model_hash_of(const Graph& graph, const DriverOptions& options);

// REQUIRES: compiled with Emit::kModule or kExecutable.
void write_module(const Compiled& compiled, const std::string& path);
void write_program(const Compiled& compiled, const std::string& path);  // an executable
AnonymousFile module_in_memory(const Compiled& compiled);

// Of everything in an imported model, its names and its constants included; 16 hexadecimal digits.
std::string model_digest(const ImportedModel& model);

}  // namespace tessera::inline driver
