#include "program/assign_devices.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "program/memory_plan.h"
#include "program/merge_kernels.h"
#include "program/steps.h"
#include "support/error.h"

namespace tessera::inline program {
namespace {

constexpr int32_t kShared = -1;  // of buffers: used by more than one device

class Assigner {
 public:
  Assigner(Program& program, const std::function<int32_t(const KernelCall&)>& device_of,
           const std::set<std::string>& direct)
      : program_(program), direct_(direct) {
    for (const KernelCall& call : program.calls) {
      device_of_call_.push_back(device_of(call));
      check(device_of_call_.back() >= 0 && static_cast<size_t>(device_of_call_.back()) <= program.devices.size(),
            "a call is given to a device that the program does not have");
    }
  }

  void run() {
    move_buffers();
    StepBlock old_steps = steps_of(program_);
    old_calls_ = std::exchange(program_.calls, {});
    program_.steps = block(old_steps);
    drop_copies_that_nobody_reads();
    const auto only_calls = [](const ProgramStep& step) { return step.kind == StepKind::kCalls; };
    if (std::all_of(program_.steps.begin(), program_.steps.end(), only_calls)) program_.steps.clear();
  }

 private:
  ProgramBuffer& at(BufferId id) { return program_.buffers[static_cast<size_t>(id)]; }
  const Kernel& kernel_of(const KernelCall& call) const { return program_.kernels[static_cast<size_t>(call.kernel)]; }

  // Those that one device alone uses.
  void move_buffers() {
    std::map<BufferId, int32_t> device;  // of storages and weights
    const auto uses = [&](BufferId id, int32_t by) {
      const auto [known, is_new] = device.try_emplace(storage_buffer(program_, id), by);
      if (!is_new && known->second != by) known->second = kShared;
    };
    for (size_t c = 0; c < program_.calls.size(); ++c)
      for (const BufferId id : program_.calls[c].args) uses(id, memory_of_device(program_, device_of_call_[c]));
    for_each_step(program_.steps,
                  [&](const ProgramStep& step) { for_each_step_buffer(step, [&](BufferId id) { uses(id, 0); }); });
    for (const ProgramState& state : program_.states)
      if (state.initial >= 0) uses(state.initial, 0);
    for (size_t i = 0; i < program_.buffers.size(); ++i) {
      const auto id = static_cast<BufferId>(i);
      const auto found = device.find(storage_buffer(program_, id));
      const bool moves = at(id).kind == BufferKind::kArena || at(id).kind == BufferKind::kWeight;
      if (moves && found != device.end() && found->second > 0) at(id).device = found->second;
    }
  }

  // What a start reads and writes on the host.
  struct Pending {
    int32_t token = 0, device = 0;
    std::set<BufferId> reads, writes;  // storages
  };

  StepBlock block(const StepBlock& old_steps) {
    StepBlock result;
    std::vector<Pending> pending;
    valid_.clear();
    for (const ProgramStep& old : old_steps) {
      if (old.kind == StepKind::kCalls) {
        for (size_t i = 0; i < old.num_calls; ++i) call(old.first_call + i, result, pending);
        continue;
      }
      wait_for_all(result, pending);
      ProgramStep step = old;
      for (StepBlock& inner : step.blocks) inner = block(inner);
      valid_.clear();  // a block may have written anything
      result.push_back(std::move(step));
    }
    wait_for_all(result, pending);
    valid_.clear();
    return result;
  }

  void call(size_t number, StepBlock& result, std::vector<Pending>& pending) {
    KernelCall moved = old_calls_[number];
    const int32_t device = device_of_call_[number], memory = memory_of_device(program_, device);
    const auto outputs = static_cast<size_t>(kernel_of(moved).program.num_outputs);
    const size_t first_output = moved.args.size() - outputs;
    std::set<BufferId> reads, writes;
    for (size_t i = 0; i < moved.args.size(); ++i) {
      if (at(moved.args[i]).device == memory && memory != 0) continue;
      (i < first_output ? reads : writes).insert(storage_buffer(program_, moved.args[i]));
    }
    for (size_t p = 0; p < pending.size();) {
      const bool touched =
          pending[p].device != device &&
          (meet(pending[p].writes, reads) || meet(pending[p].writes, writes) || meet(pending[p].reads, writes));
      if (!touched) {
        ++p;
        continue;
      }
      const int32_t busy = pending[p].device, token = pending[p].token;
      // What a queue that works in the host's memory was given before is done then, too: its buffers are free again.
      if (memory_of_device(program_, busy) == 0) {
        for (size_t e = 0; e < pending.size();) {
          if (pending[e].device == busy && pending[e].token <= token) wait(result, pending, e);
          else ++e;
        }
        p = 0;
      } else {
        wait(result, pending, p);
      }
    }
    if (device == 0) {
      add_call(program_, result, std::move(moved));
      for (const BufferId written : writes) forget(written, -1);
      return;
    }
    // What works in the host's memory is waited for one by one: there are no copies to share.
    const bool goes_on =
        memory != 0 && !result.empty() && result.back().kind == StepKind::kStart && result.back().device == device;
    if (!goes_on) {
      ProgramStep start;
      start.kind = StepKind::kStart;
      start.device = device;
      start.token = next_token_++;
      start.blocks.emplace_back();
      pending.push_back({start.token, device, {}, {}});
      result.push_back(std::move(start));
    }
    StepBlock& queue = result.back().blocks[0];
    Pending& own = pending.back();
    if (memory == 0) {
      moved.kernel = kernel_on(moved.kernel, device);
      add_call(program_, queue, std::move(moved));
      own.reads.insert(reads.begin(), reads.end());
      own.writes.insert(writes.begin(), writes.end());
      for (const BufferId written : writes) forget(written, -1);
      return;
    }
    std::vector<std::pair<BufferId, BufferId>> written;  // there, here
    for (size_t i = 0; i < moved.args.size(); ++i) {
      const BufferId here = moved.args[i];
      if (at(here).device == device) continue;
      const BufferId there = on_device(here, device);
      moved.args[i] = there;
      if (at(there).kind == BufferKind::kWeight) continue;
      if (i >= first_output) {
        written.emplace_back(there, here);
      } else if (valid_.insert(there).second) {
        copy_in(queue, copy_step(there, nearest(here, device, pending), moved.loc));
        own.reads.insert(storage_buffer(program_, here));
      }
    }
    moved.kernel = kernel_on(moved.kernel, device);
    const std::string loc = moved.loc;
    add_call(program_, queue, std::move(moved));
    for (const auto& [there, here] : written) {
      queue.push_back(copy_step(here, there, loc));
      const BufferId storage = storage_buffer(program_, here);
      own.writes.insert(storage);
      forget(storage, there);
      valid_.insert(there);
    }
  }

  // In front of the start's calls, so that nothing lies between these, where none of its steps uses what the copy
  // writes, or writes what it reads.
  void copy_in(StepBlock& queue, ProgramStep copy) const {
    const auto same = [&](BufferId a, BufferId b) {
      return storage_buffer(program_, a) == storage_buffer(program_, b);
    };
    const bool stays = std::any_of(queue.begin(), queue.end(), [&](const ProgramStep& step) {
      if (step.kind == StepKind::kCopy)
        return same(step.to, copy.from) || same(step.to, copy.to) || same(step.from, copy.to);
      for (size_t c = step.first_call; c < step.first_call + step.num_calls; ++c)
        for (const BufferId arg : program_.calls[c].args)
          if (same(arg, copy.to) || same(arg, copy.from)) return true;
      return false;
    });
    const auto first =
        std::find_if(queue.begin(), queue.end(), [](const ProgramStep& step) { return step.kind != StepKind::kCopy; });
    queue.insert(stays ? queue.end() : first, std::move(copy));
  }

  static bool meet(const std::set<BufferId>& a, const std::set<BufferId>& b) {
    return std::any_of(a.begin(), a.end(), [&](BufferId id) { return b.contains(id); });
  }

  static ProgramStep copy_step(BufferId to, BufferId from, const std::string& loc) {
    ProgramStep step;
    step.kind = StepKind::kCopy;
    step.to = to;
    step.from = from;
    step.loc = loc;
    return step;
  }

  void wait(StepBlock& result, std::vector<Pending>& pending, size_t which) {
    ProgramStep step;
    step.kind = StepKind::kWait;
    step.token = pending[which].token;
    pending.erase(pending.begin() + static_cast<std::ptrdiff_t>(which));
    result.push_back(std::move(step));
  }

  void wait_for_all(StepBlock& result, std::vector<Pending>& pending) {
    while (!pending.empty()) wait(result, pending, 0);
  }

  const std::string& kind_of(int32_t device) const { return program_.devices[static_cast<size_t>(device) - 1].kind; }

  // Where a device copies the host's buffer from: from another one's, if that holds the same and its queue has nothing
  // to do with the buffer any more. Whoever changes it waits for this device like for one that reads the host's.
  BufferId nearest(BufferId here, int32_t device, const std::vector<Pending>& pending) const {
    if (!direct_.contains(kind_of(device))) return here;
    const BufferId storage = storage_buffer(program_, here);
    for (const auto& [key, there] : there_) {
      const int32_t other = key.second;
      if (key.first != here || other == device || kind_of(other) != kind_of(device) || !valid_.contains(there))
        continue;
      const bool busy = std::any_of(pending.begin(), pending.end(), [&](const Pending& p) {
        return p.device == other && (p.reads.contains(storage) || p.writes.contains(storage));
      });
      if (!busy) return there;
    }
    return here;
  }

  // Those to buffers of the host that only devices read, from one another.
  void drop_copies_that_nobody_reads() {
    if (direct_.empty()) return;
    std::set<BufferId> read;  // storages
    for (const KernelCall& call : program_.calls)
      for (const BufferId id : call.args)
        if (at(id).device == 0) read.insert(storage_buffer(program_, id));
    for (const ProgramState& state : program_.states)
      if (state.initial >= 0) read.insert(storage_buffer(program_, state.initial));
    for_each_step(program_.steps, [&](const ProgramStep& step) {
      for_each_step_buffer(step, [&](BufferId id) {
        if (step.kind != StepKind::kCopy || id == step.from) read.insert(storage_buffer(program_, id));
      });
    });
    for_each_step(program_.steps, [&](ProgramStep& step) {
      if (step.kind != StepKind::kStart) return;
      std::erase_if(step.blocks[0], [&](const ProgramStep& one) {
        if (one.kind != StepKind::kCopy || at(one.to).device != 0) return false;
        const BufferId storage = storage_buffer(program_, one.to);
        return at(storage).kind == BufferKind::kArena && !read.contains(storage);
      });
    });
  }

  // What devices have of a storage of the host is no longer what is there, apart from `except`.
  void forget(BufferId storage, BufferId except) {
    for (const auto& [key, there] : there_)
      if (there != except && storage_buffer(program_, key.first) == storage) valid_.erase(there);
  }

  // The device's own buffer for what a buffer of another one holds; of weights, another with the same contents.
  BufferId on_device(BufferId here, int32_t device) {
    const auto [known, is_new] = there_.try_emplace({here, device}, -1);
    if (!is_new) return known->second;
    ProgramBuffer own;
    own.name = at(here).name + "." + program_.devices[static_cast<size_t>(device) - 1].name;
    own.kind = at(here).kind == BufferKind::kWeight ? BufferKind::kWeight : BufferKind::kArena;
    own.device = device;
    own.type = at(here).type;
    own.bytes = at(here).bytes;
    if (own.kind == BufferKind::kWeight) {
      const RootPlace place = place_in_root(program_, here);
      if (place.root == here) {
        own.data = at(here).data;
      } else {  // a part of other weights
        own.alias_of = on_device(place.root, device);
        own.view_offset = place.begin;
      }
    }
    const auto id = static_cast<BufferId>(program_.buffers.size());
    program_.buffers.push_back(std::move(own));
    return there_[{here, device}] = id;
  }

  // A copy of the kernel for a device.
  int32_t kernel_on(int32_t kernel, int32_t device) {
    const auto [known, is_new] = kernels_.try_emplace({kernel, device}, -1);
    if (!is_new) return known->second;
    Kernel own = program_.kernels[static_cast<size_t>(kernel)];
    own.program.name += "." + program_.devices[static_cast<size_t>(device) - 1].name;
    own.device = device;
    const auto id = static_cast<int32_t>(program_.kernels.size());
    program_.kernels.push_back(std::move(own));
    return kernels_[{kernel, device}] = id;
  }

  Program& program_;
  const std::set<std::string>& direct_;
  std::vector<KernelCall> old_calls_;
  std::vector<int32_t> device_of_call_;
  std::map<std::pair<BufferId, int32_t>, BufferId> there_;
  std::map<std::pair<int32_t, int32_t>, int32_t> kernels_;
  std::set<BufferId> valid_;  // buffers of devices that hold what the host's do
  int32_t next_token_ = 0;
};

}  // namespace

void assign_devices(Program& program, const std::vector<ProgramDevice>& devices,
                    const std::function<int32_t(const KernelCall& call)>& device_of,
                    const std::set<std::string>& direct) {
  check(program.devices.empty() && !program.flow, "devices are given to a program that has them, or that has pieces");
  if (devices.empty()) return;
  program.devices = devices;
  Assigner(program, device_of, direct).run();
  drop_uncalled_kernels(program);
}

}  // namespace tessera::inline program
