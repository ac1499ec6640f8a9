"""Timing a program beside ONNX Runtime on the same machine, in alternating rounds so that noise falls on both."""
import json
import os
import statistics
import subprocess
import sys
import time

import numpy as np
import onnxruntime

WARM_UP_RUNS = 2


def available_cpus():
    return len(os.sched_getaffinity(0))


class OrtSession:
    """A model in ONNX Runtime: CPU, all graph optimisations, `threads` threads."""

    def __init__(self, model_path, inputs, threads):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self.session = onnxruntime.InferenceSession(str(model_path), options, providers=["CPUExecutionProvider"])
        self.inputs = inputs

    def outputs(self):
        return self.session.run(None, self.inputs)

    def time_round(self, repeat):
        """Milliseconds of `repeat` runs, after warm-up."""
        times = []
        for number in range(WARM_UP_RUNS + repeat):
            begin = time.perf_counter()
            self.session.run(None, self.inputs)
            if number >= WARM_UP_RUNS:
                times.append((time.perf_counter() - begin) * 1e3)
        return times


def run_json(command):
    """Runs a command that prints one JSON object on its last line. It warms up and repeats by itself."""
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"'{' '.join(command)}' ended with exit code {done.returncode}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def compare(command, ort, rounds, repeat):
    """Alternates `command` (which must print "median_ms") and ONNX Runtime. Returns the median over rounds of each
    round's median, and the spread of those medians, in milliseconds."""
    ours, theirs = [], []
    for _ in range(rounds):
        ours.append(run_json(command)["median_ms"])
        theirs.append(statistics.median(ort.time_round(repeat)))
        time.sleep(0.1)  # ONNX Runtime's threads go on spinning for a moment; the next round is ours
    return {
        "tessera_ms": statistics.median(ours),
        "ort_ms": statistics.median(theirs),
        "tessera_rounds_ms": ours,
        "ort_rounds_ms": theirs,
        "speedup": statistics.median(theirs) / statistics.median(ours),
    }


def largest_difference(got, want):
    """(max|got - want|, max|want|); infinite when shapes differ or something is not finite on one side only."""
    got, want = np.asarray(got), np.asarray(want)
    if got.shape != want.shape or not np.array_equal(np.isfinite(got), np.isfinite(want)):
        return float("inf"), float(np.abs(want).max(initial=0))
    if want.size == 0:
        return 0.0, 0.0
    finite = np.isfinite(want)
    difference = np.abs(got.astype(np.float64) - want.astype(np.float64))[finite]
    return float(difference.max(initial=0)), float(np.abs(want[finite].astype(np.float64)).max(initial=0))


def agrees(got, want, relative=1e-4):
    difference, magnitude = largest_difference(got, want)
    return difference <= relative * magnitude
