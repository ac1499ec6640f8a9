#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <unordered_map>

#include "loop/fresh.h"
#include "schedule/dynamic/dynamic_tiles.h"
#include "schedule/kernel/loop_builder.h"
#include "schedule/kernel/partial_results.h"
#include "schedule/kernel/size_polynomial.h"
#include "schedule/rules/rules.h"

// Extents and strides are expressions here. Vectors run along the output's innermost dimension where all operands are
// contiguous there (or do not move), else along a reduced axis that is; the rest is done one element at a time.
namespace tessera::inline schedule {
namespace {

constexpr int64_t kManyRows = 16;  // for a parallel loop of their own

class AnySize {
 public:
  AnySize(const TensorProgram& kernel, const Target& target) : kernel_(kernel), target_(target) {}

  std::variant<ScheduledKernel, Declined> run() {
    const Stage& output = kernel_.output();
    const std::vector<const Stage*> reductions = kernel_.reductions();
    for (size_t i = 0; i + kernel_.num_results < kernel_.stages.size(); ++i)
      if (!kernel_.stages[i].body.is_reduction()) return Declined{"more stages than reductions and their epilogues"};
    if (std::string why = set_axes(); !why.empty()) return Declined{std::move(why)};
    result_.program.name = kernel_.name;
    result_.program.num_outputs = static_cast<int>(kernel_.num_results);
    for (const TensorParam& param : kernel_.params) add(param.buffer, param.layout);
    for (const Stage& result : kernel_.results()) add(result.out, result.layout);

    for (const Axis& axis : axes_) bound(axis);
    std::vector<Expr> index;
    for (const Axis& axis : output.body.axes) index.push_back(substitute(axis.var, places_));
    out_index_ = flat(output.out, index);
    const auto at_index = [&](const Body& body) {
      VarMap map;
      for (size_t i = 0; i < body.axes.size(); ++i) map[body.axes[i].var.get()] = index[i];
      return map;
    };
    for (size_t r = 0; r < reductions.size(); ++r) {
      // Several go over the same places.
      const Stage* stage = reductions[r];
      const auto reads = [&](const Expr& e) {
        return std::any_of(reductions.begin(), reductions.end(),
                           [&](const Stage* other) { return e->kind == ExprKind::kLoad && e->buffer == other->out; });
      };
      bool reads_another = false;
      walk(stage->body.value, [&](const Expr& e) { reads_another = reads_another || reads(e); });
      auto pair = reads_another ? place_of_extremum(reductions, r) : std::nullopt;
      if (reads_another && !pair) return Declined{"a reduction reads another one"};
      Body body = stage->body;
      if (pair) body.value = pair->place;
      body = with_fresh_axes(body);
      if (reduce_.empty()) {
        reduce_ = body.reduce_axes;
        for (const Axis& axis : reduce_) bound(axis);
      }
      VarMap map = at_index(body);
      for (size_t i = 0; i < reduce_.size(); ++i) map[body.reduce_axes[i].var.get()] = reduce_[i].var;
      const DType dtype = stage->out->dtype;
      reductions_.push_back(
          {body.combiner, flattened(substitute(body.value, map)), dtype,
           make_var(reductions_.empty() ? "result" : fmt::format("result{}", reductions_.size()), dtype), pair});
    }
    bool elsewhere = false;
    for (const Stage& result : kernel_.results()) {
      const Expr value = transform(result.body.value, [&](const Expr& node) -> Expr {
        if (node->kind != ExprKind::kLoad) return {};
        for (size_t r = 0; r < reductions.size(); ++r) {
          if (node->buffer != reductions[r]->out || reductions[r] == &result) continue;
          for (size_t i = 0; i < node->operands.size(); ++i)
            elsewhere |=
                !node->operands[i].same_node(result.body.axes[i].var) && !is_const_int(result.body.axes[i].extent, 1);
          return reductions_[r].result_var;
        }
        return {};
      });
      const auto own = std::find(reductions.begin(), reductions.end(), &result);
      if (own != reductions.end()) {
        values_.emplace_back(reductions_[static_cast<size_t>(own - reductions.begin())].result_var);
      } else {
        const Expr placed = substitute(value, at_index(result.body));
        values_.push_back(flattened(reductions.empty() ? with_known_places(placed) : placed));
      }
    }
    if (elsewhere) return Declined{"the epilogue reads the reduction at another index than its own"};
    const bool reduces = !reductions.empty();
    if (!output.layout.row_major() && !in_lanes(reduces)) return Declined{"no lanes of the output's blocks"};
    result_.program.body = nest(reduces);
    return std::move(result_);
  }

 private:
  // The output's axes in the order of its memory; one in blocks becomes two. Why they are not known.
  std::string set_axes() {
    const Stage& output = kernel_.output();
    if (output.layout.row_major()) {
      axes_ = output.body.axes;
      return "";
    }
    for (const LayoutDim& dim : output.layout.dims) {
      const Axis& axis = output.body.axes[static_cast<size_t>(dim.axis)];
      if (dim.part == LayoutDim::Part::kWhole) {
        axes_.push_back(axis);
        continue;
      }
      const auto extent = as_int(axis.extent);
      // Padding may be computed where all that is read has it, too.
      const auto padded = [&](const TensorParam& param) { return param.layout == output.layout; };
      const bool all = std::all_of(kernel_.params.begin(), kernel_.params.end(), padded);
      if (!extent || (*extent % dim.block != 0 && !all)) return "the output's blocks are not all whole";
      const bool is_place = dim.part == LayoutDim::Part::kRemainder;
      axes_.push_back({make_var(axis.var->name + (is_place ? "l" : "b")),
                       Expr(is_place ? dim.block : (*extent + dim.block - 1) / dim.block)});
      Expr& place = places_[axis.var.get()];
      const Expr part = Expr(axes_.back().var) * Expr(is_place ? 1 : dim.block);
      place = place ? place + part : part;
    }
    return "";
  }

  void bound(const Axis& axis) {
    const auto extent = as_int(axis.extent);
    bounds_.set(axis.var, Interval{0, extent ? std::optional(*extent - 1) : std::nullopt});
  }

  void add(const BufferPtr& logical, const Layout& layout) {
    const Shape shape = physical_shape(logical->shape, layout);
    Expr count = 1;
    for (const Expr& dim : shape) count = count * dim;
    const BufferPtr flat = make_buffer(logical->name, logical->dtype, {count});
    memory_[logical.get()] = {flat, layout, shape};
    result_.program.params.push_back(flat);
  }

  Expr flat(const BufferPtr& buffer, const std::vector<Expr>& index) {
    const Memory& memory = memory_.at(buffer.get());
    const std::vector<Expr> physical = physical_index(index, memory.layout);
    SizePolynomial sum(factors_);
    for (size_t i = 0; i < physical.size(); ++i)
      sum = sum * SizePolynomial(factors_, simplify(memory.shape[i], bounds_), bounds_) +
            SizePolynomial(factors_, simplify(physical[i], bounds_), bounds_);
    return sum.expr();
  }

  // `e` with the places that a select's condition lets be read: behind `i < m`, i / n is 0 where n is m. Padded views
  // are such.
  Expr with_known_places(const Expr& e) const {
    if (!kernel_.output().layout.row_major()) return e;
    std::vector<std::pair<Var, Expr>> extents;
    for (const Axis& axis : axes_) extents.emplace_back(axis.var, axis.extent);
    return transform(e, [&](const Expr& node) -> Expr {
      if (node->kind != ExprKind::kSelect) return {};
      std::vector<std::pair<Var, Expr>> inside = extents;
      bool is_less = false;
      const std::function<void(const Expr&)> read = [&](const Expr& condition) {
        if (condition->kind != ExprKind::kBinary) return;
        if (condition->binary == BinaryOp::kAnd) {
          for (const Expr& part : condition->operands) read(part);
        } else if (condition->binary == BinaryOp::kLt) {
          for (auto& [var, extent] : inside)
            if (condition->operands[0].same_node(var)) extent = condition->operands[1], is_less = true;
        }
      };
      read(node->operands[0]);
      if (!is_less) return {};
      const Expr value = transform(node->operands[1], [&](const Expr& part) -> Expr {
        if (part->kind != ExprKind::kLoad) return {};
        std::vector<Expr> indices;
        for (const Expr& index : part->operands) indices.push_back(normalize_size(index, inside));
        return load(part->buffer, indices);
      });
      return select(node->operands[0], value, node->operands[2]);
    });
  }

  Expr flattened(const Expr& e) {
    return transform(e, [&](const Expr& node) -> Expr {
      if (node->kind != ExprKind::kLoad || !memory_.count(node->buffer.get())) return {};
      return load(memory_.at(node->buffer.get()).flat, {flat(node->buffer, node->operands)});
    });
  }

  // Every load of `e` moves by one element with `var`, or not at all.
  bool contiguous(const Expr& e, const Var& var) const {
    bool ok = true;
    walk(e, [&](const Expr& node) {
      if (node->kind != ExprKind::kLoad) return;
      const auto c = linear_coefficient(node->operands[0], var, bounds_);
      ok &= c == 0 || c == 1;
    });
    return ok;
  }

  bool all_reduced_contiguous(const Var& var) const {
    return std::all_of(reductions_.begin(), reductions_.end(),
                       [&](const LinearReduction& reduction) { return contiguous(reduction.value, var); });
  }
  bool all_contiguous(const Var& var, bool reduces) const {
    return std::all_of(values_.begin(), values_.end(), [&](const Expr& value) { return contiguous(value, var); }) &&
           (!reduces || all_reduced_contiguous(var));
  }

  // Whether results along the output's innermost axis are computed in the lanes of a vector.
  bool in_lanes(bool reduces) const {
    if (axes_.empty()) return false;
    const Axis& last = axes_.back();
    const auto lanes = std::max<int64_t>(4, target_.f32_lanes());
    return all_contiguous(last.var, reduces) && as_int(last.extent).value_or(lanes) >= lanes;
  }

  Stmt nest(bool reduces) {
    const std::vector<Axis>& axes = axes_;
    const auto lanes = std::max<int64_t>(4, target_.f32_lanes());
    VarMap at;
    if (axes.empty()) return reduces ? one_result(at) : element(at);
    const Axis& last = axes.back();
    // All other axes share one parallel loop, and so does the innermost one where it has no vectors and they are few.
    const bool vectors_of_results = in_lanes(reduces);
    Expr others = 1;
    for (size_t i = 0; i + 1 < axes.size(); ++i) others = others * axes[i].extent;
    const bool has_own_loop = vectors_of_results || typical_size(others) >= kManyRows;
    const size_t joined = has_own_loop ? axes.size() - 1 : axes.size();
    const Var t = make_var("t");
    Expr all = 1;
    Expr rest = t;
    for (size_t i = joined; i-- > 0;) {
      at[axes[i].var.get()] = i == 0 ? rest : floormod(rest, axes[i].extent);
      rest = floordiv(rest, axes[i].extent);
      all = all * axes[i].extent;
    }
    Stmt body;
    if (vectors_of_results) {
      const auto width = reduces ? lanes : lanes * 2;
      const Var step = make_var("s");
      const Var single = make_var("i");
      const Expr whole = floordiv(last.extent, width);
      VarMap outer = at;
      Stmt vectors = for_loop(
          step, 0, whole, ForKind::kSerial,
          reduces ? lane_results(at, last.var, step * Expr(width), width) : vectorized("l", width, [&](const Var& l) {
            VarMap map = at;
            map[last.var.get()] = step * Expr(width) + l;
            return element(map);
          }));
      outer[last.var.get()] = whole * Expr(width) + single;
      Stmt singles = for_loop(single, 0, last.extent - whole * Expr(width), ForKind::kSerial,
                              reduces ? one_result(outer) : element(outer));
      body = seq({vectors, with_fresh_definitions(singles)});  // both have the reduction's variables
    } else if (has_own_loop) {
      const Var place = make_var("i");
      at[last.var.get()] = place;
      body = for_loop(place, 0, last.extent, ForKind::kSerial, reduces ? one_result(at) : element(at));
    } else {
      body = reduces ? one_result(at) : element(at);
    }
    return joined == 0 ? body : for_loop(t, 0, all, ForKind::kParallel, body);
  }

  Stmt element(const VarMap& at) {
    std::vector<Stmt> stores;
    for (size_t i = 0; i < values_.size(); ++i)
      stores.push_back(store(out(i), {substitute(out_index_, at)}, substitute(values_[i], at)));
    return seq(std::move(stores));
  }

  Stmt reduce_loops(Stmt body, size_t except = SIZE_MAX) {
    for (size_t i = reduce_.size(); i-- > 0;)
      if (i != except) body = for_loop(reduce_[i].var, 0, reduce_[i].extent, ForKind::kSerial, body);
    return body;
  }

  // The results whose sums are at `place` of the registers.
  Stmt finished(const Partials& sums, const Expr& place, VarMap at) {
    finish_partials(reductions_, sums, {place}, at);
    return element(at);
  }

  // `width` results along the output's innermost axis.
  Stmt lane_results(const VarMap& at, const Var& axis, const Expr& begin, int64_t width) {
    const Partials acc = make_partials(reductions_, "acc", {width});
    const auto over = [&](const std::function<Stmt(const Var&, const VarMap&)>& body) {
      return vectorized("l", width, [&](const Var& l) {
        VarMap map = at;
        map[axis.get()] = begin + l;
        return body(l, map);
      });
    };
    const Stmt clear = over([&](const Var& l, const VarMap&) { return clear_partials(reductions_, acc, {l}); });
    const Stmt sum =
        reduce_loops(over([&](const Var& l, const VarMap& map) { return add_element(reductions_, acc, {l}, map); }));
    const Stmt finish = over([&](const Var& l, const VarMap& map) { return finished(acc, l, map); });
    return alloc_all(acc, seq({clear, sum, finish}));
  }

  Stmt one_result(const VarMap& at) {
    const Partials acc = make_partials(reductions_, "acc", {1});
    const Stmt clear = clear_partials(reductions_, acc, {0});
    const Stmt end = finished(acc, 0, at);
    // A reduced axis along which memory is contiguous, in lanes of partial results.
    size_t row = reduce_.size();
    for (size_t i = 0; i < reduce_.size(); ++i)
      if (all_reduced_contiguous(reduce_[i].var)) row = i;
    if (row == reduce_.size())
      return alloc_all(acc, seq({clear, reduce_loops(add_element(reductions_, acc, {0}, at)), end}));
    const Axis& axis = reduce_[row];
    const auto width = std::max<int64_t>(4, target_.f32_lanes());
    const Partials partial = make_partials(reductions_, "partial", {width});
    const Var step = make_var("s");
    const Var single = make_var("r");
    const Expr whole = floordiv(axis.extent, width);
    const auto over = [&](const std::function<Stmt(const Var&)>& body) { return vectorized("l", width, body); };
    VarMap tail = at;
    tail[axis.var.get()] = whole * Expr(width) + single;
    const Stmt rows = seq({for_loop(step, 0, whole, ForKind::kSerial, over([&](const Var& l) {
                                      VarMap map = at;
                                      map[axis.var.get()] = step * Expr(width) + l;
                                      return add_element(reductions_, partial, {l}, map);
                                    })),
                           for_loop(single, 0, axis.extent - whole * Expr(width), ForKind::kSerial,
                                    add_element(reductions_, acc, {0}, tail))});
    const Stmt cleared = over([&](const Var& l) { return clear_partials(reductions_, partial, {l}); });
    const Stmt joined = add_lanes(reductions_, acc, {0}, partial, over);
    return alloc_all(acc, alloc_all(partial, seq({cleared, clear, reduce_loops(rows, row), joined, end})));
  }

  // Result number `i`.
  const BufferPtr& out(size_t i) const { return result_.program.params[kernel_.params.size() + i]; }

  struct Memory {
    BufferPtr flat;
    Layout layout;
    Shape shape;
  };
  const TensorProgram& kernel_;
  const Target& target_;
  ScheduledKernel result_;
  std::vector<Axis> axes_;
  VarMap places_;  // of the output's axes that are in blocks, in terms of `axes_`
  SizePolynomial::Factors factors_;
  std::unordered_map<const Buffer*, Memory> memory_;
  Bounds bounds_;
  Expr out_index_;
  std::vector<Expr> values_;  // of the results
  Reductions reductions_;
  std::vector<Axis> reduce_;
};

}  // namespace

RuleResult dynamic_loops(const TensorProgram& kernel, const Target& target, Knobs&) {
  if (!is_symbolic(kernel)) return Declined{"all sizes are fixed"};
  return AnySize(kernel, target).run();
}

}  // namespace tessera::inline schedule
