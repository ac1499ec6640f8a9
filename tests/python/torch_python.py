"""Tests that need PyTorch run with a Python that has it: TESSERA_TEST_TORCH, else .venv-torch (scripts/setup.sh --torch)."""

import other_python
from other_python import ROOT, skip  # noqa: F401


def enter():
    """Runs the script again with that Python, unless it is this one. Skips the test where there is none."""
    other_python.enter("torch", "timm, torch, torchvision, transformers")
