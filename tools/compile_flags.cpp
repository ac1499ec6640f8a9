#include "compile_flags.h"

#include <charconv>
#include <iostream>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "driver/compile.h"
#include "flag_use.h"
#include "support/error.h"
#include "tune/tuned_kernels.h"

namespace tessera {

namespace {

[[noreturn]] void fail(const std::string& flag, const std::string& text, const std::string& legal) {
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
  if (at == std::string::npos || at == 0 || at + 1 == text.size()) fail(flag, text, legal);
  return {text.substr(0, at), text.substr(at + 1)};
}

DimBounds parse_dim(const std::string& text, std::string& name) {
  constexpr char kLegal[] = "NAME=VALUE, NAME=LOW..HIGH or NAME=LOW..HIGH:STEP, with 1 <= LOW <= HIGH and 1 <= STEP";
  const auto [left, right] = split_at_last_equals("--dim", text, kLegal);
  name = left;
  const size_t dots = right.find("..");
  const size_t colon = dots == std::string::npos ? right.size() : std::min(right.find(':', dots), right.size());
  DimBounds bounds;
  bounds.lo = parse_count(right.substr(0, dots));
  bounds.hi = dots == std::string::npos ? bounds.lo : parse_count(right.substr(dots + 2, colon - dots - 2));
  if (colon < right.size()) bounds.step = parse_count(right.substr(colon + 1));
  if (bounds.lo < 1 || bounds.hi < bounds.lo || bounds.step < 1 || bounds.step > UINT32_MAX)
    fail("--dim", text, kLegal);
  return bounds;
}

std::vector<int64_t> parse_shape(const std::string& text, std::string& name) {
  constexpr char kLegal[] = "INPUT=1x3x224x224: whole numbers with 'x' between them";
  const auto [left, right] = split_at_last_equals("--shape", text, kLegal);
  name = left;
  std::vector<int64_t> dims;
  for (size_t begin = 0; begin <= right.size();) {
    const size_t end = std::min(right.find('x', begin), right.size());
    dims.push_back(parse_count(right.substr(begin, end - begin)));
    if (dims.back() < 0) fail("--shape", text, kLegal);
    begin = end + 1;
  }
  return dims;
}

}  // namespace

void add_compile_flags(CLI::App& app, CompileFlags& flags) {
  const std::string group = "Compiling";
  app.add_option("-O", flags.opt_level, "Optimisation level: 0 to 3")
      ->capture_default_str()
      ->type_name("LEVEL")
      ->group(group);
  app.add_option("--target", flags.target,
                 "native, x86-64-v2, x86-64-v3, x86-64-v4, or TRIPLE[,cpu=NAME][,+feature][,-feature]")
      ->capture_default_str()
      ->type_name("TARGET")
      ->group(group);
  app.add_option("--threads", flags.threads,
                 "Threads to compile for and to run on; 0: TESSERA_NUM_THREADS, OMP_NUM_THREADS, or the CPUs at hand")
      ->check(CLI::Range(0, kMostThreads))
      ->type_name("N")
      ->group(group);
  app.add_option("--precision", flags.precision,
                 "f32, bf16 or f16: what convolutions and products with weights read; they sum in f32")
      ->capture_default_str()
      ->type_name("TYPE")
      ->group(group);
  app.add_option("--fp32", flags.fp32,
                 "fma, pieces or auto: f32 products with weights by multiply-adds or as six products of pieces of bf16")
      ->capture_default_str()
      ->type_name("WAY")
      ->group(group);
  app.add_option("--dim", flags.dims,
                 "Value or range of a dimension that the model leaves open, by its name, or INPUT[AXIS]")
      ->allow_extra_args(false)
      ->type_name("NAME=V|LO..HI[:STEP]")
      ->group(group);
  app.add_option("--shape", flags.shapes, "Shape of an input whose dimensions the model leaves open")
      ->allow_extra_args(false)
      ->type_name("INPUT=1x3x640x640")
      ->group(group);
  app.add_option("--disable-pass", flags.disabled_passes,
                 "Leave out a pass or a schedule rule (may be given several times)")
      ->allow_extra_args(false)
      ->type_name("PASS")
      ->group(group);
  app.add_option(
         "--kernel", flags.kernels,
         "Declares C functions that stand for kernels of the model where they are faster (several times: several)")
      ->allow_extra_args(false)
      ->type_name("FILE")
      ->group(group);
  app.add_option("--db", flags.db,
                 "Tuning records; kernels that 'tessera tune' has tuned for this machine run as found there")
      ->type_name("FILE")
      ->group(group);
  app.add_option("--pass-limit", flags.max_applications,
                 "Leave out every optional pass, rule and optimisation behind the first N; see 'tessera bisect'")
      ->check(CLI::Range(int64_t{0}, INT64_MAX - 1))
      ->type_name("N")
      ->group(group);
  app.add_option("--print-ir-after", flags.print_ir_after, "Print the program after a pass, or after all, to stderr")
      ->type_name("PASS|all")
      ->group(group);
  app.add_option("--save-temps", flags.save_temps, "Folder for the program after every pass and the object code")
      ->type_name("DIR")
      ->group(group);
  app.add_flag("--time-passes", flags.time_passes, "Print how long each step took, to stderr")->group(group);
  app.add_flag("--verify-each", flags.verify_each, "Verify the program after every pass")->group(group);
}

void add_time_limit_flag(CLI::App& app, CompileFlags& flags) {
  app.add_option("--max-compile-time", flags.max_seconds, "Give up with an error when compiling takes longer")
      ->check(CLI::Range(0.001, 1e6))
      ->type_name("SECONDS")
      ->group("Compiling");
}

std::string time_report(const CompileFlags& flags, const std::vector<StepTime>& times) {
  return flags.time_passes ? time_table(times) : "";
}

DriverOptions driver_options(const CompileFlags& flags, FlagUse* use) {
  DriverOptions options;
  options.compile.opt_level = flags.opt_level;
  options.compile.target = flags.target;
  options.compile.num_threads = flags.threads;
  options.compile.precision = flags.precision;
  options.compile.fp32 = flags.fp32;
  std::string name;
  for (const std::string& text : flags.dims) {
    const DimBounds bounds = parse_dim(text, name);
    options.compile.dims[name] = bounds;
  }
  for (const std::string& text : flags.shapes) {
    std::vector<int64_t> shape = parse_shape(text, name);
    options.compile.shapes[name] = std::move(shape);
  }
  options.compile.disabled_passes.insert(flags.disabled_passes.begin(), flags.disabled_passes.end());
  options.compile.kernels = flags.kernels;
  options.max_applications = flags.max_applications;
  if (!flags.db.empty()) {
    TunedKernels tuned = tuned_kernels(flags.db, resolve_target(options.compile));
    if (use) use->begin(tuned);
    options.tuned = std::move(tuned.choose);
    options.tuned_graph = std::move(tuned.graph);
    options.tuned_digest = std::move(tuned.digest);
  }
  options.runner.verify_each = flags.verify_each;
  options.runner.print_ir_after = flags.print_ir_after;
  options.runner.ir_stream = &std::cerr;
  options.runner.save_temps = flags.save_temps;
  if (use) use->watch(options);
  return options;
}

}  // namespace tessera
