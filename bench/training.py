#!/usr/bin/env python3
"""Whole training steps of `tessera train`, for the bench of peers that times them (train_peers.py --external).

    training.py FOLDER --threads 1 --repeat 20      one line of JSON: median_ms, losses, peak_rss_mb, first_step_s

FOLDER is one that `train_peers.py --prepare` wrote: the network, four batches, and the recipe. Steps 1 to 20 are the
curve of the losses, with the batches in turn; the steps behind them are timed.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy

ROOT = pathlib.Path(__file__).resolve().parents[1]
CURVE = 20


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--tessera", default=os.environ.get("TESSERA", str(ROOT / "build/bin/tessera")))
    parser.add_argument("--step", help="write the step as a graph, for explain and bench --kernels")
    parser.epilog = "Further options go to `tessera train`."
    args, more = parser.parse_known_args()
    recipe = json.loads((args.folder / "train.json").read_text())
    if recipe["workload"] == "dcgan":
        sys.exit("dcgan has two networks and a loss of its own")
    optimizer = recipe["optimizer"]
    with numpy.load(args.folder / "batches.npz") as data:
        x, y = data["x"], data["y"]
    rows = {"x": x.reshape(-1, *x.shape[2:]), "y": y.reshape(-1, *y.shape[2:])}
    epochs = -(-(CURVE + args.repeat) // len(x))
    with tempfile.TemporaryDirectory() as folder:
        data = pathlib.Path(folder) / "data.npz"
        numpy.savez(data, **rows)
        command = [
            args.tessera, "train", args.folder / "model.onnx", "--data", data, "--in-order", "--batch", x.shape[1],
            "--epochs", epochs, "--optimizer", "adamw", "--lr", optimizer["lr"], "--weight-decay", optimizer["weight_decay"],
            "--clip-norm", recipe["clip_grad_norm"], "--threads", args.threads, "--json",
        ]  # fmt: skip
        if y.ndim > 2:
            command += ["--classes-last", "--ignore", recipe["ignore_index"]]
        if args.step:
            command += ["--step", args.step]
        begin = time.time()
        run = subprocess.run([str(word) for word in command + more], capture_output=True, text=True)
        seconds = time.time() - begin
    if run.returncode != 0:
        sys.exit(run.stderr)
    report = json.loads(run.stdout)
    steps = report["step_seconds"]
    print(json.dumps({
        "median_ms": 1e3 * statistics.median(steps[CURVE:]), "losses": report["losses"][:CURVE],
        "peak_rss_mb": report["peak_rss_mb"], "first_step_s": seconds - sum(steps[1:]),
    }))  # fmt: skip


if __name__ == "__main__":
    main()
