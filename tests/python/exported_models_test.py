#!/usr/bin/env python3
"""Models that scripts/export_models.py makes with PyTorch, beside ONNX Runtime: detectors, whose number of boxes only a run
knows, on several pictures and with weights that find no box; GPT-2 with a cache that grows, compiled for a range of
lengths, and with one that stays in place.

    exported_models_test.py TESSERA [--models DIR] [--match REGEX]

Needs PyTorch, torchvision and transformers (TESSERA_TEST_TORCH: a Python that has them; default: this one), unless DIR has
the models. Without them it is skipped."""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime

import case_folder

EXPORT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "export_models.py"
LAYERS = 2
DETECTORS = ["ssdlite", "faster_rcnn", "faster_rcnn_none", "ssd"]


def session_of(path):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def check_detector(tessera, path, work):
    """A picture of noise, one of noise of another contrast, and one that is black."""
    session, name = session_of(path), path.stem
    random = np.random.default_rng(0)
    pictures = [random.random((3, 320, 320), dtype=np.float32), random.random((3, 320, 320), dtype=np.float32) ** 3,
                np.zeros((3, 320, 320), np.float32)]
    sets = [([picture], session.run(None, {"image": picture})) for picture in pictures]
    counts = [outputs[0].shape[0] for _, outputs in sets]
    if name.endswith("_none") != (max(counts) == 0):
        return f"{name}: {counts} boxes, which tests nothing"
    case_folder.write_case(work / name, onnx.load(path), sets)
    run = subprocess.run([tessera, "verify", work / name, "--mtol", "1e-4", "--timeout", "600"], capture_output=True,
                         text=True)
    print(f"{name}: {counts} boxes; {run.stdout.strip()}")
    return None if run.returncode == 0 else f"{name}: {run.stdout}{run.stderr}"


def close(got, want):
    return got.shape == want.shape and np.abs(got - want).max() <= 1e-4 * np.abs(want).max()


def check_gpt2(path):
    """Tokens in pieces of one and more; the cache grows."""
    import tessera
    session = session_of(path)
    dims = {"length": (1, 8), "past": (0, 64)}
    module = tessera.compile(str(path), dims=dims)
    shapes = {value.name: value.shape for value in session.get_inputs() if value.name != "ids"}
    past = {name: np.zeros((1, shape[1], 0, shape[3]), np.float32) for name, shape in shapes.items()}
    random = np.random.default_rng(0)
    for length in (5, 1, 1, 3, 1):
        feeds = {"ids": random.integers(0, 1000, (1, length)), **past}
        want = session.run(None, feeds)
        got = module.run(feeds)
        got = [got[value.name] for value in session.get_outputs()] if isinstance(got, dict) else list(got)
        for value, a, b in zip(session.get_outputs(), got, want):
            if not close(a, b):
                return f"gpt2: {value.name} differs with {length} tokens behind {next(iter(past.values())).shape[2]}"
        past = {f"past_{value.name.removeprefix('present_')}": array
                for value, array in zip(session.get_outputs()[1:], got[1:])}
    print("gpt2: 5 steps are equal, the cache grew to 11")
    return None


def check_gpt2_static(path):
    """One token after the other; each run writes a place of the cache, where it is."""
    import tessera
    session = session_of(path)
    module = tessera.compile(str(path))
    caches = [value for value in session.get_inputs() if value.name.startswith("past_")]
    own = {value.name: np.zeros(value.shape, np.float32) for value in caches}
    theirs = {name: array.copy() for name, array in own.items()}
    random = np.random.default_rng(0)
    places = {name: array.ctypes.data for name, array in own.items()}
    outputs = [value.name for value in session.get_outputs()]
    logits = np.zeros(session.get_outputs()[0].shape, np.float32)
    for position in range(12):
        feeds = {"token": random.integers(0, 1000, (1, 1)), "position": np.array([position])}
        want = dict(zip(outputs, session.run(None, {**feeds, **theirs})))
        module.run({**feeds, **own},
                   {"logits": logits, **{f"present_{name.removeprefix('past_')}": array for name, array in own.items()}})
        theirs = {name: want[f"present_{name.removeprefix('past_')}"] for name in theirs}
        if not close(logits, want["logits"]):
            return f"gpt2_static: the logits differ at {position}"
        for name, array in own.items():
            if not close(array, theirs[name]) or array.ctypes.data != places[name]:
                return f"gpt2_static: {name} differs at {position}"
    print("gpt2_static: 12 steps are equal, the cache stayed in place")
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tessera")
    parser.add_argument("--models", type=pathlib.Path)
    parser.add_argument("--match", default=".")
    args = parser.parse_args()
    tessera = os.path.abspath(args.tessera)
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        names = [name for name in [*DETECTORS, "gpt2", "gpt2_static"] if re.search(args.match, name)]
        models = args.models or work / "models"
        if not args.models:
            python = os.environ.get("TESSERA_TEST_TORCH", sys.executable)
            made = subprocess.run([python, EXPORT, "--out", models, "--layers", str(LAYERS), *names], capture_output=True,
                                  text=True)
            if made.returncode == 77:
                print(made.stdout.strip())
                return 77
            if made.returncode != 0:
                print(made.stdout, made.stderr)
                return 1
        problems = []
        for name in names:
            path = models / f"{name}.onnx"
            if name in DETECTORS:
                problems.append(check_detector(tessera, path, work))
            else:
                problems.append(check_gpt2(path) if name == "gpt2" else check_gpt2_static(path))
        problems = [problem for problem in problems if problem]
        print("\n".join(problems))
        print(f"{len(names) - len(problems)} passed, {len(problems)} failed")
        return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
