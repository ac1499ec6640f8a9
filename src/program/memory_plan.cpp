#include "program/memory_plan.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>
#include <string_view>

#include "support/error.h"

namespace tessera {
namespace {

int64_t aligned(int64_t bytes) { return (bytes + kBufferAlign - 1) / kBufferAlign * kBufferAlign; }

bool alive_together(const Lifetime& a, const Lifetime& b) { return a.first <= b.last && b.first <= a.last; }

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

void place_weights(Program& program) {
  std::multimap<size_t, BufferId> by_hash;
  int64_t end = 0;
  for (size_t i = 0; i < program.buffers.size(); ++i) {
    ProgramBuffer& buffer = program.buffers[i];
    if (buffer.kind != BufferKind::kWeight || buffer.alias_of >= 0) continue;
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
  program.weight_bytes = end;
}

}  // namespace

BufferId root_buffer(const Program& program, BufferId id) {
  const auto count = static_cast<BufferId>(program.buffers.size());
  for (BufferId steps = 0; steps <= count; ++steps) {
    if (id < 0 || id >= count) return -1;
    const BufferId next = program.buffers[static_cast<size_t>(id)].alias_of;
    if (next == -1) return id;
    id = next;
  }
  return -1;
}

std::vector<Lifetime> arena_lifetimes(const Program& program) {
  std::map<BufferId, Lifetime> lifetimes;
  for (size_t call = 0; call < program.calls.size(); ++call)
    for (const BufferId arg : program.calls[call].args) {
      const BufferId root = root_buffer(program, arg);
      check(root >= 0, "a call uses a buffer without a root");
      const ProgramBuffer& buffer = program.buffers[static_cast<size_t>(root)];
      if (buffer.kind != BufferKind::kArena) continue;
      const auto at = static_cast<int32_t>(call);
      Lifetime& lifetime = lifetimes.try_emplace(root, Lifetime{root, at, at, aligned(buffer.bytes)}).first->second;
      lifetime.last = at;
    }
  std::vector<Lifetime> result;
  for (const auto& [root, lifetime] : lifetimes) result.push_back(lifetime);
  return result;
}

int64_t arena_lower_bound(const Program& program) {
  std::vector<int64_t> change(program.calls.size() + 1, 0);
  for (const Lifetime& lifetime : arena_lifetimes(program)) {
    change[static_cast<size_t>(lifetime.first)] += lifetime.bytes;
    change[static_cast<size_t>(lifetime.last) + 1] -= lifetime.bytes;
  }
  int64_t live = 0;
  int64_t most = 0;
  for (const int64_t bytes : change) most = std::max(most, live += bytes);
  return most;
}

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
  std::vector<int64_t> best;
  total = INT64_MAX;
  for (const Before& before : orders) {
    std::vector<size_t> order(lifetimes.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return before(lifetimes[a], lifetimes[b]); });
    int64_t end = 0;
    std::vector<int64_t> offsets = place_in_order(lifetimes, order, end);
    if (end < total) {
      total = end;
      best = std::move(offsets);
    }
  }
  return best;
}

void plan_memory(Program& program) {
  for (ProgramBuffer& buffer : program.buffers) buffer.offset = -1;
  const std::vector<Lifetime> lifetimes = arena_lifetimes(program);
  const std::vector<int64_t> offsets = place_buffers(lifetimes, program.arena_bytes);
  for (size_t i = 0; i < lifetimes.size(); ++i)
    program.buffers[static_cast<size_t>(lifetimes[i].buffer)].offset = offsets[i];
  place_weights(program);
  for (size_t i = 0; i < program.buffers.size(); ++i) {
    ProgramBuffer& buffer = program.buffers[i];
    if (buffer.alias_of < 0) continue;
    const BufferId root = root_buffer(program, static_cast<BufferId>(i));
    check(root >= 0, "buffer " + buffer.name + " is an alias of nothing");
    buffer.offset = program.buffers[static_cast<size_t>(root)].offset;
  }
}

}  // namespace tessera
