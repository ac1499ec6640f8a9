#!/usr/bin/env python3
"""The official ONNX node cases on OpenCL.

    opencl_nodes.py TESSERA [--full]

One case in fifteen, which one rotates with the date; all with --full or TESSERA_TEST_FULL=1. Cases whose values are more
than tensors of fixed sizes are refused by name (TSR-4072) and counted; all others agree. Skipped where OpenCL has no
device, or where the cases are not there.
"""
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile

import model_runs as runs

SHARE = 15


def main():
    binary = os.path.abspath(sys.argv[1])
    archive = runs.test_data("onnx-node-tests")
    if not archive:
        print("SKIPPED: there are no node cases (onnx-node-tests)")
        return 77
    with tempfile.TemporaryDirectory() as work:
        with tarfile.open(archive / "node_tests.tar.gz") as tar:
            tar.extractall(work, filter="data")
        cases = sorted(path.parent for path in pathlib.Path(work).rglob("model.onnx"))
        if not runs.is_full():
            cases = cases[runs.today() % SHARE::SHARE]
        done = subprocess.run([binary, "verify", *cases, "-q", "-j", "2", "--target", "opencl"], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    lines = [line for line in done.stdout.splitlines() if re.match(r"(FAIL|TIMEOUT|UNSUPPORTED)", line)]
    if any("no OpenCL" in line or "has no device" in line for line in lines):
        print("SKIPPED: OpenCL has no device here")
        return 77
    refused = [line for line in lines if "TSR-4072" in line or line.startswith("UNSUPPORTED")]
    failed = [line for line in lines if line not in refused]
    for line in failed:
        print(line)
    passed = len(cases) - len(lines)
    print(f"{passed} passed, {len(failed)} failed, {len(refused)} not for a device")
    return 1 if failed or passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
