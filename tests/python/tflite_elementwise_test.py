#!/usr/bin/env python3
"""Random TFLite operators that work element by element, of every type that is read, beside LiteRT's reference kernels.

    tflite_elementwise_test.py TESSERA FIRST..LAST [NAMES]"""

import sys

import numpy as np

import tflite_cases
from tflite_cases import ACTIVATIONS, Case

F, I8, U8, I16, I32, I64, B = np.float32, np.int8, np.uint8, np.int16, np.int32, np.int64, np.bool_
QUANTIZED = (I8, U8, I16)


def shapes(case):
    shape = [case.pick(1, 2, 3, 5, 7) for _ in range(case.number(1, 4))]
    other = list(shape)
    if case.rng.random() < 0.5:
        other = [d if case.rng.random() < 0.5 else 1 for d in shape]
        if case.rng.random() < 0.3:
            other = other[case.number(0, len(other) - 1):]
    return (shape, other) if case.rng.random() < 0.5 else (other, shape)


def operand(case, shape, dtype, low=0.004, high=0.2):
    """Of 16 bits zero points are 0."""
    if dtype == I16:
        return case.input(shape, dtype, scale=case.scale(low, high) / 256)
    return case.quantized(shape, dtype, low, high) if dtype in QUANTIZED else case.input(shape, dtype)


def result(case, dtype, scale):
    if dtype not in QUANTIZED:
        return {}
    return {"scale": scale, "zero": 0 if dtype == I16 else case.zero(dtype)}


def pair(case, dtype):
    a, b = shapes(case)
    shape = list(np.broadcast_shapes(a, b))
    kind = case.pick("ADD", "SUB", "MUL")
    x, y = operand(case, a, dtype), operand(case, b, dtype)
    extra = {}
    if dtype in QUANTIZED:
        p, q = case.scale_of(x), case.scale_of(y)
        typical = p * q * (16000 if dtype == I16 else 90) if kind == "MUL" else max(p, q)
        if dtype == I16 and kind != "MUL" and case.rng.random() < 0.4:
            # Powers of two, which one of the operands shares with the result.
            p, q = (2.0 ** case.number(-14, -9) for _ in range(2))
            case.builder.tensors[x].quantization.scale, case.builder.tensors[y].quantization.scale = [p], [q]
            extra = {"scale": max(p, q)}
        else:
            extra = result(case, dtype, typical * float(case.rng.uniform(0.7, 2)))
    table = {"ADD": "AddOptions", "SUB": "SubOptions", "MUL": "MulOptions"}[kind]
    note = f"{case.scale_of(x)} {case.scale_of(y)} {extra}" if extra else ""
    if dtype == I16 and kind != "MUL":
        extra["potScaleInt16"] = bool(case.number(0, 1))
    case.output(kind, shape, dtype, [x, y], table, 1, note, fusedActivationFunction=case.pick(*ACTIVATIONS.values())
                if dtype not in (I32, I64) else 0, **extra)


def quotient(case, dtype):
    a, b = shapes(case)
    x, y = operand(case, a, dtype), operand(case, b, dtype)
    zero = case.builder.tensors[y].quantization.zeroPoint[0] if dtype in (U8, I8) else 0
    case.values[-1] = np.where(case.values[-1] == zero, zero + (1 if zero < 100 else -1), case.values[-1]).astype(dtype)
    extra = result(case, dtype, case.scale_of(x) / case.scale_of(y) if dtype in QUANTIZED else 0)
    if dtype in (U8, I8):  # of small dividends LiteRT shifts by more than 31, which C++ leaves open
        zero = case.builder.tensors[x].quantization.zeroPoint[0]
        info = np.iinfo(dtype)
        case.values[-2] = np.where(np.abs(case.values[-2].astype(int) - zero) < 64, info.max if zero < info.min + 128 else info.min,
                                   case.values[-2]).astype(dtype)
    case.output("DIV", list(np.broadcast_shapes(a, b)), dtype, [x, y], "DivOptions", 1, **extra)


def floor_division(case, dtype):
    a, b = shapes(case)
    x, y = case.input(a, dtype), case.input(b, dtype)
    case.values[-1] = np.where(case.values[-1] == 0, 3, case.values[-1]).astype(dtype)
    kind = case.pick("FLOOR_DIV", "FLOOR_MOD")
    case.output(kind, list(np.broadcast_shapes(a, b)), dtype, [x, y], tolerance=1e-5)


def extremum(case, dtype):
    a, b = shapes(case)
    scale = {"scale": 0.1, "zero": 0 if dtype == I16 else 3} if dtype in QUANTIZED else {}
    x, y = case.input(a, dtype, **scale), case.input(b, dtype, **scale)
    case.output(case.pick("MAXIMUM", "MINIMUM"), list(np.broadcast_shapes(a, b)), dtype, [x, y], **scale)


def squared_difference(case, dtype):
    a, b = shapes(case)
    x, y = operand(case, a, dtype), operand(case, b, dtype)
    extra = result(case, dtype, (case.scale_of(x) + case.scale_of(y)) ** 2 * 30 if dtype in QUANTIZED else 0)
    case.output("SQUARED_DIFFERENCE", list(np.broadcast_shapes(a, b)), dtype, [x, y], **extra)


def power(case, dtype):
    a, b = shapes(case)
    x, y = case.input(a, dtype), case.input(b, dtype)
    if dtype == F:
        case.values[-2] = np.abs(case.values[-2])
    else:
        case.values[-2] %= 7
        case.values[-1] %= 8
    case.output("POW", list(np.broadcast_shapes(a, b)), dtype, [x, y])


def angle(case, dtype):
    shape = shapes(case)[0]
    case.output("ATAN2", shape, dtype, [case.input(shape, dtype), case.input(shape, dtype)])


def comparison(case, dtype):
    a, b = shapes(case)
    kind = case.pick("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL")
    if dtype == B:
        kind = case.pick("EQUAL", "NOT_EQUAL")
    if dtype in (I8, U8):
        x, y = operand(case, a, dtype), operand(case, b, dtype)
        if case.rng.random() < 0.5:
            case.builder.tensors[y].quantization = case.builder.tensors[x].quantization
    else:
        x, y = case.input(a, dtype), case.input(b, dtype)
    if dtype != F:
        case.values[-1] = np.where(case.rng.random(b) < 0.5, case.values[-1], case.values[-2].flat[0]).astype(dtype)
    case.output(kind, list(np.broadcast_shapes(a, b)), B, [x, y], note=f"{np.dtype(dtype).name}")


def logical(case, dtype):
    a, b = shapes(case)
    case.output(case.pick("LOGICAL_AND", "LOGICAL_OR"), list(np.broadcast_shapes(a, b)), B, [case.input(a, B), case.input(b, B)])


def bitwise(case, dtype):
    a, b = shapes(case)
    x, y = case.input(a, dtype), case.input(b, dtype)
    kind = case.pick("BITWISE_XOR", "RIGHT_SHIFT")
    if kind == "RIGHT_SHIFT":
        case.values[-1] = (case.values[-1] % (8 * np.dtype(dtype).itemsize)).astype(dtype)
    case.output(kind, list(np.broadcast_shapes(a, b)), dtype, [x, y])


def select(case, dtype):
    a, b = shapes(case)
    shape = list(np.broadcast_shapes(a, b))
    if case.rng.random() < 0.5:
        return case.output("SELECT_V2", shape, dtype, [case.input(shape, B), case.input(a, dtype), case.input(b, dtype)])
    condition = shape if case.rng.random() < 0.5 else shape[:1]
    return case.output("SELECT", shape, dtype, [case.input(condition, B), case.input(shape, dtype), case.input(shape, dtype)],
                       version=4)


def unary(case, dtype):
    shape = shapes(case)[0]
    names = {F: ("ABS", "CEIL", "COS", "ELU", "EXP", "FLOOR", "GELU", "HARD_SWISH", "LOG", "LOGISTIC", "NEG", "RELU", "RELU6",
                 "RELU_0_TO_1", "RELU_N1_TO_1", "ROUND", "RSQRT", "SIGN", "SIN", "SQRT", "SQUARE", "TANH", "ZEROS_LIKE"),
             I32: ("ABS", "NEG", "SIGN", "ZEROS_LIKE"), I64: ("NEG", "ZEROS_LIKE"), B: ("LOGICAL_NOT",),
             I8: ("ABS", "ELU", "EXP", "GELU", "HARD_SWISH", "LOG", "LOGISTIC", "RELU", "RELU6", "RELU_0_TO_1", "RELU_N1_TO_1",
                  "RSQRT", "TANH"),
             U8: ("GELU", "HARD_SWISH", "LOGISTIC", "RELU", "RELU6", "RELU_0_TO_1", "RELU_N1_TO_1", "TANH"),
             I16: ("ABS", "EXP", "LOG", "LOGISTIC", "RELU", "RELU6", "RSQRT", "TANH")}
    kind = case.pick(*names[dtype])
    table = "GeluOptions" if kind == "GELU" else None
    fields = {"approximate": bool(case.number(0, 1))} if table else {}
    if dtype not in QUANTIZED:
        x = case.input(shape, dtype)
        if kind in ("LOG", "SQRT", "RSQRT"):
            case.values[-1] = np.abs(case.values[-1]) + F(0.01)
        if kind == "ROUND":
            case.values[-1] = np.round(case.values[-1] * 4) / 4
        return case.output(kind, shape, dtype, [x], table, tolerance=3e-6, **fields)
    shape = [97] + shape
    x = operand(case, shape, dtype, 0.01, 0.1)
    fixed = {"LOGISTIC": {I8: (1 / 256, -128), U8: (1 / 256, 0), I16: (1 / 32768, 0)},
             "TANH": {I8: (1 / 128, 0), U8: (1 / 128, 128), I16: (1 / 32768, 0)}}.get(kind)
    typical = {"EXP": 0.1, "LOG": 0.05, "RSQRT": 0.02}.get(kind, case.scale_of(x) * (256 if dtype == I16 else 1))
    extra = result(case, dtype, typical / (256 if dtype == I16 else 1) * float(case.rng.uniform(0.5, 2)))
    if kind in ("LOG", "RSQRT"):
        low = case.builder.tensors[x].quantization.zeroPoint[0]
        if kind == "LOG" or dtype != I16:
            case.builder.tensors[x].quantization.zeroPoint = [low := np.iinfo(dtype).min if dtype != I16 else low]
        case.values[-1] = np.maximum(case.values[-1], low + 1).astype(dtype)
    if fixed:
        extra = {"scale": fixed[dtype][0], "zero": fixed[dtype][1]}
        if dtype == I16 and case.rng.random() < 0.4:
            case.builder.tensors[x].quantization.scale = [2.0 ** case.pick(-12, -11, -10, -13)]
    return case.output(kind, shape, dtype, [x], table, 1,
                       f"{case.scale_of(x)} {extra}", **extra, **fields)


def leaky(case, dtype):
    shape = [31] + shapes(case)[0]
    x = operand(case, shape, dtype)
    extra = result(case, dtype, case.scale_of(x) * float(case.rng.uniform(0.5, 2)) if dtype in QUANTIZED else 0)
    case.output("LEAKY_RELU", shape, dtype, [x], "LeakyReluOptions", 1, alpha=float(F(case.rng.uniform(0, 0.7))), **extra)


def prelu(case, dtype):
    shape = [3] + shapes(case)[0]
    slopes = [1] * (len(shape) - 1) + [shape[-1]]
    x, w = operand(case, shape, dtype), operand(case, slopes, dtype)
    extra = result(case, dtype, case.scale_of(x) * float(case.rng.uniform(0.5, 2)) if dtype in QUANTIZED else 0)
    case.output("PRELU", shape, dtype, [x, w], **extra)


def add_n(case, dtype):
    shape = shapes(case)[0]
    case.output("ADD_N", shape, dtype, [case.input(shape, dtype) for _ in range(case.number(2, 4))], "AddNOptions")


def cast(case, dtype):
    shape = shapes(case)[0]
    to = case.pick(F, I8, U8, I16, I32, I64, B, np.float64, np.uint32, np.uint16)
    x = case.input(shape, dtype)
    if np.dtype(dtype).kind == "f":
        case.values[-1] = np.abs(case.values[-1] * 40).astype(dtype)
    case.output("CAST", shape, to, [x], "CastOptions", 1, note=f"{np.dtype(dtype).name}")


def bitcast(case, dtype):
    shape = shapes(case)[0]
    kinds = {4: (F, I32, np.uint32), 8: (I64, np.float64), 1: (I8, U8), 2: (I16, np.uint16)}
    x = case.input(shape, dtype)
    case.output("BITCAST", shape, case.pick(*kinds[np.dtype(dtype).itemsize]), [x], note=f"{np.dtype(dtype).name}")


def requantize(case, dtype):
    shape = [41] + shapes(case)[0]
    if dtype == F:
        to = case.pick(U8, I8, I16)
        scale = case.scale(0.01, 0.05) / (256 if to == I16 else 1)
        return case.output("QUANTIZE", shape, to, [case.input(shape, F)], **result(case, to, scale))
    x = operand(case, shape, dtype)
    if case.rng.random() < 0.3:
        return case.output("DEQUANTIZE", shape, F, [x])
    to = case.pick(*{I8: (I8, U8, I16), U8: (I8, U8), I16: (I8, I16, I32)}[dtype])
    units = (256 if dtype == I16 else 1) / (256 if to == I16 else 1)
    extra = {"scale": case.scale_of(x) * float(case.rng.uniform(0.5, 3)) * units, "zero": 0 if to in (I16, I32) else case.zero(to)}
    return case.output("QUANTIZE", shape, to, [x], note=f"{case.scale_of(x)} {extra}", **extra)


KINDS = {
    "pair": (pair, (F, I8, U8, I16, I16, I32, I64)),
    "quotient": (quotient, (F, U8, I8, I32)),
    "floor_division": (floor_division, (F, I8, I16, I32)),
    "extremum": (extremum, (F, I8, U8, I16, I32, I64)),
    "squared_difference": (squared_difference, (F, I8, I32)),
    "power": (power, (F, I32)),
    "angle": (angle, (F,)),
    "comparison": (comparison, (F, I8, U8, I32, I64, B)),
    "logical": (logical, (B,)),
    "bitwise": (bitwise, (I8, U8, I16, I32)),
    "select": (select, (F, I8, U8, I16, I32, I64, B)),
    "unary": (unary, (F, I8, U8, I16, I32, I64, B)),
    "unary2": (unary, (F, F, I8, U8, I16)),
    "unary3": (unary, (F, F, I8, U8, I16)),
    "leaky": (leaky, (F, I8, U8, I16)),
    "prelu": (prelu, (F, I8, U8)),
    "add_n": (add_n, (F, I32)),
    "cast": (cast, (F, I8, U8, I16, I32, I64, B)),
    "bitcast": (bitcast, (F, I8, U8, I16, I32, I64)),
    "requantize": (requantize, (F, I8, U8, I16)),
}


if __name__ == "__main__":
    sys.exit(tflite_cases.main_of_kinds(KINDS))
