"""Operators that run at once, what is remembered of them, and derivatives of what is remembered.

An operator on tensors is a graph of one node (a :class:`Piece`), compiled once for its attributes and types in strict
numerics, whose bits do not depend on what stands around it. Results remember their piece and its operands: that is the
tape. For derivatives the tape becomes a graph, which the compiler differentiates; of that graph those nodes run, piece by
piece, whose values the tape does not have yet.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _native
from ._arrays import carrier, type_text
from ._dtypes import NUMBER, NUMPY
from ._errors import Error
from ._options import compile_options

if TYPE_CHECKING:
    from ._tensor import Tensor

REAL = {1, 2, 3, 4}  # numbers of f64, f32, f16, bf16


class _Mode(threading.local):
    records = True  # whether results remember how they came about
    trace: Any = None  # the _capture.Trace that operators go to; None: they run
    numerics = "strict"  # of operators that run by themselves


MODE = _Mode()


@contextlib.contextmanager
def no_grad() -> Iterator[None]:
    """Within it results remember nothing: for updates of weights and for inference."""
    before, MODE.records = MODE.records, False
    try:
        yield
    finally:
        MODE.records = before


@contextlib.contextmanager
def eager_numerics(mode: str) -> Iterator[None]:
    """Within it operators that run by themselves are compiled in these numerics: "strict", "default" or "deterministic".

    Strict ones, the rule, have the bits of a whole graph in strict numerics; products are several times faster in default.
    """
    if mode not in ("strict", "default", "deterministic"):
        raise Error(f"there are no numerics {mode!r}", id="TSR-4074", legal='"strict", "default", "deterministic"')
    before, MODE.numerics = MODE.numerics, mode
    try:
        yield
    finally:
        MODE.numerics = before


@contextlib.contextmanager
def recording() -> Iterator[None]:
    before, MODE.records = MODE.records, True
    try:
        yield
    finally:
        MODE.records = before


class Piece:
    """A graph of fixed types that runs as a whole."""

    _engines: dict[tuple[str, str], Any] = {}  # by hash and numerics
    _lock = threading.Lock()

    def __init__(self, native: _native.Graph, numerics: str | None = None, threads: int = 1) -> None:
        self.native = native
        self.hash = native.hash()
        self._numerics = numerics or MODE.numerics
        self._threads = threads
        self._engine: Any = None
        self._outputs = [(value.dtype, tuple(int(dim) for dim in value.dims)) for value in native.outputs]

    def run(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """REQUIRES: C-contiguous arrays of the inputs' types."""
        if self._engine is None:
            self._engine = self._compiled()
        results = [np.empty(shape, NUMPY[dtype]) for dtype, shape in self._outputs]
        self._engine.run(
            [carrier(array) for array in arrays], [NUMBER[array.dtype] for array in arrays],
            [carrier(array) for array in results], [dtype for dtype, _ in self._outputs],
        )
        return results

    def _compiled(self) -> Any:
        key = (self.hash, self._numerics)
        with Piece._lock:
            engine = Piece._engines.get(key)
            if engine is None:
                options = compile_options(None, "f32", "fma", self._numerics, 3, self._threads, {}, {}, (), (), ())
                engine = _native.compile(self.native, "", self.native.name, *options, _native.CancelFlag())
                Piece._engines[key] = engine
        return engine


_PIECES: dict[Any, Piece] = {}


def frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def piece_of_operator(kind: str, types: Sequence[tuple[int, tuple[int, ...]]], attributes: dict[str, Any]) -> Piece:
    key = (MODE.numerics, kind, tuple(types), tuple(sorted((name, frozen(value), type(value)) for name, value in attributes.items())))
    piece = _PIECES.get(key)
    if piece is None:
        graph = _native.Graph(kind)
        operands = [
            graph.input(f"x{i}", f"{_native.dtype_name(number)}[{','.join(map(str, shape))}]")
            for i, (number, shape) in enumerate(types)
        ]
        results = graph.ops(kind, operands, attributes, "")
        for i, result in enumerate(results):
            graph.output(f"y{i}", result)
        piece = _PIECES[key] = Piece(graph)
    return piece


class Step:
    """A piece that ran, and on what: what a result remembers. `number` grows with time."""

    __slots__ = ("arrays", "piece", "operands", "number")
    _count = 0

    def __init__(self, piece: Piece, operands: tuple[Tensor, ...], arrays: tuple[Any, ...] | None = None) -> None:
        self.piece = piece
        self.operands = operands
        # What copy_() does not change; values of the graph while a step is captured.
        self.arrays = tuple(operand._data for operand in operands) if arrays is None else arrays
        Step._count += 1
        self.number = Step._count


def apply(piece: Piece, operands: Sequence[Tensor]) -> list[Tensor]:
    """Runs the piece; the results remember it if an operand has a history or wants a gradient."""
    from ._tensor import Tensor

    results = [Tensor._of(array) for array in piece.run([operand._array for operand in operands])]
    if MODE.records and any(operand.requires_grad for operand in operands):
        step = Step(piece, tuple(operands))
        for i, result in enumerate(results):
            if NUMBER[result.dtype] in REAL:
                result._step, result._place, result.requires_grad = step, i, True
    return results


class Tape:
    """What `results` were computed from, down to leaves and to `stops`, as a graph."""

    def __init__(self, results: Sequence[Tensor], stops: Sequence[Tensor]) -> None:
        self._stopped = {id(tensor) for tensor in stops}
        steps: dict[int, Step] = {}
        leaves: dict[Any, tuple[Tensor, Any]] = {id(tensor): (tensor, tensor._data) for tensor in stops}
        read: dict[int, Any] = {}  # what steps have read, by the tensor's id
        waiting = [(tensor, tensor._data) for tensor in results]
        while waiting:
            tensor, array = waiting.pop()
            if id(tensor) in self._stopped or tensor._step is None:
                leaves.setdefault(self._key(tensor, array), (tensor, array))
            elif tensor._step.number not in steps:
                for operand, array in zip(tensor._step.operands, tensor._step.arrays):
                    if self._is_named(operand) and read.setdefault(id(operand), array) is not array:
                        raise Error(
                            "a tensor was given other elements between two operators that read it", id="TSR-2074",
                            legal="copy_() behind backward()",
                        )
                steps[tensor._step.number] = tensor._step
                waiting.extend(zip(tensor._step.operands, tensor._step.arrays))
        self.leaves = [tensor for tensor, _ in leaves.values()]
        # What the leaves were when they were read.
        self.arrays = [read.get(id(tensor), array) if self._is_named(tensor) else array for tensor, array in leaves.values()]
        self.steps = [steps[number] for number in sorted(steps)]
        self.results = list(results)
        self._leaf = {key: i for i, key in enumerate(leaves)}
        self._step = {step.number: i for i, step in enumerate(self.steps)}

    def _is_named(self, tensor: Tensor) -> bool:
        """Whether it is one leaf. What has no gradient is one for all elements that it had: running means change in between."""
        return tensor.requires_grad or id(tensor) in self._stopped or tensor._step is not None

    def _key(self, tensor: Tensor, array: Any) -> Any:
        return id(tensor) if self._is_named(tensor) else ("elements", id(array))

    def place(self, tensor: Tensor, array: Any = None) -> tuple[int, int]:
        """Where a value is: (-1, number of the leaf), or number of the step and of its result."""
        leaf = self._leaf.get(self._key(tensor, tensor._data if array is None else array))
        return (-1, leaf) if leaf is not None else (self._step[tensor._step.number], tensor._place)

    def places(self, step: Step) -> tuple[tuple[int, int], ...]:
        """Of its operands."""
        return tuple(map(self.place, step.operands, step.arrays))

    def as_read(self) -> list[Tensor]:
        """The leaves with the elements that they had when they were read."""
        return [leaf if array is leaf._data else type(leaf)._of(array) for leaf, array in zip(self.leaves, self.arrays)]

    def key(self) -> Any:
        types = tuple((NUMBER[leaf.dtype], leaf.shape) for leaf in self.leaves)
        steps = tuple((step.piece.hash, self.places(step)) for step in self.steps)
        return types, steps, tuple(map(self.place, self.results))

    def graph(self) -> tuple[_native.Graph, dict[tuple[int, int], str]]:
        """The graph, and the name of each value: of inputs (leaves) and outputs (all results of all steps)."""
        graph = _native.Graph("tape")
        values, names = {}, {}
        for i, leaf in enumerate(self.leaves):
            names[-1, i] = f"leaf{i}"
            type = f"{_native.dtype_name(NUMBER[leaf.dtype])}[{','.join(map(str, leaf.shape))}]"
            values[-1, i] = graph.input(names[-1, i], type)
        for s, step in enumerate(self.steps):
            results = _native.add_graph(graph, step.piece.native, [values[place] for place in self.places(step)])
            for r, result in enumerate(results):
                values[s, r] = result
                names[s, r] = f"step{s}.{r}"
        for place, name in names.items():
            if place[0] >= 0:
                graph.output(name, values[place])
        return graph, names


class Plan:
    """The pieces of a derived graph that compute `wanted`, outputs by name, from the values that the tape has."""

    def __init__(self, derived: _native.Graph, known: Sequence[str], given: Sequence[str], wanted: Sequence[str]) -> None:
        pieces, inputs, outputs = _native.pieces(derived)
        number = {value.name: n for value, n in zip(derived.inputs, inputs)}
        number.update({value.name: n for value, n in zip(derived.outputs, outputs)})
        self.known = [number.get(name) for name in known]
        self.given = [number[name] for name in given]
        self.wanted = [number[name] for name in wanted]
        have = {n for n in self.known if n is not None} | set(self.given)
        needed = {n for n in self.wanted if n not in have}
        chosen = []
        for graph, operands, results in reversed(pieces):
            if needed.isdisjoint(results):
                continue
            chosen.append((graph, operands, results))
            needed |= {n for n in operands if n not in have}
        self.pieces = [(Piece(graph), operands, results) for graph, operands, results in reversed(chosen)]

    def run(self, known: Sequence[Tensor], given: Sequence[Tensor]) -> list[Tensor]:
        values = {n: tensor for n, tensor in zip(self.known, known) if n is not None}
        values.update(zip(self.given, given))
        for piece, operands, results in self.pieces:
            for n, result in zip(results, apply(piece, [values[n] for n in operands])):
                values.setdefault(n, result)
        return [values[n] for n in self.wanted]


_PLANS: dict[Any, Plan] = {}
_MOST_PLANS = 256


def _plan(key: Any, make: Any) -> Plan:
    plan = _PLANS.get(key)
    if plan is None:
        while len(_PLANS) >= _MOST_PLANS:
            _PLANS.pop(next(iter(_PLANS)))
        plan = _PLANS[key] = make()
    return plan


def _values(tape: Tape) -> list[Tensor | None]:
    """All values of the tape, in the order of Tape.graph's names; None for those that nobody kept."""
    by_place = {tape.place(tensor): tensor for tensor in tape.results}
    for step in tape.steps:
        by_place.update(zip(tape.places(step), step.operands))
    results = [(s, r) for s, step in enumerate(tape.steps) for r in range(len(step.piece._outputs))]
    return [*tape.as_read(), *map(by_place.get, results)]


def _recorded(kind: str, results: Sequence[Tensor], wrt: Sequence[Tensor]) -> tuple[Tape, list[Tensor | None], tuple[bool, ...], Any]:
    """The tape, its values, which of these somebody keeps, and what tells the plan for it from others."""
    tape = Tape(results, wrt)
    values = _values(tape)
    kept = tuple(value is not None for value in values)
    return tape, values, kept, (kind, MODE.numerics, tape.key(), kept, tuple(map(tape.place, wrt)))


def vector_jacobian(results: Sequence[Tensor], cotangents: Sequence[Tensor], wrt: Sequence[Tensor], keeps: bool) -> list[Tensor]:
    """The gradients of <results, cotangents>; where `keeps`, they have a history of their own."""
    from ._tensor import Tensor

    tape, values, kept, key = _recorded("vjp", results, wrt)

    def make() -> Plan:
        graph, names = tape.graph()
        # <results, cotangents>, one after the other, is what is differentiated.
        total, given = None, []
        by_name = {value.name: value for value in (*graph.inputs, *graph.outputs)}
        for i, result in enumerate(results):
            value = by_name[names[tape.place(result)]]
            given.append(f"cotangent{i}")
            cotangent = graph.input(given[-1], value.type)
            product = graph.ops("mul", [value, cotangent], {}, "")[0]
            if result.ndim:
                product = graph.ops("reduce", [product], {"kind": "sum", "axes": list(range(result.ndim)), "keepdims": False}, "")[0]
            total = product if total is None else graph.ops("add", [total, product], {}, "")[0]
        graph.output("total", total)
        wanted = [names[tape.place(tensor)] for tensor in wrt]
        derived = _native.value_and_grad(graph, "total", wanted)
        known = [name for name, is_kept in zip(names.values(), kept) if is_kept]
        return Plan(derived, known, given, [f"{name}.gradient" for name in wanted])

    plan = _plan(key, make)
    with recording() if keeps else no_grad():
        found = plan.run([value for value in values if value is not None], cotangents)
        return [gradient if keeps else Tensor._of(gradient._array) for gradient in found]


def jacobian_vector(results: Sequence[Tensor], wrt: Sequence[Tensor], tangents: Sequence[Tensor], keeps: bool) -> list[Tensor]:
    """The derivatives of the results along the tangents."""
    from ._tensor import Tensor

    tape, values, kept, key = _recorded("jvp", results, wrt)

    def make() -> Plan:
        graph, names = tape.graph()
        by_name = {value.name: value for value in (*graph.inputs, *graph.outputs)}
        wanted = []
        for i, result in enumerate(results):
            graph.output(f"result{i}", by_name[names[tape.place(result)]])
            wanted.append(f"result{i}.tangent")
        along = [names[tape.place(tensor)] for tensor in wrt]
        derived = _native.jvp(graph, along)
        known = [name for name, is_kept in zip(names.values(), kept) if is_kept]
        return Plan(derived, known, [f"{name}.tangent" for name in along], wanted)

    plan = _plan(key, make)
    with recording() if keeps else no_grad():
        found = plan.run([value for value in values if value is not None], tangents)
        return [tangent if keeps else Tensor._of(tangent._array) for tangent in found]


def require_like(given: Any, like: Tensor, what: str) -> None:
    if given.dtype != like.dtype or given.shape != like.shape:
        raise Error(
            f"a {what} is {type_text(given)}", id="TSR-2071", legal=f"{type_text(like)}, as the value that it belongs to",
        )
