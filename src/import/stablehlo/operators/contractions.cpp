// Products of tensors, and convolutions.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "import/stablehlo/operators/handlers.h"

namespace tessera::inline stablehlo {
namespace {

// The dimensions that are in neither list.
Ints others(HloContext& c, ValueId x, const Ints& a, const Ints& b) {
  Ints result;
  for (int64_t d = 0; d < c.rank(x); ++d)
    if (std::find(a.begin(), a.end(), d) == a.end() && std::find(b.begin(), b.end(), d) == b.end()) result.push_back(d);
  return result;
}

Shape extents(HloContext& c, ValueId x, const Ints& dims) {
  Shape result;
  for (const int64_t d : dims) result.push_back(c.shape(x)[static_cast<size_t>(d)]);
  return result;
}

// What is added: in the result's dtype where that is another one.
ValueId factor(HloContext& c, ValueId x) { return c.cast(x, c.result_dtype()); }

void product(HloContext& c, Ints batch_a, Ints batch_b, Ints summed_a, Ints summed_b) {
  const ValueId a = factor(c, c.in(0)), b = factor(c, c.in(1));
  batch_a = c.axes(batch_a, c.rank(a));
  summed_a = c.axes(summed_a, c.rank(a));
  batch_b = c.axes(batch_b, c.rank(b));
  summed_b = c.axes(summed_b, c.rank(b));
  if (batch_a.size() != batch_b.size() || summed_a.size() != summed_b.size())
    c.malformed("lists of dimensions of different lengths", "a dimension of the other for each");
  for (const int64_t d : batch_a)
    if (std::find(summed_a.begin(), summed_a.end(), d) != summed_a.end())
      c.malformed(fmt::format("dimension {} twice", d), "once");
  for (const int64_t d : batch_b)
    if (std::find(summed_b.begin(), summed_b.end(), d) != summed_b.end())
      c.malformed(fmt::format("dimension {} twice", d), "once");
  const Ints rows = others(c, a, batch_a, summed_a), columns = others(c, b, batch_b, summed_b);
  const auto joined = [](std::initializer_list<Ints> lists) {
    Ints all;
    for (const Ints& list : lists) all.insert(all.end(), list.begin(), list.end());
    return all;
  };
  // [batch..., rows, sum] and [batch..., sum, columns].
  Shape shape_a = extents(c, a, batch_a), shape_b = extents(c, b, batch_b), result = shape_a;
  for (const Expr& extent : extents(c, a, rows)) result.push_back(extent);
  for (const Expr& extent : extents(c, b, columns)) result.push_back(extent);
  shape_a.push_back(Emitter::count(extents(c, a, rows)));
  shape_a.push_back(Emitter::count(extents(c, a, summed_a)));
  shape_b.push_back(Emitter::count(extents(c, b, summed_b)));
  shape_b.push_back(Emitter::count(extents(c, b, columns)));
  const ValueId left = c.reshape(c.transpose(a, joined({batch_a, rows, summed_a})), shape_a);
  const ValueId right = c.reshape(c.transpose(b, joined({batch_b, summed_b, columns})), shape_b);
  c.out(c.reshape(c.op("matmul", {left, right}), result));
}

void import_dot_general(HloContext& c) {
  const std::string numbers = "dot_dimension_numbers";
  product(c, c.numbers_of(numbers, "lhs_batching_dimensions"), c.numbers_of(numbers, "rhs_batching_dimensions"),
          c.numbers_of(numbers, "lhs_contracting_dimensions"), c.numbers_of(numbers, "rhs_contracting_dimensions"));
}

void import_dot(HloContext& c) { product(c, {}, {}, {c.rank(c.in(0)) - 1}, {0}); }

// The places of the letters and the numbers 0, 1, ... in a list like [b, 0, 1, f].
Ints order_of(HloContext& c, const HloAttr& list, const std::string& first, const std::string& second, size_t rank) {
  Ints order(rank, -1);
  if (list.items.size() != rank)
    c.malformed(fmt::format("{} dimensions in dimension_numbers", list.items.size()), fmt::format("{}", rank));
  for (size_t at = 0; at < rank; ++at) {
    const std::string& name = list.items[at].text;
    size_t place = rank;
    if (name == first) place = 0;
    else if (name == second) place = 1;
    else if (name.size() == 1 && name[0] >= '0' && name[0] <= '9') place = static_cast<size_t>(name[0] - '0') + 2;
    if (place >= rank || order[place] >= 0)
      c.malformed(fmt::format("'{}' in dimension_numbers", name), "each dimension once");
    order[place] = static_cast<int64_t>(at);
  }
  return order;
}

Ints inverse(const Ints& order) {
  Ints result(order.size());
  for (size_t i = 0; i < order.size(); ++i) result[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  return result;
}

void import_convolution(HloContext& c) {
  ValueId x = factor(c, c.in(0)), w = factor(c, c.in(1));
  const auto rank = static_cast<size_t>(c.rank(x));
  if (rank < 2 || c.rank(w) != c.rank(x))
    c.malformed(fmt::format("weights of type {} for {}", c.type(w).to_string(), c.type(x).to_string()),
                "weights of the same rank, 2 or more");
  const size_t spatial = rank - 2;
  const HloAttr* numbers = c.attribute("dimension_numbers");
  if (!numbers || numbers->items.size() != 3 || numbers->kind != HloAttr::Kind::kList)
    c.malformed("no dimension_numbers", "[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]");
  x = c.transpose(x, order_of(c, numbers->items[0], "b", "f", rank));
  w = c.transpose(w, order_of(c, numbers->items[1], "o", "i", rank));
  Ints turned;
  const Ints reversal = c.per_dimension("window_reversal", spatial, 0);
  for (size_t d = 0; d < spatial; ++d)
    if (reversal[d]) turned.push_back(static_cast<int64_t>(d) + 2);
  if (!turned.empty()) w = reversed(c, w, turned);
  Ints begin, end;
  for (const auto& [low, high] : c.pairs("padding", spatial)) begin.push_back(low), end.push_back(high);
  int64_t groups = c.whole("feature_group_count", 1);
  const int64_t batches = c.whole("batch_group_count", 1);
  if (batches > 1) {
    // Groups of images that each meet the filters of their group: the groups become groups of channels.
    Shape sizes = c.shape(x);
    const int64_t images = c.dims(x)[0], channels = c.dims(x)[1];
    if (groups != 1 || images % batches != 0)
      c.malformed(fmt::format("{} groups of {} images", batches, images), "equal groups, of images or of channels");
    sizes.insert(sizes.begin(), batches);
    sizes[1] = images / batches;
    Ints order(sizes.size());
    std::iota(order.begin(), order.end(), 0);
    order[0] = 1, order[1] = 0;
    x = c.transpose(c.reshape(x, sizes), order);
    sizes.erase(sizes.begin());
    sizes[1] = batches * channels;
    x = c.reshape(x, sizes);
    groups = batches;
  }
  const auto positive = [&](const Ints& list, const char* what) {
    for (const int64_t value : list)
      if (value < 1) c.malformed(fmt::format("{} = {}", what, value), "1 or more");
    return list;
  };
  ValueId y;
  if (spatial == 0) {
    if (groups != 1) c.unsupported("groups without spatial dimensions");
    y = c.op("matmul", {x, c.transpose(w, {1, 0})});
  } else {
    y = c.op("conv", {x, w},
             {{"strides", positive(c.per_dimension("window_strides", spatial, 1), "a stride")},
              {"pads_begin", begin},
              {"pads_end", end},
              {"dilations", positive(c.per_dimension("rhs_dilation", spatial, 1), "a dilation")},
              {"input_dilations", positive(c.per_dimension("lhs_dilation", spatial, 1), "a dilation")},
              {"groups", groups}});
  }
  c.out(c.transpose(y, inverse(order_of(c, numbers->items[2], "b", "f", rank))));
}

constexpr HloOperator kOperators[] = {
    {"stablehlo.convolution", import_convolution},
    {"stablehlo.dot", import_dot},
    {"stablehlo.dot_general", import_dot_general},
};

}  // namespace

std::span<const HloOperator> contraction_operators() { return kOperators; }

}  // namespace tessera::inline stablehlo
