// Linear models and support vector machines.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "import/onnx/operators/handlers.h"
#include "import/onnx/operators/ml_scores.h"

namespace tessera::inline onnx_import {
namespace {

using Ints = std::vector<int64_t>;

constexpr int64_t kMostCoefficients = int64_t{1} << 26;  // pairs of classes times vectors
constexpr int64_t kMostJoined = 128;  // classes whose probabilities are joined: the sweeps are written out

// Whether a list has `rows` times `columns` entries.
bool has_entries(const std::vector<double>& list, int64_t rows, int64_t columns) {
  int64_t count;
  return !__builtin_mul_overflow(rows, columns, &count) && std::ssize(list) == count;
}

// x [N, F] times coefficients [targets, F], plus intercepts.
ValueId linear(NodeContext& c, ValueId x, const std::vector<double>& coefficients,
               const std::vector<double>& intercepts, int64_t targets) {
  const int64_t features = c.dims(x)[1];
  if (targets < 1 || !has_entries(coefficients, targets, features) ||
      (!intercepts.empty() && std::ssize(intercepts) != targets))
    c.malformed(fmt::format("{} coefficients and {} intercepts of {} targets and {} features", coefficients.size(),
                            intercepts.size(), targets, features),
                "a coefficient for each target and feature, and an intercept for each target or none");
  const ValueId weights = float_table(c, c.dtype(x), coefficients, {targets, features});
  const ValueId y = c.op("matmul", {x, weights}, {{"transpose_b", true}});
  return intercepts.empty() ? y : c.add(y, float_table(c, c.dtype(x), intercepts, {targets}));
}

struct Kernel {
  std::string type;
  double gamma = 0, constant = 0, degree = 0;

  explicit Kernel(NodeContext& c) : type(c.attrs.get_string("kernel_type", "LINEAR")) {
    const std::vector<double> parameters = c.attrs.get_floats("kernel_params");
    if (type != "LINEAR" && type != "POLY" && type != "RBF" && type != "SIGMOID")
      c.malformed(fmt::format("kernel_type = {}", type), "LINEAR, POLY, RBF, SIGMOID");
    if (parameters.size() >= 3) gamma = parameters[0], constant = parameters[1], degree = parameters[2];
    else if (type != "LINEAR") c.malformed(fmt::format("{} kernel_params", parameters.size()), "gamma, coef0, degree");
  }
  // Of each row of x [N, F] with each of the vectors [V, F].
  ValueId apply(NodeContext& c, ValueId x, const std::vector<double>& vectors, int64_t count) const {
    const int64_t features = c.dims(x)[1];
    if (count < 1 || !has_entries(vectors, count, features))
      c.malformed(fmt::format("{} values of {} vectors with {} features", vectors.size(), count, features),
                  "a value for each vector and feature");
    const ValueId table = float_table(c, c.dtype(x), vectors, {count, features});
    const auto number = [&](double value) { return c.scalar_like(x, value); };
    if (type == "RBF") {
      const ValueId apart = c.sub(c.reshape(x, {c.dims(x)[0], 1, features}), table);
      return c.op("exp", {c.mul(c.reduce("sum", c.mul(apart, apart), {2}, false), number(-gamma))});
    }
    const ValueId product = c.op("matmul", {x, table}, {{"transpose_b", true}});
    if (type == "LINEAR") return product;
    const ValueId scaled = c.add(c.mul(product, number(gamma)), number(constant));
    if (type == "SIGMOID") return c.op("tanh", {scaled});
    // A whole exponent of a negative base has a value.
    return c.op("pow", {scaled, number(degree)});
  }
};

// Class probabilities from those of the pairs, r [N, C, C] with r[i][j] = P(i | i or j): the vector p that minimises
// the sum of (r[j][i] p[i] - r[i][j] p[j])^2, by the sweeps that libsvm makes until a row has converged.
ValueId joined_probabilities(NodeContext& c, const std::vector<std::vector<ValueId>>& r) {
  const auto classes = static_cast<int64_t>(r.size());
  const auto count = r.size();
  constexpr int64_t kSweeps = 100;
  const ValueId any = r[0][1];
  const auto number = [&](double value) { return c.scalar_like(any, value); };
  // Columns [N, 1] throughout; the matrix q as rows [N, C].
  std::vector<std::vector<ValueId>> q(count, std::vector<ValueId>(count));
  for (size_t t = 0; t < count; ++t) {
    std::optional<ValueId> diagonal;
    for (size_t j = 0; j < count; ++j) {
      if (j == t) continue;
      const ValueId square = c.mul(r[j][t], r[j][t]);
      diagonal = diagonal ? c.add(*diagonal, square) : square;
      q[t][j] = c.op("neg", {c.mul(r[j][t], r[t][j])});
    }
    q[t][t] = *diagonal;
  }
  const auto row = [&](const std::vector<ValueId>& parts) { return c.op("concat", parts, {{"axis", int64_t{1}}}); };
  std::vector<ValueId> rows;
  for (size_t t = 0; t < count; ++t) rows.push_back(row(q[t]));
  const int64_t n = c.dims(any)[0];
  ValueId p = c.broadcast(number(1.0 / static_cast<double>(classes)), {n, classes});
  const auto column = [&](ValueId v, size_t t) { return c.slice(v, {0, static_cast<int64_t>(t)}, {n, 1}, {1, 1}); };
  const auto sum = [&](ValueId v) { return c.reduce("sum", v, {1}, true); };
  std::optional<ValueId> running;
  for (int64_t sweep = 0; sweep < kSweeps; ++sweep) {
    std::vector<ValueId> products;
    for (size_t t = 0; t < count; ++t) products.push_back(sum(c.mul(rows[t], p)));
    ValueId qp = row(products), pqp = sum(c.mul(p, qp)), next = p;
    const ValueId error = c.reduce("max", c.op("abs", {c.sub(qp, pqp)}), {1}, true);
    const ValueId more = c.op("ge", {error, number(0.005 / static_cast<double>(classes))});
    running = running ? c.op("logical_and", {*running, more}) : more;
    for (size_t t = 0; t < count; ++t) {
      const ValueId step = c.div(c.sub(pqp, column(qp, t)), q[t][t]);
      const ValueId whole = c.add(step, number(1));
      const ValueId twice = c.mul(column(qp, t), number(2));
      pqp = c.div(c.add(pqp, c.mul(step, c.add(c.mul(step, q[t][t]), twice))), c.mul(whole, whole));
      qp = c.div(c.add(qp, c.mul(step, rows[t])), whole);
      const ValueId here = c.op("eq", {c.iota({1, classes}, 1), c.integer(static_cast<int64_t>(t))});
      next = c.div(c.op("select", {here, c.add(next, step), next}), whole);
    }
    p = c.op("select", {*running, next, p});
  }
  return p;
}

void import_linear_regressor(NodeContext& c) {
  c.require_inputs(1, 1);
  const ValueId y = linear(c, feature_rows(c, c.in(0)), c.attrs.get_floats("coefficients"),
                           c.attrs.get_floats("intercepts"), c.attrs.get_int("targets", 1));
  c.out(0, post_transformed(c, y, read_post_transform(c)));
}

void import_linear_classifier(NodeContext& c) {
  c.require_inputs(1, 1);
  c.attrs.ignore("multi_class");
  const ValueId x = feature_rows(c, c.in(0));
  const std::vector<double> coefficients = c.attrs.get_floats("coefficients"),
                            intercepts = c.attrs.get_floats("intercepts");
  const std::string ints = "classlabels_ints", strings = "classlabels_strings", transform = read_post_transform(c);
  const int64_t features = std::max<int64_t>(1, c.dims(x)[1]);
  const int64_t columns = std::ssize(coefficients) / features, labels = label_count(c, ints, strings);
  ValueId scores = linear(c, x, coefficients, intercepts, columns);
  if (columns > 1) {
    give_labels(c, largest_column(c, scores), ints, strings);
    return c.out(1, post_transformed(c, scores, transform));
  }
  // One score, of the second of two classes.
  if (labels != 2) c.unsupported(fmt::format("one score and {} labels", labels));
  const ValueId yes = c.op("gt", {scores, c.scalar_like(scores, 0)});
  give_labels(c, c.reshape(c.cast(yes, DType::kI64), {c.dims(x)[0]}), ints, strings);
  // Only LOGISTIC applies to a score that stands for both, as in ONNX Runtime.
  const bool logistic = transform == "LOGISTIC";
  const ValueId other = logistic ? c.op("neg", {scores}) : c.sub(c.scalar_like(scores, 1), scores);
  const ValueId both = c.op("concat", {other, scores}, {{"axis", int64_t{1}}});
  c.out(1, logistic ? post_transformed(c, both, transform) : both);
}

void import_svm_regressor(NodeContext& c) {
  c.require_inputs(1, 1);
  const ValueId x = feature_rows(c, c.in(0));
  const Kernel kernel(c);
  const std::vector<double> coefficients = c.attrs.get_floats("coefficients"), rho = c.attrs.get_floats("rho"),
                            vectors = c.attrs.get_floats("support_vectors");
  const int64_t supports = c.attrs.get_int("n_supports", 0);
  if (rho.empty()) c.malformed("no rho", "one value");
  ValueId y;
  if (supports > 0) {
    if (std::ssize(coefficients) != supports)
      c.malformed(fmt::format("{} coefficients of {} vectors", coefficients.size(), supports), "one for each");
    const ValueId weights = float_table(c, DType::kF32, coefficients, {supports, 1});
    y = c.op("matmul", {kernel.apply(c, x, vectors, supports), weights});
  } else {
    y = kernel.apply(c, x, coefficients, 1);
  }
  y = c.add(y, c.scalar_like(y, rho[0]));
  const bool one_class = c.attrs.get_int("one_class", 0) != 0;
  const std::string transform = read_post_transform(c);
  if (one_class)
    return c.out(0, c.op("select", {c.op("gt", {y, c.scalar_like(y, 0)}), c.scalar_like(y, 1), c.scalar_like(y, -1)}));
  c.out(0, post_transformed(c, y, transform));
}

void import_svm_classifier(NodeContext& c) {
  c.require_inputs(1, 1);
  const ValueId x = feature_rows(c, c.in(0));
  const Kernel kernel(c);
  const std::vector<double> coefficients = c.attrs.get_floats("coefficients"), rho = c.attrs.get_floats("rho"),
                            vectors = c.attrs.get_floats("support_vectors"), a = c.attrs.get_floats("prob_a"),
                            b = c.attrs.get_floats("prob_b");
  const Ints per_class = c.attrs.get_ints("vectors_per_class");
  const std::string ints = "classlabels_ints", strings = "classlabels_strings", transform = read_post_transform(c);
  const int64_t labels = label_count(c, ints, strings), n = c.dims(x)[0];
  for (const int64_t count : per_class)
    if (count < 0 || count > std::ssize(coefficients))
      c.malformed(fmt::format("{} vectors of a class and {} coefficients", count, coefficients.size()),
                  "a coefficient or more for each vector");
  const int64_t supports = std::accumulate(per_class.begin(), per_class.end(), int64_t{0});
  if (rho.empty()) c.malformed("no rho", "one value or more");
  if (supports == 0) {
    // A linear model of each class.
    if (kernel.type != "LINEAR" || labels < 2)
      c.unsupported(fmt::format("{} labels and a kernel {} without support vectors", labels, kernel.type));
    const ValueId scores = linear(c, x, coefficients, std::vector<double>(static_cast<size_t>(labels), rho[0]), labels);
    give_labels(c, largest_column(c, scores), ints, strings);
    return c.out(1, post_transformed(c, scores, transform));
  }
  const auto classes = std::ssize(per_class);
  const int64_t pairs = classes * (classes - 1) / 2;
  if (classes != labels || classes < 2 || std::ssize(coefficients) != (classes - 1) * supports ||
      std::ssize(rho) != pairs || a.size() != b.size() || (!a.empty() && std::ssize(a) != pairs))
    c.malformed(fmt::format("{} labels, {} classes, {} coefficients of {} vectors, {} rho, {} prob_a", labels, classes,
                            coefficients.size(), supports, rho.size(), a.size()),
                "two classes or more, and an entry for each pair of them");
  if (pairs > kMostCoefficients / std::max(supports, int64_t{classes}) || (!a.empty() && classes > kMostJoined))
    c.unsupported(
        fmt::format("{} classes with {} vectors{}", classes, supports, a.empty() ? "" : " and probabilities"));
  // Which vectors decide between the classes of a pair, and with which weight.
  Ints start(per_class.size(), 0);
  for (size_t i = 1; i < per_class.size(); ++i) start[i] = start[i - 1] + per_class[i - 1];
  Tensor weights(DType::kF32, {supports, pairs});
  std::vector<std::pair<int64_t, int64_t>> members;
  for (int64_t i = 0; i < classes; ++i)
    for (int64_t j = i + 1; j < classes; ++j) {
      const int64_t pair = std::ssize(members);
      members.emplace_back(i, j);
      const auto put = [&](int64_t of, int64_t row) {
        const auto k = static_cast<size_t>(of);
        for (int64_t v = start[k]; v < start[k] + per_class[k]; ++v)
          weights.set_double(v * pairs + pair, coefficients[static_cast<size_t>(row * supports + v)]);
      };
      put(i, j - 1);
      put(j, i);
    }
  const ValueId values = kernel.apply(c, x, vectors, supports);
  const ValueId scores = c.add(c.op("matmul", {values, c.constant_value(std::move(weights))}),
                               float_table(c, DType::kF32, rho, {pairs}));  // [N, pairs]
  const auto score = [&](int64_t pair) { return c.slice(scores, {0, pair}, {n, 1}, {1, 1}); };
  // Each pair votes for one of its classes.
  Tensor first(DType::kF32, {pairs, classes}), second(DType::kF32, {pairs, classes});
  for (int64_t pair = 0; pair < pairs; ++pair) {
    first.set_double(pair * classes + members[static_cast<size_t>(pair)].first, 1);
    second.set_double(pair * classes + members[static_cast<size_t>(pair)].second, 1);
  }
  const ValueId wins = c.cast(c.op("gt", {scores, c.scalar_like(scores, 0)}), DType::kF32);
  const ValueId votes =
      c.add(c.op("matmul", {wins, c.constant_value(std::move(first))}),
            c.op("matmul", {c.sub(c.scalar_like(wins, 1), wins), c.constant_value(std::move(second))}));
  ValueId result = scores;
  if (!a.empty()) {
    std::vector<std::vector<ValueId>> r(static_cast<size_t>(classes),
                                        std::vector<ValueId>(static_cast<size_t>(classes)));
    for (int64_t pair = 0; pair < pairs; ++pair) {
      const auto p = static_cast<size_t>(pair);
      const auto [i, j] = members[p];
      const ValueId logit = c.add(c.mul(score(pair), c.scalar_like(scores, -a[p])), c.scalar_like(scores, -b[p]));
      ValueId of_first = c.composite("sigmoid", {logit});
      of_first = c.op("min", {c.op("max", {of_first, c.scalar_like(scores, 1e-7)}), c.scalar_like(scores, 1 - 1e-7)});
      r[static_cast<size_t>(i)][static_cast<size_t>(j)] = of_first;
      r[static_cast<size_t>(j)][static_cast<size_t>(i)] = c.sub(c.scalar_like(scores, 1), of_first);
    }
    result = joined_probabilities(c, r);
  }
  give_labels(c, largest_column(c, votes), ints, strings);
  if (classes == 2 && a.empty()) result = c.op("concat", {c.op("neg", {scores}), scores}, {{"axis", int64_t{1}}});
  c.out(1, post_transformed(c, result, transform));
}

}  // namespace

OperatorFamily ml_linear_operators() {
  static constexpr OperatorImporter ml[] = {
      OperatorImporter{"LinearClassifier", 1, import_linear_classifier},
      OperatorImporter{"LinearRegressor", 1, import_linear_regressor},
      OperatorImporter{"SVMClassifier", 1, import_svm_classifier},
      OperatorImporter{"SVMRegressor", 1, import_svm_regressor},
  };
  return {{kMlDomain, ml}};
}

}  // namespace tessera::inline onnx_import
