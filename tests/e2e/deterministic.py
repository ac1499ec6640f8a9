#!/usr/bin/env python3
"""`--deterministic`: the same bits on every x86-64 level that this machine has, on AArch64 under qemu, and for 1 and 2 threads.
And `--numerics strict`: the bits of -O0.

    deterministic.py TESSERA [--random N] [--seed S] [--networks] [--cross] [--full] [--models NAME,...] [--reduced]

Small graphs that hold what machines do differently (sums along rows, multiply-adds, minima of zeros, mathematical functions,
convolutions, attention, loops), N random graphs, and with --networks those of the suite, two in turn with the date (all with
--full or TESSERA_TEST_FULL=1). --cross: also for AArch64, which needs aarch64-linux-gnu-g++ and qemu-aarch64, else that part
is skipped. --reduced: networks as reduced_models.py has them, with smaller images or fewer layers, for a machine on which
the whole ones take too long. NaN counts as equal to NaN: which of them comes out is the machine's.
"""
import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import parser

import model_runs as runs
from reduced_models import REDUCED
from suite_models import LARGE, QUICK

sys.path[:0] = [str(runs.ROOT / "tests" / part) for part in ("fuzz", "cross")]
SYSROOT, TRIPLE = "/usr/aarch64-linux-gnu", "aarch64-unknown-linux-gnu"
SHARE = 2  # networks a day

# Name, inputs (type and shape), initializers (type and shape; drawn), nodes, outputs.
GRAPHS = [
    ("mlp", "float[3,70] x", "float[70,133] a, float[133] b, float[133,10] c",
     "p = MatMul(x, a) q = Add(p, b) r = Relu(q) s = MatMul(r, c) y = Softmax<axis=-1>(s)", "y"),
    ("conv", "float[2,3,29,31] x", "float[17,3,3,3] a, float[17] b, float[17,1,3,3] c, float[40,17,1,1] d, float[40,40,3,3] e",
     "p = Conv<pads=[1,1,1,1],strides=[2,2]>(x, a, b) q = Relu(p) r = Conv<pads=[1,1,1,1],group=17>(q, c) s = Conv(r, d)"
     "t = MaxPool<kernel_shape=[3,3],pads=[1,1,1,1],strides=[2,2]>(s) u = Conv<pads=[1,1,1,1]>(t, e) v = Add(u, t)"
     "w = AveragePool<kernel_shape=[2,2]>(v) y = GlobalAveragePool(w)", "y, u"),
    ("minimal filtering", "float[1,64,28,28] x", "float[64,64,3,3] a, float[64,64,3,3] b",
     "p = Conv<pads=[1,1,1,1]>(x, a) q = Relu(p) y = Conv<pads=[1,1,1,1]>(q, b)", "y"),
    ("attention", "float[2,37,48] q, float[2,37,48] k, float[2,37,48] v", "float[48] g, float[48] b",
     "n = LayerNormalization(q, g, b) t = Transpose<perm=[0,2,1]>(k) s = MatMul(n, t) w = Softmax<axis=-1>(s) y = MatMul(w, v)", "y"),
    ("long attention", "float[1,1100,16] q, float[1,16,1100] k, float[1,1100,16] v", "",
     "s = MatMul(q, k) w = Softmax<axis=-1>(s) y = MatMul(w, v)", "y"),
    ("sums", "float[5,1003] x, float[7,3,129] z", "",
     "a = ReduceSum(x) b = ReduceMean<axes=[1]>(x) c = ReduceL2<axes=[0]>(x) d = ReduceLogSumExp<axes=[1]>(x)"
     "e = ReduceSumSquare<axes=[0,2]>(z) f = ReduceProd<axes=[1]>(z) y = CumSum(x, one)", "a, b, c, d, e, f, y"),
    ("functions", "float[1021] x", "",
     "a = Exp(x) b = Tanh(x) c = Erf(x) d = Sigmoid(x) e = Sin(x) f = Atan(x) p = Abs(x) g = Log(p) h = Sqrt(p) i = Pow(p, x)"
     "j = Softplus(x) k = Reciprocal(x) l = Cosh(x) m = Mod<fmod=1>(x, p3)", "a, b, c, d, e, f, g, h, i, j, k, l, m"),
    ("doubles", "double[9,67] x, double[67,21] w", "",
     "p = MatMul(x, w) a = Exp(p) b = Sin(p) c = ReduceMean<axes=[1]>(p) d = Tanh(x)", "p, a, b, c, d"),
    ("halves", "float16[9,67] x, float16[67,21] w", "",
     "p = MatMul(x, w) a = Sigmoid(p) b = Softmax<axis=-1>(p) c = Cast<to=16>(x) d = Cast<to=1>(c)", "p, a, b, d"),
    ("zeros", "float[4,33] x, float[4,33] z", "",
     "o = Round(x) p = Round(z) a = Max(o, p) b = Min(o, p) c = ReduceMax<axes=[1]>(o) d = ReduceMin<axes=[0]>(p)"
     "e = Reciprocal(a) f = Reciprocal(b) g = Reciprocal(c) h = Reciprocal(d)", "a, b, c, d, e, f, g, h"),
    ("bytes", "uint8[6,100] x, uint8[6,40] z", "int8[100,40] w",
     "p = MatMulInteger(x, w) a = Cast<to=1>(p) m = DequantizeLinear(z, p3, u3) b = Add(a, m) y = QuantizeLinear(b, p4, u3)", "p, y"),
    ("recurrent", "float[11,2,19] x", "float[1,92,19] w, float[1,92,23] r",
     "y, h, c = LSTM<hidden_size=23>(x, w, r)", "y, h, c"),
    ("several results", "float[100,64] p, float[100,64] g, float[100,64] m", "",
     "a = Mul(m, p3) b = Mul(g, p4) m1 = Add(a, b) c = Exp(m1) d = Div(m1, c) p1 = Sub(p, d)", "m1, p1"),
    ("sums together", "float[60,203] x", "",
     "s = Mul(x, x) a = ReduceMean<axes=[1]>(x) b = ReduceMean<axes=[1]>(s) c = ReduceMean<axes=[0]>(x)"
     "d = ReduceMean<axes=[0]>(s)", "a, b, c, d"),
    ("products of a run", "float[90,300] x, float[200,300] v, float[300,200] w", "",
     "t = Transpose<perm=[1,0]>(v) y = MatMul(x, t) z = MatMul(x, w)", "y, z"),
    ("turned", "float[1,12,9,10] x", "float[12,7,3,3] w", "y = ConvTranspose<strides=[2,2],pads=[1,1,1,1]>(x, w)"
     "z = Resize<mode=\"linear\">(y, , scales)", "y, z"),
]
CONSTANTS = ("int64 one = {1}, float p3 = {0.3}, float p4 = {0.4}, uint8 u3 = {3}, float[4] scales = {1, 1, 1.5, 2.5}")
NUMPY = {"float": np.float32, "double": np.float64, "float16": np.float16, "uint8": np.uint8, "int8": np.int8}


def drawn(declarations, random):
    """Arrays by name for 'TYPE[SIZES] NAME, ...'."""
    arrays = {}
    for text in filter(None, (part.strip() for part in declarations.replace("], ", "];").replace("] ", "]:")
                                                    .replace(", ", ";").split(";"))):
        kind, name = text.split(":")[0], text.split(":")[1].strip()
        dtype = NUMPY[kind[:kind.index("[")]]
        shape = [int(size) for size in kind[kind.index("[") + 1:-1].split(",")]
        values = random.standard_normal(shape) if np.issubdtype(dtype, np.floating) else random.integers(0, 120, shape)
        arrays[name] = values.astype(dtype)
    return arrays


def small_graphs(random):
    for name, inputs, weights, nodes, outputs in GRAPHS:
        text = (f'<ir_version: 8, opset_import: ["" : 17]> {name.replace(" ", "_")} ({inputs}) => '
                f'({", ".join("float " + output for output in outputs.split(", "))}) <{CONSTANTS}> {{ {nodes} }}')
        model = parser.parse_model(text)
        for output in model.graph.output:  # types are inferred
            output.ClearField("type")
        for key, array in drawn(weights, random).items():
            model.graph.initializer.append(onnx.numpy_helper.from_array(array, key))
        used = {name for node in model.graph.node for name in node.input}
        for constant in [c for c in model.graph.initializer if c.name not in used]:
            model.graph.initializer.remove(constant)
        model = onnx.shape_inference.infer_shapes(model, strict_mode=True)
        yield name, model, drawn(inputs, random)


def random_graphs(count, seed):
    import random_onnx
    for number in range(seed, seed + count):
        graph = random_onnx.RandomGraph(number, 12)
        values = {name: graph.values[name] for name in graph.outputs}
        yield (f"random {number}",
               random_onnx.make_model(graph.nodes, graph.feeds, graph.used_constants(graph.nodes), values), graph.feeds)


def networks(names, reduced):
    for name in names:
        if reduced and name in REDUCED:
            what, make = REDUCED[name]
            yield f"{name} ({what})", *make()
        else:
            yield name, *runs.suite_model(name)


def bits(outputs):
    """What has to be equal."""
    result = []
    for output in outputs:
        if output.dtype.kind == "f":
            output = np.where(np.isnan(output), np.array(np.nan, output.dtype), output)
        result.append(output.tobytes())
    return result


class Emulated:
    """Modules for AArch64, run by qemu."""

    def __init__(self, work):
        import aarch64
        self.runner, self.work = aarch64.build_runner(work), work

    def run(self, module, threads, feeds, want):
        paths = []
        for i, array in enumerate(feeds):
            paths.append(self.work / f"emulated_input_{i}")
            np.ascontiguousarray(array).tofile(paths[-1])
        results = [self.work / f"emulated_output_{i}" for i in range(len(want))]
        (self.work / "list").write_text(" ".join(map(str, [module, threads, *paths, "--", *results])) + "\n")
        done = subprocess.run(["qemu-aarch64", "-L", SYSROOT, self.runner, self.work / "list"], stdout=subprocess.PIPE,
                              text=True)
        if done.stdout.strip() != "ok":
            return done.stdout.strip() or f"qemu ended with exit code {done.returncode}"
        return [np.fromfile(path, w.dtype).reshape(w.shape) for path, w in zip(results, want, strict=True)]


def first_difference(got, want):
    for i, (g, w) in enumerate(zip(got, want, strict=True)):
        if bits([g]) != bits([w]):
            there = np.flatnonzero(np.frombuffer(bits([g])[0], np.uint8) != np.frombuffer(bits([w])[0], np.uint8))
            place = int(there[0]) // w.dtype.itemsize
            return (f"output {i}: {len(there)} bytes differ, the first at element {place}: {g.flat[place]!r} instead of "
                    f"{w.flat[place]!r}")
    return None


def check_strict(binary, name, model, feeds, count, work):
    path = work / "model.onnx"
    onnx.save(model, path)
    command, outputs = [binary, "run", path, "--no-cache", "--threads", "2"], len(model.graph.output)
    want = runs.run([*command, "-O0"], feeds, outputs, work)
    got = runs.run([*command, "--numerics", "strict"], feeds, outputs, work)
    problem = next((x for x in (want, got) if isinstance(x, str)), None)
    count.result(f"{name}, strict", problem or first_difference(got, want) or 0.0)


def check(binary, name, model, feeds, levels, emulated, count, work):
    path = work / "model.onnx"
    onnx.save(model, path)
    outputs = len(model.graph.output)
    reference = None
    for number, level in enumerate(levels):
        module = work / "model.so"
        compiled_for = 1 + number % 2
        problem = runs.tessera(binary, "compile", path, "-o", module, "--force", "--target", level, "--deterministic",
                               "--threads", compiled_for)
        for threads in (1, 2):
            what = f"{name}, {level}, {threads} threads"
            if problem:
                count.result(what, problem)
                break
            if level == TRIPLE:
                got = emulated.run(module, threads, list(feeds.values()), reference)
            else:
                got = runs.run([binary, "run", module, "--threads", str(threads)], feeds, outputs, work)
            if isinstance(got, str):
                count.result(what, got)
                continue
            reference = reference or got
            count.result(what, first_difference(got, reference) or 0.0)


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("tessera")
    options.add_argument("--random", type=int, default=0)
    options.add_argument("--seed", type=int, default=runs.today())
    options.add_argument("--networks", action="store_true")
    options.add_argument("--cross", action="store_true")
    options.add_argument("--full", action="store_true")
    options.add_argument("--models")
    options.add_argument("--reduced", action="store_true")
    args = options.parse_args()
    binary = os.path.abspath(args.tessera)
    count = runs.Count()
    levels = ["x86-64-v2", "x86-64-v3", "x86-64-v4"]
    for level in [level for level in levels if runs.missing_feature(level)]:
        count.skip(level, f"this machine has no {runs.missing_feature(level)}")
        levels.remove(level)
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        emulated = None
        if args.cross:
            import shutil
            missing = [p for p in ("aarch64-linux-gnu-g++", "qemu-aarch64") if not shutil.which(p)]
            if missing:
                count.skip("AArch64", f"{missing[0]} is missing; scripts/setup.sh installs it")
            else:
                emulated = Emulated(work)
                levels.append(TRIPLE)
        names = []
        if args.models:
            names = args.models.split(",")
        elif args.networks:
            every = QUICK + LARGE
            names = every if runs.is_full() else [every[(runs.today() * SHARE + i) % len(every)] for i in range(SHARE)]
        groups = [] if args.models else [small_graphs(np.random.default_rng(5)), random_graphs(args.random, args.seed)]
        for group in [*groups, networks(names, args.reduced)]:
            for name, model, feeds in group:
                check(binary, name, model, feeds, levels, emulated, count, work)
                check_strict(binary, name, model, feeds, count, work)
    return count.exit_code()


if __name__ == "__main__":
    sys.exit(main())
