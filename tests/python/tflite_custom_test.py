#!/usr/bin/env python3
"""Custom TFLite operators: detections beside LiteRT, MediaPipe's pools, unpooling and transposed convolutions beside numpy.

    tflite_custom_test.py TESSERA FIRST..LAST"""

import struct
import sys

import numpy as np
from flatbuffers import flexbuffers

import tflite_support
from tflite_support import Builder

F = np.float32


def detection(rng):
    builder, n, classes = Builder(), int(rng.integers(1, 40)), int(rng.integers(1, 6))
    background = int(rng.integers(0, 2))
    # LiteRT's results of equal scores and of boxes turned inside out are its own.
    values = [rng.standard_normal((1, n, 4)).astype(F), rng.random((1, n, classes + background)).astype(F)]
    operands = [builder.input(v.shape, F) for v in values]
    anchors = np.concatenate([rng.random((n, 2)) * 3, 0.3 + rng.random((n, 2))], 1).astype(F)
    operands.append(builder.tensor(anchors.shape, F, data=anchors))
    most, by_class = int(rng.integers(1, 12)), bool(rng.integers(0, 2))
    results = [builder.output(shape, F) for shape in ([1, most, 4], [1, most], [1, most], [1])]
    options = flexbuffers.Dumps({
        "max_detections": most, "max_classes_per_detection": 1, "detections_per_class": int(rng.integers(1, 9)),
        "use_regular_nms": by_class, "num_classes": classes, "nms_score_threshold": float(rng.random() * 0.6),
        "nms_iou_threshold": float(0.2 + rng.random() * 0.6), "y_scale": 10.0, "x_scale": 10.0, "h_scale": 5.0, "w_scale": 5.0})
    builder.custom("TFLite_Detection_PostProcess", operands, results, options)
    return builder.bytes(), values, lambda: tflite_support.run_reference(builder.bytes(), values)


def pads_of(extent, window, stride, same):
    out = -(-extent // stride) if same else (extent - window) // stride + 1
    return out, max((out - 1) * stride + window - extent, 0) // 2 if same else 0


def pool(rng):
    builder, same = Builder(), bool(rng.integers(0, 2))
    window, stride = rng.integers(1, 4, 2), rng.integers(1, 4, 2)
    shape = [int(rng.integers(1, 3)), *(int(w + rng.integers(0, 6)) for w in window), int(rng.choice([1, 3, 8]))]
    x = rng.standard_normal(shape).astype(F)
    (rows, top), (columns, left) = (pads_of(shape[d + 1], window[d], stride[d], same) for d in range(2))
    want = [np.zeros((shape[0], rows, columns, shape[3]), F) for _ in range(2)]
    for i in range(rows):
        for j in range(columns):
            taps = []
            for a in range(window[0]):
                for b in range(window[1]):
                    y, z = i * stride[0] - top + a, j * stride[1] - left + b
                    inside = 0 <= y < shape[1] and 0 <= z < shape[2]
                    taps.append(x[:, y, z] if inside else np.full((shape[0], shape[3]), -np.inf, F))
            want[0][:, i, j], want[1][:, i, j] = np.max(taps, 0), np.argmax(taps, 0).astype(F) + F(0.1)
    results = [builder.output(w.shape, F) for w in want]
    options = struct.pack("<10i", 1 if same else 2, stride[1], stride[0], window[1], window[0], 0, 0, 0, 0, 0)
    builder.custom("MaxPoolingWithArgmax2D", [builder.input(shape, F)], results, options)
    return builder.bytes(), [x], lambda: want


def unpool(rng):
    builder = Builder()
    window = rng.integers(1, 4, 2)
    shape = [int(rng.integers(1, 3)), *(int(n) for n in rng.integers(1, 6, 2)), int(rng.choice([1, 3, 8]))]
    x, places = rng.standard_normal(shape).astype(F), rng.integers(0, window.prod(), shape)
    want = np.zeros((shape[0], shape[1] * window[0], shape[2] * window[1], shape[3]), F)
    for n, i, j, k in np.ndindex(*shape):
        place = places[n, i, j, k]
        want[n, i * window[0] + place // window[1], j * window[1] + place % window[1], k] = x[n, i, j, k]
    values = [x, (places + 0.1).astype(F)]
    options = struct.pack("<10i", 1, window[1], window[0], window[1], window[0], 0, 0, 0, 0, 0)
    builder.custom("MaxUnpooling2D", [builder.input(shape, F), builder.input(shape, F)], [builder.output(want.shape, F)], options)
    return builder.bytes(), values, lambda: [want]


def transposed(rng):
    builder, same = Builder(), bool(rng.integers(0, 2))
    window, stride, outputs = rng.integers(1, 5, 2), rng.integers(1, 4, 2), int(rng.integers(1, 6))
    shape = [1, *(int(n) for n in rng.integers(1, 6, 2)), int(rng.integers(1, 5))]
    x = rng.standard_normal(shape).astype(F)
    w, bias = rng.standard_normal((outputs, *window, shape[3])).astype(F), rng.standard_normal(outputs).astype(F)
    pads = [max(0, window[d] - (shape[d + 1] - 1) % stride[d] - 1) if same else 0 for d in range(2)]
    size = [stride[d] * (shape[d + 1] - 1) + window[d] - pads[d] for d in range(2)]
    if min(size) < 1:
        return transposed(rng)
    whole = np.zeros((size[0] + 16, size[1] + 16, outputs))
    for i in range(shape[1]):
        for j in range(shape[2]):
            part = np.einsum("ohwi,i->hwo", w.astype(float), x[0, i, j])
            whole[i * stride[0]:i * stride[0] + window[0], j * stride[1]:j * stride[1] + window[1]] += part
    top, left = pads[0] // 2, pads[1] // 2
    want = (whole[None, top:top + size[0], left:left + size[1]] + bias).astype(F)
    operands = [builder.input(shape, F), builder.tensor(w.shape, F, data=w), builder.tensor([outputs], F, data=bias)]
    builder.custom("Convolution2DTransposeBias", operands, [builder.output(want.shape, F)],
                   struct.pack("<3i", 1 if same else 2, stride[1], stride[0]))
    return builder.bytes(), [x], lambda: [want]


def check(tessera, make, seed):
    rng = np.random.default_rng(seed)
    model, values, oracle = make(rng)
    want = oracle()
    got = tflite_support.run_tessera(tessera, model, values, len(want), ["-O", str(rng.integers(0, 2) * 3)])
    if isinstance(got, str):
        return " ".join(got.split())
    for i, (mine, theirs) in enumerate(zip(got, want)):
        if mine.shape != theirs.shape or not np.allclose(mine, theirs, 1e-5, 1e-5):
            return f"result {i}: {mine} instead of {theirs}"
    return None


if __name__ == "__main__":
    sys.exit(tflite_support.run_seeds({make.__name__: lambda tessera, seed, make=make: check(tessera, make, seed)
                                       for make in (pool, unpool, transposed, detection)}))
