#!/usr/bin/env python3
"""Chains of kernels whose results have several readers, or values near the end of the range: beside numpy in f64, on one
thread and two. What one kernel reads may not be written over by another that reads it before, and quotients are not
moved behind a product whose sums would be infinite.

    .venv/bin/python tests/e2e/fuse_rows.py build/bin/tessera
"""
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import parser


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


MASKED = np.where(np.arange(40) % 7 == 3, -np.inf, 0).reshape(1, 40, 1)

# Name, shapes of the inputs and what is drawn for them (mean, deviation), nodes, and the same in numpy.
CHAINS = [
    ("a copy is read through, its source by another kernel too", {"y": ([64, 16, 40], 0, 1), "k": ([64, 24, 16], 0, 1)},
     "x = Softmax<axis=-1>(y) q = Slice(x, from, to, last) r = Sigmoid(x) s = MatMul(q, k) z = MatMul(s, r)",
     lambda y, k: softmax(y)[:, :, :24] @ k @ sigmoid(softmax(y))),
    ("the same at odd sizes", {"y": ([4, 3, 31], 0, 1), "k": ([4, 24, 3], 0, 1)},
     "x = Softmax<axis=-1>(y) q = Slice(x, from, to, last) r = Sigmoid(x) s = MatMul(q, k) z = MatMul(s, r)",
     lambda y, k: softmax(y)[:, :, :24] @ k @ sigmoid(softmax(y))),
    ("a quotient, its dividend is read by another kernel too", {"y": ([64, 16, 24], 0, 1), "k": ([64, 24, 16], 0, 1)},
     "e = Exp(y) t = ReduceSum(e, last) d = Div(e, t) r = Sigmoid(e) p = MatMul(d, k) z = MatMul(p, r)",
     lambda y, k: np.exp(y) / np.exp(y).sum(axis=2, keepdims=True) @ k @ sigmoid(np.exp(y))),
    ("a softmax of the user's own, its products finite", {"y": ([2, 400, 400], 70, 0.1), "k": ([2, 400, 32], 5e5, 1e5)},
     "e = Exp(y) t = ReduceSum(e, last) d = Div(e, t) z = MatMul(d, k)",
     lambda y, k: np.exp(y) / np.exp(y).sum(axis=2, keepdims=True) @ k),
    ("long rows, the exponentials turned", {"q": ([30, 10, 16], 0, 1), "k": ([16, 1300], 0, 0.3), "v": ([16, 1300], 0, 1)},
     "s = MatMul(q, k) m = ReduceMax<axes=[2]>(s) w = Sub(s, m) e = Exp(w) f = Transpose<perm=[0,2,1]>(e)"
     "t = ReduceSum(f, middle) p = MatMul(v, f) z = Div(p, t)",
     lambda q, k, v: v @ softmax(q @ k).transpose(0, 2, 1)),
    ("long rows, the exponentials of one for several", {"q": ([50, 1, 16], 0, 1), "k": ([16, 1300], 0, 0.3), "v": ([1300, 16], 0, 1)},
     "s = MatMul(q, k) m = ReduceMax<axes=[2]>(s) w = Sub(s, m) x = Expand(w, three) e = Exp(x) t = ReduceSum(e, last)"
     "p = MatMul(e, v) z = Div(p, t)",
     lambda q, k, v: np.repeat(softmax(q @ k), 3, axis=1) @ v),
    ("long rows, some masked as a whole, something added to the sum",
     {"q": ([2, 40, 16], 0, 1), "k": ([2, 16, 1300], 0, 0.3), "v": ([2, 1300, 16], 0, 1), "mask": ([2, 40, 1], MASKED, 0)},
     "r = MatMul(q, k) s = Add(r, mask) m = ReduceMax<axes=[2]>(s) w = Sub(s, m) e = Exp(w) t = ReduceSum(e, last)"
     "u = Max(t, small) p = MatMul(e, v) z = Div(p, u)",
     lambda q, k, v, mask: softmax(q @ k + mask) @ v),
    ("one with the maximum", {"y": ([2, 400, 400], 0, 30), "k": ([2, 400, 32], 0, 1)},
     "m = ReduceMax<axes=[2]>(y) w = Sub(y, m) e = Exp(w) t = ReduceSum(e, last) d = Div(e, t) z = MatMul(d, k)",
     lambda y, k: softmax(y) @ k),
]


def main():
    tessera = sys.argv[1]
    rng = np.random.default_rng(1)
    problems = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        for name, inputs, nodes, reference in CHAINS:
            arrays = {key: rng.normal(mean, deviation, shape).astype(np.float32)
                      for key, (shape, mean, deviation) in inputs.items()}
            want = reference(*(array.astype(np.float64) for array in arrays.values()))
            signature = ", ".join(f"float[{','.join(map(str, shape))}] {key}" for key, (shape, _, _) in inputs.items())
            text = f"""<ir_version: 8, opset_import: ["" : 17]> chain ({signature}) => (float[{','.join(map(str, want.shape))}] z)
                <int64[1] from = {{0}}, int64[1] to = {{24}}, int64[1] last = {{2}}, int64[1] middle = {{1}}, float small = {{1e-9}},
                int64[3] three = {{50, 3, 1300}}> {{ {nodes} }}"""
            onnx.save(parser.parse_model(text), folder / "m.onnx")
            for key, array in arrays.items():
                np.save(folder / f"{key}.npy", array)
            for threads in ("1", "2"):
                command = [tessera, "run", folder / "m.onnx", "--no-cache", "--threads", threads, "--output",
                           f"@{folder / 'z.npy'}"]
                for key in arrays:
                    command += ["--input", f"{key}=@{folder / key}.npy"]
                run = subprocess.run(command, capture_output=True, text=True, check=False)
                off = np.nan
                if run.returncode == 0:
                    got, finite = np.load(folder / "z.npy"), np.isfinite(want)
                    same = np.array_equal(np.isnan(got), np.isnan(want))
                    off = np.abs(got - want)[finite].max() / np.abs(want[finite]).max() if same else np.inf
                if not off <= 1e-4:
                    problems.append(f"{name}, {threads} threads: off by {off:.2g} of the largest element {run.stderr}")
    print(*problems, f"{len(CHAINS)} chains, {len(problems)} wrong", sep="\n")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
