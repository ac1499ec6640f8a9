"""Python functions on tensors as graphs: capture, and jit, which compiles what it captures."""

from __future__ import annotations

import functools
import inspect
import linecache
import os
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

import numpy as np

from . import _native, _tape
from ._dtypes import NUMBER
from ._errors import Error
from ._graph import Graph, Value, _attributes
from ._tensor import Tensor

_PACKAGE = os.path.dirname(os.path.abspath(__file__))


def users_line() -> str:
    """The place in the user's own code: "file.py:12: if x > 0:"."""
    frame = sys._getframe()
    while frame is not None and os.path.abspath(frame.f_code.co_filename).startswith(_PACKAGE + os.sep):
        frame = frame.f_back
    if frame is None:
        return ""
    name, number = frame.f_code.co_filename, frame.f_lineno
    return f"{name}:{number}: {linecache.getline(name, number).strip()}"


def refuse_value() -> NoReturn:
    raise Error(
        "while a function is captured its tensors have no values yet, and this line asks for one", id="TSR-2076", node=users_line(),
        legal="operators on tensors; branches and loops that do not depend on their elements",
        hint="use tessera.where, or leave this function uncaptured",
    )


class Trace:
    """A function that is being captured: where its operators go."""

    records = False  # whether results remember how they came about, for backward()
    assigns = False  # whether tensors from outside may be given other elements

    def __init__(self, name: str, lifts: bool, outer: Trace | None = None) -> None:
        self.graph = Graph(name)
        self.outer = outer
        self._lifts = lifts  # whether tensors from outside become inputs; else constants
        self._known: dict[int, Value] = {}
        self._kept: list[Tensor] = []  # so that no id is used again
        self.lifted: list[Tensor] = []
        self.assigned: dict[int, tuple[Tensor, Value]] = {}  # what tensors from outside are at the end

    def input(self, name: str, dtype: np.dtype, shape: Sequence[int | str]) -> Tensor:
        return self.tensor(self.graph.input(name, dtype, shape))

    def tensor(self, value: Value) -> Tensor:
        tensor = Tensor.__new__(Tensor)
        tensor._set(None)
        tensor._traced = value
        return tensor

    def value(self, tensor: Tensor) -> Value:
        if tensor._traced is not None and tensor._traced.graph is self.graph:
            return tensor._traced
        known = self._known.get(id(tensor))
        if known is not None:
            return known
        if tensor._traced is not None and self.outer is None:
            raise Error(
                "a tensor of a function that was captured before", id="TSR-2060", node=users_line(), legal="tensors of this function",
            )
        if (self._lifts and tensor._place >= 0) or tensor._traced is not None:
            value = self.graph.input(f"lifted{len(self.lifted)}", tensor.dtype, tensor.shape)
            self.lifted.append(tensor)
        else:
            value = self.graph.constant(tensor._array)
        self._known[id(tensor)] = value
        self._kept.append(tensor)
        return value

    def assign(self, tensor: Tensor, value: Tensor) -> None:
        """From here on the tensor is this."""
        if not self.assigns or tensor._traced is not None:
            raise Error(
                "a tensor is given other elements while a function is captured", id="TSR-2076", node=users_line(),
                legal="functions that return what changes, or tessera.training_step",
            )
        self.value(tensor)
        new = self.value(value)
        self._known[id(tensor)] = new
        self.assigned[id(tensor)] = (tensor, new)

    def record(self, piece: Callable[[], _tape.Piece], operands: Sequence[Tensor], results: Sequence[Tensor]) -> None:
        """What results came from, where something wants a gradient; operands are what they are at this place."""
        if not (self.records and _tape.MODE.records and any(operand.requires_grad for operand in operands)):
            return
        step = _tape.Step(piece(), tuple(operands), tuple(map(self.value, operands)))
        for i, result in enumerate(results):
            if NUMBER[result.dtype] in _tape.REAL:
                result._step, result._place, result.requires_grad = step, i, True

    def run(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        before, _tape.MODE.trace = _tape.MODE.trace, self
        try:
            return function(*args, **kwargs)
        finally:
            _tape.MODE.trace = before


def traced_operator(trace: Trace | None, kind: str, tensors: Sequence[Tensor], name: str, attributes: dict[str, Any]) -> Any:
    if trace is None:
        raise Error(
            f"{kind} of a tensor of a function that was captured before", id="TSR-2060", node=users_line(), legal="tensors with values",
            hint="return it from the function",
        )
    results = trace.graph.op(kind, *map(trace.value, tensors), name=name, **attributes)
    made = tuple(map(trace.tensor, results if isinstance(results, tuple) else (results,)))
    if kind != "stop_gradient":
        types = [(NUMBER[tensor.dtype], tensor.shape) for tensor in tensors]
        trace.record(lambda: _tape.piece_of_operator(kind, types, _attributes(attributes)), tensors, made)
    return made if isinstance(results, tuple) else made[0]


# ---- trees of tensors ----


def flatten(tree: Any) -> tuple[list[Any], Any]:
    """The leaves of nested lists, tuples and dicts, and what puts them together again."""
    if isinstance(tree, dict):
        keys = sorted(tree, key=str)  # whatever order they were given in
        parts = [flatten(tree[key]) for key in keys]
        return [leaf for leaves, _ in parts for leaf in leaves], (dict, tuple(keys), tuple(shape for _, shape in parts))
    if isinstance(tree, (list, tuple)) and not hasattr(tree, "_fields"):
        parts = [flatten(part) for part in tree]
        return [leaf for leaves, _ in parts for leaf in leaves], (type(tree), None, tuple(shape for _, shape in parts))
    return [tree], None


def unflatten(shape: Any, leaves: list[Any]) -> Any:
    """Takes its leaves from the front of the list."""
    if shape is None:
        return leaves.pop(0)
    kind, keys, parts = shape
    made = [unflatten(part, leaves) for part in parts]
    return dict(zip(keys, made)) if kind is dict else kind(made)


def is_tensor(leaf: Any) -> bool:
    return isinstance(leaf, (Tensor, np.ndarray, np.generic, int, float)) and not isinstance(leaf, bool)


def as_tensor(leaf: Any) -> Tensor:
    """What stands for itself: numbers are f32, i64 or bool."""
    return leaf if isinstance(leaf, Tensor) else Tensor(leaf)


def arguments_reader(leaves: Iterable[Any]) -> Callable[[Any], Tensor]:
    """How these arguments of a compiled function are read: numbers are i64 or bool, and f64 where one of the others is, else f32."""
    wide = any(is_tensor(leaf) and getattr(leaf, "dtype", None) == np.float64 for leaf in leaves)

    def read(leaf: Any) -> Tensor:
        return Tensor(np.asarray(leaf)) if wide and type(leaf) is float else as_tensor(leaf)

    return read


# ---- capture ----


def input_names(function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> list[str]:
    """A name for each leaf of the arguments: the parameter's, with numbers where it has several."""
    try:
        parameters = [p for p in inspect.signature(function).parameters.values()]
    except (TypeError, ValueError):
        parameters = []
    names: list[str] = []
    for i, arg in enumerate(args):
        own = parameters[i].name if i < len(parameters) and parameters[i].kind is not inspect.Parameter.VAR_POSITIONAL else f"x{i}"
        count = len(flatten(arg)[0])
        names += [own] if count == 1 else [f"{own}.{k}" for k in range(count)]
    for key in kwargs:
        count = len(flatten(kwargs[key])[0])
        names += [key] if count == 1 else [f"{key}.{k}" for k in range(count)]
    return names


class Captured:
    """A function as a graph: its inputs are the leaves of the arguments, then what was lifted."""

    def __init__(
        self, function: Callable[..., Any], args: Any, kwargs: Any, lifts: bool, outer: Trace | None = None,
        read: Callable[[Any], Tensor] = as_tensor, trace: Trace | None = None,
    ) -> None:
        leaves, shape = flatten((list(args), kwargs))
        names = input_names(function, args, kwargs)
        self.trace = trace or Trace(getattr(function, "__name__", "captured").strip("<>"), lifts, outer)
        given = list(leaves)
        for i, (name, leaf) in enumerate(zip(names, leaves)):
            if is_tensor(leaf):
                example = read(leaf)
                given[i] = self.trace.input(name, example.dtype, example.shape)
        args, kwargs = unflatten(shape, given)
        answer = self.trace.run(function, args, kwargs)
        results, self.result_shape = flatten(answer)
        self.results = self.trace.run(lambda: [self.trace.value(as_tensor(result)) for result in results], (), {})
        taken = set(names)  # of parameters, which may be called y
        for i, value in enumerate(self.results):
            name = "y" if len(results) == 1 else f"y{i}"
            while name in taken:
                name += "_"
            self.trace.graph.output(name, value)
        self.graph = self.trace.graph
        self.lifted = self.trace.lifted


def capture(function: Callable[..., Any], *examples: Any, **keywords: Any) -> Graph:
    """The graph of a function of tensors, for arguments of the dtypes and shapes of the examples.

    The function runs once, on tensors without values. Its arguments (nested lists, tuples and dicts of arrays) become
    inputs under the names of its parameters, what it returns becomes outputs, tensors and arrays from elsewhere become
    constants. A branch that depends on the elements of a tensor raises an Error that names the line (TSR-2076).
    """
    return Captured(function, examples, keywords, lifts=False).graph


def jit(function: Callable[..., Any] | None = None, *, numerics: str = "default", threads: int = 1) -> Callable[..., Any]:
    """A function that is captured and compiled as one graph, once for each combination of dtypes and shapes.

    Tensors from outside (parameters) are read anew in each call. What is no tensor, array or number among the arguments
    is part of the combination. Results have gradients like those of operators.
    """
    if function is None:
        return functools.partial(jit, numerics=numerics, threads=threads)
    compiled: dict[Any, tuple[_tape.Piece, list[Tensor], Any]] = {}
    lock = threading.Lock()

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if _tape.MODE.trace is not None:
            return function(*args, **kwargs)
        leaves, shape = flatten((list(args), kwargs))
        read = arguments_reader(leaves)
        tensors = [read(leaf) for leaf in leaves if is_tensor(leaf)]
        types = tuple((NUMBER[leaf.dtype], leaf.shape) for leaf in tensors)
        key = (shape_key(shape), types, tuple(leaf for leaf in leaves if not is_tensor(leaf)))
        with lock:
            known = compiled.get(key)
            if known is None:
                found = Captured(function, args, kwargs, lifts=True, read=read)
                known = compiled[key] = (_tape.Piece(found.graph._native, numerics, threads), found.lifted, found.result_shape)
        piece, lifted, result_shape = known
        return unflatten(result_shape, _tape.apply(piece, [*tensors, *lifted]))

    return call


def shape_key(shape: Any) -> Any:
    if shape is None:
        return None
    kind, keys, parts = shape
    return kind.__name__, keys, tuple(map(shape_key, parts))


def add_to_trace(trace: Trace, native: _native.Graph, operands: Sequence[Tensor]) -> list[Tensor]:
    """What another graph computes of these tensors, in the function that is being captured."""
    results = _native.add_graph(trace.graph._native, native, [trace.value(tensor)._native for tensor in operands])
    made = [trace.tensor(Value(trace.graph, result)) for result in results]
    trace.record(lambda: _tape.Piece(native), operands, made)
    return made
