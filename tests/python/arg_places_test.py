#!/usr/bin/env python3
"""Random ArgMax and ArgMin beside ONNX Runtime and NumPy: types, axes, ties in both directions, sizes that are fixed or open.

    arg_places_test.py [FIRST..LAST]      seeds; default 0..39"""
import random
import sys

import numpy as np
import onnxruntime
from onnx import helper

import tessera

DTYPES = [np.float32, np.float32, np.float64, np.float16, np.int8, np.uint8, np.int32, np.int64]
SIZES = [1, 2, 3, 4, 7, 16, 31, 33, 64, 100, 255, 1000]


def model(operator, dtype, dims, axis, keepdims, last):
    x = helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), dims)
    y = helper.make_tensor_value_info("y", helper.np_dtype_to_tensor_dtype(np.dtype(np.int64)), None)
    node = helper.make_node(operator, ["x"], ["y"], axis=axis, keepdims=keepdims, select_last_index=last)
    graph = helper.make_graph([node], "places", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8).SerializeToString()


def by_numpy(operator, x, axis, keepdims, last):
    search = np.argmax if operator == "ArgMax" else np.argmin
    if not last:
        return search(x, axis=axis, keepdims=bool(keepdims))
    return x.shape[axis] - 1 - search(np.flip(x, axis), axis=axis, keepdims=bool(keepdims))


def check(seed):
    pick, numbers = random.Random(seed), np.random.default_rng(seed)
    operator, dtype = pick.choice(["ArgMax", "ArgMin"]), pick.choice(DTYPES)
    shape = [pick.choice(SIZES[:8]) for _ in range(pick.randint(0, 3))] + [pick.choice(SIZES)]
    pick.shuffle(shape)
    axis = pick.randrange(-len(shape), len(shape))
    keepdims, last, is_open = pick.randint(0, 1), pick.randint(0, 1), pick.random() < 0.4
    where = pick.randrange(len(shape))
    dims = [*shape]
    if is_open:
        dims[where] = "n"
    what = f"seed {seed}: {operator} of {np.dtype(dtype).name}{dims}, axis {axis}, keepdims {keepdims}, last {last}"
    options = {"dims": {"n": (1, 1000)}} if is_open else {}
    compiled = tessera.compile(model(operator, dtype, dims, axis, keepdims, last), threads=1 + seed % 2, **options)
    for size in ([shape[where], 1, pick.choice(SIZES), 1000] if is_open else [shape[where]]):
        shape[where] = size
        span = pick.choice([2, 10, 100])
        x = (numbers.integers(0, span, shape) - (0 if np.dtype(dtype).kind == "u" else span // 2)).astype(dtype)
        if np.dtype(dtype).kind == "f" and pick.random() < 0.3:
            x[numbers.random(shape) < 0.2] = -np.inf if operator == "ArgMax" else np.inf
        got = compiled.run([x])[0]
        want = by_numpy(operator, x, axis, keepdims, last)
        assert got.shape == want.shape and np.array_equal(got, want), f"{what}, n = {size}: {got} instead of {want}"
        try:
            session = onnxruntime.InferenceSession(model(operator, dtype, dims, axis, keepdims, last), providers=["CPUExecutionProvider"])
        except onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented:
            continue  # of this type
        assert np.array_equal(got, session.run(None, {"x": x})[0]), f"{what}, n = {size}: ONNX Runtime"


def main():
    first, last = (int(s) for s in sys.argv[1].split("..")) if len(sys.argv) > 1 else (0, 39)
    for seed in range(first, last + 1):
        check(seed)
    print(f"{last - first + 1} models agree")


if __name__ == "__main__":
    main()
