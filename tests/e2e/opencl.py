#!/usr/bin/env python3
"""Networks of the suite on OpenCL, whatever device the machine has; in CI that is the CPU, by PoCL.

    opencl.py TESSERA [--full] [--models NAME,...]

The outputs are those of ONNX Runtime. Two networks in turn with the date and resnet18; all with --full or
TESSERA_TEST_FULL=1. Skipped where OpenCL has no device.
"""
import os
import sys
import tempfile

import onnx

import model_runs as runs
from suite_models import LARGE, QUICK

SHARE = 2


def selection():
    if "--models" in sys.argv:
        return sys.argv[sys.argv.index("--models") + 1].split(",")
    if runs.is_full():
        return QUICK + LARGE
    others = [name for name in QUICK if name != "resnet18"]
    return ["resnet18"] + [others[(runs.today() * SHARE + i) % len(others)] for i in range(SHARE)]


def main():
    binary = os.path.abspath(sys.argv[1])
    count = runs.Count()
    for name in selection():
        with tempfile.TemporaryDirectory() as work:
            model, feeds = runs.suite_model(name)
            path = f"{work}/{name}.onnx"
            onnx.save(model, path)
            want = runs.onnx_runtime(path, feeds)
            module = f"{work}/{name}.so"
            problem = runs.tessera(binary, "compile", path, "-o", module, "--target", "opencl")
            got = problem or runs.run([binary, "run", module], feeds, len(want), work)
            if isinstance(got, str) and "TSR-7019" in got:
                count.skip(name, got.strip().splitlines()[0])
                continue
            count.result(name, got if isinstance(got, str) else runs.compare(got, want))
    if count.skipped and not count.passed + count.failed:
        print("SKIPPED: OpenCL has no device here")
        return 77
    return count.exit_code()


if __name__ == "__main__":
    sys.exit(main())
