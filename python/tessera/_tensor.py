"""tessera.Tensor: arrays whose operators run at once, and remember what derivatives need."""

from __future__ import annotations

import numbers
from collections.abc import Iterator, Sequence
from typing import Any

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

    __slots__ = ("__weakref__", "_data", "_place", "_step", "_traced", "grad", "requires_grad")
    __array_priority__ = 2000

    def __init__(self, data: Any, dtype: Any = None, requires_grad: bool = False) -> None:
        if isinstance(data, Tensor):
            data = data._array
        array = np.asarray(data)
        if dtype is not None:
            array = array.astype(np.dtype(dtype))
        elif not isinstance(data, (np.ndarray, np.generic)) and array.dtype == np.float64:
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
        if self._traced is not None:
            return _operator("stop_gradient", self)
        return Tensor._of(self._array)

    def copy_(self, value: Any) -> Tensor:
        """Gives it other elements, of its dtype and shape: what an optimizer does to a parameter."""
        array = np.asarray(value._array if isinstance(value, Tensor) else value)
        _tape.require_like(array, self, "value")
        if not self.is_leaf:
            raise Error("the tensor has a history", id="TSR-2074", legal="tensors that nothing was computed into")
        if _tape.MODE.trace is not None:
            raise Error(
                "a tensor is given other elements while a function is captured", id="TSR-2076", legal="functions that return what changes",
            )
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
        if kind == "mean":
            return _operator("reduce_mean", self, axes=axes, keepdims=keepdims)
        return _operator("reduce", self, kind=kind, axes=axes, keepdims=keepdims)

    def sum(self, axis: Any = None, keepdims: bool = False) -> Tensor:
        return self._reduced("sum", axis, keepdims)

    def prod(self, axis: Any = None, keepdims: bool = False) -> Tensor:
        return self._reduced("prod", axis, keepdims)

    def max(self, axis: Any = None, keepdims: bool = False) -> Tensor:
        return self._reduced("max", axis, keepdims)

    def min(self, axis: Any = None, keepdims: bool = False) -> Tensor:
        return self._reduced("min", axis, keepdims)

    def mean(self, axis: Any = None, keepdims: bool = False) -> Tensor:
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
        return _operator(name, *operands)


def _binary(kind: str) -> tuple[Any, Any]:
    def forward(self: Tensor, other: Any) -> Any:
        return _operator(kind, self, other) if _is_operand(other) else NotImplemented

    def backward(self: Tensor, other: Any) -> Any:
        return _operator(kind, other, self) if _is_operand(other) else NotImplemented

    return forward, backward


def _is_operand(value: Any) -> bool:
    return isinstance(value, (Tensor, np.ndarray, np.generic, numbers.Number))


for _name, _kind in {
    "add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "matmul": "matmul", "pow": "pow", "mod": "rem",
    "and": "and", "or": "or", "xor": "xor",
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
    setattr(Tensor, _name, (lambda kind: lambda self: _operator(kind, self))(_name))

_UFUNCS = {
    "add": "add", "subtract": "sub", "multiply": "mul", "divide": "div", "matmul": "matmul", "power": "pow", "negative": "neg",
    "absolute": "abs", "exp": "exp", "log": "log", "sqrt": "sqrt", "tanh": "tanh", "sin": "sin", "cos": "cos", "tan": "tan",
    "arcsin": "asin", "arccos": "acos", "arctan": "atan", "sinh": "sinh", "cosh": "cosh", "floor": "floor", "ceil": "ceil",
    "maximum": "max", "minimum": "min", "sign": "sign", "equal": "eq", "not_equal": "ne", "less": "lt", "less_equal": "le",
    "greater": "gt", "greater_equal": "ge", "rint": "round",
}
# Operators with one element type for all operands: those of another one are converted.
_ONE_TYPE = {"add", "sub", "mul", "div", "rem", "pow", "min", "max", "matmul", "eq", "ne", "lt", "le", "gt", "ge"}
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
    given = [operand for operand in operands]
    first = next((operand for operand in given if isinstance(operand, (Tensor, np.ndarray, np.generic))), None)
    result = []
    for operand in given:
        if isinstance(operand, Tensor):
            result.append(operand)
        elif isinstance(operand, numbers.Number) and not isinstance(operand, np.generic) and first is not None:
            dtype = first.dtype
            if isinstance(operand, float) and dtype.kind in "biu" and kind in _ONE_TYPE:
                dtype = np.dtype(np.float32)
            result.append(_constant(Tensor(operand, dtype)))
        else:
            result.append(_constant(Tensor(operand)))
    if kind in _ONE_TYPE:
        dtypes = {tensor.dtype for tensor in result}
        if len(dtypes) > 1:
            common = _common_type(dtypes)
            result = [
                _constant(Tensor(tensor._array, common)) if tensor._place < 0 and tensor.dtype != common else tensor.astype(common)
                for tensor in result
            ]
    return result


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
    """Elements of x where the condition is true, else of y; what is not taken has no part in gradients."""
    x, y = _tensors("add", [x, y])
    return _operator("select", condition, x, y)


def concat(tensors: Sequence[Any], axis: int = 0) -> Tensor:
    given = [value if isinstance(value, Tensor) else Tensor(value) for value in tensors]
    return _operator("concat", *given, axis=axis % given[0].ndim)


def stack(tensors: Sequence[Any], axis: int = 0) -> Tensor:
    given = [value if isinstance(value, Tensor) else Tensor(value) for value in tensors]
    axis %= given[0].ndim + 1
    return concat([value.expand_dims(axis) for value in given], axis)
