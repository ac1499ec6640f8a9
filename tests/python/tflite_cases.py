"""Random TFLite operators for tests: a model of many of them, run beside LiteRT's reference kernels."""

import sys

import numpy as np

import tflite_support
from tflite_support import Builder

ACTIVATIONS = {"NONE": 0, "RELU": 1, "RELU_N1_TO_1": 2, "RELU6": 3}


class Case:
    """Adds operators with random inputs to one model."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.builder = Builder()
        self.values, self.labels, self.tolerances = [], [], {}

    def pick(self, *choices):
        return choices[self.rng.integers(len(choices))]

    def number(self, low, high):
        return int(self.rng.integers(low, high + 1))

    def zero(self, dtype):
        return self.number(-128, 127) if dtype == np.int8 else self.number(0, 255)

    def scale(self, low=0.004, high=0.2):
        # Powers of two have sums that are halves.
        return 2.0 ** self.number(-7, -3) if self.rng.random() < 0.3 else float(self.rng.uniform(low, high))

    def value(self, shape, dtype):
        if np.dtype(dtype).kind == "f":
            return np.asarray(self.rng.standard_normal(shape)).astype(dtype)
        if dtype == np.bool_:
            return self.rng.integers(0, 2, shape).astype(bool)
        info = np.iinfo(dtype)
        return np.asarray(self.rng.integers(info.min, info.max, shape, np.dtype(dtype), endpoint=True))

    def input(self, shape, dtype, **kwargs):
        self.values.append(self.value(shape, dtype))
        return self.builder.input(shape, dtype, **kwargs)

    def quantized(self, shape, dtype, low=0.004, high=0.2):
        return self.input(shape, dtype, scale=self.scale(low, high), zero=self.zero(dtype))

    def output(self, kind, shape, dtype, inputs, options=None, version=1, note="", scale=None, zero=0, tolerance=None,
               **fields):
        self.outputs(kind, [(shape, dtype)], inputs, options, version, note, scale, zero, tolerance, **fields)

    def outputs(self, kind, results, inputs, options=None, version=1, note="", scale=None, zero=0, tolerance=None, **fields):
        made = [self.builder.output(shape, dtype, scale=scale, zero=zero) for shape, dtype in results]
        self.builder.operator(kind, inputs, made, options, version, **fields)
        for i, (shape, dtype) in enumerate(results):
            self.labels.append(f"{kind} {np.dtype(dtype).name} {list(shape)} {note} {fields}{f' #{i}' if i else ''}")
            if tolerance is not None:
                self.tolerances[self.labels[-1]] = tolerance

    def constant(self, values, dtype=None, **kwargs):
        values = np.asarray(values, dtype)
        return self.builder.tensor(values.shape, values.dtype, data=values, **kwargs)

    def scale_of(self, index):
        return self.builder.tensors[index].quantization.scale[0]


def same_or_valid(extent, window, stride, dilation, padding):
    span = (window - 1) * dilation + 1
    return -(-extent // stride) if padding == 0 else -(-(extent - span + 1) // stride)


def run_both(tessera, case):
    """What is wrong with the case's model."""
    model = case.builder.bytes()
    want = tflite_support.run_reference(model, case.values)
    got = tflite_support.run_tessera(tessera, model, case.values, len(want), ["-O", str(case.pick(0, 3))])
    if isinstance(got, str):
        return [" ".join(got.split())]
    problems = []
    for label, mine, theirs in zip(case.labels, got, want):
        if mine.shape != theirs.shape or mine.dtype != theirs.dtype:
            problems.append(f"{label}: {mine.dtype}{mine.shape} instead of {theirs.dtype}{theirs.shape}")
            continue
        if theirs.dtype.kind == "f":
            same = (mine == theirs) | (np.isnan(mine) & np.isnan(theirs))
            mine, theirs = np.where(same, 0, mine), np.where(same, 0, theirs)
        finite = theirs[np.isfinite(theirs)] if theirs.dtype.kind == "f" else theirs
        difference = np.abs(mine.astype(np.float64) - theirs.astype(np.float64))
        allowed = 0
        if theirs.dtype.kind == "f":
            allowed = case.tolerances.get(label, 1e-5) * max(1e-3, float(np.abs(finite).max(initial=0)))
        else:
            allowed = case.tolerances.get(label, 0)
        if difference.size and not difference.max() <= allowed:
            problems.append(f"{label}: off by {difference.max():g}, {np.count_nonzero(difference)} of {difference.size}")
    return problems


def main_of_kinds(kinds):
    """main() for functions (case, dtype) by name, each with the types of which a case picks one."""

    def make(seed, names):
        case = Case(seed)
        for name in names:
            kind, dtypes = kinds[name]
            kind(case, case.pick(*dtypes))
        return case

    return main(make, kinds)


def main(make, names):
    """make(seed, names): the case. Arguments: TESSERA FIRST..LAST [NAMES], --alone for a model of each operator."""
    arguments = [a for a in sys.argv[1:] if a != "--alone"]
    tessera, (first, last) = arguments[0], (int(n) for n in arguments[1].split(".."))
    chosen = [n for n in names if n in arguments[2:]] if len(arguments) > 2 else list(names)
    failed = 0
    for seed in range(first, last + 1):
        # With an operator that the reference kernels lack all are the fast ones, which round otherwise.
        apart = "--alone" in sys.argv or not tflite_support.has_reference(make(seed, chosen).builder.bytes())
        for part in [[n] for n in chosen] if apart else [chosen]:
            try:
                problems = run_both(tessera, make(seed, part))
            except (RuntimeError, ValueError) as error:
                problems = [f"LiteRT: {error}"]
            for problem in problems:
                print(f"seed {seed} {part if len(part) == 1 else ''}: {problem}", flush=True)
                failed += 1
    print(f"{last - first + 1} models, {failed} problems")
    return 1 if failed else 0
