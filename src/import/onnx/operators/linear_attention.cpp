// Operators of recurrent language models: linear attention, whose state is a matrix for each head, and the causal
// convolution in front of it. Both take the state of an earlier call and give the new one.
#include <fmt/format.h>

#include <cmath>

#include "import/onnx/operators/handlers.h"
#include "import/onnx/operators/helpers.h"

namespace tessera::inline onnx_import {
namespace {

using Ints = std::vector<int64_t>;

// Steps are written out, so that their number must stay moderate.

// [B, T, heads * D] as f32 [B, heads, T, D].
ValueId by_head(NodeContext& c, ValueId x, int64_t heads) {
  const Ints dims = c.dims(x);
  if (dims.size() != 3 || heads < 1 || dims[2] % heads != 0)
    c.malformed(fmt::format("{} heads for an operand of type {}", heads, c.type(x).to_string()),
                "rank 3, and a number of heads that divides the last dimension");
  return c.transpose(c.reshape(c.cast(x, DType::kF32), {dims[0], dims[1], heads, dims[2] / heads}), {0, 2, 1, 3});
}

// For each step, with g = exp(decay): S = g S + k (x) d, where d is v or, with a delta rule, beta (v - k (g S)); the
// result is q S, scaled. Everything is computed in f32, as the standard's function body does.
void import_linear_attention(NodeContext& c) {
  c.require_inputs(3, 6);
  const std::string rule = c.attrs.get_string("update_rule", "gated_delta");
  const bool gated = rule == "gated" || rule == "gated_delta", delta = rule == "delta" || rule == "gated_delta";
  if (!gated && !delta && rule != "linear")
    c.malformed(fmt::format("update_rule = {}", rule), "linear, gated, delta, gated_delta");
  const int64_t q_heads = c.attrs.require_int("q_num_heads"), heads = c.attrs.require_int("kv_num_heads");
  c.attrs.ignore("chunk_size");  // how, not what
  const ValueId q = by_head(c, c.in(0), q_heads), k = by_head(c, c.in(1), heads), v = by_head(c, c.in(2), heads);
  const int64_t batch = c.dims(q)[0], steps = c.dims(q)[2], depth = c.dims(q)[3], width = c.dims(v)[3];
  const auto fits = [&](ValueId x) { return c.dims(x)[0] == batch && c.dims(x)[2] == steps; };
  if (q_heads % heads != 0 || !fits(k) || !fits(v) || c.dims(k)[3] != depth)
    c.malformed(fmt::format("operands of types {}, {} and {} with {} and {} heads", c.type(c.in(0)).to_string(),
                            c.type(c.in(1)).to_string(), c.type(c.in(2)).to_string(), q_heads, heads),
                "one batch, one length, and as many features of a query as of a key");
  if (steps > kMostSteps) c.unsupported(fmt::format("more than {} time steps", kMostSteps));
  double scale = c.attrs.get_float("scale", 0);
  if (scale == 0) scale = 1 / std::sqrt(static_cast<double>(depth));

  std::optional<ValueId> decay, beta;  // [B, heads, T, 1 or D]
  if (gated) {
    const bool per_head = c.rank(c.in(4)) == 3 && c.dims(c.in(4))[2] == heads;
    decay = c.op("exp", {by_head(c, c.in(4), heads)});
    if (!fits(*decay) || (!per_head && c.dims(*decay)[3] != depth))
      c.malformed(fmt::format("a decay of type {}", c.type(c.in(4)).to_string()),
                  fmt::format("[{}, {}, {} or {}]", batch, steps, heads, heads * depth));
  }
  if (delta) {
    const Ints dims = c.dims(c.in(5));
    if (dims.size() != 3 || dims[0] != batch || dims[1] != steps || (dims[2] != heads && dims[2] != 1))
      c.malformed(fmt::format("beta of type {}", c.type(c.in(5)).to_string()),
                  fmt::format("[{}, {}, {} or 1]", batch, steps, heads));
    beta = by_head(c, c.in(5), dims[2]);
  }
  ValueId state;
  if (c.has(3)) {
    state = c.cast(c.in(3), DType::kF32);
    if (c.dims(state) != Ints{batch, heads, depth, width})
      c.malformed(fmt::format("a state of type {}", c.type(c.in(3)).to_string()),
                  fmt::format("[{}, {}, {}, {}]", batch, heads, depth, width));
  } else {
    state = c.zeros(DType::kF32, {batch, heads, depth, width});
  }
  const auto at = [&](ValueId x, int64_t t) {
    Ints sizes = c.dims(x);
    sizes[2] = 1;
    return c.slice(x, {0, 0, t, 0}, sizes, {1, 1, 1, 1});  // [B, heads, 1, D]
  };
  const auto column = [&](ValueId row) {
    const Ints dims = c.dims(row);
    return c.reshape(row, {dims[0], dims[1], dims[3], 1});
  };
  std::vector<ValueId> outputs;
  for (int64_t t = 0; t < steps; ++t) {
    const ValueId key = at(k, t);
    if (gated) state = c.mul(state, column(at(*decay, t)));
    ValueId written = at(v, t);
    if (delta) written = c.mul(at(*beta, t), c.sub(written, c.op("matmul", {key, state})));
    state = c.add(state, c.mul(column(key), written));
    // Queries that share a state become rows of one matrix.
    const ValueId query = c.reshape(at(q, t), {batch, heads, q_heads / heads, depth});
    outputs.push_back(c.reshape(c.op("matmul", {query, state}), {batch, 1, q_heads * width}));
  }
  const DType dtype = c.dtype(c.in(0));
  if (steps == 0) {
    int64_t features = 0;
    if (__builtin_mul_overflow(q_heads, width, &features)) features = -1;  // which zeros refuses
    c.out(0, c.zeros(dtype, {batch, 0, features}));
  } else {
    const ValueId all = outputs.size() == 1 ? outputs[0] : c.op("concat", outputs, {{"axis", int64_t{1}}});
    c.out(0, c.cast(c.mul(all, c.scalar(DType::kF32, scale)), dtype));
  }
  c.out(1, c.cast(state, c.has(3) ? c.dtype(c.in(3)) : dtype));
}

// A convolution of each channel with its own kernel over the places up to its own; those before the input are the
// state, or zeros.
void import_causal_conv(NodeContext& c) {
  c.require_inputs(2, 4);
  const ValueId x = c.in(0), w = c.in(1);
  const Ints dims = c.dims(x), kernel = c.dims(w);
  const std::string activation = c.attrs.get_string("activation", "none");
  if (activation != "none" && activation != "silu" && activation != "swish")
    c.malformed(fmt::format("activation = {}", activation), "none, silu, swish");
  if (dims.size() != 3 || kernel.size() != 3 || kernel[0] != dims[1] || kernel[1] != 1 || kernel[2] < 1)
    c.malformed(fmt::format("weights of type {} for {}", c.type(w).to_string(), c.type(x).to_string()),
                "[channels, 1, kernel] for [batch, channels, length]");
  const Ints state_dims = {dims[0], dims[1], kernel[2] - 1};
  const ValueId past = c.has(3) ? c.in(3) : c.zeros(c.dtype(x), state_dims);
  if (c.dims(past) != state_dims)
    c.malformed(fmt::format("a state of type {}", c.type(past).to_string()),
                fmt::format("[{}, {}, {}]", state_dims[0], state_dims[1], state_dims[2]));
  const ValueId all = kernel[2] == 1 ? x : c.op("concat", {past, x}, {{"axis", int64_t{2}}});
  const Ints one = {1}, zero = {0};
  ValueId y = c.op("conv", {all, w},
                   {{"strides", one},
                    {"dilations", one},
                    {"input_dilations", one},
                    {"pads_begin", zero},
                    {"pads_end", zero},
                    {"groups", dims[1]}});
  if (c.has(2)) y = c.add(y, c.per_channel(c.in(2), 3));
  if (activation != "none") {
    const ValueId wide = c.cast(y, c.dtype(y) == DType::kF64 ? DType::kF64 : DType::kF32);
    y = c.cast(c.mul(wide, c.composite("sigmoid", {wide})), c.dtype(y));
  }
  c.out(0, y);
  c.out(1, c.slice(all, {0, 0, dims[2]}, state_dims, {1, 1, 1}));
}

}  // namespace

OperatorFamily linear_attention_operators() {
  static constexpr OperatorImporter standard[] = {
      OperatorImporter{"CausalConvWithState", 27, import_causal_conv},
      OperatorImporter{"LinearAttention", 27, import_linear_attention},
  };
  return {{"", standard}};
}

}  // namespace tessera::inline onnx_import
