#include "schedule/dynamic/dynamic_tiles.h"

#include <fmt/format.h>

#include <algorithm>
#include <compare>
#include <functional>
#include <map>

#include "arith/simplify.h"
#include "loop/fresh.h"
#include "program/generalize_loops.h"
#include "program/symbolic_sizes.h"
#include "schedule/dynamic/kernel_at.h"
#include "schedule/dynamic/stride_finder.h"
#include "schedule/rules/rules.h"

// Windows of an output of open extents. A rule is asked for the kernel that computes a few places of each open axis,
// for some sizes of the whole; what it writes is alike for all of them but for strides, which become products of the
// open extents. Places whose conditions (padding) hold everywhere in the window make large windows; those near the ends
// of an axis are done by small windows that lie there, or one by one.
namespace tessera::inline schedule {
namespace {

using Answer = std::variant<ScheduledKernel, Declined>;

constexpr size_t kAllPoints = 2 * kSamplePoints;  // a remainder leaves out about half of them
constexpr int64_t kLargestMargin = 4;             // places at the ends of an axis that are done one by one
constexpr int64_t kLargeEnough = 80;              // for all windows

// Whether the output's open extents are at least `least` at all points.
bool has_room(const TensorProgram& kernel, const std::vector<SymbolRange>& symbols,
              const std::vector<SizePoint>& points, int64_t least) {
  for (const Expr& extent : kernel.output().out->shape)
    for (const SizePoint& point : points)
      if (!as_int(extent) && value_at(extent, symbols, point) < least) return false;
  return true;
}

// Where a window lies along an axis: anywhere but in the margins, or at one of the ends, where a rule knows which of
// its places see padding.
enum class WindowPlace : uint8_t { kInner, kBegin, kEnd };

// Sizes and margins are in steps of the axis.
struct WindowAlong {
  int64_t size = 1;
  int64_t margin = 0;  // of an inner window; means nothing for single places
  WindowPlace place = WindowPlace::kInner;
  std::optional<int64_t> remainder = std::nullopt;  // by 2 of AxisPlan::divided: for sizes where it is that
  auto operator<=>(const WindowAlong&) const = default;
};

struct OpenAxis {
  size_t axis = 0;
  Expr extent;  // in steps
  Var base;
  std::vector<int64_t> sizes;  // of windows, the last is 1
  int64_t step = 1;            // places: windows begin at multiples of it
};

class WindowMaker {
 public:
  WindowMaker(const ScheduleRule& rule, const TensorProgram& kernel, const std::vector<SymbolRange>& symbols,
              std::vector<SizePoint> points, const Target& target)
      : rule_(rule), kernel_(kernel), symbols_(symbols), target_(target), points_(std::move(points)) {}

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
    std::string why;
    auto single = window(std::vector<WindowAlong>(axes_.size()), why);
    if (!single) return Declined{why};
    result_.packed = single->packed;
    has_single_ = true;
    for (const PackedParam& packed : result_.packed) params_[packed.param] = single->program.params[packed.param];
    // Margins are the fewest places at both ends of an axis that let the rule take windows.
    plans_.resize(axes_.size());
    for (size_t a = 0; a < axes_.size(); ++a) plan_axis(a);
    if (rule_.apply == register_tile && goes_place_by_place() && window_rows_takes_lanes())
      return Declined{"the output's contiguous axis is done place by place, where window_rows has lanes of it"};
    emit_choices({}, *single);
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
    for (size_t i = 0; i < shape.size(); ++i) {
      if (as_int(shape[i])) continue;
      OpenAxis axis{i, shape[i], make_var(fmt::format("b{}", i)), {1}};
      if (static_cast<int>(i) != innermost) axis.step = period_of(i);
      if (axis.step > 1) axis.extent = normalize_size(floordiv(shape[i], axis.step));
      axes_.push_back(std::move(axis));
    }
    if (axes_.empty()) return "what is not fixed is no axis of the output";
    const bool contiguous = static_cast<int>(axes_.back().axis) == innermost;
    axes_.back().sizes = contiguous ? std::vector<int64_t>{64, 16, 1} : std::vector<int64_t>{16, 4, 1};
    if (const int64_t step = axes_.back().step; step > 1) {
      axes_.back().sizes = {1};
      for (const int64_t places : {8, 32})
        if (places >= 2 * step) axes_.back().sizes.insert(axes_.back().sizes.begin(), places / step);
    }
    if (contiguous && axes_.size() > 1 && kernel_.reduction()) axes_[axes_.size() - 2].sizes = {8, 1};
    return "";
  }

  // Whether a reduction has no window of several places along the axis that is contiguous in the output.
  bool goes_place_by_place() const {
    return kernel_.reduction() && axes_.back().axis == kernel_.output().out->shape.size() - 1 &&
           kernel_.output().layout.row_major() && plans_.back().sizes.size() == 1;
  }

  bool window_rows_takes_lanes() const {
    for (int64_t margin = 0; margin <= kLargestMargin; ++margin) {
      std::vector<WindowAlong> windows(axes_.size());
      windows.back() = {16, margin};
      Knobs knobs;
      if (std::holds_alternative<ScheduledKernel>(window_rows(at(points_[0], windows), target_, knobs))) return true;
    }
    return false;
  }

  // Of an input with gaps (a transposed convolution), how many places see different places of the window, where the
  // axis is a multiple of it; else 1.
  int64_t period_of(size_t axis) const {
    const Stage* reduction = kernel_.reduction();
    if (!reduction) return 1;
    const Var& var = reduction->body.axes[axis].var;
    int64_t period = 1;
    walk(reduction->body.value, [&](const Expr& node) {
      if (node->kind != ExprKind::kBinary || node->binary != BinaryOp::kEq || !is_const_int(node->operands[1], 0))
        return;
      const Expr& left = node->operands[0];
      if (left->kind != ExprKind::kBinary || left->binary != BinaryOp::kFloorMod || !uses_var(left, var)) return;
      period = std::max(period, as_int(left->operands[1]).value_or(1));
    });
    const KnownSymbols known(symbols_);
    const Expr rest = normalize_size(floormod(kernel_.output().out->shape[axis], period));
    return is_const_int(rest, 0) ? period : 1;
  }

  // The kernel of one window.
  TensorProgram at(const SizePoint& point, const std::vector<WindowAlong>& windows) const {
    TensorProgram result = kernel_at(kernel_, symbols_, point);
    for (size_t a = 0; a < axes_.size(); ++a) {
      const WindowAlong& along = windows[a];
      const OpenAxis& axis = axes_[a];
      const int64_t end = value_at(axis.extent, symbols_, point) - along.size;
      const int64_t lo = along.place == WindowPlace::kEnd ? end : along.margin;
      const int64_t hi = along.place == WindowPlace::kBegin ? 0 : end - along.margin;
      result.windows.push_back({axis.axis, axis.base, along.size * axis.step, lo, hi, axis.step});
    }
    return result;
  }

  bool is_for(const SizePoint& point, const std::vector<WindowAlong>& windows) const {
    for (size_t a = 0; a < axes_.size(); ++a)
      if (const auto& remainder = windows[a].remainder;
          remainder && value_at(plans_[a].divided, symbols_, point) % 2 != *remainder)
        return false;
    return true;
  }

  // The rule's kernel of one window, of all sizes.
  std::optional<ScheduledKernel> window(const std::vector<WindowAlong>& windows, std::string& why) {
    Known& known = known_[windows];
    if (!known.asked) {
      known.kernel = make_window(windows, known.why);
      known.asked = true;
    }
    why = known.why;
    return known.kernel;
  }

  std::optional<ScheduledKernel> make_window(const std::vector<WindowAlong>& windows, std::string& why) {
    std::vector<ScheduledKernel> answers;
    std::vector<SizePoint> points;
    for (const SizePoint& point : points_)
      if (points.size() < kSamplePoints && is_for(point, windows)) points.push_back(point);
    for (const SizePoint& point : points) {
      Knobs knobs = Knobs::sharing_weights();
      auto answer = rule_.apply(at(point, windows), target_, knobs);
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
    StrideFinder finder(kernel_, symbols_, points);
    LoopGeneralizer generalizer(finder, params, false);
    for (const OpenAxis& axis : axes_) generalizer.same_var(axis.base, points.size());
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
    WindowAlong window;
    Expr count, base;  // base in terms of `var`
    Var var;
  };

  struct AxisPlan {
    std::vector<int64_t> sizes;  // that the rule takes, the last is 1
    int64_t margin = 0;
    bool ends = false;  // whether it takes windows of the smallest size at both ends
    Expr divided;       // not null: the window at the second end depends on whether this is even
  };

  // Which windows along one axis the rule takes with single places along the others.
  void plan_axis(size_t a) {
    AxisPlan& plan = plans_[a];
    std::vector<WindowAlong> windows(axes_.size());
    std::string why;
    for (int64_t margin = 0; margin <= kLargestMargin && plan.sizes.empty(); ++margin)
      for (const int64_t size : axes_[a].sizes) {
        if (size == 1 || (size + 2 * margin) * axes_[a].step > kLargeEnough) continue;
        windows[a] = {size, margin};
        if (!window(windows, why)) continue;
        plan.sizes.push_back(size);
        plan.margin = margin;
      }
    if (plan.margin > 0 && plan.sizes.back() >= 2 * plan.margin) {
      const auto takes = [&](WindowPlace place, std::optional<int64_t> remainder = std::nullopt) {
        windows[a] = {plan.sizes.back(), 0, place, remainder};
        return window(windows, why).has_value();
      };
      plan.ends = takes(WindowPlace::kBegin) && takes(WindowPlace::kEnd);
      // A window of stride 2 sees padding behind an input of an odd number of places, or of an even one.
      for (const Expr& dim : open_dims()) {
        if (plan.ends || !takes(WindowPlace::kBegin)) break;
        plan.divided = dim;
        plan.ends = takes(WindowPlace::kEnd, 0) && takes(WindowPlace::kEnd, 1);
        if (plan.ends) break;
        std::erase_if(known_, [&](const auto& entry) { return entry.first[a].remainder.has_value(); });
        plan.divided = {};
      }
    }
    plan.sizes.push_back(1);
  }

  // The parameters' open extents, each once.
  std::vector<Expr> open_dims() const {
    std::vector<Expr> result;
    for (const TensorParam& param : kernel_.params)
      for (const Expr& dim : param.buffer->shape)
        if (!as_int(dim) && std::none_of(result.begin(), result.end(),
                                         [&](const Expr& known) { return structurally_equal(known, dim); }))
          result.push_back(dim);
    return result;
  }

  // What an axis consists of. Windows of each size are as many as there is room for; one more of the smallest ends
  // where the last of those would not, over places that are computed twice. The margins are covered by windows at the
  // ends, or single places; so is an axis in which no window fits. What is computed twice is the same each time, and
  // windows that have places in common are in loops of their own, one after the other.
  std::vector<Segment> segments(size_t a) const {
    const AxisPlan& plan = plans_[a];
    const Expr extent = axes_[a].extent;
    const int64_t margin = plan.margin;
    std::vector<Segment> result;
    const auto add = [&](const WindowAlong& window, const Expr& count, const std::function<Expr(const Var&)>& base) {
      const Var var = make_var(fmt::format("w{}", axes_[a].axis));
      result.push_back({window, count, base(var), var});
    };
    const auto once = [](const Expr& condition) { return select(condition, Expr(1), Expr(0)); };
    if (plan.sizes.size() == 1) {
      add({}, extent, [](const Var& var) { return Expr(var); });
      return result;
    }
    const int64_t smallest = plan.sizes[plan.sizes.size() - 2];
    // Inner windows go from `begin` to `begin` + `inner`.
    const int64_t begin = plan.ends ? smallest : margin;
    const Expr inner = begin == 0 ? extent : max(Expr(0), extent - Expr(2 * begin));
    Expr covered = 0;
    for (const int64_t size : plan.sizes) {
      if (size == 1) continue;
      const Expr count = floordiv(inner - covered, size);
      add({size, margin}, count, [&](const Var& var) { return Expr(begin) + covered + var * Expr(size); });
      covered = covered + count * Expr(size);
    }
    if (plan.ends) {
      // A window at one end sees nothing of the other.
      const Expr fits = extent >= Expr(smallest + margin);
      add({smallest, margin}, once(covered < inner),
          [&](const Var& var) { return max(Expr(margin), extent - Expr(2 * smallest)) + var; });
      add({smallest, 0, WindowPlace::kBegin}, once(fits), [](const Var& var) { return Expr(var); });
      const auto last = [&](const Var& var) { return extent - Expr(smallest) + var; };
      if (plan.divided) {
        for (const int64_t remainder : {0, 1})
          add({smallest, 0, WindowPlace::kEnd, remainder},
              once(logical_and(fits, equal(floormod(plan.divided, 2), Expr(remainder)))), last);
      } else {
        add({smallest, 0, WindowPlace::kEnd}, once(fits), last);
      }
      add({}, select(fits, Expr(0), extent), [](const Var& var) { return Expr(var); });
      return result;
    }
    const Expr fits = inner >= Expr(smallest);
    add({smallest, margin}, once(logical_and(fits, covered < inner)),
        [&](const Var& var) { return Expr(margin) + inner - Expr(smallest) + var; });
    const Expr done = select(fits, inner, Expr(0));
    add({}, extent - done,
        [&](const Var& var) { return margin == 0 ? Expr(var) : var + select(var < Expr(margin), Expr(0), done); });
    return result;
  }

  // All combinations of segments, axis by axis; `single` is the kernel of single places.
  void emit_choices(std::vector<Segment> chosen, const ScheduledKernel& single) {
    if (chosen.size() < axes_.size()) {
      for (const Segment& segment : segments(chosen.size())) {
        chosen.push_back(segment);
        emit_choices(chosen, single);
        chosen.pop_back();
      }
      return;
    }
    const auto kernel_of = [&](const std::vector<WindowAlong>& windows) {
      std::string why;
      const bool is_single =
          std::all_of(windows.begin(), windows.end(), [](const WindowAlong& along) { return along.size == 1; });
      return is_single ? std::optional(single) : window(windows, why);
    };
    std::vector<WindowAlong> own;
    for (const Segment& segment : chosen) own.push_back(segment.window);
    std::optional<ScheduledKernel> scheduled = kernel_of(own);
    // Windows along each axis are taken, but not along both: single places along the first.
    for (size_t a = 0; !scheduled && a < axes_.size(); ++a) {
      own[a] = {};
      scheduled = kernel_of(own);
    }
    VarMap bases;
    Expr all = 1;
    std::vector<std::pair<Var, Expr>> vars;
    for (size_t a = 0; a < axes_.size(); ++a) {
      Segment& segment = chosen[a];
      if (own[a] != segment.window) {  // the places of a window one by one
        segment.count = segment.count * Expr(segment.window.size);
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
    Stmt body = scheduled->program.body;
    if (parts_first(body, all)) {
      // Each part of the kernel for all windows, while its weights are in a cache.
      const Var both = make_var("t");
      for (auto& [base, at] : bases) at = substitute(at, {{t.get(), floormod(both, all)}});
      bases[body->var.get()] = floordiv(both, all);
      body =
          for_loop(both, 0, body->extent * all, ForKind::kParallel, substitute(without_threads(body->stmts[0]), bases));
    } else {
      body = for_loop(t, 0, all, ForKind::kParallel, substitute(without_threads(body), bases));
    }
    // One kernel may be in several nests.
    nests_.push_back(with_fresh_definitions(body));
  }

  // Whether weights that do not stay in the second level of cache would be read more often, window by window, than all
  // else is, part by part.
  bool parts_first(const Stmt& body, const Expr& windows) const {
    if (body->kind != StmtKind::kFor || body->for_kind != ForKind::kParallel || !is_const_int(body->begin, 0))
      return false;
    const auto parts = as_int(body->extent);
    if (!parts || *parts == 1) return false;
    const KnownSymbols known(symbols_);
    double weights = 0, other = 0;
    for (const TensorParam& param : kernel_.params) {
      double bytes = static_cast<double>(dtype_bits(param.buffer->dtype)) / 8;
      for (const Expr& dim : param.buffer->shape) bytes *= static_cast<double>(typical_size(dim));
      (param.may_be_packed() ? weights : other) += bytes;
    }
    return weights > static_cast<double>(target_.l2_bytes) / 2 &&
           other * static_cast<double>(*parts) < weights * static_cast<double>(typical_size(windows));
  }

  const ScheduleRule& rule_;
  const TensorProgram& kernel_;
  const std::vector<SymbolRange>& symbols_;
  const Target& target_;
  std::vector<SizePoint> points_;
  std::vector<OpenAxis> axes_;
  std::vector<AxisPlan> plans_;
  std::vector<BufferPtr> params_;
  std::vector<Stmt> nests_;
  ScheduledKernel result_;
  struct Known {
    bool asked = false;
    std::optional<ScheduledKernel> kernel;
    std::string why;  // there is none
  };
  std::map<std::vector<WindowAlong>, Known> known_;
  bool has_single_ = false;  // the kernel of single places is there, and with it how weights are stored
};

}  // namespace

Answer apply_by_windows(const ScheduleRule& rule, const TensorProgram& kernel, const std::vector<SymbolRange>& symbols,
                        const Target& target) {
  // Extents that are parts of the symbols (pictures made smaller) need larger symbols. A kernel that has no common
  // program at some sizes may have one at others.
  std::optional<Answer> first;
  for (const int64_t stretch : {1, 5, 11, 23, 47, 97}) {  // without factors of 2 and 3, so that all remainders occur
    std::vector<SizePoint> points = sample_points(symbols, kAllPoints, stretch);
    // Every window has room where extents are large enough. At the end smaller ones will do, but no empty ones, of
    // which everything seems proved: extents that fall while a symbol grows.
    if (!has_room(kernel, symbols, points, stretch < 97 ? kLargeEnough : 1)) continue;
    Answer answer = WindowMaker(rule, kernel, symbols, std::move(points), target).run();
    if (std::holds_alternative<ScheduledKernel>(answer)) return answer;
    if (!first) first = std::move(answer);
  }
  if (!first) return Declined{"an extent of its output is 0 at large sizes"};
  return std::move(*first);
}

}  // namespace tessera::inline schedule
