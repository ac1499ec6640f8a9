"""Functions of JAX: traced by JAX, read from its StableHLO text, and called like the function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ._errors import Error
from ._model import Model


class JaxFunction:
    """A compiled function of JAX. It takes arguments of the shapes it was traced with, and returns what the function returns, with
    numpy's arrays as leaves.

    ``model`` is the compiled model, whose inputs are the leaves of the arguments, in JAX's order; ``text`` the StableHLO module.
    """

    def __init__(self, model: Model, text: str, arguments: Any, results: Any) -> None:
        self.model = model
        self.text = text
        self._arguments = arguments
        self._results = results

    def __call__(self, *args: Any) -> Any:
        import jax

        leaves, structure = jax.tree_util.tree_flatten(args)
        if structure != self._arguments:
            raise Error(
                f"the arguments have the structure {structure}",
                id="TSR-4034",
                legal=f"that of the example arguments: {self._arguments}",
            )
        inputs = [np.asarray(leaf, info.dtype) for leaf, info in zip(leaves, self.model.inputs)]
        return jax.tree_util.tree_unflatten(self._results, self.model.run(inputs))


def module_text(lowered: Any) -> str:
    """The StableHLO text of what ``jax.jit(f).lower(...)`` or ``jax.export.export(...)`` answers, with its names of values."""
    if hasattr(lowered, "mlir_module"):
        return lowered.mlir_module()
    return lowered.as_text(debug_info=True)


def from_jax(function: Callable[..., Any], *args: Any, **options: Any) -> JaxFunction:
    """Compiles ``function`` for arguments like ``args`` (arrays, or trees of them; ``jax.ShapeDtypeStruct`` where there are no
    values). What the function closes over is constant, and packed for its kernels. ``options`` are those of :func:`tessera.compile`.

        params = model.init(key, x)
        predict = tessera.from_jax(lambda x: model.apply(params, x), x)
        y = predict(x)
    """
    import jax

    from . import compile

    # Not the function's own jit, which leaves out arguments that it does not read.
    traced = jax.jit(lambda *a: function(*a), keep_unused=True).lower(*args)
    text = module_text(traced)
    model = compile(text.encode(), **options)
    return JaxFunction(model, text, jax.tree_util.tree_structure(args), traced.out_tree)
