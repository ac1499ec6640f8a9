#!/usr/bin/env python3
"""TFLite models of several graphs (IF, WHILE, CALL_ONCE) and with variables, beside LiteRT: random sizes and numbers of
iterations, branches inside loops, and several runs in a row.

    tflite_flow_test.py TESSERA FIRST..LAST"""

import sys

import numpy as np
from flatbuffers import flexbuffers

import tflite_support
from tflite_support import Builder

F, I32, B = np.float32, np.int32, np.bool_


def scalar(graph, value, dtype=F):
    return graph.tensor([], dtype, data=np.array(value, dtype))


def operator(graph, kind, shape, dtype, inputs, options=None, **fields):
    result = graph.tensor(shape, dtype)
    graph.operator(kind, inputs, [result], options, **fields)
    return result


def branch(builder, shape, kind, number):
    graph = builder.graph()
    x = graph.input(shape, F)
    graph.outputs.append(operator(graph, kind, shape, F, [x, scalar(graph, number)]))
    return graph.number


def choice(rng):
    builder, shape = Builder(), [int(n) for n in rng.integers(1, 6, rng.integers(1, 4))]
    condition, x = builder.input([1], B), builder.input(shape, F)
    y = builder.output(shape, F)
    builder.operator("IF", [condition, x], [y], "IfOptions", thenSubgraphIndex=branch(builder, shape, "ADD", 2),
                     elseSubgraphIndex=branch(builder, shape, "MUL", 3))
    return builder, lambda: [np.array([rng.random() < 0.5]), rng.standard_normal(shape).astype(F)]


def loop(rng):
    """while (i < n) { x = i is odd ? x + w : x * 0.5; i += 1 } with an invariant and a constant."""
    builder, shape = Builder(), [int(n) for n in rng.integers(1, 6, rng.integers(1, 3))]
    test, body = builder.graph(), builder.graph()
    for graph in (test, body):
        graph.values = [graph.input([], I32), graph.input([], I32), graph.input(shape, F), graph.input(shape, F)]
    test.outputs.append(operator(test, "LESS", [], B, test.values[:2]))
    i, n, x, w = body.values
    rest = operator(body, "FLOOR_MOD", [], I32, [i, scalar(body, 2, I32)])
    odd = operator(body, "EQUAL", [], B, [rest, scalar(body, 1, I32)])
    then = body.graph()
    a, b = then.input(shape, F), then.input(shape, F)
    then.outputs.append(operator(then, "ADD", shape, F, [a, b]))
    other = body.graph()
    a, b = other.input(shape, F), other.input(shape, F)
    other.outputs.append(operator(other, "MUL", shape, F, [a, scalar(other, 0.5)]))
    y = body.tensor(shape, F)
    body.operator("IF", [odd, x, w], [y], "IfOptions", thenSubgraphIndex=then.number, elseSubgraphIndex=other.number)
    body.outputs = [operator(body, "ADD", [], I32, [i, scalar(body, 1, I32)]), n, y, w]
    count = builder.input([], I32) if rng.random() < 0.7 else scalar(builder, int(rng.integers(0, 7)), I32)
    x, w = builder.input(shape, F), builder.input(shape, F)
    outputs = [builder.tensor([], I32), builder.tensor([], I32), builder.output(shape, F), builder.tensor(shape, F)]
    builder.operator("WHILE", [scalar(builder, 0, I32), count, x, w], outputs, "WhileOptions", condSubgraphIndex=test.number,
                     bodySubgraphIndex=body.number)
    builder.outputs.append(outputs[0])

    def values():
        own = [rng.standard_normal(shape).astype(F) for _ in range(2)]
        return [np.array(rng.integers(0, 9), I32), *own] if len(builder.inputs) == 3 else own
    return builder, values


def composite(rng):
    """A part that has a name, and says by a graph what it is."""
    builder, shape = Builder(), [int(n) for n in rng.integers(1, 6, rng.integers(1, 4))]
    part = builder.graph()
    a, b = part.input(shape, F), part.input(shape, F)
    part.outputs = [operator(part, "ADD", shape, F, [a, b]), operator(part, "MUL", shape, F, [a, b])]
    operands = [builder.input(shape, F), builder.input(shape, F)]
    builder.operator("STABLEHLO_COMPOSITE", operands, [builder.output(shape, F), builder.output(shape, F)])
    options = builder.fb.StableHLOCompositeOptionsT()
    options.name, options.decompositionSubgraphIndex = "test.both", part.number
    options.compositeAttributes = np.frombuffer(flexbuffers.Dumps({}), np.uint8)
    builder.operators[-1].builtinOptions2 = options
    builder.operators[-1].builtinOptions2Type = builder.fb.Options2.StableHLOCompositeOptions
    return builder, lambda: [rng.standard_normal(shape).astype(F) for _ in range(2)]


def handle(graph, name):
    result = graph.tensor([], "resource")
    graph.operator("VAR_HANDLE", [], [result], "VarHandleOptions", container="", sharedName=name)
    return result


def variables(rng):
    """A counter and a running mean, given values by CALL_ONCE."""
    builder, shape = Builder(), [int(n) for n in rng.integers(1, 6, rng.integers(1, 4))]
    once = builder.graph()
    once.operator("ASSIGN_VARIABLE", [handle(once, "count"), once.tensor([], I32, data=np.array(3, I32))], [])
    start = rng.standard_normal(shape).astype(F)
    once.operator("ASSIGN_VARIABLE", [handle(once, "mean"), once.tensor(shape, F, data=start)], [])
    builder.operator("CALL_ONCE", [], [], "CallOnceOptions", initSubgraphIndex=once.number)
    x = builder.input(shape, F)
    count, mean = handle(builder, "count"), handle(builder, "mean")
    before = operator(builder, "READ_VARIABLE", shape, F, [mean])
    after = operator(builder, "MUL", shape, F, [operator(builder, "ADD", shape, F, [before, x]), scalar(builder, 0.5)])
    builder.operator("ASSIGN_VARIABLE", [mean, after], [])
    one_more = operator(builder, "ADD", [], I32, [operator(builder, "READ_VARIABLE", [], I32, [count]), scalar(builder, 1, I32)])
    builder.operator("ASSIGN_VARIABLE", [count, one_more], [])
    builder.outputs = [operator(builder, "READ_VARIABLE", shape, F, [mean]), operator(builder, "READ_VARIABLE", [], I32, [count])]
    return builder, lambda: [rng.standard_normal(shape).astype(F)]


def variable_in_loop(rng):
    """while (i < n) { v += x; i += 1 }"""
    builder, shape = Builder(), [int(rng.integers(1, 6))]
    once, test, body = builder.graph(), builder.graph(), builder.graph()
    once.operator("ASSIGN_VARIABLE", [handle(once, "v"), once.tensor(shape, F, data=np.ones(shape, F))], [])
    builder.operator("CALL_ONCE", [], [], "CallOnceOptions", initSubgraphIndex=once.number)
    for graph in (test, body):
        graph.values = [graph.input([], I32), graph.input([], I32), graph.input(shape, F)]
    test.outputs.append(operator(test, "LESS", [], B, test.values[:2]))
    i, n, x = body.values
    own = handle(body, "v")
    total = operator(body, "ADD", shape, F, [operator(body, "READ_VARIABLE", shape, F, [own]), x])
    body.operator("ASSIGN_VARIABLE", [own, total], [])
    body.outputs = [operator(body, "ADD", [], I32, [i, scalar(body, 1, I32)]), n, x]
    count, x = builder.input([], I32), builder.input(shape, F)
    outputs = [builder.output([], I32), builder.tensor([], I32), builder.tensor(shape, F)]
    builder.operator("WHILE", [scalar(builder, 0, I32), count, x], outputs, "WhileOptions", condSubgraphIndex=test.number,
                     bodySubgraphIndex=body.number)
    builder.outputs.append(operator(builder, "READ_VARIABLE", shape, F, [handle(builder, "v")]))
    return builder, lambda: [np.array(rng.integers(0, 6), I32), rng.standard_normal(shape).astype(F)]


def check(tessera, make, seed):
    rng = np.random.default_rng(seed)
    builder, values = make(rng)
    model = builder.bytes()
    runs = [values() for _ in range(3)]
    want = tflite_support.run_reference_often(model, runs)
    got = tflite_support.run_tessera(tessera, model, runs[0], len(want[0]), ["-O", str(rng.integers(0, 2) * 3)])
    if isinstance(got, str):
        return " ".join(got.split())
    own = [got]
    if tessera_module:
        compiled = tessera_module.compile(model)
        own = [compiled.run(run) for run in runs]
    for i, (mine, theirs) in enumerate(zip(own, want)):
        for a, b in zip(mine, theirs):
            if a.shape != b.shape or a.dtype != b.dtype or not np.allclose(a, b, 1e-5, 1e-6):
                return f"run {i}: {a} instead of {b}"
    return None


try:
    import tessera as tessera_module
except ImportError:
    tessera_module = None


if __name__ == "__main__":
    sys.exit(tflite_support.run_seeds({make.__name__: lambda tessera, seed, make=make: check(tessera, make, seed)
                                       for make in (choice, loop, composite, variables, variable_in_loop)}))
