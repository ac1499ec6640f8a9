#include "program/memory_plan.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>
#include <string_view>

#include "program/steps.h"
#include "support/error.h"

namespace tessera::inline program {
namespace {

constexpr int64_t kMaxRetries = 200;           // placements tried beyond the usual orders
constexpr int64_t kMaxRetryWork = 50'000'000;  // pairs of buffers looked at by all of them, at most: about 0.1 s

int64_t aligned(int64_t bytes) { return (bytes + kBufferAlign - 1) / kBufferAlign * kBufferAlign; }

bool alive_together(const Lifetime& a, const Lifetime& b) { return a.first <= b.last && b.first <= a.last; }

int64_t largest_live_set(const std::vector<Lifetime>& lifetimes) {
  std::map<int32_t, int64_t> change;
  for (const Lifetime& lifetime : lifetimes) {
    change[lifetime.first] += lifetime.bytes;
    change[lifetime.last + 1] -= lifetime.bytes;
  }
  int64_t live = 0;
  int64_t most = 0;
  for (const auto& [call, bytes] : change) most = std::max(most, live += bytes);
  return most;
}

// Places buffers in the given order, each into the smallest gap that fits between those already placed that are alive
// at the same time, or else behind them.
std::vector<int64_t> place_in_order(const std::vector<Lifetime>& lifetimes, const std::vector<size_t>& order,
                                    int64_t& total) {
  std::vector<int64_t> offsets(lifetimes.size(), -1);
  std::vector<size_t> placed;  // by offset
  total = 0;
  for (const size_t i : order) {
    int64_t end = 0;  // of what stands before the gap
    int64_t best = -1;
    int64_t best_size = INT64_MAX;
    for (const size_t j : placed) {
      if (!alive_together(lifetimes[i], lifetimes[j])) continue;
      const int64_t gap = offsets[j] - end;
      if (gap >= lifetimes[i].bytes && gap < best_size) {
        best = end;
        best_size = gap;
      }
      end = std::max(end, offsets[j] + lifetimes[j].bytes);
    }
    offsets[i] = best >= 0 ? best : end;
    total = std::max(total, offsets[i] + lifetimes[i].bytes);
    const auto at =
        std::upper_bound(placed.begin(), placed.end(), i, [&](size_t a, size_t b) { return offsets[a] < offsets[b]; });
    placed.insert(at, i);
  }
  return offsets;
}

std::string_view bytes_of(const Tensor& tensor) {
  return {reinterpret_cast<const char*>(tensor.bytes()), static_cast<size_t>(tensor.num_bytes())};
}

// Returns how many bytes they need.
int64_t place_weights(Program& program, int32_t device) {
  std::multimap<size_t, BufferId> by_hash;
  int64_t end = 0;
  for (size_t i = 0; i < program.buffers.size(); ++i) {
    ProgramBuffer& buffer = program.buffers[i];
    if (buffer.kind != BufferKind::kWeight || buffer.alias_of >= 0 || buffer.device != device) continue;
    buffer.offset = -1;
    // A weight without data comes from a text that leaves it out; it has a place of its own.
    if (buffer.data && buffer.data->has_data()) {
      const std::string_view bytes = bytes_of(*buffer.data);
      const size_t hash = std::hash<std::string_view>()(bytes);
      const auto [first, last] = by_hash.equal_range(hash);
      for (auto it = first; it != last && buffer.offset < 0; ++it) {
        const ProgramBuffer& other = program.buffers[static_cast<size_t>(it->second)];
        if (bytes_of(*other.data) == bytes) buffer.offset = other.offset;
      }
      if (buffer.offset < 0) by_hash.emplace(hash, static_cast<BufferId>(i));
    }
    if (buffer.offset < 0) {
      buffer.offset = end;
      end += aligned(buffer.bytes);
    }
  }
  return end;
}

}  // namespace

RootPlace place_in_root(const Program& program, BufferId id) {
  const auto count = static_cast<BufferId>(program.buffers.size());
  int64_t begin = 0;
  for (BufferId steps = 0; steps <= count; ++steps) {
    if (id < 0 || id >= count) return {};
    const ProgramBuffer& buffer = program.buffers[static_cast<size_t>(id)];
    if (buffer.alias_of == -1) return {id, begin};
    begin += buffer.view_offset;
    id = buffer.alias_of;
  }
  return {};
}

BufferId root_buffer(const Program& program, BufferId id) { return place_in_root(program, id).root; }

BufferId storage_buffer(const Program& program, BufferId id) {
  id = root_buffer(program, id);
  const auto count = static_cast<BufferId>(program.buffers.size());
  for (BufferId steps = 0; steps <= count && id >= 0 && id < count; ++steps) {
    const BufferId next = program.buffers[static_cast<size_t>(id)].over;
    if (next == -1) return id;
    id = next;
  }
  return -1;
}

std::vector<Lifetime> arena_lifetimes(const Program& program) {
  const std::vector<LiveRange> ranges =
      live_ranges(program, timeline_of(program), [&](BufferId id) { return storage_buffer(program, id); });
  std::vector<Lifetime> result;
  for (size_t id = 0; id < ranges.size(); ++id) {
    const ProgramBuffer& buffer = program.buffers[id];
    if (ranges[id].first < 0 || buffer.kind != BufferKind::kArena) continue;
    result.push_back({static_cast<BufferId>(id), ranges[id].first, ranges[id].last, aligned(buffer.bytes)});
  }
  return result;
}

int64_t arena_lower_bound(const Program& program) { return largest_live_set(arena_lifetimes(program)); }

std::vector<int64_t> place_buffers(const std::vector<Lifetime>& lifetimes, int64_t& total) {
  // Greedy placement has no best order; the usual good ones are tried, and ties go to the first.
  const auto length = [](const Lifetime& l) { return int64_t{l.last} - l.first + 1; };
  using Before = std::function<bool(const Lifetime&, const Lifetime&)>;
  const Before orders[] = {
      [](const Lifetime& a, const Lifetime& b) { return a.bytes > b.bytes; },
      [&](const Lifetime& a, const Lifetime& b) {
        return a.bytes != b.bytes ? a.bytes > b.bytes : length(a) > length(b);
      },
      [&](const Lifetime& a, const Lifetime& b) {
        return static_cast<double>(a.bytes) * static_cast<double>(length(a)) >
               static_cast<double>(b.bytes) * static_cast<double>(length(b));
      },
      [&](const Lifetime& a, const Lifetime& b) {
        return length(a) != length(b) ? length(a) > length(b) : a.bytes > b.bytes;
      },
      [](const Lifetime& a, const Lifetime& b) { return a.first < b.first; },
  };
  const int64_t bound = largest_live_set(lifetimes);
  std::vector<int64_t> best;
  std::vector<size_t> best_order;
  total = INT64_MAX;
  for (const Before& before : orders) {
    if (total == bound) break;
    std::vector<size_t> order(lifetimes.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return before(lifetimes[a], lifetimes[b]); });
    int64_t end = 0;
    std::vector<int64_t> offsets = place_in_order(lifetimes, order, end);
    if (end < total) {
      total = end;
      best = std::move(offsets);
      best_order = order;
    }
  }
  // While the arena is larger than it must be: whatever ends up highest is placed earlier the next time ("squeaky
  // wheel" optimisation, Joslin and Clements, J. Artificial Intelligence Research 10, 1999).
  std::vector<size_t> order = best_order;
  std::vector<int64_t> offsets = best;
  int64_t end = total;
  const auto size = static_cast<int64_t>(lifetimes.size());
  const int64_t rounds = std::min<int64_t>(kMaxRetries, kMaxRetryWork / std::max<int64_t>(1, size * size));
  for (int64_t round = 0; round < rounds && total > bound; ++round) {
    const auto highest =
        std::find_if(order.begin(), order.end(), [&](size_t i) { return offsets[i] + lifetimes[i].bytes == end; });
    // A third of the way to the front: at once at the front, the same few would change places for ever.
    std::rotate(order.begin() + (highest - order.begin()) * 2 / 3, highest, highest + 1);
    if (highest == order.begin()) break;
    offsets = place_in_order(lifetimes, order, end);
    if (end >= total) continue;
    total = end;
    best = offsets;
  }
  return best;
}

void plan_memory(Program& program) {
  for (ProgramBuffer& buffer : program.buffers) buffer.offset = -1;
  const std::vector<Lifetime> lifetimes = arena_lifetimes(program);
  for (size_t device = 0; device <= program.devices.size(); ++device) {
    std::vector<Lifetime> own;
    for (const Lifetime& lifetime : lifetimes)
      if (program.buffers[static_cast<size_t>(lifetime.buffer)].device == static_cast<int32_t>(device))
        own.push_back(lifetime);
    int64_t arena_bytes = 0;
    const std::vector<int64_t> offsets = place_buffers(own, arena_bytes);
    for (size_t i = 0; i < own.size(); ++i) program.buffers[static_cast<size_t>(own[i].buffer)].offset = offsets[i];
    (device == 0 ? program.arena_bytes : program.devices[device - 1].arena_bytes) = arena_bytes;
    (device == 0 ? program.weight_bytes : program.devices[device - 1].weight_bytes) =
        place_weights(program, static_cast<int32_t>(device));
  }
  for (size_t i = 0; i < program.buffers.size(); ++i) {
    ProgramBuffer& buffer = program.buffers[i];
    if (buffer.alias_of < 0 && buffer.over < 0) continue;
    const BufferId storage = storage_buffer(program, static_cast<BufferId>(i));
    check(storage >= 0, "buffer " + buffer.name + " is a view of nothing");
    const int64_t begin = program.buffers[static_cast<size_t>(storage)].offset;
    buffer.offset = begin < 0 ? -1 : begin + place_in_root(program, static_cast<BufferId>(i)).begin;
  }
}

}  // namespace tessera::inline program
