#include "schedule/sketches/sketch.h"

#include <algorithm>
#include <chrono>
#include <set>

#include <fmt/format.h>

#include "schedule/dynamic/dynamic_tiles.h"
#include "schedule/primitives/trace.h"
#include "schedule/sketches/sketch_program.h"
#include "support/error.h"

namespace tessera::inline schedule {
namespace {

constexpr size_t kMostText = 32 << 10, kMostTracesSteps = 300;
constexpr int64_t kMostStatements = 100;
constexpr std::string_view kHeader = "// ";
constexpr int kAttempts = 24;  // for one draw that no primitive refuses and whose tile fits the registers

bool is_sketch_name(std::string_view text) {
  return text.size() > 1 && text.size() < 64 &&
         std::all_of(
             text.begin(), text.end(),
             [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.'; });
}

int64_t count_statements(const Stmt& s) {
  int64_t count = 1;
  for (const Stmt& child : s->stmts) count += count_statements(child);
  return count;
}

[[noreturn]] void refuse_step(const TraceStep& step, const std::string& what) {
  throw UserError({.id = "TSR-3413",
                   .message = fmt::format("'{}' leaves {}", to_string(step), what),
                   .node = step.position,
                   .legal = {},
                   .hint = {}});
}

// The whole trace on the kernel; UserError when it is refused. What is drawn at random may not take more registers than
// there are, which is known long before the end.
Schedule replayed(const std::vector<TraceStep>& steps, const TensorProgram& kernel, const Target& target,
                  std::mt19937_64* random) {
  Schedule schedule = sketch_schedule(kernel, target);
  schedule.verify_each = !random;  // a point that was drawn is applied before anybody uses it
  Replayer replayer(schedule, random);
  for (const TraceStep& step : steps) {
    replayer.apply(step);
    if (count_statements(schedule.program().body) > kMostStatements)
      refuse_step(step, fmt::format("more than {} statements", kMostStatements));
    if (random && step.primitive == "store_at" && register_vectors(schedule, target) > target.vector_registers())
      refuse_step(step, fmt::format("more vectors of sums than the {} registers", target.vector_registers()));
  }
  schedule.check_finished();
  return schedule;
}

std::string reason_of(const UserError& error) {
  const Diagnostic& d = error.diagnostic();
  return d.node.empty() ? d.message : d.node + ": " + d.message;
}

// The steps with their names and, where the schedule drew, decisions.
std::vector<TraceStep> decided(std::vector<TraceStep> steps, const Schedule& schedule) {
  for (size_t i = 0; i < steps.size(); ++i)
    if (is_sampling(steps[i])) steps[i].decision = schedule.steps()[i].decision;
  return steps;
}

// One point from steps of which some are not decided; attempts differ by what is drawn for those.
std::optional<KnobPoint> drawn(const std::string& name, const std::vector<TraceStep>& steps,
                               const TensorProgram& kernel, const Target& target, std::mt19937_64& random,
                               std::string& why) {
  constexpr double kMostWork = 4;
  constexpr std::chrono::milliseconds kMostTime{500};  // behind which there is no other attempt
  const auto begin = std::chrono::steady_clock::now();
  const double work = executed_stores(sketch_schedule(kernel, target).program());
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    if (attempt > 0 && std::chrono::steady_clock::now() - begin > kMostTime) break;
    try {
      const Schedule schedule = replayed(steps, kernel, target, &random);
      if (why = sketch_objection(schedule, target); !why.empty()) continue;
      if (executed_stores(schedule.program()) > kMostWork * work) {
        why = "a stage is computed far too often";
        continue;
      }
      return trace_point(name, decided(steps, schedule));
    } catch (const UserError& error) {
      why = reason_of(error);
    }
  }
  return std::nullopt;
}

// A prime factor moved from one level to another.
void move_factor(std::vector<int64_t>& factors, std::mt19937_64& random) {
  std::vector<size_t> from;
  for (size_t i = 0; i < factors.size(); ++i)
    if (factors[i] > 1) from.push_back(i);
  if (from.empty()) return;
  const size_t i = from[random() % from.size()];
  size_t j = random() % (factors.size() - 1);
  if (j >= i) ++j;
  std::vector<int64_t> primes;
  int64_t rest = factors[i];
  for (int64_t p = 2; rest > 1; p = p * p > rest ? rest : p + 1)
    while (rest % p == 0) {
      primes.push_back(p);
      rest /= p;
    }
  const int64_t prime = primes[random() % primes.size()];
  factors[i] /= prime;
  factors[j] *= prime;
}

void mutate_step(TraceStep& step, std::mt19937_64& random) {
  if (step.primitive == "sample_perfect_tile") {
    if (random() % 4 == 0) step.decision.clear();
    else move_factor(step.decision, random);
    return;
  }
  if (step.primitive == "sample_categorical") {
    const std::vector<TraceArg>& list = step.args[0].list;
    const auto at = static_cast<size_t>(
        std::find_if(list.begin(), list.end(), [&](const TraceArg& a) { return a.number == step.decision[0]; }) -
        list.begin());
    // Mostly a neighbour: numbers have an order.
    if (random() % 2 == 0 && at < list.size() && list.size() > 1) {
      const bool up = at == 0 || (at + 1 < list.size() && random() % 2 == 0);
      step.decision[0] = list[up ? at + 1 : at - 1].number;
    } else {
      step.decision.clear();
    }
    return;
  }
  step.decision.clear();
}

std::vector<size_t> sampling_steps(const std::vector<TraceStep>& steps) {
  std::vector<size_t> result;
  for (size_t i = 0; i < steps.size(); ++i)
    if (is_sampling(steps[i])) result.push_back(i);
  return result;
}

}  // namespace

KnobPoint trace_point(const std::string& name, const std::vector<TraceStep>& steps) {
  KnobPoint point{name, {}, print_trace(steps)};
  for (const TraceStep& step : steps)
    if (is_sampling(step))
      for (size_t i = 0; i < step.decision.size() && i < step.results.size(); ++i)
        point.values.emplace_back(step.results[i], step.decision[i]);
  return point;
}

std::string trace_point_text(const KnobPoint& point) { return fmt::format("// {}\n{}", point.rule, point.trace); }

std::optional<KnobPoint> parse_trace_point(std::string_view text, std::string& why) {
  if (text.size() > kMostText) {
    why = fmt::format("a schedule of {} bytes, more than {}", text.size(), kMostText);
    return std::nullopt;
  }
  std::string name = "trace";
  const std::string_view first = text.substr(0, text.find('\n'));
  if (first.starts_with(kHeader) && is_sketch_name(first.substr(kHeader.size()))) name = first.substr(kHeader.size());
  try {
    const std::vector<TraceStep> steps = parse_trace(text, "schedule");
    if (steps.empty() || steps.size() > kMostTracesSteps) {
      why = fmt::format("a schedule of {} steps, not of 1 to {}", steps.size(), kMostTracesSteps);
      return std::nullopt;
    }
    for (const TraceStep& step : steps)
      if (is_sampling(step) && (step.decision.empty() || step.results.empty())) {
        why = fmt::format("'{}' is not decided, or names nothing", to_string(step));
        return std::nullopt;
      }
    return trace_point(name, steps);
  } catch (const UserError& error) {
    why = reason_of(error);
    return std::nullopt;
  }
}

std::variant<ScheduledKernel, Declined> apply_trace_point(const KnobPoint& point, const TensorProgram& kernel,
                                                          const Target& target) {
  if (is_symbolic(kernel)) return Declined{"a run decides about sizes"};
  try {
    const Schedule schedule = replayed(parse_trace(point.trace, "schedule"), kernel, target, nullptr);
    if (std::string why = sketch_objection(schedule, target); !why.empty()) return Declined{std::move(why)};
    return finished_sketch(schedule, kernel);
  } catch (const UserError& error) {
    return Declined{reason_of(error)};
  }
}

std::optional<KnobPoint> draw_point(const Sketch& sketch, const TensorProgram& kernel, const Target& target,
                                    std::mt19937_64& random, std::string& why) {
  std::vector<TraceStep> steps = sketch.steps;
  for (TraceStep& step : steps)
    if (is_sampling(step)) step.decision.clear();
  return drawn(sketch.name, steps, kernel, target, random, why);
}

std::optional<KnobPoint> mutate_point(const KnobPoint& point, const TensorProgram& kernel, const Target& target,
                                      std::mt19937_64& random, std::string& why) {
  std::vector<TraceStep> steps = parse_trace(point.trace, "schedule");
  const std::vector<size_t> open = sampling_steps(steps);
  if (open.empty()) {
    why = "nothing is left to decide";
    return std::nullopt;
  }
  for (size_t changes = 1 + random() % 3; changes > 0; --changes)
    mutate_step(steps[open[random() % open.size()]], random);
  return drawn(point.rule, steps, kernel, target, random, why);
}

std::optional<KnobPoint> cross_points(const KnobPoint& a, const KnobPoint& b, const TensorProgram& kernel,
                                      const Target& target, std::mt19937_64& random, std::string& why) {
  std::vector<TraceStep> steps = parse_trace(a.trace, "schedule");
  const std::vector<TraceStep> others = parse_trace(b.trace, "schedule");
  if (a.rule != b.rule || steps.size() != others.size()) {
    why = "the parents are of two sketches";
    return std::nullopt;
  }
  for (const size_t i : sampling_steps(steps))
    if (others[i].primitive == steps[i].primitive && random() % 2 == 0) steps[i].decision = others[i].decision;
  return drawn(a.rule, steps, kernel, target, random, why);
}

int64_t sketch_size(const Sketch& sketch) {
  int64_t size = 1;
  for (const TraceStep& step : sketch.steps) {
    if (!is_sampling(step)) continue;
    int64_t choices = step.primitive == "sample_categorical" ? static_cast<int64_t>(step.args[0].list.size()) : 2;
    if (step.primitive == "sample_perfect_tile") {
      int64_t extent = 1;
      for (const int64_t f : step.decision) extent *= f;
      choices = 0;
      for (int64_t f = 1; f <= extent; ++f) choices += extent % f == 0;
    }
    if (__builtin_mul_overflow(size, choices, &size)) return INT64_MAX;
  }
  return size;
}

}  // namespace tessera::inline schedule
