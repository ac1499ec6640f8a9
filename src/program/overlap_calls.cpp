#include "program/overlap_calls.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "program/memory_plan.h"
#include "program/steps.h"

namespace tessera::inline program {
namespace {

// Of one run: which calls of it wait for which, by whole storages.
class Run {
 public:
  Run(const Program& program, const CallRun& run, const std::function<int32_t(const KernelCall&)>& device_of)
      : before_(run.count), on_device_(run.count), late_(run.count) {
    struct Uses {
      std::vector<size_t> readers;  // since the last writer
      std::vector<size_t> writer;   // none or one
    };
    std::map<BufferId, Uses> uses;
    for (size_t c = 0; c < run.count; ++c) {
      const KernelCall& call = program.calls[run.first + c];
      const auto outputs = static_cast<size_t>(program.kernels[static_cast<size_t>(call.kernel)].program.num_outputs);
      on_device_[c] = device_of(call) > 0;
      const auto wait_for = [&](const std::vector<size_t>& others) {
        for (const size_t other : others)
          if (other != c) before_[c].push_back(other);
      };
      for (size_t i = 0; i < call.args.size(); ++i) {
        Uses& of = uses[storage_buffer(program, call.args[i])];
        wait_for(of.writer);
        if (i + outputs < call.args.size()) {
          of.readers.push_back(c);
        } else {
          wait_for(of.readers);
          of = {{}, {c}};
        }
      }
      late_[c] = std::any_of(before_[c].begin(), before_[c].end(),
                             [&](size_t b) { return late_[b] || (on_device_[b] && !on_device_[c]); });
    }
  }

  // The numbers of the calls in their new order.
  std::vector<size_t> order() const {
    std::vector<size_t> order;
    std::vector<bool> done(before_.size(), false);
    const auto put = [&](size_t call) {
      order.push_back(call);
      done[call] = true;
    };
    const auto put_ready = [&] {
      for (size_t c = 0; c < before_.size(); ++c)
        if (on_device_[c] && !late_[c] && !done[c] &&
            std::all_of(before_[c].begin(), before_[c].end(), [&](size_t b) { return done[b]; }))
          put(c);
    };
    put_ready();
    for (size_t c = 0; c < before_.size(); ++c) {
      if (late_[c] || on_device_[c]) continue;
      put(c);
      put_ready();
    }
    for (size_t c = 0; c < before_.size(); ++c)
      if (!done[c]) put(c);
    return order;
  }

 private:
  std::vector<std::vector<size_t>> before_;
  std::vector<bool> on_device_, late_;
};

}  // namespace

void overlap_calls(Program& program, const std::function<int32_t(const KernelCall& call)>& device_of) {
  for (const CallRun& run : call_runs(program)) {
    const std::vector<size_t> order = Run(program, run, device_of).order();
    std::vector<KernelCall> calls;
    for (const size_t c : order) calls.push_back(std::move(program.calls[run.first + c]));
    std::move(calls.begin(), calls.end(), program.calls.begin() + static_cast<std::ptrdiff_t>(run.first));
  }
}

}  // namespace tessera::inline program
