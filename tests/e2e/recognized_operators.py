#!/usr/bin/env python3
"""Counts the operators that the graph passes recognise in networks of the suite, however these were exported.

    .venv/bin/python tests/e2e/recognized_operators.py build/bin/tessera     TESSERA_TEST_FULL=1: the large ones too
"""
import os
import pathlib
import sys
import tempfile

import onnx

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tests/models"), str(ROOT / "tests/python")]
import materialize  # noqa: E402
from recognition import composites_of  # noqa: E402

QUICK = {
    "efficientnet_b0": {"silu": 49, "sigmoid": 16},
    "mobilenet_v3_large": {"hard_swish": 21, "hard_sigmoid": 8},
}
LARGE = {
    "convnext_tiny": {"gelu": 18, "layer_norm": 23},
    "bert_base": {"attention": 12, "gelu": 12, "layer_norm": 25},
    "gpt2_small": {"attention": 12, "gelu": 12, "layer_norm": 25},
    "vit_b_16": {"attention": 12, "gelu": 12, "layer_norm": 25},
}


def recognized(tessera, name):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / f"{name}.onnx"
        onnx.save(materialize.build(name), path)
        return composites_of(tessera, path)


def main():
    wanted = dict(QUICK)
    if os.environ.get("TESSERA_TEST_FULL"):
        wanted.update(LARGE)
    else:
        print("without TESSERA_TEST_FULL left out:", ", ".join(LARGE))
    failed = 0
    for name, want in wanted.items():
        found = recognized(sys.argv[1], name)
        wrong = {op: found[op] for op in want if found[op] != want[op]}
        print(f"{name}: {dict(found)}" + (f" but {want} wanted" if wrong else ""))
        failed += bool(wrong)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
