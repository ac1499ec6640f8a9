"""What became of the graphs that torch.compile handed over."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Region:
    """A part of a graph that is compiled as a whole."""

    operators: int
    seconds: float  # that compiling took
    symbols: dict[str, tuple[int, int]] = field(default_factory=dict)  # sizes that are open, with their ranges


@dataclass
class Report:
    """Of one graph."""

    operators: int = 0
    regions: list[Region] = field(default_factory=list)
    eager: list[tuple[str, str, str]] = field(default_factory=list)  # node, operator, why it is left to PyTorch
    reason: str = ""  # why the whole graph is left to PyTorch; empty when it is not
    frozen: int = 0  # parameters and buffers that are constants of the compiled code
    recompiled: int = 0  # how often they had changed
    runs: int = 0
    eager_runs: int = 0  # runs of the whole graph by PyTorch: sizes outside of the compiled ranges

    @property
    def compiled(self) -> int:
        """Operators in compiled regions."""
        return sum(region.operators for region in self.regions)

    def __str__(self) -> str:
        if self.reason:
            return f"{self.operators} operators, all left to PyTorch: {self.reason}"
        lines = [
            f"{self.compiled} of {self.operators} operators compiled, in {len(self.regions)} "
            f"region{'s' if len(self.regions) != 1 else ''} ({sum(r.seconds for r in self.regions):.1f} s); "
            f"{self.frozen} parameters frozen"
        ]
        for (operator, reason), count in Counter((operator, reason) for _, operator, reason in self.eager).items():
            nodes = [node for node, o, r in self.eager if (o, r) == (operator, reason)]
            lines.append(f"  {count} x {operator} left to PyTorch ({', '.join(nodes[:4])}{', ...' if len(nodes) > 4 else ''}): {reason}")
        return "\n".join(lines)


_REPORTS: list[Report] = []


def new_report() -> Report:
    _REPORTS.append(Report())
    return _REPORTS[-1]


def last_report() -> Report | None:
    """Of the graph that was compiled last; None before the first."""
    return _REPORTS[-1] if _REPORTS else None


def reports() -> list[Report]:
    """Of all graphs since the start, or the last reset."""
    return list(_REPORTS)


def reset() -> None:
    """Forgets all reports."""
    _REPORTS.clear()
