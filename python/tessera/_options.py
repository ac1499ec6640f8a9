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


def bounds(dims: Any) -> dict[str, tuple[int, int, int]]:
    """The least, the greatest and the step of each."""
    if not isinstance(dims, Mapping):
        raise _wrong("dims", dims, "a mapping from names of dimensions, {'batch': 4}")
    return {text("a name in dims", name): _bounds(f"dims[{name!r}]", value) for name, value in dims.items()}


def _bounds(argument: str, value: Any) -> tuple[int, int, int]:
    parts = tuple(value) if isinstance(value, (tuple, list)) else (value, value)
    if len(parts) not in (2, 3):
        raise _wrong(argument, value, "a number, the least and the greatest, or these and a step")
    low, high, step = (number(argument, part, 64) for part in (*parts, 1)[:3])
    if isinstance(value, (tuple, list)) and not 0 <= low <= high or step < 1:
        raise _wrong(argument, value, "0 <= least <= greatest, and 1 <= step")
    return low, high, step


def sizes(shapes: Any) -> tuple[dict[str, list[int]], dict[str, tuple[int, int, int]]]:
    """Shapes without a range, and the dimensions of those with one, by the names INPUT[AXIS]."""
    if not isinstance(shapes, Mapping):
        raise _wrong("shapes", shapes, "a mapping from names of inputs, {'x': (1, 3)}")
    fixed, ranges = {}, {}
    for name, shape in shapes.items():
        if isinstance(shape, str) or not isinstance(shape, Iterable):
            raise _wrong(f"shapes[{name!r}]", shape, "a sequence of numbers, or of ranges (least, greatest)")
        dims = list(shape)
        text("a name in shapes", name)
        if any(isinstance(dim, (tuple, list)) for dim in dims):
            ranges |= {f"{name}[{axis}]": _bounds(f"shapes[{name!r}]", dim) for axis, dim in enumerate(dims)}
        else:
            fixed[name] = [number(f"shapes[{name!r}]", dim, 64) for dim in dims]
    return fixed, ranges


def dims_and_shapes(dims: Any, shapes: Any) -> tuple[dict[str, tuple[int, int, int]], dict[str, list[int]]]:
    given = bounds(dims)
    fixed, ranges = sizes(shapes)
    return {**ranges, **given}, fixed


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


def placements(places: Any) -> list[str]:
    if isinstance(places, str):
        return [places]
    if not isinstance(places, Iterable):
        raise _wrong("places", places, 'texts "PATTERN=DEVICE"')
    return [text("a text in places", place) for place in places]


def amount(memory: Any) -> int:
    """Bytes, as a number or as a text such as "300M"."""
    legal = 'a number of bytes above 0, or a text such as "300M" or "1.5G"'
    if isinstance(memory, str):
        for place, suffix in enumerate(("", "k", "M", "G", "T")):
            if memory.endswith(suffix) and memory.removesuffix(suffix).replace(".", "", 1).isdecimal():
                memory = int(float(memory.removesuffix(suffix)) * 1000**place)
                break
        else:
            raise _wrong("max_memory", memory, legal)
    if number("max_memory", memory, 64) < 1:
        raise _wrong("max_memory", memory, legal)
    return number("max_memory", memory, 64)


def layers(precisions: Any) -> list[str]:
    """As lines of a file of precisions."""
    if not isinstance(precisions, Mapping):
        raise _wrong("layer_precisions", precisions, "a mapping from names of layers, {'Conv_0': 'f32'}")
    return [f"{text('a name in layer_precisions', name)} {text(f'layer_precisions[{name!r}]', precision)}"
            for name, precision in precisions.items()]


def compile_options(
    target: Any,
    precision: Any,
    fp32: Any,
    numerics: Any,
    opt_level: Any,
    threads: Any,
    dims: Any,
    shapes: Any,
    disable_passes: Any,
    kernels: Any,
    places: Any,
    max_memory: Any = None,
    layer_precisions: Any = {},
) -> tuple:
    """In the order of _native.compile."""
    return (
        "native" if target is None else text("target", target),
        text("precision", precision),
        text("fp32", fp32),
        text("numerics", numerics),
        number("opt_level", opt_level),
        0 if threads is None else number("threads", threads),
        *dims_and_shapes(dims, shapes),
        names(disable_passes),
        files(kernels),
        placements(places),
        0 if max_memory is None else amount(max_memory),
        layers(layer_precisions),
    )
