#include "graph_passes/quantized/scale_sums_once.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <ranges>

#include "graph_passes/support/graph_util.h"

namespace tessera::inline graph_passes {
namespace {

using Ints = std::vector<int64_t>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr size_t kMostTerms = 3;
constexpr int64_t kMostNumbers = 1 << 16;
constexpr double kLargest = 0x1p60;  // of a factor: products with integers of 32 bits are far from infinity

// Numbers that broadcast.
struct Numbers {
  Ints dims;
  std::vector<double> values = {0};
};

Numbers numbers_of(double value) { return {{}, {value}}; }

// `op` of each pair, by the rules of broadcasting; empty where the shapes do not fit.
template <typename Op>
std::optional<Numbers> combined(const Numbers& a, const Numbers& b, const Op& op) {
  Numbers result;
  const size_t rank = std::max(a.dims.size(), b.dims.size());
  const auto extent = [&](const Numbers& n, size_t d) {
    const size_t missing = rank - n.dims.size();
    return d < missing ? 1 : n.dims[d - missing];
  };
  int64_t count = 1;
  for (size_t d = 0; d < rank; ++d) {
    const int64_t x = extent(a, d), y = extent(b, d);
    if (x != y && x != 1 && y != 1) return std::nullopt;
    result.dims.push_back(x == 1 ? y : x);
    count *= result.dims.back();
  }
  const auto place = [&](const Numbers& n, int64_t i) {
    int64_t at = 0, stride = 1;
    for (size_t d = rank; d-- > 0; i /= result.dims[d]) {
      const int64_t own = extent(n, d);
      if (own != 1) at += i % result.dims[d] * stride;
      stride *= own;
    }
    return static_cast<size_t>(at);
  };
  result.values.clear();
  for (int64_t i = 0; i < count; ++i) result.values.push_back(op(a.values[place(a, i)], b.values[place(b, i)]));
  return result;
}

double largest(const Numbers& numbers) {
  double most = 0;
  for (const double value : numbers.values) most = std::isnan(value) ? kInfinity : std::max(most, std::abs(value));
  return most;
}

// A sum of values with factors, and of numbers.
struct Linear {
  struct Term {
    ValueId value = -1;  // of f32, or of i32, which is cast
    Numbers factor;
  };
  std::vector<Term> terms;
  Numbers added;
};

std::optional<Linear> times(Linear linear, const Numbers& factor) {
  const auto scaled = [&](Numbers& numbers) {
    auto product = combined(numbers, factor, std::multiplies<>());
    if (product) numbers = std::move(*product);
    return product.has_value();
  };
  for (Linear::Term& term : linear.terms)
    if (!scaled(term.factor)) return std::nullopt;
  return scaled(linear.added) ? std::optional(std::move(linear)) : std::nullopt;
}

std::optional<Linear> plus(Linear a, const Linear& b) {
  for (const Linear::Term& term : b.terms) {
    const auto same = std::ranges::find(a.terms, term.value, &Linear::Term::value);
    if (same == a.terms.end()) {
      a.terms.push_back(term);
      continue;
    }
    auto factor = combined(same->factor, term.factor, std::plus<>());
    if (!factor) return std::nullopt;
    same->factor = std::move(*factor);
  }
  auto added = combined(a.added, b.added, std::plus<>());
  if (!added || a.terms.size() > kMostTerms) return std::nullopt;
  a.added = std::move(*added);
  return a;
}

// A conversion to a byte: of round(number / scale) + zero, within limits.
struct Quantized {
  ValueId number = -1;
  bool is_scaled_once = false;  // the number is not divided: its factor is the one that was asked for
  double scale = 1, zero = 0, low = -kInfinity, high = kInfinity;
};

class Scaler {
 public:
  Scaler(const Graph& graph, const PassContext& ctx)
      : graph_(graph), ctx_(ctx), rewriter_(graph), builder_(rewriter_.target()), uses_(use_counts(graph)) {}

  Graph run() {
    return rewriter_.run([&](GraphRewriter&, const Node& node, const std::vector<ValueId>&) -> std::vector<ValueId> {
      locs_.clear();
      auto quantized = quantized_by(node);
      if (!quantized) return {};
      take_limits(*quantized);
      auto linear = linear_of(quantized->number);
      if (linear) linear = times(std::move(*linear), numbers_of(1 / quantized->scale));
      if (!linear || !sums_products(*linear)) return {};
      return emit(node, *quantized, *linear);
    });
  }

 private:
  bool is_inner(ValueId id) const { return uses_[static_cast<size_t>(id)] == 1; }
  void replaces(const Node& node) { locs_.insert(locs_.begin(), node.loc); }

  std::optional<Numbers> constant(ValueId id) const {
    const Tensor* tensor = constant_value(graph_, id);
    const DType dtype = graph_.type(id).dtype;
    if (!tensor || !tensor->has_data() || tensor->num_elements() > kMostNumbers ||
        (dtype != DType::kF32 && dtype != DType::kI32))
      return std::nullopt;
    Numbers numbers{tensor->dims(), {}};
    for (int64_t i = 0; i < tensor->num_elements(); ++i) numbers.values.push_back(tensor->get_double(i));
    return numbers;
  }
  std::optional<double> number(ValueId id) const {
    const Tensor* tensor = constant_value(graph_, id);
    return tensor && tensor->has_data() && tensor->num_elements() == 1 ? std::optional(tensor->get_double(0))
                                                                       : std::nullopt;
  }

  // Takes a minimum or maximum with a number off `at`, whose limits these become.
  bool take_limit(ValueId& at, double& low, double& high) {
    const Node* node = graph_.producer(at);
    const bool is_min = is_op(node, "min");
    if ((!is_min && !is_op(node, "max")) || !is_inner(at)) return false;
    for (const size_t side : {1, 0}) {
      const auto limit = number(node->inputs[side]);
      if (!limit || std::isnan(*limit)) continue;
      // What is inside is limited first.
      if (low < high) {
        if (is_min) high = std::clamp(*limit, low, high);
        else low = std::clamp(*limit, low, high);
      }
      at = node->inputs[1 - side];
      replaces(*node);
      return true;
    }
    return false;
  }

  std::optional<Quantized> quantized_by(const Node& node) {
    if (!is_op(&node, "cast")) return std::nullopt;
    const DType to = graph_.type(node.outputs[0]).dtype;
    if ((to != DType::kU8 && to != DType::kI8) || graph_.type(node.inputs[0]).dtype != DType::kF32) return std::nullopt;
    Quantized q;
    q.low = to == DType::kU8 ? 0 : -128;
    q.high = to == DType::kU8 ? 255 : 127;
    ValueId at = node.inputs[0];
    while (take_limit(at, q.low, q.high)) {
    }
    const Node* add = graph_.producer(at);
    if (is_op(add, "add") && is_inner(at)) {
      const auto zero = number(add->inputs[1]);
      if (!zero || std::abs(*zero) > 255 || std::floor(*zero) != *zero) return std::nullopt;
      q.zero = *zero;
      at = add->inputs[0];
    }
    const Node* round = graph_.producer(at);
    if (!is_op(round, "round") || !is_inner(at)) return std::nullopt;
    at = round->inputs[0];
    q.number = at;
    const Node* div = graph_.producer(at);
    if (!is_op(div, "div")) {
      q.is_scaled_once = true;
      return q;
    }
    const auto scale = number(div->inputs[1]);
    if (!is_inner(at) || !scale || !(*scale > 1 / kLargest && *scale < kLargest)) return std::nullopt;
    q.scale = *scale;
    q.number = div->inputs[0];
    return q;
  }

  // The limits before the number is divided, as limits of the byte: both keep the order.
  void take_limits(Quantized& q) {
    double low = -kInfinity, high = kInfinity;
    while (take_limit(q.number, low, high)) {
    }
    const auto as_byte = [&](double limit) {
      return std::clamp(std::nearbyint(limit / q.scale) + q.zero, q.low, q.high);
    };
    const double least = as_byte(low), most = as_byte(high);
    q.low = least;
    q.high = most;
  }

  // As a sum; what is used elsewhere, too, is one value of it.
  std::optional<Linear> linear_of(ValueId id) {
    if (const auto own = constant(id)) return Linear{{}, *own};
    const Linear value{{{id, numbers_of(1)}}, numbers_of(0)};
    const Node* node = graph_.producer(id);
    if (!node || !is_inner(id)) return value;
    if (is_op(node, "cast") && graph_.type(node->inputs[0]).dtype == DType::kI32) return integers(node->inputs[0]);
    const bool adds = is_op(node, "add"), subtracts = is_op(node, "sub");
    if (!adds && !subtracts && !is_op(node, "mul")) return value;
    replaces(*node);
    const auto a = linear_of(node->inputs[0]), b = linear_of(node->inputs[1]);
    if (!a || !b) return std::nullopt;
    if (adds) return plus(*a, *b);
    if (subtracts) {
      const auto negative = times(*b, numbers_of(-1));
      return negative ? plus(*a, *negative) : std::nullopt;
    }
    if (b->terms.empty()) return times(*a, b->added);
    return a->terms.empty() ? times(*b, a->added) : value;
  }

  // Of i32, with numbers added that stay exact as floats.
  std::optional<Linear> integers(ValueId id) {
    const Linear value{{{id, numbers_of(1)}}, numbers_of(0)};
    const Node* node = graph_.producer(id);
    const bool adds = is_op(node, "add"), subtracts = is_op(node, "sub");
    if ((!adds && !subtracts) || !is_inner(id)) return value;
    const auto other = constant(node->inputs[1]);
    if (!other || largest(*other) > 1 << 24) return value;
    const auto signed_other = combined(*other, numbers_of(adds ? 1 : -1), std::multiplies<>());
    return plus(Linear{{{node->inputs[0], numbers_of(1)}}, numbers_of(0)}, Linear{{}, *signed_other});
  }

  bool sums_products(const Linear& linear) const {
    if (largest(linear.added) > kLargest) return false;
    bool any = false;
    for (const Linear::Term& term : linear.terms) {
      if (largest(term.factor) > kLargest) return false;
      const Node* node = graph_.producer(term.value);
      if (graph_.type(term.value).dtype != DType::kI32 || (!is_op(node, "conv") && !is_op(node, "matmul"))) continue;
      if (is_of_unit(ctx_, *node)) return false;
      any = true;
    }
    return any;
  }

  std::vector<ValueId> emit(const Node& node, const Quantized& q, const Linear& linear) {
    locs_.push_back(node.loc);
    builder_.set_loc(join_locs(locs_));
    const DType to = graph_.type(node.outputs[0]).dtype;
    // Floats of other terms may be NaN.
    const bool all_integers = std::ranges::all_of(
        linear.terms, [&](const Linear::Term& t) { return graph_.type(t.value).dtype == DType::kI32; });
    const double more = to == DType::kI8 && all_integers ? 128 : 0;
    const auto op = [&](const char* name, std::vector<ValueId> inputs, Attrs attrs = {}) {
      return builder_.add(ctx_.ops.get(name), std::move(inputs), std::move(attrs));
    };
    // An operator that requantises says its factor and what it adds, and a reader may have chosen these to give other
    // integers' rounding to the bit.
    if (q.is_scaled_once && more == 0) return {};
    const double shift = q.zero + more, behind = q.is_scaled_once ? shift : 0;  // added before and behind rounding
    ValueId sum = q.is_scaled_once ? rewriter_.mapped(q.number) : fused_sum(linear, shift, node);
    const ValueId low = stored(DType::kF32, numbers_of(q.low + more - behind), "low", node);
    const ValueId high = stored(DType::kF32, numbers_of(q.high + more), "high", node);
    // Sums of integers are not NaN: what is not greater is the limit.
    sum = all_integers ? op("select", {op("gt", {sum, low}), sum, low}) : op("max", {sum, low});
    ValueId rounded = op("round", {sum});
    if (behind != 0) rounded = op("add", {rounded, stored(DType::kF32, numbers_of(behind), "zero", node)});
    const ValueId limited = op("min", {rounded, high});
    if (more == 0) return {op("cast", {limited}, {{"to", to}})};
    const ValueId byte = op("cast", {op("cast", {limited}, {{"to", DType::kU8}})}, {{"to", DType::kI32}});
    return {op("cast", {op("sub", {byte, stored(DType::kI32, numbers_of(more), "more", node)})}, {{"to", to}})};
  }

  ValueId fused_sum(const Linear& linear, double more, const Node& node) {
    ValueId sum = stored(DType::kF32, *combined(linear.added, numbers_of(more), std::plus<>()), "added", node);
    for (const Linear::Term& term : std::views::reverse(linear.terms)) {
      ValueId value = rewriter_.mapped(term.value);
      if (graph_.type(term.value).dtype == DType::kI32)
        value = builder_.add(ctx_.ops.get("cast"), {value}, {{"to", DType::kF32}});
      sum = builder_.add(ctx_.ops.get("fma"), {value, stored(DType::kF32, term.factor, "factor", node), sum});
    }
    return sum;
  }

  ValueId stored(DType dtype, const Numbers& numbers, const char* name, const Node& node) {
    Tensor tensor(dtype, numbers.dims);
    for (size_t i = 0; i < numbers.values.size(); ++i) tensor.set_double(static_cast<int64_t>(i), numbers.values[i]);
    return add_constant(rewriter_.target(), ctx_.ops, std::move(tensor), name, node.loc);
  }

  const Graph& graph_;
  const PassContext& ctx_;
  GraphRewriter rewriter_;
  GraphBuilder builder_;
  std::vector<int> uses_;
  std::vector<std::string> locs_;  // of what is replaced, the last one first
};

}  // namespace

Graph scale_sums_once(const Graph& graph, const PassContext& ctx) { return Scaler(graph, ctx).run(); }

}  // namespace tessera::inline graph_passes
