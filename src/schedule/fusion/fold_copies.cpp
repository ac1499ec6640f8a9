#include "schedule/fusion/fold_copies.h"

#include <algorithm>

#include "te/index_map.h"

namespace tessera::inline schedule {
namespace {

// The stage of a kernel that has one, which does not reduce.
const Stage* only_injective(const TensorProgram& kernel) {
  return kernel.stages.size() == 1 && !kernel.reduction() && kernel.windows.empty() ? &kernel.output() : nullptr;
}

// How `stage` reads the buffer, if it does so at one place and no other stage of the kernel reads it.
std::optional<IndexMap> only_map(const TensorProgram& kernel, const Stage& stage, const BufferPtr& buffer) {
  std::optional<IndexMap> only;
  for (const Stage& s : kernel.stages)
    for (IndexMap& map : index_maps(s.body, buffer.get())) {
      if (&s != &stage || only) return std::nullopt;
      only = std::move(map);
    }
  return only;
}

// How a kernel that does nothing but copy its parameter reads it.
std::optional<IndexMap> map_of_copy(const TensorProgram& copy) {
  const Stage* stage = only_injective(copy);
  if (!stage || copy.params.size() != 1) return std::nullopt;
  const Expr& copied = stage->body.value;
  if (copied->kind != ExprKind::kLoad || copied->buffer != copy.params[0].buffer) return std::nullopt;
  return index_map(stage->body, copied);
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

std::optional<TensorProgram> read_through(const TensorProgram& reader, size_t param, const TensorProgram& copy,
                                          bool may_be_columns) {
  const std::optional<IndexMap> copied = map_of_copy(copy);
  const Stage* reduction = reader.reduction();
  if (!copied || !reduction || has_param(reader, copy.params[0].buffer)) return std::nullopt;
  const Body& body = reduction->body;
  const BufferPtr& old = reader.params[param].buffer;
  const std::optional<IndexMap> read = only_map(reader, *reduction, old);
  if (!read) return std::nullopt;
  const AxisRef innermost{false, body.axes.size() - 1};
  const Expr moved = substitute(copied->load, at_indices(copy.output().body.axes, read->load->operands));
  const IndexMap map = index_map(body, moved);
  // What it takes to find a place is paid for each product of the sum: along what is contiguous, the reduction of rows
  // and the innermost axis of columns, there is nothing to multiply.
  const bool is_column = read->mentions(innermost);
  if (is_column && (!may_be_columns || map.dims.back().sole != innermost)) return std::nullopt;
  std::optional<AxisRef> reduced;
  for (const IndexDim& dim : map.dims)
    for (const AxisUse& use : dim.uses) {
      const bool is_last = &dim == &map.dims.back();
      if (use.axis == innermost && !is_last) return std::nullopt;
      if (use.axis.reduced ? is_last == is_column || use.coefficient != 1 || reduced : !use.coefficient)
        return std::nullopt;
      if (use.axis.reduced) reduced = use.axis;
    }
  if (!reduced) return std::nullopt;

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
  const std::optional<IndexMap> copied = map_of_copy(copy);
  if (!copied || !kernel.windows.empty()) return std::nullopt;
  const Stage& stage = copy.output();
  const size_t rank = stage.body.axes.size();
  if (copied->dims.size() != rank || copied->dims.back().sole != AxisRef{false, rank - 1}) return std::nullopt;
  // By the copy's axis: the kernel's.
  std::vector<size_t> order;
  for (size_t axis = 0; axis < rank; ++axis) {
    const auto it = std::find_if(copied->dims.begin(), copied->dims.end(),
                                 [&](const IndexDim& dim) { return dim.sole == AxisRef{false, axis}; });
    if (it == copied->dims.end()) return std::nullopt;
    order.push_back(static_cast<size_t>(it - copied->dims.begin()));
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
    own.out = s + 1 == result.stages.size() ? stage.out : make_buffer(old->name, old->dtype, permuted(old->shape));
    for (Stage& later : result.stages) {
      replace_input(later.body, old, own.out);
      later.body.value = transform(later.body.value, [&](const Expr& node) -> Expr {
        return node->kind == ExprKind::kLoad && node->buffer == old ? load(own.out, permuted(node->operands)) : Expr();
      });
    }
  }
  result.stages.back().layout = stage.layout;
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
    return e->kind == ExprKind::kLoad && e->dtype == DType::kF32 && index_map(stage->body, e).is_identity(stage->body);
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
  if (!is_factor(update->operands[side]) || !only_map(product, *reduction, old)) return std::nullopt;
  const Expr& read = update->operands[side];
  const Expr factor = substitute(factors, at_indices(stage->body.axes, read->operands));
  const IndexMap factor_map = index_map(reduction->body, factor);
  for (size_t i = 0; i < reduction->body.reduce_axes.size(); ++i)
    if (factor_map.mentions({true, i})) return std::nullopt;

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
  const IndexMap of_map = index_map(reduction->body, of);
  for (size_t d = 0; d < from->operands.size(); ++d) {
    const std::optional<AxisRef>& sole = of_map.dims[d].sole;
    if (sole && sole->reduced) continue;
    if (sole != AxisRef{false, d} || !from->operands[d].same_node(largest->operands[d])) return false;
  }
  return true;
}

}  // namespace tessera::inline schedule
