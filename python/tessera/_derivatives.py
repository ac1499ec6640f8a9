"""Derivatives of graphs, which are graphs, and of Python functions on tensors, which are functions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from . import _native, _tape
from ._arrays import type_text
from ._capture import Captured, Trace, add_to_trace, as_tensor, flatten, is_tensor, unflatten
from ._errors import Error
from ._graph import Graph
from ._tensor import _FLOATS, Tensor, gradient_of


def _graph(native: _native.Graph) -> Graph:
    graph = Graph.__new__(Graph)
    graph._native = native
    return graph


def _names(wrt: Any) -> list[str]:
    if wrt is None:
        return []
    return [wrt] if isinstance(wrt, str) else [name if isinstance(name, str) else name.name for name in wrt]


def grad(f: Any, argnums: int | Sequence[int] = 0, *, output: str = "", wrt: Any = None) -> Any:
    """The gradient of a function of tensors that gives one number, or of an output of a graph.

    Of a function: a function of the same arguments that gives the gradients with respect to argument ``argnums`` (nested
    lists, tuples and dicts of tensors keep their form). Of a :class:`tessera.graph.Graph`: the graph of the gradients of
    the sum of the elements of ``output`` (the first one) with respect to the inputs named in ``wrt`` (all of real
    numbers), as outputs ``NAME.gradient``.
    """
    if isinstance(f, Graph):
        return _graph(_native.grad(f._native, output, _names(wrt)))
    both = value_and_grad(f, argnums)
    return functools.wraps(f)(lambda *args, **kwargs: both(*args, **kwargs)[1])


def value_and_grad(f: Any, argnums: int | Sequence[int] = 0, *, has_aux: bool = False, output: str = "", wrt: Any = None) -> Any:
    """As :func:`grad`, with the value: (value, gradients), or a graph's own outputs before the gradients.

    With ``has_aux`` the function gives (number, anything), which is returned as the value.
    """
    if isinstance(f, Graph):
        return _graph(_native.value_and_grad(f._native, output, _names(wrt)))

    @functools.wraps(f)
    def call(*args: Any, **kwargs: Any) -> Any:
        several = not isinstance(argnums, int)
        places = [place % len(args) for place in (argnums if several else [argnums])]
        chosen, shape = flatten([args[place] for place in places])
        _require_real(chosen)
        result: list[Any] = []

        def with_leaves(*leaves: Tensor) -> Tensor:
            own = list(args)
            for place, arg in zip(places, unflatten(shape, list(leaves))):
                own[place] = arg
            answer = f(*own, **kwargs)
            value, aux = answer if has_aux else (answer, None)
            value = as_tensor(value)
            if value.size != 1 or value.dtype not in _FLOATS:
                raise Error(
                    f"the gradient of {type_text(value)}", id="TSR-2074", legal="a function that gives one real number",
                    hint="take a sum or a mean",
                )
            result.append(aux)
            return value

        if _tape.MODE.trace is not None:
            value, gradients = _traced_gradients(with_leaves, chosen)
        else:
            value, gradients = _tape_gradients(with_leaves, chosen)
        found = unflatten(shape, gradients)
        return (value, result[0]) if has_aux else value, tuple(found) if several else found[0]

    return call


def _require_real(leaves: Sequence[Any]) -> None:
    for leaf in leaves:
        if not is_tensor(leaf) or as_tensor(leaf).dtype not in _FLOATS:
            what = type_text(as_tensor(leaf)) if is_tensor(leaf) else type(leaf).__name__
            raise Error(f"the gradient with respect to {what}", id="TSR-2074", legal="tensors of f64, f32, f16 or bf16")


def _leaf(value: Any) -> Tensor:
    """A tensor of its own to differentiate by, whose history is that of the value."""
    tensor = as_tensor(value)
    if tensor.requires_grad and _tape.MODE.records:
        return tensor.reshape(*tensor.shape)
    own = Tensor._of(tensor._array)
    own.requires_grad = True
    return own


def _tape_gradients(f: Callable[..., Tensor], chosen: Sequence[Any]) -> tuple[Tensor, list[Tensor]]:
    keeps = _tape.MODE.records
    with _tape.recording():
        leaves = [_leaf(value) for value in chosen] if keeps else [_fresh(value) for value in chosen]
        value = f(*leaves)
    return value, gradient_of([value], leaves, [None], keeps and _has_history(chosen, value, leaves))


def _fresh(value: Any) -> Tensor:
    own = Tensor._of(as_tensor(value)._array)
    own.requires_grad = True
    return own


def _has_history(chosen: Sequence[Any], value: Tensor, leaves: Sequence[Tensor]) -> bool:
    """Whether somebody else may differentiate the gradients."""
    if any(isinstance(tensor, Tensor) and tensor.requires_grad for tensor in chosen):
        return True
    own = {id(leaf) for leaf in leaves}
    return any(leaf.requires_grad and id(leaf) not in own for leaf in _tape.Tape([value], leaves).leaves)


def _traced_gradients(f: Callable[..., Tensor], chosen: Sequence[Any]) -> tuple[Tensor, list[Tensor]]:
    trace = _tape.MODE.trace
    inner = Trace("function", True, trace)
    inner.assigns = trace.assigns
    found = Captured(f, list(chosen), {}, lifts=True, outer=trace, trace=inner)
    names = [value.name for value in found.graph.inputs[:len(chosen)]]
    changed = list(inner.assigned.values())  # running means, if the function is part of a training step
    for i, (_, value) in enumerate(changed):
        found.graph.output(f"changed{i}", value)
    derived = _native.value_and_grad(found.graph._native, "", names)
    results = add_to_trace(trace, derived, [*map(as_tensor, chosen), *found.lifted])
    for (tensor, _), value in zip(changed, results[1:]):
        trace.assign(tensor, value)
    return results[0], results[1 + len(changed):]


def vjp(f: Any, *primals: Any, wrt: Any = None) -> Any:
    """(value, function of cotangents that gives gradients) of a function at these arguments, each a tensor.

    Of a graph: the graph with further inputs ``NAME.cotangent``, one for each output, and outputs ``NAME.gradient``.
    """
    if isinstance(f, Graph):
        return _graph(_native.vjp(f._native, _names(wrt)))
    _require_real(primals)
    with _tape.recording():
        leaves = [_leaf(value) for value in primals]
        answer = f(*leaves)
    results, shape = flatten(answer)
    results = [as_tensor(result) for result in results]

    def pull(cotangents: Any) -> tuple[Tensor, ...]:
        given = flatten(cotangents)[0]
        if len(given) != len(results):
            raise Error(f"{len(given)} cotangents", id="TSR-2074", legal=f"one for each of {len(results)} results")
        keeps = any(_has_history([*primals, *given], result, leaves) for result in results)
        return tuple(gradient_of(results, leaves, given, keeps))

    return unflatten(shape, list(results)), pull


def jvp(f: Any, primals: Sequence[Any] = (), tangents: Sequence[Any] = (), *, wrt: Any = None) -> Any:
    """(value, derivative along the tangents) of a function at these arguments, each a tensor.

    Of a graph: the graph with further inputs ``NAME.tangent``, one for each of ``wrt``, and outputs ``NAME.tangent``.
    """
    if isinstance(f, Graph):
        return _graph(_native.jvp(f._native, _names(wrt)))
    _require_real(primals)
    if len(primals) != len(tangents):
        raise Error(f"{len(tangents)} tangents", id="TSR-2074", legal=f"one for each of {len(primals)} arguments")
    with _tape.recording():
        leaves = [_leaf(value) for value in primals]
        answer = f(*leaves)
    results, shape = flatten(answer)
    results = [as_tensor(result) for result in results]
    given = []
    for leaf, tangent in zip(leaves, tangents):
        given.append(tangent if isinstance(tangent, Tensor) else Tensor(tangent, leaf.dtype))
        _tape.require_like(given[-1], leaf, "tangent")
    keeps = any(_has_history([*primals, *given], result, leaves) for result in results)
    found = _tape.jacobian_vector(results, leaves, given, keeps)
    return unflatten(shape, list(results)), unflatten(shape, found)


def _by_capture(f: Callable[..., Any], make: Callable[[_native.Graph, list[str]], _native.Graph], argnums: Any) -> Callable[..., Any]:
    @functools.wraps(f)
    def call(*args: Any) -> Any:
        places = [argnums] if isinstance(argnums, int) else list(argnums)
        found = Captured(f, args, {}, lifts=True, outer=_tape.MODE.trace)
        names = [found.graph.inputs[place % len(args)].name for place in places]
        derived = make(found.graph._native, names)
        operands = [*map(as_tensor, args), *found.lifted]
        if _tape.MODE.trace is not None:
            results = add_to_trace(_tape.MODE.trace, derived, operands)
        else:
            results = _tape.apply(_tape.Piece(derived), operands)
        return results[0] if len(results) == 1 else tuple(results)

    return call


def jacobian(f: Any, argnums: int | Sequence[int] = 0, *, output: str = "", wrt: Any = None, mode: str = "auto") -> Any:
    """All derivatives of an output: dimensions of the output, then those of the input. ``mode``: reverse, forward, auto."""
    if mode not in ("auto", "reverse", "forward"):
        raise Error(f"there is no mode {mode!r}", id="TSR-2074", legal='"auto", "reverse", "forward"')
    if isinstance(f, Graph):
        return _graph(_native.jacobian(f._native, output, _names(wrt), mode))
    return _by_capture(f, lambda graph, names: _native.jacobian(graph, "", names, mode), argnums)


def hessian(f: Any, argnums: int | Sequence[int] = 0, *, output: str = "", wrt: Any = None) -> Any:
    """All second derivatives of a number: those of each pair of arguments, one behind the other."""
    if isinstance(f, Graph):
        return _graph(_native.hessian(f._native, output, _names(wrt)))
    return _by_capture(f, lambda graph, names: _native.hessian(graph, "", names), argnums)


def hvp(graph: Graph, *, output: str = "", wrt: Any = None) -> Graph:
    """A graph's gradients, then the products of its second derivatives with further inputs ``NAME.tangent``."""
    return _graph(_native.hvp(graph._native, output, _names(wrt)))
