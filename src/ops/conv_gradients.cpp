#include "ops/conv_gradients.h"

#include <fmt/format.h>

#include "arith/simplify.h"
#include "ops/window.h"

namespace tessera::inline ops {
namespace {

using Ints = std::vector<int64_t>;

// w[O, C/groups, k...] as the weights [C, O/groups, k...] of the transposed convolution, each window turned around.
ValueId turned(Adjoint& a, ValueId w, int64_t groups) {
  const Shape dims = a.type(w).shape;
  const auto with_window = [&](Shape leading) {
    leading.insert(leading.end(), dims.begin() + 2, dims.end());
    return leading;
  };
  const Expr outputs = normalize_size(floordiv(dims[0], groups));
  Ints perm = groups == 1 ? Ints{1, 0} : Ints{0, 2, 1};
  for (size_t d = 2; d < dims.size(); ++d) perm.push_back(std::ssize(perm));
  if (groups > 1) w = a.reshape(w, with_window({Expr(groups), outputs, dims[1]}));
  w = a.op("transpose", {w}, {{"perm", perm}});
  const Shape shape = with_window({normalize_size(dims[1] * Expr(groups)), outputs});
  if (groups > 1) w = a.reshape(w, shape);
  Shape starts(shape.size(), Expr(0));
  Ints steps(shape.size(), 1);
  bool turns = false;
  for (size_t d = 2; d < shape.size(); ++d) {
    starts[d] = normalize_size(shape[d] - Expr(1));
    steps[d] = -1;
    turns |= !is_const_int(shape[d], 1);
  }
  return turns ? a.op("slice", {w}, {{"starts", starts}, {"sizes", shape}, {"steps", steps}}) : w;
}

// dw[o,c,k] = sum of x[n,c,i] * dy[n,o,p] with p = i * gap - k * dilation + pad; k counted from the other end, that is
// where a window of dy lies that moves by the gaps. kNone: the image has no gaps, or sizes are no numbers.
ValueId by_gradient_as_image(Adjoint& a, ValueId x, ValueId dy, const Ints& window) {
  const Attrs& attrs = a.attrs();
  const Ints strides = attrs.get_ints("strides"), dilations = attrs.get_ints("dilations"),
             gaps = attrs.get_ints("input_dilations"), pads = attrs.get_ints("pads_begin");
  bool has_gaps = false;
  Ints begin, end;
  for (size_t d = 0; d < window.size(); ++d) {
    const auto image = as_int(a.type(x).shape[d + 2]), places = as_int(a.type(dy).shape[d + 2]);
    if (!image || !places || *image < 1 || *places < 1 || strides[d] > gaps[d]) return Adjoint::kNone;
    has_gaps |= gaps[d] > 1;
    const int64_t reach = (window[d] - 1) * dilations[d];
    begin.push_back(reach - pads[d]);
    end.push_back((*image - 1) * gaps[d] + 1 + pads[d] - ((*places - 1) * strides[d] + 1));
  }
  if (!has_gaps) return Adjoint::kNone;
  const int64_t groups = attrs.get_int("groups");
  const ValueId swapped = a.op("conv_weights", {dy, x},
                               {{"strides", gaps},
                                {"pads_begin", begin},
                                {"pads_end", end},
                                {"dilations", dilations},
                                {"input_dilations", strides},
                                {"groups", groups},
                                {"window", window}});
  return turned(a, swapped, groups);
}

}  // namespace

std::vector<AttrDef> conv_attr_defs() {
  std::vector<AttrDef> list = window_attrs();
  list.push_back({"input_dilations", AttrKind::kInts, true, "distance at which the input's elements are laid out"});
  list.push_back({"groups", AttrKind::kInt, true, "groups of channels that do not see each other"});
  return list;
}

Attrs conv_attrs(const Attrs& attrs) {
  Attrs result;
  for (const char* name : {"strides", "pads_begin", "pads_end", "dilations", "input_dilations"})
    result.set(name, attrs.get_ints(name));
  result.set("groups", attrs.get_int("groups"));
  return result;
}

ValueId conv_image_gradient(Adjoint& a, ValueId x, ValueId w, ValueId dy) {
  const Attrs& attrs = a.attrs();
  const Ints strides = attrs.get_ints("strides"), dilations = attrs.get_ints("dilations"),
             gaps = attrs.get_ints("input_dilations"), pads = attrs.get_ints("pads_begin");
  Ints begin, end;
  for (size_t d = 0; d < strides.size(); ++d) {
    const auto window = as_int(a.type(w).shape[d + 2]);
    // The last element of the image lies as far behind the last window's begin as there is padding in front of it.
    const auto behind = as_int(normalize_size((a.type(x).shape[d + 2] - Expr(1)) * Expr(gaps[d]) -
                                              (a.type(dy).shape[d + 2] - Expr(1)) * Expr(strides[d])));
    if (!window || !behind)
      a.fail(fmt::format("spatial dimension {} of a convolution of size {}", d, to_string(a.type(x).shape[d + 2])),
             "sizes of windows and images that are numbers, or images of open sizes with strides of 1");
    begin.push_back((*window - 1) * dilations[d] - pads[d]);
    end.push_back(*behind + pads[d]);
  }
  const int64_t groups = attrs.get_int("groups");
  return a.op("conv", {dy, turned(a, w, groups)},
              {{"strides", gaps},
               {"pads_begin", begin},
               {"pads_end", end},
               {"dilations", dilations},
               {"input_dilations", strides},
               {"groups", groups}});
}

ValueId conv_weights_gradient(Adjoint& a, ValueId x, ValueId dy, const std::vector<int64_t>& window) {
  if (const ValueId swapped = by_gradient_as_image(a, x, dy, window); swapped != Adjoint::kNone) return swapped;
  Attrs attrs = conv_attrs(a.attrs());
  attrs.set("window", window);
  return a.op("conv_weights", {x, dy}, std::move(attrs));
}

}  // namespace tessera::inline ops
