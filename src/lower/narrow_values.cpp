#include "lower/narrow_values.h"

#include <algorithm>
#include <map>
#include <optional>

#include "loop/naive_loops.h"
#include "program/memory_plan.h"

namespace tessera {
namespace {

// The type of which `e` is a conversion to f32, if it is one of 16 bits.
std::optional<DType> narrow_type(const Expr& e) {
  if (e->kind != ExprKind::kCast || e->dtype != DType::kF32) return std::nullopt;
  const DType from = e->operands[0].dtype();
  return from == DType::kBF16 || from == DType::kF16 ? std::optional(from) : std::nullopt;
}

bool all_are(const Tensor& tensor, DType dtype) {
  for (const float value : tensor.as<float>())
    if (static_cast<float>(decode_float(dtype, encode_float(dtype, value))) != value) return false;
  return true;
}

// The loads of `param` in the definition become conversions of loads of the narrow buffer that replaces it.
void narrow_param(TensorProgram& kernel, size_t param, DType dtype) {
  const BufferPtr old = kernel.params[param].buffer;
  const BufferPtr narrow = make_buffer(old->name, dtype, old->shape, old->scope);
  kernel.params[param].buffer = narrow;
  for (Stage& stage : kernel.stages)
    stage.body.value = transform(stage.body.value, [&](const Expr& node) -> Expr {
      if (node->kind != ExprKind::kLoad || node->buffer != old) return {};
      return cast(DType::kF32, load(narrow, node->operands));
    });
}

void narrow_result(TensorProgram& kernel, DType dtype) {
  Stage& output = kernel.stages.back();
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
    for (const auto& [root, members] : families_)
      if (const auto dtype = type_of_values(root, members)) narrow(members, *dtype);
    for (const auto& [root, members] : families_)
      if (const auto dtype = type_of_weight(root, members)) narrow(members, *dtype);
    for (Kernel& kernel : program_.kernels) {
      if (!changed_.contains(&kernel)) continue;
      auto program = naive_loops(*kernel.definition);
      program.symbols = kernel.program.symbols;
      kernel.program = std::move(program);
      kernel.bytes = count_bytes(*kernel.definition);
    }
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
      if (!fits || arg + 1 < call.args.size()) return;
      const auto own = narrow_type(kernel.definition->output().body.value);
      fits = own && !kernel.definition->output().body.is_reduction() && (!type || *type == *own);
      type = own;
    });
    return fits && all_f32(members) ? type : std::nullopt;
  }

  std::optional<DType> type_of_weight(BufferId root, const std::vector<BufferId>& members) {
    const ProgramBuffer& buffer = program_.buffers[static_cast<size_t>(root)];
    if (buffer.kind != BufferKind::kWeight || !buffer.data || !buffer.data->has_data() || members.size() != 1 ||
        !all_f32(members))
      return std::nullopt;
    std::optional<DType> type;
    bool fits = true;
    for_uses(members, [&](const KernelCall& call, size_t arg) {
      const Kernel& kernel = kernel_of(call);
      fits = fits && kernel.definition && arg + 1 < call.args.size();
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
    return fits && type && all_are(*buffer.data, *type) ? type : std::nullopt;
  }

  bool all_f32(const std::vector<BufferId>& members) const {
    for (const BufferId id : members)
      if (program_.buffers[static_cast<size_t>(id)].type.dtype != DType::kF32) return false;
    return true;
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
      buffer.bytes /= 2;
      buffer.view_offset /= 2;
      if (!buffer.data) continue;
      auto data = std::make_shared<Tensor>(dtype, buffer.data->dims());
      const auto values = buffer.data->as<float>();
      const auto bits = data->as_mutable<uint16_t>();
      for (size_t i = 0; i < values.size(); ++i) bits[i] = static_cast<uint16_t>(encode_float(dtype, values[i]));
      buffer.data = std::move(data);
    }
    for_uses(members, [&](const KernelCall& call, size_t arg) {
      Kernel& kernel = kernel_of(call);
      auto& own = changed_[&kernel];
      if (!own) {
        own = std::make_shared<TensorProgram>(*kernel.definition);
        kernel.definition = own;
      }
      // A kernel may be given one buffer twice; each parameter is its own.
      if (arg + 1 == call.args.size()) narrow_result(*own, dtype);
      else narrow_param(*own, arg, dtype);
    });
  }

  Program& program_;
  std::map<BufferId, std::vector<BufferId>> families_;  // by root
  std::map<const Kernel*, std::shared_ptr<TensorProgram>> changed_;
};

}  // namespace

void narrow_values(Program& program) { Narrower(program).run(); }

}  // namespace tessera
