// cancel_quantisation on random types, scales, zero points and what stands between, beside the graph that it came from.
#include <gtest/gtest.h>

#include <cmath>

#include "graph/printer.h"
#include "graph/verify.h"
#include "graph_passes/quantized/cancel_quantisation.h"
#include "graph_passes/rewrite/dce.h"
#include "graph_passes/support/graph_util.h"
#include "interp/graph_interp.h"
#include "ops/composites/composites.h"
#include "ops/op_table.h"
#include "random_numbers.h"

namespace tessera {
namespace {

using Ints = std::vector<int64_t>;

TEST(CancelQuantisation, GivesTheSameBytes) {
  RandomNumbers random(7);
  const OpTable& ops = standard_ops();
  GraphInterpreter evaluator;
  const Target target = reference_machine();
  for (int round = 0; round < 300; ++round) {
    const DType types[] = {DType::kU8, DType::kI8, DType::kI16};
    const DType type = types[random.pick(0, 2)];
    const int64_t least = type == DType::kU8 ? 0 : type == DType::kI8 ? -128 : -32768;
    const int64_t most = type == DType::kU8 ? 255 : -least - 1;
    Graph before;
    GraphBuilder b(before);
    const auto number = [&](DType dtype, double value) {
      Tensor tensor(dtype, {});
      tensor.set_double(0, value);
      return add_constant(b.graph(), ops, std::move(tensor), "c", "here");
    };
    const Ints dims = {random.pick(1, 2), random.pick(1, 3), random.pick(3, 8), random.pick(3, 8)};
    Shape shape(dims.begin(), dims.end());
    const ValueId q = before.add_input("q", TensorType{type, shape, {}});
    const double scale =
        random.pick(0, 3) == 0 ? std::ldexp(1, static_cast<int>(random.pick(-12, 4))) : std::exp(random.real(-12, 4));
    const double zero = static_cast<double>(random.pick(least, most));
    // One in four is stored otherwise than it was.
    const bool other = random.pick(0, 3) == 0;
    const ValueId s = number(DType::kF32, scale), z = number(type, zero);
    const ValueId t = other ? number(DType::kF32, scale * 1.25) : number(DType::kF32, scale);
    ValueId x = add_composite(b, ops, "dequantize", {q, s, z})[0];
    if (random.pick(0, 1) == 1)
      x = add_composite(b, ops, "max_pool", {x},
                        {{"window", Ints{3, 2}},
                         {"strides", Ints{2, 1}},
                         {"dilations", Ints{1, 1}},
                         {"pads_begin", Ints{1, 1}},
                         {"pads_end", Ints{1, 0}}})[0];
    if (random.pick(0, 1) == 1) x = b.add(ops.get("transpose"), {x}, {{"perm", Ints{0, 2, 3, 1}}});
    if (random.pick(0, 1) == 1) {
      int64_t count = 1;
      for (const Expr& extent : b.graph().type(x).shape) count *= *as_int(extent);
      x = b.add(ops.get("reshape"), {x}, {{"shape", Shape{Expr(count)}}});
    }
    // A graph's output is never its input.
    const bool moved = !is_composite(before.producer(x), "dequantize");
    before.outputs = {add_composite(b, ops, "quantize", {x, t, z}, {{"to", type}})[0]};
    ASSERT_TRUE(verify(before).empty()) << verify(before)[0];
    const PassContext ctx{ops, evaluator, target, 3};
    const Graph after = dce(cancel_quantisation(before, ctx), ctx);
    ASSERT_TRUE(verify(after).empty()) << verify(after)[0];
    EXPECT_EQ(print(after).find("\"quantize\"") == std::string::npos, !other && moved) << print(after);
    Tensor bytes(type, dims);
    for (int64_t i = 0; i < bytes.num_elements(); ++i) bytes.set_int(i, random.pick(least, most));
    const std::vector<Tensor> want = evaluator.evaluate(before, {bytes}), got = evaluator.evaluate(after, {bytes});
    for (int64_t i = 0; i < want[0].num_elements(); ++i)
      ASSERT_EQ(got[0].get_double(i), want[0].get_double(i)) << print(before) << print(after);
  }
}

}  // namespace
}  // namespace tessera
