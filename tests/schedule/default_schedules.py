#!/usr/bin/env python3
"""The schedules that rules and joining steps choose by themselves, as text: `tessera explain` beside default_schedules.txt.

    default_schedules.py TESSERA [--update]

A choice that is worse than before changes no result, so no other test notices. The cases are those of
bench/lists/kernels.json, with constant weights and with weights that a run brings, and a few kernels of other rules, for
three machines. When a change moves a line on purpose, measure both, and write the new ones with --update."""
import difflib
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
from operator_models import Case  # noqa: E402

EXPECTED = pathlib.Path(__file__).with_suffix(".txt")
TARGETS = ["x86-64-v3", "x86-64-v4", "aarch64-unknown-linux-gnu"]
LARGEST = 20 << 20  # bytes of a case's weights: reading them takes longer than all rules
OTHERS = {
    "sum of 4 Mi numbers": "graph @main(%x: f32[4194304]) -> (%y: f32[]) {\n"
                           "  %y = reduce(%x) {axes = [0], keepdims = false, kind = \"sum\"} : f32[]\n}\n",
    "sums of columns of 4096x768": "graph @main(%x: f32[4096,768]) -> (%y: f32[768]) {\n"
                                   "  %y = reduce(%x) {axes = [0], keepdims = false, kind = \"sum\"} : f32[768]\n}\n",
    "sum and sum of squares of rows": "graph @main(%x: f32[60,1024]) -> (%a: f32[60], %b: f32[60]) {\n"
                                      "  %a = reduce(%x) {axes = [1], keepdims = false, kind = \"sum\"} : f32[60]\n"
                                      "  %s = mul(%x, %x) : f32[60,1024]\n"
                                      "  %b = reduce(%s) {axes = [1], keepdims = false, kind = \"sum\"} : f32[60]\n}\n",
    "weights' gradient of a dense layer": "graph @main(%x: f32[4096,256], %g: f32[4096,256]) -> (%y: f32[256,256]) {\n"
                                          "  %t = transpose(%x) {perm = [1, 0]} : f32[256,4096]\n"
                                          "  %y = matmul(%t, %g) : f32[256,256]\n}\n",
    "transposition": "graph @main(%x: f32[500,700]) -> (%y: f32[700,500]) {\n"
                     "  %y = transpose(%x) {perm = [1, 0]} : f32[700,500]\n}\n",
}


def cases(folder):
    """Names, and files with the models."""
    for entry in json.loads((ROOT / "bench/lists/kernels.json").read_text())["cases"]:
        case = Case(entry)
        if sum(len(weight.raw_data) for weight in case.weights) > LARGEST:
            continue
        case.write(folder / "case.onnx")
        yield entry["name"], folder / "case.onnx"
        if not any(len(weight.dims) > 1 for weight in case.weights):
            continue
        entry = {**entry, "inputs": [text.removesuffix("=weight") if "," in text.split("]")[0] else text
                                     for text in entry["inputs"]]}
        Case(entry).write(folder / "case.onnx")
        yield entry["name"] + ", weights of a run", folder / "case.onnx"
    for name, text in OTHERS.items():
        (folder / "case.graph").write_text(text)
        yield name, folder / "case.graph"


def schedules(tessera, model, target):
    done = subprocess.run([tessera, "explain", model, "--json", "--threads", "1", "--target", target], capture_output=True,
                          text=True)
    if done.returncode != 0:
        return [f"exit code {done.returncode}: {done.stderr.strip().splitlines()[0]}"]
    return [f"{kernel['schedule']}: {kernel['result']}" for kernel in json.loads(done.stdout)["kernels"]]


def main():
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        for name, model in cases(pathlib.Path(folder)):
            lines.append(name)
            known = {}
            for target in TARGETS:
                known.setdefault("\n".join(f"    {line}" for line in schedules(sys.argv[1], model, target)), []).append(target)
            for text, targets in known.items():
                lines += [f"  {', '.join(targets)}", *text.splitlines()]
    text = "\n".join(lines) + "\n"
    if "--update" in sys.argv:
        EXPECTED.write_text(text)
        return 0
    difference = list(difflib.unified_diff(EXPECTED.read_text().splitlines(), lines, "expected", "found", lineterm=""))
    print("\n".join(difference) or f"{len(lines)} lines as expected")
    return 1 if difference else 0


if __name__ == "__main__":
    sys.exit(main())
