#include "schedule/dynamic/open_products.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "arith/simplify.h"
#include "loop/fresh.h"
#include "program/generalize_loops.h"
#include "schedule/dynamic/cover.h"
#include "schedule/dynamic/dynamic_tiles.h"
#include "schedule/dynamic/kernel_at.h"
#include "schedule/dynamic/stride_finder.h"
#include "schedule/rules/rules.h"

namespace tessera::inline schedule {
namespace {

using Answer = std::variant<ScheduledKernel, Declined>;

// Rows of a window: four tiles of six or two of twelve, then a tile of eight, then single ones. Columns: four vectors,
// then one, of 64 bytes.
const std::vector<int64_t> kRows = {24, 8, 1};
const std::vector<int64_t> kColumns = {64, 16};

class ProductMaker {
 public:
  ProductMaker(const ScheduleRule& rule, const SizedKernel& sized, const Target& target)
      : rule_(rule), sized_(sized), kernel_(sized.program), target_(target) {
    for (const AxisSize& size : sized.sizes) ranges_.push_back({size.var, 1, INT64_MAX, 1});
    points_ = sample_points(ranges_);
  }

  Answer run() {
    if (std::string why = problem(); !why.empty()) return Declined{std::move(why)};
    StrideFinder finder(kernel_, ranges_, points_);
    finder_ = &finder;
    choose_axes();
    for (size_t p = 0; p <= kernel_.params.size(); ++p) {
      Expr count = 1;
      for (const Expr& dim : logical(p)->shape) count = count * dim;
      params_.push_back(make_buffer(logical(p)->name, logical(p)->dtype, {count}));
    }
    std::string why;
    for (const TileSegment& rows : row_segments_)
      for (const TileSegment& columns : column_segments_) {
        const auto body = window(rows.size, columns.size, why);
        if (!body) return Declined{why};
        nests_.push_back(over_windows(*body, rows, columns));
      }
    if (is_open(columns_))
      if (why = add_plain_loops(); !why.empty()) return Declined{why};
    ScheduledKernel result;
    result.program.name = kernel_.name;
    result.program.params = params_;
    result.program.body = seq(std::move(nests_));
    result.program = with_values(result.program, values_of(sized_));
    return result;
  }

 private:
  const BufferPtr& logical(size_t p) const {
    return p == kernel_.params.size() ? kernel_.output().out : kernel_.params[p].buffer;
  }

  const Shape& shape() const { return kernel_.output().out->shape; }
  bool is_open(size_t axis) const { return !as_int(shape()[axis]); }

  // Why windows of the kernel cannot do without knowing where they are; empty when they can.
  std::string problem() const {
    const Stage* reduction = kernel_.reduction();
    if (!reduction || kernel_.stages.size() > 2) return "the kernel is no sum with an epilogue";
    if (shape().empty()) return "the output is one element";
    if (!kernel_.windows.empty()) return "only a window is computed";
    if (!kernel_.output().layout.row_major()) return "the output has a layout of blocks";
    for (const TensorParam& param : kernel_.params)
      if (!param.layout.row_major()) return fmt::format("{} has a layout of blocks", param.buffer->name);
    std::unordered_set<const ExprNode*> known;
    for (const AxisSize& size : sized_.sizes) known.insert(size.var.get());
    const auto is_known = [&](const Expr& e) {
      bool all = true;
      walk(e, [&](const Expr& node) { all &= node->kind != ExprKind::kVar || known.count(node.get()) > 0; });
      return all;
    };
    for (size_t p = 0; p <= kernel_.params.size(); ++p)
      for (const Expr& dim : logical(p)->shape)
        if (!is_known(dim)) return fmt::format("{} has the shape {}", logical(p)->name, to_string(logical(p)->shape));
    for (const Stage& stage : kernel_.stages) {
      std::unordered_set<const ExprNode*> open, all;
      for (const auto* axes : {&stage.body.axes, &stage.body.reduce_axes})
        for (const Axis& axis : *axes) {
          if (!as_int(axis.extent)) open.insert(axis.var.get());
          all.insert(axis.var.get());
        }
      // Variables of open axes stand as indices alone.
      std::string why;
      walk(stage.body.value, [&](const Expr& node) {
        if (node->kind == ExprKind::kVar && !all.count(node.get()))
          why = fmt::format("a value depends on {}", node->name);
        if (node->kind == ExprKind::kLoad) return;
        for (const Expr& operand : node->operands)
          if (open.count(operand.get())) why = "a value depends on the place along an axis of unknown extent";
      });
      if (!why.empty()) return why;
    }
    return "";
  }

  void choose_axes() {
    columns_ = shape().size() - 1;
    column_segments_ = {{0, {}, 1, 0}};
    if (is_open(columns_)) column_segments_ = cover_axis(shape()[columns_], kColumns, "column");
    // Rows share what lies along the columns.
    const Stage& reduction = *kernel_.reduction();
    const auto shares = [&](size_t axis) {
      bool found = false;
      walk(reduction.body.value, [&](const Expr& node) {
        if (node->kind != ExprKind::kLoad) return;
        const auto reads_along = [&](size_t a) {
          return std::any_of(node->operands.begin(), node->operands.end(),
                             [&](const Expr& index) { return uses_var(index, reduction.body.axes[a].var); });
        };
        found |= reads_along(columns_) && !reads_along(axis);
      });
      return found;
    };
    rows_ = columns_;
    for (size_t axis = columns_; axis-- > 0 && rows_ == columns_;)
      if (is_open(axis) && shares(axis)) rows_ = axis;
    row_segments_ = {{1, {}, 1, 0}};
    if (rows_ != columns_) row_segments_ = cover_axis(shape()[rows_], kRows, "rows");
    for (size_t axis = 0; axis < shape().size(); ++axis) bases_.push_back(make_var(fmt::format("b{}", axis)));
  }

  // The kernel of `rows` x `columns` places (0: all) for some sizes.
  TensorProgram at(const SizePoint& point, int64_t rows, int64_t columns) const {
    TensorProgram result = kernel_at(kernel_, ranges_, point);
    for (size_t axis = 0; axis < shape().size(); ++axis) {
      const int64_t extent = value_at(shape()[axis], ranges_, point);
      const int64_t steps = axis == columns_ ? columns : axis == rows_ ? rows : 1;
      if (steps > 0) result.windows.push_back({axis, bases_[axis], steps, 0, extent - steps});
    }
    return result;
  }

  std::optional<Stmt> window(int64_t rows, int64_t columns, std::string& why) {
    std::vector<ScheduledKernel> answers;
    KnobPoint choices;  // of the first size, for all
    for (const SizePoint& point : points_) {
      Knobs knobs = choices.rule.empty() ? Knobs() : Knobs(choices);
      auto answer = rule_.apply(at(point, rows, columns), target_, knobs);
      if (const auto* declined = std::get_if<Declined>(&answer)) {
        why = declined->reason;
        return std::nullopt;
      }
      if (choices.rule.empty()) {
        choices.rule = rule_.name;
        for (const Knob& knob : knobs.seen()) choices.values.emplace_back(knob.name, knob.preferred);
      }
      answers.push_back(std::move(std::get<ScheduledKernel>(answer)));
    }
    std::vector<const LoopProgram*> programs;
    for (const ScheduledKernel& answer : answers) {
      if (!answer.packed.empty()) {
        why = "weights would be stored in an order of their own";
        return std::nullopt;
      }
      for (const BufferPtr& param : answer.program.params)
        if (param->shape.size() != 1) {
          why = "the rule does not address memory by one index";
          return std::nullopt;
        }
      programs.push_back(&answer.program);
    }
    LoopGeneralizer generalizer(*finder_, params_, false);
    for (const Var& base : bases_) generalizer.same_var(base, points_.size());
    try {
      return without_threads(generalizer.run(programs));
    } catch (const SizesDiffer& difference) {
      why = "for another size: " + difference.what;
      return std::nullopt;
    }
  }

  // Windows of one size: threads share them, and the places along the other axes.
  Stmt over_windows(const Stmt& body, const TileSegment& rows, const TileSegment& columns) {
    struct Loop {
      Expr count, base;
      Var var;
    };
    std::vector<Loop> loops;
    for (size_t axis = 0; axis < shape().size(); ++axis) {
      if (axis == rows_ || axis == columns_) {
        const TileSegment& segment = axis == rows_ && rows_ != columns_ ? rows : columns;
        if (segment.var) loops.push_back({segment.count, segment.base, segment.var});
        continue;
      }
      const Var var = make_var(fmt::format("i{}", axis));
      loops.push_back({shape()[axis], var, var});
      if (as_int(shape()[axis]) == 1) loops.back().count = 1;
    }
    const Var t = make_var("t");
    VarMap split;
    Expr rest = t, all = 1;
    for (size_t i = loops.size(); i-- > 0;) {
      split[loops[i].var.get()] = i == 0 ? rest : floormod(rest, loops[i].count);
      rest = floordiv(rest, loops[i].count);
      all = all * loops[i].count;
    }
    VarMap bases;
    size_t loop = 0;
    for (size_t axis = 0; axis < shape().size(); ++axis) {
      if (axis == columns_ && !columns.var) continue;
      bases[bases_[axis].get()] = substitute(loops[loop++].base, split);
    }
    return with_fresh_definitions(for_loop(t, 0, all, ForKind::kParallel, substitute(body, bases)));
  }

  // Loops for outputs that have fewer columns than a window. A reason when there are none.
  std::string add_plain_loops() {
    Knobs knobs;
    auto answer = dynamic_loops(kernel_, target_, knobs);
    if (const auto* declined = std::get_if<Declined>(&answer)) return declined->reason;
    const LoopProgram& plain = std::get<ScheduledKernel>(answer).program;
    const Expr once = select(shape()[columns_] < Expr(kColumns.back()), Expr(1), Expr(0));
    nests_.push_back(for_loop(make_var("plain"), 0, once, ForKind::kSerial,
                              with_fresh_definitions(on_buffers(plain.body, plain.params, params_))));
    return "";
  }

  const ScheduleRule& rule_;
  const SizedKernel& sized_;
  const TensorProgram& kernel_;
  const Target& target_;
  std::vector<SymbolRange> ranges_;
  std::vector<SizePoint> points_;
  StrideFinder* finder_ = nullptr;
  size_t columns_ = 0, rows_ = 0;  // output axes; equal where there are no rows
  std::vector<TileSegment> row_segments_, column_segments_;
  std::vector<Var> bases_;  // of windows, by output axis
  std::vector<BufferPtr> params_;
  std::vector<Stmt> nests_;
};

}  // namespace

Answer apply_to_open_product(const ScheduleRule& rule, const SizedKernel& kernel, const Target& target) {
  return ProductMaker(rule, kernel, target).run();
}

}  // namespace tessera::inline schedule
