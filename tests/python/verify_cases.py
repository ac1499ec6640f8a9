#!/usr/bin/env python3
"""Runs `tessera verify` on every test-case folder below a folder, under the settings of the test matrix.

    verify_cases.py TESSERA FOLDER [--skip SKIP.txt] [-- FLAG...]

FOLDER may be onnx:NAME, the folder NAME of the test data in the PyPI package `onnx`. FLAGs go to `tessera verify`.
TESSERA_TEST_TARGET, TESSERA_TEST_OPT_LEVEL and TESSERA_TEST_THREADS are turned into --target, -O and --threads. A
line of SKIP.txt is a regular expression on the case's name, two blanks, and the reason; each skipped case is counted
and each reason printed. Every line must match at least one case. Ends with 'N passed, N failed'."""
import argparse
import collections
import os
import pathlib
import re
import subprocess
import sys


def matrix_flags():
    flags = []
    if os.environ.get("TESSERA_TEST_TARGET"):
        flags += ["--target", os.environ["TESSERA_TEST_TARGET"]]
    if os.environ.get("TESSERA_TEST_OPT_LEVEL"):
        flags += ["-O" + os.environ["TESSERA_TEST_OPT_LEVEL"]]
    if os.environ.get("TESSERA_TEST_THREADS"):
        flags += ["--threads", os.environ["TESSERA_TEST_THREADS"]]
    return flags


def read_skips(path):
    skips = []
    for line in pathlib.Path(path).read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            pattern, _, reason = line.partition("  ")
            if not reason.strip():
                sys.exit(f"{path}: no reason given for '{pattern}'")
            skips.append((re.compile(pattern + r"\Z"), reason.strip()))
    return skips


def select_cases(folder, skip):
    """The case folders below `folder` (or onnx:NAME) that no line of the file `skip` matches, by name; and how many
    were skipped. Prints the reasons."""
    if str(folder).startswith("onnx:"):
        import onnx
        folder = pathlib.Path(onnx.__file__).parent / "backend/test/data" / str(folder).removeprefix("onnx:")
    cases = sorted(path.parent for path in folder.glob("**/model.onnx"))
    skips = read_skips(skip) if skip else []
    skipped, selected = collections.Counter(), []
    for case in cases:
        reason = next((number for number, (pattern, _) in enumerate(skips) if pattern.match(case.name)), None)
        if reason is None:
            selected.append(case)
        else:
            skipped[reason] += 1
    for number, (pattern, reason) in enumerate(skips):
        if skipped[number] == 0:
            sys.exit(f"{skip}: nothing matches '{pattern.pattern}'; remove the line")
        print(f"skipped {skipped[number]}: {reason}")
    if not selected:
        sys.exit(f"verify_cases: no case below {folder}")
    return selected, sum(skipped.values())


def verify(tessera, flags, cases):
    """Runs the cases, prints what does not pass; how many passed, how many failed, and the worst exit code."""
    passed = failed = worst = 0
    size = 200  # a command line has a limited length
    for begin in range(0, len(cases), size):
        chunk = cases[begin:begin + size]
        done = subprocess.run([tessera, "verify", *matrix_flags(), *flags, *map(str, chunk)], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        lines = done.stdout.splitlines()
        closing = re.match(r"(\d+) passed, (\d+) failed", lines[-1] if lines else "")
        for line in lines[:-1] if closing else lines:
            if not re.match(r"(ok|pass(ed)?)\b", line, re.I):
                print(line)
        if not closing or int(closing[1]) + int(closing[2]) != len(chunk):
            sys.exit(f"verify_cases: tessera verify ended with exit code {done.returncode} and counted other than "
                     f"{len(chunk)} cases")
        passed, failed = passed + int(closing[1]), failed + int(closing[2])
        worst = max(worst, done.returncode)
    return passed, failed, worst


def main():
    own, flags = sys.argv[1:], []
    if "--" in own:
        flags = own[own.index("--") + 1:]
        own = own[:own.index("--")]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tessera")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--skip", type=pathlib.Path)
    args = parser.parse_args(own)

    selected, skipped = select_cases(args.folder, args.skip)
    passed, failed, worst = verify(args.tessera, flags, selected)
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 1 if failed or worst or passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
