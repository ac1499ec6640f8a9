"""What the package has besides compiling, loading and running models; imported when one of these is first named."""

from . import data, frontend, graph, nn, optim, parallel, plots, quantization, te
from ._capture import capture, jit
from ._control_flow import cond, scan
from ._derivatives import grad, hessian, hvp, jacobian, jvp, value_and_grad, vjp
from ._jax import JaxFunction, from_jax
from ._step import TrainingStep, training_step
from ._tape import eager_numerics, no_grad
from ._tensor import Tensor, arange, concat, full, ones, stack, tensor, where, zeros
from ._training import train
from .frontend import build
from .quantization import (
    CalibrationDataReader, CalibrationMethod, QuantFormat, QuantType, quantize_dynamic, quantize_static,
)

__all__ = [
    "CalibrationDataReader", "CalibrationMethod", "JaxFunction", "QuantFormat", "QuantType", "Tensor", "TrainingStep", "arange",
    "build", "capture", "concat", "cond", "data", "eager_numerics", "from_jax", "frontend", "full", "grad", "graph", "hessian",
    "hvp", "jacobian", "jit", "jvp", "nn", "no_grad", "ones", "optim", "parallel", "plots", "quantization", "quantize_dynamic",
    "quantize_static", "scan", "stack", "te", "tensor", "train", "training_step", "value_and_grad", "vjp", "where", "zeros",
]
