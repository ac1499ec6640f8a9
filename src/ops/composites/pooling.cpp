// Pooling over the spatial dimensions of x[N,C,spatial...].
#include <fmt/format.h>

#include "arith/simplify.h"
#include "graph/adjoint.h"
#include "ops/composites/composites.h"
#include "ops/index_gradients.h"
#include "ops/window.h"

namespace tessera::inline ops {
namespace {

using Result = std::vector<ValueId>;
using Ints = std::vector<int64_t>;

std::vector<int64_t> spatial_axes(CompositeBody& b) {
  require_rank(b.context(), 0, 3, 5);
  Ints axes;
  for (int axis = 2; axis < b.type(b.operand(0)).rank(); ++axis) axes.push_back(axis);
  return axes;
}

// The window's attributes as reduce_window takes them. `extra_end` is what ceil_mode adds at the end so that a last
// window, which must start before the padding at the end, is not dropped.
struct Window {
  Ints window, strides, pads_begin, pads_end, dilations, extra_end;

  Attrs attrs(const std::string& kind, const Ints& begin, const Ints& end) const {
    return {{"kind", kind},           {"window", window},    {"strides", strides},
            {"dilations", dilations}, {"pads_begin", begin}, {"pads_end", end}};
  }
  Ints end_with_extra() const {
    Ints end = pads_end;
    for (size_t d = 0; d < end.size(); ++d) end[d] += extra_end[d];
    return end;
  }
};

Window window_of(CompositeBody& b) {
  const Shape& x = b.type(b.operand(0)).shape;
  const size_t rank = spatial_axes(b).size();
  const OpContext& ctx = b.context();
  Window w{
      require_ints(ctx, "window", rank, 1, kMaxWindowInt),     require_ints(ctx, "strides", rank, 1, kMaxWindowInt),
      require_ints(ctx, "pads_begin", rank, 0, kMaxWindowInt), require_ints(ctx, "pads_end", rank, 0, kMaxWindowInt),
      require_ints(ctx, "dilations", rank, 1, kMaxWindowInt),  Ints(rank, 0)};
  if (!b.attrs().get_or<bool>("ceil_mode", false)) return w;
  for (size_t d = 0; d < rank; ++d) {
    const int64_t span = (w.window[d] - 1) * w.dilations[d] + 1;
    if (!as_int(x[d + 2]) && w.pads_end[d] + w.strides[d] <= span) {
      // However much of the last window there is, it begins within the input: the place for one more is never too much.
      w.extra_end[d] = w.strides[d] - 1;
      continue;
    }
    const int64_t extent = b.static_extent(x[d + 2], fmt::format("dimension {} (with ceil_mode)", d + 2));
    const int64_t rest = extent + w.pads_begin[d] + w.pads_end[d] - span;
    // A single window may reach over the end too; reduce_window reports one that is longer still.
    if (rest <= -w.strides[d]) continue;
    int64_t last = (rest + w.strides[d] - 1) / w.strides[d];  // the last window's number
    if (last * w.strides[d] >= extent + w.pads_begin[d]) --last;
    w.extra_end[d] = std::max<int64_t>(0, last * w.strides[d] - rest);
  }
  return w;
}

Result max_pool(CompositeBody& b) {
  const Window w = window_of(b);
  return {b.add("reduce_window", {b.operand(0)}, w.attrs("max", w.pads_begin, w.end_with_extra()))};
}

// How many places of each window count: a constant where it is the same for all, else the sums of windows over ones.
Result average_pool(CompositeBody& b) {
  require_dtype(b.context(), 0, is_real, kRealTypes);
  const Window w = window_of(b);
  const ValueId sum = b.add("reduce_window", {b.operand(0)}, w.attrs("sum", w.pads_begin, w.end_with_extra()));
  const bool include = b.attrs().get_or<bool>("count_include_pad", false);
  bool uniform = true;
  for (size_t d = 0; d < w.window.size(); ++d)
    uniform &= w.extra_end[d] == 0 && (include || (w.pads_begin[d] == 0 && w.pads_end[d] == 0));
  if (uniform) {
    double count = 1;
    for (int64_t extent : w.window) count *= static_cast<double>(extent);
    return {b.add_scalar("div", sum, count)};
  }
  Shape ones_shape = {1, 1};
  for (size_t d = 0; d < w.window.size(); ++d)
    ones_shape.push_back(
        normalize_size(b.type(b.operand(0)).shape[d + 2] + Expr(include ? w.pads_begin[d] + w.pads_end[d] : 0)));
  const ValueId ones = b.add("broadcast", {b.scalar(1)}, {{"shape", ones_shape}});
  const Attrs counting = include ? w.attrs("sum", Ints(w.window.size(), 0), w.extra_end)
                                 : w.attrs("sum", w.pads_begin, w.end_with_extra());
  return {b.add("div", {sum, b.add("reduce_window", {ones}, counting)})};
}

// To the first of the largest elements of each channel, in row-major order; a NaN counts as the largest.
Result global_max_gradient(Adjoint& a) {
  const Shape x = a.type(a.in(0)).shape;
  const Shape rows = {x[0], x[1], elements_of(x, 2, x.size())}, one = {x[0], x[1], 1};
  const ValueId elements = a.reshape(a.in(0), rows), largest = a.reshape(a.out(), one);
  const ValueId taken = a.op("logical_or", {a.op("eq", {elements, largest}), a.op("is_nan", {elements})});
  const ValueId number = a.op("iota", {}, {{"shape", rows}, {"axis", int64_t{2}}, {"dtype", DType::kI64}});
  const ValueId first = a.reduce("min", a.select(taken, number, a.integer(rows[2])), {2}, true);
  const ValueId g = a.reshape(a.gradient(), one);
  return {a.reshape(a.select(a.op("eq", {number, first}), g, a.scalar(0, g)), x)};
}

std::vector<CompositeDef> definitions() {
  std::vector<AttrDef> window = window_attrs();
  window.push_back({"window", AttrKind::kInts, true, "the window's extents"});
  window.push_back(
      {"ceil_mode", AttrKind::kBool, false, "whether a last window may reach over the end; default false"});
  std::vector<AttrDef> average = window;
  average.push_back(
      {"count_include_pad", AttrKind::kBool, false, "whether padding counts as elements of value 0; default false"});
  return {
      {"max_pool", "The maximum of every window; padding does not take part.", 1, 1, window, max_pool,
       "max_pool(x: f32[1,1,5]) {ceil_mode = true, dilations = [1], pads_begin = [0], pads_end = [0], strides = [2], "
       "window = [2]}\nrun x = 1 2 4 3 -7 -> y = 2 4 -7"},
      {"average_pool", "The mean of every window.", 1, 1, average, average_pool,
       "average_pool(x: f32[1,1,3]) {dilations = [1], pads_begin = [1], pads_end = [0], strides = [1], window = [2]}\n"
       "run x = 2 4 8 -> y = 2 3 6"},
      {"global_max_pool",
       "The maximum over all spatial dimensions, which stay with extent 1.",
       1,
       1,
       {},
       [](CompositeBody& b) -> Result { return {b.reduce("max", b.operand(0), spatial_axes(b))}; },
       "global_max_pool(x: f32[1,2,2])\nrun x = 1 2 4 3 -> y = 2 4",
       global_max_gradient},
      {"global_average_pool",
       "The mean over all spatial dimensions, which stay with extent 1.",
       1,
       1,
       {},
       [](CompositeBody& b) -> Result {
         require_dtype(b.context(), 0, is_real, kRealTypes);
         return {b.mean(b.operand(0), spatial_axes(b), true)};
       },
       "global_average_pool(x: f32[1,2,2])\nrun x = 1 2 4 3 -> y = 1.5 3.5"},
  };
}

}  // namespace

const std::vector<CompositeDef>& pooling_composites() {
  static const std::vector<CompositeDef> list = definitions();
  return list;
}

}  // namespace tessera::inline ops
