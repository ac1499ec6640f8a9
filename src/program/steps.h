// Walking over a program's steps: for passes that look at blocks, and for those that only want runs of calls.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <vector>

#include "program/program.h"

namespace tessera::inline program {

// Calls `visit` with each step of the block, from the outside to the inside, in order.
template <typename Block, typename Visit>
void for_each_step(Block& block, const Visit& visit) {
  for (auto& step : block) {
    visit(step);
    for (auto& inner : step.blocks) for_each_step(inner, visit);
  }
}

// Calls `visit` with each buffer that a step itself reads or writes, apart from the calls in it. Those of ProgramStep
// that are none (-1) are left out.
template <typename StepType, typename Visit>
void for_each_step_buffer(StepType& step, const Visit& visit) {
  if (step.condition >= 0) visit(step.condition);
  if (step.count_buffer >= 0) visit(step.count_buffer);
  if (step.from >= 0) visit(step.from);
  if (step.to >= 0) visit(step.to);
  for (auto& carried : step.carried) {
    visit(carried.current);
    visit(carried.next);
  }
}

// Calls one after the other, without a branch or a loop between them: numbers in Program::calls.
struct CallRun {
  size_t first = 0, count = 0;
};
// All of them, in the order of calls; one of a program without steps.
std::vector<CallRun> call_runs(const Program& program);
// By call: which of call_runs has it.
std::vector<int32_t> run_of_calls(const Program& program);

// The program's steps, those of one without included.
StepBlock steps_of(const Program& program);

// Puts a call at the end of `block`, which is the last one of the program that is being built: calls stand in
// Program::calls in the order of the steps.
void add_call(Program& program, StepBlock& block, KernelCall call);
// Puts calls before all others. REQUIRES: no pieces.
void insert_calls_first(Program& program, std::vector<KernelCall> calls);
// Removes the calls of these numbers; steps and pieces name the others.
void remove_calls(Program& program, const std::set<size_t>& gone);

// The device whose memory the buffers of a device's kernels lie in: itself, or the host.
int32_t memory_of_device(const Program& program, int32_t device);
// By kernel: its number among those of devices beside the host, in order; -1 of the host's.
std::vector<int32_t> operation_numbers(const Program& program);
// How many tokens the starts of a device need: one more than the largest.
int32_t num_tokens(const Program& program, int32_t device);

// The indices of all loops.
std::vector<SymbolRange> loop_indices(const Program& program);

// Makes `view` the part of its `alias_of` that begins at `offset` bytes, of the program's symbols and of `indices`.
// False where that has no smallest and largest value.
bool set_view_offset(ProgramBuffer& view, const Expr& offset, const std::vector<SymbolRange>& symbols,
                     const std::vector<SymbolRange>& indices);
// How far a buffer's bytes move in its root in all iterations of loops.
int64_t travel_in_root(const Program& program, BufferId id);

// When things happen: calls, branches, and the begins and ends of loops have numbers that rise from step to step, and
// into blocks. Of a program without branches and loops, the number of a call is its place among the calls.
struct Moment {
  enum Kind : uint8_t { kCall, kBranch, kLoopBegin, kLoopEnd, kBind, kCopy, kWait } kind = kCall;
  size_t call = 0;                    // kCall
  const ProgramStep* step = nullptr;  // of the others; of a wait, that which has started what it waits for
  int32_t loop = -1;                  // the innermost loop around it; of a loop's begin and end, that around the loop
  int32_t own_loop = -1;              // of a loop's begin and end
};
struct Timeline {
  struct Loop {
    int32_t parent = -1;         // the loop around it
    int32_t begin = 0, end = 0;  // moments
    const ProgramStep* step = nullptr;
  };
  std::vector<Moment> moments;
  std::vector<Loop> loops;
};
// The program must outlive what is answered.
Timeline timeline_of(const Program& program);

enum class AccessKind : uint8_t { kRead, kWrite };
// Calls `visit(buffer, moment, loop, kind)` with every access, in order: those of calls, and those of branches and
// loops. What the block of a start touches in the host's memory is touched by its wait again. `loop` is the innermost
// loop in each of whose iterations it happens. What one is carried to is read where its loop begins and written where
// it ends.
template <typename Visit>
void for_each_access(const Program& program, const Timeline& time, const Visit& visit) {
  const auto visit_call = [&](const KernelCall& call, int32_t at, int32_t loop) {
    const auto outputs = static_cast<size_t>(program.kernels[static_cast<size_t>(call.kernel)].program.num_outputs);
    for (size_t i = 0; i < call.args.size(); ++i)
      visit(call.args[i], at, loop, i + outputs >= call.args.size() ? AccessKind::kWrite : AccessKind::kRead);
  };
  for (size_t m = 0; m < time.moments.size(); ++m) {
    const Moment& moment = time.moments[m];
    const auto at = static_cast<int32_t>(m);
    switch (moment.kind) {
      case Moment::kCall: visit_call(program.calls[moment.call], at, moment.loop); break;
      case Moment::kBranch: visit(moment.step->condition, at, moment.loop, AccessKind::kRead); break;
      case Moment::kBind: visit(moment.step->count_buffer, at, moment.loop, AccessKind::kRead); break;
      case Moment::kCopy:
        visit(moment.step->from, at, moment.loop, AccessKind::kRead);
        visit(moment.step->to, at, moment.loop, AccessKind::kWrite);
        break;
      case Moment::kWait:
        for (const ProgramStep& copy : moment.step->blocks.at(0)) {
          if (copy.kind == StepKind::kCalls && memory_of_device(program, moment.step->device) == 0)
            for (size_t c = copy.first_call; c < copy.first_call + copy.num_calls; ++c)
              visit_call(program.calls[c], at, moment.loop);
          if (copy.kind != StepKind::kCopy) continue;
          const bool reads = program.buffers[static_cast<size_t>(copy.from)].device != moment.step->device;
          visit(reads ? copy.from : copy.to, at, moment.loop, reads ? AccessKind::kRead : AccessKind::kWrite);
        }
        break;
      case Moment::kLoopBegin:
        if (moment.step->count_buffer >= 0) visit(moment.step->count_buffer, at, moment.loop, AccessKind::kRead);
        if (moment.step->condition >= 0) visit(moment.step->condition, at, moment.loop, AccessKind::kRead);
        for (const CarriedValue& carried : moment.step->carried) {
          visit(carried.current, at, moment.loop, AccessKind::kRead);
          if (carried.swap) visit(carried.next, at, moment.loop, AccessKind::kWrite);
        }
        break;
      case Moment::kLoopEnd:
        for (const CarriedValue& carried : moment.step->carried) {
          visit(carried.next, at, carried.swap ? moment.loop : moment.own_loop, AccessKind::kRead);
          visit(carried.current, at, moment.loop, AccessKind::kWrite);
        }
        if (moment.step->condition >= 0) visit(moment.step->condition, at, moment.loop, AccessKind::kRead);
        break;
    }
  }
}

// From the first to the last moment at which a buffer's contents count. What a loop's block and something outside of
// the loop use lives all through the loop; what only the block uses lives in each iteration anew.
struct LiveRange {
  int32_t first = -1, last = -1;  // -1: never
};
// By what `whole` makes of buffers, which are those whose uses count together (the root, the storage).
std::vector<LiveRange> live_ranges(const Program& program, const Timeline& time,
                                   const std::function<BufferId(BufferId)>& whole);

}  // namespace tessera::inline program
