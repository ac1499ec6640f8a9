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


def loop_of(test, body, inside=None):
    """A WHILE of these graphs; `inside` changes the graphs first."""
    builder = Builder()
    graphs = [builder.graph(), builder.graph()]
    for graph in graphs:
        graph.input([], "int32", name="i")
    graphs[0].operator("LESS", [0, graphs[0].ints(7)], [graphs[0].output([], "bool")])
    graphs[1].operator("ADD", [0, graphs[1].ints(1)], [graphs[1].output([], "int32")], "AddOptions")
    if inside:
        inside(*graphs)
    x = builder.input([], "int32", name="x")
    builder.operator("WHILE", [x], [builder.output([], "int32", name="y")], "WhileOptions", condSubgraphIndex=test,
                     bodySubgraphIndex=body)
    return builder.bytes()


def runs_itself(_, body):
    body.operators.clear()
    body.operator("WHILE", [0], [1 if len(body.tensors) < 2 else 2], "WhileOptions", condSubgraphIndex=1, bodySubgraphIndex=2)


def sparse(change):
    builder = Builder()
    fb, x = builder.fb, builder.input([1, 4], name="x")
    w = builder.tensor([2, 4], data=[1, 2, 3], name="w")
    levels = [fb.DimensionMetadataT(), fb.DimensionMetadataT()]
    levels[0].denseSize, levels[1].format = 2, 1
    for name, values in (("Segments", [0, 1, 3]), ("Indices", [0, 1, 3])):
        setattr(levels[1], f"array{name}", fb.Int32VectorT())
        setattr(levels[1], f"array{name}Type", fb.SparseIndexVector.Int32Vector)
        getattr(levels[1], f"array{name}").values = np.array(values, np.int32)
    sparsity = fb.SparsityParametersT()
    sparsity.traversalOrder, sparsity.dimMetadata = [0, 1], levels
    builder.tensors[w].sparsity = sparsity
    change(sparsity, levels)
    builder.operator("FULLY_CONNECTED", [x, w, -1], [builder.output([1, 2], name="y")], "FullyConnectedOptions")
    return builder.bytes()


def handle_as_value():
    builder = Builder()
    handle = builder.tensor([], "resource", name="handle")
    builder.operator("VAR_HANDLE", [], [handle], "VarHandleOptions", container="", sharedName="v")
    builder.operator("NEG", [handle], [builder.output([], name="y")])
    return builder.bytes()


def custom(name, options, shape=(1, 4, 4, 1)):
    builder = Builder()
    x = builder.input(shape, name="x")
    builder.custom(name, [x], [builder.output(shape, name="y"), builder.output(shape, name="z")], options)
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
    (set_field("weights", "type", 11), "TSR-1031", "tensor 'weights' is of the type COMPLEX128"),
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
    (lambda: one("HASHTABLE_SIZE", []), "TSR-1040", "a hash table: its keys or values are strings"),
    (lambda: one("RANDOM_UNIFORM", []), "TSR-1040", "random numbers: without seeds no run gives the same"),
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
    (lambda: loop_of(1, 9), "TSR-1102", "an operator runs graph 9"),
    (lambda: loop_of(-1, 2), "TSR-1102", "an operator runs graph -1"),
    (lambda: loop_of(1, 2, runs_itself), "TSR-1102", "graphs run each other without end"),
    (lambda: loop_of(2, 2), "TSR-1105", "a condition of type i32"),
    (lambda: loop_of(0, 0), "TSR-1102", "graphs run each other without end"),
    (lambda: loop_of(1, 2, lambda _, body: body.outputs.append(0)), "TSR-1105", "a body with 2 results for 1 values"),
    (lambda: loop_of(1, 2, lambda test, _: test.inputs.append(1)), "TSR-1102", "graph 1 has 2 inputs and is run with 1"),
    (lambda: sparse(lambda *_: None), None, ""),
    (lambda: sparse(lambda s, levels: setattr(levels[0], "denseSize", 1 << 30)), "TSR-1103", "what tensor 'w' says of its 12 bytes"),
    (lambda: sparse(lambda s, levels: setattr(levels[0], "denseSize", -3)), "TSR-1103", "what tensor 'w' says of its 12 bytes"),
    (lambda: sparse(lambda s, levels: setattr(s, "traversalOrder", [0, 7])), "TSR-1103", "what tensor 'w' says of its 12 bytes"),
    (lambda: sparse(lambda s, levels: setattr(s, "blockMap", [1 << 20])), "TSR-1103", "what tensor 'w' says of its 12 bytes"),
    (lambda: sparse(lambda s, levels: setattr(levels[1].arrayIndices, "values", np.array([0, 1, 4], np.int32))), "TSR-1103", "what tensor"),
    (lambda: sparse(lambda s, levels: setattr(levels[1].arraySegments, "values", np.array([0, 1, 1 << 30], np.int32))), "TSR-1103", ""),
    (lambda: sparse(lambda s, levels: setattr(levels[1], "arrayIndices", None)), "TSR-1103", "what tensor 'w' says of its 12 bytes"),
    (handle_as_value, "TSR-1040", "the handle 'handle' as a value"),
    (lambda: custom("MaxPoolingWithArgmax2D", b"\1\0\0\0"), "TSR-1105", "options of 4 bytes"),
    (lambda: custom("MaxPoolingWithArgmax2D", b"\1\0\0\0" + b"\xff" * 36), "TSR-1105", "option 1 of -1"),
    (lambda: custom("TFLite_Detection_PostProcess", b"\xff" * 9), "TSR-1105", "3"),
    (lambda: one("TOPK_V2", [9]), "TSR-1105", "the 9 largest of 3"),
    (lambda: one("ONE_HOT", [1 << 30], "OneHotOptions"), "TSR-1105", "2 inputs"),
    (lambda: one("CUMSUM", [5], "CumsumOptions"), "TSR-1105", "axis is 5"),
    (lambda: one("RFFT2D", [[1 << 30, 1 << 30]]), "TSR-10", ""),
    (lambda: one("L2_POOL_2D", [], "Pool2DOptions"), "TSR-1105", "an image [N,H,W,C]"),
    (lambda: one("GATHER_ND", [[[0, 0, 0]]]), "TSR-1105", "indices of 3 numbers each"),
    (lambda: one("REVERSE_SEQUENCE", [[1, 1]], "ReverseSequenceOptions", seqDim=0), "TSR-1105", "along 0 and 0"),
    (lambda: one("BATCH_MATMUL", [[[1]]], "BatchMatMulOptions"), "TSR-1105", "rows as long as columns"),
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
