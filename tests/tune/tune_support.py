"""What the tests of the tuner's commands have in common: calling the compiler, and a list of what went wrong.

A script that imports it has the path of the tessera program as its first argument."""

import os
import pathlib
import subprocess
import sys

TESSERA = sys.argv[1]
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
problems = []


def expect(condition, text):
    if not condition:
        problems.append(text)
        print("FAILED:", text, flush=True)


def run(*arguments, code=0, seconds=600):
    """The program with these arguments and no cache."""
    done = subprocess.run([TESSERA, *map(str, arguments)], capture_output=True, text=True, timeout=seconds,
                          env={**os.environ, "TESSERA_CACHE_SIZE": "0"})
    expect(done.returncode == code, f"{' '.join(map(str, arguments))}: exit {done.returncode}, not {code}\n{done.stderr}")
    return done


def finish():
    """Ends the script: with 1 when something went wrong."""
    print(f"{len(problems)} problems")
    sys.exit(1 if problems else 0)
