#include "import/onnx/operators/attention_heads.h"

#include <fmt/format.h>

#include <limits>

#include "arith/simplify.h"

namespace tessera::inline onnx_import {
namespace {

using Ints = std::vector<int64_t>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace

ValueId split_heads(NodeContext& c, ValueId x, int64_t heads) {
  const Shape dims = c.shape(x);
  if (dims.size() != 3 || heads < 1 || !equal_sizes(floormod(dims[2], heads), 0))
    c.malformed(fmt::format("{} heads for an operand of type {}", heads, c.type(x).to_string()),
                "a number of heads that divides the last of three dimensions");
  return c.transpose(c.reshape(x, {dims[0], dims[1], heads, floordiv(dims[2], heads)}), {0, 2, 1, 3});
}

ValueId merge_heads(NodeContext& c, ValueId x) {
  const Shape dims = c.shape(x);
  return c.reshape(c.transpose(x, {0, 2, 1, 3}), {dims[0], dims[2], dims[1] * dims[3]});
}

ValueId minus_infinity_unless(NodeContext& c, ValueId allowed, DType dtype) {
  return c.op("select", {allowed, c.scalar(dtype, 0), c.scalar(dtype, -kInfinity)});
}

ValueId guarded_softmax(NodeContext& c, ValueId scores) {
  const int64_t axis = c.rank(scores) - 1;
  const ValueId top = c.reduce("max", scores, {axis}, true);
  const ValueId masked = c.op("eq", {top, c.scalar_like(top, -kInfinity)});
  const ValueId safe = c.op("select", {masked, c.scalar_like(top, 0), top});
  const ValueId exps = c.op("exp", {c.sub(scores, safe)});
  const ValueId total = c.reduce("sum", exps, {axis}, true);
  return c.div(exps, c.op("select", {masked, c.scalar_like(top, 1), total}));
}

ValueId rotated(NodeContext& c, ValueId x, ValueId cosine, ValueId sine, bool interleaved) {
  const Shape dims = c.shape(x);
  const auto known = as_int(c.shape(cosine)[3]), last = as_int(dims[3]);
  if (!known || !last) c.unsupported("a number of features that only a run knows");
  const int64_t half = *known, turned = 2 * half;
  const auto features = [&](int64_t start, int64_t count, int64_t step) {
    return c.slice(x, {0, 0, 0, start}, {dims[0], dims[1], dims[2], count}, {1, 1, 1, step});
  };
  const ValueId first = features(0, half, interleaved ? 2 : 1);
  const ValueId second = features(interleaved ? 1 : half, half, interleaved ? 2 : 1);
  const ValueId real = c.sub(c.mul(cosine, first), c.mul(sine, second));
  const ValueId imaginary = c.add(c.mul(sine, first), c.mul(cosine, second));
  ValueId y;
  if (interleaved) {
    const auto single = [&](ValueId part) { return c.reshape(part, {dims[0], dims[1], dims[2], half, 1}); };
    y = c.reshape(c.op("concat", {single(real), single(imaginary)}, {{"axis", int64_t{4}}}),
                  {dims[0], dims[1], dims[2], turned});
  } else {
    y = c.op("concat", {real, imaginary}, {{"axis", int64_t{3}}});
  }
  if (turned < *last) y = c.op("concat", {y, features(turned, *last - turned, 1)}, {{"axis", int64_t{3}}});
  return y;
}

}  // namespace tessera::inline onnx_import
