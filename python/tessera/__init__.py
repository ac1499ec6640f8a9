"""Tessera compiles ONNX models to machine code and runs them.

    import numpy as np, tessera

    model = tessera.compile("model.onnx", shapes={"input": (1, 3, 224, 224)})
    print(model.inputs, model.outputs)
    (y,) = model.run({"input": np.zeros((1, 3, 224, 224), np.float32)})
    model.save("model.so")
    model = tessera.load("model.so")

Tensors run operators at once, and have gradients (docs/graph-api.md, docs/training.md):

    x = tessera.tensor([1.0, 2.0], requires_grad=True)
    (x * x).sum().backward()
    print(x.grad)
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Union

from . import _native, _options
from ._errors import Error, InternalError
from ._info import TensorInfo
from ._interrupt import interruptible
from ._model import Model
from ._open_model import OpenModel, is_open
from ._session import (
    ExecutionMode, GraphOptimizationLevel, InferenceSession, IOBinding, NodeArg, OrtValue, SessionOptions, get_all_providers,
    get_available_providers, get_device,
)
from ._source import Source, source_of

if TYPE_CHECKING:
    from ._named_later import *  # noqa: F403

__all__ = [
    "CalibrationDataReader", "CalibrationMethod", "Error", "ExecutionMode", "GraphOptimizationLevel", "IOBinding", "InferenceSession",
    "InternalError", "JaxFunction", "Model", "NodeArg", "OpenModel", "OrtValue", "QuantFormat", "QuantType", "SessionOptions",
    "Tensor", "TensorInfo", "TrainingStep", "arange", "build", "capture", "compile", "compile_file", "concat", "cond", "data",
    "eager_numerics", "from_jax", "frontend", "full", "get_all_providers", "get_available_providers", "get_device", "grad", "graph",
    "hessian", "hvp", "jacobian", "jit", "jvp", "load", "nn", "no_grad", "ones", "optim", "parallel", "plots", "quantization",
    "quantize_dynamic", "quantize_static", "scan", "stack", "te", "tensor", "train", "training_step", "value_and_grad", "vjp",
    "where", "zeros",
]
__version__ = _native.version()


def __getattr__(name: str) -> Any:
    """Tensors, networks, training and so on are imported when one of them is first named: who only compiles and runs models
    need not wait for them."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import _named_later

    # While it is being imported itself, for its own imports, it has no names yet: an AttributeError, as it should be.
    globals().update({later: getattr(_named_later, later) for later in _named_later.__all__})
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


Size = Union[int, tuple[int, int], tuple[int, int, int]]
Dims = Mapping[str, Size]
Shapes = Mapping[str, Sequence[Size]]


def compile(
    model: Source,
    *,
    target: str | None = None,
    precision: str = "f32",
    fp32: str = "fma",
    numerics: str = "default",
    opt_level: int = 3,
    threads: int | None = None,
    dims: Dims = {},
    shapes: Shapes = {},
    disable_passes: Iterable[str] = (),
    kernels: Iterable[str | os.PathLike[str]] = (),
    places: Iterable[str] = (),
    max_memory: int | str | None = None,
    layer_precisions: Mapping[str, str] = {},
    engine: str = "native",
) -> Model:
    """Compiles a model and loads the result.

    ``model`` is a path (of an ONNX model, or of a graph as text), the bytes of such a file, an ``onnx.ModelProto``, a
    ``torch.export.ExportedProgram``, or a :class:`tessera.graph.Graph`; external data is read only for a path, from the
    folder of the model.

    ``target`` is a processor as in ``tessera compile --target``; None is this machine's. ``precision`` ("f32", "bf16" or
    "f16") is what convolutions and products with weights read; they sum in f32. ``fp32`` ("fma", "pieces" or "auto") is how products
    of f32 with weights are computed, as ``tessera compile --fp32``. ``numerics`` ("default", "strict" or
    "deterministic") is what may happen to the bits of results (docs/numerics.md). ``threads`` is the number of threads to
    compile for and to run on; None leaves it to the environment. ``dims`` gives values, or the least and the greatest (and a
    step), to dimensions that the model leaves open, by their names or "INPUT[AXIS]"; ``shapes`` gives shapes to whole inputs,
    whose dimensions may be such ranges as well. Sizes that neither fixes are those of the arrays of a run: an
    :class:`OpenModel` is compiled for them then. ``disable_passes``
    names passes to leave out. ``kernels`` are files that declare C functions for kernels of the model, which are called where
    they are faster (docs/kernels.md). ``places`` says which kernels run on a device, "PATTERN=DEVICE" each
    (docs/devices.md). ``max_memory`` is how many bytes a session may take for what it computes and for states, also as a
    text such as "300M"; what does not fit is computed again when it is needed (docs/training.md). ``layer_precisions`` are
    layers that have another precision, {'Conv_0': 'f32', 'head*': 'f16'}: the last pattern that matches decides. ``engine="interp"``
    compiles nothing: the reference interpreter runs the model, slowly and obviously.

    Raises :class:`tessera.Error` for what the user can mend and :class:`tessera.InternalError` for bugs.
    """
    source = source_of(model)
    if engine not in ("native", "interp"):
        raise Error(f"there is no engine {engine!r}", id="TSR-4031", legal='"native", "interp"')
    given_dims, given_shapes = _options.dims_and_shapes(dims, shapes)
    options = _options.compile_options(
        target, precision, fp32, numerics, opt_level, threads, {}, {}, disable_passes, kernels, places, max_memory,
        layer_precisions,
    )

    def make(sizes: Mapping[str, int], more: Mapping[str, Sequence[int]]) -> Model:
        all_dims = {**given_dims, **{name: (size, size, 1) for name, size in sizes.items()}}
        all_shapes = {**given_shapes, **{name: list(shape) for name, shape in more.items()}}
        if engine == "interp":
            read = interruptible(lambda: _native.interpret(*source, all_dims, all_shapes), lambda: None)
            return Model(read, is_interpreted=True)
        cancel = _native.CancelFlag()
        arguments = (*source, *options[:6], all_dims, all_shapes, *options[8:], cancel)
        return Model(interruptible(lambda: _native.compile(*arguments), cancel.set))

    try:
        return make({}, {})
    except Error as error:
        if not is_open(error):
            raise
    border = _native.border(*source)
    fixed = {name for name in given_dims}
    for name, _, tensor_dims, names in border[0]:
        if name in given_shapes and tensor_dims is not None:
            fixed |= set(names)
        fixed |= {dim for axis, dim in enumerate(names) if f"{name}[{axis}]" in given_dims}
    return OpenModel(border, fixed, make, engine=engine, threads=options[5])


def compile_file(
    model: Source,
    path: str | os.PathLike[str],
    *,
    target: str | None = None,
    precision: str = "f32",
    fp32: str = "fma",
    numerics: str = "default",
    opt_level: int = 3,
    threads: int | None = None,
    dims: Dims = {},
    shapes: Shapes = {},
    disable_passes: Iterable[str] = (),
    kernels: Iterable[str | os.PathLike[str]] = (),
    places: Iterable[str] = (),
    max_memory: int | str | None = None,
    layer_precisions: Mapping[str, str] = {},
) -> None:
    """Compiles a model to a module file without loading it: the way to compile for another machine.

    The arguments are those of :func:`compile`; the file appears whole or not at all.
    """
    options = _options.compile_options(
        target, precision, fp32, numerics, opt_level, threads, dims, shapes, disable_passes, kernels, places, max_memory,
        layer_precisions,
    )
    cancel = _native.CancelFlag()
    source = source_of(model)
    interruptible(lambda: _native.compile_to_file(*source, os.fspath(path), *options, cancel), cancel.set)


def load(path: str | os.PathLike[str], *, threads: int | None = None, entry: str | None = None) -> Model:
    """Loads a module file, which `Model.save`, `compile_file` or `tessera compile` wrote. ``entry`` is which module of a
    file that holds several ("infer" and "step" of `tessera train --with-step`); None: the first.

    A module is a program: load only those that you trust.
    """
    chosen = "" if entry is None else _options.text("entry", entry)
    return Model(_native.load(os.fspath(path), 0 if threads is None else _options.number("threads", threads), chosen))
