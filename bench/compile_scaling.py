#!/usr/bin/env python3
"""How compile time and memory grow with the size of the graph: chains, wide and residual graphs of 100 to 10,000 nodes.

    compile_scaling.py [--tessera build/bin/tessera] [--sizes 100,1000,10000] [--shapes chain,wide,residual] [--json OUT]
                       [--max-ratio R]

  chain     product, shift, relu, product, ...: every node reads the one before
  wide      products of one input, added up in pairs: half of the values are alive at once
  residual  blocks x + relu(x w + b), as in a transformer's feed-forward path
  distinct  a chain whose products all have another width: no two kernels are equal

Per row: nodes, seconds, microseconds per node, peak memory above that of the smallest graph in kB per node, kernels and
how many of them are different, and the three slowest steps. With --max-ratio the exit code is 3 when the time per node of
a shape's largest graph exceeds R times that of its graph of about 1,000 nodes (smaller ones are all start-up)."""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ROOT = pathlib.Path(__file__).resolve().parent.parent
WIDTH = 16


class Builder:
    def __init__(self):
        self.nodes, self.weights = [], []
        self.random = np.random.default_rng(1)

    def weight(self, *shape):
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(self.random.standard_normal(shape).astype(np.float32) / WIDTH, name))
        return name

    def op(self, kind, *inputs):
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=f"{kind}_{len(self.nodes)}"))
        return name

    def save(self, path, result, width=WIDTH):
        graph = helper.make_graph(self.nodes, "scaling",
                                  [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, WIDTH])],
                                  [helper.make_tensor_value_info(result, TensorProto.FLOAT, [4, width])], self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.save(model, path)


def chain(size):
    b, value = Builder(), "x"
    while len(b.nodes) < size:
        value = b.op("MatMul", value, b.weight(WIDTH, WIDTH))
        value = b.op("Add", value, b.weight(WIDTH))
        value = b.op("Relu", value)
    return b, value, WIDTH


def wide(size):
    b = Builder()
    values = [b.op("MatMul", "x", b.weight(WIDTH, WIDTH)) for _ in range(size // 2)]
    while len(values) > 1:
        pairs = [b.op("Add", values[i], values[i + 1]) for i in range(0, len(values) - 1, 2)]
        values = pairs + values[len(values) // 2 * 2:]
    return b, values[0], WIDTH


def residual(size):
    b, value = Builder(), "x"
    while len(b.nodes) < size:
        inner = b.op("MatMul", value, b.weight(WIDTH, WIDTH))
        inner = b.op("Relu", b.op("Add", inner, b.weight(WIDTH)))
        value = b.op("Add", value, inner)
    return b, value, WIDTH


def distinct(size):
    b, value, width, number = Builder(), "x", WIDTH, 0
    while len(b.nodes) < size:
        following = 8 + number * 7 % 97
        value = b.op("Relu", b.op("MatMul", value, b.weight(width, following)))
        width, number = following, number + 1
    return b, value, width


SHAPES = {"chain": chain, "wide": wide, "residual": residual, "distinct": distinct}


def compile_once(tessera, path, out):
    """Seconds, peak resident kB, kernels, different kernels, [(step, seconds)] slowest first."""
    begin = time.perf_counter()
    process = subprocess.Popen([tessera, "compile", path, "-o", out, "--time-passes"], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    stdout, stderr = process.stdout.read(), process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begin
    if status != 0:
        sys.exit(f"compile_scaling: {path}: {stderr}")
    kernels, different = map(int, re.search(r"(\d+) kernels \((\d+) different\)", stdout).groups())
    steps = [(row.split()[2], float(row.split()[0]) / 1e3) for row in stderr.splitlines()
             if re.match(r"\s*[\d.]+\s+[\d.]+\s+\w", row) and not row.endswith("total")]
    return seconds, usage.ru_maxrss, kernels, different, sorted(steps, key=lambda step: -step[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tessera", default=ROOT / "build/bin/tessera")
    parser.add_argument("--sizes", default="100,300,1000,3000,10000")
    parser.add_argument("--shapes", default="chain,wide,residual,distinct")
    parser.add_argument("--json")
    parser.add_argument("--max-ratio", type=float)
    options = parser.parse_args()
    sizes = sorted(int(size) for size in options.sizes.split(","))
    rows, too_slow = [], False
    print(f"{'shape':9} {'nodes':>6} {'s':>7} {'us/node':>8} {'kB/node':>8} {'kernels':>8} {'different':>9}  slowest steps (s)")
    with tempfile.TemporaryDirectory() as work:
        for shape in options.shapes.split(","):
            base, reference, per_node = None, None, None
            for size in sizes:
                builder, result, width = SHAPES[shape](size)
                path = os.path.join(work, "model.onnx")
                builder.save(path, result, width)
                nodes = len(builder.nodes)
                seconds, rss, kernels, different, steps = compile_once(options.tessera, path, os.path.join(work, "m.so"))
                base = base or (nodes, rss)
                growth = (rss - base[1]) / (nodes - base[0]) if nodes > base[0] else float("nan")
                per_node = seconds / nodes
                if nodes <= 1100:
                    reference = per_node
                slow = ", ".join(f"{name} {taken:.2f}" for name, taken in steps[:3])
                print(f"{shape:9} {nodes:6} {seconds:7.2f} {per_node * 1e6:8.0f} {growth:8.1f} {kernels:8} {different:9}  {slow}",
                      flush=True)
                rows.append({"shape": shape, "nodes": nodes, "seconds": seconds, "peak_rss_kb": rss, "kernels": kernels,
                             "different_kernels": different, "steps": dict(steps)})
            if options.max_ratio and per_node > options.max_ratio * reference:
                print(f"{shape}: {per_node / reference:.1f} times the time per node of the graph of about 1,000 nodes")
                too_slow = True
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(rows, indent=1) + "\n")
    return 3 if too_slow else 0


if __name__ == "__main__":
    sys.exit(main())
