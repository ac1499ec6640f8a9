"""Optimizers of tensors: the formulas of torch.optim, and the order of their operations.

    optimizer = optim.Adam(model.parameters(), lr=1e-3)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()

The update of a parameter is one compiled kernel for each shape.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from . import _tape
from ._capture import jit
from ._errors import Error
from ._tensor import Tensor, _constant, _operator


def _as_number(value: Any, dtype: Any) -> Tensor:
    return value.astype(dtype) if isinstance(value, Tensor) else _constant(Tensor(np.asarray(value, dtype)))


def clip_grad_norm_(params: Iterable[Tensor], max_norm: float) -> Tensor:
    """Gradients times min(1, max_norm / (norm + 1e-6)), the norm of all of them together, which it answers."""
    with _tape.no_grad():
        given = [param for param in params if param.grad is not None]
        rows = [param.grad.reshape(1, -1) for param in given]
        squares = [_operator("matmul", row, row, transpose_b=True).reshape() for row in rows]
        if not squares:
            return Tensor(np.float32(0))
        total = squares[0]
        for square in squares[1:]:
            total = total + square
        norm = total.sqrt()
        factor = _operator("min", max_norm / (norm + 1e-6), 1.0)
        for param in given:
            param.grad = param.grad * factor
    return norm


class Optimizer:
    """Updates the parameters that have a gradient. `lr` may be changed between steps."""

    def __init__(self, params: Iterable[Tensor], lr: float, weight_decay: float = 0.0) -> None:
        self.params = list(params)
        if not self.params:
            raise Error("an optimizer without parameters", id="TSR-2083", legal="tensors with requires_grad=True")
        if not isinstance(lr, Tensor) and not (math.isfinite(lr) and lr > 0):
            raise Error(f"a learning rate of {lr}", id="TSR-2081", legal="a positive number")
        self.lr, self.weight_decay = lr, weight_decay
        self._count = Tensor._of(np.zeros((), np.int64))
        self.state: list[list[Tensor]] = [[] for _ in self.params]
        self._update = jit(self._formula(), numerics="strict")

    def zero_grad(self) -> None:
        for param in self.params:
            param.grad = None

    @property
    def steps(self) -> int:
        """How many steps were done."""
        return int(self._count)

    def step(self) -> None:
        with _tape.no_grad():
            self._count.copy_(self._count + 1)
            steps = int(self._count) if _tape.MODE.trace is None else self._count.astype(np.float64)
            for param, state in zip(self.params, self.state):
                if param.grad is None:
                    continue
                if not state:
                    state += [Tensor._of(np.full(param.shape, first, param.dtype)) for first in self._initial()]
                scalars = [_as_number(value, param.dtype) for value in self._scalars(steps)]
                results = self._update(param, param.grad, state, scalars)
                param.copy_(results[0])
                for own, value in zip(state, results[1:]):
                    own.copy_(value)

    def _initial(self) -> list[float]:
        """What each tensor beside a parameter begins with."""
        return []

    def _scalars(self, steps: Any) -> list[Any]:
        """Of the number of this step, from 1; a tensor of f64 while a step is captured."""
        return [self.lr]

    def _formula(self) -> Callable[..., Any]:
        """Of (parameter, gradient, state, scalars): the new parameter, then the new state."""
        raise NotImplementedError


class SGD(Optimizer):
    def __init__(self, params: Iterable[Tensor], lr: float, momentum: float = 0.0, weight_decay: float = 0.0,
                 nesterov: bool = False) -> None:
        self.momentum, self.nesterov = momentum, nesterov
        super().__init__(params, lr, weight_decay)

    def _initial(self) -> list[float]:
        return [0.0] if self.momentum else []

    def _formula(self) -> Callable[..., Any]:
        def sgd(p, g, state, scalars):
            if self.weight_decay:
                g = g + p * self.weight_decay
            if not self.momentum:
                return [p - g * scalars[0]]
            velocity = state[0] * self.momentum + g
            g = g + velocity * self.momentum if self.nesterov else velocity
            return [p - g * scalars[0], velocity]

        return sgd


class Adam(Optimizer):
    _decoupled = False

    def __init__(self, params: Iterable[Tensor], lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 0.0) -> None:
        self.betas, self.eps = betas, eps
        super().__init__(params, lr, weight_decay)

    def _initial(self) -> list[float]:
        return [0.0, 0.0]

    def _scalars(self, steps: Any) -> list[Any]:
        first, second = (1 - beta**steps for beta in self.betas)
        return [self.lr / first, second.sqrt() if isinstance(second, Tensor) else math.sqrt(second), 1 - self.lr * self.weight_decay]

    def _formula(self) -> Callable[..., Any]:
        first, second = self.betas

        def adam(p, g, state, scalars):
            rate, correction, shrink = scalars
            if self.weight_decay and self._decoupled:
                p = p * shrink
            elif self.weight_decay:
                g = g + p * self.weight_decay
            mean = state[0] + (g - state[0]) * (1 - first)
            square = state[1] * second + g * g * (1 - second)
            return [p - rate * (mean / (square.sqrt() / correction + self.eps)), mean, square]

        return adam


class AdamW(Adam):
    """Shrinks weights beside the step."""

    _decoupled = True

    def __init__(self, params: Iterable[Tensor], lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 1e-2) -> None:
        super().__init__(params, lr, betas, eps, weight_decay)


class RMSprop(Optimizer):
    def __init__(self, params: Iterable[Tensor], lr: float = 1e-2, alpha: float = 0.99, eps: float = 1e-8, weight_decay: float = 0.0,
                 momentum: float = 0.0) -> None:
        self.alpha, self.eps, self.momentum = alpha, eps, momentum
        super().__init__(params, lr, weight_decay)

    def _initial(self) -> list[float]:
        return [0.0, 0.0] if self.momentum else [0.0]

    def _formula(self) -> Callable[..., Any]:
        def rmsprop(p, g, state, scalars):
            if self.weight_decay:
                g = g + p * self.weight_decay
            square = state[0] * self.alpha + g * g * (1 - self.alpha)
            step = g / (square.sqrt() + self.eps)
            if not self.momentum:
                return [p - step * scalars[0], square]
            velocity = state[1] * self.momentum + step
            return [p - velocity * scalars[0], square, velocity]

        return rmsprop


class Adagrad(Optimizer):
    def __init__(self, params: Iterable[Tensor], lr: float = 1e-2, lr_decay: float = 0.0, weight_decay: float = 0.0,
                 eps: float = 1e-10) -> None:
        self.lr_decay, self.eps = lr_decay, eps
        super().__init__(params, lr, weight_decay)

    def _initial(self) -> list[float]:
        return [0.0]

    def _scalars(self, steps: Any) -> list[Any]:
        return [self.lr / (1 + (steps - 1) * self.lr_decay)]

    def _formula(self) -> Callable[..., Any]:
        def adagrad(p, g, state, scalars):
            if self.weight_decay:
                g = g + p * self.weight_decay
            square = state[0] + g * g
            return [p - scalars[0] * (g / (square.sqrt() + self.eps)), square]

        return adagrad
