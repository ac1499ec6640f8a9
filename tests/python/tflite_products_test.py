#!/usr/bin/env python3
"""Random TFLite convolutions, dense layers and products of matrices of every type that is read, beside LiteRT's reference
kernels: 16 bits with weights of 8, one scale or one for each channel, floats with weights of 8 bits.

    tflite_products_test.py TESSERA FIRST..LAST [NAMES]"""

import sys

import numpy as np

import tflite_cases
from tflite_cases import ACTIVATIONS, Case, same_or_valid

F, I8, U8, I16, I32, I64, B = np.float32, np.int8, np.uint8, np.int16, np.int32, np.int64, np.bool_
HYBRID = "hybrid"


class Factors:
    """The operands of a product: x, weights, bias, and what the result's quantisation is."""

    def __init__(self, case, dtype, x_shape, w_shape, outputs, axis, terms, wide_bias=True, many_scales=False):
        self.dtype = F if dtype == HYBRID else dtype
        x_dtype, w_dtype = self.dtype, {F: F, U8: U8}.get(dtype, I8)
        self.extra, self.tolerance, self.options, self.note = {}, None, {}, getattr(dtype, "__name__", dtype)
        if dtype == F:
            self.x = case.input(x_shape, F)
            self.w = case.constant(case.value(w_shape, F), F)
            self.bias = case.constant(case.value([outputs], F), F)
            return
        many = dtype != U8 and (many_scales or case.rng.random() < 0.7)
        scales = [case.scale(0.004, 0.02) for _ in range(outputs)] if many else case.scale(0.004, 0.02)
        values = case.value(w_shape, w_dtype)
        if w_dtype == I8:  # converters write no -128, and LiteRT's products of floats with them go wrong there
            values = np.maximum(values, -127)
        self.w = case.constant(values, w_dtype, scale=scales,
                               zero=case.zero(U8) if dtype == U8 else 0, axis=axis)
        if dtype == HYBRID:
            self.x, self.tolerance = case.input(x_shape, F), 1e-5
            self.bias = case.constant(case.value([outputs], F), F)
            return
        if dtype == I16:
            self.x = case.input(x_shape, I16, scale=case.scale() / 256)
        else:
            self.x = case.quantized(x_shape, dtype)
        x_scale = case.scale_of(self.x)
        b_dtype = I64 if dtype == I16 and wide_bias else I32
        if dtype == I16 and not wide_bias:
            self.options = {"quantizedBiasType": case.builder.fb.TensorType.INT32}
        spread = 4000 if dtype != I16 else 400000
        self.bias = case.constant(case.rng.integers(-spread, spread, outputs), b_dtype, scale=np.multiply(scales, x_scale))
        typical = x_scale * float(np.mean(scales)) * 70 * np.sqrt(terms) * (60 if dtype != I16 else 16000) / 128
        self.extra = {"scale": typical / (256 if dtype == I16 else 1) * float(case.rng.uniform(0.4, 2.5)),
                      "zero": 0 if dtype == I16 else case.zero(dtype)}


def window(case, dims):
    padding = case.number(0, 1)
    kernel = [case.number(1, 4) for _ in range(dims)]
    dilation = [1] * dims if case.rng.random() < 0.6 else [case.number(1, 2) for _ in range(dims)]
    stride = [1] * dims if max(dilation) > 1 else [case.number(1, 3) for _ in range(dims)]
    image = [(k - 1) * d + case.number(1, 5 if dims == 2 else 3) for k, d in zip(kernel, dilation)]
    out = [same_or_valid(i, k, s, d, padding) for i, k, s, d in zip(image, kernel, stride, dilation)]
    return padding, kernel, dilation, stride, image, out


def activation(case, dtype):
    return case.pick(*ACTIVATIONS.values())


def convolution(case, dtype, depthwise=False):
    padding, kernel, dilation, stride, image, out = window(case, 2)
    channels = case.pick(1, 2, 3, 5, 16)
    outputs = channels * case.pick(1, 1, 2) if depthwise else case.pick(1, 2, 7, 16)
    w_shape = [1, *kernel, outputs] if depthwise else [outputs, *kernel, channels]
    terms = kernel[0] * kernel[1] * (1 if depthwise else channels)
    # Of 16 bits depthwise convolutions want scales for each channel, and a bias of 64 bits.
    f = Factors(case, dtype, [case.number(1, 2), *image, channels], w_shape, outputs, 3 if depthwise else 0, terms,
                depthwise or case.rng.random() < 0.7, depthwise)
    options = {"padding": padding, "strideH": stride[0], "strideW": stride[1], "dilationHFactor": dilation[0],
               "dilationWFactor": dilation[1], "fusedActivationFunction": activation(case, dtype)}
    if depthwise:
        options["depthMultiplier"] = outputs // channels
    operands = [f.x, f.w, f.bias]
    batch = case.builder.tensors[f.x].shape[0]
    case.output("DEPTHWISE_CONV_2D" if depthwise else "CONV_2D", [batch, *out, outputs], f.dtype, operands,
                "DepthwiseConv2DOptions" if depthwise else "Conv2DOptions", 1, f"{f.note} {kernel} on {image}x{channels}",
                tolerance=f.tolerance, **options, **f.options, **f.extra)


def depthwise(case, dtype):
    convolution(case, dtype, True)


def transposed(case, dtype):
    padding, kernel, _, stride, image, _ = window(case, 2)
    channels, outputs, batch = case.pick(1, 2, 3, 8), case.pick(1, 2, 5, 16), case.number(1, 2)
    out = [i * s if padding == 0 else (i - 1) * s + k for i, s, k in zip(image, stride, kernel)]
    f = Factors(case, dtype, [batch, *image, channels], [outputs, *kernel, channels], outputs, 0, kernel[0] * kernel[1] * channels,
                case.rng.random() < 0.7)
    operands = [case.builder.ints([batch, *out, outputs]), f.w, f.x, *([f.bias] if case.rng.random() < 0.7 else [])]
    case.output("TRANSPOSE_CONV", [batch, *out, outputs], f.dtype, operands, "TransposeConvOptions", 1,
                f"{f.note} {kernel} on {image}x{channels}", tolerance=f.tolerance, padding=padding, strideH=stride[0], strideW=stride[1],
                **f.options, **f.extra)


def convolution_3d(case, dtype):
    padding, kernel, dilation, stride, image, out = window(case, 3)
    channels, outputs = case.pick(1, 2, 3), case.pick(1, 2, 5)
    x = case.input([1, *image, channels], F)
    bias = case.constant(case.value([outputs], F), F)
    image = [max(i, 1) for i in image]
    options = {"padding": padding, **dict(zip(("strideD", "strideH", "strideW"), stride)),
               "fusedActivationFunction": activation(case, F)}
    if case.rng.random() < 0.5:
        w = case.constant(case.value([*kernel, channels, outputs], F), F)
        return case.output("CONV_3D", [1, *out, outputs], F, [x, w, bias], "Conv3DOptions", note=f"{kernel} on {image}x{channels}",
                           **options, **dict(zip(("dilationDFactor", "dilationHFactor", "dilationWFactor"), dilation)))
    w = case.constant(case.value([*kernel, outputs, channels], F), F)
    shape = [1, *(i * s if padding == 0 else (i - 1) * s + k for i, s, k in zip(image, stride, kernel)), outputs]
    return case.output("CONV_3D_TRANSPOSE", shape, F, [case.builder.ints(shape), w, x, bias], "Conv3DOptions",
                       note=f"{kernel} on {image}x{channels}", **options)


def dense(case, dtype):
    rows, inputs, outputs = case.pick(1, 1, 3, 8), case.pick(1, 3, 16, 77), case.pick(1, 5, 16, 40)
    f = Factors(case, dtype, [rows, inputs], [outputs, inputs], outputs, 0, inputs, case.rng.random() < 0.7)
    options = {"fusedActivationFunction": activation(case, dtype)}
    if dtype == HYBRID:
        options["asymmetricQuantizeInputs"] = bool(case.number(0, 1))
    operands = [f.x, f.w, f.bias] if case.rng.random() < 0.8 else [f.x, f.w, -1]
    case.output("FULLY_CONNECTED", [rows, outputs], f.dtype, operands, "FullyConnectedOptions", 1, f"{f.note}", tolerance=f.tolerance,
                **options, **f.options, **f.extra)


def matrices(case, dtype):
    m, k, n = case.pick(1, 3, 8), case.pick(1, 5, 33), case.pick(1, 4, 17)
    batch = [case.pick(1, 2, 3) for _ in range(case.number(0, 2))]
    left = [d if case.rng.random() < 0.8 else 1 for d in batch]
    right = [d if case.rng.random() < 0.8 else 1 for d in batch]
    if case.rng.random() < 0.3:
        right = []
    if dtype == HYBRID:  # LiteRT goes wrong where there are more batches, or the first matrix is turned
        left = right = batch[:1]
    full = list(np.broadcast_shapes(left, right))
    turned = [bool(case.number(0, 1)) and dtype != HYBRID, bool(case.number(0, 1))]
    a_shape = left + ([k, m] if turned[0] else [m, k])
    b_shape = right + ([n, k] if turned[1] else [k, n])
    extra, tolerance, out = {}, None, F
    if dtype == F:
        a, b = case.input(a_shape, F), case.input(b_shape, F)
    elif dtype == HYBRID:
        a = case.input(a_shape, F)
        b = case.constant(np.maximum(case.value(b_shape, I8), -127), I8, scale=case.scale())
        extra, tolerance = {"asymmetricQuantizeInputs": bool(case.number(0, 1))}, 1e-5
    else:
        out = dtype
        if dtype == I16:
            a, b = case.input(a_shape, I16, scale=case.scale() / 256), case.input(b_shape, I16, scale=case.scale() / 256)
        else:
            a, b = case.quantized(a_shape, I8), case.quantized(b_shape, I8)
        typical = case.scale_of(a) * case.scale_of(b) * np.sqrt(k) * (40 if dtype == I8 else 11000)
        extra = {"scale": typical * float(case.rng.uniform(0.5, 2)), "zero": 0 if dtype == I16 else case.zero(I8)}
    case.output("BATCH_MATMUL", full + [m, n], out, [a, b], "BatchMatMulOptions", 1, f"{dtype} {a_shape} {b_shape}",
                tolerance=tolerance, adjX=turned[0], adjY=turned[1], **extra)


def sparse(case, dtype):
    """Weights of which only some are stored, in blocks of 1x4 or one by one; made dense by an operator or read as they are."""
    fb, rows, columns = case.builder.fb, case.pick(3, 8), case.pick(4, 16)
    block = 4 if case.rng.random() < 0.5 else 1
    kept = case.rng.random((rows, columns // block)) < 0.4
    kept[0, 0] = True
    dense = case.value([rows, columns], dtype) * np.repeat(kept, block, 1).astype(dtype)
    stored = np.concatenate([dense[r].reshape(-1, block)[kept[r]].ravel() for r in range(rows)])
    quantization = {} if dtype == F else {"scale": 0.01}
    w = case.builder.tensor([rows, columns], dtype, data=stored, **quantization)
    levels = []
    for form in (0, 1, 0)[:2 + (block > 1)]:
        level = fb.DimensionMetadataT()
        level.format, level.denseSize = form, 0
        levels.append(level)
    levels[0].denseSize = rows
    for name, values in (("Segments", np.concatenate([[0], np.cumsum(kept.sum(1))])), ("Indices", np.nonzero(kept)[1])):
        vector = case.pick(fb.Int32VectorT, fb.Uint16VectorT, fb.Uint8VectorT)()
        vector.values = np.array(values, {"Int32VectorT": np.int32, "Uint16VectorT": np.uint16}.get(type(vector).__name__, np.uint8))
        setattr(levels[1], f"array{name}", vector)
        setattr(levels[1], f"array{name}Type", getattr(fb.SparseIndexVector, type(vector).__name__[:-1]))
    sparsity = fb.SparsityParametersT()
    sparsity.traversalOrder, sparsity.blockMap, sparsity.dimMetadata = [0, 1], [], levels
    if block > 1:
        levels[2].denseSize = block
        sparsity.traversalOrder, sparsity.blockMap = [0, 1, 2], [1]
    case.builder.tensors[w].sparsity = sparsity
    full = case.builder.tensor([rows, columns], dtype, **quantization)
    case.builder.operator("DENSIFY", [w], [full])
    if dtype != F:
        real = case.builder.tensor([rows, columns], F)
        case.builder.operator("DEQUANTIZE", [full], [real])
        full = real
    x = case.input([2, columns], F)
    case.output("FULLY_CONNECTED", [2, rows], F, [x, full, -1], "FullyConnectedOptions", note=f"sparse {block}")


def halves(case, dtype):
    """Weights of 16 bits, which an operator makes floats of; of 4 bits."""
    rows, inputs, outputs = case.pick(1, 3), case.pick(8, 16), case.pick(4, 5)
    x = case.input([rows, inputs], F)
    if dtype == F:
        w, real = case.constant(case.value([outputs, inputs], np.float16), np.float16), case.builder.tensor([outputs, inputs], F)
        case.builder.operator("DEQUANTIZE", [w], [real])
        return case.output("FULLY_CONNECTED", [rows, outputs], F, [x, real, -1], "FullyConnectedOptions", note="f16")
    values = case.rng.integers(-7, 8, [outputs, inputs])
    w = case.builder.tensor([outputs, inputs], I8, scale=[case.scale() for _ in range(outputs)],
                            data=((values.reshape(-1, 2)[:, 0] & 15) | (values.reshape(-1, 2)[:, 1] << 4)).astype(np.int8))
    case.builder.tensors[w].type = case.builder.fb.TensorType.INT4
    case.output("FULLY_CONNECTED", [rows, outputs], F, [x, w, -1], "FullyConnectedOptions", note="i4", tolerance=1e-5,
                asymmetricQuantizeInputs=bool(case.number(0, 1)))


KINDS = {
    "sparse": (sparse, (F, I8)),
    "halves": (halves, (F, I8)),
    "convolution": (convolution, (F, U8, I8, I16, HYBRID)),
    "depthwise": (depthwise, (F, U8, I8, I16, HYBRID)),
    "transposed": (transposed, (F, U8, I8, I16, HYBRID)),
    "convolution_3d": (convolution_3d, (F,)),
    "dense": (dense, (F, U8, I8, I16, HYBRID)),
    "matrices": (matrices, (F, I8, I16, HYBRID)),
}


if __name__ == "__main__":
    sys.exit(tflite_cases.main_of_kinds(KINDS))
