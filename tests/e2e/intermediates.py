#!/usr/bin/env python3
"""Compares every value inside a model with ONNX Runtime, not only what comes out at its end.

    intermediates.py TESSERA [--full] [--models NAME,...|FILE.onnx]

The values are made outputs. All at once, that keeps operators from being fused, so it is the operators that are tested;
then, at -O3, a random eighth of them at a time, so that most fusions stand and their results are seen.
Agreement is that of model_runs.py, for each value. ONNX Runtime computes the reference with its optimiser off.
--full or TESSERA_TEST_FULL=1: all models at -O0 to -O3 and all eighths. Otherwise one model a day, at -O3 and another
level, and one eighth; or those of --models.
"""
import os
import sys
import tempfile

import numpy as np
import onnx

import model_runs as runs

MODELS = ["resnet50", "bert_base", "swin_t"]
PARTS = 8


def load(name):
    """(model, inputs by name) of the suite or of a file, whose inputs are random then."""
    if not name.endswith(".onnx"):
        return runs.suite_model(name)
    model = onnx.load(name)
    initialized = {t.name for t in model.graph.initializer}
    random, feeds = np.random.default_rng(0), {}
    for value in model.graph.input:
        if value.name not in initialized:
            kind = value.type.tensor_type
            shape = [d.dim_value or 1 for d in kind.shape.dim]
            dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
            feeds[value.name] = random.standard_normal(shape).astype(dtype)
    return model, feeds


def with_outputs(model, names):
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    del changed.graph.output[:]
    changed.graph.output.extend(onnx.helper.make_empty_tensor_value_info(n) for n in names)
    return changed


def references(model, feeds, path):
    """The value of everything that a node computes, by name."""
    names = list(dict.fromkeys(o for node in model.graph.node if node.op_type != "Constant" for o in node.output if o))
    onnx.save(with_outputs(model, names), path)
    return dict(zip(names, runs.onnx_runtime(path, feeds, optimise=False)))


def check(binary, what, model, names, want, feeds, flags, work, count):
    """Compiles `model` with the outputs `names` and compares them all."""
    path, module = f"{work}/outputs.onnx", f"{work}/module.so"
    onnx.save(with_outputs(model, names), path)
    problem = runs.tessera(binary, "compile", path, "-o", module, "-q", *flags)
    got = problem or runs.run([binary, "run", module, "--threads", "1"], feeds, len(names), work)
    if isinstance(got, str):
        return count.result(what, got[:2000])
    errors = {n: runs.difference(g, want[n]) for n, g in zip(names, got, strict=True)}
    wrong = [f"{n}: {e}" for n, e in errors.items() if isinstance(e, str)]
    if wrong:
        return count.result(what, f"{len(wrong)} of {len(names)} values, the first {wrong[0]}")
    worst = max(errors, key=errors.get)
    count.result(what, errors[worst], f" ({worst}), {len(names)} values")


def main():
    binary = os.path.abspath(sys.argv[1])
    full, today, count = runs.is_full(), runs.today(), runs.Count()
    if "--models" in sys.argv:
        names = sys.argv[sys.argv.index("--models") + 1].split(",")
    else:
        names = MODELS if full else [MODELS[today % len(MODELS)]]
    for name in names:
        with tempfile.TemporaryDirectory() as work:
            model, feeds = load(name)
            path = f"{work}/model.onnx"
            onnx.save(model, path)
            want = references(model, feeds, path)
            values = list(want)
            for level in range(4):
                if full or level in (3, today % 3):
                    check(binary, f"{name}, all values, -O{level}", model, values, want, feeds, [f"-O{level}"], work, count)
            shuffled = [values[i] for i in np.random.default_rng(today).permutation(len(values))]
            for part in range(PARTS if full else 1):
                # In the model's order: outputs are told apart by their position too.
                chosen = set(shuffled[part::PARTS])
                check(binary, f"{name}, part {part + 1} of {PARTS}, -O3", model, [v for v in values if v in chosen], want,
                      feeds, ["-O3"], work, count)
    # Nothing ran because nothing can run yet: a skip, not a success.
    return count.exit_code() if count.passed or count.failed else 77


if __name__ == "__main__":
    sys.exit(main())
