// Convolutions and matrix products.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "arith/simplify.h"

#include "import/onnx/operators/handlers.h"
#include "import/onnx/read/tensor_reader.h"
#include "import/onnx/read/window_attributes.h"

namespace tessera::inline onnx_import {
namespace {

using Ints = std::vector<int64_t>;

// The kernel extents of w[.., .., kernel...], which must have the rank of x.
Ints kernel_of(NodeContext& c, ValueId x, ValueId w) {
  const Ints dims = c.dims(w);
  if (c.rank(w) != c.rank(x))
    c.malformed(
        fmt::format("weights of type {} for an operand of type {}", c.type(w).to_string(), c.type(x).to_string()),
        "weights of the same rank");
  return {dims.begin() + 2, dims.end()};
}

int64_t read_groups(NodeContext& c) {
  const int64_t groups = c.attrs.get_int("group", 1);
  if (groups < 1 || groups > (int64_t{1} << 31)) c.malformed(fmt::format("group = {}", groups), "1 or more");
  return groups;
}

ValueId add_bias(NodeContext& c, ValueId y, int input) {
  if (!c.has(input)) return y;
  const ValueId bias = c.in(input);
  const Expr channels = c.shape(y)[1];
  if (c.rank(bias) != 1 || !equal_sizes(c.shape(bias)[0], channels))
    c.malformed(fmt::format("a bias of type {}", c.type(bias).to_string()),
                fmt::format("{} elements, one per output channel", to_string(channels)));
  return c.add(y, c.per_channel(bias, c.rank(y)));
}

// With a composite's name, that instead of the primitive: operands behind the first two are its own.
ValueId conv(NodeContext& c, ValueId x, ValueId w, const char* composite = nullptr, std::vector<ValueId> more = {}) {
  const Shape extents = spatial_extents(c, x);
  const WindowAttributes window = read_window(c, extents, kernel_of(c, x, w));
  if (!window.more_begin.empty()) {
    Shape low = {0, 0}, high = {0, 0};
    low.insert(low.end(), window.more_begin.begin(), window.more_begin.end());
    high.insert(high.end(), window.more_end.begin(), window.more_end.end());
    x = c.op("pad", {x, c.scalar_like(x, 0)}, {{"low", low}, {"high", high}, {"mode", std::string("constant")}});
  }
  Attrs attrs = {{"strides", window.strides},
                 {"pads_begin", window.pads_begin},
                 {"pads_end", window.pads_end},
                 {"dilations", window.dilations},
                 {"groups", read_groups(c)}};
  more.insert(more.begin(), {x, w});
  if (composite) return c.composite(composite, std::move(more), std::move(attrs));
  attrs.set("input_dilations", Ints(extents.size(), 1));
  return c.op("conv", std::move(more), std::move(attrs));
}

// x in i32 minus its zero point (operand `input`, a scalar or one value per entry of dimension `axis`).
ValueId centred(NodeContext& c, ValueId x, int input, int axis) {
  const ValueId wide = c.cast(x, DType::kI32);
  if (!c.has(input)) return wide;
  ValueId zero = c.cast(c.in(input), DType::kI32);
  const Ints dims = c.dims(zero);
  if (c.num_elements(zero) == 1) {
    zero = c.reshape(zero, {});
  } else if (dims.size() == 1 && axis < c.rank(x)) {
    Ints shape(static_cast<size_t>(c.rank(x)), 1);
    shape[static_cast<size_t>(axis)] = dims[0];
    zero = c.reshape(zero, shape);
  } else if (c.rank(zero) != c.rank(x)) {
    c.malformed(fmt::format("a zero point of type {}", c.type(zero).to_string()),
                "a scalar or one value per row or column");
  }
  return c.sub(wide, zero);
}

// The zero points of a product of bytes, where all are of one number, as operands of the composites.
std::optional<std::vector<ValueId>> zero_points(NodeContext& c) {
  std::vector<ValueId> zeros;
  for (int i = 0; i < 2; ++i) {
    const bool is_byte = c.dtype(c.in(i)) == DType::kU8 || c.dtype(c.in(i)) == DType::kI8;
    if (!is_byte || c.rank(c.in(i)) < 2) return std::nullopt;
    if (!c.has(i + 2)) {
      if (i == 0 && c.has(3)) return std::nullopt;
      continue;
    }
    const ValueId zero = c.in(i + 2);
    if (c.num_elements(zero) != 1 || c.dtype(zero) != c.dtype(c.in(i))) return std::nullopt;
    zeros.push_back(c.reshape(zero, {}));
  }
  return zeros;
}

}  // namespace

ValueId convolution(NodeContext& c) { return add_bias(c, conv(c, c.in(0), c.in(1)), 2); }

namespace {

void import_conv(NodeContext& c) {
  c.require_inputs(2, 3);
  c.out(0, convolution(c));
}

void import_conv_integer(NodeContext& c) {
  c.require_inputs(2, 4);
  const ValueId x = c.in(0), w = c.in(1);
  const std::string pads = c.attrs.get_string("auto_pad", "NOTSET");
  if (const auto zeros = zero_points(c); zeros && (pads == "NOTSET" || pads == "VALID"))
    return c.out(0, conv(c, x, w, "conv_integer", *zeros));
  c.out(0, conv(c, centred(c, x, 2, 0), centred(c, w, 3, 0)));
}

void import_conv_transpose(NodeContext& c) {
  c.require_inputs(2, 3);
  const ValueId x = c.in(0), w = c.in(1);
  const Shape sizes = spatial_extents(c, x);
  const size_t rank = sizes.size();
  WindowAttributes window = read_window(c, sizes, kernel_of(c, x, w), false);
  const std::string auto_pad = c.attrs.get_string("auto_pad", "NOTSET");
  Ints more = c.attrs.get_ints("output_padding", Ints(rank, 0));
  if (more.empty()) more.assign(rank, 0);
  Ints wanted = c.attrs.get_ints("output_shape");
  const auto check_list = [&](const char* name, const Ints& list) {
    if (list.size() != rank ||
        std::any_of(list.begin(), list.end(), [](int64_t v) { return v < 0 || v > (int64_t{1} << 31); }))
      c.malformed(fmt::format("{} = [{}] for {} spatial dimensions", name, fmt::join(list, ","), rank),
                  fmt::format("{} entries of at least 0", rank));
  };
  check_list("output_padding", more);
  for (size_t d = 0; d < rank; ++d)
    if (as_int(sizes[d]).value_or(0) > kMaxTensorElements / window.strides[d])
      c.malformed(fmt::format("strides = [{}] for {}", fmt::join(window.strides, ","), c.type(x).to_string()),
                  "a result of at most 2^40 elements");
  const bool same = auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER";
  Ints extents;
  if (!wanted.empty() || same) {
    const Ints dims = c.dims(x);
    extents.assign(dims.begin() + 2, dims.end());
  }
  if (wanted.empty() && same)
    for (size_t d = 0; d < rank; ++d) wanted.push_back(extents[d] * window.strides[d]);
  if (!wanted.empty()) {
    check_list("output_shape", wanted);
    for (size_t d = 0; d < rank; ++d) {
      const int64_t span = (window.kernel[d] - 1) * window.dilations[d] + 1;
      // What must be cut off; a negative amount is added at the end.
      const int64_t total = window.strides[d] * (extents[d] - 1) + more[d] + span - wanted[d];
      window.pads_begin[d] = total <= 0 ? 0 : auto_pad == "SAME_UPPER" ? total / 2 : total - total / 2;
      window.pads_end[d] = total - window.pads_begin[d];
    }
  }
  const ValueId y = c.composite("conv_transpose", {x, w},
                                {{"strides", window.strides},
                                 {"pads_begin", window.pads_begin},
                                 {"pads_end", window.pads_end},
                                 {"dilations", window.dilations},
                                 {"output_padding", more},
                                 {"groups", read_groups(c)}});
  c.out(0, add_bias(c, y, 2));
}

void import_gemm(NodeContext& c) {
  c.require_inputs(c.version() < 11 ? 3 : 2, 3);
  if (c.version() < 7) {
    // Then the third operand has the result's shape unless `broadcast` is set.
    const ValueId a = c.in(0), b = c.in(1), bias = c.in(2);
    const bool broadcast = c.attrs.get_int("broadcast", 0) != 0;
    if (c.rank(a) == 2 && c.rank(b) == 2 && !broadcast) {
      const Shape wanted = {c.shape(a)[c.attrs.get_int("transA", 0) != 0],
                            c.shape(b)[c.attrs.get_int("transB", 0) == 0]};
      if (!same_shape(c.shape(bias), wanted))
        c.malformed(fmt::format("a third operand of type {} with broadcast = 0", c.type(bias).to_string()),
                    fmt::format("the shape {}, or broadcast = 1", to_string(wanted)));
    }
  }
  c.out(0, c.composite("gemm", c.all_inputs(),
                       {{"alpha", c.attrs.get_float("alpha", 1)},
                        {"beta", c.attrs.get_float("beta", 1)},
                        {"trans_a", c.attrs.get_int("transA", 0) != 0},
                        {"trans_b", c.attrs.get_int("transB", 0) != 0}}));
}

void import_matmul(NodeContext& c) {
  c.require_inputs(2, 2);
  c.out(0, c.matrix_product(c.in(0), c.in(1)));
}

void import_matmul_integer(NodeContext& c) {
  c.require_inputs(2, 4);
  const ValueId a = c.in(0), b = c.in(1);
  if (auto zeros = zero_points(c)) {
    zeros->insert(zeros->begin(), {a, b});
    return c.out(0, c.composite("matmul_integer", std::move(*zeros)));
  }
  c.out(0,
        c.matrix_product(centred(c, a, 2, std::max(0, c.rank(a) - 2)), centred(c, b, 3, std::max(0, c.rank(b) - 1))));
}

// Operands: x, its scale and zero point, w, its scale (one, or one per output channel) and zero point, the result's
// scale and zero point, a bias in units of both scales.
void import_qlinear_conv(NodeContext& c) {
  c.require_inputs(8, 9);
  const ValueId x = c.in(0), w = c.in(3);
  ValueId y = conv(c, centred(c, x, 2, 0), centred(c, w, 5, 0));
  if (c.has(8)) y = c.add(y, c.per_channel(c.in(8), c.rank(y)));
  ValueId scale = c.in(4);
  scale = c.num_elements(scale) == 1 ? c.reshape(scale, {}) : c.per_channel(scale, c.rank(y));
  scale = c.div(c.mul(scale, c.reshape(c.in(1), {})), c.reshape(c.in(6), {}));
  const ValueId real = c.mul(c.cast(y, DType::kF32), scale);
  c.out(0, quantized(c, real, c.scalar_like(real, 1), c.reshape(c.in(7), {})));
}

// The same for matrices: a and b with one scale, one per row of a or one per column of b.
void import_qlinear_matmul(NodeContext& c) {
  c.require_inputs(8, 8);
  const ValueId a = c.in(0), b = c.in(3);
  const ValueId y =
      c.matrix_product(centred(c, a, 2, std::max(0, c.rank(a) - 2)), centred(c, b, 5, std::max(0, c.rank(b) - 1)));
  const auto factor = [&](int i, bool row) {
    const ValueId scale = c.in(i);
    if (c.num_elements(scale) == 1) return c.reshape(scale, {});
    return row && c.rank(scale) == 1 ? c.reshape(scale, {c.dims(scale)[0], 1}) : scale;
  };
  const ValueId scale = c.div(c.mul(c.cast(factor(1, true), DType::kF32), c.cast(factor(4, false), DType::kF32)),
                              c.cast(factor(6, true), DType::kF32));
  const ValueId real = c.mul(c.cast(y, DType::kF32), scale);
  c.out(0, quantized(c, real, c.scalar_like(real, 1), factor(7, true)));
}

}  // namespace

OperatorFamily contractions_operators() {
  static constexpr OperatorImporter standard[] = {
      OperatorImporter{"Conv", 1, import_conv},
      OperatorImporter{"ConvInteger", 10, import_conv_integer},
      OperatorImporter{"ConvTranspose", 1, import_conv_transpose},
      OperatorImporter{"Gemm", 1, import_gemm},
      OperatorImporter{"MatMul", 1, import_matmul},
      OperatorImporter{"MatMulInteger", 10, import_matmul_integer},
      OperatorImporter{"QLinearConv", 10, import_qlinear_conv},
      OperatorImporter{"QLinearMatMul", 10, import_qlinear_matmul},
  };
  return {{"", standard}};
}

}  // namespace tessera::inline onnx_import
