// Pooling over height and width.
#include <fmt/format.h>

#include "import/caffe/layers/handlers.h"

namespace tessera::inline caffe {
namespace {

// A last window may reach over the end, but begins before the padding there. Padding counts as elements of a mean, as
// far as the window was cut to it.
void import_pooling(LayerContext& c) {
  c.require_bottoms(1, 1);
  c.require_rank(0, 4);
  if (c.num_tops() != 1) c.unsupported("the places of maxima");
  const proto::PoolingParameter& p = c.layer().pooling_param();
  if (p.pool() == proto::PoolingParameter::STOCHASTIC) c.unsupported("pool: STOCHASTIC");
  const bool is_max = p.pool() == proto::PoolingParameter::MAX;
  const ValueId x = c.in();
  if (p.global_pooling()) return c.out(c.composite(is_max ? "global_max_pool" : "global_average_pool", {x}));
  const auto pair = [](bool has, uint32_t h, uint32_t w, uint32_t both) { return has ? Ints{h, w} : Ints{both, both}; };
  const Ints window = pair(p.has_kernel_h() || p.has_kernel_w(), p.kernel_h(), p.kernel_w(), p.kernel_size());
  const Ints strides = pair(p.has_stride_h() || p.has_stride_w(), p.stride_h(), p.stride_w(), p.stride());
  const Ints pads = pair(p.has_pad_h() || p.has_pad_w(), p.pad_h(), p.pad_w(), p.pad());
  for (size_t d = 0; d < 2; ++d)
    if (window[d] < 1 || strides[d] < 1 || pads[d] >= window[d])
      c.malformed(fmt::format("a window of {} by steps of {}, padded by {}", window[d], strides[d], pads[d]),
                  "a window and steps of 1 or more, and padding smaller than the window");
  Attrs attrs = {{"window", window},        {"strides", strides},
                 {"pads_begin", pads},      {"pads_end", pads},
                 {"dilations", Ints{1, 1}}, {"ceil_mode", p.round_mode() == proto::PoolingParameter::CEIL}};
  if (!is_max) attrs.set("count_include_pad", true);
  c.out(c.composite(is_max ? "max_pool" : "average_pool", {x}, attrs));
}

}  // namespace

std::span<const CaffeLayer> pooling_layers() {
  static constexpr CaffeLayer rows[] = {{"Pooling", import_pooling}};
  return rows;
}

}  // namespace tessera::inline caffe
