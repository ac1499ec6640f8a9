#!/usr/bin/env python3
"""Models whose data decide sizes, compiled as one graph: no step of a flow is left, and outputs are ONNX Runtime's with
none, one, some and all of the elements. The same models as flows (--disable-pass symbolic_sizes) give the same.
Written as ONNX they compute the same, and are graphs again; `diff` compares them with ONNX Runtime and finds nothing.

    data_sizes.py TESSERA [--match REGEX] [--rotate N]

--rotate takes every Nth model, others each day (all with TESSERA_TEST_FULL=1)."""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np
import onnx.parser
import onnxruntime

import model_runs

HEADER = '<ir_version: 10, opset_import: ["": 18]>\n'
RNG = np.random.default_rng(3)
N, WIDTH = 37, 12
MASKS = [np.zeros(N, bool), np.arange(N) == 20, RNG.random(N) < 0.4, np.ones(N, bool)]
X = RNG.standard_normal((N, WIDTH)).astype(np.float32)
W = RNG.standard_normal((WIDTH, 20)).astype(np.float32)
V = RNG.standard_normal((20, 7)).astype(np.float32)
ROWS = ("t = NonZero(m)\n z1 = Constant<value=int64[1] {0}>()\n i = Squeeze(t, z1)\n r = Gather<axis=0>(x, i)\n")


def rows(text):
    """A model on the rows r [c,12] of x at which m holds."""
    return ("m (bool[37] m, float[37,12] x, float[12,20] w, float[20,7] v" + text.replace("{rows}", ROWS),
            [[mask, X, W, V] for mask in MASKS])


def ints(*values):
    return np.array(values, np.int64)


def boxes(threshold):
    corners = RNG.random((2, 60, 2), dtype=np.float32) * 8
    return [np.concatenate([corners, corners + 1 + RNG.random((2, 60, 2), dtype=np.float32) * 3], 2),
            RNG.random((2, 3, 60), dtype=np.float32), np.array([threshold], np.float32)]


# name -> (model text, the inputs of each run)
CASES = {
    "first_light": rows(") => (float[K,7] y) { {rows} a = MatMul(r, w)\n b = Relu(a)\n y = MatMul(b, v) }"),
    "compress": ("m (bool[37] m, float[37,12] x, float[12,20] w) => (float[K,20] y) {\n r = Compress<axis=0>(x, m)\n y = MatMul(r, w) }",
                 [[mask, X, W] for mask in MASKS]),
    "compress_columns": ("m (bool[12] m, float[37,12] x) => (float[37,K] y, float[L] z) { y = Compress<axis=1>(x, m)\n"
                         "q = Greater(x, x)\n z = Compress(y, m) }", [[mask[:12], X] for mask in MASKS]),
    "non_zero": ("m (float[37,12] x) => (int64[2,K] i) { i = NonZero(x) }",
                 [[X * mask[:, None]] for mask in MASKS]),
    "non_zero_counted": rows(") => (int64[1] n, float[K] s, float all) { {rows} n = Shape<start=0, end=1>(r)\n"
                             "one = Constant<value=int64[1] {1}>()\n s = ReduceSum<keepdims=0>(r, one)\n all = ReduceSum<keepdims=0>(r) }"),
    "twice": rows(") => (float[L,12] y, float[K,12] z) { {rows} zero = Constant<value=int64 {0}>()\n"
                  "c = Gather<axis=1>(r, zero)\n h = Constant<value=float {0.2}>()\n q = Greater(c, h)\n"
                  "y = Compress<axis=0>(r, q)\n z = Exp(r) }"),
    "pairwise": rows(") => (float[K,K] y) { {rows} t1 = Transpose<perm=[1,0]>(r)\n y = MatMul(r, t1) }"),
    "softmax": rows(") => (float[K,20] y) { {rows} a = MatMul(r, w)\n y = Softmax<axis=-1>(a) }"),
    "scatter_back": rows(") => (float[37,12] y) { {rows} h = Constant<value=float {2}>()\n d = Mul(r, h)\n"
                         "u = Unsqueeze(i, one)\n y = ScatterND(x, u, d) }".replace(
                             "{rows}", "{rows} one = Constant<value=int64[1] {1}>()\n")),
    "top_k": ("m (float[5,37] x, int64[1] k) => (float[5,K] v, int64[5,K] i) { v, i = TopK(x, k) }",
              [[X.T[:5].copy(), ints(k)] for k in (0, 1, 9, 37)]),
    "unique": ("m (int64[37] x) => (int64[K] y, int64[K] f, int64[37] g, int64[K] n) { y, f, g, n = Unique(x) }",
               [[RNG.integers(0, most, N)] for most in (1, 2, 12, 1000)]),
    "unique_rows": ("m (float[37,2] x) => (float[K,2] y) { y = Unique<axis=0, sorted=0>(x) }",
                    [[RNG.integers(0, most, (N, 2)).astype(np.float32)] for most in (1, 2, 12)]),
    "suppression": ("m (float[2,60,4] b, float[2,3,60] s, float[1] t) => (int64[K,3] i, float[K,4] y) {\n"
                    "most = Constant<value=int64[1] {10}>()\n iou = Constant<value=float[1] {0.4}>()\n"
                    "i = NonMaxSuppression(b, s, most, iou, t)\n two = Constant<value=int64 {2}>()\n"
                    "zero = Constant<value=int64 {0}>()\n j = Gather<axis=1>(i, two)\n n = Gather<axis=1>(i, zero)\n"
                    "sixty = Constant<value=int64 {60}>()\n at = Mul(n, sixty)\n place = Add(at, j)\n"
                    "flat = Constant<value=int64[2] {120,4}>()\n all = Reshape(b, flat)\n y = Gather<axis=0>(all, place) }",
                    [boxes(t) for t in (0.0, 0.5, 0.97, 2.0)]),
    "slice": ("m (float[37,12] x, int64[1] n) => (float[K,12] y, float[L,12] z) { zero = Constant<value=int64[1] {0}>()\n"
              "e = Constant<value=int64[1] {100}>()\n y = Slice(x, zero, n, zero)\n z = Slice(x, n, e, zero) }",
              [[X, ints(n)] for n in (0, 1, 30, 37, -3)]),
    "range": rows(") => (int64[K] y, float[K,3] f) { {rows} zero = Constant<value=int64 {0}>()\n one = Constant<value=int64 {1}>()\n"
                  "wide = Cast<to=7>(m)\n n = ReduceSum<keepdims=0>(wide)\n y = Range(zero, n, one)\n"
                  "z2 = Constant<value=int64[1] {0}>()\n n1 = Unsqueeze(n, z2)\n three = Constant<value=int64[1] {3}>()\n"
                  "s = Concat<axis=0>(n1, three)\n f = ConstantOfShape<value=float[1] {7}>(s) }"),
    "reshaped": rows(") => (float[L,3] y, float[K,2,6] z) { {rows} a = Constant<value=int64[2] {-1,3}>()\n y = Reshape(r, a)\n"
                     "n = Shape<start=0, end=1>(r)\n b = Constant<value=int64[2] {2,6}>()\n s = Concat<axis=0>(n, b)\n"
                     "z = Reshape(r, s) }"),
    "joined": rows(") => (float[A,12] y) { {rows} p = Constant<value=int64[4] {1,0,2,0}>()\n d = Pad(r, p)\n"
                   "y = Concat<axis=0>(d, x, r) }"),
}

# name -> (model text, inputs, what the error says)
ERRORS = {"top_k": (CASES["top_k"][0], [X.T[:5].copy(), ints(38)], "TSR-7040: .*'K'.* is 38; .*0 to 37")}


os.environ.setdefault("TESSERA_PYTHON", sys.executable)  # for diff --against onnxruntime


def run(command):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True)


def operators_of(tessera, module):
    return json.loads(run([tessera, "inspect", module, "--json"]).stdout).get("operators", {})


def run_module(tessera, folder, module, proto, given):
    """The results, or what went wrong."""
    arguments = []
    for info, value in zip(proto.graph.input, given):
        np.save(folder / f"{info.name}.npy", value)
        arguments += ["--input", f"{info.name}=@{folder / info.name}.npy"]
    results = folder / "results"
    ran = run([tessera, "run", module, *arguments, "--output-dir", results])
    return ran.stderr if ran.returncode != 0 else [np.load(results / f"{info.name}.npy") for info in proto.graph.output]


def check(tessera, folder, name, text, runs):
    """What is wrong with one model."""
    proto = onnx.parser.parse_model(HEADER + text)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    path = folder / f"{name}.onnx"
    path.write_bytes(proto.SerializeToString())
    problems = []
    for flags in ([], ["-O0"], ["--disable-pass", "symbolic_sizes"]):
        module = folder / f"{name}.so"
        made = run([tessera, "compile", path, "-o", module, "--force", *flags])
        if made.returncode != 0:
            return [f"{name} {flags}: {made.stderr}"]
        operators = operators_of(tessera, module)
        steps = [operator for operator in operators if operator.startswith("flow.")]
        if bool(steps) != bool(flags[:1] == ["--disable-pass"]):
            problems.append(f"{name} {flags}: steps of a flow: {steps}")
        for number, given in enumerate(runs):
            want = session.run(None, {info.name: value for info, value in zip(proto.graph.input, given)})
            results = run_module(tessera, folder, module, proto, given)
            if isinstance(results, str):
                problems.append(f"{name} {flags}, run {number}: {results}")
                continue
            for info, expected, found in zip(proto.graph.output, want, results):
                if found.shape != expected.shape or found.dtype != expected.dtype or not np.allclose(
                        found, expected, rtol=1e-4, atol=1e-4):
                    problems.append(f"{name} {flags}, run {number}: {info.name} is {found.dtype}{found.shape} instead of "
                                    f"{expected.dtype}{expected.shape}, or differs")
    problems += written_as_onnx(tessera, folder, name, proto, runs)
    problems += differences(tessera, folder, name, proto, runs[-2 if len(runs) > 1 else 0])
    return problems


def written_as_onnx(tessera, folder, name, proto, runs):
    """What is wrong with what `export` writes: it is a graph again and computes the same, with ONNX Runtime where it has
    the operators, else with Tessera."""
    path, written, module = (folder / f"{name}{ending}" for ending in (".onnx", ".written.onnx", ".written.so"))
    made = run([tessera, "export", path, "-o", written])
    if made.returncode != 0:
        return [f"{name}: export: {made.stderr}"]
    model = onnx.load(written)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    sessions = [onnxruntime.InferenceSession(each.SerializeToString(), options, providers=["CPUExecutionProvider"])
                for each in (proto, model) if not any(node.domain for node in each.graph.node)]
    made = run([tessera, "compile", written, "-o", module, "--force"])
    if made.returncode != 0:
        return [f"{name}: written as ONNX: {made.stderr}"]
    if any(operator.startswith("flow.") for operator in operators_of(tessera, module)):
        return [f"{name}: written as ONNX, it is no graph"]
    problems = []
    for number, given in enumerate(runs):
        feeds = {info.name: value for info, value in zip(proto.graph.input, given)}
        want = sessions[0].run(None, feeds)
        found = sessions[1].run(None, feeds) if len(sessions) > 1 else run_module(tessera, folder, module, proto, given)
        if isinstance(found, str) or any(value.shape != expected.shape or not np.allclose(value, expected, rtol=1e-4, atol=1e-4)
                                         for expected, value in zip(want, found)):
            problems.append(f"{name}: written as ONNX, run {number}: {found if isinstance(found, str) else 'differs'}")
    return problems


def differences(tessera, folder, name, proto, given):
    """What `diff` says of a model, and of one that is compiled wrongly."""
    path = folder / f"{name}.onnx"
    arguments = []
    for info, value in zip(proto.graph.input, given):
        np.save(folder / f"{info.name}.npy", value)
        arguments += ["--input", f"{info.name}=@{folder / info.name}.npy"]
    problems = []
    for against in ("interp", "onnxruntime", "O0"):
        done = run([tessera, "diff", path, *arguments, "--against", against, "--json"])
        if done.returncode != 0 or json.loads(done.stdout)["compared"] < len(proto.graph.output):
            problems.append(f"{name}: diff --against {against}: {done.stdout}{done.stderr}")
    return problems


def check_error(tessera, folder, name, text, given, message):
    proto = onnx.parser.parse_model(HEADER + text)
    path = folder / "wrong.onnx"
    path.write_bytes(proto.SerializeToString())
    arguments = []
    for info, value in zip(proto.graph.input, given):
        np.save(folder / f"{info.name}.npy", value)
        arguments += ["--input", f"{info.name}=@{folder / info.name}.npy"]
    ran = run([tessera, "run", path, *arguments])
    return [] if re.search(message, ran.stderr) else [f"{name}: got {ran.stderr}\n  wanted {message}"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tessera")
    parser.add_argument("--match", default=".")
    parser.add_argument("--rotate", type=int, default=1)
    options = parser.parse_args()
    problems, count = [], 0
    with tempfile.TemporaryDirectory() as name_of_folder:
        folder = pathlib.Path(name_of_folder)
        shares = 1 if model_runs.is_full() else options.rotate
        for name, (text, runs) in list(CASES.items())[model_runs.today() % shares::shares]:
            if re.search(options.match, name):
                problems += check(options.tessera, folder, name, text, runs)
                count += 1
        for name, error in ERRORS.items():
            if re.search(options.match, name):
                problems += check_error(options.tessera, folder, name, *error)
    print("\n".join(problems))
    print(f"{count} models, {len(problems)} problems")
    return 1 if problems or not count else 0


if __name__ == "__main__":
    sys.exit(main())
