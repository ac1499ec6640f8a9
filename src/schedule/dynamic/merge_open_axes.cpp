#include "schedule/dynamic/merge_open_axes.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "arith/simplify.h"

namespace tessera::inline schedule {
namespace {

// The layout without dimension `axis` + 1, whose places follow one another within those of `axis`. Empty when they do
// not.
std::optional<Layout> merged(const Layout& layout, int axis) {
  Layout result = layout;
  if (layout.row_major()) return result;
  const auto is_part_of = [](int which) { return [which](const LayoutDim& dim) { return dim.axis == which; }; };
  const auto outer = std::find_if(result.dims.begin(), result.dims.end(), is_part_of(axis));
  if (outer == result.dims.end() || outer + 1 == result.dims.end()) return std::nullopt;
  const auto inner = outer + 1;
  if (inner->axis != axis + 1) return std::nullopt;
  for (const LayoutDim& dim : {*outer, *inner})
    if (dim.part != LayoutDim::Part::kWhole) return std::nullopt;
  result.dims.erase(inner);
  for (LayoutDim& dim : result.dims)
    if (dim.axis > axis) --dim.axis;
  return result;
}

BufferPtr merged(const Buffer& buffer, size_t dim) {
  Shape shape = buffer.shape;
  shape[dim] = shape[dim] * shape[dim + 1];
  shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(dim) + 1);
  return make_buffer(buffer.name, buffer.dtype, std::move(shape), buffer.scope);
}

class Merger {
 public:
  Merger(const TensorProgram& kernel, size_t axis) : kernel_(kernel), axis_(axis) {}

  std::optional<TensorProgram> run() {
    const Shape& shape = kernel_.output().out->shape;
    height_ = shape[axis_];
    width_ = shape[axis_ + 1];
    TensorProgram result = kernel_;
    // Stages first: they say which parameters are merged.
    for (Stage& stage : result.stages) {
      if (stage.body.axes.size() != shape.size() || !same_extents(stage.out->shape, axis_)) return std::nullopt;
      merge(stage.out, axis_);
    }
    for (Stage& stage : result.stages)
      if (!merge_body(stage.body)) return std::nullopt;
    for (const auto& [buffer, merged] : buffers_)
      if (unmerged_.count(buffer) > 0) return std::nullopt;
    const auto take = [&](BufferPtr& buffer, Layout& layout) {
      const auto it = buffers_.find(buffer.get());
      if (it == buffers_.end()) return true;
      auto own = merged(layout, static_cast<int>(it->second.dim));
      if (!own) return false;
      layout = std::move(*own);
      buffer = it->second.merged;
      return true;
    };
    for (Stage& stage : result.stages) {
      if (!take(stage.out, stage.layout)) return std::nullopt;
      for (BufferPtr& input : stage.body.inputs)
        if (const auto it = buffers_.find(input.get()); it != buffers_.end()) input = it->second.merged;
    }
    for (TensorParam& param : result.params)
      if (!take(param.buffer, param.layout)) return std::nullopt;
    return result;
  }

 private:
  struct Merged {
    size_t dim = 0;
    BufferPtr merged;
  };

  bool same_extents(const Shape& shape, size_t dim) const {
    return dim + 1 < shape.size() && structurally_equal(shape[dim], height_) &&
           structurally_equal(shape[dim + 1], width_);
  }

  // The buffer with dimensions `dim` and `dim` + 1 as one; null where it has others as one already.
  BufferPtr merge(const BufferPtr& buffer, size_t dim) {
    Merged& known = buffers_[buffer.get()];
    if (!known.merged) known = {dim, schedule::merged(*buffer, dim)};
    return known.dim == dim ? known.merged : nullptr;
  }

  bool merge_body(Body& body) {
    const Axis outer = body.axes[axis_], inner = body.axes[axis_ + 1];
    const Axis both = {make_var(outer.var->name + inner.var->name), outer.extent * inner.extent};
    // A window of one place is at the place itself.
    VarMap zero;
    for (const Axis& axis : body.reduce_axes)
      if (is_const_int(axis.extent, 1)) zero[axis.var.get()] = Expr(0);
    const Expr value = simplify(substitute(body.value, zero));
    body.value = transform(value, [&](const Expr& node) -> Expr {
      if (node->kind != ExprKind::kLoad) return {};
      std::vector<Expr> index = node->operands;
      for (size_t d = 0; d + 1 < index.size(); ++d) {
        if (!index[d].same_node(outer.var) || !index[d + 1].same_node(inner.var)) continue;
        const BufferPtr buffer = same_extents(node->buffer->shape, d) ? merge(node->buffer, d) : nullptr;
        if (!buffer) break;
        index[d] = both.var;
        index.erase(index.begin() + static_cast<std::ptrdiff_t>(d) + 1);
        return load(buffer, std::move(index));
      }
      unmerged_.insert(node->buffer.get());
      return {};
    });
    body.axes[axis_] = both;
    body.axes.erase(body.axes.begin() + static_cast<std::ptrdiff_t>(axis_) + 1);
    return !uses_var(body.value, outer.var) && !uses_var(body.value, inner.var);
  }

  const TensorProgram& kernel_;
  size_t axis_;
  Expr height_, width_;
  std::unordered_map<const Buffer*, Merged> buffers_;
  std::unordered_set<const Buffer*> unmerged_;  // read at other places
};

bool is_open(const Expr& extent) { return !as_int(extent); }

}  // namespace

TensorProgram merge_open_axes(const TensorProgram& kernel) {
  TensorProgram result = kernel;
  if (!kernel.windows.empty()) return result;
  // Innermost first; a merged axis may be merged with the one before it.
  for (size_t axis = result.output().out->shape.size(); axis-- > 1;) {
    const Shape& shape = result.output().out->shape;
    if (!is_open(shape[axis - 1]) && !is_open(shape[axis])) continue;
    if (auto merged = Merger(result, axis - 1).run()) result = std::move(*merged);
  }
  return result;
}

}  // namespace tessera::inline schedule
