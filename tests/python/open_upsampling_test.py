#!/usr/bin/env python3
"""Random decoders over pictures of open batch, height and width: transposed convolutions, resizes by a factor or to the size of
another picture, pixels shuffled out of channels, concatenations, and heads of few channels. One module for the range, beside
ONNX Runtime at the ends of the range and at sizes of every remainder by the strides.

    open_upsampling_test.py [FIRST..LAST]      seeds; default 0..7"""
import random
import sys

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper, parser

import tessera

RANGES = {"batch": (1, 4), "h": (2, 60), "w": (2, 60)}
SIZES = [(1, 2, 2), (4, 60, 60), (1, 3, 2), (2, 2, 5), (1, 4, 7), (1, 5, 6), (2, 9, 8), (1, 16, 17), (3, 33, 31), (1, 60, 2), (2, 3, 59)]


class Builder:
    def __init__(self, seed):
        self.pick, self.numbers = random.Random(seed), np.random.default_rng(seed)
        self.nodes, self.weights, self.count, self.text = [], [], 0, []

    def node(self, op, inputs, **attributes):
        self.count += 1
        self.nodes.append(helper.make_node(op, inputs, [f"v{self.count}"], **attributes))
        return f"v{self.count}"

    def constant(self, array):
        self.count += 1
        self.weights.append(numpy_helper.from_array(array, f"c{self.count}"))
        return f"c{self.count}"

    def weight(self, *shape):
        fan = np.prod(shape[1:])
        return self.constant((self.numbers.standard_normal(shape) / np.sqrt(fan)).astype(np.float32))

    def conv(self, x, channels, out, kernel=3, stride=1):
        pad = kernel // 2
        y = self.node("Conv", [x, self.weight(out, channels, kernel, kernel), self.weight(out)], kernel_shape=[kernel] * 2,
                      strides=[stride] * 2, pads=[pad] * 4)
        return self.node("Relu", [y])

    def transposed(self, x, channels, out):
        """Of the strides and pads that people use, and others."""
        strides = [self.pick.choice([1, 2, 2, 2, 3, 4]) for _ in range(2)]
        if self.pick.random() < 0.6:
            strides = [strides[0]] * 2
        kernel, pads, more = [], [], []
        for stride in strides:
            kernel.append(stride + self.pick.choice([0, 0, 1, 2, stride]))
            pads.append(self.pick.randrange(0, (kernel[-1] + 1) // 2))
            more.append(self.pick.choice([0, 0, stride - 1]))
        group = self.pick.choice([1, 1, 1, 2]) if channels % 2 == 0 and out % 2 == 0 else 1
        self.text.append(f"transposed {channels}->{out} kernel {kernel} strides {strides} pads {pads} + {more} group {group}")
        y = self.node("ConvTranspose", [x, self.weight(channels, out // group, *kernel), self.weight(out)], kernel_shape=kernel,
                      strides=strides, pads=pads * 2, output_padding=more, group=group)
        return self.node("Tanh", [y])

    def resize(self, x, like, channels):
        """To the height and width of another picture."""
        mode = self.pick.choice(["linear", "linear", "nearest", "cubic"])
        coordinate = self.pick.choice(["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"])
        self.text.append(f"resize {mode} {coordinate} of {channels}")
        leading = self.node("Slice", [self.node("Shape", [x]), self.ints(0), self.ints(2), self.ints(0)])
        places = self.node("Slice", [self.node("Shape", [like]), self.ints(2), self.ints(4), self.ints(0)])
        size = self.node("Concat", [leading, places], axis=0)
        return self.node("Resize", [x, "", "", size], mode=mode, coordinate_transformation_mode=coordinate, nearest_mode="floor")

    def ints(self, *values):
        return self.constant(np.array(values, np.int64))

    def scaled(self, x):
        mode = self.pick.choice(["linear", "nearest"])
        factors = self.constant(np.array([1, 1, self.pick.choice([1, 2, 2, 3]), 2], np.float32))
        self.text.append(f"scaled {mode}")
        return self.node("Resize", [x, "", factors], mode=mode, coordinate_transformation_mode="asymmetric", nearest_mode="floor")


def make_model(seed):
    b = Builder(seed)
    channels = b.pick.choice([1, 3, 8, 16])
    shape, x, width = ["batch", channels, "h", "w"], "x", b.pick.choice([8, 16, 24, 40])
    full = b.conv(x, channels, width)
    # Pictures made smaller that come back to the size of `full`.
    parts, sum_of = [full], width
    for _ in range(b.pick.choice([1, 2, 3])):
        kernel = b.pick.choice([2, 4])
        out = b.pick.choice([4, 8, 12, 16])
        low = b.node("AveragePool", [full], kernel_shape=[kernel] * 2, strides=[kernel] * 2, ceil_mode=1)
        if b.pick.random() < 0.4:
            low = b.node("GlobalAveragePool", [full])
        parts.append(b.resize(b.conv(low, width, out, 1), full, out))
        sum_of += out
    y, channels = b.node("Concat", parts, axis=1), sum_of
    for _ in range(b.pick.choice([1, 1, 2])):
        kind = b.pick.choice(["transposed", "transposed", "shuffle", "scaled"])
        if kind == "transposed":
            out = b.pick.choice([2, 3, 16, 24])
            y, channels = b.transposed(y, channels, out), out
        elif kind == "shuffle":
            out = b.pick.choice([1, 3, 8])
            b.text.append(f"shuffle {channels}->{out}")
            y = b.node("DepthToSpace", [b.conv(y, channels, out * 4)], blocksize=2, mode="CRD")
            channels = out
        else:
            y = b.scaled(y)
    out = b.pick.choice([1, 2, 5, 16])
    b.text.append(f"head {channels}->{out}")
    y = b.conv(y, channels, out, b.pick.choice([1, 3, 5]))
    graph = helper.make_graph(b.nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
                              [helper.make_tensor_value_info(y, TensorProto.FLOAT, None)], b.weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9), shape, "; ".join(b.text)


def check(seed):
    model, shape, text = make_model(seed)
    model_bytes = model.SerializeToString()
    reference = onnxruntime.InferenceSession(model_bytes, providers=["CPUExecutionProvider"])
    numbers = np.random.default_rng(seed)
    try:
        module = tessera.compile(model_bytes, threads=1 + seed % 2, dims=RANGES)
    except tessera.Error as error:
        return f"seed {seed} ({text}): {error}"
    sizes = SIZES + [tuple(int(numbers.integers(lo, hi + 1)) for lo, hi in RANGES.values()) for _ in range(4)]
    for batch, height, width in sizes:
        at = {"batch": batch, "h": height, "w": width}
        x = numbers.standard_normal([at.get(d, d) for d in shape]).astype(np.float32)
        (want,), (got,) = reference.run(None, {"x": x}), module.run([x])
        if want.shape != got.shape:
            return f"seed {seed} ({text}): {got.shape} instead of {want.shape} at {at}"
        if want.size and not np.abs(got - want).max() <= 1e-4 * np.abs(want).max():
            return f"seed {seed} ({text}): off by {np.abs(got - want).max():.2e} of {np.abs(want).max():.2e} at {at}"
    return ""


# A U-Net of few channels: what comes up is padded to the size of what it is joined with.
UNET = """<ir_version: 9, opset_import: ["" : 19]>
unet (float[1,4,h,w] x, float[4,4,2,2] t, float[3,8,3,3] k) => (y) {
  size = Shape<start = 2>(x)
  low = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(x)
  up = ConvTranspose<kernel_shape = [2, 2], strides = [2, 2]>(low, t)
  size_up = Shape<start = 2>(up)
  rest = Sub(size, size_up)
  none = Constant<value_ints = [0, 0, 0, 0, 0, 0]>()
  pads = Concat<axis = 0>(none, rest)
  padded = Pad(up, pads)
  both = Concat<axis = 1>(x, padded)
  y = Conv<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(both, k)
}"""


def check_unet(least):
    """A picture of one row has no meaning here: a range that begins there is a flow, whose steps fit all the other sizes."""
    model = parser.parse_model(UNET)
    numbers = np.random.default_rng(least)
    weights = {i.name: [d.dim_value for d in i.type.tensor_type.shape.dim] for i in model.graph.input[1:]}
    for name, shape in weights.items():
        model.graph.initializer.append(numpy_helper.from_array(numbers.standard_normal(shape).astype(np.float32), name))
    del model.graph.input[1:]
    model_bytes = model.SerializeToString()
    reference = onnxruntime.InferenceSession(model_bytes, providers=["CPUExecutionProvider"])
    module = tessera.compile(model_bytes, dims={"h": (least, 50), "w": (least, 50)})
    for height, width in [(2, 2), (3, 2), (2, 7), (16, 16), (17, 33), (50, 49), (50, 50)]:
        x = numbers.standard_normal((1, 4, height, width)).astype(np.float32)
        (want,), (got,) = reference.run(None, {"x": x}), module.run([x])
        if want.shape != got.shape or not np.abs(got - want).max() <= 1e-4 * np.abs(want).max():
            return f"U-Net from {least} on: wrong for {height} x {width}"
    return ""


def main():
    first, _, last = (sys.argv[1] if len(sys.argv) > 1 else "0..7").partition("..")
    problems = [p for p in [*map(check, range(int(first), int(last) + 1)), *map(check_unet, (1, 2))] if p]
    print("\n".join(problems) or f"{int(last) - int(first) + 1} models agree")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
