#include "train/pipeline_schedule.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "support/error.h"

namespace tessera::inline train {
namespace {

[[noreturn]] void refuse(const std::string& found, const std::string& legal) {
  throw UserError({.id = "TSR-2086", .message = found, .node = {}, .legal = legal, .hint = {}});
}

// The k-th forward, or backward, of a stage with several chunks: `stages` micro-batches of a chunk after the other.
PipelineSlot interleaved_slot(const PipelineShape& how, int64_t stage, int64_t k, bool forward) {
  const int64_t group = how.stages * how.chunks, within = k % group;
  const int64_t own = forward ? within / how.stages : how.chunks - 1 - within / how.stages;
  return {own * how.stages + stage, k / group * how.stages + k % how.stages, forward};
}

}  // namespace

const std::vector<std::string_view>& pipeline_kind_names() {
  static const std::vector<std::string_view> names = {"gpipe", "1f1b", "interleaved"};
  return names;
}

PipelineKind pipeline_kind(std::string_view name) {
  const auto& names = pipeline_kind_names();
  const auto found = std::find(names.begin(), names.end(), name);
  check(found != names.end(), "no schedule of this name");
  return static_cast<PipelineKind>(found - names.begin());
}

void check_pipeline(const PipelineShape& how) {
  if (how.stages < 1 || how.micro_batches < 1 || how.chunks < 1)
    refuse(fmt::format("{} stages of {} chunks, {} micro-batches", how.stages, how.chunks, how.micro_batches),
           "1 or more of each");
  if (how.kind != PipelineKind::kInterleaved && how.chunks > 1)
    refuse(fmt::format("{} chunks of a stage without the schedule interleaved", how.chunks), "one chunk");
  if (how.kind == PipelineKind::kInterleaved && how.micro_batches % how.stages != 0)
    refuse(fmt::format("{} micro-batches for {} stages, interleaved", how.micro_batches, how.stages),
           "a multiple of the stages");
}

std::vector<PipelineSlot> pipeline_slots(const PipelineShape& how, int64_t stage) {
  check_pipeline(how);
  const int64_t total = how.micro_batches * how.chunks;
  int64_t ahead = total;  // forwards before the first backward
  if (how.kind == PipelineKind::kOneForwardOneBackward) ahead = how.stages - 1 - stage;
  if (how.kind == PipelineKind::kInterleaved)
    ahead = how.chunks == 1 ? how.stages - 1 - stage : 2 * (how.stages - 1 - stage) + (how.chunks - 1) * how.stages;
  ahead = std::min(ahead, total);
  std::vector<PipelineSlot> slots;
  for (int64_t k = 0; k < ahead; ++k) slots.push_back(interleaved_slot(how, stage, k, true));
  for (int64_t k = ahead; k < total; ++k) {
    slots.push_back(interleaved_slot(how, stage, k, true));
    slots.push_back(interleaved_slot(how, stage, k - ahead, false));
  }
  for (int64_t k = total - ahead; k < total; ++k) slots.push_back(interleaved_slot(how, stage, k, false));
  return slots;
}

double PipelineTime::bubble() const {
  double sum = 0;
  for (const double one : busy) sum += one;
  const double all = seconds * static_cast<double>(busy.size());
  return all > 0 ? 1 - sum / all : 0;
}

PipelineTime simulate_pipeline(const PipelineShape& how, const std::vector<ChunkTime>& times, double message_seconds) {
  check(std::ssize(times) == how.num_chunks(), "times of other chunks");
  constexpr double kNotDone = -1;
  const auto index = [&](const PipelineSlot& slot) {
    return static_cast<size_t>((slot.chunk * how.micro_batches + slot.micro_batch) * 2 + (slot.forward ? 0 : 1));
  };
  std::vector<double> done(static_cast<size_t>(how.num_chunks() * how.micro_batches * 2), kNotDone);
  std::vector<std::vector<PipelineSlot>> slots;
  std::vector<size_t> next(static_cast<size_t>(how.stages), 0);
  std::vector<double> now(static_cast<size_t>(how.stages), 0);
  std::vector<int64_t> alive(static_cast<size_t>(how.stages), 0);
  PipelineTime result;
  result.busy.assign(static_cast<size_t>(how.stages), 0);
  result.most_alive.assign(static_cast<size_t>(how.stages), 0);
  for (int64_t stage = 0; stage < how.stages; ++stage) slots.push_back(pipeline_slots(how, stage));
  // When what a slot needs is there; kNotDone: it is not known yet.
  const auto ready = [&](const PipelineSlot& slot) {
    double at = 0;
    const auto needs = [&](const PipelineSlot& other) {
      const double end = done[index(other)];
      const bool moves = how.stage_of(other.chunk) != how.stage_of(slot.chunk);
      if (end == kNotDone || at == kNotDone) at = kNotDone;
      else at = std::max(at, end + (moves ? message_seconds : 0));
    };
    if (slot.forward && slot.chunk > 0) needs({slot.chunk - 1, slot.micro_batch, true});
    if (!slot.forward) {
      needs({slot.chunk, slot.micro_batch, true});
      if (slot.chunk + 1 < how.num_chunks()) needs({slot.chunk + 1, slot.micro_batch, false});
    }
    return at;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t stage = 0; stage < slots.size(); ++stage)
      while (next[stage] < slots[stage].size()) {
        const PipelineSlot& slot = slots[stage][next[stage]];
        const double begin = ready(slot);
        if (begin == kNotDone) break;
        const ChunkTime& time = times[static_cast<size_t>(slot.chunk)];
        const double takes = slot.forward ? time.forward : time.backward;
        now[stage] = done[index(slot)] = std::max(now[stage], begin) + takes;
        result.busy[stage] += takes;
        alive[stage] += slot.forward ? 1 : -1;
        result.most_alive[stage] = std::max(result.most_alive[stage], alive[stage]);
        ++next[stage];
        moved = true;
      }
  }
  for (size_t stage = 0; stage < slots.size(); ++stage) {
    check(next[stage] == slots[stage].size(), "stages of a pipeline that wait for each other");
    result.seconds = std::max(result.seconds, now[stage]);
  }
  return result;
}

std::vector<size_t> best_cuts(size_t segments, size_t parts, const std::vector<std::vector<std::vector<double>>>& cost,
                              const std::vector<double>& tie) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  struct Best {
    double largest = kNever, ties = 0;
    size_t begin = 0;  // of the last piece
  };
  // By parts, then by where they end.
  std::vector<std::vector<Best>> best(parts + 1, std::vector<Best>(segments + 1));
  best[0][0] = {0, 0, 0};
  for (size_t part = 1; part <= parts; ++part)
    for (size_t end = part; end <= segments; ++end)
      for (size_t begin = part - 1; begin < end; ++begin) {
        const Best& before = best[part - 1][begin];
        const double largest = std::max(before.largest, cost[part - 1][begin][end]);
        const double ties = before.ties + (begin > 0 ? tie[begin] : 0);
        Best& known = best[part][end];
        if (largest < known.largest || (largest == known.largest && largest < kNever && ties < known.ties))
          known = {largest, ties, begin};
      }
  if (best[parts][segments].largest == kNever) return {};
  std::vector<size_t> cuts;
  for (size_t part = parts, end = segments; part > 1; --part) {
    end = best[part][end].begin;
    cuts.push_back(end);
  }
  std::reverse(cuts.begin(), cuts.end());
  return cuts;
}

}  // namespace tessera::inline train
