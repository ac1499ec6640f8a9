#include "driver/analysis/kernel_times.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "codegen/llvm/target.h"
#include "diagnose/roofline.h"

namespace tessera::inline driver {

namespace {

using nlohmann::json;

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

std::vector<KernelTime> time_kernels(Model& model, int runs) {
  const size_t count = model.kernels().size();
  if (count == 0) return {};
  std::vector<std::vector<double>> samples(count);
  std::vector<int64_t> calls(count, 0);
  for (int run = 0; run < runs; ++run) {
    std::vector<double> sums(count, 0);
    std::fill(calls.begin(), calls.end(), 0);
    for (const KernelSpan& span : model.run_traced()) {
      if (span.kernel < 0) continue;
      if (!span.is_of_device() && span.worker != 0) continue;  // worker 0's span is the whole call
      const auto kernel = static_cast<size_t>(span.kernel);
      sums[kernel] += static_cast<double>(span.end_ns - span.begin_ns) / 1e3;
      ++calls[kernel];
    }
    for (size_t i = 0; i < count; ++i) samples[i].push_back(sums[i]);
  }
  std::vector<KernelTime> times;
  for (size_t i = 0; i < count; ++i) {
    if (calls[i] > 0) times.push_back({static_cast<int32_t>(i), calls[i], median(samples[i])});
  }
  return times;
}

double seconds_of_a_call(const std::vector<KernelTime>& times) {
  double total = 0;
  for (const KernelTime& time : times) total += time.median_us / 1e6;
  return times.empty() ? 0 : total / static_cast<double>(times.size());
}

MachinePeaks measure_roofline(int threads, const std::vector<KernelInfo>& kernels) {
  const Target target = native_target();
  ProbeOptions options;
  options.threads = threads;
  options.seconds = 0.005;
  options.rounds = 5;
  options.only_floats = std::all_of(kernels.begin(), kernels.end(), [](const KernelInfo& kernel) {
    return kernel.unit.empty() || kernel.unit == "f32 multiply-add";
  });
  options.l1_bytes = target.l1_bytes;
  options.l2_bytes = target.l2_bytes;
  options.l3_bytes = target.l3_bytes;
  return measure_machine(options);
}

namespace {

template <typename Value>
json known(bool is_known, const Value& value) {
  return is_known ? json(value) : json();
}

}  // namespace

json kernels_json(const Model& model, const std::vector<KernelTime>& times, const MachinePeaks& peaks) {
  double total = 0;
  int64_t constants = 0;
  for (const KernelTime& time : times) {
    total += time.median_us;
    constants += std::max<int64_t>(0, model.kernels().at(static_cast<size_t>(time.kernel)).constant_bytes);
  }
  const double call_seconds = seconds_of_a_call(times);
  json list = json::array();
  for (const KernelTime& time : times) {
    const KernelInfo& kernel = model.kernels().at(static_cast<size_t>(time.kernel));
    // A clock's tick is the least that can have passed.
    const double seconds = std::max(time.median_us, 1e-3) / 1e6;
    // Of sizes that only a run knows the module has no counts. What was measured of this machine bounds nothing that
    // runs elsewhere.
    const bool on_host = kernel.device == 0;
    const bool has_bound = on_host && kernel.flops >= 0 && kernel.bytes >= 0;
    const KernelWork work = {kernel.flops, kernel.bytes, kernel.constant_bytes,
                             aged(kernel.traffic, call_seconds, peaks), kernel.unit};
    const Roofline roof =
        roofline_of(work, constants, seconds / static_cast<double>(time.calls), peaks, model.num_threads());
    list.push_back({{"index", time.kernel},
                    {"nodes", kernel.name},
                    {"rule", kernel.rule},
                    {"device", on_host ? "cpu" : kernel.device_name},
                    {"calls", time.calls},
                    {"us", time.median_us},
                    {"percent", total > 0 ? 100 * time.median_us / total : 0},
                    {"flops", kernel.flops < 0 ? -1 : kernel.flops * time.calls},
                    {"bytes", kernel.bytes < 0 ? -1 : kernel.bytes * time.calls},
                    {"constant_bytes", kernel.constant_bytes < 0 ? -1 : kernel.constant_bytes * time.calls},
                    {"gflops", known(kernel.flops >= 0, roof.gflops)},
                    {"gbytes", known(kernel.bytes >= 0, roof.gbytes)},
                    {"unit", kernel.unit.empty() ? peaks.fma_f32.name : kernel.unit},
                    {"percent_of_peak", known(on_host && kernel.flops >= 0 && roof.has_peak, roof.percent_of_peak)},
                    {"percent_of_bound", known(has_bound && roof.has_peak, roof.percent_of_bound)},
                    {"bound", known(has_bound && roof.has_peak, roof.compute_bound ? "compute" : "memory")},
                    {"level", known(has_bound, roof.level)}});
  }
  return list;
}

json roofline_json(const MachinePeaks& peaks, int threads) {
  const bool alone = threads <= 1;
  json levels = json::array();
  for (const MemoryLevel& level : peaks.levels)
    levels.push_back({{"name", level.name}, {"gbytes", (alone ? level.one_thread : level.all_threads) / 1e9}});
  json units = json::array();
  for (const auto* peak : {&peaks.vnni, &peaks.amx_i8, &peaks.amx_bf16})
    if (*peak)
      units.push_back({{"unit", (*peak)->name}, {"gops", (alone ? (*peak)->one_thread : (*peak)->all_threads) / 1e9}});
  return {{"threads", threads},
          {"peak_gflops", (alone ? peaks.fma_f32.one_thread : peaks.fma_f32.all_threads) / 1e9},
          {"units", std::move(units)},
          {"bandwidth", std::move(levels)}};
}

std::string kernels_text(const json& kernels, const json& roofline, const TextStyle& style) {
  std::vector<json> rows = kernels.get<std::vector<json>>();
  std::stable_sort(rows.begin(), rows.end(), [](const json& a, const json& b) { return a.at("us") > b.at("us"); });
  using Align = TextTable::Align;
  TextTable table({{"#", Align::kRight},
                   {"time", Align::kRight},
                   {"%", Align::kRight},
                   {"FLOP", Align::kRight},
                   {"bytes", Align::kRight},
                   {"GFLOP/s", Align::kRight},
                   {"% of peak", Align::kRight},
                   {"of"},
                   {"GB/s", Align::kRight},
                   {"bound"},
                   {"% of bound", Align::kRight},
                   {"rule", Align::kLeft, 24},
                   {"nodes"}});
  const auto number = [](const json& value, std::string (*text)(double)) {
    return value.get<double>() < 0 ? std::string("?") : text(value.get<double>());
  };
  const auto figure = [](const json& value, int digits) {
    return value.is_null() ? std::string("?") : fmt::format("{:.{}f}", value.get<double>(), digits);
  };
  constexpr size_t kNodesWidth = 60;  // JSON has all of them
  for (const json& row : rows) {
    const bool on_host = row.at("device") == "cpu";
    const std::string bound = row.at("bound").is_null()      ? "?"
                              : row.at("bound") == "compute" ? "compute"
                                                             : "memory (" + row.at("level").get<std::string>() + ")";
    table.add({std::to_string(row.at("index").get<int>()), time_text(row.at("us").get<double>()),
               fmt::format("{:.1f}", row.at("percent").get<double>()), number(row.at("flops"), count_text),
               number(row.at("bytes"), bytes_text), figure(row.at("gflops"), 1), figure(row.at("percent_of_peak"), 1),
               row.at(on_host ? "unit" : "device").get<std::string>(), figure(row.at("gbytes"), 1), bound,
               figure(row.at("percent_of_bound"), 0), row.at("rule").get<std::string>(),
               shortened(row.at("nodes").get<std::string>(), kNodesWidth)});
  }
  std::string text = table.to_string(style);
  text += fmt::format("measured peak on {} thread{}: {:.1f} GFLOP/s", roofline.at("threads").get<int>(),
                      roofline.at("threads") == 1 ? "" : "s", roofline.at("peak_gflops").get<double>());
  for (const json& unit : roofline.at("units"))
    text += fmt::format(", {} {:.1f}", unit.at("unit").get<std::string>(), unit.at("gops").get<double>());
  text += "; reading";
  for (const json& level : roofline.at("bandwidth"))
    text += fmt::format(" {} {:.1f}", level.at("name").get<std::string>(), level.at("gbytes").get<double>());
  return text + " GB/s\n";
}

}  // namespace tessera::inline driver
