// Windows that slide over dimensions: pooling and running sums.
#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "import/stablehlo/operators/handlers.h"

namespace tessera::inline stablehlo {
namespace {

struct Windows {
  Ints window, strides, base_dilations, dilations;
  std::vector<std::array<int64_t, 2>> padding;
  bool trivial(size_t d) const {
    return window[d] == 1 && strides[d] == 1 && base_dilations[d] == 1 && padding[d][0] == 0 && padding[d][1] == 0;
  }
};

// A running sum or product: each window ends (or begins) at its element and holds all before (behind) it.
bool as_running(HloContext& c, ValueId x, const Windows& w, const std::string& combiner) {
  if ((combiner != "add" && combiner != "mul") || c.dtype(x) == DType::kBool) return false;
  std::optional<size_t> axis;
  for (size_t d = 0; d < w.window.size(); ++d) {
    if (w.trivial(d)) continue;
    if (axis) return false;
    axis = d;
  }
  if (!axis) return false;
  const int64_t extent = c.dims(x)[*axis];
  const auto [low, high] = w.padding[*axis];
  const bool fits = w.window[*axis] == extent && w.strides[*axis] == 1 && w.base_dilations[*axis] == 1 &&
                    w.dilations[*axis] == 1 && ((low == extent - 1 && high == 0) || (low == 0 && high == extent - 1));
  if (!fits) return false;
  c.out(c.op("cumulate", {x},
             {{"axis", static_cast<int64_t>(*axis)},
              {"kind", std::string(combiner == "add" ? "sum" : "prod")},
              {"exclusive", false},
              {"reverse", low == 0 && extent > 1}}));
  return true;
}

// [N,C,spatial...]: dimensions without windows first, the last of them as channels.
ValueId pooled(HloContext& c, ValueId x, const Windows& w, const std::string& kind) {
  Ints still, order;
  for (size_t d = 0; d < w.window.size(); ++d)
    if (w.trivial(d)) still.push_back(static_cast<int64_t>(d));
  order = still;
  Ints window, strides, base, dilations, begin, end;
  for (size_t d = 0; d < w.window.size(); ++d) {
    if (w.trivial(d)) continue;
    order.push_back(static_cast<int64_t>(d));
    window.push_back(w.window[d]);
    strides.push_back(w.strides[d]);
    base.push_back(w.base_dilations[d]);
    dilations.push_back(w.dilations[d]);
    begin.push_back(w.padding[d][0]);
    end.push_back(w.padding[d][1]);
  }
  if (window.empty()) return x;
  const ValueId turned = c.transpose(x, order);
  const Shape sizes = c.shape(turned);
  const auto first_window = sizes.begin() + static_cast<ptrdiff_t>(still.size());
  Shape planes = {1, 1};
  if (!still.empty()) {
    planes[1] = *(first_window - 1);
    planes[0] = Emitter::count(Shape(sizes.begin(), first_window - 1));
  }
  planes.insert(planes.end(), first_window, sizes.end());
  Attrs attrs = {{"kind", kind},        {"window", window}, {"strides", strides},
                 {"pads_begin", begin}, {"pads_end", end},  {"dilations", dilations}};
  if (std::any_of(base.begin(), base.end(), [](int64_t b) { return b != 1; })) attrs.set("input_dilations", base);
  const ValueId y = c.op("reduce_window", {c.reshape(turned, planes)}, attrs);
  Shape result(sizes.begin(), first_window);
  const Shape made = c.shape(y);
  result.insert(result.end(), made.begin() + 2, made.end());
  Ints back(order.size());
  for (size_t i = 0; i < order.size(); ++i) back[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  return c.transpose(c.reshape(y, result), back);
}

void import_reduce_window(HloContext& c) {
  if (c.num_operands() != 2) c.unsupported("windows over several operands together");
  const ValueId x = c.in(0), initial = c.in(1);
  const auto rank = static_cast<size_t>(c.rank(x));
  const std::string combiner = HloContext::combiner_of(c.region(0));
  const Windows w{c.per_dimension("window_dimensions", rank, 1), c.per_dimension("window_strides", rank, 1),
                  c.per_dimension("base_dilations", rank, 1), c.per_dimension("window_dilations", rank, 1),
                  c.pairs("padding", rank)};
  for (const Ints* list : {&w.window, &w.strides, &w.base_dilations, &w.dilations})
    for (const int64_t value : *list)
      if (value < 1) c.malformed(fmt::format("{} in the window", value), "1 or more");
  if (is_identity(c, combiner, initial) && as_running(c, x, w, combiner)) return;
  const bool bools = c.dtype(x) == DType::kBool;
  std::string kind = combiner == "add" ? "sum" : combiner;
  if (bools) kind = combiner == "add" || combiner == "or" || combiner == "max" ? "max" : "min";
  if (kind != "sum" && kind != "min" && kind != "max")
    c.unsupported(
        fmt::format("windows of {} by {}", dtype_name(c.dtype(x)), combiner.empty() ? "this region" : combiner));
  const ValueId y = c.cast(pooled(c, comparable(c, x), w, kind), c.dtype(x));
  c.out(is_identity(c, combiner, initial) ? y : combined(c, combiner, y, initial));
}

// Which element of a window is taken.
struct Selection {
  bool is_largest = true;
  bool is_first = true;  // of equal ones; else the last
};

// What a region that says whether the first of two stays makes of all elements of a window; empty for other regions.
std::optional<Selection> selection_of(HloContext& c, const HloRegion& region, DType dtype) {
  std::vector<Tensor> pair = {Tensor(dtype, {3}), Tensor(dtype, {3})};  // with memory of their own
  for (const auto& [place, a, b] : {std::tuple(0, 1, 2), std::tuple(1, 2, 1), std::tuple(2, 1, 1)}) {
    pair[0].set_int(place, a);
    pair[1].set_int(place, b);
  }
  const auto stays = c.walk().sampled(region, pair);
  if (!stays || stays->size() != 1 || (*stays)[0].num_elements() != 3) return std::nullopt;
  const Tensor& table = (*stays)[0];
  if (table.get_int(0) == table.get_int(1)) return std::nullopt;
  return Selection{table.get_int(1) != 0, table.get_int(2) != 0};
}

// The gradient of pooling: of each window one element is chosen, which gets the window's element of `source`; what an
// element gets from several windows is added. The places of all windows that are as far from their begins are one
// slice.
void import_select_and_scatter(HloContext& c) {
  constexpr int64_t kMostPlaces = 256;
  const ValueId x = c.in(0), source = c.in(1), initial = c.in(2);
  const auto rank = static_cast<size_t>(c.rank(x));
  const Ints window = c.per_dimension("window_dimensions", rank, 1),
             strides = c.per_dimension("window_strides", rank, 1);
  const auto padding = c.pairs("padding", rank);
  const auto selection = selection_of(c, c.region(0), c.dtype(x));
  if (!selection || HloContext::combiner_of(c.region(1)) != "add")
    c.unsupported("another choice than the largest or smallest element, or another sum");
  if (c.dtype(x) == DType::kBool) c.unsupported("windows of bools");
  int64_t places = 1;
  for (size_t d = 0; d < rank; ++d) {
    if (window[d] < 1 || strides[d] < 1) c.malformed("a window or a step of 0", "1 or more");
    if (window[d] > kMostPlaces || (places *= window[d]) > kMostPlaces)
      c.unsupported(fmt::format("windows of more than {} elements", kMostPlaces));
  }
  Ints low(rank), high(rank), apart(rank), cut_low(rank), cut_high(rank);
  for (size_t d = 0; d < rank; ++d) {
    low[d] = padding[d][0], high[d] = padding[d][1];
    cut_low[d] = -low[d], cut_high[d] = -high[d];
    apart[d] = strides[d] - 1;
  }
  const Ints none(rank, 0), counts = c.dims(source);
  const ValueId zero = c.scalar_like(source, 0);
  const ValueId lowest = c.constant_value(extreme(c.dtype(x), !selection->is_largest));
  const ValueId wide = padded(c, x, lowest, low, high, none);
  const Ints extents = c.dims(wide);
  for (size_t d = 0; d < rank; ++d)
    if (counts[d] != (extents[d] - window[d]) / strides[d] + 1 || extents[d] < window[d])
      c.malformed(fmt::format("{} for windows of {}", c.type(source).to_string(), c.type(x).to_string()),
                  "an element for each window");
  std::vector<Ints> begins;  // of each slice
  for (int64_t place = 0; place < places; ++place) {
    Ints begin(rank);
    int64_t rest = place;
    for (size_t d = rank; d-- > 0; rest /= window[d]) begin[d] = rest % window[d];
    begins.push_back(std::move(begin));
  }
  if (!selection->is_first) std::reverse(begins.begin(), begins.end());
  const auto slice = [&](const Ints& begin) { return c.slice(wide, begin, counts, strides); };
  ValueId best = -1, taken = -1, sum = -1;
  for (const Ints& begin : begins)
    best = best < 0 ? slice(begin) : c.op(selection->is_largest ? "max" : "min", {best, slice(begin)});
  for (const Ints& begin : begins) {
    ValueId chosen = c.op("eq", {slice(begin), best});
    const ValueId so_far = taken < 0 ? chosen : c.op("logical_or", {taken, chosen});
    if (taken >= 0) chosen = c.op("logical_and", {chosen, c.op("logical_not", {taken})});
    taken = so_far;
    Ints behind(rank);
    for (size_t d = 0; d < rank; ++d) behind[d] = extents[d] - begin[d] - ((counts[d] - 1) * strides[d] + 1);
    const ValueId part = padded(c, c.op("select", {chosen, source, zero}), zero, begin, behind, apart);
    sum = sum < 0 ? part : c.add(sum, part);
  }
  const ValueId y = padded(c, sum, zero, cut_low, cut_high, none);
  c.out(is_identity(c, "add", initial) ? y : c.add(y, initial));
}

constexpr HloOperator kOperators[] = {
    {"stablehlo.reduce_window", import_reduce_window},
    {"stablehlo.select_and_scatter", import_select_and_scatter},
};

}  // namespace

std::span<const HloOperator> window_operators() { return kOperators; }

}  // namespace tessera::inline stablehlo
