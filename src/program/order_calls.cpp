#include "program/order_calls.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <queue>
#include <set>

#include "program/memory_plan.h"
#include "program/steps.h"
#include "support/error.h"

namespace tessera::inline program {
namespace {

using CallId = int32_t;
using Order = std::vector<CallId>;

// Who wrote and who has read since, for every byte of one root.
class Accesses {
 public:
  void read(int64_t begin, int64_t end, CallId call, std::vector<CallId>& before) {
    for (auto it = cut(begin, end); it != pieces_.end() && it->first < end; ++it) {
      if (it->second.writer >= 0) before.push_back(it->second.writer);
      it->second.readers.push_back(call);
    }
  }

  void write(int64_t begin, int64_t end, CallId call, std::vector<CallId>& before) {
    const auto first = cut(begin, end);
    auto it = first;
    for (; it != pieces_.end() && it->first < end; ++it) {
      if (it->second.writer >= 0) before.push_back(it->second.writer);
      before.insert(before.end(), it->second.readers.begin(), it->second.readers.end());
    }
    pieces_.erase(first, it);
    pieces_[begin] = {end, call, {}};
  }

 private:
  struct Piece {
    int64_t end = 0;
    CallId writer = -1;
    std::vector<CallId> readers;
  };
  using Pieces = std::map<int64_t, Piece>;

  // Makes `begin` and `end` borders of pieces, with nothing missing in between; the first piece.
  Pieces::iterator cut(int64_t begin, int64_t end) {
    for (const int64_t at : {begin, end}) {
      auto it = pieces_.lower_bound(at);
      if (it == pieces_.begin()) continue;
      --it;
      if (it->second.end <= at) continue;
      Piece rest = it->second;
      it->second.end = at;
      pieces_[at] = std::move(rest);
    }
    int64_t place = begin;
    for (auto it = pieces_.lower_bound(begin); place < end;) {
      const bool gap = it == pieces_.end() || it->first > place;
      const int64_t next = gap ? (it == pieces_.end() ? end : std::min(end, it->first)) : it->second.end;
      if (gap) pieces_[place] = {next, -1, {}};
      else ++it;
      place = next;
    }
    return pieces_.lower_bound(begin);
  }

  Pieces pieces_;
};

// Which pieces of memory one run of calls alone uses: for each storage the run, or what stands for several.
constexpr int32_t kNoRun = -1, kManyRuns = -2;
std::vector<int32_t> runs_of_storage(const Program& program) {
  std::vector<int32_t> runs(program.buffers.size(), kNoRun);
  const std::vector<int32_t> run_of = run_of_calls(program);
  for (size_t call = 0; call < program.calls.size(); ++call)
    for (const BufferId arg : program.calls[call].args) {
      const BufferId storage = storage_buffer(program, arg);
      check(storage >= 0, "a call uses a buffer without a root");
      int32_t& run = runs[static_cast<size_t>(storage)];
      run = run == kNoRun || run == run_of[call] ? run_of[call] : kManyRuns;
    }
  for_each_step(program.steps, [&](const ProgramStep& step) {
    for_each_step_buffer(step,
                         [&](BufferId id) { runs[static_cast<size_t>(storage_buffer(program, id))] = kManyRuns; });
  });
  return runs;
}

// Sizes and uses of the roots in the arena that a run of calls alone uses, and what an order of these calls makes of
// them.
class Memory {
 public:
  Memory(const Program& program, const std::vector<int32_t>& runs, int32_t number_of_run, const CallRun& run)
      : roots_of_(run.count) {
    std::vector<int32_t> number(program.buffers.size(), -1);
    for (size_t call = 0; call < run.count; ++call) {
      std::vector<int32_t>& roots = roots_of_[call];
      for (const BufferId arg : program.calls[run.first + call].args) {
        const BufferId root = storage_buffer(program, arg);
        const ProgramBuffer& buffer = program.buffers[static_cast<size_t>(root)];
        if (buffer.kind != BufferKind::kArena || runs[static_cast<size_t>(root)] != number_of_run) continue;
        int32_t& id = number[static_cast<size_t>(root)];
        if (id < 0) {
          id = static_cast<int32_t>(bytes_.size());
          bytes_.push_back((buffer.bytes + kBufferAlign - 1) / kBufferAlign * kBufferAlign);
          users_.emplace_back();
        }
        if (std::find(roots.begin(), roots.end(), id) != roots.end()) continue;
        roots.push_back(id);
        users_[static_cast<size_t>(id)].push_back(static_cast<CallId>(call));
      }
    }
  }

  const std::vector<int32_t>& roots_of(CallId call) const { return roots_of_[static_cast<size_t>(call)]; }
  const std::vector<CallId>& users(int32_t root) const { return users_[static_cast<size_t>(root)]; }
  int64_t bytes(int32_t root) const { return bytes_[static_cast<size_t>(root)]; }
  size_t num_roots() const { return bytes_.size(); }

  int64_t peak(const Order& order) const {
    std::vector<size_t> left(bytes_.size());
    for (size_t i = 0; i < left.size(); ++i) left[i] = users_[i].size();
    int64_t live = 0, most = 0;
    for (const CallId call : order) {
      for (const int32_t root : roots_of(call))
        if (left[static_cast<size_t>(root)] == users(root).size()) live += bytes(root);
      most = std::max(most, live);
      for (const int32_t root : roots_of(call))
        if (--left[static_cast<size_t>(root)] == 0) live -= bytes(root);
    }
    return most;
  }

 private:
  std::vector<std::vector<int32_t>> roots_of_;  // by call
  std::vector<int64_t> bytes_;                  // by root, aligned
  std::vector<std::vector<CallId>> users_;      // by root, ascending
};

// Of the calls that are ready, the one that adds least to what is alive afterwards; the earliest of several.
class ListScheduler {
 public:
  ListScheduler(const Memory& memory, const std::vector<std::vector<CallId>>& before)
      : memory_(memory), waiting_(before.size()), after_(before.size()), left_(memory.num_roots()) {
    for (size_t call = 0; call < before.size(); ++call) {
      waiting_[call] = before[call].size();
      for (const CallId b : before[call]) after_[static_cast<size_t>(b)].push_back(static_cast<CallId>(call));
    }
    for (size_t root = 0; root < left_.size(); ++root) left_[root] = memory.users(static_cast<int32_t>(root)).size();
  }

  Order run() {
    Order order;
    for (size_t call = 0; call < waiting_.size(); ++call)
      if (waiting_[call] == 0) push(static_cast<CallId>(call));
    std::vector<bool> done(waiting_.size(), false);
    while (!ready_.empty()) {
      const auto [growth, call] = ready_.top();
      ready_.pop();
      // An entry may be out of date: the call is entered again whenever its growth changes.
      if (done[static_cast<size_t>(call)] || growth != growth_of(call)) continue;
      done[static_cast<size_t>(call)] = true;
      order.push_back(call);
      finish(call, done);
    }
    return order;
  }

 private:
  int64_t growth_of(CallId call) const {
    int64_t growth = 0;
    for (const int32_t root : memory_.roots_of(call)) {
      const size_t left = left_[static_cast<size_t>(root)];
      if (left == memory_.users(root).size()) growth += memory_.bytes(root);
      if (left == 1) growth -= memory_.bytes(root);
    }
    return growth;
  }

  void push(CallId call) { ready_.push({growth_of(call), call}); }

  void finish(CallId call, const std::vector<bool>& done) {
    for (const int32_t root : memory_.roots_of(call)) {
      size_t& left = left_[static_cast<size_t>(root)];
      const bool first = left-- == memory_.users(root).size();
      // Only the first and the last use of a root change what the others cost.
      if (!first && left != 1) continue;
      for (const CallId user : memory_.users(root))
        if (!done[static_cast<size_t>(user)] && waiting_[static_cast<size_t>(user)] == 0) push(user);
    }
    for (const CallId next : after_[static_cast<size_t>(call)])
      if (--waiting_[static_cast<size_t>(next)] == 0) push(next);
  }

  const Memory& memory_;
  std::vector<size_t> waiting_;  // calls that must run before it
  std::vector<std::vector<CallId>> after_;
  std::vector<size_t> left_;  // by root: users that have not run
  std::priority_queue<std::pair<int64_t, CallId>, std::vector<std::pair<int64_t, CallId>>, std::greater<>> ready_;
};

// Operands first, the most demanding of them before the others.
Order depth_first(const Memory& memory, const std::vector<std::vector<CallId>>& before) {
  const size_t count = before.size();
  // As if the program was a tree: memory for computing a call and everything before it, and what stays of it.
  std::vector<int64_t> need(count, 0), result(count, 0);
  std::vector<std::vector<CallId>> operands(before);
  std::vector<bool> is_operand(count, false);
  for (size_t call = 0; call < count; ++call) {
    int64_t own = 0;
    for (const int32_t root : memory.roots_of(static_cast<CallId>(call))) {
      const auto& users = memory.users(root);
      if (users.front() == static_cast<CallId>(call)) own += memory.bytes(root);
    }
    result[call] = own;
    auto& list = operands[call];
    std::stable_sort(list.begin(), list.end(), [&](CallId a, CallId b) {
      const auto i = static_cast<size_t>(a), j = static_cast<size_t>(b);
      return need[i] - result[i] > need[j] - result[j];
    });
    int64_t held = 0;
    for (const CallId operand : list) {
      need[call] = std::max(need[call], held + need[static_cast<size_t>(operand)]);
      held += result[static_cast<size_t>(operand)];
      is_operand[static_cast<size_t>(operand)] = true;
    }
    need[call] = std::max(need[call], held + own);
  }
  Order order;
  std::vector<bool> entered(count, false);
  std::vector<std::pair<CallId, size_t>> stack;  // a call and how many of its operands have been visited
  for (size_t root = 0; root < count; ++root) {
    if (is_operand[root]) continue;
    stack.push_back({static_cast<CallId>(root), 0});
    entered[root] = true;
    while (!stack.empty()) {
      auto& [call, next] = stack.back();
      const auto& list = operands[static_cast<size_t>(call)];
      if (next == list.size()) {
        order.push_back(call);
        stack.pop_back();
        continue;
      }
      const CallId operand = list[next++];
      if (entered[static_cast<size_t>(operand)]) continue;
      entered[static_cast<size_t>(operand)] = true;
      stack.push_back({operand, 0});
    }
  }
  return order;
}

std::vector<std::vector<int32_t>> dependencies(const Program& program, const CallRun& run) {
  std::map<BufferId, Accesses> roots;
  std::vector<std::vector<CallId>> before(run.count);
  for (size_t call = 0; call < run.count; ++call) {
    const KernelCall& c = program.calls[run.first + call];
    const auto outputs = static_cast<size_t>(program.kernels[static_cast<size_t>(c.kernel)].program.num_outputs);
    std::vector<CallId>& list = before[call];
    for (size_t i = 0; i < c.args.size(); ++i) {
      const BufferId id = c.args[i];
      const BufferId storage = storage_buffer(program, id);
      const ProgramBuffer& buffer = program.buffers[static_cast<size_t>(storage)];
      if (buffer.kind == BufferKind::kWeight || buffer.kind == BufferKind::kInput) continue;
      const int64_t begin = place_in_root(program, id).begin;
      const int64_t end = begin + travel_in_root(program, id) + program.buffers[static_cast<size_t>(id)].bytes;
      if (begin == end) continue;
      const bool writes = i + outputs >= c.args.size();
      if (writes) roots[storage].write(begin, end, static_cast<CallId>(call), list);
      else roots[storage].read(begin, end, static_cast<CallId>(call), list);
    }
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
    // A call that writes over its own input waits for itself.
    std::erase(list, static_cast<CallId>(call));
  }
  return before;
}

Order best_order(const Memory& memory, const std::vector<std::vector<CallId>>& before) {
  Order best(before.size());
  std::iota(best.begin(), best.end(), 0);
  int64_t least = memory.peak(best);
  for (Order order : {ListScheduler(memory, before).run(), depth_first(memory, before)}) {
    check(order.size() == before.size(), "an order without all calls");
    if (const int64_t peak = memory.peak(order); peak < least) {
      least = peak;
      best = std::move(order);
    }
  }
  return best;
}

}  // namespace

std::vector<std::vector<int32_t>> call_dependencies(const Program& program) {
  return dependencies(program, {0, program.calls.size()});
}

void order_calls(Program& program) {
  const std::vector<int32_t> runs_of = runs_of_storage(program);
  const std::vector<CallRun> runs = call_runs(program);
  std::vector<KernelCall> calls;
  for (size_t r = 0; r < runs.size(); ++r) {
    const Memory memory(program, runs_of, static_cast<int32_t>(r), runs[r]);
    for (const CallId call : best_order(memory, dependencies(program, runs[r])))
      calls.push_back(std::move(program.calls[runs[r].first + static_cast<size_t>(call)]));
  }
  program.calls = std::move(calls);
}

}  // namespace tessera::inline program
