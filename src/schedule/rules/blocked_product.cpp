#include "schedule/rules/blocked_product.h"

#include <algorithm>
#include <set>

#include "arith/simplify.h"
#include "schedule/kernel/loop_builder.h"

namespace tessera::inline schedule {

std::string BlockedProduct::find_product() {
  if (!kernel_.windows.empty()) return "it computes a part of its output";
  if (!kernel_.is_single()) return "it has several results or reductions";
  reduction_ = kernel_.reduction();
  const Stage& output = kernel_.output();
  if (!reduction_ || kernel_.stages.size() > 2 || reduction_->body.combiner != Combiner::kSum ||
      reduction_->out->dtype != DType::kF32)
    return "it is no sum of floats";
  if (!output.layout.row_major() || !std::all_of(kernel_.params.begin(), kernel_.params.end(),
                                                 [](const TensorParam& p) { return p.layout.row_major(); }))
    return "an operand or the output is in blocks of channels";
  const Body& body = reduction_->body;
  if (body.axes.size() < 2) return "it has no rows and columns";
  VarMap to_output;
  for (size_t i = 0; i < body.axes.size(); ++i) to_output[body.axes[i].var.get()] = output.body.axes[i].var;
  for (const Axis& axis : body.reduce_axes) {
    if (is_const_int(axis.extent, 1)) {
      to_output[axis.var.get()] = 0;
    } else if (step_) {
      return "it is no sum along one axis";
    } else {
      step_ = axis.var;
      steps_ = as_int(axis.extent).value_or(0);
    }
  }
  column_ = output.body.axes.back().var;
  columns_ = as_int(output.body.axes.back().extent).value_or(0);
  if (as_int(num_rows()) == 0) return "the output is empty";
  if (steps_ < 1 || columns_ < 1) return "a run decides about the size of the weights";
  const Expr product = substitute(body.value, to_output);
  if (product->kind != ExprKind::kBinary || product->binary != BinaryOp::kMul)
    return "it is no sum of products of two operands";
  const size_t of_columns = uses_var(product->operands[0], column_) ? 0 : 1;
  weight_ = product->operands[of_columns];
  x_ = product->operands[1 - of_columns];
  if (x_.dtype() != DType::kF32 || uses_var(x_, column_)) return "no factor is an operand that all columns share";
  return find_weights();
}

// What the weights are made of: elements of constants whose first index is the column.
std::string BlockedProduct::find_weights() {
  std::string why;
  bool is_narrow = false, stands_alone = false;
  Expr rest = transform(weight_, [&](const Expr& node) -> Expr {
    if (node->kind != ExprKind::kLoad) return {};
    const auto it = std::find_if(kernel_.params.begin(), kernel_.params.end(),
                                 [&](const TensorParam& param) { return param.buffer == node->buffer; });
    if (it == kernel_.params.end() || !it->is_constant()) {
      why = "its weights are no constants";
    } else if (!node->operands[0].same_node(column_) || as_int(it->buffer->shape[0]) != columns_ ||
               std::any_of(node->operands.begin() + 1, node->operands.end(),
                           [&](const Expr& index) { return uses_var(index, column_); })) {
      why = "a column's weights are no row of a constant";
    } else {
      is_narrow |= dtype_bits(node->buffer->dtype) < dtype_bits(DType::kF32);
      if (dtype_bits(node->buffer->dtype) < 8) why = "its weights are less than bytes";
    }
    return const_of(node.dtype(), 0);
  });
  if (!why.empty()) return why;
  if (!is_narrow) return "its weights are stored as floats";
  walk(rest, [&](const Expr& node) { stands_alone |= node.same_node(column_); });
  for (const Axis& axis : kernel_.output().body.axes)
    if (!axis.var.same_node(column_) && uses_var(weight_, axis.var)) return "rows have weights each";
  if (stands_alone) return "the weights are computed from their column";
  // They are stored in panels of columns, and what else reads them would find other elements.
  std::set<const Buffer*> stored;
  walk(weight_, [&](const Expr& node) {
    if (node->kind == ExprKind::kLoad) stored.insert(node->buffer.get());
  });
  bool is_read_twice = false;
  const auto look = [&](const Expr& node) {
    is_read_twice |= node->kind == ExprKind::kLoad && stored.contains(node->buffer.get());
  };
  walk(x_, look);
  if (&kernel_.output() != reduction_) walk(kernel_.output().body.value, look);
  if (is_read_twice) return "the weights' constants are read beside the product, too";
  block_ = 1;
  walk(weight_, [&](const Expr& node) {
    if (node->kind != ExprKind::kBinary || !node->operands[0].same_node(step_)) return;
    if (node->binary != BinaryOp::kFloorDiv && node->binary != BinaryOp::kFloorMod) return;
    if (const auto divisor = as_int(node->operands[1]); divisor && *divisor > 0) block_ = std::max(block_, *divisor);
  });
  return "";
}

bool BlockedProduct::is_weight(const BufferPtr& buffer) const {
  bool found = false;
  walk(weight_, [&](const Expr& node) { found |= node->kind == ExprKind::kLoad && node->buffer == buffer; });
  return found;
}

void BlockedProduct::begin_program(const std::function<PackedParam(size_t param)>& pack) {
  result_.program.name = kernel_.name;
  for (size_t p = 0; p <= kernel_.params.size(); ++p) {
    const BufferPtr& logical = p == kernel_.params.size() ? kernel_.output().out : kernel_.params[p].buffer;
    Expr count = 1;
    for (const Expr& dim : logical->shape) count = count * dim;
    if (is_weight(logical)) {
      result_.packed.push_back(pack(p));
      count = result_.packed.back().num_elements();
    }
    flat_[logical.get()] = make_buffer(logical->name, logical->dtype, {count});
    result_.program.params.push_back(flat_[logical.get()]);
  }
  const Stage& output = kernel_.output();
  // The epilogue with `result_var_` for the sum.
  const Expr epilogue = transform(output.body.value, [&](const Expr& node) -> Expr {
    return node->kind == ExprKind::kLoad && node->buffer == reduction_->out ? Expr(result_var_) : Expr();
  });
  value_ = &output == reduction_ ? Expr(result_var_) : flattened(epilogue);
  out_index_ = address(output.out, output.body.axis_vars());
  x_ = flattened(x_);
}

Expr BlockedProduct::address(const BufferPtr& buffer, const std::vector<Expr>& index) {
  return SizePolynomial::address(factors_, buffer->shape, index, {}).expr();
}

Expr BlockedProduct::flattened(const Expr& e) {
  return transform(e, [&](const Expr& node) -> Expr {
    if (node->kind != ExprKind::kLoad || !flat_.contains(node->buffer.get())) return {};
    return load(flat_.at(node->buffer.get()), {address(node->buffer, node->operands)});
  });
}

VarMap BlockedProduct::at_row(const Expr& row) const {
  const std::vector<Axis>& axes = kernel_.output().body.axes;
  VarMap at;
  Expr rest = row;
  for (size_t i = axes.size() - 1; i-- > 0;) {
    at[axes[i].var.get()] = i == 0 ? rest : floormod(rest, axes[i].extent);
    rest = floordiv(rest, axes[i].extent);
  }
  return at;
}

Expr BlockedProduct::num_rows() const {
  const std::vector<Axis>& axes = kernel_.output().body.axes;
  Expr rows = 1;
  for (size_t i = 0; i + 1 < axes.size(); ++i) rows = rows * axes[i].extent;
  return rows;
}

Stmt BlockedProduct::over_rows(const Expr& rows, const std::vector<int64_t>& sizes,
                               const std::function<Stmt(int64_t, const Expr&)>& tile) const {
  std::vector<Stmt> parts;
  Expr first = 0;
  for (const int64_t size : sizes) {
    const Expr count = normalize_size(floordiv(rows - first, size));
    if (is_const_int(count, 0)) continue;
    const Var number = make_var("tile");
    parts.push_back(for_loop(number, 0, count, ForKind::kSerial, tile(size, first + number * Expr(size))));
    first = first + count * Expr(size);
  }
  return seq(std::move(parts));
}

Stmt BlockedProduct::each_vector(const std::function<Stmt(int64_t, const Expr&, const Var&)>& body) const {
  std::vector<Stmt> parts;
  for (int64_t v = 0; v < vectors_; ++v)
    parts.push_back(vectorized("l", lanes_, [&](const Var& lane) { return body(v, Expr(v * lanes_) + lane, lane); }));
  return seq(std::move(parts));
}

Stmt BlockedProduct::finish(const Expr& panel, int64_t count, const Expr& first, const BufferPtr& acc,
                            const Expr& row_of_acc) {
  const auto store_all = [&](bool whole) {
    std::vector<Stmt> parts;
    for (int64_t row = 0; row < count; ++row)
      parts.push_back(each_vector([&](int64_t v, const Expr& column, const Var& lane) {
        VarMap at = at_row(first + Expr(row));
        const Expr place = panel * Expr(width_) + column;
        at[column_.get()] = place;
        const Expr to = substitute(out_index_, at);
        at[result_var_.get()] = load(acc, {row_of_acc * Expr(vectors_) + Expr(row * vectors_ + v), lane});
        const Stmt stored = store(result_.program.params.back(), {to}, substitute(value_, at));
        return whole ? stored : if_then(place < Expr(columns_), stored);
      }));
    return seq(std::move(parts));
  };
  if (columns_ % width_ == 0) return store_all(true);
  if (panels_ == 1) return store_all(false);
  return if_then(panel < Expr(panels_ - 1), store_all(true), store_all(false));
}

Stmt BlockedProduct::with_later_bytes(const Buffer* constant, const Expr& first, int64_t elements, const StepOf& step,
                                      Stmt body) const {
  constexpr int64_t kLineBytes = 64, kAheadBytes = 8 << 10;
  const int64_t line = kLineBytes * 8 / dtype_bits(constant->dtype);
  const int64_t lines = (elements + line - 1) / line, share = (lines + step.count - 1) / step.count;
  const int64_t ahead = kAheadBytes * 8 / dtype_bits(constant->dtype);
  const Expr own = first + Expr(ahead) + step.index * Expr(share * line);
  for (int64_t at = 0; at < share; ++at)
    body = with_prefetch(flat_.at(constant), own + Expr(at * line), std::move(body));
  return body;
}

Stmt BlockedProduct::over_panels(const Var& panel, const Stmt& body) const {
  return panels_ == 1 ? substitute(body, {{panel.get(), Expr(0)}})
                      : for_loop(panel, 0, panels_, ForKind::kParallel, body);
}

}  // namespace tessera::inline schedule
