#!/usr/bin/env python3
"""The same tensor expressions in Python and in C++ (te_kernels.cpp) are the same text, which can be read and checked.

    te_cpp_test.py TE_KERNELS
"""

import functools
import math
import operator
import subprocess
import sys
import unittest

import ml_dtypes
import numpy as np

from tessera import te


def matmul():
    A, B = te.placeholder((24, 20), name="A"), te.placeholder((20, 48), name="B")
    k = te.reduce_axis(20, "k")
    return [A, B, te.compute((24, 48), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")]


def conv2d():
    x, w = te.placeholder((1, 8, 14, 14), name="x"), te.placeholder((16, 8, 3, 3), name="w")
    padded = te.compute(
        (1, 8, 16, 16),
        lambda n, c, y, z: te.select((y >= 1) & (y < 15) & (z >= 1) & (z < 15), x[n, c, y - 1, z - 1], 0.0), name="padded")
    c, dy, dz = te.reduce_axis(8, "c"), te.reduce_axis(3, "dy"), te.reduce_axis(3, "dz")
    out = te.compute((1, 16, 14, 14), lambda n, o, y, z: te.sum(padded[n, c, y + dy, z + dz] * w[o, c, dy, dz], axis=[c, dy, dz]),
                     name="out")
    return [x, w, out]


def softmax():
    x = te.placeholder((5, 7), name="x")
    m, k = te.reduce_axis(7, "j"), te.reduce_axis(7, "k")
    top = te.compute((5,), lambda i: te.max_reduce(x[i, m], axis=m), name="top")
    e = te.compute((5, 7), lambda i, j: te.exp(x[i, j] - top[i]), name="i")
    total = te.compute((5,), lambda i: te.sum(e[i, k], axis=k), name="total")
    return [x, te.compute((5, 7), lambda i, j: e[i, j] / total[i], name="y")]


def bytes_():
    a, b = te.placeholder((8, 32), "uint8", "a"), te.placeholder((32, 16), "int8", "b")
    k = te.reduce_axis(32, "k")
    return [a, b, te.compute((8, 16), lambda i, j: te.sum(te.cast(a[i, k], "int32") * te.cast(b[k, j], "int32"), axis=k), name="c")]


def scalar():
    x = te.placeholder((6, 9), name="x")
    i, j = te.reduce_axis(6, "i"), te.reduce_axis(9, "j")
    total = te.compute((), lambda: te.sum(x[i, j], axis=[i, j]), name="total")
    return [x, total, te.compute((), lambda: total[()] / 54, name="mean")]


def extremes():
    inputs, outputs = [], []
    for number, dtype in ((1, "float64"), (4, ml_dtypes.bfloat16), (16, "int64"), (17, "int32"), (18, "int16"), (19, "int8"),
                          (24, "uint64"), (27, "uint8")):
        x, k = te.placeholder((3,), dtype, f"x{number}"), te.reduce_axis(3)
        inputs.append(x)
        outputs.append(te.compute((), lambda: te.min_reduce(x[k], axis=k), name=f"least{number}"))
        outputs.append(te.compute((), lambda: te.max_reduce(x[k], axis=k), name=f"most{number}"))
    return inputs + outputs


def operations():
    x, n, u = te.placeholder((4, 4), name="x"), te.placeholder((4, 4), "int32", "n"), te.placeholder((4, 4), "uint64", "u")
    d = te.placeholder((), "float64", "d")

    def floats(i, j):
        v = x[i, j]
        return (te.fma(te.sqrt(te.max(v, 0)), te.tanh(-v), te.erf(te.min(v, 1e-5))) + te.log(te.exp(v)) * 3
                - 1 / (v - 2.5) + v * np.float32(0.1) + v * 1e16 + v * 123456789.0 - v * -0.0 + v * 1e22
                + te.select(v <= math.inf, v, -math.inf))

    def whole(i, j):
        v = n[(i + j) % 4, (i * 2 + 1) // 3]
        return te.select((v > 7) | (v >= 3), (v & 15) ^ 2.0, v // -3) + te.cast(i, "int32")

    def large(i, j):
        return te.min(te.max(u[3 - i, 2.0], 18446744073709551615), 1e19) - te.cast(j, "uint64")

    def doubles():
        return functools.reduce(
            operator.add, (0.1, 1e15, 1e16, 123456789012345680.0, 1e-4, 1e-5, 1.5e-7, 5e-324, 1e300, 2.0 / 3, -0.0), d[()])

    matrices = (te.compute((4, 4), f, name=f.__name__) for f in (floats, whole, large))
    return [x, n, u, d, *matrices, te.compute((), doubles, name="doubles")]


KERNELS = {f.__name__.rstrip("_"): f for f in (matmul, conv2d, softmax, bytes_, scalar, extremes, operations)}


class SameText(unittest.TestCase):
    maxDiff = None

    def test_every_kernel(self):
        printed = subprocess.run([sys.argv_te_kernels], check=True, text=True, stdout=subprocess.PIPE).stdout
        parts = printed.split("// ")[1:]
        texts = dict(part.split("\n", 1) for part in parts)
        self.assertEqual(list(texts), list(KERNELS))
        for name, make in KERNELS.items():
            with self.subTest(name):
                self.assertEqual(texts[name], te.lower(make(), name))

    def test_they_are_programs(self):
        for name, make in KERNELS.items():
            with self.subTest(name):
                checks = te.Schedule(make()).check()
                self.assertTrue(checks, checks)


if __name__ == "__main__":
    sys.argv_te_kernels = sys.argv.pop(1)
    unittest.main()
