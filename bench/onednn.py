"""oneDNN on the convolutions and matrix products of a list: a process of bench/onednn_bench.cpp for each case."""
import os
import shutil
import subprocess
import tempfile

import numpy as np
from onnx import numpy_helper

import report as common


def programs():
    return sorted((common.ROOT / "build/bin").glob("onednn_bench_*"))


def describe(case):
    """(arguments, operands) of onednn_bench for a case, or None when it is no convolution or product of matrices."""
    weights = [numpy_helper.to_array(tensor) for tensor in case.weights]
    if len(case.nodes) != 1 or len(case.inputs) != 1:
        return None
    x, attributes = next(iter(case.inputs.values())), {a.name: a for a in case.nodes[0].attribute}
    if case.op == "MatMul" and len(weights) == 1 and x.ndim == weights[0].ndim == 2 and x.dtype == np.float32:
        return ["matmul", *x.shape, weights[0].shape[1]], {"x": x, "w": weights[0]}
    if case.op != "Conv" or len(weights) != 2 or x.ndim != 4 or x.dtype != np.float32:
        return None
    if "dilations" in attributes or "auto_pad" not in attributes or attributes["auto_pad"].s != b"SAME_UPPER":
        return None
    stride, stride_w = attributes["strides"].ints
    filters, _, r, s = weights[0].shape
    begin, end = [], []
    for extent, kernel in ((x.shape[2], r), (x.shape[3], s)):
        total = max(0, (-(-extent // stride) - 1) * stride + kernel - extent)
        begin.append(total // 2)
        end.append(total - total // 2)
    groups = attributes["group"].i if "group" in attributes else 1
    if stride != stride_w:
        return None
    return ["conv", *x.shape, filters, r, s, stride, groups, *begin, *end], {"x": x, "w": weights[0], "b": weights[1]}


class OneDnn:
    """One case in one build of oneDNN. `results` has what each way gives, in the shape `like` has."""

    def __init__(self, program, described, threads, like):
        arguments, operands = described
        self.folder = tempfile.mkdtemp(prefix="tessera-onednn-")
        try:
            for name, value in operands.items():
                np.ascontiguousarray(value).tofile(f"{self.folder}/{name}")
            # Whatever its threads come from, they get this many processors.
            cpus = sorted(os.sched_getaffinity(0))[:threads]
            self.process = subprocess.Popen(
                [program, *map(str, arguments), self.folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": str(threads)},
                preexec_fn=lambda: os.sched_setaffinity(0, cpus))
            told = self.process.stdout.readline().split()
            if not told:
                raise RuntimeError(f"{program}: {self.process.stderr.read().strip()}")
            self.version, self.ways = told[0], told[1:]
            self.results = {way: np.fromfile(f"{self.folder}/y.{way}", np.float32).reshape(like.shape)
                            for way in self.ways if way != "own"}
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def time_for(self, way, seconds):
        """The median time of one run, in microseconds."""
        print(way, seconds, file=self.process.stdin, flush=True)
        return float(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()
