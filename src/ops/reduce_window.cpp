// reduce_window: the sum, maximum or minimum of every window; padding does not take part.
#include "arith/simplify.h"
#include "graph/adjoint.h"
#include "ops/body_text.h"
#include "ops/primitives.h"
#include "ops/window.h"

namespace tessera::inline ops {
namespace {

constexpr Combiner kCombiners[] = {Combiner::kSum, Combiner::kMax, Combiner::kMin};

Combiner combiner_of(const OpContext& ctx) {
  return kCombiners[require_word(ctx, "kind", ctx.attrs.get<std::string>("kind"), {"sum", "max", "min"})];
}

std::vector<WindowDim> dims_of(const OpContext& ctx) {
  const Shape& x = ctx.inputs[0].shape;
  const Shape extents(x.begin() + 2, x.end());
  const auto& window = require_ints(ctx, "window", extents.size(), 1, kMaxWindowInt);
  return window_dims(ctx, extents, make_shape(window));
}

std::vector<TensorType> infer(const OpContext& ctx) {
  const TensorType& x = ctx.inputs[0];
  if (combiner_of(ctx) != Combiner::kSum && ctx.attrs.has("input_dilations"))
    ctx.fail("TSR-2025", "input_dilations with kind = \"" + ctx.attrs.get<std::string>("kind") + "\"", "a sum");
  require_dtype(ctx, 0, is_arithmetic, kArithmeticTypes);
  require_rank(ctx, 0, 3, 5);
  Shape shape = {x.shape[0], x.shape[1]};
  const auto dims = dims_of(ctx);
  for (size_t d = 0; d < dims.size(); ++d) shape.push_back(window_count(ctx, dims[d], d));
  return {TensorType{x.dtype, shape, {}}};
}

Body body(const OpContext& ctx) {
  Body body = start_body(ctx);
  const auto dims = dims_of(ctx);
  body.combiner = combiner_of(ctx);
  std::vector<Expr> index = {body.axes[0].var, body.axes[1].var};
  Expr inside = const_int(DType::kBool, 1);
  for (size_t d = 0; d < dims.size(); ++d) {
    const Axis k{make_var("k" + std::to_string(d)), dims[d].window};
    const WindowPlace place = window_place(dims[d], body.axes[d + 2].var, k.var, body.axes[d + 2].extent);
    body.reduce_axes.push_back(k);
    index.push_back(place.index);
    inside = logical_and(inside, place.inside);
  }
  body.value = select(inside, load(body.inputs[0], index), combiner_identity(body.combiner, ctx.inputs[0].dtype));
  return body;
}

std::vector<AttrDef> attrs() {
  std::vector<AttrDef> list = window_attrs();
  list.push_back({"kind", AttrKind::kString, true, "sum, max or min"});
  list.push_back({"window", AttrKind::kInts, true, "the window's extents, per spatial dimension"});
  list.push_back({"input_dilations", AttrKind::kInts, false,
                  "of a sum: distance at which the input's elements are laid out; default 1"});
  return list;
}

// ---- the gradient ----

// Window dimensions that go from the elements of x back to the windows that have them: window position w - 1 - k of
// element i is the window in which i has position k.
std::vector<WindowDim> windows_of_elements(const Attrs& attrs, const Shape& x, const Shape& y) {
  const auto& window = attrs.get_ints("window");
  const auto gaps = attrs.get_or<std::vector<int64_t>>("input_dilations", std::vector<int64_t>(window.size(), 1));
  std::vector<WindowDim> dims;
  for (size_t d = 0; d < window.size(); ++d) {
    const int64_t stride = attrs.get_ints("strides")[d], dilation = attrs.get_ints("dilations")[d],
                  pad = attrs.get_ints("pads_begin")[d];
    // The last element lies as far behind the last window's begin as there is padding in front of it.
    const auto behind =
        as_int(normalize_size((x[d + 2] - Expr(1)) * Expr(gaps[d]) - (y[d + 2] - Expr(1)) * Expr(stride)));
    dims.push_back({y[d + 2], window[d], gaps[d], (window[d] - 1) * dilation - pad, behind ? *behind + pad : kMaxExtent,
                    dilation, stride});
  }
  return dims;
}

// Position k of a window as one number, row-major.
Expr position(const std::vector<Expr>& k, const std::vector<int64_t>& window) {
  Expr number = 0;
  for (size_t d = 0; d < k.size(); ++d) number = number * Expr(window[d]) + k[d];
  return cast(DType::kI32, number);
}

// i32 of y's shape: at which position of its window the first element stands that is the result.
ValueId first_position(Adjoint& a) {
  const Attrs& attrs = a.attrs();
  const TensorType x = a.type(a.in(0)), y = a.type(a.out());
  const auto& window = attrs.get_ints("window");
  Body body;
  body.inputs = {make_buffer("x0", x.dtype, x.shape), make_buffer("x1", y.dtype, y.shape)};
  body.axes = make_axes("i", y.shape);
  body.combiner = Combiner::kMin;
  std::vector<Expr> index = {body.axes[0].var, body.axes[1].var}, at;
  Expr inside = const_int(DType::kBool, 1);
  int64_t count = 1;
  for (size_t d = 0; d < window.size(); ++d) {
    const Axis k{make_var("k" + std::to_string(d)), window[d]};
    const WindowDim dim{x.shape[d + 2],
                        window[d],
                        attrs.get_ints("strides")[d],
                        attrs.get_ints("pads_begin")[d],
                        attrs.get_ints("pads_end")[d],
                        attrs.get_ints("dilations")[d],
                        1};
    const WindowPlace place = window_place(dim, body.axes[d + 2].var, k.var, body.axes[d + 2].extent);
    body.reduce_axes.push_back(k);
    index.push_back(place.index);
    at.push_back(k.var);
    inside = logical_and(inside, place.inside);
    count *= window[d];
  }
  const Expr none = const_int(DType::kI32, count), element = load(body.inputs[0], index);
  const Expr taken =
      logical_or(equal(element, load(body.inputs[1], body.axis_vars())), unary(UnaryOp::kIsNan, element));
  body.value = select(inside, select(taken, position(at, window), none), none);
  return a.op("compute", {a.in(0), a.out()}, compute_attrs(body));
}

// g at the elements that `first` chooses.
ValueId at_first(Adjoint& a, ValueId first) {
  const Attrs& attrs = a.attrs();
  const TensorType x = a.type(a.in(0)), y = a.type(a.out());
  const auto& window = attrs.get_ints("window");
  Body body;
  body.inputs = {make_buffer("x0", y.dtype, y.shape), make_buffer("x1", DType::kI32, y.shape)};
  body.axes = make_axes("i", x.shape);
  std::vector<Expr> index = {body.axes[0].var, body.axes[1].var}, at;
  Expr inside = const_int(DType::kBool, 1);
  bool apart = true;  // each element is in one window at most
  for (size_t d = 0; d < window.size(); ++d)
    apart &= attrs.get_ints("dilations")[d] == 1 && attrs.get_ints("strides")[d] >= window[d];
  const std::vector<WindowDim> dims = windows_of_elements(attrs, x.shape, y.shape);
  for (size_t d = 0; d < window.size(); ++d) {
    const Expr i = body.axes[d + 2].var;
    if (apart) {
      const int64_t pad = attrs.get_ints("pads_begin")[d], stride = attrs.get_ints("strides")[d];
      const Expr place = i + Expr(pad), number = floordiv(place, stride);
      at.push_back(floormod(place, stride));
      if (stride > window[d]) inside = logical_and(inside, at.back() < Expr(window[d]));
      if (pad < 0) inside = logical_and(inside, Expr(0) <= number);
      if (!size_at_most(floordiv(x.shape[d + 2] - Expr(1) + Expr(pad), stride), y.shape[d + 2] - Expr(1)))
        inside = logical_and(inside, number < y.shape[d + 2]);
      index.push_back(number);
    } else {
      const Axis k{make_var("k" + std::to_string(d)), window[d]};
      const WindowPlace place = window_place(dims[d], i, k.var, x.shape[d + 2]);
      body.reduce_axes.push_back(k);
      index.push_back(place.index);
      at.push_back(Expr(window[d] - 1) - k.var);
      inside = logical_and(inside, place.inside);
    }
  }
  if (!apart) body.combiner = Combiner::kSum;
  const Expr zero = const_of(y.dtype, 0);
  const Expr chosen = equal(load(body.inputs[1], index), position(at, window));
  body.value = select(inside, select(chosen, load(body.inputs[0], index), zero), zero);
  return a.op("compute", {a.gradient(), first}, compute_attrs(body));
}

// Of a minimum or maximum, all of it goes to the first element of the window that is equal to the result, in row-major
// order; a NaN counts as equal.
std::vector<ValueId> gradient(Adjoint& a) {
  const Attrs& attrs = a.attrs();
  if (attrs.get<std::string>("kind") != "sum") return {at_first(a, first_position(a))};
  const Shape x = a.type(a.in(0)).shape;
  std::vector<int64_t> begin, end;
  for (const WindowDim& dim : windows_of_elements(attrs, x, a.type(a.out()).shape)) {
    if (dim.pad_end == kMaxExtent)
      a.fail("windows over " + to_string(x), "sizes that are numbers, or images of open sizes with strides of 1");
    begin.push_back(dim.pad_begin);
    end.push_back(dim.pad_end);
  }
  const auto& window = attrs.get_ints("window");
  return {
      a.op("reduce_window", {a.gradient()},
           {{"kind", std::string("sum")},
            {"window", window},
            {"strides", attrs.get_or<std::vector<int64_t>>("input_dilations", std::vector<int64_t>(window.size(), 1))},
            {"input_dilations", attrs.get_ints("strides")},
            {"dilations", attrs.get_ints("dilations")},
            {"pads_begin", begin},
            {"pads_end", end}})};
}

}  // namespace

const OpDef& reduce_window_op() {
  static const OpDef op{
      .name = "reduce_window",
      .doc =
          "The sum, maximum or minimum over a window that slides over the spatial dimensions of x[N,C,spatial...]; "
          "padded places do not take part.",
      .min_inputs = 1,
      .max_inputs = 1,
      .attrs = attrs(),
      .infer = infer,
      .body = body,
      .gradient = gradient,
      .example = R"(
graph @main(%x: f32[1,1,4]) -> (%y: f32[1,1,2]) {
  %y = reduce_window(%x) {dilations = [1], kind = "max", pads_begin = [1], pads_end = [1], strides = [3], window = [3]} : f32[1,1,2]
}
run x = -1 -2 -3 -4 -> y = -1 -3
)",
  };
  return op;
}

}  // namespace tessera::inline ops
