"""A model of a file beside the module of PyTorch that it was exported from: `tessera verify MODEL --against module.py`.

Both run on generated inputs, for two batch sizes where the file leaves the batch open. Where outputs differ, the values between are
compared as well: the first operator of the module whose operands the file has, and whose result it does not, is named."""

from __future__ import annotations

import argparse
import importlib.util
import pathlib
import sys
from typing import Any

import numpy as np

from ._errors import Error

SAME, DIFFERENT, FAILED = 0, 2, 1


def module_of(path: str) -> Any:
    """The module of a Python file (its name `model`, or what its function `make_model` or class `Model` makes) or of a .pt2 file."""
    import torch

    if path.endswith(".pt2"):
        return torch.export.load(path).module()
    spec = importlib.util.spec_from_file_location(pathlib.Path(path).stem, path)
    if spec is None or spec.loader is None or not pathlib.Path(path).exists():
        raise Error(f"'{path}' is no Python file", id="TSR-4084", legal="a .py file with a module of PyTorch, or a .pt2 file")
    source = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(pathlib.Path(path).resolve().parent))
    spec.loader.exec_module(source)
    for name in ("model", "make_model", "Model"):
        found = getattr(source, name, None)
        if found is not None:
            return (found if isinstance(found, torch.nn.Module) else found()).eval()
    raise Error(
        f"'{path}' has no model", id="TSR-4084", legal="a module called `model`, a function `make_model` or a class `Model`"
    )


def generated(infos: Any, batch: int, seed: int) -> list[np.ndarray]:
    """Inputs by the file's declarations: open dimensions are the batch."""
    random = np.random.default_rng(seed)
    values = []
    for info in infos:
        shape = [batch if not isinstance(extent, int) else extent for extent in info.shape]
        dtype = np.dtype(info.dtype)
        if dtype == bool:
            values.append(random.random(shape) < 0.5)
        elif np.issubdtype(dtype, np.integer):
            values.append(random.integers(0, 8, shape).astype(dtype))
        else:
            values.append(random.standard_normal(shape).astype(dtype))
    return values


def off(got: Any, want: Any) -> float:
    """The largest difference over the largest magnitude; infinite where shapes differ or one has a number and the other none."""
    got, want = np.asarray(got), np.asarray(want)
    if got.shape != want.shape:
        return float("inf")
    if got.size == 0:
        return 0.0
    got, want = got.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(want)
    if (np.isfinite(got) != finite).any():
        return float("inf")
    if not finite.any():
        return 0.0
    return float(np.abs(got[finite] - want[finite]).max() / max(np.abs(want[finite]).max(), 1e-30))


def flat(value: Any) -> list[Any]:
    import torch
    from torch.utils._pytree import tree_leaves

    return [leaf.detach().cpu().numpy() for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def source_values(module: Any, inputs: list[np.ndarray]) -> list[tuple[Any, str, np.ndarray]]:
    """Each operator of the module, what it is called, and its result, in order."""
    import torch

    values: list[tuple[Any, str, np.ndarray]] = []
    tensors = tuple(torch.from_numpy(value) for value in inputs)
    graph = torch.export.export(module, tensors).module()

    class Recorder(torch.fx.Interpreter):
        def run_node(self, node: Any) -> Any:
            result = super().run_node(node)
            if isinstance(result, torch.Tensor) and node.op in ("call_function", "placeholder"):
                scope = list((node.meta.get("nn_module_stack") or {}).values())
                place = scope[-1][0] if scope else ""
                values.append((node, f"{node.target} '{node.name}'" + (f" in {place}" if place else ""), result.detach().numpy()))
            return result

    with torch.no_grad():
        Recorder(graph).run(*tensors)
    return values


def file_values(path: str, inputs: list[np.ndarray], names: list[str]) -> list[np.ndarray] | None:
    """All values of an ONNX model; none where the package onnx is missing, or the file is no such model."""
    try:
        import onnx
    except ImportError:
        return None
    from . import compile

    model = onnx.load(path)
    kept = {output.name for output in model.graph.output}
    for node in model.graph.node:
        for name in node.output:
            if name and name not in kept:
                model.graph.output.append(onnx.ValueInfoProto(name=name))
    shapes = {name: value.shape for name, value in zip(names, inputs)}
    return [np.asarray(value) for value in compile(model, shapes=shapes, engine="interp").run(inputs)]


def first_difference(module: Any, path: str, inputs: list[np.ndarray], names: list[str], bound: float) -> str:
    """In words. Values are matched by what they are, since a file's names and order are not the module's."""
    ours = file_values(path, inputs, names)
    if ours is None:
        return "the values between were not compared: the package onnx is not installed"
    by_size: dict[int, list[np.ndarray]] = {}
    for value in [*ours, *inputs]:
        if value.dtype != object:
            by_size.setdefault(value.size, []).append(value)

    def is_there(value: np.ndarray) -> bool:
        # Exporters turn dimensions round and put them together: sorted elements do not mind.
        wanted = np.sort(value.astype(np.float64), axis=None)
        return any(off(np.sort(other.astype(np.float64), axis=None), wanted) <= bound for other in by_size.get(value.size, []))

    matched: dict[Any, bool] = {}
    candidates = []
    for node, what, value in source_values(module, inputs):
        matched[node] = node.op == "placeholder" or is_there(value)
        operands = [operand for operand in node.all_input_nodes if operand in matched]
        if not matched[node] and all(matched[operand] for operand in operands):
            candidates.append((node, what))
    # Those that an exporter has put together with others are not there either, but what reads them is.
    for node, what in candidates:
        readers = [user for user in node.users if user in matched]
        if not readers or not all(matched[user] for user in readers):
            return f"the first operator of the module whose result the file does not have: {what}"
    return "every value of the module is in the file but for the outputs: they are other ones, or in another order"


def verify(
    path: str, against: str, *, batches: tuple[int, ...] = (2, 3), bound: float = 1e-4, seed: int = 0, report: Any = print
) -> int:
    """Compares; answers an exit code: 0 the same, 2 different."""
    import torch

    from . import compile

    module = module_of(against)
    compiled = compile(path)
    is_open = any(not isinstance(extent, int) for info in compiled.inputs for extent in info.shape)
    names = [info.name for info in compiled.inputs]
    for batch in batches if is_open else batches[:1]:
        inputs = generated(compiled.inputs, batch, seed + batch)
        with torch.no_grad():
            want = flat(module(*(torch.from_numpy(value) for value in inputs)))
        got = [np.asarray(value) for value in compiled.run(inputs)]
        sizes = ", ".join("x".join(map(str, value.shape)) or "scalar" for value in inputs)
        if len(got) != len(want):
            report(f"DIFFERENT for {sizes}: {len(got)} outputs, and the module has {len(want)}")
            return DIFFERENT
        for i, (ours, theirs) in enumerate(zip(got, want)):
            distance = off(ours, theirs)
            if distance <= bound:
                continue
            report(
                f"DIFFERENT for {sizes}: output {i} '{compiled.outputs[i].name}' {list(ours.shape)} is off by {distance:.3g} of its largest"
                f" magnitude (bound {bound:g}); the module's is {list(theirs.shape)}"
            )
            report("  " + first_difference(module, path, inputs, names, bound))
            return DIFFERENT
        report(
            f"same for {sizes}: {len(got)} outputs, at most {max(map(off, got, want), default=0.0):.1e} of the largest magnitude"
        )
    if not is_open:
        report("  the file fixes all sizes, so one batch size was tried")
    return SAME


def main() -> int:
    parser = argparse.ArgumentParser(prog="tessera verify")
    parser.add_argument("model")
    parser.add_argument("--against", required=True)
    parser.add_argument("--bound", type=float, default=1e-4)
    parser.add_argument("--batch", type=int, action="append")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    try:
        import torch  # noqa: F401
    except ImportError:
        print(
            "error TSR-4084: PyTorch is not installed for this Python\n"
            "  legal: a Python with torch and tessera: TESSERA_PYTHON=/path/to/python",
            file=sys.stderr,
        )
        return FAILED
    try:
        return verify(given.model, given.against, batches=tuple(given.batch or (2, 3)), bound=given.bound, seed=given.seed)
    except Error as error:
        print(f"error {error}", file=sys.stderr)
        return FAILED


if __name__ == "__main__":
    sys.exit(main())
