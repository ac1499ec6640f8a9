// Convolutions and products.
#include <fmt/format.h>

#include "import/caffe/layers/handlers.h"

namespace tessera::inline caffe {
namespace {

// A window's parameter for each spatial dimension: the pair of height and width, or a list of one or all.
template <typename List>
Ints per_dimension(LayerContext& c, const char* name, const List& list, bool has_pair, uint32_t h, uint32_t w,
                   size_t spatial, int64_t otherwise) {
  if (has_pair) {
    if (spatial != 2) c.malformed(fmt::format("{}_h and {}_w of {} dimensions", name, name, spatial), "two dimensions");
    return {h, w};
  }
  if (list.size() == 0) return Ints(spatial, otherwise);
  if (list.size() == 1) return Ints(spatial, int64_t{list.Get(0)});
  if (static_cast<size_t>(list.size()) != spatial)
    c.malformed(fmt::format("{} numbers for {}", list.size(), name), fmt::format("one, or {}", spatial));
  return {list.begin(), list.end()};
}

void require_positive(LayerContext& c, const char* name, const Ints& values) {
  for (const int64_t value : values)
    if (value < 1) c.malformed(fmt::format("{} = {}", name, value), "1 or more");
}

// x [N,C,spatial...]. `depthwise`: each channel by itself, whatever `group` says.
void convolve(LayerContext& c, bool transposed, bool depthwise) {
  c.require_bottoms(1, 1);
  const proto::ConvolutionParameter& p = c.layer().convolution_param();
  const ValueId x = c.in();
  if (c.rank(x) < 3) c.malformed(fmt::format("a bottom of type {}", c.type(x).to_string()), "[N,C,spatial...]");
  if (c.axis(p.axis(), c.rank(x)) != 1) c.unsupported(fmt::format("axis = {}", p.axis()));
  const auto spatial = static_cast<size_t>(c.rank(x) - 2);
  const bool kernel_pair = p.has_kernel_h() || p.has_kernel_w(), stride_pair = p.has_stride_h() || p.has_stride_w();
  const Ints kernel = per_dimension(c, "kernel", p.kernel_size(), kernel_pair, p.kernel_h(), p.kernel_w(), spatial, 0);
  const Ints strides = per_dimension(c, "stride", p.stride(), stride_pair, p.stride_h(), p.stride_w(), spatial, 1);
  const Ints pads = per_dimension(c, "pad", p.pad(), p.has_pad_h() || p.has_pad_w(), p.pad_h(), p.pad_w(), spatial, 0);
  const Ints dilations = per_dimension(c, "dilation", p.dilation(), false, 0, 0, spatial, 1);
  require_positive(c, "kernel_size", kernel);
  require_positive(c, "stride", strides);
  require_positive(c, "dilation", dilations);
  const int64_t channels = c.dims(x)[1], outputs = p.num_output();
  const int64_t groups = depthwise ? channels : p.group();
  if (outputs < 1 || groups < 1 || channels % groups != 0 || outputs % groups != 0)
    c.malformed(fmt::format("{} groups of {} channels and {} outputs", groups, channels, outputs),
                "a number that divides both");
  Ints dims = transposed ? Ints{channels, outputs / groups} : Ints{outputs, channels / groups};
  dims.insert(dims.end(), kernel.begin(), kernel.end());
  Attrs attrs = {
      {"strides", strides}, {"pads_begin", pads}, {"pads_end", pads}, {"dilations", dilations}, {"groups", groups}};
  if (transposed) attrs.set("output_padding", Ints(spatial, 0));
  else attrs.set("input_dilations", Ints(spatial, 1));
  const ValueId w = c.blob(0, dims);
  ValueId y = transposed ? c.composite("conv_transpose", {x, w}, attrs) : c.op("conv", {x, w}, attrs);
  if (p.bias_term()) y = c.add(y, c.per_channel(c.blob(1, {outputs}), c.rank(y)));
  c.out(y);
}

void import_convolution(LayerContext& c) { convolve(c, false, false); }
void import_depthwise(LayerContext& c) { convolve(c, false, true); }
void import_deconvolution(LayerContext& c) { convolve(c, true, false); }

// What stands from `axis` on is one vector.
void import_inner_product(LayerContext& c) {
  c.require_bottoms(1, 1);
  const proto::InnerProductParameter& p = c.layer().inner_product_param();
  const ValueId x = c.in();
  const int64_t axis = c.axis(p.axis(), c.rank(x)), outputs = p.num_output();
  const Ints dims = c.dims(x);
  int64_t rows = 1, columns = 1;
  for (int64_t d = 0; d < std::ssize(dims); ++d) (d < axis ? rows : columns) *= dims[static_cast<size_t>(d)];
  const ValueId w = c.blob(0, p.transpose() ? Ints{columns, outputs} : Ints{outputs, columns});
  std::vector<ValueId> operands = {c.reshape(x, {rows, columns}), w};
  if (p.bias_term()) operands.push_back(c.blob(1, {outputs}));
  const ValueId y = c.composite("gemm", operands, {{"trans_b", !p.transpose()}});
  Ints result(dims.begin(), dims.begin() + axis);
  result.push_back(outputs);
  c.out(c.reshape(y, result));
}

// Rows of a table; numbers are floats in Caffe.
void import_embed(LayerContext& c) {
  c.require_bottoms(1, 1);
  const proto::EmbedParameter& p = c.layer().embed_param();
  const int64_t outputs = p.num_output();
  const ValueId table = c.blob(0, {int64_t{p.input_dim()}, outputs});
  ValueId y = c.op("gather", {table, c.cast(c.in(), DType::kI64)}, {{"axis", int64_t{0}}});
  if (p.bias_term()) y = c.add(y, c.blob(1, {outputs}));
  c.out(y);
}

}  // namespace

std::span<const CaffeLayer> contraction_layers() {
  static constexpr CaffeLayer rows[] = {
      {"Convolution", import_convolution},
      {"ConvolutionDepthwise", import_depthwise},
      {"Deconvolution", import_deconvolution},
      {"DepthwiseConvolution", import_depthwise},
      {"Embed", import_embed},
      {"InnerProduct", import_inner_product},
  };
  return rows;
}

}  // namespace tessera::inline caffe
