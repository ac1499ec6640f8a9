#!/usr/bin/env python3
"""How much of what two processes send each other hides behind the backward pass, over a link that is slow on purpose: a pair
of virtual interfaces between two network namespaces, shaped by a token bucket. Needs root (ip netns, tc).

    overlap_link.py TESSERA [--mbit 200 400] [--layers 6] [--width 512] [--rows 2048] [--times 5]

Two processes of torchrun's variables (gloo) train a perceptron of equal layers. From the trace of a step: seconds of its
kernels up to the last gradient, seconds of its collectives, and of the step up to the last collective. Of the collectives
all may hide but the last one, whose gradient is ready when the backward pass ends, and no longer than that pass takes:

    hidden / can hide = (kernels + collectives - step) / min(backward, collectives (layers - 1) / layers)"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "examples/parallel"))
from measure_bubble import perceptron

SPACES = ("tessera-a", "tessera-b")
ADDRESSES = ("10.231.7.1", "10.231.7.2")


def ip(*arguments, check=True):
    subprocess.run(["ip", *arguments], check=check, capture_output=not check)


class Link:
    """Two namespaces, one interface each, both directions shaped."""

    def __init__(self, mbit):
        self.mbit = mbit

    def __enter__(self):
        self.__exit__()
        for space in SPACES:
            ip("netns", "add", space)
        ip("link", "add", "tessera-a", "netns", SPACES[0], "type", "veth", "peer", "name", "tessera-b", "netns", SPACES[1])
        for space, address in zip(SPACES, ADDRESSES):
            ip("-n", space, "addr", "add", address + "/24", "dev", space)
            ip("-n", space, "link", "set", "lo", "up")
            ip("-n", space, "link", "set", space, "up")
            subprocess.run(["tc", "-n", space, "qdisc", "add", "dev", space, "root", "tbf", "rate", f"{self.mbit}mbit", "burst",
                            "256kb", "latency", "200ms"], check=True)
        return self

    def __exit__(self, *_):
        for space in SPACES:
            ip("netns", "del", space, check=False)


def one_step(options, folder):
    """Seconds of kernels up to the last gradient, of the backward pass, of collectives, of the step up to the last one."""
    ranks = []
    for rank, space in enumerate(SPACES):
        command = ["ip", "netns", "exec", space, options.tessera, "train", "net.graph", "--data", "data.npz", "--loss", "mse",
                   "--optimizer", "sgd", "--batch", str(2 * options.rows), "--epochs", "3", "--threads", "1", "-q", "--profile",
                   "trace.json"]
        variables = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": ADDRESSES[0], "MASTER_PORT": "29871",
                     "GLOO_SOCKET_IFNAME": space}
        ranks.append(subprocess.Popen(command, cwd=folder, env=os.environ | variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                      text=True))
    for rank in ranks:
        out, err = rank.communicate(timeout=600)
        if rank.returncode != 0:
            raise SystemExit(out + err)
    events = [e for e in json.loads((folder / "trace.json").read_text())["traceEvents"] if e["ph"] == "X"]
    kernels = [e for e in events if e["cat"] == "kernel" and ".update" not in e["name"] and "training" not in e["name"]]
    gradients = [e for e in events if e["cat"] == "operation" and "gradient" in e["name"]]
    first_gradient = min(e["ts"] for e in gradients)
    begin = min(e["ts"] for e in kernels)
    passes = [e for e in kernels if e["ts"] < max(g["ts"] for g in gradients)]
    end = max(e["ts"] + e["dur"] for e in gradients)
    work = sum(e["dur"] for e in passes)
    behind = sum(e["dur"] for e in passes if e["ts"] >= first_gradient)
    return work, behind, sum(e["dur"] for e in gradients), end - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tessera", type=os.path.abspath)
    parser.add_argument("--mbit", type=int, nargs="+", default=[200, 400])
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--rows", type=int, default=2048)
    parser.add_argument("--times", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        perceptron(options.layers, options.width, options.rows, folder / "net.graph")
        x = np.random.default_rng(1).standard_normal((2 * options.rows, options.width)).astype(np.float32)
        np.savez(folder / "data.npz", x=x, y=np.abs(x))
        for mbit in options.mbit:
            with Link(mbit):
                steps = [one_step(options, folder) for _ in range(options.times)]
            shares = []
            for work, behind, sent, step in steps:
                can = min(behind, sent * (options.layers - 1) / options.layers)
                shares.append((work + sent - step) / can)
            work, behind, sent, step = (statistics.median(column) / 1e3 for column in zip(*steps))
            print(f"{mbit} Mbit/s: kernels {work:.1f} ms ({behind:.1f} behind the first gradient), collectives {sent:.1f} ms, step "
                  f"{step:.1f} ms: {100 * statistics.median(shares):.0f} % of what can hide is hidden ({100 * min(shares):.0f} to "
                  f"{100 * max(shares):.0f})", flush=True)


if __name__ == "__main__":
    main()
