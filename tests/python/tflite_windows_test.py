#!/usr/bin/env python3
"""Random TFLite operators over windows and dimensions (pools, sizes of images, sums, normalisations, moves) of every type that is
read, beside LiteRT's reference kernels.

    tflite_windows_test.py TESSERA FIRST..LAST [NAMES]"""

import sys

import numpy as np

import tflite_cases
from tflite_cases import ACTIVATIONS, Case, same_or_valid

F, I8, U8, I16, I32, I64, B = np.float32, np.int8, np.uint8, np.int16, np.int32, np.int64, np.bool_
QUANTIZED = (I8, U8, I16)


def operand(case, shape, dtype):
    if dtype == I16:
        return case.input(shape, dtype, scale=case.scale() / 256)
    return case.quantized(shape, dtype) if dtype in QUANTIZED else case.input(shape, dtype)


def same(case, x, dtype):
    if dtype not in QUANTIZED:
        return {}
    return {"scale": case.scale_of(x), "zero": case.builder.tensors[x].quantization.zeroPoint[0]}


def pool(case, dtype):
    kind = case.pick("AVERAGE_POOL_2D", "MAX_POOL_2D", *(("L2_POOL_2D",) if dtype == F else ()))
    padding, window = case.number(0, 1), [case.number(1, 4), case.number(1, 4)]
    stride = [case.number(1, 3), case.number(1, 3)]
    image = [case.number(k, 11) for k in window]
    channels = case.pick(1, 3, 16, 18)
    out = [same_or_valid(i, k, s, 1, padding) for i, k, s in zip(image, window, stride)]
    x = operand(case, [1, *image, channels], dtype)
    case.output(kind, [1, *out, channels], dtype, [x], "Pool2DOptions", note=f"{window} on {image}", padding=padding, strideH=stride[0],
                strideW=stride[1], filterHeight=window[0], filterWidth=window[1], fusedActivationFunction=case.pick(*ACTIVATIONS.values()),
                **same(case, x, dtype))


def resize(case, dtype):
    kind = case.pick("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR")
    image, out, channels = [case.number(1, 9), case.number(1, 9)], [case.number(1, 20), case.number(1, 20)], case.pick(1, 3)
    x = operand(case, [1, *image, channels], dtype)
    align = bool(case.number(0, 1))
    half = not align and bool(case.number(0, 1))
    table = "ResizeBilinearOptions" if kind == "RESIZE_BILINEAR" else "ResizeNearestNeighborOptions"
    case.output(kind, [1, *out, channels], dtype, [x, case.builder.ints(out)], table, note=f"of {image}",
                tolerance=1 if dtype == U8 else None, alignCorners=align, halfPixelCenters=half, **same(case, x, dtype))


def total(case, dtype):
    shape = [case.number(1, 5) for _ in range(case.number(1, 4))]
    axes = sorted(int(a) for a in case.rng.permutation(len(shape))[:case.number(1, len(shape))])
    kinds = {F: ("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD"), I8: ("MEAN", "REDUCE_MAX", "REDUCE_MIN"),
             U8: ("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN"), I16: ("MEAN", "REDUCE_MAX", "REDUCE_MIN"),
             I32: ("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD"),
             I64: ("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD"),
             B: ("REDUCE_ANY", "REDUCE_ALL")}
    kind, keep = case.pick(*kinds[dtype]), bool(case.number(0, 1))
    out = [1 if d in axes else n for d, n in enumerate(shape) if keep or d not in axes]
    x = operand(case, shape, dtype)
    if dtype in (I32, I64):
        case.values[-1] //= 1000
    extra = same(case, x, dtype)
    if extra and kind in ("MEAN", "SUM"):
        extra = {"scale": extra["scale"] * float(case.rng.uniform(0.5, 3)), "zero": 0 if dtype == I16 else case.zero(dtype)}
    case.output(kind, out, dtype, [x, case.builder.ints(axes)], "ReducerOptions", note=f"{shape} {axes}", keepDims=keep, **extra)


def place(case, dtype):
    shape = [case.number(1, 6) for _ in range(case.number(1, 4))]
    axis = case.number(0, len(shape) - 1)
    x = case.input(shape, dtype)
    case.values[-1] = (case.values[-1] // 4 * 4).astype(dtype) if dtype != B else case.values[-1]
    kind = case.pick("ARG_MAX", "ARG_MIN")
    case.output(kind, shape[:axis] + shape[axis + 1:], I32, [x, case.constant(axis, I32)],
                "ArgMaxOptions" if kind == "ARG_MAX" else "ArgMinOptions",
                outputType=case.builder.fb.TensorType.INT32)


def log_softmax(case, dtype):
    shape = [case.number(1, 3), case.pick(1, 2, 10, 61, 300)]
    scale = case.pick(0.002, 0.05, 0.1, 0.5, 3.0) * float(case.rng.uniform(0.9, 1.1))
    x = case.input(shape, dtype, scale=scale, zero=case.zero(dtype))
    case.output("LOG_SOFTMAX", shape, dtype, [x], "LogSoftmaxOptions", 2, scale=16 / 256, zero=127)


def softmax(case, dtype):
    shape = case.pick([1, 10], [5, 33], [2, 3, 7], [1, 2, 3, 4], [9])
    beta = float(case.pick(1, 1, 0.5, 2))
    if dtype == F:
        if case.rng.random() < 0.3:
            return case.output("LOG_SOFTMAX", shape, F, [case.input(shape, F)])
        return case.output("SOFTMAX", shape, dtype, [case.input(shape, dtype)], "SoftmaxOptions", beta=beta)
    x = operand(case, shape, dtype)
    if dtype == I8 and case.rng.random() < 0.3:
        return case.output("SOFTMAX", shape, I16, [x], "SoftmaxOptions", scale=1 / 65536, zero=-32768, tolerance=1, beta=beta)
    scale, zero = {I8: (1 / 256, -128), U8: (1 / 256, 0), I16: (1 / 32768, 0)}[dtype]
    return case.output("SOFTMAX", shape, dtype, [x], "SoftmaxOptions", note=f"{case.scale_of(x)}", scale=scale, zero=zero, beta=beta)


def normalize(case, dtype):
    if dtype == F and case.rng.random() < 0.5:
        shape = [1, case.number(1, 4), case.number(1, 4), case.pick(1, 3, 8, 16)]
        return case.output("LOCAL_RESPONSE_NORMALIZATION", shape, F, [case.input(shape, F)], "LocalResponseNormalizationOptions",
                           radius=case.number(0, 6), bias=1.0, alpha=0.3, beta=float(case.pick(0.5, 0.75)))
    shape = case.pick([1, 10], [5, 33], [2, 3, 2, 7], [1, 128], [4, 1])
    x = operand(case, shape, dtype)
    extra = {"scale": 1 / 128, "zero": 128 if dtype == U8 else 0} if dtype in QUANTIZED else {}
    case.output("L2_NORMALIZATION", shape, dtype, [x], "L2NormOptions", **extra)


def moves(case, dtype):
    shape = [2, 3, 4]
    q = {"scale": 0.1, "zero": 0 if dtype == I16 else case.zero(dtype)} if dtype in QUANTIZED else {}
    kind = case.number(0, 11)
    ints = case.builder.ints
    if kind == 7:
        x = case.input([1, 4, 6, 2], dtype, **q)
        return case.output("SPACE_TO_DEPTH", [1, 2, 3, 8], dtype, [x], "SpaceToDepthOptions", blockSize=2, **q)
    if kind == 8:
        x = case.input([1, 2, 3, 8], dtype, **q)
        return case.output("DEPTH_TO_SPACE", [1, 4, 6, 2], dtype, [x], "DepthToSpaceOptions", blockSize=2, **q)
    if kind == 9:
        x = case.input([1, 3, 5, 2], dtype, **q)
        return case.output("SPACE_TO_BATCH_ND", [6, 2, 2, 2], dtype, [x, ints([2, 3]), ints([[1, 0], [0, 1]])], **q)
    if kind == 10:
        x = case.input([6, 2, 2, 2], dtype, **q)
        return case.output("BATCH_TO_SPACE_ND", [1, 3, 5, 2], dtype, [x, ints([2, 3]), ints([[1, 0], [0, 1]])], **q)
    x = case.input(shape, dtype, **q)
    if kind == 0:
        return case.output("TRANSPOSE", [4, 2, 3], dtype, [x, ints([2, 0, 1])], **q)
    if kind == 1:
        return case.output("PAD", [3, 7, 4], dtype, [x, ints([[0, 1], [3, 1], [0, 0]])], **q)
    if kind == 2:
        return case.output("SLICE", [1, 2, 4], dtype, [x, ints([1, 0, 0]), ints([1, 2, -1])], **q)
    if kind == 3:
        return case.output("STRIDED_SLICE", [2, 2, 2], dtype, [x, ints([0, 2, -1]), ints([2, 0, -5]), ints([1, -1, -2])],
                           "StridedSliceOptions", **q)
    if kind == 4:
        y = case.input([2, 5, 4], dtype, **q)
        return case.output("CONCATENATION", [2, 8, 4], dtype, [x, y], "ConcatenationOptions", axis=1, **q)
    if kind == 5:
        return case.output("TILE", [4, 3, 12], dtype, [x, ints([2, 1, 3])], **q)
    if kind == 6:
        return case.output("MIRROR_PAD", [4, 5, 4], dtype, [x, ints([[1, 1], [2, 0], [0, 0]])], "MirrorPadOptions",
                           mode=case.number(0, 1), **q)
    return case.output("REVERSE_V2", shape, dtype, [x, ints([case.number(0, 2)])], **q)


def fourier(case, dtype):
    batch, image = case.pick([], [2], [1, 3]), [case.pick(1, 1, 3, 8), case.pick(5, 16, 20)]
    sizes = [case.pick(1, 2, 8) if image[0] > 1 else 1, case.pick(4, 16, 32)]
    x = case.input([*batch, *image], F)
    shape = [*batch, sizes[0], sizes[1] // 2 + 1]
    values = case.builder.tensor(shape, "complex64")
    case.builder.operator("RFFT2D", [x, case.builder.ints(sizes)], [values])
    for kind in ("COMPLEX_ABS", "REAL", "IMAG"):
        case.output(kind, shape, F, [values], note=f"{image} {sizes}", tolerance=2e-6)


KINDS = {
    "fourier": (fourier, (F,)),
    "pool": (pool, (F, I8, U8, I16)),
    "resize": (resize, (F, I8, U8, I16)),
    "total": (total, (F, I8, U8, I16, I32, I64, B)),
    "place": (place, (F, I8, U8, I32)),
    "softmax": (softmax, (F, I8, U8, I16)),
    "log_softmax": (log_softmax, (I8,)),
    "normalize": (normalize, (F, I8, U8)),
    "moves": (moves, (F, I8, U8, I32, I64)),
    "moves2": (moves, (F, I8, U8, I32, I64)),
}


if __name__ == "__main__":
    sys.exit(tflite_cases.main_of_kinds(KINDS))
