// Reductions over dimensions.
#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "import/stablehlo/operators/handlers.h"

namespace tessera::inline stablehlo {
namespace {

// The kind of our reductions; bools have the order false < true. Empty: there is none.
std::string kind_of(const std::string& combiner, DType dtype) {
  const bool bools = dtype == DType::kBool;
  if (combiner == "add") return bools ? "max" : "sum";
  if (combiner == "mul") return bools ? "min" : "prod";
  if (combiner == "min" || combiner == "max") return combiner;
  if (bools && combiner == "and") return "min";
  if (bools && combiner == "or") return "max";
  return {};
}

void reduce_one(HloContext& c, size_t i, size_t count, const std::string& combiner, const Ints& axes) {
  const ValueId x = c.in(i), initial = c.in(count + i);
  const std::string kind = kind_of(combiner, c.dtype(x));
  if (kind.empty())
    c.unsupported(
        fmt::format("reductions of {} by {}", dtype_name(c.dtype(x)), combiner.empty() ? "this region" : combiner));
  const ValueId y = axes.empty() ? x : c.reduce(kind, x, axes, false);
  c.out(i, is_identity(c, combiner, initial) ? y : combined(c, combiner, y, initial));
}

// Whether a region only compares and chooses, so that a few values in all orders show what it does.
bool only_chooses(const HloRegion& region) {
  for (const HloOperation& op : region.operations) {
    const std::string_view name = op.name;
    if (name != "stablehlo.compare" && name != "stablehlo.select" && name != "stablehlo.and" &&
        name != "stablehlo.or" && name != "stablehlo.not" && name != "stablehlo.maximum" &&
        name != "stablehlo.minimum" && name != "stablehlo.return")
      return false;
  }
  return true;
}

// "max" or "min" when the region finds an extremum and the first place that has it, for places in order.
std::string extremum_of(HloContext& c, const HloRegion& region) {
  if (region.arguments.size() != 4 || !only_chooses(region)) return {};
  const DType value = c.dtype(c.in(0)), place = c.dtype(c.in(1));
  std::vector<double> values = {0, 1, 2};
  if (is_float(value)) values.insert(values.end(), {-1, std::numeric_limits<double>::infinity(), std::nan("")});
  const auto n = static_cast<int64_t>(values.size() * values.size());
  Tensor a(value, {n}), b(value, {n}), first(place, {n}), second(place, {n});
  for (int64_t i = 0; i < n; ++i) {
    a.set_double(i, values[static_cast<size_t>(i) / values.size()]);
    b.set_double(i, values[static_cast<size_t>(i) % values.size()]);
    first.set_int(i, 3);
    second.set_int(i, 5);
  }
  const auto found = c.walk().sampled(region, {a, first, b, second});
  if (!found || found->size() != 2) return {};
  for (const std::string kind : {"max", "min"}) {
    bool fits = true;
    for (int64_t i = 0; i < n && fits; ++i) {
      const double x = a.get_double(i), y = b.get_double(i), most = (*found)[0].get_double(i);
      const bool stays = std::isnan(x) || (!std::isnan(y) && (kind == "max" ? x >= y : x <= y));
      const double wanted = stays ? x : y;
      fits = (std::isnan(wanted) ? std::isnan(most) : most == wanted) && (*found)[1].get_int(i) == (stays ? 3 : 5);
    }
    if (fits) return kind;
  }
  return {};
}

void import_reduce(HloContext& c) {
  if (c.num_operands() == 0 || c.num_operands() % 2 != 0)
    c.malformed(fmt::format("{} operands", c.num_operands()), "as many initial values as operands");
  const size_t count = c.num_operands() / 2;
  const HloRegion& region = c.region(0);
  const Ints axes = c.axes(c.integers("dimensions"), c.rank(c.in(0)));
  if (count == 1) return reduce_one(c, 0, 1, HloContext::combiner_of(region), axes);
  if (count != 2 || axes.size() != 1) c.unsupported("reductions of several operands together");
  const std::string kind = extremum_of(c, region);
  if (kind.empty()) c.unsupported("a reduction of two operands that finds no extremum and its place");
  const ValueId x = comparable(c, c.in(0)), places = c.in(1);
  const ValueId most = c.reduce(kind, x, axes, true);
  const ValueId place = place_of_extremum(c, x, most, axes[0]);
  c.out(0, c.cast(without(c, most, axes[0]), c.dtype(c.in(0))));
  const ValueId found = c.counts_along(places, axes[0]) ? c.cast(place, c.dtype(places))
                                                        : c.op("gather_elements", {places, place}, {{"axis", axes[0]}});
  c.out(1, without(c, found, axes[0]));
}

void import_batch_norm_inference(HloContext& c) {
  const ValueId x = c.in(0);
  const auto feature = static_cast<size_t>(c.axis(c.whole("feature_index"), c.rank(x), "feature_index"));
  const auto along = [&](size_t i) {
    Shape sizes(static_cast<size_t>(c.rank(x)), 1);
    sizes[feature] = c.shape(x)[feature];
    return c.reshape(c.in(i), sizes);
  };
  const HloAttr* epsilon = c.attribute("epsilon");
  if (!epsilon) c.malformed("no epsilon", "a number");
  const ValueId deviation = c.op("sqrt", {c.add(along(4), c.scalar_like(x, epsilon->real))});
  c.out(c.add(c.mul(c.sub(x, along(3)), c.div(along(1), deviation)), along(2)));
}

constexpr HloOperator kOperators[] = {
    {"stablehlo.batch_norm_inference", import_batch_norm_inference},
    {"stablehlo.reduce", import_reduce},
};

}  // namespace

std::span<const HloOperator> reduction_operators() { return kOperators; }

}  // namespace tessera::inline stablehlo
