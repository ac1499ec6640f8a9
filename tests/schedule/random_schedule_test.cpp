// Any schedule that is not refused computes what the program did: random primitives on the naive loops of many
// operators, in the interpreter (which also reports what is read before it is stored to, and what is outside of its
// buffer), now and then as compiled code. The trace of each reads back and replays to the same program.
// TESSERA_TEST_CASES: schedules per operator; TESSERA_TEST_SEED: others; TESSERA_TEST_KERNEL: one operator alone;
// TESSERA_TEST_NATIVE: one schedule of so many is compiled, too, for an instruction set that this machine runs.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

#include "codegen_harness.h"
#include "device/thread_form.h"
#include "interp/thread_interp.h"
#include "loop/parser.h"
#include "loop/printer.h"
#include "loop_passes/pass.h"
#include "random_schedule.h"
#include "schedule/primitives/trace.h"
#include "support/error.h"

namespace tessera {
namespace {

int64_t from_environment(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::atoll(text) : otherwise;
}

// Empty, or where `got` is not `want`. Schedules change the order of sums, whose rounding errors are as large as their
// terms, while results may cancel: where the bound on results is missed, one of what the kernel makes of the inputs'
// magnitudes counts, too.
std::string disagreement(const LoopProgram& original, const std::vector<Tensor>& inputs, const std::vector<Tensor>& got,
                         const std::vector<Tensor>& want) {
  constexpr double kTolerance = 5e-5;
  for (size_t i = 0; i < want.size(); ++i) {
    const std::string d = difference(got[i], want[i], kTolerance);
    if (d.empty()) continue;
    if (!is_float(want[i].dtype())) return "output " + std::to_string(i) + ": " + d;
    std::vector<Tensor> magnitudes;  // of their own: copies of a tensor share its elements
    for (const Tensor& input : inputs) {
      Tensor& magnitude = magnitudes.emplace_back(input.dtype(), input.dims());
      for (int64_t j = 0; j < input.num_elements(); ++j) magnitude.set_double(j, std::fabs(input.get_double(j)));
    }
    const Tensor bound = run_interpreted(original, magnitudes)[i];
    double scale = 0;
    for (int64_t j = 0; j < bound.num_elements(); ++j) scale = std::max(scale, std::fabs(bound.get_double(j)));
    for (int64_t j = 0; j < want[i].num_elements(); ++j)
      if (!(std::fabs(got[i].get_double(j) - want[i].get_double(j)) <= kTolerance * scale))
        return "output " + std::to_string(i) + ": " + d;
  }
  return "";
}

// Iterations of concurrent loops may run in any order: those of another one would not give the same where they are not
// independent, which two threads seldom show.
LoopProgram with_concurrent_loops_reversed(LoopProgram program) {
  program.body = transform(program.body, nullptr, [](const Stmt& s) -> Stmt {
    if (s->kind != StmtKind::kFor || !is_concurrent(s->for_kind)) return {};
    const Expr last_first = s->begin + (s->begin + s->extent - Expr(1) - s->var);
    return for_loop(s->var, s->begin, s->extent, s->for_kind, substitute(s->stmts[0], {{s->var.get(), last_first}}));
  });
  return program;
}

// How often bodies of innermost loops run, at most. Splits of few iterations into many make programs that mostly skip.
double iterations(const Stmt& s) {
  if (s->kind == StmtKind::kStore) return 1;
  double sum = 0;
  for (const Stmt& child : s->stmts) sum += iterations(child);
  return s->kind == StmtKind::kFor ? sum * static_cast<double>(as_int(s->extent).value_or(1)) : sum;
}

int threaded = 0;                            // cases that ran as threads
constexpr double kMostOfThreads = 1 << 15;   // of the interpreter of threads, which is slower
constexpr double kMostIterations = 1 << 22;  // about a second of the interpreter

bool has_threads(const LoopProgram& program) {
  bool found = false;
  walk(
      program.body, [&](const Stmt& s) { found = found || (s->kind == StmtKind::kFor && is_thread_axis(s->for_kind)); },
      nullptr);
  return found;
}

// Empty, or what is wrong when the program's threads run in some order.
std::string run_threads(const LoopProgram& original, const LoopProgram& scheduled, const std::vector<Tensor>& inputs,
                        const std::vector<Tensor>& want) {
  const DeviceKernel form = thread_form(scheduled);
  if (!form.problem.empty()) return "";
  for (const ThreadOrder order : {ThreadOrder::kForwards, ThreadOrder::kBackwards, ThreadOrder::kShuffled}) {
    std::vector<Tensor> values = inputs;
    for (const Tensor& result : want) values.emplace_back(result.dtype(), result.dims());
    std::vector<Tensor*> params;
    for (Tensor& value : values) params.push_back(&value);
    interpret_threads(scheduled, form, params, order);
    const std::vector<Tensor> got(values.end() - std::ssize(want), values.end());
    if (const std::string d = disagreement(original, inputs, got, want); !d.empty()) return "as threads, " + d;
  }
  return "";
}

// Empty, or what is wrong with the schedule of that seed.
std::string run_case(const LoopProgram& original, uint64_t seed, bool native, PrimitiveCounts& counts, int& steps) {
  std::mt19937_64 random(seed);
  Schedule schedule(original);
  try {
    steps = apply_random(schedule, 12 + static_cast<int>(random() % 20), random, &counts);
    if (iterations(schedule.program().body) > kMostIterations) {
      steps = 0;
      return "";
    }
    const std::string trace = schedule.trace();
    const std::string text = print(schedule.program());
    const std::string context = "\n" + trace + text;
    const std::vector<TraceStep> read = parse_trace(trace);
    if (print_trace(read) != trace)
      return "the trace prints differently after it was read:\n" + print_trace(read) + context;
    Schedule again(original);
    replay(again, read);
    if (print(again.program()) != text) return "the replayed program differs:\n" + print(again.program()) + context;
    if (print(parse_loop_program(text)) != text) return "the program's text does not read back" + context;
    const std::vector<Tensor> inputs = random_inputs(original, static_cast<uint32_t>(seed));
    const std::vector<Tensor> want = run_interpreted(original, inputs);
    try {
      const std::vector<Tensor> got = run_interpreted(schedule.program(), inputs);
      if (const std::string d = disagreement(original, inputs, got, want); !d.empty()) return d + context;
      const std::vector<Tensor> backwards = run_interpreted(with_concurrent_loops_reversed(schedule.program()), inputs);
      if (const std::string d = disagreement(original, inputs, backwards, want); !d.empty())
        return "concurrent loops run backwards, " + d + context;
      if (has_threads(schedule.program()) && iterations(schedule.program().body) < kMostOfThreads) {
        ++threaded;
        if (const std::string d = run_threads(original, schedule.program(), inputs, want); !d.empty())
          return d + context;
      }
      if (!native) return "";
      try {
        schedule.check_finished();
      } catch (const UserError&) {
        return "";
      }
      LoopProgram lowered = schedule.program();
      const std::vector<std::string>& targets = runnable_targets();
      const Target target = parse_target(targets[random() % targets.size()]);
      for (const LoopPass& pass : loop_pipeline()) lowered = pass.run(lowered, {target, 3});
      const NativeModule module(program_of(lowered), target);
      HostOptions host;
      host.threads = 2;
      const std::vector<Tensor> compiled = module.run(inputs, host);
      if (const std::string d = disagreement(original, inputs, compiled, want); !d.empty())
        return "compiled, " + d + context;
    } catch (const InternalError& error) {
      return std::string("running: ") + error.what() + context;
    }
  } catch (const std::exception& error) {
    return std::string(error.what()) + "\n" + schedule.trace() + print(schedule.program());
  }
  return "";
}

constexpr double kSlowSeconds = 10;  // a case that takes longer is named, for whoever looks for what is slow

TEST(RandomSchedules, KeepWhatEveryOperatorComputes) {
  const int64_t cases = from_environment("TESSERA_TEST_CASES", 12);
  const auto seed = static_cast<uint64_t>(from_environment("TESSERA_TEST_SEED", 1));
  const auto native = static_cast<uint64_t>(std::max<int64_t>(from_environment("TESSERA_TEST_NATIVE", 8), 1));
  PrimitiveCounts counts;
  std::vector<std::filesystem::path> files;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(TESSERA_SOURCE_DIR) + "/tests/schedule/kernels"))
    files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  ASSERT_GE(files.size(), 15u);
  if (const char* only = std::getenv("TESSERA_TEST_KERNEL")) {
    std::erase_if(files, [&](const std::filesystem::path& file) { return file.stem() != only; });
    ASSERT_EQ(files.size(), 1u) << only;
  }
  int failures = 0;
  for (const auto& file : files) {
    std::ifstream stream(file);
    std::stringstream text;
    text << stream.rdbuf();
    const std::vector<LoopProgram> kernels = parse_loop_programs(text.str(), file.string());
    int64_t legal = 0, total_steps = 0;
    for (uint64_t n = 0; legal < cases; ++n) {
      ASSERT_LT(n, static_cast<uint64_t>(cases) * 20 + 100) << file << ": too few schedules are legal";
      int steps = 0;
      const uint64_t case_seed = seed * 1000003 + n;
      const LoopProgram& kernel = kernels[n % kernels.size()];
      const auto begin = std::chrono::steady_clock::now();
      const std::string problem = run_case(kernel, case_seed, n % native == 0, counts, steps);
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
      if (took.count() > kSlowSeconds)
        std::cout << file.stem().string() << " " << kernel.name << ", seed " << case_seed << " took " << took.count()
                  << " s" << std::endl;
      if (!problem.empty()) {
        ADD_FAILURE() << file.stem() << " " << kernel.name << ", seed " << case_seed << ": " << problem
                      << "\noriginal:\n"
                      << print(kernel);
        if (++failures > 3) return;
        break;
      }
      legal += steps > 0;
      total_steps += steps;
    }
    std::cout << file.stem().string() << ": " << legal << " schedules, " << total_steps << " primitives" << std::endl;
  }
  std::cout << "  as threads: " << threaded << " schedules\n";
  for (const auto& [name, count] : counts)
    std::cout << "  " << name << ": " << count.second << " of " << count.first << " taken\n";
  if (failures == 0 && cases >= 60 && files.size() > 1) {
    for (const auto& [name, count] : counts)
      EXPECT_GT(count.second, 0) << name << " was never taken: the test does not see it";
  }
}

}  // namespace
}  // namespace tessera
