"""The backend of torch.compile: parameters are frozen, what the reader refuses is left to PyTorch."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily

import tessera

from .. import _native
from ._decompositions import decompositions
from ._records import NotRecorded, is_part, program
from ._report import Region, Report, new_report
from ._views import Views

# numpy has no type of its own for these: the same bits as integers.
_CARRIED = {torch.bfloat16: (torch.int16, ml_dtypes.bfloat16), torch.float8_e4m3fn: (torch.uint8, ml_dtypes.float8_e4m3fn),
            torch.float8_e5m2: (torch.uint8, ml_dtypes.float8_e5m2)}
_CARRIER_OF = {np.dtype(numpy): (np.dtype(f"i{np.dtype(numpy).itemsize}"), dtype) for dtype, (_, numpy) in _CARRIED.items()}
_MOST_CHANGES = 4  # of frozen parameters, each of which compiles the graph again
_MOST = 8192  # what an open size may be, where nothing bounds it


def _to_numpy(tensor: torch.Tensor) -> np.ndarray:
    tensor = tensor.detach().resolve_neg()
    if tensor.dtype in _CARRIED:
        carrier, dtype = _CARRIED[tensor.dtype]
        return tensor.contiguous().view(carrier).numpy().view(dtype)
    return tensor.numpy()


def _to_torch(array: np.ndarray) -> torch.Tensor:
    if array.dtype in _CARRIER_OF:
        carrier, dtype = _CARRIER_OF[array.dtype]
        return torch.from_numpy(array.view(carrier)).view(dtype)
    return torch.from_numpy(array)


def backend(graph: torch.fx.GraphModule, example_inputs: Sequence[Any], *, mode: str | None = None,
            options: Mapping[str, Any] | None = None) -> Callable[..., Any]:
    """What torch.compile(backend="tessera") calls. ``options`` are those of :func:`tessera.compile` (``precision``,
    ``numerics``, ``opt_level``, ``threads``, ``target``, ``disable_passes``), and ``max_size``: the most that a size may
    be that is open and that nothing bounds (8192)."""
    options = dict(options or {})
    known = {"precision", "fp32", "numerics", "opt_level", "threads", "target", "disable_passes", "max_size"}
    if unknown := options.keys() - known:
        raise ValueError(f"tessera has no options {sorted(unknown)}; legal: {sorted(known)}")
    if mode not in (None, "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"):
        raise ValueError(f"there is no mode {mode!r}")
    if torch.is_grad_enabled() and any(isinstance(x, torch.Tensor) and x.requires_grad for x in example_inputs):
        report = new_report()
        report.operators = sum(node.op.startswith("call") for node in graph.graph.nodes)
        report.reason = "gradients are wanted; call the model under torch.no_grad() or torch.inference_mode()"
        warnings.warn(f"tessera leaves a graph to PyTorch: {report.reason}", stacklevel=2)
        return graph.forward

    from torch._dynamo.backends.common import aot_autograd

    frozen = {i: x for i, x in enumerate(example_inputs) if _is_static(x)}

    def compile_inner(inner: torch.fx.GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
        report = new_report()
        placeholders = [node for node in inner.graph.nodes if node.op == "placeholder"]
        constants = {}
        if len(placeholders) == len(example_inputs):
            changed = _changed_inputs()
            constants = {i: x for i, x in frozen.items() if i not in changed}
        with unset_fake_temporarily():  # the parameters are real
            return _Compiled(inner, constants, options, report)

    return aot_autograd(fw_compiler=compile_inner, inference_compiler=compile_inner, decompositions=decompositions(),
                        keep_inference_input_mutations=False)(graph, example_inputs)


def _is_static(value: Any) -> bool:
    """Parameters and buffers of modules, which Dynamo hands over as inputs."""
    return isinstance(value, torch.Tensor) and value.device.type == "cpu" and (
        isinstance(value, torch.nn.Parameter) or getattr(value, "_dynamo_static_input_type", None) is not None
    )


def _changed_inputs() -> set[int]:
    """Those that the graph writes into: buffers that count or remember."""
    context = torch._guards.TracingContext.try_get()
    metadata = context.fw_metadata if context is not None else None
    if metadata is None:
        return set()
    return {i for i, info in enumerate(metadata.input_info) if info.mutates_data or info.mutates_metadata}


def _version(tensor: torch.Tensor) -> int:
    return -1 if tensor.is_inference() else tensor._version


class _Compiled:
    """A graph of ATen operators that runs: compiled for the parameters that it had, again when they are others."""

    _boxed_call = True  # takes its inputs as one list, as aot_autograd hands them over

    def __init__(self, graph: torch.fx.GraphModule, constants: Mapping[int, torch.Tensor], options: Mapping[str, Any],
                 report: Report) -> None:
        self._graph, self._options, self._report = graph, options, report
        report.operators = sum(node.op == "call_function" and not is_part(node) for node in graph.graph.nodes)
        self._freeze(constants)

    def _freeze(self, constants: Mapping[int, torch.Tensor]) -> None:
        # What inference mode made has no version that would tell when it changes.
        constants = {i: tensor for i, tensor in constants.items() if not tensor.is_inference()}
        # The tensors are kept, so that no other one gets their memory.
        self._constants = [(i, tensor, tensor.data_ptr(), _version(tensor)) for i, tensor in constants.items()]
        self._report.frozen = len(self._constants)
        names = [node.name for node in self._graph.graph.nodes if node.op == "placeholder"]
        self._run = compiled_graph(self._graph, {names[i]: tensor for i, tensor in constants.items()}, self._options, self._report)

    def __call__(self, inputs: list[Any]) -> Any:
        for i, _, address, version in self._constants:
            if inputs[i].data_ptr() != address or _version(inputs[i]) != version:
                self._report.recompiled += 1
                # What changes again and again is no constant.
                frozen = self._report.recompiled <= _MOST_CHANGES
                self._freeze({i: inputs[i] for i, *_ in self._constants} if frozen else {})
                break
        self._report.runs += 1
        values = list(inputs)
        inputs.clear()
        return self._run(values)


def compiled_graph(module: torch.fx.GraphModule, frozen: Mapping[str, torch.Tensor], options: Mapping[str, Any],
                   report: Report) -> Callable[[list[Any]], Any]:
    """A function of the graph's inputs, as a list."""
    report.regions.clear()
    report.eager.clear()
    try:
        run = _Region(module, frozen, options, report)
        if not run.refused:
            return run
        report.eager.extend(run.refused)
        return _split(module, frozen, options, report)
    except (NotRecorded, tessera.Error) as error:
        report.regions.clear()
        report.reason = str(error)
        warnings.warn(f"tessera leaves a graph to PyTorch: {error}", stacklevel=2)
        return lambda values: module(*values)


def _split(module: torch.fx.GraphModule, frozen: Mapping[str, torch.Tensor], options: Mapping[str, Any],
           report: Report) -> Callable[[list[Any]], Any]:
    """What can be compiled becomes modules of its own in a graph that PyTorch runs."""
    from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
    from torch.fx.passes.operator_support import OperatorSupportBase

    refused = {name for name, _, _ in report.eager}

    class Support(OperatorSupportBase):
        def is_node_supported(self, submodules: Any, node: torch.fx.Node) -> bool:
            source = node.args[0] if is_part(node) else node
            return node.op == "call_function" and source.name not in refused and _gives_tensors(node)

    whole = CapabilityBasedPartitioner(module, Support(), allows_single_node_partition=False).partition_and_fuse()
    for node in list(whole.graph.nodes):
        if node.op != "call_module":
            continue
        part = getattr(whole, node.target)
        names = [n.name for n in part.graph.nodes if n.op == "placeholder"]
        own = {name: frozen[arg.name] for name, arg in zip(names, node.args) if arg.op == "placeholder" and arg.name in frozen}
        try:
            region = _Region(part, own, options, report)
        except (NotRecorded, tessera.Error) as error:
            report.eager.append((node.name, "a region", str(error)))
            continue
        if region.refused:
            report.eager.extend(region.refused)
            continue
        setattr(whole, node.target, region.as_module())
    whole.recompile()
    return lambda values: whole(*values)


def _gives_tensors(node: torch.fx.Node) -> bool:
    value = node.meta.get("val")
    values = value if isinstance(value, (list, tuple)) else [value]
    return all(v is None or isinstance(v, torch.Tensor) for v in values)


class _Region:
    """A graph that is compiled as a whole; or, `refused`, why it is not."""

    def __init__(self, module: torch.fx.GraphModule, frozen: Mapping[str, torch.Tensor], options: Mapping[str, Any],
                 report: Report) -> None:
        graph = module.graph
        self._module, self._report = module, report
        placeholders = [node for node in graph.nodes if node.op == "placeholder"]
        (self._results,) = next(node for node in graph.nodes if node.op == "output").args
        self._is_single = isinstance(self._results, torch.fx.Node)
        results = [self._results] if self._is_single else list(self._results)
        operators = sum(node.op == "call_function" and not is_part(node) for node in graph.nodes)
        self._views = Views(module, results)
        if self._views.lost:
            raise NotRecorded(f"'{self._views.lost[0]}' is a view of an input that depends on what is computed")
        computed = list(self._views.sources)  # what the model gives
        places = {node.name: i for i, node in enumerate(placeholders)}
        self._inputs = [i for i, n in enumerate(placeholders) if isinstance(n.meta.get("val"), torch.Tensor) and n.name not in frozen]
        self._symbols = _symbols(placeholders, self._inputs, options.get("max_size", _MOST))
        # Symbols that are inputs themselves, and no tensor's size.
        self._numbers: dict[str, int] = {}
        for i, value in enumerate(node.meta.get("val") for node in placeholders):
            if isinstance(value, (torch.SymInt, torch.SymFloat)) and value.node.expr.is_symbol:
                self._numbers[str(value.node.expr)] = i
        self._how: list[tuple[str, Any]] = []
        for result in results:
            value = result.meta.get("val") if isinstance(result, torch.fx.Node) else result
            if not isinstance(result, torch.fx.Node):
                self._how.append(("is", result))
            elif result.name in places:
                self._how.append(("input", places[result.name]))
            elif result in self._views.nodes:
                self._how.append(("view", self._views.nodes.index(result)))
            elif isinstance(value, torch.Tensor):
                if result not in computed:
                    computed.append(result)
                self._how.append(("output", computed.index(result)))
            elif isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
                self._how.append(("number", self._number(value)))
            elif value is None or isinstance(value, (bool, int, float)):
                self._how.append(("is", value))
            else:
                raise NotRecorded(f"the result '{result.name}' is a {type(value).__name__}")
        self.refused: list[tuple[str, str, str]] = []
        self._model = None
        if not computed:
            return
        ranges = {name: (lo, hi) for name, (_, _, lo, hi, _) in self._symbols.items()}
        archive = program(graph, computed, frozen, ranges)
        hints = {name: (hint, hint, 1) for name, (_, _, _, _, hint) in self._symbols.items()}
        self.refused = _native.refused_aten_nodes(archive, hints)
        if self.refused:
            return
        settings = {name: value for name, value in options.items() if name != "max_size"}
        settings.setdefault("threads", torch.get_num_threads())
        start = time.perf_counter()
        self._model = tessera.compile(archive, dims=ranges, **settings)
        report.regions.append(Region(operators, time.perf_counter() - start, ranges))

    def _number(self, value: torch.SymInt | torch.SymFloat | torch.SymBool) -> tuple[type, Any]:
        expr = value.node.expr
        if missing := {str(s) for s in expr.free_symbols} - self._symbols.keys() - self._numbers.keys():
            raise NotRecorded(f"the result {expr} depends on {', '.join(sorted(missing))}, which no input has as a size by itself")
        return int if isinstance(value, torch.SymInt) else float if isinstance(value, torch.SymFloat) else bool, expr

    def __call__(self, values: list[Any]) -> Any:
        sizes = {name: values[i] for name, i in self._numbers.items()}
        for name, (i, axis, lo, hi, _) in self._symbols.items():
            sizes[name] = values[i].shape[axis]
            if not lo <= sizes[name] <= hi:
                self._report.eager_runs += 1
                return self._module(*values)
        outputs: list[torch.Tensor] = []
        if self._model is not None:
            outputs = [_to_torch(array) for array in self._model.run([_to_numpy(values[i]) for i in self._inputs])]
        views = self._views(values, outputs[: len(self._views.sources)])
        results = []
        for how, what in self._how:
            if how == "output":
                results.append(outputs[what])
            elif how == "view":
                results.append(views[what])
            elif how == "input":
                results.append(values[what])
            elif how == "number":
                kind, expr = what
                results.append(kind(sizes[str(expr)] if expr.is_symbol else expr.subs({s: sizes[str(s)] for s in expr.free_symbols})))
            else:
                results.append(what)
        return results[0] if self._is_single else tuple(results)

    def as_module(self) -> torch.nn.Module:
        region = self

        class Compiled(torch.nn.Module):
            def forward(self, *values: Any) -> Any:
                return region(list(values))

        return Compiled()


def _symbols(placeholders: list[torch.fx.Node], inputs: list[int], most: int) -> dict[str, tuple[int, int, int, int, int]]:
    """Of each open size: an input and a dimension that have it, the least and the greatest value, and an example."""
    symbols: dict[str, tuple[int, int, int, int, int]] = {}
    for i in inputs:
        for axis, size in enumerate(placeholders[i].meta["val"].shape):
            if not isinstance(size, torch.SymInt) or not size.node.expr.is_symbol or str(size.node.expr) in symbols:
                continue
            bounds = size.node.shape_env.bound_sympy(size.node.expr)
            lo = int(bounds.lower) if bounds.lower.is_Integer else 0
            hi = int(bounds.upper) if bounds.upper.is_Integer else max(most, lo)
            hint = size.node.hint if size.node.has_hint() else lo
            symbols[str(size.node.expr)] = (i, axis, lo, min(hi, max(most, lo)), int(hint))
    return symbols
