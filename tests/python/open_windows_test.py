#!/usr/bin/env python3
"""Random convolutions and poolings, one or two behind one another, over pictures of open batch, height and width: one module
for the range, beside ONNX Runtime at sizes of every remainder by the stride. Both ways to compile a range are tried: graphs
with symbols, and programs fitted from samples.

    open_windows_test.py [FIRST..LAST]      seeds; default 0..5"""
import random
import sys

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import tessera

RANGES = {"batch": (1, 8), "h": (40, 200), "w": (40, 200)}
SMALL = {"batch": (1, 4), "h": (5, 40), "w": (5, 40)}  # of windows without strides: smaller than a window of the schedule


def make_model(seed):
    pick, numbers = random.Random(seed), np.random.default_rng(seed)
    nodes, weights, text = [], [], []
    # Wide ones are in blocks of channels, and those without strides by minimal filtering.
    wide = seed % 3 == 2
    value, channels = "x", pick.choice([32, 48] if wide else [1, 3, 8])
    start, strides = channels, 0
    for layer in range(pick.choice([1, 1, 2])):
        kernel = pick.choice([1, 3, 3, 5] if wide else [1, 2, 3, 3, 5])
        stride = pick.choice([1, 1, 1, 2] if wide else [1, 2, 3, 4, 5])
        pads = [pick.randrange(0, (kernel + 1) // 2) for _ in range(4)]
        common = dict(kernel_shape=[kernel] * 2, strides=[stride, stride if wide else pick.choice([stride, 1, 2])], pads=pads)
        strides = max(strides, *common["strides"])
        result = f"y{layer}"
        if pick.random() < 0.75:
            out = pick.choice([32, 40, 64] if wide else [1, 8, 16, 20])
            weights.append(numpy_helper.from_array(
                numbers.standard_normal((out, channels, kernel, kernel)).astype(np.float32), f"w{layer}"))
            nodes.append(helper.make_node("Conv", [value, f"w{layer}"], [result], **common))
            channels = out
        else:
            nodes.append(helper.make_node("MaxPool", [value], [result], **common))
        text.append(f"{nodes[-1].op_type} {common} of {channels}")
        value = result
    shape = ["batch", start, "h", "w"]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(value, TensorProto.FLOAT, None)], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    small = strides == 1 and len(text) == 1
    return model, start, "; ".join(text), SMALL if small else RANGES


def check(seed):
    model, channels, text, ranges = make_model(seed)
    model_bytes = model.SerializeToString()
    reference = onnxruntime.InferenceSession(model_bytes, providers=["CPUExecutionProvider"])
    numbers = np.random.default_rng(seed)
    problems = []
    for disabled in [(), ("symbolic_sizes",)]:
        try:
            module = tessera.compile(model_bytes, threads=1, dims=ranges, disable_passes=disabled)
        except tessera.Error as error:
            if disabled and error.id in ("TSR-5022", "TSR-5024"):
                continue  # samples may have no common program
            return f"seed {seed} ({text}): {error}"
        first, last = (tuple(bounds[end] for bounds in ranges.values()) for end in (0, 1))
        low = first[1] if ranges is SMALL else 96
        sizes = [first, last] + [(1 + i % 3, low + i, low + 5 + 7 * i % 31) for i in range(12)]
        if ranges is SMALL:
            sizes += [(1, 5 + i, 6 + i % 3) for i in range(6)] + [(2, 6, 5 + i) for i in range(6)]
        for batch, height, width in sizes:
            x = numbers.standard_normal((batch, channels, height, width)).astype(np.float32)
            (want,), (got,) = reference.run(None, {"x": x}), module.run([x])
            if want.shape != got.shape:
                problems.append(f"{batch}x{height}x{width}: {got.shape} instead of {want.shape}")
            elif not np.abs(got - want).max() <= 1e-4 * np.abs(want).max():
                problems.append(f"{batch}x{height}x{width}: off by {np.abs(got - want).max():.2e}")
        if problems:
            return f"seed {seed} ({text}){' fitted from samples' if disabled else ''}: {problems[0]}, {len(problems)} of {len(sizes)} sizes"
    return ""


def check_falling():
    """An extent that falls as its symbol grows: x[8:-10:-1] twice over has 36 - 2 s elements."""
    ends = [numpy_helper.from_array(np.array([v], np.int64), n) for n, v in (("start", 8), ("end", -10), ("axis", 0), ("step", -1))]
    nodes = [helper.make_node("Slice", ["x", "start", "end", "axis", "step"], ["v"]), helper.make_node("Concat", ["v", "v"], ["y"], axis=0)]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["s"])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], ends)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    reference = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    module = tessera.compile(model, dims={"s": (9, 16)})
    for size in range(9, 17):
        x = np.arange(1, size + 1, dtype=np.float32)
        (want,), (got,) = reference.run(None, {"x": x}), module.run([x])
        if not np.array_equal(got, want):
            return f"falling extent: {got} instead of {want} at {size}"
    return ""


def main():
    first, _, last = (sys.argv[1] if len(sys.argv) > 1 else "0..5").partition("..")
    problems = [p for p in [check_falling(), *map(check, range(int(first), int(last) + 1))] if p]
    print("\n".join(problems) or f"{int(last) - int(first) + 1} models agree")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
