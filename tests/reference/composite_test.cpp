// Composites against their textbook definitions in double.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "graph/verify.h"
#include "ops/composites/composites.h"
#include "ops/op_table.h"
#include "reference_util.h"

namespace tessera {
namespace {

// 16-bit types round after each of the several operations of a composite.
constexpr double kSlack = 4;

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double softplus(double x) { return x > 30 ? x : std::log1p(std::exp(x)); }

TEST(Composite, Activations) {
  struct Case {
    const char* name;
    Attrs attrs;
    double (*f)(double);
  };
  const std::vector<Case> cases = {
      {"relu", {}, [](double x) { return std::max(x, 0.0); }},
      {"leaky_relu", {{"alpha", 0.25}}, [](double x) { return x < 0 ? 0.25 * x : x; }},
      {"sigmoid", {}, sigmoid},
      {"hard_sigmoid", {{"alpha", 0.25}, {"beta", 0.5}}, [](double x) { return std::clamp(0.25 * x + 0.5, 0.0, 1.0); }},
      {"hard_swish", {}, [](double x) { return x * std::clamp(x / 6 + 0.5, 0.0, 1.0); }},
      {"softplus", {}, softplus},
      {"softsign", {}, [](double x) { return x / (1 + std::fabs(x)); }},
      {"elu", {{"alpha", 1.5}}, [](double x) { return x < 0 ? 1.5 * std::expm1(x) : x; }},
      {"selu", {{"alpha", 1.5}, {"gamma", 1.25}}, [](double x) { return 1.25 * (x < 0 ? 1.5 * std::expm1(x) : x); }},
      {"celu", {{"alpha", 2.0}}, [](double x) { return std::max(x, 0.0) + std::min(0.0, 2 * std::expm1(x / 2)); }},
      {"gelu", {}, [](double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); }},
      {"gelu",
       {{"approximate", std::string("tanh")}},
       [](double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }},
      {"silu", {}, [](double x) { return x * sigmoid(x); }},
      {"mish", {}, [](double x) { return x * std::tanh(softplus(x)); }},
  };
  std::mt19937 random(1);
  for (const Case& c : cases)
    for (DType dtype : kRealDTypes)
      for (const Dims& dims : {Dims{}, Dims{0}, Dims{3, 7}, Dims{1, 2, 1, 300}}) {
        // One 16-bit element alone may lose most digits to cancellation: 1 + erf(-2.8).
        if (dims.empty() && dtype_bits(dtype) == 16) continue;
        const Tensor x = random_tensor(random, dtype, dims);
        const auto want = reference(dims, [&](const Dims& i) { return c.f(at(x, i)); });
        expect_close(run_composite(c.name, {x}, c.attrs)[0], dims, want, c.name, kSlack);
      }
}

TEST(Composite, ActivationsOfLargeAndTinyNumbers) {
  const double inf = std::numeric_limits<double>::infinity();
  const Tensor x = tensor_of(DType::kF32, {6}, {1000, -1000, 88, -88, inf, -inf});
  expect_close(run_composite("sigmoid", {x})[0], {6}, {1, 0, 1, 0, 1, 0}, "sigmoid");
  expect_close(run_composite("softplus", {x})[0], {6}, {1000, 0, 88, 0, inf, 0}, "softplus");
  expect_close(run_composite("elu", {x}, {{"alpha", 1.0}})[0], {6}, {1000, -1, 88, -1, inf, -1}, "elu");
  // The digits that log(1 + e) loses for small e: each element alone.
  for (double v : {-10.0, -15.0, -20.0, -40.0})
    expect_close(run_composite("softplus", {tensor_of(DType::kF32, {1}, {v})})[0], {1}, {softplus(v)}, "softplus");
}

TEST(Composite, ReluClipAndPreluOnEveryType) {
  std::mt19937 random(2);
  for (DType dtype : arithmetic_dtypes()) {
    const Tensor x = random_tensor(random, dtype, {3, 9});
    expect_close(run_composite("relu", {x})[0], {3, 9},
                 reference({3, 9}, [&](const Dims& i) { return std::max(at(x, i), 0.0); }), "relu", 0);
    const Tensor lo = tensor_of(dtype, {}, {1});
    const Tensor hi = tensor_of(dtype, {1}, {3});
    const auto clipped = reference({3, 9}, [&](const Dims& i) { return std::clamp(at(x, i), 1.0, 3.0); });
    expect_close(run_composite("clip", {x, lo, hi})[0], {3, 9}, clipped, "clip", 0);
    const Tensor slope = random_tensor(random, dtype, {9});
    const auto sloped =
        reference({3, 9}, [&](const Dims& i) { return at(x, i) < 0 ? at(x, i) * at_broadcast(slope, i) : at(x, i); });
    expect_close(run_composite("prelu", {x, slope})[0], {3, 9}, sloped, "prelu");
  }
}

TEST(Composite, BatchNorm) {
  std::mt19937 random(3);
  for (DType dtype : kRealDTypes)
    for (const Dims& dims : {Dims{2, 3}, Dims{2, 3, 5}, Dims{1, 3, 4, 4}, Dims{1, 3, 0, 2}}) {
      const Tensor x = random_tensor(random, dtype, dims);
      const Tensor scale = random_tensor(random, dtype, {3}), bias = random_tensor(random, dtype, {3});
      const Tensor mean = random_tensor(random, dtype, {3}), var = tensor_of(dtype, {3}, {0.5, 2, 4});
      const auto want = reference(dims, [&](const Dims& i) {
        const Dims c = {i[1]};
        return (at(x, i) - at(mean, c)) / std::sqrt(at(var, c) + 0.125) * at(scale, c) + at(bias, c);
      });
      expect_close(run_composite("batch_norm", {x, scale, bias, mean, var}, {{"epsilon", 0.125}})[0], dims, want,
                   "batch_norm", kSlack);
    }
}

// Mean and variance over the dimensions from `first` on, at the other dimensions of `index`.
std::pair<double, double> moments(const Tensor& x, const Dims& index, size_t first) {
  const Dims tail(x.dims().begin() + static_cast<int64_t>(first), x.dims().end());
  double sum = 0, squares = 0, count = 0;
  for_each_index(tail, [&](const Dims& t) {
    Dims i = index;
    std::copy(t.begin(), t.end(), i.begin() + static_cast<int64_t>(first));
    sum += at(x, i);
    squares += at(x, i) * at(x, i);
    ++count;
  });
  return {sum / count, squares / count - sum / count * (sum / count)};
}

TEST(Composite, InstanceAndLayerNorm) {
  std::mt19937 random(4);
  for (DType dtype : kRealDTypes) {
    const Dims dims = {2, 3, 5, 4};
    const Tensor x = random_tensor(random, dtype, dims);
    const Tensor scale = random_tensor(random, dtype, {3}), bias = random_tensor(random, dtype, {3});
    const auto instance = reference(dims, [&](const Dims& i) {
      const auto [mean, var] = moments(x, i, 2);
      return (at(x, i) - mean) / std::sqrt(var + 0.25) * at(scale, {i[1]}) + at(bias, {i[1]});
    });
    expect_close(run_composite("instance_norm", {x, scale, bias}, {{"epsilon", 0.25}})[0], dims, instance,
                 "instance_norm", kSlack);
    for (int64_t axis : {1, 2, 3}) {
      const auto a = static_cast<size_t>(axis);
      const Dims tail(dims.begin() + axis, dims.end());
      const Tensor s = random_tensor(random, dtype, tail), b = random_tensor(random, dtype, tail);
      const auto layer = [&](bool with_bias) {
        return reference(dims, [&](const Dims& i) {
          const auto [mean, var] = moments(x, i, a);
          return (at(x, i) - mean) / std::sqrt(var + 0.25) * at_broadcast(s, i) + (with_bias ? at_broadcast(b, i) : 0);
        });
      };
      const Attrs attrs = {{"axis", axis}, {"epsilon", 0.25}};
      expect_close(run_composite("layer_norm", {x, s, b}, attrs)[0], dims, layer(true), "layer_norm", kSlack);
      expect_close(run_composite("layer_norm", {x, s}, attrs)[0], dims, layer(false), "layer_norm without bias",
                   kSlack);
    }
  }
}

TEST(Composite, SoftmaxAlongEveryAxis) {
  std::mt19937 random(5);
  for (DType dtype : kRealDTypes)
    for (const Dims& dims : {Dims{1}, Dims{7}, Dims{3, 40}, Dims{2, 3, 2}, Dims{2, 0, 3}})
      for (size_t axis = 0; axis < dims.size(); ++axis) {
        const Tensor x = random_tensor(random, dtype, dims);
        const auto total = [&](Dims i) {
          double sum = 0;
          for (i[axis] = 0; i[axis] < dims[axis]; ++i[axis]) sum += std::exp(at(x, i));
          return sum;
        };
        const Attrs attrs = {{"axis", static_cast<int64_t>(axis)}};
        expect_close(run_composite("softmax", {x}, attrs)[0], dims,
                     reference(dims, [&](const Dims& i) { return std::exp(at(x, i)) / total(i); }), "softmax", kSlack);
        expect_close(run_composite("log_softmax", {x}, attrs)[0], dims,
                     reference(dims, [&](const Dims& i) { return at(x, i) - std::log(total(i)); }), "log_softmax",
                     kSlack);
      }
}

TEST(Composite, Gemm) {
  std::mt19937 random(6);
  for (DType dtype : arithmetic_dtypes())
    for (bool trans_a : {false, true})
      for (bool trans_b : {false, true})
        for (const Dims& c_dims : {Dims{}, Dims{4}, Dims{3, 1}, Dims{3, 4}}) {
          const Tensor a = random_tensor(random, dtype, trans_a ? Dims{5, 3} : Dims{3, 5});
          const Tensor b = random_tensor(random, dtype, trans_b ? Dims{4, 5} : Dims{5, 4});
          const Tensor c = random_tensor(random, dtype, c_dims);
          const auto run = [&](bool with_c, double alpha, double beta) {
            const auto want = reference({3, 4}, [&](const Dims& i) {
              double sum = 0;
              for (int64_t k = 0; k < 5; ++k)
                sum += at(a, trans_a ? Dims{k, i[0]} : Dims{i[0], k}) * at(b, trans_b ? Dims{i[1], k} : Dims{k, i[1]});
              const double y = alpha * sum + (with_c ? beta * at_broadcast(c, i) : 0);
              Tensor one(dtype, {});
              if (is_float(dtype)) return y;
              one.set_int(0, static_cast<int64_t>(y));
              return one.get_double(0);
            });
            std::vector<Tensor> operands = {a, b};
            if (with_c) operands.push_back(c);
            expect_close(
                run_composite("gemm", operands,
                              {{"alpha", alpha}, {"beta", beta}, {"trans_a", trans_a}, {"trans_b", trans_b}})[0],
                {3, 4}, want, "gemm", kSlack);
          };
          run(true, 1, 1);
          run(true, 2, 3);
          run(false, 2, 1);
        }
}

struct Pool {
  Dims x, window, strides, begin, end, dilations;
  bool ceil = false;
};

// Places of input and padding that output o covers along dimension d: {input index or -1 for padding}; places beyond
// the padding at the end are left out.
std::vector<int64_t> places(const Pool& p, int64_t o, size_t d) {
  std::vector<int64_t> result;
  for (int64_t k = 0; k < p.window[d]; ++k) {
    const int64_t i = o * p.strides[d] + k * p.dilations[d] - p.begin[d];
    if (i >= p.x[d + 2] + p.end[d]) continue;
    result.push_back(i < 0 || i >= p.x[d + 2] ? -1 : i);
  }
  return result;
}

Dims pooled_dims(const Pool& p) {
  Dims out = {p.x[0], p.x[1]};
  for (size_t d = 0; d < p.window.size(); ++d) {
    // Windows are counted one by one: a window counts when it starts inside (or in the padding before) and, without
    // ceil, ends inside the padded input.
    int64_t count = 0;
    while (true) {
      const int64_t start = count * p.strides[d] - p.begin[d];
      const int64_t last = start + (p.window[d] - 1) * p.dilations[d];
      const int64_t limit = p.x[d + 2] + p.end[d];
      const bool previous_reaches_end = count > 0 && last - p.strides[d] >= limit - 1;
      if (p.ceil ? start >= p.x[d + 2] || previous_reaches_end : last >= limit) break;
      ++count;
    }
    out.push_back(count);
  }
  return out;
}

const std::vector<Pool> kPools = {
    {{1, 2, 8, 8}, {2, 2}, {2, 2}, {0, 0}, {0, 0}, {1, 1}},
    {{1, 2, 7, 9}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}},
    {{1, 2, 7, 9}, {3, 2}, {2, 2}, {0, 1}, {1, 0}, {1, 1}, true},
    {{2, 1, 10}, {3}, {3}, {0}, {0}, {1}, true},
    {{2, 1, 11}, {2}, {3}, {1}, {1}, {2}, true},
    {{1, 1, 4}, {2}, {3}, {0}, {0}, {1}, true},
    {{1, 1, 3, 4, 20}, {2, 2, 2}, {1, 2, 1}, {0, 0, 1}, {1, 0, 0}, {1, 1, 1}},
};

TEST(Composite, Pooling) {
  std::mt19937 random(7);
  for (const Pool& p : kPools) {
    const Dims out = pooled_dims(p);
    const auto fold = [&](const Tensor& x, const Dims& index, double start, auto f, double* inside, double* all) {
      std::vector<std::vector<int64_t>> at_dim;
      Dims counts;
      for (size_t d = 0; d < p.window.size(); ++d) {
        at_dim.push_back(places(p, index[d + 2], d));
        counts.push_back(static_cast<int64_t>(at_dim.back().size()));
      }
      double total = start;
      *inside = *all = 0;
      for_each_index(counts, [&](const Dims& k) {
        Dims i = {index[0], index[1]};
        for (size_t d = 0; d < k.size(); ++d) i.push_back(at_dim[d][static_cast<size_t>(k[d])]);
        ++*all;
        if (std::count(i.begin() + 2, i.end(), -1)) return;
        ++*inside;
        total = f(total, at(x, i));
      });
      return total;
    };
    Attrs attrs = {{"window", p.window}, {"strides", p.strides},     {"pads_begin", p.begin},
                   {"pads_end", p.end},  {"dilations", p.dilations}, {"ceil_mode", p.ceil}};
    const std::string what = fmt::format("pool of [{}] by [{}]", fmt::join(p.x, ","), fmt::join(p.window, ","));
    double inside = 0, all = 0;
    for (DType dtype : kRealDTypes) {
      const Tensor x = random_tensor(random, dtype, p.x);
      const auto largest = reference(out, [&](const Dims& i) {
        return fold(x, i, -INFINITY, [](double a, double b) { return std::max(a, b); }, &inside, &all);
      });
      expect_close(run_composite("max_pool", {x}, attrs)[0], out, largest, what, 0);
      for (bool include : {false, true}) {
        const auto mean = reference(out, [&](const Dims& i) {
          const double sum = fold(x, i, 0, [](double a, double b) { return a + b; }, &inside, &all);
          return sum / (include ? all : inside);
        });
        Attrs average = attrs;
        average.set("count_include_pad", include);
        expect_close(run_composite("average_pool", {x}, average)[0], out, mean, what + (include ? " with padding" : ""),
                     kSlack);
      }
    }
    const Tensor bytes = random_tensor(random, DType::kI8, p.x);
    const auto largest = reference(out, [&](const Dims& i) {
      return fold(bytes, i, -128, [](double a, double b) { return std::max(a, b); }, &inside, &all);
    });
    expect_close(run_composite("max_pool", {bytes}, attrs)[0], out, largest, what + " of i8", 0);
  }
}

TEST(Composite, GlobalPoolingAndReductions) {
  std::mt19937 random(8);
  for (DType dtype : kRealDTypes) {
    const Dims dims = {2, 3, 4, 5};
    const Tensor x = random_tensor(random, dtype, dims);
    const auto over_image = [&](double start, auto f) {
      return reference({2, 3, 1, 1}, [&](const Dims& i) {
        double total = start;
        for_each_index({4, 5}, [&](const Dims& k) { total = f(total, at(x, {i[0], i[1], k[0], k[1]})); });
        return total;
      });
    };
    auto mean = over_image(0, [](double a, double b) { return a + b; });
    for (double& value : mean) value /= 20;
    expect_close(run_composite("global_average_pool", {x})[0], {2, 3, 1, 1}, mean, "global_average_pool", kSlack);
    expect_close(run_composite("global_max_pool", {x})[0], {2, 3, 1, 1},
                 over_image(-INFINITY, [](double a, double b) { return std::max(a, b); }), "global_max_pool", 0);

    struct Case {
      const char* name;
      double (*element)(double);
      double (*finish)(double);
    };
    const Case cases[] = {
        {"reduce_mean", [](double v) { return v / 8; }, [](double v) { return v; }},
        {"reduce_l1", [](double v) { return std::fabs(v); }, [](double v) { return v; }},
        {"reduce_l2", [](double v) { return v * v; }, [](double v) { return std::sqrt(v); }},
        {"reduce_sum_square", [](double v) { return v * v; }, [](double v) { return v; }},
        {"reduce_log_sum_exp", [](double v) { return std::exp(v); }, [](double v) { return std::log(v); }},
        {"reduce_log_sum", [](double v) { return v; }, [](double v) { return std::log(v); }},
    };
    for (const Case& c : cases)
      for (bool keepdims : {false, true}) {
        Tensor y(dtype, {2, 3, 4});
        for (int64_t i = 0; i < 24; ++i) y.set_double(i, static_cast<double>(random() % 8) / 2 + 0.5);
        const auto want = reference({3}, [&](const Dims& i) {
          double total = 0;
          for_each_index({2, 4}, [&](const Dims& k) { total += c.element(at(y, {k[0], i[0], k[1]})); });
          return c.finish(total);
        });
        const Dims out = keepdims ? Dims{1, 3, 1} : Dims{3};
        expect_close(run_composite(c.name, {y}, {{"axes", Dims{2, 0}}, {"keepdims", keepdims}})[0], out, want, c.name,
                     kSlack);
      }
  }
  const double inf = std::numeric_limits<double>::infinity();
  const Attrs last = {{"axes", Dims{1}}, {"keepdims", false}};
  expect_close(
      run_composite("reduce_log_sum_exp", {tensor_of(DType::kF32, {3, 2}, {-inf, -inf, inf, 0, 5000, 5000})}, last)[0],
      {3}, {-inf, inf, 5000 + std::log(2.0)}, "reduce_log_sum_exp");
}

TEST(Composite, ConvTransposeScattersTheKernel) {
  struct Case {
    Dims x, w;
    int64_t groups;
    Dims strides, begin, end, dilations, more;
  };
  const std::vector<Case> cases = {
      {{1, 3, 4, 5}, {3, 2, 2, 2}, 1, {2, 2}, {0, 0}, {0, 0}, {1, 1}, {0, 0}},
      {{2, 2, 3, 3}, {2, 4, 3, 3}, 1, {2, 1}, {1, 0}, {0, 2}, {1, 2}, {1, 0}},
      {{1, 4, 3, 4}, {4, 3, 3, 2}, 2, {1, 2}, {1, 1}, {1, 0}, {1, 1}, {0, 1}},
      {{1, 2, 20}, {2, 1, 5}, 2, {3}, {2}, {1}, {1}, {2}},
      {{1, 1, 2, 3, 2}, {1, 2, 2, 1, 3}, 1, {1, 2, 2}, {0, 0, 1}, {1, 0, 0}, {1, 1, 1}, {0, 1, 0}},
      {{1, 2, 3, 3}, {2, 2, 1, 1}, 1, {1, 1}, {0, 0}, {0, 0}, {1, 1}, {0, 0}},
  };
  std::mt19937 random(9);
  for (DType dtype : {DType::kF32, DType::kF64, DType::kF16, DType::kBF16, DType::kI32})
    for (const Case& c : cases) {
      const Tensor x = random_tensor(random, dtype, c.x);
      const Tensor w = random_tensor(random, dtype, c.w);
      const int64_t out_per_group = c.w[1];
      const int64_t in_per_group = c.x[1] / c.groups;
      Dims out = {c.x[0], out_per_group * c.groups};
      for (size_t d = 0; d < c.strides.size(); ++d)
        out.push_back((c.x[d + 2] - 1) * c.strides[d] + (c.w[d + 2] - 1) * c.dilations[d] + 1 - c.begin[d] - c.end[d] +
                      c.more[d]);
      std::vector<double> want(static_cast<size_t>(Tensor(DType::kBool, out).num_elements()), 0);
      Dims kernel(c.w.begin() + 1, c.w.end());
      for_each_index(c.x, [&](const Dims& i) {
        for_each_index(kernel, [&](const Dims& k) {
          Dims o = {i[0], i[1] / in_per_group * out_per_group + k[0]};
          Dims wi = {i[1]};
          wi.insert(wi.end(), k.begin(), k.end());
          for (size_t d = 0; d < c.strides.size(); ++d) {
            o.push_back(i[d + 2] * c.strides[d] + k[d + 1] * c.dilations[d] - c.begin[d]);
            if (o.back() < 0 || o.back() >= out[d + 2]) return;
          }
          want[static_cast<size_t>(flat_index(out, o))] += at(x, i) * at(w, wi);
        });
      });
      const Attrs attrs = {{"strides", c.strides},     {"pads_begin", c.begin},    {"pads_end", c.end},
                           {"dilations", c.dilations}, {"output_padding", c.more}, {"groups", c.groups}};
      expect_close(run_composite("conv_transpose", {x, w}, attrs)[0], out, want,
                   fmt::format("conv_transpose [{}] by [{}]", fmt::join(c.x, ","), fmt::join(c.w, ",")), kSlack);
    }
}

TEST(Composite, NodesCarryNameAttributesAndASoundRegion) {
  Graph graph;
  GraphBuilder builder(graph);
  builder.set_loc("Softmax_7");
  const ValueId x = graph.add_input("x", TensorType{DType::kF32, make_shape({2, 3}), {}});
  graph.outputs = add_composite(builder, standard_ops(), "softmax", {x}, {{"axis", int64_t{1}}});
  ASSERT_EQ(graph.nodes().size(), 1u);
  const Node& node = graph.node(0);
  EXPECT_EQ(node.op->name, "composite");
  EXPECT_EQ(node.attrs.get<std::string>("name"), "softmax");
  EXPECT_EQ(node.attrs.get_int("axis"), 1);
  EXPECT_EQ(node.loc, "Softmax_7");
  EXPECT_EQ(verify(graph), std::vector<std::string>());
  for (const Node& inner : node.regions[0]->nodes()) EXPECT_NE(inner.op->kind, OpKind::kComposite);
}

}  // namespace
}  // namespace tessera
