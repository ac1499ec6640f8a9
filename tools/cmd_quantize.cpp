// tessera quantize MODEL --calib DATA -o OUTPUT
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "arith/simplify.h"
#include "calibration_data.h"
#include "commands.h"
#include "compile_flags.h"
#include "driver/engine/output_guard.h"
#include "driver/model_file.h"
#include "driver/open_sizes.h"
#include "driver/quantization.h"
#include "driver/quantization_report.h"
#include "driver/quantization_request.h"
#include "driver/read_model.h"
#include "progress.h"
#include "run_flags.h"
#include "support/error.h"
#include "support/refuse.h"
#include "tensor_spec.h"
#include "terminal.h"

namespace tessera {

namespace {

struct QuantizeCommand {
  CompileFlags compile;
  RunFlags pictures;
  QuantizeSettings settings;
  std::string model, calibration, output, labels;
  int64_t samples = 0;
  bool json = false, quiet = false;
};

// Layers of f32, until the file is written: what is lost is measured against those.
DriverOptions options_of_work(const QuantizeCommand& command) {
  DriverOptions options = driver_options(command.compile);
  options.compile.layer_precisions.clear();
  return options;
}

Graph read_graph(const QuantizeCommand& command, const CalibrationData* data) {
  const DriverOptions nobody;
  PassRunner unwatched(nobody);
  DriverOptions options = options_of_work(command);
  if (const auto declared = declarations_of_file(command.model); declared && data)
    for (const std::string& line : take_sizes(declared->inputs, data->shapes(declared->inputs), options.compile))
      fmt::print(stderr, "{}\n", line);
  ImportedModel model = read_model(command.model, options, unwatched);
  // A graph whose sizes are formulas of symbols is quantised for all of them; one that is read anew for each is not.
  if (!model.symbols.empty()) refuse_ranges(model, "quantize");
  return graph_alone(std::move(model));
}

std::vector<TensorInfo> inputs_of(const Graph& graph) {
  std::vector<TensorInfo> infos;
  for (size_t i = 0; i < graph.num_own_inputs(); ++i) {
    const Value& input = graph.value(graph.inputs[i]);
    TensorInfo info{.name = input.name, .dtype = input.type.dtype, .dims = {}};
    for (const Expr& extent : input.type.shape) info.dims.push_back(as_int(extent).value_or(-1));
    infos.push_back(std::move(info));
  }
  return infos;
}

std::vector<int64_t> labels_of_samples(const QuantizeCommand& command, const CalibrationData& data) {
  const Tensor labels = read_tensor_file(parse_tensor_spec("@" + command.labels, true));
  const bool fits =
      is_int(labels.dtype()) && labels.dims().size() == 1 && labels.dims()[0] == static_cast<int64_t>(data.total());
  if (!fits)
    refuse(
        "TSR-6240",
        fmt::format("--labels {} is {}[{}]", command.labels, dtype_name(labels.dtype()), fmt::join(labels.dims(), ",")),
        fmt::format("an integer for each of the {} samples", data.total()));
  std::vector<int64_t> taken;
  for (size_t i = 0; i < data.count(); ++i) taken.push_back(labels.get_int(static_cast<int64_t>(data.place(i))));
  return taken;
}

int quantize_model_file(const QuantizeCommand& command) {
  if (command.samples < 0) refuse("TSR-4085", fmt::format("--samples {}", command.samples), "0 (all) or more");
  if (!command.labels.empty() && command.calibration.empty())
    refuse("TSR-4085", "--labels without --calib", "the samples that the labels are of");
  QuantizeSettings settings = command.settings;
  settings.per_layer_source = command.compile.per_layer;
  settings.per_layer = per_layer_text(command.compile);
  for (const std::string& pattern : command.compile.keep_f32) settings.keep.push_back(pattern);
  const QuantizationOptions options = quantization_options(settings, !command.calibration.empty());
  if (!command.output.empty()) {
    std::vector<std::string> read = files_of_model(command.model);
    read.push_back(command.calibration);
    refuse_to_overwrite(command.output, read);
  }
  const RunFlags& p = command.pictures;
  std::optional<CalibrationData> data;
  if (!command.calibration.empty())
    data.emplace(command.calibration, PictureOptions{p.scale, p.mean, p.std, p.bgr},
                 static_cast<size_t>(command.samples));
  QuantizedModel quantized;
  {
    Progress progress("quantising " + std::filesystem::path(command.model).filename().string());
    const Graph model = read_graph(command, data ? &*data : nullptr);
    const std::vector<TensorInfo> inputs = inputs_of(model);
    SampleSource samples =
        data ? SampleSource{data->count(),
                            [&](size_t number) { return data->sample(number, data->with_sizes_of(number, inputs)); },
                            {}}
             : random_sample(model);
    if (!command.labels.empty()) samples.labels = labels_of_samples(command, *data);
    quantized = quantize_model(model, samples, options, options_of_work(command),
                               [&](std::string_view step) { progress.update(std::string(step)); });
    require_gain(settings, quantized.report);
    progress.update("writing");
    if (!command.output.empty()) write_quantized(quantized.graph, command.output, driver_options(command.compile));
  }
  if (command.json) {
    nlohmann::json json = quantization_json(quantized.report);
    json["model"] = command.model;
    json["scheme"] = command.settings.scheme;
    if (!command.output.empty()) json["output"] = command.output;
    std::cout << json_line(json);
  } else if (!command.quiet) {
    fmt::print("{}{}\n", quantization_text(quantized.report, {stdout_has_colour()}),
               command.output.empty() ? "" : ", written to " + command.output);
  }
  return kExitOk;
}

std::vector<std::string> words(const std::vector<std::string_view>& names) { return {names.begin(), names.end()}; }

}  // namespace

Command add_quantize_command(CLI::App& root) {
  const auto command = std::make_shared<QuantizeCommand>();
  QuantizeCommand& c = *command;
  CLI::App* app = root.add_subcommand("quantize", "Make a model's layers read bytes, where that is faster");
  app->add_option("MODEL", c.model, "A model in f32, in any format that compile reads")->required()->type_name("");
  app->add_option("--calib", c.calibration,
                  "Samples of the inputs: a folder of pictures or .npy or .npz files, or one .npz or .npy file with\n"
                  "samples along dimension 0")
      ->type_name("DATA");
  app->add_option("--scheme", c.settings.scheme,
                  "static: activations are bytes for ranges that samples show; dynamic: for those of each run;\n"
                  "weight-only: weights alone, of matrix products")
      ->check(CLI::IsMember({"static", "dynamic", "weight-only"}))
      ->capture_default_str()
      ->type_name("NAME");
  app->add_option("-o,--output", c.output, "Write the quantised model: FILE.onnx (QDQ form), FILE.graph or a module")
      ->type_name("FILE");
  app->add_option("--method", c.settings.method, "How the ranges of activations are chosen from what the samples make")
      ->check(CLI::IsMember(words(range_method_names())))
      ->capture_default_str()
      ->type_name("NAME");
  app->add_option("--percentile", c.settings.percentile, "Of the numbers that are inside, for --method percentile")
      ->capture_default_str();
  app->add_option("--granularity", c.settings.granularity,
                  "What of the weights shares a scale: tensor, an output channel, or a group of --group terms of one.\n"
                  "Default: group for weight-only, otherwise channel")
      ->check(CLI::IsMember({"tensor", "channel", "group"}))
      ->type_name("NAME");
  app->add_option("--bits", c.settings.bits, "Of a weight. Default: 4 for weight-only, otherwise 8")->type_name("2..8");
  app->add_option("--group", c.settings.group, "Terms that share a scale, for --granularity group")
      ->capture_default_str()
      ->type_name("32|64|128");
  app->add_flag("--zero-points,!--no-zero-points", c.settings.zero_points,
                "weight-only: groups have a zero point each, or none");
  app->add_option("--activations", c.settings.activations, "u8 with a zero point, or i8 without")
      ->check(CLI::IsMember({"u8", "i8"}))
      ->capture_default_str()
      ->type_name("TYPE");
  app->add_option("--samples", c.samples, "At most so many samples, evenly taken; 0: all")->capture_default_str();
  app->add_option("--keep", c.settings.keep,
                  "A layer that stays in f32, by its name; * and ? stand for other characters")
      ->allow_extra_args(false)
      ->type_name("PATTERN");
  app->add_flag("--all", c.settings.all, "Layers become bytes even where they are slower so");
  app->add_flag("--equalize", c.settings.equalize,
                "Scale channels between layers first, so that the weights of each are about as large");
  app->add_flag("--adaround", c.settings.ada_round,
                "Round each weight up or down so that the layer's outputs for the samples change least");
  app->add_flag(
      "--bias-correction,!--no-bias-correction", c.settings.correct_bias,
      "Take off what rounding shifts the means of a layer's outputs for the samples by; on unless told otherwise");
  app->add_flag("--sensitivity", c.settings.sensitivity,
                "Measure what each layer loses by itself, and list choices of layers by time and loss");
  app->add_option(
         "--max-drop", c.settings.max_drop,
         "Take layers out until no output loses more: points of accuracy with --labels, otherwise the percentage\n"
         "of largest elements that move")
      ->type_name("PERCENT");
  app->add_option("--labels", c.labels,
                  "The right place of the first output's largest element for each sample: a .npy file of integers")
      ->type_name("FILE");
  app->add_option("--min-speedup", c.settings.min_speedup,
                  "Refuse unless the network is so many times as fast as in f32")
      ->capture_default_str();
  app->add_option("--min-sqnr", c.settings.min_sqnr,
                  "Take layers out until each output has so many decibels of signal to noise")
      ->capture_default_str();
  app->add_flag("--json", c.json, "Print one line of JSON instead of text");
  app->add_flag("-q,--quiet", c.quiet, "Print nothing on success");
  add_picture_flags(*app, c.pictures);
  add_compile_flags(*app, c.compile);
  app->footer(
      "Examples:\n"
      "  tessera quantize ultraface.onnx --calib photos --mean 0.498 --std 0.502 -o ultraface_int8.onnx\n"
      "  tessera quantize resnet50.onnx --calib samples.npz --method mse --threads 1 -o resnet50_int8.so\n"
      "  tessera quantize net.onnx --calib samples.npz --keep 'Conv_0' --min-sqnr 25 --json");
  return {app, [command] { return quantize_model_file(*command); }};
}

}  // namespace tessera
