#include "driver/quantization_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tessera::inline driver {

namespace {

std::string decibels(double value) { return std::isinf(value) ? "equal" : fmt::format("{:.1f} dB", value); }
std::string layer_time(double microseconds) { return microseconds < 0 ? "" : time_text(microseconds); }
bool has_range(const LayerReport& layer) { return layer.range.low != 0 || layer.range.high != 0; }

// Numbers that are so small that nothing is left of them.
std::string vanished_text(const LayerReport& layer) {
  if (layer.choice != LayerChoice::kBytes) return "";
  std::string text = layer.data_vanish ? "; its data are too small for a scale and become 0" : "";
  if (layer.vanished_outputs > 0)
    text += fmt::format("; the weights of {} output{} are too small for their scale and become 0",
                        layer.vanished_outputs, layer.vanished_outputs == 1 ? "" : "s");
  return text;
}

std::string layers_text(const QuantizationReport& report, const TextStyle& style) {
  using Align = TextTable::Align;
  const bool has_losses = std::any_of(report.layers.begin(), report.layers.end(),
                                      [](const LayerReport& layer) { return layer.sqnr_db.has_value(); });
  const bool has_ranges = std::any_of(report.layers.begin(), report.layers.end(), has_range);
  std::vector<TextTable::Column> columns = {
      {"layer", Align::kLeft, 48}, {"multiply-adds", Align::kRight}, {"f32", Align::kRight}, {"bytes", Align::kRight}};
  if (has_ranges) columns.push_back({"range", Align::kLeft});
  if (has_losses) columns.push_back({"alone", Align::kRight});
  columns.push_back({"becomes", Align::kLeft});
  TextTable table(std::move(columns));
  for (const LayerReport& layer : report.layers) {
    std::vector<std::string> row = {layer.product.name, count_text(layer.product.multiply_adds),
                                    layer_time(layer.real_us), layer_time(layer.byte_us)};
    if (has_ranges)
      row.push_back(has_range(layer) ? fmt::format("{:.4g} .. {:.4g}", layer.range.low, layer.range.high) : "");
    if (has_losses) row.push_back(layer.sqnr_db ? decibels(*layer.sqnr_db) : "");
    row.push_back(std::string(layer_choice_text(layer.choice)) + vanished_text(layer));
    table.add(std::move(row), layer.choice == LayerChoice::kBytes ? "" : "33");
  }
  return table.to_string(style);
}

std::string selections_text(const QuantizationReport& report, const TextStyle& style) {
  using Align = TextTable::Align;
  TextTable table({{"layers in bytes", Align::kRight},
                   {"estimated", Align::kRight},
                   {"signal to noise", Align::kRight},
                   {"lost", Align::kRight}});
  for (const LayerSelection& selection : report.selections)
    table.add({fmt::format("{}", selection.layers), time_text(selection.estimated_ms * 1000),
               decibels(selection.sqnr_db), fmt::format("{:.2f} %", selection.drop)});
  return table.to_string(style);
}

std::string output_text(const OutputReport& output) {
  std::string text =
      fmt::format("output '{}': signal to quantisation noise {}, largest element in the same place {:.2f} %",
                  output.name, decibels(output.sqnr_db), 100 * output.agreement);
  if (output.real_accuracy)
    text += fmt::format(", right {:.2f} % in f32 and {:.2f} % in bytes", 100 * *output.real_accuracy,
                        100 * *output.byte_accuracy);
  return text + "\n";
}

}  // namespace

std::string quantization_text(const QuantizationReport& report, const TextStyle& style) {
  std::string text = layers_text(report, style) + "\n";
  if (!report.selections.empty()) text += selections_text(report, style) + "\n";
  for (const OutputReport& output : report.outputs) text += output_text(output);
  const auto in_bytes = std::count_if(report.layers.begin(), report.layers.end(),
                                      [](const LayerReport& layer) { return layer.choice == LayerChoice::kBytes; });
  return text +
         fmt::format(
             "{} of {} layers in bytes, {} samples, {} thread{}: f32 {:.3f} ms, bytes {:.3f} ms, {:.2f} times as fast",
             in_bytes, report.layers.size(), report.samples, report.threads, report.threads == 1 ? "" : "s",
             report.real_ms, report.byte_ms, report.speedup());
}

nlohmann::json quantization_json(const QuantizationReport& report) {
  nlohmann::json layers = nlohmann::json::array(), outputs = nlohmann::json::array();
  for (const LayerReport& layer : report.layers) {
    nlohmann::json row = {{"layer", layer.product.name},
                          {"multiply_adds", layer.product.multiply_adds},
                          {"choice", layer_choice_text(layer.choice)},
                          {"low", layer.range.low},
                          {"high", layer.range.high}};
    if (layer.real_us >= 0) row["f32_us"] = layer.real_us, row["bytes_us"] = layer.byte_us;
    if (layer.sqnr_db && std::isfinite(*layer.sqnr_db)) row["sqnr_db"] = *layer.sqnr_db;
    if (layer.vanished_outputs > 0) row["vanished_outputs"] = layer.vanished_outputs;
    if (layer.data_vanish) row["data_vanish"] = true;
    layers.push_back(std::move(row));
  }
  for (const OutputReport& output : report.outputs) {
    nlohmann::json row = {{"output", output.name}, {"agreement", output.agreement}, {"drop", output.drop}};
    if (std::isfinite(output.sqnr_db)) row["sqnr_db"] = output.sqnr_db;
    if (output.real_accuracy)
      row["f32_accuracy"] = *output.real_accuracy, row["bytes_accuracy"] = *output.byte_accuracy;
    outputs.push_back(std::move(row));
  }
  nlohmann::json json = {{"samples", report.samples},    {"threads", report.threads},   {"f32_ms", report.real_ms},
                         {"bytes_ms", report.byte_ms},   {"speedup", report.speedup()}, {"layers", std::move(layers)},
                         {"outputs", std::move(outputs)}};
  if (report.selections.empty()) return json;
  nlohmann::json choices = nlohmann::json::array();
  for (const LayerSelection& selection : report.selections) {
    nlohmann::json row = {
        {"layers", selection.layers}, {"estimated_ms", selection.estimated_ms}, {"drop", selection.drop}};
    if (std::isfinite(selection.sqnr_db)) row["sqnr_db"] = selection.sqnr_db;
    choices.push_back(std::move(row));
  }
  json["choices"] = std::move(choices);
  return json;
}

}  // namespace tessera::inline driver
