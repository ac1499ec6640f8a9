"""Pictures of a training."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from ._errors import Error


def pyplot() -> Any:
    """matplotlib's, without a screen. Raises TSR-4034 where it is missing."""
    try:
        import matplotlib
    except ImportError:
        raise Error("curve needs matplotlib, which is missing", id="TSR-4034", legal="no curve, or: pip install matplotlib") from None
    matplotlib.use("Agg")
    import matplotlib.pyplot

    return matplotlib.pyplot


def draw_losses(path: str | os.PathLike[str], title: str, losses: Sequence[float]) -> None:
    """The loss of every step, and the mean over a sixtieth of them, as the format that the name says: PNG, SVG, PDF."""
    plots = pyplot()
    figure, axes = plots.subplots(figsize=(8, 4.5), dpi=120)
    steps = np.arange(1, len(losses) + 1)
    axes.plot(steps, losses, color="#9ecae1", linewidth=0.8)
    width = max(len(losses) // 60, 1)
    if len(losses) >= 2 * width > 2:
        means = np.convolve(losses, np.ones(width) / width, mode="valid")
        axes.plot(steps[width - 1:] - (width - 1) / 2, means, color="#08519c", linewidth=1.8)
    if len(losses) and min(losses) > 0:
        axes.set_yscale("log")
    axes.set(xlabel="step", ylabel="loss", title=title)
    axes.grid(color="#dddddd", linewidth=0.5)
    try:
        figure.savefig(path, bbox_inches="tight")
    except (OSError, ValueError) as error:
        raise Error(f"curve '{os.fspath(path)}' cannot be written: {error}", id="TSR-6102",
                    legal="a file called .png, .svg or .pdf in a folder that can be written") from None
    finally:
        plots.close(figure)
