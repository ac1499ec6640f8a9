"""Layers of networks: modules with parameters, under the names and with the initial values that PyTorch gives them.

    model = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    loss = nn.CrossEntropyLoss()(model(x), classes)
    loss.backward()
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from . import _recurrent, _tape
from ._errors import Error
from ._tensor import Tensor, _operator, where

_RANDOM = np.random.default_rng(0)


def manual_seed(seed: int) -> None:
    """Of initial values and of dropout."""
    global _RANDOM
    _RANDOM = np.random.default_rng(seed)


def Parameter(data: Any) -> Tensor:
    """A tensor that is learnt."""
    return Tensor(data, requires_grad=True)


def _uniform(shape: Sequence[int], bound: float) -> Tensor:
    return Parameter(_RANDOM.uniform(-bound, bound, shape).astype(np.float32))


class Module:
    """What has parameters: tensors with gradients, and modules, that are attributes. `forward` says what it computes."""

    training = True

    def forward(self, *args: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__}.forward")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward(*args, **kwargs)

    def _parts(self) -> Iterator[tuple[str, Any]]:
        for name, value in vars(self).items():
            if isinstance(value, (Tensor, Module)):
                yield name, value
            elif isinstance(value, (list, tuple)):
                for i, part in enumerate(value):
                    if isinstance(part, (Tensor, Module)):
                        yield f"{name}.{i}", part

    def named_tensors(self, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
        """Parameters, and what else it keeps (running means), by name."""
        for name, part in self._parts():
            if isinstance(part, Tensor):
                yield prefix + name, part
            else:
                yield from part.named_tensors(f"{prefix}{name}.")

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        return ((name, tensor) for name, tensor in self.named_tensors() if tensor.requires_grad)

    def parameters(self) -> list[Tensor]:
        return [tensor for _, tensor in self.named_parameters()]

    def modules(self) -> Iterator[Module]:
        yield self
        for _, part in self._parts():
            if isinstance(part, Module):
                yield from part.modules()

    def train(self, on: bool = True) -> Module:
        for module in self.modules():
            module.training = on
        return self

    def eval(self) -> Module:
        return self.train(False)

    def zero_grad(self) -> None:
        for tensor in self.parameters():
            tensor.grad = None

    def state_dict(self) -> dict[str, np.ndarray]:
        return {name: tensor.numpy() for name, tensor in self.named_tensors()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        own = dict(self.named_tensors())
        odd = sorted(own.keys() ^ state.keys())
        if odd:
            raise Error(f"the state of another module: {', '.join(odd[:5])}", id="TSR-2074", legal=", ".join(own) or "none")
        for name, tensor in own.items():
            tensor.copy_(np.asarray(state[name], tensor.dtype))


class Sequential(Module):
    """One module after the other."""

    def __init__(self, *modules: Module) -> None:
        for i, module in enumerate(modules):
            setattr(self, str(i), module)

    def forward(self, x: Any) -> Any:
        for _, module in self._parts():
            x = module(x)
        return x


class Linear(Module):
    """x W' + b, the weight [out, in]."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        bound = 1 / math.sqrt(in_features) if in_features else 0
        self.weight = _uniform((out_features, in_features), bound)
        self.bias = _uniform((out_features,), bound) if bias else None

    def forward(self, x: Any) -> Tensor:
        product = _operator("matmul", x, self.weight, transpose_b=True)
        return product if self.bias is None else product + self.bias


class Conv2d(Module):
    """The convolution of x[N,C,H,W] with the weight [out, in / groups, height, width]."""

    def __init__(self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
                 groups: int = 1, bias: bool = True) -> None:
        self.stride, self.padding, self.dilation, self.groups = _pair(stride), _pair(padding), _pair(dilation), groups
        shape = (out_channels, in_channels // groups, *_pair(kernel_size))
        bound = 1 / math.sqrt(np.prod(shape[1:]))
        self.weight = _uniform(shape, bound)
        self.bias = _uniform((out_channels,), bound) if bias else None

    def forward(self, x: Any) -> Tensor:
        y = _operator(
            "conv", x, self.weight, strides=self.stride, pads_begin=self.padding, pads_end=self.padding, dilations=self.dilation,
            input_dilations=[1, 1], groups=self.groups,
        )
        return y if self.bias is None else y + self.bias.reshape(-1, 1, 1)


class ConvTranspose2d(Module):
    """The transposed convolution of x[N,C,H,W] with the weight [in, out / groups, height, width]."""

    def __init__(self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0,
                 output_padding: Any = 0, groups: int = 1, bias: bool = True, dilation: Any = 1) -> None:
        self.stride, self.padding, self.dilation, self.groups = _pair(stride), _pair(padding), _pair(dilation), groups
        self.output_padding = _pair(output_padding)
        shape = (in_channels, out_channels // groups, *_pair(kernel_size))
        bound = 1 / math.sqrt(np.prod(shape[1:]))
        self.weight = _uniform(shape, bound)
        self.bias = _uniform((out_channels,), bound) if bias else None

    def forward(self, x: Any) -> Tensor:
        y = _operator(
            "conv_transpose", x, self.weight, strides=self.stride, pads_begin=self.padding, pads_end=self.padding,
            dilations=self.dilation, output_padding=self.output_padding, groups=self.groups,
        )
        return y if self.bias is None else y + self.bias.reshape(-1, 1, 1)


def _pair(value: Any) -> list[int]:
    return [value, value] if isinstance(value, int) else list(value)


class _Pool2d(Module):
    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0) -> None:
        self.kernel_size, self.padding = _pair(kernel_size), _pair(padding)
        self.stride = self.kernel_size if stride is None else _pair(stride)

    def _window(self) -> dict[str, Any]:
        pads = {"pads_begin": self.padding, "pads_end": self.padding}
        return {"window": self.kernel_size, "strides": self.stride, "dilations": [1, 1], **pads}


class MaxPool2d(_Pool2d):
    def forward(self, x: Any) -> Tensor:
        return _operator("max_pool", x, **self._window())


class AvgPool2d(_Pool2d):
    def forward(self, x: Any) -> Tensor:
        return _operator("average_pool", x, count_include_pad=True, **self._window())


class Flatten(Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1)


class Embedding(Module):
    """Rows of the weight [num, dim] at the places that x names."""

    def __init__(self, num_embeddings: int, embedding_dim: int) -> None:
        self.weight = Parameter(_RANDOM.standard_normal((num_embeddings, embedding_dim)).astype(np.float32))

    def forward(self, x: Any) -> Tensor:
        return _operator("gather", self.weight, x, axis=0)


class LayerNorm(Module):
    def __init__(self, normalized_shape: Any, eps: float = 1e-5) -> None:
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.weight, self.bias = Parameter(np.ones(shape, np.float32)), Parameter(np.zeros(shape, np.float32))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return _operator("layer_norm", x, self.weight, self.bias, axis=x.ndim - self.weight.ndim, epsilon=self.eps)


class BatchNorm2d(Module):
    """Normalises channels over the batch while training, and by running means and variances after eval()."""

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.1) -> None:
        self.weight, self.bias = Parameter(np.ones(num_features, np.float32)), Parameter(np.zeros(num_features, np.float32))
        self.running_mean, self.running_var = Tensor(np.zeros(num_features, np.float32)), Tensor(np.ones(num_features, np.float32))
        self.eps, self.momentum = eps, momentum

    def forward(self, x: Any) -> Tensor:
        operands = (x, self.weight, self.bias, self.running_mean, self.running_var)
        if not self.training:
            return _operator("batch_norm", *operands, epsilon=self.eps)
        y, mean, var = _operator("batch_norm_training", *operands, epsilon=self.eps, momentum=1 - self.momentum, unbiased=True)[:3]
        with _tape.no_grad():
            self.running_mean.copy_(mean)
            self.running_var.copy_(var)
        return y


class Dropout(Module):
    """While training, zeros for a part `p` of the elements, and the others larger by as much.

    Which ones is a function of the layer's seed, the number of its call and the element's place: the same in a step that
    runs operator by operator and in one that is compiled (:func:`tessera.training_step`), where the number is a state.
    """

    def __init__(self, p: float = 0.5) -> None:
        self.p = p
        self.seed = int(_RANDOM.integers(2**63))
        self._random = {"calls": Tensor(np.asarray(0, np.int64))}  # no part of state_dict()

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        calls = self._random["calls"]
        with _tape.no_grad():
            stays = _stays(x.shape, self.p, self.seed, calls.astype(np.uint32))
            calls.copy_(calls + 1)
        return where(stays, x / (1 - self.p), 0.0) if self.p < 1 else x * 0.0


_FIRST, _SECOND, _OF_ELEMENTS = 0x21F0AAAD, 0xD35A2D97, 0x9E3779B9


def _mixed(x: Any) -> Any:
    """A bijection of 32 bits all of whose output bits depend on all input bits (Wellons, hash-prospector, 2018)."""
    if isinstance(x, int):
        x = (x ^ x >> 16) * _FIRST & 0xFFFFFFFF
        x = (x ^ x >> 15) * _SECOND & 0xFFFFFFFF
        return x ^ x >> 15

    def folded(v: Tensor, by: int) -> Tensor:
        return _operator("bitwise_xor", v, _operator("shift_right", v, np.uint32(by)))

    x = folded(x, 16) * np.uint32(_FIRST)
    x = folded(x, 15) * np.uint32(_SECOND)
    return folded(x, 15)


def _stays(shape: Sequence[int], p: float, seed: int, call: Tensor) -> Tensor:
    """As the compiler's training step draws them (train/dropout.h), for the first dropout of a model."""
    key = _mixed(_mixed((seed & 0xFFFFFFFF) ^ _mixed(0)) ^ seed >> 32)
    first = _mixed(_operator("bitwise_xor", call, np.uint32(key)))
    second = _mixed(_operator("bitwise_xor", first, np.uint32(_OF_ELEMENTS)))
    place = _operator("iota", shape=[int(np.prod(shape, dtype=np.int64))], axis=0, dtype=np.uint32)
    random = _mixed(_operator("bitwise_xor", _mixed(_operator("bitwise_xor", place, first)), second))
    bound = np.uint32(min(math.ldexp(p, 32), 2**32 - 1))
    return _operator("ge", random, bound).reshape(*shape)


class _Recurrent(Module):
    _gates = 1

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False) -> None:
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.bias, self.batch_first = bias, batch_first
        _recurrent.uniform_weights(self, _uniform, self._gates, input_size, hidden_size, num_layers, bias)

    def _run(self, layers: Any, x: Any, state: Any) -> Any:
        x = x if isinstance(x, Tensor) else Tensor(x)
        y, last = layers(self, x.transpose(1, 0, 2) if self.batch_first else x, state)
        return (y.transpose(1, 0, 2) if self.batch_first else y), last


class LSTM(_Recurrent):
    """A long short-term memory of x[T,N,input] (x[N,T,input] with batch_first): y, and the last (h, c), [layers,N,hidden] each.

    Weights and gates (input, forget, cell, output) stand as PyTorch's.
    """

    _gates = 4

    def forward(self, x: Any, state: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        return self._run(_recurrent.lstm, x, state)


class GRU(_Recurrent):
    """Gated recurrent units, of x as :class:`LSTM`: y, and the last h. Weights and gates (reset, update, new) stand as PyTorch's."""

    _gates = 3

    def forward(self, x: Any, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return self._run(_recurrent.gru, x, state)


def _activation(name: str, operator: str, doc: str) -> type[Module]:
    return type(name, (Module,), {"__doc__": doc, "forward": lambda self, x: _operator(operator, x)})


ReLU = _activation("ReLU", "relu", "max(x, 0).")
Sigmoid = _activation("Sigmoid", "sigmoid", "1 / (1 + exp(-x)).")
Tanh = _activation("Tanh", "tanh", "The hyperbolic tangent.")
GELU = _activation("GELU", "gelu", "x times the normal distribution's share below x.")
SiLU = _activation("SiLU", "silu", "x sigmoid(x).")


class LeakyReLU(Module):
    """x, times the slope where it is negative."""

    def __init__(self, negative_slope: float = 0.01) -> None:
        self.negative_slope = negative_slope

    def forward(self, x: Any) -> Tensor:
        return _operator("leaky_relu", x, alpha=self.negative_slope)


class Softmax(Module):
    def __init__(self, dim: int = -1) -> None:
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        return x.softmax(self.dim)


class CrossEntropyLoss(Module):
    """Of scores [N, classes, ...] and numbers of classes [N, ...]."""

    def __init__(self, reduction: str = "mean", ignore_index: int | None = None) -> None:
        self.reduction, self.ignore_index = reduction, ignore_index

    def forward(self, scores: Any, targets: Any) -> Tensor:
        return _operator("softmax_cross_entropy", scores, targets, reduction=self.reduction, ignore_index=self.ignore_index)[0]


class BCEWithLogitsLoss(Module):
    """The mean cross entropy of sigmoid(x) and targets from 0 to 1."""

    def forward(self, x: Any, targets: Any) -> Tensor:
        return (_operator("softplus", x) - x * targets).mean()


class MSELoss(Module):
    """The mean of squared differences."""

    def forward(self, x: Any, y: Any) -> Tensor:
        apart = x - y
        return (apart * apart).mean()
