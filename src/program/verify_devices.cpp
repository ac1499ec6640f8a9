#include "program/verify_devices.h"

#include <fmt/format.h>

#include <set>
#include <vector>

#include "program/memory_plan.h"
#include "program/steps.h"

namespace tessera::inline program {
namespace {

class DeviceVerifier {
 public:
  using Report = std::function<void(const std::string&, const std::string&)>;

  DeviceVerifier(const Program& program, const Report& report) : program_(program), report_(report) {}

  void run() {
    std::set<std::string> names;
    for (const ProgramDevice& device : program_.devices) {
      if (!names.insert(device.name).second) report_("device " + device.name, "there are two of this name");
      if (device.kind.empty()) report_("device " + device.name, "no back end");
    }
    if (!program_.devices.empty() && program_.flow) report_("devices", "a flow has none");
    for (size_t i = 0; i < program_.buffers.size(); ++i) buffer(static_cast<BufferId>(i));
    for (const Kernel& kernel : program_.kernels)
      if (!known(kernel.device)) report_("kernel " + kernel.program.name, no_device(kernel.device));
    for (const KernelCall& call : program_.calls) {
      const Kernel& kernel = program_.kernels[static_cast<size_t>(call.kernel)];
      for (const BufferId id : call.args)
        if (known(kernel.device) && at(id).device != memory_of_device(program_, kernel.device))
          report_("call of " + kernel.program.name, fmt::format("it runs on {}, and {} lies on {}", name(kernel.device),
                                                                at(id).name, name(at(id).device)));
    }
    if (program_.steps.empty()) calls(0, program_.calls.size(), 0);
    else block(program_.steps);
  }

 private:
  // Bytes of one memory: of the host's or a device's arena once it is planned, else of a buffer.
  struct Extent {
    int32_t device = 0;
    BufferId root = -1;  // -1: the arena
    int64_t begin = 0, end = 0;
  };
  struct Access {
    Extent extent;
    bool writes = false;
    std::string name;
  };
  // A start that nobody has waited for.
  struct Pending {
    const ProgramStep* step = nullptr;
    std::vector<Access> accesses;
  };

  const ProgramBuffer& at(BufferId id) const { return program_.buffers[static_cast<size_t>(id)]; }
  bool known(int32_t device) const { return device >= 0 && static_cast<size_t>(device) <= program_.devices.size(); }
  static std::string no_device(int32_t device) { return fmt::format("there is no device {}", device); }
  std::string name(int32_t device) const {
    return device == 0     ? "the host"
           : known(device) ? program_.devices[static_cast<size_t>(device) - 1].name
                           : "nothing";
  }
  const std::string& kind(int32_t device) const { return program_.devices[static_cast<size_t>(device) - 1].kind; }
  static std::string where(const ProgramStep& step) {
    const char* kind = step.kind == StepKind::kStart ? "start" : step.kind == StepKind::kWait ? "wait" : "copy";
    return step.token < 0 ? std::string(kind) : fmt::format("{} {}", kind, step.token);
  }

  void buffer(BufferId id) {
    const ProgramBuffer& b = at(id);
    const std::string where = "buffer " + b.name;
    if (!known(b.device)) return report_(where, no_device(b.device));
    if (b.device != 0 && (b.kind == BufferKind::kInput || b.kind == BufferKind::kOutput))
      report_(where, fmt::format("an {} on {}", buffer_kind_name(b.kind), name(b.device)));
    for (const BufferId other : {b.alias_of, b.over})
      if (other >= 0 && at(other).device != b.device)
        report_(where, fmt::format("it lies on {}, its bytes are those of {} on {}", name(b.device), at(other).name,
                                   name(at(other).device)));
  }

  void calls(size_t first, size_t count, int32_t device) {
    for (size_t i = first; i < first + count; ++i) {
      const Kernel& kernel = program_.kernels[static_cast<size_t>(program_.calls[i].kernel)];
      if (kernel.device != device)
        report_("call of " + kernel.program.name,
                fmt::format("it runs on {}, and stands among the steps of {}", name(kernel.device), name(device)));
    }
  }

  void block(const StepBlock& steps) {
    std::vector<Pending> pending;
    for (const ProgramStep& step : steps) {
      switch (step.kind) {
        case StepKind::kCalls: calls(step.first_call, step.num_calls, 0); break;
        case StepKind::kCopy: report_(where(step), "it stands in no start"); break;
        case StepKind::kStart: start(step); break;
        case StepKind::kWait: wait(step, pending); break;
        case StepKind::kBranch:
        case StepKind::kLoop:
        case StepKind::kBind: header(step); break;
      }
      for (const Access& access : accesses_of(step))
        for (const Pending& other : pending) undisturbed(access, other, step);
      if (step.kind == StepKind::kStart) pending.push_back({&step, accesses_of(step)});
      else
        for (const StepBlock& inner : step.blocks) block(inner);
    }
    for (const Pending& other : pending) report_(where(*other.step), "nothing waits for it in its block");
  }

  void header(const ProgramStep& step) {
    for_each_step_buffer(step, [&](BufferId id) {
      if (at(id).device != 0)
        report_("a branch, loop or bind", fmt::format("{} lies on {}", at(id).name, name(at(id).device)));
    });
  }

  void start(const ProgramStep& step) {
    if (!known(step.device) || step.device == 0) return report_(where(step), no_device(step.device));
    if (step.token < 0 || !tokens_.insert(step.token).second) report_(where(step), "its number is taken");
    for (const ProgramStep& inner : step.blocks.at(0)) {
      if (inner.kind == StepKind::kCalls) calls(inner.first_call, inner.num_calls, step.device);
      else if (inner.kind == StepKind::kCopy) copy(inner, step);
      else report_(where(step), "there is more in it than calls and copies");
    }
  }

  void copy(const ProgramStep& step, const ProgramStep& start) {
    if (step.from < 0 || step.to < 0) return report_(where(start), "a copy without buffers");
    const ProgramBuffer &from = at(step.from), &to = at(step.to);
    const std::string what = fmt::format("the copy {} = {}", to.name, from.name);
    const bool brings = from.device == 0 && to.device == start.device;
    const bool fetches = from.device == start.device && to.device == 0;
    const bool is_direct = from.device != 0 && from.device != start.device && to.device == start.device &&
                           known(from.device) && kind(from.device) == kind(start.device);
    if (!brings && !fetches && !is_direct)
      report_(where(start), fmt::format("{} is from {} to {}", what, name(from.device), name(to.device)));
    if (!(from.type == to.type) || from.bytes != to.bytes)
      report_(where(start), fmt::format("{} is of {} to {}", what, from.type.to_string(), to.type.to_string()));
    if (to.kind == BufferKind::kInput || to.kind == BufferKind::kWeight)
      report_(where(start), fmt::format("{} writes the {}", what, buffer_kind_name(to.kind)));
  }

  void wait(const ProgramStep& step, std::vector<Pending>& pending) {
    for (size_t i = 0; i < pending.size(); ++i) {
      if (pending[i].step->token != step.token) continue;
      // What its device was given before is done as well, and has its own wait.
      pending.erase(pending.begin() + static_cast<std::ptrdiff_t>(i));
      return;
    }
    report_(where(step), "no start of this number stands before it in its block, or it is waited for twice");
  }

  void undisturbed(const Access& access, const Pending& other, const ProgramStep& step) {
    if (step.kind == StepKind::kStart && step.device == other.step->device) return;  // in order
    for (const Access& mine : other.accesses)
      if ((mine.writes || access.writes) && share(mine.extent, access.extent))
        report_(where(*other.step),
                fmt::format("{} is {} before the wait, and the block {} {}", access.name,
                            access.writes ? "written" : "read", mine.writes ? "writes" : "reads", mine.name));
  }

  static bool share(const Extent& a, const Extent& b) {
    return a.device == b.device && a.root == b.root && a.begin < b.end && b.begin < a.end;
  }

  Access access(BufferId id, bool writes) const {
    const auto [root, begin] = place_in_root(program_, id);
    const ProgramBuffer& r = at(root);
    const bool planned = r.kind == BufferKind::kArena && r.offset >= 0;
    const int64_t first = begin + (planned ? r.offset : 0);
    // Buffers over each other share their bytes even before they are planned.
    const BufferId space = planned ? -1 : storage_buffer(program_, root);
    return {{r.device, space, first, first + at(id).bytes + travel_in_root(program_, id)}, writes, at(id).name};
  }

  // Of a step and its blocks, in all memories.
  std::vector<Access> accesses_of(const ProgramStep& step) const {
    std::vector<Access> result;
    const auto visit = [&](const ProgramStep& one) {
      if (one.kind == StepKind::kCopy) {
        for (const BufferId id : {one.from, one.to})
          if (id >= 0) result.push_back(access(id, id == one.to));
      } else {
        for_each_step_buffer(one, [&](BufferId id) { result.push_back(access(id, false)); });
        for (const CarriedValue& carried : one.carried)
          for (const BufferId id : {carried.current, carried.next}) result.push_back(access(id, true));
      }
      for (size_t i = one.first_call; i < one.first_call + one.num_calls; ++i) {
        const KernelCall& call = program_.calls[i];
        const Kernel& kernel = program_.kernels[static_cast<size_t>(call.kernel)];
        for (size_t a = 0; a < call.args.size(); ++a)
          result.push_back(
              access(call.args[a], a + static_cast<size_t>(kernel.program.num_outputs) >= call.args.size()));
      }
    };
    visit(step);
    for (const StepBlock& inner : step.blocks) for_each_step(inner, visit);
    return result;
  }

  const Program& program_;
  const Report& report_;
  std::set<int32_t> tokens_;
};

}  // namespace

void verify_devices(const Program& program,
                    const std::function<void(const std::string& where, const std::string& rule)>& report) {
  DeviceVerifier(program, report).run();
}

}  // namespace tessera::inline program
