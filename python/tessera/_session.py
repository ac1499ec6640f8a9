"""The interface of ONNX Runtime's Python package: programs that use it change one line.

    import tessera as ort
    session = ort.InferenceSession("model.onnx")
    (y,) = session.run(None, {"x": x})
"""

from __future__ import annotations

import ctypes
import enum
import json
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from . import _options
from ._dtypes import NUMBER, OBJECT
from ._errors import Error
from ._info import TensorInfo
from ._model import Model, in_order
from ._open_model import OpenModel

PROVIDERS = ("TesseraExecutionProvider", "CPUExecutionProvider")
"""Two names of the same thing: code for this machine's processor."""

# The element types that ONNX calls otherwise than numpy.
_ONNX_NAMES = {
    "float32": "float", "float64": "double", "float8_e4m3fn": "float8e4m3fn", "float8_e4m3fnuz": "float8e4m3fnuz",
    "float8_e5m2": "float8e5m2", "float8_e5m2fnuz": "float8e5m2fnuz", "float8_e8m0fnu": "float8e8m0",
    "float4_e2m1fn": "float4e2m1", "object": "string",
}


class GraphOptimizationLevel(enum.IntEnum):
    """How much a session optimises: `opt_level` 0, 1, 2, 3 of `tessera.compile`."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_ALL = 99


class ExecutionMode(enum.IntEnum):
    """Operators run one after another, each on all threads, in either mode."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class SessionOptions:
    """What a session is made with. A name that is none of these is an AttributeError.

    Of effect: ``graph_optimization_level``, ``intra_op_num_threads`` (0: as many as there are processors),
    ``enable_profiling`` and ``profile_file_prefix``, ``optimized_model_filepath`` (where the compiled module is
    written), ``add_free_dimension_override_by_name``, and ``add_session_config_entry`` for the arguments of
    `tessera.compile`: "tessera.target", "tessera.precision", "tessera.fp32", "tessera.numerics".

    Without effect, since there is nothing that they could turn on or off: memory is planned while compiling
    (``enable_cpu_mem_arena``, ``enable_mem_pattern``, ``enable_mem_reuse``), operators do not run beside each other
    (``execution_mode``, ``inter_op_num_threads``), and nothing is logged (``log_...``, ``logid``).
    """

    __slots__ = (
        "graph_optimization_level", "intra_op_num_threads", "inter_op_num_threads", "execution_mode", "enable_profiling",
        "profile_file_prefix", "optimized_model_filepath", "enable_cpu_mem_arena", "enable_mem_pattern", "enable_mem_reuse",
        "log_severity_level", "log_verbosity_level", "logid", "_dims", "_entries",
    )

    def __init__(self) -> None:
        self.graph_optimization_level = GraphOptimizationLevel.ORT_ENABLE_ALL
        self.intra_op_num_threads = 0
        self.inter_op_num_threads = 0
        self.execution_mode = ExecutionMode.ORT_SEQUENTIAL
        self.enable_profiling = False
        self.profile_file_prefix = "tessera_profile_"
        self.optimized_model_filepath = ""
        self.enable_cpu_mem_arena = self.enable_mem_pattern = self.enable_mem_reuse = True
        self.log_severity_level, self.log_verbosity_level, self.logid = -1, 0, ""
        self._dims: dict[str, int] = {}
        self._entries: dict[str, str] = {}

    def add_free_dimension_override_by_name(self, dim_name: str, dim_value: int) -> None:
        """A value for a dimension that the model leaves open."""
        self._dims[dim_name] = dim_value

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Entries of "tessera." are arguments of `tessera.compile`; others are kept and mean nothing."""
        if key.startswith("tessera.") and key.removeprefix("tessera.") not in ("target", "precision", "fp32", "numerics"):
            raise Error(
                f"there is no entry {key!r}", id="TSR-4034",
                legal='"tessera.target", "tessera.precision", "tessera.fp32", "tessera.numerics"',
            )
        self._entries[key] = value

    def get_session_config_entry(self, key: str) -> str:
        return self._entries[key]

    def _compile_arguments(self) -> dict[str, Any]:
        level = self.graph_optimization_level
        if level not in list(GraphOptimizationLevel):
            raise Error(
                f"graph_optimization_level is {level!r:.100}", id="TSR-4034", legal="a value of GraphOptimizationLevel",
            )
        given = {key.removeprefix("tessera."): value for key, value in self._entries.items() if key.startswith("tessera.")}
        return {"opt_level": min(int(level), 3), "threads": self._threads(), "dims": dict(self._dims), **given}

    def _threads(self) -> int | None:
        return _options.number("intra_op_num_threads", self.intra_op_num_threads) or None


class NodeArg:
    """An input or output: ``name``, ``type`` as ONNX Runtime writes it, ``shape``."""

    def __init__(self, info: TensorInfo) -> None:
        self.name = info.name
        self.type = _type_text(info)
        # A dimension without a name of its own is None; we call it by its place, or "?".
        self.shape = [] if info.shape is None or info.wrappers else [
            dim if isinstance(dim, int) or not (dim in ("", "?") or dim.endswith("]")) else None for dim in info.shape]

    def __repr__(self) -> str:
        return f"NodeArg(name='{self.name}', type='{self.type}', shape={self.shape})"


def _type_text(info: TensorInfo) -> str:
    if info.dtype is None:
        return "unknown"  # no tensor, in a model that leaves sizes open: its compiled models know
    if info.kind == "map":
        return f"map({_element(info.key)},tensor({_element(info.dtype)}))"
    if info.wrappers:
        return f"{'seq' if info.kind == 'sequence' else 'optional'}({_type_text(info.inside())})"
    return f"tensor({_element(info.dtype)})"


def _element(dtype: np.dtype) -> str:
    return _ONNX_NAMES.get(dtype.name, dtype.name)


class OrtValue:
    """A tensor in memory, for :class:`IOBinding`: a numpy array."""

    def __init__(self, array: Any) -> None:
        self._array = array

    @staticmethod
    def ortvalue_from_numpy(numpy_obj: np.ndarray, device_type: str = "cpu", device_id: int = 0) -> OrtValue:
        """A copy of the array."""
        _check_device(device_type)
        return OrtValue(np.array(numpy_obj, order="C"))

    @staticmethod
    def ortvalue_from_shape_and_type(
        shape: Sequence[int], element_type: Any, device_type: str = "cpu", device_id: int = 0,
    ) -> OrtValue:
        _check_device(device_type)
        return OrtValue(np.zeros(tuple(shape), element_type))

    def numpy(self) -> np.ndarray:
        return self._array

    def shape(self) -> list[int]:
        return list(self._array.shape)

    def data_type(self) -> str:
        return f"tensor({_element(self._array.dtype)})"

    def data_ptr(self) -> int:
        return self._array.ctypes.data

    def device_name(self) -> str:
        return "cpu"

    def has_value(self) -> bool:
        return self._array is not None

    def is_tensor(self) -> bool:
        return isinstance(self._array, np.ndarray)

    def update_inplace(self, np_arr: np.ndarray) -> None:
        np.copyto(self._array, np_arr, casting="no")


class IOBinding:
    """Inputs and places for results, for :meth:`InferenceSession.run_with_iobinding`: nothing is copied."""

    def __init__(self, session: InferenceSession) -> None:
        self._session = session
        self._inputs: dict[str, Any] = {}
        self._outputs: dict[str, Any] = {}  # None: a new array
        self._results: list[Any] = []

    def bind_cpu_input(self, name: str, arr_on_cpu: Any) -> None:
        self._inputs[self._known(name, self._session._inputs)] = arr_on_cpu

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        self.bind_cpu_input(name, ortvalue.numpy())

    def bind_input(
        self, name: str, device_type: str, device_id: int, element_type: Any, shape: Sequence[int], buffer_ptr: int,
    ) -> None:
        """Memory of the caller's, which has to live until after the run."""
        _check_device(device_type)
        self.bind_cpu_input(name, _array_at(buffer_ptr, element_type, shape))

    def bind_output(
        self, name: str, device_type: str = "cpu", device_id: int = 0, element_type: Any = None,
        shape: Sequence[int] | None = None, buffer_ptr: int | None = None,
    ) -> None:
        """Without a pointer: a new array in each run."""
        _check_device(device_type)
        place = None if buffer_ptr is None else _array_at(buffer_ptr, element_type, shape)
        self._outputs[self._known(name, self._session._outputs)] = place

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        self._outputs[self._known(name, self._session._outputs)] = ortvalue.numpy()

    def copy_outputs_to_cpu(self) -> list[Any]:
        """The results of the latest run, in the order in which outputs were bound."""
        return self._results

    def get_outputs(self) -> list[OrtValue]:
        return [OrtValue(result) for result in self._results]

    def clear_binding_inputs(self) -> None:
        self._inputs.clear()

    def clear_binding_outputs(self) -> None:
        self._outputs.clear()

    def synchronize_inputs(self) -> None:
        """Nothing to wait for: a run is over when it returns."""

    synchronize_outputs = synchronize_inputs

    @staticmethod
    def _known(name: str, args: list[NodeArg]) -> str:
        if name not in (arg.name for arg in args):
            raise Error(f"there is no input or output '{name}' to bind", id="TSR-4011", legal=", ".join(arg.name for arg in args))
        return name


def _check_device(device_type: str) -> None:
    if device_type != "cpu":
        raise Error(f"device_type is {device_type!r}", id="TSR-4034", legal='"cpu"', hint="copy the array to the host")


def _array_at(pointer: int, element_type: Any, shape: Sequence[int] | None) -> np.ndarray:
    if element_type is None or shape is None:
        raise Error("memory was bound without its element_type and shape", id="TSR-4034", legal="all three, or none")
    dtype = np.dtype(element_type)
    if dtype not in NUMBER or dtype == OBJECT:
        raise Error(f"element_type is {element_type!r}", id="TSR-4034", legal="a type of numbers")
    count = int(np.prod(shape, dtype=np.int64))
    memory = (ctypes.c_char * (count * dtype.itemsize)).from_address(pointer)
    return np.frombuffer(memory, dtype, count).reshape(shape)


class InferenceSession:
    """A model ready to run, with the calls of ``onnxruntime.InferenceSession``.

    ``path_or_bytes`` is an ONNX model or a compiled module, as a path or as bytes. A model that leaves sizes open is
    compiled at the first run with each new shape, as :class:`tessera.OpenModel` says.

    ``providers`` are names, or pairs of a name and options: all that there are run on the processor (`PROVIDERS`).
    Others are left out with a warning, as ONNX Runtime does it, and options are for providers that are not here.

    What differs: errors are :class:`tessera.Error`; all outputs are computed, also where a run asks for some; there is no
    ``run_async``.
    """

    def __init__(
        self, path_or_bytes: str | bytes | os.PathLike[str], sess_options: SessionOptions | None = None,
        providers: Iterable[Any] | None = None, provider_options: Any = None, **kwargs: Any,
    ) -> None:
        begin = time.perf_counter()
        _check_providers(providers)
        if sess_options is not None and not isinstance(sess_options, SessionOptions):
            raise Error(
                f"sess_options is of the type {type(sess_options).__name__}", id="TSR-4034", legal="a tessera.SessionOptions",
                hint="onnxruntime's own options stay with onnxruntime: make them of tessera.SessionOptions()",
            )
        self._options = SessionOptions() if sess_options is None else sess_options
        self._model = _read(path_or_bytes, self._options)
        self._inputs = [NodeArg(info) for info in self._model.inputs]
        self._outputs = [NodeArg(info) for info in self._model.outputs]
        self._scalars = {info.name for info in self._model.inputs if info.shape == () and not info.wrappers}
        if self._options.optimized_model_filepath:
            self._model.save(self._options.optimized_model_filepath)
        self._profile = _Profile(self._options.profile_file_prefix, begin) if self._options.enable_profiling else None
        if self._profile:
            self._profile.add("session_initialization", begin)

    def get_inputs(self) -> list[NodeArg]:
        return self._inputs

    def get_outputs(self) -> list[NodeArg]:
        return self._outputs

    def get_providers(self) -> list[str]:
        return list(PROVIDERS)

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        return {name: {} for name in PROVIDERS}

    def get_session_options(self) -> SessionOptions:
        return self._options

    def run(self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: None = None) -> list[Any]:
        """Runs once; answers the outputs that are named, in that order, or all of them."""
        if run_options is not None:
            raise Error("run_options were given", id="TSR-4034", legal="None: there is nothing in a run to choose")
        if not isinstance(input_feed, Mapping):
            raise Error(
                f"the inputs are of the type {type(input_feed).__name__}", id="TSR-6308", legal="a mapping from names to arrays",
                hint="write run(None, {'name': x})",
            )
        places = self._numbers(output_names)
        results = self._run(input_feed, None)
        return results if places is None else [results[place] for place in places]

    def io_binding(self) -> IOBinding:
        return IOBinding(self)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: None = None) -> None:
        names = list(iobinding._outputs)
        places = self._numbers(names)
        given = {name: array for name, array in iobinding._outputs.items() if array is not None}
        results = self._run(iobinding._inputs, given)
        iobinding._results = [results[place] for place in places or range(len(results))]

    def run_with_ort_values(
        self, output_names: Sequence[str] | None, input_dict_ort_values: Mapping[str, OrtValue], run_options: None = None,
    ) -> list[OrtValue]:
        feed = {name: value.numpy() for name, value in input_dict_ort_values.items()}
        return [OrtValue(result) for result in self.run(output_names, feed, run_options)]

    def end_profiling(self) -> str:
        """Writes what ran since the session was made, for chrome://tracing and https://ui.perfetto.dev; answers the name of
        the file, "" where profiling is off."""
        profile, self._profile = self._profile, None
        return profile.write() if profile else ""

    def _numbers(self, output_names: Sequence[str] | None) -> list[int] | None:
        if output_names is None:
            return None
        if isinstance(output_names, str):
            raise Error("the names of outputs are one text", id="TSR-4011", legal="a list of names, or None for all outputs")
        output_names = list(output_names)
        if not output_names:
            return None
        numbers = {arg.name: i for i, arg in enumerate(self._outputs)}
        unknown = [name for name in output_names if name not in numbers]
        if unknown:
            raise Error(f"there is no output '{unknown[0]}'", id="TSR-4011", legal=", ".join(numbers))
        return [numbers[name] for name in output_names]

    def _run(self, feed: Mapping[str, Any], outputs: Mapping[str, Any] | None) -> list[Any]:
        begin = time.perf_counter()
        # One element for a number is what examples of ONNX Runtime give, which does not look at the rank there.
        feed = {name: value.numpy() if isinstance(value, OrtValue) else value for name, value in feed.items()}
        for name in self._scalars & feed.keys():
            if isinstance(feed[name], np.ndarray) and feed[name].size == 1:
                feed[name] = feed[name].reshape(())
        if not self._profile:
            return self._model.run(feed, outputs)
        model = self._model
        if isinstance(model, OpenModel):
            names = [arg.name for arg in self._inputs]
            model = model._model_for(in_order(feed, names, "input", required=[False] * len(names)))
        model._engine.set_traced(True)
        results = model.run(feed, outputs)
        self._profile.add("model_run", begin)
        self._profile.add_kernels(model)
        return results


class _Profile:
    """Events of a session, in the form of Chrome's traces."""

    def __init__(self, prefix: str, begin: float) -> None:
        self._path = f"{prefix}_{time.strftime('%Y-%m-%d_%H-%M-%S')}.json"
        self._begin = begin
        self._events: list[dict[str, Any]] = []

    def add(self, name: str, begin: float) -> None:
        now = time.perf_counter()
        self._events.append({
            "cat": "Session", "pid": os.getpid(), "tid": threading.get_native_id(), "dur": round(1e6 * (now - begin)),
            "ts": round(1e6 * (begin - self._begin)), "ph": "X", "name": name, "args": {},
        })

    def add_kernels(self, model: Model) -> None:
        """Those of the runs since the last time."""
        kernels, calls = model.metadata["kernels"], model.metadata["calls"]
        for call, begin, end, thread in model._engine.take_events():
            kernel = kernels[call]
            self._events.append({
                "cat": "Node", "pid": os.getpid(), "tid": thread, "dur": round((end - begin) / 1e3, 3),
                "ts": round(begin / 1e3 - 1e6 * self._begin, 3), "ph": "X", "name": f"{kernel['loc'] or kernel['name']}_kernel_time",
                "args": {"kernel": kernel["name"], "rule": kernel["rule"], "number": calls[call]},
            })

    def write(self) -> str:
        try:
            with open(self._path, "w", encoding="utf-8") as file:
                json.dump(self._events, file)
        except OSError as error:
            raise Error(
                f"'{self._path}' cannot be written: {error.strerror}", id="TSR-6102", legal="a profile_file_prefix that can be written",
            ) from error
        return self._path


def _check_providers(providers: Iterable[Any] | None) -> None:
    for provider in providers or ():
        name = provider[0] if isinstance(provider, (tuple, list)) and len(provider) == 2 else provider
        if not isinstance(name, str):
            raise Error(f"a provider is {provider!r:.100}", id="TSR-4034", legal="a name, or a pair of a name and options")
        if name not in PROVIDERS:
            warnings.warn(f"provider '{name}' is not here; there are {', '.join(PROVIDERS)}", stacklevel=3)


_ELF = b"\x7fELF"


def _read(source: Any, options: SessionOptions) -> Model:
    from . import compile, load

    if isinstance(source, (bytes, bytearray, memoryview)):
        if bytes(source[:4]) == _ELF:
            return _load_bytes(source, lambda path: load(path, threads=options._threads()))
    elif isinstance(source, (str, os.PathLike)):
        try:
            with open(source, "rb") as file:
                is_module = file.read(4) == _ELF
        except OSError:
            is_module = False  # `compile` says what is wrong with the file
        if is_module:
            return load(source, threads=options._threads())
    return compile(source, **options._compile_arguments())


def _load_bytes(contents: Any, load: Callable[[str], Model]) -> Model:
    """A module in memory goes through a file without a name."""
    descriptor = os.memfd_create("tessera_module")
    with os.fdopen(descriptor, "wb") as file:
        file.write(contents)
        file.flush()
        return load(f"/proc/self/fd/{descriptor}")


def get_available_providers() -> list[str]:
    return list(PROVIDERS)


def get_all_providers() -> list[str]:
    return list(PROVIDERS)


def get_device() -> str:
    return "CPU"
