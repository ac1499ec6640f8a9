#!/usr/bin/env python3
"""Times the gradients of the weights of the convolutions in bench/lists: conv_weights, from the image and the result's
gradient as they lie in row-major order, to the weights' in theirs.

    conv_weights.py [LIST] [--only TEXT]... [--threads 1] [--rounds 5] [--seconds 0.2] [--batch 1]
                    [--out bench/results/NAME]

LIST is a name in bench/lists (default: kernels); of its cases those that are convolutions of one group are taken. The
share is that of the multiply-add peak that 'tessera doctor' measures, by the multiply-adds of the whole windows, as the
convolution itself is counted. Beside PyTorch's (torch.nn.grad) where torch is installed. Results are compared with numpy
first. --out NAME writes NAME.json and NAME.md. The compiler is build/bin/tessera, or what TESSERA names. Exit code: 2 when
a result differs."""
import json
import math
import statistics
import subprocess
import sys
import time
import pathlib

import numpy as np

from operator_models import Case
from operators import difference, measured_peak
from report import ROOT, RUNTIME, TESSERA, case_arguments, cpu_name, geometric_mean, tessera_version, today
from tessera_module import Module

try:
    import torch
except ImportError:
    torch = None

WORK = ROOT / "out/bench/conv_weights"


class Gradient:
    """The gradient of a case's weights: its sizes, a graph as text, inputs, and what numpy makes of them."""

    def __init__(self, entry, batch):
        self.name = entry["name"]
        attributes = entry["attributes"]
        _, channels, *extents = Case(entry).inputs["x0"].shape
        self.window = attributes["kernel_shape"]
        self.strides = attributes.get("strides", [1] * len(extents))
        outputs = int(entry["inputs"][1].partition("[")[2].partition(",")[0])
        self.dilations = attributes.get("dilations", [1] * len(extents))
        places = [math.ceil(extent / stride) for extent, stride in zip(extents, self.strides)]
        spans = [(size - 1) * gap + 1 for size, gap in zip(self.window, self.dilations)]
        pads = [max((place - 1) * stride + span - extent, 0)
                for place, stride, span, extent in zip(places, self.strides, spans, extents)]
        self.begin, self.end = [pad // 2 for pad in pads], [pad - pad // 2 for pad in pads]
        random = np.random.default_rng(1)
        self.inputs = {"x": random.standard_normal((batch, channels, *extents)).astype(np.float32),
                       "dy": random.standard_normal((batch, outputs, *places)).astype(np.float32)}
        self.shape = (outputs, channels, *self.window)
        self.flops = 2 * batch * math.prod(self.shape) * math.prod(places)

    def graph(self):
        def type_of(shape):
            return f"f32[{','.join(map(str, shape))}]"
        ones = [1] * len(self.window)
        return (f"graph @main(%x: {type_of(self.inputs['x'].shape)}, %dy: {type_of(self.inputs['dy'].shape)}) -> "
                f"(%dw: {type_of(self.shape)}) {{\n  %dw = conv_weights(%x, %dy) {{dilations = {self.dilations}, groups = 1, "
                f"input_dilations = {ones}, pads_begin = {self.begin}, pads_end = {self.end}, strides = {self.strides}, "
                f"window = {list(self.window)}}} : {type_of(self.shape)}\n}}\n")

    def expected(self):
        x, dy = (self.inputs[name].astype(np.float64) for name in ("x", "dy"))
        x = np.pad(x, [(0, 0), (0, 0), *zip(self.begin, self.end)])
        spans = [(size - 1) * gap + 1 for size, gap in zip(self.window, self.dilations)]
        windows = np.lib.stride_tricks.sliding_window_view(x, spans, axis=range(2, x.ndim))
        steps = [1, 1, *self.strides, *self.dilations]
        windows = windows[tuple(slice(None, None, step) for step in steps)]
        moved = windows.reshape(*windows.shape[:2], -1, math.prod(self.window))
        flat = dy.reshape(*dy.shape[:2], -1)
        return np.einsum("nop,ncpk->ock", flat, moved, optimize=True).reshape(self.shape).astype(np.float32)

    def torch_us(self, args):
        """Of torch's own, in microseconds; nothing where paddings differ at the two ends: torch cannot say it."""
        if self.begin != self.end:
            return None
        torch.set_num_threads(args.threads)
        x, dy = (torch.from_numpy(self.inputs[name]) for name in ("x", "dy"))
        call = {1: torch.nn.grad.conv1d_weight, 2: torch.nn.grad.conv2d_weight, 3: torch.nn.grad.conv3d_weight}[len(self.window)]
        times = []
        end = time.perf_counter() + args.seconds * args.rounds
        while not times or time.perf_counter() < end:
            begin = time.perf_counter()
            call(x, self.shape, dy, stride=self.strides, padding=self.begin, dilation=self.dilations)
            times.append(time.perf_counter() - begin)
        return statistics.median(times) * 1e6


def measure(entry, args, peak):
    gradient = Gradient(entry, args.batch)
    path = WORK / ("".join(c if c.isalnum() else "_" for c in gradient.name) + ".graph")
    path.write_text(gradient.graph())
    module = path.with_suffix(".so")
    subprocess.run([TESSERA, "compile", path, "-o", module, "--threads", str(args.threads)], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    row = {"name": gradient.name, "flops": gradient.flops}
    if pathlib.Path(RUNTIME).exists():
        loaded = Module(RUNTIME, module, gradient.inputs, args.threads)
        row["difference"] = difference(loaded.outputs()[0], gradient.expected())
        loaded.close()
    times, rules = [], []
    for _ in range(args.rounds):
        done = subprocess.run([TESSERA, "bench", module, "--kernels", "--json", "--threads", str(args.threads),
                               "--duration", str(args.seconds)], capture_output=True, text=True, check=True)
        kernels = json.loads(done.stdout.strip().splitlines()[-1])["kernels"]
        times.append(sum(kernel["us"] for kernel in kernels))
        rules = [kernel["rule"] for kernel in kernels]
    row |= {"us": statistics.median(times), "rules": rules}
    row["gflops"] = gradient.flops / row["us"] / 1e3
    row["share"] = row["gflops"] / peak
    if torch:
        row["torch_us"] = gradient.torch_us(args)
    return row


def table(report):
    lines = ["| gradient of the weights of | us | GFLOP/s | of the peak | PyTorch us |", "|---|--:|--:|--:|--:|"]
    for row in report["cases"]:
        theirs = f"{row['torch_us']:.1f}" if row.get("torch_us") else "-"
        lines.append(f"| {row['name']} | {row['us']:.1f} | {row['gflops']:.1f} | {row['share']:.0%} | {theirs} |")
    return "\n".join(lines)


def main():
    parser = case_arguments(__doc__)
    parser.add_argument("--batch", type=int, default=1)
    args = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    if not torch:
        print("PyTorch is left out: this Python has no torch")
    listed = json.loads((ROOT / f"bench/lists/{args.list}.json").read_text())
    peak = measured_peak(args.threads)
    report = {"title": "Gradients of convolutions' weights", "date": today(), "cpu": cpu_name(), "threads": args.threads,
              "tessera": tessera_version(), "batch": args.batch, "peak_gflops": peak, "cases": []}
    status = 0
    for entry in listed["cases"]:
        if entry.get("op") != "Conv" or entry["attributes"].get("group", 1) != 1:
            continue
        if args.only and not any(text.lower() in entry["name"].lower() for text in args.only):
            continue
        row = measure(entry, args, peak)
        report["cases"].append(row)
        wrong = row.get("difference", 0) > 1e-4
        status = 2 if wrong else status
        beside = f"  PyTorch {row['torch_us']:.1f} us" if row.get("torch_us") else ""
        print(f"{row['name']:<40} {row['us']:>8.1f} us  {row['gflops']:>6.1f} GFLOP/s  {row['share']:.0%} of the peak  "
              f"{' '.join(row['rules'])}{beside}{'  DIFFERS' if wrong else ''}", flush=True)
    if report["cases"]:
        shares = [row["share"] for row in report["cases"]]
        report["mean_share"] = geometric_mean(shares)
        print(f"{len(shares)} gradients at {report['mean_share']:.0%} of the peak of {peak:.1f} GFLOP/s in the geometric "
              f"mean, {min(shares):.0%} at least")
    if args.out and report["cases"]:
        args.out.with_suffix(".json").write_text(json.dumps(report, indent=1) + "\n")
        head = (f"{report['date']}, {report['cpu']}, threads: {args.threads}, batch {args.batch}, {args.rounds} rounds of "
                f"{args.seconds} s; measured f32 multiply-add peak: {peak:.0f} GFLOP/s; geometric mean of the shares: "
                f"{report['mean_share']:.0%}")
        args.out.with_suffix(".md").write_text(f"# {report['title']}\n\n{head}\n\n{table(report)}\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
