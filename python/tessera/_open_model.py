"""Models with open sizes, compiled when they run."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np

from ._errors import Error
from ._info import TensorInfo, dtype_of
from ._model import Arrays, Model, in_order

KEPT = 8
"""Shapes of inputs whose compiled models are kept: those that were used last."""


class OpenModel(Model):
    """A model that leaves sizes open. It is compiled at the first run with each new shape of its inputs; the latest
    `KEPT` of them are kept. Everything else is as for :class:`Model`.

    Dimensions of ``inputs`` and ``outputs`` are numbers, or their names.
    """

    def __init__(
        self, border: tuple[list, list], fixed: set[str], compile: Callable[[dict[str, int], dict[str, tuple[int, ...]]], Model],
        *, engine: str, threads: int,
    ) -> None:
        self.inputs = tuple(_info(entry) for entry in border[0])
        self.outputs = tuple(_info(entry) for entry in border[1])
        self._input_names = [info.name for info in self.inputs]
        self._open = [None if dims is None else [name if name not in fixed else "" for name in names] for _, _, dims, names in border[0]]
        self._compile = compile
        self._is_interpreted = engine == "interp"
        self._threads = threads
        self._lock = threading.Lock()
        self._models: OrderedDict[tuple, Model] = OrderedDict()  # by what `_sizes` answers, in the order of their last use

    @property
    def num_threads(self) -> int:
        """How many threads a run may use; 0 before the first one, where nothing was said."""
        latest = next(reversed(self._models.values()), None)
        return latest.num_threads if latest else self._threads

    @property
    def symbols(self) -> dict[str, tuple[int, int]]:
        """Empty: every run has a model of its sizes."""
        return {}

    @property
    def metadata(self) -> dict[str, Any]:
        """Of the module that ran last; empty before the first run."""
        latest = next(reversed(self._models.values()), None)
        return latest.metadata if latest else {}

    def run(self, inputs: Arrays, outputs: Arrays | None = None) -> list[Any]:
        """As `Model.run`, after compiling for the shapes of ``inputs`` where none of the kept models has them."""
        values = in_order(inputs, self._input_names, "input", required=[info.kind != "optional" for info in self.inputs])
        return self._model_for(values).run(inputs, outputs)

    def save(self, path: Any) -> None:
        """Refused: there is a module for each shape."""
        raise Error(
            "the model has open sizes, and a module for each shape it has run with", id="TSR-4067",
            legal="a model compiled for one shape, or for a range of sizes",
            hint="compile it with shapes={'x': (1, 3, 224, 224)}, or with a range: dims={'batch': (1, 8)}",
        )

    def _model_for(self, values: list[Any]) -> Model:
        sizes, shapes = self._sizes(values)
        key = (tuple(sizes.items()), tuple(shapes.items()))
        with self._lock:
            model = self._models.pop(key, None)
            if model is None:
                model = self._compile(sizes, shapes)
            self._models[key] = model
            if len(self._models) > KEPT:
                self._models.popitem(last=False)
            return model

    def _sizes(self, values: list[Any]) -> tuple[dict[str, int], dict[str, tuple[int, ...]]]:
        """Sizes of the open dimensions by their names, and shapes of the inputs that declare no rank."""
        sizes: dict[str, int] = {}
        owner: dict[str, str] = {}
        shapes: dict[str, tuple[int, ...]] = {}
        for value, info, names in zip(values, self.inputs, self._open):
            if info.wrappers or value is None or info.dtype is None:
                continue
            shape = tuple(np.shape(value))
            if names is None:
                shapes[info.name] = shape
                continue
            if not any(names):
                continue
            if len(shape) != len(names):
                raise Error(
                    f"input '{info.name}' got the shape {shape}", id="TSR-6303", legal=f"{info}, its declared type",
                    hint="give an array of that rank",
                )
            for name, size in zip(names, shape):
                if not name:
                    continue
                if sizes.setdefault(name, size) != size:
                    raise Error(
                        f"input '{info.name}' got the shape {shape}: '{name}' is {size} there, and {sizes[name]} in input '{owner[name]}'",
                        id="TSR-6303", legal="one size for each name", hint="give arrays that agree",
                    )
                owner.setdefault(name, info.name)
        return sizes, shapes


def _info(entry: tuple[str, int, list[int] | None, list[str]]) -> TensorInfo:
    name, dtype, dims, names = entry
    shape = None if dims is None else tuple(dim if dim >= 0 else text for dim, text in zip(dims, names))
    return TensorInfo(name, None if dtype < 0 else dtype_of(dtype), shape)


def is_open(error: Error) -> bool:
    """Whether a compile failed for want of sizes alone."""
    return error.reason == "open_sizes"
