#include "schedule/dynamic/dynamic_tiles.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <random>

#include "arith/simplify.h"
#include "program/generalize_loops.h"
#include "program/symbolic_sizes.h"
#include "schedule/dynamic/stride_finder.h"

// Windows of an output of open extents. A rule is asked for the kernel that computes a few places of each open axis,
// for some sizes of the whole; what it writes is alike for all of them but for strides, which become products of the
// open extents. Places whose conditions (padding) hold everywhere in the window make large windows; those near the ends
// of an axis are done one by one.
namespace tessera::inline schedule {
namespace {

using Answer = std::variant<ScheduledKernel, Declined>;

constexpr int64_t kLargestMargin = 4;  // places at the ends of an axis that are done one by one

struct OpenAxis {
  size_t axis = 0;
  Expr extent;
  Var base;
  std::vector<int64_t> sizes;  // of windows, the last is 1
};

class WindowMaker {
 public:
  WindowMaker(const ScheduleRule& rule, const TensorProgram& kernel, const std::vector<SymbolRange>& symbols,
              const Target& target)
      : rule_(rule),
        kernel_(kernel),
        symbols_(symbols),
        target_(target),
        points_(sample_points(symbols)),
        finder_(kernel, symbols, points_) {}

  Answer run() {
    for (const Stage& stage : kernel_.stages)
      for (const Axis& axis : stage.body.reduce_axes)
        if (!as_int(axis.extent)) return Declined{"the extent of a reduced axis is open"};
    if (std::string why = choose_axes(); !why.empty()) return Declined{std::move(why)};
    for (size_t p = 0; p <= kernel_.params.size(); ++p) {
      const bool is_output = p == kernel_.params.size();
      const BufferPtr& logical = is_output ? kernel_.output().out : kernel_.params[p].buffer;
      const Layout& layout = is_output ? kernel_.output().layout : kernel_.params[p].layout;
      Expr count = 1;
      for (const Expr& dim : physical_shape(logical->shape, layout)) count = count * dim;
      params_.push_back(make_buffer(logical->name, logical->dtype, {count}));
    }
    // Singles first: without them nothing works, and they say how weights are stored.
    std::vector<int64_t> steps(axes_.size(), 1);
    std::string why;
    auto single = window(steps, steps, why);
    if (!single) return Declined{why};
    result_.packed = single->packed;
    has_single_ = true;
    for (const PackedParam& packed : result_.packed) params_[packed.param] = single->program.params[packed.param];
    // Margins are those of the axis: the fewest places at its ends that let the rule take windows.
    plans_.resize(axes_.size());
    for (size_t a = 0; a < axes_.size(); ++a) plan_axis(a);
    emit_choices(0, steps, *single);
    result_.program.name = kernel_.name;
    result_.program.params = params_;
    result_.program.body = seq(std::move(nests_));
    return std::move(result_);
  }

 private:
  std::string choose_axes() {
    const Stage& output = kernel_.output();
    const Shape& shape = output.out->shape;
    int innermost = static_cast<int>(shape.size()) - 1;
    if (!output.layout.row_major()) innermost = output.layout.dims.back().axis;
    for (size_t i = 0; i < shape.size(); ++i)
      if (!as_int(shape[i])) axes_.push_back({i, shape[i], make_var(fmt::format("b{}", i)), {1}});
    if (axes_.empty()) return "what is not fixed is no axis of the output";
    const bool contiguous = static_cast<int>(axes_.back().axis) == innermost;
    axes_.back().sizes = contiguous ? std::vector<int64_t>{64, 16, 1} : std::vector<int64_t>{16, 4, 1};
    if (contiguous && axes_.size() > 1 && kernel_.reduction()) axes_[axes_.size() - 2].sizes = {8, 1};
    return "";
  }

  // The kernel of one window; along axes of more than one step it stays away from both ends by the axis' margin.
  TensorProgram at(const SizePoint& point, const std::vector<int64_t>& steps,
                   const std::vector<int64_t>& margins) const {
    VarMap values;
    for (size_t i = 0; i < symbols_.size(); ++i) values[symbols_[i].var.get()] = point[i];
    const auto fixed = [&](const Expr& e) { return simplify(substitute(e, values)); };
    std::unordered_map<const Buffer*, BufferPtr> buffers;
    const auto fixed_buffer = [&](const BufferPtr& buffer) {
      Shape shape;
      for (const Expr& dim : buffer->shape) shape.push_back(fixed(dim));
      return buffers[buffer.get()] = make_buffer(buffer->name, buffer->dtype, std::move(shape), buffer->scope);
    };
    TensorProgram result;
    result.name = kernel_.name;
    for (const TensorParam& param : kernel_.params)
      result.params.push_back({fixed_buffer(param.buffer), param.layout, param.is_constant});
    for (const Stage& stage : kernel_.stages) {
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
    for (size_t a = 0; a < axes_.size(); ++a) {
      const int64_t extent = value_at(axes_[a].extent, symbols_, point);
      const int64_t border = steps[a] == 1 ? 0 : margins[a];
      result.windows.push_back({axes_[a].axis, axes_[a].base, steps[a], border, extent - steps[a] - border});
    }
    return result;
  }

  // The rule's kernel of one window, of all sizes.
  std::optional<ScheduledKernel> window(const std::vector<int64_t>& steps, const std::vector<int64_t>& margins,
                                        std::string& why) {
    std::vector<ScheduledKernel> answers;
    for (const SizePoint& point : points_) {
      Knobs knobs = Knobs::sharing_weights();
      auto answer = rule_.apply(at(point, steps, margins), target_, knobs);
      if (const auto* declined = std::get_if<Declined>(&answer)) {
        why = declined->reason;
        return std::nullopt;
      }
      answers.push_back(std::move(std::get<ScheduledKernel>(answer)));
    }
    std::vector<const LoopProgram*> programs;
    for (const ScheduledKernel& answer : answers) {
      // Weights are stored once, for windows of all sizes.
      if (!same_packing(answer.packed, has_single_ ? result_.packed : answers[0].packed)) {
        why = "weights are stored in another order for another size";
        return std::nullopt;
      }
      for (const BufferPtr& param : answer.program.params)
        if (param->shape.size() != 1) {
          why = "the rule does not address memory by one index";
          return std::nullopt;
        }
      programs.push_back(&answer.program);
    }
    std::vector<BufferPtr> params = params_;
    if (!has_single_)
      for (const PackedParam& packed : answers[0].packed)
        params[packed.param] = answers[0].program.params[packed.param];
    LoopGeneralizer generalizer(finder_, params, false);
    for (const OpenAxis& axis : axes_) generalizer.same_var(axis.base, points_.size());
    try {
      ScheduledKernel result = answers[0];
      result.program.body = generalizer.run(programs);
      result.program.params = params;
      return result;
    } catch (const SizesDiffer& difference) {
      why = "for another size: " + difference.what;
      return std::nullopt;
    }
  }

  struct Segment {
    Expr count, base;  // base in terms of `var`
    Var var;
  };

  struct AxisPlan {
    std::vector<int64_t> sizes;  // that the rule takes, the last is 1
    int64_t margin = 0;
  };

  // Which windows along one axis the rule takes with single places along the others.
  void plan_axis(size_t a) {
    AxisPlan& plan = plans_[a];
    std::vector<int64_t> steps(axes_.size(), 1);
    std::string why;
    for (int64_t margin = 0; margin <= kLargestMargin && plan.sizes.empty(); ++margin)
      for (const int64_t size : axes_[a].sizes) {
        if (size == 1) continue;
        steps[a] = size;
        if (!window(steps, std::vector<int64_t>(axes_.size(), margin), why)) continue;
        plan.sizes.push_back(size);
        plan.margin = margin;
      }
    plan.sizes.push_back(1);
  }

  std::vector<Segment> segments(size_t a) const {
    const AxisPlan& plan = plans_[a];
    const Expr extent = axes_[a].extent;
    std::vector<Segment> result;
    Expr done = plan.margin;
    Expr covered = 0;
    for (const int64_t size : plan.sizes) {
      Segment segment;
      segment.var = make_var(fmt::format("w{}", axes_[a].axis));
      if (size == 1) {
        segment.count = extent - covered;
        segment.base = plan.sizes.size() == 1 ? Expr(segment.var)
                       : plan.margin == 0     ? segment.var + covered
                                              : segment.var + select(segment.var < Expr(plan.margin), Expr(0), covered);
      } else {
        const Expr left = extent - Expr(2 * plan.margin) - covered;
        segment.count = plan.margin == 0 ? floordiv(left, size) : max(Expr(0), floordiv(left, size));
        segment.base = done + segment.var * Expr(size);
        covered = covered + segment.count * Expr(size);
        done = Expr(plan.margin) + covered;
      }
      result.push_back(std::move(segment));
    }
    return result;
  }

  // All combinations of window sizes, axis by axis; `single` is the kernel of single places.
  void emit_choices(size_t axis, std::vector<int64_t>& steps, const ScheduledKernel& single) {
    if (axis < axes_.size()) {
      for (const int64_t size : plans_[axis].sizes) {
        steps[axis] = size;
        emit_choices(axis + 1, steps, single);
      }
      return;
    }
    std::vector<int64_t> margins;
    for (const AxisPlan& plan : plans_) margins.push_back(plan.margin);
    const auto kernel_of = [&](const std::vector<int64_t>& sizes) {
      std::string why;
      const bool is_single = std::all_of(sizes.begin(), sizes.end(), [](int64_t s) { return s == 1; });
      return is_single ? std::optional(single) : window(sizes, margins, why);
    };
    std::vector<int64_t> own = steps;
    std::optional<ScheduledKernel> scheduled = kernel_of(own);
    // Windows along each axis are taken, but not along both: single places along the first.
    for (size_t a = 0; !scheduled && a < axes_.size(); ++a) {
      own[a] = 1;
      scheduled = kernel_of(own);
    }
    VarMap bases;
    Expr all = 1;
    std::vector<std::pair<Var, Expr>> vars;
    for (size_t a = 0; a < axes_.size(); ++a) {
      const std::vector<Segment> parts = segments(a);
      const size_t number = static_cast<size_t>(std::find(plans_[a].sizes.begin(), plans_[a].sizes.end(), steps[a]) -
                                                plans_[a].sizes.begin());
      Segment segment = parts[number];
      if (own[a] != steps[a]) {  // the places of a window one by one
        segment.count = segment.count * Expr(steps[a]);
        const Expr first = simplify(substitute(segment.base, {{segment.var.get(), Expr(0)}}));
        segment.base = first + segment.var;
      }
      bases[axes_[a].base.get()] = segment.base;
      vars.emplace_back(segment.var, segment.count);
    }
    const Var t = make_var("t");
    VarMap split;
    Expr rest = t;
    for (size_t a = vars.size(); a-- > 0;) {
      split[vars[a].first.get()] = a == 0 ? rest : floormod(rest, vars[a].second);
      rest = floordiv(rest, vars[a].second);
      all = all * vars[a].second;
    }
    for (auto& [base, at] : bases) at = substitute(at, split);
    const Stmt body = substitute(without_threads(scheduled->program.body), bases);
    nests_.push_back(for_loop(t, 0, all, ForKind::kParallel, body));
  }

  const ScheduleRule& rule_;
  const TensorProgram& kernel_;
  const std::vector<SymbolRange>& symbols_;
  const Target& target_;
  std::vector<SizePoint> points_;
  StrideFinder finder_;
  std::vector<OpenAxis> axes_;
  std::vector<AxisPlan> plans_;
  std::vector<BufferPtr> params_;
  std::vector<Stmt> nests_;
  ScheduledKernel result_;
  bool has_single_ = false;  // the kernel of single places is there, and with it how weights are stored
};

}  // namespace

Answer apply_by_windows(const ScheduleRule& rule, const TensorProgram& kernel, const std::vector<SymbolRange>& symbols,
                        const Target& target) {
  return WindowMaker(rule, kernel, symbols, target).run();
}

}  // namespace tessera::inline schedule
