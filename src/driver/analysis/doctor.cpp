#include "driver/analysis/doctor.h"

#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <thread>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "codegen/llvm/target.h"
#include "diagnose/machine_probe.h"
#include "driver/api/version.h"
#include "driver/engine/cache.h"
#include "runtime/cpu/affinity.h"
#include "tessera/tessera.h"

namespace tessera::inline driver {

namespace {

using nlohmann::json;

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) return line.substr(std::min(line.find(':') + 2, line.size()));
  }
  return "";
}

int cpus_by_affinity() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 0;
}

// "[always] madvise never": the word in brackets.
std::string huge_pages() {
  const std::string line = first_line("/sys/kernel/mm/transparent_hugepage/enabled");
  const size_t begin = line.find('['), end = line.find(']');
  return begin < end && end != std::string::npos ? line.substr(begin + 1, end - begin - 1) : "";
}

json describe_cache() {
  std::vector<std::string> problems;
  const ModuleCache cache = ModuleCache::from_environment([&](const std::string& text) { problems.push_back(text); });
  json result = {{"folder", cache.folder()}, {"enabled", cache.enabled()}, {"capacity_bytes", cache.capacity_bytes()}};
  uint64_t modules = 0, bytes = 0;
  std::error_code error;
  for (auto it = std::filesystem::directory_iterator(cache.folder(), error);
       !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
    if (it->path().extension() != ".so") continue;
    ++modules;
    bytes += it->file_size(error);
  }
  result["modules"] = modules;
  result["bytes"] = bytes;
  // The nearest folder that exists decides whether the cache can be made and written to.
  std::filesystem::path folder = cache.folder();
  while (!folder.empty() && !std::filesystem::exists(folder, error) && folder != folder.parent_path())
    folder = folder.parent_path();
  result["writable"] = cache.enabled() && access(folder.c_str(), W_OK) == 0;
  result["problems"] = problems;
  return result;
}

json json_of(const ArithmeticPeak& peak) {
  return {{"name", peak.name},
          {"instructions", peak.instructions},
          {"one_thread_gops", peak.one_thread / 1e9},
          {"all_threads_gops", peak.all_threads / 1e9}};
}

json json_of(const MachinePeaks& peaks) {
  json arithmetic = json::array({json_of(peaks.fma_f32)});
  for (const auto* peak : {&peaks.vnni, &peaks.amx_i8, &peaks.amx_bf16})
    if (*peak) arithmetic.push_back(json_of(**peak));
  json levels = json::array();
  for (const MemoryLevel& level : peaks.levels) {
    json entry = {{"name", level.name},
                  {"working_set", level.working_set},
                  {"one_thread_gbytes", level.one_thread / 1e9},
                  {"all_threads_gbytes", level.all_threads / 1e9}};
    if (level.capacity != INT64_MAX) entry["capacity"] = level.capacity;
    if (std::isfinite(level.keeps)) entry["keeps_ms"] = level.keeps * 1e3;
    levels.push_back(std::move(entry));
  }
  return {{"threads", peaks.threads}, {"arithmetic", std::move(arithmetic)}, {"bandwidth", std::move(levels)}};
}

std::string environment(const char* name) {
  const char* text = getenv(name);
  return text ? text : "";
}

// What costs speed here, each with what to do about it.
std::vector<std::string> warnings_of(const json& machine, const Target& target) {
  std::vector<std::string> warnings;
  const json& cpus = machine.at("cpus");
  const int online = cpus.at("online"), affinity = cpus.at("affinity"), limit = cpus.at("cgroup_limit"),
            usable = cpus.at("usable"), threads = cpus.at("default_threads");
  if (target.isa() == Isa::kX86_64 && !target.has_all("avx2,fma")) {
    warnings.push_back(
        "the processor has no AVX2 or FMA: vectors have 128 bits; a virtual machine may hide what the "
        "host has");
  }
  if (affinity > 0 && affinity < online)
    warnings.push_back(fmt::format("this process may use {} of {} CPUs (taskset, cpuset)", affinity, online));
  if (limit > 0 && limit < std::max(affinity, 1))
    warnings.push_back(fmt::format("the cgroup limits this process to the time of {} CPUs (cpu.max)", limit));
  if (threads > usable)
    warnings.push_back(
        fmt::format("sessions use {} threads on {} CPUs (TESSERA_NUM_THREADS, OMP_NUM_THREADS): they "
                    "wait for each other",
                    threads, usable));
  if (threads < usable)
    warnings.push_back(
        fmt::format("sessions use {} of {} usable CPUs (TESSERA_NUM_THREADS, OMP_NUM_THREADS)", threads, usable));
  const double load = cpus.at("load");
  if (load > 0.5 * usable)
    warnings.push_back(
        fmt::format("other programs are running (load {:.1f} on {} CPUs): what is measured now, the "
                    "peaks below included, is too low",
                    load, usable));
  const std::string governor = cpus.at("governor");
  if (governor == "powersave" || governor == "conservative")
    warnings.push_back(fmt::format("the frequency governor is '{}'; 'performance' is faster", governor));
  if (machine.at("memory").at("huge_pages") == "never")
    warnings.push_back("transparent huge pages are off: large weights and arenas cost more address translation");
  const json& cache = machine.at("cache");
  if (!cache.at("enabled"))
    warnings.push_back("the cache of compiled modules is off: 'run MODEL.onnx' compiles every time");
  else if (!cache.at("writable"))
    warnings.push_back(fmt::format("the cache folder '{}' cannot be written to: 'run MODEL.onnx' compiles every time",
                                   cache.at("folder").get<std::string>()));
#if !defined(NDEBUG)
  warnings.push_back("this build of tessera has assertions: compiling is slow (CMAKE_BUILD_TYPE=Release)");
#endif
  return warnings;
}

}  // namespace

json examine_machine() {
  const Target target = native_target();
  double load[1] = {0};
  if (getloadavg(load, 1) != 1) load[0] = 0;
  const int usable = usable_cpus();
  json machine;
  machine["version"] = version_text();
  machine["back_ends"] = json::array(
      {{{"name", "llvm"}, {"target", target.triple}, {"cpu", target.cpu}, {"runs_here", runs_here(target)}}});
  machine["cpu"] = {{"name", cpu_name()},
                    {"features", required_features(target)},
                    {"vector_bits", target.vector_bits()},
                    {"vector_registers", target.vector_registers()}};
  machine["cpus"] = {{"online", static_cast<int>(std::max(sysconf(_SC_NPROCESSORS_ONLN), 1L))},
                     {"affinity", cpus_by_affinity()},
                     {"cgroup_limit", cgroup_cpu_limit("/proc/self/cgroup", "/sys/fs/cgroup")},
                     {"usable", usable},
                     {"default_threads", tessera_default_num_threads()},
                     {"load", load[0]},
                     {"governor", first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")}};
  machine["memory"] = {
      {"bytes", static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<int64_t>(sysconf(_SC_PAGESIZE))},
      {"huge_pages", huge_pages()}};
  machine["caches"] = {{"l1", target.l1_bytes}, {"l2", target.l2_bytes}, {"l3", target.l3_bytes}};
  machine["ratios"] = {{"l3_operations", target.ratios.l3_operations},
                       {"memory_operations", target.ratios.memory_operations},
                       {"memory_slots", target.ratios.memory_slots}};
  machine["spaces"] = json::array();
  for (const MemorySpace& space : memory_spaces(target))
    machine["spaces"].push_back({{"name", space.name}, {"bytes", space.bytes}, {"shared", space.shared}});
  machine["cache"] = describe_cache();
  json variables = json::object();
  for (const char* name : {"TESSERA_NUM_THREADS", "OMP_NUM_THREADS", "TESSERA_BIND_THREADS", "TESSERA_VARIANT",
                           "TESSERA_CACHE_DIR", "TESSERA_CACHE_SIZE"}) {
    if (const std::string value = environment(name); !value.empty()) variables[name] = value;
  }
  machine["environment"] = std::move(variables);

  ProbeOptions probe;
  probe.threads = usable;
  probe.l1_bytes = target.l1_bytes;
  probe.l2_bytes = target.l2_bytes;
  probe.l3_bytes = target.l3_bytes;
  machine["peaks"] = json_of(measure_machine(probe));
  machine["warnings"] = warnings_of(machine, target);
  return machine;
}

std::string machine_text(const json& machine, const TextStyle& style) {
  const auto line = [](const std::string& label, const std::string& text) {
    return fmt::format("{:<13}{}\n", label, text);
  };
  const json& cpu = machine.at("cpu");
  const json& cpus = machine.at("cpus");
  const json& caches = machine.at("caches");
  const json& cache = machine.at("cache");
  std::string text = painted(machine.at("version").get<std::string>(), "1", style) + "\n";
  for (const json& back_end : machine.at("back_ends")) {
    text +=
        line("back end", fmt::format("{} for {}, {}{}", back_end.at("name").get<std::string>(),
                                     back_end.at("target").get<std::string>(), back_end.at("cpu").get<std::string>(),
                                     back_end.at("runs_here") ? "" : " (does not run here)"));
  }
  text += line("processor", fmt::format("{}, vectors of {} bits, {} of them", cpu.at("name").get<std::string>(),
                                        cpu.at("vector_bits").get<int>(), cpu.at("vector_registers").get<int>()));
  // Features wrap at the width of a page.
  std::string row;
  for (const json& feature : cpu.at("features")) {
    const auto name = feature.get<std::string>();
    if (row.size() + name.size() + 1 > 100) {
      text += line(text.find("\nfeatures") == std::string::npos ? "features" : "", row);
      row.clear();
    }
    row += (row.empty() ? "" : " ") + name;
  }
  text += line(text.find("\nfeatures") == std::string::npos ? "features" : "", row);
  const int limit = cpus.at("cgroup_limit");
  text += line("CPUs", fmt::format("{} online, {} by affinity, {}; {} usable, {} threads a session; load {:.1f}",
                                   cpus.at("online").get<int>(), cpus.at("affinity").get<int>(),
                                   limit > 0 ? fmt::format("{} by cgroup", limit) : std::string("no cgroup limit"),
                                   cpus.at("usable").get<int>(), cpus.at("default_threads").get<int>(),
                                   cpus.at("load").get<double>()));
  const auto binary = [](int64_t bytes) {
    return bytes >= 1 << 20 ? fmt::format("{} MiB", bytes >> 20) : fmt::format("{} KiB", bytes >> 10);
  };
  text += line("caches", fmt::format("L1 {}, L2 {}, L3 {}", binary(caches.at("l1")), binary(caches.at("l2")),
                                     binary(caches.at("l3"))));
  const std::string pages = machine.at("memory").at("huge_pages");
  text += line("memory", fmt::format("{}{}", bytes_text(machine.at("memory").at("bytes").get<double>()),
                                     pages.empty() ? "" : ", huge pages: " + pages));
  text += line("cache folder",
               cache.at("enabled")
                   ? fmt::format("{}: {} modules, {} of at most {}", cache.at("folder").get<std::string>(),
                                 cache.at("modules").get<int64_t>(), bytes_text(cache.at("bytes").get<double>()),
                                 bytes_text(cache.at("capacity_bytes").get<double>()))
                   : std::string("off"));
  for (const auto& [name, value] : machine.at("environment").items())
    text += line("environment", fmt::format("{}={}", name, value.get<std::string>()));

  using Align = TextTable::Align;
  const json& peaks = machine.at("peaks");
  const std::string all = fmt::format("{} threads", peaks.at("threads").get<int>());
  TextTable arithmetic({{"measured peak"}, {"instructions"}, {"1 thread", Align::kRight}, {all, Align::kRight}, {""}});
  for (const json& peak : peaks.at("arithmetic")) {
    arithmetic.add({peak.at("name").get<std::string>(), peak.at("instructions").get<std::string>(),
                    fmt::format("{:.1f}", peak.at("one_thread_gops").get<double>()),
                    fmt::format("{:.1f}", peak.at("all_threads_gops").get<double>()), "G operations/s"});
  }
  TextTable bandwidth({{"measured reading"},
                       {"holds", Align::kRight},
                       {"for", Align::kRight},
                       {"bytes read", Align::kRight},
                       {"1 thread", Align::kRight},
                       {all, Align::kRight},
                       {""}});
  for (const json& level : peaks.at("bandwidth")) {
    bandwidth.add({level.at("name").get<std::string>(), level.contains("capacity") ? binary(level.at("capacity")) : "",
                   level.contains("keeps_ms") ? fmt::format("{:g} ms", level.at("keeps_ms").get<double>()) : "",
                   binary(level.at("working_set")), fmt::format("{:.1f}", level.at("one_thread_gbytes").get<double>()),
                   fmt::format("{:.1f}", level.at("all_threads_gbytes").get<double>()), "GB/s"});
  }
  text += "\n" + arithmetic.to_string(style) + "\n" + bandwidth.to_string(style);
  if (!machine.at("warnings").empty()) text += "\n";
  for (const json& warning : machine.at("warnings"))
    text += painted("warning:", "33", style) + " " + warning.get<std::string>() + "\n";
  return text;
}

}  // namespace tessera::inline driver
