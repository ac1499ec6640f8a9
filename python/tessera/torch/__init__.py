"""PyTorch programs on Tessera.

    import torch, tessera.torch

    model = torch.compile(model.eval(), backend="tessera")
    with torch.no_grad():
        y = model(x)
    print(tessera.torch.last_report())

Importing this package registers the backend; an installed tessera registers it by itself. What it does is in
docs/pytorch.md.
"""

from __future__ import annotations

from ._backend import backend
from ._export import archive_of
from ._report import Region, Report, last_report, reports, reset

__all__ = ["Region", "Report", "archive_of", "backend", "last_report", "reports", "reset"]


def _register() -> None:
    from torch._dynamo import register_backend
    from torch._dynamo.backends.registry import _COMPILER_FNS  # noqa: PLC2701 - there is no question whether a name is taken

    if "tessera" not in _COMPILER_FNS:
        register_backend(backend, name="tessera")


_register()
