"""The interface of ``onnx.backend``: what the official test suite and programs for several back ends use.

    import onnx, tessera.backend

    prepared = tessera.backend.prepare(onnx.load("model.onnx"))
    (y,) = prepared.run([x])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.backend.base import Backend, BackendRep

import tessera

# Of tessera.compile; other keyword arguments (the suite's rtol and atol) are for somebody else.
_OPTIONS = ("target", "precision", "fp32", "numerics", "opt_level", "threads", "dims", "shapes", "disable_passes", "engine")


class TesseraRep(BackendRep):
    """A prepared model. One with open sizes is compiled when it runs (`tessera.OpenModel`)."""

    def __init__(self, model: onnx.ModelProto, options: dict[str, Any]) -> None:
        defaults = {tensor.name for tensor in model.graph.initializer}
        defaults |= {tensor.values.name for tensor in model.graph.sparse_initializer}
        self._all_inputs = [info.name for info in model.graph.input]
        self._inputs = [name for name in self._all_inputs if name not in defaults]
        self._model = tessera.compile(model, **options)

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Runs the model: a sequence of inputs in the order of the graph's, or a mapping from names. Inputs and outputs
        have the forms that `tessera.Model.run` takes and gives."""
        if isinstance(inputs, np.ndarray):
            inputs = [inputs]
        if not isinstance(inputs, dict):
            inputs = self._named(list(inputs))
        return tuple(self._model.run(inputs))

    def _named(self, inputs: list[Any]) -> dict[str, Any]:
        for names in (self._inputs, self._all_inputs):
            if len(inputs) == len(names):
                return {name: value for name, value in zip(names, inputs) if name in self._inputs}
        raise tessera.Error(
            f"the model has {len(self._inputs)} inputs and {len(inputs)} were given", id="TSR-6301",
            legal="one array for each input",
        )


class TesseraBackend(Backend):
    """The standard interface; all methods are class methods."""

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether models run on the device, as ONNX writes it: "CPU", "CPU:0"."""
        return device.split(":")[0] == "CPU"

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Whether the device is there and the model has nothing that Tessera does not support."""
        if not cls.supports_device(device):
            return False
        options = {name: kwargs[name] for name in ("dims", "shapes") if name in kwargs}
        try:
            tessera.compile(model, engine="interp", **options)
        except tessera.Error as error:
            # "We do not do this", as opposed to "this model is wrong".
            return error.reason != "unsupported"
        return True

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> TesseraRep:
        """Compiles the model. Keyword arguments with the names of `tessera.compile`'s are its options."""
        cls._require(device)
        return TesseraRep(model, {name: kwargs[name] for name in _OPTIONS if name in kwargs})

    @classmethod
    def run_model(cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[Any, ...]:
        """Compiles the model and runs it once."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[np.dtype, tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Runs one node. Without `outputs_info` (dtype and shape of each output), integer operands of rank 0 and 1 are
        compiled in: they are what shapes are computed from. A list or tuple of arrays is a sequence, a dict a map."""
        given = dict(zip((name for name in node.input if name), _sequence(inputs)))
        given = {name: value if _is_structure(value) else np.asarray(value) for name, value in given.items()}
        constants = {}
        if outputs_info is None:
            constants = {
                name: value for name, value in given.items()
                if isinstance(value, np.ndarray) and value.ndim < 2 and value.dtype.kind in "iu"
            }
        graph = helper.make_graph(
            [node], node.op_type,
            [helper.make_value_info(name, _type_of(name, value)) for name, value in given.items() if name not in constants],
            _outputs(node, outputs_info), [numpy_helper.from_array(value, name) for name, value in constants.items()],
        )
        opset = kwargs.get("opset_version", onnx.defs.onnx_opset_version())
        opsets = [helper.make_opsetid("", opset)]
        if node.domain not in ("", "ai.onnx"):
            opsets.append(helper.make_opsetid(node.domain, kwargs.get("domain_version", 1)))
        model = helper.make_model(graph, opset_imports=opsets)
        if outputs_info is None:
            model = onnx.shape_inference.infer_shapes(model, data_prop=True)
        run_inputs = {name: value for name, value in given.items() if name not in constants}
        return cls.run_model(model, run_inputs, device, **kwargs)

    @classmethod
    def _require(cls, device: str) -> None:
        if not cls.supports_device(device):
            raise tessera.Error(f"there is no device {device!r}", id="TSR-4033", legal='"CPU"')


def _sequence(inputs: Any) -> list[Any]:
    return [inputs] if isinstance(inputs, np.ndarray) else list(inputs)


def _is_structure(value: Any) -> bool:
    return value is None or isinstance(value, Mapping) or (
        isinstance(value, (list, tuple)) and len(value) > 0 and all(isinstance(item, np.ndarray) for item in value)
    )


def _type_of(name: str, value: Any) -> onnx.TypeProto:
    """The type that a value would be declared with."""
    if isinstance(value, np.ndarray):
        return helper.make_tensor_type_proto(_element_type(value.dtype), list(value.shape))
    if isinstance(value, (list, tuple)):
        return helper.make_sequence_type_proto(helper.make_tensor_type_proto(_element_type(value[0].dtype), None))
    if not value:
        raise tessera.Error(
            f"operand '{name}' is {value!r}, which does not say its type", id="TSR-6309", legal="values of a type that shows",
            hint="use prepare with a model that declares the type",
        )
    keys, values = np.asarray(list(value.keys())), np.asarray(list(value.values()))
    if values.dtype == np.float64:  # Python's numbers
        values = values.astype(np.float32)
    elements = helper.make_tensor_type_proto(_element_type(values.dtype), [])
    return onnx.TypeProto(map_type=onnx.TypeProto.Map(key_type=_element_type(keys.dtype), value_type=elements))


def _element_type(dtype: Any) -> int:
    dtype = np.dtype(dtype)
    return onnx.TensorProto.STRING if dtype.kind in "OSTU" else helper.np_dtype_to_tensor_dtype(dtype)


def _outputs(node: onnx.NodeProto, infos: Any) -> list[onnx.ValueInfoProto]:
    names = [name for name in node.output if name]
    if infos is None:
        return [onnx.ValueInfoProto(name=name) for name in names]
    return [
        helper.make_tensor_value_info(name, _element_type(dtype), list(shape)) for name, (dtype, shape) in zip(names, infos)
    ]


is_compatible = TesseraBackend.is_compatible
prepare = TesseraBackend.prepare
run_model = TesseraBackend.run_model
run_node = TesseraBackend.run_node
supports_device = TesseraBackend.supports_device
