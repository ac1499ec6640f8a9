"""Tests that need packages which the compiler does not have run with a Python that has them."""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def enter(name, packages):
    """Runs the script again with the Python TESSERA_TEST_NAME, else .venv-name (scripts/setup.sh --name), unless it is this one.

    `packages`: what it can import, separated by commas. Skips the test where there is none."""
    flag = f"TESSERA_HAS_{name.upper()}"
    if os.environ.get(flag):
        return
    python = os.environ.get(f"TESSERA_TEST_{name.upper()}", str(ROOT / f".venv-{name}/bin/python"))
    if not pathlib.Path(python).exists():
        skip(f"no {python}; scripts/setup.sh --{name} installs {packages}")
    found = subprocess.run([python, "-c", f"import sys, {packages}; print(sys.version_info[:2])"], capture_output=True, text=True)
    if found.returncode or found.stdout.strip().splitlines()[-1] != str(sys.version_info[:2]):
        skip(f"{python} is no Python {sys.version_info[0]}.{sys.version_info[1]} with {packages}")
    os.environ[flag] = "1"
    os.execv(python, [python, "-u", *sys.argv])


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(77)
