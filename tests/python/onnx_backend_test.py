#!/usr/bin/env python3
"""The official test suite of ONNX back ends, onnx.backend.test, as it is, against tessera.backend.

    onnx_backend_test.py [--share I/N] [--match REGEX] [SKIP.txt...]

Tests that a line of a SKIP.txt matches are excluded (the form of verify_cases.py: a regular expression on the name, two
blanks, the reason); every reason is printed, and every line must match a test. --share runs every Nth test from the Ith
on; "today" for I is the day of the year, so that every test has its turn. TESSERA_TEST_FULL=1 runs them all;
TESSERA_TEST_TARGET, _OPT_LEVEL and _THREADS are options of compiling. Ends with
'N passed, N failed, N skipped'."""
import argparse
import collections
import datetime
import os
import pathlib
import re
import sys
import tempfile
import unittest
import warnings

import numpy as np

warnings.simplefilter("ignore")
os.environ.setdefault("ONNX_MODELS", tempfile.mkdtemp(prefix="tessera-onnx-models-"))

import onnx.backend.test
import tessera.backend
from verify_cases import read_skips


def share_of(text):
    if os.environ.get("TESSERA_TEST_FULL"):
        return 0, 1
    first, _, count = text.partition("/")
    count = int(count)
    return (datetime.date.today().timetuple().tm_yday if first == "today" else int(first)) % count, count


def backend():
    """tessera.backend itself, or in a row of the test matrix one with the options of that row."""
    kinds = {"TARGET": ("target", str), "OPT_LEVEL": ("opt_level", int), "THREADS": ("threads", int)}
    options = {option: kind(os.environ["TESSERA_TEST_" + name]) for name, (option, kind) in kinds.items()
               if os.environ.get("TESSERA_TEST_" + name)}
    if not options:
        return tessera.backend

    class WithOptions(tessera.backend.TesseraBackend):
        @classmethod
        def prepare(cls, model, device="CPU", **kwargs):
            return super().prepare(model, device, **{**options, **kwargs})

    print(f"options: {options}")
    return WithOptions


def tests_in(suite):
    for entry in suite:
        if isinstance(entry, unittest.TestSuite):
            yield from tests_in(entry)
        else:
            yield entry


def name_of(test):
    return test.id().rpartition(".")[2].removesuffix("_cpu")


class Result(unittest.TestResult):
    """Prints one line for each failure as it happens."""

    def addFailure(self, test, failure):
        super().addFailure(test, failure)
        self.show(test, failure)

    def addError(self, test, failure):
        super().addError(test, failure)
        self.show(test, failure)

    @staticmethod
    def show(test, failure):
        text = " ".join(str(failure[1]).split())
        print(f"FAIL {name_of(test)}: {failure[0].__name__}: {text[:400]}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("skips", nargs="*")
    parser.add_argument("--share", default="0/1")
    parser.add_argument("--match", default="")
    args = parser.parse_args()

    np.random.seed(0)  # the suite draws inputs: the same ones every time
    with np.errstate(all="ignore"):
        backend_test = onnx.backend.test.BackendTest(backend(), __name__)
    skips = [line for path in args.skips for line in read_skips(path)]
    for pattern, _ in skips:
        backend_test.exclude(f"^(?:{pattern.pattern.removesuffix(chr(92) + 'Z')})_cpu$")

    # Tests of other devices are in the suite only to be skipped.
    tests = [test for test in tests_in(backend_test.test_suite) if test.id().endswith("_cpu")]
    names = [name_of(test) for test in tests]
    unused = [pattern.pattern for pattern, _ in skips if not any(pattern.match(name) for name in names)]
    for pattern in unused:
        print(f"FAIL nothing matches '{pattern}' in the list of exclusions; remove the line")
    tests = sorted((test for test in tests if re.search(args.match, test.id())), key=lambda test: test.id())
    first, count = share_of(args.share)
    print(f"{len(tests)} tests; every {count}. from number {first} on")
    result = Result()
    with np.errstate(all="ignore"):
        unittest.TestSuite(tests[first::count]).run(result)

    reasons = collections.Counter()
    unexpected = 0
    for test, reason in result.skipped:
        name = name_of(test)
        known = next((why for pattern, why in skips if pattern.match(name)), None)
        if known is None:
            print(f"FAIL {name}: skipped ({reason}), and no line of the list of exclusions says why")
            unexpected += 1
        else:
            reasons[known] += 1
    for reason, number in sorted(reasons.items()):
        print(f"skipped {number}: {reason}")
    failed = len(result.failures) + len(result.errors) + unexpected + len(unused)
    passed = result.testsRun - len(result.failures) - len(result.errors) - len(result.skipped)
    print(f"{passed} passed, {failed} failed, {sum(reasons.values())} skipped")
    return 1 if failed or passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
