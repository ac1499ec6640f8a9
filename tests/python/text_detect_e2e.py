#!/usr/bin/env python3
"""The demo as a test: compiles PP-OCR's detector for examples/text.png, runs the example program on it, and checks the
network's output against ONNX Runtime and the boxes against those in tests/python/text_boxes.json.

    text_detect_e2e.py TESSERA TEXT_DETECT MODEL.onnx [--record]

The boxes on file come from ONNX Runtime's output and were looked at. --record writes them anew.
Exit code 77: skipped."""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnxruntime

from verify_cases import matrix_flags

ROOT = pathlib.Path(__file__).resolve().parents[2]
PICTURE = ROOT / "examples/text.png"
BOXES = pathlib.Path(__file__).with_name("text_boxes.json")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tessera")
    parser.add_argument("text_detect")
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--record", action="store_true")
    args = parser.parse_args()
    if not args.model.is_file():
        print(f"skipped: there is no {args.model}; scripts/setup.sh fetches it")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        module, picture = f"{folder}/detector.so", f"{folder}/boxes.png"
        shape = subprocess.run([args.text_detect, "--print-shape", PICTURE], check=True, capture_output=True,
                               text=True).stdout.strip()
        subprocess.run([args.tessera, "compile", args.model, "-o", module, "--shape", f"x={shape}", *matrix_flags()],
                       check=True)
        threads = os.environ.get("TESSERA_TEST_THREADS", "0")
        done = subprocess.run([args.text_detect, module, PICTURE, "--json", "--repeat", "1", "--threads", threads,
                               "--out", picture, "--save-input", f"{folder}/x.npy", "--save-map", f"{folder}/y.npy"],
                              check=True, capture_output=True, text=True)
        lines = json.loads(done.stdout)["lines"]
        got = np.load(f"{folder}/y.npy")
        session = onnxruntime.InferenceSession(str(args.model), providers=["CPUExecutionProvider"])
        want = session.run(None, {"x": np.load(f"{folder}/x.npy")})[0]
        assert pathlib.Path(picture).stat().st_size > 10000, "no picture was written"

    assert got.shape == want.shape, (got.shape, want.shape)
    difference, magnitude = np.abs(got - want).max(), np.abs(want).max()
    print(f"shape {shape}, largest difference {difference:.2e} of {magnitude:.3g}, {len(lines)} lines of text")
    assert difference <= 1e-4 * magnitude
    if args.record:
        text = ",\n ".join(json.dumps(line) for line in lines)
        BOXES.write_text(f"[{text}]\n")
        return 0
    expected = json.loads(BOXES.read_text())
    assert len(lines) == len(expected), f"{len(lines)} lines of text, not {len(expected)}"
    for number, (line, wanted) in enumerate(zip(lines, expected), 1):
        moved = np.abs(np.array(line["box"]) - np.array(wanted["box"])).max()
        assert moved <= 1, f"box {number} moved by {moved} pixels: {line['box']}, not {wanted['box']}"
        assert abs(line["score"] - wanted["score"]) < 0.01, (number, line["score"], wanted["score"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
