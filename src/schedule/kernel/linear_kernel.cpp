#include "schedule/kernel/linear_kernel.h"

#include <fmt/format.h>

#include <map>
#include <unordered_map>

#include "support/error.h"

namespace tessera::inline schedule {
namespace {

Expr flat_index(const std::vector<Expr>& index, const Shape& dims) {
  Expr flat = 0;
  for (size_t i = 0; i < dims.size(); ++i) flat = flat * dims[i] + index[i];
  return flat;
}

Expr elements_in(const Shape& dims) {
  Expr count = 1;
  for (const Expr& dim : dims) count = count * dim;
  return count;
}

// Of a variable from 0 to below the size.
Interval places_of(const Expr& size) {
  const auto most = as_int(size) ? as_int(size) : size_range(size).hi;
  return {0, most ? std::optional(*most - 1) : std::nullopt};
}

struct Flattener {
  struct Entry {
    BufferPtr flat;
    Layout layout;
    Shape dims;
  };
  Sizes sizes = Sizes::kFixed;
  std::unordered_map<const Buffer*, Entry> entries;

  // Empty when the shape is not static and has to be.
  BufferPtr add(const BufferPtr& logical, const Layout& layout) {
    const Shape dims = physical_shape(logical->shape, layout);
    if (sizes == Sizes::kFixed && !static_dims(dims)) return nullptr;
    const BufferPtr flat = make_buffer(logical->name, logical->dtype, {elements_in(dims)});
    entries[logical.get()] = {flat, layout, dims};
    return flat;
  }

  Expr rewrite(const Expr& e, const Bounds& bounds) const {
    const Expr flat = transform(e, [&](const Expr& node) -> Expr {
      if (node->kind != ExprKind::kLoad) return {};
      const auto it = entries.find(node->buffer.get());
      if (it == entries.end()) return {};
      const Entry& entry = it->second;
      return load(entry.flat, {flat_index(physical_index(node->operands, entry.layout), entry.dims)});
    });
    return simplify(flat, bounds);
  }
};

bool reads_reduction(const Stage& stage, const std::vector<const Stage*>& reductions) {
  bool reads = false;
  walk(stage.body.value, [&](const Expr& node) {
    if (node->kind != ExprKind::kLoad) return;
    for (const Stage* reduction : reductions) reads = reads || node->buffer == reduction->out;
  });
  return reads;
}

// Makes places of 32 bits where they fit; the type in which they are reduced.
DType narrow_place(Expr& place, Expr& none, DType dtype, const Bounds& bounds) {
  const Interval from = bounds_of(place, bounds), beside = bounds_of(none, bounds);
  const auto fits = [](const Interval& range) {
    return range.lo && range.hi && *range.lo >= INT32_MIN && *range.hi <= INT32_MAX;
  };
  if (dtype != DType::kI64 || !fits(from) || !fits(beside)) return dtype;
  place = cast(DType::kI32, place);
  none = cast(DType::kI32, none);
  return DType::kI32;
}

}  // namespace

std::vector<LinearReduction> all_reductions(const LinearKernel& kernel) {
  if (kernel.combiner == Combiner::kNone) return {};
  std::vector<LinearReduction> all = {{kernel.combiner, kernel.reduce_value, kernel.reduce_dtype, kernel.result_var}};
  all.insert(all.end(), kernel.more_reductions.begin(), kernel.more_reductions.end());
  return all;
}

void for_each_reduced_value(LinearKernel& kernel, const std::function<void(Expr&)>& visit) {
  if (kernel.reduce_value) visit(kernel.reduce_value);
  for (LinearReduction& reduction : kernel.more_reductions) visit(reduction.value);
}

void for_each_reduced_value(const LinearKernel& kernel, const std::function<void(const Expr&)>& visit) {
  if (kernel.reduce_value) visit(kernel.reduce_value);
  for (const LinearReduction& reduction : kernel.more_reductions) visit(reduction.value);
}

void for_each_value(LinearKernel& kernel, const std::function<void(Expr&)>& visit) {
  visit(kernel.value);
  for (LinearResult& result : kernel.more_results) visit(result.value);
  for_each_reduced_value(kernel, visit);
}

Expr LinearKernel::inside() const {
  Expr condition = const_int(DType::kBool, 1);
  for (size_t axis = 0; axis < logical.size(); ++axis)
    condition = logical_and(condition, simplify(logical[axis] < Expr(extents[axis]), bounds));
  return is_true(condition) ? Expr() : condition;
}

std::optional<LinearKernel> make_linear_kernel(const TensorProgram& program, std::string& why, Results results,
                                               Sizes sizes) {
  LinearKernel kernel;
  Flattener flattener{sizes, {}};
  for (const TensorParam& param : program.params) {
    kernel.params.push_back(flattener.add(param.buffer, param.layout));
    kernel.param_block.push_back(param.layout.inner_block().block);
    kernel.kinds.push_back(param.kind);
    if (!kernel.params.back()) {
      why = "parameter " + param.buffer->name + " has a shape that is not fixed";
      return std::nullopt;
    }
  }
  const Stage& output = program.output();
  for (const Stage& result : program.results()) {
    const BufferPtr out = flattener.add(result.out, result.layout);
    if (!out) {
      why = "the output has a shape that is not fixed";
      return std::nullopt;
    }
    kernel.params.push_back(out);
    kernel.param_block.push_back(result.layout.inner_block().block);
    kernel.kinds.push_back(OperandKind::kActivation);
  }
  const std::vector<const Stage*> reductions = program.reductions();
  if (results == Results::kOne && (program.num_results > 1 || reductions.size() > 1)) {
    why = "the kernel has several results or reductions";
    return std::nullopt;
  }
  size_t beside_results = 0;
  for (const Stage* reduction : reductions) beside_results += reduction < program.results().data() ? 1 : 0;
  if (program.stages.size() != beside_results + program.num_results) {
    why = "more stages than reductions and epilogues";
    return std::nullopt;
  }

  // One loop per physical dimension.
  for (const Expr& extent : output.out->shape) {
    if (is_const_int(extent, 0)) {
      why = "the output is empty";
      return std::nullopt;
    }
    kernel.extents.push_back(as_int(extent).value_or(0));
  }
  Layout layout = output.layout;
  if (layout.row_major())
    for (int i = 0; i < static_cast<int>(kernel.extents.size()); ++i) layout.dims.push_back({i});
  const Shape physical = physical_shape(output.out->shape, layout);
  for (size_t i = 0; i < layout.dims.size(); ++i) {
    const LayoutDim& dim = layout.dims[i];
    OutputLoop loop;
    loop.extent = as_int(physical[i]).value_or(0);
    loop.size = physical[i];
    loop.axis = dim.axis;
    loop.part = dim.part;
    if (loop.extent == 0 && dim.part != LayoutDim::Part::kWhole) {
      why = "a run decides how many blocks an axis of the output has";
      return std::nullopt;
    }
    const char* suffix = dim.part == LayoutDim::Part::kQuotient    ? "b"
                         : dim.part == LayoutDim::Part::kRemainder ? "l"
                                                                   : "";
    loop.var = make_var(fmt::format("i{}{}", dim.axis, suffix));
    kernel.loops.push_back(loop);
  }
  int64_t stride = 1;
  for (size_t i = kernel.loops.size(); i-- > 0; stride *= kernel.loops[i].extent) kernel.loops[i].stride = stride;
  // Of a window the loops are shorter, and begin at its base.
  std::vector<Expr> bases(kernel.loops.size(), Expr(0));
  for (const Window& window : program.windows) {
    kernel.bounds.set(window.base, window.lo, window.hi);
    for (size_t i = 0; i < kernel.loops.size(); ++i) {
      if (kernel.loops[i].axis != static_cast<int>(window.axis)) continue;
      if (kernel.loops[i].part != LayoutDim::Part::kWhole) {
        why = "the window is along a blocked axis";
        return std::nullopt;
      }
      kernel.loops[i].extent = window.extent;
      kernel.loops[i].size = Expr(window.extent);
      bases[i] = window.base * Expr(window.step);
    }
  }
  for (const OutputLoop& loop : kernel.loops) kernel.bounds.set(loop.var, places_of(loop.size));
  for (size_t axis = 0; axis < kernel.extents.size(); ++axis) {
    Expr index = 0;
    int64_t reach = 1;
    for (size_t i = 0; i < kernel.loops.size(); ++i) {
      if (kernel.loops[i].axis != static_cast<int>(axis)) continue;
      const bool quotient = kernel.loops[i].part == LayoutDim::Part::kQuotient;
      const int64_t block = quotient ? layout.dims[i].block : 1;
      index = index + (bases[i] + kernel.loops[i].var) * Expr(block);
      reach += (kernel.loops[i].extent - 1) * block;
    }
    kernel.padded |= kernel.extents[axis] > 0 && reach > kernel.extents[axis];
    kernel.logical.push_back(index);
  }
  std::vector<Expr> loop_vars;
  for (size_t i = 0; i < kernel.loops.size(); ++i) loop_vars.push_back(bases[i] + kernel.loops[i].var);
  kernel.out_index = simplify(flat_index(loop_vars, physical), kernel.bounds);

  const auto to_loops = [&](const Body& body) {
    VarMap map;
    for (size_t i = 0; i < body.axes.size(); ++i) map[body.axes[i].var.get()] = kernel.logical[i];
    return map;
  };
  std::vector<Var> result_vars;  // by reduction
  for (size_t r = 0; r < reductions.size(); ++r) {
    const Stage* reduction = reductions[r];
    Body body = program.num_results > 1 ? reduction->body : with_fresh_axes(reduction->body);
    if (kernel.reduce.empty()) kernel.reduce = body.reduce_axes;
    VarMap map = to_loops(body);
    for (size_t i = 0; i < body.reduce_axes.size(); ++i) map[body.reduce_axes[i].var.get()] = kernel.reduce[i].var;
    for (const Axis& axis : kernel.reduce) {
      if (is_const_int(axis.extent, 0) || (sizes == Sizes::kFixed && !as_int(axis.extent))) {
        why = "a reduced axis is empty or not fixed";
        return std::nullopt;
      }
      kernel.bounds.set(axis.var, places_of(axis.extent));
    }
    auto pair = reads_reduction(*reduction, reductions) ? place_of_extremum(reductions, r) : std::nullopt;
    if (reads_reduction(*reduction, reductions) && (!pair || results != Results::kPairs || r == 0)) {
      why = "a reduction reads another one";
      return std::nullopt;
    }
    DType dtype = reduction->out->dtype;
    const DType result_dtype = dtype;
    Expr value;
    if (pair) {
      // Its own axes are those of the stage, and `body` may have fresh ones.
      VarMap own = to_loops(reduction->body);
      for (size_t i = 0; i < kernel.reduce.size(); ++i)
        own[reduction->body.reduce_axes[i].var.get()] = kernel.reduce[i].var;
      value = simplify(substitute(pair->place, own), kernel.bounds);
      dtype = narrow_place(value, pair->none, dtype, kernel.bounds);
    } else {
      value = flattener.rewrite(substitute(body.value, map), kernel.bounds);
    }
    result_vars.push_back(
        make_var(result_vars.empty() ? "result" : fmt::format("result{}", result_vars.size()), result_dtype));
    if (result_vars.size() > 1) {
      kernel.more_reductions.push_back({body.combiner, value, dtype, result_vars.back(), std::move(pair)});
      continue;
    }
    kernel.combiner = body.combiner;
    kernel.reduce_dtype = dtype;
    kernel.reduce_value = value;
    kernel.result_var = result_vars.back();
  }
  bool elsewhere = false;
  const auto final_value = [&](const Stage& stage) -> Expr {
    for (size_t r = 0; r < reductions.size(); ++r)
      if (reductions[r] == &stage) return result_vars[r];
    const Expr value = transform(stage.body.value, [&](const Expr& node) -> Expr {
      if (node->kind != ExprKind::kLoad) return {};
      for (size_t r = 0; r < reductions.size(); ++r) {
        if (node->buffer != reductions[r]->out) continue;
        for (size_t i = 0; i < node->operands.size(); ++i)
          elsewhere |= !node->operands[i].same_node(stage.body.axes[i].var) && kernel.extents[i] != 1;
        return result_vars[r];
      }
      return {};
    });
    return flattener.rewrite(substitute(value, to_loops(stage.body)), kernel.bounds);
  };
  kernel.value = final_value(program.results()[0]);
  for (size_t i = 1; i < program.num_results; ++i)
    kernel.more_results.push_back(
        {kernel.params[kernel.params.size() - program.num_results + i], final_value(program.results()[i])});
  if (elsewhere) {
    why = "the epilogue reads the reduction at another index than its own";
    return std::nullopt;
  }
  return kernel;
}

bool loads_in_bounds(const Expr& e, const Bounds& bounds) {
  bool ok = true;
  walk(e, [&](const Expr& node) {
    if (node->kind != ExprKind::kLoad) return;
    const Interval range = bounds_of(node->operands[0], bounds);
    const auto size = as_int(node->buffer->shape[0]);
    ok &= range.lo && range.hi && *range.lo >= 0 && size && *range.hi < *size;
  });
  return ok;
}

namespace {

// Whether the only uses of `outer` and `inner` in `e` are flat load indices in which they appear linearly with
// coefficient(outer) = extent(inner) * coefficient(inner).
bool merges_in(const Expr& e, const OutputLoop& outer, const OutputLoop& inner, const Bounds& bounds) {
  if (!e) return true;
  if (e->kind == ExprKind::kVar) return !e.same_node(outer.var) && !e.same_node(inner.var);
  if (e->kind == ExprKind::kLoad) {
    const auto a = linear_coefficient(e->operands[0], outer.var, bounds);
    const auto b = linear_coefficient(e->operands[0], inner.var, bounds);
    if (a && b && *a == *b * inner.extent) {
      bool nested = false;
      walk(e->operands[0], [&](const Expr& node) { nested |= node->kind == ExprKind::kLoad; });
      if (!nested) return true;
    }
    return merges_in(e->operands[0], outer, inner, bounds);
  }
  for (const Expr& operand : e->operands)
    if (!merges_in(operand, outer, inner, bounds)) return false;
  return true;
}

// Replaces the pair by one variable in linear load indices: outer -> 0, inner -> merged.
Expr merge_in(const Expr& e, const OutputLoop& outer, const OutputLoop& inner, const Var& merged,
              const Bounds& bounds) {
  if (!e) return e;
  return simplify(substitute(e, {{outer.var.get(), Expr(0)}, {inner.var.get(), merged}}), bounds);
}

}  // namespace

std::optional<LinearKernel> make_flat_reduction(const TensorProgram& program, std::string& why, Results results) {
  auto made = make_linear_kernel(program, why, results);
  if (!made) return std::nullopt;
  if (made->combiner == Combiner::kNone) why = "the kernel does not reduce";
  else if (made->padded) why = "the output's layout has padding";
  else return made;
  return std::nullopt;
}

void split_blocked_reductions(LinearKernel& kernel) {
  const auto is_linear = [&](const Var& var) {
    bool linear = true;
    for_each_reduced_value(kernel, [&](const Expr& value) {
      walk(value, [&](const Expr& node) {
        if (node->kind == ExprKind::kLoad)
          linear &= linear_coefficient(node->operands[0], var, kernel.bounds).has_value();
      });
    });
    return linear;
  };
  int64_t block = 1;
  for (const int64_t of_param : kernel.param_block) block = std::max(block, of_param);
  if (block == 1) return;
  std::vector<Axis> axes;
  for (const Axis& axis : kernel.reduce) {
    const auto extent = as_int(axis.extent);
    if (!extent || *extent % block != 0 || is_linear(axis.var)) {
      axes.push_back(axis);
      continue;
    }
    const Var quotient = make_var(axis.var->name + "b"), remainder = make_var(axis.var->name + "i");
    kernel.bounds.set(quotient, 0, *extent / block - 1);
    kernel.bounds.set(remainder, 0, block - 1);
    const VarMap split{{axis.var.get(), quotient * Expr(block) + remainder}};
    for_each_reduced_value(kernel, [&](Expr& value) { value = simplify(substitute(value, split), kernel.bounds); });
    axes.push_back({quotient, Expr(*extent / block)});
    axes.push_back({remainder, Expr(block)});
  }
  kernel.reduce = std::move(axes);
}

int contiguous_reduced_axis(const LinearKernel& kernel) {
  for (size_t i = kernel.reduce.size(); i-- > 0;) {
    bool contiguous = false;
    bool linear = true;
    for_each_reduced_value(kernel, [&](const Expr& value) {
      walk(value, [&](const Expr& node) {
        if (node->kind != ExprKind::kLoad) return;
        const auto c = linear_coefficient(node->operands[0], kernel.reduce[i].var, kernel.bounds);
        linear &= c.has_value();
        contiguous |= c == 1;
      });
    });
    if (contiguous && linear) return static_cast<int>(i);
  }
  return -1;
}

void merge_loops(LinearKernel& kernel,
                 const std::function<bool(const OutputLoop& outer, const OutputLoop& inner)>& may_merge) {
  for (size_t i = kernel.loops.size(); i-- > 1;) {
    const OutputLoop outer = kernel.loops[i - 1];
    const OutputLoop inner = kernel.loops[i];
    const bool trivial = outer.extent == 1 || inner.extent == 1;
    if (!may_merge(outer, inner)) continue;
    if (outer.stride != inner.stride * inner.extent) continue;
    bool merges = true;
    for_each_value(kernel,
                   [&](const Expr& value) { merges = merges && merges_in(value, outer, inner, kernel.bounds); });
    if (!trivial && !merges) continue;
    if (trivial && outer.extent != 1) {
      // The inner loop runs once: its variable is 0 everywhere.
      kernel.bounds.set(inner.var, 0, 0);
      kernel.loops.erase(kernel.loops.begin() + static_cast<std::ptrdiff_t>(i));
    } else if (trivial) {
      kernel.bounds.set(outer.var, 0, 0);
      kernel.loops.erase(kernel.loops.begin() + static_cast<std::ptrdiff_t>(i) - 1);
    } else {
      OutputLoop merged = inner;
      merged.var = make_var(outer.var->name + inner.var->name);
      merged.extent = outer.extent * inner.extent;
      kernel.bounds.set(merged.var, 0, merged.extent - 1);
      for_each_value(kernel, [&](Expr& value) { value = merge_in(value, outer, inner, merged.var, kernel.bounds); });
      kernel.out_index = merge_in(kernel.out_index, outer, inner, merged.var, kernel.bounds);
      // Logical indices of the two axes are no longer needed one by one: only unpadded loops merge.
      for (Expr& index : kernel.logical)
        index = simplify(substitute(index, {{outer.var.get(), Expr(0)}, {inner.var.get(), Expr(0)}}), kernel.bounds);
      kernel.loops[i - 1] = merged;
      kernel.loops.erase(kernel.loops.begin() + static_cast<std::ptrdiff_t>(i));
    }
    for_each_value(kernel, [&](Expr& value) { value = simplify(value, kernel.bounds); });
    kernel.out_index = simplify(kernel.out_index, kernel.bounds);
  }
}

}  // namespace tessera::inline schedule
