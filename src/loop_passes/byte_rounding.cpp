#include "loop_passes/byte_rounding.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>

#include "arith/simplify.h"
#include "loop_passes/byte_exprs.h"

namespace tessera::inline loop_passes {
namespace {

constexpr double kMostMagnitude = 1 << 20;  // of what is added to it
constexpr int64_t kMostValues = 256;        // of an operand of a quotient

bool is_byte(DType dtype) { return dtype == DType::kI8 || dtype == DType::kU8; }

bool is_whole(double value) { return std::floor(value) == value && std::abs(value) <= kMostMagnitude; }

// An integer constant that is added to (or, negated, taken off) `e`, which becomes the rest; 0 when there is none.
template <typename Constant>
double take_constant(Expr& e, const Constant& constant) {
  if (e->kind != ExprKind::kBinary) return 0;
  const Expr a = e->operands[0], b = e->operands[1];
  if (e->binary == BinaryOp::kSub) {
    if (const auto c = constant(b)) return e = a, -static_cast<double>(*c);
  } else if (e->binary == BinaryOp::kAdd) {
    if (const auto c = constant(b)) return e = a, static_cast<double>(*c);
    if (const auto c = constant(a)) return e = b, static_cast<double>(*c);
  }
  return 0;
}

// round(number) + zero, not below low and not above high: numbers of a type of 8 bits.
struct Rounded {
  Expr number;
  double zero = 0, low = 0, high = 0;
  bool nan_is_low = false;  // else 0
};

// select(x > low, x, low) before it is rounded: the limit is what NaN becomes.
void take_floor(Rounded& r) {
  const Expr& e = r.number;
  if (e->kind != ExprKind::kSelect || !is_binary(e->operands[0], BinaryOp::kGt)) return;
  const auto low = as_f32(e->operands[2]);
  if (!low || !is_whole(*low) || *low + r.zero < r.low || *low + r.zero > r.high ||
      as_f32(e->operands[0]->operands[1]) != low || !structurally_equal(e->operands[0]->operands[0], e->operands[1]))
    return;
  r.low = *low + r.zero;
  r.nan_is_low = true;
  r.number = Expr(e->operands[1]);
}

// What `e` rounds, if it is a conversion of such to a byte.
std::optional<Rounded> match_rounded(const Expr& e) {
  if (e->kind != ExprKind::kCast || !is_byte(e.dtype()) || e->operands[0].dtype() != DType::kF32) return std::nullopt;
  const bool has_sign = e.dtype() == DType::kI8;
  Expr at = e->operands[0];
  std::vector<std::pair<BinaryOp, double>> limits;  // outermost first
  while (is_binary(at, BinaryOp::kMin) || is_binary(at, BinaryOp::kMax)) {
    const size_t side = as_f32(at->operands[0]) ? 0 : 1;
    const auto limit = as_f32(at->operands[side]);
    if (!limit || !is_whole(*limit)) return std::nullopt;
    limits.emplace_back(at->binary, *limit);
    at = at->operands[1 - side];
  }
  Rounded result;
  result.low = -std::numeric_limits<double>::infinity();
  result.high = -result.low;
  limits.insert(limits.begin(), {{BinaryOp::kMin, has_sign ? 127 : 255}, {BinaryOp::kMax, has_sign ? -128 : 0}});
  for (size_t i = limits.size(); i-- > 0;) {
    const auto [op, limit] = limits[i];
    for (double* end : {&result.low, &result.high})
      *end = op == BinaryOp::kMin ? std::min(*end, limit) : std::max(*end, limit);
  }
  result.zero = take_constant(at, as_f32);
  if (!is_whole(result.zero) || at->kind != ExprKind::kUnary || at->unary != UnaryOp::kRound) return std::nullopt;
  result.number = at->operands[0];
  take_floor(result);
  // NaN becomes 0, which has to be one of the numbers.
  if (!result.nan_is_low && (result.low > 0 || result.high < 0)) return std::nullopt;
  return result;
}

// The number without what is beyond the limits, before zero is added; NaN becomes the lower one, or what is 0 then.
Expr limited(const Rounded& r) {
  Expr x = r.number;
  if (r.low != 0 && !r.nan_is_low) x = select(unary(UnaryOp::kIsNan, x), f32_number(-r.zero), x);
  return within(x, r.low - r.zero, r.high - r.zero);
}

Expr to_byte(const Rounded& r, DType dtype) {
  // An odd number would make halves odd that are to be even.
  const bool even = std::fmod(r.zero, 2) == 0;
  const Expr sum = limited(r) + f32_number(kRoundingAddend + (even ? r.zero : 0));
  const Expr bits = bitcast(DType::kI32, sum);
  return cast(dtype, even ? bits : bits + const_int(DType::kI32, static_cast<int64_t>(r.zero)));
}

// A byte that was rounded, less a constant, as a float.
std::optional<Expr> as_float_again(const Expr& e) {
  if (e->kind != ExprKind::kCast || e.dtype() != DType::kF32) return std::nullopt;
  Expr at = e->operands[0];
  double added = 0;
  if (at.dtype() == DType::kI32) {
    added = take_constant(at, as_int);
    if (!is_whole(added) || at->kind != ExprKind::kCast) return std::nullopt;
    at = at->operands[0];
  }
  const auto rounded = match_rounded(at);
  if (!rounded) return std::nullopt;
  const Expr value = unary(UnaryOp::kRound, limited(*rounded));
  added += rounded->zero;
  return added == 0 ? value : value + f32_number(added);
}

// The least and the largest of the numbers that `e` may be, where these are integers and few.
std::optional<std::pair<int64_t, int64_t>> few_integers(const Expr& e) {
  const auto range = [](double low, double high) -> std::optional<std::pair<int64_t, int64_t>> {
    if (!(high - low < kMostValues) || !is_whole(low) || !is_whole(high)) return std::nullopt;
    return std::pair(static_cast<int64_t>(low), static_cast<int64_t>(high));
  };
  const auto moved = [&](const Expr& of, double by) {
    const auto inner = few_integers(of);
    return inner ? range(static_cast<double>(inner->first) + by, static_cast<double>(inner->second) + by)
                 : std::nullopt;
  };
  if (e->kind == ExprKind::kCast && (e.dtype() == DType::kF32 || e.dtype() == DType::kI32))
    return few_integers(e->operands[0]);
  if (e.dtype() == DType::kU8) return range(0, 255);
  if (e.dtype() == DType::kI8) return range(-128, 127);
  Expr rest = e;
  const double added = e.dtype() == DType::kI32 ? take_constant(rest, as_int) : take_constant(rest, as_f32);
  if (added != 0 && e.dtype() != DType::kI64) return moved(rest, added);
  if (e->kind != ExprKind::kUnary || e->unary != UnaryOp::kRound || !is_binary(e->operands[0], BinaryOp::kMin))
    return std::nullopt;
  // round(min(select(x > low, x, low), high)) is never NaN.
  const Expr &floor = e->operands[0]->operands[0], &high = e->operands[0]->operands[1];
  if (floor->kind != ExprKind::kSelect || !is_binary(floor->operands[0], BinaryOp::kGt)) return std::nullopt;
  const auto low = as_f32(floor->operands[2]), limit = as_f32(floor->operands[0]->operands[1]), top = as_f32(high);
  const bool fits =
      low && top && limit == low && structurally_equal(floor->operands[0]->operands[0], floor->operands[1]);
  return fits ? range(*low, *top) : std::nullopt;
}

// A quotient of what a few bytes decide.
class Quotient {
 public:
  Quotient(const Expr& dividend, double divisor) : dividend_(dividend), divisor_(static_cast<float>(divisor)) {}

  // Without the division; null when some value would be another one.
  Expr replaced() {
    if (!(std::abs(divisor_) > 0x1p-60F && std::abs(divisor_) < 0x1p60F) || !find_leaves(dividend_) ||
        leaves_.empty() || leaves_.size() > 2)
      return {};
    const double exact = 1 / static_cast<double>(divisor_);
    inverse_ = static_cast<float>(exact);
    rest_ = static_cast<float>(exact - static_cast<double>(inverse_));
    const auto [low, high] = leaves_[0].second;
    bool equal = true;
    for (int64_t a = low; equal && a <= high; ++a) {
      values_[0] = static_cast<float>(a);
      if (leaves_.size() == 1) {
        equal = is_equal();
        continue;
      }
      const auto [low_b, high_b] = leaves_[1].second;
      for (int64_t b = low_b; equal && b <= high_b; ++b) {
        values_[1] = static_cast<float>(b);
        equal = is_equal();
      }
    }
    if (!equal) return {};
    return fma(dividend_, f32_number(inverse_), dividend_ * f32_number(rest_));
  }

 private:
  bool find_leaves(const Expr& e) {
    if (as_f32(e)) return true;
    if (const auto range = few_integers(e)) {
      for (const auto& [leaf, known] : leaves_)
        if (structurally_equal(leaf, e)) return true;
      leaves_.emplace_back(e, *range);
      return true;
    }
    const bool known = e->kind == ExprKind::kBinary && e.dtype() == DType::kF32 &&
                       (e->binary == BinaryOp::kAdd || e->binary == BinaryOp::kSub || e->binary == BinaryOp::kMul ||
                        e->binary == BinaryOp::kMin || e->binary == BinaryOp::kMax);
    return known && find_leaves(e->operands[0]) && find_leaves(e->operands[1]);
  }

  float value(const Expr& e) const {
    if (const auto number = as_f32(e)) return static_cast<float>(*number);
    for (size_t i = 0; i < leaves_.size(); ++i)
      if (structurally_equal(leaves_[i].first, e)) return values_[i];
    const float a = value(e->operands[0]), b = value(e->operands[1]);
    switch (e->binary) {
      case BinaryOp::kAdd: return a + b;
      case BinaryOp::kSub: return a - b;
      case BinaryOp::kMul: return a * b;
      case BinaryOp::kMin: return std::min(a, b);
      default: return std::max(a, b);
    }
  }

  // Whether the multiplications give the quotient, however the last one and its sum are rounded.
  bool is_equal() const {
    const float e = value(dividend_), want = e / divisor_, small = e * rest_;
    if (!std::isfinite(want)) return false;
    const double product = static_cast<double>(e) * static_cast<double>(inverse_);
    const auto twice = static_cast<float>(product + static_cast<double>(small));
    return std::fma(e, inverse_, small) == want && twice == want && std::signbit(twice) == std::signbit(want);
  }

  Expr dividend_;
  float divisor_, inverse_ = 0, rest_ = 0;
  std::vector<std::pair<Expr, std::pair<int64_t, int64_t>>> leaves_;
  float values_[2] = {};
};

// A sum of two bytes with factors, of which only the nearest integer within limits counts: as few multiply-adds.
class Combination {
 public:
  explicit Combination(const Rounded& rounded) : rounded_(rounded) {}

  // The number to round instead; null when that would give another integer for some bytes.
  Expr replaced() {
    const auto sum = parts_of(rounded_.number);
    if (!sum || leaves_.empty() || !any_) return {};
    // Few neighbours of the exact factors: each is right for all pairs with about even odds.
    for (int trial = 0; trial < 25; ++trial) {
      factors_[0] = moved(sum->factors[0], trial % 5);
      factors_[1] = moved(sum->factors[1], trial / 5);
      added_ = static_cast<float>(sum->added);
      if (gives_the_same()) return combined();
      if (leaves_.size() == 1 && trial == 4) break;
    }
    return {};
  }

 private:
  struct Parts {
    double factors[2] = {}, added = 0;
  };

  static float moved(double factor, int by) {
    constexpr int kUnits[] = {0, 1, -1, 2, -2};
    auto value = static_cast<float>(factor);
    for (int i = 0; i < std::abs(kUnits[by]); ++i)
      value = std::nextafter(value, kUnits[by] < 0 ? -HUGE_VALF : HUGE_VALF);
    return value;
  }

  // In numbers that are not rounded. Integers less a constant are counted from zero.
  std::optional<Parts> parts_of(const Expr& e) {
    if (const auto number = as_f32(e)) return Parts{{0, 0}, *number};
    if (const auto range = few_integers(e)) {
      Expr leaf = e;
      double added = 0;
      if (e->kind == ExprKind::kCast && e->operands[0].dtype() == DType::kI32) {
        Expr integer = e->operands[0];
        added = take_constant(integer, as_int);
        if (added != 0) leaf = cast(DType::kF32, integer);
      } else {
        added = take_constant(leaf, as_f32);
      }
      size_t i = 0;
      while (i < leaves_.size() && !structurally_equal(leaves_[i].first, leaf)) ++i;
      if (i == leaves_.size()) {
        const auto own = few_integers(leaf);
        if (i == 2 || !own) return std::nullopt;
        leaves_.emplace_back(leaf, *own);
      }
      Parts parts;
      parts.factors[i] = 1;
      parts.added = added;
      return parts;
    }
    if (e->kind != ExprKind::kBinary || e.dtype() != DType::kF32) return std::nullopt;
    any_ = true;
    auto a = parts_of(e->operands[0]);
    if (!a) return std::nullopt;
    const auto b = parts_of(e->operands[1]);
    if (!b) return std::nullopt;
    const auto scaled = [](const Parts& parts, double by) {
      return Parts{{parts.factors[0] * by, parts.factors[1] * by}, parts.added * by};
    };
    const auto is_number = [](const Parts& parts) { return parts.factors[0] == 0 && parts.factors[1] == 0; };
    switch (e->binary) {
      case BinaryOp::kAdd:
      case BinaryOp::kSub: {
        const Parts other = scaled(*b, e->binary == BinaryOp::kAdd ? 1 : -1);
        for (int i = 0; i < 2; ++i) a->factors[i] += other.factors[i];
        a->added += other.added;
        return a;
      }
      case BinaryOp::kMul:
        if (is_number(*b)) return scaled(*a, b->added);
        return is_number(*a) ? std::optional(scaled(*b, a->added)) : std::nullopt;
      case BinaryOp::kDiv:
        return is_number(*b) && b->added != 0 ? std::optional(scaled(*a, 1 / b->added)) : std::nullopt;
      default: return std::nullopt;
    }
  }

  float exact(const Expr& e) const {
    if (const auto number = as_f32(e)) return static_cast<float>(*number);
    for (size_t i = 0; i < leaves_.size(); ++i)
      if (structurally_equal(leaves_[i].first, e)) return values_[i];
    // An integer less a constant.
    if (e->kind == ExprKind::kCast) {
      Expr integer = e->operands[0];
      const double added = take_constant(integer, as_int);
      return static_cast<float>(static_cast<double>(exact(cast(DType::kF32, integer))) + added);
    }
    const float a = exact(e->operands[0]), b = exact(e->operands[1]);
    switch (e->binary) {
      case BinaryOp::kAdd: return a + b;
      case BinaryOp::kSub: return a - b;
      case BinaryOp::kMul: return a * b;
      default: return a / b;
    }
  }

  double nearest(float number) const {
    return std::clamp(static_cast<double>(std::nearbyint(number)), rounded_.low - rounded_.zero,
                      rounded_.high - rounded_.zero);
  }

  bool gives_the_same() {
    const auto [low_a, high_a] = leaves_[0].second;
    const auto [low_b, high_b] = leaves_.size() > 1 ? leaves_[1].second : std::pair<int64_t, int64_t>{0, 0};
    if (wanted_.empty())
      for (int64_t a = low_a; a <= high_a; ++a)
        for (int64_t b = low_b; b <= high_b; ++b) {
          values_[0] = static_cast<float>(a), values_[1] = static_cast<float>(b);
          wanted_.push_back(nearest(exact(rounded_.number)));
        }
    size_t i = 0;
    for (int64_t a = low_a; a <= high_a; ++a)
      for (int64_t b = low_b; b <= high_b; ++b, ++i) {
        const auto x = static_cast<float>(a), y = static_cast<float>(b);
        // However often a multiply-add is rounded.
        const float inner = leaves_.size() < 2 ? added_
                            : added_ == 0      ? y * factors_[1]
                                               : std::fma(y, factors_[1], added_);
        const float twice =
            static_cast<float>(static_cast<double>(y) * static_cast<double>(factors_[1]) + static_cast<double>(added_));
        if (leaves_.size() > 1 && added_ != 0 && twice != inner) return false;
        const double product = static_cast<double>(x) * static_cast<double>(factors_[0]);
        if (nearest(std::fma(x, factors_[0], inner)) != wanted_[i] ||
            nearest(static_cast<float>(product + static_cast<double>(inner))) != wanted_[i])
          return false;
      }
    return true;
  }

  Expr combined() const {
    const Expr &a = leaves_[0].first, first = f32_number(factors_[0]);
    if (leaves_.size() < 2) return added_ == 0 ? a * first : fma(a, first, f32_number(added_));
    const Expr b = leaves_[1].first, second = f32_number(factors_[1]);
    return fma(a, first, added_ == 0 ? b * second : fma(b, second, f32_number(added_)));
  }

  Rounded rounded_;
  std::vector<std::pair<Expr, std::pair<int64_t, int64_t>>> leaves_;
  std::vector<double> wanted_;
  float values_[2] = {}, factors_[2] = {}, added_ = 0;
  bool any_ = false;
};

// A number that is limited, multiplied and divided by constants before it is rounded to a byte: a step function of it,
// as is one product by all factors within limits. They are the same if they go on from byte to byte at the same
// numbers, to which the product's next 24 bits see.
class ScaledNumber {
 public:
  explicit ScaledNumber(const Rounded& rounded) : rounded_(rounded) {}

  // What to round instead, within its limits; empty where some step would be at another number.
  std::optional<Rounded> replaced() {
    Expr base = rounded_.number;
    while (take_step(base)) {
    }
    std::ranges::reverse(steps_);
    if (!divides_ || !(factor_ > 0x1p-60 && factor_ < 0x1p60)) return std::nullopt;
    // Rounded down, so that both parts are positive and infinity stays what it is; NaN stays NaN.
    inverse_ = static_cast<float>(factor_);
    if (static_cast<double>(inverse_) > factor_) inverse_ = std::nextafter(inverse_, 0.0F);
    rest_ = static_cast<float>(factor_ - static_cast<double>(inverse_));
    Rounded result = rounded_;
    result.low = std::max(rounded_.low, stepped(-HUGE_VALF) + rounded_.zero);
    result.high = std::min(rounded_.high, stepped(HUGE_VALF) + rounded_.zero);
    const double low = result.low - result.zero, high = result.high - result.zero;
    if (!(result.low <= 0 && result.high >= 0) || !is_whole(low) || !is_whole(high)) return std::nullopt;
    for (double byte = low + 1; byte <= high; ++byte) {
      const float first = first_that_reaches(byte);
      if (multiplied(first) < byte || multiplied(std::nextafter(first, -HUGE_VALF)) >= byte) return std::nullopt;
    }
    result.number = base * f32_number(inverse_);
    if (rest_ != 0) result.number = fma(base, f32_number(inverse_), base * f32_number(rest_));
    return result;
  }

 private:
  // Takes the last step off `e`.
  bool take_step(Expr& e) {
    if (e->kind != ExprKind::kBinary) return false;
    const BinaryOp op = e->binary;
    const bool is_quotient = op == BinaryOp::kDiv;
    if (!is_quotient && op != BinaryOp::kMul && op != BinaryOp::kMin && op != BinaryOp::kMax) return false;
    const size_t side = !is_quotient && as_f32(e->operands[0]) ? 0 : 1;
    const auto constant = as_f32(e->operands[side]);
    if (!constant || !std::isfinite(*constant)) return false;
    const bool scales = is_quotient || op == BinaryOp::kMul;
    if (scales && !(*constant > 0x1p-60 && *constant < 0x1p60)) return false;
    if (scales) factor_ *= is_quotient ? 1 / *constant : *constant;
    divides_ |= is_quotient;
    steps_.emplace_back(op, static_cast<float>(*constant));
    e = e->operands[1 - side];
    return true;
  }

  double stepped(float x) const {
    for (const auto& [op, constant] : steps_) switch (op) {
        case BinaryOp::kDiv: x /= constant; break;
        case BinaryOp::kMul: x *= constant; break;
        case BinaryOp::kMin: x = std::min(x, constant); break;
        default: x = std::max(x, constant);
      }
    return std::nearbyint(x);
  }
  double multiplied(float x) const {
    return std::nearbyint(rest_ == 0 ? x * inverse_ : std::fma(x, inverse_, x * rest_));
  }

  // The least number that is rounded to at least `byte`. REQUIRES: there is one, and one that is not.
  float first_that_reaches(double byte) const {
    // Floats in their order, as integers.
    const auto ordered = [](float x) {
      const auto bits = std::bit_cast<int32_t>(x);
      return int64_t{bits < 0 ? INT32_MIN - bits : bits};
    };
    const auto number = [](int64_t place) {
      return std::bit_cast<float>(static_cast<int32_t>(place < 0 ? INT32_MIN - place : place));
    };
    int64_t below = ordered(-HUGE_VALF), reaches = ordered(HUGE_VALF);
    while (reaches - below > 1) {
      const int64_t middle = below + (reaches - below) / 2;
      (stepped(number(middle)) >= byte ? reaches : below) = middle;
    }
    return number(reaches);
  }

  Rounded rounded_;
  std::vector<std::pair<BinaryOp, float>> steps_;  // the first one first
  double factor_ = 1;
  bool divides_ = false;
  float inverse_ = 0, rest_ = 0;
};

Expr without_division(const Expr& e, const Target& target) {
  if (target.has_fma() && e.dtype() == DType::kF32 && is_binary(e, BinaryOp::kDiv))
    if (const auto divisor = as_f32(e->operands[1])) return Quotient(e->operands[0], *divisor).replaced();
  return {};
}

// cast:u8(cast:i32(cast:i8(cast:i32(b) - 128)) + 128): a byte b that went to the other type's numbers and came back.
Expr moved_back(const Expr& e) {
  if (e->kind != ExprKind::kCast || !is_byte(e.dtype()) || e->operands[0].dtype() != DType::kI32) return {};
  Expr at = e->operands[0];
  const double back = take_constant(at, as_int);
  const auto is_wide_byte = [](const Expr& x) {
    return x->kind == ExprKind::kCast && x.dtype() == DType::kI32 && is_byte(x->operands[0].dtype());
  };
  if (back != (e.dtype() == DType::kU8 ? 128 : -128) || !is_wide_byte(at)) return {};
  const Expr other = at->operands[0];
  if (other.dtype() == e.dtype() || other->kind != ExprKind::kCast || other->operands[0].dtype() != DType::kI32)
    return {};
  at = other->operands[0];
  if (take_constant(at, as_int) != -back || !is_wide_byte(at)) return {};
  return at->operands[0].dtype() == e.dtype() ? at->operands[0] : Expr();
}

}  // namespace

LoopProgram byte_rounding(const LoopProgram& program, const LoopPassContext& ctx) {
  bool any = false;
  walk(program.body, [](const Stmt&) {}, [&](const Expr& e) { any = any || is_byte(e.dtype()); });
  if (!any) return program;
  LoopProgram result = program;
  // Floats of bytes first: what is left is stored as bytes.
  const auto rounded_value = [&](const Expr& value) {
    const Expr own = transform(value, moved_back);
    const Expr floats = transform(own, [](const Expr& e) { return as_float_again(e).value_or(Expr()); });
    const Expr combined = transform(floats, [&](const Expr& e) -> Expr {
      auto rounded = match_rounded(e);
      if (!rounded) return Expr();
      if (ctx.target.has_fma()) {
        if (const Expr number = Combination(*rounded).replaced()) rounded->number = number;
        else if (const auto scaled = ScaledNumber(*rounded).replaced()) rounded = scaled;
      }
      return to_byte(*rounded, e.dtype());
    });
    return transform(combined, [&](const Expr& e) { return without_division(e, ctx.target); });
  };
  result.body = rewrite_statements(program.body, [&](const Stmt& s) -> Stmt {
    if (s->kind != StmtKind::kStore) return {};
    const Expr value = rounded_value(s->value);
    return value.same_node(s->value) ? Stmt() : store(s->buffer, s->indices, value);
  });
  return result;
}

}  // namespace tessera::inline loop_passes
