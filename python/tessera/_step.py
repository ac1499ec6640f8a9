"""Training steps written as Python: a function that changes tensors is compiled as one graph, whose states they are.

    @tessera.training_step
    def step(x, classes):
        optimizer.zero_grad()
        loss = nn.CrossEntropyLoss()(model(x), classes)
        loss.backward()
        optimizer.step()
        return loss

The function runs once, on tensors without values. Tensors from outside that it reads or changes become states of the
graph: parameters, moments, running means, the numbers of steps. `backward()` differentiates what stands before it; what
`copy_()` gives to a tensor is a new beginning, as in PyTorch, so that no gradient goes through an update.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from . import _native, _tape
from ._arrays import type_text
from ._capture import Captured, Trace, add_to_trace, arguments_reader, flatten, is_tensor, shape_key, unflatten, users_line
from ._dtypes import NUMBER
from ._errors import Error
from ._graph import Graph, Value
from ._model import Model
from ._tensor import Tensor


class StepTrace(Trace):
    """Of a function whose tensors from outside are states, and whose operators are remembered for backward()."""

    records = assigns = True

    def __init__(self, name: str) -> None:
        super().__init__(name, lifts=True)
        self.states: list[tuple[str, Tensor, Value]] = []
        self._state: dict[int, Value] = {}

    def value(self, tensor: Tensor) -> Value:
        if tensor._traced is None and tensor._place >= 0 and id(tensor) not in self._known:
            name = f"state{len(self.states)}"
            state = self.graph.state(name, tensor._array)
            self.states.append((name, tensor, state))
            self._state[id(tensor)] = self._known[id(tensor)] = state
            self._kept.append(tensor)
        return super().value(tensor)

    def finish(self) -> None:
        for tensor, value in self.assigned.values():
            self.graph.assign(self._state[id(tensor)], value)


def traced_backward(result: Tensor, gradient: Any) -> None:
    """Tensor.backward() while a step is captured: the tape becomes a graph, whose derivative is added to the step."""
    trace = _tape.MODE.trace
    if result.size != 1 and gradient is None:
        raise Error(
            f"the gradient of {type_text(result)} without a direction", id="TSR-2074", node=users_line(),
            legal="a tensor of one element, or backward(gradient)", hint="take its sum or its mean",
        )
    tape = _tape.Tape([result], [])
    graph, names = tape.graph()
    operands = [trace.tensor(value) for value in tape.arrays]
    output = names[tape.place(result)]
    if gradient is not None:
        along = gradient if isinstance(gradient, Tensor) else Tensor(gradient, result.dtype)
        _tape.require_like(along, result, "direction")
        given = {value.name: value for value in graph.outputs}[output]
        type = f"{_native.dtype_name(NUMBER[along.dtype])}[{','.join(map(str, along.shape))}]"
        graph.output("along", graph.ops("mul", [given, graph.input("direction", type)], {}, "")[0])
        output, operands = "along", [*operands, along]
    leaves = [leaf for leaf in tape.leaves if leaf.requires_grad]
    derived = _native.grad(graph, output, [names[tape.place(leaf)] for leaf in leaves])
    with _tape.no_grad():
        for leaf, found in zip(leaves, add_to_trace(trace, derived, operands)):
            leaf.grad = found if leaf.grad is None else leaf.grad + found


class TrainingStep:
    """A function on tensors, compiled at its first call, with the tensors that it changes as states.

    Every call is one run of the module: states are updated in their own memory, and the Python tensors keep what they
    were. `to_tensors` gives them the values of the states, `from_tensors` the states theirs.
    """

    def __init__(self, function: Callable[..., Any], numerics: str, threads: int, max_memory: int | str | None) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._options = {"numerics": numerics, "threads": threads, "max_memory": max_memory}
        self._key: Any = None
        self._states: list[tuple[str, Tensor]] = []
        self._result_shape: Any = None
        self._read: Callable[[Any], Tensor]
        self._model: Model | None = None
        self._graph: Graph | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if _tape.MODE.trace is not None:
            return self._function(*args, **kwargs)
        leaves, shape = flatten((list(args), kwargs))
        read = arguments_reader(leaves)
        tensors = [read(leaf) for leaf in leaves if is_tensor(leaf)]
        key = (
            shape_key(shape), tuple((NUMBER[tensor.dtype], tensor.shape) for tensor in tensors),
            tuple(leaf for leaf in leaves if not is_tensor(leaf)),
        )
        if self._model is None:
            self._compile(args, kwargs, read)
            self._key = key
        elif key != self._key:
            raise Error(
                f"a step for other arguments: {', '.join(map(type_text, tensors))}", id="TSR-2071",
                legal="the types of the first call; the states belong to them",
            )
        results = self.model.run([tensor._array for tensor in tensors])
        return unflatten(self._result_shape, [Tensor._of(np.asarray(result)) for result in results])

    def _compile(self, args: Any, kwargs: Any, read: Callable[[Any], Tensor]) -> None:
        from . import compile

        trace = StepTrace(getattr(self._function, "__name__", "step").strip("<>"))
        try:
            found = Captured(self._function, args, kwargs, lifts=True, read=read, trace=trace)
            trace.finish()
        finally:
            for _, tensor, _ in trace.states:
                if tensor.grad is not None and tensor.grad._traced is not None:
                    tensor.grad = None
        if not trace.assigned:
            raise Error("a step that changes no tensor", id="TSR-2076", legal="optimizer.step(), or copy_()", hint="use jit")
        self._graph, self._result_shape = found.graph, found.result_shape
        self._model = compile(found.graph, **self._options)
        self._states = [(name, tensor) for name, tensor, _ in trace.states]

    @property
    def model(self) -> Model:
        """The compiled module; after the first call."""
        if self._model is None:
            raise Error("the step has not run yet", id="TSR-2076", legal="call it once")
        return self._model

    @property
    def graph(self) -> Graph:
        """The step as a graph; after the first call."""
        _ = self.model
        assert self._graph is not None
        return self._graph

    def to_tensors(self) -> None:
        """Gives the tensors that are states what these are now."""
        states = self.model.states
        for name, tensor in self._states:
            tensor._data = states[name]

    def from_tensors(self) -> None:
        """Gives the states what the tensors are now: after loading a checkpoint into them."""
        self.model.set_states({name: tensor._array for name, tensor in self._states})


def training_step(
    function: Callable[..., Any] | None = None, *, numerics: str = "default", threads: int = 1, max_memory: int | str | None = None,
) -> Any:
    """A training step written in Python, compiled as one graph: forward, gradients and updates in one call.

    The function may call `backward()`, optimizers' `step()` and `zero_grad()`, and `copy_()`; any number of models,
    losses and optimizers. Tensors from outside are states of the module, which no call copies. It is compiled at its first
    call, for the types of these arguments. ``max_memory`` as in :func:`tessera.compile`.
    """
    if function is None:
        return lambda own: TrainingStep(own, numerics, threads, max_memory)
    return TrainingStep(function, numerics, threads, max_memory)
