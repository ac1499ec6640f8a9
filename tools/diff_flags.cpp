#include "diff_flags.h"

#include <filesystem>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "driver/engine/output_guard.h"
#include "onnxruntime_values.h"
#include "terminal.h"
#include "tessera/tessera.h"

namespace tessera {

namespace {

// For a shell.
std::string quoted(const std::string& text) {
  const bool plain = !text.empty() && text.find_first_not_of(
                                          "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./,=+:@%") ==
                                          std::string::npos;
  if (plain) return text;
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

}  // namespace

void add_diff_flags(CLI::App& app, DiffFlags& flags) {
  app.add_option("MODEL", flags.model, "The model: ONNX, TFLite, GGUF, or a graph as text")->required()->type_name("");
  app.add_option("--against", flags.against,
                 "What the compiled model is compared with: interp (the interpreter), O0 (compiled without\n"
                 "optimisations), onnxruntime (its Python package), or a module of the same model")
      ->capture_default_str()
      ->type_name("interp|O0|onnxruntime|MODULE");
  add_input_flags(app, flags.run);
  add_tolerance_flags(app, flags.tolerance);
  add_compile_flags(app, flags.compile);
}

CutFormat DiffFlags::cut_format() const {
  return format == "onnx" ? CutFormat::kOnnx : format == "graph" ? CutFormat::kGraph : CutFormat::kLikeModel;
}

void add_cut_format_flag(CLI::App& app, DiffFlags& flags) {
  app.add_option("--format", flags.format,
                 "What the smallest model is written as; default: as MODEL is, but as a graph where ONNX has no words\n"
                 "for it (loops and branches)")
      ->check(CLI::IsMember({"onnx", "graph"}))
      ->type_name("onnx|graph");
}

void refuse_to_overwrite_case(const std::string& folder, const std::string& model) {
  for (const char* name : {"/model.onnx", "/model.graph"}) refuse_to_overwrite(folder + name, files_of_model(model));
}

DiffRequest diff_request(const DiffFlags& flags) {
  DiffRequest request;
  for (const std::string& text : flags.run.inputs) parse_tensor_spec(text);  // before anything is compiled
  request.model = flags.model;
  request.driver = driver_options(flags.compile);
  if (!is_module_path(flags.model)) take_input_sizes(flags.model, flags.run, request.driver.compile);
  request.num_threads = flags.compile.threads;
  request.against = flags.against;
  request.find.tolerance = flags.tolerance;
  request.make_inputs = [flags](const std::vector<TensorInfo>& infos) {
    std::vector<std::string> random;
    std::vector<Tensor> inputs = make_inputs(infos, flags.run, random);
    for (const std::string& name : random)
      fmt::print(stderr, "input '{}': random (seed 0); give a tensor with --input\n", name);
    return inputs;
  };
  const int threads = flags.compile.threads > 0 ? flags.compile.threads : tessera_default_num_threads();
  request.onnxruntime = [threads, model = flags.model](const DiffSubject& subject) {
    return onnxruntime_values(model, subject, threads);
  };
  return request;
}

std::string verify_command(const DiffFlags& flags, const std::string& folder) {
  const CompileFlags& compile = flags.compile;
  std::string command = "tessera verify " + quoted(folder);
  if (compile.opt_level != 3) command += fmt::format(" -O{}", compile.opt_level);
  if (compile.target != "native") command += " --target " + quoted(compile.target);
  command += fmt::format(" --threads {}", compile.threads > 0 ? compile.threads : tessera_default_num_threads());
  if (compile.max_applications != INT64_MAX) command += fmt::format(" --pass-limit {}", compile.max_applications);
  for (const std::string& pass : compile.disabled_passes) command += " --disable-pass " + quoted(pass);
  return command + fmt::format(" --rtol {} --atol {} --mtol {}", flags.tolerance.rtol, flags.tolerance.atol,
                               flags.tolerance.mtol);
}

std::string default_case_folder(const std::string& model, const std::string& verb) {
  const std::string stem = std::filesystem::path(model).stem().string();
  return fmt::format("{}-{}", stem.empty() ? "model" : stem, verb);
}

}  // namespace tessera
