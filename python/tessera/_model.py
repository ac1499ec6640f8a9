"""Models that can be run."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import _native
from ._dtypes import CARRIER, NUMBER, NUMPY
from ._errors import Error

Arrays = Mapping[str, Any] | Sequence[Any]


@dataclass(frozen=True)
class TensorInfo:
    """An input or output of a model."""

    name: str
    dtype: np.dtype
    shape: tuple[int | str, ...]
    """A number, the name of a dimension that the inputs of a run decide, or "?" for what follows from those."""

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype.name}[{','.join(map(str, self.shape))}]"


def _infos(described) -> tuple[TensorInfo, ...]:
    infos = []
    for name, number, dims in described:
        if number not in NUMPY:
            raise Error(
                f"'{name}' holds {_native.dtype_name(number)}, for which numpy has no arrays", id="TSR-6307",
                legal="numbers and booleans", hint="run the module with the C API",
            )
        infos.append(TensorInfo(name, NUMPY[number], dims))
    return tuple(infos)


class Model:
    """A compiled model, or one that the interpreter runs. Made by :func:`tessera.compile` and :func:`tessera.load`.

    Several threads may run a model at once; each run has memory of its own, and Python's lock is released meanwhile.
    """

    def __init__(self, engine: _native.Engine, *, is_interpreted: bool = False) -> None:
        self._engine = engine
        self._is_interpreted = is_interpreted
        self.inputs: tuple[TensorInfo, ...] = _infos(engine.inputs)
        """Name, dtype and shape of every input, in the order in which `run` takes them."""
        self.outputs: tuple[TensorInfo, ...] = _infos(engine.outputs)
        """The same of every output, in the order of `run`'s results."""
        self._input_names = [info.name for info in self.inputs]
        self._output_names = [info.name for info in self.outputs]
        self._output_numbers = [NUMBER[info.dtype] for info in self.outputs]
        self._is_static = all(isinstance(dim, int) for info in self.outputs for dim in info.shape)

    def __repr__(self) -> str:
        def listed(infos):
            return ", ".join(map(str, infos))

        return f"<tessera.Model ({listed(self.inputs)}) -> ({listed(self.outputs)})>"

    @property
    def engine(self) -> str:
        """"native" or "interp"."""
        return "interp" if self._is_interpreted else "native"

    @property
    def num_threads(self) -> int:
        """How many threads a run may use."""
        return self._engine.num_threads

    @property
    def symbols(self) -> dict[str, tuple[int, int]]:
        """The least and the greatest value of each named dimension."""
        return self._engine.symbols

    @property
    def metadata(self) -> dict[str, Any]:
        """What the module says about itself: target, options, operators. Empty for the interpreter."""
        text = self._engine.metadata
        return json.loads(text) if text else {}

    def run(self, inputs: Arrays, outputs: Arrays | None = None) -> list[np.ndarray]:
        """Runs the model once.

        ``inputs`` is a mapping from names to arrays, or a sequence of arrays in the order of ``self.inputs``. An array
        is a numpy array, whatever numpy can take over without a copy (DLPack, the buffer protocol), or a number or
        nested list, which takes the input's dtype. Arrays must have the declared dtype: nothing is converted silently.
        C-contiguous arrays are not copied (but for dtypes of 4 and 2 bits, which are packed).

        ``outputs``, where given, has arrays that receive results, as a mapping or a sequence; None or nothing stands for
        a new array. They must be C-contiguous and have the declared dtype and shape. An array may be an input at the same
        time (the state of a recurrent model): it is overwritten when the run is done with it.

        Returns all outputs in the order of ``self.outputs``.
        """
        given = [
            _to_array(value, info)
            for value, info in zip(_in_order(inputs, self._input_names, "input", required=True), self.inputs)
        ]
        numbers = [NUMBER[array.dtype] for array in given]
        results = self._make_outputs(outputs, given)
        self._engine.run(
            [_carrier(array) for array in given], numbers, [_carrier(array) for array in results], self._output_numbers
        )
        return results

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the module to a file, which appears whole or not at all. `tessera.load` and the C API read it."""
        contents = self._engine.contents()
        if not contents:
            raise Error(
                "an interpreted model has no module to save", id="TSR-4030", legal='a model with engine="native"',
                hint="compile it without engine=",
            )
        path = os.fspath(path)
        temporary = ""
        try:
            with tempfile.NamedTemporaryFile(dir=os.path.dirname(path) or ".", delete=False) as file:
                temporary = file.name
                file.write(contents)
            umask = os.umask(0)
            os.umask(umask)
            os.chmod(temporary, 0o666 & ~umask)
            os.replace(temporary, path)
        except OSError as error:
            if temporary:
                os.unlink(temporary)
            raise Error(
                f"'{path}' cannot be written: {error.strerror}", id="TSR-6102", legal="a path that can be written",
            ) from error

    def _make_outputs(self, outputs: Arrays | None, inputs: list[np.ndarray]) -> list[np.ndarray]:
        if self._is_static:
            shapes = [info.shape for info in self.outputs]
        else:
            shapes = map(tuple, self._engine.output_shapes(inputs, [NUMBER[array.dtype] for array in inputs]))
        results = []
        given = [None] * len(self.outputs) if outputs is None else _in_order(
            outputs, self._output_names, "output", required=False
        )
        for array, info, shape in zip(given, self.outputs, shapes):
            if array is None:
                array = np.empty(shape, info.dtype)
            else:
                _check_output(array, info, shape)
            results.append(array)
        return results


def _in_order(arrays: Arrays, names: list[str], kind: str, *, required: bool) -> list[Any]:
    """One entry for each name; None where nothing was given."""
    plural = f"the model has {len(names)} {kind}s"
    if isinstance(arrays, Mapping):
        unknown = next((name for name in arrays if name not in names), None)
        if unknown is not None:
            raise Error(f"there is no {kind} '{unknown}'", id="TSR-4011", legal=", ".join(names))
        values = [arrays.get(name) for name in names]
        missing = next((name for name, value in zip(names, values) if value is None), None)
        if required and missing is not None:
            raise Error(f"nothing was given for {kind} '{missing}'", id="TSR-6301", legal=f"one array for each {kind}")
        return values
    if not isinstance(arrays, (list, tuple)):
        raise Error(
            f"the {kind}s are of the type {type(arrays).__name__}", id="TSR-6308", legal=f"a mapping from names, or a list: {plural}",
            hint="write run([x]) or run({'name': x})",
        )
    if len(arrays) != len(names):
        raise Error(f"{plural} and {len(arrays)} were given", id="TSR-6301", legal=f"one array for each {kind}")
    return list(arrays)


def _type_text(array: np.ndarray) -> str:
    return f"{array.dtype.name}[{','.join(map(str, array.shape))}]"


def _to_array(value: Any, info: TensorInfo) -> np.ndarray:
    """A C-contiguous array of a known dtype in native byte order, the given one where it is that already."""
    if isinstance(value, np.ndarray):
        array = value
    elif hasattr(value, "__dlpack__") and not isinstance(value, np.generic):
        try:
            array = np.from_dlpack(value)
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            raise Error(
                f"input '{info.name}' is a {type(value).__name__} that numpy cannot take over: {error}", id="TSR-6302",
                legal=f"{info}", hint="convert it to a numpy array",
            ) from error
    elif isinstance(value, np.generic) or hasattr(value, "__array_interface__") or hasattr(value, "__array__"):
        array = np.asarray(value)
    else:
        array = _from_numbers(value, info)
    if array.dtype not in NUMBER:
        array = array.astype(array.dtype.newbyteorder("="), copy=False)
    if array.dtype not in NUMBER:
        raise Error(
            f"input '{info.name}' got {_type_text(array)}", id="TSR-6302", legal=f"{info}, its declared type",
            hint="convert the values to that dtype; nothing is converted silently",
        )
    if not (array.flags.c_contiguous and array.flags.aligned):
        array = np.array(array, order="C", copy=True)
    return array


def _from_numbers(value: Any, info: TensorInfo) -> np.ndarray:
    """Python's numbers have no dtype of their own: they get the input's where it holds their kind of value."""
    try:
        array = np.asarray(value)
        if np.can_cast(array.dtype, info.dtype, "same_kind") or array.size == 0 or (
            array.dtype.kind in "biuf" and info.dtype.kind == "V" and info.dtype.name.startswith(("bfloat", "float"))
        ):
            return np.asarray(value, info.dtype)
    except (OverflowError, TypeError, ValueError) as error:
        raise Error(f"input '{info.name}': {error}", id="TSR-6302", legal=f"{info}, its declared type") from error
    return array


def _check_output(array: Any, info: TensorInfo, shape: tuple[int, ...]) -> None:
    if not isinstance(array, np.ndarray):
        raise Error(
            f"output '{info.name}' was given an object of the type {type(array).__name__}", id="TSR-6305", legal="a numpy array",
        )
    if array.dtype != info.dtype or array.shape != shape:
        raise Error(
            f"output '{info.name}' was given room for {_type_text(array)}", id="TSR-6305", legal=f"{info}, its declared type",
        )
    if not (array.flags.c_contiguous and array.flags.aligned and array.flags.writeable):
        fault = "not writable" if not array.flags.writeable else "not C-contiguous"
        raise Error(
            f"output '{info.name}' was given an array that is {fault}", id="TSR-6306",
            legal="a C-contiguous array that can be written", hint="give an array made by np.empty",
        )


def _carrier(array: np.ndarray) -> np.ndarray:
    carrier = CARRIER.get(array.dtype)
    return array if carrier is None else array.view(carrier)
