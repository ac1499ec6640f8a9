#!/usr/bin/env python3
"""If, Loop, Scan, LSTM, GRU and RNN as branches and loops of compiled code, and short loops written out: beside ONNX Runtime, at -O0
and -O3, on one and two threads.

    .venv/bin/python tests/e2e/control_flow.py build/bin/tessera [--seed N]
"""
import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

F, I, B = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def value(name, kind, shape):
    return helper.make_tensor_value_info(name, kind, shape)


def model_of(nodes, inputs, outputs, constants):
    graph = helper.make_graph(nodes, "control_flow", inputs, [value(n, k, None) for n, k in outputs],
                              [numpy_helper.from_array(v, n) for n, v in constants.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def floats(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


def recurrent(rng, op, time, batch, width, hidden, direction, lengths, **attributes):
    gates, directions = {"LSTM": 4, "GRU": 3, "RNN": 1}[op], 2 if direction == "bidirectional" else 1
    constants = {"w": floats(rng, directions, gates * hidden, width) / 4, "r": floats(rng, directions, gates * hidden, hidden) / 4,
                 "b": floats(rng, directions, 2 * gates * hidden)}
    feeds, inputs = {"x": floats(rng, time, batch, width)}, [value("x", F, [time, batch, width])]
    if lengths:
        feeds["n"] = rng.integers(1, time + 1, batch).astype(np.int32)
        inputs.append(value("n", TensorProto.INT32, [batch]))
    outputs = ["y", "h"] + (["c"] if op == "LSTM" else [])
    node = helper.make_node(op, ["x", "w", "r", "b", "n" if lengths else ""], outputs, hidden_size=hidden,
                            direction=direction, **attributes)
    return model_of([node], inputs, [(o, F) for o in outputs], constants), feeds, 2 if directions == 2 else 1, 0


def scan(rng):
    body = helper.make_graph(
        [helper.make_node("Add", ["s", "a"], ["sum"]), helper.make_node("MatMul", ["sum", "m"], ["p"]),
         helper.make_node("Tanh", ["p"], ["next"]), helper.make_node("Mul", ["next", "e"], ["part"]),
         helper.make_node("ReduceMax", ["part"], ["most"], keepdims=0)],
        "body", [value("s", F, [7]), value("a", F, [7]), value("e", F, [7])],
        [value("next", F, [7]), value("part", F, [7]), value("most", F, [])])
    node = helper.make_node("Scan", ["s0", "x", "z"], ["t", "y", "q"], body=body, num_scan_inputs=2, scan_input_axes=[0, 1],
                            scan_input_directions=[0, 1], scan_output_axes=[1, 0], scan_output_directions=[1, 0])
    feeds = {"s0": floats(rng, 7), "x": floats(rng, 9, 7), "z": floats(rng, 7, 9)}
    return model_of([node], [value(n, F, list(v.shape)) for n, v in feeds.items()], [("t", F), ("y", F), ("q", F)],
                    {"m": floats(rng, 7, 7)}), feeds, 1, 0


def counted(rng, trips):
    """Two values change places; a third is multiplied; the number of the iteration counts; all old values are collected."""
    body = helper.make_graph(
        [helper.make_node("Mul", ["c", "k"], ["d"]), helper.make_node("Cast", ["i"], ["n"], to=F),
         helper.make_node("Add", ["d", "n"], ["e"]), helper.make_node("Greater", ["e", "a"], ["over"]),
         helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Identity", ["b"], ["a1"]),
         helper.make_node("Identity", ["a"], ["b1"]), helper.make_node("Identity", ["c"], ["old"])],
        "body", [value("i", I, []), value("go", B, []), value("a", F, [5]), value("b", F, [5]), value("c", F, [5])],
        [value("on", B, []), value("a1", F, [5]), value("b1", F, [5]), value("e", F, [5]), value("old", F, [5]),
         value("over", B, [5])])
    node = helper.make_node("Loop", ["trips", "", "x", "y", "z"], ["u", "v", "w", "all", "flags"], body=body)
    feeds = {n: floats(rng, 5) for n in "xyz"}
    return model_of([node], [value(n, F, [5]) for n in "xyz"],
                    [("u", F), ("v", F), ("w", F), ("all", F), ("flags", B)],
                    {"trips": np.array(trips, np.int64), "k": floats(rng, 5)}), feeds, 1 if trips else 0, 0


def while_in_loop(rng, start, chosen):
    """An outer loop of a count that a run gives, in it a while loop, in it an If on an input."""
    then = helper.make_graph([helper.make_node("Identity", ["small"], ["one"])], "then", [], [value("one", F, [3])])
    other = helper.make_graph([helper.make_node("Add", ["small", "large"], ["both"])], "else", [], [value("both", F, [3])])
    inner = helper.make_graph(
        [helper.make_node("If", ["chosen"], ["step"], then_branch=then, else_branch=other),
         helper.make_node("Add", ["e", "step"], ["more"]), helper.make_node("ReduceSum", ["more"], ["total"], keepdims=0),
         helper.make_node("Less", ["total", "limit"], ["on"])],
        "inner", [value("j", I, []), value("go_in", B, []), value("e", F, [3])], [value("on", B, []), value("more", F, [3])])
    outer = helper.make_graph(
        [helper.make_node("ReduceSum", ["a"], ["sum"], keepdims=0), helper.make_node("Less", ["sum", "limit"], ["below"]),
         helper.make_node("Loop", ["", "below", "a"], ["grown"], body=inner), helper.make_node("Neg", ["grown"], ["turned"]),
         helper.make_node("Add", ["m", "i"], ["m1"]), helper.make_node("Identity", ["go"], ["still"])],
        "outer", [value("i", I, []), value("go", B, []), value("a", F, [3]), value("m", I, [])],
        [value("still", B, []), value("turned", F, [3]), value("m1", I, [])])
    node = helper.make_node("Loop", ["trips", "", "x", "zero"], ["y", "count"], body=outer)
    feeds = {"x": np.array(start, np.float32), "chosen": np.array(chosen), "trips": np.array(4 * chosen, np.int64)}
    return model_of([node], [value("x", F, [3]), value("chosen", B, []), value("trips", I, [])], [("y", F), ("count", I)],
                    {"small": np.array([.5, .25, 1], np.float32), "large": np.array([1, 2, 1], np.float32),
                     "limit": np.array(9, np.float32), "zero": np.array(0, np.int64)}), feeds, 2, 1


def cases(rng):
    for op in ("LSTM", "GRU", "RNN"):
        yield f"{op} forward", recurrent(rng, op, 12, 2, 5, 9, "forward", False)
        yield f"{op} bidirectional with lengths", recurrent(rng, op, 7, 3, 16, 24, "bidirectional", True)
    yield "GRU linear_before_reset", recurrent(rng, "GRU", 30, 1, 8, 32, "reverse", False, linear_before_reset=1)
    yield "LSTM of 1500 steps", recurrent(rng, "LSTM", 1500, 1, 8, 16, "forward", False)
    yield "Scan", scan(rng)
    for trips in (0, 1, 6):
        yield f"Loop of {trips}", counted(rng, trips)
    for start, chosen in (([1, 0, -2], True), ([1, 0, -2], False), ([9, 9, 9], True)):
        yield f"Loop in Loop from {start}, {chosen}", while_in_loop(rng, start, chosen)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tessera")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    ran, problems = 0, []
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        for name, (model, feeds, loops, branches) in cases(np.random.default_rng(args.seed)):
            path = folder / "m.onnx"
            onnx.save(model, path)
            want = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, feeds)
            inputs = []
            for n, v in feeds.items():
                np.save(folder / f"{n}.npy", v)
                inputs += ["-i", f"{n}=@{folder / f'{n}.npy'}"]
            outputs = [o.name for o in model.graph.output]
            wanted = [w for o in outputs for w in ("-o", f"{o}=@{folder / f'out_{o}.npy'}")]
            kept = ["--disable-pass", "unroll_loops"]
            text = subprocess.run([args.tessera, "compile", path, "--emit", "program", *kept], capture_output=True, text=True)
            found = (len(re.findall(r"^ *loop ", text.stdout, re.M)), len(re.findall(r"^ *branch ", text.stdout, re.M)))
            if found != (loops, branches):
                problems.append(f"{name}: {found} loops and branches instead of {(loops, branches)} {text.stderr.strip()[:300]}")
            for options in (["-O3", "--threads", "1"], ["-O3", "--threads", "1", *kept], ["-O3", "--threads", "2", *kept], ["-O0"]):
                done = subprocess.run([args.tessera, "run", path, *inputs, *wanted, *options, "--no-cache"],
                                      capture_output=True, text=True)
                if done.returncode != 0:
                    problems.append(f"{name} {options}: {done.stderr.strip()[:500]}")
                    continue
                ran += 1
                for o, w in zip(outputs, want):
                    got = np.load(folder / f"out_{o}.npy")
                    scale = max(np.abs(w).max(), 1e-9) if w.size and w.dtype == np.float32 else 1
                    if got.shape != w.shape or (w.size and np.abs(got.astype("f8") - w.astype("f8")).max() > 1e-4 * scale):
                        problems.append(f"{name} {options}: output {o} differs")
    print(f"{ran} runs")
    for problem in problems:
        print(problem)
    return 1 if problems or ran == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
