#include "driver/quantization_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <string_view>

#include "driver/compile.h"
#include "graph/printer.h"
#include "import/onnx/write/onnx_export.h"
#include "package/atomic_file.h"
#include "support/error.h"

namespace tessera::inline driver {
namespace {

[[noreturn]] void refused(const std::string& id, const std::string& found, const std::string& legal,
                          const std::string& hint = "") {
  throw UserError({.id = id, .message = found, .node = {}, .legal = legal, .hint = hint});
}

// The place of a word.
size_t word(const char* flag, const std::string& value, std::span<const std::string_view> words) {
  const auto found = std::find(words.begin(), words.end(), value);
  if (found == words.end())
    refused("TSR-4085", fmt::format("{} {}", flag, value), fmt::format("{}", fmt::join(words, ", ")));
  return static_cast<size_t>(found - words.begin());
}

constexpr std::array<std::string_view, 3> kSchemes = {"static", "dynamic", "weight-only"};
constexpr std::array<std::string_view, 3> kGranularities = {"tensor", "channel", "group"};
constexpr std::array<std::string_view, 2> kActivations = {"u8", "i8"};

void check_numbers(const QuantizeSettings& settings) {
  if (!(settings.percentile > 50) || settings.percentile > 100)
    refused("TSR-4085", fmt::format("--percentile {}", settings.percentile), "a number above 50, at most 100");
  if (!(settings.min_speedup >= 0) || !std::isfinite(settings.min_speedup))
    refused("TSR-4085", fmt::format("--min-speedup {}", settings.min_speedup), "a finite number, 0 or more");
  if (!(settings.max_drop >= 0 && settings.max_drop <= 100))
    refused("TSR-4085", fmt::format("--max-drop {}", settings.max_drop), "percent: 0 to 100");
  if (!std::isfinite(settings.min_sqnr))
    refused("TSR-4085", fmt::format("--min-sqnr {}", settings.min_sqnr), "a finite number of decibels");
}

QuantizeOptions form_of(const QuantizeSettings& settings) {
  QuantizeOptions form;
  form.scheme = static_cast<Scheme>(word("--scheme", settings.scheme, kSchemes));
  const bool weight_only = form.scheme == Scheme::kWeightOnly;
  const std::string granularity = !settings.granularity.empty() ? settings.granularity
                                  : weight_only                 ? "group"
                                                                : "channel";
  form.weights = static_cast<Granularity>(word("--granularity", granularity, kGranularities));
  form.activations = word("--activations", settings.activations, kActivations) == 0 ? DType::kU8 : DType::kI8;
  if (form.weights == Granularity::kGroup && !weight_only)
    refused("TSR-4085", fmt::format("--granularity group with --scheme {}", settings.scheme), "channel or tensor",
            "groups of weights that have a scale each are a form of --scheme weight-only");
  const int64_t bits = settings.bits != 0 ? settings.bits : weight_only ? 4 : 8;
  if (weight_only ? bits != 4 && bits != 8 : bits < 2 || bits > 8)
    refused("TSR-4085", fmt::format("--bits {}", bits), weight_only ? "4 or 8" : "2 to 8");
  constexpr int64_t kLargestGroup = 65536;
  if (settings.group < 16 || settings.group > kLargestGroup || (settings.group & (settings.group - 1)) != 0)
    refused("TSR-4085", fmt::format("--group {}", settings.group), "a power of two from 16 to 65536");
  form.weight_bits = static_cast<int>(bits);
  form.group = settings.group;
  form.has_zeros = weight_only && settings.zero_points;
  return form;
}

}  // namespace

QuantizationOptions quantization_options(const QuantizeSettings& settings, bool has_samples) {
  check_numbers(settings);
  QuantizationOptions options;
  options.form = form_of(settings);
  if (!has_samples && settings.ada_round) refused("TSR-4085", "--adaround without --calib", "samples of the inputs");
  if (!has_samples && options.form.scheme == Scheme::kStatic)
    refused("TSR-4085", "--scheme static without --calib", "samples of the inputs",
            "--scheme dynamic and weight-only need none");
  options.range.method = range_method(settings.method);
  options.range.percentile = settings.percentile;
  options.keep = settings.keep;
  options.plan = PrecisionPlan(settings.per_layer, settings.per_layer_source);
  options.contest = !settings.all;
  options.equalize = settings.equalize;
  options.ada_round = settings.ada_round;
  options.correct_bias = settings.correct_bias && has_samples;
  if (settings.max_drop < 100) options.limits.most_drop = settings.max_drop;
  if (settings.min_sqnr > 0) options.limits.least_sqnr = settings.min_sqnr;
  options.losses = settings.sensitivity || settings.max_drop < 100 || settings.min_sqnr > 0;
  return options;
}

// A quantisation that does not pay is not written.
void require_gain(const QuantizeSettings& settings, const QuantizationReport& report) {
  const auto count = [&](LayerChoice choice) {
    return std::count_if(report.layers.begin(), report.layers.end(),
                         [&](const LayerReport& layer) { return layer.choice == choice; });
  };
  const std::string limits = settings.max_drop < 100 ? fmt::format("at most {} % lost", settings.max_drop)
                                                     : fmt::format("at least {} dB", settings.min_sqnr);
  if (count(LayerChoice::kBytes) == 0 && count(LayerChoice::kLoss) > 0)
    refused("TSR-4087", "each choice of layers loses more than that", limits,
            "ask for less, or try --method mse, percentile or entropy, or --adaround");
  if (count(LayerChoice::kBytes) == 0)
    refused("TSR-4086", fmt::format("no layer is faster in bytes; the model takes {:.3f} ms in f32", report.real_ms),
            "a layer that gains", "use the model as it is; --all quantises layers that are slower so");
  if (report.speedup() < settings.min_speedup)
    refused("TSR-4086",
            fmt::format("bytes take {:.3f} ms and f32 {:.3f} ms: {:.2f} times as fast", report.byte_ms, report.real_ms,
                        report.speedup()),
            fmt::format("at least {} times", settings.min_speedup),
            "use the model as it is, or ask for less with --min-speedup 0");
  for (const OutputReport& output : report.outputs) {
    if (output.sqnr_db < settings.min_sqnr)
      refused("TSR-4087",
              fmt::format("output '{}' has {:.1f} dB of signal to quantisation noise", output.name, output.sqnr_db),
              fmt::format("at least {} dB", settings.min_sqnr),
              "try --method mse, percentile or entropy, or keep layers in f32 with --keep");
    if (output.drop > settings.max_drop)
      refused("TSR-4087", fmt::format("output '{}' loses {:.2f} %", output.name, output.drop),
              fmt::format("at most {} %", settings.max_drop),
              "try --method mse, percentile or entropy, or keep layers in f32 with --keep");
  }
}

void write_quantized(const Graph& graph, const std::string& output, DriverOptions driver) {
  if (output.ends_with(".onnx")) return export_onnx_file(graph, output);
  if (output.ends_with(".graph")) return write_file(output, "output", print(graph));
  driver.compile.dims.clear();
  driver.compile.shapes.clear();
  driver.emit = Emit::kModule;
  PassRunner runner(driver);
  write_module(compile_graph(graph, driver, runner), output);
}

}  // namespace tessera::inline driver
