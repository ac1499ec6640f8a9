#include "accel/tokens.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <queue>

#include <fmt/format.h>

#include "accel/queue_race.h"
#include "support/error.h"

namespace tessera::inline accel {

namespace {

constexpr size_t kMostProblems = 20;

// Who touched each element of each memory, and each segment, last.
class Places {
 public:
  struct Place {
    int written = -1;
    std::vector<int> read;  // since then
  };

  explicit Places(const Accelerator& unit, size_t segments) : unit_(unit) {
    for (const UnitMemory& memory : unit.memories)
      memories_.emplace_back(static_cast<size_t>(memory.bytes / memory.element));
    dram_.resize(segments);
  }

  // Calls `depends(i)` for each earlier instruction that instruction `j` of the list must not overtake, some more than
  // once, and remembers what j touches. Places outside of a memory are left out.
  template <typename Depends>
  void visit(int j, const StreamInstruction& instruction, Depends depends) {
    const UnitInstruction& kind = unit_.instructions[static_cast<size_t>(instruction.kind)];
    const auto touch = [&](Place& place, bool writes) {
      if (place.written >= 0 && place.written != j) depends(place.written);
      if (writes) {
        for (const int reader : place.read)
          if (reader != j) depends(reader);
        place.read.clear();
        place.written = j;
      } else if (place.written != j && (place.read.empty() || place.read.back() != j)) {
        place.read.push_back(j);
      }
    };
    for (size_t p = 0; p < kind.operands.size(); ++p) {
      const bool writes = is_written(kind, p);
      if (kind.operands[p] == kDram) {
        const auto segment = static_cast<size_t>(instruction.operands[p].segment);
        if (segment < dram_.size() && touches(kind, instruction, p)) touch(dram_[segment], writes);
        continue;
      }
      const auto memory = static_cast<size_t>(kind.operands[p]);
      const int64_t element = unit_.memories[memory].element, all = unit_.memories[memory].bytes;
      const int64_t bytes = core_bytes(kind, p);
      for_each_place(kind, instruction, p, [&](int64_t address) {
        if (address < 0 || address + bytes > all) return;
        for (int64_t at = address / element; at < (address + bytes + element - 1) / element; ++at)
          touch(memories_[memory][static_cast<size_t>(at)], writes);
      });
    }
  }

 private:
  static bool touches(const UnitInstruction& kind, const StreamInstruction& instruction, size_t p) {
    if (steps_of(instruction) == 0) return false;
    if (!kind.padded[p]) return true;
    for (size_t l = 0; l < instruction.extents.size(); ++l) {
      const auto& [begin, end] = instruction.operands[p].inside[l];
      if (std::min(end, instruction.extents[l]) <= std::max<int64_t>(begin, 0)) return false;
    }
    return true;
  }

  const Accelerator& unit_;
  std::vector<std::vector<Place>> memories_;
  std::vector<Place> dram_;
};

int queue_of(const Accelerator& unit, const StreamInstruction& instruction) {
  return unit.instructions[static_cast<size_t>(instruction.kind)].queue;
}

// Of an operand in all steps that touch it.
struct AddressRange {
  int64_t first = 0, last = 0;
  int64_t unit = 0;  // all are multiples of it
};

// None where no step does.
std::optional<AddressRange> addresses_of(const StreamInstruction& instruction, size_t p) {
  const UnitOperand& operand = instruction.operands[p];
  AddressRange range{operand.base, operand.base, std::abs(operand.base)};
  for (size_t l = 0; l < instruction.extents.size(); ++l) {
    int64_t begin = 0, end = instruction.extents[l];
    if (end <= 0) return std::nullopt;
    if (!operand.inside.empty()) {
      begin = operand.inside[l].first;
      end = std::min(end, operand.inside[l].second);
    }
    if (end <= begin) return std::nullopt;
    const int64_t reach = (end - 1 - begin) * operand.strides[l];
    (reach < 0 ? range.first : range.last) += reach;
    if (reach != 0) range.unit = std::gcd(range.unit, operand.strides[l]);
  }
  return range;
}

}  // namespace

void order_by_need(const Accelerator& unit, InstructionStream& stream) {
  const size_t count = stream.instructions.size();
  std::vector<std::vector<int>> after(count);
  std::vector<int> needs(count, 0);
  std::vector<int64_t> key(count);
  Places places(unit, stream.segments.size());
  for (size_t j = 0; j < count; ++j) {
    const int number = static_cast<int>(j);
    std::vector<int> before;
    places.visit(number, stream.instructions[j], [&](int i) { before.push_back(i); });
    std::sort(before.begin(), before.end());
    before.erase(std::unique(before.begin(), before.end()), before.end());
    for (const int i : before) after[static_cast<size_t>(i)].push_back(number);
    needs[j] = static_cast<int>(before.size());
    key[j] = number;
  }
  for (size_t i = 0; i < count; ++i) {
    const UnitInstruction& kind = unit.instructions[static_cast<size_t>(stream.instructions[i].kind)];
    const int dram = kind.dram_operand();
    if (dram < 0 || is_written(kind, static_cast<size_t>(dram)) || after[i].empty()) continue;
    key[i] = after[i].front();
  }
  using Entry = std::pair<int64_t, int>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> ready;
  for (size_t i = 0; i < count; ++i)
    if (!needs[i]) ready.emplace(key[i], static_cast<int>(i));
  std::vector<StreamInstruction> ordered;
  ordered.reserve(count);
  while (!ready.empty()) {
    const auto i = static_cast<size_t>(ready.top().second);
    ready.pop();
    ordered.push_back(std::move(stream.instructions[i]));
    for (const int next : after[i])
      if (--needs[static_cast<size_t>(next)] == 0) ready.emplace(key[static_cast<size_t>(next)], next);
  }
  check(ordered.size() == count, "dependences go forward");
  stream.instructions = std::move(ordered);
}

void place_tokens(const Accelerator& unit, InstructionStream& stream) {
  const size_t queues = unit.queues.size();
  for (StreamInstruction& instruction : stream.instructions) instruction.waits = instruction.signals = 0;
  // The latest instruction of queue a that one of queue b has waited for.
  std::vector<std::vector<int>> waited(queues, std::vector<int>(queues, -1));
  Places places(unit, stream.segments.size());
  for (size_t j = 0; j < stream.instructions.size(); ++j) {
    StreamInstruction& instruction = stream.instructions[j];
    const auto own = static_cast<size_t>(queue_of(unit, instruction));
    std::vector<int> latest(queues, -1);
    places.visit(static_cast<int>(j), instruction, [&](int i) {
      const auto other = static_cast<size_t>(queue_of(unit, stream.instructions[static_cast<size_t>(i)]));
      latest[other] = std::max(latest[other], i);
    });
    for (size_t other = 0; other < queues; ++other) {
      if (other == own || latest[other] <= waited[other][own]) continue;
      waited[other][own] = latest[other];
      instruction.waits |= 1u << other;
      stream.instructions[static_cast<size_t>(latest[other])].signals |= 1u << own;
    }
  }
}

std::vector<std::string> check_stream(const Accelerator& unit, const InstructionStream& stream) {
  std::vector<std::string> problems;
  const auto problem = [&](std::string text) {
    if (problems.size() < kMostProblems) problems.push_back(std::move(text));
  };
  const size_t queues = unit.queues.size(), count = stream.instructions.size();
  const auto name = [&](size_t i) {
    return fmt::format("{} ({})", i, unit.instructions[static_cast<size_t>(stream.instructions[i].kind)].name);
  };

  // Places.
  for (size_t i = 0; i < count; ++i)
    if (steps_of(stream.instructions[i]) > kMostSteps)
      problem(fmt::format("instruction {} takes more than {} steps", name(i), kMostSteps));
    else if (steps_of(stream.instructions[i]) < 1) problem(fmt::format("instruction {} takes no step", name(i)));
  if (!problems.empty()) return problems;
  for (size_t i = 0; i < count; ++i) {
    const StreamInstruction& instruction = stream.instructions[i];
    const UnitInstruction& kind = unit.instructions[static_cast<size_t>(instruction.kind)];
    std::vector<bool> told(kind.operands.size(), false);
    for (size_t p = 0; p < kind.operands.size(); ++p) {
      const int segment = instruction.operands[p].segment;
      const bool in_dram = kind.operands[p] == kDram;
      if (in_dram && (segment < 0 || static_cast<size_t>(segment) >= stream.segments.size())) {
        problem(fmt::format("instruction {}: there is no segment {}", name(i), segment));
        told[p] = true;
      } else if (in_dram && is_written(kind, p) && !stream.segments[static_cast<size_t>(segment)].output) {
        problem(fmt::format("instruction {} writes to '{}', an input", name(i),
                            stream.segments[static_cast<size_t>(segment)].name));
      }
    }
    for (size_t p = 0; p < kind.operands.size(); ++p) {
      for (int l = kind.loops - kind.stationary[p]; l < kind.loops; ++l)
        if (instruction.extents[static_cast<size_t>(l)] > 1 && instruction.operands[p].strides[static_cast<size_t>(l)])
          problem(fmt::format("instruction {}: operand '{}' moves in loop {}, where it stays in the array", name(i),
                              kind.intrinsic->pattern()->params[p]->name, l));
    }
    for (size_t p = 0; p < kind.operands.size(); ++p) {
      const auto range = told[p] ? std::nullopt : addresses_of(instruction, p);
      if (!range) continue;
      const bool in_dram = kind.operands[p] == kDram;
      const int64_t bytes = in_dram ? stream.segments[static_cast<size_t>(instruction.operands[p].segment)].bytes
                                    : unit.memories[static_cast<size_t>(kind.operands[p])].bytes;
      const int64_t element = in_dram ? 1 : unit.memories[static_cast<size_t>(kind.operands[p])].element;
      const int64_t width = dtype_bytes(kind.intrinsic->pattern()->params[p]->dtype, 1);
      const std::string& operand = kind.intrinsic->pattern()->params[p]->name;
      if (range->first < 0 || range->last + core_bytes(kind, p) > bytes)
        problem(fmt::format("instruction {}: operand '{}' is at byte {}, of {}", name(i), operand,
                            range->first < 0 ? range->first : range->last, bytes));
      else if (range->unit % element || range->unit % width)
        problem(fmt::format("instruction {}: operand '{}' lies between elements of {} bytes", name(i), operand,
                            std::max(element, width)));
    }
  }
  if (!problems.empty()) return problems;

  // Tokens: an instruction runs when it is fetched, which is in the order of the list and while its queue has room, and
  // those before it in its queue have run, and those whose tokens it waits for.
  // `done[i][q]` counts the instructions of queue q that are done, for certain, when i begins.
  QueueRace race(unit, stream);
  std::vector<std::vector<size_t>> done(count, std::vector<size_t>(queues, 0));
  bool moved = true;
  while (moved) {
    moved = false;
    std::optional<size_t> ignored;
    while (race.fetch(ignored)) continue;
    for (size_t own = 0; own < queues; ++own)
      while (const std::optional<size_t> head = race.head(own)) {
        const size_t i = *head;
        std::optional<std::vector<size_t>> givers = race.is_fetched(i) ? race.givers(i) : std::nullopt;
        if (!givers) break;
        if (const auto before = race.before(i)) givers->push_back(*before);
        for (const size_t giver : *givers) {
          for (size_t q = 0; q < queues; ++q) done[i][q] = std::max(done[i][q], done[giver][q]);
          size_t& of = done[i][race.queue_of(giver)];
          of = std::max(of, race.rank(giver) + 1);
        }
        race.run(i);
        moved = true;
      }
  }
  for (size_t q = 0; q < queues; ++q)
    if (const auto head = race.head(q))
      problem(fmt::format("queue '{}' waits for ever at instruction {}{}", unit.queues[q], name(*head),
                          race.is_fetched(*head) ? "" : ", which is never fetched: another queue is full"));
  for (size_t a = 0; a < queues; ++a)
    for (size_t b = 0; b < queues; ++b)
      if (const size_t left = race.left_over(a, b); left && !race.head(b))
        problem(fmt::format("{} token{} from '{}' to '{}' {} left over", left, left == 1 ? "" : "s", unit.queues[a],
                            unit.queues[b], left == 1 ? "is" : "are"));

  // Order.
  Places places(unit, stream.segments.size());
  for (size_t j = 0; j < count; ++j) {
    int last = -1;
    places.visit(static_cast<int>(j), stream.instructions[j], [&](int earlier) {
      if (earlier == last) return;
      last = earlier;
      const auto i = static_cast<size_t>(earlier);
      if (done[j][race.queue_of(i)] <= race.rank(i) && race.has_run(j))
        problem(
            fmt::format("instruction {} may overtake instruction {}, which touches the same place", name(j), name(i)));
    });
  }
  return problems;
}

}  // namespace tessera::inline accel
