"""The arguments of compile, checked and in the form that the extension module takes."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Mapping
from typing import Any

from ._errors import Error


def _wrong(argument: str, value: Any, legal: str) -> Error:
    return Error(f"{argument} is {value!r:.100}", id="TSR-4034", legal=legal)


def number(argument: str, value: Any, bits: int = 32) -> int:
    try:
        result = operator.index(value)
    except TypeError:
        raise _wrong(argument, value, "a whole number") from None
    if not -(2 ** (bits - 1)) <= result < 2 ** (bits - 1):
        raise _wrong(argument, value, f"a number of {bits} bits")
    return result


def text(argument: str, value: Any) -> str:
    if not isinstance(value, str):
        raise _wrong(argument, value, "a string")
    return value


def bounds(dims: Any) -> dict[str, tuple[int, int]]:
    if not isinstance(dims, Mapping):
        raise _wrong("dims", dims, "a mapping from names of dimensions, {'batch': 4}")
    result = {}
    for name, value in dims.items():
        pair = tuple(value) if isinstance(value, (tuple, list)) else (value, value)
        if len(pair) != 2:
            raise _wrong(f"dims[{name!r}]", value, "a number, or the least and the greatest")
        low, high = (number(f"dims[{name!r}]", end, 64) for end in pair)
        result[text("a name in dims", name)] = (low, high)
    return result


def sizes(shapes: Any) -> dict[str, list[int]]:
    if not isinstance(shapes, Mapping):
        raise _wrong("shapes", shapes, "a mapping from names of inputs, {'x': (1, 3)}")
    result = {}
    for name, shape in shapes.items():
        if isinstance(shape, str) or not isinstance(shape, Iterable):
            raise _wrong(f"shapes[{name!r}]", shape, "a sequence of numbers")
        result[text("a name in shapes", name)] = [number(f"shapes[{name!r}]", dim, 64) for dim in shape]
    return result


def names(passes: Any) -> set[str]:
    if isinstance(passes, str):
        return {passes}
    if not isinstance(passes, Iterable):
        raise _wrong("disable_passes", passes, "names of passes")
    return {text("a name in disable_passes", name) for name in passes}


def files(kernels: Any) -> list[str]:
    if isinstance(kernels, (str, os.PathLike)):
        return [os.fspath(kernels)]
    if not isinstance(kernels, Iterable):
        raise _wrong("kernels", kernels, "paths of files that declare kernels")
    return [text("a path in kernels", os.fspath(file)) for file in kernels]


def compile_options(
    target: Any, precision: Any, fp32: Any, opt_level: Any, threads: Any, dims: Any, shapes: Any, disable_passes: Any, kernels: Any
) -> tuple:
    """In the order of _native.compile."""
    return (
        "native" if target is None else text("target", target),
        text("precision", precision),
        text("fp32", fp32),
        number("opt_level", opt_level),
        0 if threads is None else number("threads", threads),
        bounds(dims),
        sizes(shapes),
        names(disable_passes),
        files(kernels),
    )
