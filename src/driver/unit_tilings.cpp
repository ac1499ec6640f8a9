#include "driver/unit_tilings.h"

#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace tessera::inline driver {

namespace {

constexpr std::string_view kPlace = "place";

std::vector<int64_t> up_to(int64_t most) {
  std::vector<int64_t> values(static_cast<size_t>(most));
  std::iota(values.begin(), values.end(), 1);
  return values;
}

// Extents that cut `extent` into equal parts, but for the last.
std::vector<int64_t> equal_parts(int64_t extent) {
  std::set<int64_t> values;
  for (int64_t parts = 1; parts <= extent; ++parts) values.insert((extent + parts - 1) / parts);
  return {values.begin(), values.end()};
}

}  // namespace

KnobPoint to_point(const UnitTiling& tiling) {
  KnobPoint point{std::string(kUnitTiling), {}};
  for (size_t p = 0; p < tiling.places.size(); ++p)
    point.values.emplace_back(fmt::format("{}{}", kPlace, p), tiling.places[p]);
  point.values.insert(point.values.end(), {{"out", tiling.blocks_out},
                                           {"in", tiling.blocks_in},
                                           {"inner", tiling.channels_inner ? 1 : 0},
                                           {"x", tiling.x_threads},
                                           {"w", tiling.w_threads},
                                           {"sums", tiling.sum_threads}});
  return point;
}

std::optional<UnitTiling> tiling_at(const KnobPoint& point) {
  if (point.rule != kUnitTiling) return std::nullopt;
  UnitTiling tiling;
  for (const auto& [name, value] : point.values)
    if (name.starts_with(kPlace)) tiling.places.push_back(value);
    else if (name == "out") tiling.blocks_out = value;
    else if (name == "in") tiling.blocks_in = value;
    else if (name == "inner") tiling.channels_inner = value != 0;
    else if (name == "x") tiling.x_threads = static_cast<int>(value);
    else if (name == "w") tiling.w_threads = static_cast<int>(value);
    else if (name == "sums") tiling.sum_threads = static_cast<int>(value);
  // Nothing else, in this order.
  if (to_point(tiling) != point) return std::nullopt;
  return tiling;
}

KnobSpace tiling_space(const Accelerator& unit, const UnitRoles& roles, const Contraction& of,
                       const UnitTiling& preferred) {
  KnobSpace space{std::string(kUnitTiling), {}};
  for (const auto& [name, value] : to_point(preferred).values) space.knobs.push_back({name, {}, value});
  const size_t places = of.place_extents.size();
  for (size_t p = 0; p < places; ++p) space.knobs[p].values = equal_parts(of.place_extents[p]);
  const auto values = [&](size_t i) -> std::vector<int64_t>& { return space.knobs[places + i].values; };
  values(0) = up_to(blocks_of(of.channels, roles.product.out));
  values(1) = up_to(of.reduction ? blocks_of(of.summed_channels, roles.product.in) : 1);
  values(2) = {0, 1};
  for (size_t i = 3; i < 6; ++i) values(i) = up_to(unit.threads);
  return space;
}

}  // namespace tessera::inline driver
