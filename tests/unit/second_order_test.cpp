// Gradients of gradients: derivatives forward, <J t, g> = <t, J' g>, and second derivatives against differences.
#include "unit/derivative_case.h"

namespace tessera {
namespace {

using Ints = std::vector<int64_t>;
using Case = DerivativeCase;

const std::vector<Ints> kShapes = {{}, {1}, {5}, {3, 1, 2}, {0}, {2, 0, 3}};

TEST(SecondOrder, Unary) {
  struct Row {
    const char* op;
    double lo, hi;
  };
  const Row rows[] = {{"neg", -2, 2},      {"abs", 0.1, 2},   {"exp", -2, 2},      {"log", 0.3, 3}, {"sqrt", 0.3, 3},
                      {"tanh", -2, 2},     {"erf", -2, 2},    {"sin", -4, 4},      {"cos", -4, 4},  {"tan", -1, 1},
                      {"asin", -0.8, 0.8}, {"atan", -3, 3},   {"acos", -0.8, 0.8}, {"sinh", -2, 2}, {"cosh", -2, 2},
                      {"asinh", -3, 3},    {"acosh", 1.3, 4}, {"atanh", -0.8, 0.8}};
  for (const Row& row : rows)
    for (const Ints& dims : kShapes) {
      SCOPED_TRACE(row.op);
      Case c(dims.size());
      c.expect_derivatives(c.op(row.op, {c.input(dims, row.lo, row.hi)}));
    }
}

TEST(SecondOrder, BinaryWithBroadcasting) {
  const std::pair<Ints, Ints> shapes[] = {{{3}, {3}}, {{2, 3}, {3}}, {{2, 1}, {1, 3}}, {{}, {4}}, {{0}, {1}}};
  for (const char* name : {"add", "sub", "mul", "div", "pow", "min", "max"})
    for (const auto& [a, b] : shapes) {
      SCOPED_TRACE(name);
      Case c(7);
      c.expect_derivatives(c.op(name, {c.input(a, 0.5, 1), c.input(b, 1.2, 1.9)}));
    }
}

TEST(SecondOrder, Products) {
  for (const bool ta : {false, true})
    for (const bool tb : {false, true})
      for (const auto& [left, right] : {std::pair<Ints, Ints>{{}, {}}, {{2}, {}}, {{2, 1}, {3}}})
        for (const Ints& mnk : {Ints{3, 2, 4}, Ints{1, 1, 1}, Ints{2, 3, 0}}) {
          Case c(3);
          Ints a = left, b = right;
          a.insert(a.end(), {ta ? mnk[2] : mnk[0], ta ? mnk[0] : mnk[2]});
          b.insert(b.end(), {tb ? mnk[1] : mnk[2], tb ? mnk[2] : mnk[1]});
          c.expect_derivatives(c.op("matmul", {c.input(a), c.input(b)}, {{"transpose_a", ta}, {"transpose_b", tb}}));
        }
}

TEST(SecondOrder, Convolutions) {
  for (uint64_t seed = 0; seed < 24; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Case c(seed);
    const size_t rank = 1 + seed % 2;
    const int64_t groups = c.roll(1, 2), in = groups * c.roll(1, 2), out = groups * c.roll(1, 2);
    Ints x{c.roll(1, 2), in}, w{out, in / groups}, strides, dilations, stretch, begin, end;
    for (size_t d = 0; d < rank; ++d) {
      w.push_back(c.roll(1, 3));
      dilations.push_back(c.roll(1, 2));
      strides.push_back(c.roll(1, 2));
      stretch.push_back(c.roll(1, 2));
      begin.push_back(c.roll(0, 1));
      end.push_back(c.roll(0, 1));
      x.push_back((w.back() - 1) * dilations.back() + 1 + c.roll(0, 3));
    }
    c.expect_derivatives(c.op("conv", {c.input(x), c.input(w)},
                              {{"strides", strides},
                               {"pads_begin", begin},
                               {"pads_end", end},
                               {"dilations", dilations},
                               {"input_dilations", stretch},
                               {"groups", groups}}));
  }
}

TEST(SecondOrder, Reductions) {
  for (const char* kind : {"sum", "prod", "max", "min"})
    for (const bool keepdims : {false, true})
      for (const Ints& axes : {Ints{0}, Ints{1}, Ints{0, 2}}) {
        SCOPED_TRACE(kind);
        Case c(5);
        c.expect_derivatives(c.op("reduce", {c.input({2, 3, 2}, 0.5, 2)},
                                  {{"axes", axes}, {"keepdims", keepdims}, {"kind", std::string(kind)}}));
      }
}

TEST(SecondOrder, Composites) {
  // Off their kinks.
  for (const char* name : {"relu", "sigmoid", "silu", "softplus", "mish", "hard_swish", "gelu", "softsign"})
    for (const Ints& dims : {Ints{}, Ints{5}, Ints{2, 0}, Ints{3, 2}}) {
      SCOPED_TRACE(name);
      for (const double lo : {-1.9, 0.2}) {
        Case c(dims.size());
        const std::string op = name;
        const Attrs attrs =
            op == "gelu" ? Attrs{{"approximate", std::string(dims.size() % 2 ? "tanh" : "none")}} : Attrs{};
        c.expect_derivatives(c.composite(op, {c.input(dims, lo, lo + 1.5)}, attrs));
      }
    }
  for (const char* name : {"softmax", "log_softmax"})
    for (const int64_t axis : {0, 1, 2}) {
      SCOPED_TRACE(name);
      Case c(9);
      c.expect_derivatives(c.composite(name, {c.input({2, 3, 4}, -2, 2)}, {{"axis", axis}}));
    }
  Case norm(4);
  norm.expect_derivatives(norm.composite("layer_norm", {norm.input({3, 4}), norm.input({4}), norm.input({4})},
                                         {{"axis", int64_t{1}}, {"epsilon", 0.1}}));
}

// Values with several readers, broadcasting, views, products and composites together.
TEST(SecondOrder, RandomGraphs) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Case c(seed);
    std::vector<ValueId> values = {c.input({3, 4}), c.input({4}), c.input({1, 4}), c.input({2, 3, 4})};
    const ValueId square = c.input({4, 4});
    const auto any = [&] {
      const int64_t last = std::ssize(values) - 1;
      return values[static_cast<size_t>(last - c.roll(0, std::min<int64_t>(last, 4)))];
    };
    for (int step = 0; step < 7; ++step) {
      const ValueId x = any();
      const Ints dims = c.dims(x);
      const auto last = static_cast<int64_t>(dims.size()) - 1;
      switch (c.roll(0, 8)) {
        case 0: values.push_back(c.op("tanh", {x})); break;
        case 1: values.push_back(c.op("mul", {x, values[1]})); break;
        case 2: values.push_back(c.op("add", {x, values[2]})); break;
        case 3:
          if (last > 0) values.push_back(c.op("tanh", {c.op("matmul", {x, square})}));
          break;
        case 4: values.push_back(c.composite("softmax", {x}, {{"axis", last}})); break;
        case 5: values.push_back(c.composite("sigmoid", {x})); break;
        case 6:
          values.push_back(c.composite("layer_norm", {x, values[1], values[1]}, {{"axis", last}, {"epsilon", 0.5}}));
          break;
        case 7:
          values.push_back(
              c.op("sub",
                   {x, c.op("reduce", {x}, {{"axes", Ints{last}}, {"keepdims", true}, {"kind", std::string("sum")}})}));
          break;
        default: values.push_back(c.op("sin", {c.op("exp", {c.op("sin", {x})})})); break;
      }
    }
    c.expect_derivatives(c.op("sin", {values.back()}), 1e-5);
    if (testing::Test::HasFailure()) break;
  }
}

}  // namespace
}  // namespace tessera
