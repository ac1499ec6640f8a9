"""tessera.Tensor: arrays whose operators run at once, and remember what derivatives need."""

from __future__ import annotations

import numbers
import operator
from collections.abc import Iterator, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from . import _tape
from ._arrays import type_text
from ._dtypes import NUMBER, NUMPY
from ._errors import Error

_FLOATS = {NUMPY[number] for number in _tape.REAL}


def _dimension(axis: Any, rank: int) -> int:
    if not -rank <= axis < rank:
        raise IndexError(f"axis {axis} is out of bounds for {rank} dimensions")
    return int(axis) % rank


class Tensor:
    """An array of numbers with the compiler's operators, numpy's indexing and broadcasting, and gradients.

    ``Tensor(data, dtype=None, requires_grad=False)``: an array, a number or nested lists; numbers become f32, i64 or bool.
    Operators run at once, each compiled for its types when it first occurs. ``y.backward()`` adds to ``x.grad``
    of every tensor with ``requires_grad`` that y was computed from. Tensors do not change, but for :meth:`copy_`.
    """

    __slots__ = ("__weakref__", "_data", "_place", "_step", "_traced", "_weak", "grad", "requires_grad")
    __array_priority__ = 2000

    def __init__(self, data: Any, dtype: Any = None, requires_grad: bool = False) -> None:
        if isinstance(data, Tensor):
            data = data._array
        is_array = isinstance(data, (np.ndarray, np.generic))
        # Of Python's numbers those that the type does not have are refused; arrays are converted.
        array = np.asarray(data) if is_array or dtype is None else np.asarray(data, np.dtype(dtype))
        if dtype is not None:
            array = array.astype(np.dtype(dtype))
        elif not is_array and array.dtype == np.float64:
            array = array.astype(np.float32)
        if array.dtype not in NUMBER:
            array = array.astype(array.dtype.newbyteorder("="), copy=False)
        if array.dtype not in NUMBER:
            raise Error(f"a tensor of the type {type_text(array)}", id="TSR-2064", legal="numbers")
        self._set(np.array(array, order="C", copy=True))
        if requires_grad:
            self.requires_grad_()

    def _set(self, array: np.ndarray | None) -> None:
        self._data = array
        self._step: _tape.Step | None = None
        self._place = 0
        self._traced: Any = None  # a graph's value, while capturing
        self._weak = False  # a number's, which takes the type of what it stands beside
        self.grad: Tensor | None = None
        self.requires_grad = False

    @classmethod
    def _of(cls, array: np.ndarray) -> Tensor:
        tensor = cls.__new__(cls)
        tensor._set(array)
        return tensor

    @property
    def _array(self) -> np.ndarray:
        if self._data is None:
            from ._capture import refuse_value

            refuse_value()
        return self._data

    # ---- what it is ----

    @property
    def dtype(self) -> np.dtype:
        return self._data.dtype if self._data is not None else self._traced.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self._data.shape if self._data is not None else self._traced.shape

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def is_leaf(self) -> bool:
        """Whether it has no history."""
        return self._step is None

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a tensor without dimensions")
        return self.shape[0]

    def __repr__(self) -> str:
        if self._data is None:
            return f"Tensor(<{self._traced.name}>, {self._traced._native.type})"
        more = ", requires_grad=True" if self.requires_grad else ""
        return f"Tensor({np.array2string(self._data, separator=', ', prefix='Tensor(')}, dtype={self.dtype.name}{more})"

    # ---- its value ----

    def numpy(self) -> np.ndarray:
        """A copy of its elements."""
        return self._array.copy()

    def item(self) -> Any:
        """The one element, as Python's number."""
        return self._array.item()

    def tolist(self) -> Any:
        return self._array.tolist()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        array = self._array
        return array.astype(dtype) if dtype is not None and array.dtype != dtype else array.copy()

    def __bool__(self) -> bool:
        return bool(self._array)

    def __int__(self) -> int:
        return int(self._array)

    def __float__(self) -> float:
        return float(self._array)

    def __index__(self) -> int:
        return self._array.__index__()

    def __iter__(self) -> Iterator[Tensor]:
        return (self[i] for i in range(len(self)))

    def __contains__(self, value: Any) -> bool:
        return value in self._array

    __hash__ = object.__hash__

    # ---- gradients ----

    def requires_grad_(self, on: bool = True) -> Tensor:
        """From here on what is computed of it has gradients. Of a tensor without a history only."""
        if on and self.dtype not in _FLOATS:
            raise Error(f"gradients to {type_text(self)}", id="TSR-2074", legal="tensors of f64, f32, f16 or bf16")
        if not self.is_leaf:
            raise Error("the tensor has a history", id="TSR-2074", legal="tensors that nothing was computed into", hint="use detach()")
        self.requires_grad = on
        return self

    def detach(self) -> Tensor:
        """The same elements without a history."""
        if self._traced is not None or _tape.MODE.trace is not None:
            return _operator("stop_gradient", self)
        return Tensor._of(self._array)

    def copy_(self, value: Any) -> Tensor:
        """Gives it other elements, of its dtype and shape: what an optimizer does to a parameter."""
        trace = _tape.MODE.trace
        if trace is not None:
            own = value if isinstance(value, Tensor) else Tensor(value, self.dtype)
            _tape.require_like(own, self, "value")
            trace.assign(self, own)
            return self
        array = np.asarray(value._array if isinstance(value, Tensor) else value)
        _tape.require_like(array, self, "value")
        if not self.is_leaf:
            raise Error("the tensor has a history", id="TSR-2074", legal="tensors that nothing was computed into")
        # Another array: what was computed of the old one goes on to see the old one (Tape.as_read).
        self._data = np.array(array, order="C", copy=True)
        return self

    def backward(self, gradient: Any = None) -> None:
        """Adds to `grad` of each leaf with `requires_grad` the gradient of <self, gradient>; 1 for a single element."""
        if not self.requires_grad:
            raise Error(
                "nothing that the tensor was computed from wants a gradient", id="TSR-2074",
                legal="results of tensors with requires_grad=True, computed outside of no_grad()",
            )
        if self._traced is not None:
            from ._step import traced_backward

            return traced_backward(self, gradient)
        leaves = [leaf for leaf in _tape.Tape([self], []).leaves if leaf.requires_grad]
        for leaf, found in zip(leaves, gradient_of([self], leaves, [gradient])):
            leaf.grad = found if leaf.grad is None else Tensor._of(leaf.grad._array + found._array)

    # ---- operators ----

    def __neg__(self) -> Tensor:
        return _operator("neg", self)

    def __abs__(self) -> Tensor:
        return _operator("abs", self)

    def __invert__(self) -> Tensor:
        return _operator("logical_not" if self.dtype == np.bool_ else "bitwise_not", self)

    def __getitem__(self, index: Any) -> Tensor:
        from ._indexing import indexed

        return indexed(self, index)

    def astype(self, dtype: Any) -> Tensor:
        return self if self.dtype == np.dtype(dtype) else _operator("cast", self, to=np.dtype(dtype))

    def reshape(self, *shape: Any) -> Tensor:
        dims = [int(dim) for dim in (shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape)]
        if dims.count(-1) == 1:
            rest = int(np.prod([dim for dim in dims if dim != -1], dtype=np.int64))
            dims[dims.index(-1)] = self.size // rest if rest else 0
        return _operator("reshape", self, shape=dims)

    def flatten(self, start: int = 0) -> Tensor:
        return self.reshape(*self.shape[:start], -1)

    def transpose(self, *axes: Any) -> Tensor:
        """numpy's: the dimensions in this order, or turned round."""
        order = list(axes[0] if len(axes) == 1 and isinstance(axes[0], (tuple, list)) else axes) or list(range(self.ndim))[::-1]
        return _operator("transpose", self, perm=[_dimension(axis, self.ndim) for axis in order])

    @property
    def T(self) -> Tensor:
        return self.transpose()

    def broadcast_to(self, shape: Sequence[int]) -> Tensor:
        return _operator("broadcast", self, shape=list(shape))

    def squeeze(self, axis: int) -> Tensor:
        axis = _dimension(axis, self.ndim)
        return self.reshape(*self.shape[:axis], *self.shape[axis + 1:])

    def expand_dims(self, axis: int) -> Tensor:
        axis = _dimension(axis, self.ndim + 1)
        return self.reshape(*self.shape[:axis], 1, *self.shape[axis:])

    def _reduced(self, kind: str, axis: Any, keepdims: bool) -> Tensor:
        axes = range(self.ndim) if axis is None else [axis] if isinstance(axis, numbers.Integral) else axis
        axes = sorted(_dimension(a, self.ndim) for a in axes)
        if kind == "mean" and self.dtype in _FLOATS:
            return _operator("reduce_mean", self, axes=axes, keepdims=keepdims)
        if kind == "mean":
            return _operator("reduce_mean", self.astype(np.float64), axes=axes, keepdims=keepdims).astype(np.float32)
        own = self
        if kind in ("sum", "prod") and _is_whole(self.dtype):
            own = self.astype(np.uint64 if self.dtype in _UNSIGNED else np.int64)
        elif self.dtype == np.bool_:
            own = self.astype(np.uint8)
        result = _operator("reduce", own, kind=kind, axes=axes, keepdims=keepdims)
        return result.astype(np.bool_) if self.dtype == np.bool_ and kind in ("min", "max") else result

    def sum(self, axis: Any = None, keepdims: bool = False) -> Tensor:
        """Of integers and bools in 64 bits, as is the product."""
        return self._reduced("sum", axis, keepdims)

    def prod(self, axis: Any = None, keepdims: bool = False) -> Tensor:
        return self._reduced("prod", axis, keepdims)

    def max(self, axis: Any = None, keepdims: bool = False) -> Tensor:
        return self._reduced("max", axis, keepdims)

    def min(self, axis: Any = None, keepdims: bool = False) -> Tensor:
        return self._reduced("min", axis, keepdims)

    def mean(self, axis: Any = None, keepdims: bool = False) -> Tensor:
        """Of integers and bools f32, as quotients are."""
        return self._reduced("mean", axis, keepdims)

    def var(self, axis: Any = None, keepdims: bool = False) -> Tensor:
        """numpy's: the mean of squared distances from the mean."""
        apart = self - self.mean(axis, keepdims=True)
        return (apart * apart).mean(axis, keepdims)

    def std(self, axis: Any = None, keepdims: bool = False) -> Tensor:
        return self.var(axis, keepdims).sqrt()

    def argmax(self, axis: int = -1) -> Tensor:
        """The places of the first largest elements, i64."""
        axis = _dimension(axis, self.ndim)
        last = self.transpose(*[d for d in range(self.ndim) if d != axis], axis)
        rows = last.reshape(int(np.prod(last.shape[:-1], dtype=np.int64)), last.shape[-1], 1)
        return _operator("order", rows, count=1, descending=True).reshape(*last.shape[:-1])

    def softmax(self, axis: int = -1) -> Tensor:
        return _operator("softmax", self, axis=_dimension(axis, self.ndim))

    def log_softmax(self, axis: int = -1) -> Tensor:
        return _operator("log_softmax", self, axis=_dimension(axis, self.ndim))

    def __array_ufunc__(self, ufunc: Any, method: str, *operands: Any, **options: Any) -> Any:
        name = _UFUNCS.get(ufunc.__name__)
        if method != "__call__" or options or name is None:
            return NotImplemented
        return _COMPOSED[name](*operands) if name in _COMPOSED else _unary(name, *operands)

    def __divmod__(self, other: Any) -> Any:
        return (floor_divide(self, other), remainder(self, other)) if _is_operand(other) else NotImplemented

    def __rdivmod__(self, other: Any) -> Any:
        return (floor_divide(other, self), remainder(other, self)) if _is_operand(other) else NotImplemented


# ---- numpy's and PyTorch's arithmetic where the compiler's operators have C's ----


def _is_whole(dtype: np.dtype) -> bool:
    return dtype == np.bool_ or dtype in _SIGNED or dtype in _UNSIGNED


def _unary(kind: str, *operands: Any) -> Any:
    """An operator; functions of real numbers take integers as f32."""
    if kind in _REAL_FUNCTIONS and len(operands) == 1:
        (x,) = _tensors(kind, operands)
        return _operator(kind, x.astype(np.float32) if _is_whole(x.dtype) else x)
    return _operator(kind, *operands)


def true_divide(x: Any, y: Any) -> Tensor:
    """x / y; of integers f32."""
    x, y = _tensors("div", [float(v) if isinstance(v, numbers.Integral) and not isinstance(v, np.generic) else v for v in (x, y)])
    if _is_whole(x.dtype):
        x, y = x.astype(np.float32), y.astype(np.float32)
    return _operator("div", x, y)


def _signs_differ(x: Tensor, y: Tensor) -> Tensor:
    zero = np.zeros((), x.dtype)
    return _operator("ne", _operator("lt", x, zero), _operator("lt", y, zero))


def remainder(x: Any, y: Any) -> Tensor:
    """x - floor(x / y) y, with the sign of y; 0 for an integer y of 0."""
    x, y = _numbers("rem", x, y)
    rest = _operator("rem", x, y)
    if x.dtype in _UNSIGNED:
        return _operator("select", y == 0, np.zeros((), x.dtype), rest)
    if x.dtype in _SIGNED:
        rest = _operator("select", y == 0, np.zeros((), x.dtype), rest)
    moved = _operator("logical_and", rest != 0, _signs_differ(rest, y))
    return rest + _operator("select", moved, y, np.zeros((), x.dtype))


def floor_divide(x: Any, y: Any) -> Tensor:
    """The largest whole number that x / y is not below; 0 for an integer y of 0."""
    x, y = _numbers("div", x, y)
    if x.dtype in _UNSIGNED:
        return _operator("div", x, y)
    one, zero = np.ones((), x.dtype), np.zeros((), x.dtype)
    rest = _operator("rem", x, y)
    moved = _operator("logical_and", rest != 0, _signs_differ(rest, y))
    if x.dtype in _SIGNED:
        moved = _operator("logical_and", moved, y != 0)
        return _operator("div", x, y) - _operator("select", moved, one, zero)
    # As numpy has it: x - rest is a multiple of y, whose quotient is whole but for rounding.
    quotient = _operator("div", x - rest, y) - _operator("select", moved, one, zero)
    below = quotient.floor()
    whole = below + _operator("select", quotient - below > 0.5, one, zero)
    return _operator("select", y == 0, _operator("div", x, y), whole)


def power(x: Any, y: Any) -> Tensor:
    """x to the power y; integers wrap."""
    if isinstance(y, numbers.Integral) and y < 0 and isinstance(x, (Tensor, np.ndarray)) and _is_whole(np.dtype(x.dtype)):
        raise ValueError("integers to negative integer powers are not allowed")
    return _operator("pow", *_numbers("pow", x, y))


def _numbers(kind: str, x: Any, y: Any) -> list[Tensor]:
    """Of one type, bools as integers."""
    x, y = _tensors(kind, [x, y])
    return [x.astype(np.int8), y.astype(np.int8)] if x.dtype == np.bool_ else [x, y]


def _of_bools(kind: str, logical: str) -> Any:
    def apply(x: Any, y: Any) -> Tensor:
        x, y = _tensors(kind, [x, y])
        return _operator(logical if x.dtype == np.bool_ else kind, x, y)

    return apply


def _comparison(kind: str) -> Any:
    """Numbers that an integer type does not have are larger, or smaller, than all that it has."""

    def compare(x: Any, y: Any) -> Tensor:
        for number, other, place in ((x, y, 0), (y, x, 1)):
            dtype = np.dtype(other.dtype) if isinstance(other, (Tensor, np.ndarray, np.generic)) else np.dtype(np.bool_)
            if isinstance(number, numbers.Integral) and not isinstance(number, np.generic) and _is_whole(dtype):
                least, most = _bounds(dtype)
                if not least <= number <= most:
                    answer = _COMPARED[kind](*((number, 0) if place == 0 else (0, number)))
                    return _operator("broadcast", np.asarray(answer), shape=list(other.shape))
        x, y = _tensors(kind, [x, y])
        if x.dtype == np.bool_ and kind not in ("eq", "ne"):
            x, y = x.astype(np.uint8), y.astype(np.uint8)
        return _operator(kind, x, y)

    return compare


def _bounds(dtype: np.dtype) -> tuple[int, int]:
    if dtype == np.bool_:
        return 0, 1
    info = ml_dtypes.iinfo(dtype)
    return int(info.min), int(info.max)


_UNSIGNED = {np.dtype(kind) for kind in (np.uint64, np.uint32, np.uint16, np.uint8, ml_dtypes.uint4, ml_dtypes.uint2)}
_SIGNED = {np.dtype(kind) for kind in (np.int64, np.int32, np.int16, np.int8, ml_dtypes.int4, ml_dtypes.int2)}
_COMPARED = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
}
_COMPOSED = {
    "add": _of_bools("add", "logical_or"), "mul": _of_bools("mul", "logical_and"), "max": _of_bools("max", "logical_or"),
    "min": _of_bools("min", "logical_and"), "div": true_divide, "rem": remainder, "floor_divide": floor_divide, "pow": power,
    **{kind: _comparison(kind) for kind in _COMPARED},
}


def _binary(kind: str) -> tuple[Any, Any]:
    apply = _COMPOSED.get(kind) or (lambda *operands: _operator(kind, *operands))

    def forward(self: Tensor, other: Any) -> Any:
        return apply(self, other) if _is_operand(other) else NotImplemented

    def backward(self: Tensor, other: Any) -> Any:
        return apply(other, self) if _is_operand(other) else NotImplemented

    return forward, backward


def _is_operand(value: Any) -> bool:
    return isinstance(value, (Tensor, np.ndarray, np.generic, numbers.Number))


for _name, _kind in {
    "add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "matmul": "matmul", "pow": "pow", "mod": "rem",
    "floordiv": "floor_divide", "and": "and", "or": "or", "xor": "xor",
}.items():
    _forward, _backward = _binary(_kind)
    setattr(Tensor, f"__{_name}__", _forward)
    setattr(Tensor, f"__r{_name}__", _backward)
for _kind in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(Tensor, f"__{_kind}__", _binary(_kind)[0])
# Operators of one operand as methods: x.exp().
for _name in (
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "erf", "exp", "floor", "gelu", "log", "relu",
    "round", "sigmoid", "sign", "silu", "sin", "sinh", "softplus", "sqrt", "tan", "tanh",
):
    setattr(Tensor, _name, (lambda kind: lambda self: _unary(kind, self))(_name))

_UFUNCS = {
    "add": "add", "subtract": "sub", "multiply": "mul", "divide": "div", "matmul": "matmul", "power": "pow", "negative": "neg",
    "absolute": "abs", "exp": "exp", "log": "log", "sqrt": "sqrt", "tanh": "tanh", "sin": "sin", "cos": "cos", "tan": "tan",
    "arcsin": "asin", "arccos": "acos", "arctan": "atan", "sinh": "sinh", "cosh": "cosh", "floor": "floor", "ceil": "ceil",
    "maximum": "max", "minimum": "min", "sign": "sign", "equal": "eq", "not_equal": "ne", "less": "lt", "less_equal": "le",
    "greater": "gt", "greater_equal": "ge", "rint": "round", "remainder": "rem", "floor_divide": "floor_divide", "fmod": "fmod",
}
_COMPOSED["fmod"] = lambda x, y: _operator("rem", *_numbers("rem", x, y))
_REAL_FUNCTIONS = {
    "acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "erf", "exp", "gelu", "log", "sigmoid", "silu", "sin", "sinh",
    "softplus", "sqrt", "tan", "tanh",
}
# Operators with one element type for all operands: those of another one are converted.
_ONE_TYPE = {
    "add", "sub", "mul", "div", "rem", "pow", "min", "max", "matmul", "eq", "ne", "lt", "le", "gt", "ge", "and", "or", "xor",
}
_BITS = {"and": ("logical_and", "bitwise_and"), "or": ("logical_or", "bitwise_or"), "xor": ("logical_xor", "bitwise_xor")}


def _operator(kind: str, /, *operands: Any, name: str = "", **attributes: Any) -> Any:
    """An operator of the compiler on tensors, arrays and numbers: its result, or a tuple of its results."""
    from ._graph import Graph, _attributes

    tensors = _tensors(kind, operands)
    if kind in _BITS:
        kind = _BITS[kind][0 if tensors[0].dtype == np.bool_ else 1]
    trace = _tape.MODE.trace
    if trace is not None or any(tensor._traced is not None for tensor in tensors):
        from ._capture import traced_operator

        return traced_operator(trace, kind, tensors, name, attributes)
    if kind == "stop_gradient":
        return tensors[0].detach()
    types = [(NUMBER[tensor.dtype], tensor.shape) for tensor in tensors]
    piece = _tape.piece_of_operator(kind, types, _attributes(attributes))
    results = _tape.apply(piece, tensors)
    return results[0] if len(results) == 1 else tuple(results)


def _tensors(kind: str, operands: Sequence[Any]) -> list[Tensor]:
    """The operands as tensors. Numbers have the type of what they stand beside; all of them, or none, are numbers."""
    if kind == "select":
        return [*_tensors("", operands[:1]), *_tensors("add", operands[1:])]
    if any(type(operand) is int and not -(2**63) <= operand < 2**64 for operand in operands):
        operands = _as_floats(operands)
    given = [operand if isinstance(operand, (Tensor, np.ndarray, np.generic)) else _number(operand) for operand in operands]
    strong = [operand for operand in given if not getattr(operand, "_weak", False)]
    if not strong:
        return _alike([_constant(Tensor(tensor._data.item())) for tensor in given], kind)
    target = np.dtype(strong[0].dtype)
    if kind in _ONE_TYPE:
        target = _common_type({np.dtype(operand.dtype) for operand in strong})
        weak = {operand.dtype for operand in given if getattr(operand, "_weak", False)}
        if _is_whole(target) and np.dtype(np.float64) in weak:
            target = np.dtype(np.float32)
        elif target == np.bool_ and weak & {np.dtype(np.int64), np.dtype(np.uint64)}:
            target = np.dtype(np.int64)
    result = []
    for operand in given:
        tensor = operand if isinstance(operand, Tensor) else _constant(Tensor(operand))
        result.append(_converted(tensor, target) if tensor._weak or kind in _ONE_TYPE else tensor)
    return result


def _as_floats(operands: Sequence[Any]) -> list[Any]:
    """Integers of more than 64 bits are numbers beside real ones, as in numpy, and no integers beside others."""
    dtypes = [np.dtype(operand.dtype) for operand in operands if isinstance(operand, (Tensor, np.ndarray, np.generic))]
    if not any(dtype in _FLOATS for dtype in dtypes):
        huge = next(operand for operand in operands if type(operand) is int and not -(2**63) <= operand < 2**64)
        raise OverflowError(f"Python integer {huge} out of bounds for {dtypes[0] if dtypes else 'int64'}")
    return [float(operand) if type(operand) is int else operand for operand in operands]


def _number(value: Any) -> Tensor:
    """A number without a type of its own, in 64 bits."""
    if not isinstance(value, numbers.Number):
        return _constant(Tensor(value))
    tensor = _constant(Tensor(np.asarray(value)))
    tensor._weak = True
    return tensor


def _converted(tensor: Tensor, dtype: np.dtype) -> Tensor:
    if tensor._place < 0 and tensor._data is not None:
        if tensor.dtype == dtype and not tensor._weak:
            return tensor
        return _constant(Tensor(tensor._data.item() if tensor._weak else tensor._data, dtype))
    return tensor if tensor.dtype == dtype else _operator("cast", tensor, to=dtype)


def _alike(tensors: list[Tensor], kind: str) -> list[Tensor]:
    dtypes = {tensor.dtype for tensor in tensors}
    if kind not in _ONE_TYPE or len(dtypes) == 1:
        return tensors
    common = _common_type(dtypes)
    return [tensor if tensor.dtype == common else _operator("cast", tensor, to=common) for tensor in tensors]


def _constant(tensor: Tensor) -> Tensor:
    """Marks what is no tensor of the user's: a graph that is captured has its elements."""
    tensor._place = -1
    return tensor


def _common_type(dtypes: set[np.dtype]) -> np.dtype:
    """PyTorch's: a float wins over integers, whatever their sizes; otherwise as numpy."""
    floats = [dtype for dtype in dtypes if dtype in _FLOATS]
    if len(floats) == 1:
        return floats[0]
    if {dtype.name for dtype in floats} == {"float16", "bfloat16"}:
        return np.dtype(np.float32)
    return np.result_type(*(floats or dtypes))


def gradient_of(results: Sequence[Tensor], wrt: Sequence[Tensor], cotangents: Sequence[Any], keeps: bool = False) -> list[Tensor]:
    """The gradients of <results, cotangents> with respect to tensors that the results were computed from."""
    given = []
    for result, cotangent in zip(results, cotangents):
        if cotangent is None:
            if result.size != 1:
                raise Error(
                    f"the gradient of {type_text(result)} without a direction", id="TSR-2074",
                    legal="a tensor of one element, or backward(gradient)", hint="take its sum or its mean",
                )
            cotangent = np.ones(result.shape, result.dtype)
        tensor = cotangent if isinstance(cotangent, Tensor) else Tensor(np.asarray(cotangent, result.dtype))
        _tape.require_like(tensor, result, "direction")
        given.append(tensor)
    return _tape.vector_jacobian(results, given, wrt, keeps)


# ---- making tensors ----


def tensor(data: Any, dtype: Any = None, requires_grad: bool = False) -> Tensor:
    return Tensor(data, dtype, requires_grad)


def zeros(shape: Any, dtype: Any = np.float32, requires_grad: bool = False) -> Tensor:
    return Tensor(np.zeros(shape, np.dtype(dtype)), requires_grad=requires_grad)


def ones(shape: Any, dtype: Any = np.float32, requires_grad: bool = False) -> Tensor:
    return Tensor(np.ones(shape, np.dtype(dtype)), requires_grad=requires_grad)


def full(shape: Any, value: Any, dtype: Any = np.float32, requires_grad: bool = False) -> Tensor:
    return Tensor(np.full(shape, value, np.dtype(dtype)), requires_grad=requires_grad)


def arange(*bounds: int, dtype: Any = np.int64) -> Tensor:
    return Tensor(np.arange(*bounds, dtype=np.dtype(dtype)))


def where(condition: Any, x: Any, y: Any) -> Tensor:
    """Elements of x where the condition is true, else of y.

    What is not taken has no part in gradients, whatever it is, as far as it was computed element by element in the
    condition's shape.
    """
    return _operator("select", condition, x, y)


def concat(tensors: Sequence[Any], axis: int = 0) -> Tensor:
    given = [value if isinstance(value, Tensor) else Tensor(value) for value in tensors]
    return _operator("concat", *given, axis=axis % given[0].ndim)


def stack(tensors: Sequence[Any], axis: int = 0) -> Tensor:
    given = [value if isinstance(value, Tensor) else Tensor(value) for value in tensors]
    axis %= given[0].ndim + 1
    return concat([value.expand_dims(axis) for value in given], axis)
