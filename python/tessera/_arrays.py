"""Arrays of numbers: what a run takes for an input, and room for results."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._dtypes import CARRIER, NUMBER
from ._errors import Error
from ._info import TensorInfo


def type_text(array: np.ndarray) -> str:
    return f"{array.dtype.name}[{','.join(map(str, array.shape))}]"


def to_array(value: Any, info: TensorInfo, kind: str = "input") -> np.ndarray:
    """A C-contiguous array of a known dtype in native byte order, the given one where it is that already."""
    if isinstance(value, np.ndarray):
        array = value
    elif hasattr(value, "__dlpack__") and not isinstance(value, np.generic):
        try:
            array = np.from_dlpack(value)
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            raise Error(
                f"{kind} '{info.name}' is a {type(value).__name__} that numpy cannot take over: {error}", id="TSR-6302",
                legal=f"{info}", hint="convert it to a numpy array",
            ) from error
    elif isinstance(value, np.generic) or hasattr(value, "__array_interface__") or hasattr(value, "__array__"):
        array = np.asarray(value)
    else:
        array = _from_numbers(value, info, kind)
    if array.dtype not in NUMBER:
        array = array.astype(array.dtype.newbyteorder("="), copy=False)
    if array.dtype not in NUMBER:
        raise Error(
            f"{kind} '{info.name}' got {type_text(array)}", id="TSR-6302", legal=f"{info}, its declared type",
            hint="convert the values to that dtype; nothing is converted silently",
        )
    if not (array.flags.c_contiguous and array.flags.aligned):
        array = np.array(array, order="C", copy=True)
    return array


def _from_numbers(value: Any, info: TensorInfo, kind: str) -> np.ndarray:
    """Python's numbers have no dtype of their own: they get the declared one where it holds their kind of value."""
    try:
        array = np.asarray(value)
        if np.can_cast(array.dtype, info.dtype, "same_kind") or array.size == 0 or (
            array.dtype.kind in "biuf" and info.dtype.kind == "V" and info.dtype.name.startswith(("bfloat", "float"))
        ):
            return np.asarray(value, info.dtype)
    except (OverflowError, TypeError, ValueError) as error:
        raise Error(f"{kind} '{info.name}': {error}", id="TSR-6302", legal=f"{info}, its declared type") from error
    return array


def check_output(array: Any, info: TensorInfo, shape: tuple[int, ...]) -> None:
    if not isinstance(array, np.ndarray):
        raise Error(
            f"output '{info.name}' was given an object of the type {type(array).__name__}", id="TSR-6305", legal="a numpy array",
        )
    if array.dtype != info.dtype or array.shape != shape:
        raise Error(
            f"output '{info.name}' was given room for {type_text(array)}", id="TSR-6305", legal=f"{info}, its declared type",
        )
    if not (array.flags.c_contiguous and array.flags.aligned and array.flags.writeable):
        fault = "not writable" if not array.flags.writeable else "not C-contiguous"
        raise Error(
            f"output '{info.name}' was given an array that is {fault}", id="TSR-6306",
            legal="a C-contiguous array that can be written", hint="give an array made by np.empty",
        )


def carrier(array: np.ndarray) -> np.ndarray:
    carrier = CARRIER.get(array.dtype)
    return array if carrier is None else array.view(carrier)
