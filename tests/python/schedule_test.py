#!/usr/bin/env python3
"""tessera.te: tensor expressions, every method of Schedule, errors, and the tutorial in Python."""

import inspect
import pathlib
import subprocess
import sys
import unittest

import numpy as np

import tessera
from tessera import te

ROOT = pathlib.Path(__file__).resolve().parents[2]
RNG = np.random.default_rng(3)


def matmul(m=24, n=48, k=20):
    A, B = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    r = te.reduce_axis(k, "k")
    return [A, B, te.compute((m, n), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="C")]


class Expressions(unittest.TestCase):
    def close(self, program, arrays, want):
        s = te.Schedule(program)
        self.assertTrue(s.check())
        got = s.run(arrays)[0]
        self.assertEqual(got.dtype, want.dtype)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)

    def test_elementwise_and_stages(self):
        x = te.placeholder((5, 7), name="x")
        m = te.reduce_axis(7, "m")
        top = te.compute((5,), lambda i: te.max_reduce(x[i, m], axis=m), name="top")
        e = te.compute((5, 7), lambda i, j: te.exp(x[i, j] - top[i]), name="e")
        k = te.reduce_axis(7, "k")
        total = te.compute((5,), lambda i: te.sum(e[i, k], axis=k), name="total")
        y = te.compute((5, 7), lambda i, j: e[i, j] / total[i], name="y")
        a = RNG.standard_normal((5, 7)).astype(np.float32)
        want = np.exp(a - a.max(1, keepdims=True))
        self.close([x, y], [a], want / want.sum(1, keepdims=True))

    def test_select_cast_and_integers(self):
        x = te.placeholder((6, 4), "int32", "x")
        y = te.compute((4, 6), lambda i, j: te.select(x[j, i] > 2, te.cast(x[j, i], "float32") * 0.5, -1.0), name="y")
        a = RNG.integers(-5, 9, (6, 4)).astype(np.int32)
        self.close([x, y], [a], np.where(a.T > 2, a.T.astype(np.float32) * np.float32(0.5), np.float32(-1)))
        k = te.reduce_axis(6)
        least = te.compute((4,), lambda i: te.min_reduce(x[k, i], axis=k), name="least")
        self.close([x, least], [a], a.min(0))

    def test_axes_and_tensors_of_one_name(self):
        image = te.placeholder((4, 6), name="x")
        t = te.compute((4, 6), lambda x, e: image[x, e] * 1e-05, name="e")
        y = te.compute((4, 6), lambda e, x: t[e, x] + image[e, x], name="y")
        self.assertIn("y[e_2, x_2] = (e[e_2, x_2] + x[e_2, x_2])", te.lower([image, y]))
        a = RNG.standard_normal((4, 6)).astype(np.float32)
        self.close([image, y], [a], a * np.float32(1e-05) + a)

    def test_the_least_of_large_numbers(self):
        x, k = te.placeholder((3,), "uint64", "x"), te.reduce_axis(3, "k")
        least = te.compute((), lambda: te.min_reduce(te.max(x[k], 2**63), axis=k), name="least")
        self.assertEqual(te.Schedule([x, least]).run([np.array([2**64 - 1, 5, 2**63 + 1], np.uint64)])[0], np.uint64(2**63))

    def test_wrong_expressions(self):
        x, y = te.placeholder((4,), name="x"), te.placeholder((4,), "int32", "y")
        k, k_ = te.reduce_axis(4, "k"), te.reduce_axis(4, "k")
        for make in (
            lambda: x[1, 2], lambda: x[0.5], lambda: x[0] + y[0], lambda: te.compute((4,), lambda i, j: x[i], name="z"),
            lambda: te.compute((4,), lambda i: 1, name="z"), lambda: te.placeholder((0,)), lambda: te.placeholder((2,), name="a b"),
            lambda: te.placeholder((2,), "complex64"), lambda: te.Schedule([x]), lambda: bool(x[0] > 1), lambda: y[0] + 0.5,
            lambda: te.Schedule([te.compute((4,), lambda i: x[i] + 1, name="z")]),
            lambda: x[0] < y[0], lambda: te.select(y[0] > 0, x[0], y[0]), lambda: te.select(y[0], 1, y[0]),
            lambda: te.fma(x[0], x[0], y[0]), lambda: y[0] + float("inf"), lambda: te.exp(te.sum(x[k], axis=k)),
            lambda: x[0] + te.sum(x[k], axis=k), lambda: te.max_reduce(x[k] > 0, axis=k), lambda: te.sum(x[0], axis=[]),
            lambda: te.compute((4,), lambda i: x[k], name="z"), lambda: te.compute((4,), lambda k: te.sum(x[k], axis=k_), name="z"),
            lambda: te.lower([x, x, te.compute((4,), lambda i: x[i], name="z")]),
            lambda: te.lower([x, te.compute((4,), lambda i: x[i], name="x")]),
        ):
            with self.assertRaises(tessera.Error) as caught:
                make()
            self.assertEqual(caught.exception.id, "TSR-4035")
            self.assertTrue(caught.exception.legal)


class Schedules(unittest.TestCase):
    def test_the_matrix_product(self):
        s = te.Schedule(matmul())
        j0, j1 = s.split("j", [None, 16])
        self.assertEqual([j0, j1], ["j_0", "j_1"])
        s.decompose_reduction("C", j0)
        s.reorder(["k", j0, j1])
        s.vectorize(j1)
        s.unroll("j_1_init")
        s.parallel("i")
        self.assertIn("vectorized for j_1", str(s))
        self.assertEqual(len(s.trace.splitlines()), 6)
        checks = s.check()
        self.assertTrue(checks and len(checks) == 2, checks)
        a, b = RNG.standard_normal((24, 20)).astype(np.float32), RNG.standard_normal((20, 48)).astype(np.float32)
        np.testing.assert_allclose(s.run([a, b])[0], a @ b, rtol=1e-4, atol=1e-4)
        times = s.time(0.05)
        self.assertTrue(times.original_ms > 0 and times.scheduled_ms > 0 and times.peak_gflops > 0)
        again = te.Schedule(matmul())
        again.apply(s.trace)
        self.assertEqual(str(again), str(s))
        for level in ("llvm", "asm", "cache"):
            self.assertTrue(s.emit(level))

    def test_every_primitive_is_a_method(self):
        names = subprocess.run([sys.argv_tessera, "schedule", "--list-primitives"], check=True, text=True,
                               stdout=subprocess.PIPE).stdout
        primitives = {line.split("=")[-1].strip().split("(")[0] for line in names.splitlines() if not line.startswith(" ")}
        methods = {name for name, _ in inspect.getmembers(te.Schedule, inspect.isfunction)}
        sampled = {name for name in primitives if name.startswith("sample_")}  # a tuner's: apply takes their lines
        self.assertEqual(primitives - methods, sampled)
        s = te.Schedule(matmul())
        self.assertEqual(s.apply("f, g = sample_perfect_tile(i, 2, 8) decided [3, 8]\na, b = split(i, [f, g])"), ["a", "b"])

    def test_the_other_methods(self):
        x = te.placeholder((32, 32), name="x")
        t = te.compute((32, 32), lambda i, j: x[i, j] * 2.0, name="t")
        y = te.compute((32, 32), lambda i, j: t[i, j] + 1.0, name="y")
        s = te.Schedule([x, y])
        s.compute_inline("t")
        self.assertNotIn("t", s.buffers)
        f = s.fuse(*s.loops[-2:])
        s.pad(f, 100)
        self.assertTrue(s.check())
        s = te.Schedule([x, y])
        s.compute_at("t", s.loops[-2])
        s.store_at("t", s.loops[0])
        self.assertTrue(s.check())
        s = te.Schedule([x, y])
        copy = s.cache_read("x", "local", reader="t")
        s.transform_layout(copy, lambda i, j: (j, i))
        self.assertTrue(s.check())
        s = te.Schedule(matmul())
        part = s.rfactor("C.update", "k")
        self.assertIn(part, s.buffers)
        self.assertTrue(s.check())
        s = te.Schedule(matmul())
        i0, j0, i1, j1 = s.tile("i", "j", 4, 8)
        s.blockize(j1)
        with self.assertRaises(tessera.Error):
            s.vectorize(j1)
        self.assertTrue(s.check())
        s = te.Schedule([x, y])
        s.virtual_thread(s.split(s.loops[-1], [None, 4])[1])
        self.assertTrue(s.check())

    def test_intrinsics(self):
        s = te.Schedule(matmul(n=64), intrinsics=ROOT / "examples/schedules/intrinsics/user.intrin")
        self.assertEqual(s.intrinsic("user.two_halves"), [16, 1])
        _, lane = s.split("j", [None, 16])
        s.decompose_reduction("C", "j_0")
        s.reorder(["k", "j_0", lane])
        s.tensorize(lane)
        self.assertIn('tensorized "user.two_halves"', str(s))
        self.assertTrue(s.check())

    def test_refusals_change_nothing(self):
        s = te.Schedule(matmul())
        before = str(s)
        for step in (lambda: s.unroll("nothing"), lambda: s.split("nothing", [2, None]), lambda: s.parallel("k"),
                     lambda: s.bind("k", "threadIdx.x"), lambda: s.apply("split(i, [_, 4])\nparallel(k)"),
                     lambda: s.tensorize("i", "no.such"), lambda: s.split("i", ["a b"]),
                     lambda: s.emit("nothing"), lambda: s.run([np.zeros(3)])):
            with self.assertRaises(tessera.Error) as caught:
                step()
            self.assertTrue(caught.exception.id.startswith("TSR-"), caught.exception)
            self.assertEqual(str(s), before)
        with self.assertRaises(tessera.Error):
            te.Schedule("kernel @k(")

    def test_the_tutorial(self):
        script = ROOT / "examples/schedules/matmul/tutorial.py"
        result = subprocess.run([sys.executable, script, "64"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertEqual(len(result.stdout.splitlines()), 4, result.stdout)


if __name__ == "__main__":
    sys.argv_tessera = sys.argv.pop(1)
    unittest.main()
