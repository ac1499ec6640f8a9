#!/usr/bin/env python3
"""Random attention, layer norm, softmax, products and running sums over open batch and lengths: one module for the range,
beside ONNX Runtime at the ends of the range, around the sizes of tiles, and at random sizes.

    open_rows_test.py [FIRST..LAST]      seeds; default 0..7"""
import random
import sys

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import tessera

RANGES = {"batch": (1, 5), "n": (1, 200), "m": (1, 200)}
# Beside the tiles of rows (32, 24, 8, 4, 2) and of columns (64, 16).
SIZES = [(1, 1, 1), (5, 200, 200), (1, 7, 16), (2, 8, 15), (1, 9, 17), (3, 24, 64), (1, 25, 65), (2, 31, 63), (1, 33, 80), (3, 77, 79),
         (1, 128, 128), (2, 3, 130), (1, 1, 199), (4, 5, 2)]


class Builder:
    def __init__(self, seed):
        self.pick, self.numbers = random.Random(seed), np.random.default_rng(seed)
        self.nodes, self.weights, self.count = [], [], 0

    def node(self, op, inputs, **attributes):
        self.count += 1
        self.nodes.append(helper.make_node(op, inputs, [f"v{self.count}"], **attributes))
        return f"v{self.count}"

    def constant(self, array):
        self.count += 1
        self.weights.append(numpy_helper.from_array(array, f"c{self.count}"))
        return f"c{self.count}"

    def weight(self, *shape):
        return self.constant((self.numbers.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32))

    def ints(self, *values):
        return self.constant(np.array(values, np.int64))

    def linear(self, x, rows, columns):
        return self.node("Add", [self.node("MatMul", [x, self.weight(rows, columns)]), self.weight(columns)])

    def attention(self, x, y, width, masked):
        """Rows of x look at rows of y."""
        heads = self.pick.choice([1, 2, 3])
        depth = self.pick.choice([4, 8, 20, 64])
        parts = []
        for source, perm in ((x, [0, 2, 1, 3]), (y, [0, 2, 3, 1]), (y, [0, 2, 1, 3])):
            part = self.linear(source, width, heads * depth)
            parts.append(self.node("Transpose", [self.node("Reshape", [part, self.ints(0, 0, heads, depth)])], perm=perm))
        scores = self.node("Mul", [self.node("MatMul", parts[:2]), self.constant(np.float32(0.3))])
        if masked:
            scores = self.node("Add", [scores, "mask"])
        weights = self.node("Softmax", [scores], axis=-1)
        found = self.node("Transpose", [self.node("MatMul", [weights, parts[2]])], perm=[0, 2, 1, 3])
        return self.linear(self.node("Reshape", [found, self.ints(0, 0, heads * depth)]), heads * depth, width)

    def layer(self, x, y, width):
        kind = self.pick.choice(["attention", "attention", "norm", "inner", "wide", "softmax", "running", "column sums", "scores"])
        if kind == "attention":
            masked = self.pick.random() < 0.5
            return self.node("Add", [x, self.attention(x, y if masked else self.pick.choice([x, y]), width, masked)])
        if kind == "norm":
            return self.node("LayerNormalization", [x, self.weight(width), self.weight(width)], axis=-1)
        if kind == "inner":
            inner = self.pick.choice([7, 48, 130])
            return self.node("Add", [x, self.linear(self.node("Relu", [self.linear(x, width, inner)]), inner, width)])
        if kind == "wide":  # weights that all tiles of rows go over together
            inner, outer = self.pick.choice([(500, 600), (384, 768)])
            rows = self.node("Relu", [self.linear(self.linear(x, width, inner), inner, outer)])
            return self.node("Add", [x, self.linear(rows, outer, width)])
        if kind == "softmax":
            return self.node("Softmax", [x], axis=self.pick.choice([1, 2]))
        if kind == "running":
            return self.node("Tanh", [self.node("CumSum", [x, self.ints(self.pick.choice([0, 1, 2]))],
                                                reverse=self.pick.randrange(2))])
        if kind == "scores":  # a running sum whose lines lie side by side along an open axis
            scores = self.node("MatMul", [x, self.node("Transpose", [y], perm=[0, 2, 1])])
            sums = self.node("CumSum", [self.node("Tanh", [scores]), self.ints(self.pick.choice([0, 1]))])
            return self.node("Add", [x, self.node("Tanh", [self.node("MatMul", [sums, y])])])
        return self.node("Sub", [x, self.node("ReduceMean", [x], axes=[1], keepdims=1)])

    def used(self):
        return {name for node in self.nodes for name in node.input}


def make_model(seed):
    build = Builder(seed)
    width = build.pick.choice([4, 16, 24, 33])
    x = "x"
    for _ in range(build.pick.choice([1, 2, 3, 4])):
        x = build.layer(x, "y", width)
    build.nodes.append(helper.make_node("Add", [x, "x"], ["out"]))
    inputs = {"x": ["batch", "n", width], "y": ["batch", "m", width], "mask": ["batch", 1, 1, "m"]}
    used = build.used()
    graph = helper.make_graph(
        build.nodes, "g", [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()
                           if name in used],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, None)], build.weights)
    shapes = {name: shape for name, shape in inputs.items() if name in used}
    text = " ".join(node.op_type for node in build.nodes)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), shapes, text


def check(seed):
    model, shapes, text = make_model(seed)
    model_bytes = model.SerializeToString()
    reference = onnxruntime.InferenceSession(model_bytes, providers=["CPUExecutionProvider"])
    numbers = np.random.default_rng(seed)
    open_in = {name for shape in shapes.values() for name in shape if isinstance(name, str)}
    threads = 1 + seed % 2
    try:
        module = tessera.compile(model_bytes, threads=threads, dims={n: r for n, r in RANGES.items() if n in open_in})
    except tessera.Error as error:
        return f"seed {seed} ({text}): {error}"
    sizes = SIZES + [tuple(int(numbers.integers(lo, hi + 1)) for lo, hi in RANGES.values()) for _ in range(8)]
    for batch, n, m in sizes:
        at = {"batch": batch, "n": n, "m": m}
        feeds = {name: numbers.standard_normal([at.get(d, d) for d in shape]).astype(np.float32)
                 for name, shape in shapes.items()}
        want = reference.run(None, feeds)[0]
        found = module.run(feeds)[0]
        if want.shape != found.shape or not np.allclose(want, found, rtol=1e-3, atol=1e-3 * max(1, np.abs(want).max())):
            by = np.abs(want - found).max() if want.shape == found.shape else f"shape {found.shape}"
            return f"seed {seed} ({text}): differs at {at}, by {by}"
    return None


def main():
    first, last = map(int, (sys.argv[1] if len(sys.argv) > 1 else "0..7").split(".."))
    problems = [problem for problem in map(check, range(first, last + 1)) if problem]
    print("\n".join(problems) or f"{last - first + 1} models agree")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
