#!/usr/bin/env python3
"""Runs test cases at every optimisation level below the default, and with each pass and each schedule rule left out.

    pass_matrix.py TESSERA FOLDER [--skip SKIP.txt] [--only CONFIGURATION...] [--log FILE]

FOLDER and SKIP.txt are those of verify_cases.py. The passes and rules are asked of TESSERA. Every case runs in one
configuration a day, another one the next day, so that all pairs have their turn; TESSERA_TEST_FULL=1 runs them all.
--only: configurations, such as -O0 or --disable-pass=cse. --log adds a line for each configuration when it is done. Ends
with 'N passed, N failed'."""
import argparse
import datetime
import os
import pathlib
import re
import subprocess
import sys
import time

from verify_cases import select_cases, verify


def optional_passes(tessera, case):
    """Passes and rules that may be left out: all that --disable-pass knows but those that every level runs."""
    done = subprocess.run([tessera, "verify", case, "--disable-pass", "?"], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    legal = re.search(r"TSR-4020.*legal: ([a-z0-9_, ]+)", done.stdout, re.S)
    if not legal:
        sys.exit(f"pass_matrix: tessera does not list its passes: {done.stdout}")
    names = []
    for name in legal[1].replace(" ", "").split(","):
        done = subprocess.run([tessera, "verify", case, "--disable-pass", name], text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)
        if "TSR-4023" not in done.stdout:
            names.append(name)
    return names


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tessera")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--skip", type=pathlib.Path)
    parser.add_argument("--only", action="append")
    parser.add_argument("--log", type=pathlib.Path)
    args = parser.parse_args()
    cases, skipped = select_cases(args.folder, args.skip)
    configurations = ["-O0", "-O1", "-O2"]
    configurations += [f"--disable-pass={name}" for name in optional_passes(args.tessera, str(cases[0]))]
    if args.only:
        unknown = set(args.only) - set(configurations)
        if unknown:
            sys.exit(f"pass_matrix: no configuration {', '.join(sorted(unknown))} among {' '.join(configurations)}")
    full = args.only or os.environ.get("TESSERA_TEST_FULL") == "1"
    today = datetime.date.today().toordinal()
    passed = failed = worst = 0
    for number, configuration in enumerate(configurations):
        if args.only and configuration not in args.only:
            continue
        mine = [case for index, case in enumerate(cases)
                if full or (index + number + today) % len(configurations) == 0]
        begin = time.monotonic()
        good, bad, code = verify(args.tessera, ["--quiet", configuration], mine)
        passed, failed, worst = passed + good, failed + bad, max(worst, code)
        line = f"{configuration}: {good} passed, {bad} failed, {time.monotonic() - begin:.0f} s"
        print(line, flush=True)
        if args.log:
            with open(args.log, "a") as log:
                print(line, file=log)
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 1 if failed or worst or passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
