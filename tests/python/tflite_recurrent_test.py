#!/usr/bin/env python3
"""Random recurrent TFLite layers beside LiteRT, three runs in a row: LSTMs with and without projections, peepholes, normalised
gates and input gates of their own, plain layers and SVDF, in both directions, in floats, with weights of 8 bits, and LSTMs and
SVDF in integers, bit by bit.

    tflite_recurrent_test.py TESSERA FIRST..LAST [NAMES]"""

import sys

import numpy as np

import tflite_support
from tflite_support import Builder

F, I8, I16, I32 = np.float32, np.int8, np.int16, np.int32


class Cell:
    def __init__(self, rng):
        self.rng, self.b = rng, Builder()
        self.hybrid = bool(rng.integers(0, 2))
        self.asymmetric = bool(rng.integers(0, 2)) and self.hybrid
        self.batch, self.inputs, self.cells = (int(rng.choice(list(n))) for n in ((1, 2, 3), (1, 3, 8, 17), (1, 2, 5, 16)))
        self.time = int(rng.choice([1, 2, 5]))

    def weights(self, shape):
        if self.hybrid:
            scale = float(F(self.rng.uniform(0.002, 0.01)))
            return self.b.tensor(shape, I8, scale=scale, data=self.rng.integers(-127, 128, shape))
        return self.b.tensor(shape, F, data=self.rng.standard_normal(shape) * 0.4)

    def vector(self, count):
        return self.b.tensor([count], F, data=self.rng.standard_normal(count) * 0.4)

    def state(self, shape, dtype=F, **kwargs):
        index = self.b.tensor(shape, dtype, **kwargs)
        self.b.tensors[index].isVariable = True
        return index

    def maybe(self, make, probability=0.4):
        return make if self.rng.random() < probability else None

    def sequence(self, major):
        return [self.time, self.batch, self.inputs] if major else [self.batch, self.time, self.inputs]

    def input(self, shape, count=3):
        return self.b.input(shape, F), [self.rng.standard_normal(shape).astype(F) for _ in range(count)]


def lstm_operands(cell, x_size, may_project=True):
    """Weights up to the projection's bias; the outputs' size; whether gates are normalised."""
    rng, n = cell.rng, cell.cells
    coupled, peephole, projected = rng.random() < 0.3, rng.random() < 0.3, may_project and rng.random() < 0.3
    out = int(rng.integers(1, 7)) if projected else n
    gates = [not coupled, True, True, True]
    operands = [cell.weights([n, x_size]) if g else -1 for g in gates]
    operands += [cell.weights([n, out]) if g else -1 for g in gates]
    if peephole:
        operands += [cell.weights([n]) if not coupled else -1, cell.weights([n]), cell.weights([n])]
    else:
        operands += [-1] * 3
    operands += [cell.vector(n) if g else -1 for g in gates]
    operands += [cell.weights([out, n]), cell.vector(out) if rng.random() < 0.5 else -1] if projected else [-1, -1]
    return operands, out, coupled, gates


def lstm(cell, sequence=True):
    operands, out, _, gates = lstm_operands(cell, cell.inputs)
    major = bool(cell.rng.integers(0, 2))
    shape = cell.sequence(major) if sequence else [cell.batch, cell.inputs]
    x, values = cell.input(shape)
    operands = [x, *operands, cell.state([cell.batch, out]), cell.state([cell.batch, cell.cells])]
    normalized = cell.rng.random() < 0.3
    operands += [cell.vector(cell.cells) if g and normalized else -1 for g in gates]
    y = cell.b.output([*shape[:-1], out], F)
    options = {"fusedActivationFunction": 4, "cellClip": float(cell.rng.choice([0, 0.5])), "projClip": float(cell.rng.choice([0, 0.3])),
               "asymmetricQuantizeInputs": cell.asymmetric}
    if sequence:
        cell.b.operator("UNIDIRECTIONAL_SEQUENCE_LSTM", operands, [y], "UnidirectionalSequenceLSTMOptions", timeMajor=major, **options)
    else:
        cell.b.operator("LSTM", operands, [y], "LSTMOptions", **options)
    return [values]


def lstm_step(cell):
    return lstm(cell, False)


def both_lstms(cell):
    forward, out, _, _ = lstm_operands(cell, cell.inputs, False)
    backward, other, _, _ = lstm_operands(cell, cell.inputs, False)
    major = bool(cell.rng.integers(0, 2))
    merged = bool(cell.rng.integers(0, 2)) and (major or cell.batch == 1)
    shape = cell.sequence(major)
    x, values = cell.input(shape)
    states = [cell.state([cell.batch, n]) for n in (out, cell.cells, other, cell.cells)]
    widths = [out + other] if merged else [out, other]
    results = [cell.b.output([*shape[:-1], n], F) for n in widths]
    # A second input: with weights of its own for both directions, or in place of the first one for the way back.
    aux, second = [-1] * 9, []
    if cell.rng.random() < 0.5:
        index, given = cell.input(shape)
        aux[0], second = index, [given]
        if cell.rng.random() < 0.6:
            for first, own in ((1, forward), (5, backward)):
                aux[first:first + 4] = [cell.weights([cell.cells, cell.inputs]) if w >= 0 else -1 for w in own[:4]]
    cell.b.operator("BIDIRECTIONAL_SEQUENCE_LSTM", [x, *forward, *backward, *states, *aux], results,
                    "BidirectionalSequenceLSTMOptions", fusedActivationFunction=4, mergeOutputs=merged, timeMajor=major,
                    asymmetricQuantizeInputs=cell.asymmetric)
    return [values, *second]


def basic_lstm(cell):
    cell.hybrid, n = False, cell.cells
    operands, values = [], []
    for shape in ([cell.batch, cell.inputs], [cell.batch, n], None, None, [cell.batch, n]):
        if shape:
            index, given = cell.input(shape)
            operands.append(index)
            values.append(given)
        else:
            operands.append(cell.vector(4 * n) if len(operands) == 3 else cell.weights([4 * n, cell.inputs + n]))
    results = [cell.b.output([cell.batch, n], F), cell.b.output([cell.batch, n], F), cell.b.tensor([cell.batch, cell.inputs + n], F),
               cell.b.tensor([cell.batch, 4 * n], F)]
    cell.b.operator("LSTM", operands, results, "LSTMOptions", fusedActivationFunction=4, kernelType=1)
    return values


def plain(cell):
    n, kind = cell.cells, cell.rng.choice(["RNN", "UNIDIRECTIONAL_SEQUENCE_RNN", "BIDIRECTIONAL_SEQUENCE_RNN"])
    major = bool(cell.rng.integers(0, 2))
    if kind.startswith("BI") and major:  # of weights of 8 bits LiteRT runs the sequence as often as it has steps
        cell.hybrid = cell.asymmetric = False
    options = {"fusedActivationFunction": int(cell.rng.choice([0, 1, 3, 4])), "asymmetricQuantizeInputs": cell.asymmetric}

    def operands():
        return [cell.weights([n, cell.inputs]), cell.weights([n, n]), cell.vector(n), cell.state([cell.batch, n])]
    if kind == "RNN":
        x, values = cell.input([cell.batch, cell.inputs])
        cell.b.operator(kind, [x, *operands()], [cell.b.output([cell.batch, n], F)], "RNNOptions", **options)
        return [values]
    shape = cell.sequence(major)
    x, values = cell.input(shape)
    if kind.startswith("UNI"):
        cell.b.operator(kind, [x, *operands()], [cell.b.output([*shape[:-1], n], F)], "SequenceRNNOptions", timeMajor=major, **options)
        return [values]
    merged = bool(cell.rng.integers(0, 2))
    results = [cell.b.output([*shape[:-1], w], F) for w in ([2 * n] if merged else [n, n])]
    aux, second = [-1] * 3, []
    if cell.rng.random() < 0.5:
        aux[0], given = cell.input(shape)
        second = [given]
        if cell.rng.random() < 0.5 or not major:
            aux[1:] = [cell.weights([n, cell.inputs]), cell.weights([n, cell.inputs])]
    cell.b.operator(kind, [x, *operands(), *operands(), *aux], results, "BidirectionalSequenceRNNOptions", timeMajor=major,
                    mergeOutputs=merged, **options)
    return [values, *second]


def svdf(cell):
    rank, units, memory = int(cell.rng.choice([1, 2, 3])), int(cell.rng.choice([1, 4, 9])), int(cell.rng.choice([1, 3, 8]))
    filters, state = rank * units, [cell.batch, 0]
    state[1] = memory * filters
    x, values = cell.input([cell.batch, cell.inputs])
    operands = [x, cell.weights([filters, cell.inputs]), cell.weights([filters, memory]),
                cell.vector(units) if cell.rng.random() < 0.6 else -1, cell.state(state)]
    cell.b.operator("SVDF", operands, [cell.b.output([cell.batch, units], F)], "SVDFOptions", rank=rank,
                    fusedActivationFunction=int(cell.rng.choice([0, 1])), asymmetricQuantizeInputs=cell.asymmetric)
    return [values]


def integer_svdf(cell):
    rng, rank, units, memory = cell.rng, int(cell.rng.choice([1, 2])), int(cell.rng.choice([1, 4, 9])), int(cell.rng.choice([1, 3, 8]))
    filters = rank * units
    scales = [float(F(s)) for s in (rng.uniform(0.01, 0.1), rng.uniform(0.002, 0.01), rng.uniform(1e-4, 5e-4), rng.uniform(1e-5, 4e-5))]
    shape = [cell.batch, cell.inputs]
    x = cell.b.input(shape, I8, scale=scales[0], zero=int(rng.integers(-128, 128)))
    operands = [x, cell.b.tensor([filters, cell.inputs], I8, scale=scales[1], data=rng.integers(-127, 128, [filters, cell.inputs])),
                cell.b.tensor([filters, memory], I16, scale=scales[3], data=rng.integers(-32767, 32768, [filters, memory]) // 8),
                cell.b.tensor([units], I32, scale=scales[2] * scales[3], data=rng.integers(-100000, 100000, units)),
                cell.state([cell.batch, memory * filters], I16, scale=scales[2])]
    y = cell.b.output([cell.batch, units], I8, scale=float(F(rng.uniform(0.01, 0.1))), zero=int(rng.integers(-128, 128)))
    cell.b.operator("SVDF", operands, [y], "SVDFOptions", rank=rank, fusedActivationFunction=1)
    return [[rng.integers(-128, 128, shape).astype(I8) for _ in range(3)]]


def integer_lstm(cell):
    rng, n = cell.rng, cell.cells
    sequence, coupled, peephole, projected = (bool(rng.integers(0, 2)) for _ in range(4))
    projected = projected and not peephole  # both together are refused
    out = int(rng.integers(1, 7)) if projected else n
    major = bool(rng.integers(0, 2))
    shape = cell.sequence(major) if sequence else [cell.batch, cell.inputs]

    def scale(low, high):
        return float(F(rng.uniform(low, high)))

    def zero():
        return int(rng.integers(-128, 128))
    scales = {"x": scale(0.005, 0.05), "hidden": scale(0.003, 0.02), "between": scale(0.003, 0.01)}
    zeros = {name: zero() for name in scales}
    cell_unit = float(2.0 ** -int(rng.integers(9, 16)))

    def matrix(rows, columns):
        return cell.b.tensor([rows, columns], I8, scale=scale(0.002, 0.02), data=rng.integers(-127, 128, [rows, columns]))

    def vector(count, dtype, most, unit):
        return cell.b.tensor([count], dtype, scale=unit, data=rng.integers(-most, most + 1, count))
    gates = [not coupled, True, True, True]
    x = cell.b.input(shape, I8, scale=scales["x"], zero=zeros["x"])
    operands = [x, *[matrix(n, cell.inputs) if g else -1 for g in gates], *[matrix(n, out) if g else -1 for g in gates]]
    operands += [vector(n, I16, 32767, scale(1e-5, 1e-4)) if peephole and g else -1 for g in (not coupled, True, True)]
    operands += [vector(n, I32, 20000, 1e-4) if g else -1 for g in gates]
    operands += [matrix(out, n) if projected else -1, vector(out, I32, 5000, 1e-4) if projected and rng.random() < 0.6 else -1]
    operands.append(cell.state([cell.batch, out], I8, scale=scales["hidden"], zero=zeros["hidden"]))
    operands.append(cell.state([cell.batch, n], I16, scale=cell_unit))
    operands += [-1] * 4
    y = cell.b.output([*shape[:-1], out], I8, scale=scales["hidden"], zero=zeros["hidden"])
    between = [cell.b.tensor([0], I16, scale=2.0 ** -12) for _ in range(4)]
    between.append(cell.b.tensor([0], I8, scale=scales["between"], zero=zeros["between"]))
    options = {"fusedActivationFunction": 4, "cellClip": float(rng.choice([0, 0.5])), "projClip": float(rng.choice([0, 0.3]))}
    if sequence:
        cell.b.operator("UNIDIRECTIONAL_SEQUENCE_LSTM", operands, [y], "UnidirectionalSequenceLSTMOptions", timeMajor=major, **options)
    else:
        cell.b.operator("LSTM", operands, [y], "LSTMOptions", **options)
    cell.b.operators[-1].intermediates = between
    return [[rng.integers(-128, 128, shape).astype(I8) for _ in range(3)]]


KINDS = {"lstm": lstm, "lstm_step": lstm_step, "both_lstms": both_lstms, "basic_lstm": basic_lstm, "plain": plain, "svdf": svdf,
         "integer_svdf": integer_svdf, "integer_lstm": integer_lstm}

try:
    import tessera as tessera_module
except ImportError:
    tessera_module = None


def check(tessera, kind, seed):
    cell = Cell(np.random.default_rng(seed))
    runs = [list(values) for values in zip(*KINDS[kind](cell))]
    model = cell.b.bytes()
    want = tflite_support.run_reference_often(model, runs)
    if tessera_module:
        compiled = tessera_module.compile(model)
        own = [compiled.run(run) for run in runs]
    else:
        got = tflite_support.run_tessera(tessera, model, runs[0], len(want[0]))
        if isinstance(got, str):
            return " ".join(got.split())
        own = [got]
    for i, (mine, theirs) in enumerate(zip(own, want)):
        for a, b in zip(mine, theirs):
            close = np.array_equal(a, b) if b.dtype != F else np.allclose(a, b, 1e-4, 2e-5 if not cell.hybrid else 2e-4)
            if a.shape != b.shape or a.dtype != b.dtype or not close:
                off = np.abs(a.astype(float) - b).max() if a.shape == b.shape else (a.shape, b.shape)
                return f"run {i}: off by {off}; {cell.batch} {cell.time} {cell.inputs} {cell.cells} {cell.hybrid} {cell.asymmetric}"
    return None


if __name__ == "__main__":
    sys.exit(tflite_support.run_seeds({kind: lambda tessera, seed, kind=kind: check(tessera, kind, seed) for kind in KINDS}))
