#include "driver/size_check.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "arith/simplify.h"
#include "interp/loop_interp.h"
#include "program/steps.h"
#include "support/error.h"

namespace tessera::inline driver {
namespace {

constexpr int64_t kMostBytes = int64_t{1} << 26;  // of all buffers
constexpr int64_t kMostWork = 1 << 22;            // operations and elements: some tenths of a second

// Calls through the loop interpreter, every buffer with memory of its own.
class Runner {
 public:
  Runner(const Program& program, const SizePoint& point, const std::vector<Tensor>& inputs)
      : program_(program), point_(point), inputs_(inputs), own_(program.buffers.size()) {}

  bool is_small() const {
    bool known_steps = program_.checks.empty();
    for_each_step(program_.steps, [&](const ProgramStep& step) {
      known_steps &= step.kind == StepKind::kCalls || step.kind == StepKind::kBranch;
    });
    if (!known_steps) return false;
    int64_t bytes = 0, work = 0;
    for (const ProgramBuffer& buffer : program_.buffers) {
      const bool weight = buffer.kind == BufferKind::kWeight && buffer.alias_of < 0;
      if (weight && (!buffer.data || !buffer.data->has_data())) return false;
      if (!weight) bytes += bytes_at(buffer.type, program_.symbols, point_);
    }
    for (const KernelCall& call : program_.calls)
      work += work_of(program_.kernels.at(static_cast<size_t>(call.kernel)));
    return bytes <= kMostBytes && work <= kMostWork;
  }

  // Whether every size that formulas give is one: those of a program that does something else at this size may be
  // negative, or have no value.
  bool has_sizes() const {
    VarMap map;
    for (size_t i = 0; i < program_.symbols.size(); ++i) map[program_.symbols[i].var.get()] = point_[i];
    const auto value_of = [&](const Expr& e) { return as_int(simplify(substitute(e, map))); };
    const auto is_size = [&](const Expr& e) { return value_of(e).value_or(-1) >= 0; };
    const auto are_sizes = [&](const Shape& shape) { return std::all_of(shape.begin(), shape.end(), is_size); };
    for (const ProgramBuffer& buffer : program_.buffers)
      if (!are_sizes(buffer.type.shape) || (buffer.view_offset_formula && !value_of(buffer.view_offset_formula)))
        return false;
    for (const Kernel& kernel : program_.kernels)
      for (const BufferPtr& param : kernel.program.params)
        if (!are_sizes(param->shape)) return false;
    return true;
  }

  std::vector<Tensor> run() {
    block(steps_of(program_));
    std::vector<Tensor> outputs;
    for (const BufferId id : program_.outputs) {
      Tensor& output = outputs.emplace_back(at(id).type.dtype, dims(id));
      std::memcpy(output.mutable_bytes(), memory(id, output.num_bytes(), false),
                  static_cast<size_t>(output.num_bytes()));
    }
    return outputs;
  }

  std::vector<int64_t> dims(BufferId id) const {
    std::vector<int64_t> dims;
    for (const Expr& extent : at(id).type.shape) dims.push_back(value(extent));
    return dims;
  }

 private:
  void block(const StepBlock& steps) {
    for (const ProgramStep& step : steps) {
      if (step.kind == StepKind::kBranch)
        block(step.blocks.at(*memory(step.condition, 1, false) != std::byte{0} ? 0 : 1));
      for (size_t i = 0; i < step.num_calls; ++i) call(program_.calls.at(step.first_call + i));
    }
  }

  void call(const KernelCall& call) {
    const LoopProgram& kernel = program_.kernels.at(static_cast<size_t>(call.kernel)).program;
    std::vector<int64_t> symbols;
    for (const Var& symbol : kernel.symbols) symbols.push_back(value(symbol));
    std::vector<BufferView> views;
    for (size_t i = 0; i < call.args.size(); ++i) {
      BufferView view{kernel.params[i]->dtype, {}, nullptr, false};
      int64_t elements = 1;
      for (const Expr& extent : kernel.params[i]->shape) {
        view.dims.push_back(value(extent));
        elements *= view.dims.back();
      }
      view.writable = i + static_cast<size_t>(kernel.num_outputs) >= call.args.size();
      view.data = memory(call.args[i], dtype_bytes(view.dtype, elements), view.writable);
      views.push_back(std::move(view));
    }
    interpret(kernel, std::span<const BufferView>(views), symbols);
  }

  const ProgramBuffer& at(BufferId id) const { return program_.buffers.at(static_cast<size_t>(id)); }
  int64_t value(const Expr& e) const { return value_at(e, program_.symbols, point_); }

  // Iterations, about.
  int64_t work_of(const Kernel& kernel) const {
    int64_t most = 0;
    if (!kernel.definition) {
      for (const BufferPtr& param : kernel.program.params) most = std::max(most, elements(param->shape));
      return 64 * most;  // sorts and their like
    }
    for (const Stage& stage : kernel.definition->stages) {
      int64_t steps = elements(stage.out->shape);
      for (const Axis& axis : stage.body.reduce_axes) steps *= std::max<int64_t>(value(axis.extent), 1);
      most += steps;
    }
    return most;
  }
  int64_t elements(const Shape& shape) const {
    int64_t count = 1;
    for (const Expr& extent : shape) count *= value(extent);
    return count;
  }

  // Where the buffer begins. LoopFault unless it has `bytes` bytes from there on: formulas of a program that does
  // something else at this size may place a view anywhere.
  std::byte* memory(BufferId id, int64_t bytes, bool is_written) {
    int64_t begin = 0;
    for (; at(id).alias_of >= 0; id = at(id).alias_of)
      begin += at(id).view_offset_formula ? value(at(id).view_offset_formula) : at(id).view_offset;
    const ProgramBuffer& buffer = at(id);
    std::byte* first = nullptr;
    int64_t size = 0;
    if (buffer.kind == BufferKind::kInput || buffer.kind == BufferKind::kWeight) {
      const Tensor& tensor =
          buffer.kind == BufferKind::kInput ? inputs_.at(static_cast<size_t>(buffer.index)) : *buffer.data;
      first = const_cast<std::byte*>(tensor.bytes());
      size = tensor.num_bytes();
    } else {
      auto& own = own_[static_cast<size_t>(id)];
      size = bytes_at(buffer.type, program_.symbols, point_);
      if (own.empty()) own.resize(static_cast<size_t>(size) + 64);
      first = own.data();
    }
    if (begin < 0 || bytes < 0 || begin + bytes > size)
      throw LoopFault(is_written ? LoopFault::Kind::kStore : LoopFault::Kind::kLoad,
                      fmt::format("a view of {} lies outside of it", buffer.name));
    return first + begin;
  }

  const Program& program_;
  const SizePoint& point_;
  const std::vector<Tensor>& inputs_;
  std::vector<std::vector<std::byte>> own_;
};

Tensor made_up(DType dtype, const std::vector<int64_t>& dims) {
  Tensor tensor(dtype, dims);
  for (int64_t i = 0; i < tensor.num_elements(); ++i) {
    const auto mixed = (static_cast<uint64_t>(i) + 1) * 0x9E3779B97F4A7C15u >> 40;
    if (is_float(dtype)) tensor.set_double(i, static_cast<double>(mixed % 2048) / 1024 - 1);
    else tensor.set_int(i, static_cast<int64_t>(mixed % 2));
  }
  return tensor;
}

bool same(const Tensor& a, const Tensor& b) {
  if (a.dims() != b.dims() || a.dtype() != b.dtype()) return false;
  double largest = 0;
  for (int64_t i = 0; is_float(a.dtype()) && i < b.num_elements(); ++i)
    if (std::isfinite(b.get_double(i))) largest = std::max(largest, std::abs(b.get_double(i)));
  for (int64_t i = 0; i < a.num_elements(); ++i) {
    if (!is_float(a.dtype())) {
      if (a.get_int(i) != b.get_int(i)) return false;
      continue;
    }
    const double x = a.get_double(i), y = b.get_double(i);
    if (x == y || (std::isnan(x) && std::isnan(y))) continue;
    if (!(std::abs(x - y) <= 1e-2 * largest)) return false;  // they may be of 8 bits
  }
  return true;
}

}  // namespace

SizeDifference difference_at(const Program& general, const SizePoint& point, const Program& own) {
  std::vector<Tensor> inputs;
  const SizePoint none;
  if (general.inputs.size() != own.inputs.size() || general.outputs.size() != own.outputs.size())
    return SizeDifference::kValues;
  for (const BufferId id : own.inputs) {
    const TensorType& type = own.buffers.at(static_cast<size_t>(id)).type;
    if (bytes_at(type, own.symbols, none) > kMostBytes) return SizeDifference::kTooLarge;
    inputs.push_back(made_up(type.dtype, type.dims()));
  }
  Runner wanted(own, none, inputs), found(general, point, inputs);
  if (!found.has_sizes()) return SizeDifference::kReads;
  if (!wanted.is_small() || !found.is_small()) return SizeDifference::kTooLarge;
  const std::vector<Tensor> want = wanted.run();
  try {
    const std::vector<Tensor> got = found.run();
    for (size_t i = 0; i < want.size(); ++i)
      if (!same(got.at(i), want[i])) return SizeDifference::kValues;
  } catch (const LoopFault& fault) {
    return fault.kind() == LoopFault::Kind::kStore ? SizeDifference::kWrites : SizeDifference::kReads;
  }
  return SizeDifference::kNone;
}

}  // namespace tessera::inline driver
