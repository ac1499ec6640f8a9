#include "schedule/dynamic/kernel_at.h"

#include <unordered_map>

#include "arith/simplify.h"

namespace tessera::inline schedule {

TensorProgram kernel_at(const TensorProgram& kernel, const std::vector<SymbolRange>& symbols, const SizePoint& point) {
  VarMap values;
  for (size_t i = 0; i < symbols.size(); ++i) values[symbols[i].var.get()] = point[i];
  const auto fixed = [&](const Expr& e) { return simplify(substitute(e, values)); };
  std::unordered_map<const Buffer*, BufferPtr> buffers;
  const auto fixed_buffer = [&](const BufferPtr& buffer) {
    Shape shape;
    for (const Expr& dim : buffer->shape) shape.push_back(fixed(dim));
    return buffers[buffer.get()] = make_buffer(buffer->name, buffer->dtype, std::move(shape), buffer->scope);
  };
  TensorProgram result;
  result.name = kernel.name;
  result.num_results = kernel.num_results;
  for (const TensorParam& param : kernel.params)
    result.params.push_back({fixed_buffer(param.buffer), param.layout, param.kind});
  for (const Stage& stage : kernel.stages) {
    Stage copy = stage;
    copy.out = fixed_buffer(stage.out);
    for (auto* axes : {&copy.body.axes, &copy.body.reduce_axes})
      for (Axis& axis : *axes) axis.extent = fixed(axis.extent);
    copy.body.value = transform(substitute(stage.body.value, values), [&](const Expr& node) -> Expr {
      if (node->kind != ExprKind::kLoad) return {};
      const auto it = buffers.find(node->buffer.get());
      return it == buffers.end() ? Expr() : load(it->second, node->operands);
    });
    result.stages.push_back(std::move(copy));
  }
  return result;
}

}  // namespace tessera::inline schedule
