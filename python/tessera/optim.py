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
from ._tensor import Tensor


class Optimizer:
    """Updates the parameters that have a gradient. `lr` may be changed between steps."""

    def __init__(self, params: Iterable[Tensor], lr: float, weight_decay: float = 0.0) -> None:
        self.params = list(params)
        if not self.params:
            raise Error("an optimizer without parameters", id="TSR-2083", legal="tensors with requires_grad=True")
        if not (math.isfinite(lr) and lr > 0):
            raise Error(f"a learning rate of {lr}", id="TSR-2081", legal="a positive number")
        self.lr, self.weight_decay = lr, weight_decay
        self.steps = 0
        self.state: list[list[Tensor]] = [[] for _ in self.params]
        self._update = jit(self._formula(), numerics="strict")

    def zero_grad(self) -> None:
        for param in self.params:
            param.grad = None

    def step(self) -> None:
        self.steps += 1
        with _tape.no_grad():
            for param, state in zip(self.params, self.state):
                if param.grad is None:
                    continue
                if not state:
                    state += [Tensor._of(np.full(param.shape, first, param.dtype)) for first in self._initial()]
                scalars = [Tensor(np.asarray(value, param.dtype)) for value in self._scalars()]
                results = self._update(param, param.grad, state, scalars)
                param.copy_(results[0])
                state[:] = results[1:]

    def _initial(self) -> list[float]:
        """What each tensor beside a parameter begins with."""
        return []

    def _scalars(self) -> list[float]:
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

    def _scalars(self) -> list[float]:
        first, second = (1 - beta**self.steps for beta in self.betas)
        return [self.lr / first, math.sqrt(second), 1 - self.lr * self.weight_decay]

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

    def _scalars(self) -> list[float]:
        return [self.lr / (1 + (self.steps - 1) * self.lr_decay)]

    def _formula(self) -> Callable[..., Any]:
        def adagrad(p, g, state, scalars):
            if self.weight_decay:
                g = g + p * self.weight_decay
            square = state[0] + g * g
            return [p - scalars[0] * (g / (square.sqrt() + self.eps)), square]

        return adagrad
