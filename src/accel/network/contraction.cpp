#include "accel/network/contraction.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "arith/simplify.h"

namespace tessera::inline network {

namespace {

struct Factor {
  Expr load, condition;  // condition: where it is read; null: everywhere
};

// A load, converted or not, that may be 0 where a condition does not hold.
std::optional<Factor> factor_of(Expr e) {
  Factor factor;
  while (true) {
    if (e->kind == ExprKind::kCast) e = e->operands[0];
    else if (e->kind == ExprKind::kSelect && is_const_int(e->operands[2], 0) && !factor.condition)
      factor.condition = e->operands[0], e = Expr(e->operands[1]);
    else break;
  }
  if (e->kind != ExprKind::kLoad) return std::nullopt;
  factor.load = e;
  return factor;
}

void each_condition(const Expr& e, const std::function<void(const Expr&)>& visit) {
  if (e->kind == ExprKind::kBinary && e->binary == BinaryOp::kAnd) {
    each_condition(e->operands[0], visit);
    each_condition(e->operands[1], visit);
  } else {
    visit(e);
  }
}

bool is_comparison_true(const Expr& condition, const VarMap& at) {
  return is_true(simplify(substitute(condition, at)));
}

class Reader {
 public:
  explicit Reader(const TensorProgram& kernel) { result_.kernel = &kernel; }

  std::variant<Contraction, NotOffloaded> read() {
    if (std::string reason = problem(); !reason.empty()) return NotOffloaded{std::move(reason)};
    return std::move(result_);
  }

 private:
  std::string problem() {
    const TensorProgram& kernel = *result_.kernel;
    if (!kernel.is_single()) return "it has several results or reductions";
    if (!kernel.windows.empty()) return "it computes a part of its output";
    const Stage& output = kernel.output();
    for (const Axis& axis : output.body.axes)
      if (!as_int(axis.extent)) return "its sizes are open";
    result_.reduction = kernel.reduction();
    if (!result_.reduction) return injective();
    const Stage& reduction = *result_.reduction;
    if (reduction.body.combiner != Combiner::kSum || reduction.out->dtype != DType::kI32)
      return "it sums no integers of 32 bits";
    result_.value = &reduction == &output ? load(reduction.out, output.body.axis_vars()) : output.body.value;
    simplify_value();
    return product();
  }

  // Axes of one place are 0.
  void simplify_value() {
    Bounds bounds;
    for (const Axis& axis : result_.output().body.axes) bounds.set(axis.var, 0, *as_int(axis.extent) - 1);
    result_.value = simplify(result_.value, bounds);
  }

  std::string injective() {
    const Stage& output = result_.kernel->output();
    result_.value = output.body.value;
    simplify_value();
    const LayoutDim block = output.layout.inner_block();
    const size_t rank = output.body.axes.size();
    if (rank == 0) return "it computes one number";
    result_.channel_axis = block.axis >= 0 ? static_cast<size_t>(block.axis) : rank - 1;
    return find_places();
  }

  std::string find_places() {
    const Stage& output = result_.kernel->output();
    for (size_t a = 0; a < output.body.axes.size(); ++a) {
      const int64_t extent = *as_int(output.body.axes[a].extent);
      if (extent == 0) return "it has no elements";
      if (a == result_.channel_axis) {
        result_.channels = extent;
        continue;
      }
      result_.places.push_back(a);
      result_.place_extents.push_back(extent);
    }
    return {};
  }

  std::string product() {
    const Body& body = result_.reduction->body;
    Expr value = body.value, outside;
    // A condition around the whole product is one on its first factor.
    if (value->kind == ExprKind::kSelect && is_const_int(value->operands[2], 0))
      outside = value->operands[0], value = Expr(value->operands[1]);
    if (value->kind != ExprKind::kBinary || value->binary != BinaryOp::kMul) return "it sums no products";
    auto a = factor_of(value->operands[0]), b = factor_of(value->operands[1]);
    if (!a || !b) return "it sums products of more than two operands";
    const auto param_of = [&](const Factor& factor) -> std::optional<size_t> {
      for (size_t p = 0; p < result_.kernel->params.size(); ++p)
        if (result_.kernel->params[p].buffer == factor.load->buffer) return p;
      return std::nullopt;
    };
    auto pa = param_of(*a), pb = param_of(*b);
    if (!pa || !pb) return "it multiplies what it computes itself";
    if (result_.kernel->params[*pa].is_constant() && !result_.kernel->params[*pb].is_constant()) {
      std::swap(a, b);
      std::swap(pa, pb);
    }
    if (!result_.kernel->params[*pb].is_constant()) return "no factor is known when it is compiled";
    if (b->condition) return "weights are read on a condition";
    if (outside) a->condition = a->condition ? logical_and(outside, a->condition) : outside;
    result_.x_param = *pa, result_.w_param = *pb;
    result_.x_dtype = a->load.dtype(), result_.w_dtype = b->load.dtype();
    result_.w_index = b->load->operands;
    return axes(*a, *b);
  }

  static bool in_load(const Expr& load, const Var& var) {
    return std::any_of(load->operands.begin(), load->operands.end(), [&](const Expr& i) { return uses_var(i, var); });
  }

  std::string axes(const Factor& x, const Factor& w) {
    const Body& body = result_.reduction->body;
    std::optional<size_t> channel;
    for (size_t i = 0; i < body.axes.size(); ++i) {
      const Var& var = body.axes[i].var;
      if (!in_load(w.load, var)) continue;
      if (in_load(x.load, var))
        return fmt::format("both factors depend on axis {} of the output: groups, channels one by one, or batches", i);
      if (channel && *as_int(body.axes[i].extent) > 1) return "weights depend on several axes of the output";
      channel = i;
    }
    if (!channel) return "weights depend on no axis of the output";
    result_.channel_axis = *channel;
    if (std::string reason = find_places(); !reason.empty()) return reason;
    // What is summed: the channels of x, which stand alone in a dimension of x, and windows.
    std::optional<size_t> summed;
    for (size_t r = 0; r < body.reduce_axes.size(); ++r)
      for (size_t d = 0; d < x.load->operands.size(); ++d)
        if (x.load->operands[d].same_node(body.reduce_axes[r].var) &&
            (!summed || *as_int(body.reduce_axes[r].extent) > result_.summed_channels)) {
          summed = r;
          result_.x_channel_dim = d;
          result_.summed_channels = *as_int(body.reduce_axes[r].extent);
        }
    if (!summed) return "no axis is summed along a dimension of its own";
    result_.summed_channel = body.reduce_axes[*summed].var;
    if (!in_load(w.load, result_.summed_channel)) return "weights are the same for all channels that are summed";
    for (size_t r = 0; r < body.reduce_axes.size(); ++r)
      if (r != *summed) result_.windows.push_back({body.reduce_axes[r].var, *as_int(body.reduce_axes[r].extent)});
    return dims(x);
  }

  std::string dims(const Factor& x) {
    const Body& body = result_.reduction->body;
    Bounds bounds;
    for (const Axis& axis : body.axes) bounds.set(axis.var, 0, *as_int(axis.extent) - 1);
    for (const Axis& axis : body.reduce_axes) bounds.set(axis.var, 0, *as_int(axis.extent) - 1);
    const Shape& shape = result_.kernel->params[result_.x_param].buffer->shape;
    result_.x_dims.resize(x.load->operands.size());
    std::vector<Expr> conditions;
    if (x.condition)
      each_condition(simplify(x.condition, bounds), [&](const Expr& c) {
        if (!is_true(c)) conditions.push_back(c);
      });
    std::vector<bool> used(conditions.size(), false);
    for (size_t d = 0; d < x.load->operands.size(); ++d) {
      PlaceDim& dim = result_.x_dims[d];
      const auto extent = as_int(shape[d]);
      if (!extent) return "its sizes are open";
      dim.extent = *extent;
      if (d == result_.x_channel_dim) {
        if (*extent != result_.summed_channels) return "it sums a part of the channels";
        continue;
      }
      const Expr index = simplify(x.load->operands[d], bounds);
      if (std::string reason = one_dim(index, bounds, dim); !reason.empty()) return reason;
      if (!holds_inside(dim, index, conditions, used)) return "it leaves places out that are no padding";
    }
    if (std::find(used.begin(), used.end(), false) != used.end()) return "it leaves places out that are no padding";
    return {};
  }

  std::string one_dim(const Expr& index, const Bounds& bounds, PlaceDim& dim) {
    const Body& body = result_.reduction->body;
    VarMap zero;
    for (size_t p = 0; p < result_.places.size(); ++p) {
      const Var& var = body.axes[result_.places[p]].var;
      if (!uses_var(index, var)) continue;
      const auto by = linear_coefficient(index, var, bounds);
      if (!by || *by <= 0 || dim.axis >= 0) return "its places are no multiples of one axis";
      dim.axis = static_cast<int>(p);
      dim.stride = *by;
      zero[var.get()] = 0;
    }
    for (size_t w = 0; w < result_.windows.size(); ++w) {
      const Var& var = result_.windows[w].var;
      if (!uses_var(index, var)) continue;
      const auto by = linear_coefficient(index, var, bounds);
      if (!by || *by < 0) return "its windows do not lie along an axis";
      dim.windows.emplace_back(static_cast<int>(w), *by);
      zero[var.get()] = 0;
    }
    const auto first = as_int(simplify(substitute(index, zero)));
    if (!first) return "its places are no sums of multiples of axes";
    dim.first = *first;
    return {};
  }

  // Whether the conditions on this dimension say that a place is inside of x.
  bool holds_inside(PlaceDim& dim, const Expr& index, const std::vector<Expr>& conditions, std::vector<bool>& used) {
    std::vector<std::pair<Var, int64_t>> vars;
    const Body& body = result_.reduction->body;
    if (dim.axis >= 0) {
      const Axis& axis = body.axes[result_.places[static_cast<size_t>(dim.axis)]];
      vars.emplace_back(axis.var, *as_int(axis.extent));
    }
    for (const auto& [w, by] : dim.windows)
      vars.emplace_back(result_.windows[static_cast<size_t>(w)].var, result_.windows[static_cast<size_t>(w)].extent);
    std::vector<Expr> own;
    for (size_t c = 0; c < conditions.size(); ++c) {
      bool of_dim = false, of_others = false;
      walk(conditions[c], [&](const Expr& e) {
        if (e->kind != ExprKind::kVar) return;
        const bool mine = std::any_of(vars.begin(), vars.end(), [&](const auto& v) { return v.first.same_node(e); });
        (mine ? of_dim : of_others) = true;
      });
      if (!of_dim || of_others) continue;
      own.push_back(conditions[c]);
      used[c] = true;
    }
    std::vector<int64_t> at(vars.size(), 0);
    while (true) {
      VarMap values;
      for (size_t v = 0; v < vars.size(); ++v) values[vars[v].first.get()] = Expr(at[v]);
      const int64_t place = as_int(simplify(substitute(index, values))).value_or(-1);
      const bool inside = place >= 0 && place < dim.extent;
      const bool read =
          std::all_of(own.begin(), own.end(), [&](const Expr& c) { return is_comparison_true(c, values); });
      if (read != inside) return false;
      dim.padded = dim.padded || !inside;
      size_t v = 0;
      for (; v < vars.size(); ++v) {
        if (++at[v] < vars[v].second) break;
        at[v] = 0;
      }
      if (v == vars.size()) return true;
    }
  }

  Contraction result_;
};

}  // namespace

int64_t Contraction::window() const {
  int64_t result = 1;
  for (const WindowAxis& axis : windows) result *= axis.extent;
  return result;
}

int64_t Contraction::multiply_adds() const {
  if (!reduction) return 0;
  int64_t result = channels * summed_channels * window();
  for (const int64_t extent : place_extents) result *= extent;
  return result;
}

std::variant<Contraction, NotOffloaded> contraction_of(const TensorProgram& kernel) { return Reader(kernel).read(); }

}  // namespace tessera::inline network
