// From a model to a module: the one list of the compiler's steps.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "driver/formats.h"
#include "driver/options.h"
#include "driver/pass_runner.h"
#include "graph/flow.h"
#include "package/anonymous_file.h"
#include "package/module_writer.h"
#include "program/program.h"
#include "target/target.h"
#include "types/numerics.h"

namespace tessera::inline driver {

// The result of a compile as far as `emit` asked it to go.
struct Compiled {
  std::string text;                 // kGraph, kLoop, kProgram, kLlvm, kAsm
  std::vector<std::byte> code;      // kObj: the object; kModule: the shared object
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

// The same in two halves, for those who want to look at the model in between. Both check the options first.
// What import_model and compile_graph cannot say takes a flow: the first refuses such models with UserError TSR-1046.
ImportedModel read_model(const std::string& path, const DriverOptions& options, PassRunner& runner);
ImportedModel read_model(const ModelBytes& model, const DriverOptions& options, PassRunner& runner);
ImportedModel read_model(const ModelReader& reader, const std::string& name, const DriverOptions& options,
                         PassRunner& runner);
Compiled compile_imported(ImportedModel model, const DriverOptions& options, PassRunner& runner);
Graph import_model(const std::string& path, const DriverOptions& options, PassRunner& runner);
Graph import_model(const ModelBytes& model, const DriverOptions& options, PassRunner& runner);
Compiled compile_graph(Graph graph, const DriverOptions& options, PassRunner& runner);
// Of the program that these options make of it (graph_choice.h), and of what they leave out behind that; choices and
// remarks aside.
std::string model_hash_of(const Graph& graph, const DriverOptions& options);

// REQUIRES: compiled with Emit::kModule.
void write_module(const Compiled& compiled, const std::string& path);
AnonymousFile module_in_memory(const Compiled& compiled);

// Of everything in an imported model, its names and its constants included; 16 hexadecimal digits.
std::string model_digest(const ImportedModel& model);

// The target that the options name, with the number of threads that they ask for.
Target resolve_target(const CompileOptions& options);

// How products of f32 are computed: what `options.fp32` names, on the target. UserError TSR-4028, TSR-4029.
Fp32Products fp32_of(const CompileOptions& options);

// What schedule rules may do to numbers, by the two.
RuleNumerics rule_numerics(const CompileOptions& options);

// What `options.numerics` names. UserError TSR-4074.
NumericsMode numerics_of(const CompileOptions& options);

// The machine that passes and rules decide for: the target, or the one that stands for all where results may not depend
// on it.
Target deciding_target(const CompileOptions& options);

// What lower_precision rounds to. UserError TSR-4027.
DType precision_of(const CompileOptions& options);

// UserError TSR-4027 for a precision that does not exist, TSR-4074 for numerics that do not, TSR-4075 for those that
// another option is at odds with, TSR-4020 when a step or pass is named that does not exist,
// TSR-4021 for a level that does not, TSR-4023 for a disabled pass that is no optimisation.
void check_options(const DriverOptions& options);

}  // namespace tessera::inline driver
