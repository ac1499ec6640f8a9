// Convolutions and matrix products.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "arith/simplify.h"
#include "import/aten/operators/handlers.h"

namespace tessera::inline aten {
namespace {

using Ints = std::vector<int64_t>;

ValueId with_bias(AtenContext& c, ValueId y) {
  const auto bias = c.maybe_tensor("bias");
  return bias ? c.add(y, c.per_channel(*bias, c.rank(y))) : y;
}

// With x [N,C,spatial...], or without N.
void convolve(AtenContext& c, bool transposed, const Ints& pads_begin, const Ints& pads_end,
              const Ints& output_padding) {
  ValueId x = c.tensor("input");
  const ValueId w = c.tensor("weight");
  const auto spatial = static_cast<size_t>(std::max(0, c.rank(w) - 2));
  const bool batched = c.rank(x) == c.rank(w);
  if (!batched && c.rank(x) + 1 != c.rank(w))
    c.malformed(fmt::format("weights of type {} for {}", c.type(w).to_string(), c.type(x).to_string()),
                "weights of the same rank");
  if (!batched) {
    Shape sizes = c.shape(x);
    sizes.insert(sizes.begin(), 1);
    x = c.reshape(x, sizes);
  }
  Attrs attrs = {{"strides", c.per_dimension("stride", spatial, 1)},
                 {"pads_begin", pads_begin},
                 {"pads_end", pads_end},
                 {"dilations", c.per_dimension("dilation", spatial, 1)},
                 {"groups", c.whole("groups", 1)}};
  if (transposed) attrs.set("output_padding", output_padding);
  else attrs.set("input_dilations", Ints(spatial, 1));
  ValueId y = with_bias(c, transposed ? c.composite("conv_transpose", {x, w}, attrs) : c.op("conv", {x, w}, attrs));
  if (!batched) {
    const Shape sizes = c.shape(y);
    y = c.reshape(y, Shape(sizes.begin() + 1, sizes.end()));
  }
  c.out(y);
}

size_t spatial_rank(AtenContext& c) { return static_cast<size_t>(std::max(0, c.rank(c.tensor("weight")) - 2)); }

void import_convolution(AtenContext& c) {
  const size_t spatial = spatial_rank(c);
  const Ints padding = c.per_dimension("padding", spatial, 0);
  convolve(c, c.truth("transposed", false), padding, padding, c.per_dimension("output_padding", spatial, 0));
}

// conv1d, conv2d, conv3d; the overload "padding" has a word: "same" or "valid".
void import_conv(AtenContext& c) {
  const size_t spatial = spatial_rank(c);
  if (c.overload() != "padding") {
    const Ints padding = c.per_dimension("padding", spatial, 0);
    return convolve(c, false, padding, padding, {});
  }
  const std::string padding = c.text("padding", "valid");
  Ints begin(spatial, 0), end(spatial, 0);
  if (padding == "same") {
    const Ints kernel = c.dims(c.tensor("weight")), dilation = c.per_dimension("dilation", spatial, 1);
    for (size_t d = 0; d < spatial; ++d) {
      const int64_t total = dilation[d] * (kernel[d + 2] - 1);
      begin[d] = total / 2;
      end[d] = total - begin[d];
    }
  }
  convolve(c, false, begin, end, {});
}

void import_conv_transpose(AtenContext& c) {
  const size_t spatial = spatial_rank(c);
  const Ints padding = c.per_dimension("padding", spatial, 0);
  convolve(c, true, padding, padding, c.per_dimension("output_padding", spatial, 0));
}

void import_mm(AtenContext& c) { c.out(c.op("matmul", {c.tensor("self"), c.tensor("mat2")})); }

// beta * self + alpha * product; with beta 0 self does not count, NaNs in it neither.
void added(AtenContext& c, ValueId product) {
  const double alpha = c.number("alpha", 1), beta = c.number("beta", 1);
  product = scaled(c, product, alpha);
  c.out(beta == 0 ? product : c.add(scaled(c, c.tensor("self"), beta), product));
}

void import_addmm(AtenContext& c) { added(c, c.op("matmul", {c.tensor("mat1"), c.tensor("mat2")})); }
void import_baddbmm(AtenContext& c) { added(c, c.op("matmul", {c.tensor("batch1"), c.tensor("batch2")})); }
void import_addbmm(AtenContext& c) {
  added(c, c.reduce("sum", c.op("matmul", {c.tensor("batch1"), c.tensor("batch2")}), {0}, false));
}

// Three operands with dimensions added to each, multiplied, and summed along some.
void import_trilinear(AtenContext& c) {
  std::vector<ValueId> factors;
  for (const auto& [name, dims] :
       {std::pair("i1", "expand1"), std::pair("i2", "expand2"), std::pair("i3", "expand3")}) {
    const ValueId x = c.tensor(name);
    Shape sizes = c.shape(x);
    for (const int64_t d : c.integers(dims)) sizes.insert(sizes.begin() + d, 1);
    factors.push_back(c.reshape(x, sizes));
  }
  const ValueId product = c.mul(c.mul(factors[0], factors[1]), factors[2]);
  const Ints axes = c.integers("sumdim");
  c.out(axes.empty() ? product : c.reduce("sum", product, axes, false));
}

void import_addmv(AtenContext& c) { added(c, c.matrix_product(c.tensor("mat"), c.tensor("vec"))); }

void import_matmul(AtenContext& c) { c.out(c.matrix_product(c.tensor("self"), c.tensor("other"))); }
void import_dot(AtenContext& c) { c.out(c.matrix_product(c.tensor("self"), c.tensor("tensor"))); }
void import_mv(AtenContext& c) { c.out(c.matrix_product(c.tensor("self"), c.tensor("vec"))); }

void import_linear(AtenContext& c) {
  const ValueId w = c.tensor("weight");
  const ValueId y = c.matrix_product(c.tensor("input"), c.rank(w) == 2 ? c.transpose(w, {1, 0}) : w);
  const auto bias = c.maybe_tensor("bias");
  c.out(bias ? c.add(y, *bias) : y);
}

}  // namespace

std::span<const AtenOperator> contraction_operators() {
  static constexpr AtenOperator table[] = {
      {"_trilinear", import_trilinear},
      {"addbmm", import_addbmm},
      {"addmm", import_addmm},
      {"addmv", import_addmv},
      {"baddbmm", import_baddbmm},
      {"bmm", import_mm},
      {"conv1d", import_conv},
      {"conv2d", import_conv},
      {"conv3d", import_conv},
      {"conv_transpose1d", import_conv_transpose},
      {"conv_transpose2d", import_conv_transpose},
      {"conv_transpose3d", import_conv_transpose},
      {"convolution", import_convolution},
      {"dot", import_dot},
      {"linear", import_linear},
      {"matmul", import_matmul},
      {"mm", import_mm},
      {"mv", import_mv},
  };
  return table;
}

}  // namespace tessera::inline aten
