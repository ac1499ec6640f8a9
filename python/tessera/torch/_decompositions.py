"""Which operators become others before the reader sees them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch._decomp import core_aten_decompositions, decomposition_table
from torch._ops import OpOverload

from .. import _native


def decompositions() -> dict[Any, Callable[..., Any]]:
    """PyTorch's own, of operators that the reader does not read as they are."""
    read = set(_native.aten_operators())
    more = {op: how for op, how in decomposition_table.items() if isinstance(op, OpOverload)}
    return {op: how for op, how in {**more, **core_aten_decompositions()}.items() if str(op).rsplit(".", 1)[0] not in read}
