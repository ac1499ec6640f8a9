"""What models take and give."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from ._dtypes import NUMPY, OBJECT, STRING

# By their numbers in include/tessera/tessera.h.
KINDS = ("tensor", "sequence", "optional", "map")


@dataclass(frozen=True)
class TensorInfo:
    """An input or output of a model: a tensor, or a sequence, optional or map of tensors."""

    name: str
    dtype: np.dtype
    """Of the tensors; numpy's ``object`` for strings, which are arrays of ``str``. Of a map: of its values."""
    shape: tuple[int | str, ...] | None
    """Of the tensors: a number, the name of a dimension that the inputs of a run decide, or "?" for what follows from
    those, or is known only when the model runs. None: not even the rank is known before."""
    wrappers: tuple[str, ...] = ()
    """What is around the tensors, outermost first: "sequence", "optional", "map"."""
    key: np.dtype | None = None
    """Of a map: the dtype of its keys, int64 or ``object`` for strings."""

    @property
    def kind(self) -> str:
        """"tensor", "sequence", "optional" or "map"."""
        return self.wrappers[0] if self.wrappers else "tensor"

    @property
    def type(self) -> str:
        """As text: "float32[1,3]", "seq(string[*])", "opt(float32[?])", "map(int64,float32)"."""
        if self.kind == "map":
            return f"map({_dtype_text(self.key)},{_dtype_text(self.dtype)})"
        if self.wrappers:
            return f"{'seq' if self.kind == 'sequence' else 'opt'}({self.inside().type})"
        return f"{_dtype_text(self.dtype)}[{'*' if self.shape is None else ','.join(map(str, self.shape))}]"

    def inside(self, place: str = "") -> TensorInfo:
        """An element of a sequence, or of an optional, with its place appended to the name."""
        return replace(self, name=self.name + place, wrappers=self.wrappers[1:])

    def __str__(self) -> str:
        return f"{self.name}: {self.type}"


def infos(described: Iterable[tuple]) -> tuple[TensorInfo, ...]:
    """As the extension module describes inputs and outputs."""
    return tuple(
        TensorInfo(
            name, dtype_of(number), dims, tuple(KINDS[kind] for kind in wrappers),
            dtype_of(key) if KINDS.index("map") in wrappers else None,
        )
        for name, number, dims, wrappers, key in described
    )


def dtype_of(number: int) -> np.dtype:
    """By the number that the extension module has for it."""
    return OBJECT if number == STRING else NUMPY[number]


def _dtype_text(dtype: np.dtype | None) -> str:
    return "string" if dtype is None or dtype == OBJECT else dtype.name
