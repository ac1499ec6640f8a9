"""numpy's indexing of tensors: numbers, slices, new axes, ..., one array of numbers, and masks of known places."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np

from . import _tape
from ._errors import Error
from ._tensor import Tensor, _operator


def indexed(tensor: Tensor, index: Any) -> Tensor:
    given = list(index) if isinstance(index, tuple) else [index]
    used = sum(1 for part in given if part is not None and part is not Ellipsis)
    if used > tensor.ndim:
        raise IndexError(f"{used} indices for a tensor of {tensor.ndim} dimensions")
    if Ellipsis not in [part for part in given if not isinstance(part, (Tensor, np.ndarray))]:
        given.append(Ellipsis)
    place = next(i for i, part in enumerate(given) if part is Ellipsis)
    given[place:place + 1] = [slice(None)] * (tensor.ndim - used)

    starts, sizes, steps, turned, shape = [], [], [], [], []
    arrays: list[tuple[int, Tensor]] = []  # dimension of what the slice leaves, and the places along it
    axis = 0
    for part in given:
        if part is None:
            shape.append(1)
            continue
        extent = tensor.shape[axis]
        if isinstance(part, (Tensor, np.ndarray, list)):
            places = part if isinstance(part, Tensor) else Tensor(np.asarray(part))
            if places.dtype == np.bool_:
                if places.shape != (extent,):
                    raise IndexError(f"a mask of the shape {tuple(places.shape)} for dimension {axis} of {extent} elements")
                places = Tensor(np.flatnonzero(places._array).astype(np.int64))
            elif not np.issubdtype(places.dtype, np.integer):
                raise IndexError(f"an index of the type {places.dtype}")
            elif _tape.MODE.trace is None and places._array.size and not (
                -extent <= places._array.min() and places._array.max() < extent
            ):
                raise IndexError(f"an index is out of bounds for dimension {axis} of {extent} elements")
            arrays.append((len(shape), places))
            start, stop, step = 0, extent, 1
            shape.append(extent)
        elif isinstance(part, slice):
            start, stop, step = part.indices(extent)
            if step < 0:
                # The same elements from the other end.
                count = len(range(start, stop, step))
                start, step = start + (count - 1) * step if count else 0, -step
                stop = start + (count - 1) * step + 1 if count else start
                turned.append(axis)
            shape.append(len(range(start, stop, step)))
        elif isinstance(part, (bool, np.bool_)):
            raise IndexError("an index that is a single bool")
        elif isinstance(part, numbers.Integral):
            if not -extent <= part < extent:
                raise IndexError(f"index {part} is out of bounds for dimension {axis} of {extent} elements")
            start, step = int(part) % extent, 1
            stop = start + 1
        else:
            raise Error(
                f"an index of the type {type(part).__name__}", id="TSR-2075", legal="numbers, slices, None, ... and arrays of numbers",
            )
        starts.append(start)
        sizes.append(len(range(start, stop, step)))
        steps.append(step)
        axis += 1
    result = tensor
    if sizes != list(tensor.shape) or any(step != 1 for step in steps):
        result = _operator("slice", result, starts=starts, sizes=sizes, steps=steps)
    for dimension in turned:
        backwards = Tensor(np.arange(result.shape[dimension])[::-1].copy())
        result = _operator("gather", result, backwards, axis=dimension)
    if list(result.shape) != shape:
        result = result.reshape(*shape)
    if arrays and any(isinstance(part, numbers.Integral) for part in given):
        raise Error(
            "an index of an array beside numbers", id="TSR-2075", legal="an array of numbers beside slices",
            hint="index twice",
        )
    if len(arrays) > 1:
        raise Error(
            "an index of several arrays", id="TSR-2075", legal="one array of numbers beside numbers and slices",
            hint="use gather_elements, or index twice",
        )
    for dimension, places in arrays:
        result = _operator("gather", result, places.astype(np.int64), axis=dimension)
    return result
