#!/usr/bin/env python3
"""Operators of random shapes on OpenCL, many in one model: odd, tiny and large sizes, held against ONNX Runtime.

    opencl_operators.py TESSERA [--seeds N]

One seed with the date; skipped where OpenCL has no device.
"""
import os
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import model_runs as runs


# Macros, types and functions of the language, which models may have as names of values.
AWKWARD = ["M_E", "FLT_MAX", "get_local_id", "image3d_t", "CLK_LOCAL_MEM_FENCE", "float4", "half", "barrier", "NAN", "min"]


class Zoo:
    """A model of independent nodes, or a few that belong together, which have inputs of their own and are outputs."""

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)
        self.nodes, self.inputs, self.outputs, self.weights, self.feeds, self.count = [], [], [], [], {}, 0

    def size(self, low, high):
        return int(self.random.integers(low, high + 1))

    def operand(self, *shape, dtype=np.float32, weight=False):
        number = len(self.feeds) + len(self.weights)
        name = AWKWARD[number] if number < len(AWKWARD) else f"x{number}"
        values = self.random.standard_normal(shape) if np.dtype(dtype).kind == "f" else self.random.integers(-50, 50, shape)
        values = np.asarray(values, dtype)
        if weight:
            self.weights.append(numpy_helper.from_array(values, name))
        else:
            self.inputs.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(values.dtype), shape))
            self.feeds[name] = values
        return name

    def indices(self, below, *shape):
        name = self.operand(*shape, dtype=np.int64)
        self.feeds[name] = self.random.integers(0, below, shape)
        return name

    def add(self, kind, *operands, outputs=1, **attributes):
        names = [f"y{self.count}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, operands, names, name=f"{kind}_{self.count}", **attributes))
        self.outputs += [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in names]
        self.count += 1
        return names[0]

    def inner(self, kind, *operands, **attributes):
        """A node whose result other nodes read; its name."""
        name = self.add(kind, *operands, **attributes)
        self.outputs.pop()
        return name

    def attention(self, queries, keys, depth, out, mask="none", batch=2, heads=3):
        """The mask is "none", "rows" (an input), "heads" (an input of columns) or "causal" (a constant)."""
        scores = self.inner("MatMul", self.operand(batch, heads, queries, depth), self.operand(batch, heads, depth, keys))
        scores = self.inner("Mul", scores, self.constant(np.array(0.3, np.float32)))
        if mask == "rows":
            scores = self.inner("Add", scores, self.operand(queries, keys))
        elif mask == "heads":
            scores = self.inner("Add", scores, self.operand(batch, 1, 1, keys))
        elif mask == "causal":
            hidden = np.arange(keys) > np.arange(queries)[:, None] + max(keys - queries, 0)
            scores = self.inner("Add", scores, self.constant(np.where(hidden, -np.inf, 0).astype(np.float32)))
        self.add("MatMul", self.inner("Softmax", scores, axis=-1), self.operand(batch, heads, keys, out))

    def names(self):
        """The nodes that give the outputs."""
        return [next(node.name for node in self.nodes if output.name in node.output) for output in self.outputs]

    def constant(self, values):
        self.weights.append(numpy_helper.from_array(values, f"constant{len(self.weights)}"))
        return self.weights[-1].name

    def model(self):
        graph = helper.make_graph(self.nodes, "zoo", self.inputs, [onnx.ValueInfoProto(name=o.name) for o in self.outputs],
                                  self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        return onnx.shape_inference.infer_shapes(model)


def zoo(seed):
    z = Zoo(seed)
    size = z.size
    # Products: sides around those of tiles, sums that end within a piece.
    for _ in range(3):
        m, n, k = size(1, 140), size(1, 140), size(1, 70)
        z.add("MatMul", z.operand(m, k), z.operand(k, n, weight=bool(size(0, 1))))
    b, m, n, k = size(2, 5), size(8, 40), size(8, 40), size(1, 40)
    z.add("MatMul", z.operand(b, m, k), z.operand(b, k, n))
    z.add("Gemm", z.operand(size(1, 30) * 2, 64), z.operand(33, 64, weight=True), z.operand(33, weight=True), transB=1)
    z.add("MatMul", z.operand(9, 17, dtype=np.float64), z.operand(17, 12, dtype=np.float64))
    z.add("MatMulInteger", z.operand(20, 31, dtype=np.uint8), z.operand(31, 18, dtype=np.int8))
    # Convolutions: windows, strides, dilations, padding, groups.
    for _ in range(4):
        groups = [1, 1, 2, 0][size(0, 3)]
        channels, outs = size(1, 9) * 2, size(1, 20) * 2
        groups = groups or channels
        outs = channels * size(1, 2) if groups == channels else outs
        window, stride, dilation = size(1, 4), size(1, 3), size(1, 2)
        extent = (window - 1) * dilation + size(1, 20)
        pads = [size(0, window - 1) for _ in range(4)]
        z.add("Conv", z.operand(size(1, 3), channels, extent, extent + size(0, 7)),
              z.operand(outs, channels // groups, window, window, weight=True), z.operand(outs, weight=True),
              group=groups, strides=[stride, size(1, 2)], dilations=[dilation, dilation], pads=pads)
    z.add("ConvTranspose", z.operand(1, 6, size(2, 9), size(2, 9)), z.operand(6, 5, 3, 3, weight=True), strides=[2, 2])
    # Reductions: few and many outputs, short and long.
    for kind in ("ReduceMean", "ReduceMax", "ReduceL2", "ReduceLogSumExp"):
        rows, columns = size(1, 40), size(1, 3000)
        z.add(kind, z.operand(rows, columns), axes=[size(0, 1)], keepdims=size(0, 1))
    z.add("ReduceSum", z.operand(3, size(1, 500), 7, dtype=np.int32))
    z.add("ReduceProd", z.operand(2, 5, 3), axes=[1])
    z.add("Softmax", z.operand(size(1, 9), size(1, 500)), axis=-1)
    z.add("LayerNormalization", z.operand(4, 3, size(2, 300)), z.operand(1, weight=True))
    z.add("ArgMax", z.operand(size(1, 5), size(1, 90)), axis=1)
    z.add("MaxPool", z.operand(1, 3, size(5, 30), size(5, 30)), kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    z.add("AveragePool", z.operand(1, 3, size(5, 30), size(5, 30)), kernel_shape=[2, 3], count_include_pad=size(0, 1))
    for mask in ("none", "rows", "heads", "causal"):
        z.attention(size(2, 90), size(2, 90), size(1, 70), size(1, 70), mask)
    # Element by element, and moves.
    shape = [size(1, 9) for _ in range(size(1, 4))]
    for kind in ("Exp", "Tanh", "Erf", "Sin", "Floor", "Round", "Sign", "Sigmoid", "HardSwish", "Elu", "Softplus"):
        z.add(kind, z.operand(*shape))
    z.add("Add", z.operand(size(1, 70000)), z.operand(1))
    for kind in ("Mul", "Div", "Max", "Pow"):
        z.add(kind, z.operand(5, 1, size(1, 40)), z.operand(7, 1))
    z.add("Div", z.operand(50, dtype=np.int32), z.operand(50, dtype=np.int32))
    z.feeds[z.nodes[-1].input[1]][z.feeds[z.nodes[-1].input[1]] == 0] = 3
    z.add("Mod", z.operand(60, dtype=np.int64), z.operand(60, dtype=np.int64))
    z.feeds[z.nodes[-1].input[1]][z.feeds[z.nodes[-1].input[1]] == 0] = -3
    z.add("Greater", z.operand(31), z.operand(31))
    z.add("Cast", z.operand(64), to=TensorProto.INT8)
    z.add("Cast", z.operand(64), to=TensorProto.FLOAT16)
    z.add("Abs", z.operand(33, dtype=np.float16))
    z.add("Transpose", z.operand(size(1, 20), size(1, 20), 3), perm=[2, 0, 1])
    z.add("Gather", z.operand(12, size(1, 20)), z.indices(12, 5, 2), axis=0)
    z.add("Concat", z.operand(2, size(1, 9)), z.operand(2, size(1, 9)), axis=1)
    z.add("Resize", z.operand(1, 2, size(2, 9), size(2, 9)), "", z.constant(np.array([1, 1, 2, 1.5], np.float32)), mode="linear")
    # What stays on the CPU.
    z.add("CumSum", z.operand(4, size(1, 20)), z.constant(np.array(1, np.int64)))
    return z


def main():
    binary = os.path.abspath(sys.argv[1])
    seeds = int(sys.argv[sys.argv.index("--seeds") + 1]) if "--seeds" in sys.argv else 1
    failed = 0
    for seed in range(runs.today() * 100, runs.today() * 100 + seeds):
        with tempfile.TemporaryDirectory() as work:
            z = zoo(seed)
            path = f"{work}/zoo.onnx"
            model = z.model()
            onnx.save(model, path)
            want = runs.onnx_runtime(path, z.feeds)
            got = runs.run([binary, "run", path, "--target", "opencl"], z.feeds, len(want), work)
            if isinstance(got, str) and "TSR-7019" in got:
                print(f"SKIPPED: {got}")
                return 77
            if isinstance(got, str):
                print(f"FAIL seed {seed}: {got}")
                failed += 1
                continue
            for node, g, w in zip(z.names(), got, want, strict=True):
                error = runs.difference(g, w)
                if isinstance(error, str):
                    failed += 1
                    print(f"FAIL seed {seed}, {node}: {error}")
            print(f"seed {seed}: {len(want)} outputs")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
