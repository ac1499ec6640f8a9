#!/usr/bin/env python3
"""Random LSTMs, GRUs, RNNs, Scans, Loops and Ifs whose length, batch and width are open: one module for the range, beside ONNX
Runtime at short, odd and long sizes, on one and two threads, at -O0 and -O3.

    open_loops_test.py [FIRST..LAST]      seeds; default 0..23"""
import random
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import tessera

F, I, B = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
ACTIVATIONS = ["Relu", "Tanh", "Sigmoid", "HardSigmoid", "Softsign", "Elu", "LeakyRelu"]


def value(name, kind, shape):
    return helper.make_tensor_value_info(name, kind, shape)


class Maker:
    def __init__(self, seed):
        self.pick, self.numbers = random.Random(seed), np.random.default_rng(seed)
        self.inputs, self.nodes, self.constants, self.outputs = [], [], [], []

    def weight(self, name, *shape):
        scale = 1 / np.sqrt(shape[-1]) if shape else 1
        self.constants.append(numpy_helper.from_array((self.numbers.standard_normal(shape) * scale).astype(np.float32), name))
        return name

    def integers(self, name, numbers):
        self.constants.append(numpy_helper.from_array(np.array(numbers, np.int64), name))
        return name

    def input(self, name, kind, shape):
        self.inputs.append(value(name, kind, shape))
        return name

    def node(self, *args, **attributes):
        self.nodes.append(helper.make_node(*args, **attributes))

    def model(self):
        graph = helper.make_graph(self.nodes, "g", self.inputs, [value(n, k, None) for n, k in self.outputs], self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    def recurrent(self):
        """One or two layers; what the second reads is the first's output, as exporters write it."""
        pick, text = self.pick, []
        width, source = pick.choice([3, 8, 17]), "x"
        batch_first = pick.random() < 0.2
        batch = pick.choice(["batch", "batch", 1, 3])
        self.input("x", F, [batch, "time", width] if batch_first else ["time", batch, width])
        lengths = self.input("lengths", TensorProto.INT32, [batch]) if pick.random() < 0.3 else ""
        for layer in range(1 if batch_first else pick.choice([1, 1, 2])):
            op = pick.choice(["LSTM", "GRU", "RNN"])
            gates, hidden = {"LSTM": 4, "GRU": 3, "RNN": 1}[op], pick.choice([2, 7, 16])
            direction = pick.choice(["forward", "reverse", "bidirectional"])
            directions = 2 if direction == "bidirectional" else 1
            attributes = dict(hidden_size=hidden, direction=direction)
            if batch_first:
                attributes["layout"] = 1
            if op == "GRU" and pick.random() < 0.5:
                attributes["linear_before_reset"] = 1
            if pick.random() < 0.25:
                attributes["clip"] = 0.75
            if pick.random() < 0.25:
                gate = [] if op == "RNN" else [pick.choice(["Sigmoid", "HardSigmoid"])]  # others let the states grow without end
                names = gate + [pick.choice(ACTIVATIONS) for _ in range(2 if op == "LSTM" else 1)]
                attributes["activations"] = names * directions
            inputs = [source, self.weight(f"w{layer}", directions, gates * hidden, width),
                      self.weight(f"r{layer}", directions, gates * hidden, hidden),
                      self.weight(f"b{layer}", directions, 2 * gates * hidden) if pick.random() < 0.8 else "", lengths]
            if pick.random() < 0.5:
                shape = [batch, directions, hidden] if batch_first else [directions, batch, hidden]
                inputs.append(self.input(f"h{layer}", F, shape))
                if op == "LSTM":
                    inputs.append(self.input(f"c{layer}", F, shape))
            if op == "LSTM" and pick.random() < 0.3:
                inputs += [""] * (7 - len(inputs)) + [self.weight(f"p{layer}", directions, 3 * hidden)]
            outputs = [f"y{layer}", f"yh{layer}"] + ([f"yc{layer}"] if op == "LSTM" else [])
            self.node(op, inputs, outputs, **attributes)
            self.outputs += [(name, F) for name in outputs]
            text.append(f"{op} {attributes}")
            if not batch_first:  # [time, directions, batch, hidden] to [time, batch, directions * hidden]
                self.node("Transpose", [f"y{layer}"], [f"t{layer}"], perm=[0, 2, 1, 3])
                self.integers(f"flat{layer}", [0, 0, -1])
                self.node("Reshape", [f"t{layer}", f"flat{layer}"], [f"next{layer}"])
                source, width = f"next{layer}", directions * hidden
        return "; ".join(text) + (", lengths" if lengths else "")

    def scan(self):
        """Rows of one operand, columns of another, either way round; the state and what is stacked are as wide as an open dimension."""
        pick = self.pick
        attributes = dict(num_scan_inputs=2, scan_input_axes=[0, 1], scan_input_directions=[pick.randrange(2), pick.randrange(2)],
                          scan_output_axes=[pick.choice([0, -1]), 0], scan_output_directions=[pick.randrange(2), pick.randrange(2)])
        self.input("s", F, ["width"]), self.input("x", F, ["time", "width"]), self.input("z", F, ["width", "time"])
        self.input("k", F, ["width"])
        body = helper.make_graph(
            [helper.make_node("Add", ["old", "row"], ["sum"]), helper.make_node("Add", ["sum", "k"], ["more"]),
             helper.make_node("Tanh", ["more"], ["new"]), helper.make_node("Mul", ["new", "column"], ["part"]),
             helper.make_node("ReduceMax", ["row"], ["most"], keepdims=0)],
            "body", [value(n, F, None) for n in ("old", "row", "column")], [value(n, F, None) for n in ("new", "part", "most")])
        self.node("Scan", ["s", "x", "z"], ["t", "y", "q"], body=body, **attributes)
        self.outputs += [("t", F), ("y", F), ("q", F)]
        return f"Scan {attributes}"

    def loop(self):
        """As often as a dimension is long, or as a run says, perhaps ended by a condition; an If chooses between two values."""
        pick = self.pick
        by_size, ends, collects = pick.random() < 0.7, pick.random() < 0.5, pick.random() < 0.7
        self.input("x", F, ["time", "width"]), self.input("s", F, ["width"]), self.input("choice", B, [])
        if by_size:
            self.node("Shape", ["x"], ["sizes"])
            self.integers("which", 0)
            self.node("Gather", ["sizes", "which"], ["trips"])
        else:
            self.input("trips", I, [])
        collects, ends = (collects, False) if by_size else (False, ends)
        self.weight("k")
        self.constants.append(numpy_helper.from_array(np.array(6, np.float32), "limit"))
        yes = helper.make_graph([helper.make_node("Mul", ["sum", "k"], ["a"])], "yes", [], [value("a", F, None)])
        no = helper.make_graph([helper.make_node("Sub", ["sum", "s"], ["b"])], "no", [], [value("b", F, None)])
        nodes = [helper.make_node("Add", ["old", "s"], ["sum"]),
                 helper.make_node("If", ["choice"], ["new"], then_branch=yes, else_branch=no),
                 helper.make_node("ReduceMax", ["new"], ["most"], keepdims=0)]
        if by_size:
            nodes += [helper.make_node("Gather", ["x", "i"], ["row"], axis=0), helper.make_node("Add", ["new", "row"], ["next"])]
        else:
            nodes.append(helper.make_node("Identity", ["new"], ["next"]))
        nodes.append(helper.make_node("Less", ["most", "limit"], ["on"]) if ends else helper.make_node("Identity", ["go"], ["on"]))
        results = ["on", "next"] + (["new"] if collects else [])
        body = helper.make_graph(nodes, "body", [value("i", I, []), value("go", B, []), value("old", F, None)],
                                 [value(n, B if n == "on" else F, None) for n in results])
        self.node("Loop", ["trips", "", "s"], ["last"] + (["all"] if collects else []), body=body)
        self.outputs += [("last", F)] + ([("all", F)] if collects else [])
        return f"Loop {'by a size' if by_size else 'by a run'}{', ends' if ends else ''}{', collects' if collects else ''}"


RANGES = {"time": (1, 70), "batch": (1, 9), "width": (1, 40)}
SIZES = [(1, 1, 1), (2, 3, 7), (7, 2, 16), (70, 9, 40), (33, 1, 5), (16, 4, 8)]


def feeds_of(model, sizes, numbers):
    feeds, known = {}, dict(zip(RANGES, sizes))
    for given in model.graph.input:
        shape = [d.dim_value if d.HasField("dim_value") else known[d.dim_param] for d in given.type.tensor_type.shape.dim]
        kind = given.type.tensor_type.elem_type
        if given.name == "lengths":
            feeds[given.name] = numbers.integers(1, known["time"] + 1, shape).astype(np.int32)
        elif given.name == "trips":
            feeds[given.name] = np.array(numbers.integers(-1, 12), np.int64)
        elif kind == B:
            feeds[given.name] = np.array(numbers.integers(0, 2, shape), np.bool_)
        else:
            feeds[given.name] = numbers.standard_normal(shape).astype(np.float32)
    return feeds


def in_order_of_time(model):
    """The model with the time before the batch, as ONNX Runtime wants it, and whether that is another model."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    changed = False
    for node in copy.graph.node:
        for attribute in [a for a in node.attribute if a.name == "layout"]:
            node.attribute.remove(attribute)
            changed = True
    for given in copy.graph.input if changed else ():
        dims = given.type.tensor_type.shape.dim
        if len(dims) == 3:
            swapped = [onnx.TensorShapeProto.Dimension.FromString(dims[i].SerializeToString()) for i in (1, 0, 2)]
            del dims[:]
            dims.extend(swapped)
    return copy, changed


def check(seed):
    maker = Maker(seed)
    text = [maker.recurrent, maker.recurrent, maker.scan, maker.loop][seed % 4]()
    model = maker.model()
    model_bytes = model.SerializeToString()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    time_first, batch_first = in_order_of_time(model)
    reference = onnxruntime.InferenceSession(time_first.SerializeToString(), options, providers=["CPUExecutionProvider"])
    used = {d.dim_param for i in model.graph.input for d in i.type.tensor_type.shape.dim if d.dim_param}
    ranges = {name: bounds for name, bounds in RANGES.items() if name in used}
    numbers = np.random.default_rng(seed)
    problems, compared = [], 0
    for opt_level, threads in [(3, 1), (3, 2), (0, 1)]:
        try:
            module = tessera.compile(model_bytes, threads=threads, dims=ranges, opt_level=opt_level)
        except tessera.Error as error:
            return f"seed {seed} ({text}): {error}"
        for sizes in SIZES:
            feeds = feeds_of(model, sizes, numbers)
            want = reference.run(None, {n: v.swapaxes(0, 1) if batch_first and v.ndim == 3 else v for n, v in feeds.items()})
            if batch_first:
                want = [v.transpose(2, 0, 1, 3) if v.ndim == 4 else v.swapaxes(0, 1) for v in want]
            where = f"-O{opt_level}, {threads} threads, {dict(zip(RANGES, sizes))}"
            try:
                got = module.run(feeds)
            except tessera.Error as error:
                problems.append(f"{where}: {error}")
                continue
            compared += 1
            for (name, _), a, b in zip(maker.outputs, want, got):
                if a.shape != b.shape:
                    problems.append(f"{where}: {name} is {b.shape} instead of {a.shape}")
                elif a.size and not np.abs(a.astype("f8") - b).max() <= 1e-4 * max(np.abs(a).max(), 1e-9):
                    problems.append(f"{where}: {name} is off by {np.abs(a.astype('f8') - b).max():.2e}")
    if compared == 0:
        problems.append("nothing was compared")
    return f"seed {seed} ({text}): {problems[0]}; {len(problems)} problems" if problems else ""


def check_empty(op):
    """A length of 0: no rows, and the first states as the last ones. ONNX Runtime knows no such sequences."""
    maker = Maker(7)
    gates, hidden = {"LSTM": 4, "GRU": 3, "RNN": 1}[op], 5
    names = ["h", "c"] if op == "LSTM" else ["h"]
    maker.input("x", F, [0, "batch", 3])
    inputs = ["x", maker.weight("w", 2, gates * hidden, 3), maker.weight("r", 2, gates * hidden, hidden), "", ""]
    inputs += [maker.input(name, F, [2, "batch", hidden]) for name in names]
    maker.node(op, inputs, ["y", "y_h", "y_c"][:1 + len(names)], hidden_size=hidden, direction="bidirectional")
    maker.outputs = [("y", F), ("y_h", F), ("y_c", F)][:1 + len(names)]
    feeds = {name: maker.numbers.standard_normal((2, 4, hidden)).astype(np.float32) for name in names}
    feeds["x"] = np.zeros((0, 4, 3), np.float32)
    for dims in ({"batch": 4}, {"batch": (1, 9)}):
        got = tessera.compile(maker.model().SerializeToString(), threads=1, dims=dims).run(feeds)
        if got[0].shape != (0, 2, 4, hidden) or any(not np.array_equal(g, feeds[n]) for g, n in zip(got[1:], names)):
            return f"{op} of length 0, {dims}: {[g.shape for g in got]}"
    return ""


def main():
    first, _, last = (sys.argv[1] if len(sys.argv) > 1 else "0..23").partition("..")
    problems = [p for p in map(check, range(int(first), int(last) + 1)) if p]
    problems += [p for p in map(check_empty, ("LSTM", "GRU", "RNN")) if p]
    print("\n".join(problems) or f"{int(last) - int(first) + 1} models agree")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
