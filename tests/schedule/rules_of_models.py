#!/usr/bin/env python3
"""Which schedule rule takes the kernels of real networks: how many calls each, no contraction one element at a time.

    rules_of_models.py TESSERA

A rule that declines where it used to answer costs ten times the speed and changes no result, so nothing else notices.
Only the choice is looked at (`compile --emit program`), so that this runs for every target on any machine. When a
change of the passes moves these numbers on purpose, look at the new ones and write them here."""

import collections
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGETS = ["x86-64-v2", "x86-64-v3", "x86-64-v4"]
CONTRACTIONS = {"Conv", "ConvTranspose", "Gemm", "MatMul"}
KERNEL = re.compile(r'^  define rule "(\w+)"(?:.* loc\("(.*)"\))?.*\n  kernel @(\w+)', re.MULTILINE)

# Calls of kernels that reduce. Which of the two tilings is faster depends on the target's caches, so that they are
# counted together; but where large 3x3 convolutions are, some take the second one.
TILED = "register_tile or winograd"
EXPECTED = {
    "resnet50": {TILED: 56},
    "mobilenet_v2": {TILED: 51, "overlapped_tiles": 1},
    "text detector": {TILED: 72, "overlapped_tiles": 1},
    "ultraface-rfb-320": {TILED: 52, "fuse_rows": 1},
    "mnist-opt-wonnx": {TILED: 5},
    "mnist-ort-examples": {TILED: 5},
    "attention": {TILED: 1, "fuse_rows": 2},
}
WITH_WINOGRAD = {"resnet50"}


def attention():
    """One head without weights of its own: products of two computed matrices, softmax over rows, a normalization."""
    node = helper.make_node
    nodes = [
        node("Transpose", ["k"], ["kt"], name="turn", perm=[0, 1, 3, 2]),
        node("MatMul", ["q", "kt"], ["scores"], name="scores"),
        node("Softmax", ["scores"], ["weights"], name="softmax", axis=-1),
        node("MatMul", ["weights", "v"], ["mixed"], name="mix"),
        node("MatMul", ["mixed", "w"], ["projected"], name="project"),
        node("LayerNormalization", ["projected", "scale"], ["y"], name="norm", axis=-1),
    ]
    info = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, 4, 96, 64))
    constants = {"w": numpy.full((64, 64), 0.1, numpy.float32), "scale": numpy.ones(64, numpy.float32)}
    graph = helper.make_graph(
        nodes, "attention", [info("q"), info("k"), info("v")], [info("y")],
        [numpy_helper.from_array(value, name) for name, value in constants.items()]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def test_data():
    for folder in (os.environ.get("TESSERA_TEST_DATA"), ROOT.parent / "shared"):
        if folder and pathlib.Path(folder, "real").is_dir():
            return pathlib.Path(folder)
    return None


def models(work):
    """Yields (name, file or None, flags or the reason why there is none)."""
    onnx.save(attention(), work / "attention.onnx")
    yield "attention", work / "attention.onnx", []
    for name in ("resnet50", "mobilenet_v2"):
        command = [sys.executable, ROOT / "tests/models/materialize.py", name, "--out", work]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        yield name, work / f"{name}.onnx", []
    detector = ROOT / ".deps/ppocr/ch_PP-OCRv4_det_infer.onnx"
    if detector.exists():
        yield "text detector", detector, ["--shape", "x=1x3x320x480"]
    else:
        yield "text detector", None, "its ONNX file is missing: run scripts/setup.sh"
    data = test_data()
    for name in ("ultraface-rfb-320", "mnist-opt-wonnx", "mnist-ort-examples"):
        if data:
            yield name, data / "real" / name / "model.onnx", []
        else:
            yield name, None, "no test data: set TESSERA_TEST_DATA"


def contraction_names(model):
    """Names of the nodes that multiply and add, as error messages and kernels have them."""
    nodes = onnx.load(model, load_external_data=False).graph.node
    return {node.name or f"{node.op_type}#{i}" for i, node in enumerate(nodes) if node.op_type in CONTRACTIONS}


def problems_of(tessera, name, model, target, flags, work):
    text = work / "model.program"
    command = [tessera, "compile", model, "--emit", "program", "--target", target, "-o", text, *flags]
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        return [f"exit code {done.returncode}: {done.stdout.strip()}"]
    program = text.read_text()
    kernels = KERNEL.findall(program)
    calls = collections.Counter(re.findall(r"^  call @(\w+)\(", program, re.MULTILINE))
    counts = collections.Counter()
    for rule, _, kernel in kernels:
        if rule != "injective":  # movement and element-wise work: no other rule takes it
            counts[TILED if rule in TILED else rule] += calls[kernel]
    counts = dict(counts)
    found = []
    if name in WITH_WINOGRAD and all(rule != "winograd" for rule, _, _ in kernels):
        found.append("no convolution is taken by winograd")
    if counts != EXPECTED[name]:
        found.append(f"calls by rule are {counts} instead of {EXPECTED[name]}")
    names = contraction_names(model)
    contractions = 0
    for rule, loc, _ in kernels:
        parts = names & set(loc.split("+"))
        contractions += bool(parts)
        if parts and rule in ("scalar_loops", "naive"):
            found.append(f"{', '.join(sorted(parts))} is left to {rule}")
    if contractions == 0:
        found.append("no kernel is named after a contraction of the model")
    return found


def main():
    tessera = os.path.abspath(sys.argv[1])
    passed = failed = skipped = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, model, flags in models(pathlib.Path(folder)):
            if model is None:
                print(f"SKIP {name}: {flags}")
                skipped += 1
                continue
            for target in TARGETS:
                found = problems_of(tessera, name, model, target, flags, pathlib.Path(folder))
                print(f"{'FAIL' if found else 'PASS'} {name}, {target}{': ' if found else ''}{'; '.join(found)}")
                passed, failed = passed + (not found), failed + bool(found)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
