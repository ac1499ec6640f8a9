#!/usr/bin/env python3
"""The tutorial's matrix product in Python, in four steps: tensor expressions, and methods of a schedule.

    PYTHONPATH=build/python python examples/schedules/matmul/tutorial.py [SIZE]
"""

import sys

import numpy as np

from tessera import te

n = int(sys.argv[1]) if len(sys.argv) > 1 else 512
A, B = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
k = te.reduce_axis(n, "k")
C = te.compute((n, n), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")


def show(what, schedule):
    assert schedule.check(), what
    times = schedule.time(0.3, original=False)
    print(f"{what:<28}{times.scheduled_ms:10.2f} ms {100 * times.gflops / times.peak_gflops:6.1f} % of the peak")


s = te.Schedule([A, B, C])
show("plain loops", s)

s = te.Schedule([A, B, C])
s.decompose_reduction("C", "j")
s.reorder(["k", "j"])
show("rows of B", s)

s = te.Schedule([A, B, C])
j0, j1 = s.split("j", [None, 16])
s.decompose_reduction("C", j0)
s.reorder(["k", j0, j1])
s.vectorize(j1)
show("vectors", s)

s = te.Schedule([A, B, C])
acc = s.cache_write("C", "local")
i0, i1 = s.split("i", [None, 8])
j0, j1, lane = s.split("j", [None, 2, 16])
s.reorder([j0, i0, i1, j1, lane])
s.decompose_reduction(acc, i1)
s.reorder(["k", j1, i1, lane])
packed = s.cache_read("B", "local")
s.compute_at(packed, j0)
s.transform_layout(packed, lambda k, j: (k, j // 16, j % 16))
s.reverse_compute_at("C", i0)
s.transform_layout(acc, lambda i, j: (j // 16, i, j % 16))
s.set_scope(acc, "register")
for loop in (f"{i1}_init", f"{j1}_init", j1, i1):
    s.unroll(loop)
for loop in (f"{lane}_init", lane):
    s.vectorize(loop)
c, cl = s.split("C_1", [2, 16])
s.unroll("C_0")
s.unroll(c)
s.vectorize(cl)
s.annotate(f"{acc}.update", "fma", 1)
show("a packed panel, registers", s)

a, b = (np.random.default_rng(seed).standard_normal((n, n)).astype(np.float32) for seed in (1, 2))
(result,) = s.run([a, b])
assert np.abs(result - a @ b).max() < 1e-4 * np.abs(a @ b).max()
