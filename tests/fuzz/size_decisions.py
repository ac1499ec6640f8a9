#!/usr/bin/env python3
"""Random models that decide by the size of their input, compiled once for a range of sizes and run with every size of it
beside ONNX Runtime.

    size_decisions.py TESSERA FIRST..LAST [--rotate N] [--keep FOLDER]

--rotate takes every Nth seed, others each day (all with TESSERA_TEST_FULL=1).

Seeds with the remainder 1 of 3 have so many weights that a compiler cannot run them while it compiles. A model may be
refused for its range (TSR-5022, TSR-5023, TSR-5024); a module must be right at every size. Exit code 1 when one is
not, or when more than half of the models are refused."""
import pathlib
import random
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import model_runs  # noqa: E402

F = TensorProto.FLOAT
I = TensorProto.INT64


class Builder:
    def __init__(self, seed):
        self.pick = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.nodes, self.weights, self.count = [], {}, 0
        self.large = seed % 3 == 1
        self.two = self.pick.random() < 0.3
        self.text = []

    def name(self):
        self.count += 1
        return f"v{self.count}"

    def node(self, op, inputs, **attributes):
        name = self.name()
        self.nodes.append(helper.make_node(op, inputs, [name], **attributes))
        return name

    def const(self, value, dtype=np.int64):
        name = self.name()
        self.weights[name] = np.array(value, dtype)
        return name

    # ---- sizes: i64 scalars ----

    def dim(self, axis):
        return self.node("Gather", [self.shape, self.const(axis)], axis=0)

    def number(self):
        """A number of the range of the first dimension, the ends more often."""
        low, high, step = self.ranges["n"]
        return self.pick.choice([low, low + step, high, high - step, self.pick.randint(low, high), self.pick.randint(low, high)])

    def size(self):
        """An expression of the sizes."""
        n = self.dim(0)
        kind = self.pick.choice(["n", "n", "min", "max", "round", "half", "mod", "sum", "less"])
        if self.two and self.pick.random() < 0.6:
            m = self.dim(1)
            kind2 = self.pick.choice(["min", "max", "product", "sum", "round"])
            self.text.append("two:" + kind2)
            if kind2 in ("min", "max"):
                return self.node("Min" if kind2 == "min" else "Max", [n, m])
            if kind2 == "round":
                step = self.const(self.pick.choice([4, 8, 5]))
                up = self.node("Add", [self.node("Mul", [n, m]), self.const(int(self.weights[step]) - 1)])
                return self.node("Mul", [self.node("Div", [up, step]), step])
            return self.node("Mul" if kind2 == "product" else "Add", [n, m])
        self.text.append(kind)
        if kind == "min":
            return self.node("Min", [n, self.const(self.number())])
        if kind == "max":
            return self.node("Max", [n, self.const(self.number())])
        if kind == "round":
            step = self.pick.choice([2, 4, 8, 3])
            up = self.node("Div", [self.node("Add", [n, self.const(step - 1)]), self.const(step)])
            return self.node("Mul", [up, self.const(step)])
        if kind == "half":
            return self.node("Div", [n, self.const(self.pick.choice([2, 3, 4]))])
        if kind == "mod":
            return self.node("Mod", [n, self.const(self.pick.choice([2, 3, 4, 8]))])
        if kind == "sum":
            return self.node("Add", [n, self.const(self.pick.randint(1, 9))])
        if kind == "less":
            return self.node("Max", [self.node("Sub", [n, self.const(self.pick.randint(1, 6))]), self.const(0)])
        return n

    def condition(self):
        op = self.pick.choice(["Equal", "Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"])
        a = self.size() if self.pick.random() < 0.4 else self.dim(0)
        self.text.append(op)
        result = self.node(op, [a, self.const(self.number())])
        if self.pick.random() < 0.2:
            other = self.node(self.pick.choice(["Less", "Equal", "Greater"]), [self.dim(0), self.const(self.number())])
            result = self.node(self.pick.choice(["And", "Or"]), [result, other])
        return result

    def vector(self, scalar):
        return self.node("Unsqueeze", [scalar, self.const([0])])

    # ---- what is done with them: of x [n, (m,) c] ----

    def decided(self, x):
        kind = self.pick.choice(["where", "where", "if", "cast", "slice", "pad", "table", "rows", "mask"])
        self.text.append(kind)
        if kind == "where":
            return self.node("Add", [x, self.node("Where", [self.condition(), self.const(3, np.float32),
                                                            self.const(5, np.float32)])])
        if kind == "if":
            branches = []
            for op in self.pick.sample(["Relu", "Neg", "Abs", "Sigmoid"], 2):
                out = self.name()
                branches.append(helper.make_graph([helper.make_node(op, [x], [out])], "branch", [],
                                                  [helper.make_tensor_value_info(out, F, None)]))
            return self.node("If", [self.condition()], then_branch=branches[0], else_branch=branches[1])
        if kind == "cast":
            return self.node("Add", [x, self.node("Cast", [self.size()], to=F)])
        if kind == "slice":
            axis = self.pick.choice([0, 1]) if self.two else 0
            end = self.vector(self.size())
            part = self.node("Slice", [x, self.const([0]), end, self.const([axis])])
            total = self.node("ReduceSum", [part, self.const([axis])], keepdims=1)
            return self.node("Add", [x, total])
        if kind == "pad":
            step = self.pick.choice([2, 4, 8, 3])
            n = self.dim(0)
            rest = self.node("Mod", [self.node("Sub", [self.const(step), self.node("Mod", [n, self.const(step)])]),
                                     self.const(step)])
            zeros = self.const([0] * (3 if self.two else 2))
            others = self.const([0] * (2 if self.two else 1))
            pads = self.node("Concat", [zeros, self.vector(rest), others], axis=0)
            padded = self.node("Pad", [x, pads, self.const(self.pick.choice([0, 1.5]), np.float32)])
            if self.pick.random() < 0.4:
                self.text.append("kept")
                self.outputs.append(padded)
            return self.node("Add", [x, self.node("ReduceSum", [padded, self.const([0])], keepdims=1)])
        if kind == "table":
            low, high, step = self.ranges["n"]
            rows = self.pick.choice([high, high + 5, max(high - 3, 1), low])
            table = self.const(self.numbers.standard_normal((rows, self.width)), np.float32)
            part = self.node("Slice", [table, self.const([0]), self.vector(self.dim(0)), self.const([0])])
            return self.node("Add", [x, self.node("ReduceSum", [part, self.const([0])], keepdims=1)])
        if kind == "rows":
            steps = self.node("Range", [self.const(0), self.size(), self.const(1)])
            total = self.node("ReduceSum", [self.node("Cast", [steps], to=F), self.const([0])], keepdims=1)
            return self.node("Add", [x, total])
        # Rows below a number that the size decides.
        places = self.node("Range", [self.const(0), self.dim(0), self.const(1)])
        mask = self.node("Less", [places, self.size()])
        shape = self.const([-1, 1, 1] if self.two else [-1, 1])
        return self.node("Where", [self.node("Reshape", [mask, shape]), x, self.const(0.5, np.float32)])

    def build(self):
        low = self.pick.choice([1, 1, 1, 2, 3, 5])
        step = self.pick.choice([1, 1, 1, 1, 2, 3])
        count = self.pick.choice([3, 6, 10, 17, 24, 40])
        self.ranges = {"n": (low, low + (count - 1) * step, step)}
        if self.two:
            low = self.pick.choice([1, 1, 2, 4])
            self.ranges["m"] = (low, low + self.pick.choice([4, 9, 20]), 1)
        self.width = 1536 if self.large else self.pick.choice([4, 8, 16])
        self.outputs = []
        self.shape = "shape"
        self.nodes.append(helper.make_node("Shape", ["x"], ["shape"]))
        x = "x"
        for _ in range(2):
            w = self.const(self.numbers.standard_normal((self.width, self.width)) / np.sqrt(self.width), np.float32)
            x = self.node("Relu", [self.node("MatMul", [x, w])])
        for _ in range(self.pick.choice([1, 1, 2])):
            x = self.decided(x)
        self.outputs.append(x)
        dims = ["n", "m", self.width] if self.two else ["n", self.width]
        graph = helper.make_graph(self.nodes, "sizes", [helper.make_tensor_value_info("x", F, dims)],
                                  [helper.make_tensor_value_info(o, F, None) for o in self.outputs],
                                  [numpy_helper.from_array(w, n) for n, w in self.weights.items()])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
        model.ir_version = 8
        return model

    def sizes(self):
        """Every value of one dimension; of two the corners, the sizes beside them, and random ones."""
        values = {n: list(range(low, high + 1, step)) for n, (low, high, step) in self.ranges.items()}
        if not self.two:
            return [{"n": n} for n in values["n"]]
        ends = {n: sorted({v[0], v[1], v[-2], v[-1]}) for n, v in values.items()}
        some = [{"n": n, "m": m} for n in ends["n"] for m in ends["m"]]
        some += [{n: self.pick.choice(v) for n, v in values.items()} for _ in range(20)]
        some += [{"n": n, "m": n} for n in values["n"] if n in values["m"]]
        return some


REFUSED = ("TSR-5022", "TSR-5023", "TSR-5024", "TSR-2")


def check(tessera, seed, folder):
    """Whether a module was made; None when it is wrong."""
    builder = Builder(seed)
    model = builder.build()
    path = folder / f"{seed}.onnx"
    onnx.save(model, path)
    dims = [a for n, (low, high, step) in builder.ranges.items() for a in ("--dim", f"{n}={low}..{high}:{step}")]
    what = f"{seed} {'large' if builder.large else 'small'} {' '.join(dims[1::2])} {' '.join(builder.text)}"
    done = subprocess.run([tessera, "compile", path, "-o", folder / "m.so", *dims, "--verify-each"], capture_output=True,
                          text=True)
    if done.returncode:
        if done.returncode == 1 and any(code in done.stderr for code in REFUSED):
            print(f"refused {what}: {done.stderr.splitlines()[0][:200]}", flush=True)
            return False
        print(f"FAILED {what}: {done.stderr.strip()[:400]}", flush=True)
        return None
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    wrong = []
    for sizes in builder.sizes():
        shape = [sizes[d] if isinstance(d, str) else d for d in
                 (["n", "m", builder.width] if builder.two else ["n", builder.width])]
        x = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
        try:
            wanted = session.run(None, {"x": x})
        except Exception:  # ONNX Runtime has no result for this size
            continue
        np.save(folder / "x.npy", x)
        files = [folder / f"y{i}.npy" for i in range(len(wanted))]
        run = subprocess.run([tessera, "run", folder / "m.so", "-i", f"x=@{folder}/x.npy",
                              *[a for n, f in zip(builder.outputs, files) for a in ("-o", f"{n}=@{f}")]],
                             capture_output=True, text=True)
        if run.returncode:
            wrong.append(f"{sizes}: {run.stderr.strip()[:200]}")
            continue
        for file, want in zip(files, wanted):
            got = np.load(file)
            if got.shape != want.shape or not np.abs(got - want).max(initial=0) <= 1e-4 * np.abs(want).max(initial=1e-2):
                off = np.abs(got - want).max(initial=0) if got.shape == want.shape else f"{got.shape} for {want.shape}"
                wrong.append(f"{sizes}: off by {off}")
    shown = subprocess.run([tessera, "inspect", folder / "m.so"], capture_output=True, text=True).stdout
    proof = next((line.split(maxsplit=1)[1] for line in shown.splitlines() if line.startswith("sizes ")), "steps of a run")
    print(f"{'FAILED' if wrong else 'right '} {what}: {proof}; {'; '.join(wrong[:3])}", flush=True)
    return None if wrong else True


def main():
    arguments = sys.argv[1:]
    kept = pathlib.Path(arguments[arguments.index("--keep") + 1]) if "--keep" in arguments else None
    tessera = arguments[0]
    first, last = map(int, arguments[1].split(".."))
    seeds = range(first, last + 1)
    if "--rotate" in arguments and not model_runs.is_full():
        shares = int(arguments[arguments.index("--rotate") + 1])
        seeds = seeds[model_runs.today() % shares::shares]
    made = refused = failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for seed in seeds:
            result = check(tessera, seed, kept or pathlib.Path(folder))
            made += result is True
            refused += result is False
            failed += result is None
            if not kept:
                (pathlib.Path(folder) / f"{seed}.onnx").unlink()
    print(f"{made} right, {refused} refused, {failed} failed")
    return 1 if failed or refused > made else 0


if __name__ == "__main__":
    sys.exit(main())
