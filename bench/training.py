#!/usr/bin/env python3
"""Whole training steps of `tessera train`, for the bench of peers that times them (train_peers.py --external).

    training.py FOLDER --threads 1 --repeat 20      one line of JSON: median_ms, losses, peak_rss_mb, first_step_s

FOLDER is one that `train_peers.py --prepare` wrote: the network, four batches, and the recipe. Steps 1 to 20 are the
curve of the losses, with the batches in turn; the steps behind them are timed. DCGAN, two networks with an optimizer
each, is a step of `tessera.training_step`.
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
        return dcgan(args.folder, recipe, args.threads, args.repeat, args.step)
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


def dcgan_networks(recipe):
    from tessera import nn

    def block(convolution, *sizes, activation):
        return [convolution(*sizes, bias=False), nn.BatchNorm2d(sizes[1]), activation]

    up, down, f = nn.ConvTranspose2d, nn.Conv2d, 64
    relu, leaky = nn.ReLU(), nn.LeakyReLU(0.2)
    generator = nn.Sequential(
        *block(up, 100, f * 8, 4, 1, 0, activation=relu), *block(up, f * 8, f * 4, 4, 2, 1, activation=relu),
        *block(up, f * 4, f * 2, 4, 2, 1, activation=relu), *block(up, f * 2, f, 4, 2, 1, activation=relu),
        up(f, 3, 4, 2, 1, bias=False), nn.Tanh(),
    )  # fmt: skip
    discriminator = nn.Sequential(
        down(3, f, 4, 2, 1, bias=False), leaky, *block(down, f, f * 2, 4, 2, 1, activation=leaky),
        *block(down, f * 2, f * 4, 4, 2, 1, activation=leaky), *block(down, f * 4, f * 8, 4, 2, 1, activation=leaky),
        down(f * 8, 1, 4, 1, 0, bias=False),
    )  # fmt: skip
    return generator, discriminator


def peak_rss_mb(reset=False):
    found = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) / 1024
    if reset:
        pathlib.Path("/proc/self/clear_refs").write_text("5")
    return round(found, 1)


def dcgan(folder, recipe, threads, repeat, graph):
    """The discriminator learns from real and made pictures, then the generator from the new discriminator."""
    begin = time.time()
    import tessera
    from tessera import nn, optim

    networks = dict(zip(("generator", "discriminator"), dcgan_networks(recipe)))
    for name, network in networks.items():
        with numpy.load(folder / f"{name}.params.npz") as values:
            network.load_state_dict({key: values[key] for key in network.state_dict()})
    g, d = networks["generator"], networks["discriminator"]
    how = recipe["optimizer"]
    optimizers = [
        optim.AdamW(network.parameters(), lr=how["lr"], betas=tuple(how["betas"]), eps=how["eps"], weight_decay=how["weight_decay"])
        for network in (d, g)
    ]
    bce = nn.BCEWithLogitsLoss()

    def update(optimizer, loss):
        loss.backward()
        optim.clip_grad_norm_(optimizer.params, recipe["clip_grad_norm"])
        optimizer.step()

    @tessera.training_step(threads=threads)
    def step(real, noise):
        for optimizer in optimizers:
            optimizer.zero_grad()
        made = g(noise)
        loss_d = bce(d(real), 1.0) + bce(d(made.detach()), 0.0)
        update(optimizers[0], loss_d)
        loss_g = bce(d(made), 1.0)
        update(optimizers[1], loss_g)
        return (loss_d + loss_g).detach()

    with numpy.load(folder / "batches.npz") as data:
        x, z = data["x"], data["z"]
    losses, seconds = [], []
    for i in range(CURVE + repeat):
        start = time.perf_counter()
        losses.append(float(step(x[i % len(x)], z[i % len(z)])))
        seconds.append(time.perf_counter() - start)
        if i == 0:
            first = time.time() - begin
            peak_rss_mb(reset=True)  # compiling has its own
    if graph:
        step.graph.save(graph)
    print(json.dumps({
        "median_ms": 1e3 * statistics.median(seconds[CURVE:]), "losses": losses[:CURVE], "peak_rss_mb": peak_rss_mb(),
        "first_step_s": first,
    }))  # fmt: skip


if __name__ == "__main__":
    main()
