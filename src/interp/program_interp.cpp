#include "interp/program_interp.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "arith/data_symbols.h"
#include "arith/simplify.h"
#include "interp/loop_interp.h"
#include "program/memory_plan.h"
#include "program/steps.h"
#include "support/error.h"

namespace tessera::inline interp {
namespace {

constexpr auto kUnwritten = static_cast<std::byte>(0xff);

// The present values of loops' indices.
using Indices = std::unordered_map<const ExprNode*, int64_t>;

class Memory {
 public:
  Memory(const Program& program, const std::vector<Tensor>& inputs)
      : program_(program), inputs_(inputs), own_(program.buffers.size()) {
    arenas_.emplace_back(static_cast<size_t>(program.arena_bytes), kUnwritten);
    for (const ProgramDevice& device : program.devices)
      arenas_.emplace_back(static_cast<size_t>(device.arena_bytes), kUnwritten);
    for (const SymbolRange& symbol : program.symbols)
      if (symbol.is_data()) set_index(symbol.var, bound_of(symbol));
    for (const BufferId id : program.outputs) {
      const ProgramBuffer& buffer = at(root_buffer(program, id));
      check(buffer.type.layout.row_major(), "output " + buffer.name + " has a layout");
      // With room for what data decide: one byte is as good as another.
      if (buffer.type.is_static()) outputs_.emplace_back(buffer.type.dtype, buffer.type.dims());
      else outputs_.emplace_back(DType::kU8, std::vector<int64_t>{buffer.bytes});
      std::memset(outputs_.back().mutable_bytes(), static_cast<int>(kUnwritten), static_cast<size_t>(buffer.bytes));
    }
  }

  // The bytes of a buffer; `writable` receives whether a kernel may store to them.
  std::byte* bytes(BufferId id, bool& writable) {
    const BufferId root = root_buffer(program_, id);
    check(root >= 0, "a step uses a buffer without a root");
    int64_t begin = 0;
    for (BufferId view = id; view != root; view = at(view).alias_of) begin += begin_of(at(view));
    const ProgramBuffer& buffer = at(root);
    check(begin >= 0 && bytes_now(at(id)) <= buffer.bytes - begin, "view " + at(id).name + " is outside its buffer");
    return storage(id, buffer, writable) + begin;
  }

  std::byte* bytes(BufferId id) {
    bool writable = false;
    return bytes(id, writable);
  }

  void set_index(const Var& index, int64_t value) { indices_[index.get()] = value; }
  int64_t index(const Var& symbol) const {
    const auto value = indices_.find(symbol.get());
    check(value != indices_.end(), "a symbol without a value: " + symbol->name);
    return value->second;
  }

  // A size with the present values of symbols.
  int64_t value_of(const Expr& size) const {
    if (const auto number = as_int(size)) return *number;
    const auto value = as_int(
        simplify(transform(size, [&](const Expr& e) { return e->kind == ExprKind::kVar ? Expr(index(e)) : Expr(); })));
    check(value.has_value(), "a size without a value: " + to_string(size));
    return *value;
  }
  std::vector<int64_t> dims_now(const Shape& shape) const {
    std::vector<int64_t> dims;
    for (const Expr& dim : shape) dims.push_back(value_of(dim));
    return dims;
  }
  int64_t bytes_now(const ProgramBuffer& buffer) const {
    if (buffer.type.is_static()) return buffer.bytes;
    int64_t count = 1;
    for (const int64_t dim : dims_now(physical_shape(buffer.type.shape, buffer.type.layout))) count *= dim;
    return dtype_bytes(buffer.type.dtype, count);
  }
  int64_t bound_of(const SymbolRange& symbol) const { return std::max(symbol.lo, value_of(symbol.bound)); }

  // Makes the memory of storage `id`, which is in the arena, unwritten again.
  void poison(BufferId id) {
    bool writable = false;
    std::memset(storage(id, at(id), writable), static_cast<int>(kUnwritten), static_cast<size_t>(at(id).bytes));
  }

  std::vector<Tensor> take_outputs() {
    for (size_t i = 0; i < outputs_.size(); ++i) {
      const TensorType& type = at(root_buffer(program_, program_.outputs[i])).type;
      if (type.is_static()) continue;
      Tensor decided(type.dtype, dims_now(type.shape));
      std::memcpy(decided.mutable_bytes(), outputs_[i].bytes(), static_cast<size_t>(decided.num_bytes()));
      outputs_[i] = std::move(decided);
    }
    return std::move(outputs_);
  }

 private:
  int64_t begin_of(const ProgramBuffer& view) const {
    return view.view_offset_formula ? value_of(view.view_offset_formula) : view.view_offset;
  }

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
      auto& arena = arenas_.at(static_cast<size_t>(buffer.device));
      check(buffer.bytes <= static_cast<int64_t>(arena.size()) - buffer.offset,
            "buffer " + buffer.name + " is outside the arena");
      return arena.data() + buffer.offset;
    }
    auto& own = own_[static_cast<size_t>(storage_buffer(program_, id))];
    if (own.empty()) own.assign(static_cast<size_t>(buffer.bytes) + 1, kUnwritten);
    return own.data();
  }

  const ProgramBuffer& at(BufferId id) const { return program_.buffers.at(static_cast<size_t>(id)); }

  const Program& program_;
  const std::vector<Tensor>& inputs_;
  std::vector<std::vector<std::byte>> arenas_;  // by device
  std::vector<std::vector<std::byte>> own_;     // of unplanned buffers
  std::vector<Tensor> outputs_;
  Indices indices_;
};

// The dimensions that the kernel declares, which may flatten those of the buffer.
std::vector<int64_t> dims_of(const LoopProgram& kernel, const Buffer& param, const ProgramBuffer& buffer,
                             const Memory& memory) {
  const std::vector<int64_t> dims = memory.dims_now(param.shape);
  int64_t count = 1;
  for (const int64_t dim : dims) count *= dim;
  if (dtype_bytes(param.dtype, count) != memory.bytes_now(buffer) || param.dtype != buffer.type.dtype)
    throw InternalError(fmt::format("parameter {} of kernel {} is {}{}, given buffer {} of type {}", param.name,
                                    kernel.name, dtype_name(param.dtype), to_string(param.shape), buffer.name,
                                    buffer.type.to_string()));
  return dims;
}

class Interpreter {
 public:
  Interpreter(const Program& program, const std::vector<Tensor>& inputs, const ProgramRun& run)
      : program_(program), run_(run), memory_(program, inputs), time_(timeline_of(program)) {
    for (size_t m = 0; m < time_.moments.size(); ++m) {
      const Moment& moment = time_.moments[m];
      if (moment.kind == Moment::kCall) when_called_[moment.call] = static_cast<int32_t>(m);
      if (moment.kind == Moment::kLoopBegin) begin_of_[moment.step] = static_cast<int32_t>(m);
      if (moment.kind == Moment::kLoopEnd) end_of_[moment.step] = static_cast<int32_t>(m);
      if (moment.kind == Moment::kBranch || moment.kind == Moment::kBind || moment.kind == Moment::kCopy)
        begin_of_[moment.step] = static_cast<int32_t>(m);
      if (moment.kind == Moment::kWait) end_of_[moment.step] = static_cast<int32_t>(m);
    }
    dying_.resize(time_.moments.size());
    if (!run.poison_dead) return;
    for (const Lifetime& lifetime : arena_lifetimes(program))
      dying_[static_cast<size_t>(lifetime.last)].push_back(lifetime);
  }

  std::vector<Tensor> run() {
    if (program_.steps.empty()) calls(0, program_.calls.size());
    else block(program_.steps);
    return memory_.take_outputs();
  }

 private:
  void block(const StepBlock& steps) {
    for (const ProgramStep& step : steps) {
      switch (step.kind) {
        case StepKind::kCalls: calls(step.first_call, step.num_calls); break;
        case StepKind::kBranch: branch(step); break;
        case StepKind::kLoop: loop(step); break;
        case StepKind::kBind: bind(step); break;
        case StepKind::kCopy: copy(step); break;
        case StepKind::kStart:
          if (run_.late_starts) queue_.push_back(&step);
          else block(step.blocks.at(0));
          break;
        case StepKind::kWait: wait(step, steps); break;
      }
    }
  }

  void copy(const ProgramStep& step) {
    const std::byte* from = memory_.bytes(step.from);
    std::copy(from, from + memory_.bytes_now(at(step.from)), memory_.bytes(step.to));
    poison(begin_of_.at(&step));
  }

  // What the device of the start was given before it is done as well: a queue keeps its order.
  void wait(const ProgramStep& step, const StepBlock& around) {
    const auto is_it = [&](const ProgramStep& s) { return s.kind == StepKind::kStart && s.token == step.token; };
    const auto start = std::find_if(around.begin(), around.end(), is_it);
    check(start != around.end(), "a wait for nothing");
    const auto pending = std::find(queue_.begin(), queue_.end(), &*start);
    if (pending != queue_.end()) {
      std::vector<const ProgramStep*> due, left;
      for (size_t i = 0; i < queue_.size(); ++i) {
        const bool before = queue_.begin() + static_cast<std::ptrdiff_t>(i) <= pending;
        (before && queue_[i]->device == start->device ? due : left).push_back(queue_[i]);
      }
      queue_ = std::move(left);
      for (const ProgramStep* one : due) block(one->blocks.at(0));
    }
    poison(end_of_.at(&*start));
  }

  void bind(const ProgramStep& step) {
    int64_t count = 0;
    std::memcpy(&count, memory_.bytes(step.count_buffer), sizeof(count));
    for (const SymbolRange& symbol : program_.symbols)
      if (symbol.var.same_node(step.symbol))
        memory_.set_index(symbol.var, value_of_count(symbol, count, memory_.bound_of(symbol)));
    poison(begin_of_.at(&step));
  }

  void branch(const ProgramStep& step) {
    const bool taken = is_true(step.condition);
    const int32_t moment = begin_of_.at(&step);
    poison(moment);
    block(step.blocks.at(taken ? 0 : 1));
  }

  void loop(const ProgramStep& step) {
    int64_t trips = step.index.hi == INT64_MAX ? INT64_MAX : step.index.hi + 1;
    if (step.count) trips = std::min(trips, memory_.value_of(step.count));
    if (step.count_buffer >= 0) {
      int64_t count = 0;
      std::memcpy(&count, memory_.bytes(step.count_buffer), sizeof(count));
      trips = std::min(trips, count);
    }
    const int32_t end = end_of_.at(&step);
    for (int64_t i = 0; i < trips && (step.condition < 0 || is_true(step.condition)); ++i) {
      memory_.set_index(step.index.var, i);
      block(step.blocks.at(0));
      carry(step);
      for (const Lifetime& lifetime : dying_[static_cast<size_t>(end)])
        if (lifetime.first > begin_of_.at(&step)) memory_.poison(lifetime.buffer);
    }
    poison(end);
  }

  // All at the same time: everything is read before anything is written.
  void carry(const ProgramStep& step) {
    std::vector<std::vector<std::byte>> contents;
    for (const CarriedValue& carried : step.carried) {
      const std::byte* next = memory_.bytes(carried.next);
      contents.emplace_back(next, next + memory_.bytes_now(at(carried.next)));
    }
    for (size_t i = 0; i < contents.size(); ++i)
      std::copy(contents[i].begin(), contents[i].end(), memory_.bytes(step.carried[i].current));
  }

  void calls(size_t first, size_t count) {
    for (size_t i = first; i < first + count; ++i) call(i);
  }

  void call(size_t number) {
    const KernelCall& call = program_.calls[number];
    const LoopProgram& kernel = program_.kernels.at(static_cast<size_t>(call.kernel)).program;
    check(call.args.size() == kernel.params.size(), "call of " + kernel.name + " with a wrong number of parameters");
    std::vector<int64_t> symbols;
    for (const Var& symbol : kernel.symbols) symbols.push_back(memory_.index(symbol));
    std::vector<BufferView> views;
    for (size_t i = 0; i < call.args.size(); ++i) {
      BufferView view{kernel.params[i]->dtype, dims_of(kernel, *kernel.params[i], at(call.args[i]), memory_), nullptr,
                      false};
      view.data = memory_.bytes(call.args[i], view.writable);
      view.writable = view.writable && i + static_cast<size_t>(kernel.num_outputs) >= call.args.size();
      views.push_back(std::move(view));
    }
    interpret(kernel, std::span<const BufferView>(views), symbols);
    if (run_.observe) {
      Tensor output(views.back().dtype, views.back().dims);
      std::memcpy(output.mutable_bytes(), views.back().data, static_cast<size_t>(output.num_bytes()));
      run_.observe(call, output);
    }
    poison(when_called_.at(number));
  }

  bool is_true(BufferId id) { return *memory_.bytes(id) != std::byte{0}; }

  void poison(int32_t moment) {
    for (const Lifetime& lifetime : dying_[static_cast<size_t>(moment)]) memory_.poison(lifetime.buffer);
  }

  const ProgramBuffer& at(BufferId id) const { return program_.buffers.at(static_cast<size_t>(id)); }

  const Program& program_;
  const ProgramRun& run_;
  Memory memory_;
  const Timeline time_;
  std::vector<const ProgramStep*> queue_;  // of late starts, in order
  std::unordered_map<size_t, int32_t> when_called_;
  std::unordered_map<const ProgramStep*, int32_t> begin_of_, end_of_;  // moments
  std::vector<std::vector<Lifetime>> dying_;                           // by moment: what is used last there
};

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
  return Interpreter(program, inputs, run).run();
}

std::vector<Tensor> interpret(const Program& program, const std::vector<Tensor>& inputs, const CallObserver& observe) {
  return interpret(program, inputs, ProgramRun{observe, false});
}

std::vector<Tensor> interpret(const Program& program, const std::vector<Tensor>& inputs) {
  return interpret(program, inputs, ProgramRun{});
}

}  // namespace tessera::inline interp
