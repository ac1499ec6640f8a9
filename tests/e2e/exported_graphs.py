#!/usr/bin/env python3
"""ONNX Runtime runs what `tessera export` writes of graphs with control flow, states and open sizes, and computes what the
interpreter computes.

    .venv/bin/python tests/e2e/exported_graphs.py build/bin/export_cases [--seed N] [--count N]
"""
import argparse
import pathlib
import subprocess
import sys
import tempfile

import numpy
import onnx
import onnxruntime
from onnx import numpy_helper


def tensors(folder, kind):
    for i in range(len(list(folder.glob(f"{kind}_*.pb")))):
        yield numpy_helper.to_array(onnx.load_tensor(folder / f"{kind}_{i}.pb"))


def difference(found, want):
    if found.dtype != want.dtype or found.shape != want.shape:
        return f"{found.dtype}{list(found.shape)} instead of {want.dtype}{list(want.shape)}"
    if want.dtype.kind != "f":
        return "" if numpy.array_equal(found, want) else "other numbers"
    if not numpy.array_equal(numpy.isfinite(found), numpy.isfinite(want)):
        return "other infinities"
    finite = numpy.isfinite(want)
    found, want = found[finite].astype(float), want[finite].astype(float)
    most = numpy.abs(found - want).max(initial=0)
    return "" if most <= 1e-4 * numpy.abs(want).max(initial=0) + 1e-30 else f"off by {most}"


def uses_own_operators(graph):
    """Operators of the domain ai.tessera, for what the standard's cannot say exactly: only Tessera reads them."""
    graphs = [a.g for node in graph.node for a in node.attribute if a.HasField("g")]
    return any(node.domain == "ai.tessera" for node in graph.node) or any(map(uses_own_operators, graphs))


def check(folder):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    model = onnx.load(folder / "model.onnx")
    onnx.checker.check_model(model, full_check=not uses_own_operators(model.graph))
    if uses_own_operators(model.graph):
        return None
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [value.name for value in model.graph.input]
    found = session.run(None, dict(zip(names, tensors(folder, "input"), strict=True)))
    want = list(tensors(folder, "output"))
    if len(found) != len(want):
        return f"{len(found)} outputs instead of {len(want)}"
    said = [difference(f, w) for f, w in zip(found, want)]
    return "; ".join(f"output {i}: {text}" for i, text in enumerate(said) if text)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tool")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=60)
    options = parser.parse_args()
    failed = own = 0
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([options.tool, folder, str(options.seed), str(options.count)], check=True)
        cases = sorted(pathlib.Path(folder).iterdir())
        for case in cases:
            try:
                said = check(case)
            except Exception as error:  # what onnx and ONNX Runtime refuse is a failure, too
                said = str(error).splitlines()[0]
            own += said is None
            if said:
                failed += 1
                print(f"{case.name}: {said}")
    print(f"{len(cases)} graphs, {failed} failed, {own} with operators that only Tessera reads")
    return 1 if failed or own * 2 > len(cases) else 0


if __name__ == "__main__":
    sys.exit(main())
