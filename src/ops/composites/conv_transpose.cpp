// conv_transpose: every input element adds its multiple of the kernel to the output. It is the convolution with the
// kernel turned around of an input whose elements are laid out `stride` apart.
#include <fmt/format.h>

#include "ops/composites/composites.h"
#include "ops/window.h"

namespace tessera::inline ops {
namespace {

using Ints = std::vector<int64_t>;

// w[C, O/groups, k...] as the weights [O, C/groups, k...] of the convolution, each kernel turned around.
ValueId turned_weights(CompositeBody& b, int64_t groups) {
  ValueId w = b.operand(1);
  Ints dims;
  for (const Expr& extent : b.type(w).shape) dims.push_back(b.static_extent(extent, "an extent of the weights"));
  const Ints kernel(dims.begin() + 2, dims.end());
  const int64_t in_per_group = dims[0] / groups;
  const auto with_kernel = [&](Ints leading) {
    leading.insert(leading.end(), kernel.begin(), kernel.end());
    return leading;
  };
  Ints perm = groups == 1 ? Ints{1, 0} : Ints{0, 2, 1};
  if (groups > 1) w = b.add("reshape", {w}, {{"shape", with_kernel({groups, in_per_group, dims[1]})}});
  for (size_t d = 0; d < kernel.size(); ++d) perm.push_back(static_cast<int64_t>(perm.size()));
  w = b.add("transpose", {w}, {{"perm", perm}});
  const Ints shape = with_kernel({groups * dims[1], in_per_group});
  if (groups > 1) w = b.add("reshape", {w}, {{"shape", shape}});
  Ints starts(shape.size(), 0), steps(shape.size(), 1);
  bool turns = false;
  for (size_t d = 2; d < shape.size(); ++d) {
    starts[d] = shape[d] - 1;
    steps[d] = -1;
    turns |= shape[d] > 1;
  }
  return turns ? b.add("slice", {w}, {{"starts", starts}, {"sizes", shape}, {"steps", steps}}) : w;
}

std::vector<ValueId> conv_transpose(CompositeBody& b) {
  const OpContext& ctx = b.context();
  require_dtype(ctx, 0, is_arithmetic, kArithmeticTypes);
  require_same_dtype(ctx);
  require_rank(ctx, 0, 3, 5);
  const TensorType& x = b.type(b.operand(0));
  const TensorType& w = b.type(b.operand(1));
  require_rank(ctx, 1, x.rank(), x.rank());
  const size_t rank = x.shape.size() - 2;
  const int64_t groups = require_int(ctx, "groups", 1, kMaxWindowInt);
  const int64_t channels = b.static_extent(w.shape[0], "the number of input channels");
  if (!equal_extents(x.shape[1], w.shape[0]) || channels % groups != 0)
    ctx.fail("TSR-2024",
             fmt::format("{} with weights {} in {}", describe_operand(ctx, 0), to_string(w.shape),
                         plural(static_cast<size_t>(groups), "group", "groups")),
             "weights whose dimension 0 is the number of input channels, which the groups divide");
  const Ints& strides = require_ints(ctx, "strides", rank, 1, kMaxWindowInt);
  const Ints& dilations = require_ints(ctx, "dilations", rank, 1, kMaxWindowInt);
  const Ints& pads_begin = require_ints(ctx, "pads_begin", rank, -kMaxWindowInt, kMaxWindowInt);
  const Ints& pads_end = require_ints(ctx, "pads_end", rank, -kMaxWindowInt, kMaxWindowInt);
  const Ints& more = require_ints(ctx, "output_padding", rank, 0, kMaxWindowInt);
  Ints begin, end;
  for (size_t d = 0; d < rank; ++d) {
    const int64_t kernel = b.static_extent(w.shape[d + 2], "a kernel extent");
    if (kernel > kMaxExtent / dilations[d])
      ctx.fail("TSR-2025", fmt::format("dilations = {} for weights {}", join(dilations), to_string(w.shape)),
               "a kernel that reaches up to 2^40");
    const int64_t reach = dilations[d] * (kernel - 1);
    begin.push_back(reach - pads_begin[d]);
    end.push_back(reach - pads_end[d] + more[d]);
  }
  return {b.add("conv", {b.operand(0), turned_weights(b, groups)},
                {{"strides", Ints(rank, 1)},
                 {"dilations", dilations},
                 {"input_dilations", strides},
                 {"pads_begin", begin},
                 {"pads_end", end},
                 {"groups", groups}})};
}

}  // namespace

const std::vector<CompositeDef>& conv_transpose_composites() {
  static const std::vector<CompositeDef> list = [] {
    std::vector<AttrDef> attrs = {
        {"strides", AttrKind::kInts, true, "distance in the output between neighbouring input elements"},
        {"pads_begin", AttrKind::kInts, true, "elements cut off before the output"},
        {"pads_end", AttrKind::kInts, true, "elements cut off after the output"},
        {"dilations", AttrKind::kInts, true, "distance between neighbouring places of the kernel"},
        {"output_padding", AttrKind::kInts, true, "elements added after the output"},
        {"groups", AttrKind::kInt, true, "groups of channels that do not see each other"}};
    return std::vector<CompositeDef>{
        {"conv_transpose", "The transposed convolution of x[N,C,spatial...] with w[C,O/groups,kernel...].", 2, 2, attrs,
         conv_transpose,
         "conv_transpose(x: f32[1,1,2], w: f32[1,1,3]) {dilations = [1], groups = 1, output_padding = [0], "
         "pads_begin = [0], pads_end = [1], strides = [2]}\nrun x = 1 10 ; w = 1 2 3 -> y = 1 2 13 20"},
    };
  }();
  return list;
}

}  // namespace tessera::inline ops
