"""Models of frameworks, in the four steps of a compiler's usual sample: import, build, create, run.

module, params = tessera.frontend.from_pytorch(model, [("input", (1, 3, 224, 224))])
lib = tessera.build(module, target="native", params=params, opt_level=3)
lib.set_input("input", image)
lib.run()
scores = lib.get_output(0)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ._errors import Error
from ._model import Model

Shape = Sequence[int]


class ImportedModule:
    """A model that is read and not yet compiled: what :func:`tessera.build` takes."""

    def __init__(self, source: bytes | str, names: Sequence[str], kind: str, shapes: Mapping[str, Shape] = {}) -> None:
        self.source = source
        self.names = tuple(names)  # of the inputs, in order
        self.kind = kind
        self.shapes = dict(shapes)  # of inputs that leave them open

    def __repr__(self) -> str:
        return f"<tessera.frontend.ImportedModule of {self.kind} ({', '.join(self.names)})>"


class Built:
    """A compiled model that is given its inputs one by one. ``model`` is the same as what :func:`tessera.compile` returns."""

    def __init__(self, model: Model, names: Sequence[str]) -> None:
        self.model = model
        self._names = tuple(names)
        self._inputs: dict[str, Any] = {}
        self._outputs: list[Any] | None = None

    def set_input(self, name: str | int | None = None, value: Any = None, **more: Any) -> None:
        """By the name that the frontend was given, or by the place; several as keyword arguments."""
        for key, given in {**({} if name is None else {name: value}), **more}.items():
            if key not in self._names and not (isinstance(key, int) and 0 <= key < len(self._names)):
                raise Error(f"there is no input {key!r}", id="TSR-4034", legal=", ".join(self._names))
            self._inputs[self._names[key] if isinstance(key, int) else key] = given

    def run(self, **inputs: Any) -> list[Any]:
        """Runs with the inputs that were set; answers all outputs."""
        self.set_input(**inputs)
        missing = [name for name in self._names if name not in self._inputs]
        if missing:
            raise Error(
                f"no value for {', '.join(missing)}", id="TSR-4034", legal="a value for each input: set_input(NAME, VALUE)"
            )
        self._outputs = self.model.run([self._inputs[name] for name in self._names])
        return self._outputs

    def get_output(self, index: int = 0) -> np.ndarray:
        if self._outputs is None:
            raise Error("the model has not run", id="TSR-4034", legal="run(), then get_output()")
        return self._outputs[index]

    @property
    def num_outputs(self) -> int:
        return len(self.model.outputs)

    def __call__(self, *inputs: Any) -> list[Any]:
        return self.model.run(list(inputs))

    def save(self, path: Any) -> None:
        self.model.save(path)


def from_pytorch(model: Any, shapes: Iterable[tuple[str, Shape] | tuple[str, tuple[Shape, str]]]) -> tuple[ImportedModule, dict]:
    """A module of PyTorch (an ``nn.Module``, or a program of ``torch.export``) for inputs of these names and shapes, in the order of
    its arguments; ``(name, (shape, dtype))`` where they are not floats. The dictionary stands for parameters, which stay in the
    module; it is empty."""
    import torch

    from .torch import archive_of

    described = []
    for name, shape in shapes:
        typed = len(shape) == 2 and isinstance(shape[1], str)
        described.append((name, tuple(shape[0]) if typed else tuple(shape), shape[1] if typed else "float32"))
    if not hasattr(model, "graph_signature"):
        examples = tuple(
            torch.zeros(shape, dtype=getattr(torch, {"float": "float32", "int": "int32"}.get(dtype, dtype)))
            for _, shape, dtype in described
        )
        model = torch.export.export(model.eval(), examples)
    return ImportedModule(archive_of(model), [name for name, _, _ in described], "PyTorch"), {}


def from_onnx(model: Any, shape: Mapping[str, Shape] = {}) -> tuple[ImportedModule, dict]:
    """An ONNX model: a path, bytes or an ``onnx.ModelProto``, with shapes for inputs that leave them open."""
    from . import compile
    from ._source import source_of

    source, _, _ = source_of(model)
    names = [info.name for info in compile(source, shapes=shape, engine="interp").inputs]
    return ImportedModule(source, names, "ONNX", shape), {}


def from_jax(function: Any, *args: Any) -> tuple[ImportedModule, dict]:
    """A function of JAX for arguments like these. Its inputs are the leaves of the arguments, by their numbers."""
    import jax

    from ._jax import module_text

    text = module_text(jax.jit(lambda *a: function(*a), keep_unused=True).lower(*args))
    names = [f"arg{i}" for i in range(len(jax.tree_util.tree_leaves(args)))]
    return ImportedModule(text.encode(), names, "JAX"), {}


def build(
    module: ImportedModule, target: str = "native", params: Mapping[str, Any] | None = None, opt_level: int = 3, **options: Any
) -> Built:
    """Compiles what a frontend has read. ``target`` is "native" (also "llvm" and "cpu") or a processor as in :func:`tessera.compile`,
    whose further arguments are ``options``. ``params`` is what the frontend answered beside the module."""
    from . import compile

    if params:
        raise Error(
            "parameters are given apart from the module",
            id="TSR-4034",
            legal="what the frontend answered: parameters stay in the module",
        )
    given = None if target in ("native", "llvm", "cpu") else target
    return Built(compile(module.source, target=given, opt_level=opt_level, shapes=module.shapes, **options), module.names)
