#!/usr/bin/env python3
"""Puts miscompilations into the compiler, one at a time, and asks `tessera diff` and `tessera bisect` where they are.

    run.py [--scratch DIR] [--only NAME,...] [--check TESSERA]

Each NN-*.patch of this folder is applied to a scratch worktree of the commit that is checked out (never to the working
tree), `tessera` is built there, and a small model that shows the fault is given to both verbs. The node and the pass
that they name must be those of CASES. At the end a table is printed, as README.md has it. --check only looks whether
the models are computed rightly by a compiler without a fault. The exit code is 1 when a fault was not found, or not
where it is. Run by hand: it links the compiler once for each patch.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
FLOAT, I32, I64 = TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64
FLAGS = ["--target", "x86-64-v3", "--threads", "1"]


def weights(*dims, seed=0):
    return np.random.default_rng(seed).standard_normal(dims).astype(np.float32)


def model(nodes, inputs, outputs, constants=()):
    """nodes: (op, inputs, outputs, attributes); each node is named like its first output, in capitals."""
    made = [helper.make_node(op, i.split(), o.split(), name=o.split()[0].upper(), **a) for op, i, o, a in nodes]
    info = lambda entry: helper.make_tensor_value_info(*entry)
    tensors = [numpy_helper.from_array(value, name) for name, value in dict(constants).items()]
    graph = helper.make_graph(made, "case", [info(i) for i in inputs], [info(o) for o in outputs], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def around(nodes, x, y, constants=(), dtype=FLOAT, out=FLOAT):
    """A model from x to y, whose other nodes are right: what is wrong stands between others."""
    return model(nodes, [("x", dtype, x)], [("y", out, y)], constants)


def pad_conv():
    pads = np.array([0, 0, 1, 1, 0, 0, 1, 1], np.int64)
    return around(
        [("Relu", "x", "r", {}), ("Pad", "r pads", "p", {}), ("Conv", "p w", "c", {}), ("Exp", "c", "y", {})],
        (1, 4, 9, 9), (1, 4, 9, 9), {"pads": pads, "w": weights(4, 4, 3, 3) / 6},
    )


def folded_sum():
    return around(
        [("Add", "w b", "s", {}), ("Mul", "x s", "m", {}), ("Exp", "m", "y", {})],
        (4, 8), (4, 8), {"w": weights(4, 8), "b": weights(4, 8, seed=1)},
    )


def two_transposes():
    return around(
        [("Transpose", "x", "a", {"perm": [1, 0, 2]}), ("Transpose", "x", "b", {"perm": [0, 2, 1]}),
         ("MatMul", "a w", "c", {}), ("MatMul", "b w", "d", {}), ("Sub", "c d", "y", {})],
        (6, 6, 6), (6, 6, 6), {"w": weights(6, 6)},
    )


def two_differences():
    return around(
        [("Exp", "x", "e", {}), ("Sub", "e c", "f", {}), ("Sub", "f d", "g", {}), ("Tanh", "g", "y", {})],
        (4, 8), (4, 8), {"c": np.float32(0.5), "d": np.float32(0.25)},
    )


def turned_bias():
    return around(
        [("Transpose", "x", "t", {"perm": [1, 2, 0]}), ("Add", "t b", "s", {}),
         ("Transpose", "s", "u", {"perm": [2, 0, 1]}), ("Exp", "u", "y", {})],
        (5, 5, 5), (5, 5, 5), {"b": weights(5, 5, 5)},
    )


def narrow_equal():
    return model(
        [("Cast", "a", "c", {"to": I32}), ("Cast", "b", "d", {"to": I32}), ("Equal", "c d", "e", {}),
         ("Cast", "e", "y", {"to": FLOAT})],
        [("a", I64, (4,)), ("b", I64, (4,))], [("y", FLOAT, (4,))],
    )


def conv_norm(before):
    norm = {n: weights(8, seed=i) ** 2 + 0.5 for i, n in enumerate(["scale", "shift", "mean", "var"])}
    chain = [("Conv", "x w", "c", {"pads": [1] * 4}), ("BatchNormalization", "c scale shift mean var", "n", {})]
    if before:
        chain = [("BatchNormalization", "x scale shift mean var", "n", {}), ("Conv", "n w", "c", {"pads": [1] * 4})]
    last = chain[-1][2]
    return around([*chain, ("Tanh", last, "y", {})], (1, 8, 7, 7), (1, 8, 7, 7), {"w": weights(8, 8, 3, 3), **norm})


def three_products():
    names = "qkv"
    nodes = []
    for n in names:
        nodes += [("MatMul", f"x w{n}", f"m{n}", {}), ("Add", f"m{n} b{n}", n, {}),
                  ("Slice", f"{n} from to last", f"{n}s", {})]
    nodes += [("Mul", "qs ks", "qk", {}), ("Sub", "qk vs", "y", {})]
    constants = {f"w{n}": weights(16, 16, seed=i) for i, n in enumerate(names)}
    constants |= {f"b{n}": weights(16, seed=9 + i) for i, n in enumerate(names)}
    constants |= {n: np.array([v], np.int64) for n, v in {"from": 2, "to": 11, "last": 1}.items()}
    return around(nodes, (8, 16), (8, 9), constants)


def nearly_gelu():
    number = lambda v: np.float32(v)
    return around(
        [("Mul", "x third", "a", {}), ("Erf", "a", "e", {}), ("Add", "e one", "f", {}), ("Mul", "x f", "g", {}),
         ("Mul", "g half", "y", {})],
        (4, 8), (4, 8), {"third": number(1 / 3), "one": number(1), "half": number(0.5)},
    )


def conv_relu():
    return around(
        [("Tanh", "x", "t", {}), ("Conv", "t w", "c", {"pads": [1] * 4}), ("Relu", "c", "r", {}),
         ("Transpose", "r", "y", {"perm": [0, 2, 3, 1]})],
        (1, 4, 8, 8), (1, 8, 8, 4), {"w": weights(4, 4, 3, 3)},
    )


def three_parts():
    return around(
        [("Exp", "x", "a", {}), ("Tanh", "x", "b", {}), ("Neg", "x", "c", {}), ("Concat", "a b c", "d", {"axis": 0}),
         ("MatMul", "d w", "y", {})],
        (4, 8), (12, 8), {"w": weights(8, 8)},
    )


def products(*dims):
    """MatMul by MatMul: x[6,dims[0]] through matrices of these sizes."""
    nodes, value = [], "x"
    for i in range(len(dims) - 1):
        name = f"m{i}" if i < len(dims) - 2 else "y"
        nodes.append(("MatMul", f"{value} w{i}", name, {}))
        value = name
    constants = {f"w{i}": weights(dims[i], dims[i + 1], seed=i) / 4 for i in range(len(dims) - 1)}
    return around(nodes, (dims[0] if len(set(dims)) == 1 else 6, dims[0]),
                  (dims[0] if len(set(dims)) == 1 else 6, dims[-1]), constants)


def row_sums():
    return around(
        [("Exp", "x", "e", {}), ("ReduceSum", "e axes", "s", {"keepdims": 1}), ("Sqrt", "s", "y", {})],
        (6, 17), (6, 1), {"axes": np.array([1], np.int64)},
    )


def elementwise(op="Tanh", dims=(3, 37)):
    return around([("MatMul", "x w", "m", {}), ("Transpose", "m", "t", {"perm": [1, 0]}), (op, "t", "y", {})],
                  (dims[1], 4), dims, {"w": weights(4, dims[0])})


def large_conv():
    return around(
        [("Relu", "x", "r", {}), ("Conv", "r w", "c", {"pads": [1] * 4}), ("Tanh", "c", "y", {})],
        (1, 64, 28, 28), (1, 64, 28, 28), {"w": weights(64, 64, 3, 3) / 24},
    )


def two_leaks():
    return around(
        [("MatMul", "x w", "m", {}), ("LeakyRelu", "m", "a", {"alpha": 0.1}), ("MatMul", "a v", "n", {}),
         ("LeakyRelu", "n", "c", {"alpha": 0.5}), ("MatMul", "c w", "y", {})],
        (8, 8), (8, 8), {"w": weights(8, 8), "v": weights(8, 8, seed=1)},
    )


def padded_window():
    return around(
        [("Tanh", "x", "t", {}), ("AveragePool", "t", "p", {"kernel_shape": [3, 3], "pads": [1] * 4}),
         ("Exp", "p", "y", {})],
        (1, 3, 11, 11), (1, 3, 11, 11),
    )


def remainders():
    return model(
        [("Add", "a a", "c", {}), ("Mod", "c b", "m", {}), ("Mul", "m m", "y", {})],
        [("a", I32, (4,)), ("b", I32, (4,))], [("y", I32, (4,))],
    )


# patch: model, inputs, what goes wrong in words, pass, nodes that are named for the difference (any of them)
CASES = {
    "01-fold_pads-off-by-one": (pad_conv, [], "padding one place off", "fold_pads", ["C", "P"]),
    "02-fold_constants-stale": (folded_sum, [], "a folded sum keeps its first operand", "fold_constants", ["S"]),
    "03-cse-ignores-order-of-axes": (two_transposes, [], "transposes of other axes count as equal", "cse", ["B", "D", "Y"]),
    "04-simplify_algebra-sign": (two_differences, [], "(x - c) - d becomes x - (c - d)", "simplify_algebra", ["G"]),
    "05-propagate_transposes-swapped-axes": (turned_bias, [], "a constant is turned the wrong way", "propagate_transposes", ["S", "U"]),
    "06-sink_casts-integer-wrap": (narrow_equal, ["a=4xi64=1,4294967297,7,-4294967296", "b=4xi64=1,1,8,0"],
        "comparing before a cast that wraps", "sink_casts", ["E"]),
    "07-fold_batch_norm-wrong-channel": (lambda: conv_norm(False), [], "scale of another channel", "fold_batch_norm", ["N"]),
    "08-fold_batch_norm_forward-shift-under-padding": (lambda: conv_norm(True), [], "a shift is moved through zero padding",
        "fold_batch_norm_forward", ["C"]),
    "09-merge_matmuls-bias-order": (three_products, [], "biases of merged products in reverse order", "merge_matmuls",
        ["Q", "V", "QS", "VS", "QK", "Y"]),
    "10-raise_to_composites-any-gelu": (nearly_gelu, [], "what only looks like GELU becomes GELU", "raise_to_composites",
        ["Y"]),
    "11-lower-dropped-epilogue": (conv_relu, [], "a relu behind a convolution in its kernel is dropped", "lower", ["R"]),
    "12-lower-concat-parts-overlap": (three_parts, [], "two parts of a concatenation share memory", "lower", ["D", "A", "B"]),
    "13-register_tile-tail-mask": (lambda: products(16, 13), [], "the last of an odd number of columns is not stored",
        "register_tile", ["Y"]),
    "14-row_reduce-lost-tail": (row_sums, [], "a tail of one element is not summed", "row_reduce", ["S"]),
    "15-injective-tail-shifted": (elementwise, [], "the tail begins one element early", "injective", ["Y"]),
    "16-winograd-sign": (large_conv, [], "a sign in the output transform", "winograd", ["C"]),
    "17-reuse_buffers-aliasing": (lambda: products(64, 64, 64, 64), [], "a product is written over its operand",
        "reuse_buffers", ["M1", "M0"]),
    "18-merge_kernels-ignores-numbers": (two_leaks, [], "kernels that differ in a number are merged", "merge_kernels", ["C"]),
    "19-plan_memory-short-lifetimes": (lambda: products(64, 64, 64, 64), [], "lifetimes end one call early",
        "plan_memory", ["M1", "M0"]),
    "20-partition_loops-border": (padded_window, [], "a piece of a loop is simplified with the bounds of its neighbour",
        "partition_loops", ["P"]),
    "21-simplify_loops-lost-single-iteration": (lambda: elementwise(dims=(1, 40)), [], "a loop of one iteration is dropped",
        "simplify_loops", ["Y"]),
    "22-expand_math-coefficient": (lambda: around([("Neg", "x", "n", {}), ("Exp", "n", "e", {}), ("Add", "e x", "y", {})],
        (4, 8), (4, 8)), [], "a wrong coefficient of exp", "expand_math", ["E"]),
    "23-codegen-unsigned-remainder": (remainders, ["a=4xi32=-7,-3,5,9", "b=4xi32=5,5,3,4"],
        "remainders of negative integers as if they had no sign", "codegen", ["M"]),
}


def run(command, **options):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)


class Scratch:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder).resolve()
        if self.folder == ROOT or self.folder in ROOT.parents or ROOT in self.folder.parents:
            sys.exit("the scratch folder must be apart from the working tree")
        if not self.folder.exists():
            run(["git", "worktree", "add", "--detach", self.folder, "HEAD"], cwd=ROOT, check=True)
        for name in (".venv", ".deps"):
            if not (self.folder / name).exists() and (ROOT / name).exists():
                (self.folder / name).symlink_to((ROOT / name).resolve())
        self.environment = {**os.environ, "CCACHE_BASEDIR": str(self.folder)}
        self.git("checkout", "-q", "--detach", run(["git", "rev-parse", "HEAD"], cwd=ROOT).stdout.strip())

    def git(self, *arguments):
        done = run(["git", *arguments], cwd=self.folder)
        if done.returncode != 0:
            raise RuntimeError(f"git {' '.join(map(str, arguments))}: {done.stderr}")

    def build(self):
        if not (self.folder / "build").exists():
            run(["cmake", "--preset", "release"], cwd=self.folder, env=self.environment, check=True)
        done = run(["cmake", "--build", "--preset", "release", "--target", "tessera"], cwd=self.folder, env=self.environment)
        if done.returncode != 0:
            raise RuntimeError(f"it does not compile:\n{done.stdout[-3000:]}")
        return self.folder / "build/bin/tessera"


def ask(binary, verb, work, inputs):
    spec = [part for text in inputs for part in ("--input", text)]
    done = run([binary, verb, "model.onnx", *FLAGS, *spec, "--json"], cwd=work)
    if done.returncode not in (0, 2) or not done.stdout.startswith("{"):
        raise RuntimeError(f"{verb} ends with {done.returncode}: {done.stdout}{done.stderr}")
    return json.loads(done.stdout)


def examine(binary, name):
    """(problems, row of the table)."""
    make, inputs, _, want_pass, want_nodes = CASES[name]
    problems = []
    with tempfile.TemporaryDirectory() as work:
        onnx.save(make(), f"{work}/model.onnx")
        difference = ask(binary, "diff", work, inputs)
        if difference["agrees"]:
            return ["diff sees nothing"], None
        node = difference["first"]["node"]
        if node not in want_nodes:
            problems.append(f"diff names {node}, not {' or '.join(want_nodes)}")
        shown = difference.get("reproduction")
        if not shown:
            problems.append("no part of the model shows it")
        else:
            case = run([binary, *shown["command"].split()[1:]], cwd=work)
            if case.returncode != 2:
                problems.append(f"the case does not fail: {case.stdout}{case.stderr}")
        found = ask(binary, "bisect", work, inputs)
        if found.get("pass") != want_pass:
            problems.append(f"bisect names {found.get('pass')}, not {want_pass}: {found.get('evidence')}")
        applied = found.get("applied", {})
        row = (node, shown["nodes"] if shown else [], found.get("pass"), found.get("kind"), applied.get("pass", "-"),
               f"{found.get('application')} of {found.get('applications')}")
    return problems, row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scratch", default=str(ROOT.parent / (ROOT.name + "-miscompiles")))
    parser.add_argument("--only", default="")
    parser.add_argument("--check", metavar="TESSERA", help="only that the models are right without a fault")
    options = parser.parse_args()
    names = [name for name in CASES if not options.only or any(part in name for part in options.only.split(","))]
    if options.check:
        return check_models(pathlib.Path(options.check).resolve(), names)
    scratch = Scratch(options.scratch)
    scratch.git("checkout", "-q", ".")
    scratch.build()
    rows, wrong = [], 0
    for name in names:
        begin = time.time()
        try:
            scratch.git("apply", HERE / f"{name}.patch")
            problems, row = examine(scratch.build(), name)
        except RuntimeError as error:
            problems, row = [str(error)], None
        finally:
            scratch.git("checkout", "-q", ".")
        wrong += bool(problems)
        print(f"{'WRONG' if problems else 'found'} {name} ({time.time() - begin:.0f} s) {row}", flush=True)
        for problem in problems:
            print(f"    {problem}", flush=True)
        if row:
            rows.append((name, row))
    print(f"\n{len(names) - wrong} of {len(names)} found\n")
    print("| patch | what goes wrong | node | shown by | pass | as | applied | application |")
    print("|---" * 8 + "|")
    for name, (node, nodes, found, kind, applied, place) in rows:
        print(f"| {name} | {CASES[name][2]} | {node} | {'+'.join(nodes)} | {found} | {kind} | {applied} | {place} |")
    return 1 if wrong else 0


def check_models(binary, names):
    wrong = 0
    for name in names:
        if not (HERE / f"{name}.patch").exists():
            wrong += 1
            print(f"{name} has no patch")
        with tempfile.TemporaryDirectory() as work:
            onnx.save(CASES[name][0](), f"{work}/model.onnx")
            told = ask(binary, "diff", work, CASES[name][1])
            if not told["agrees"] or told["compared"] == 0:
                wrong += 1
                print(f"{name}: {told}")
    unknown = {path.stem for path in HERE.glob("*.patch")} - set(CASES)
    for name in sorted(unknown):
        print(f"{name}.patch has no model")
    print(f"{len(names) - wrong} of {len(names)} models are right without a fault")
    return 1 if wrong or unknown else 0


if __name__ == "__main__":
    sys.exit(main())
