#include "compile_flags.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iostream>
#include <optional>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "diagnose/inspect.h"
#include "driver/compile.h"
#include "flag_use.h"
#include "support/error.h"
#include "support/refuse.h"
#include "tune/tuned_kernels.h"
#include "types/precision_plan.h"

namespace tessera {

namespace {

[[noreturn]] void fail_to_read(const std::string& flag, const std::string& text, const std::string& legal) {
  throw UserError({.id = "TSR-4022",
                   .message = fmt::format("{} '{}' cannot be read", flag, text),
                   .node = {},
                   .legal = legal,
                   .hint = {}});
}

// A whole positive number, or -1.
int64_t parse_count(std::string_view text) {
  int64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && stop == text.data() + text.size() && value >= 0 ? value : -1;
}

// Names may hold '=' (exporters write such things), values never do.
std::pair<std::string, std::string> split_at_last_equals(const std::string& flag, const std::string& text,
                                                         const std::string& legal) {
  const size_t at = text.rfind('=');
  if (at == std::string::npos || at == 0 || at + 1 == text.size()) fail_to_read(flag, text, legal);
  return {text.substr(0, at), text.substr(at + 1)};
}

// VALUE, LOW..HIGH or LOW..HIGH:STEP, from 0 on: caches begin empty.
std::optional<DimBounds> parse_bounds(const std::string& text) {
  const size_t dots = text.find("..");
  const size_t colon = dots == std::string::npos ? text.size() : std::min(text.find(':', dots), text.size());
  DimBounds bounds;
  bounds.lo = parse_count(text.substr(0, dots));
  bounds.hi = dots == std::string::npos ? bounds.lo : parse_count(text.substr(dots + 2, colon - dots - 2));
  if (colon < text.size()) bounds.step = parse_count(text.substr(colon + 1));
  if (bounds.lo < 0 || bounds.hi < bounds.lo) return std::nullopt;
  if (bounds.step < 1 || bounds.step > UINT32_MAX) return std::nullopt;
  return bounds;
}

DimBounds parse_dim(const std::string& text, std::string& name) {
  constexpr char kLegal[] = "NAME=VALUE, NAME=LOW..HIGH or NAME=LOW..HIGH:STEP, with 0 <= LOW <= HIGH and 1 <= STEP";
  const auto [left, right] = split_at_last_equals("--dim", text, kLegal);
  name = left;
  const std::optional<DimBounds> bounds = parse_bounds(right);
  if (!bounds) fail_to_read("--dim", text, kLegal);
  return *bounds;
}

// Without a range the shape goes to options.shapes, with one each of its dimensions to options.dims.
void parse_shape(const std::string& text, CompileOptions& options) {
  constexpr char kLegal[] = "INPUT=1x3x224x224: whole numbers or ranges LOW..HIGH[:STEP] with 'x' between them";
  const auto [name, right] = split_at_last_equals("--shape", text, kLegal);
  std::vector<DimBounds> dims;
  for (size_t begin = 0; begin <= right.size();) {
    const size_t end = std::min(right.find('x', begin), right.size());
    const std::optional<DimBounds> bounds = parse_bounds(right.substr(begin, end - begin));
    if (!bounds) fail_to_read("--shape", text, kLegal);
    dims.push_back(*bounds);
    begin = end + 1;
  }
  if (std::all_of(dims.begin(), dims.end(), [](const DimBounds& dim) { return dim.lo == dim.hi; })) {
    std::vector<int64_t>& shape = options.shapes[name];
    shape.clear();
    for (const DimBounds& dim : dims) shape.push_back(dim.lo);
    return;
  }
  for (size_t axis = 0; axis < dims.size(); ++axis) options.dims[fmt::format("{}[{}]", name, axis)] = dims[axis];
}

}  // namespace

void add_compile_flags(CLI::App& app, CompileFlags& flags) {
  const std::string group = "Compiling";
  flags.app = &app;
  app.add_option("-O", flags.opt_level, "Optimisation level: 0 to 3")
      ->capture_default_str()
      ->type_name("LEVEL")
      ->group(group);
  app.add_option(
         "--target", flags.target,
         "native, x86-64-v2, x86-64-v3, x86-64-v4, or TRIPLE[,cpu=NAME][,+feature][,-feature]; opencl: what a GPU can "
         "run runs there; UNIT.json: what the accelerator can that this file describes runs there")
      ->capture_default_str()
      ->type_name("TARGET")
      ->group(group);
  app.add_option("--threads", flags.threads,
                 "Threads to compile for and to run on; 0: TESSERA_NUM_THREADS, OMP_NUM_THREADS, or the CPUs at hand")
      ->check(CLI::Range(0, kMostThreads))
      ->type_name("N")
      ->group(group);
  app.add_option(
         "--precision", flags.precision,
         "f32, bf16 or f16: what convolutions and products with weights read; they sum in f32. i8: what products with "
         "weights in blocks read")
      ->capture_default_str()
      ->type_name("TYPE")
      ->group(group);
  app.add_option("--per-layer", flags.per_layer,
                 "A file with a pattern of layers and f32, bf16, f16 or i8 on each line: what these have instead")
      ->type_name("FILE")
      ->group(group);
  app.add_option("--keep-f32", flags.keep_f32,
                 "A layer that reads f32 whatever --precision says, by its name; * and ? stand for other characters")
      ->allow_extra_args(false)
      ->type_name("PATTERN")
      ->group(group);
  app.add_option("--fp32", flags.fp32,
                 "fma, pieces or auto: f32 products with weights by multiply-adds or as six products of pieces of bf16")
      ->capture_default_str()
      ->type_name("WAY")
      ->group(group);
  app.add_option("--numerics", flags.numerics,
                 "default, strict or deterministic: what may happen to the bits of results")
      ->capture_default_str()
      ->type_name("WHICH")
      ->group(group);
  app.add_flag_callback(
         "--deterministic", [&flags] { flags.numerics = "deterministic"; },
         "The same bits on every machine and for every number of threads: --numerics deterministic")
      ->group(group);
  app.add_option("--dim", flags.dims,
                 "Value or range of a dimension that the model leaves open, by its name, or INPUT[AXIS]")
      ->allow_extra_args(false)
      ->type_name("NAME=V|LO..HI[:STEP]")
      ->group(group);
  app.add_option(
         "--shape", flags.shapes,
         "Shape of an input whose dimensions the model leaves open; a dimension may be a range: 1x3x32..960:32x640")
      ->allow_extra_args(false)
      ->type_name("INPUT=1x3x640x640")
      ->group(group);
  app.add_option(
         "--kernel", flags.kernels,
         "Declares C functions that stand for kernels of the model where they are faster (several times: several)")
      ->allow_extra_args(false)
      ->type_name("FILE")
      ->group(group);
  app.add_option(
         "--place", flags.places,
         "Run the kernels of nodes whose names match a pattern on a device: '*=null', 'Conv_*=unit.json' (several "
         "times: the first that fits)")
      ->allow_extra_args(false)
      ->type_name("PATTERN=DEVICE")
      ->group(group);
  app.add_option(
         "--variants", flags.variants,
         "Further targets that the module gets code for, of which the runtime takes the best one that its machine "
         "can run: x86-64-v2,x86-64-v4")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("TARGET,..")
      ->group(group);
  app.add_option("--max-memory", flags.max_memory,
                 "What a session may take for what it computes and for states, as 300M; what does not fit is computed "
                 "again when it is needed")
      ->transform(CLI::AsSizeValue(true))
      ->check(CLI::Range(int64_t{1}, INT64_MAX / 2))
      ->type_name("BYTES")
      ->group(group);
  app.add_option("--db", flags.db,
                 "Tuning records; kernels that 'tessera tune' has tuned for this machine run as found there")
      ->type_name("FILE")
      ->group(group);
  app.add_option("--disable-pass", flags.disabled_passes,
                 "Leave out a pass or a schedule rule (may be given several times)")
      ->allow_extra_args(false)
      ->type_name("PASS")
      ->group(kInsideGroup);
  app.add_option("--pass-limit", flags.max_applications,
                 "Leave out every optional pass, rule and optimisation behind the first N; see 'tessera bisect'")
      ->check(CLI::Range(int64_t{0}, INT64_MAX - 1))
      ->type_name("N")
      ->group(kInsideGroup);
  app.add_option("--print-ir-after", flags.print_ir_after, "Print the program after a pass, or after all, to stderr")
      ->type_name("PASS|all")
      ->group(kInsideGroup);
  app.add_option("--save-temps", flags.save_temps, "Folder for the program after every pass and the object code")
      ->type_name("DIR")
      ->group(kInsideGroup);
  app.add_flag("--time-passes", flags.time_passes, "Print how long each step took, to stderr")->group(kInsideGroup);
  app.add_flag("--verify-each", flags.verify_each, "Verify the program after every pass")->group(kInsideGroup);
}

void add_fixed_size_flags(CLI::App& app, CompileFlags& flags) {
  app.add_option("--dim", flags.dims, "Value of a dimension that the model leaves open, by its name, or INPUT[AXIS]")
      ->allow_extra_args(false)
      ->type_name("NAME=V");
  app.add_option("--shape", flags.shapes, "Shape of an input whose dimensions the model leaves open")
      ->allow_extra_args(false)
      ->type_name("INPUT=1x3x640x640");
}

void add_time_limit_flag(CLI::App& app, CompileFlags& flags) {
  app.add_option("--max-compile-time", flags.max_seconds, "Give up with an error when compiling takes longer")
      ->check(CLI::Range(0.001, 1e6))
      ->type_name("SECONDS")
      ->group("Compiling");
}

std::vector<std::string> given_compile_flags(const CompileFlags& flags) {
  // What a run follows as well.
  constexpr std::string_view kOfRuns[] = {"--threads", "--dim", "--shape", "--max-compile-time"};
  std::vector<std::string> names;
  for (const CLI::Option* option : flags.app->get_options()) {
    const std::string name = option->get_name();
    const bool compiles = option->get_group() == "Compiling" || option->get_group() == kInsideGroup;
    if (compiles && option->count() > 0 && std::ranges::find(kOfRuns, name) == std::end(kOfRuns)) names.push_back(name);
  }
  return names;
}

void refuse_compile_flags(const CompileFlags& flags, const std::string& module) {
  const std::vector<std::string> names = given_compile_flags(flags);
  if (names.empty()) return;
  const nlohmann::json inspection = inspect_module(module);
  const nlohmann::json& options = inspection.at("options");
  const std::string legal =
      fmt::format("this module was compiled with -O{} {} for {}", options.value("opt-level", "?"),
                  options.value("precision", "f32"),
                  inspection.at("target").value("cpu", inspection.at("target").at("triple").get<std::string>()));
  throw UserError({.id = "TSR-4060",
                   .message = fmt::format("{} belong{} to compile: '{}' is compiled already", fmt::join(names, ", "),
                                          names.size() == 1 ? "s" : "", module),
                   .node = {},
                   .legal = legal,
                   .hint = "leave the option out, or give the ONNX model"});
}

std::string time_report(const CompileFlags& flags, const std::vector<StepTime>& times) {
  return flags.time_passes ? time_table(times) : "";
}

std::string per_layer_text(const CompileFlags& flags) {
  if (flags.per_layer.empty()) return "";
  std::ifstream file(flags.per_layer, std::ios::binary);
  if (!file) refuse("TSR-6211", fmt::format("'{}' cannot be read", flags.per_layer), "a file");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

namespace {

// The file's lines, and behind them what is kept.
std::vector<std::string> layer_lines(const CompileFlags& flags) {
  const std::string text = per_layer_text(flags);
  const PrecisionPlan plan(text, flags.per_layer);  // refuses its lines by their numbers
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; !plan.empty() && std::getline(stream, line);) lines.push_back(line);
  for (const std::string& pattern : flags.keep_f32) lines.push_back(pattern + " f32");
  return lines;
}

}  // namespace

DriverOptions driver_options(const CompileFlags& flags, FlagUse* use) {
  DriverOptions options;
  options.compile.opt_level = flags.opt_level;
  options.compile.target = flags.target;
  options.compile.num_threads = flags.threads;
  options.compile.precision = flags.precision;
  options.compile.layer_precisions = layer_lines(flags);
  options.compile.fp32 = flags.fp32;
  options.compile.numerics = flags.numerics;
  std::string name;
  for (const std::string& text : flags.dims) {
    const DimBounds bounds = parse_dim(text, name);
    options.compile.dims[name] = bounds;
  }
  for (const std::string& text : flags.shapes) parse_shape(text, options.compile);
  options.compile.disabled_passes.insert(flags.disabled_passes.begin(), flags.disabled_passes.end());
  options.compile.kernels = flags.kernels;
  options.compile.places = flags.places;
  options.compile.variants = flags.variants;
  options.compile.max_memory = flags.max_memory;
  options.max_applications = flags.max_applications;
  if (!flags.db.empty()) {
    TunedKernels tuned = tuned_kernels(flags.db, resolve_target(options.compile), fp32_of(options.compile));
    if (use) use->begin(tuned);
    options.decisions = std::move(tuned.decisions);
  }
  options.runner.verify_each = flags.verify_each;
  options.runner.print_ir_after = flags.print_ir_after;
  options.runner.ir_stream = &std::cerr;
  options.runner.save_temps = flags.save_temps;
  if (use) options.observers.add(*use);
  return options;
}

}  // namespace tessera
