// Pooling.
#include <fmt/format.h>

#include <cmath>

#include "import/onnx/operators/handlers.h"
#include "import/onnx/window_attributes.h"

namespace tessera {
namespace {

using Ints = std::vector<int64_t>;

Attrs window_attrs_of(NodeContext& c, ValueId x) {
  const WindowAttributes window = read_window(c, spatial_extents(c, x), {});
  return {{"window", window.kernel},         {"strides", window.strides},
          {"pads_begin", window.pads_begin}, {"pads_end", window.pads_end},
          {"dilations", window.dilations},   {"ceil_mode", c.attrs.get_int("ceil_mode", 0) != 0}};
}

// |x|^p, and the p-th root of a sum of such powers.
ValueId power(NodeContext& c, ValueId x, double p) {
  const ValueId magnitude = c.op("abs", {x});
  if (p == 1) return magnitude;
  if (p == 2) return c.mul(x, x);
  return c.op("pow", {magnitude, c.scalar_like(x, p)});
}

ValueId root(NodeContext& c, ValueId sum, double p) {
  if (p == 1) return sum;
  if (p == 2) return c.op("sqrt", {sum});
  return c.op("pow", {sum, c.scalar_like(sum, 1 / p)});
}

double read_p(NodeContext& c) {
  const double p = c.version() < 2 ? c.attrs.get_float("p", 2) : static_cast<double>(c.attrs.get_int("p", 2));
  if (!(p >= 1)) c.malformed(fmt::format("p = {}", p), "1 or more");
  return p;
}

}  // namespace

void import_max_pool(NodeContext& c) {
  c.require_inputs(1, 1);
  c.no_outputs_from(1, "the indices of the maxima");
  c.attrs.ignore("storage_order");  // says how the indices are counted
  const ValueId x = c.in(0);
  c.out(0, c.composite("max_pool", {x}, window_attrs_of(c, x)));
}

void import_average_pool(NodeContext& c) {
  c.require_inputs(1, 1);
  const ValueId x = c.in(0);
  Attrs attrs = window_attrs_of(c, x);
  attrs.set("count_include_pad", c.attrs.get_int("count_include_pad", 0) != 0);
  c.out(0, c.composite("average_pool", {x}, attrs));
}

// (sum over the window of |x|^p)^(1/p): as many times the average as the window has elements, padding being 0.
void import_lp_pool(NodeContext& c) {
  c.require_inputs(1, 1);
  const ValueId x = c.in(0);
  const double p = read_p(c);
  Attrs attrs = window_attrs_of(c, x);
  if (attrs.get<bool>("ceil_mode")) c.unsupported("ceil_mode = 1");
  Attrs window;
  for (const auto& [name, value] : attrs.all())
    if (name != "ceil_mode") window.set(name, value);
  window.set("kind", std::string("sum"));
  c.out(0, root(c, c.op("reduce_window", {power(c, x, p)}, window), p));
}

void import_global_pool(NodeContext& c) {
  c.require_inputs(1, 1);
  spatial_extents(c, c.in(0));
  c.out(0, c.composite(c.primitive(), {c.in(0)}));
}

void import_global_lp_pool(NodeContext& c) {
  c.require_inputs(1, 1);
  const ValueId x = c.in(0);
  const double p = read_p(c);
  Ints axes;
  for (int d = 2; d < c.rank(x); ++d) axes.push_back(d);
  c.out(0, root(c, c.reduce("sum", power(c, x, p), axes, true), p));
}

}  // namespace tessera
