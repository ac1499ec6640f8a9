// Sorting.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "import/stablehlo/operators/handlers.h"

namespace tessera::inline stablehlo {
namespace {

// Which operands are keys, the first of them the most significant, and which of these are sorted down.
using Keys = std::vector<bool>;

// Whether a comparator compares and chooses only, with 0 and NaN as constants: then values in all orders, and these,
// show what it does.
bool only_compares(const HloRegion& region) {
  for (const HloOperation& op : region.operations) {
    const std::string_view name = op.name;
    if (name == "stablehlo.constant") {
      const HloAttr* value = op.attributes.find("value");
      if (!value || !value->tensor || value->tensor->num_elements() != 1) return false;
      const double number = value->tensor->get_double(0);
      if (number != 0 && !std::isnan(number) && value->tensor->dtype() != DType::kBool) return false;
    } else if (name != "stablehlo.compare" && name != "stablehlo.select" && name != "stablehlo.and" &&
               name != "stablehlo.or" && name != "stablehlo.not" && name != "stablehlo.return") {
      return false;
    }
  }
  return true;
}

// -1, 0, 1: NaN is the largest, and zeros are equal.
int order_of(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return static_cast<int>(std::isnan(a)) - static_cast<int>(std::isnan(b));
  return a < b ? -1 : a > b;
}

std::optional<Keys> keys_of(HloContext& c, const HloRegion& region) {
  const size_t count = c.num_operands();
  if (region.arguments.size() != 2 * count || count > 4 || !only_compares(region)) return std::nullopt;
  // All pairs of values of each operand, in all combinations.
  std::vector<std::vector<double>> values(count, {0, 1, 2});
  for (size_t i = 0; i < count; ++i) {
    if (c.dtype(c.in(i)) == DType::kBool) values[i] = {0, 1};
    else if (i == 0 && is_float(c.dtype(c.in(0))))
      values[0] = {0, 1, -1, -0.0, std::numeric_limits<double>::infinity(), std::nan("")};
  }
  int64_t n = 1;
  for (const auto& list : values) n *= static_cast<int64_t>(list.size() * list.size());
  std::vector<Tensor> samples;
  for (size_t i = 0; i < 2 * count; ++i) samples.emplace_back(c.dtype(c.in(i / 2)), std::vector<int64_t>{n});
  for (int64_t at = 0; at < n; ++at) {
    auto rest = static_cast<size_t>(at);
    for (size_t i = 0; i < 2 * count; ++i) {
      const auto& list = values[i / 2];
      samples[i].set_double(at, list[rest % list.size()]);
      rest /= list.size();
    }
  }
  const auto found = c.walk().sampled(region, samples);
  if (!found || found->size() != 1 || (*found)[0].dtype() != DType::kBool) return std::nullopt;
  const Tensor& table = (*found)[0];
  // A comparator that does not depend on its arguments at all has one element.
  if (table.num_elements() != n) return std::nullopt;
  for (const bool with_nan : {true, false})
    for (size_t keys = 1; keys <= count; ++keys)
      for (size_t down = 0; down < size_t{1} << keys; ++down) {
        bool fits = true;
        for (int64_t at = 0; at < n && fits; ++at) {
          int order = 0;
          bool has_nan = false;
          for (size_t k = 0; k < keys; ++k) {
            const double a = samples[2 * k].get_double(at), b = samples[2 * k + 1].get_double(at);
            has_nan = has_nan || std::isnan(a) || std::isnan(b);
            if (order == 0) order = (down >> k & 1) ? -order_of(a, b) : order_of(a, b);
          }
          // Without a care for NaN in the comparator their place is anybody's choice.
          fits = (has_nan && !with_nan) || (table.get_int(at) != 0) == (order < 0);
        }
        if (!fits) continue;
        Keys result;
        for (size_t k = 0; k < keys; ++k) result.push_back(down >> k & 1);
        return result;
      }
  return std::nullopt;
}

void import_sort(HloContext& c) {
  if (c.rank(c.in(0)) == 0) {
    for (size_t i = 0; i < c.num_operands(); ++i) c.out(i, c.in(i));
    return;
  }
  const auto keys = keys_of(c, c.region(0));
  if (!keys) c.unsupported("a comparator that is not the order of one operand after another");
  const int64_t axis = c.axis(c.whole("dimension", -1), c.rank(c.in(0)), "dimension");
  const int64_t extent = c.dims(c.in(0))[static_cast<size_t>(axis)];
  const auto taken = [&](ValueId x, ValueId places) { return c.op("gather_elements", {x, places}, {{"axis", axis}}); };
  // By the least significant key first; what is equal by the next one stays in order.
  std::optional<ValueId> places;
  for (size_t k = keys->size(); k-- > 0;) {
    const ValueId key = comparable(c, c.in(k));
    const ValueId next = first_places(c, places ? taken(key, *places) : key, axis, extent, (*keys)[k]);
    places = places ? taken(*places, next) : next;
  }
  for (size_t i = 0; i < c.num_operands(); ++i) c.out(i, taken(c.in(i), *places));
}

void import_top_k(HloContext& c) {
  const ValueId x = c.in(0);
  const int64_t axis = c.axis(-1, c.rank(x)), count = c.whole("k");
  if (count < 0 || count > c.dims(x)[static_cast<size_t>(axis)])
    c.malformed(fmt::format("k = {}", count), "at most the extent");
  const ValueId places = first_places(c, comparable(c, x), axis, count, c.truth("largest", true));
  c.out(0, c.op("gather_elements", {x, places}, {{"axis", axis}}));
  c.out(1, c.cast(places, c.result_dtype(1)));
}

constexpr HloOperator kOperators[] = {
    {"chlo.top_k", import_top_k},
    {"stablehlo.sort", import_sort},
};

}  // namespace

std::span<const HloOperator> order_operators() { return kOperators; }

}  // namespace tessera::inline stablehlo
