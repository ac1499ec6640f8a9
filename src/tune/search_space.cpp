#include "tune/search_space.h"

#include <algorithm>

#include "schedule/choose.h"
#include "support/error.h"
#include "support/hash.h"
#include "tune/program_hash.h"

namespace tessera::inline tune {

namespace {

constexpr int kLevel = 3;  // of the rules that are asked

size_t below(size_t count, std::mt19937_64& random) { return static_cast<size_t>(random() % count); }

}  // namespace

const char* space_kind_name(SpaceKind kind) {
  static constexpr const char* kNames[] = {"templates", "sketches", "all"};
  return kNames[static_cast<int>(kind)];
}

SearchSpace::SearchSpace(const TensorProgram& kernel, const Target& target, SpaceKind kind, Fp32Products fp32)
    : kernel_(&kernel), target_(target) {
  for (const ScheduleRule& rule : schedule_rules()) {
    auto answer = knob_space(rule, kernel, target, fp32);
    if (auto* declined = std::get_if<Declined>(&answer)) {
      declined_rules_.push_back(std::string(rule.name) + ": " + declined->reason);
      continue;
    }
    Knobs knobs;
    if (!preferred_ && rule.min_level <= kLevel &&
        std::holds_alternative<ScheduledKernel>(rule.apply(kernel, target, knobs)))
      preferred_ = std::get<KnobSpace>(answer).preferred();
    if (kind == SpaceKind::kSketches) continue;
    // One element at a time is never worth a trial where a rule knows better.
    if (std::get<KnobSpace>(answer).knobs.empty() && preferred_ && preferred_->rule != rule.name) continue;
    spaces_.push_back(std::move(std::get<KnobSpace>(answer)));
  }
  if (kind == SpaceKind::kTemplates) return;
  SketchList list = make_sketches(kernel, target);
  sketches_ = std::move(list.sketches);
  declined_sketches_ = std::move(list.declined);
}

SearchSpace SearchSpace::of_joined(const TaskKernel& kernel, const Target& target, SpaceKind kind, Fp32Products fp32) {
  SearchSpace space(target);
  space.joined_ = kernel;
  space.context_.symbols = kernel.symbols();
  space.ask_ = first_answer_of(target, kLevel, {}, {.fp32 = fp32});
  for (const JoiningStep& step : joining_steps()) {
    auto answer = joined_knob_space(step, *kernel.joined(), space.context_, target, space.ask_);
    if (auto* declined = std::get_if<Declined>(&answer)) {
      space.declined_rules_.push_back(std::string(step.name) + ": " + declined->reason);
      continue;
    }
    space.preferred_ = std::get<KnobSpace>(answer).preferred();
    if (kind != SpaceKind::kSketches) space.spaces_.push_back(std::move(std::get<KnobSpace>(answer)));
    break;
  }
  if (kind != SpaceKind::kTemplates) space.declined_sketches_.emplace_back("several kernels are joined in it");
  return space;
}

int64_t SearchSpace::size() const {
  int64_t sum = 0;
  for (const KnobSpace& space : spaces_)
    if (__builtin_add_overflow(sum, space.size(), &sum)) return INT64_MAX;
  for (const Sketch& sketch : sketches_)
    if (__builtin_add_overflow(sum, sketch_size(sketch), &sum)) return INT64_MAX;
  return sum;
}

std::vector<KnobPoint> SearchSpace::first_points() const {
  std::vector<KnobPoint> points;
  for (const KnobSpace& space : spaces_) points.push_back(space.preferred());
  for (const Sketch& sketch : sketches_) points.push_back(trace_point(sketch.name, sketch.steps));
  return points;
}

std::optional<size_t> SearchSpace::family_of(const KnobPoint& point) const {
  for (size_t i = 0; i < spaces_.size(); ++i)
    if (spaces_[i].rule == point.rule) return i;
  for (size_t i = 0; i < sketches_.size(); ++i)
    if (sketches_[i].name == point.rule) return spaces_.size() + i;
  return std::nullopt;
}

KnobPoint SearchSpace::random_point(std::mt19937_64& random) const {
  return random_point_of(below(families(), random), random);
}

KnobPoint SearchSpace::random_point_of(size_t family, std::mt19937_64& random) const {
  if (family >= spaces_.size()) {
    std::string why;
    auto drawn = draw_point(sketches_[family - spaces_.size()], *kernel_, target_, random, why);
    return drawn ? std::move(*drawn) : KnobPoint();
  }
  const KnobSpace& space = spaces_[family];
  KnobPoint point{space.rule, {}};
  for (const Knob& knob : space.knobs)
    point.values.emplace_back(knob.name, knob.values[below(knob.values.size(), random)]);
  return point;
}

KnobPoint SearchSpace::mutated(const KnobPoint& point, std::mt19937_64& random) const {
  if (is_trace(point)) {
    std::string why;
    auto changed = mutate_point(point, *kernel_, target_, random, why);
    return changed ? std::move(*changed) : KnobPoint();
  }
  const auto family = family_of(point);
  check(family.has_value(), "a point of another space");
  const KnobSpace& space = spaces_[*family];
  if (point.values.empty()) return random_point_of(*family, random);
  KnobPoint child = point;
  for (size_t changes = 1 + below(3, random); changes > 0; --changes) {
    auto& [name, value] = child.values[below(child.values.size(), random)];
    for (const Knob& knob : space.knobs) {
      if (knob.name != name) continue;
      // Mostly a neighbour: knobs' values have an order.
      const auto at =
          static_cast<size_t>(std::find(knob.values.begin(), knob.values.end(), value) - knob.values.begin());
      const size_t count = knob.values.size();
      if (at < count && below(2, random) == 0 && count > 1) {
        const bool up = at == 0 || (at + 1 < count && below(2, random) == 0);
        value = knob.values[up ? at + 1 : at - 1];
      } else {
        value = knob.values[below(count, random)];
      }
    }
  }
  return child;
}

KnobPoint SearchSpace::crossed(const KnobPoint& a, const KnobPoint& b, std::mt19937_64& random) const {
  check(a.rule == b.rule && a.values.size() == b.values.size(), "points of two rules have no descendants");
  if (is_trace(a) && is_trace(b)) {
    std::string why;
    auto child = cross_points(a, b, *kernel_, target_, random, why);
    return child ? std::move(*child) : KnobPoint();
  }
  KnobPoint child = a;
  for (size_t i = 0; i < child.values.size(); ++i)
    if (below(2, random) == 0 && b.values[i].first == child.values[i].first)
      child.values[i].second = b.values[i].second;
  return child;
}

std::optional<SearchSpace::Loops> SearchSpace::loops_at(const KnobPoint& point, std::string& why) const {
  if (made_loops_) return made_loops_(point, why);
  // What a compile does not want has no space here.
  auto answer = joined_ ? apply_joined_point(point, *joined_.joined(), context_, target_, ask_)
                        : apply_point(point, *kernel_, target_, Fp32Products::kPieces);
  if (auto* declined = std::get_if<Declined>(&answer)) {
    why = declined->reason;
    return std::nullopt;
  }
  auto& scheduled = std::get<ScheduledKernel>(answer);
  if (joined_) scheduled.program = joined_.at_usual_sizes(scheduled.program);
  Loops loops;
  // Packed weights have the shape of their packing in the program's parameters, but not its order.
  Hasher hasher;
  hasher.add(program_hash(scheduled.program));
  for (const PackedParam& packed : scheduled.packed)
    for (const PackSpec& part : packed.parts)
      for (const PackDim& dim : part.dims)
        for (const int64_t value :
             {static_cast<int64_t>(dim.extent), static_cast<int64_t>(dim.axis), static_cast<int64_t>(dim.multiplier)})
          hasher.add(static_cast<uint64_t>(value));
  loops.hash = hasher.value();
  loops.program = std::move(scheduled.program);
  return loops;
}

}  // namespace tessera::inline tune
