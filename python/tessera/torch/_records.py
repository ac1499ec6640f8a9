"""An fx graph of ATen operators as the archive that torch.export.save writes: the same schema, of which only what the
reader reads is there. Nothing is decided here."""

from __future__ import annotations

import io
import json
import math
import operator
import struct
import zipfile
from collections.abc import Mapping
from typing import Any

import sympy
import torch

# ScalarType, MemoryFormat and Layout of the schema.
DTYPES = {
    torch.uint8: 1, torch.int8: 2, torch.int16: 3, torch.int32: 4, torch.int64: 5, torch.float16: 6, torch.float32: 7,
    torch.float64: 8, torch.complex32: 9, torch.complex64: 10, torch.complex128: 11, torch.bool: 12, torch.bfloat16: 13,
    torch.uint16: 28, torch.float8_e4m3fn: 29, torch.float8_e5m2: 30, torch.float8_e4m3fnuz: 31, torch.float8_e5m2fnuz: 32,
    torch.uint32: 34, torch.uint64: 35,
}
STRIDED = 7
CPU = {"type": "cpu", "index": None}


class NotRecorded(Exception):
    """Something that a record cannot say."""


def size(value: Any) -> dict[str, Any]:
    if isinstance(value, torch.SymInt):
        expr = value.node.expr
        if not expr.is_number:
            return {"as_expr": {"expr_str": sympy.printing.repr.srepr(expr), "hint": None}}
    return {"as_int": int(value)}


def tensor_meta(tensor: torch.Tensor) -> dict[str, Any]:
    if tensor.layout != torch.strided or tensor.device.type not in ("cpu", "meta"):
        raise NotRecorded(f"a tensor on {tensor.device}, {tensor.layout}")
    return {
        "dtype": DTYPES.get(tensor.dtype, 0), "sizes": [size(s) for s in tensor.shape], "requires_grad": False, "device": CPU,
        "strides": [], "storage_offset": {"as_int": 0}, "layout": STRIDED,
    }


def _number(value: float) -> Any:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value


class _Recorder:
    def __init__(self) -> None:
        self.tensors: dict[str, Any] = {}
        self.sizes: dict[str, Any] = {}

    def value(self, name: str, value: Any) -> dict[str, Any]:
        """What a node gives, as an argument; its type is noted."""
        if value is None:
            return {"as_none": True}
        if isinstance(value, torch.Tensor):
            self.tensors[name] = tensor_meta(value)
            return {"as_tensor": {"name": name}}
        if isinstance(value, (torch.SymInt, int)) and not isinstance(value, bool):
            self.sizes[name] = size(value)
            return {"as_sym_int": {"as_name": name}}
        if isinstance(value, (torch.SymBool, bool)):
            return {"as_sym_bool": {"as_name": name}}
        if isinstance(value, (torch.SymFloat, float)):
            return {"as_sym_float": {"as_name": name}}
        raise NotRecorded(f"'{name}' is a {type(value).__name__}")

    def argument(self, arg: Any) -> dict[str, Any]:
        if arg is None:
            return {"as_none": True}
        if isinstance(arg, torch.fx.Node):
            return self.reference(arg)
        if isinstance(arg, bool):
            return {"as_bool": arg}
        if isinstance(arg, int):
            return {"as_int": arg}
        if isinstance(arg, float):
            return {"as_float": _number(arg)}
        if isinstance(arg, str):
            return {"as_string": arg}
        if isinstance(arg, torch.dtype):
            return {"as_scalar_type": DTYPES.get(arg, 0)}
        if isinstance(arg, torch.device):
            return {"as_device": {"type": arg.type, "index": arg.index}}
        if isinstance(arg, torch.layout):
            return {"as_layout": STRIDED}
        if isinstance(arg, torch.memory_format):
            return {"as_memory_format": 0}
        if isinstance(arg, complex):
            return {"as_complex": {"real": arg.real, "imag": arg.imag}}
        if isinstance(arg, (list, tuple)):
            return self.items(list(arg))
        raise NotRecorded(f"an argument of the type {type(arg).__name__}")

    def reference(self, node: torch.fx.Node) -> dict[str, Any]:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            return {"as_tensor": {"name": node.name}}
        for types, kind in ((torch.SymInt, "as_sym_int"), (torch.SymBool, "as_sym_bool"), (torch.SymFloat, "as_sym_float"),
                            (bool, "as_sym_bool"), (int, "as_sym_int"), (float, "as_sym_float")):
            if isinstance(value, types):
                return {kind: {"as_name": node.name}}
        raise NotRecorded(f"'{node.name}' is a {type(value).__name__}")

    def items(self, args: list[Any]) -> dict[str, Any]:
        if any(isinstance(a, torch.fx.Node) and isinstance(a.meta.get("val"), torch.Tensor) for a in args):
            if all(a is not None for a in args):
                return {"as_tensors": [{"name": a.name} for a in args]}
            none = {"as_none": True}
            return {"as_optional_tensors": [none if a is None else {"as_tensor": {"name": a.name}} for a in args]}
        if any(isinstance(a, torch.fx.Node) for a in args):
            return {"as_sym_ints": [{"as_name": a.name} if isinstance(a, torch.fx.Node) else {"as_int": int(a)} for a in args]}
        if all(isinstance(a, bool) for a in args) and args:
            return {"as_bools": args}
        if all(isinstance(a, int) for a in args):
            return {"as_ints": args}
        if all(isinstance(a, (int, float)) for a in args):
            return {"as_floats": [_number(float(a)) for a in args]}
        if all(isinstance(a, str) for a in args):
            return {"as_strings": args}
        raise NotRecorded("a list of several kinds")

    def node(self, node: torch.fx.Node) -> dict[str, Any]:
        target = node.target
        if isinstance(target, torch._ops.OpOverload):
            name = f"torch.ops.{target}"
            names = [argument.name for argument in target._schema.arguments]
            given = [(names[i], arg) for i, arg in enumerate(node.args)] + list(node.kwargs.items())
        else:
            name = f"{getattr(target, '__module__', '')}.{getattr(target, '__name__', target)}"
            given = [(f"x{i}", arg) for i, arg in enumerate(node.args)] + list(node.kwargs.items())
        value = node.meta.get("val")
        if isinstance(value, (list, tuple)):
            names = self.parts(node, len(value))
            outputs = [self.value(part, v) for part, v in zip(names, value)]
        else:
            outputs = [self.value(node.name, value)]
        try:
            inputs = [{"name": n, "arg": self.argument(arg)} for n, arg in given]
        except NotRecorded as error:
            # The reader refuses the node for it, and judges the others.
            name, inputs = f"{name}: {error}", []
        return {"target": name, "inputs": inputs, "outputs": outputs, "metadata": {}, "name": node.name}

    @staticmethod
    def parts(node: torch.fx.Node, count: int) -> list[str]:
        """A node's results by the names of the nodes that take them out of it."""
        names = [f"{node.name}_unused_{i}" for i in range(count)]
        for user in node.users:
            if user.target is operator.getitem and names[user.args[1]].startswith(f"{node.name}_unused_"):
                names[user.args[1]] = user.name
        return names


def is_part(node: torch.fx.Node) -> bool:
    return node.op == "call_function" and node.target is operator.getitem and isinstance(node.args[0], torch.fx.Node)


def _same_parts(graph: torch.fx.Graph) -> dict[str, str]:
    """Results that several nodes take out, by their first names."""
    first: dict[tuple[str, int], str] = {}
    same = {}
    for node in graph.nodes:
        if is_part(node):
            same[node.name] = first.setdefault((node.args[0].name, node.args[1]), node.name)
    return same


def program(graph: torch.fx.Graph, outputs: list[torch.fx.Node], frozen: Mapping[str, torch.Tensor],
            ranges: Mapping[str, tuple[int, int | None]]) -> bytes:
    """The archive of a graph whose placeholders in `frozen` are these tensors, and whose results are `outputs`.
    NotRecorded when a record cannot say what is in the graph."""
    recorder = _Recorder()
    inputs, nodes, weights = [], [], {}
    same = _same_parts(graph)
    for node in graph.nodes:
        if node.op == "placeholder":
            argument = recorder.value(node.name, node.meta.get("val"))
            if node.name in frozen:
                weights[node.name] = frozen[node.name]
                inputs.append({"parameter": {"arg": {"name": node.name}, "parameter_name": node.name}})
            else:
                inputs.append({"user_input": {"arg": argument}})
        elif node.op == "get_attr":
            weights[node.name] = _attribute(graph, node.target)
            recorder.value(node.name, weights[node.name])
            constant = {"arg": {"name": node.name}, "tensor_constant_name": node.name}
            inputs.append({"tensor_constant": constant})
        elif node.op == "call_function":
            if not is_part(node):
                nodes.append(recorder.node(node))
            elif same[node.name] != node.name:
                alias = {"name": "self", "arg": {"as_tensor": {"name": same[node.name]}}}
                value = recorder.value(node.name, node.meta["val"])
                nodes.append({"target": "torch.ops.aten.alias.default", "inputs": [alias], "outputs": [value], "metadata": {},
                              "name": node.name})
        elif node.op != "output":
            raise NotRecorded(f"a node of the kind {node.op}")
    results = [{"user_output": {"arg": recorder.reference(node)}} for node in outputs]
    document = {
        "graph_module": {
            "graph": {"inputs": [], "outputs": [], "nodes": nodes, "tensor_values": recorder.tensors,
                      "sym_int_values": recorder.sizes},
            "signature": {"input_specs": inputs, "output_specs": results},
            "module_call_graph": [],
        },
        "opset_version": {}, "range_constraints": {s: {"min_val": lo, "max_val": hi} for s, (lo, hi) in ranges.items()},
        "schema_version": {"major": 8, "minor": 0},
    }
    return _archive(document, weights)


def _attribute(graph: torch.fx.Graph, target: str) -> torch.Tensor:
    value = graph.owning_module
    for part in target.split("."):
        value = getattr(value, part)
    if not isinstance(value, torch.Tensor):
        raise NotRecorded(f"the attribute '{target}' is a {type(value).__name__}")
    return value


def _archive(document: Any, weights: Mapping[str, torch.Tensor]) -> bytes:
    stream = io.BytesIO()
    config = {}
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:

        def write(name: str, contents: Any) -> None:
            # What is stored begins at a multiple of 64 bytes, so that it can be used where it lies.
            info = zipfile.ZipInfo(f"model/{name}")
            info.extra = b""
            header = stream.tell() + 30 + len(info.filename)
            info.extra = struct.pack("<HH", 0x4254, (-header - 4) % 64) + bytes((-header - 4) % 64)
            archive.writestr(info, contents)

        write("archive_format", "pt2")
        write("models/model.json", json.dumps(document))
        for i, (name, tensor) in enumerate(weights.items()):
            dense = tensor.detach().contiguous()
            meta = tensor_meta(dense)
            meta["strides"] = [{"as_int": stride} for stride in dense.stride()]
            config[name] = {"path_name": f"weight_{i}", "is_param": True, "use_pickle": False, "tensor_meta": meta}
            flat = dense.reshape(-1)
            raw = flat.view(torch.uint8).numpy() if flat.numel() else b""
            write(f"data/weights/weight_{i}", memoryview(raw))
        write("data/weights/model_weights_config.json", json.dumps({"config": config}))
        write("data/constants/model_constants_config.json", json.dumps({"config": {}}))
    return stream.getvalue()
