"""Recurrent layers: one loop of the graph for each layer."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ._control_flow import scan
from ._tensor import Tensor, _operator, stack


def _sigmoid(x: Tensor) -> Tensor:
    return _operator("sigmoid", x)


def _tanh(x: Tensor) -> Tensor:
    return _operator("tanh", x)


def _product(x: Tensor, weight: Tensor) -> Tensor:
    return _operator("matmul", x, weight, transpose_b=True)


def uniform_weights(
    layer: Any, make: Callable[..., Tensor], gates: int, input_size: int, hidden_size: int, num_layers: int, bias: bool,
) -> None:
    """The weights that PyTorch gives a recurrent layer, under its names."""
    bound = 1 / math.sqrt(hidden_size)
    for number in range(num_layers):
        setattr(layer, f"weight_ih_l{number}", make((gates * hidden_size, hidden_size if number else input_size), bound))
        setattr(layer, f"weight_hh_l{number}", make((gates * hidden_size, hidden_size), bound))
        if bias:
            setattr(layer, f"bias_ih_l{number}", make((gates * hidden_size,), bound))
            setattr(layer, f"bias_hh_l{number}", make((gates * hidden_size,), bound))


def _weights(layer: Any, number: int) -> tuple[Tensor, Tensor, Any, Any]:
    biases = [getattr(layer, f"bias_{kind}_l{number}") if layer.bias else 0.0 for kind in ("ih", "hh")]
    return getattr(layer, f"weight_ih_l{number}"), getattr(layer, f"weight_hh_l{number}"), *biases


def _zeros(layer: Any, x: Tensor) -> list[Tensor]:
    return [Tensor(np.zeros((x.shape[1], layer.hidden_size), np.float32)) for _ in range(layer.num_layers)]


def _parts(gates: Tensor, size: int) -> list[Tensor]:
    return [gates[:, begin:begin + size] for begin in range(0, gates.shape[1], size)]


def lstm(layer: Any, x: Tensor, state: tuple[Tensor, Tensor] | None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    size = layer.hidden_size
    hidden, cells = ([part[i] for i in range(layer.num_layers)] for part in state) if state else (_zeros(layer, x), _zeros(layer, x))
    for number in range(layer.num_layers):
        of_input, of_hidden, bias, other_bias = _weights(layer, number)

        def step(carry: Any, row: Tensor) -> Any:
            h, c = carry
            i, f, g, o = _parts(row + _product(h, of_hidden), size)
            c = _sigmoid(f) * c + _sigmoid(i) * _tanh(g)
            h = _sigmoid(o) * _tanh(c)
            return (h, c), h

        rows = _product(x, of_input)  # of all times at once
        if layer.bias:
            rows = rows + (bias + other_bias)
        (hidden[number], cells[number]), x = scan(step, (hidden[number], cells[number]), rows)
    return x, (stack(hidden), stack(cells))


def gru(layer: Any, x: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
    size = layer.hidden_size
    hidden = [state[i] for i in range(layer.num_layers)] if state is not None else _zeros(layer, x)
    for number in range(layer.num_layers):
        of_input, of_hidden, bias, other_bias = _weights(layer, number)

        def step(h: Any, row: Tensor) -> Any:
            own = _product(h, of_hidden)
            if layer.bias:
                own = own + other_bias
            r, z, n = _parts(row, size)
            own_r, own_z, own_n = _parts(own, size)
            z = _sigmoid(z + own_z)
            n = _tanh(n + _sigmoid(r + own_r) * own_n)
            h = (1.0 - z) * n + z * h
            return h, h

        rows = _product(x, of_input)
        if layer.bias:
            rows = rows + bias
        hidden[number], x = scan(step, hidden[number], rows)
    return x, stack(hidden)
