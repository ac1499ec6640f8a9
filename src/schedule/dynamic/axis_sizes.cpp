#include "schedule/dynamic/axis_sizes.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

namespace tessera::inline schedule {
namespace {

constexpr int kUnknown = -1, kSeveral = -2;

// The extent as a product of a number and of the rest.
struct Factors {
  int64_t number = 1;
  Expr rest;  // null: 1
};

void split(const Expr& e, Factors& factors) {
  if (const auto value = as_int(e)) {
    factors.number *= *value;
  } else if (e->kind == ExprKind::kBinary && e->binary == BinaryOp::kMul) {
    for (const Expr& operand : e->operands) split(operand, factors);
  } else {
    factors.rest = factors.rest ? factors.rest * e : e;
  }
}

// By dimension of each buffer, the number of the size along which all loads and stores go.
class Dimensions {
 public:
  explicit Dimensions(const std::vector<AxisSize>& sizes) : sizes_(sizes) {}

  void accessed(const Buffer& buffer, size_t dim, int size) {
    if (size >= 0 && !structurally_equal(buffer.shape[dim], sizes_[static_cast<size_t>(size)].extent)) size = kSeveral;
    auto& known = numbers_[&buffer];
    known.resize(buffer.shape.size(), kUnknown);
    if (known[dim] == kUnknown) known[dim] = size;
    else if (known[dim] != size) known[dim] = kSeveral;
  }

  Shape named(const Buffer& buffer) const {
    Shape shape = buffer.shape;
    if (const auto it = numbers_.find(&buffer); it != numbers_.end())
      for (size_t d = 0; d < shape.size(); ++d)
        if (it->second[d] >= 0) shape[d] = sizes_[static_cast<size_t>(it->second[d])].named;
    return shape;
  }

 private:
  const std::vector<AxisSize>& sizes_;
  std::unordered_map<const Buffer*, std::vector<int>> numbers_;
};

}  // namespace

SizedKernel name_axis_sizes(const TensorProgram& kernel, NamedAxes which) {
  SizedKernel result{kernel, {}};
  const std::vector<Axis>& output_axes = kernel.output().body.axes;
  size_t last_open = 0;
  for (size_t i = 0; i < output_axes.size(); ++i)
    if (!as_int(output_axes[i].extent)) last_open = i;
  const auto is_named = [&](size_t i) {
    const auto extent = as_int(output_axes[i].extent);
    return !extent || (which == NamedAxes::kAllOutsideOpen && i < last_open && *extent > 1);
  };
  // Output axes are those of every stage; reduced ones belong to theirs.
  std::unordered_map<const ExprNode*, int> size_of;  // by the axis' variable
  std::vector<int> of_output;
  const auto named = [&](const Axis& axis, const std::string& name, bool in_multiples) {
    Factors factors{1, axis.extent};
    if (in_multiples) {
      factors = {};
      split(axis.extent, factors);
    }
    const Var var = make_var(name);
    result.sizes.push_back({var, factors.rest, axis.extent, var * Expr(factors.number)});
    return static_cast<int>(result.sizes.size()) - 1;
  };
  for (size_t i = 0; i < output_axes.size(); ++i)
    of_output.push_back(!is_named(i) ? kSeveral
                                     : named(output_axes[i], fmt::format("n{}", i), i + 1 == output_axes.size()));
  for (Stage& stage : result.program.stages) {
    for (size_t i = 0; i < stage.body.axes.size() && i < of_output.size(); ++i) {
      Axis& axis = stage.body.axes[i];
      if (of_output[i] < 0 || !structurally_equal(axis.extent, output_axes[i].extent)) continue;
      size_of[axis.var.get()] = of_output[i];
      axis.extent = result.sizes[static_cast<size_t>(of_output[i])].named;
    }
    for (size_t i = 0; i < stage.body.reduce_axes.size(); ++i) {
      Axis& axis = stage.body.reduce_axes[i];
      if (as_int(axis.extent)) continue;
      const int size = named(axis, fmt::format("k{}", i), false);
      size_of[axis.var.get()] = size;
      axis.extent = result.sizes[static_cast<size_t>(size)].named;
    }
  }
  Dimensions dimensions(result.sizes);
  const auto size_at = [&](const Expr& index) {
    const auto it = size_of.find(index.get());
    return it == size_of.end() ? kSeveral : it->second;
  };
  for (const Stage& stage : kernel.stages) {
    for (size_t d = 0; d < stage.out->shape.size(); ++d)
      dimensions.accessed(*stage.out, d, size_at(stage.body.axes[d].var));
    walk(stage.body.value, [&](const Expr& node) {
      if (node->kind != ExprKind::kLoad) return;
      for (size_t d = 0; d < node->operands.size(); ++d)
        dimensions.accessed(*node->buffer, d, size_at(node->operands[d]));
    });
  }
  std::unordered_map<const Buffer*, BufferPtr> buffers;
  const auto take = [&](BufferPtr& buffer) {
    BufferPtr& own = buffers[buffer.get()];
    if (!own) own = make_buffer(buffer->name, buffer->dtype, dimensions.named(*buffer), buffer->scope);
    buffer = own;
  };
  for (TensorParam& param : result.program.params) take(param.buffer);
  for (Stage& stage : result.program.stages) take(stage.out);
  for (Stage& stage : result.program.stages) {
    for (BufferPtr& input : stage.body.inputs)
      if (const auto it = buffers.find(input.get()); it != buffers.end()) input = it->second;
    stage.body.value = transform(stage.body.value, [&](const Expr& node) -> Expr {
      if (node->kind != ExprKind::kLoad) return {};
      const auto it = buffers.find(node->buffer.get());
      return it == buffers.end() ? Expr() : load(it->second, node->operands);
    });
  }
  return result;
}

VarMap values_of(const SizedKernel& kernel) {
  VarMap map;
  for (const AxisSize& size : kernel.sizes) map[size.var.get()] = size.value;
  return map;
}

LoopProgram with_values(const LoopProgram& program, const VarMap& values) {
  LoopProgram result = program;
  for (BufferPtr& param : result.params) {
    Shape shape;
    for (const Expr& dim : param->shape) shape.push_back(substitute(dim, values));
    param = make_buffer(param->name, param->dtype, std::move(shape), param->scope);
  }
  result.body = on_buffers(substitute(program.body, values), program.params, result.params);
  return result;
}

Stmt on_buffers(const Stmt& s, const std::vector<BufferPtr>& from, const std::vector<BufferPtr>& to) {
  const auto own_of = [&](const BufferPtr& buffer) {
    const auto it = std::find(from.begin(), from.end(), buffer);
    return it == from.end() ? BufferPtr() : to[static_cast<size_t>(it - from.begin())];
  };
  return transform(
      s,
      [&](const Expr& node) -> Expr {
        if (node->kind != ExprKind::kLoad) return {};
        const BufferPtr own = own_of(node->buffer);
        return own ? load(own, node->operands) : Expr();
      },
      [&](const Stmt& node) -> Stmt {
        if (node->kind != StmtKind::kStore && node->kind != StmtKind::kFor) return {};
        const BufferPtr own = own_of(node->buffer);
        if (!own) return {};
        if (node->kind == StmtKind::kStore) return store(own, node->indices, node->value);
        const Stmt loop = for_loop(node->var, node->begin, node->extent, node->for_kind, node->stmts[0]);
        return prefetching(loop, own, node->indices);
      });
}

}  // namespace tessera::inline schedule
