#!/usr/bin/env python3
"""TFLite files that are damaged, hostile or more than is read: each is refused with an error that says where, at once and
without a crash.

    tflite_bad_models_test.py TESSERA"""

import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np

from tflite_support import Builder

# One second of a loaded machine, most of which is starting the program.
SECONDS = 2.0


def convolution():
    builder = Builder()
    x = builder.input([1, 4, 4, 2], "uint8", scale=0.1, zero=3, name="image")
    w = builder.tensor([3, 2, 2, 2], "uint8", scale=0.05, zero=7, data=np.arange(24), name="weights")
    b = builder.tensor([3], "int32", scale=0.005, data=[1, 2, 3], name="bias")
    y = builder.output([1, 3, 3, 3], "uint8", scale=0.2, zero=0, name="scores")
    builder.operator("CONV_2D", [x, w, b], [y], "Conv2DOptions", 3, padding=1, strideW=1, strideH=1)
    return builder


def changed(change):
    builder = convolution()
    change(builder)
    return builder.bytes()


def tensor(builder, name):
    return next(t for t in builder.tensors if t.name == name)


def set_field(name, field, value):
    def change(builder):
        setattr(tensor(builder, name), field, value)
    return lambda: changed(change)


def set_quantization(name, field, value):
    def change(builder):
        setattr(tensor(builder, name).quantization, field, value)
    return lambda: changed(change)


def set_option(field, value):
    def change(builder):
        setattr(builder.operators[0].builtinOptions, field, value)
    return lambda: changed(change)


def set_operator(field, value):
    def change(builder):
        setattr(builder.operators[0], field, value)
    return lambda: changed(change)


def unsupported():
    builder = Builder()
    x = builder.input([2], name="x")
    for i, kind in enumerate(["LSH_PROJECTION", "SKIP_GRAM", "LSH_PROJECTION"]):
        builder.operator(kind, [x], [builder.output([2], name=f"y{i}")])
    return builder.bytes()


def reversed_operators():
    builder = Builder()
    x = builder.input([2], name="x")
    middle, y = builder.tensor([2], name="middle"), builder.output([2], name="y")
    builder.operator("NEG", [middle], [y])
    builder.operator("NEG", [x], [middle])
    return builder.bytes()


def made_twice():
    builder = Builder()
    x, y = builder.input([2], name="x"), builder.output([2], name="y")
    builder.operator("NEG", [x], [y])
    builder.operator("ABS", [x], [y])
    return builder.bytes()


def shape_of(dims):
    builder = Builder()
    x = builder.input([4], name="x")
    builder.operator("RESHAPE", [x, builder.ints(dims)], [builder.output([4], name="y")], "ReshapeOptions")
    return builder.bytes()


def one(kind, lists, options=None, shape=(2, 3), **fields):
    builder = Builder()
    x = builder.input(shape, name="x")
    builder.operator(kind, [x, *(builder.ints(values) for values in lists)], [builder.output(shape, name="y")], options,
                     **fields)
    return builder.bytes()


CASES = [
    (lambda: b"\x1c\0\0\0TFL3", "TSR-1101", "is no TFLite model, or a damaged one: its tables do not fit its 8 bytes"),
    (lambda: b"\xff\xff\xff\x7fTFL3" + bytes(100), "TSR-1101", "its tables do not fit its 108 bytes"),
    (set_operator("opcodeIndex", 9), "TSR-1102", "operator 0 of the graph 'main' is of kind 9"),
    (set_operator("inputs", [0, 1, 77]), "TSR-1102", "operator 0 of the graph 'main' (CONV_2D) has a tensor"),
    (set_operator("inputs", [0, 1, -7]), "TSR-1102", "operator 0 of the graph 'main' (CONV_2D) has a tensor"),
    (lambda: changed(lambda b: b.outputs.append(1000)), "TSR-1102", "the inputs or outputs of the graph 'main'"),
    (set_field("weights", "buffer", 50), "TSR-1102", "tensor 'weights' has buffer 50"),
    (set_field("weights", "shape", [3, 2, 2, -5]), "TSR-1103", "tensor 'weights' has the shape [3,2,2,-5]"),
    (set_field("weights", "shape", [1 << 30] * 4), "TSR-1103", "tensor 'weights' has the shape [1073741824,"),
    (set_field("weights", "shape", [1 << 15, 1 << 15, 2, 2]), "TSR-1030", "tensor 'weights', u8[32768,32768,2,2], has 24 bytes"),
    (set_field("weights", "type", 8), "TSR-1031", "tensor 'weights' is of the type COMPLEX64"),
    (set_field("weights", "type", 99), "TSR-1031", "tensor 'weights' is of the type 99"),
    (set_quantization("weights", "scale", [0.1, 0.2]), "TSR-1103", "tensor 'weights' of shape [3,2,2,2] has 2 scales"),
    (set_quantization("weights", "scale", [float("nan")]), "TSR-1103", "tensor 'weights' has the scale nan"),
    (set_quantization("image", "scale", [0.0]), "TSR-1105", "tensor 'image' has 1 scales, which is 0"),
    (set_quantization("image", "zeroPoint", [256]), "TSR-1105", "tensor 'image' of type u8 has the zero point 256"),
    (set_quantization("weights", "zeroPoint", [1 << 40]), "TSR-1105", "weights 'weights' have the zero point"),
    (set_option("strideW", 0), "TSR-1105", "a window of 2 with stride 0 and dilation 1"),
    (set_option("dilationHFactor", -3), "TSR-1105", "a window of 2 with stride 1 and dilation -3"),
    (set_option("dilationHFactor", 9), "TSR-1105", "a window that spans 10 on 4 elements"),
    (set_option("fusedActivationFunction", 17), "TSR-1040", "the activation 17"),
    (set_field("bias", "shape", [1, 3, 1]), None, ""),  # three elements all the same
    (set_field("scores", "type", 9), "TSR-1105", "a result of type i8 of u8"),
    (unsupported, "TSR-1040", "LSH_PROJECTION: the operator is not supported\n      2 nodes: y0, y2"),
    (unsupported, "TSR-1040", "SKIP_GRAM: the operator is not supported"),
    (reversed_operators, "TSR-1104", "NEG reads tensor 'middle', which nothing has made before"),
    (made_twice, "TSR-1104", "tensor 'y' is made twice"),
    (lambda: shape_of([2, 3]), "TSR-1105", "the shape [2,3] for f32[4]"),
    (lambda: shape_of([-1, -1]), "TSR-1105", "the shape [-1,-1] for f32[4]"),
    (lambda: shape_of([1 << 30, 1 << 30, 1 << 30]), "TSR-1105", "the shape [1073741824,1073741824,1073741824]"),
    (lambda: one("TRANSPOSE", [[0, 0]]), "TSR-1105", "axis 0 is named twice"),
    (lambda: one("TRANSPOSE", [[0, 5]]), "TSR-1105", "an entry of axes is 5 for a tensor of rank 2"),
    (lambda: one("TILE", [[1 << 30, 1 << 30]]), "TSR-1105", "2^40"),
    (lambda: one("PAD", [[[0, -1], [0, 0]]]), "TSR-1105", "pads of 0 and -1"),
    (lambda: one("PAD", [[[1 << 30, 1 << 30], [1 << 30, 1 << 30]]]), "TSR-1023", "a result of PAD has the shape"),
    (lambda: one("SLICE", [[0, 2], [2, 2]]), "TSR-1105", "2 elements from 2 on of 3"),
    (lambda: one("STRIDED_SLICE", [[0], [2], [0]], "StridedSliceOptions"), "TSR-1105", "a stride of 0"),
    (lambda: one("SOFTMAX", [], "SoftmaxOptions", shape=(), beta=1.0), "TSR-1105", "a number"),
    (lambda: one("SPACE_TO_DEPTH", [], "SpaceToDepthOptions", shape=(1, 4, 4, 1), blockSize=0), "TSR-1105", "blocks of 0"),
    (lambda: one("RESIZE_BILINEAR", [[1 << 30, 1 << 30]], "ResizeBilinearOptions", shape=(1, 2, 2, 1)), "TSR-1105", "a size of"),
    (lambda: one("DEPTHWISE_CONV_2D", [], "DepthwiseConv2DOptions"), "TSR-1105", "1 inputs"),
]


def main():
    tessera = sys.argv[1]
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "m.tflite"

        def compile_it(data):
            path.write_bytes(data)
            begin = time.monotonic()
            run = subprocess.run([tessera, "compile", path, "-o", path.with_suffix(".so")], capture_output=True, text=True,
                                 check=False)
            return run, time.monotonic() - begin

        for number, (make, error, part) in enumerate(CASES):
            run, seconds = compile_it(make())
            wanted = 0 if error is None else 1
            if run.returncode != wanted or (error and f"error {error}" not in run.stderr) or part not in run.stderr:
                print(f"case {number}: {error} with '{part}' is expected, and there is {run.returncode}: {run.stderr}")
                failed += 1
            elif error and seconds > SECONDS:
                print(f"case {number}: refused after {seconds:.1f} s")
                failed += 1
        whole = convolution().bytes()
        for length in range(8, len(whole), 97):
            run, _ = compile_it(whole[:length])
            if run.returncode != 1 or "error TSR-1" not in run.stderr:
                print(f"the first {length} of {len(whole)} bytes: {run.returncode}: {run.stderr}")
                failed += 1
    print(f"{len(CASES)} cases, {failed} problems")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
