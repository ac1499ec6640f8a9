#!/usr/bin/env python3
"""The TFLite models of TESSERA_TEST_DATA or ../shared, in the folder real: for every recorded input the recorded output of
LiteRT's reference kernels. Integers must be equal, floats within 1e-4; the class or the picture's mask that a person would
name must be the recorded one.

    tflite_real_test.py TESSERA [NAME...]    all models, or those whose names have one of the words"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SKIP = 77
# What is refused, and the operator because of which it is.
REFUSED = {"coral-automl-traffic-lstm-ssd": "TFLite_Detection_PostProcess"}


def arrays(folder, case, kind):
    files = sorted(folder.glob(f"{kind}_{case}_[0-9]*.npy"), key=lambda f: int(f.stem.rsplit("_", 1)[1]))
    return [(file, np.load(file)) for file in files]


def labels_of(answer):
    """The class that expected.json names first; None where the model is no classifier."""
    top = answer.get("top")
    return top[0]["index"] if isinstance(top, list) and top and "index" in top[0] else None


def check(tessera, folder, scratch):
    """How many cases are right, and what is wrong."""
    module = scratch / "m.so"
    made = subprocess.run([tessera, "compile", folder / "model.tflite", "-o", module], capture_output=True, text=True,
                          check=False)
    if made.returncode:
        reason = REFUSED.get(folder.name)
        return 0, [] if reason and reason in made.stderr else [made.stderr]
    answers = json.loads((folder / "expected.json").read_text())["cases"]
    cases = sorted({file.stem[len("input_"):].rsplit("_", 1)[0] for file in folder.glob("input_*.npy")})
    problems = [] if cases else ["no recorded inputs"]
    for case in cases:
        want = arrays(folder, case, "expected")
        command = [tessera, "run", module]
        for file, _ in arrays(folder, case, "input"):
            command += ["--input", f"@{file}"]
        for i in range(len(want)):
            command += ["--output", f"@{scratch}/o{i}.npy"]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode:
            problems.append(f"{case}: {run.stderr}")
            continue
        for i, (_, theirs) in enumerate(want):
            mine = np.load(scratch / f"o{i}.npy")
            # Class numbers are recorded in the smallest type that holds them.
            if (mine.dtype.kind == "f") != (theirs.dtype.kind == "f") or mine.shape != theirs.shape:
                problems.append(f"{case}: output {i} is {mine.dtype}{mine.shape}, not {theirs.dtype}{theirs.shape}")
                continue
            off = np.abs(mine.astype(np.float64) - theirs.astype(np.float64))
            if off.size and not off.max() <= (1e-4 if theirs.dtype.kind == "f" else 0):
                problems.append(f"{case}: output {i} is off by {off.max():g} in {np.count_nonzero(off)} of {off.size}")
            named = labels_of(answers.get(case, {})) if i == 0 else None
            if named is not None and mine.ravel()[named] != mine.max():
                problems.append(f"{case}: class {mine.argmax()} where a person sees {named}")
    return len(cases), problems


def main():
    tessera, words = sys.argv[1], sys.argv[2:]
    data = pathlib.Path(os.environ.get("TESSERA_TEST_DATA", ROOT.parent / "shared")) / "real"
    folders = sorted(file.parent for file in data.glob("*/model.tflite"))
    folders = [f for f in folders if not words or any(word in f.name for word in words)]
    if not folders:
        print(f"skipped: there are no TFLite models in {data}")
        return SKIP
    failed = total = 0
    with tempfile.TemporaryDirectory() as scratch:
        for folder in folders:
            count, problems = check(tessera, folder, pathlib.Path(scratch))
            total += count
            failed += len(problems)
            print(f"{folder.name}: {count} cases" + "".join(f"\n  {problem}" for problem in problems), flush=True)
    print(f"{len(folders)} models, {total} cases, {failed} problems")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
