#include "program/steps.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "arith/simplify.h"
#include "support/error.h"

namespace tessera::inline program {
namespace {

constexpr int64_t kLargestOffset = int64_t{1} << 56;  // of a view, in bytes

class TimelineBuilder {
 public:
  Timeline run(const Program& program) {
    if (program.steps.empty()) calls(0, program.calls.size());
    else block(program.steps);
    return std::move(time_);
  }

 private:
  void calls(size_t first, size_t count) {
    for (size_t i = 0; i < count; ++i) time_.moments.push_back({Moment::kCall, first + i, nullptr, loop_, -1});
  }

  void block(const StepBlock& steps) {
    for (const ProgramStep& step : steps) {
      switch (step.kind) {
        case StepKind::kCalls: calls(step.first_call, step.num_calls); break;
        case StepKind::kBranch:
          time_.moments.push_back({Moment::kBranch, 0, &step, loop_, -1});
          for (const StepBlock& inner : step.blocks) block(inner);
          break;
        case StepKind::kLoop: loop(step); break;
        case StepKind::kBind: time_.moments.push_back({Moment::kBind, 0, &step, loop_, -1}); break;
        case StepKind::kCopy: time_.moments.push_back({Moment::kCopy, 0, &step, loop_, -1}); break;
        case StepKind::kStart:
          started_[step.token] = &step;
          for (const StepBlock& inner : step.blocks) block(inner);
          break;
        case StepKind::kWait:
          if (const auto start = started_.find(step.token); start != started_.end())
            time_.moments.push_back({Moment::kWait, 0, start->second, loop_, -1});
          break;
      }
    }
  }

  void loop(const ProgramStep& step) {
    const auto number = static_cast<int32_t>(time_.loops.size());
    const int32_t outer = loop_;
    time_.loops.push_back({outer, static_cast<int32_t>(time_.moments.size()), 0, &step});
    time_.moments.push_back({Moment::kLoopBegin, 0, &step, outer, number});
    loop_ = number;
    for (const StepBlock& inner : step.blocks) block(inner);
    loop_ = outer;
    time_.loops[static_cast<size_t>(number)].end = static_cast<int32_t>(time_.moments.size());
    time_.moments.push_back({Moment::kLoopEnd, 0, &step, outer, number});
  }

  Timeline time_;
  std::map<int32_t, const ProgramStep*> started_;  // by token
  int32_t loop_ = -1;
};

// Steps without the calls that are gone, whose numbers are in ascending order.
void renumber_calls(StepBlock& steps, const std::set<size_t>& gone) {
  for_each_step(steps, [&](ProgramStep& step) {
    const auto first = gone.lower_bound(step.first_call);
    const auto end = gone.lower_bound(step.first_call + step.num_calls);
    step.num_calls -= static_cast<size_t>(std::distance(first, end));
    step.first_call -= static_cast<size_t>(std::distance(gone.begin(), first));
  });
}

}  // namespace

std::vector<CallRun> call_runs(const Program& program) {
  if (program.steps.empty()) return {{0, program.calls.size()}};
  std::vector<CallRun> runs;
  for_each_step(program.steps, [&](const ProgramStep& step) {
    if (step.kind == StepKind::kCalls) runs.push_back({step.first_call, step.num_calls});
  });
  return runs;
}

std::vector<int32_t> run_of_calls(const Program& program) {
  std::vector<int32_t> result(program.calls.size(), -1);
  const std::vector<CallRun> runs = call_runs(program);
  for (size_t r = 0; r < runs.size(); ++r)
    for (size_t i = 0; i < runs[r].count; ++i) result[runs[r].first + i] = static_cast<int32_t>(r);
  return result;
}

StepBlock steps_of(const Program& program) {
  if (!program.steps.empty()) return program.steps;
  ProgramStep all;
  all.num_calls = program.calls.size();
  return {all};
}

void add_call(Program& program, StepBlock& block, KernelCall call) {
  if (block.empty() || block.back().kind != StepKind::kCalls) block.emplace_back().first_call = program.calls.size();
  check(block.back().first_call + block.back().num_calls == program.calls.size(),
        "a call is added to a block that is not the last one");
  ++block.back().num_calls;
  program.calls.push_back(std::move(call));
}

void insert_calls_first(Program& program, std::vector<KernelCall> calls) {
  check(program.pieces.empty(), "calls are put before those of the pieces");
  if (!program.steps.empty()) {
    for_each_step(program.steps, [&](ProgramStep& step) { step.first_call += calls.size(); });
    if (program.steps[0].kind != StepKind::kCalls) program.steps.emplace(program.steps.begin());
    program.steps[0].first_call = 0;
    program.steps[0].num_calls += calls.size();
  }
  program.calls.insert(program.calls.begin(), std::make_move_iterator(calls.begin()),
                       std::make_move_iterator(calls.end()));
}

void remove_calls(Program& program, const std::set<size_t>& gone) {
  std::vector<KernelCall> calls;
  for (size_t c = 0; c < program.calls.size(); ++c)
    if (!gone.contains(c)) calls.push_back(std::move(program.calls[c]));
  program.calls = std::move(calls);
  renumber_calls(program.steps, gone);
  for (ProgramPiece& piece : program.pieces) {
    const auto first = gone.lower_bound(piece.first_call);
    const auto end = gone.lower_bound(piece.first_call + piece.num_calls);
    piece.num_calls -= static_cast<size_t>(std::distance(first, end));
    piece.first_call -= static_cast<size_t>(std::distance(gone.begin(), first));
  }
}

int32_t memory_of_device(const Program& program, int32_t device) {
  return device > 0 && program.devices[static_cast<size_t>(device) - 1].in_host_memory ? 0 : device;
}

std::vector<int32_t> operation_numbers(const Program& program) {
  std::vector<int32_t> numbers;
  int32_t next = 0;
  for (const Kernel& kernel : program.kernels) numbers.push_back(kernel.device == 0 ? -1 : next++);
  return numbers;
}

int32_t num_tokens(const Program& program, int32_t device) {
  int32_t count = 0;
  for_each_step(program.steps, [&](const ProgramStep& step) {
    if (step.kind == StepKind::kStart && step.device == device) count = std::max(count, step.token + 1);
  });
  return count;
}

std::vector<SymbolRange> loop_indices(const Program& program) {
  std::vector<SymbolRange> indices;
  for_each_step(program.steps, [&](const ProgramStep& step) {
    if (step.kind == StepKind::kLoop) indices.push_back(step.index);
  });
  return indices;
}

bool set_view_offset(ProgramBuffer& view, const Expr& offset, const std::vector<SymbolRange>& symbols,
                     const std::vector<SymbolRange>& indices) {
  VarMap largest;
  for (const SymbolRange& symbol : symbols) largest[symbol.var.get()] = symbol.hi;
  Bounds bounds;
  for (const SymbolRange& index : indices) {
    // Of a loop that never runs, nothing moves.
    const int64_t hi = std::max(index.lo, index.hi);
    bounds.set(index.var, hi == INT64_MAX ? Interval{index.lo, {}} : Interval{index.lo, hi});
  }
  const Interval range = bounds_of(simplify(substitute(offset, largest), bounds), bounds);
  if (!range.lo || !range.hi || *range.lo < -kLargestOffset || *range.hi > kLargestOffset) return false;
  view.view_offset = *range.lo;
  view.view_travel = *range.hi - *range.lo;
  view.view_offset_formula = as_int(offset) ? Expr() : offset;
  return true;
}

int64_t travel_in_root(const Program& program, BufferId id) {
  int64_t travel = 0;
  for (size_t hops = 0; hops <= program.buffers.size(); ++hops) {
    if (id < 0 || static_cast<size_t>(id) >= program.buffers.size()) break;
    const ProgramBuffer& buffer = program.buffers[static_cast<size_t>(id)];
    if (buffer.alias_of < 0) break;
    travel += buffer.view_travel;
    id = buffer.alias_of;
  }
  return travel;
}

Timeline timeline_of(const Program& program) { return TimelineBuilder().run(program); }

std::vector<LiveRange> live_ranges(const Program& program, const Timeline& time,
                                   const std::function<BufferId(BufferId)>& whole) {
  constexpr int32_t kUnused = -2;
  // The innermost loop that has all uses of a buffer.
  std::vector<BufferId> key(program.buffers.size(), -1);
  std::vector<int32_t> home(program.buffers.size(), kUnused);
  std::vector<int32_t> depth(time.loops.size(), 0);
  for (size_t l = 0; l < time.loops.size(); ++l)
    if (time.loops[l].parent >= 0) depth[l] = depth[static_cast<size_t>(time.loops[l].parent)] + 1;
  const auto parent = [&](int32_t loop) { return time.loops[static_cast<size_t>(loop)].parent; };
  const auto depth_of = [&](int32_t loop) { return loop < 0 ? -1 : depth[static_cast<size_t>(loop)]; };
  for_each_access(program, time, [&](BufferId id, int32_t, int32_t loop, AccessKind) {
    BufferId& of = key[static_cast<size_t>(id)];
    if (of < 0) of = whole(id);
    check(of >= 0, "a step uses a buffer without a root");
    int32_t& common = home[static_cast<size_t>(of)];
    if (common == kUnused) common = loop;
    while (common != loop) {
      if (depth_of(common) >= depth_of(loop)) common = parent(common);
      else loop = parent(loop);
    }
  });
  std::vector<LiveRange> ranges(program.buffers.size());
  for_each_access(program, time, [&](BufferId id, int32_t at, int32_t loop, AccessKind) {
    const auto of = static_cast<size_t>(key[static_cast<size_t>(id)]);
    int32_t first = at, last = at;
    while (loop != home[of]) {
      first = time.loops[static_cast<size_t>(loop)].begin;
      last = time.loops[static_cast<size_t>(loop)].end;
      loop = parent(loop);
    }
    LiveRange& range = ranges[of];
    range.first = range.first < 0 ? first : std::min(range.first, first);
    range.last = std::max(range.last, last);
  });
  return ranges;
}

}  // namespace tessera::inline program
