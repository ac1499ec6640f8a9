"""Models that can be run."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from . import _native
from ._arrays import carrier, check_output, to_array, type_text
from ._dtypes import NUMBER, OBJECT
from ._errors import Error
from ._info import TensorInfo, infos
from ._interrupt import interruptible
from ._values import from_value, to_value

Arrays = Mapping[str, Any] | Sequence[Any]


class Model:
    """A compiled model, or one that the interpreter runs. Made by :func:`tessera.compile` and :func:`tessera.load`.

    Several threads may run a model at once; each run has memory of its own, and Python's lock is released meanwhile.
    Runs of a model with states, values that live from run to run, come one after another.
    """

    def __init__(self, engine: _native.Engine, *, is_interpreted: bool = False) -> None:
        self._engine = engine
        self._is_interpreted = is_interpreted
        self.inputs: tuple[TensorInfo, ...] = infos(engine.inputs)
        """Name, dtype and shape of every input, in the order in which `run` takes them."""
        self.outputs: tuple[TensorInfo, ...] = infos(engine.outputs)
        """The same of every output, in the order of `run`'s results."""
        self._states = infos(engine.states)
        self._input_names = [info.name for info in self.inputs]
        self._output_names = [info.name for info in self.outputs]
        self._has_values = engine.has_values
        if not self._has_values:
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

    def run(self, inputs: Arrays, outputs: Arrays | None = None) -> list[Any]:
        """Runs the model once.

        ``inputs`` is a mapping from names to arrays, or a sequence of arrays in the order of ``self.inputs``. An array
        is a numpy array, whatever numpy can take over without a copy (DLPack, the buffer protocol), or a number or
        nested list, which takes the input's dtype. Arrays must have the declared dtype: nothing is converted silently.
        C-contiguous arrays are not copied (but for dtypes of 4 and 2 bits, which are packed).

        Strings are arrays of ``str`` (or of bytes in UTF-8); a sequence is a list or tuple of its elements, an optional
        None or its element, a map a dict. Results have the same forms: arrays of ``object`` for strings, lists, None,
        dicts of Python's own numbers and ``str``.

        ``outputs``, where given, has arrays that receive results, as a mapping or a sequence; None or nothing stands for
        a new array. They must be C-contiguous and have the declared dtype and shape. An array may be an input at the same
        time (the state of a recurrent model): it is overwritten when the run is done with it. Strings, sequences,
        optionals and maps are always new.

        Returns all outputs in the order of ``self.outputs``.
        """
        values = in_order(inputs, self._input_names, "input", required=[info.kind != "optional" for info in self.inputs])
        if self._has_values:
            return self._run_values(values, outputs)
        given = [to_array(value, info) for value, info in zip(values, self.inputs)]
        numbers = [NUMBER[array.dtype] for array in given]
        results = self._make_outputs(outputs, given)
        arrays = ([carrier(array) for array in given], numbers, [carrier(array) for array in results], self._output_numbers)
        if self._is_interpreted:
            interruptible(lambda: self._engine.run(*arrays), self._engine.cancel)
        else:
            self._engine.run(*arrays)
        return results

    @property
    def states(self) -> dict[str, np.ndarray]:
        """The values that live from run to run, by name: copies of what they are now."""
        values = {}
        for i, info in enumerate(self._states):
            array = np.empty(info.shape, info.dtype)
            self._engine.read_state(i, carrier(array), NUMBER[array.dtype])
            values[info.name] = array
        return values

    def set_states(self, values: Mapping[str, Any]) -> None:
        """Gives states other values: arrays of their dtypes and shapes, by name. The others keep theirs."""
        numbers = {info.name: i for i, info in enumerate(self._states)}
        unknown = next((name for name in values if name not in numbers), None)
        if unknown is not None:
            raise Error(f"there is no state '{unknown}'", id="TSR-4011", legal=", ".join(numbers) or "this model has no states")
        arrays = {name: to_array(value, self._states[numbers[name]], "state") for name, value in values.items()}
        for name, array in arrays.items():
            info = self._states[numbers[name]]
            if array.dtype != info.dtype or array.shape != info.shape:
                raise Error(
                    f"state '{name}' got {type_text(array)}", legal=f"{info}, its declared type",
                    id="TSR-6302" if array.dtype != info.dtype else "TSR-6303",
                    hint="give an array of that dtype and shape; nothing is converted silently",
                )
        for name, array in arrays.items():
            self._engine.write_state(numbers[name], carrier(array), NUMBER[array.dtype])

    def reset_states(self) -> None:
        """Gives all states the values that they had before the first run."""
        self._engine.reset_states()

    def share_states(self, owner: Model) -> None:
        """The states become those of ``owner`` that have their names, in its memory: what a run of one writes, the next
        run of either reads. Of the two modules of a file that `tessera train --with-step` wrote, "infer" shares those of
        "step". This module must keep each of them in one place, as one does that only reads them (TSR-7029)."""
        self._engine.share_states(owner._engine)

    @property
    def entries(self) -> tuple[str, ...]:
        """The modules in the file that this one was loaded from; none where it is alone there."""
        return tuple(self._engine.entries)

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
            import tempfile  # which takes as long to import as half of this package

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

    def _run_values(self, inputs: list[Any], outputs: Arrays | None) -> list[Any]:
        places = self._places(outputs)
        for array, info in zip(places, self.outputs):
            if array is not None and (info.wrappers or info.dtype == OBJECT):
                raise Error(
                    f"output '{info.name}' was given room, and is {info.type}", id="TSR-6305", legal="None: its result is new",
                )
            if array is not None:
                check_output(array, info, np.shape(array))
        given = [to_value(value, info) for value, info in zip(inputs, self.inputs)]
        if self._is_interpreted:
            values = interruptible(lambda: self._engine.run_values(given), self._engine.cancel)
        else:
            values = self._engine.run_values(given)
        results = [from_value(value) for value in values]
        for array, info, result in zip(places, self.outputs, results):
            if array is not None:
                check_output(array, info, result.shape)
        for i, array in enumerate(places):
            if array is not None:
                array[...] = results[i]
                results[i] = array
        return results

    def _places(self, outputs: Arrays | None) -> list[Any]:
        """The array of the caller for each output, or None."""
        if outputs is None:
            return [None] * len(self.outputs)
        return in_order(outputs, self._output_names, "output", required=[False] * len(self.outputs))

    def _make_outputs(self, outputs: Arrays | None, inputs: list[np.ndarray]) -> list[np.ndarray]:
        if self._is_static:
            shapes = [info.shape for info in self.outputs]
        else:
            shapes = map(tuple, self._engine.output_shapes(inputs, [NUMBER[array.dtype] for array in inputs]))
        results = []
        for array, info, shape in zip(self._places(outputs), self.outputs, shapes):
            if array is None:
                array = np.empty(shape, info.dtype)
            else:
                check_output(array, info, shape)
            results.append(array)
        return results


def in_order(arrays: Arrays, names: list[str], kind: str, *, required: list[bool]) -> list[Any]:
    """One entry for each name; None where nothing was given."""
    plural = f"the model has {len(names)} {kind}s"
    if isinstance(arrays, Mapping):
        unknown = next((name for name in arrays if name not in names), None)
        if unknown is not None:
            raise Error(f"there is no {kind} '{unknown}'", id="TSR-4011", legal=", ".join(names))
        values = [arrays.get(name) for name in names]
        missing = next((name for name, value, needed in zip(names, values, required) if value is None and needed), None)
        if missing is not None:
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
