#!/usr/bin/env python3
"""Compiles real networks in many configurations and holds their outputs against reference results.

    models_matrix.py TESSERA [--full]

Agreement is that of model_runs.py. Small models run in every configuration; of the text detector one configuration
besides the default runs each day, all of them with --full or TESSERA_TEST_FULL=1. References: the recorded outputs of
ONNX Runtime in the test data, or ONNX Runtime itself. What is missing (test data, an instruction set) is skipped, and
said.
"""
import os
import sys
import tempfile

import numpy as np

import model_runs as runs

ALWAYS = 2  # so many configurations run for large models too


def recorded(folder, case):
    load = lambda kind: [np.load(p) for p in sorted(folder.glob(f"{kind}_{case}_*.npy"))]
    return load("input"), load("expected")


def models():
    """Yields (name, model file, shape flags, large, [(inputs, outputs)]), or (name, reason)."""
    data = runs.test_data("real")
    for name in ("mnist-ort-examples", "mnist-opt-wonnx", "ultraface-rfb-320"):
        if not data:
            yield name, "no test data: set TESSERA_TEST_DATA"
            continue
        folder = data / name
        cases = sorted({p.name.split("_")[1] for p in folder.glob("input_*_0.npy")})
        yield name, folder / "model.onnx", [], False, [recorded(folder, case) for case in cases]

    detector = runs.ROOT / ".deps" / "ppocr" / "ch_PP-OCRv4_det_infer.onnx"
    if detector.exists():
        from PIL import Image
        picture = Image.open(runs.ROOT / "examples" / "text.png").convert("RGB").resize((480, 320))
        pixels = np.asarray(picture, dtype=np.float32)[:, :, ::-1] / 255
        x = ((pixels - np.float32(0.5)) / np.float32(0.5)).transpose(2, 0, 1)[None].copy()
        want = runs.onnx_runtime(str(detector), [x])
        yield "text detector", detector, ["--shape", "x=1x3x320x480"], True, [([x], want)]
    else:
        yield "text detector", "its ONNX file is missing: run scripts/setup.sh"


def main():
    tessera = os.path.abspath(sys.argv[1])
    count = runs.Count()
    rotating = ALWAYS + runs.today() % (len(runs.CONFIGURATIONS) - ALWAYS)
    with tempfile.TemporaryDirectory() as work:
        os.environ["TESSERA_CACHE_DIR"] = os.path.join(work, "cache")
        for entry in models():
            if len(entry) == 2:
                count.skip(*entry)
                continue
            name, model, shape, large, cases = entry
            for index, configuration in enumerate(runs.CONFIGURATIONS):
                if large and not runs.is_full() and index >= ALWAYS and index != rotating:
                    continue
                runs.check_configuration(tessera, name, model, shape, configuration, cases, work, count)
    return count.exit_code()


if __name__ == "__main__":
    sys.exit(main())
