#include "interp/program_interp.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "interp/loop_interp.h"
#include "program/memory_plan.h"
#include "support/error.h"

namespace tessera::inline interp {
namespace {

constexpr auto kUnwritten = static_cast<std::byte>(0xff);

class Memory {
 public:
  Memory(const Program& program, const std::vector<Tensor>& inputs)
      : program_(program), inputs_(inputs), own_(program.buffers.size()) {
    arena_.assign(static_cast<size_t>(program.arena_bytes), kUnwritten);
    for (const BufferId id : program.outputs) {
      const ProgramBuffer& buffer = at(root_buffer(program, id));
      check(buffer.type.layout.row_major(), "output " + buffer.name + " has a layout");
      outputs_.emplace_back(buffer.type.dtype, buffer.type.dims());
      std::memset(outputs_.back().mutable_bytes(), static_cast<int>(kUnwritten), static_cast<size_t>(buffer.bytes));
    }
  }

  // The bytes of a buffer; `writable` receives whether a kernel may store to them.
  std::byte* bytes(BufferId id, bool& writable) {
    const auto [root, begin] = place_in_root(program_, id);
    check(root >= 0, "a call uses a buffer without a root");
    const ProgramBuffer& buffer = at(root);
    check(begin >= 0 && at(id).bytes <= buffer.bytes - begin, "view " + at(id).name + " is outside its buffer");
    return storage(id, buffer, writable) + begin;
  }

  // Makes the memory of storage `id`, which is in the arena, unwritten again.
  void poison(BufferId id) {
    bool writable = false;
    std::memset(storage(id, at(id), writable), static_cast<int>(kUnwritten), static_cast<size_t>(at(id).bytes));
  }

  std::vector<Tensor> take_outputs() { return std::move(outputs_); }

 private:
  // The first byte of `buffer`, the root of `id`.
  std::byte* storage(BufferId id, const ProgramBuffer& buffer, bool& writable) {
    writable = buffer.kind == BufferKind::kArena || buffer.kind == BufferKind::kOutput;
    switch (buffer.kind) {
      case BufferKind::kInput: return const_cast<std::byte*>(inputs_.at(static_cast<size_t>(buffer.index)).bytes());
      case BufferKind::kOutput: return outputs_.at(static_cast<size_t>(buffer.index)).mutable_bytes();
      case BufferKind::kWeight:
        check(buffer.data && buffer.data->has_data(), "weight " + buffer.name + " has no contents");
        return const_cast<std::byte*>(buffer.data->bytes());
      case BufferKind::kArena: break;
    }
    if (buffer.offset >= 0) {
      check(buffer.bytes <= program_.arena_bytes - buffer.offset, "buffer " + buffer.name + " is outside the arena");
      return arena_.data() + buffer.offset;
    }
    auto& own = own_[static_cast<size_t>(storage_buffer(program_, id))];
    if (own.empty()) own.assign(static_cast<size_t>(buffer.bytes) + 1, kUnwritten);
    return own.data();
  }

  const ProgramBuffer& at(BufferId id) const { return program_.buffers.at(static_cast<size_t>(id)); }

  const Program& program_;
  const std::vector<Tensor>& inputs_;
  std::vector<std::byte> arena_;
  std::vector<std::vector<std::byte>> own_;  // of unplanned buffers
  std::vector<Tensor> outputs_;
};

// The dimensions that the kernel declares, which may flatten those of the buffer.
std::vector<int64_t> dims_of(const LoopProgram& kernel, const Buffer& param, const ProgramBuffer& buffer) {
  const auto dims = static_dims(param.shape);
  check(dims.has_value(), fmt::format("parameter {} of kernel {} has no fixed shape", param.name, kernel.name));
  int64_t count = 1;
  for (const int64_t dim : *dims) count *= dim;
  if (dtype_bytes(param.dtype, count) != buffer.bytes || param.dtype != buffer.type.dtype)
    throw InternalError(fmt::format("parameter {} of kernel {} is {}{}, given buffer {} of type {}", param.name,
                                    kernel.name, dtype_name(param.dtype), to_string(param.shape), buffer.name,
                                    buffer.type.to_string()));
  return *dims;
}

bool takes_place(const KernelCall& call, Memory& memory) {
  return std::all_of(call.only_if.begin(), call.only_if.end(), [&](const CallCondition& condition) {
    bool writable = false;
    return (*memory.bytes(condition.buffer, writable) != std::byte{0}) == condition.value;
  });
}

}  // namespace

std::vector<Tensor> interpret(const Program& program, const std::vector<Tensor>& inputs, const ProgramRun& run) {
  check(inputs.size() == program.inputs.size(), fmt::format("program {} called with {} inputs instead of {}",
                                                            program.name, inputs.size(), program.inputs.size()));
  for (size_t i = 0; i < inputs.size(); ++i) {
    const ProgramBuffer& buffer = program.buffers.at(static_cast<size_t>(program.inputs[i]));
    check(buffer.type.layout.row_major() && inputs[i].dtype() == buffer.type.dtype &&
              inputs[i].dims() == buffer.type.dims(),
          fmt::format("input {} is not {}", buffer.name, buffer.type.to_string()));
  }
  Memory memory(program, inputs);
  std::vector<std::vector<BufferId>> dying(program.calls.size());  // the storage that is used last by each call
  if (run.poison_dead)
    for (const Lifetime& lifetime : arena_lifetimes(program))
      dying[static_cast<size_t>(lifetime.last)].push_back(lifetime.buffer);
  for (size_t number = 0; number < program.calls.size(); ++number) {
    const KernelCall& call = program.calls[number];
    const LoopProgram& kernel = program.kernels.at(static_cast<size_t>(call.kernel)).program;
    check(call.args.size() == kernel.params.size(), "call of " + kernel.name + " with a wrong number of parameters");
    if (takes_place(call, memory)) {
      std::vector<BufferView> views;
      for (size_t i = 0; i < call.args.size(); ++i) {
        const ProgramBuffer& buffer = program.buffers.at(static_cast<size_t>(call.args[i]));
        BufferView view{kernel.params[i]->dtype, dims_of(kernel, *kernel.params[i], buffer), nullptr, false};
        view.data = memory.bytes(call.args[i], view.writable);
        view.writable = view.writable && i + static_cast<size_t>(kernel.num_outputs) >= call.args.size();
        views.push_back(std::move(view));
      }
      interpret(kernel, std::span<const BufferView>(views));
      if (run.observe) {
        Tensor output(views.back().dtype, views.back().dims);
        std::memcpy(output.mutable_bytes(), views.back().data, static_cast<size_t>(output.num_bytes()));
        run.observe(call, output);
      }
    }
    for (const BufferId dead : dying[number]) memory.poison(dead);
  }
  return memory.take_outputs();
}

std::vector<Tensor> interpret(const Program& program, const std::vector<Tensor>& inputs, const CallObserver& observe) {
  return interpret(program, inputs, ProgramRun{observe, false});
}

std::vector<Tensor> interpret(const Program& program, const std::vector<Tensor>& inputs) {
  return interpret(program, inputs, ProgramRun{});
}

}  // namespace tessera::inline interp
