// Gradients of operators and composites against central differences in f64, computed by the interpreter.
#include "gradient_case.h"

#include <fmt/format.h>

#include "interp/ranks.h"
#include "support/error.h"

namespace tessera {
namespace {

const std::vector<Ints> kShapes = {{}, {1}, {5}, {3, 1, 2}, {0}, {2, 0, 3}, {1, 7}};

TEST(Gradients, Unary) {
  struct Row {
    const char* op;
    double lo, hi;
  };
  const Row rows[] = {{"neg", -2, 2},      {"abs", 0.1, 2},   {"abs", -2, -0.1},    {"exp", -2, 2},
                      {"log", 0.2, 3},     {"sqrt", 0.2, 3},  {"tanh", -2, 2},      {"erf", -2, 2},
                      {"sin", -4, 4},      {"cos", -4, 4},    {"tan", -1, 1},       {"asin", -0.9, .9},
                      {"acos", -0.9, 0.9}, {"atan", -3, 3},   {"sinh", -2, 2},      {"cosh", -2, 2},
                      {"asinh", -3, 3},    {"acosh", 1.2, 4}, {"atanh", -0.9, 0.9}, {"sign", 0.1, 2},
                      {"floor", .1, .9},   {"ceil", .1, .9},  {"round", .6, 1.4}};
  for (const Row& row : rows)
    for (const Ints& dims : kShapes) {
      SCOPED_TRACE(row.op);
      Case c(dims.size());
      c.expect_differences(c.op(row.op, {c.input(dims, row.lo, row.hi)}));
    }
}

TEST(Gradients, BinaryWithBroadcasting) {
  const std::pair<Ints, Ints> shapes[] = {{{3}, {3}},       {{2, 3}, {3}},       {{2, 3}, {2, 1}}, {{2, 1}, {1, 3}},
                                          {{}, {4}},        {{3, 1, 5}, {2, 1}}, {{0}, {1}},       {{2, 0}, {2, 1}},
                                          {{1, 1}, {1, 1}}, {{1}, {2, 3, 2}}};
  for (const char* name : {"add", "sub", "mul", "div", "pow", "min", "max", "rem"})
    for (const auto& [a, b] : shapes) {
      SCOPED_TRACE(name);
      Case c(7);
      const std::string op = name;
      // Away from ties, jumps and poles.
      const ValueId x = c.input(a, op == "rem" ? 2.1 : 0.5, op == "rem" ? 2.9 : 1), y = c.input(b, 1.2, 1.9);
      c.expect_differences(c.op(op, op == "min" ? std::vector<ValueId>{y, x} : std::vector<ValueId>{x, y}));
    }
  Case negative(1);
  negative.expect_differences(negative.op("pow", {negative.input({4}, -2, -0.5), negative.constant([] {
                                                    Tensor two(DType::kF64, {});
                                                    two.set_double(0, 3);
                                                    return two;
                                                  }())}));
}

// As PyTorch has them: a power of 0 does not depend on an exponent of 0 or more, and one of less than 0 has no
// derivative.
TEST(Gradients, ExponentsOfPowers) {
  Case c(2);
  const ValueId x = c.given({6}, {0, 0, 0, -2, -2, 2}), y = c.given({6}, {0, 2, -1, 2, -1, 0});
  const Tensor exponents = c.found(c.op("pow", {x, y}))[1];
  EXPECT_EQ(exponents.get_double(0), 0);
  EXPECT_EQ(exponents.get_double(1), 0);
  EXPECT_TRUE(std::isinf(exponents.get_double(2)));
  EXPECT_TRUE(std::isnan(exponents.get_double(3)));
  EXPECT_TRUE(std::isnan(exponents.get_double(4)));
  EXPECT_NE(exponents.get_double(5), 0);
}

TEST(Gradients, Products) {
  const std::pair<Ints, Ints> batches[] = {{{}, {}}, {{2}, {2}}, {{2}, {}}, {{}, {3}}, {{2, 1}, {3}}, {{1}, {0}}};
  for (const bool ta : {false, true})
    for (const bool tb : {false, true})
      for (const auto& [left, right] : batches)
        for (const Ints& mnk : {Ints{3, 2, 4}, Ints{1, 1, 1}, Ints{2, 3, 0}, Ints{0, 2, 3}}) {
          Case c(3);
          Ints a = left, b = right;
          a.insert(a.end(), {ta ? mnk[2] : mnk[0], ta ? mnk[0] : mnk[2]});
          b.insert(b.end(), {tb ? mnk[1] : mnk[2], tb ? mnk[2] : mnk[1]});
          const ValueId x = c.input(a), y = c.input(b);
          c.expect_differences(c.op("matmul", {x, y}, {{"transpose_a", ta}, {"transpose_b", tb}}));
        }
}

// Of convolutions, and of the gradients of their weights: random forms.
TEST(Gradients, Convolutions) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Case c(seed);
    const auto roll = [&](int64_t lo, int64_t hi) {
      return lo + static_cast<int64_t>(c.below(static_cast<uint64_t>(hi - lo + 1)));
    };
    const size_t rank = seed % 5 == 0 ? 1 : seed % 5 == 1 ? 3 : 2;
    const int64_t groups = roll(1, 2), in = roll(1, 2), out = roll(1, 2), batch = seed % 13 == 0 ? 0 : roll(1, 2);
    Ints x = {batch, groups * in}, w = {groups * out, in}, dy = {batch, groups * out}, window, strides, begin, end,
         dilations, gaps;
    for (size_t d = 0; d < rank; ++d) {
      window.push_back(roll(1, 3));
      strides.push_back(roll(1, 3));
      begin.push_back(roll(-1, 2));
      end.push_back(roll(-1, 2));
      dilations.push_back(roll(1, 2));
      gaps.push_back(roll(1, 2));
      x.push_back(roll(2, rank == 3 ? 3 : 5));
      int64_t room = (x.back() - 1) * gaps[d] + 1 + begin[d] + end[d] - ((window[d] - 1) * dilations[d] + 1);
      if (room < 0) end[d] -= room, room = 0;
      w.push_back(window[d]);
      dy.push_back(room / strides[d] + 1);
    }
    const Attrs attrs = {{"strides", strides},     {"pads_begin", begin},     {"pads_end", end},
                         {"dilations", dilations}, {"input_dilations", gaps}, {"groups", groups}};
    SCOPED_TRACE(seed);
    if (seed % 3 != 0) {
      const ValueId image = c.input(x), weights = c.input(w);
      c.expect_differences(c.op("conv", {image, weights}, attrs));
    } else {
      const ValueId image = c.input(x), gradient = c.input(dy);
      Attrs with = attrs;
      with.set("window", window);
      c.expect_differences(c.op("conv_weights", {image, gradient}, with));
    }
  }
}

TEST(Gradients, Reductions) {
  for (const char* kind : {"sum", "min", "max", "prod"})
    for (const bool keepdims : {false, true})
      for (const auto& [dims, axes] : {std::pair<Ints, Ints>{{3, 4, 2}, {1}},
                                       {{3, 4, 2}, {2, 0}},
                                       {{5}, {0}},
                                       {{2, 3}, {}},
                                       {{0, 3}, {1}},
                                       {{1, 3}, {0}},
                                       {{2, 0}, {0}}}) {
        Case c(11);
        c.expect_differences(
            c.op("reduce", {c.input(dims)}, {{"axes", axes}, {"keepdims", keepdims}, {"kind", std::string(kind)}}));
      }
}

TEST(Gradients, Moves) {
  for (const auto& [from, to] :
       {std::pair<Ints, Ints>{{3, 1}, {2, 3, 4}}, {{}, {2, 2}}, {{1}, {0}}, {{2, 3}, {2, 3}}}) {
    Case c(2);
    c.expect_differences(c.op("broadcast", {c.input(from)}, {{"shape", to}}));
  }
  for (const auto& [from, to] : {std::pair<Ints, Ints>{{3, 4}, {2, 6}}, {{1}, {}}, {{0, 3}, {5, 0}}}) {
    Case c(2);
    c.expect_differences(c.op("reshape", {c.input(from)}, {{"shape", to}}));
  }
  for (const auto& [dims, perm] : {std::pair<Ints, Ints>{{2, 3, 4}, {2, 0, 1}}, {{3}, {0}}, {{2, 0, 1}, {1, 2, 0}}}) {
    Case c(2);
    c.expect_differences(c.op("transpose", {c.input(dims)}, {{"perm", perm}}));
  }
}

TEST(Gradients, Slices) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    Case c(seed);
    const Ints dims = c.shape(1 + c.below(3), 1, 6);
    Ints starts, sizes, steps;
    for (const int64_t extent : dims) {
      const int64_t size = c.roll(seed % 7 == 0 ? 0 : 1, extent), most = size > 1 ? (extent - 1) / (size - 1) : 3;
      const int64_t step = c.roll(1, std::max<int64_t>(most, 1)), last = std::max<int64_t>(size - 1, 0) * step;
      const int64_t start = c.roll(0, extent - 1 - last);
      const bool backwards = c.below(2) == 1;
      starts.push_back(backwards ? start + last : start);
      sizes.push_back(size);
      steps.push_back(backwards ? -step : step);
    }
    c.expect_differences(c.op("slice", {c.input(dims)}, {{"starts", starts}, {"sizes", sizes}, {"steps", steps}}));
  }
}

TEST(Gradients, Pads) {
  for (const char* mode : {"constant", "edge", "reflect", "wrap"})
    for (uint64_t seed = 0; seed < 25; ++seed) {
      SCOPED_TRACE(std::string(mode) + std::to_string(seed));
      Case c(seed);
      const Ints dims = c.shape(c.below(4), 1, 4);
      Ints low, high;
      for (const int64_t extent : dims) {
        low.push_back(c.roll(-1, 3));
        high.push_back(std::max(c.roll(-1, 3), -extent - low.back()));
      }
      std::vector<ValueId> operands = {c.input(dims)};
      if (std::string(mode) == "constant") operands.push_back(c.input({}));
      c.expect_differences(c.op("pad", operands, {{"low", low}, {"high", high}, {"mode", std::string(mode)}}));
    }
}

TEST(Gradients, Concatenations) {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    Case c(seed);
    Ints dims = c.shape(1 + c.below(3), 1, 3);
    const size_t axis = c.below(dims.size());
    std::vector<ValueId> operands;
    for (size_t i = 0; i <= seed % 4; ++i) {
      dims[axis] = c.roll(0, 3);
      operands.push_back(i == 2 ? c.weights(dims) : c.input(dims));
    }
    c.expect_differences(c.op("concat", operands, {{"axis", static_cast<int64_t>(axis)}}));
  }
}

TEST(Gradients, Gathers) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    Case c(seed);
    const Ints dims = c.shape(1 + c.below(3), 1, 4);
    const size_t axis = c.below(dims.size());
    const Attrs attrs = {{"axis", static_cast<int64_t>(axis)}};
    // Numbers that count from the end, and numbers that do not exist.
    if (seed % 2 == 0) {
      c.expect_differences(
          c.op("gather", {c.input(dims), c.whole(c.shape(c.below(3), 0, 4), -6, 6, DType::kI32)}, attrs));
    } else {
      Ints read = dims;
      for (int64_t& d : read) d = c.roll(1, d);
      read[axis] = seed % 3 == 0 ? 1 : c.roll(0, 5);
      c.expect_differences(c.op("gather_elements", {c.input(dims), c.whole(read, -6, 6)}, attrs));
    }
  }
}

TEST(Gradients, Scatters) {
  for (const char* join : {"none", "add", "mul", "min", "max"})
    for (uint64_t seed = 0; seed < 20; ++seed) {
      SCOPED_TRACE(std::string(join) + std::to_string(seed));
      Case c(seed);
      const int64_t batch = c.roll(1, 2), extent = c.roll(1, 4), updates = c.roll(0, 5), inner = c.roll(1, 3);
      c.expect_differences(c.op(
          "scatter",
          {c.input({batch, extent, inner}), c.whole({batch, updates}, -1, extent), c.input({batch, updates, inner})},
          {{"join", std::string(join)}}));
    }
}

// A product's gradient where factors are 0, of which a quotient would make NaN.
TEST(Gradients, ProductsWithZeros) {
  for (const std::vector<double>& values :
       {std::vector<double>{2, 0, 3, 4}, {0, 0, 3, 4}, {1, 2, 0, 0}, {0, 1, 2, 3}, {1, 2, 3, 0}}) {
    for (const bool exclusive : {false, true})
      for (const bool reverse : {false, true}) {
        Case c(1);
        c.expect_differences(c.op(
            "cumulate", {c.given({4}, values)},
            {{"axis", int64_t{0}}, {"kind", std::string("prod")}, {"exclusive", exclusive}, {"reverse", reverse}}));
      }
    Case c(1);
    c.expect_differences(c.op("reduce", {c.given({2, 2}, values)},
                              {{"axes", Ints{0, 1}}, {"keepdims", false}, {"kind", std::string("prod")}}));
    Case s(1);
    s.expect_differences(s.op("scatter",
                              {s.given({1, 2, 1}, {0, 2}), s.whole({1, 4}, 0, 1), s.given({1, 4, 1}, values)},
                              {{"join", std::string("mul")}}));
  }
}

TEST(Gradients, Totals) {
  for (const char* kind : {"sum", "prod"})
    for (uint64_t seed = 0; seed < 16; ++seed) {
      Case c(seed);
      const Ints dims = c.shape(1 + c.below(3), seed % 5 == 0 ? 0 : 1, 4);
      c.expect_differences(c.op("cumulate", {c.input(dims)},
                                {{"axis", static_cast<int64_t>(c.below(dims.size()))},
                                 {"kind", std::string(kind)},
                                 {"exclusive", seed % 2 == 0},
                                 {"reverse", seed % 3 == 0}}));
    }
}

TEST(Gradients, Windows) {
  for (const char* kind : {"sum", "max", "min"})
    for (uint64_t seed = 0; seed < 20; ++seed) {
      SCOPED_TRACE(std::string(kind) + std::to_string(seed));
      Case c(seed);
      const size_t rank = 1 + seed % 3;
      Ints x = {c.roll(1, 2), c.roll(1, 2)}, window, strides, begin, end, dilations, gaps;
      const bool has_gaps = kind == std::string("sum") && seed % 4 == 0;
      for (size_t d = 0; d < rank; ++d) {
        window.push_back(c.roll(1, 3));
        strides.push_back(c.roll(1, 4));
        dilations.push_back(seed % 3 == 0 ? c.roll(1, 2) : 1);
        gaps.push_back(has_gaps ? c.roll(1, 3) : 1);
        begin.push_back(c.roll(-1, window.back() - 1));
        end.push_back(c.roll(-1, window.back() - 1));
        x.push_back(c.roll(2, rank == 3 ? 3 : 6));
        const int64_t room = (x.back() - 1) * gaps[d] + 1 + begin[d] + end[d] - ((window[d] - 1) * dilations[d] + 1);
        if (room < 0) end[d] -= room;
      }
      Attrs attrs = {{"kind", std::string(kind)}, {"window", window}, {"strides", strides},
                     {"pads_begin", begin},       {"pads_end", end},  {"dilations", dilations}};
      if (has_gaps) attrs.set("input_dilations", gaps);
      const ValueId y = c.op("reduce_window", {c.input(x)}, attrs);
      // A window of padding alone is infinite, and has no difference.
      if (kind == std::string("sum")) c.expect_differences(y);
      else c.expect_differences(c.op("tanh", {c.op("max", {c.op("min", {y, c.number(9)}), c.number(-9)})}));
    }
}

TEST(Gradients, Resizes) {
  struct Way {
    const char *mode, *coordinate;
  };
  const Way ways[] = {{"nearest", "asymmetric"}, {"nearest", "half_pixel"},   {"nearest", "tf_half_pixel_for_nn"},
                      {"linear", "half_pixel"},  {"linear", "align_corners"}, {"linear", "pytorch_half_pixel"},
                      {"cubic", "half_pixel"},   {"cubic", "align_corners"},  {"linear", "half_pixel_symmetric"},
                      {"cubic", "asymmetric"}};
  for (const Way& way : ways)
    for (uint64_t seed = 0; seed < 6; ++seed) {
      SCOPED_TRACE(std::string(way.mode) + way.coordinate);
      Case c(seed);
      const Ints from = c.shape(1 + seed % 4, 1, 4);
      Ints to;
      std::vector<double> scales;
      for (const int64_t extent : from) {
        to.push_back(c.below(3) == 0 ? extent : c.roll(1, 6));
        scales.push_back(static_cast<double>(to.back()) / static_cast<double>(extent));
      }
      Attrs attrs = {{"mode", std::string(way.mode)},
                     {"coordinate", std::string(way.coordinate)},
                     {"sizes", to},
                     {"scales", scales}};
      if (seed % 2 == 1) attrs.set("exclude_outside", true);
      c.expect_differences(c.op("resize", {c.input(from)}, attrs));
    }
}

TEST(Gradients, Boxes) {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    Case c(seed);
    const Ints dims = c.shape(1 + c.below(3), 1, 4);
    Ints box;
    for (const int64_t d : dims) box.push_back(c.roll(0, d));
    const ValueId starts = c.whole({std::ssize(dims)}, -2, 5), x = c.input(dims);
    if (seed % 2 == 0) c.expect_differences(c.op("dynamic_slice", {x, starts}, {{"sizes", box}}));
    else c.expect_differences(c.op("dynamic_update_slice", {x, c.input(box), starts}));
  }
  Case c(1);
  c.expect_differences(c.op("channel_shuffle", {c.input({2, 6, 2})}, {{"groups", int64_t{3}}}));
}

// Composites, those with rules of their own and those that are opened.
TEST(Gradients, Composites) {
  struct Row {
    const char* name;
    std::vector<Ints> operands;
    Attrs attrs;
    double lo = -2;
  };
  const Attrs pool = {{"window", Ints{2, 3}},
                      {"strides", Ints{1, 2}},
                      {"pads_begin", Ints{1, 0}},
                      {"pads_end", Ints{0, 1}},
                      {"dilations", Ints{1, 1}}};
  const Attrs over = {{"axes", Ints{0, 2}}, {"keepdims", false}};
  const std::vector<Row> rows = {
      {"relu", {{3, 4}}, {}},
      {"leaky_relu", {{3, 4}}, {{"alpha", 0.1}}},
      {"prelu", {{3, 4}, {4}}, {}},
      {"sigmoid", {{3, 4}}, {}},
      {"hard_sigmoid", {{3, 4}}, {{"alpha", 0.2}, {"beta", 0.5}}},
      {"hard_swish", {{3, 4}}, {}, -5},
      {"softplus", {{3, 4}}, {}},
      {"softsign", {{3, 4}}, {}},
      {"elu", {{3, 4}}, {{"alpha", 1.5}}},
      {"selu", {{3, 4}}, {{"alpha", 1.5}, {"gamma", 1.1}}},
      {"celu", {{3, 4}}, {{"alpha", 1.5}}},
      {"celu", {{3, 4}}, {{"alpha", -1.5}}},
      {"gelu", {{3, 4}}, {}},
      {"gelu", {{3, 4}}, {{"approximate", std::string("tanh")}}},
      {"silu", {{3, 4}}, {}},
      {"mish", {{3, 4}}, {}},
      {"softmax", {{3, 4}}, {{"axis", int64_t{0}}}},
      {"log_softmax", {{3, 4}}, {{"axis", int64_t{1}}}},
      {"gemm", {{3, 4}, {2, 4}, {2}}, {{"alpha", 0.5}, {"beta", 2.0}, {"trans_b", true}}},
      {"max_pool", {{2, 2, 4, 5}}, pool},
      {"average_pool", {{2, 2, 4, 5}}, pool},
      {"global_max_pool", {{2, 3, 2, 2}}, {}},
      {"global_average_pool", {{2, 3, 2, 2}}, {}},
      {"reduce_mean", {{2, 3, 4}}, over},
      {"reduce_l1", {{2, 3, 4}}, over},
      {"reduce_l2", {{2, 3, 4}}, over},
      {"reduce_log_sum", {{2, 3, 4}}, over, 0.5},
      {"reduce_log_sum_exp", {{2, 3, 4}}, over},
      {"reduce_sum_square", {{2, 3, 4}}, over},
      {"batch_norm", {{2, 3, 4}, {3}, {3}, {3}, {3}}, {{"epsilon", 0.1}}, 0.5},
      {"batch_norm_training", {{2, 3, 4}, {3}, {3}, {3}, {3}}, {{"epsilon", 0.1}, {"momentum", 0.9}}},
      {"group_norm", {{2, 4, 3}, {4}, {4}}, {{"epsilon", 0.1}, {"groups", int64_t{2}}}},
      {"instance_norm", {{2, 3, 4}, {3}, {3}}, {{"epsilon", 0.1}}},
      {"layer_norm", {{2, 3, 4}, {4}, {4}}, {{"epsilon", 0.1}, {"axis", int64_t{2}}}},
      {"rms_norm", {{2, 3, 4}, {4}}, {{"epsilon", 0.1}, {"axis", int64_t{2}}}},
      {"attention", {{2, 3, 4}, {2, 5, 4}, {2, 5, 2}}, {{"scale", 0.5}}},
      {"attention", {{1, 4, 3, 2}, {1, 2, 5, 2}, {1, 2, 5, 3}, {3, 5}}, {{"scale", 0.7}}},
      {"attention", {{1, 4, 3, 2}, {1, 2, 5, 2}, {1, 2, 5, 3}, {1, 4, 3, 5}}, {{"scale", 1.0}}},
      {"attention", {{1, 4, 3, 2}, {1, 2, 5, 2}, {1, 2, 5, 3}, {1, 1, 3, 5}}, {{"scale", 1.0}}},
      {"conv_transpose",
       {{2, 2, 3}, {2, 2, 3}},
       {{"strides", Ints{2}},
        {"pads_begin", Ints{1}},
        {"pads_end", Ints{0}},
        {"dilations", Ints{1}},
        {"output_padding", Ints{1}},
        {"groups", int64_t{1}}}},
  };
  for (const Row& row : rows)
    for (uint64_t seed = 0; seed < 3; ++seed) {
      SCOPED_TRACE(row.name);
      Case c(seed + 17);
      std::vector<ValueId> operands;
      for (const Ints& dims : row.operands) operands.push_back(c.input(dims, row.lo, 2));
      c.expect_differences(c.composite(row.name, operands, row.attrs));
    }
}

TEST(Gradients, Clip) {
  Case c(1);
  // Below, within and above; then bounds that cross.
  const ValueId x = c.given({4}, {-3, 0.5, 3, 0}), lo = c.given({4}, {-1, -1, -1, 2}), hi = c.given({4}, {1, 1, 1, 1});
  c.expect_differences(c.composite("clip", {x, lo, hi}));
}

TEST(Gradients, Losses) {
  for (const char* reduction : {"none", "sum", "mean"})
    for (const bool weighted : {false, true})
      for (const bool ignores : {false, true})
        for (const Ints& dims : {Ints{4, 3}, Ints{2, 3, 2}}) {
          Case c(3);
          Ints targets = dims;
          targets.erase(targets.begin() + 1);
          std::vector<ValueId> operands = {c.input(dims), c.whole(targets, 0, 2)};
          if (weighted) operands.push_back(c.input({3}, 0.5, 2));
          Attrs attrs = {{"reduction", std::string(reduction)}};
          if (ignores) attrs.set("ignore_index", int64_t{1});
          c.expect_differences(c.composite("nll_loss", operands, attrs));
          Case both(3);
          operands = {both.input(dims), both.whole(targets, 0, 2)};
          if (weighted) operands.push_back(both.input({3}, 0.5, 2));
          const auto results = both.composites("softmax_cross_entropy", operands, attrs);
          const ValueId loss = both.op("reduce", {results[0]},
                                       {{"axes",
                                         [&] {
                                           Ints axes(both.dims(results[0]).size());
                                           for (size_t i = 0; i < axes.size(); ++i) axes[i] = static_cast<int64_t>(i);
                                           return axes;
                                         }()},
                                        {"keepdims", false},
                                        {"kind", std::string("sum")}});
          both.expect_differences(both.op("add", {loss, both.op("mul", {results[1], both.weights(dims)})}));
        }
}

// Of scales and of zero points that are floats; a last group may not be whole, and there may be more scales than
// groups.
TEST(Gradients, ScalesOfBlocks) {
  std::mt19937_64 random(11);
  std::uniform_real_distribution<double> uniform(0.5, 2);
  for (const auto& [format, bits] : {std::pair{"u2", 2}, {"u4", 4}, {"u8", 8}})
    for (const bool has_zeros : {false, true})
      for (const int64_t more : {0, 1, 2}) {
        SCOPED_TRACE(fmt::format("{} {} {}", format, has_zeros, more));
        constexpr int64_t kRows = 3, kElements = 10, kGroup = 4;
        const int64_t groups = 3 + more, zeros = 3 + (2 - more), bytes = (kElements * bits + 7) / 8;
        Graph graph;
        GraphBuilder builder(graph);
        const auto f32 = [](const Ints& dims) { return TensorType{DType::kF32, make_shape(dims), {}}; };
        const ValueId x = graph.add_input("x", {DType::kU8, make_shape({kRows, bytes}), {}});
        const ValueId s = graph.add_input("s", f32({kRows, groups}));
        const ValueId z = has_zeros ? graph.add_input("z", f32({kRows, zeros})) : -1;
        const ValueId w = graph.add_input("w", f32({kRows, kElements}));
        std::vector<ValueId> operands = {x, s}, wanted = {s};
        if (has_zeros) operands.push_back(z), wanted.push_back(z);
        const auto op = [&](const char* name, std::vector<ValueId> inputs, Attrs attrs = {}) {
          return builder.add(standard_ops().get(name), std::move(inputs), std::move(attrs));
        };
        const ValueId y = op("dequantize_blocks", operands,
                             {{"format", std::string(format)}, {"group", kGroup}, {"elements", kElements}});
        graph.outputs = {op("reduce", {op("mul", {y, w})},
                            {{"axes", Ints{0, 1}}, {"keepdims", false}, {"kind", std::string("sum")}})};
        std::vector<Tensor> inputs;
        for (const ValueId input : graph.inputs) {
          const TensorType& type = graph.type(input);
          Tensor& tensor = inputs.emplace_back(type.dtype, type.dims());
          for (int64_t i = 0; i < tensor.num_elements(); ++i) {
            if (type.dtype == DType::kU8) tensor.set_int(i, static_cast<int64_t>(random() % 256));
            else tensor.set_double(i, uniform(random));
          }
        }
        GraphInterpreter interpreter;
        const auto found = interpreter.evaluate(gradients(graph, graph.outputs[0], wanted, standard_ops()), inputs);
        const auto at = [&](size_t i, int64_t row, int64_t column) {
          return inputs[i].get_double(row * inputs[i].dims()[1] + column);
        };
        for (int64_t r = 0; r < kRows; ++r)
          for (int64_t g = 0; g < std::max(groups, zeros); ++g) {
            double of_scale = 0, of_zero = 0;
            for (int64_t e = g * kGroup; e < std::min(kElements, (g + 1) * kGroup); ++e) {
              const int64_t byte = inputs[0].get_int(r * bytes + e * bits / 8);
              const int64_t number = (byte >> (e * bits % 8)) & ((1 << bits) - 1);
              const double zero = has_zeros ? at(2, r, g) : 1 << (bits - 1);
              const double weight = at(has_zeros ? 3 : 2, r, e);
              of_scale += weight * (static_cast<double>(number) - zero);
              of_zero -= weight * at(1, r, g);
            }
            if (g < groups) EXPECT_NEAR(found[1].get_double(r * groups + g), of_scale, 1e-4 * (1 + std::abs(of_scale)));
            if (has_zeros && g < zeros)
              EXPECT_NEAR(found[2].get_double(r * zeros + g), of_zero, 1e-4 * (1 + std::abs(of_zero)));
          }
      }
}

// Ranks take the gradients of losses of their own, and the sum of all is meant.
TEST(Gradients, Collectives) {
  struct Collective {
    const char* op;
    const char* kind;
  };
  constexpr size_t kRanks = 3;
  for (const Collective& row :
       {Collective{"all_reduce", "sum"}, Collective{"all_reduce", "max"}, Collective{"all_reduce", "min"},
        Collective{"all_gather", ""}, Collective{"reduce_scatter", "sum"}, Collective{"all_to_all", ""},
        Collective{"rank_shift", ""}}) {
    SCOPED_TRACE(std::string(row.op) + " " + row.kind);
    Graph graph;
    GraphBuilder builder(graph);
    const auto op = [&](const char* name, std::vector<ValueId> operands, Attrs attrs = {}) {
      return builder.add(standard_ops().get(name), std::move(operands), std::move(attrs));
    };
    const ValueId x = graph.add_input("x", real({3, 2}));
    Attrs attrs = {{"mesh", std::string("data=3")}, {"axes", std::string("data")}};
    if (*row.kind) attrs.set("kind", std::string(row.kind));
    if (row.op == std::string("rank_shift")) attrs.set("by", int64_t{-1});
    const ValueId y = op(row.op, {x}, attrs);
    const ValueId weights = graph.add_input("w", graph.type(y));
    graph.outputs = {op("reduce", {op("mul", {y, weights})},
                        {{"axes", Ints{0, 1}}, {"keepdims", false}, {"kind", std::string("sum")}})};
    const std::vector<Graph> ranks(kRanks, gradients(graph, graph.outputs[0], {x}, standard_ops()));
    std::mt19937_64 random(4);
    std::uniform_real_distribution<double> uniform(-1, 1);
    std::vector<std::vector<Tensor>> inputs(kRanks);
    for (auto& of_rank : inputs)
      for (const ValueId input : graph.inputs) {
        Tensor& tensor = of_rank.emplace_back(DType::kF64, graph.type(input).dims());
        for (int64_t i = 0; i < tensor.num_elements(); ++i) tensor.set_double(i, uniform(random));
      }
    const auto found = evaluate_ranks(ranks, inputs);
    for (size_t r = 0; r < kRanks; ++r)
      for (int64_t i = 0; i < inputs[r][0].num_elements(); ++i) {
        const auto loss_of_all = [&](double by) {
          auto moved = inputs;
          Tensor x_of_rank(DType::kF64, inputs[r][0].dims());
          for (int64_t e = 0; e < x_of_rank.num_elements(); ++e)
            x_of_rank.set_double(e, inputs[r][0].get_double(e) + (e == i ? by : 0));
          moved[r][0] = std::move(x_of_rank);
          double sum = 0;
          for (const auto& results : evaluate_ranks(ranks, moved)) sum += results[0].get_double(0);
          return sum;
        };
        EXPECT_NEAR(found[r][1].get_double(i), (loss_of_all(1e-4) - loss_of_all(-1e-4)) / 2e-4, 1e-8);
      }
  }
}

// Each operator has a rule, or says why there is none.
TEST(Gradients, EveryOperatorHasARuleOrAReason) {
  for (const OpDef* op : standard_ops().all()) {
    // What has regions is differentiated by what stands in them (autodiff).
    if (op->kind == OpKind::kComposite || op->kind == OpKind::kGroup || op->kind == OpKind::kCall ||
        op->kind == OpKind::kIf || op->kind == OpKind::kLoop)
      continue;
    EXPECT_TRUE(op->gradient) << op->name << ": write a rule, or no_gradient(\"because ...\")";
  }
}

// A composite of one's own with a known name is opened.
TEST(Gradients, ABorrowedName) {
  const Graph graph = parse_graph(R"(
graph @main(%x: f64[2]) -> (%y: f64[2]) {
  %y = composite(%x) {name = "relu"} ({
    graph @relu(%a: f64[2]) -> (%b: f64[2]) {
      %b = mul(%a, %a) : f64[2]
    }
  }) : f64[2]
})",
                                  standard_ops());
  GraphInterpreter interpreter;
  std::vector<Tensor> inputs;
  inputs.emplace_back(DType::kF64, Ints{2});
  inputs[0].set_double(0, -3);
  const Tensor found =
      interpreter.evaluate(gradients(graph, graph.outputs[0], graph.inputs, standard_ops()), inputs).at(1);
  EXPECT_EQ(found.get_double(0), -6);
}

// Values with several readers, composites, intermediate values, and inputs that nothing depends on.
TEST(Gradients, RandomGraphs) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Case c(seed);
    std::vector<ValueId> values = {c.input({3, 4}), c.input({4}), c.input({1, 4}), c.input({2, 3, 4})};
    const auto any = [&] { return values[values.size() - 1 - c.below(std::min<size_t>(values.size(), 5))]; };
    for (int step = 0; step < 8; ++step) {
      const ValueId x = any();
      const Ints dims = c.dims(x);
      const auto last = static_cast<int64_t>(dims.size()) - 1;
      switch (c.below(8)) {
        case 0: values.push_back(c.op("tanh", {x})); break;
        case 1: values.push_back(c.op("mul", {x, values[1]})); break;
        case 2: values.push_back(c.op("add", {x, x})); break;
        case 3:
          if (last > 0 && dims.back() == 4) values.push_back(c.op("tanh", {c.op("matmul", {x, c.weights({4, 4})})}));
          break;
        case 4: values.push_back(c.composite("softmax", {x}, {{"axis", last}})); break;
        case 5: values.push_back(c.composite("sigmoid", {x})); break;
        case 6:
          if (dims.back() == 4)
            values.push_back(
                c.composite("layer_norm", {x, values[1], c.weights({4})}, {{"axis", last}, {"epsilon", 0.1}}));
          break;
        default:
          values.push_back(
              c.op("reduce", {x}, {{"axes", Ints{last}}, {"keepdims", true}, {"kind", std::string("sum")}}));
          values.push_back(c.op("sub", {x, values.back()}));
          break;
      }
    }
    c.expect_differences(c.op("sin", {values.back()}));
  }
}

TEST(Gradients, SymbolicShapes) {
  const Graph graph = parse_graph(R"(
graph @main[n in 1..9](%x: f64[n,3], %b: f64[3]) -> (%y: f64[n]) {
  %s = mul(%x, %b) : f64[n,3]
  %t = tanh(%s) : f64[n,3]
  %y = reduce(%t) {axes = [1], keepdims = false, kind = "sum"} : f64[n]
})",
                                  standard_ops());
  const Graph with = gradients(graph, graph.outputs[0], graph.inputs, standard_ops());
  EXPECT_THAT(verify(with), testing::IsEmpty());
  EXPECT_EQ(with.type(with.outputs[1]).to_string(), "f64[n,3]");
  EXPECT_EQ(with.value(with.outputs[2]).name, "b.gradient");
}

TEST(Gradients, WhatHasNone) {
  const auto message = [](const std::string& text) {
    const Graph graph = parse_graph(text, standard_ops());
    try {
      gradients(graph, graph.outputs[0], graph.inputs, standard_ops());
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  // All of them, in the order of the graph.
  EXPECT_THAT(message(R"text(graph @main(%x: f32[3]) -> (%y: f32[3]) {
  %b = compute(%x) {body = "out[i<3] = bitcast:f32((bitcast:i32(x0[i]) + 1:i32))"} : f32[3] loc("first")
  %c = compute(%b) {body = "out[i<3] = bitcast:f32((bitcast:i32(x0[i]) + 1:i32))"} : f32[3] loc("second")
  %y = tanh(%c) : f32[3]
})text"),
              testing::AllOf(testing::HasSubstr("TSR-2072"),
                             testing::HasSubstr("compute has no gradient: bits taken for another type change in jumps "
                                                "(first); "
                                                "compute has no gradient: bits taken for another type change in jumps "
                                                "(second)")));
  EXPECT_THAT(message(R"(graph @main(%x: f32[1,1,2], %s: f64[3]) -> (%y: f32[1,1,4]) {
  %y = resize(%x, %s) {coordinate = "half_pixel", mode = "linear", sizes = [1, 1, 4]} : f32[1,1,4] loc("larger")
})"),
              testing::AllOf(testing::HasSubstr("resize has no gradient: scales that only a run knows"),
                             testing::HasSubstr("larger")));
}

}  // namespace
}  // namespace tessera
