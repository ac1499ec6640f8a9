#include "program/rematerialize.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "program/donation.h"
#include "program/memory_plan.h"
#include "program/reuse_buffers.h"
#include "program/steps.h"
#include "support/error.h"

namespace tessera::inline program {
namespace {

constexpr size_t kLongestChain = 96;  // calls that are repeated together
constexpr int32_t kNever = std::numeric_limits<int32_t>::max();
constexpr double kOperationsPerSecond = 4e10, kBytesPerSecond = 8e9, kSecondsPerCall = 2e-6;  // only ratios matter
constexpr double kHope = 1.06;        // writing in place saves this much more of what is left
constexpr double kLessAtOnce = 0.98;  // of the goal, when writing in place saves less than was hoped for
constexpr int kMostGoals = 30;

int64_t aligned(int64_t bytes) { return (bytes + kBufferAlign - 1) / kBufferAlign * kBufferAlign; }

// How many bytes of states are kept in one place, and in two.
int64_t state_bytes(const Program& program) {
  std::set<int> in_place;
  for (const auto& [output, input] : output_aliases(program)) in_place.insert(output);
  int64_t bytes = 0;
  for (size_t s = 0; s < program.states.size(); ++s) {
    const ProgramBuffer& value = program.buffers[static_cast<size_t>(program.inputs[program.num_own_inputs() + s])];
    const bool once = in_place.contains(static_cast<int>(program.num_own_outputs() + s));
    bytes += (once ? 1 : 2) * aligned(value.bytes);
  }
  return bytes;
}

// A program as a list of items, the calls and the steps on top that are no calls, and what they need of the arena.
class Items {
 public:
  explicit Items(Program& program) : program_(program) {
    for (ProgramStep& step : steps_of(program)) {
      if (step.kind != StepKind::kCalls) {
        Item item;
        item.step = std::move(step);
        items_.push_back(std::move(item));
        continue;
      }
      for (size_t i = 0; i < step.num_calls; ++i) {
        Item item;
        item.call = program.calls[step.first_call + i];
        items_.push_back(std::move(item));
      }
    }
    find_accesses();
    for (size_t id = 0; id < program.buffers.size(); ++id) {
      const auto buffer = static_cast<BufferId>(id);
      origin_.push_back(buffer);
      if (program.buffers[id].over >= 0) {
        shares_.insert(buffer);
        shares_.insert(program.buffers[id].over);
      }
    }
    for (size_t s = 0; s < program.states.size(); ++s)
      new_value_of_[program.inputs[program.num_own_inputs() + s]] = program.outputs[program.num_own_outputs() + s];
    measure();
  }

  // Repeats calls until no more than `goal` bytes are needed at once. False when nothing helps any more.
  bool reduce(int64_t goal) {
    while (excess(goal) > 0) {
      const std::optional<Change> best = best_change(goal);
      if (!best) return false;
      apply(*best);
    }
    return true;
  }

  // The program of the items; with the buffers that were added.
  Program made() const {
    Program made = program_;
    made.calls.clear();
    made.steps.clear();
    for (const Item& item : items_) {
      if (item.call) {
        add_call(made, made.steps, *item.call);
        continue;
      }
      ProgramStep step = *item.step;
      for_each_step_of(step, [&](ProgramStep& inner) {
        if (inner.kind != StepKind::kCalls) return;
        const size_t first = made.calls.size();
        for (size_t i = 0; i < inner.num_calls; ++i) made.calls.push_back(program_.calls[inner.first_call + i]);
        inner.first_call = first;
      });
      made.steps.push_back(std::move(step));
    }
    if (program_.steps.empty()) made.steps.clear();
    return made;
  }

  // Why a value is there at item `at`; empty: it could be computed again behind it.
  std::string why_kept(BufferId value, int32_t at) const {
    const Value& v = values_[static_cast<size_t>(value)];
    if (uses_item(v, at)) return "it is read or written there";
    if (v.writer < 0) return "several calls or steps write it";
    if (!items_[static_cast<size_t>(v.writer)].call) return "a branch or loop computes it";
    return "to compute it again, as much would have to be kept";
  }

  int32_t peak_item() const {
    return static_cast<int32_t>(std::max_element(live_.begin(), live_.end()) - live_.begin());
  }
  int64_t peak() const { return live_.empty() ? 0 : *std::max_element(live_.begin(), live_.end()); }
  std::string name_of(int32_t item) const {
    const Item& at = items_[static_cast<size_t>(item)];
    if (!at.call) return at.step->loc.empty() ? "a loop or branch" : at.step->loc;
    return at.call->loc.empty() ? program_.kernels[static_cast<size_t>(at.call->kernel)].program.name : at.call->loc;
  }
  std::vector<BufferId> alive_at(int32_t item) const {
    std::vector<BufferId> alive;
    for (size_t id = 0; id < values_.size(); ++id)
      if (values_[id].bytes > 0 && values_[id].first <= item && values_[id].last >= item)
        alive.push_back(static_cast<BufferId>(id));
    return alive;
  }
  int64_t bytes_of(BufferId value) const { return values_[static_cast<size_t>(value)].bytes; }

 private:
  // A call, or a step of another kind.
  struct Item {
    std::optional<KernelCall> call;
    std::optional<ProgramStep> step;
    std::vector<BufferId> reads, writes;  // storages, each once
    int64_t inner = 0;                    // what a step needs for itself alone
  };
  // A storage. Bytes: in the host's arena, 0 of all others.
  struct Value {
    int64_t bytes = 0;
    int32_t first = -1, last = -1;
    int32_t writer = -1;  // the item that alone writes it; -2: several
    int32_t last_write = -1, first_write = kNever;
    std::vector<int32_t> uses;  // ascending
  };
  // Calls that are repeated before an item.
  struct Change {
    int32_t before = 0;
    std::vector<int32_t> repeated;  // items, in order
    double seconds = 0;
    int64_t saved = 0;  // of the excess
  };

  template <typename Visit>
  static void for_each_step_of(ProgramStep& step, const Visit& visit) {
    visit(step);
    for (StepBlock& block : step.blocks) for_each_step(block, visit);
  }

  // What items read and write, and what steps need for what nothing else uses.
  void find_accesses() {
    const Timeline time = timeline_of(program_);
    std::vector<int32_t> item_of(time.moments.size(), -1);
    std::vector<std::pair<size_t, size_t>> calls_of(items_.size());  // of calls: their number; of steps: their range
    std::vector<int32_t> item_of_call(program_.calls.size(), -1);
    std::map<const ProgramStep*, int32_t> item_of_step;
    size_t next = 0;
    for (size_t i = 0; i < items_.size(); ++i) {
      Item& item = items_[i];
      if (item.call) {
        item_of_call[next++] = static_cast<int32_t>(i);
        continue;
      }
      for_each_step_of(*item.step, [&](ProgramStep& inner) {
        if (inner.kind == StepKind::kCalls)
          for (size_t c = 0; c < inner.num_calls; ++c) item_of_call[next++] = static_cast<int32_t>(i);
      });
    }
    // Steps without calls have moments, too: by their place among the program's own steps.
    size_t number = 0;
    for (const ProgramStep& step : program_.steps) {
      if (step.kind == StepKind::kCalls) {
        number += step.num_calls;
        continue;
      }
      item_of_step[&step] = static_cast<int32_t>(number);
      for (const StepBlock& block : step.blocks)
        for_each_step(block,
                      [&, at = number](const ProgramStep& inner) { item_of_step[&inner] = static_cast<int32_t>(at); });
      ++number;
    }
    for (size_t m = 0; m < time.moments.size(); ++m) {
      const Moment& moment = time.moments[m];
      item_of[m] = moment.kind == Moment::kCall ? item_of_call[moment.call] : item_of_step.at(moment.step);
    }
    const auto add = [](std::vector<BufferId>& list, BufferId id) {
      if (std::find(list.begin(), list.end(), id) == list.end()) list.push_back(id);
    };
    std::vector<std::set<int32_t>> users(program_.buffers.size());
    for_each_access(program_, time, [&](BufferId id, int32_t at, int32_t, AccessKind kind) {
      const BufferId storage = storage_buffer(program_, id);
      Item& item = items_[static_cast<size_t>(item_of[static_cast<size_t>(at)])];
      add(kind == AccessKind::kWrite ? item.writes : item.reads, storage);
      users[static_cast<size_t>(storage)].insert(item_of[static_cast<size_t>(at)]);
    });
    // What one step alone uses, by the moments in it.
    std::map<int32_t, std::map<int32_t, int64_t>> changes;
    for (const Lifetime& lifetime : arena_lifetimes(program_)) {
      const std::set<int32_t>& by = users[static_cast<size_t>(lifetime.buffer)];
      if (by.size() != 1 || items_[static_cast<size_t>(*by.begin())].call) continue;
      changes[*by.begin()][lifetime.first] += lifetime.bytes;
      changes[*by.begin()][lifetime.last + 1] -= lifetime.bytes;
      inner_.insert(lifetime.buffer);
    }
    for (const auto& [item, change] : changes) {
      int64_t live = 0;
      for (const auto& [moment, bytes] : change)
        items_[static_cast<size_t>(item)].inner = std::max(items_[static_cast<size_t>(item)].inner, live += bytes);
    }
  }

  // Lifetimes of values, and what is alive at each item.
  void measure() {
    values_.assign(program_.buffers.size(), {});
    for (size_t id = 0; id < values_.size(); ++id) {
      const ProgramBuffer& buffer = program_.buffers[id];
      const bool counts = buffer.kind == BufferKind::kArena && buffer.device == 0 && buffer.alias_of < 0 &&
                          buffer.over < 0 && !inner_.contains(static_cast<BufferId>(id));
      values_[id].bytes = counts ? aligned(buffer.bytes) : 0;
    }
    for (size_t i = 0; i < items_.size(); ++i) {
      const auto at = static_cast<int32_t>(i);
      const auto use = [&](BufferId id) {
        Value& value = values_[static_cast<size_t>(id)];
        if (value.first < 0) value.first = at;
        value.last = at;
        if (value.uses.empty() || value.uses.back() != at) value.uses.push_back(at);
      };
      for (const BufferId id : items_[i].reads) use(id);
      for (const BufferId id : items_[i].writes) {
        use(id);
        Value& value = values_[static_cast<size_t>(id)];
        value.writer = value.writer == -1 ? at : -2;
        value.first_write = std::min(value.first_write, at);
        value.last_write = at;
      }
    }
    live_.assign(items_.size() + 1, 0);
    crossing_.assign(items_.size() + 1, 0);
    for (const Value& value : values_) {
      if (value.first < 0) continue;
      live_[static_cast<size_t>(value.first)] += value.bytes;
      live_[static_cast<size_t>(value.last) + 1] -= value.bytes;
      crossing_[static_cast<size_t>(value.first) + 1] += value.bytes;
      crossing_[static_cast<size_t>(value.last) + 1] -= value.bytes;
    }
    for (size_t i = 1; i <= items_.size(); ++i) {
      live_[i] += live_[i - 1];
      crossing_[i] += crossing_[i - 1];
    }
    live_.pop_back();
    for (size_t i = 0; i < items_.size(); ++i) live_[i] += items_[i].inner;
  }

  static bool uses_item(const Value& value, int32_t at) {
    return std::binary_search(value.uses.begin(), value.uses.end(), at);
  }
  // Alive when item `at` begins.
  static bool is_there(const Value& value, int32_t at) { return value.first < at && value.last >= at; }

  int64_t excess(int64_t goal) const {
    int64_t sum = 0;
    for (const int64_t bytes : live_) sum += std::max<int64_t>(0, bytes - goal);
    return sum;
  }

  // Whether the item is a call whose results are whole buffers of the arena that it alone writes.
  bool can_repeat(int32_t item) const {
    if (item < 0 || !items_[static_cast<size_t>(item)].call) return false;
    const Item& at = items_[static_cast<size_t>(item)];
    return std::all_of(at.writes.begin(), at.writes.end(), [&](BufferId id) {
      const ProgramBuffer& buffer = program_.buffers[static_cast<size_t>(id)];
      return buffer.kind == BufferKind::kArena && buffer.device == 0 && buffer.type.is_static() &&
             !shares_.contains(id) && values_[static_cast<size_t>(id)].writer == item &&
             values_[static_cast<size_t>(id)].first == item;
    });
  }

  double seconds_of(int32_t item) const {
    const KernelCall& call = *items_[static_cast<size_t>(item)].call;
    const Kernel& kernel = program_.kernels[static_cast<size_t>(call.kernel)];
    int64_t bytes = 0;
    for (const BufferId arg : call.args) bytes += program_.buffers[static_cast<size_t>(arg)].bytes;
    return kSecondsPerCall + static_cast<double>(bytes) / kBytesPerSecond +
           static_cast<double>(std::max<int64_t>(0, kernel.flops)) / kOperationsPerSecond;
  }

  // The value of the same contents as `id` that is there before item `at`, or -1.
  BufferId there(BufferId id, int32_t at) const {
    const BufferId origin = origin_[static_cast<size_t>(id)];
    if (is_there(values_[static_cast<size_t>(origin)], at)) return origin;
    if (const auto copies = copies_.find(origin); copies != copies_.end())
      for (const BufferId copy : copies->second)
        if (is_there(values_[static_cast<size_t>(copy)], at)) return copy;
    return -1;
  }

  // Adds to the change what makes `item` repeatable before change.before: the calls before it, whose results are gone.
  // False when it cannot be repeated there. `repeats`: operands that are gone, but were there until now, are computed
  // again as well, instead of being kept.
  bool repeat(int32_t item, bool repeats, Change& change, std::set<int32_t>& seen) const {
    if (seen.contains(item)) return true;
    if (!can_repeat(item) || seen.size() >= kLongestChain) return false;
    seen.insert(item);
    for (const BufferId id : items_[static_cast<size_t>(item)].reads) {
      const Value& value = values_[static_cast<size_t>(id)];
      const ProgramBuffer& buffer = program_.buffers[static_cast<size_t>(id)];
      // What it read then must still be there to be read.
      if (value.last_write > item) {
        for (const int32_t use : value.uses)
          if (use > item && use < change.before) {
            const std::vector<BufferId>& writes = items_[static_cast<size_t>(use)].writes;
            if (std::find(writes.begin(), writes.end(), id) != writes.end()) return false;
          }
      }
      if (const auto state = new_value_of_.find(id); state != new_value_of_.end()) {
        // Reading a state's old value behind its new one would take a second place for it.
        const BufferId after = storage_buffer(program_, state->second);
        if (values_[static_cast<size_t>(after)].first_write < change.before) return false;
      }
      if (buffer.kind != BufferKind::kArena || there(id, change.before) >= 0) continue;
      const bool keep = !repeats || value.bytes * 16 <= wanted_;
      const bool can = can_repeat(value.writer);
      if (keep || !can) {
        if (value.last >= change.before) return false;  // it is written later
        continue;
      }
      if (!repeat(value.writer, repeats, change, seen)) return false;
    }
    change.repeated.push_back(item);
    return true;
  }

  // What the change saves of the excess over the goal.
  int64_t saved(const Change& change, int64_t goal) const {
    const int32_t before = change.before;
    std::map<int32_t, int64_t> differences;  // from this item on
    int64_t base = crossing_[static_cast<size_t>(before)];
    const size_t count = change.repeated.size();
    std::vector<int64_t> inserted(count, 0);
    const std::set<int32_t> repeated(change.repeated.begin(), change.repeated.end());
    std::map<BufferId, size_t> last_need;  // of operands and results, within the chain
    for (size_t k = 0; k < count; ++k) {
      const Item& item = items_[static_cast<size_t>(change.repeated[k])];
      for (const BufferId id : item.reads) last_need[id] = k;
      for (const BufferId id : item.writes) last_need[id] = k;
    }
    for (size_t k = 0; k < count; ++k) {
      const Item& item = items_[static_cast<size_t>(change.repeated[k])];
      for (const BufferId id : item.writes) {
        const Value& value = values_[static_cast<size_t>(id)];
        const bool is_needed = value.last >= before;
        if (is_needed) {
          const int32_t last = last_use_before(value, before);
          differences[last + 1] -= value.bytes;
          base -= value.bytes;
        }
        for (size_t i = k; i < (is_needed ? count : last_need.at(id) + 1); ++i) inserted[i] += value.bytes;
      }
    }
    for (const auto& [id, until] : last_need) {
      const Value& value = values_[static_cast<size_t>(id)];
      if (value.bytes == 0 || repeated.contains(value.writer) || there(id, before) >= 0) continue;
      differences[value.last + 1] += value.bytes;  // kept for longer
      for (size_t i = 0; i <= until; ++i) inserted[i] += value.bytes;
    }
    int64_t saved = 0, difference = 0;
    if (!differences.empty()) {
      auto next = differences.begin();
      for (int32_t i = next->first; i < before; ++i) {
        for (; next != differences.end() && next->first <= i; ++next) difference += next->second;
        const int64_t old = live_[static_cast<size_t>(i)];
        saved += std::max<int64_t>(0, old - goal) - std::max<int64_t>(0, old + difference - goal);
      }
    }
    for (const int64_t bytes : inserted) saved -= std::max<int64_t>(0, base + bytes - goal);
    return saved;
  }

  static int32_t last_use_before(const Value& value, int32_t before) {
    return *std::prev(std::lower_bound(value.uses.begin(), value.uses.end(), before));
  }

  std::optional<Change> best_change(int64_t goal) {
    std::vector<int32_t> over(live_.size() + 1, 0);  // items before this one that need too much
    for (size_t i = 0; i < live_.size(); ++i) over[i + 1] = over[i] + (live_[i] > goal ? 1 : 0);
    std::optional<Change> best;
    double best_rate = 0;
    for (const Value& value : values_) {
      if (value.bytes == 0 || value.uses.size() < 2 || !can_repeat(value.writer)) continue;
      for (size_t u = 1; u < value.uses.size(); ++u) {
        const int32_t before = value.uses[u];
        if (over[static_cast<size_t>(before)] == over[static_cast<size_t>(value.uses[u - 1]) + 1]) continue;
        wanted_ = value.bytes;
        for (const bool repeats : {false, true}) {
          Change change;
          change.before = before;
          std::set<int32_t> seen;
          if (!repeat(value.writer, repeats, change, seen)) continue;
          for (const int32_t item : change.repeated) change.seconds += seconds_of(item);
          change.saved = saved(change, goal);
          const double rate = static_cast<double>(change.saved) / change.seconds;
          if (change.saved <= 0 || rate <= best_rate) continue;
          best_rate = rate;
          best = std::move(change);
        }
      }
    }
    return best;
  }

  // The same part of another buffer.
  BufferId view_of(BufferId id, const std::map<BufferId, BufferId>& copies, std::map<BufferId, BufferId>& views) {
    if (const auto copy = copies.find(id); copy != copies.end()) return copy->second;
    const BufferId whole = program_.buffers[static_cast<size_t>(id)].alias_of;
    if (whole < 0) return id;
    if (const auto made = views.find(id); made != views.end()) return made->second;
    const BufferId other = view_of(whole, copies, views);
    if (other == whole) return id;
    ProgramBuffer view = program_.buffers[static_cast<size_t>(id)];
    view.alias_of = other;
    return views[id] = add_buffer(std::move(view), id);
  }

  BufferId add_buffer(ProgramBuffer buffer, BufferId like) {
    const auto id = static_cast<BufferId>(program_.buffers.size());
    const BufferId origin = origin_[static_cast<size_t>(like)];
    buffer.name = fmt::format("{}.again{}", program_.buffers[static_cast<size_t>(origin)].name, id);
    program_.buffers.push_back(std::move(buffer));
    origin_.push_back(origin);
    return id;
  }

  static void replace(std::vector<BufferId>& list, const std::map<BufferId, BufferId>& copies) {
    for (BufferId& id : list)
      if (const auto copy = copies.find(id); copy != copies.end()) id = copy->second;
  }

  void apply(const Change& change) {
    std::map<BufferId, BufferId> copies, views, others;  // of results; of operands that are there as copies
    for (const int32_t item : change.repeated)
      for (const BufferId id : items_[static_cast<size_t>(item)].writes) {
        const BufferId copy = add_buffer(program_.buffers[static_cast<size_t>(id)], id);
        copies[id] = copy;
        copies_[origin_[static_cast<size_t>(id)]].push_back(copy);
      }
    std::vector<Item> inserted;
    for (const int32_t number : change.repeated) {
      Item item = items_[static_cast<size_t>(number)];
      std::map<BufferId, BufferId> there_now = copies, own_views;
      for (const BufferId id : item.reads)
        if (!copies.contains(id) && values_[static_cast<size_t>(id)].bytes > 0)
          if (const BufferId now = there(id, change.before); now >= 0 && now != id) there_now[id] = now;
      for (BufferId& arg : item.call->args) arg = view_of(arg, there_now, own_views);
      replace(item.reads, there_now);
      replace(item.writes, there_now);
      inserted.push_back(std::move(item));
    }
    for (size_t i = static_cast<size_t>(change.before); i < items_.size(); ++i) {
      Item& item = items_[i];
      if (item.call)
        for (BufferId& arg : item.call->args) arg = view_of(arg, copies, views);
      else
        for_each_step_of(*item.step, [&](ProgramStep& step) {
          for_each_step_buffer(step, [&](BufferId& id) { id = view_of(id, copies, views); });
          if (step.kind != StepKind::kCalls) return;
          for (size_t c = 0; c < step.num_calls; ++c)
            for (BufferId& arg : program_.calls[step.first_call + c].args) arg = view_of(arg, copies, views);
        });
      replace(item.reads, copies);
      replace(item.writes, copies);
    }
    items_.insert(items_.begin() + change.before, std::make_move_iterator(inserted.begin()),
                  std::make_move_iterator(inserted.end()));
    measure();
  }

  Program& program_;  // its buffers grow, and calls in steps get other arguments
  std::vector<Item> items_;
  std::vector<Value> values_;     // by buffer
  std::vector<BufferId> origin_;  // by buffer: what it is a copy of, itself when it is none
  std::map<BufferId, std::vector<BufferId>> copies_;
  std::set<BufferId> inner_;                   // that one step alone uses
  std::set<BufferId> shares_;                  // bytes with others that take over, or are taken over
  std::map<BufferId, BufferId> new_value_of_;  // of a state's input: its output
  std::vector<int64_t> live_;                  // by item: bytes
  std::vector<int64_t> crossing_;              // by item: bytes of what is there before it and still needed
  int64_t wanted_ = 0;                         // bytes of the value that is asked for: what is much smaller is kept
};

// What the arena needs when kernels write over what dies.
int64_t arena_in_place(Program program, int64_t limit) {
  reuse_buffers(program);
  if (const int64_t bound = arena_lower_bound(program); bound > limit) return bound;
  plan_memory(program);
  return program.arena_bytes;
}

}  // namespace

void rematerialize(Program& program, int64_t max_bytes) {
  if (!program.pieces.empty() || !program.devices.empty()) return;
  const int64_t limit = max_bytes - state_bytes(program);
  int64_t needed = arena_in_place(program, limit);
  if (needed <= limit || limit <= 0) return;
  Program work = program;
  Items items(work);
  // What writing in place saves is hoped to be saved of what is left, and more.
  auto goal = static_cast<int64_t>(kHope * static_cast<double>(limit) * static_cast<double>(items.peak()) /
                                   static_cast<double>(needed));
  Program best = program;
  int64_t least = needed;
  for (int round = 0; round < kMostGoals; ++round) {
    const bool reached = items.reduce(goal);
    Program made = items.made();
    needed = arena_in_place(made, limit);
    if (needed < least) {
      least = needed;
      best = std::move(made);
    }
    if (least <= limit || !reached) break;
    goal = static_cast<int64_t>(static_cast<double>(goal) * kLessAtOnce);
  }
  program = std::move(best);
}

int64_t session_bytes(const Program& program) { return program.arena_bytes + state_bytes(program); }

MemoryPeak memory_peak(const Program& program) {
  Program as_planned = program, apart = program;
  for (ProgramBuffer& buffer : apart.buffers) buffer.over = -1;  // what writes over another one has a name of its own
  const Items planned(as_planned), items(apart);
  const int32_t at = planned.peak_item();
  MemoryPeak peak{.at = planned.name_of(at), .bytes = planned.peak(), .values = {}};
  for (const BufferId id : items.alive_at(at))
    peak.values.push_back({program.buffers[static_cast<size_t>(id)].name, items.bytes_of(id), items.why_kept(id, at)});
  std::stable_sort(peak.values.begin(), peak.values.end(),
                   [](const MemoryPeak::Value& a, const MemoryPeak::Value& b) { return a.bytes > b.bytes; });
  return peak;
}

}  // namespace tessera::inline program
