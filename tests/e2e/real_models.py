#!/usr/bin/env python3
"""Compiles trained models that come with real inputs and runs every case beside the outputs on file, which are ONNX
Runtime's.

    real_models.py TESSERA
"""
import os
import pathlib
import re
import sys
import tempfile

import numpy as np

import model_runs as runs

SPEECH = ["--shape", "input=1x576", "--shape", "state=2x1x128"]  # 16 kHz: 64 samples of the chunk before, 512 of this
MODELS = {  # flags of 'compile'
    "mnist-ort-examples": [],
    "mnist-opt-wonnx": [],
    "ultraface-rfb-320": [],
    "silero-vad": SPEECH,
    "silero-vad-16k-op15": SPEECH,
}


def load(folder, kind, case):
    """input_CASE_0.npy, input_CASE_1.npy, ..."""
    paths = sorted(folder.glob(f"{kind}_{case}_*.npy"), key=lambda path: int(path.stem.rsplit("_", 1)[1]))
    return [np.load(path) for path in paths]


def main():
    binary = os.path.abspath(sys.argv[1])
    data = runs.test_data("real")
    if not data:
        print("SKIP real models: no test data: set TESSERA_TEST_DATA to a folder that has 'real'")
        return 77
    count = runs.Count()
    with tempfile.TemporaryDirectory() as work:
        for name, flags in MODELS.items():
            folder, module = data / name, pathlib.Path(work) / f"{name}.so"
            if not folder.is_dir():
                count.skip(name, f"not in {data}")
                continue
            problem = runs.tessera(binary, "compile", folder / "model.onnx", "-o", module, "--quiet", *flags)
            if problem:
                count.result(name, problem)
                continue
            command = [binary, "run", module, "--threads", "1"]
            for case in sorted({re.match(r"input_(.*)_\d+$", path.stem)[1] for path in folder.glob("input_*_*.npy")}):
                want = load(folder, "expected", case)
                got = runs.run(command, load(folder, "input", case), len(want), work)
                count.result(f"{name} {case}", got if isinstance(got, str) else runs.compare(got, want))
    return count.exit_code()


if __name__ == "__main__":
    sys.exit(main())
