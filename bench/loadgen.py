#!/usr/bin/env python3
"""MLPerf's LoadGen (PyPI mlcommons-loadgen) drives a model: single stream, one query after the answer to the last, or
offline, all samples at once.

    loadgen.py MODEL [--scenario SingleStream|Offline] [--mode PerformanceOnly|AccuracyOnly] [--seconds 10] [--queries 100]
               [--samples 16] [--inputs FILE.npz] [--threads 1] [--sessions 1] [--out out/loadgen]

MODEL is what tessera.compile takes, or a module. Samples are random numbers with seeds of their own, or the rows that the
arrays of FILE.npz have in front of an input's own shape. --sessions answers offline queries in so many Python threads, each
with a session on --threads threads. LoadGen's own logs, mlperf_log_*.txt and .json, are written to --out; its verdict and
figures are printed, as one line of JSON at the end. Exit code 3 when LoadGen calls the run invalid (docs/cli.md: a missed
bound): too few queries or too short."""
import argparse
import concurrent.futures
import json
import pathlib
import re
import sys
import time

import mlperf_loadgen as loadgen
import numpy as np

import tessera

EXIT_MISSED = 3


def open_model(path, threads):
    with open(path, "rb") as file:
        is_module = file.read(4) == b"\x7fELF"
    model = (tessera.load if is_module else tessera.compile)(path, threads=threads)
    if any(info.kind != "tensor" or info.shape is None or not all(isinstance(dim, int) for dim in info.shape) for info in model.inputs):
        sys.exit(f"{path}: the harness runs models of tensors of fixed sizes; its inputs are {', '.join(map(str, model.inputs))}")
    return model


def samples_of(model, count, path):
    if path:
        arrays = np.load(path)
        return [{info.name: np.ascontiguousarray(arrays[info.name][i]) for info in model.inputs}
                for i in range(min(len(arrays[info.name]) for info in model.inputs))]
    samples = []
    for seed in range(count):
        random = np.random.default_rng(seed)
        samples.append({info.name: (random.random(info.shape) * (1 if info.dtype.kind == "f" else 10)).astype(info.dtype)
                        for info in model.inputs})
    return samples


class Harness:
    """The system under test and its samples, as LoadGen calls them."""

    def __init__(self, models, samples):
        self.models, self.samples = models, samples
        self.pool = concurrent.futures.ThreadPoolExecutor(len(models))
        self.sut = loadgen.ConstructSUT(self.issue, lambda: None)
        self.library = loadgen.ConstructQSL(len(samples), len(samples), lambda indices: None, lambda indices: None)

    def issue(self, queries):
        share = -(-len(queries) // len(self.models))
        parts = [queries[i:i + share] for i in range(0, len(queries), share)]
        for done in [self.pool.submit(self.answer, model, part) for model, part in zip(self.models, parts)]:
            done.result()

    def answer(self, model, queries):
        for query in queries:
            # LoadGen reads the answer during the call.
            answer = b"".join(np.ascontiguousarray(array).tobytes() for array in model.run(self.samples[query.index]))
            data = np.frombuffer(answer, np.uint8)
            loadgen.QuerySamplesComplete([loadgen.QuerySampleResponse(query.id, data.ctypes.data, data.nbytes)])

    def run(self, args):
        settings = loadgen.TestSettings()
        settings.scenario = getattr(loadgen.TestScenario, args.scenario)
        settings.mode = getattr(loadgen.TestMode, args.mode)
        settings.min_duration_ms = int(args.seconds * 1000)
        settings.min_query_count = args.queries
        # How many queries LoadGen prepares follows from these; it never asks more.
        if args.scenario == "Offline":
            settings.offline_expected_qps = self.speed() * len(self.models)
        else:
            settings.single_stream_expected_latency_ns = int(1e9 / self.speed() / 2)
        output = loadgen.LogOutputSettings()
        output.outdir = str(args.out)
        logs = loadgen.LogSettings()
        logs.log_output = output
        logs.enable_trace = False
        loadgen.StartTestWithLogSettings(self.sut, self.library, settings, logs)

    def speed(self):
        """Queries a second of one session, in half a second."""
        self.models[0].run(self.samples[0])
        begin, runs = time.perf_counter(), 0
        while time.perf_counter() - begin < 0.5:
            self.models[0].run(self.samples[0])
            runs += 1
        return runs / (time.perf_counter() - begin)

    def close(self):
        loadgen.DestroyQSL(self.library)
        loadgen.DestroySUT(self.sut)
        self.pool.shutdown()


def figures_of(folder):
    """What LoadGen says of a run: {"Result is": "VALID", "Mean latency (ns)": 123, ...}."""
    text = (folder / "mlperf_log_summary.txt").read_text()
    found = {}
    for name, value in re.findall(r"^\s*([^:\n]+?)\s*:\s*(\S.*?)\s*$", text, re.M):
        found.setdefault(name, float(value) if re.fullmatch(r"-?\d+(\.\d+)?(e[+-]?\d+)?", value) else value)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--scenario", choices=("SingleStream", "Offline"), default="SingleStream")
    parser.add_argument("--mode", choices=("PerformanceOnly", "AccuracyOnly"), default="PerformanceOnly")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--inputs", help="a file .npz with an array for each input, samples in front")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--sessions", type=int, default=1)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out/loadgen"))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    first = open_model(args.model, args.threads)
    harness = Harness([first] + [open_model(args.model, args.threads) for _ in range(args.sessions - 1)],
                      samples_of(first, args.samples, args.inputs))
    harness.run(args)
    harness.close()
    if args.mode == "AccuracyOnly":
        print(f"answers: {args.out / 'mlperf_log_accuracy.json'}")
        return 0
    figures = figures_of(args.out)
    print(json.dumps({"model": args.model, "threads": args.threads, "sessions": args.sessions, **figures}))
    return 0 if figures.get("Result is") == "VALID" else EXIT_MISSED


if __name__ == "__main__":
    sys.exit(main())
