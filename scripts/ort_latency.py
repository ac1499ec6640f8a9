#!/usr/bin/env python3
"""Puts a compiled model's latency beside ONNX Runtime's, measured in the same minute, and checks that both agree.

    ort_latency.py MODEL.onnx --input NAME=x.npy [--expect y.npy] [--rounds 5] [--repeat 10] -- COMMAND...

COMMAND runs our side once: it warms up, repeats {repeat} times on {threads} threads, and prints a line of JSON with
"median_ms". --expect is what our side computed from x.npy for the model's first output. Exit code 2 when it differs."""
import argparse
import sys

import numpy as np

import latency


def main():
    own, command = sys.argv[1:], []
    if "--" in own:
        command = own[own.index("--") + 1:]
        own = own[:own.index("--")]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--input", action="append", required=True, metavar="NAME=FILE.npy")
    parser.add_argument("--expect", metavar="FILE.npy")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeat", type=int, default=10)
    args = parser.parse_args(own)
    inputs = {name: np.load(path) for name, path in (text.split("=", 1) for text in args.input)}

    status = 0
    if args.expect:
        want = latency.OrtSession(args.model, inputs, 0).outputs()[0]
        got = np.load(args.expect)
        difference, magnitude = latency.largest_difference(got, want)
        fine = latency.agrees(got, want)
        print(f"agreement with ONNX Runtime: largest difference {difference:.2e}, largest value {magnitude:.3g}: "
              f"{'ok' if fine else 'DIFFERS'}")
        status = 0 if fine else 2
    if command:
        print(f"{'threads':>7}  {'tessera ms':>10}  {'onnxruntime ms':>14}  {'speedup':>7}")
        for threads in sorted({1, latency.available_cpus()}):
            ort = latency.OrtSession(args.model, inputs, threads)
            filled = [part.format(threads=threads, repeat=args.repeat) for part in command]
            row = latency.compare(filled, ort, args.rounds, args.repeat)
            print(f"{threads:>7}  {row['tessera_ms']:>10.2f}  {row['ort_ms']:>14.2f}  {row['speedup']:>7.2f}", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
