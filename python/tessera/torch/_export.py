"""Programs of torch.export as archives that the reader takes."""

from __future__ import annotations

import io

import torch

from .. import _native
from ._decompositions import decompositions


def archive_of(program: torch.export.ExportedProgram) -> bytes:
    """The archive of a program, with PyTorch's decompositions of what is not read as it is."""
    archive = _saved(program)
    if not _native.refused_aten_nodes(archive, {}):
        return archive
    return _saved(program.run_decompositions(decompositions()))


def _saved(program: torch.export.ExportedProgram) -> bytes:
    stream = io.BytesIO()
    torch.export.save(program, stream)
    return stream.getvalue()
