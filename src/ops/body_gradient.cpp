#include "ops/body_gradient.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "arith/simplify.h"
#include "ops/body_text.h"
#include "ops/index_gradients.h"
#include "ops/op_util.h"

namespace tessera::inline ops {
namespace {

constexpr size_t kMostTerms = 1024;

// How much of the result's gradient one load gets: `weight`, where all of `guards` hold.
struct Term {
  Expr load, weight;
  std::vector<Expr> guards;
};

Expr zero_of(const Expr& e) { return const_of(e.dtype(), 0); }
Expr number(const Expr& like, double value) { return const_of(like.dtype(), value); }
Expr quotient(Expr a, Expr b) { return binary(BinaryOp::kDiv, std::move(a), std::move(b)); }
Expr square(const Expr& x) { return x * x; }
Expr sqrt_of(Expr x) { return unary(UnaryOp::kSqrt, std::move(x)); }

class Derivative {
 public:
  explicit Derivative(Adjoint& a) : a_(a) {}

  // `weight`: of the gradient, for a change of `e`.
  void add(const Expr& e, const Expr& weight, std::vector<Expr> guards) {
    if (!is_real(e.dtype())) return;
    switch (e->kind) {
      case ExprKind::kConst:
      case ExprKind::kVar: return;
      case ExprKind::kLoad: return add_term({e, weight, std::move(guards)});
      case ExprKind::kCast: return add(e->operands[0], of_type(weight, e->operands[0].dtype()), std::move(guards));
      case ExprKind::kSelect: {
        std::vector<Expr> other = guards;
        guards.push_back(e->operands[0]);
        add(e->operands[1], weight, std::move(guards));
        other.push_back(unary(UnaryOp::kNot, e->operands[0]));
        return add(e->operands[2], weight, std::move(other));
      }
      case ExprKind::kFma:
        add(e->operands[0], weight * e->operands[1], guards);
        add(e->operands[1], weight * e->operands[0], guards);
        return add(e->operands[2], weight, std::move(guards));
      case ExprKind::kUnary: {
        const Expr slope = of_unary(e);
        if (slope) add(e->operands[0], slope_times(slope, weight), std::move(guards));
        return;
      }
      case ExprKind::kBinary: return add_binary(e, weight, guards);
    }
  }

  std::vector<Term> terms;

 private:
  static Expr of_type(const Expr& e, DType dtype) { return e.dtype() == dtype ? e : cast(dtype, e); }
  static Expr slope_times(const Expr& slope, const Expr& weight) { return weight * slope; }

  void add_term(Term term) {
    const auto same = [](const std::vector<Expr>& x, const std::vector<Expr>& y) {
      if (x.size() != y.size()) return false;
      for (size_t i = 0; i < x.size(); ++i)
        if (!structurally_equal(x[i], y[i])) return false;
      return true;
    };
    for (Term& other : terms)
      if (structurally_equal(other.load, term.load) && same(other.guards, term.guards)) {
        other.weight = other.weight + term.weight;
        return;
      }
    if (terms.size() == kMostTerms)
      a_.fail("its body reads in more ways than a gradient is derived for", "smaller bodies");
    terms.push_back(std::move(term));
  }

  // Null: it is 0 wherever there is one. Conventions as in unary.cpp.
  Expr of_unary(const Expr& e) {
    const Expr& x = e->operands[0];
    const Expr one = number(e, 1);
    switch (e->unary) {
      case UnaryOp::kNeg: return number(e, -1);
      case UnaryOp::kAbs: return unary(UnaryOp::kSign, x);
      case UnaryOp::kExp: return e;
      case UnaryOp::kLog: return quotient(one, x);
      case UnaryOp::kSqrt: return quotient(one, e + e);
      case UnaryOp::kTanh: return one - square(e);
      case UnaryOp::kErf: return number(e, 2 / std::sqrt(std::numbers::pi)) * unary(UnaryOp::kExp, -square(x));
      case UnaryOp::kSin: return unary(UnaryOp::kCos, x);
      case UnaryOp::kCos: return -unary(UnaryOp::kSin, x);
      case UnaryOp::kTan: return one + square(e);
      case UnaryOp::kAsin: return quotient(one, sqrt_of(one - square(x)));
      case UnaryOp::kAcos: return quotient(number(e, -1), sqrt_of(one - square(x)));
      case UnaryOp::kAtan: return quotient(one, square(x) + one);
      case UnaryOp::kSinh: return unary(UnaryOp::kCosh, x);
      case UnaryOp::kCosh: return unary(UnaryOp::kSinh, x);
      case UnaryOp::kAsinh: return quotient(one, sqrt_of(square(x) + one));
      case UnaryOp::kAcosh: return quotient(one, sqrt_of(square(x) - one));
      case UnaryOp::kAtanh: return quotient(one, one - square(x));
      case UnaryOp::kBitcast: a_.fail("bits taken for another type change in jumps", "bodies without bitcast");
      default: return {};  // floor, ceil, round, trunc, sign: steps
    }
  }

  // Conventions as in binary.cpp.
  void add_binary(const Expr& e, const Expr& weight, const std::vector<Expr>& guards) {
    const Expr &x = e->operands[0], &y = e->operands[1];
    const auto both = [&](const Expr& of_x, const Expr& of_y) {
      if (of_x) add(x, of_x, guards);
      if (of_y) add(y, of_y, guards);
    };
    switch (e->binary) {
      case BinaryOp::kAdd: return both(weight, weight);
      case BinaryOp::kSub: return both(weight, -weight);
      case BinaryOp::kMul: return both(weight * y, weight * x);
      case BinaryOp::kDiv: return both(quotient(weight, y), -(quotient(weight, y) * e));
      case BinaryOp::kRem: return both(weight, weight * quotient(e - x, y));
      case BinaryOp::kMin:
      case BinaryOp::kMax: {
        const Expr half = weight * number(e, 0.5), zero = zero_of(e);
        const auto share = [&](const Expr& own, const Expr& other) {
          const Expr taken = e->binary == BinaryOp::kMin ? own < other : other < own;
          return select(taken, weight, select(equal(own, other), half, zero));
        };
        return both(share(x, y), share(y, x));
      }
      case BinaryOp::kPow: {
        const Expr zero = zero_of(e);
        const Expr of_x = select(equal(y, zero), zero, y * binary(BinaryOp::kPow, x, y - number(e, 1)));
        const Expr of_y = select(logical_and(equal(x, zero), zero <= y), zero, e * unary(UnaryOp::kLog, x));
        return both(weight * of_x, weight * of_y);
      }
      default:
        a_.fail(std::string("its body has ") + binary_name(e->binary) + " of real numbers",
                "operators with a derivative");
    }
  }

  Adjoint& a_;
};

// What is summed up: for each index of `axes` the terms' weights, or where they go.
class BodyGradient {
 public:
  // `body` is injective, over the operands `operands`; `g` has the shape of its first axes.
  BodyGradient(Adjoint& a, Body body, std::vector<ValueId> operands, ValueId g)
      : a_(a), body_(std::move(body)), operands_(std::move(operands)), g_(g) {}

  std::vector<ValueId> run() {
    const BufferPtr gradient = make_buffer("g", a_.type(g_).dtype, a_.type(g_).shape);
    Derivative derivative(a_);
    std::vector<Expr> index = body_.axis_vars();
    index.resize(gradient->shape.size());
    derivative.add(body_.value, load(gradient, index), {});
    body_.inputs.push_back(gradient);
    operands_.push_back(g_);
    std::vector<ValueId> found(operands_.size() - 1, Adjoint::kNone);
    for (const Term& term : derivative.terms) {
      size_t operand = 0;
      while (body_.inputs[operand] != term.load->buffer) ++operand;
      if (!a_.wants(operand)) continue;
      const ValueId more = is_by_axes(term) ? summed(term, operand) : added(term, operand);
      found[operand] = found[operand] == Adjoint::kNone ? more : a_.add(found[operand], more);
    }
    return found;
  }

 private:
  static Expr guarded(const Term& term, Expr value, const Expr& otherwise) {
    for (size_t i = term.guards.size(); i-- > 0;) value = select(term.guards[i], value, otherwise);
    return value;
  }

  size_t axis_of(const Expr& index) const {
    size_t i = 0;
    while (i < body_.axes.size() && !body_.axes[i].var.same_node(index)) ++i;
    return i;
  }

  // Indexed by axes alone, each once, which run over the whole of a dimension.
  bool is_by_axes(const Term& term) const {
    std::vector<bool> used(body_.axes.size(), false);
    for (size_t d = 0; d < term.load->operands.size(); ++d) {
      const size_t axis = axis_of(term.load->operands[d]);
      if (axis == body_.axes.size() || used[axis] ||
          !equal_extents(body_.axes[axis].extent, term.load->buffer->shape[d]))
        return false;
      used[axis] = true;
    }
    return true;
  }

  ValueId node(Body body) {
    // With those operands alone that it reads.
    std::vector<ValueId> operands;
    std::vector<BufferPtr> inputs;
    for (size_t i = 0; i < body.inputs.size(); ++i) {
      bool read = false;
      walk(body.value,
           [&](const Expr& e) { read = read || (e->kind == ExprKind::kLoad && e->buffer == body.inputs[i]); });
      if (!read) continue;
      operands.push_back(operands_[i]);
      inputs.push_back(body.inputs[i]);
    }
    body.inputs = std::move(inputs);
    return a_.op("compute", std::move(operands), compute_attrs(body));
  }

  ValueId summed(const Term& term, size_t operand) {
    Body body;
    body.inputs = body_.inputs;
    for (const Expr& index : term.load->operands) body.axes.push_back(body_.axes[axis_of(index)]);
    for (const Axis& axis : body_.axes)
      if (std::none_of(body.axes.begin(), body.axes.end(),
                       [&](const Axis& own) { return own.var.same_node(axis.var); }))
        body.reduce_axes.push_back(axis);
    if (!body.reduce_axes.empty()) body.combiner = Combiner::kSum;
    body.value = guarded(term, term.weight, zero_of(term.weight));
    return a_.reshape(node(std::move(body)), a_.type(operands_[operand]).shape);
  }

  ValueId added(const Term& term, size_t operand) {
    const TensorType type = a_.type(operands_[operand]);
    // Leading dimensions that are indexed by the leading axes are a batch.
    size_t batch = 0;
    const auto& index = term.load->operands;
    while (batch < index.size() && batch < body_.axes.size() && axis_of(index[batch]) == batch &&
           equal_extents(body_.axes[batch].extent, type.shape[batch]))
      ++batch;
    Expr place = 0;
    for (size_t d = batch; d < index.size(); ++d) place = place * type.shape[d] + index[d];
    Shape extents;
    for (const Axis& axis : body_.axes) extents.push_back(axis.extent);
    const Expr rows = elements_of(extents, 0, batch), count = elements_of(extents, batch, extents.size()),
               size = elements_of(type.shape, batch, type.shape.size());
    Body weights = body_, places = body_;
    weights.value = guarded(term, term.weight, zero_of(term.weight));
    places.value = guarded(term, place, Expr(-1));
    const ValueId updates = a_.reshape(node(std::move(weights)), {rows, count, 1});
    const ValueId at = a_.reshape(node(std::move(places)), {rows, count});
    const ValueId zeros = a_.filled(0, type.dtype, {rows, size, 1});
    return a_.reshape(a_.op("scatter", {zeros, at, updates}, {{"join", std::string("add")}}), type.shape);
  }

  Adjoint& a_;
  Body body_;
  std::vector<ValueId> operands_;
  const ValueId g_;
};

}  // namespace

std::vector<ValueId> body_gradient(Adjoint& a) {
  Body body = node_body(a.builder().graph(), a.node());
  std::vector<ValueId> operands;
  for (size_t i = 0; i < a.num_operands(); ++i) operands.push_back(a.in(i));
  if (!body.is_reduction()) return BodyGradient(a, std::move(body), operands, a.gradient()).run();
  // All that is combined stands in a tensor of its own, from which the reduction and its rule go on.
  Body whole = body;
  whole.axes.insert(whole.axes.end(), body.reduce_axes.begin(), body.reduce_axes.end());
  whole.reduce_axes.clear();
  whole.combiner = Combiner::kNone;
  Shape shape;
  for (const Axis& axis : whole.axes) shape.push_back(axis.extent);
  ValueId g = a.gradient();
  if (body.combiner != Combiner::kSum) {
    const ValueId combined = a.op("compute", operands, compute_attrs(whole));
    std::vector<int64_t> axes;
    for (size_t d = body.axes.size(); d < shape.size(); ++d) axes.push_back(static_cast<int64_t>(d));
    const ValueId result = a.reduce(combiner_name(body.combiner), combined, axes, false);
    const Node reduction = *a.builder().graph().producer(result);
    Adjoint of_reduction(a.builder(), a.ops(), reduction, {g}, {true});
    g = reduction.op->gradient(of_reduction)[0];
  }
  return BodyGradient(a, std::move(whole), operands, g).run();
}

}  // namespace tessera::inline ops
