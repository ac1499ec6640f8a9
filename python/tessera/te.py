"""Tensor expressions, and their schedules.

    from tessera import te

    A, B = te.placeholder((512, 512), name="A"), te.placeholder((512, 512), name="B")
    k = te.reduce_axis(512, "k")
    C = te.compute((512, 512), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    s = te.Schedule([A, B, C])
    j0, j1 = s.split("j", [None, 16])
    s.decompose_reduction("C", "i")
    s.reorder([j0, "k"])
    s.vectorize(j1)
    assert s.check() and s.run([a, b])[0] ...

A program is written as loops, which is text; `Schedule` takes such a text, too. docs/schedules.md has the language and
every primitive; refusals are `tessera.Error` with the loop in the way and what would be legal.
"""

from __future__ import annotations

import builtins
import inspect
import math
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Union

import numpy as np

from . import _native
from ._arrays import carrier, to_array
from ._dtypes import NUMBER, NUMPY
from ._errors import Error
from ._info import TensorInfo

__all__ = [
    "Check", "Expr", "Schedule", "Tensor", "Times", "cast", "compute", "erf", "exp", "fma", "log", "max", "max_reduce",
    "min", "min_reduce", "placeholder", "reduce_axis", "select", "sqrt", "sum", "tanh",
]


def _wrong(message: str, legal: str) -> Error:
    return Error(message, id="TSR-4035", legal=legal)


def _dtype_text(dtype: Any) -> str:
    """The loop language's name of a dtype: "f32"."""
    dtype = np.dtype(dtype)
    if dtype not in NUMBER:
        raise _wrong(f"there are no loops over {dtype}", ", ".join(str(kind) for kind in NUMBER))
    return _native.dtype_name(NUMBER[dtype])


class Expr:
    """A number computed from elements of tensors and from axes: Python's operators and the functions of this module.

    Operands have one dtype; Python's numbers take the other operand's.
    """

    def __init__(self, text: str, dtype: str, reads: Iterable[Tensor] = (), reduction: tuple | None = None) -> None:
        self.text = text
        self.dtype = dtype
        self._reads = tuple(reads)
        self._reduction = reduction  # (kind, axes) at the outermost place of a compute

    def __str__(self) -> str:
        return self.text

    def _binary(self, other: Any, form: str, swapped: bool = False, dtype: str = "") -> Expr:
        if not isinstance(other, (Expr, int, float, np.number)):
            return NotImplemented
        other = _expr(other, self.dtype)
        a, b = (other, self) if swapped else (self, other)
        common = _one_dtype(a, b)
        return Expr(form.format(a, b), dtype or common, _reads(a, b))

    def __add__(self, other: Any) -> Expr: return self._binary(other, "({} + {})")
    def __radd__(self, other: Any) -> Expr: return self._binary(other, "({} + {})", True)
    def __sub__(self, other: Any) -> Expr: return self._binary(other, "({} - {})")
    def __rsub__(self, other: Any) -> Expr: return self._binary(other, "({} - {})", True)
    def __mul__(self, other: Any) -> Expr: return self._binary(other, "({} * {})")
    def __rmul__(self, other: Any) -> Expr: return self._binary(other, "({} * {})", True)
    def __truediv__(self, other: Any) -> Expr: return self._binary(other, "({} / {})")
    def __rtruediv__(self, other: Any) -> Expr: return self._binary(other, "({} / {})", True)
    def __floordiv__(self, other: Any) -> Expr: return self._binary(other, "floordiv({}, {})")
    def __mod__(self, other: Any) -> Expr: return self._binary(other, "floormod({}, {})")
    def __and__(self, other: Any) -> Expr: return self._binary(other, "({} & {})")
    def __or__(self, other: Any) -> Expr: return self._binary(other, "({} | {})")
    def __xor__(self, other: Any) -> Expr: return self._binary(other, "({} ^ {})")
    def __lt__(self, other: Any) -> Expr: return self._binary(other, "({} < {})", dtype="bool")
    def __le__(self, other: Any) -> Expr: return self._binary(other, "({} <= {})", dtype="bool")
    def __gt__(self, other: Any) -> Expr: return self._binary(other, "({} > {})", dtype="bool")
    def __ge__(self, other: Any) -> Expr: return self._binary(other, "({} >= {})", dtype="bool")
    def __neg__(self) -> Expr: return Expr(f"neg({self})", self.dtype, _reads(self))

    def __bool__(self) -> bool:
        raise _wrong(f"'{self}' has no truth value before it is computed", "te.select")


def _reads(*operands: Expr) -> tuple[Tensor, ...]:
    """What the operands of an operation read; no reduction may be one of them."""
    if builtins.any(operand._reduction for operand in operands):
        raise _wrong("a reduction is part of an expression", "a compute of its own for the reduction")
    return tuple(tensor for operand in operands for tensor in operand._reads)


def _one_dtype(a: Expr, b: Expr) -> str:
    _reads(a, b)
    if a.dtype != b.dtype:
        raise _wrong(f"{a} is {a.dtype} and {b} is {b.dtype}", "operands of one dtype; te.cast converts")
    return a.dtype


def _whole(value: int, dtype: str) -> str:
    """The loop language writes the upper half of u64 as negative numbers."""
    return f"{value - 2**64 if dtype == 'u64' and 2**63 <= value < 2**64 else value}:{dtype}"


def _expr(value: Any, dtype: str) -> Expr:
    if isinstance(value, Expr):
        return value
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.number)):
        raise _wrong(f"{value!r:.60} is no number and no expression", "an Expr, an int, a float")
    if dtype == "i64" and isinstance(value, (int, np.integer)):
        return Expr(str(int(value)), dtype)
    if not dtype.startswith(("f", "bf")):
        if not math.isfinite(value) or value != int(value):
            raise _wrong(f"{value} is no {dtype}", "a whole number, or te.cast")
        return Expr(_whole(int(value), dtype), dtype)
    number = float(value)
    text = ("nan" if math.isnan(number) else ("-" if number < 0 else "") + "inf") if not math.isfinite(number) else repr(number)
    return Expr(f"{text}:{dtype}", dtype)


class Axis(Expr):
    """An index that a reduction runs over."""

    def __init__(self, extent: int, name: str) -> None:
        super().__init__(name, "i64")
        self.extent = extent
        self.name = name


@dataclass(eq=False)
class Tensor:
    """A tensor of a program: an input, or what a compute gives. Indexing it reads an element."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    _axes: tuple[str, ...] = ()
    _value: Expr | None = None

    def __getitem__(self, index: Any) -> Expr:
        index = index if isinstance(index, tuple) else (index,)
        if len(index) != len(self.shape):
            raise _wrong(f"{self.name} has {len(self.shape)} dimensions and got {len(index)} indices", "one for each")
        indices = [_expr(i, "i64") for i in index]
        for i in indices:
            if i.dtype != "i64":
                raise _wrong(f"the index {i} of {self.name} is {i.dtype}", "whole numbers: axes, te.cast to int64")
        return Expr(f"{self.name}[{', '.join(map(str, indices))}]", self.dtype, (self,) + _reads(*indices))


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def _checked(name: str, shape: Sequence[int]) -> tuple[int, ...]:
    if not _NAME.match(name):
        raise _wrong(f"{name!r} cannot be a name", "letters, digits and '_'")
    sizes = tuple(int(size) for size in shape)
    if any(size < 1 for size in sizes):
        raise _wrong(f"the shape {sizes} of {name}", "sizes of 1 and more")
    return sizes


def placeholder(shape: Sequence[int], dtype: Any = "float32", name: str = "x") -> Tensor:
    """An input."""
    return Tensor(name, _checked(name, shape), _dtype_text(dtype))


def reduce_axis(extent: int, name: str = "k") -> Axis:
    """An axis from 0 to ``extent`` that `sum`, `max_reduce` or `min_reduce` runs over."""
    _checked(name, (extent,))
    return Axis(int(extent), name)


def compute(shape: Sequence[int], value: Callable[..., Any], name: str = "y") -> Tensor:
    """What ``value`` says for each index: a function of one axis for each dimension, whose names the loops get."""
    sizes = _checked(name, shape)
    axes = tuple(inspect.signature(value).parameters)
    if len(axes) != len(sizes):
        raise _wrong(f"{name} has {len(sizes)} dimensions and a function of {len(axes)} axes", "one for each")
    result = value(*(Expr(axis, "i64") for axis in axes))
    if not isinstance(result, Expr):
        raise _wrong(f"{name} is computed as {result!r:.60}", "an expression of tensors' elements")
    _check_axes(name, axes, result)
    return Tensor(name, sizes, result.dtype, axes, result)


# A word of an expression's text that is an axis: no tensor, no function, no dtype, and no part of a number.
_AXIS = re.compile(r"(?<![A-Za-z0-9_:.])[A-Za-z_][A-Za-z0-9_]*(?![A-Za-z0-9_:(\[])")


def _check_axes(name: str, own: tuple[str, ...], value: Expr) -> None:
    """Refuses axes that are neither those of the compute nor those of its reduction, and two of one name."""
    axes = [*own, *(axis.name for axis in (value._reduction or ("", ()))[1])]
    for number, axis in enumerate(axes):
        if axis in axes[:number]:
            raise _wrong(f"two axes of {name} have the name {axis}", "names of their own")
    for axis in _AXIS.findall(value.text):
        if axis not in axes:
            legal = "an axis to reduce over: te.sum" if not axes else f"{', '.join(axes)}; axes to reduce over: te.sum"
            raise _wrong(f"{name} is computed with the axis {axis}, which is not one of its own", legal)


def _reduce(kind: str, value: Expr, axis: Axis | Sequence[Axis]) -> Expr:
    axes = (axis,) if isinstance(axis, Axis) else tuple(axis)
    if not axes or not all(isinstance(a, Axis) for a in axes) or value._reduction:
        raise _wrong("a reduction without axes, or of a reduction", "te.reduce_axis(..), and a compute for each reduction")
    if value.dtype == "bool" and kind != "sum":
        raise _wrong(f"{kind}_reduce of bool", "numbers; te.cast converts")
    return Expr(value.text, value.dtype, value._reads, (kind, axes))


def sum(value: Expr, axis: Axis | Sequence[Axis]) -> Expr:
    """The sum over one axis or several; the outermost operation of a compute."""
    return _reduce("sum", value, axis)


def max_reduce(value: Expr, axis: Axis | Sequence[Axis]) -> Expr:
    """The largest value over one axis or several."""
    return _reduce("max", value, axis)


def min_reduce(value: Expr, axis: Axis | Sequence[Axis]) -> Expr:
    """The smallest value over one axis or several."""
    return _reduce("min", value, axis)


def cast(value: Expr, dtype: Any) -> Expr:
    """``value`` converted."""
    name = _dtype_text(dtype)
    return Expr(f"cast:{name}({value})", name, _reads(value))


def select(condition: Expr, a: Any, b: Any) -> Expr:
    """``a`` where the condition holds, else ``b``; only the chosen one is read."""
    known = a if isinstance(a, Expr) else b
    if not isinstance(known, Expr):
        raise _wrong("select between two numbers", "one of them an expression, which has a dtype")
    a, b = _expr(a, known.dtype), _expr(b, known.dtype)
    if condition.dtype != "bool":
        raise _wrong(f"the condition {condition} is {condition.dtype}", "a comparison, which is bool")
    return Expr(f"select({condition}, {a}, {b})", _one_dtype(a, b), _reads(condition, a, b))


def _unary(name: str) -> Callable[[Expr], Expr]:
    def function(value: Expr) -> Expr:
        return Expr(f"{name}({value})", value.dtype, _reads(value))

    function.__name__ = name
    function.__doc__ = f"{name} of a value."
    return function


exp, log, sqrt, tanh, erf = (_unary(name) for name in ("exp", "log", "sqrt", "tanh", "erf"))


def max(a: Expr, b: Any) -> Expr:
    """The larger of two."""
    return a._binary(b, "max({}, {})")


def min(a: Expr, b: Any) -> Expr:
    """The smaller of two."""
    return a._binary(b, "min({}, {})")


def fma(a: Expr, b: Expr, c: Expr) -> Expr:
    """``a * b + c``, rounded once where the target has it."""
    _one_dtype(b, c)
    return Expr(f"fma({a}, {b}, {c})", _one_dtype(a, b), _reads(a, b, c))


_IDENTITY = {"sum": "0", "max": "-inf", "min": "inf"}


def lower(tensors: Sequence[Tensor], name: str = "main") -> str:
    """The plain loops of a program, as text: inputs first, then outputs, as they stand in ``tensors``."""
    params = list(tensors)
    inputs = [t for t in params if t._value is None]
    outputs = [t for t in params if t._value is not None]
    if not outputs or params != inputs + outputs:
        raise _wrong("a program of " + ", ".join(t.name for t in params), "its inputs, then what it computes")
    for number, tensor in enumerate(params):
        if tensor in params[:number]:
            raise _wrong(f"{tensor.name} stands twice among the program's tensors", "each tensor once")
    order: list[Tensor] = []

    def visit(tensor: Tensor) -> None:
        if tensor in order:
            return
        if tensor._value is None and tensor not in params:
            raise _wrong(f"{tensor.name} is read and not among the program's tensors", "every placeholder")
        for read in tensor._value._reads if tensor._value is not None else ():
            visit(read)
        order.append(tensor)

    for tensor in params:
        visit(tensor)
    names = [t.name for t in order]
    if len(set(names)) != len(names):
        raise _wrong(f"two tensors of {', '.join(names)} have one name", "names of their own: name=")

    def declared(tensor: Tensor) -> str:
        return f"{tensor.name}: {tensor.dtype}[{','.join(map(str, tensor.shape))}]"

    taken = set(names)
    lines = [f"kernel @{name}({', '.join(map(declared, inputs))}) -> ({', '.join(map(declared, outputs))}) {{"]
    lines += [f"  alloc {declared(t)} local" for t in order if t._value is not None and t not in outputs]
    for tensor in order:
        if tensor._value is not None:
            lines += _nest(tensor, taken)
    return "\n".join(lines + ["}", ""])


def _nest(tensor: Tensor, taken: set[str]) -> list[str]:
    value = tensor._value
    assert value is not None
    kind, axes = value._reduction or ("", ())
    renamed = {}
    for axis in (*tensor._axes, *(a.name for a in axes)):
        fresh, number = axis, 1
        while fresh in taken:
            fresh, number = f"{axis}_{number}", number + 1
        taken.add(fresh)
        renamed[axis] = fresh
    text = _AXIS.sub(lambda word: renamed[word[0]], value.text)
    lines, depth = [], 1

    def line(code: str) -> None:
        lines.append("  " * depth + code)

    for axis, size in zip(tensor._axes, tensor.shape):
        line(f"for {renamed[axis]} in 0..{size} {{")
        depth += 1
    place = f"{tensor.name}[{', '.join(renamed[axis] for axis in tensor._axes)}]"
    if not kind:
        line(f"{place} = {text}")
    else:
        line(f"{place} = {_first(kind, tensor.dtype)}")
        for axis in axes:
            line(f"for {renamed[axis.name]} in 0..{axis.extent} {{")
            depth += 1
        line(f"{place} = ({place} + {text})" if kind == "sum" else f"{place} = {kind}({place}, {text})")
    while depth > 1:
        depth -= 1
        line("}")
    return lines


def _first(kind: str, dtype: str) -> str:
    """What a reduction starts from."""
    if kind == "sum" or dtype.startswith(("f", "bf")):
        return f"{_IDENTITY[kind]}:{dtype}"
    bits, signed = int(re.sub(r"\D", "", dtype)), dtype.startswith("i")
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    return _whole(low if kind == "max" else high, dtype)


@dataclass(frozen=True)
class Check:
    """One comparison of a scheduled program with the original."""

    output: str
    how: str
    text: str
    agrees: bool


class Checks(list):
    """Comparisons; true when all agree."""

    def __bool__(self) -> bool:
        return builtins.all(check.agrees for check in self)


@dataclass(frozen=True)
class Times:
    """Medians in milliseconds, and rates in GFLOP/s: of the scheduled program, and of the machine's multiply-adds in f32."""

    original_ms: float
    scheduled_ms: float
    gflops: float
    peak_gflops: float


Factor = Union[int, None]


class Schedule:
    """A loop program that is rewritten step by step. Steps are checked: a refused one is a `tessera.Error`, and changes
    nothing. What a step makes is answered by name.

    ``program`` is the text of a loop program, a path of one (ends in ".loop"), or tensors: inputs, then outputs. One
    thread at a time.
    """

    def __init__(
        self, program: str | os.PathLike[str] | Sequence[Tensor], *, target: str | None = None, threads: int = 1,
        kernel: str = "", intrinsics: str | os.PathLike[str] | None = None,
    ) -> None:
        if isinstance(program, os.PathLike) or (isinstance(program, str) and program.endswith(".loop")):
            with open(program, encoding="utf-8") as file:
                program = file.read()
        elif not isinstance(program, str):
            program = lower(program)
        declared = ""
        if intrinsics is not None:
            with open(intrinsics, encoding="utf-8") as file:
                declared = file.read()
        self._native = _native.LoopSchedule(
            program, target or "native", threads, kernel, declared, os.fspath(intrinsics) if intrinsics else "",
        )

    # ---- steps
    def apply(self, steps: str) -> list[str]:
        """Lines of a schedule, all or none of them; names of what the last one makes."""
        return self._native.apply(steps)[0]

    def _step(self, primitive: str, *arguments: Any) -> list[str]:
        return self.apply(f"{primitive}({', '.join(map(_argument, arguments))})")

    def split(self, loop: str, factors: Sequence[Factor]) -> list[str]:
        """One loop becomes several, outermost first; None is as many as needed."""
        return self._step("split", loop, list(factors))

    def fuse(self, *loops: str) -> str:
        return self._step("fuse", list(loops))[0]

    def reorder(self, loops: Sequence[str]) -> None:
        self._step("reorder", list(loops))

    def tile(self, i: str, j: str, i_factor: int, j_factor: int) -> list[str]:
        return self._step("tile", i, j, i_factor, j_factor)

    def pad(self, loop: str, multiple: int) -> None:
        self._step("pad", loop, multiple)

    def vectorize(self, loop: str) -> None:
        self._step("vectorize", loop)

    def unroll(self, loop: str) -> None:
        self._step("unroll", loop)

    def parallel(self, loop: str) -> None:
        self._step("parallel", loop)

    def fission(self, loop: str, statement: str) -> None:
        self._step("fission", loop, statement)

    def decompose_reduction(self, block: str, loop: str) -> None:
        self._step("decompose_reduction", block, loop)

    def rfactor(self, block: str, loop: str) -> str:
        return self._step("rfactor", block, loop)[0]

    def predicate(self, statement: str) -> None:
        self._step("predicate", statement)

    def compute_at(self, stage: str, loop: str) -> None:
        self._step("compute_at", stage, loop)

    def reverse_compute_at(self, stage: str, loop: str) -> None:
        self._step("reverse_compute_at", stage, loop)

    def compute_inline(self, stage: str) -> None:
        self._step("compute_inline", stage)

    def cache_read(self, buffer: str, scope: str = "local", reader: str | None = None) -> str:
        arguments = f"{_argument(buffer)}, {_argument(scope)}" + (f", reader={_argument(reader)}" if reader else "")
        return self.apply(f"cache_read({arguments})")[0]

    def cache_write(self, stage: str, scope: str = "local") -> str:
        return self._step("cache_write", stage, scope)[0]

    def set_scope(self, buffer: str, scope: str) -> None:
        self._step("set_scope", buffer, scope)

    def store_at(self, buffer: str, loop: str) -> None:
        self._step("store_at", buffer, loop)

    def transform_layout(self, buffer: str, mapping: Callable[..., Sequence[Any]]) -> None:
        """``mapping`` is a function from the buffer's index to the new one: ``lambda k, j: (j // 16, k, j % 16)``."""
        axes = tuple(inspect.signature(mapping).parameters)
        index = ", ".join(str(_expr(i, "i64")) for i in mapping(*(Expr(axis, "i64") for axis in axes)))
        self.apply(f"transform_layout({_argument(buffer)}, ({', '.join(axes)}) -> [{index}])")

    def intrinsic(self, name: str) -> list[int]:
        """Lanes and depth of a tensor intrinsic, which `tensorize` without a name then means."""
        return self._native.apply(f"intrinsic({_quoted(name)})")[1]

    def blockize(self, loop: str) -> None:
        self._step("blockize", loop)

    def tensorize(self, loop: str, intrinsic: str | None = None) -> None:
        self.apply(f"tensorize({_argument(loop)}{', ' + _quoted(intrinsic) if intrinsic else ''})")

    def virtual_thread(self, loop: str) -> None:
        self._step("virtual_thread", loop)

    def software_pipeline(self, loop: str, statements: int) -> None:
        self._step("software_pipeline", loop, statements)

    def annotate(self, statement: str, key: str, value: int) -> None:
        self._step("annotate", statement, key, value)

    def bind(self, loop: str, axis: str) -> None:
        """`axis` is "blockIdx.x", "threadIdx.y", ...: iterations are independent and may run there; a CPU runs them in order."""
        self._step("bind", loop, axis)

    # ---- what became of it
    @property
    def loops(self) -> list[str]:
        """Names of the loops, in the order of the text."""
        return self._native.loops

    @property
    def buffers(self) -> list[str]:
        """Names of parameters and allocations."""
        return self._native.buffers

    @property
    def trace(self) -> str:
        """The steps so far, as the text of a schedule."""
        return self.emit("trace")

    def emit(self, level: str = "loop") -> str:
        """"loop", "trace", "llvm", "asm", "mca" or "cache", as ``tessera schedule --emit``."""
        return self._native.emit(level)

    def __str__(self) -> str:
        return self.emit("loop")

    def check(self) -> Checks:
        """The program beside the original on random inputs, in the interpreter and compiled. True when all agree."""
        return Checks(Check(*check) for check in self._native.check())

    def time(self, seconds: float = 1, *, original: bool = True) -> Times:
        """Medians of runs in about ``seconds``, with the original in turn unless it is left out."""
        return Times(*self._native.time(float(seconds), original))

    @property
    def inputs(self) -> list[TensorInfo]:
        return [TensorInfo(name, NUMPY[dtype], shape) for name, dtype, shape in self._native.inputs]

    @property
    def outputs(self) -> list[TensorInfo]:
        return [TensorInfo(name, NUMPY[dtype], shape) for name, dtype, shape in self._native.outputs]

    def run(self, inputs: Sequence[Any]) -> list[np.ndarray]:
        """Runs the compiled program on arrays, in the order of its parameters; new arrays with its outputs."""
        infos = self.inputs
        if len(inputs) != len(infos):
            raise _wrong(f"{len(inputs)} inputs", f"{len(infos)}: " + ", ".join(map(str, infos)))
        arrays = [to_array(value, info) for value, info in zip(inputs, infos)]
        results = [np.empty(info.shape, info.dtype) for info in self.outputs]
        self._native.run(
            [carrier(a) for a in arrays], [NUMBER[a.dtype] for a in arrays],
            [carrier(r) for r in results], [NUMBER[r.dtype] for r in results],
        )
        return results


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?(#[0-9]+)?\Z")


def _argument(value: Any) -> str:
    """As the language writes it: a name, a number, '_' for None, a list."""
    if value is None:
        return "_"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_argument, value))}]"
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return str(int(value))
    if isinstance(value, str) and _WORD.match(value):
        return value
    raise _wrong(f"{value!r:.60} as an argument of a step", "the name of a loop, buffer or statement, or a whole number")
