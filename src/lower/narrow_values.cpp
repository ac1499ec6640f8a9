#include "lower/narrow_values.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "arith/simplify.h"
#include "loop/naive_loops.h"
#include "program/memory_plan.h"
#include "program/steps.h"

namespace tessera::inline lower {
namespace {

// A type of which `e` is a conversion to f32 or i32, if it is one of fewer bits.
std::optional<DType> narrow_type(const Expr& e) {
  if (e->kind != ExprKind::kCast) return std::nullopt;
  const DType from = e->operands[0].dtype();
  const bool fits = e->dtype == DType::kF32   ? from == DType::kBF16 || from == DType::kF16
                    : e->dtype == DType::kI32 ? from == DType::kI8 || from == DType::kU8
                                              : false;
  return fits ? std::optional(from) : std::nullopt;
}

bool all_are(const Tensor& tensor, DType dtype) {
  if (tensor.dtype() == DType::kI64) {
    const auto values = tensor.as<int64_t>();
    return std::all_of(values.begin(), values.end(), [](int64_t v) { return v == static_cast<int32_t>(v); });
  }
  if (tensor.dtype() == DType::kI32) {
    const auto [low, high] = dtype == DType::kI8   ? std::pair(-128, 127)
                             : dtype == DType::kU8 ? std::pair(0, 255)
                                                   : std::pair(-32768, 32767);
    const auto values = tensor.as<int32_t>();
    return std::all_of(values.begin(), values.end(), [&](int32_t v) { return v >= low && v <= high; });
  }
  for (const float value : tensor.as<float>())
    if (static_cast<float>(decode_float(dtype, encode_float(dtype, value))) != value) return false;
  return true;
}

// The types that weights may be stored in beside factors of `factor`, the best one first.
std::vector<DType> types_beside(DType factor) {
  return is_float(factor) ? std::vector{factor} : std::vector{DType::kI8, DType::kU8, DType::kI16};
}

DType wide_type(DType narrow) {
  return is_float(narrow) ? DType::kF32 : narrow == DType::kI32 ? DType::kI64 : DType::kI32;
}

TensorPtr narrowed(const Tensor& wide, DType dtype) {
  auto data = std::make_shared<Tensor>(dtype, wide.dims());
  if (wide.dtype() == DType::kI64) {
    const auto values = wide.as<int64_t>();
    std::transform(values.begin(), values.end(), data->as_mutable<int32_t>().begin(),
                   [](int64_t v) { return static_cast<int32_t>(v); });
    return data;
  }
  if (wide.dtype() == DType::kI32) {
    const auto values = wide.as<int32_t>();
    for (size_t i = 0; i < values.size(); ++i)
      if (dtype == DType::kI8) data->as_mutable<int8_t>()[i] = static_cast<int8_t>(values[i]);
      else if (dtype == DType::kI16) data->as_mutable<int16_t>()[i] = static_cast<int16_t>(values[i]);
      else data->as_mutable<uint8_t>()[i] = static_cast<uint8_t>(values[i]);
    return data;
  }
  const auto values = wide.as<float>();
  const auto bits = data->as_mutable<uint16_t>();
  for (size_t i = 0; i < values.size(); ++i) bits[i] = static_cast<uint16_t>(encode_float(dtype, values[i]));
  return data;
}

// The loads of `param` in the definition become conversions of loads of the narrow buffer that replaces it.
void narrow_param(TensorProgram& kernel, size_t param, DType dtype) {
  const BufferPtr old = kernel.params[param].buffer;
  const BufferPtr narrow = make_buffer(old->name, dtype, old->shape, old->scope);
  kernel.params[param].buffer = narrow;
  for (Stage& stage : kernel.stages)
    stage.body.value = transform(stage.body.value, [&](const Expr& node) -> Expr {
      if (node->kind != ExprKind::kLoad || node->buffer != old) return {};
      return cast(wide_type(dtype), load(narrow, node->operands));
    });
}

void narrow_result(TensorProgram& kernel, size_t number, DType dtype) {
  Stage& output = kernel.stages[kernel.stages.size() - kernel.num_results + number];
  output.out = make_buffer(output.out->name, dtype, output.out->shape, output.out->scope);
  output.body.value = output.body.value->operands[0];
}

class Narrower {
 public:
  explicit Narrower(Program& program) : program_(program) {}

  void run() {
    // Views are stored as what they are views of.
    for (size_t b = 0; b < program_.buffers.size(); ++b)
      families_[root_buffer(program_, static_cast<BufferId>(b))].push_back(static_cast<BufferId>(b));
    // What a step reads has the type that it needs, what is carried changes with what it becomes, and views that move
    // with an index do so by the bytes of their elements.
    const auto keep = [&](BufferId id) { families_.erase(root_buffer(program_, id)); };
    for_each_step(program_.steps, [&](const ProgramStep& step) { for_each_step_buffer(step, keep); });
    for (size_t b = 0; b < program_.buffers.size(); ++b)
      if (program_.buffers[b].view_offset_formula) keep(static_cast<BufferId>(b));
    for (const auto& [root, members] : families_)
      if (const auto dtype = type_of_values(root, members)) narrow(members, *dtype);
    for (const auto& [root, members] : families_)
      if (const auto dtype = type_of_constant(root, members)) narrow(members, *dtype);
    for (Kernel& kernel : program_.kernels) {
      if (!changed_.contains(&kernel)) continue;
      auto program = naive_loops(*kernel.definition);
      program.symbols = kernel.program.symbols;
      kernel.program = std::move(program);
      kernel.bytes = count_bytes(*kernel.definition);
    }
    remove_copies();
  }

 private:
  Kernel& kernel_of(const KernelCall& call) { return program_.kernels[static_cast<size_t>(call.kernel)]; }

  // Empty when some writer stores other values, or someone cannot be changed.
  std::optional<DType> type_of_values(BufferId root, const std::vector<BufferId>& members) {
    if (program_.buffers[static_cast<size_t>(root)].kind != BufferKind::kArena) return std::nullopt;
    std::optional<DType> type;
    bool fits = true;
    for_uses(members, [&](const KernelCall& call, size_t arg) {
      const Kernel& kernel = kernel_of(call);
      fits = fits && kernel.definition;
      if (!fits || arg < kernel.definition->params.size()) return;
      const Stage& result = kernel.definition->results()[arg - kernel.definition->params.size()];
      const auto own = narrow_type(result.body.value);
      fits = own && !result.body.is_reduction() && (!type || *type == *own) && !is_read(*kernel.definition, result);
      type = own;
    });
    return fits && type && all_of_type(members, wide_type(*type)) ? type : std::nullopt;
  }

  // Whether another stage of the kernel reads what this one makes.
  static bool is_read(const TensorProgram& kernel, const Stage& made) {
    bool read = false;
    for (const Stage& stage : kernel.stages)
      walk(stage.body.value,
           [&](const Expr& node) { read = read || (node->kind == ExprKind::kLoad && node->buffer == made.out); });
    return read;
  }

  std::optional<DType> type_of_constant(BufferId root, const std::vector<BufferId>& members) {
    const ProgramBuffer& buffer = program_.buffers[static_cast<size_t>(root)];
    if (buffer.kind != BufferKind::kWeight || !buffer.data || !buffer.data->has_data() || members.size() != 1)
      return std::nullopt;
    if (all_of_type(members, DType::kI64)) return type_of_multiplier(*buffer.data, members);
    if (!all_of_type(members, DType::kF32) && !all_of_type(members, DType::kI32)) return std::nullopt;
    return type_of_weight(buffer, members);
  }

  // Of fixed-point factors: where both are known to be of 32 bits, one instruction multiplies them.
  std::optional<DType> type_of_multiplier(const Tensor& data, const std::vector<BufferId>& members) {
    bool fits = all_are(data, DType::kI32), multiplies = false;
    for_uses(members, [&](const KernelCall& call, size_t arg) {
      const Kernel& kernel = kernel_of(call);
      fits = fits && kernel.definition && arg < kernel.definition->params.size();
      if (!fits) return;
      const BufferPtr& constant = kernel.definition->params[arg].buffer;
      for (const Stage& stage : kernel.definition->stages)
        walk(stage.body.value, [&](const Expr& node) {
          if (node->kind != ExprKind::kBinary || node->binary != BinaryOp::kMul) return;
          for (size_t side = 0; side < 2; ++side) {
            const Expr &own = node->operands[side], &other = node->operands[1 - side];
            multiplies |= own->kind == ExprKind::kLoad && own->buffer == constant && other->kind == ExprKind::kCast &&
                          other->operands[0].dtype() == DType::kI32;
          }
        });
    });
    return fits && multiplies ? std::optional(DType::kI32) : std::nullopt;
  }

  std::optional<DType> type_of_weight(const ProgramBuffer& buffer, const std::vector<BufferId>& members) {
    std::optional<DType> type;
    bool fits = true;
    for_uses(members, [&](const KernelCall& call, size_t arg) {
      const Kernel& kernel = kernel_of(call);
      fits = fits && kernel.definition && arg < kernel.definition->params.size();
      if (!fits) return;
      const Stage* reduction = kernel.definition->reduction();
      if (!reduction || reduction->body.combiner != Combiner::kSum) return;
      const BufferPtr& weight = kernel.definition->params[arg].buffer;
      walk(reduction->body.value, [&](const Expr& node) {
        if (node->kind != ExprKind::kBinary || node->binary != BinaryOp::kMul) return;
        for (size_t side = 0; side < 2; ++side) {
          Expr other = node->operands[1 - side];
          if (node->operands[side]->kind != ExprKind::kLoad || node->operands[side]->buffer != weight) continue;
          if (other->kind == ExprKind::kSelect) other = other->operands[1];
          if (const auto own = narrow_type(other)) type = own;
        }
      });
    });
    if (!fits || !type || buffer.type.dtype != wide_type(*type)) return std::nullopt;
    for (const DType stored : types_beside(*type))
      if (all_are(*buffer.data, stored)) return stored;
    return std::nullopt;
  }

  bool all_of_type(const std::vector<BufferId>& members, DType dtype) const {
    return std::all_of(members.begin(), members.end(),
                       [&](BufferId id) { return program_.buffers[static_cast<size_t>(id)].type.dtype == dtype; });
  }

  template <typename Visit>
  void for_uses(const std::vector<BufferId>& members, const Visit& visit) {
    for (const KernelCall& call : program_.calls)
      for (size_t arg = 0; arg < call.args.size(); ++arg)
        if (std::find(members.begin(), members.end(), call.args[arg]) != members.end()) visit(call, arg);
  }

  void narrow(const std::vector<BufferId>& members, DType dtype) {
    for (const BufferId id : members) {
      ProgramBuffer& buffer = program_.buffers[static_cast<size_t>(id)];
      buffer.type.dtype = dtype;
      const int64_t ratio = dtype_bits(wide_type(dtype)) / dtype_bits(dtype);
      buffer.bytes /= ratio;
      buffer.view_offset /= ratio;
      buffer.view_travel /= ratio;
      if (buffer.view_offset_formula)
        buffer.view_offset_formula = normalize_size(floordiv(buffer.view_offset_formula, ratio));
      if (buffer.data) buffer.data = narrowed(*buffer.data, dtype);
    }
    for_uses(members, [&](const KernelCall& call, size_t arg) {
      Kernel& kernel = kernel_of(call);
      auto& own = changed_[&kernel];
      if (!own) {
        own = std::make_shared<TensorProgram>(*kernel.definition);
        kernel.definition = own;
      }
      // A kernel may be given one buffer twice; each parameter is its own.
      if (arg >= own->params.size()) narrow_result(*own, arg - own->params.size(), dtype);
      else narrow_param(*own, arg, dtype);
    });
  }

  // What only converted bytes to i32 is a copy now, and its result the same memory.
  void remove_copies() {
    std::set<BufferId> of_steps;
    for_each_step(program_.steps, [&](const ProgramStep& step) {
      for_each_step_buffer(step, [&](BufferId id) { of_steps.insert(root_buffer(program_, id)); });
    });
    std::set<size_t> gone;
    for (size_t i = 0; i < program_.calls.size(); ++i) {
      const KernelCall& call = program_.calls[i];
      const Kernel& kernel = kernel_of(call);
      if (!changed_.contains(&kernel) || !is_copy(*kernel.definition)) continue;
      const BufferId from = root_buffer(program_, call.args[0]), to = call.args[1];
      ProgramBuffer& copy = program_.buffers[static_cast<size_t>(to)];
      const ProgramBuffer& own = program_.buffers[static_cast<size_t>(call.args[0])];
      if (copy.kind != BufferKind::kArena || copy.alias_of >= 0 || !(copy.type == own.type) ||
          program_.buffers[static_cast<size_t>(from)].kind != BufferKind::kArena || from == to ||
          copy.device != own.device || of_steps.contains(from) || of_steps.contains(to))
        continue;
      copy.alias_of = call.args[0];
      gone.insert(i);
    }
    if (gone.empty()) return;
    remove_calls(program_, gone);
    remove_unused_kernels();
  }

  static bool is_copy(const TensorProgram& kernel) {
    if (kernel.stages.size() != 1 || kernel.params.size() != 1 || !kernel.windows.empty()) return false;
    const Body& body = kernel.output().body;
    const Expr& value = body.value;
    if (body.is_reduction() || value->kind != ExprKind::kLoad || value->buffer != kernel.params[0].buffer ||
        value->operands.size() != body.axes.size())
      return false;
    for (size_t d = 0; d < body.axes.size(); ++d)
      if (!value->operands[d].same_node(body.axes[d].var)) return false;
    return true;
  }

  void remove_unused_kernels() {
    std::vector<int32_t> place(program_.kernels.size(), -1);
    std::vector<Kernel> used;
    for (KernelCall& call : program_.calls) {
      int32_t& at = place[static_cast<size_t>(call.kernel)];
      if (at < 0) {
        at = static_cast<int32_t>(used.size());
        used.push_back(std::move(program_.kernels[static_cast<size_t>(call.kernel)]));
      }
      call.kernel = at;
    }
    program_.kernels = std::move(used);
  }

  Program& program_;
  std::map<BufferId, std::vector<BufferId>> families_;  // by root
  std::map<const Kernel*, std::shared_ptr<TensorProgram>> changed_;
};

}  // namespace

void narrow_values(Program& program) { Narrower(program).run(); }

}  // namespace tessera::inline lower
