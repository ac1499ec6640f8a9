"""Tessera compiles ONNX models to machine code and runs them.

    import numpy as np, tessera

    model = tessera.compile("model.onnx", shapes={"input": (1, 3, 224, 224)})
    print(model.inputs, model.outputs)
    (y,) = model.run({"input": np.zeros((1, 3, 224, 224), np.float32)})
    model.save("model.so")
    model = tessera.load("model.so")
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Union

from . import _native, _options, graph, te
from ._errors import Error, InternalError
from ._info import TensorInfo
from ._model import Model

if TYPE_CHECKING:
    import onnx

__all__ = ["Error", "InternalError", "Model", "TensorInfo", "compile", "compile_file", "graph", "load", "te"]
__version__ = _native.version()

Source = Union[str, "os.PathLike[str]", bytes, "onnx.ModelProto", graph.Graph]
Dims = Mapping[str, Union[int, tuple[int, int]]]
Shapes = Mapping[str, Sequence[int]]


def compile(
    model: Source,
    *,
    target: str | None = None,
    precision: str = "f32",
    fp32: str = "fma",
    opt_level: int = 3,
    threads: int | None = None,
    dims: Dims = {},
    shapes: Shapes = {},
    disable_passes: Iterable[str] = (),
    kernels: Iterable[str | os.PathLike[str]] = (),
    engine: str = "native",
) -> Model:
    """Compiles a model and loads the result.

    ``model`` is a path (of an ONNX model, or of a graph as text), the bytes of such a file, an ``onnx.ModelProto``, or a
    :class:`tessera.graph.Graph`; external data is read only for a path, from
    the folder of the model.

    ``target`` is a processor as in ``tessera compile --target``; None is this machine's. ``precision`` ("f32", "bf16" or
    "f16") is what convolutions and products with weights read; they sum in f32. ``fp32`` ("fma", "pieces" or "auto") is how products
    of f32 with weights are computed, as ``tessera compile --fp32``. ``threads`` is the number of threads to
    compile for and to run on; None leaves it to the environment. ``dims`` gives values, or the least and the greatest, to
    dimensions that the model leaves open, by their names; ``shapes`` gives shapes to whole inputs. ``disable_passes``
    names passes to leave out. ``kernels`` are files that declare C functions for kernels of the model, which are called where
    they are faster (docs/kernels.md). ``engine="interp"`` compiles nothing: the reference interpreter runs the model, slowly and
    obviously.

    Raises :class:`tessera.Error` for what the user can mend and :class:`tessera.InternalError` for bugs.
    """
    source = _source(model)
    if engine == "interp":
        return Model(_native.interpret(*source, _options.bounds(dims), _options.sizes(shapes)), is_interpreted=True)
    if engine != "native":
        raise Error(f"there is no engine {engine!r}", id="TSR-4031", legal='"native", "interp"')
    options = _options.compile_options(target, precision, fp32, opt_level, threads, dims, shapes, disable_passes, kernels)
    return Model(_native.compile(*source, *options))


def compile_file(
    model: Source,
    path: str | os.PathLike[str],
    *,
    target: str | None = None,
    precision: str = "f32",
    fp32: str = "fma",
    opt_level: int = 3,
    threads: int | None = None,
    dims: Dims = {},
    shapes: Shapes = {},
    disable_passes: Iterable[str] = (),
    kernels: Iterable[str | os.PathLike[str]] = (),
) -> None:
    """Compiles a model to a module file without loading it: the way to compile for another machine.

    The arguments are those of :func:`compile`; the file appears whole or not at all.
    """
    options = _options.compile_options(target, precision, fp32, opt_level, threads, dims, shapes, disable_passes, kernels)
    _native.compile_to_file(*_source(model), os.fspath(path), *options)


def load(path: str | os.PathLike[str], *, threads: int | None = None) -> Model:
    """Loads a module file, which `Model.save`, `compile_file` or `tessera compile` wrote.

    A module is a program: load only those that you trust.
    """
    return Model(_native.load(os.fspath(path), 0 if threads is None else _options.number("threads", threads)))


def _source(model: Source) -> tuple[str | bytes | _native.Graph, str, str]:
    """The model as a path, bytes or a graph, the folder of external data, and a name."""
    if isinstance(model, graph.Graph):
        return model._native, "", model.name
    if isinstance(model, (str, os.PathLike)):
        return os.fspath(model), "", ""
    if isinstance(model, (bytes, bytearray, memoryview)):
        return bytes(model), "", "model"
    if hasattr(model, "SerializeToString") and hasattr(model, "graph"):
        return model.SerializeToString(), "", model.graph.name or "model"
    raise Error(
        f"the model is of the type {type(model).__name__}", id="TSR-4032",
        legal="a path, bytes, an onnx.ModelProto, or a tessera.graph.Graph",
    )
