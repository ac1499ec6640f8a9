// Composites that training is made of against their definitions in double: losses, optimizers, the normalisations with
// their statistics.
#include <fmt/format.h>

#include <cmath>
#include <optional>

#include "reference_util.h"

namespace tessera {
namespace {

constexpr double kSlack = 4;  // 16-bit types round after each of several operations

// As random_tensor, but numbers between lo and hi.
Tensor uniform(std::mt19937& random, DType dtype, const Dims& dims, double lo, double hi) {
  Tensor tensor(dtype, dims);
  for (int64_t i = 0; i < tensor.num_elements(); ++i)
    tensor.set_double(i, lo + (hi - lo) * static_cast<double>(random() % 1024) / 1024);
  return tensor;
}

Tensor targets_of(std::mt19937& random, DType dtype, const Dims& dims, int64_t classes) {
  Tensor tensor(dtype, dims);
  for (int64_t i = 0; i < tensor.num_elements(); ++i)
    tensor.set_int(i, static_cast<int64_t>(random() % static_cast<uint64_t>(classes)));
  return tensor;
}

struct Loss {
  const Tensor& log_probabilities;
  const Tensor& targets;
  const Tensor* weights;
  std::optional<int64_t> ignored;

  int64_t target(const Dims& i) const { return targets.get_int(flat_index(targets.dims(), i)); }
  double weight(const Dims& i) const {
    if (target(i) == ignored) return 0;
    return weights ? weights->get_double(target(i)) : 1;
  }
  double at_target(const Dims& i) const {
    if (target(i) == ignored) return 0;
    Dims place = i;
    place.insert(place.begin() + 1, target(i));
    return -at(log_probabilities, place) * weight(i);
  }
  std::vector<double> reduced(const std::string& reduction) const {
    if (reduction == "none") return reference(targets.dims(), [&](const Dims& i) { return at_target(i); });
    double sum = 0, count = 0;
    for_each_index(targets.dims(), [&](const Dims& i) {
      sum += at_target(i);
      count += weight(i);
    });
    return {reduction == "sum" ? sum : sum / count};
  }
};

TEST(Training, LossesOfEveryFormAndReduction) {
  std::mt19937 random(1);
  for (DType dtype : kRealDTypes)
    for (DType index : {DType::kI64, DType::kI32})
      for (const Dims& scores : {Dims{1, 1}, Dims{7, 5}, Dims{2, 5, 3}, Dims{3, 4, 2, 5}, Dims{0, 3}, Dims{9, 300}})
        for (const char* reduction : {"none", "mean", "sum"})
          for (const int form : {0, 1, 2, 3}) {
            Dims shape = scores;
            shape.erase(shape.begin() + 1);
            const Tensor x = uniform(random, dtype, scores, -4, -0.25);
            const Tensor t = targets_of(random, index, shape, scores[1]);
            const Tensor w = uniform(random, dtype, {scores[1]}, 0.25, 2);
            const bool weighted = form & 1;
            std::vector<Tensor> operands = {x, t};
            if (weighted) operands.push_back(w);
            Attrs attrs = {{"reduction", std::string(reduction)}};
            Loss loss{x, t, weighted ? &w : nullptr, {}};
            if (form & 2) attrs.set("ignore_index", *(loss.ignored = scores[1] > 1 ? 1 : -1));
            const Dims out = std::string(reduction) == "none" ? shape : Dims{};
            const std::string what = fmt::format("{} [{}] form {}", reduction, fmt::join(scores, ","), form);
            expect_close(run_composite("nll_loss", operands, attrs)[0], out, loss.reduced(reduction), what, kSlack);

            const auto log_softmax = reference(scores, [&](Dims i) {
              const double own = at(x, i);
              double sum = 0;
              for (i[1] = 0; i[1] < scores[1]; ++i[1]) sum += std::exp(at(x, i) - own);
              return -std::log(sum);
            });
            const Tensor logs = tensor_of(DType::kF64, scores, log_softmax);
            const Loss entropy{logs, t, loss.weights, loss.ignored};
            const auto results = run_composite("softmax_cross_entropy", operands, attrs);
            ASSERT_EQ(results.size(), 2u);
            expect_close(results[0], out, entropy.reduced(reduction), "cross entropy " + what, kSlack);
            expect_close(results[1], scores, log_softmax, "log probabilities " + what, kSlack);
          }
}

TEST(Training, IgnoredTargetsNeedNotBeClasses) {
  const Tensor x = tensor_of(DType::kF32, {3, 2}, {-1, -2, -3, -4, -5, -6});
  const Tensor t = tensor_of(DType::kI64, {3}, {-100, 1, -100});
  const Attrs attrs = {{"reduction", std::string("mean")}, {"ignore_index", int64_t{-100}}};
  expect_close(run_composite("nll_loss", {x, t}, attrs)[0], {}, {4}, "one target counts");
  const Tensor none = tensor_of(DType::kI64, {3}, {-100, -100, -100});
  expect_close(run_composite("nll_loss", {x, none}, attrs)[0], {}, {NAN}, "no target counts");
  // A loss of infinity is not read where the target is ignored.
  const Tensor infinite = tensor_of(DType::kF32, {3, 2}, {-INFINITY, -2, -3, -4, -INFINITY, -6});
  expect_close(run_composite("nll_loss", {infinite, t}, attrs)[0], {}, {4}, "the others are not read");
}

const std::vector<Dims> kWeightShapes = {{}, {1}, {7}, {3, 300}, {2, 3, 1, 5}, {0, 4}};

// Scalars that optimizers take: the rate and the number of the step.
std::vector<Tensor> with_scalars(std::vector<Tensor> tensors, DType dtype, double rate, int64_t number) {
  tensors.push_back(tensor_of(dtype, {}, {rate}));
  tensors.push_back(tensor_of(DType::kI64, {}, {static_cast<double>(number)}));
  return tensors;
}

TEST(Training, Optimizers) {
  std::mt19937 random(2);
  for (DType dtype : kRealDTypes)
    for (const Dims& dims : kWeightShapes)
      for (const int64_t number : {0, 1, 12}) {
        const Tensor w = uniform(random, dtype, dims, 0.5, 2), g = uniform(random, dtype, dims, -1, 1);
        const Tensor s = uniform(random, dtype, dims, 0.25, 1), v = uniform(random, dtype, dims, 0.25, 1);
        const double rate = 0.125, l2 = 0.25, epsilon = 0.0625;
        const auto gradient = [&](const Dims& i) { return l2 * at(w, i) + at(g, i); };
        const auto check = [&](const char* name, const std::vector<Tensor>& states, const Attrs& attrs,
                               const std::vector<std::function<double(const Dims&)>>& want) {
          // The rate may have another float type than the weights.
          for (const DType of_rate : {DType::kF32, dtype}) {
            std::vector<Tensor> operands = {w, g};
            operands.insert(operands.end(), states.begin(), states.end());
            const auto results = run_composite(name, with_scalars(operands, of_rate, rate, number), attrs);
            ASSERT_EQ(results.size(), want.size());
            for (size_t r = 0; r < want.size(); ++r)
              expect_close(results[r], dims, reference(dims, want[r]), fmt::format("{}: result {}", name, r), kSlack);
          }
        };

        const auto squares = [&](const Dims& i) { return at(s, i) + gradient(i) * gradient(i); };
        check("adagrad", {s}, {{"l2", l2}, {"epsilon", epsilon}, {"decay", 0.5}},
              {[&](const Dims& i) {
                 const double decayed = rate / (1 + 0.5 * static_cast<double>(number));
                 return at(w, i) - decayed * gradient(i) / (std::sqrt(squares(i)) + epsilon);
               },
               squares});

        const auto mean = [&](const Dims& i) { return 0.75 * at(s, i) + 0.25 * gradient(i); };
        const auto power = [&](const Dims& i) { return 0.875 * at(v, i) + 0.125 * gradient(i) * gradient(i); };
        check("adam", {s, v}, {{"l2", l2}, {"epsilon", epsilon}, {"alpha", 0.75}, {"beta", 0.875}, {"shrink", 0.25}},
              {[&](const Dims& i) {
                 const auto t = static_cast<double>(number);
                 const double corrected =
                     number > 0 ? rate * std::sqrt(1 - std::pow(0.875, t)) / (1 - std::pow(0.75, t)) : rate;
                 return (at(w, i) - corrected * mean(i) / (std::sqrt(power(i)) + epsilon)) * 0.75;
               },
               mean, power});

        for (const bool nesterov : {false, true}) {
          const auto velocity = [&](const Dims& i) { return 0.75 * at(s, i) + (number > 0 ? 0.5 : 1) * gradient(i); };
          check("momentum", {s}, {{"l2", l2}, {"alpha", 0.75}, {"beta", 0.5}, {"nesterov", nesterov}},
                {[&](const Dims& i) {
                   return at(w, i) - rate * (nesterov ? gradient(i) + 0.75 * velocity(i) : velocity(i));
                 },
                 velocity});
        }
      }
}

// Mean, variance and number of the elements of x for which `counts` holds.
struct Moments {
  double mean = 0, variance = 0, count = 0;
};

Moments moments(const Tensor& x, const std::function<bool(const Dims&)>& counts) {
  Moments m;
  double squares = 0;
  for_each_index(x.dims(), [&](const Dims& i) {
    if (!counts(i)) return;
    m.mean += at(x, i);
    ++m.count;
  });
  m.mean /= m.count;
  for_each_index(x.dims(), [&](const Dims& i) {
    if (counts(i)) squares += (at(x, i) - m.mean) * (at(x, i) - m.mean);
  });
  m.variance = squares / m.count;
  return m;
}

// Statistics are checked in the type that they are taken in: 16-bit inputs with f32 and alone.
struct Types {
  DType of, stash;
};
constexpr Types kTypes[] = {{DType::kF64, DType::kF64},  {DType::kF32, DType::kF32}, {DType::kF16, DType::kF32},
                            {DType::kBF16, DType::kF32}, {DType::kF16, DType::kF16}, {DType::kF32, DType::kF64}};

TEST(Training, BatchNormTakesTheBatchIntoItsRunningStatistics) {
  std::mt19937 random(3);
  for (const Types& types : kTypes)
    for (const Dims& dims : {Dims{6, 3}, Dims{2, 3, 5}, Dims{3, 2, 4, 5}, Dims{1, 1, 33}, Dims{2, 3, 2, 3, 2}})
      for (const DType of_running : {types.of, types.stash})
        for (const bool unbiased : {false, true}) {
          const Dims vector = {dims[1]};
          const Tensor x = random_tensor(random, types.of, dims);
          const Tensor scale = uniform(random, types.of, vector, 0.5, 2),
                       bias = uniform(random, types.of, vector, -1, 1);
          const Tensor mean = uniform(random, of_running, vector, -1, 1),
                       var = uniform(random, of_running, vector, 1, 2);
          std::vector<Moments> own;
          for (int64_t c = 0; c < dims[1]; ++c) own.push_back(moments(x, [&](const Dims& i) { return i[1] == c; }));
          const auto of = [&](const Dims& c) -> const Moments& { return own[static_cast<size_t>(c[0])]; };
          const auto inverse = [&](const Dims& c) { return 1 / std::sqrt(of(c).variance + 0.25); };
          Attrs attrs = {{"epsilon", 0.25}, {"momentum", 0.75}, {"unbiased", unbiased}};
          if (types.stash != types.of) attrs.set("stash", types.stash);
          const auto results = run_composite("batch_norm_training", {x, scale, bias, mean, var}, attrs);
          ASSERT_EQ(results.size(), 5u);
          const auto check = [&](size_t result, DType dtype, const Dims& shape, const char* what,
                                 const std::function<double(const Dims&)>& want) {
            EXPECT_EQ(results[result].dtype(), dtype) << what;
            const double slack = types.stash == DType::kF16 ? 4 * kSlack : kSlack;
            expect_close(results[result], shape, reference(shape, want), what, slack);
          };
          check(0, types.of, dims, "y", [&](const Dims& i) {
            const Dims c = {i[1]};
            return (at(x, i) - of(c).mean) * inverse(c) * at(scale, c) + at(bias, c);
          });
          check(1, of_running, vector, "running mean",
                [&](const Dims& c) { return 0.75 * at(mean, c) + 0.25 * of(c).mean; });
          check(2, of_running, vector, "running variance", [&](const Dims& c) {
            const double own_variance = of(c).variance * (unbiased ? of(c).count / (of(c).count - 1) : 1);
            return 0.75 * at(var, c) + 0.25 * own_variance;
          });
          check(3, types.stash, vector, "mean", [&](const Dims& c) { return of(c).mean; });
          check(4, types.stash, vector, "inverse deviation", inverse);
        }
}

TEST(Training, LayerAndRmsNormWithTheirStatistics) {
  std::mt19937 random(4);
  for (const Types& types : kTypes)
    for (const Dims& dims : {Dims{7}, Dims{3, 40}, Dims{2, 3, 5}, Dims{2, 2, 3, 4}})
      for (int64_t axis = 0; axis < static_cast<int64_t>(dims.size()); ++axis) {
        const Dims tail(dims.begin() + axis, dims.end());
        Dims kept = dims;
        std::fill(kept.begin() + axis, kept.end(), 1);
        const Tensor x = random_tensor(random, types.of, dims);
        const Tensor s = uniform(random, types.of, tail, 0.5, 2), b = uniform(random, types.of, tail, -1, 1);
        const auto of = [&](const Dims& i) {
          return moments(x, [&](const Dims& j) { return std::equal(i.begin(), i.begin() + axis, j.begin()); });
        };
        Attrs attrs = {{"axis", axis}, {"epsilon", 0.25}, {"statistics", true}};
        if (types.stash != types.of) attrs.set("stash", types.stash);
        const double slack = types.stash == DType::kF16 ? 4 * kSlack : kSlack;
        const auto check = [&](const Tensor& result, DType dtype, const Dims& shape, const char* what,
                               const std::function<double(const Dims&)>& want) {
          EXPECT_EQ(result.dtype(), dtype) << what;
          expect_close(result, shape, reference(shape, want), what, slack);
        };
        const auto inverse = [&](const Dims& i) { return 1 / std::sqrt(of(i).variance + 0.25); };
        const auto layer = run_composite("layer_norm", {x, s, b}, attrs);
        ASSERT_EQ(layer.size(), 3u);
        check(layer[0], types.of, dims, "layer_norm", [&](const Dims& i) {
          return (at(x, i) - of(i).mean) * inverse(i) * at_broadcast(s, i) + at_broadcast(b, i);
        });
        check(layer[1], types.stash, kept, "its mean", [&](const Dims& i) { return of(i).mean; });
        check(layer[2], types.stash, kept, "its inverse deviation", inverse);

        // The result has the scale's type.
        const Tensor wide = uniform(random, DType::kF64, tail, 0.5, 2);
        const auto root = [&](const Dims& i) {
          const Moments m = of(i);
          return std::sqrt(m.variance + m.mean * m.mean + 0.25);
        };
        for (const Tensor* scale : {&s, &wide}) {
          const auto rms = run_composite("rms_norm", {x, *scale}, attrs);
          ASSERT_EQ(rms.size(), 2u);
          EXPECT_EQ(rms[0].dtype(), scale->dtype());
          Tensor y(types.of, dims);  // compared with the tolerance of the type that it was computed in
          for (int64_t i = 0; i < y.num_elements(); ++i) y.set_double(i, rms[0].get_double(i));
          check(y, types.of, dims, "rms_norm",
                [&](const Dims& i) { return at(x, i) / root(i) * at_broadcast(*scale, i); });
          check(rms[1], types.stash, kept, "its inverse root", [&](const Dims& i) { return 1 / root(i); });
        }
      }
}

}  // namespace
}  // namespace tessera
