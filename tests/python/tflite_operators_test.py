#!/usr/bin/env python3
"""Random TFLite operators beside LiteRT's reference kernels: odd shapes, u8, i8 and f32, weights with one scale or one for
each channel, symmetric and not, every activation. Integers must be equal, floats within 1e-4 of the largest one.

    tflite_operators_test.py TESSERA FIRST..LAST    seeds, one model of many operators each"""

import sys

import numpy as np

import tflite_cases
from tflite_cases import ACTIVATIONS, Case, same_or_valid


def convolution(case, dtype, depthwise):
    padding = case.number(0, 1)
    kernel = [case.number(1, 4), case.number(1, 4)]
    dilation = [1, 1] if case.rng.random() < 0.6 else [case.number(1, 2), case.number(1, 2)]
    stride = [1, 1] if max(dilation) > 1 else [case.number(1, 3), case.number(1, 3)]
    image = [case.number((k - 1) * d + 1, 12) for k, d in zip(kernel, dilation)]
    channels = case.pick(1, 2, 3, 5, 16, 19)
    outputs = channels * case.pick(1, 1, 2, 3) if depthwise else case.pick(1, 2, 7, 16, 21)
    batch = case.number(1, 2)
    shape = [1, *kernel, outputs] if depthwise else [outputs, *kernel, channels]
    terms = kernel[0] * kernel[1] * (1 if depthwise else channels)
    out = [same_or_valid(i, k, s, d, padding) for i, k, s, d in zip(image, kernel, stride, dilation)]
    activation = case.pick(*ACTIVATIONS.values())
    options = {"padding": padding, "strideH": stride[0], "strideW": stride[1], "dilationHFactor": dilation[0],
               "dilationWFactor": dilation[1], "fusedActivationFunction": activation}
    if depthwise:
        options["depthMultiplier"] = outputs // channels
    kind = "DEPTHWISE_CONV_2D" if depthwise else "CONV_2D"
    table = "DepthwiseConv2DOptions" if depthwise else "Conv2DOptions"
    note = f"window {kernel} on {image}x{channels}"
    if dtype == np.float32:
        x = case.input([batch, *image, channels], dtype)
        w = case.builder.tensor(shape, dtype, data=case.value(shape, dtype))
        b = case.builder.tensor([outputs], dtype, data=case.value([outputs], dtype))
        return case.output(kind, [batch, *out, outputs], dtype, [x, w, b], table, note=note, **options)
    x = case.quantized([batch, *image, channels], dtype)
    many = dtype == np.int8 and case.rng.random() < 0.8
    scales = [case.scale() for _ in range(outputs)] if many else case.scale()
    zero = case.zero(dtype) if dtype == np.uint8 else 0
    w = case.builder.tensor(shape, dtype, scale=scales, zero=zero, data=case.value(shape, dtype),
                            axis=3 if depthwise else 0)
    bias = case.rng.integers(-5000, 5000, outputs)
    b = case.builder.tensor([outputs], "int32", data=bias, scale=np.multiply(scales, case.scale_of(x)), zero=0)
    typical = case.scale_of(x) * float(np.mean(scales)) * 60 * 70 * np.sqrt(terms) / 128
    return case.output(kind, [batch, *out, outputs], dtype, [x, w, b], table, 3, note,
                       scale=typical * float(case.rng.uniform(0.4, 2.5)), zero=case.zero(dtype), **options)


def dense(case, dtype):
    rows, inputs, outputs = case.pick(1, 1, 3, 8), case.pick(1, 3, 16, 77), case.pick(1, 5, 16, 40)
    options = {"fusedActivationFunction": case.pick(*ACTIVATIONS.values())}
    if dtype == np.float32:
        x = case.input([rows, inputs], dtype)
        w = case.builder.tensor([outputs, inputs], dtype, data=case.value([outputs, inputs], dtype))
        b = case.builder.tensor([outputs], dtype, data=case.value([outputs], dtype))
        return case.output("FULLY_CONNECTED", [rows, outputs], dtype, [x, w, b], "FullyConnectedOptions", **options)
    x = case.quantized([rows, inputs], dtype)
    zero = case.zero(dtype) if dtype == np.uint8 else 0
    w = case.builder.tensor([outputs, inputs], dtype, scale=case.scale(), zero=zero,
                            data=case.value([outputs, inputs], dtype))
    scale = case.scale_of(x) * case.scale_of(w)
    b = case.builder.tensor([outputs], "int32", data=case.rng.integers(-3000, 3000, outputs), scale=scale)
    return case.output("FULLY_CONNECTED", [rows, outputs], dtype, [x, w, b], "FullyConnectedOptions", 4,
                       scale=scale * 40 * np.sqrt(inputs) * float(case.rng.uniform(0.5, 2)), zero=case.zero(dtype),
                       **options)


def pair(case, dtype):
    kind = case.pick("ADD", "SUB", "MUL")
    shape = case.pick([1], [7], [2, 3, 5], [1, 4, 4, 17])
    other = shape if case.rng.random() < 0.6 else [1 if case.rng.random() < 0.5 else d for d in shape]
    table = {"ADD": "AddOptions", "SUB": "SubOptions", "MUL": "MulOptions"}[kind]
    activation = case.pick(*ACTIVATIONS.values())
    if dtype == np.float32:
        operands = [case.input(shape, dtype), case.input(other, dtype)]
        return case.output(kind, shape, dtype, operands, table, fusedActivationFunction=activation)
    operands = [case.quantized(shape, dtype), case.quantized(other, dtype)]
    a, b = (case.scale_of(o) for o in operands)
    scale = (a * b * 90 if kind == "MUL" else max(a, b)) * float(case.rng.uniform(0.7, 2))
    return case.output(kind, shape, dtype, operands, table, 2, f"{a} {b}", scale=scale, zero=case.zero(dtype),
                       fusedActivationFunction=activation)


def pool(case, dtype):
    kind = case.pick("AVERAGE_POOL_2D", "MAX_POOL_2D")
    padding, window = case.number(0, 1), [case.number(1, 4), case.number(1, 4)]
    stride = [case.number(1, 3), case.number(1, 3)]
    image = [case.number(k, 11) for k in window]
    channels = case.pick(1, 3, 16, 18)
    out = [same_or_valid(i, k, s, 1, padding) for i, k, s in zip(image, window, stride)]
    options = {"padding": padding, "strideH": stride[0], "strideW": stride[1], "filterHeight": window[0],
               "filterWidth": window[1], "fusedActivationFunction": case.pick(*ACTIVATIONS.values())}
    if dtype == np.float32:
        x, scale, zero = case.input([1, *image, channels], dtype), None, 0
    else:
        x = case.quantized([1, *image, channels], dtype)
        scale, zero = case.scale_of(x), case.builder.tensors[x].quantization.zeroPoint[0]
    return case.output(kind, [1, *out, channels], dtype, [x], "Pool2DOptions", 2, f"on {image}", scale=scale, zero=zero,
                       **options)


def softmax(case, dtype):
    shape = case.pick([1, 10], [5, 33], [2, 3, 7])
    if dtype == np.float32:
        return case.output("SOFTMAX", shape, dtype, [case.input(shape, dtype)], "SoftmaxOptions", beta=1.0)
    x = case.quantized(shape, dtype)
    return case.output("SOFTMAX", shape, dtype, [x], "SoftmaxOptions", 2, scale=1 / 256,
                       zero=-128 if dtype == np.int8 else 0, beta=1.0)


def unary(case, dtype):
    shape = case.pick([3], [2, 5, 7])
    if dtype == np.float32:
        kind = case.pick("LOGISTIC", "TANH", "RELU", "RELU6", "ABS", "FLOOR", "EXP", "NEG", "SQUARE", "HARD_SWISH",
                         "SIN", "COS")
        return case.output(kind, shape, dtype, [case.input(shape, dtype)])
    kind = case.pick("LOGISTIC", "TANH", "RELU", "RELU6")
    x = case.quantized(shape, dtype, 0.01, 0.1)
    scale, zero = {"LOGISTIC": (1 / 256, -128), "TANH": (1 / 128, 0)}.get(kind, (case.scale(), case.zero(np.int8)))
    if dtype == np.uint8:
        zero += 128
    return case.output(kind, shape, dtype, [x], scale=scale, zero=zero)


def mean(case, dtype):
    shape, axes = [1, case.number(1, 7), case.number(1, 7), case.pick(1, 5, 16)], case.pick([1, 2], [1], [3], [2, 3])
    # LiteRT's sums of i8 in other units than their own are never below 0.
    kind = case.pick("MEAN", "REDUCE_MAX", "REDUCE_MIN", *(() if dtype == np.int8 else ("SUM",)))
    keep = bool(case.number(0, 1))
    out = [1 if d in axes else n for d, n in enumerate(shape) if keep or d not in axes]
    x = case.input(shape, dtype) if dtype == np.float32 else case.quantized(shape, dtype)
    scale, zero = None, 0
    if dtype != np.float32:
        scale, zero = case.scale_of(x), case.builder.tensors[x].quantization.zeroPoint[0]
        if kind in ("MEAN", "SUM"):
            scale, zero = scale * float(case.rng.uniform(0.5, 3)), case.zero(dtype)
    return case.output(kind, out, dtype, [x, case.builder.ints(axes)], "ReducerOptions", 2, f"{shape} {axes}", scale=scale,
                       zero=zero, keepDims=keep)


def quantize(case, dtype):
    shape = [4, 9]
    if dtype == np.float32:
        kind = case.pick(np.uint8, np.int8)
        return case.output("QUANTIZE", shape, kind, [case.input(shape, dtype)], scale=case.scale(0.01, 0.05),
                           zero=case.zero(kind))
    if case.rng.random() < 0.4:
        return case.output("DEQUANTIZE", shape, np.float32, [case.quantized(shape, dtype)], version=2)
    other = case.pick(np.uint8, np.int8)
    return case.output("QUANTIZE", shape, other, [case.quantized(shape, dtype)], version=2, scale=case.scale(),
                       zero=case.zero(other))


def resize(case, dtype):
    kind = case.pick("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR")
    image, out, channels = [case.number(1, 9), case.number(1, 9)], [case.number(1, 20), case.number(1, 20)], case.pick(1, 3)
    # Of i8 LiteRT interpolates with 10 digits, which is not done.
    dtype = np.uint8 if dtype == np.int8 else dtype
    x = case.input([1, *image, channels], dtype) if dtype == np.float32 else case.quantized([1, *image, channels], dtype)
    align = bool(case.number(0, 1))
    half = not align and bool(case.number(0, 1))
    table = "ResizeBilinearOptions" if kind == "RESIZE_BILINEAR" else "ResizeNearestNeighborOptions"
    scale, zero = None, 0
    if dtype != np.float32:
        scale, zero = case.scale_of(x), case.builder.tensors[x].quantization.zeroPoint[0]
    return case.output(kind, [1, *out, channels], dtype, [x, case.builder.ints(out)], table, 3, f"of {image}", scale=scale,
                       zero=zero, tolerance=1 if dtype == np.uint8 and kind == "RESIZE_BILINEAR" else None,
                       alignCorners=align, halfPixelCenters=half)


def moves(case, dtype):
    shape = [2, 3, 4]
    quantization = {} if dtype == np.float32 else {"scale": 0.1, "zero": case.zero(dtype)}
    x = case.input(shape, dtype, **quantization)
    kind = case.number(0, 6)
    if kind == 0:
        return case.output("TRANSPOSE", [4, 2, 3], dtype, [x, case.builder.ints([2, 0, 1])], **quantization)
    if kind == 1:
        return case.output("PAD", [3, 7, 4], dtype, [x, case.builder.ints([[0, 1], [3, 1], [0, 0]])], **quantization)
    if kind == 2:
        return case.output("SLICE", [1, 2, 4], dtype, [x, case.builder.ints([1, 0, 0]), case.builder.ints([1, 2, -1])],
                           **quantization)
    if kind == 3:
        lists = [case.builder.ints(v) for v in ([0, 2, -1], [2, 0, -5], [1, -1, -2])]
        return case.output("STRIDED_SLICE", [2, 2, 2], dtype, [x, *lists], "StridedSliceOptions", **quantization)
    if kind == 4:
        y = case.input([2, 5, 4], dtype, **quantization)
        return case.output("CONCATENATION", [2, 8, 4], dtype, [x, y], "ConcatenationOptions", axis=1, **quantization)
    if kind == 5:
        return case.output("RESHAPE", [6, 4], dtype, [x, case.builder.ints([-1, 4])], "ReshapeOptions", **quantization)
    return case.output("GATHER", [2, 5, 4], dtype, [x, case.builder.ints([0, 2, 1, 1, 0])], "GatherOptions", axis=1,
                       **quantization)


KINDS = {
    "convolution": lambda case, dtype: convolution(case, dtype, False),
    "depthwise": lambda case, dtype: convolution(case, dtype, True),
    "dense": dense, "pair": pair, "another_pair": pair, "pool": pool, "softmax": softmax, "unary": unary, "mean": mean,
    "quantize": quantize, "resize": resize, "moves": moves,
}


def make(seed, names):
    case = Case(seed)
    for name in names:
        KINDS[name](case, case.pick(np.float32, np.uint8, np.uint8, np.int8, np.int8))
    return case


if __name__ == "__main__":
    sys.exit(tflite_cases.main(make, KINDS))
