#!/usr/bin/env python3
"""Runs onnx's light models, whose weights are constants made in the graph: they prove import, folding and memory.

    light_models.py TESSERA [--full]

Outputs agree within 1e-4 of the largest. Two in turn with the date; all with --full or TESSERA_TEST_FULL=1.
"""
import os
import re
import subprocess
import sys

import model_runs as runs

SHARE = 2
# Compiled code that computes its weights in every run takes 10 seconds and more where 0.1 would do.
SECONDS = 1200 if os.environ.get("TESSERA_SANITIZE") else 120


def main():
    binary = os.path.abspath(sys.argv[1])
    data = runs.test_data("onnx-light")
    if not data:
        print("SKIP light models: no test data: set TESSERA_TEST_DATA to a folder that has 'onnx-light'")
        return 77
    folders = sorted(p.parent for p in data.glob("*/model.onnx"))
    if not runs.is_full():
        begin = runs.today() * SHARE
        folders = [folders[(begin + i) % len(folders)] for i in range(SHARE)]
    done = subprocess.run([binary, "verify", "-j1", "--timeout", str(SECONDS), "--rtol", "0", "--atol", "0",
                           "--mtol", str(runs.BOUND), *map(str, folders)], text=True, stdout=subprocess.PIPE)
    print(done.stdout, end="")
    closing = re.search(r"^(\d+) passed, 0 failed$", done.stdout, re.M)
    return 0 if done.returncode == 0 and closing and int(closing[1]) == len(folders) > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
