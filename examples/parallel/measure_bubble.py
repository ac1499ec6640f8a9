#!/usr/bin/env python3
"""The share of a step in which the stages of a pipeline have nothing to do, measured from the traces of two processes, one
core each, beside (p - 1) / (m + p - 1).

    measure_bubble.py TESSERA MPIRUN [--width 512] [--layers 8] [--rows 64] [--micro-batches 1 2 4 8] [--schedules 1f1b]

A perceptron of equal layers, cut in the middle. From a trace: a stage works while a kernel of its forward or backward
pass runs; a step lasts from the first of these, on any stage, to the last. The update behind it is no part of it."""
import argparse
import json
import pathlib
import subprocess
import tempfile

import numpy as np

from tessera import graph


def perceptron(layers, width, rows, file):
    random = np.random.default_rng(0)
    g = graph.Graph("perceptron")
    x = g.input("x", np.float32, (rows, width))
    for i in range(layers):
        weight = (random.standard_normal((width, width)) / np.sqrt(width)).astype(np.float32)
        x = graph.relu(graph.matmul(x, g.constant(weight, name=f"layer{i}.weight")))
    g.output("y", x)
    g.save(file)


def read(trace):
    """Of all kernels of the forward and backward passes begin and end, in microseconds; of messages, by name, when each was
    given away, and when it had come."""
    events = [e for e in json.loads(trace.read_text())["traceEvents"] if e["ph"] == "X"]
    kernels = [(e["ts"], e["ts"] + e["dur"]) for e in events
               if e["cat"] == "kernel" and ".update" not in e["name"] and "training" not in e["name"]]
    operations = [e for e in events if e["cat"] == "operation"]
    sent = {e["name"].removesuffix(".sent"): e["ts"] for e in operations if e["name"].endswith(".sent")}
    come = {e["name"].removesuffix(".received"): e["ts"] + e["dur"] for e in operations if e["name"].endswith(".received")}
    return kernels, sent, come


def on_one_clock(first, second):
    """Kernels of both. A trace counts from its own begin: messages both ways say how far these are apart."""
    there = min(second[2][name] - first[1][name] for name in first[1])
    back = min(first[2][name] - second[1][name] for name in second[1])
    apart = (there - back) / 2
    return first[0], [(begin - apart, end - apart) for begin, end in second[0]]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tessera")
    parser.add_argument("mpirun")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--micro-batches", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--schedules", nargs="+", default=["gpipe", "1f1b"])
    parser.add_argument("--times", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        perceptron(options.layers, options.width, options.rows, folder / "net.graph")
        most = max(options.micro_batches) * options.rows
        random = np.random.default_rng(1)
        x = random.standard_normal((4 * most, options.width)).astype(np.float32)
        np.savez(folder / "data.npz", x=x, y=np.abs(x))
        for schedule in options.schedules:
            for m in options.micro_batches:
                shares, steps = [], []
                for _ in range(options.times):
                    command = [options.mpirun, "--allow-run-as-root", "--bind-to", "core", "-n", "2", options.tessera, "train",
                               "net.graph", "--data", "data.npz", "--loss", "mse", "--batch", str(m * options.rows), "--epochs",
                               "3", "--threads", "1", "--stages", "2", "--micro-batches", str(m), "--pipeline", schedule, "-q",
                               "--profile", "trace.json"]
                    subprocess.run(command, cwd=folder, check=True, capture_output=True)
                    stages = on_one_clock(read(folder / "trace.json"), read(folder / "trace.json.1"))
                    begin = min(b for stage in stages for b, _ in stage)
                    end = max(e for stage in stages for _, e in stage)
                    work = sum(e - b for stage in stages for b, e in stage)
                    shares.append(1 - work / (2 * (end - begin)))
                    steps.append((end - begin) / 1e3)
                formula = 1 / (m + 1)
                print(f"{schedule:>6} {m:3} micro-batches: {100 * np.median(shares):5.1f} % of {np.median(steps):7.2f} ms "
                      f"without work, formula {100 * formula:5.1f} %", flush=True)


if __name__ == "__main__":
    main()
