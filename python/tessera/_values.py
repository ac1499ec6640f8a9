"""Strings, sequences, optionals and maps: Python's objects as the extension module takes them, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from . import _native
from ._arrays import carrier, to_array, type_text
from ._dtypes import NUMBER, NUMPY, OBJECT, STRING
from ._errors import Error
from ._info import KINDS, TensorInfo

_TENSOR, _SEQUENCE, _OPTIONAL, _MAP = range(len(KINDS))


def to_value(value: Any, info: TensorInfo) -> _native.Value:
    """What a run takes for an input; `info` is the input, or a part of it with the part's place in its name."""
    if not info.wrappers:
        return _strings(value, info) if info.dtype == OBJECT else _numbers(value, info)
    if info.kind == "optional":
        items = [] if value is None else [to_value(value, info.inside())]
        return _native.Value.of_items(_OPTIONAL, items)
    if info.kind == "sequence":
        if not isinstance(value, (list, tuple)):
            raise _wrong_kind(value, info, "a list or tuple")
        items = [to_value(item, info.inside(f"[{place}]")) for place, item in enumerate(value)]
        return _native.Value.of_items(_SEQUENCE, items)
    if not isinstance(value, Mapping):
        raise _wrong_kind(value, info, "a dict")
    parts = []
    for part, dtype, objects in (("keys", info.key, value.keys()), ("values", info.dtype, value.values())):
        parts.append(to_value(list(objects), TensorInfo(f"{info.name}.{part}", dtype, (len(value),))))
        if parts[-1].shape != [len(value)]:
            raise Error(
                f"input '{info.name}' got a dict whose {part} are more than one {info.dtype.name} each", id="TSR-6309",
                legal=f"{info}, its declared type",
            )
    return _native.Value.of_items(_MAP, parts)


def from_value(value: _native.Value) -> Any:
    """What a run gave, in the forms that `to_value` takes."""
    if value.kind == _TENSOR:
        if value.dtype != STRING:
            return value.array().view(NUMPY[value.dtype])
        array = np.empty(value.shape, OBJECT)
        array.reshape(-1)[:] = value.texts
        return array
    items = value.items
    if value.kind == _SEQUENCE:
        return [from_value(item) for item in items]
    if value.kind == _OPTIONAL:
        return from_value(items[0]) if items else None
    keys, values = map(from_value, items)
    return dict(zip(keys.tolist(), values.tolist()))


def _numbers(value: Any, info: TensorInfo) -> _native.Value:
    if value is None or isinstance(value, Mapping):
        raise _wrong_kind(value, info, "an array")
    array = to_array(value, info)
    if array.dtype != info.dtype:
        raise Error(
            f"input '{info.name}' got {type_text(array)}", id="TSR-6302", legal=f"{info}, its declared type",
            hint="convert the values to that dtype; nothing is converted silently",
        )
    return _native.Value.of_array(carrier(array), NUMBER[array.dtype])


def _strings(value: Any, info: TensorInfo) -> _native.Value:
    if value is None or isinstance(value, Mapping):
        raise _wrong_kind(value, info, "an array of str")
    if isinstance(value, (list, tuple, str, bytes)):
        try:
            array = np.array(value, dtype=object)
        except ValueError as error:
            raise Error(f"input '{info.name}': {error}", id="TSR-6302", legal=f"{info}, its declared type") from error
    else:
        array = np.asarray(value)
    if array.dtype.kind not in "OSTU":
        raise Error(
            f"input '{info.name}' got {type_text(array)}", id="TSR-6302", legal=f"{info}, its declared type",
            hint="give an array of str",
        )
    try:
        return _native.Value.of_texts(array.reshape(-1).tolist(), array.shape)
    except TypeError as error:
        raise Error(
            f"input '{info.name}' got {error}", id="TSR-6302", legal="str, or bytes in UTF-8", hint="give an array of str",
        ) from error
    except ValueError as error:
        raise Error(f"input '{info.name}' got {error}", id="TSR-7044", legal="text that UTF-8 can say") from error


def _wrong_kind(value: Any, info: TensorInfo, wanted: str) -> Error:
    return Error(
        f"input '{info.name}' got an object of the type {type(value).__name__}", id="TSR-6309",
        legal=f"{wanted}: the input is {info.type}",
    )
