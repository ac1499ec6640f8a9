// tessera quantize MODEL --calib DATA -o OUTPUT
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "calibration_data.h"
#include "commands.h"
#include "compile_flags.h"
#include "driver/compile.h"
#include "driver/engine/output_guard.h"
#include "driver/model_file.h"
#include "driver/open_sizes.h"
#include "driver/quantization.h"
#include "graph/printer.h"
#include "import/onnx/write/onnx_export.h"
#include "package/atomic_file.h"
#include "progress.h"
#include "quantization_report.h"
#include "refuse.h"
#include "run_flags.h"
#include "support/error.h"
#include "tensor_spec.h"
#include "terminal.h"

namespace tessera {

namespace {

struct QuantizeCommand {
  CompileFlags compile;
  RunFlags pictures;
  std::string model, calibration, output, method = "minmax", granularity, activations = "u8", scheme = "static";
  std::string labels, per_layer;
  std::vector<std::string> keep;
  double percentile = 99.99, min_speedup = 1, min_sqnr = 0, max_drop = 100;
  int64_t samples = 0, bits = 0, group = 32;
  bool zeros = true;
  bool all = false, sensitivity = false, equalize = false, ada_round = false, correct_bias = true, json = false, quiet = false;
};

void check_numbers(const QuantizeCommand& command) {
  if (!(command.percentile > 50) || command.percentile > 100)
    refuse("TSR-4085", fmt::format("--percentile {}", command.percentile), "a number above 50, at most 100");
  if (command.samples < 0) refuse("TSR-4085", fmt::format("--samples {}", command.samples), "0 (all) or more");
  if (!(command.min_speedup >= 0) || !std::isfinite(command.min_speedup))
    refuse("TSR-4085", fmt::format("--min-speedup {}", command.min_speedup), "a finite number, 0 or more");
  if (!(command.max_drop >= 0 && command.max_drop <= 100))
    refuse("TSR-4085", fmt::format("--max-drop {}", command.max_drop), "percent: 0 to 100");
  if (!std::isfinite(command.min_sqnr))
    refuse("TSR-4085", fmt::format("--min-sqnr {}", command.min_sqnr), "a finite number of decibels");
}

Scheme scheme_of(const QuantizeCommand& command) {
  return command.scheme == "dynamic"       ? Scheme::kDynamic
         : command.scheme == "weight-only" ? Scheme::kWeightOnly
                                           : Scheme::kStatic;
}

std::string granularity_of(const QuantizeCommand& command) {
  if (!command.granularity.empty()) return command.granularity;
  return scheme_of(command) == Scheme::kWeightOnly ? "group" : "channel";
}

int64_t bits_of(const QuantizeCommand& command) {
  if (command.bits != 0) return command.bits;
  return scheme_of(command) == Scheme::kWeightOnly ? 4 : 8;
}

void check_form(const QuantizeCommand& command) {
  const Scheme scheme = scheme_of(command);
  if (command.ada_round && command.calibration.empty())
    refuse("TSR-4085", "--adaround without --calib", "samples of the inputs");
  if (!command.labels.empty() && command.calibration.empty())
    refuse("TSR-4085", "--labels without --calib", "the samples that the labels are of");
  if (scheme == Scheme::kStatic && command.calibration.empty())
    refuse("TSR-4085", "--scheme static without --calib", "samples of the inputs",
           "--scheme dynamic and weight-only need none");
  if (granularity_of(command) == "group" && scheme != Scheme::kWeightOnly)
    refuse("TSR-4085", fmt::format("--granularity group with --scheme {}", command.scheme), "channel or tensor",
           "groups of weights that have a scale each are a form of --scheme weight-only");
  const int64_t bits = bits_of(command);
  if (scheme == Scheme::kWeightOnly ? bits != 4 && bits != 8 : bits < 2 || bits > 8)
    refuse("TSR-4085", fmt::format("--bits {}", bits), scheme == Scheme::kWeightOnly ? "4 or 8" : "2 to 8");
  if (command.group < 16 || command.group > 65536 || (command.group & (command.group - 1)) != 0)
    refuse("TSR-4085", fmt::format("--group {}", command.group), "a power of two from 16 to 65536");
}

std::string plan_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) refuse("TSR-6211", fmt::format("'{}' cannot be read", path), "a file");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

QuantizationOptions options_of(const QuantizeCommand& command) {
  QuantizationOptions options;
  options.range.method = range_method(command.method);
  options.range.percentile = command.percentile;
  options.form.activations = command.activations == "i8" ? DType::kI8 : DType::kU8;
  QuantizeOptions& form = options.form;
  form.scheme = scheme_of(command);
  const std::string granularity = granularity_of(command);
  form.weights = granularity == "tensor"  ? Granularity::kTensor
                 : granularity == "group" ? Granularity::kGroup
                                          : Granularity::kChannel;
  form.weight_bits = static_cast<int>(bits_of(command));
  form.group = command.group;
  form.has_zeros = form.scheme == Scheme::kWeightOnly && command.zeros;
  options.keep = command.keep;
  options.contest = !command.all;
  options.equalize = command.equalize;
  options.ada_round = command.ada_round;
  options.correct_bias = command.correct_bias && !command.calibration.empty();
  if (!command.per_layer.empty())
    options.plan = PrecisionPlan(plan_text(command.per_layer), command.per_layer);
  if (command.max_drop < 100) options.limits.most_drop = command.max_drop;
  if (command.min_sqnr > 0) options.limits.least_sqnr = command.min_sqnr;
  options.losses = command.sensitivity || command.max_drop < 100 || command.min_sqnr > 0;
  return options;
}

Graph read_graph(const QuantizeCommand& command, const CalibrationData* data) {
  const DriverOptions nobody;
  PassRunner unwatched(nobody);
  DriverOptions options = driver_options(command.compile);
  if (const auto declared = declarations_of_file(command.model); declared && data)
    for (const std::string& line : take_sizes(declared->inputs, data->shapes(declared->inputs), options.compile))
      fmt::print(stderr, "{}\n", line);
  ImportedModel model = read_model(command.model, options, unwatched);
  refuse_ranges(model, "quantize");
  return graph_alone(std::move(model));
}

std::vector<TensorInfo> inputs_of(const Graph& graph) {
  std::vector<TensorInfo> infos;
  for (size_t i = 0; i < graph.num_own_inputs(); ++i) {
    const Value& input = graph.value(graph.inputs[i]);
    infos.push_back({.name = input.name, .dtype = input.type.dtype, .dims = *static_dims(input.type.shape)});
  }
  return infos;
}

// As `run` and `bench` make them: enough for times, and a hint of what is lost.
std::vector<Tensor> random_inputs(const std::vector<TensorInfo>& inputs) {
  std::vector<Tensor> tensors;
  for (size_t i = 0; i < inputs.size(); ++i) tensors.push_back(random_tensor(inputs[i], i));
  return tensors;
}

void write_quantized(const QuantizeCommand& command, const Graph& graph) {
  if (command.output.ends_with(".onnx")) return export_onnx_file(graph, command.output);
  if (command.output.ends_with(".graph")) return write_file(command.output, "output", print(graph));
  DriverOptions options = driver_options(command.compile);
  options.compile.dims.clear();
  options.compile.shapes.clear();
  options.emit = Emit::kModule;
  PassRunner runner(options);
  write_module(compile_graph(graph, options, runner), command.output);
}

// A quantisation that does not pay is not written.
void require_gain(const QuantizeCommand& command, const QuantizationReport& report) {
  const auto count = [&](LayerChoice choice) {
    return std::count_if(report.layers.begin(), report.layers.end(),
                         [&](const LayerReport& layer) { return layer.choice == choice; });
  };
  const std::string limits =
      command.max_drop < 100 ? fmt::format("at most {} % lost", command.max_drop) : fmt::format("at least {} dB", command.min_sqnr);
  if (count(LayerChoice::kBytes) == 0 && count(LayerChoice::kLoss) > 0)
    refuse("TSR-4087", "each choice of layers loses more than that", limits,
           "ask for less, or try --method mse, percentile or entropy, or --adaround");
  if (count(LayerChoice::kBytes) == 0)
    refuse("TSR-4086", fmt::format("no layer is faster in bytes; the model takes {:.3f} ms in f32", report.real_ms),
           "a layer that gains", "use the model as it is; --all quantises layers that are slower so");
  if (report.speedup() < command.min_speedup)
    refuse("TSR-4086",
           fmt::format("bytes take {:.3f} ms and f32 {:.3f} ms: {:.2f} times as fast", report.byte_ms, report.real_ms,
                       report.speedup()),
           fmt::format("at least {} times", command.min_speedup),
           "use the model as it is, or ask for less with --min-speedup 0");
  for (const OutputReport& output : report.outputs) {
    if (output.sqnr_db < command.min_sqnr)
      refuse("TSR-4087",
             fmt::format("output '{}' has {:.1f} dB of signal to quantisation noise", output.name, output.sqnr_db),
             fmt::format("at least {} dB", command.min_sqnr),
             "try --method mse, percentile or entropy, or keep layers in f32 with --keep");
    if (output.drop > command.max_drop)
      refuse("TSR-4087", fmt::format("output '{}' loses {:.2f} %", output.name, output.drop),
             fmt::format("at most {} %", command.max_drop),
             "try --method mse, percentile or entropy, or keep layers in f32 with --keep");
  }
}

std::vector<int64_t> labels_of_samples(const QuantizeCommand& command, const CalibrationData& data) {
  const Tensor labels = read_tensor_file(parse_tensor_spec("@" + command.labels, true));
  const bool fits = is_int(labels.dtype()) && labels.dims().size() == 1 &&
                    labels.dims()[0] == static_cast<int64_t>(data.total());
  if (!fits)
    refuse("TSR-6240", fmt::format("--labels {} is {}[{}]", command.labels, dtype_name(labels.dtype()), fmt::join(labels.dims(), ",")),
           fmt::format("an integer for each of the {} samples", data.total()));
  std::vector<int64_t> taken;
  for (size_t i = 0; i < data.count(); ++i) taken.push_back(labels.get_int(static_cast<int64_t>(data.place(i))));
  return taken;
}

int quantize_model_file(const QuantizeCommand& command) {
  check_numbers(command);
  check_form(command);
  const QuantizationOptions options = options_of(command);
  if (!command.output.empty()) {
    std::vector<std::string> read = files_of_model(command.model);
    read.push_back(command.calibration);
    refuse_to_overwrite(command.output, read);
  }
  const RunFlags& p = command.pictures;
  std::optional<CalibrationData> data;
  if (!command.calibration.empty())
    data.emplace(command.calibration, PictureOptions{p.scale, p.mean, p.std, p.bgr}, static_cast<size_t>(command.samples));
  QuantizedModel quantized;
  {
    Progress progress("quantising " + std::filesystem::path(command.model).filename().string());
    const Graph model = read_graph(command, data ? &*data : nullptr);
    const std::vector<TensorInfo> inputs = inputs_of(model);
    SampleSource samples =
        data ? SampleSource{data->count(), [&](size_t number) { return data->sample(number, inputs); }, {}}
             : SampleSource{1, [&](size_t) { return random_inputs(inputs); }, {}};
    if (!command.labels.empty()) samples.labels = labels_of_samples(command, *data);
    quantized = quantize_model(model, samples, options, driver_options(command.compile),
                               [&](std::string_view step) { progress.update(std::string(step)); });
    require_gain(command, quantized.report);
    progress.update("writing");
    if (!command.output.empty()) write_quantized(command, quantized.graph);
  }
  if (command.json) {
    nlohmann::json json = quantization_json(quantized.report);
    json["model"] = command.model;
    json["scheme"] = command.scheme;
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
  app->add_option("--scheme", c.scheme,
                  "static: activations are bytes for ranges that samples show; dynamic: for those of each run;\n"
                  "weight-only: weights alone, of matrix products")
      ->check(CLI::IsMember({"static", "dynamic", "weight-only"}))
      ->capture_default_str()
      ->type_name("NAME");
  app->add_option("-o,--output", c.output, "Write the quantised model: FILE.onnx (QDQ form), FILE.graph or a module")
      ->type_name("FILE");
  app->add_option("--method", c.method, "How the ranges of activations are chosen from what the samples make")
      ->check(CLI::IsMember(words(range_method_names())))
      ->capture_default_str()
      ->type_name("NAME");
  app->add_option("--percentile", c.percentile, "Of the numbers that are inside, for --method percentile")
      ->capture_default_str();
  app->add_option("--granularity", c.granularity,
                  "What of the weights shares a scale: tensor, an output channel, or a group of --group terms of one.\n"
                  "Default: group for weight-only, otherwise channel")
      ->check(CLI::IsMember({"tensor", "channel", "group"}))
      ->type_name("NAME");
  app->add_option("--bits", c.bits, "Of a weight. Default: 4 for weight-only, otherwise 8")->type_name("2..8");
  app->add_option("--group", c.group, "Terms that share a scale, for --granularity group")
      ->capture_default_str()
      ->type_name("32|64|128");
  app->add_flag("--zero-points,!--no-zero-points", c.zeros, "weight-only: groups have a zero point each, or none");
  app->add_option("--activations", c.activations, "u8 with a zero point, or i8 without")
      ->check(CLI::IsMember({"u8", "i8"}))
      ->capture_default_str()
      ->type_name("TYPE");
  app->add_option("--samples", c.samples, "At most so many samples, evenly taken; 0: all")->capture_default_str();
  app->add_option("--keep", c.keep, "A layer that stays in f32, by its name; * and ? stand for other characters")
      ->allow_extra_args(false)
      ->type_name("PATTERN");
  app->add_option("--per-layer", c.per_layer,
                  "A file with a pattern of layers and f32 or i8 on each line: what these are, whatever is measured")
      ->type_name("FILE");
  app->add_flag("--all", c.all, "Layers become bytes even where they are slower so");
  app->add_flag("--equalize", c.equalize,
                "Scale channels between layers first, so that the weights of each are about as large");
  app->add_flag("--adaround", c.ada_round,
                "Round each weight up or down so that the layer's outputs for the samples change least");
  app->add_flag("--bias-correction,!--no-bias-correction", c.correct_bias,
                "Take off what rounding shifts the means of a layer's outputs for the samples by; on unless told otherwise");
  app->add_flag("--sensitivity", c.sensitivity,
                "Measure what each layer loses by itself, and list choices of layers by time and loss");
  app->add_option("--max-drop", c.max_drop,
                  "Take layers out until no output loses more: points of accuracy with --labels, otherwise the percentage\n"
                  "of largest elements that move")
      ->type_name("PERCENT");
  app->add_option("--labels", c.labels, "The right place of the first output's largest element for each sample: a .npy file of integers")
      ->type_name("FILE");
  app->add_option("--min-speedup", c.min_speedup, "Refuse unless the network is so many times as fast as in f32")
      ->capture_default_str();
  app->add_option("--min-sqnr", c.min_sqnr, "Take layers out until each output has so many decibels of signal to noise")
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
