#include "driver/size_search.h"

#include <time.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <random>

#include <fmt/format.h>

#include "driver/size_check.h"
#include "program/size_formula.h"
#include "support/error.h"

namespace tessera::inline driver {
namespace {

constexpr size_t kMaxPoints = 64;  // sizes that formulas are found from, at most
constexpr size_t kMostChecks = 200, kMostChecksOfOne = 512;

// Equal weights are kept once.
void share_weights(Program& program, const Program& first, SizeProver& prover) {
  for (size_t i = 0; i < program.buffers.size() && i < first.buffers.size(); ++i) {
    TensorPtr& data = program.buffers[i].data;
    const TensorPtr& known = first.buffers[i].data;
    if (data && known && data != known && data->dims() == known->dims() && data->dtype() == known->dtype() &&
        prover.hash_of(data) == prover.hash_of(known)) {
      prover.forget(data);
      data = known;
    }
  }
}

// Of this thread: how many sizes are looked at does not depend on what else the machine does.
double processor_seconds() {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

int64_t count_of(const SymbolRange& s) { return (s.hi - s.lo) / s.step + 1; }

}  // namespace

SizeSearch::SizeSearch(const ImportedModel& model, const LowerGraph& lower, const std::set<std::string>& left_out,
                       SizeProver& prover, const SearchLimits& limits, bool beyond)
    : model_(model),
      lower_(lower),
      left_out_(left_out),
      prover_(prover),
      limits_(limits),
      beyond_(beyond),
      points_(beyond ? first_points(model.symbols) : inner_points(model.symbols)) {}

SizeSearch::Own SizeSearch::program_at(const SizePoint& point) {
  GraphOrRefusal graph = model_.at(point);
  if (auto* refused = std::get_if<SizesRefused>(&graph)) return std::move(*refused);
  auto program = std::make_unique<Program>(lower_(std::get<Graph>(std::move(graph)), left_out_));
  if (!programs_.empty()) share_weights(*program, *programs_[0], prover_);
  return program;
}

SizeSearch::Verdict SizeSearch::verdict(const Program& program, const SizePoint& point, const Program& own,
                                        std::string& what) {
  what = prover_.difference(program, point, own);
  const bool empty = std::find(point.begin(), point.end(), 0) != point.end();
  if (what.empty() && !empty) return Verdict::kProved;
  switch (difference_at(program, point, own)) {
    case SizeDifference::kNone: return what.empty() ? Verdict::kProved : Verdict::kRun;
    case SizeDifference::kTooLarge: return what.empty() ? Verdict::kProved : Verdict::kDiffers;
    // Of nothing at all it may read what is not there, and not use it.
    case SizeDifference::kReads:
      if (empty) return Verdict::kRun;
      what = "it reads outside of a value";
      break;
    case SizeDifference::kWrites: what = "it writes outside of a value"; break;
    case SizeDifference::kValues: what = "its results differ"; break;
  }
  return Verdict::kDiffers;
}

SizeSearch::Verdict SizeSearch::verdict(const Program& program, const SizePoint& point) {
  std::string what;
  if (const Program* own = known_program(point)) return verdict(program, point, *own, what);
  const Own own = program_at(point);
  if (std::holds_alternative<SizesRefused>(own)) return Verdict::kDiffers;
  return verdict(program, point, *std::get<std::unique_ptr<Program>>(own), what);
}

SizeSearch::Result SizeSearch::run() {
  const double begin = processor_seconds();
  const auto seconds = [begin] { return processor_seconds() - begin; };
  programs_.push_back(std::make_unique<Program>(lower_(model_.graph, left_out_)));
  for (size_t i = 1; i < points_.size(); ++i) {
    Own own = program_at(points_[i]);
    if (auto* refused = std::get_if<SizesRefused>(&own)) return std::move(*refused);
    programs_.push_back(std::get<std::unique_ptr<Program>>(std::move(own)));
  }
  Found found = settle();
  const std::vector<SizePoint> sizes = sizes_to_check();
  // A formula that is wrong is found anew, and held against all sizes again.
  for (size_t round = 0; round < kMaxPoints; ++round) {
    if (auto* unlike = std::get_if<Unlike>(&found)) return std::move(*unlike);
    Program& program = std::get<Program>(found);
    SizeEvidence evidence;
    evidence.of = 1;
    for (const SymbolRange& s : model_.symbols)
      if (__builtin_mul_overflow(evidence.of, count_of(s), &evidence.of)) evidence.of = INT64_MAX;
    bool again = false;
    std::vector<SizePoint> points = points_;
    points.insert(points.end(), sizes.begin(), sizes.end());
    std::set<SizePoint> seen;
    for (size_t i = 0; i < points.size() && !again; ++i) {
      const SizePoint& point = points[i];
      if (!seen.insert(point).second) continue;
      if (i >= points_.size() + always_ && seconds() > limits_.seconds) break;
      std::unique_ptr<Program> made;
      const Program* own = known_program(point);
      if (!own) {
        Own found_own = program_at(point);
        if (auto* refused = std::get_if<SizesRefused>(&found_own)) {
          if (limits_.some_have_no_meaning && may_be_none_.count(point)) continue;
          return std::move(*refused);
        }
        made = std::get<std::unique_ptr<Program>>(std::move(found_own));
        own = made.get();
      }
      const bool inside = is_inside(point);
      std::string what;
      const Verdict says = verdict(program, point, *own, what);
      if (says != Verdict::kDiffers) {
        if (inside) ++(says == Verdict::kProved ? evidence.proved : evidence.run);
        continue;
      }
      if (!inside) continue;
      DiffersAt difference{point, what, program, points_[0]};
      if (!made) return difference;
      insert(point, std::move(made));
      const auto with_it = generalized().first;
      if (const auto* unlike = std::get_if<Unlike>(&with_it); unlike && !unlike->no_formula) return difference;
      found = settle();
      const auto* other = std::get_if<Program>(&found);
      if (!other || !known_program(point) || verdict(*other, point) == Verdict::kDiffers) return difference;
      again = true;
    }
    if (!again) return SizedProgram{std::move(program), evidence};
  }
  return Unlike{"the whole model", "no formula holds for all sizes", true};
}

bool SizeSearch::is_inside(const SizePoint& point) const {
  for (size_t i = 0; i < point.size(); ++i)
    if (point[i] < model_.symbols[i].lo || point[i] > model_.symbols[i].hi) return false;
  return true;
}

const Program* SizeSearch::known_program(const SizePoint& point) const {
  const auto it = std::find(points_.begin(), points_.end(), point);
  return it == points_.end() ? nullptr : programs_[static_cast<size_t>(it - points_.begin())].get();
}

// Behind the first: the largest sizes stay the last.
void SizeSearch::insert(const SizePoint& point, std::unique_ptr<Program> program) {
  points_.insert(points_.begin() + 1, point);
  programs_.insert(programs_.begin() + 1, std::move(program));
}

void SizeSearch::remove_second() {
  points_.erase(points_.begin() + 1);
  programs_.erase(programs_.begin() + 1);
}

std::pair<SizeSearch::Found, std::optional<SizePoint>> SizeSearch::generalized() {
  SizeFormulas formulas(model_.symbols, points_, avoided_, beyond_);
  std::vector<const Program*> all;
  for (const auto& program : programs_) all.push_back(program.get());
  auto result = generalize(all, formulas);
  return {std::move(result), formulas.doubt()};
}

// Looks at more sizes as long as several formulas fit what is known.
SizeSearch::Found SizeSearch::settle() {
  bool second_is_doubt = false;
  while (true) {
    auto [result, doubt] = generalized();
    const bool unlike = std::holds_alternative<Unlike>(result);
    if (unlike && second_is_doubt && !std::get<Unlike>(result).no_formula && avoided_.size() < kMaxPoints) {
      // It is no help in finding formulas. What they make of it is looked at when they are found.
      avoided_.push_back(points_[1]);
      remove_second();
      second_is_doubt = false;
      continue;
    }
    if (doubt && points_.size() < kMaxPoints) {
      Own own = program_at(*doubt);
      if (auto* program = std::get_if<std::unique_ptr<Program>>(&own)) {
        insert(*doubt, std::move(*program));
        second_is_doubt = true;
      } else {
        avoided_.push_back(*doubt);  // beyond the range, and beyond what the model can do
      }
      continue;
    }
    if (doubt && !unlike)
      return Unlike{"the whole model", fmt::format("{} sizes do not tell which formula is right", points_.size()),
                    true};
    if (unlike && points_.back() == largest_sizes(model_.symbols) && points_.size() > 2) {
      avoided_.push_back(points_.back());
      points_.pop_back();
      programs_.pop_back();
      continue;
    }
    return std::move(result);
  }
}

std::optional<DiffersAt> SizeSearch::part(size_t symbol) {
  std::vector<size_t> order;
  for (size_t i = 0; i < programs_.size(); ++i)
    if (is_inside(points_[i])) order.push_back(i);
  std::optional<DiffersAt> best;
  size_t most = 2;  // fewer than three sizes are alike in anything
  for (const bool from_the_end : {true, false}) {
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return from_the_end ? points_[a][symbol] > points_[b][symbol] : points_[a][symbol] < points_[b][symbol];
    });
    for (size_t count = order.size(); count-- > most + 1;) {
      if (points_[order[count - 1]][symbol] == points_[order[count]][symbol]) continue;
      std::vector<SizePoint> points;
      std::vector<const Program*> programs;
      for (size_t i = 0; i < count; ++i) {
        points.push_back(points_[order[i]]);
        programs.push_back(programs_[order[i]].get());
      }
      SizeFormulas formulas(model_.symbols, points, avoided_, false);
      auto result = generalize(programs, formulas);
      auto* program = std::get_if<Program>(&result);
      if (!program) continue;
      best = DiffersAt{points_[order[count]], "its program differs", std::move(*program), points_[order[count - 1]]};
      most = count;
      break;
    }
  }
  return best;
}

// The ends first, and as many of the others as there is time for: every size of short ranges, else random ones.
std::vector<SizePoint> SizeSearch::sizes_to_check() {
  const std::vector<SymbolRange>& symbols = model_.symbols;
  std::vector<SizePoint> points;
  const auto add = [&](const std::function<int64_t(const SymbolRange&, size_t)>& value) {
    SizePoint point;
    for (size_t i = 0; i < symbols.size(); ++i)
      point.push_back(std::clamp(value(symbols[i], i), symbols[i].lo, symbols[i].hi));
    points.push_back(std::move(point));
  };
  for (const int64_t steps : {0, 1, 2, 3, 5}) {
    add([&](const SymbolRange& s, size_t) { return s.lo + steps * s.step; });
    may_be_none_.insert(points.back());
  }
  for (const int64_t steps : {0, 1}) add([&](const SymbolRange& s, size_t) { return s.hi - steps * s.step; });
  if (symbols.size() > 1)
    for (size_t one = 0; one < symbols.size(); ++one)
      for (const bool low : {true, false}) {
        add([&](const SymbolRange& s, size_t i) { return i != one ? points_[0][i] : low ? s.lo : s.hi; });
        may_be_none_.insert(points.back());
      }
  for (const SizePoint& avoided : avoided_) {
    if (!is_inside(avoided)) continue;
    points.push_back(avoided);
    may_be_none_.insert(avoided);
  }
  always_ = points.size();
  const size_t most = symbols.size() == 1 ? kMostChecksOfOne : kMostChecks;
  uint64_t all = 1;
  for (const SymbolRange& s : symbols)
    all = all > most ? all : all * std::min<uint64_t>(static_cast<uint64_t>(count_of(s)), most + 1);
  std::mt19937_64 random(1);
  for (uint64_t i = 0; i < std::min<uint64_t>(all, most); ++i) {
    SizePoint point;
    uint64_t rest = i;
    for (const SymbolRange& s : symbols) {
      const auto count = static_cast<uint64_t>(count_of(s));
      const uint64_t number = all <= most ? rest % count : random() % count;
      rest /= count;
      point.push_back(s.lo + static_cast<int64_t>(number) * s.step);
    }
    points.push_back(std::move(point));
  }
  std::shuffle(points.begin() + static_cast<ptrdiff_t>(always_), points.end(), random);
  return points;
}

}  // namespace tessera::inline driver
