#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "arith/simplify.h"
#include "schedule/kernel/loop_builder.h"
#include "schedule/kernel/size_polynomial.h"
#include "schedule/rules/rules.h"

// Weights that are stored as less than floats (blocks of 4-bit numbers with a scale, bytes with a scale, halves) are
// packed by panels of columns, byte by byte of a row, so that the same byte of neighbouring columns makes a vector:
// what the kernel computes of a row's bytes is then computed in lanes, whatever the format is. Nothing here knows
// formats: of an index along the sum it matters only by which numbers it is divided.
//
// Few rows: a panel's weights are made in registers and multiplied at once, so that memory gives each byte once and
// nothing is stored. Many rows: a panel is made once, into scratch that stays in cache, and multiplied as other
// products are. Each sum is taken step by step either way, so a result does not depend on how many rows there are.
namespace tessera::inline schedule {
namespace {

constexpr int64_t kStraight = 32;  // steps along the sum that are written out: of a block, which shares scales
constexpr int64_t kFewSteps = 8;   // of weights that are in no blocks
constexpr int64_t kSmallTile = 4;  // rows
constexpr int64_t kManyRows = 8;   // from here on panels go through scratch

class BlockedWeights {
 public:
  BlockedWeights(const TensorProgram& kernel, const Target& target, Knobs& knobs)
      : kernel_(kernel), target_(target), knobs_(knobs) {}

  RuleResult run() {
    if (std::string why = find_product(); !why.empty()) return Declined{std::move(why)};
    lanes_ = target_.f32_lanes();
    const bool wide = target_.vector_registers() >= 32;
    vectors_ = knobs_.choose("vectors", {1, 2, 4}, 2);
    tile_rows_ = knobs_.choose("rows", {4, 6, 8, 12}, wide ? 12 : 6);
    width_ = vectors_ * lanes_;
    panels_ = (columns_ + width_ - 1) / width_;
    result_.program.name = kernel_.name;
    for (size_t p = 0; p <= kernel_.params.size(); ++p) add_param(p);
    const Stage& output = kernel_.output();
    value_ = &output == reduction_ ? Expr(result_var_) : flattened(epilogue());
    out_index_ = address(output.out, output.body.axis_vars());
    x_ = flattened(x_);

    const Var panel = make_var("panel");
    bounds_.set(panel, 0, panels_ - 1);
    Stmt body = few_or_many(panel);
    result_.program.body = panels_ == 1 ? substitute(body, {{panel.get(), Expr(0)}})
                                        : for_loop(panel, 0, panels_, ForKind::kParallel, std::move(body));
    return std::move(result_);
  }

 private:
  // The reason why the kernel is no such product; empty when it is.
  std::string find_product() {
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
    if (x_->kind != ExprKind::kLoad || x_.dtype() != DType::kF32 || uses_var(x_, column_))
      return "no factor is an operand that all columns share";
    return find_weights();
  }

  // What the weights are made of: elements of constants whose first index is the column.
  std::string find_weights() {
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
    straight_ = block_ == 1 ? std::min(kFewSteps, steps_) : std::min(kStraight, block_);
    if (block_ == 1) block_ = straight_;
    if (block_ % straight_ != 0) return fmt::format("blocks of {} elements", block_);
    return "";
  }

  void add_param(size_t p) {
    const bool is_result = p == kernel_.params.size();
    const BufferPtr& logical = is_result ? kernel_.output().out : kernel_.params[p].buffer;
    Expr count = 1;
    for (const Expr& dim : logical->shape) count = count * dim;
    bool is_weight = false;
    walk(weight_, [&](const Expr& node) { is_weight |= node->kind == ExprKind::kLoad && node->buffer == logical; });
    if (is_weight) {
      const int64_t row = *as_int(count) / columns_;
      PackSpec spec{{{columns_, row}, {row, 1}}, {{panels_, 0, width_}, {row, 1, 1}, {width_, 0, 1}}, 0};
      count = spec.num_elements();
      result_.packed.push_back({p, {std::move(spec)}});
    }
    flat_[logical.get()] = make_buffer(logical->name, logical->dtype, {count});
    result_.program.params.push_back(flat_[logical.get()]);
  }

  // The epilogue with `result_var_` for the sum.
  Expr epilogue() {
    return transform(kernel_.output().body.value, [&](const Expr& node) -> Expr {
      return node->kind == ExprKind::kLoad && node->buffer == reduction_->out ? Expr(result_var_) : Expr();
    });
  }

  Expr address(const BufferPtr& buffer, const std::vector<Expr>& index) {
    return SizePolynomial::address(factors_, buffer->shape, index, {}).expr();
  }

  Expr flattened(const Expr& e) {
    return transform(e, [&](const Expr& node) -> Expr {
      if (node->kind != ExprKind::kLoad || !flat_.contains(node->buffer.get())) return {};
      return load(flat_.at(node->buffer.get()), {address(node->buffer, node->operands)});
    });
  }

  // A column of a panel and a step as the float that it is.
  Expr weight(const Expr& panel, const Expr& column, const Expr& step) const {
    return transform(substitute(weight_, {{step_.get(), step}}), [&](const Expr& node) -> Expr {
      if (node->kind != ExprKind::kLoad) return {};
      Expr in_row = 0;
      int64_t row = 1;
      for (size_t d = 1; d < node->operands.size(); ++d) {
        const int64_t extent = *as_int(node->buffer->shape[d]);
        in_row = in_row * Expr(extent) + node->operands[d];
        row *= extent;
      }
      in_row = simplify(in_row, bounds_);
      return load(flat_.at(node->buffer.get()), {(panel * Expr(row) + in_row) * Expr(width_) + column});
    });
  }

  // The output's variables at a row; rows count through all axes but the last.
  VarMap at_row(const Expr& row) const {
    const std::vector<Axis>& axes = kernel_.output().body.axes;
    VarMap at;
    Expr rest = row;
    for (size_t i = axes.size() - 1; i-- > 0;) {
      at[axes[i].var.get()] = i == 0 ? rest : floormod(rest, axes[i].extent);
      rest = floordiv(rest, axes[i].extent);
    }
    return at;
  }

  Expr num_rows() const {
    const std::vector<Axis>& axes = kernel_.output().body.axes;
    Expr rows = 1;
    for (size_t i = 0; i + 1 < axes.size(); ++i) rows = rows * axes[i].extent;
    return rows;
  }

  Stmt few_or_many(const Expr& panel) {
    const Expr rows = num_rows();
    const auto few = [&] {
      return over_rows(rows, {kSmallTile, 1},
                       [&](int64_t count, const Expr& first) { return tile(panel, count, first, nullptr); });
    };
    const auto many = [&] {
      const BufferPtr scratch = make_buffer("panel", DType::kF32, {steps_ * width_}, MemoryScope::kLocal);
      const auto tile_of = [&](int64_t count, const Expr& first) { return tile(panel, count, first, scratch); };
      std::vector<int64_t> sizes = {tile_rows_};
      if (tile_rows_ > kSmallTile) sizes.push_back(kSmallTile);
      sizes.push_back(1);
      return alloc(scratch, seq({fill(panel, scratch), over_rows(rows, sizes, tile_of)}));
    };
    if (const auto fixed = as_int(rows)) return *fixed < kManyRows ? few() : many();
    return if_then(rows < Expr(kManyRows), few(), many());
  }

  // Tiles of the largest size, then of smaller ones for the rows that are left.
  template <typename Tile>
  Stmt over_rows(const Expr& rows, const std::vector<int64_t>& sizes, const Tile& tile) {
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

  // `body` for each step of the sum, `kStraight` of them written out.
  template <typename Body>
  Stmt over_steps(const Body& body) {
    const Var block = make_var("kb"), part = make_var("kp");
    const int64_t blocks = steps_ / block_, parts = block_ / straight_;
    bounds_.set(block, 0, std::max<int64_t>(blocks - 1, 0));
    bounds_.set(part, 0, parts - 1);
    const auto straight = [&](const Expr& first, int64_t count) {
      std::vector<Stmt> all;
      for (int64_t c = 0; c < count; ++c) all.push_back(body(first + Expr(c)));
      return seq(std::move(all));
    };
    std::vector<Stmt> result;
    if (blocks > 0) {
      const Expr begin = block * Expr(block_);
      Stmt inner =
          parts == 1 ? straight(begin, straight_)
                     : for_loop(part, 0, parts, ForKind::kSerial, straight(begin + part * Expr(straight_), straight_));
      result.push_back(for_loop(block, 0, blocks, ForKind::kSerial, std::move(inner)));
    }
    if (steps_ % block_ != 0) result.push_back(straight(blocks * block_, steps_ % block_));
    return seq(std::move(result));
  }

  Stmt fill(const Expr& panel, const BufferPtr& scratch) {
    return over_steps([&](const Expr& step) {
      return each_vector([&](int64_t, const Expr& column, const Var&) {
        return store(scratch, {step * Expr(width_) + column}, weight(panel, column, step));
      });
    });
  }

  template <typename Body>
  Stmt each_vector(const Body& body) const {
    std::vector<Stmt> parts;
    for (int64_t v = 0; v < vectors_; ++v)
      parts.push_back(vectorized("l", lanes_, [&](const Var& lane) { return body(v, Expr(v * lanes_) + lane, lane); }));
    return seq(std::move(parts));
  }

  // `count` rows from `first` on by a panel, whose weights are in `scratch` or, if that is null, made on the way.
  Stmt tile(const Expr& panel, int64_t count, const Expr& first, const BufferPtr& scratch) {
    const BufferPtr acc = make_buffer("acc", DType::kF32, {count * vectors_, lanes_}, MemoryScope::kRegister);
    const BufferPtr made = make_buffer("w", DType::kF32, {vectors_, lanes_}, MemoryScope::kRegister);
    const auto each_row = [&](const auto& body) {
      std::vector<Stmt> parts;
      for (int64_t row = 0; row < count; ++row)
        parts.push_back(each_vector([&](int64_t v, const Expr& column, const Var& lane) {
          return body(row, row * vectors_ + v, v, column, lane);
        }));
      return seq(std::move(parts));
    };
    const Stmt clear = each_row([&](int64_t, int64_t cell, int64_t, const Expr&, const Var& lane) {
      return store(acc, {Expr(cell), lane}, const_float(DType::kF32, 0));
    });
    const auto step = [&](const Expr& k) {
      const Stmt prepare = each_vector([&](int64_t v, const Expr& column, const Var& lane) {
        return store(made, {Expr(v), lane},
                     scratch ? load(scratch, {k * Expr(width_) + column}) : weight(panel, column, k));
      });
      const Stmt multiply = each_row([&](int64_t row, int64_t cell, int64_t v, const Expr&, const Var& lane) {
        VarMap at = at_row(first + Expr(row));
        at[step_.get()] = k;
        return store(acc, {Expr(cell), lane},
                     fma(substitute(x_, at), load(made, {Expr(v), lane}), load(acc, {Expr(cell), lane})));
      });
      return seq({prepare, multiply});
    };
    Stmt sum;
    if (scratch) {
      constexpr int64_t kUnroll = 4;
      const Var k = make_var("k"), rest = make_var("k");
      std::vector<Stmt> copies;
      for (int64_t c = 0; c < kUnroll; ++c) copies.push_back(step(k * Expr(kUnroll) + Expr(c)));
      std::vector<Stmt> loops;
      if (steps_ >= kUnroll)
        loops.push_back(for_loop(k, 0, steps_ / kUnroll, ForKind::kSerial, seq(std::move(copies))));
      if (steps_ % kUnroll != 0)
        loops.push_back(for_loop(rest, steps_ / kUnroll * kUnroll, steps_ % kUnroll, ForKind::kSerial, step(rest)));
      sum = seq(std::move(loops));
    } else {
      sum = over_steps(step);
    }
    const auto finish = [&](bool whole) {
      return each_row([&](int64_t row, int64_t cell, int64_t, const Expr& column, const Var& lane) {
        VarMap at = at_row(first + Expr(row));
        const Expr place = panel * Expr(width_) + column;
        at[column_.get()] = place;
        const Expr to = substitute(out_index_, at);
        at[result_var_.get()] = load(acc, {Expr(cell), lane});
        const Stmt stored = store(result_.program.params.back(), {to}, substitute(value_, at));
        return whole ? stored : if_then(place < Expr(columns_), stored);
      });
    };
    Stmt end;
    if (columns_ % width_ == 0) end = finish(true);
    else if (panels_ == 1) end = finish(false);
    else end = if_then(panel < Expr(panels_ - 1), finish(true), finish(false));
    return alloc(acc, alloc(made, seq({clear, sum, end})));
  }

  const TensorProgram& kernel_;
  const Target& target_;
  Knobs& knobs_;
  const Stage* reduction_ = nullptr;
  Var step_, column_;
  int64_t steps_ = 0, columns_ = 0;
  Expr x_, weight_;
  int64_t block_ = 1;     // the weights' bytes repeat their order after so many steps
  int64_t straight_ = 1;  // steps that are written out
  int64_t lanes_ = 1, vectors_ = 1, width_ = 1, panels_ = 1, tile_rows_ = 1;
  SizePolynomial::Factors factors_;
  std::unordered_map<const Buffer*, BufferPtr> flat_;
  const Var result_var_ = make_var("result", DType::kF32);
  Expr value_, out_index_;
  Bounds bounds_;
  ScheduledKernel result_;
};

}  // namespace

RuleResult blocked_weights(const TensorProgram& kernel, const Target& target, Knobs& knobs) {
  return BlockedWeights(kernel, target, knobs).run();
}

}  // namespace tessera::inline schedule
