// Reductions, products, convolutions and windows against plain loops in double.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference_util.h"

namespace tessera {
namespace {

double lowest(DType dtype) {
  if (is_float(dtype)) return -std::numeric_limits<double>::infinity();
  return is_signed_int(dtype) ? -std::ldexp(1.0, dtype_bits(dtype) - 1) : 0;
}
double highest(DType dtype) {
  if (is_float(dtype)) return std::numeric_limits<double>::infinity();
  if (dtype == DType::kBool) return 1;
  return std::ldexp(1.0, dtype_bits(dtype) - (is_signed_int(dtype) ? 1 : 0)) - (dtype_bits(dtype) < 64 ? 1 : 0);
}

double combined(const std::string& kind, double a, double b) {
  if (kind == "sum") return a + b;
  if (kind == "prod") return a * b;
  return kind == "min" ? std::min(a, b) : std::max(a, b);
}
double start_of(const std::string& kind, DType dtype) {
  if (kind == "sum") return 0;
  if (kind == "prod") return 1;
  return kind == "min" ? highest(dtype) : lowest(dtype);
}

double as_type(DType dtype, double value) {
  Tensor one(dtype, {});
  if (is_float(dtype)) {
    one.set_double(0, value);
  } else {
    one.set_int(0, static_cast<int64_t>(value));
  }
  return one.get_double(0);
}

TEST(Reduce, EveryTypeKindAndSetOfAxes) {
  const std::vector<std::pair<Dims, std::vector<Dims>>> cases = {
      {{}, {{}}},
      {{5}, {{}, {0}}},
      {{3, 0, 2}, {{1}, {0, 1}, {2}}},
      {{4, 1, 7}, {{0}, {1}, {2}, {0, 2}, {2, 0, 1}}},
      {{2, 300}, {{0}, {1}, {0, 1}}},
  };
  std::mt19937 random(1);
  auto dtypes = arithmetic_dtypes();
  dtypes.push_back(DType::kBool);
  for (const std::string kind : {"sum", "prod", "min", "max"})
    for (DType dtype : dtypes) {
      if (dtype == DType::kBool && (kind == "sum" || kind == "prod")) continue;
      for (const auto& [dims, lists] : cases)
        for (const Dims& axes : lists)
          for (bool keepdims : {false, true}) {
            Tensor x = random_tensor(random, dtype, dims);
            // Products of hundreds of numbers stay in range as signs.
            if (kind == "prod")
              for (int64_t i = 0; i < x.num_elements(); ++i)
                x.set_double(i, is_unsigned_int(dtype) || random() % 2 ? 1 : -1);
            Dims out, kept = dims;
            for (size_t d = 0; d < dims.size(); ++d) {
              const bool reduced = std::count(axes.begin(), axes.end(), static_cast<int64_t>(d)) != 0;
              if (reduced) kept[d] = 1;
              if (!reduced || keepdims) out.push_back(reduced ? 1 : dims[d]);
            }
            std::vector<double> want(static_cast<size_t>(Tensor(DType::kBool, kept).num_elements()),
                                     start_of(kind, dtype));
            for_each_index(dims, [&, &dims = dims](const Dims& index) {
              Dims target;
              for (size_t d = 0; d < index.size(); ++d) target.push_back(kept[d] == 1 ? 0 : index[d]);
              double& total = want[static_cast<size_t>(flat_index(kept, target))];
              total = combined(kind, total, at(x, index));
            });
            for (double& total : want)
              if (is_float(dtype) || kind == "sum" || kind == "prod") total = as_type(dtype, total);
            if (dtype == DType::kU64 && kind == "min") {  // 2^64 - 1 is no double
              for (double& total : want)
                if (total == highest(dtype)) total = 18446744073709551615.0;
            }
            expect_close(run_op("reduce", {x}, {{"kind", kind}, {"axes", axes}, {"keepdims", keepdims}})[0], out, want,
                         kind);
          }
    }
}

TEST(Reduce, SumsOfManyFloatsAreAccumulatedWider) {
  Tensor x(DType::kF32, {1 << 20});
  for (float& value : x.as_mutable<float>()) value = 0.1f;
  const Tensor y = run_op("reduce", {x}, {{"kind", std::string("sum")}, {"axes", Dims{0}}, {"keepdims", false}})[0];
  EXPECT_EQ(y.as<float>()[0], static_cast<float>(static_cast<double>(0.1f) * (1 << 20)));
}

TEST(Reduce, NanIsNotLost) {
  const Tensor x = tensor_of(DType::kF32, {3}, {1, std::nan(""), 2});
  for (const std::string kind : {"sum", "prod", "min", "max"})
    EXPECT_TRUE(
        std::isnan(run_op("reduce", {x}, {{"kind", kind}, {"axes", Dims{0}}, {"keepdims", false}})[0].get_double(0)))
        << kind;
}

TEST(Matmul, ShapesTransposesAndTypes) {
  struct Case {
    Dims a, b, batch;
  };
  const std::vector<Case> cases = {{{2, 3}, {3, 4}, {}},
                                   {{1, 7}, {7, 1}, {}},
                                   {{5, 1}, {1, 300}, {}},
                                   {{2, 0}, {0, 3}, {}},
                                   {{0, 2}, {2, 3}, {}},
                                   {{4, 2, 3}, {3, 5}, {4}},
                                   {{2, 1, 3, 2}, {5, 2, 4}, {2, 5}},
                                   {{17, 33}, {33, 19}, {}},
                                   {{3, 200}, {200, 2}, {}}};
  std::mt19937 random(2);
  for (DType dtype : arithmetic_dtypes())
    for (const Case& c : cases)
      for (bool transpose_a : {false, true})
        for (bool transpose_b : {false, true}) {
          const int64_t m = c.a[c.a.size() - 2], k = c.a.back(), n = c.b.back();
          Dims a_dims = c.a, b_dims = c.b;
          if (transpose_a) std::swap(a_dims[a_dims.size() - 2], a_dims.back());
          if (transpose_b) std::swap(b_dims[b_dims.size() - 2], b_dims.back());
          const Tensor a = random_tensor(random, dtype, a_dims);
          const Tensor b = random_tensor(random, dtype, b_dims);
          Dims out = c.batch;
          out.push_back(m);
          out.push_back(n);
          const auto element = [&](const Tensor& x, Dims index, bool transposed) {
            if (transposed) std::swap(index[index.size() - 2], index.back());
            const size_t skip = index.size() - x.dims().size();
            Dims own(index.begin() + static_cast<int64_t>(skip), index.end());
            for (size_t d = 0; d + 2 < own.size(); ++d)
              if (x.dims()[d] == 1) own[d] = 0;
            return at(x, own);
          };
          const auto want = reference(out, [&](const Dims& index) {
            double sum = 0;
            for (int64_t i = 0; i < k; ++i) {
              Dims ai = index, bi = index;
              ai.back() = i;
              bi[bi.size() - 2] = i;
              sum += as_type(dtype, element(a, ai, transpose_a) * element(b, bi, transpose_b));
            }
            return as_type(dtype, sum);
          });
          Attrs attrs = {{"transpose_a", transpose_a}, {"transpose_b", transpose_b}};
          if (!transpose_a && !transpose_b) attrs = {};
          expect_close(run_op("matmul", {a, b}, attrs)[0], out, want, fmt::format("{}x{}x{}", m, k, n));
        }
}

struct Window {
  Dims strides, pads_begin, pads_end, dilations, input_dilations;
};

Attrs attrs_of(const Window& w) {
  return {{"strides", w.strides}, {"pads_begin", w.pads_begin}, {"pads_end", w.pads_end}, {"dilations", w.dilations}};
}

int64_t out_extent(int64_t extent, int64_t kernel, const Window& w, size_t d) {
  const int64_t dilated = (extent - 1) * w.input_dilations[d] + 1;
  return (dilated + w.pads_begin[d] + w.pads_end[d] - ((kernel - 1) * w.dilations[d] + 1)) / w.strides[d] + 1;
}

// The input index that place o, k looks at; -1 for padding and for the gaps of input dilation.
int64_t source(int64_t o, int64_t k, int64_t extent, const Window& w, size_t d) {
  const int64_t place = o * w.strides[d] + k * w.dilations[d] - w.pads_begin[d];
  if (place < 0 || place > (extent - 1) * w.input_dilations[d] || place % w.input_dilations[d] != 0) return -1;
  return place / w.input_dilations[d];
}

void check_image(std::mt19937& random, DType dtype, const Dims& x_dims, const Dims& w_dims, int64_t groups,
                 const Window& w) {
  const Tensor x = random_tensor(random, dtype, x_dims);
  const Tensor weights = random_tensor(random, dtype, w_dims);
  const size_t rank = x_dims.size() - 2;
  Dims out = {x_dims[0], w_dims[0]};
  for (size_t d = 0; d < rank; ++d) out.push_back(out_extent(x_dims[d + 2], w_dims[d + 2], w, d));
  Dims kernel(w_dims.begin() + 1, w_dims.end());
  const auto want = reference(out, [&](const Dims& index) {
    double sum = 0;
    for_each_index(kernel, [&](const Dims& k) {
      Dims xi = {index[0], index[1] / (w_dims[0] / groups) * w_dims[1] + k[0]};
      Dims wi = {index[1], k[0]};
      for (size_t d = 0; d < rank; ++d) {
        xi.push_back(source(index[d + 2], k[d + 1], x_dims[d + 2], w, d));
        wi.push_back(k[d + 1]);
      }
      if (std::count(xi.begin(), xi.end(), -1) == 0) sum += as_type(dtype, at(x, xi) * at(weights, wi));
    });
    return as_type(dtype, sum);
  });
  Attrs attrs = attrs_of(w);
  attrs.set("input_dilations", w.input_dilations);
  attrs.set("groups", groups);
  expect_close(run_op("conv", {x, weights}, attrs)[0], out, want,
               fmt::format("conv x[{}] w[{}]", fmt::join(x_dims, ","), fmt::join(w_dims, ",")));
}

void check_gradient(std::mt19937& random, DType dtype, const Dims& x_dims, const Dims& w_dims, int64_t groups,
                    const Window& w) {
  const size_t rank = x_dims.size() - 2;
  Dims dy_dims = {x_dims[0], w_dims[0]};
  for (size_t d = 0; d < rank; ++d) dy_dims.push_back(out_extent(x_dims[d + 2], w_dims[d + 2], w, d));
  const Tensor x = random_tensor(random, dtype, x_dims);
  const Tensor dy = random_tensor(random, dtype, dy_dims);
  Dims places(dy_dims.begin() + 2, dy_dims.end());
  places.insert(places.begin(), x_dims[0]);
  const auto want = reference(w_dims, [&](const Dims& index) {
    double sum = 0;
    for_each_index(places, [&](const Dims& p) {
      Dims xi = {p[0], index[0] / (w_dims[0] / groups) * w_dims[1] + index[1]};
      Dims di = {p[0], index[0]};
      for (size_t d = 0; d < rank; ++d) {
        xi.push_back(source(p[d + 1], index[d + 2], x_dims[d + 2], w, d));
        di.push_back(p[d + 1]);
      }
      if (std::count(xi.begin(), xi.end(), -1) == 0) sum += as_type(dtype, at(x, xi) * at(dy, di));
    });
    return as_type(dtype, sum);
  });
  Attrs attrs = attrs_of(w);
  attrs.set("input_dilations", w.input_dilations);
  attrs.set("groups", groups);
  attrs.set("window", Dims(w_dims.begin() + 2, w_dims.end()));
  expect_close(run_op("conv_weights", {x, dy}, attrs)[0], w_dims, want,
               fmt::format("conv_weights x[{}] dy[{}]", fmt::join(x_dims, ","), fmt::join(dy_dims, ",")));
}

// The convolution, and conv_weights with its attributes.
void check_conv(std::mt19937& random, DType dtype, const Dims& x_dims, const Dims& w_dims, int64_t groups,
                const Window& w) {
  check_image(random, dtype, x_dims, w_dims, groups, w);
  check_gradient(random, dtype, x_dims, w_dims, groups, w);
}

TEST(Conv, EveryType) {
  std::mt19937 random(3);
  for (DType dtype : arithmetic_dtypes()) {
    check_conv(random, dtype, {1, 3, 5, 6}, {4, 3, 3, 3}, 1, {{1, 1}, {1, 1}, {1, 1}, {1, 1}, {1, 1}});
    check_conv(random, dtype, {2, 4, 7, 5}, {6, 2, 2, 3}, 2, {{2, 1}, {0, 1}, {1, 2}, {2, 1}, {1, 2}});
  }
}

TEST(Conv, OneToThreeDimensions) {
  std::mt19937 random(4);
  check_conv(random, DType::kF32, {2, 3, 19}, {4, 3, 5}, 1, {{2}, {2}, {3}, {1}, {1}});
  check_conv(random, DType::kF32, {1, 2, 4, 5, 6}, {3, 2, 2, 3, 1}, 1,
             {{1, 2, 1}, {1, 0, 0}, {0, 1, 2}, {1, 1, 1}, {1, 1, 1}});
  check_conv(random, DType::kF32, {1, 1, 1, 1}, {1, 1, 1, 1}, 1, {{1, 1}, {0, 0}, {0, 0}, {1, 1}, {1, 1}});
  check_conv(random, DType::kF32, {0, 2, 4, 4}, {3, 2, 3, 3}, 1, {{1, 1}, {1, 1}, {1, 1}, {1, 1}, {1, 1}});
}

// Depthwise, padding wider than the kernel, cropping, kernels that hang over both ends, long rows.
TEST(Conv, SpecialForms) {
  std::mt19937 random(5);
  check_conv(random, DType::kF32, {1, 8, 9, 9}, {8, 1, 3, 3}, 8, {{1, 1}, {1, 1}, {1, 1}, {1, 1}, {1, 1}});
  check_conv(random, DType::kF32, {1, 4, 6, 6}, {8, 1, 5, 5}, 4, {{2, 2}, {2, 2}, {2, 2}, {1, 1}, {1, 1}});
  check_conv(random, DType::kF32, {1, 2, 2, 2}, {3, 2, 5, 5}, 1, {{1, 1}, {4, 3}, {4, 3}, {1, 1}, {1, 1}});
  check_conv(random, DType::kF32, {1, 2, 8, 9}, {3, 2, 3, 3}, 1, {{1, 1}, {-1, -2}, {-2, 0}, {1, 1}, {1, 1}});
  check_conv(random, DType::kF32, {1, 2, 5, 300}, {2, 2, 3, 3}, 1, {{1, 1}, {1, 1}, {1, 1}, {1, 1}, {1, 1}});
  check_conv(random, DType::kF32, {1, 20, 1, 1}, {33, 20, 1, 1}, 1, {{1, 1}, {0, 0}, {0, 0}, {1, 1}, {1, 1}});
  // Transposed convolutions: gaps in the input, also with negative padding.
  check_conv(random, DType::kF32, {1, 3, 6, 20}, {2, 3, 2, 2}, 1, {{1, 1}, {1, 1}, {1, 1}, {1, 1}, {2, 2}});
  check_conv(random, DType::kF32, {1, 3, 6, 5}, {2, 3, 3, 3}, 1, {{1, 1}, {-1, 2}, {2, -1}, {1, 1}, {3, 2}});
}

TEST(Conv, RandomForms) {
  std::mt19937 random(6);
  const auto roll = [&](int64_t lo, int64_t hi) {
    return lo + static_cast<int64_t>(random() % static_cast<uint64_t>(hi - lo + 1));
  };
  int checked = 0;
  while (checked < 60) {
    const auto rank = static_cast<size_t>(roll(1, 3));
    const int64_t groups = roll(1, 3);
    Dims x = {roll(1, 2), groups * roll(1, 3)};
    Dims weights = {groups * roll(1, 3), x[1] / groups};
    Window w;
    bool fits = true;
    for (size_t d = 0; d < rank; ++d) {
      x.push_back(roll(1, 9));
      weights.push_back(roll(1, 4));
      w.strides.push_back(roll(1, 3));
      w.pads_begin.push_back(roll(-1, 3));
      w.pads_end.push_back(roll(-1, 3));
      w.dilations.push_back(roll(1, 2));
      w.input_dilations.push_back(roll(1, 3));
      const int64_t room = (x[d + 2] - 1) * w.input_dilations[d] + 1 + w.pads_begin[d] + w.pads_end[d];
      fits &= room >= (weights[d + 2] - 1) * w.dilations[d] + 1;
    }
    if (!fits) continue;
    check_conv(random, DType::kF32, x, weights, groups, w);
    ++checked;
  }
}

TEST(ReduceWindow, EveryTypeAndKind) {
  std::mt19937 random(7);
  struct Case {
    Dims x, window;
    Window w;
  };
  const std::vector<Case> cases = {
      {{1, 2, 5, 6}, {2, 2}, {{2, 2}, {0, 0}, {0, 0}, {1, 1}, {1, 1}}},
      {{1, 2, 7, 7}, {3, 3}, {{2, 2}, {1, 1}, {1, 1}, {1, 1}, {1, 1}}},
      {{2, 1, 9}, {4}, {{3}, {2}, {1}, {2}, {1}}},
      {{1, 1, 3, 4, 5}, {2, 1, 3}, {{1, 1, 2}, {0, 0, 1}, {1, 0, 2}, {1, 1, 1}, {1, 1, 1}}},
      {{1, 1, 2}, {2}, {{1}, {3}, {3}, {1}, {1}}},  // windows that see only padding: the identity
      {{1, 2, 4, 300}, {3, 3}, {{1, 1}, {1, 1}, {1, 1}, {1, 1}, {1, 1}}},
  };
  for (const std::string kind : {"sum", "max", "min"})
    for (DType dtype : arithmetic_dtypes())
      for (const Case& c : cases) {
        if (dtype == DType::kU64 && kind == "min") continue;  // its identity is no double
        const Tensor x = random_tensor(random, dtype, c.x);
        Dims out = {c.x[0], c.x[1]};
        for (size_t d = 0; d < c.window.size(); ++d) out.push_back(out_extent(c.x[d + 2], c.window[d], c.w, d));
        const auto want = reference(out, [&](const Dims& index) {
          double total = start_of(kind, dtype);
          for_each_index(c.window, [&](const Dims& k) {
            Dims xi = {index[0], index[1]};
            for (size_t d = 0; d < k.size(); ++d) xi.push_back(source(index[d + 2], k[d], c.x[d + 2], c.w, d));
            if (std::count(xi.begin(), xi.end(), -1) == 0) total = combined(kind, total, at(x, xi));
          });
          return is_float(dtype) || kind == "sum" ? as_type(dtype, total) : total;
        });
        Attrs attrs = attrs_of(c.w);
        attrs.set("window", c.window);
        attrs.set("kind", kind);
        if (dtype == DType::kI64 && kind != "sum") {  // the extremes of i64 are no doubles; compare as they round
          const Tensor y = run_op("reduce_window", {x}, attrs)[0];
          for (size_t i = 0; i < want.size(); ++i) EXPECT_EQ(y.get_double(static_cast<int64_t>(i)), want[i]);
          continue;
        }
        expect_close(run_op("reduce_window", {x}, attrs)[0], out, want, kind);
      }
}

}  // namespace
}  // namespace tessera
