#include "driver/text/accelerator_report.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "accel/network/unit_kernel.h"
#include "accel/simulate.h"
#include "driver/accelerators.h"
#include "driver/devices.h"
#include "driver/text/accelerator_tool.h"
#include "support/error.h"

namespace tessera::inline driver {
namespace {

int64_t multiply_adds_of(const TensorProgram& program) {
  int64_t result = 0;
  for (const Stage* reduction : program.reductions()) {
    if (reduction->body.combiner != Combiner::kSum) continue;
    bool multiplies = false;
    walk(reduction->body.value, [&](const Expr& e) {
      multiplies = multiplies || (e->kind == ExprKind::kBinary && e->binary == BinaryOp::kMul &&
                                  !as_int(e->operands[0]) && !as_int(e->operands[1]) && e.dtype() != DType::kI64);
    });
    if (!multiplies) continue;
    int64_t points = 1;
    for (const Axis& axis : reduction->body.axes) points *= as_int(axis.extent).value_or(0);
    for (const Axis& axis : reduction->body.reduce_axes) points *= as_int(axis.extent).value_or(0);
    result += points;
  }
  return result;
}

std::string percent(double part, double whole) { return fmt::format("{:.1f} %", whole > 0 ? 100 * part / whole : 0.0); }

// Of the last node, which is what people look for.
std::string shown(const std::string& nodes) {
  const std::string first = nodes.substr(0, nodes.find('+'));
  return first.size() <= 44 ? first : "..." + first.substr(first.size() - 41);
}

}  // namespace

int64_t AcceleratorReport::cycles() const {
  int64_t sum = 0;
  for (const UnitLayer& layer : layers) sum += layer.cycles;
  return sum;
}
int64_t AcceleratorReport::multiply_adds_on_unit() const {
  int64_t sum = 0;
  for (const UnitLayer& layer : layers) sum += layer.multiply_adds;
  return sum;
}
int64_t AcceleratorReport::multiply_adds() const {
  int64_t sum = multiply_adds_on_unit();
  for (const HostKernel& kernel : host) sum += kernel.multiply_adds;
  return sum;
}
double AcceleratorReport::unit_ms() const { return static_cast<double>(cycles()) / unit->clock_mhz / 1e3; }
double AcceleratorReport::host_ms() const {
  double sum = 0;
  for (const HostKernel& kernel : host) sum += kernel.milliseconds;
  return sum;
}

int64_t multiply_adds_of(const Kernel& kernel) {
  if (kernel.joined) {
    int64_t sum = 0;
    for (const JoinedMember& member : kernel.joined->members) sum += multiply_adds_of(member.program);
    return sum;
  }
  return kernel.definition ? multiply_adds_of(*kernel.definition) : 0;
}

AcceleratorReport accelerator_report(const Program& program, const HostTimes& host_ms) {
  AcceleratorReport report;
  std::map<int32_t, UnitLayer> of_kernel;
  for (const KernelCall& call : program.calls) {
    const Kernel& kernel = program.kernels[static_cast<size_t>(call.kernel)];
    const std::string& kind =
        kernel.device > 0 ? program.devices[static_cast<size_t>(kernel.device) - 1].kind : std::string();
    if (kind != kAcceleratorKind) {
      const auto measured = host_ms.find({kernel.loc, kernel.rule});
      report.host.push_back({call.loc, multiply_adds_of(kernel), measured == host_ms.end() ? 0 : measured->second});
      continue;
    }
    report.unit = &accelerator_named(program.devices[static_cast<size_t>(kernel.device) - 1].name);
    if (!of_kernel.contains(call.kernel)) {
      const InstructionStream stream = stream_of(*report.unit, kernel.program);
      const auto begin = std::chrono::steady_clock::now();
      const SimulatedRun run = simulate(*report.unit, stream);
      report.seconds_to_simulate += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      check(run.problem.empty(), run.problem);
      report.peak_per_cycle = std::max(report.peak_per_cycle, run.peak_per_cycle);
      UnitLayer layer;
      layer.multiply_adds = std::max<int64_t>(kernel.flops, 0) / 2;
      layer.cycles = run.cycles;
      layer.dram_bytes = run.dram_bytes;
      layer.instructions = static_cast<int64_t>(stream.instructions.size());
      const auto peak = static_cast<double>(run.peak_per_cycle), done = static_cast<double>(layer.multiply_adds);
      if (run.cycles > 0 && peak > 0) layer.percent_of_peak = 100 * done / static_cast<double>(run.cycles) / peak;
      const double by_dram = run.dram_bytes > 0 ? done / static_cast<double>(run.dram_bytes) *
                                                      static_cast<double>(report.unit->dram_bytes_per_cycle)
                                                : peak;
      layer.bound_by_dram = by_dram < peak;
      layer.roof = peak > 0 ? 100 * std::min(by_dram, peak) / peak : 0;
      of_kernel[call.kernel] = layer;
    }
    UnitLayer layer = of_kernel[call.kernel];
    layer.nodes = call.loc;
    report.layers.push_back(layer);
  }
  return report;
}

std::string report_text(const AcceleratorReport& report) {
  if (!report.unit) return "nothing of the model runs on the accelerator: tessera explain says why\n";
  std::string text = fmt::format("{:<44} {:>9} {:>10} {:>7} {:>7}  {:<7} {:>10}\n", "layer on " + report.unit->name,
                                 "M mul-add", "cycles", "peak", "roof", "bound", "DRAM bytes");
  for (const UnitLayer& layer : report.layers)
    text += fmt::format("{:<44} {:>9.2f} {:>10} {:>5.1f} % {:>5.1f} %  {:<7} {:>10}\n", shown(layer.nodes),
                        static_cast<double>(layer.multiply_adds) / 1e6, layer.cycles, layer.percent_of_peak, layer.roof,
                        layer.bound_by_dram ? "DRAM" : "compute", layer.dram_bytes);
  const auto done = static_cast<double>(report.multiply_adds_on_unit()),
             all = static_cast<double>(report.multiply_adds());
  const auto cycles = static_cast<double>(report.cycles());
  text += fmt::format("\n{} at {} MHz: {} cycles, {:.3f} ms, {} of the {} multiply-adds a cycle that could be\n",
                      report.unit->name, report.unit->clock_mhz, report.cycles(), report.unit_ms(),
                      percent(done, cycles * static_cast<double>(report.peak_per_cycle)), report.peak_per_cycle);
  text += fmt::format("offloaded: {} of {:.1f} M multiply-adds\n", percent(done, all), all / 1e6);
  std::vector<HostKernel> host = report.host;
  std::stable_sort(host.begin(), host.end(),
                   [](const HostKernel& a, const HostKernel& b) { return a.milliseconds > b.milliseconds; });
  const double host_ms = report.host_ms(), total = host_ms + report.unit_ms();
  text += fmt::format("host: {} kernels, {:.3f} ms{}\n", host.size(), host_ms, host.empty() ? "" : ", of which");
  for (size_t i = 0; i < std::min<size_t>(host.size(), 5); ++i)
    text += fmt::format("  {:<44} {:>9.3f} ms {:>9.2f} M multiply-adds\n", shown(host[i].nodes), host[i].milliseconds,
                        static_cast<double>(host[i].multiply_adds) / 1e6);
  if (host_ms > 0)
    text += fmt::format(
        "one after the other: {:.3f} ms; a unit that takes no time would make it {:.2f} times as fast "
        "(Amdahl)\n",
        total, total / host_ms);
  if (report.seconds_to_simulate > 0)
    text += fmt::format("simulated at {:.0f} M cycles a second\n", cycles / report.seconds_to_simulate / 1e6);
  return text;
}

nlohmann::json report_json(const AcceleratorReport& report) {
  nlohmann::json layers = nlohmann::json::array(), host = nlohmann::json::array();
  for (const UnitLayer& layer : report.layers)
    layers.push_back({{"nodes", layer.nodes},
                      {"multiply_adds", layer.multiply_adds},
                      {"cycles", layer.cycles},
                      {"dram_bytes", layer.dram_bytes},
                      {"instructions", layer.instructions},
                      {"percent_of_peak", layer.percent_of_peak},
                      {"roof_percent", layer.roof},
                      {"bound", layer.bound_by_dram ? "dram" : "compute"}});
  for (const HostKernel& kernel : report.host)
    host.push_back(
        {{"nodes", kernel.nodes}, {"multiply_adds", kernel.multiply_adds}, {"milliseconds", kernel.milliseconds}});
  nlohmann::json json = {{"layers", layers}, {"host", host}};
  if (!report.unit) return json;
  json["unit"] = report.unit->name;
  json["clock_mhz"] = report.unit->clock_mhz;
  json["peak_per_cycle"] = report.peak_per_cycle;
  json["cycles"] = report.cycles();
  json["unit_ms"] = report.unit_ms();
  json["host_ms"] = report.host_ms();
  json["multiply_adds"] = report.multiply_adds();
  json["multiply_adds_on_unit"] = report.multiply_adds_on_unit();
  json["simulated_cycles_per_second"] =
      report.seconds_to_simulate > 0 ? static_cast<double>(report.cycles()) / report.seconds_to_simulate : 0;
  return json;
}

std::string roofline_picture(const AcceleratorReport& report) {
  constexpr double kWidth = 760, kHeight = 460, kLeft = 70, kTop = 40, kRight = 20, kBottom = 60;
  double least = 1, most = 1;
  for (const UnitLayer& layer : report.layers) {
    if (!layer.dram_bytes || !layer.multiply_adds) continue;
    const double intensity = static_cast<double>(layer.multiply_adds) / static_cast<double>(layer.dram_bytes);
    least = std::min(least, intensity / 2);
    most = std::max(most, intensity * 2);
  }
  const double peak = static_cast<double>(report.peak_per_cycle),
               port = report.unit ? static_cast<double>(report.unit->dram_bytes_per_cycle) : 1;
  most = std::max(most, 2 * peak / port);
  const double floor = std::max(std::min(least * port, peak) / 4, 1e-3);
  const auto x = [&](double intensity) {
    return kLeft + (kWidth - kLeft - kRight) * std::log(intensity / least) / std::log(most / least);
  };
  const auto y = [&](double rate) {
    const double part = std::log(std::max(rate, floor) / floor) / std::log(2 * peak / floor);
    return kHeight - kBottom - (kHeight - kTop - kBottom) * part;
  };
  std::string text = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"{0}\" height=\"{1}\" fill=\"white\"/>\n",
      kWidth, kHeight);
  text += fmt::format(
      "<text x=\"{}\" y=\"22\" font-size=\"14\">{}: multiply-adds a cycle by multiply-adds a byte of "
      "DRAM</text>\n",
      kLeft, report.unit ? report.unit->name : "");
  text +=
      fmt::format("<polyline points=\"{:.1f},{:.1f} {:.1f},{:.1f} {:.1f},{:.1f}\" fill=\"none\" stroke=\"#333\"/>\n",
                  x(least), y(least * port), x(peak / port), y(peak), x(most), y(peak));
  for (const UnitLayer& layer : report.layers) {
    if (!layer.dram_bytes || !layer.multiply_adds || !layer.cycles) continue;
    const double intensity = static_cast<double>(layer.multiply_adds) / static_cast<double>(layer.dram_bytes);
    const double rate = static_cast<double>(layer.multiply_adds) / static_cast<double>(layer.cycles);
    text += fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" fill=\"#4e79a7\"><title>{}: {:.1f} % of the "
        "peak</title></circle>\n",
        x(intensity), y(rate), shown(layer.nodes), layer.percent_of_peak);
  }
  text += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\">{} a cycle</text>\n", x(most) - 90, y(peak) - 6, peak);
  text += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">multiply-adds a byte, {:.3g} to {:.3g}</text>\n",
                      (kLeft + kWidth) / 2, kHeight - 20, least, most);
  return text + "</svg>\n";
}

std::map<std::string, std::string> accelerator_pictures(const Program& program, const AcceleratorReport& report) {
  std::map<std::string, std::string> pictures = {{"roofline.svg", roofline_picture(report)}};
  for (size_t k = 0; k < program.kernels.size(); ++k) {
    const Kernel& kernel = program.kernels[k];
    if (!has_fixed_loops(program, kernel)) continue;
    const Accelerator& unit = accelerator_named(program.devices[static_cast<size_t>(kernel.device) - 1].name);
    const InstructionStream stream = stream_of(unit, kernel.program);
    pictures[fmt::format("{:03}_{}.svg", k, kernel.program.name)] =
        timeline_picture(unit, stream, simulate(unit, stream));
  }
  return pictures;
}

}  // namespace tessera::inline driver
