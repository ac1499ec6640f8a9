#!/usr/bin/env python3
"""What fusing nodes into kernels brings: blocks of networks compiled with and without it, in one process, in turn.

    fusion.py [--only TEXT]... [--threads 1] [--rounds 7] [--seconds 0.05] [--out bench/results/fusion]

Each block is compiled three times: as it is by default; without fusion (--disable-pass fuse_groups: every node is a
kernel, a normalisation still goes into the weights of the convolution before it); and without that as well ("apart":
--disable-pass fold_batch_norm, fold_batch_norm_forward and merge_matmuls too), which is how the model writes it. The
three agree to 1e-4 of the largest output, else the exit code is 2. A figure is the median over the rounds of each
round's median. Writes NAME.json, NAME.md and NAME.png. The compiler is build/bin/tessera or what TESSERA names, the run
time build/lib/libtessera_runtime.so or what TESSERA_RUNTIME names."""
import argparse
import pathlib
import re
import statistics
import subprocess
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import report as common
from operators import difference, time_for
from tessera_module import Module

WORK = common.ROOT / "out/bench/fusion"
VARIANTS = {"default": [], "without fusion": ["fuse_groups"],
            "apart": ["fuse_groups", "fold_batch_norm", "fold_batch_norm_forward", "merge_matmuls"]}


class Block:
    """A model under construction: nodes, weights, inputs; every value has f32 elements."""

    def __init__(self):
        self.random = np.random.default_rng(7)
        self.nodes, self.weights, self.inputs = [], [], {}

    def input(self, name, *shape):
        self.inputs[name] = self.random.standard_normal(shape).astype(np.float32)
        return name

    def weight(self, *shape, fan_in=1, positive=False):
        name = f"w{len(self.weights)}"
        data = self.random.uniform(0.5, 1.5, shape) if positive else self.random.standard_normal(shape) / np.sqrt(fan_in)
        self.weights.append(numpy_helper.from_array(data.astype(np.float32), name))
        return name

    def op(self, kind, *operands, **attributes):
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(operands), [name], name=f"{kind}_{len(self.nodes)}", **attributes))
        return name

    def batch_norm(self, value, channels):
        return self.op("BatchNormalization", value, self.weight(channels, positive=True), self.weight(channels),
                       self.weight(channels), self.weight(channels, positive=True))

    def save(self, path, outputs):
        infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, data.shape) for name, data in self.inputs.items()]
        graph = helper.make_graph(self.nodes, "block", infos, [onnx.ValueInfoProto(name=name) for name in outputs],
                                  self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        onnx.save(onnx.shape_inference.infer_shapes(model), path)


def convolution(channels, extent, kernel, groups=1, stride=1, filters=None):
    def build(block):
        filters_ = filters or channels
        weight = block.weight(filters_, channels // groups, kernel, kernel, fan_in=channels // groups * kernel * kernel)
        x = block.input("x", 1, channels, extent, extent)
        value = block.op("Conv", x, weight, pads=[kernel // 2] * 4, strides=[stride] * 2, group=groups)
        return [block.op("Relu", block.batch_norm(value, filters_))]
    return build


def rnn_cell(batch, hidden):
    """h' = tanh(x W + h R + b)"""
    def build(block):
        x, h = block.input("x", batch, hidden), block.input("h", batch, hidden)
        sums = block.op("Add", block.op("MatMul", x, block.weight(hidden, hidden, fan_in=hidden)),
                        block.op("MatMul", h, block.weight(hidden, hidden, fan_in=hidden)))
        return [block.op("Tanh", block.op("Add", sums, block.weight(hidden)))]
    return build


def lstm_cell(batch, hidden):
    """i, f, g, o = split(x W + h R + b); c' = sigmoid(f) c + sigmoid(i) tanh(g); h' = sigmoid(o) tanh(c')"""
    def build(block):
        x, h, c = (block.input(name, batch, hidden) for name in "xhc")
        sums = block.op("Add", block.op("MatMul", x, block.weight(hidden, 4 * hidden, fan_in=hidden)),
                        block.op("MatMul", h, block.weight(hidden, 4 * hidden, fan_in=hidden)))
        sums = block.op("Add", sums, block.weight(4 * hidden))
        block.nodes.append(helper.make_node("Split", [sums], ["i", "f", "g", "o"], axis=1, name="gates"))
        i, f, o = (block.op("Sigmoid", gate) for gate in "ifo")
        state = block.op("Add", block.op("Mul", f, c), block.op("Mul", i, block.op("Tanh", "g")))
        return [block.op("Mul", o, block.op("Tanh", state)), state]
    return build


BLOCKS = {
    "conv 3x3 64x56x56 + bn + relu": convolution(64, 56, 3),
    "conv 3x3 128x28x28 + bn + relu": convolution(128, 28, 3),
    "conv 1x1 128>256 28x28 + bn + relu": convolution(128, 28, 1, filters=256),
    "conv 7x7/2 3>64 224x224 + bn + relu": convolution(3, 224, 7, stride=2, filters=64),
    "depthwise 3x3 32x112x112 + bn + relu": convolution(32, 112, 3, groups=32),
    "depthwise 3x3/2 96x112x112 + bn + relu": convolution(96, 112, 3, groups=96, stride=2),
    "depthwise 3x3 512x14x14 + bn + relu": convolution(512, 14, 3, groups=512),
    "RNN cell, batch 1, hidden 128": rnn_cell(1, 128),
    "RNN cell, batch 32, hidden 512": rnn_cell(32, 512),
    "LSTM cell, batch 1, hidden 128": lstm_cell(1, 128),
    "LSTM cell, batch 1, hidden 512": lstm_cell(1, 512),
    "LSTM cell, batch 32, hidden 512": lstm_cell(32, 512),
}


def measure(name, build, args):
    block = Block()
    outputs = build(block)
    path = WORK / ("".join(c if c.isalnum() else "_" for c in name) + ".onnx")
    block.save(path, outputs)
    row, modules = {"name": name, "variants": {}}, {}
    for variant, passes in VARIANTS.items():
        module = path.with_suffix(f".{len(modules)}.so")
        flags = [flag for disabled in passes for flag in ("--disable-pass", disabled)]
        done = subprocess.run([common.TESSERA, "compile", path, "-o", module, "--threads", str(args.threads), *flags],
                              capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"fusion.py: {name}, {variant}: {done.stderr}")
        modules[variant] = Module(common.RUNTIME, module, block.inputs, args.threads)
        row["variants"][variant] = {"kernels": int(re.search(r"(\d+) kernels?", done.stdout)[1])}
    want = modules["apart"].outputs()
    row["difference"] = max(difference(got, ref) for module in modules.values()
                            for got, ref in zip(module.outputs(), want, strict=True))
    for module in modules.values():
        time_for(module.run, 0.02)
    rounds = [{variant: time_for(module.run, args.seconds) for variant, module in modules.items()}
              for _ in range(args.rounds)]
    for variant, told in row["variants"].items():
        told["us"] = statistics.median(times[variant] for times in rounds)
        told["rounds_us"] = [times[variant] for times in rounds]
        told["gain"] = statistics.median(times[variant] / times["default"] for times in rounds)
    for module in modules.values():
        module.close()
    return row


def table(results):
    rows = [["block", "default us", "kernels", "without fusion us", "kernels", "times", "apart us", "kernels", "times",
             "difference"]]
    for row in results["blocks"]:
        default, unfused, apart = (row["variants"][variant] for variant in VARIANTS)
        rows.append([row["name"], f"{default['us']:.1f}", default["kernels"], f"{unfused['us']:.1f}", unfused["kernels"],
                     f"{unfused['gain']:.2f}", f"{apart['us']:.1f}", apart["kernels"], f"{apart['gain']:.2f}",
                     f"{row['difference']:.1e}"])
    means = [common.geometric_mean([row["variants"][v]["gain"] for row in results["blocks"]]) for v in VARIANTS]
    rows.append(["geometric mean", "", "", "", "", f"{means[1]:.2f}", "", "", f"{means[2]:.2f}", ""])
    return common.markdown(rows)


def plot(results, path):
    pyplot = common.pyplot()
    rows = results["blocks"][::-1]
    figure, axes = pyplot.subplots(figsize=(8.5, 0.42 * len(rows) + 1.5))
    for i, (variant, colour) in enumerate((("apart", "#b5483a"), ("without fusion", "#c8a13a"))):
        axes.barh([place + 0.2 - 0.4 * i for place in range(len(rows))],
                  [row["variants"][variant]["gain"] for row in rows], height=0.38, color=colour, label=variant)
    axes.axvline(1, color="black", linewidth=0.9)
    axes.set_yticks(range(len(rows)), [row["name"] for row in rows], fontsize=8)
    axes.set_xlabel("time / time with fusion", fontsize=8)
    axes.legend(fontsize=8)
    axes.set_title(f"Fusion, {results['cpu']}, threads: {results['threads']}, {results['date']}", fontsize=9)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[], metavar="TEXT")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.05)
    parser.add_argument("--out", type=pathlib.Path, default=common.ROOT / "bench/results/fusion")
    args = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    results = {"date": common.today(), "cpu": common.cpu_name(), "threads": args.threads,
               "tessera": common.tessera_version(), "commit": common.commit(), "rounds": args.rounds,
               "seconds": args.seconds, "blocks": []}
    status = 0
    for name, build in BLOCKS.items():
        if args.only and not any(text.lower() in name.lower() for text in args.only):
            continue
        row = measure(name, build, args)
        results["blocks"].append(row)
        wrong = row["difference"] > 1e-4
        status = 2 if wrong else status
        print(f"{name:<42} " + "  ".join(f"{variant} {told['us']:.1f} us ({told['kernels']} kernels, x{told['gain']:.2f})"
                                         for variant, told in row["variants"].items()) + ("  DIFFERS" if wrong else ""),
              flush=True)
    if not results["blocks"]:
        sys.exit("fusion.py: no block has such a name")
    common.save_json(results, args.out.with_suffix(".json"))
    args.out.with_suffix(".md").write_text(
        f"# Fusion on and off\n\n{results['date']}, {results['cpu']}, threads: {args.threads}, tessera {results['tessera']} "
        f"({results['commit']}), {args.rounds} rounds of {args.seconds} s for each variant, in one process, in turn. "
        f"\"Without fusion\": every node a kernel; \"apart\": normalisations are not folded into weights either. \"times\" is "
        f"the time divided by the default's.\n\n{table(results)}\n")
    plot(results, args.out.with_suffix(".png"))
    return status


if __name__ == "__main__":
    sys.exit(main())
