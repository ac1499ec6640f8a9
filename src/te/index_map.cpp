#include "te/index_map.h"

#include <algorithm>

#include "arith/simplify.h"

namespace tessera::inline tensor_programs {
namespace {

bool is_one(const Expr& extent) { return is_const_int(extent, 1); }

bool loads_element(const Expr& index) {
  bool found = false;
  walk(index, [&](const Expr& e) { found |= e->kind == ExprKind::kLoad; });
  return found;
}

bool reads(const Expr& e, const Buffer* operand) {
  bool found = false;
  walk(e, [&](const Expr& inner) { found |= inner->kind == ExprKind::kLoad && inner->buffer.get() == operand; });
  return found;
}

bool is_binary(const Expr& e, BinaryOp op) { return e->kind == ExprKind::kBinary && e->binary == op; }

// The digit that `e` is of the variable: floordiv and floormod by positive constants, each at most once.
std::optional<IndexRadix> digit_of(const Expr& e, const Var& var) {
  const auto by_constant = [&](BinaryOp op) -> std::optional<int64_t> {
    if (!is_binary(e, op)) return std::nullopt;
    const auto number = as_int(e->operands[1]);
    return number && *number > 0 ? number : std::nullopt;
  };
  if (const auto modulus = by_constant(BinaryOp::kFloorMod)) {
    const Expr& inner = e->operands[0];
    if (inner.same_node(var)) return IndexRadix{1, 1, *modulus};
    const std::optional<IndexRadix> quotient = digit_of(inner, var);
    if (quotient && quotient->modulus == 0) return IndexRadix{1, quotient->divisor, *modulus};
  }
  if (const auto divisor = by_constant(BinaryOp::kFloorDiv)) {
    const Expr& inner = e->operands[0];
    if (inner.same_node(var)) return IndexRadix{1, *divisor, 0};
    // floordiv(floormod(x, d * m), d) = floormod(floordiv(x, d), m)
    const std::optional<IndexRadix> rest = digit_of(inner, var);
    if (rest && rest->divisor == 1 && rest->modulus % *divisor == 0)
      return IndexRadix{1, *divisor, rest->modulus / *divisor};
  }
  return std::nullopt;
}

// The digit of the variable in which the index is linear, if it mentions the variable in no other way.
std::optional<IndexRadix> radix_of(const Expr& index, const Var& var) {
  std::optional<IndexRadix> digit;
  Expr stands;
  walk(index, [&](const Expr& e) {
    if (digit) return;
    digit = digit_of(e, var);
    if (digit) stands = e;
  });
  if (!digit) return std::nullopt;
  const Var place = make_var("digit");
  const Expr rest =
      transform(index, [&](const Expr& e) { return structurally_equal(e, stands) ? Expr(place) : Expr(); });
  if (uses_var(rest, var)) return std::nullopt;
  const auto coefficient = linear_coefficient(rest, place);
  if (!coefficient) return std::nullopt;
  digit->coefficient = *coefficient;
  return digit;
}

IndexDim read_dim(const Body& body, const Expr& index) {
  IndexDim dim{index, {}, loads_element(index)};
  std::optional<Expr> simple;
  for (const bool reduced : {false, true}) {
    const std::vector<Axis>& axes = reduced ? body.reduce_axes : body.axes;
    for (size_t i = 0; i < axes.size(); ++i) {
      const Var& var = axes[i].var;
      if (index.same_node(var)) dim.sole = AxisRef{reduced, i};
      if (!uses_var(index, var)) continue;
      if (!simple) simple = simplify(index);
      AxisUse use{{reduced, i}, linear_coefficient(*simple, var), {}};
      if (!use.coefficient) use.radix = radix_of(*simple, var);
      dim.uses.push_back(use);
    }
  }
  return dim;
}

}  // namespace

const Axis& axis_of(const Body& body, AxisRef axis) {
  return (axis.reduced ? body.reduce_axes : body.axes)[axis.number];
}

const AxisUse* IndexDim::use_of(AxisRef axis) const {
  const auto it = std::find_if(uses.begin(), uses.end(), [&](const AxisUse& use) { return use.axis == axis; });
  return it == uses.end() ? nullptr : &*it;
}

bool IndexDim::is_linear() const {
  return !by_data &&
         std::all_of(uses.begin(), uses.end(), [](const AxisUse& use) { return use.coefficient.has_value(); });
}

Expr IndexDim::offset(const Body& body) const {
  VarMap zeros;
  for (const AxisUse& use : uses) zeros.emplace(axis_of(body, use.axis).var.get(), Expr(0));
  return simplify(substitute(index, zeros));
}

bool IndexMap::mentions(AxisRef axis) const {
  return std::any_of(dims.begin(), dims.end(), [&](const IndexDim& dim) { return dim.use_of(axis) != nullptr; });
}

bool IndexMap::is_identity(const Body& body) const {
  for (size_t d = 0; d < dims.size(); ++d)
    if (dims[d].sole != AxisRef{false, d}) return false;
  return dims.size() == body.axes.size();
}

IndexMap index_map(const Body& body, const Expr& load) {
  IndexMap map{load->buffer, load, {}};
  for (const Expr& index : load->operands) map.dims.push_back(read_dim(body, index));
  return map;
}

std::vector<IndexMap> index_maps(const Body& body, const Buffer* operand) {
  std::vector<IndexMap> maps;
  walk(body.value, [&](const Expr& e) {
    if (e->kind != ExprKind::kLoad || (operand && e->buffer.get() != operand)) return;
    const bool known =
        std::any_of(maps.begin(), maps.end(), [&](const IndexMap& map) { return structurally_equal(map.load, e); });
    if (known) return;
    maps.push_back(index_map(body, e));
  });
  return maps;
}

std::optional<IndexWindow> window_along(const Body& body, const IndexDim& dim, size_t axis) {
  const Var& place = body.axes[axis].var;
  Bounds bounds;
  if (const auto extent = as_int(body.axes[axis].extent)) bounds.set(place, 0, *extent - 1);
  for (const Axis& reduced : body.reduce_axes)
    if (const auto extent = as_int(reduced.extent)) bounds.set(reduced.var, 0, *extent - 1);
  const Expr index = simplify(dim.index, bounds);
  const auto step = linear_coefficient(index, place, bounds);
  if (!step) return std::nullopt;
  const Interval rest = bounds_of(simplify(substitute(index, {{place.get(), Expr(0)}}), bounds), bounds);
  if (!rest.lo || !rest.hi) return std::nullopt;
  return IndexWindow{*step, *rest.lo, *rest.hi};
}

bool may_repeat(const Body& body, const IndexMap& map) {
  std::vector<AxisRef> covered;
  for (const IndexDim& dim : map.dims) {
    const AxisUse* alone = nullptr;
    bool linear = true;
    for (const AxisUse& use : dim.uses) {
      if (is_one(axis_of(body, use.axis).extent)) continue;
      linear = linear && !alone && use.coefficient.value_or(0) != 0;
      alone = &use;
    }
    if (linear && alone) covered.push_back(alone->axis);
  }
  for (const bool reduced : {false, true}) {
    const std::vector<Axis>& axes = reduced ? body.reduce_axes : body.axes;
    for (size_t i = 0; i < axes.size(); ++i) {
      if (is_one(axes[i].extent)) continue;
      if (std::find(covered.begin(), covered.end(), AxisRef{reduced, i}) == covered.end()) return true;
    }
  }
  return false;
}

namespace {

enum class Dependence : uint8_t { kNone, kZero, kLinear, kOther };

Dependence worse(Dependence a, Dependence b) { return std::max(a, b); }

bool is_zero(const Expr& e) {
  return e->kind == ExprKind::kConst && (is_float(e->dtype) ? e->float_value == 0 : e->int_value == 0);
}

// kNone: does not read the operand; kZero: nor is it anything but 0; kLinear: a linear function of its elements.
Dependence dependence_on(const Expr& e, const Buffer* operand) {
  if (is_zero(e)) return Dependence::kZero;
  if (!reads(e, operand)) return Dependence::kNone;
  const auto of = [&](size_t i) { return dependence_on(e->operands[i], operand); };
  // A sum of what is linear and of what does not read the operand has a constant term.
  const auto summed = [](Dependence a, Dependence b) {
    const bool constant = a == Dependence::kNone || b == Dependence::kNone;
    return constant ? Dependence::kOther : worse(a, b);
  };
  switch (e->kind) {
    case ExprKind::kLoad: {
      for (const Expr& index : e->operands)
        if (reads(index, operand)) return Dependence::kOther;
      return Dependence::kLinear;
    }
    case ExprKind::kCast: return is_float(e->dtype) ? of(0) : Dependence::kOther;
    case ExprKind::kUnary: return e->unary == UnaryOp::kNeg ? of(0) : Dependence::kOther;
    case ExprKind::kSelect: return reads(e->operands[0], operand) ? Dependence::kOther : summed(of(1), of(2));
    case ExprKind::kBinary: {
      const Dependence a = of(0), b = of(1);
      switch (e->binary) {
        case BinaryOp::kAdd:
        case BinaryOp::kSub: return summed(a, b);
        case BinaryOp::kMul:
          if (a == Dependence::kZero || b == Dependence::kZero) return Dependence::kZero;
          return a == Dependence::kNone || b == Dependence::kNone ? worse(a, b) : Dependence::kOther;
        case BinaryOp::kDiv: return is_float(e->dtype) && b == Dependence::kNone ? a : Dependence::kOther;
        default: return Dependence::kOther;
      }
    }
    default: return Dependence::kOther;
  }
}

}  // namespace

bool is_linear_in(const Body& body, const Buffer* operand) {
  if (body.combiner != Combiner::kNone && body.combiner != Combiner::kSum) return false;
  return dependence_on(body.value, operand) == Dependence::kLinear;
}

}  // namespace tessera::inline tensor_programs
