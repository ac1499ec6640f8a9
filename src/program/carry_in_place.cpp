#include "program/carry_in_place.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "program/in_place.h"
#include "program/memory_plan.h"
#include "program/steps.h"

namespace tessera::inline program {
namespace {

// What is smaller is copied in less time than it takes to look where it is.
constexpr int64_t kLeastSwapBytes = 256;

class Carrier {
 public:
  explicit Carrier(Program& program) : program_(program) {}

  void run() {
    // Inner loops first: what they write is what outer ones see.
    std::vector<ProgramStep*> loops;
    for_each_step(program_.steps, [&](ProgramStep& step) {
      if (step.kind == StepKind::kLoop) loops.push_back(&step);
    });
    for (auto loop = loops.rbegin(); loop != loops.rend(); ++loop) {
      std::vector<CarriedValue> left;
      for (CarriedValue& carried : std::exchange((*loop)->carried, {})) {
        // As if it was the only one: the others are nothing to it.
        if (carried.swap || !write_over(**loop, carried)) left.push_back(carried);
      }
      (*loop)->carried = std::move(left);
      for (CarriedValue& carried : (*loop)->carried) carried.swap = carried.swap || may_swap(carried);
    }
  }

 private:
  const ProgramBuffer& at(BufferId id) const { return program_.buffers[static_cast<size_t>(id)]; }

  bool is_taken_over(BufferId id) const {
    return std::any_of(program_.buffers.begin(), program_.buffers.end(),
                       [&](const ProgramBuffer& buffer) { return buffer.over == id; });
  }

  bool may_swap(const CarriedValue& carried) const {
    for (const BufferId id : {carried.current, carried.next})
      if (at(id).kind != BufferKind::kArena || at(id).alias_of >= 0) return false;
    return at(carried.current).bytes >= kLeastSwapBytes && at(carried.next).over < 0 && !is_taken_over(carried.next);
  }

  // When the block of a loop uses both, in moments.
  struct Uses {
    int32_t last_read = -1;    // of what it was
    int32_t first_write = -1;  // of what it becomes
    bool others = false;       // which forbid that the two are one
  };

  Uses uses_in(const Timeline& time, int32_t number, const CarriedValue& carried) const {
    const Timeline::Loop& loop = time.loops[static_cast<size_t>(number)];
    const BufferId current = root_buffer(program_, carried.current);
    Uses uses;
    for_each_access(program_, time, [&](BufferId id, int32_t at_moment, int32_t inner, AccessKind kind) {
      const BufferId root = root_buffer(program_, id);
      if (root != current && root != carried.next) return;
      const bool inside = at_moment > loop.begin && at_moment < loop.end;
      if (!inside) {
        uses.others |= root == carried.next;
        return;
      }
      int32_t first = at_moment, last = at_moment;
      for (; inner != number; inner = time.loops[static_cast<size_t>(inner)].parent) {
        first = time.loops[static_cast<size_t>(inner)].begin;
        last = time.loops[static_cast<size_t>(inner)].end;
      }
      if (root == current) {
        uses.others |= kind == AccessKind::kWrite;
        uses.last_read = std::max(uses.last_read, last);
      } else if (kind == AccessKind::kWrite) {
        uses.first_write = uses.first_write < 0 ? first : std::min(uses.first_write, first);
      }
    });
    return uses;
  }

  // Whether the call may read what was carried and write what is carried next in one place.
  bool in_place(const KernelCall& call, const CarriedValue& carried) const {
    const LoopProgram& kernel = program_.kernels[static_cast<size_t>(call.kernel)].program;
    const size_t num_inputs = call.args.size() - static_cast<size_t>(kernel.num_outputs);
    const BufferId current = root_buffer(program_, carried.current);
    std::optional<size_t> input, output;
    for (size_t i = 0; i < call.args.size(); ++i) {
      const BufferId root = root_buffer(program_, call.args[i]);
      if (root != current && root != carried.next) continue;
      std::optional<size_t>& param = root == current ? input : output;
      if (param || (root == current) != (i < num_inputs)) return false;
      param = i;
    }
    if (!input || !output || !at(call.args[*output]).type.is_static()) return false;
    const RootPlace old = place_in_root(program_, carried.current), read = place_in_root(program_, call.args[*input]),
                    written = place_in_root(program_, call.args[*output]);
    if (read.begin != old.begin || written.begin != 0 || at(call.args[*input]).bytes != at(carried.next).bytes ||
        at(call.args[*output]).bytes != at(carried.next).bytes || travel_in_root(program_, call.args[*input]) > 0)
      return false;
    int64_t elements = 1;
    for (const int64_t dim : at(call.args[*output]).type.dims()) elements *= dim;
    return why_not_in_place(kernel, *input, *output, elements).empty();
  }

  // Makes `next` and `current` one buffer; false where they must stay two.
  bool write_over(const ProgramStep& step, const CarriedValue& carried) {
    const ProgramBuffer& next = at(carried.next);
    if (next.kind != BufferKind::kArena || next.alias_of >= 0 || next.over >= 0 || is_taken_over(carried.next))
      return false;
    for (size_t id = 0; id < program_.buffers.size(); ++id)
      if (program_.buffers[id].alias_of == carried.next && static_cast<BufferId>(id) < carried.current) return false;
    const Timeline time = timeline_of(program_);
    const auto number = std::find_if(time.loops.begin(), time.loops.end(),
                                     [&](const Timeline::Loop& loop) { return loop.step == &step; });
    const Uses uses = uses_in(time, static_cast<int32_t>(number - time.loops.begin()), carried);
    if (uses.others || uses.first_write < 0 || uses.last_read > uses.first_write) return false;
    if (uses.last_read == uses.first_write) {
      const Moment& moment = time.moments[static_cast<size_t>(uses.last_read)];
      if (moment.kind != Moment::kCall || !in_place(program_.calls[moment.call], carried)) return false;
    }
    replace(carried);
    return true;
  }

  void replace(const CarriedValue& carried) {
    for (size_t id = 0; id < program_.buffers.size(); ++id)
      if (root_buffer(program_, static_cast<BufferId>(id)) == carried.next && static_cast<BufferId>(id) != carried.next)
        program_.buffers[id].kind = at(carried.current).kind;
    for (ProgramBuffer& buffer : program_.buffers)
      if (buffer.alias_of == carried.next) buffer.alias_of = carried.current;
    BufferId instead = carried.current;
    const TensorType &old_type = at(carried.current).type, &new_type = at(carried.next).type;
    if (!same_shape(old_type.shape, new_type.shape) || old_type.layout != new_type.layout) {
      ProgramBuffer view = at(carried.next);
      view.kind = at(carried.current).kind;
      view.alias_of = carried.current;
      instead = static_cast<BufferId>(program_.buffers.size());
      program_.buffers.push_back(std::move(view));
    }
    const auto apply = [&](BufferId& id) {
      if (id == carried.next) id = instead;
    };
    for (KernelCall& call : program_.calls)
      for (BufferId& id : call.args) apply(id);
    for_each_step(program_.steps, [&](ProgramStep& step) { for_each_step_buffer(step, apply); });
  }

  Program& program_;
};

}  // namespace

void carry_in_place(Program& program) {
  if (!program.steps.empty()) Carrier(program).run();
}

}  // namespace tessera::inline program
