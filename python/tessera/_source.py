"""What a model may be given as."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Union

from . import _native
from ._errors import Error
from ._graph import Graph

if TYPE_CHECKING:
    import onnx
    import torch

Source = Union[str, "os.PathLike[str]", bytes, "onnx.ModelProto", "torch.export.ExportedProgram", Graph]


def source_of(model: Any) -> tuple[str | bytes | _native.Graph, str, str]:
    """The model as a path, bytes or a graph, the folder of external data, and a name."""
    if isinstance(model, Graph):
        return model._native, "", model.name
    if isinstance(model, (str, os.PathLike)):
        return os.fspath(model), "", ""
    if isinstance(model, (bytes, bytearray, memoryview)):
        return bytes(model), "", "model"
    if hasattr(model, "SerializeToString") and hasattr(model, "graph"):
        return model.SerializeToString(), "", model.graph.name or "model"
    if hasattr(model, "run_decompositions") and hasattr(model, "graph_signature"):
        from .torch import archive_of

        return archive_of(model), "", "model"
    if hasattr(model, "mlir_module") or hasattr(model, "compiler_ir"):
        from ._jax import module_text

        return module_text(model).encode(), "", "model"
    raise Error(
        f"the model is of the type {type(model).__name__}", id="TSR-4032",
        legal="a path, bytes, an onnx.ModelProto, a torch.export.ExportedProgram, what jax lowered or exported, or a tessera.graph.Graph",
    )
