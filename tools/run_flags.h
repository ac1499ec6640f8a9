// The flags that say what a model is run on.
#pragma once

#include <string>
#include <vector>

#include "diagnose/compare.h"
#include "driver/engine/model.h"
#include "driver/engine/open_model.h"
#include "tensor_spec.h"

namespace CLI {
class App;
}

namespace tessera {

struct RunFlags {
  std::vector<std::string> inputs;
  std::string engine = "native";
  bool no_cache = false, bgr = false;
  double scale = 1.0 / 255;
  std::vector<double> mean, std;
};

void add_run_flags(CLI::App& app, RunFlags& flags);
// Of these only what says the inputs: --input and those for pictures.
void add_input_flags(CLI::App& app, RunFlags& flags);
// Of these only those for pictures.
void add_picture_flags(CLI::App& app, RunFlags& flags);

// --rtol, --atol, --mtol, with the defaults that `tolerance` has.
void add_tolerance_flags(CLI::App& app, Tolerance& tolerance);

// The shapes that the flags give to a model's inputs (OpenOptions::input_shapes). `flags` must outlive it.
ShapesOf shapes_of(const RunFlags& flags);
// Fixes the sizes that the ONNX model at `path` leaves open as the inputs have them, and says so on standard error. For
// verbs that know graphs of fixed sizes alone.
void take_input_sizes(const std::string& path, const RunFlags& flags, CompileOptions& options);

// One value for each input. Inputs that no flag names get random numbers with seed 0; their names are added to
// `random`.
std::vector<RunValue> make_values(const std::vector<TensorInfo>& infos, const RunFlags& flags,
                                  std::vector<std::string>& random);
// The same for a model whose sizes may be open: `sizes` (of --dim and --shape) and the inputs that are given choose
// them. `is_module`: nothing else can follow `sizes`. UserError TSR-4061 when a module cannot.
std::vector<RunValue> make_values(const Model& model, const CompileOptions& sizes, bool is_module,
                                  const RunFlags& flags, std::vector<std::string>& random);
// The same for models of tensors of numbers alone.
std::vector<Tensor> make_inputs(const std::vector<TensorInfo>& infos, const RunFlags& flags,
                                std::vector<std::string>& random);

Engine parse_engine(const std::string& name);

// Prints "warning: ..." to standard error.
void print_warning(const std::string& text);

}  // namespace tessera
