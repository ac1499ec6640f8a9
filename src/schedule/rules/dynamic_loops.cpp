#include <algorithm>
#include <functional>
#include <unordered_map>

#include "loop/fresh.h"
#include "schedule/dynamic/dynamic_tiles.h"
#include "schedule/kernel/loop_builder.h"
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
    if (kernel_.stages.size() > 2 || (kernel_.stages.size() == 2 && !kernel_.stages[0].body.is_reduction()))
      return Declined{"more stages than one reduction and its epilogue"};
    if (std::string why = set_axes(); !why.empty()) return Declined{std::move(why)};
    result_.program.name = kernel_.name;
    for (const TensorParam& param : kernel_.params) add(param.buffer, param.layout);
    add(output.out, output.layout);

    for (const Axis& axis : axes_) bound(axis);
    std::vector<Expr> index;
    for (const Axis& axis : output.body.axes) index.push_back(substitute(axis.var, places_));
    out_index_ = flat(output.out, index);
    const Stage* reduction = kernel_.reduction();
    if (!reduction) {
      value_ = flattened(with_known_places(substitute(output.body.value, places_)));
      if (!output.layout.row_major() && !in_lanes(false)) return Declined{"no lanes of the output's blocks"};
      result_.program.body = nest(false);
      return std::move(result_);
    }
    const Body body = with_fresh_axes(reduction->body);
    combiner_ = body.combiner;
    reduce_ = body.reduce_axes;
    for (const Axis& axis : reduce_) bound(axis);
    VarMap to_output;
    for (size_t i = 0; i < body.axes.size(); ++i) to_output[body.axes[i].var.get()] = index[i];
    reduce_value_ = flattened(substitute(body.value, to_output));
    reduce_dtype_ = reduction->out->dtype;
    result_var_ = make_var("result", reduce_dtype_);
    bool elsewhere = false;
    value_ = reduction == &output
                 ? Expr(result_var_)
                 : flattened(substitute(transform(output.body.value,
                                                  [&](const Expr& node) {
                                                    if (node->kind != ExprKind::kLoad || node->buffer != reduction->out)
                                                      return Expr();
                                                    for (size_t i = 0; i < node->operands.size(); ++i)
                                                      elsewhere |=
                                                          !node->operands[i].same_node(output.body.axes[i].var) &&
                                                          !is_const_int(output.body.axes[i].extent, 1);
                                                    return Expr(result_var_);
                                                  }),
                                        places_));
    if (elsewhere) return Declined{"the epilogue reads the reduction at another index than its own"};
    if (!output.layout.row_major() && !in_lanes(true)) return Declined{"no lanes of the output's blocks"};
    result_.program.body = nest(true);
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

  // Whether results along the output's innermost axis are computed in the lanes of a vector.
  bool in_lanes(bool reduces) const {
    if (axes_.empty()) return false;
    const Axis& last = axes_.back();
    const auto lanes = std::max<int64_t>(4, target_.f32_lanes());
    return contiguous(value_, last.var) && (!reduces || contiguous(reduce_value_, last.var)) &&
           as_int(last.extent).value_or(lanes) >= lanes;
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

  Stmt element(const VarMap& at) { return store(out(), {substitute(out_index_, at)}, substitute(value_, at)); }

  Stmt reduce_loops(Stmt body, size_t except = SIZE_MAX) {
    for (size_t i = reduce_.size(); i-- > 0;)
      if (i != except) body = for_loop(reduce_[i].var, 0, reduce_[i].extent, ForKind::kSerial, body);
    return body;
  }

  // `width` results along the output's innermost axis.
  Stmt lane_results(const VarMap& at, const Var& axis, const Expr& begin, int64_t width) {
    const BufferPtr acc = make_buffer("acc", reduce_dtype_, {width}, MemoryScope::kRegister);
    const auto over = [&](const std::function<Stmt(const Var&, const VarMap&)>& body) {
      return vectorized("l", width, [&](const Var& l) {
        VarMap map = at;
        map[axis.get()] = begin + l;
        return body(l, map);
      });
    };
    const Stmt clear =
        over([&](const Var& l, const VarMap&) { return store(acc, {l}, combiner_identity(combiner_, reduce_dtype_)); });
    const Stmt sum = reduce_loops(over([&](const Var& l, const VarMap& map) {
      return store(acc, {l}, combine(combiner_, load(acc, {l}), substitute(reduce_value_, map)));
    }));
    const Stmt finish = over([&](const Var& l, const VarMap& map) {
      VarMap values = map;
      values[result_var_.get()] = load(acc, {l});
      return store(out(), {substitute(out_index_, map)}, substitute(value_, values));
    });
    return alloc(acc, seq({clear, sum, finish}));
  }

  Stmt one_result(const VarMap& at) {
    const Expr identity = combiner_identity(combiner_, reduce_dtype_);
    const BufferPtr acc = make_buffer("acc", reduce_dtype_, {1}, MemoryScope::kRegister);
    const auto add = [&](const VarMap& map) {
      return store(acc, {0}, combine(combiner_, load(acc, {0}), substitute(reduce_value_, map)));
    };
    VarMap finish = at;
    finish[result_var_.get()] = load(acc, {0});
    const Stmt end = store(out(), {substitute(out_index_, at)}, substitute(value_, finish));
    // A reduced axis along which memory is contiguous, in lanes of partial results.
    size_t row = reduce_.size();
    for (size_t i = 0; i < reduce_.size(); ++i)
      if (contiguous(reduce_value_, reduce_[i].var)) row = i;
    if (row == reduce_.size()) return alloc(acc, seq({store(acc, {0}, identity), reduce_loops(add(at)), end}));
    const Axis& axis = reduce_[row];
    const auto width = std::max<int64_t>(4, target_.f32_lanes());
    const BufferPtr partial = make_buffer("partial", reduce_dtype_, {width}, MemoryScope::kRegister);
    const Var step = make_var("s");
    const Var single = make_var("r");
    const Expr whole = floordiv(axis.extent, width);
    const auto over = [&](const std::function<Stmt(const Var&)>& body) { return vectorized("l", width, body); };
    VarMap tail = at;
    tail[axis.var.get()] = whole * Expr(width) + single;
    const Stmt rows = seq(
        {for_loop(step, 0, whole, ForKind::kSerial, over([&](const Var& l) {
                    VarMap map = at;
                    map[axis.var.get()] = step * Expr(width) + l;
                    return store(partial, {l}, combine(combiner_, load(partial, {l}), substitute(reduce_value_, map)));
                  })),
         for_loop(single, 0, axis.extent - whole * Expr(width), ForKind::kSerial, add(tail))});
    return alloc(acc, alloc(partial, seq({over([&](const Var& l) { return store(partial, {l}, identity); }),
                                          store(acc, {0}, identity), reduce_loops(rows, row), over([&](const Var& l) {
                                            return store(acc, {0},
                                                         combine(combiner_, load(acc, {0}), load(partial, {l})));
                                          }),
                                          end})));
  }

  const BufferPtr& out() const { return result_.program.params.back(); }

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
  Expr out_index_, value_, reduce_value_;
  Var result_var_;
  Combiner combiner_ = Combiner::kNone;
  std::vector<Axis> reduce_;
  DType reduce_dtype_ = DType::kF32;
};

}  // namespace

RuleResult dynamic_loops(const TensorProgram& kernel, const Target& target, Knobs&) {
  if (!is_symbolic(kernel)) return Declined{"all sizes are fixed"};
  return AnySize(kernel, target).run();
}

}  // namespace tessera::inline schedule
