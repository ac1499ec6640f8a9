"""Branches and loops whose way a run decides, for functions on tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from . import _native, _tape
from ._arrays import type_text
from ._capture import Captured, add_to_trace, as_tensor, flatten, unflatten
from ._dtypes import NUMBER
from ._errors import Error
from ._tensor import Tensor


def _type(tensor: Tensor) -> str:
    return f"{_native.dtype_name(NUMBER[tensor.dtype])}[{','.join(map(str, tensor.shape))}]"


def _placed(native: _native.Graph, operands: list[Tensor]) -> list[Tensor]:
    trace = _tape.MODE.trace
    return _tape.apply(_tape.Piece(native), operands) if trace is None else add_to_trace(trace, native, operands)


def _like(tensor: Tensor) -> Tensor:
    """Something of its type for a body to be captured with."""
    return Tensor._of(np.broadcast_to(np.zeros((), tensor.dtype), tensor.shape)) if tensor._data is None else tensor


def cond(condition: Any, then: Callable[..., Any], otherwise: Callable[..., Any], *operands: Any) -> Any:
    """then(*operands) or otherwise(*operands), by one bool, as one node of the graph: only one of them runs.

    Both are captured, and give tensors of the same types.
    """
    leaves, shape = flatten(list(operands))
    tensors = [as_tensor(leaf) for leaf in leaves]
    examples = unflatten(shape, [_like(tensor) for tensor in tensors])
    bodies = [Captured(body, examples, {}, lifts=True, outer=_tape.MODE.trace) for body in (then, otherwise)]
    if bodies[0].result_shape != bodies[1].result_shape:
        raise Error(
            "the branches give results of different structures", id="TSR-2075",
            legal="the same lists, tuples and dicts",
        )
    # What they read from outside are operands of both.
    outside = list({id(tensor): tensor for body in bodies for tensor in body.lifted}.values())
    native = _native.Graph("cond")
    decision = native.input("condition", "bool[]")
    inputs = [native.input(f"x{i}", _type(tensor)) for i, tensor in enumerate([*tensors, *outside])]
    results = native.branch(decision, *[_with_inputs(body, tensors, outside) for body in bodies], inputs, "cond")
    for i, result in enumerate(results):
        native.output(f"y{i}", result)
    given = as_tensor(condition).astype(np.bool_).reshape()
    return unflatten(bodies[0].result_shape, _placed(native, [given, *tensors, *outside]))


def _with_inputs(body: Captured, tensors: list[Tensor], outside: list[Tensor]) -> _native.Graph:
    """The body with inputs for all that any body reads from outside."""
    graph = _native.Graph(body.graph.name)
    own = [graph.input(f"x{i}", _type(tensor)) for i, tensor in enumerate(tensors)]
    more = {id(tensor): graph.input(f"z{i}", _type(tensor)) for i, tensor in enumerate(outside)}
    results = _native.add_graph(graph, body.graph._native, [*own, *(more[id(tensor)] for tensor in body.lifted)])
    for i, result in enumerate(results):
        graph.output(f"y{i}", result)
    return graph


def scan(f: Callable[..., Any], carry: Any, rows: Any = None, length: int | None = None, reverse: bool = False) -> Any:
    """carry, y = f(carry, row) for each row of dimension 0, as one loop: the last carry, and all y stacked.

    Without rows f is called `length` times with None. The function is captured once; carry and y may be nested lists,
    tuples and dicts of tensors; the carry keeps its types.
    """
    carried, carry_shape = flatten(carry)
    carried = [as_tensor(leaf) for leaf in carried]
    scanned, rows_shape = flatten(rows) if rows is not None else ([], None)
    scanned = [as_tensor(leaf) for leaf in scanned]
    if not scanned and length is None:
        raise Error("a scan over nothing", id="TSR-2005", legal="rows, or length=")
    extents = {leaf.shape[0] if leaf.shape else None for leaf in scanned} | ({length} if length is not None else set())
    if len(extents) > 1 or None in extents:
        raise Error(
            f"a scan over {' and '.join(map(type_text, scanned))}" + (f" with length={length}" if length is not None else ""),
            id="TSR-2075", legal="rows, and a length, of one number of rows",
        )
    (count,) = extents
    slices = [Tensor._of(np.zeros(leaf.shape[1:], leaf.dtype)) for leaf in scanned]
    y_shape: list[Any] = []

    def step(*leaves: Tensor) -> list[Tensor]:
        own = list(leaves)
        state = unflatten(carry_shape, own)
        row = unflatten(rows_shape, own) if scanned else None
        state, y = f(state, row)
        new, new_shape = flatten(state)
        if new_shape != carry_shape:
            raise Error(
                "the carry that the function gives has another structure than the one it got", id="TSR-2075",
                legal="the same lists, tuples and dicts",
            )
        stacked, shape = flatten(y) if y is not None else ([], None)
        y_shape.append(shape)
        return [as_tensor(leaf) for leaf in (*new, *stacked)]

    examples = [*map(_like, carried), *slices]
    body = Captured(step, examples, {}, lifts=True, outer=_tape.MODE.trace)
    graph = _native.Graph("scan")
    graph.input("i", "i64[]")
    inputs = [graph.input(f"x{i}", _type(tensor)) for i, tensor in enumerate([*examples, *body.lifted])]
    results = _native.add_graph(graph, body.graph._native, inputs)
    for i, result in enumerate(results):
        graph.output(f"y{i}", result)
    stacked = len(results) - len(carried)
    native = _native.Graph("scan")
    operands = [*carried, *scanned, *body.lifted]
    attributes: dict[str, Any] = {"num_carried": len(carried), "num_scanned": len(scanned), "max_trip": [count]}
    if reverse:
        attributes["scan_reversed"], attributes["stack_reversed"] = [1] * len(scanned), [1] * stacked
    values = native.loop(graph, [native.input(f"x{i}", _type(tensor)) for i, tensor in enumerate(operands)], attributes, "scan")
    for i, value in enumerate(values):
        native.output(f"y{i}", value)
    found = _placed(native, operands)
    last, ys = found[:len(carried)], found[len(carried):]
    return unflatten(carry_shape, last), unflatten(y_shape[0], ys) if ys else None
