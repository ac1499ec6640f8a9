#!/usr/bin/env python3
"""Convolutions and products whose outputs have few channels, or few behind whole vectors, so that lanes of a vector are
parts of one sum (schedule/rules/register_tile/lane_split.cpp): beside numpy in f64, on every target that this machine runs.

    .venv/bin/python tests/e2e/narrow_outputs.py build/bin/tessera [--random N]
"""
import argparse
import itertools
import pathlib
import random
import re
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

# operator, batch, channels in, channels out, groups (of MatMul: matrices of weights), image, window, stride, pads in front
# and behind, dilation
CASES = [("Conv", 1, 32, 1, 1, (19, 23), (3, 3), 1, (1, 1), 1), ("Conv", 2, 48, 3, 1, (12, 30), (7, 7), 1, (3, 3), 1),
         ("Conv", 1, 96, 24, 1, (14, 15), (1, 1), 1, (0, 0), 1), ("Conv", 1, 16, 40, 1, (9, 29), (1, 1), 1, (0, 0), 1),
         ("Conv", 1, 64, 8, 1, (17, 16), (4, 4), 2, (1, 2), 1), ("Conv", 3, 16, 5, 1, (40,), (5,), 1, (2, 2), 2),
         ("Conv", 1, 16, 2, 1, (5, 6, 7), (3, 3, 3), 1, (1, 1), 1), ("Conv", 1, 32, 6, 2, (11, 13), (3, 3), 1, (1, 1), 1),
         ("Conv", 1, 20, 17, 1, (8, 9), (3, 3), 1, (0, 0), 1), ("Conv", 1, 16, 4, 1, (1, 1), (1, 1), 1, (0, 0), 1),
         ("ConvTranspose", 1, 64, 3, 1, (16, 15), (4, 4), 2, (1, 1), 1),
         ("ConvTranspose", 2, 32, 1, 1, (9, 11), (5, 5), 3, (2, 2), 1),
         ("MatMul", 1, 96, 7, 1, (33,), (), 1, (), 1), ("MatMul", 2, 16, 20, 1, (50,), (), 1, (), 1),
         # One matrix of weights for each of a batch.
         ("MatMul", 3, 64, 20, 3, (30,), (), 1, (), 1), ("MatMul", 2, 16, 9, 2, (13,), (), 1, (), 1),
         ("MatMul", 2, 32, 40, 2, (29,), (), 1, (), 1)]


def window_sums(x, w, stride, pads, dilation, groups):
    """[batch, out, *places] of f64, the cross-correlation of ONNX's Conv."""
    dims = x.ndim - 2
    x = np.pad(x, [(0, 0), (0, 0)] + [pads] * dims)
    places = [(x.shape[d + 2] - (w.shape[d + 2] - 1) * dilation - 1) // stride + 1 for d in range(dims)]
    out = np.zeros((x.shape[0], w.shape[0], *places))
    into, of = w.shape[1], w.shape[0] // groups
    for tap in itertools.product(*(range(extent) for extent in w.shape[2:])):
        at = tuple(slice(t * dilation, t * dilation + (n - 1) * stride + 1, stride) for t, n in zip(tap, places))
        part = x[(slice(None), slice(None), *at)]
        for g in range(groups):
            rows = slice(g * of, (g + 1) * of)
            out[:, rows] += np.einsum("bc...,oc->bo...", part[:, g * into:(g + 1) * into], w[(rows, slice(None), *tap)])
    return out


def reference(operator, x, w, stride, pads, dilation, groups):
    if operator == "MatMul":
        return x @ w
    if operator == "Conv":
        return window_sums(x, w, stride, pads, dilation, groups)
    # Zeros between the elements, and the window turned round.
    dims = x.ndim - 2
    apart = np.zeros(x.shape[:2] + tuple((n - 1) * stride + 1 for n in x.shape[2:]))
    apart[(slice(None), slice(None), *[slice(None, None, stride)] * dims)] = x
    turned = np.flip(w, axis=tuple(range(2, w.ndim))).swapaxes(0, 1)
    reach = (w.shape[2] - 1) * dilation
    return window_sums(apart, turned, 1, (reach - pads[0], reach - pads[1]), dilation, 1)


def model_of(case, rng):
    """The model behind a pointwise convolution, so that what is read lies in blocks of channels; its input, and the
    output in f64."""
    operator, batch, into, out, groups, image, window, stride, pads, dilation = case
    if operator == "MatMul":
        x, w = rng.standard_normal((batch, *image, into)), rng.standard_normal((*[groups] * (groups > 1), into, out))
        x, w = x.astype(np.float32), w.astype(np.float32)
        nodes, constants = [helper.make_node("MatMul", ["x", "w"], ["t"])], {"w": w}
        y = x.astype(np.float64) @ w.astype(np.float64)
    else:
        x = rng.standard_normal((batch, 3, *image)).astype(np.float32)
        first = rng.standard_normal((into, 3, *[1] * len(image))).astype(np.float32)
        w = rng.standard_normal((into, out, *window) if operator == "ConvTranspose" else (out, into // groups, *window))
        w = w.astype(np.float32)
        nodes = [helper.make_node("Conv", ["x", "first"], ["a"]),
                 helper.make_node(operator, ["a", "w"], ["t"], group=groups, strides=[stride] * len(image),
                                  dilations=[dilation] * len(image),
                                  pads=[pads[0]] * len(image) + [pads[1]] * len(image))]
        constants = {"first": first, "w": w}
        a = window_sums(x.astype(np.float64), first.astype(np.float64), 1, (0, 0), 1, 1)
        y = reference(operator, a, w.astype(np.float64), stride, pads, dilation, groups)
    nodes.append(helper.make_node("Relu", ["t"], ["y"]))
    graph = helper.make_graph(nodes, "narrow", [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, y.shape)],
                              [numpy_helper.from_array(value, name) for name, value in constants.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), x, np.maximum(y, 0)


def random_case(r):
    dims = r.choice([1, 2, 2, 2, 3])
    operator = r.choice(["Conv", "Conv", "Conv", "ConvTranspose", "MatMul"])
    image = tuple(r.randint(1, 24 if dims < 3 else 7) for _ in range(dims))
    extent, dilation = r.choice([1, 1, 2, 3, 5]), r.choice([1, 1, 2])
    if operator == "ConvTranspose":
        dilation = 1
    into, groups = r.choice([8, 16, 24, 32, 64]), r.choice([1, 1, 1, 2]) if operator != "ConvTranspose" else 1
    reach = (extent - 1) * dilation
    pads = (r.randint(0, reach), r.randint(0, reach))
    if operator == "ConvTranspose" and min((n - 1) + extent for n in image) - sum(pads) < 1:
        pads = (0, 0)
    if operator == "Conv" and any(n + sum(pads) < reach + 1 for n in image):
        pads = (reach, reach)
    if operator == "MatMul":
        return (operator, groups, into, r.randint(1, 50), groups, image[:1], (), 1, (), 1)
    return (operator, r.choice([1, 2, 3]), into, groups * r.choice([1, 2, 3, 4, 5, 8, 17, 20, 24, 40]), groups,
            image, (extent,) * dims, r.choice([1, 1, 2, 3]), pads, dilation)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tessera")
    parser.add_argument("--random", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rng, r = np.random.default_rng(args.seed), random.Random(args.seed)
    targets = ["x86-64-v2", "x86-64-v3", "x86-64-v4"]
    ran, problems = 0, []
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        for case in CASES + [random_case(r) for _ in range(args.random)]:
            model, x, want = model_of(case, rng)
            onnx.save(model, folder / "m.onnx")
            np.save(folder / "x.npy", x)
            for target in targets:
                done = subprocess.run([args.tessera, "run", folder / "m.onnx", "--target", target, "--threads",
                                       str(r.choice([1, 2, 3])), "-i", f"x=@{folder / 'x.npy'}", "-o", f"@{folder / 'y.npy'}",
                                       "--no-cache"], capture_output=True, text=True)
                if done.returncode != 0:
                    if re.search("cannot run|does not run|TSR-7005", done.stderr):
                        print(f"skipped {target}: this machine does not run it")
                        continue
                    problems.append(f"{case} on {target}: {done.stderr.strip()[:300]}")
                    continue
                ran += 1
                got = np.load(folder / "y.npy")
                error = np.abs(got - want).max() / max(np.abs(want).max(), 1e-9) if want.size else 0
                if got.shape != want.shape or not error < 1e-5:
                    problems.append(f"{case} on {target}: {error:.2g} of the largest element")
    print(f"{ran} runs", *problems, sep="\n")
    return 1 if problems or ran == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
