"""Graphs that a program builds, and the functions that are made of the compiler's list of operators."""

from __future__ import annotations

import inspect
import numbers
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from . import _native
from ._arrays import type_text
from ._dtypes import CARRIER, NUMBER, NUMPY
from ._errors import Error


class Value:
    """A value of a graph: an input, a constant, or a result of an operator.

    ``+ - * /`` and ``@`` are the operators add, sub, mul, div and matmul; numbers take the value's dtype.
    """

    __array_priority__ = 1000  # numpy leaves `array + value` to us
    __array_ufunc__ = None

    def __init__(self, graph: Graph, native: _native.GraphValue) -> None:
        self.graph = graph
        self._native = native

    def __repr__(self) -> str:
        return f"<{self.name}: {self._native.type}>"

    @property
    def name(self) -> str:
        """Unique in the graph."""
        return self._native.name

    @property
    def dtype(self) -> np.dtype:
        return NUMPY[self._native.dtype]

    @property
    def shape(self) -> tuple[int | str, ...]:
        """Numbers, and expressions of the graph's symbols as text."""
        return tuple(int(dim) if dim.lstrip("-").isdigit() else dim for dim in self._native.dims)

    def __neg__(self) -> Value:
        return self.graph.op("neg", self)

    def __add__(self, other: Operand) -> Value:
        return self.graph.op("add", self, other)

    def __radd__(self, other: Operand) -> Value:
        return self.graph.op("add", other, self)

    def __sub__(self, other: Operand) -> Value:
        return self.graph.op("sub", self, other)

    def __rsub__(self, other: Operand) -> Value:
        return self.graph.op("sub", other, self)

    def __mul__(self, other: Operand) -> Value:
        return self.graph.op("mul", self, other)

    def __rmul__(self, other: Operand) -> Value:
        return self.graph.op("mul", other, self)

    def __truediv__(self, other: Operand) -> Value:
        return self.graph.op("div", self, other)

    def __rtruediv__(self, other: Operand) -> Value:
        return self.graph.op("div", other, self)

    def __matmul__(self, other: Operand) -> Value:
        return self.graph.op("matmul", self, other)

    def __rmatmul__(self, other: Operand) -> Value:
        return self.graph.op("matmul", other, self)


Operand = Value | np.ndarray | numbers.Number


class Graph:
    """A model that is built operator by operator, without a file.

    ``tessera.compile(graph)`` compiles it. One thread at a time may add to a graph.
    """

    def __init__(self, name: str = "main") -> None:
        self._native = _native.Graph(name)

    @classmethod
    def from_text(cls, text: str, file: str = "<text>") -> Graph:
        """The graph of a text as :meth:`text` and ``tessera opt`` write it."""
        graph = cls.__new__(cls)
        graph._native = _native.Graph.from_text(text, file)
        return graph

    @classmethod
    def from_model(cls, model: Any, *, dims: Mapping[str, Any] = {}, shapes: Mapping[str, Sequence[Any]] = {}) -> Graph:
        """The graph of a model, which is given as to :func:`tessera.compile`: derivatives of it are graphs, too."""
        from ._options import dims_and_shapes
        from ._source import source_of

        graph = cls.__new__(cls)
        graph._native = _native.graph_of_model(*source_of(model), *dims_and_shapes(dims, shapes))
        return graph

    def __repr__(self) -> str:
        def types(values):
            return ", ".join(f"{value.name}: {value._native.type}" for value in values)

        return f"<tessera.graph.Graph {self.name} ({types(self.inputs)}) -> ({types(self.outputs)})>"

    @property
    def name(self) -> str:
        """The name that its modules get."""
        return self._native.name

    @property
    def inputs(self) -> tuple[Value, ...]:
        return tuple(Value(self, value) for value in self._native.inputs)

    @property
    def outputs(self) -> tuple[Value, ...]:
        return tuple(Value(self, value) for value in self._native.outputs)

    def symbol(self, name: str, lo: int, hi: int, step: int = 1) -> str:
        """Declares a named dimension that takes the values lo, lo + step, ..., up to hi; returns its name."""
        self._native.symbol(name, lo, hi, step)
        return name

    def bind_size(self, symbol: str, count: Value, bound: int | str, name: str = "") -> Value:
        """Declares a dimension that data decide, and gives it its value in a run: a count, kept within 0 and the bound.

        `count` is one i64 without dimensions, the bound a number or an expression of symbols. What is built from here
        on may have the dimension by its name: ``slice(x, starts=[0], sizes=["c"], steps=[1])``. Returns the value that
        it got. Memory is for the bound.
        """
        return Value(self, self._native.bind_size(symbol, self._operands([count])[0], str(bound), name))

    def input(self, name: str, dtype: Any, shape: Sequence[int | str]) -> Value:
        """An input. Dimensions are numbers, or expressions of symbols as text: "n", "(n * 2)"."""
        number = NUMBER.get(_dtype_of(dtype), 0)
        if isinstance(shape, str):
            shape = (shape,)
        type = f"{_native.dtype_name(number)}[{','.join(map(str, shape))}]"
        return Value(self, self._native.input(name, type))

    def constant(self, value: Any, dtype: Any = None, name: str = "") -> Value:
        """A copy of an array, a number or nested lists, converted where a dtype is given.

        Python's numbers without a dtype become f32 (or i64, or bool).
        """
        array, number = self._array(value, dtype, name)
        return Value(self, self._native.constant(array, number, name))

    def state(self, name: str, initial: Any = None, *, dtype: Any = None, shape: Sequence[int] = ()) -> Value:
        """A value that lives from call to call: what it is before the call.

        It begins as `initial`, an array, a number or nested lists, converted where a dtype is given, or else as zeros
        of that dtype and shape. It stays what it is unless :meth:`assign` says otherwise.
        """
        if initial is not None:
            array, number = self._array(initial, dtype, name)
            return Value(self, self._native.initialised_state(name, array, number))
        number = NUMBER.get(_dtype_of(np.float32 if dtype is None else dtype), 0)
        return Value(self, self._native.state(name, number, list(shape)))

    def assign(self, state: Value, value: Operand) -> None:
        """What a state is after the call. Reading the state gives what it was before it."""
        self._native.assign(state._native, self._operands([state, value])[1])

    def _array(self, value: Any, dtype: Any, name: str) -> tuple[np.ndarray, int]:
        """What the compiler's side takes for a constant: an array of bytes it knows, and the number of its dtype."""
        array = np.asarray(value)
        if dtype is not None:
            array = array.astype(_dtype_of(dtype))
        elif not isinstance(value, (np.ndarray, np.generic)) and array.dtype == np.float64:
            array = array.astype(np.float32)
        if array.dtype not in NUMBER:
            array = array.astype(array.dtype.newbyteorder("="), copy=False)
        if array.dtype not in NUMBER:
            raise Error(f"a constant of the type {type_text(array)}", id="TSR-2064", node=name, legal="a tensor of numbers")
        array = np.require(array, requirements="CA")
        number = NUMBER[array.dtype]
        carrier = CARRIER.get(array.dtype)
        return array if carrier is None else array.view(carrier), number

    def op(self, kind: str, /, *operands: Operand, name: str = "", **attributes: Any) -> Any:
        """An operator: its result, or a tuple of its results where there are several.

        ``name`` is what errors, `explain` and profiles call it. Operands that are no values become constants; numbers
        take the dtype of the first value among the operands. An attribute of None is left out.
        """
        results = self._native.ops(kind, self._operands(operands), _attributes(attributes), name)
        return self._values(results)

    def composite(self, kind: str, body: Graph, /, *operands: Operand, name: str = "", **attributes: Any) -> Any:
        """An operator of one's own: `body`, whose inputs the operands are."""
        results = self._native.composite(kind, body._native, self._operands(operands), _attributes(attributes), name)
        return self._values(results)

    def branch(self, condition: Operand, then: Graph, otherwise: Graph, /, *operands: Operand, name: str = "") -> Any:
        """What one of two bodies computes, by one bool: the operands are the inputs of both. Only one of them runs."""
        first, *others = self._operands([condition, *operands])
        return self._values(self._native.branch(first, then._native, otherwise._native, others, name))

    def loop(self, body: Graph, /, *operands: Operand, name: str = "", **attributes: Any) -> Any:
        """A body again and again: counted, as long as a condition holds, over slices, or several of these.

        Operands: [count, i64], [condition, bool], carried values, scanned operands, what is the same for all iterations.
        The body's inputs: the iteration's number (i64), carried values, a slice of each scanned operand (without
        dimension 0), the others; its outputs: [condition], the carried values, and what is stacked. Results: the carried
        values behind the last iteration, and the stacked ones with a new dimension 0.

        num_carried, num_scanned (int): how many of each; default 0
        counted, has_condition (bool): whether there is a count, a condition; default False
        max_trip ([int or text]): at most so many iterations
        scan_reversed, stack_reversed ([0 or 1]): for each scanned operand, stacked result: from the last on
        """
        return self._values(self._native.loop(body._native, self._operands(operands), _attributes(attributes), name))

    def output(self, name: str, value: Value) -> None:
        """The next output."""
        self._native.output(name, value._native)

    def text(self, elide_constants: bool = False) -> str:
        """The graph as text, with all constants, or with large ones by their hash."""
        return self._native.text(elide_constants)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the text to a file, which `tessera compile` and `tessera.compile` read."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.text())

    def hash(self) -> str:
        """Of what the graph computes, not of names: 16 hexadecimal digits, the same on every machine."""
        return self._native.hash()

    def _operands(self, operands: Sequence[Operand]) -> list[_native.GraphValue]:
        first = next((operand for operand in operands if isinstance(operand, Value)), None)
        natives = []
        for operand in operands:
            if not isinstance(operand, Value):
                is_number = isinstance(operand, (bool, int, float))
                operand = self.constant(operand, dtype=first.dtype if is_number and first is not None else None)
            natives.append(operand._native)
        return natives

    def _values(self, natives: list[_native.GraphValue]) -> Value | tuple[Value, ...]:
        values = tuple(Value(self, native) for native in natives)
        return values[0] if len(values) == 1 else values


def operators() -> list[Operator]:
    """What `Graph.op` knows, by name."""
    return list(_OPERATORS.values())


class Operator:
    """An operator of the compiler: name, sentence, operands, attributes, example."""

    def __init__(self, name, doc, min_operands, max_operands, attributes, is_composite, example) -> None:
        self.name: str = name
        self.doc: str = doc
        self.min_operands: int = min_operands
        self.max_operands: int = max_operands  # -1: any number
        self.attributes: tuple[Attribute, ...] = tuple(Attribute(*attribute) for attribute in attributes)
        self.is_composite: bool = is_composite
        self.example: str = example

    def __repr__(self) -> str:
        return f"<tessera.graph.Operator {self.name}{signature(self)}>"


class Attribute:
    """An attribute of an operator."""

    def __init__(self, name: str, kind: str, required: bool, doc: str) -> None:
        self.name = name
        self.kind = kind  # "bool", "int", "float", "string", "ints", "floats", "dtype", "layout", "sizes"
        self.required = required
        self.doc = doc


_OPERATORS = {row[0]: Operator(*row) for row in _native.operators()}


def signature(op: Operator) -> inspect.Signature:
    """Of the operator's function: operands by position, attributes by name."""
    Parameter = inspect.Parameter
    parameters = [Parameter(f"x{i}", Parameter.POSITIONAL_ONLY) for i in range(op.min_operands)]
    if op.max_operands < 0:
        parameters.append(Parameter("operands", Parameter.VAR_POSITIONAL))
    else:
        more = range(op.min_operands, op.max_operands)
        parameters += [Parameter(f"x{i}", Parameter.POSITIONAL_ONLY, default=None) for i in more]
    for attribute in op.attributes:
        default = Parameter.empty if attribute.required else None
        parameters.append(Parameter(attribute.name, Parameter.KEYWORD_ONLY, default=default))
    parameters.append(Parameter("name", Parameter.KEYWORD_ONLY, default=""))
    return inspect.Signature(parameters)


def docstring(op: Operator) -> str:
    lines = [op.doc]
    if op.attributes:
        lines.append("")
    for attribute in op.attributes:
        optional = "" if attribute.required else ", may be left out"
        lines.append(f"{attribute.name} ({attribute.kind}{optional}){': ' + attribute.doc if attribute.doc else ''}")
    return "\n".join(lines)


def functions() -> Mapping[str, Callable[..., Any]]:
    """A function for each operator that has operands."""
    return {op.name: _function(op) for op in _OPERATORS.values() if op.max_operands != 0}


def _function(op: Operator) -> Callable[..., Any]:
    own = signature(op)

    def function(*operands: Operand, name: str = "", **attributes: Any) -> Any:
        try:
            own.bind(*operands, name=name, **attributes)
        except TypeError as error:
            raise TypeError(f"{op.name}: {error}") from None
        given = list(operands)
        while given and given[-1] is None:
            given.pop()
        first = next((operand for operand in given if isinstance(operand, Value)), None)
        if first is None and any(hasattr(operand, "_step") for operand in given):
            from ._tensor import _operator  # tensors, whose operators run at once

            return _operator(op.name, *given, name=name, **attributes)
        if first is None:
            raise Error(
                f"{op.name} of operands without a graph", id="TSR-2060", node=name, legal="a value of a graph, or a tensor, among them",
                hint="make one of them by Graph.constant",
            )
        return first.graph.op(op.name, *given, name=name, **attributes)

    function.__name__ = function.__qualname__ = op.name
    function.__module__ = "tessera.graph"
    function.__doc__ = docstring(op)
    function.__signature__ = own
    return function


def _dtype_of(dtype: Any) -> np.dtype:
    try:
        return np.dtype(dtype)
    except TypeError:
        raise Error(f"there is no dtype {dtype!r}", id="TSR-4034", legal="numpy's dtypes, or those of ml_dtypes") from None


def _attributes(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _attribute(name, value) for name, value in attributes.items() if value is not None}


def _attribute(name: str, value: Any) -> Any:
    """Python's own bools, numbers, strings and lists of numbers; lists of sizes some of which are text as text."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, (list, tuple)):
        items = [item.item() if isinstance(item, np.generic) else item for item in value]
        return [str(item) for item in items] if any(isinstance(item, str) for item in items) else items
    try:
        return _native.dtype_name(NUMBER[np.dtype(value)])
    except (KeyError, TypeError):
        raise Error(
            f"attribute '{name}' is {value!r:.100}", id="TSR-4034", legal="a bool, a number, a string, a dtype, or a list of numbers",
        ) from None
