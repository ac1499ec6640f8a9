#include "schedule/fusion/fold_copies.h"

#include <algorithm>

#include "arith/simplify.h"

namespace tessera::inline schedule {
namespace {

// The stage of a kernel that has one, which does not reduce.
const Stage* only_injective(const TensorProgram& kernel) {
  return kernel.stages.size() == 1 && !kernel.reduction() && kernel.windows.empty() ? &kernel.output() : nullptr;
}

std::vector<Expr> loads_of(const TensorProgram& kernel, const BufferPtr& buffer) {
  std::vector<Expr> loads;
  for (const Stage& stage : kernel.stages)
    walk(stage.body.value, [&](const Expr& node) {
      if (node->kind == ExprKind::kLoad && node->buffer == buffer) loads.push_back(node);
    });
  return loads;
}

VarMap at_indices(const std::vector<Axis>& axes, const std::vector<Expr>& indices) {
  VarMap map;
  for (size_t i = 0; i < axes.size(); ++i) map[axes[i].var.get()] = indices[i];
  return map;
}

void replace_input(Body& body, const BufferPtr& old, const BufferPtr& by) {
  std::replace(body.inputs.begin(), body.inputs.end(), old, by);
}

bool has_param(const TensorProgram& kernel, const BufferPtr& buffer) {
  return std::any_of(kernel.params.begin(), kernel.params.end(),
                     [&](const TensorParam& param) { return param.buffer == buffer; });
}

}  // namespace

std::optional<TensorProgram> read_through(const TensorProgram& reader, size_t param, const TensorProgram& copy) {
  const Stage* stage = only_injective(copy);
  const Stage* reduction = reader.reduction();
  if (!stage || !reduction || copy.params.size() != 1 || has_param(reader, copy.params[0].buffer)) return std::nullopt;
  const Expr& copied = stage->body.value;
  if (copied->kind != ExprKind::kLoad || copied->buffer != copy.params[0].buffer) return std::nullopt;
  const BufferPtr& old = reader.params[param].buffer;
  const std::vector<Expr> loads = loads_of(reader, old);
  if (loads.size() != 1 || loads_of({"", {}, {*reduction}}, old).size() != 1) return std::nullopt;
  if (uses_var(loads[0], reduction->body.axes.back().var)) return std::nullopt;
  const Expr moved = substitute(copied, at_indices(stage->body.axes, loads[0]->operands));
  // What it takes to find a place is paid for each product of the sum.
  for (const Axis& axis : reduction->body.axes)
    for (const Expr& index : moved->operands)
      if (uses_var(index, axis.var) && !linear_coefficient(index, axis.var)) return std::nullopt;
  int reduced = 0;
  for (const Axis& axis : reduction->body.reduce_axes) {
    if (!uses_var(moved, axis.var)) continue;
    ++reduced;
    for (size_t d = 0; d < moved->operands.size(); ++d) {
      const bool is_last = d + 1 == moved->operands.size();
      if (is_last ? linear_coefficient(moved->operands[d], axis.var) != 1 : uses_var(moved->operands[d], axis.var))
        return std::nullopt;
    }
  }
  if (reduced != 1) return std::nullopt;

  TensorProgram result = reader;
  result.params[param] = copy.params[0];
  for (Stage& s : result.stages) {
    replace_input(s.body, old, copy.params[0].buffer);
    s.body.value = transform(s.body.value, [&](const Expr& node) -> Expr {
      return node->kind == ExprKind::kLoad && node->buffer == old ? moved : Expr();
    });
  }
  return result;
}

std::optional<TensorProgram> store_through(const TensorProgram& kernel, const TensorProgram& copy) {
  const Stage* stage = only_injective(copy);
  if (!stage || copy.params.size() != 1 || !kernel.windows.empty()) return std::nullopt;
  const Expr& copied = stage->body.value;
  if (copied->kind != ExprKind::kLoad || copied->buffer != copy.params[0].buffer) return std::nullopt;
  const std::vector<Axis>& axes = stage->body.axes;
  const size_t rank = axes.size();
  if (copied->operands.size() != rank || !copied->operands.back().same_node(axes.back().var)) return std::nullopt;
  // By the copy's axis: the kernel's.
  std::vector<size_t> order;
  for (const Axis& axis : axes) {
    const auto it = std::find_if(copied->operands.begin(), copied->operands.end(),
                                 [&](const Expr& index) { return index.same_node(axis.var); });
    if (it == copied->operands.end()) return std::nullopt;
    order.push_back(static_cast<size_t>(it - copied->operands.begin()));
  }
  const auto permuted = [&](const auto& list) {
    auto result = list;
    for (size_t i = 0; i < rank; ++i) result[i] = list[order[i]];
    return result;
  };
  TensorProgram result = kernel;
  for (size_t s = 0; s < result.stages.size(); ++s) {
    Stage& own = result.stages[s];
    if (own.body.axes.size() != rank || own.out->shape.size() != rank || !own.layout.row_major()) return std::nullopt;
    own.body.axes = permuted(own.body.axes);
    const BufferPtr old = own.out;
    own.out = s + 1 == result.stages.size() ? stage->out : make_buffer(old->name, old->dtype, permuted(old->shape));
    for (Stage& later : result.stages) {
      replace_input(later.body, old, own.out);
      later.body.value = transform(later.body.value, [&](const Expr& node) -> Expr {
        return node->kind == ExprKind::kLoad && node->buffer == old ? load(own.out, permuted(node->operands)) : Expr();
      });
    }
  }
  result.stages.back().layout = stage->layout;
  return result;
}

std::optional<ScaledAfterwards> scale_afterwards(const TensorProgram& product, size_t param,
                                                 const TensorProgram& scaling) {
  const Stage* stage = only_injective(scaling);
  const Stage* reduction = product.reduction();
  if (!stage || !reduction || !product.windows.empty() || scaling.params.size() != 2 || product.stages.size() > 2 ||
      reduction != &product.stages[0])
    return std::nullopt;
  const Expr& scaled = stage->body.value;
  const bool divides = scaled->kind == ExprKind::kBinary && scaled->binary == BinaryOp::kDiv;
  if (scaled->kind != ExprKind::kBinary || (scaled->binary != BinaryOp::kMul && !divides)) return std::nullopt;
  const auto is_own = [&](const Expr& e) {
    if (e->kind != ExprKind::kLoad || e->dtype != DType::kF32 || e->operands.size() != stage->body.axes.size())
      return false;
    for (size_t i = 0; i < e->operands.size(); ++i)
      if (!e->operands[i].same_node(stage->body.axes[i].var)) return false;
    return true;
  };
  const bool swapped = !divides && !is_own(scaled->operands[0]);
  const Expr& values = scaled->operands[swapped ? 1 : 0];
  const Expr& factors = scaled->operands[swapped ? 0 : 1];
  if (!is_own(values) || factors->kind != ExprKind::kLoad || factors->dtype != DType::kF32) return std::nullopt;

  const Expr& update = reduction->body.value;
  const BufferPtr& old = product.params[param].buffer;
  if (reduction->body.combiner != Combiner::kSum || reduction->out->dtype != DType::kF32 ||
      update->kind != ExprKind::kBinary || update->binary != BinaryOp::kMul)
    return std::nullopt;
  const auto is_factor = [&](const Expr& e) { return e->kind == ExprKind::kLoad && e->buffer == old; };
  const size_t side = is_factor(update->operands[0]) ? 0 : 1;
  if (!is_factor(update->operands[side]) || loads_of(product, old).size() != 1) return std::nullopt;
  const Expr& read = update->operands[side];
  const Expr factor = substitute(factors, at_indices(stage->body.axes, read->operands));
  for (const Axis& axis : reduction->body.reduce_axes)
    if (uses_var(factor, axis.var)) return std::nullopt;

  ScaledAfterwards result{product, 0, 0};
  for (size_t p = 0; p < 2; ++p) (scaling.params[p].buffer == values->buffer ? result.values : result.factors) = p;
  const TensorParam& x = scaling.params[result.values];
  const TensorParam& f = scaling.params[result.factors];
  if (x.buffer != values->buffer || f.buffer != factors->buffer || has_param(product, x.buffer) ||
      has_param(product, f.buffer))
    return std::nullopt;
  TensorProgram& made = result.product;
  made.params[param] = x;
  made.params.push_back(f);
  Stage& sum = made.stages[0];
  replace_input(sum.body, old, x.buffer);
  sum.body.value = transform(
      update, [&](const Expr& node) -> Expr { return is_factor(node) ? load(x.buffer, node->operands) : Expr(); });
  if (made.stages.size() == 1) {
    Stage last;
    last.out = sum.out;
    last.layout = sum.layout;
    sum.out = make_buffer(sum.out->name + "_sum", sum.out->dtype, sum.out->shape);
    sum.layout = {};
    last.body.axes = make_axes("i", sum.out->shape);
    last.body.inputs = {sum.out};
    last.body.value = load(sum.out, last.body.axis_vars());
    made.stages.push_back(std::move(last));
  }
  Stage& last = made.stages.back();
  last.body.inputs.push_back(f.buffer);
  last.body.value = transform(last.body.value, [&](const Expr& node) -> Expr {
    if (node->kind != ExprKind::kLoad || node->buffer != made.stages[0].out) return {};
    const Expr own = substitute(factor, at_indices(made.stages[0].body.axes, node->operands));
    return binary(scaled->binary, node, own);
  });
  return result;
}

bool subtracts_maximum(const TensorProgram& exponential, size_t a, size_t m, const TensorProgram& maximum) {
  const Stage* stage = only_injective(exponential);
  const Stage* reduction = maximum.reduction();
  if (!stage || !reduction || maximum.stages.size() != 1 || maximum.params.size() != 1 ||
      reduction->body.combiner != Combiner::kMax)
    return false;
  const Expr& value = stage->body.value;
  if (value->kind != ExprKind::kUnary || value->unary != UnaryOp::kExp) return false;
  const Expr& difference = value->operands[0];
  if (difference->kind != ExprKind::kBinary || difference->binary != BinaryOp::kSub) return false;
  const auto is_load = [](const Expr& e, const TensorParam& of) {
    return e->kind == ExprKind::kLoad && e->buffer == of.buffer;
  };
  const Expr &from = difference->operands[0], &largest = difference->operands[1], &of = reduction->body.value;
  if (!is_load(from, exponential.params[a]) || !is_load(largest, exponential.params[m]) ||
      !is_load(of, maximum.params[0]) || from->operands.size() != largest->operands.size())
    return false;
  const std::vector<Axis>& axes = reduction->body.axes;
  for (size_t d = 0; d < from->operands.size(); ++d) {
    const auto is_reduced = [&](const Axis& axis) { return of->operands[d].same_node(axis.var); };
    if (std::any_of(reduction->body.reduce_axes.begin(), reduction->body.reduce_axes.end(), is_reduced)) continue;
    if (d >= axes.size() || !of->operands[d].same_node(axes[d].var) ||
        !from->operands[d].same_node(largest->operands[d]))
      return false;
  }
  return true;
}

}  // namespace tessera::inline schedule
