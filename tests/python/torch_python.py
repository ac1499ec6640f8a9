"""Tests that need PyTorch run with a Python that has it: TESSERA_TEST_TORCH, else .venv-torch (scripts/setup.sh --torch)."""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def enter():
    """Runs the script again with that Python, unless it is this one. Skips the test where there is none."""
    if os.environ.get("TESSERA_HAS_TORCH"):
        return
    python = os.environ.get("TESSERA_TEST_TORCH", str(ROOT / ".venv-torch/bin/python"))
    if not pathlib.Path(python).exists():
        skip(f"PyTorch is not installed: no {python}; scripts/setup.sh --torch installs it")
    question = "import sys, timm, torch, torchvision, transformers; print(sys.version_info[:2])"
    found = subprocess.run([python, "-c", question], capture_output=True, text=True)
    if found.returncode or found.stdout.strip().splitlines()[-1] != str(sys.version_info[:2]):
        skip(f"{python} is no Python {sys.version_info[0]}.{sys.version_info[1]} with torch, torchvision, timm and transformers")
    os.environ["TESSERA_HAS_TORCH"] = "1"
    os.execv(python, [python, "-u", *sys.argv])


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(77)
