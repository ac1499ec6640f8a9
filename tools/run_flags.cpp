#include "run_flags.h"

#include <cstdio>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "driver/model_file.h"
#include "open_sizes.h"
#include "support/error.h"
#include "terminal.h"

namespace tessera {

namespace {

void add_tensor_flag(CLI::App& app, RunFlags& flags) {
  app.add_option("-i,--input", flags.inputs,
                 "A tensor for an input, in the model's order where there is no NAME; random where nothing is given:\n"
                 "[NAME=]@FILE.npy, @FILE.pb, @FILE.png, @FILE.jpg, @FILE.bmp; @FILE.npz (arrays by their names)\n"
                 "NAME=16000, [NAME=]1x3x224x224xf32=0 (one value, or all of them: 3xi64=1,2,3)\n"
                 "[NAME=]1x3x224x224xf32=random:SEED, [NAME=]1x3x224x224, [NAME=]random:SEED")
      ->allow_extra_args(false)
      ->type_name("SPEC");
}

}  // namespace

void add_picture_flags(CLI::App& app, RunFlags& flags) {
  const std::string group = "Pictures as inputs: (pixel * scale - mean) / std";
  app.add_option("--scale", flags.scale, "Factor for pixels 0..255; default 1/255")->type_name("S")->group(group);
  app.add_option("--mean", flags.mean, "Subtracted after scaling: one value, or one a channel")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("M[,M,M]")
      ->group(group);
  app.add_option("--std", flags.std, "Divided by: one value, or one a channel")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("S[,S,S]")
      ->group(group);
  app.add_flag("--bgr", flags.bgr, "Channels in the order blue, green, red")->group(group);
}

void add_run_flags(CLI::App& app, RunFlags& flags) {
  add_tensor_flag(app, flags);
  app.add_option("--engine", flags.engine, "native (compiled code) or interp (the interpreter, slow)")
      ->capture_default_str()
      ->check(CLI::IsMember({"native", "interp"}))
      ->type_name("ENGINE");
  app.add_flag("--no-cache", flags.no_cache, "Compile even when the module is in the cache, and keep nothing");
  add_picture_flags(app, flags);
}

void add_input_flags(CLI::App& app, RunFlags& flags) {
  add_tensor_flag(app, flags);
  add_picture_flags(app, flags);
}

void add_tolerance_flags(CLI::App& app, Tolerance& tolerance) {
  const std::string group = "Comparing";
  app.add_option(
         "--rtol", tolerance.rtol,
         "Floats agree when |got - want| <= atol + rtol * |want| + mtol * max|want|; other dtypes must be equal")
      ->capture_default_str()
      ->type_name("R")
      ->group(group);
  app.add_option("--atol", tolerance.atol, "See --rtol")->capture_default_str()->type_name("A")->group(group);
  app.add_option("--mtol", tolerance.mtol, "See --rtol")->capture_default_str()->type_name("M")->group(group);
}

namespace {

std::vector<TensorSpec> specs_of(const RunFlags& flags) { return parse_tensor_specs(flags.inputs); }

}  // namespace

ShapesOf shapes_of(const RunFlags& flags) {
  return [&flags](const std::vector<DeclaredTensor>& inputs) {
    std::vector<TensorInfo> infos;
    for (const DeclaredTensor& input : inputs) {
      TensorInfo& info = infos.emplace_back();
      info.name = input.name;
      info.dtype = input.dtype.value_or(DType::kF32);
      for (const DeclaredDim& dim : input.dims) info.dims.push_back(dim.value);
      info.any_rank = !input.has_rank;
    }
    const std::vector<TensorSpec> specs = specs_of(flags);
    const std::vector<int> chosen = match_specs(specs, infos, "--input");
    GivenShapes shapes(inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i)
      if (inputs[i].dtype && chosen[i] >= 0) shapes[i] = shape_of(specs[static_cast<size_t>(chosen[i])], infos[i]);
    return shapes;
  };
}

void take_input_sizes(const std::string& path, const RunFlags& flags, CompileOptions& options) {
  if (flags.inputs.empty()) return;
  const auto declared = declarations_of_file(path);
  if (!declared) return;
  for (const std::string& line : take_sizes(declared->inputs, shapes_of(flags)(declared->inputs), options))
    fmt::print(stderr, "{}\n", line);
}

std::vector<RunValue> make_values(const Model& model, const CompileOptions& sizes, bool is_module,
                                  const RunFlags& flags, std::vector<std::string>& random) {
  OpenSizes open(model.inputs(), model.open_dims());
  open.follow(sizes, is_module);
  const std::vector<TensorSpec> specs = specs_of(flags);
  const std::vector<int> chosen = match_specs(specs, model.inputs(), "--input");
  for (size_t i = 0; i < chosen.size(); ++i)
    if (chosen[i] >= 0 && !model.inputs()[i].is_static())
      open.take(i, shape_of(specs[static_cast<size_t>(chosen[i])], open.infos()[i]));
  return make_values(open.infos(), flags, random);
}

namespace {

// What a run would refuse, with the name of the file that it is in.
void check_file(const std::string& path, const TensorInfo& info, const RunValue& value) {
  try {
    fitting_values({info}, {value});
  } catch (const UserError& error) {
    Diagnostic diagnostic = error.diagnostic();
    diagnostic.message += fmt::format(" from '{}'", path);
    throw UserError(std::move(diagnostic));
  }
}

}  // namespace

std::vector<RunValue> make_values(const std::vector<TensorInfo>& infos, const RunFlags& flags,
                                  std::vector<std::string>& random) {
  const std::vector<TensorSpec> specs = specs_of(flags);
  const std::vector<int> chosen = match_specs(specs, infos, "--input");
  const PictureOptions pictures{flags.scale, flags.mean, flags.std, flags.bgr};
  std::vector<RunValue> inputs;
  for (size_t i = 0; i < infos.size(); ++i) {
    if (chosen[i] >= 0) {
      const TensorSpec& spec = specs[static_cast<size_t>(chosen[i])];
      inputs.push_back(make_value(spec, infos[i], pictures));
      if (spec.kind == TensorSpec::Kind::kFile) check_file(spec.path, infos[i], inputs.back());
    } else {
      inputs.push_back(random_value(infos[i], 0));
      random.push_back(infos[i].name);
    }
  }
  return inputs;
}

std::vector<Tensor> make_inputs(const std::vector<TensorInfo>& infos, const RunFlags& flags,
                                std::vector<std::string>& random) {
  std::vector<Tensor> inputs;
  for (RunValue& value : make_values(infos, flags, random)) inputs.push_back(std::move(value.tensor));
  return inputs;
}

Engine parse_engine(const std::string& name) { return name == "interp" ? Engine::kInterp : Engine::kNative; }

void print_warning(const std::string& text) {
  fmt::print(stderr, "{} {}\n", coloured("warning:", "33", stderr_has_colour()), text);
}

}  // namespace tessera
