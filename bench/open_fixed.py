#!/usr/bin/env python3
"""What open sizes cost: one module for a range of sizes beside modules for single sizes, in turn.

    open_fixed.py [MODEL...] [--dim NAME=LO..HI ...] [--sizes 1x128,4x64,3x77] [--threads 1] [--rounds 7] [--runs 9]
                  [--peer onnxruntime] [--out bench/results/open_fixed]

MODEL is `bert` (12 layers of 768, 12 heads, as exporters write it with open batch and length), `bert2` (two such layers), or
an ONNX file with named dimensions; default: bert. --dim gives the ranges in the order of --sizes (default: batch=1..8,
length=1..256). In each round the module of the range, the one of the size at hand and, if asked for, the peer run `runs`
times each; a time is the median of those, a ratio the median over the rounds. On a machine with other work: under
`taskset -c 0 chrt -r 1`. Writes NAME.json and NAME.md with --out. That outputs agree is tested elsewhere
(tests/python/open_rows_test.py, tests/e2e/open_sizes.py)."""
import argparse
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

import report as common

BERT = {"bert": 12, "bert2": 2}


def model_file(name, folder):
    if name not in BERT:
        return pathlib.Path(name)
    sys.path.insert(0, str(common.ROOT / "tests" / "e2e"))
    import onnx
    import open_sizes
    path = folder / f"{name}.onnx"
    model, _ = open_sizes.encoder(layers=BERT[name], d=768, heads=12, inner=3072, words=30522, longest=512)
    onnx.save(model, path)
    return path


def tessera(*arguments):
    done = subprocess.run([common.TESSERA, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return done.stdout


def inputs_of(path, sizes):
    """{name: (shape, dtype)} at sizes."""
    import onnx
    model = onnx.load(path, load_external_data=False)
    weights = {weight.name for weight in model.graph.initializer}
    found = {}
    for value in model.graph.input:
        if value.name in weights:
            continue
        dims = value.type.tensor_type.shape.dim
        shape = [sizes[d.dim_param] if d.dim_param in sizes else
                 eval(re.sub(r"[A-Za-z_]\w*", lambda m: str(sizes[m[0]]), d.dim_param), {"__builtins__": {}})
                 if d.dim_param else d.dim_value for d in dims]
        found[value.name] = (shape, onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type))
    return found


def milliseconds(module, inputs, args):
    specs = []
    for name, (shape, dtype) in inputs.items():
        text = "x".join(map(str, shape))
        specs += ["-i", f"{name}={text}xf32=random:1" if dtype.kind == "f" else f"{name}={text}xi{8 * dtype.itemsize}=1"]
    told = tessera("bench", module, "--threads", args.threads, "--repeat", args.runs, "--json", *specs)
    return json.loads(told.strip().splitlines()[-1])["median_ms"]


class Peer:
    def __init__(self, path, threads):
        import onnxruntime
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self.session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def feeds(self, inputs):
        import numpy
        rng = numpy.random.default_rng(1)
        return {name: rng.standard_normal(shape).astype(dtype) if dtype.kind == "f" else numpy.ones(shape, dtype)
                for name, (shape, dtype) in inputs.items()}

    def milliseconds(self, feeds, runs):
        self.session.run(None, feeds)
        times = []
        for _ in range(runs):
            start = time.perf_counter()
            self.session.run(None, feeds)
            times.append((time.perf_counter() - start) * 1e3)
        return statistics.median(times)


def measure(name, folder, ranges, args):
    path = model_file(name, folder)
    opened = folder / "open.so"
    tessera("compile", path, "--threads", args.threads, *[f"--dim={n}={r}" for n, r in ranges.items()], "--force", "-o", opened)
    peer = Peer(path, args.threads) if args.peer else None
    rows = []
    for text in args.sizes.split(","):
        sizes = dict(zip(ranges, map(int, text.split("x"))))
        fixed = folder / f"fixed_{text}.so"
        tessera("compile", path, "--threads", args.threads, *[f"--dim={n}={s}" for n, s in sizes.items()], "--force", "-o", fixed)
        inputs = inputs_of(path, sizes)
        feeds = peer.feeds(inputs) if peer else None
        rounds = []
        for _ in range(args.rounds):
            rounds.append([milliseconds(opened, inputs, args), milliseconds(fixed, inputs, args)]
                          + ([peer.milliseconds(feeds, args.runs)] if peer else []))
        times = [statistics.median(column) for column in zip(*rounds)]
        row = {"model": pathlib.Path(name).stem, "sizes": text, "open_ms": times[0], "fixed_ms": times[1],
               "open_by_fixed": statistics.median(r[0] / r[1] for r in rounds)}
        if peer:
            row |= {"peer_ms": times[2], "peer_by_open": statistics.median(r[2] / r[0] for r in rounds)}
        rows.append(row)
        print(" ".join(f"{v:.3f}" if isinstance(v, float) else str(v) for v in row.values()), flush=True)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=["bert"])
    parser.add_argument("--dim", action="append", metavar="NAME=LO..HI")
    parser.add_argument("--sizes", default="1x128,4x64,3x77")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--peer", choices=["onnxruntime"])
    parser.add_argument("--out", type=pathlib.Path)
    args = parser.parse_args()
    ranges = dict(d.split("=", 1) for d in args.dim or ["batch=1..8", "length=1..256"])
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in args.models:
            rows += measure(name, pathlib.Path(folder), ranges, args)
    if args.out:
        peer = args.peer is not None
        lines = ["| model | sizes | open | fixed | open / fixed |" + (" ONNX Runtime | ONNX Runtime / open |" if peer else ""),
                 "|---|---|--:|--:|--:|" + ("--:|--:|" if peer else "")]
        for row in rows:
            lines.append(f"| {row['model']} | {row['sizes']} | {row['open_ms']:.3g} | {row['fixed_ms']:.3g} | "
                         f"{row['open_by_fixed']:.2f} |" + (f" {row['peer_ms']:.3g} | {row['peer_by_open']:.2f} |" if peer else ""))
        args.out.with_suffix(".json").write_text(json.dumps(rows, indent=1) + "\n")
        args.out.with_suffix(".md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
