#include "program/reuse_buffers.h"

#include <map>
#include <tuple>
#include <vector>

#include "program/in_place.h"
#include "program/memory_plan.h"
#include "program/steps.h"

namespace tessera::inline program {
namespace {

class Reuse {
 public:
  explicit Reuse(Program& program)
      : program_(program), taken_(program.buffers.size()), places_change_(program.buffers.size()) {}

  void run() {
    const Timeline time = timeline_of(program_);
    uses_ = live_ranges(program_, time, [&](BufferId id) { return root_buffer(program_, id); });
    for_each_step(program_.steps, [&](const ProgramStep& step) {
      for (const CarriedValue& carried : step.carried)
        if (carried.swap)
          taken_[static_cast<size_t>(carried.next)] = places_change_[static_cast<size_t>(carried.next)] = true;
    });
    for (size_t moment = 0; moment < time.moments.size(); ++moment)
      if (time.moments[moment].kind == Moment::kCall)
        visit(program_.calls[time.moments[moment].call], static_cast<int32_t>(moment));
  }

 private:
  ProgramBuffer& at(BufferId id) { return program_.buffers[static_cast<size_t>(id)]; }

  // The whole of an arena buffer, whatever the shape: its root; else -1.
  BufferId whole(BufferId id) {
    const auto [root, begin] = place_in_root(program_, id);
    return at(root).kind == BufferKind::kArena && begin == 0 && at(id).bytes == at(root).bytes ? root : -1;
  }

  // `number`: the moment of the call.
  void visit(const KernelCall& call, int32_t number) {
    const LoopProgram& kernel = program_.kernels[static_cast<size_t>(call.kernel)].program;
    const size_t num_inputs = call.args.size() - static_cast<size_t>(kernel.num_outputs);
    for (size_t i = num_inputs; i < call.args.size(); ++i) {
      const BufferId out = whole(call.args[i]);
      if (out < 0 || at(out).over >= 0 || places_change_[static_cast<size_t>(out)] ||
          uses_[static_cast<size_t>(out)].first != number)
        continue;
      for (size_t j = 0; j < num_inputs; ++j) {
        const BufferId in = whole(call.args[j]);
        if (in < 0 || at(in).bytes != at(out).bytes || taken_[static_cast<size_t>(in)]) continue;
        if (uses_[static_cast<size_t>(in)].last != number || appears_again(call, in, j)) continue;
        if (!is_safe(call, j, i)) continue;
        at(out).over = in;
        taken_[static_cast<size_t>(in)] = true;
        break;
      }
    }
  }

  // A second parameter with bytes of `root` might be read at other places.
  bool appears_again(const KernelCall& call, BufferId root, size_t except) const {
    for (size_t i = 0; i < call.args.size(); ++i)
      if (i != except && root_buffer(program_, call.args[i]) == root) return true;
    return false;
  }

  bool is_safe(const KernelCall& call, size_t input, size_t output) {
    const auto [it, is_new] = proofs_.try_emplace({call.kernel, input, output}, false);
    if (is_new) {
      if (!at(call.args[output]).type.is_static()) return false;  // nothing is proved of sizes that a run decides
      int64_t elements = 1;
      for (const int64_t dim : at(call.args[output]).type.dims()) elements *= dim;
      const LoopProgram& kernel = program_.kernels[static_cast<size_t>(call.kernel)].program;
      it->second = why_not_in_place(kernel, input, output, elements).empty();
    }
    return it->second;
  }

  Program& program_;
  std::vector<LiveRange> uses_;      // of roots
  std::vector<bool> taken_;          // roots whose bytes another buffer takes over, or must not
  std::vector<bool> places_change_;  // roots that take over nothing
  std::map<std::tuple<int32_t, size_t, size_t>, bool> proofs_;
};

}  // namespace

void reuse_buffers(Program& program) { Reuse(program).run(); }

}  // namespace tessera::inline program
