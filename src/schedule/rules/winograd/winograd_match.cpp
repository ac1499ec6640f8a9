#include "schedule/rules/winograd/winograd_match.h"

#include <algorithm>

#include "schedule/kernel/guards.h"
#include "schedule/kernel/winograd_matrices.h"

namespace tessera::inline schedule {
namespace {

// Along one dimension of an image: output `at` sees, at place k of `places`, input at * stride + k * dilation - pad.
struct WindowAxis {
  Axis axis;
  Expr k;  // a variable, or 0 where there is one place
  int64_t places = 1;
  int64_t stride = 1, dilation = 1, pad = 0;
};

bool has_places(const WindowAxis& window) { return window.k->kind == ExprKind::kVar; }

// Whether the window decides about `condition`.
bool decides(const WindowAxis& window, const Expr& condition) {
  return uses_var(condition, window.axis.var) || (has_places(window) && uses_var(condition, window.k));
}

// Whether `terms` hold exactly where the input lies in [0, extent).
bool is_padding_test(const std::vector<Expr>& terms, const WindowAxis& window, int64_t extent) {
  for (int64_t place = 0; place < window.places; ++place)
    for (int64_t at = 0; at < *as_int(window.axis.extent); ++at) {
      VarMap values = {{window.axis.var.get(), Expr(at)}};
      if (has_places(window)) values[window.k.get()] = Expr(place);
      bool inside = true;
      for (const Expr& term : terms) {
        const Expr answer = simplify(substitute(term, values));
        if (!is_true(answer) && !is_false(answer)) return false;
        inside &= is_true(answer);
      }
      const int64_t input = at * window.stride + place * window.dilation - window.pad;
      if (inside != (input >= 0 && input < extent)) return false;
    }
  return true;
}

// Fills in the strides and the padding of a window, as `index` has them; why it cannot.
std::string match_window(const Expr& index, const std::vector<Expr>& conditions, int64_t extent, const Bounds& bounds,
                         WindowAxis& window) {
  VarMap origin = {{window.axis.var.get(), Expr(0)}};
  if (has_places(window)) origin[window.k.get()] = Expr(0);
  const auto stride = linear_coefficient(index, window.axis.var, bounds);
  const auto dilation = has_places(window) ? linear_coefficient(index, window.k, bounds) : 1;
  const auto rest = as_int(simplify(substitute(index, origin), bounds));
  if (!stride || !dilation || !rest) return "an image is read at places that are not linear";
  // What does not move has any stride.
  window.stride = *as_int(window.axis.extent) > 1 ? *stride : 1;
  window.dilation = window.places > 1 ? *dilation : 1;
  window.pad = -*rest;
  std::vector<Expr> own;
  for (const Expr& condition : conditions)
    if (decides(window, condition)) own.push_back(condition);
  return is_padding_test(own, window, extent) ? "" : "the padding is not of zeros";
}

bool is_zero(const Expr& e) { return e->kind == ExprKind::kConst && is_float(e->dtype) && e->float_value == 0; }

std::optional<size_t> param_of(const TensorProgram& program, const BufferPtr& buffer) {
  for (size_t i = 0; i < program.params.size(); ++i)
    if (program.params[i].buffer == buffer) return i;
  return std::nullopt;
}

// Whether `index` is place `channel` among the `in` channels of the group that output channel `axis` belongs to. A
// group has `out` of those.
bool is_channel_of_group(const Expr& index, const Axis& axis, const Expr& channel, int64_t in, int64_t out) {
  if (index.same_node(channel)) return *as_int(axis.extent) == out;
  if (channel->kind == ExprKind::kConst) return false;
  for (int64_t at = 0; at < *as_int(axis.extent); ++at) {
    const Expr group = simplify(substitute(index, {{axis.var.get(), Expr(at)}}) - channel);
    if (as_int(group) != at / out * in) return false;
  }
  return true;
}

// How windows lie over an image's rows and columns.
void set_image(const WindowAxis& rows, const WindowAxis& columns, int64_t height, int64_t width, FilteredConv& conv) {
  conv.window_height = rows.places;
  conv.window_width = columns.places;
  conv.row_gap = rows.dilation;
  conv.column_gap = columns.dilation;
  conv.pad_top = rows.pad;
  conv.pad_left = columns.pad;
  conv.height = height;
  conv.width = width;
  conv.out_height = *as_int(rows.axis.extent);
  conv.out_width = *as_int(columns.axis.extent);
}

bool is_filtered(const WindowAxis& window) {
  return has_winograd_matrices(2, window.places) && window.stride == 1 && window.dilation >= 1;
}
bool is_plain(const WindowAxis& window) { return window.places == 1 && window.stride == 1; }

// Which dimensions are filtered; `in` are the input's extents.
std::string set_dimensions(const std::vector<WindowAxis>& windows, const std::vector<int64_t>& in, FilteredConv& conv) {
  const size_t count = windows.size();
  const WindowAxis& last = windows.back();
  if (count == 1) {
    if (!is_filtered(last)) return "the window has not 3, 5 or 7 places, or has strides";
    WindowAxis none;
    none.axis.extent = Expr(1);
    conv.dims = FilteredConv::Dims::kColumn;
    set_image(none, last, 1, in[0], conv);
    return "";
  }
  const WindowAxis& second = windows[count - 2];
  const bool two = is_filtered(second) && is_filtered(last);
  if (count == 3 && is_filtered(windows[0]) && !two) {
    const auto whole = [&](size_t d) {
      return is_plain(windows[d]) && windows[d].pad == 0 && in[d] == *as_int(windows[d].axis.extent);
    };
    if (!whole(1) || !whole(2)) return "the window is no image of 3 or 5 rows and columns, and no column of 3, 5 or 7";
    WindowAxis columns = windows[1];
    columns.axis.extent = Expr(in[1] * in[2]);
    conv.dims = FilteredConv::Dims::kRowColumns;
    conv.columns_wide = in[2];
    set_image(windows[0], columns, in[0], in[1] * in[2], conv);
    return "";
  }
  const bool one = (is_filtered(second) && is_plain(last)) || (is_plain(second) && is_filtered(last));
  if (!two && !one) return "the window has not 3, 5 or 7 places along its last dimensions, or has strides";
  set_image(second, last, in[count - 2], in[count - 1], conv);
  if (count == 3) {
    conv.dims = FilteredConv::Dims::kImageRowColumn;
    conv.frames = windows[0].places;
    conv.depth = in[0];
    conv.out_depth = *as_int(windows[0].axis.extent);
    conv.stride = windows[0].stride;
    conv.dilation = windows[0].dilation;
    conv.pad_front = windows[0].pad;
  }
  return "";
}

}  // namespace

bool FilteredConv::has_matrices(int64_t m) const {
  // The errors of both dimensions multiply.
  constexpr int64_t kMostInputs = 6;
  const bool both = window_height > 1 && window_width > 1;
  const auto along = [&](int64_t places) {
    return places == 1 || (has_winograd_matrices(m, places) && (!both || m + places - 1 <= kMostInputs));
  };
  return along(window_height) && along(window_width);
}

FilteredConv::Place FilteredConv::place_of(const Expr& image, const Bounds& bounds) const {
  return {simplify(floordiv(image, groups * out_depth), bounds),
          simplify(floormod(floordiv(image, out_depth), groups), bounds), simplify(floormod(image, out_depth), bounds)};
}

std::vector<Expr> FilteredConv::loops_at(const Expr& image, const Expr& block, const Expr& row, const Expr& column,
                                         const Expr& lane, const Bounds& bounds) const {
  const auto [volume, group, place] = place_of(image, bounds);
  const Expr all = simplify(group * Expr(out_blocks) + block, bounds);
  switch (dims) {
    case Dims::kColumn: return {volume, all, column, lane};
    case Dims::kRowColumn: return {volume, all, row, column, lane};
    case Dims::kImageRowColumn: return {volume, all, place, row, column, lane};
    case Dims::kRowColumns:
      return {volume,
              all,
              row,
              simplify(floordiv(column, columns_wide), bounds),
              simplify(floormod(column, columns_wide), bounds),
              lane};
  }
  return {};
}

std::string match_filtered_conv(const TensorProgram& program, FilteredConv& conv) {
  if (!program.windows.empty()) return "only a window is computed";
  const Stage* reduction = program.reduction();
  if (!reduction || reduction->body.combiner != Combiner::kSum || reduction->out->dtype != DType::kF32)
    return "the kernel is no sum of f32";
  const Body& body = reduction->body;
  const size_t rank = body.axes.size();
  if (rank < 3 || rank > 5) return "the kernel is no image convolution";
  if (body.value->kind != ExprKind::kBinary || body.value->binary != BinaryOp::kMul)
    return "the kernel sums no products";
  Expr image = body.value->operands[0];
  Expr filter = body.value->operands[1];
  std::vector<Expr> conditions;
  if (image->kind == ExprKind::kSelect && is_zero(image->operands[2])) {
    split_conjunction(image->operands[0], conditions);
    image = image->operands[1];
  }
  if (image->kind == ExprKind::kCast && is_float(image->operands[0].dtype())) image = image->operands[0];
  if (image->kind != ExprKind::kLoad || filter->kind != ExprKind::kLoad) return "an operand is computed in the kernel";
  const auto x = param_of(program, image->buffer);
  const auto w = param_of(program, filter->buffer);
  if (!x || !w || !program.params[*w].may_be_packed()) return "the weights may not be packed";
  const Layout& layout = program.output().layout;
  conv.block = layout.inner_block().block;
  if (layout.row_major() || !(layout == Layout::blocked(static_cast<int>(rank), 1, conv.block)) ||
      !(program.params[*x].layout == layout) || !program.params[*w].layout.row_major())
    return "the images are not blocked by channels";

  const auto x_dims = static_dims(image->buffer->shape);
  const auto w_dims = static_dims(filter->buffer->shape);
  const auto y_dims = static_dims(reduction->out->shape);
  if (!x_dims || !w_dims || !y_dims || x_dims->size() != rank || w_dims->size() != rank) return "a shape is not fixed";
  const auto filters = [](int64_t places) { return has_winograd_matrices(2, places); };
  if ((*w_dims)[1] < 1 || std::none_of(w_dims->begin() + 2, w_dims->end(), filters))
    return "the window has not 3, 5 or 7 places along any dimension";
  Bounds bounds;
  for (const std::vector<Axis>* axes : {&body.axes, &body.reduce_axes})
    for (const Axis& axis : *axes) bounds.set(axis.var, 0, *as_int(axis.extent) - 1);
  const auto is_axis = [](const Expr& e, const Axis& axis) { return e.same_node(axis.var); };
  // Every reduced axis stands in one place of the weights' index.
  size_t reduced = 0;
  for (size_t d = 1; d < rank; ++d) {
    const auto reads = [&](const Axis& axis) { return is_axis(filter->operands[d], axis); };
    const bool found = std::any_of(body.reduce_axes.begin(), body.reduce_axes.end(), reads);
    if (!found && (*w_dims)[d] != 1) return "the weights are read in another order";
    reduced += found;
    for (size_t other = 1; found && other < d; ++other)
      if (filter->operands[d].same_node(filter->operands[other])) return "the weights are read in another order";
  }
  if (!is_axis(filter->operands[0], body.axes[1]) || reduced != body.reduce_axes.size())
    return "the weights are read in another order";
  const int64_t in_channels = (*w_dims)[1];
  conv.groups = (*x_dims)[1] / in_channels;
  if (conv.groups < 1 || conv.groups * in_channels != (*x_dims)[1] || (*y_dims)[1] % conv.groups != 0)
    return "a part of the channels is read";
  const int64_t out_channels = (*y_dims)[1] / conv.groups;
  if (!is_axis(image->operands[0], body.axes[0]) ||
      !is_channel_of_group(image->operands[1], body.axes[1], filter->operands[1], in_channels, out_channels))
    return "the channels are read in another order";
  std::vector<WindowAxis> windows;
  for (size_t d = 2; d < rank; ++d) {
    WindowAxis& window = windows.emplace_back(WindowAxis{body.axes[d], filter->operands[d], (*w_dims)[d]});
    if (std::string why = match_window(simplify(image->operands[d], bounds), conditions, (*x_dims)[d], bounds, window);
        !why.empty())
      return why;
  }
  for (const Expr& condition : conditions)
    if (std::none_of(windows.begin(), windows.end(), [&](const WindowAxis& one) { return decides(one, condition); }))
      return "the padding is not of images";
  if (std::string why = set_dimensions(windows, {x_dims->begin() + 2, x_dims->end()}, conv); !why.empty()) return why;
  if (!conv.has_matrices(2)) return "the window has 7 places along two dimensions";
  if (in_channels % conv.block != 0) return "the input channels do not fill their blocks";
  if (conv.groups > 1 && out_channels % conv.block != 0)
    return "the output channels of a group do not fill their blocks";
  for (const int64_t extent : *y_dims)
    if (extent == 0) return "the output is empty";
  conv.x = *x;
  conv.w = *w;
  conv.images = (*y_dims)[0] * conv.groups * conv.out_depth;
  conv.channel_blocks = in_channels / conv.block;
  conv.out_channels = out_channels;
  conv.out_blocks = (out_channels + conv.block - 1) / conv.block;
  return "";
}

}  // namespace tessera::inline schedule
