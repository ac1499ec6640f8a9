#!/usr/bin/env python3
"""Writes the naive loop programs of small operators, one file each, that the tests of schedules work on.

    make_kernels.py TESSERA [FOLDER]

They are what lowering gives before any schedule rule; run it again when lowering changes on purpose."""

import pathlib
import subprocess
import sys
import tempfile

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

FOLDER = pathlib.Path(__file__).resolve().parent / "kernels"
RULES = ["winograd", "register_tile", "window_rows", "row_reduce", "injective", "scalar_loops"]


def constant(name, shape, seed=0):
    values = numpy.random.default_rng(seed).integers(-8, 9, shape).astype(numpy.float32) / 8
    return numpy_helper.from_array(values, name)


def cases():
    node = helper.make_node
    x4 = {"x": [1, 6, 7, 9]}
    yield "matmul", [node("MatMul", ["a", "b"], ["y"])], {"a": [10, 14], "b": [14, 18]}, []
    yield "batch_matmul", [node("MatMul", ["a", "b"], ["y"])], {"a": [3, 5, 6], "b": [3, 6, 8]}, []
    gemm = [node("Gemm", ["a", "w", "c"], ["t"], transB=1), node("Relu", ["t"], ["y"])]
    yield "gemm_relu", gemm, {"a": [6, 12]}, [constant("w", [10, 12]), constant("c", [10], 1)]
    conv = [node("Conv", ["x", "w", "c"], ["t"], pads=[1, 1, 1, 1]), node("Relu", ["t"], ["y"])]
    yield "conv", conv, {"x": [1, 4, 6, 8]}, [constant("w", [6, 4, 3, 3]), constant("c", [6], 1)]
    yield "conv_strided", [node("Conv", ["x", "w"], ["y"], strides=[2, 2])], {"x": [1, 3, 9, 11], "w": [4, 3, 3, 3]}, []
    yield "conv_depthwise", [node("Conv", ["x", "w"], ["y"], group=6, pads=[1, 1, 1, 1])], {**x4, "w": [6, 1, 3, 3]}, []
    yield "conv_transpose", [node("ConvTranspose", ["x", "w"], ["y"], strides=[2, 2])], {"x": [1, 3, 4, 5], "w": [3, 2, 2, 2]}, []
    yield "max_pool", [node("MaxPool", ["x"], ["y"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])], x4, []
    yield "average_pool", [node("AveragePool", ["x"], ["y"], kernel_shape=[2, 2])], x4, []
    yield "softmax", [node("Softmax", ["x"], ["y"], axis=-1)], {"x": [6, 20]}, []
    norm = [node("LayerNormalization", ["x", "s", "b"], ["y"], axis=-1)]
    yield "layer_norm", norm, {"x": [5, 12]}, [constant("s", [12]), constant("b", [12], 1)]
    yield "reduce_sum", [node("ReduceSum", ["x"], ["y"], keepdims=0)], {"x": [4, 5, 6]}, []
    yield "reduce_mean", [node("ReduceMean", ["x"], ["y"], axes=[1], keepdims=1)], {"x": [4, 10, 6]}, []
    yield "reduce_max", [node("ReduceMax", ["x"], ["y"], axes=[0, 2], keepdims=1)], {"x": [4, 5, 6]}, []
    yield "transpose", [node("Transpose", ["x"], ["y"], perm=[2, 0, 1])], {"x": [5, 6, 7]}, []
    yield "concat", [node("Concat", ["x", "z"], ["y"], axis=1)], {"x": [4, 5], "z": [4, 7]}, []
    yield "pad", [node("Pad", ["x", "p"], ["y"])], {"x": [5, 7]}, [numpy_helper.from_array(numpy.array([1, 2, 2, 0]), "p")]
    gelu = [node("Erf", ["x"], ["e"]), node("Mul", ["x", "e"], ["m"]), node("Add", ["m", "x"], ["y"])]
    yield "gelu", gelu, {"x": [4, 18]}, []
    yield "sigmoid", [node("Sigmoid", ["x"], ["y"])], {"x": [37]}, []
    yield "add_broadcast", [node("Add", ["x", "z"], ["y"])], {"x": [6, 1, 9], "z": [4, 1]}, []
    yield "cumsum", [node("CumSum", ["x", "a"], ["y"])], {"x": [4, 9]}, [numpy_helper.from_array(numpy.array(1), "a")]
    yield "resize", [node("Resize", ["x", "", "sc"], ["y"], mode="nearest")], {"x": [1, 2, 4, 5]}, [
        numpy_helper.from_array(numpy.array([1, 1, 2, 2], numpy.float32), "sc")]


def main():
    tessera = sys.argv[1]
    folder = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else FOLDER
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        for name, nodes, inputs, constants in cases():
            value = lambda n, s: helper.make_tensor_value_info(n, TensorProto.FLOAT, s)
            graph = helper.make_graph(nodes, name, [value(n, s) for n, s in inputs.items()], [value("y", None)], constants)
            model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17 if name != "reduce_mean" else 13)], ir_version=8)
            path = pathlib.Path(work) / f"{name}.onnx"
            onnx.save(model, path)
            flags = [flag for rule in RULES for flag in ("--disable-pass", rule)]
            command = [tessera, "compile", str(path), "--emit", "program", "-O1", "--target", "x86-64-v3", *flags]
            text = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout
            kernels = []
            for part in text.split("\n  kernel @")[1:]:
                body = part.split("\n  }\n")[0]
                kernels.append("kernel @" + "\n".join(line[2:] if line.startswith("  ") else line for line in body.split("\n")) + "\n}\n")
            (folder / f"{name}.loop").write_text("\n".join(kernels))


if __name__ == "__main__":
    main()
