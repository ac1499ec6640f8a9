// What index maps say of random bodies, held against the indices themselves at every point of the axes.
#include "te/index_map.h"

#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <set>

#include <gtest/gtest.h>

namespace tessera {
namespace {

using Point = std::map<const ExprNode*, int64_t>;  // of axis variables

int64_t floor_quotient(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0); }

// An evaluator of its own: it shares nothing with the simplifier. What is loaded is a function of the place.
int64_t evaluate(const Expr& e, const Point& point) {
  if (e->kind == ExprKind::kConst) return e->int_value;
  if (e->kind == ExprKind::kVar) return point.at(e.get());
  if (e->kind == ExprKind::kLoad) {
    int64_t hash = 17;
    for (const Expr& index : e->operands) hash = hash * 31 + evaluate(index, point) * 7;
    return hash % 5;
  }
  const int64_t a = evaluate(e->operands[0], point), b = evaluate(e->operands[1], point);
  switch (e->binary) {
    case BinaryOp::kAdd: return a + b;
    case BinaryOp::kSub: return a - b;
    case BinaryOp::kMul: return a * b;
    case BinaryOp::kFloorDiv: return floor_quotient(a, b);
    case BinaryOp::kFloorMod: return a - floor_quotient(a, b) * b;
    default: ADD_FAILURE() << "another operator"; return 0;
  }
}

class RandomBody {
 public:
  explicit RandomBody(uint64_t seed) : random_(seed) {
    for (const bool reduced : {false, true}) {
      std::vector<Axis>& axes = reduced ? body_.reduce_axes : body_.axes;
      const int64_t count = reduced ? number(0, 2) : number(1, 3);
      for (int64_t i = 0; i < count; ++i) axes.push_back({make_var(reduced ? "r" : "i"), Expr(number(1, 6))});
      for (size_t i = 0; i < axes.size(); ++i) refs_.push_back({reduced, i});
    }
    if (!body_.reduce_axes.empty()) body_.combiner = Combiner::kSum;
    const int64_t inputs = number(1, 2);
    for (int64_t i = 0; i < inputs; ++i)
      body_.inputs.push_back(make_buffer("x", DType::kF32, Shape(static_cast<size_t>(number(1, 3)), Expr(1000))));
    table_ = make_buffer("table", DType::kI64, {Expr(1000)});
    const int64_t loads = number(1, 3);
    for (int64_t i = 0; i < loads; ++i) {
      const BufferPtr& input = body_.inputs[static_cast<size_t>(number(0, inputs - 1))];
      std::vector<Expr> index;
      for (size_t d = 0; d < input->shape.size(); ++d) index.push_back(random_index());
      const Expr value = load(input, index);
      body_.value = body_.value ? body_.value + value : value;
    }
  }

  const Body& body() const { return body_; }
  const std::vector<AxisRef>& refs() const { return refs_; }

  std::vector<Point> points() const {
    std::vector<Point> points = {{}};
    for (const AxisRef ref : refs_) {
      std::vector<Point> more;
      for (const Point& point : points)
        for (int64_t at = 0; at < extent(ref); ++at) {
          more.push_back(point);
          more.back()[var(ref)] = at;
        }
      points = std::move(more);
    }
    return points;
  }

  int64_t extent(AxisRef ref) const { return *as_int(axis_of(body_, ref).extent); }
  const ExprNode* var(AxisRef ref) const { return axis_of(body_, ref).var.get(); }

 private:
  int64_t number(int64_t lo, int64_t hi) { return std::uniform_int_distribution<int64_t>(lo, hi)(random_); }
  Expr axis() { return axis_of(body_, refs_[static_cast<size_t>(number(0, std::ssize(refs_) - 1))]).var; }

  Expr term() {
    switch (number(0, 9)) {
      case 0: return floordiv(axis(), Expr(number(1, 4)));
      case 1: return floormod(axis(), Expr(number(1, 4)));
      case 2: return floormod(floordiv(axis(), Expr(number(1, 3))), Expr(number(1, 3)));
      case 3: return floordiv(floormod(axis(), Expr(number(1, 4))), Expr(number(1, 2)));
      case 4: return floordiv(axis() * Expr(number(1, 3)) + axis(), Expr(number(1, 4)));
      case 5: return load(table_, {axis()});
      default: return axis();
    }
  }

  Expr random_index() {
    if (number(0, 3) == 0) return axis();
    Expr sum = number(-3, 3);
    const int64_t terms = number(0, 3);
    for (int64_t i = 0; i < terms; ++i) sum = sum + term() * Expr(number(-3, 3));
    return sum;
  }

  std::mt19937_64 random_;
  Body body_;
  std::vector<AxisRef> refs_;
  BufferPtr table_;
};

class IndexMaps : public testing::TestWithParam<uint64_t> {};

TEST_P(IndexMaps, SayWhatTheIndicesAre) {
  const RandomBody random(GetParam());
  const Body& body = random.body();
  const std::vector<Point> points = random.points();
  for (const IndexMap& map : index_maps(body)) {
    ASSERT_EQ(map.dims.size(), map.load->operands.size());
    std::set<std::vector<int64_t>> places;
    for (const Point& point : points) {
      std::vector<int64_t> place;
      for (const IndexDim& dim : map.dims) place.push_back(evaluate(dim.index, point));
      places.insert(place);
    }
    if (!may_repeat(body, map)) {
      EXPECT_EQ(places.size(), points.size());
    }
    for (const IndexDim& dim : map.dims) {
      SCOPED_TRACE(to_string(dim.index));
      if (dim.sole) {
        EXPECT_TRUE(dim.index.same_node(axis_of(body, *dim.sole).var));
      }
      for (const Point& point : points) {
        const int64_t here = evaluate(dim.index, point);
        int64_t linear = dim.is_linear() ? evaluate(dim.offset(body), {}) : 0;
        for (const AxisRef ref : random.refs()) {
          Point origin = point;
          origin[random.var(ref)] = 0;
          const int64_t at = point.at(random.var(ref)), moved = here - evaluate(dim.index, origin);
          const AxisUse* use = dim.use_of(ref);
          if (!use) {
            EXPECT_EQ(moved, 0);
          }
          if (!use) continue;
          if (use->coefficient) {
            EXPECT_EQ(moved, *use->coefficient * at);
          }
          if (use->coefficient) linear += *use->coefficient * at;
          if (use->radix) {
            const IndexRadix& radix = *use->radix;
            const int64_t quotient = at / radix.divisor;
            EXPECT_EQ(moved, radix.coefficient * (radix.modulus > 0 ? quotient % radix.modulus : quotient));
          }
        }
        if (dim.is_linear()) {
          EXPECT_EQ(here, linear);
        }
      }
    }
  }
}

TEST_P(IndexMaps, WindowsHoldTheIndices) {
  const RandomBody random(GetParam());
  const Body& body = random.body();
  for (const IndexMap& map : index_maps(body))
    for (const IndexDim& dim : map.dims)
      for (size_t axis = 0; axis < body.axes.size(); ++axis) {
        SCOPED_TRACE(to_string(dim.index));
        const std::optional<IndexWindow> window = window_along(body, dim, axis);
        const bool others = std::any_of(dim.uses.begin(), dim.uses.end(), [&](const AxisUse& use) {
          return !use.axis.reduced && use.axis.number != axis && use.coefficient != 0;
        });
        if (dim.is_linear() && !others) {
          EXPECT_TRUE(window.has_value());
        }
        if (!window) continue;
        int64_t lo = INT64_MAX, hi = INT64_MIN;
        for (const Point& point : random.points()) {
          const int64_t rest = evaluate(dim.index, point) - window->step * point.at(body.axes[axis].var.get());
          lo = std::min(lo, rest);
          hi = std::max(hi, rest);
        }
        EXPECT_LE(window->lo, lo);
        EXPECT_GE(window->hi, hi);
        if (dim.is_linear()) {
          EXPECT_EQ(std::pair(window->lo, window->hi), std::pair(lo, hi));
        }
      }
}

INSTANTIATE_TEST_SUITE_P(Random, IndexMaps, testing::Range<uint64_t>(0, 400));

// ---- what the random bodies may not meet, by name ----

Body body_over(std::vector<int64_t> extents, std::vector<int64_t> reduced) {
  Body body;
  for (const int64_t extent : extents) body.axes.push_back({make_var("i"), Expr(extent)});
  for (const int64_t extent : reduced) body.reduce_axes.push_back({make_var("r"), Expr(extent)});
  if (!reduced.empty()) body.combiner = Combiner::kSum;
  return body;
}

TEST(IndexMap, ReadsFactorsAndOffsetsOfAConvolution) {
  Body body = body_over({4, 8}, {3});
  body.inputs = {make_buffer("x", DType::kF32, {Expr(4), Expr(20)})};
  const Expr place = body.axes[1].var * Expr(2) + body.reduce_axes[0].var * Expr(3) - Expr(1);
  body.value = load(body.inputs[0], {body.axes[0].var, place});
  const std::vector<IndexMap> maps = index_maps(body);
  ASSERT_EQ(maps.size(), 1u);
  EXPECT_EQ(maps[0].dims[0].sole, (AxisRef{false, 0}));
  const IndexDim& dim = maps[0].dims[1];
  EXPECT_TRUE(dim.is_linear());
  EXPECT_EQ(dim.use_of({false, 1})->coefficient, 2);
  EXPECT_EQ(dim.use_of({true, 0})->coefficient, 3);
  EXPECT_EQ(as_int(dim.offset(body)), -1);
  const auto window = window_along(body, dim, 1);
  ASSERT_TRUE(window.has_value());
  EXPECT_EQ(window->step, 2);
  EXPECT_EQ(window->lo, -1);
  EXPECT_EQ(window->hi, 5);
  EXPECT_TRUE(may_repeat(body, maps[0]));
}

TEST(IndexMap, ReadsDigitsOfAReshape) {
  Body body = body_over({24}, {});
  body.inputs = {make_buffer("x", DType::kF32, {Expr(2), Expr(3), Expr(4)})};
  const Expr& i = body.axes[0].var;
  body.value = load(body.inputs[0], {floordiv(i, 12), floormod(floordiv(i, 4), 3), floormod(i, 4)});
  const std::vector<IndexMap> maps = index_maps(body);
  ASSERT_EQ(maps.size(), 1u);
  const auto radix = [&](size_t d) { return maps[0].dims[d].use_of({false, 0})->radix; };
  EXPECT_EQ(radix(0), (IndexRadix{1, 12, 0}));
  EXPECT_EQ(radix(1), (IndexRadix{1, 4, 3}));
  EXPECT_EQ(radix(2), (IndexRadix{1, 1, 4}));
}

TEST(IndexMap, SaysWhichIndicesAreData) {
  Body body = body_over({4, 8}, {});
  body.inputs = {make_buffer("x", DType::kF32, {Expr(9), Expr(8)}), make_buffer("at", DType::kI64, {Expr(4)})};
  body.value = load(body.inputs[0], {load(body.inputs[1], {body.axes[0].var}), body.axes[1].var});
  const std::vector<IndexMap> maps = index_maps(body);
  ASSERT_EQ(maps.size(), 2u);
  EXPECT_TRUE(maps[0].dims[0].by_data);
  EXPECT_FALSE(maps[0].dims[0].is_linear());
  EXPECT_FALSE(maps[0].dims[1].by_data);
  EXPECT_EQ(index_maps(body, body.inputs[1].get()).size(), 1u);
}

// ---- linear in which operand ----

// The value of the body's expression at one point for elements of x and y.
double value_of(const Expr& e, double x, double y) {
  const auto of = [&](size_t i) { return value_of(e->operands[i], x, y); };
  switch (e->kind) {
    case ExprKind::kConst: return is_float(e->dtype) ? e->float_value : static_cast<double>(e->int_value);
    case ExprKind::kLoad: return e->buffer->name == "x" ? x : y;
    case ExprKind::kCast: return of(0);
    case ExprKind::kUnary: return e->unary == UnaryOp::kNeg ? -of(0) : std::abs(of(0));
    case ExprKind::kSelect: return of(0) != 0 ? of(1) : of(2);
    default: break;
  }
  switch (e->binary) {
    case BinaryOp::kAdd: return of(0) + of(1);
    case BinaryOp::kSub: return of(0) - of(1);
    case BinaryOp::kMul: return of(0) * of(1);
    case BinaryOp::kDiv: return of(0) / of(1);
    case BinaryOp::kMax: return std::max(of(0), of(1));
    case BinaryOp::kLt: return of(0) < of(1) ? 1 : 0;
    default: ADD_FAILURE() << "another operator"; return 0;
  }
}

TEST(IndexMap, LinearOperandsAreLinear) {
  std::mt19937_64 random(7);
  const auto number = [&](int64_t lo, int64_t hi) { return std::uniform_int_distribution<int64_t>(lo, hi)(random); };
  Body body = body_over({4}, {});
  body.inputs = {make_buffer("x", DType::kF64, {Expr(4)}), make_buffer("y", DType::kF64, {Expr(4)})};
  const std::function<Expr(int)> value = [&](int depth) -> Expr {
    const int64_t kind = depth == 0 ? number(0, 2) : number(0, 9);
    if (kind < 2) return load(body.inputs[static_cast<size_t>(kind)], {body.axes[0].var});
    if (kind == 2) return const_of(DType::kF64, static_cast<double>(number(0, 2)));
    const Expr a = value(depth - 1), b = value(depth - 1);
    switch (kind) {
      case 3: return a + b;
      case 4: return a - b;
      case 5: return a * b;
      case 6: return binary(BinaryOp::kDiv, a, const_of(DType::kF64, 3) + b * b);
      case 7: return max(a, b);
      case 8: return -a;
      default: return select(a < b, a, b);
    }
  };
  int linear = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    body.value = value(3);
    for (size_t operand = 0; operand < 2; ++operand) {
      if (!is_linear_in(body, body.inputs[operand].get())) continue;
      ++linear;
      for (const double other : {-1.5, 0.0, 2.0}) {
        const auto f = [&](double v) {
          return operand == 0 ? value_of(body.value, v, other) : value_of(body.value, other, v);
        };
        const double scale = 1 + std::abs(f(1)) + std::abs(f(-2.5));
        EXPECT_NEAR(f(0), 0, 1e-9 * scale) << to_string(body.value);
        EXPECT_NEAR(f(3) + f(-2.5), f(0.5), 1e-9 * scale) << to_string(body.value);
        EXPECT_NEAR(4 * f(1.5), f(6), 1e-9 * scale) << to_string(body.value);
      }
    }
  }
  EXPECT_GT(linear, 100);
}

TEST(IndexMap, PaddedProductsAreLinearInBothOperands) {
  Body body = body_over({8}, {3});
  body.inputs = {make_buffer("x", DType::kF32, {Expr(8)}), make_buffer("w", DType::kF32, {Expr(3)})};
  const Expr place = body.axes[0].var + body.reduce_axes[0].var - Expr(1);
  const Expr inside = logical_and(Expr(0) <= place, place < Expr(8));
  const Expr padded = select(inside, load(body.inputs[0], {place}), const_of(DType::kF32, 0));
  body.value = padded * load(body.inputs[1], {body.reduce_axes[0].var});
  EXPECT_TRUE(is_linear_in(body, body.inputs[0].get()));
  EXPECT_TRUE(is_linear_in(body, body.inputs[1].get()));
  body.combiner = Combiner::kMax;
  EXPECT_FALSE(is_linear_in(body, body.inputs[0].get()));
  // Padding with another number has a constant term.
  body.combiner = Combiner::kSum;
  body.value = select(inside, load(body.inputs[0], {place}), const_of(DType::kF32, 1));
  EXPECT_FALSE(is_linear_in(body, body.inputs[0].get()));
}

}  // namespace
}  // namespace tessera
