"""Post-training quantisation (docs/quantisation.md), by the names of ONNX Runtime's quantiser.

    class Photos(tessera.CalibrationDataReader):
        def __init__(self, photos):
            self.photos = iter(photos)

        def get_next(self):
            photo = next(self.photos, None)
            return None if photo is None else {"input": photo}

    report = tessera.quantize_static("model.onnx", "model_int8.onnx", Photos(photos))
    report = tessera.quantize_dynamic("model.onnx", "model_int8.onnx")

Scripts written for ``onnxruntime.quantization`` run with these names: readers of theirs are readers here. What is more
here: a layer becomes integers only where that is measured to be faster (``all_layers=True`` quantises the others as
well), and a model that would not be faster is not written (``min_speedup=0`` writes it anyway).
"""

from __future__ import annotations

import abc
import enum
import json
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Union

import numpy as np

from . import _native, _options
from ._arrays import carrier, to_array
from ._dtypes import NUMBER
from ._errors import Error
from ._flag_words import in_python
from ._info import TensorInfo, infos

if TYPE_CHECKING:
    import onnx

__all__ = ["CalibrationDataReader", "CalibrationMethod", "QuantFormat", "QuantType", "quantize_dynamic", "quantize_static"]

Size = Union[int, "tuple[int, int]", "tuple[int, int, int]"]
Dims = Mapping[str, Size]
Shapes = Mapping[str, Sequence[Size]]
Source = Union[str, "os.PathLike[str]", "onnx.ModelProto"]


class CalibrationDataReader(metaclass=abc.ABCMeta):
    """Samples of a model's inputs, one after the other. Whatever has a method ``get_next`` is one."""

    @classmethod
    def __subclasshook__(cls, subclass: type) -> bool:
        return callable(getattr(subclass, "get_next", None)) or NotImplemented

    @abc.abstractmethod
    def get_next(self) -> Mapping[str, Any] | None:
        """The arrays of the next sample by the names of inputs; None behind the last one."""

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return self

    def __next__(self) -> Mapping[str, Any]:
        sample = self.get_next()
        if sample is None:
            raise StopIteration
        return sample


class CalibrationMethod(enum.Enum):
    MinMax = 0
    Entropy = 1
    Percentile = 2
    Mse = 100


class QuantType(enum.Enum):
    QInt8 = 0
    QUInt8 = 1
    QInt4 = 5


class QuantFormat(enum.Enum):
    QOperator = 0
    QDQ = 1


_METHODS = {"MinMax": "minmax", "Entropy": "entropy", "Percentile": "percentile", "Mse": "mse"}


def _name(value: Any, kind: type[enum.Enum], argument: str) -> str:
    """Members of ONNX Runtime's enumerations have these names as well."""
    name = value if isinstance(value, str) else getattr(value, "name", None)
    if name not in kind.__members__:
        raise Error(f"{argument} is {value!r:.100}", id="TSR-4085", legal=", ".join(kind.__members__))
    return name


class _Samples:
    """A reader's samples on the disk, as each is needed several times and all may not fit in memory."""

    def __init__(self, reader: Any, inputs: Sequence[TensorInfo], folder: str) -> None:
        if not callable(getattr(reader, "get_next", None)):
            raise Error(f"calibration_data_reader is a {type(reader).__name__}", id="TSR-4085",
                        legal="an object with a method get_next, which gives {name: array} and in the end None")
        self.inputs = inputs
        self.folder = folder
        self.count = 0
        self.first: list[np.ndarray] = []
        while (sample := reader.get_next()) is not None:
            arrays = self._arrays(sample)
            self.first = self.first or arrays
            np.savez(self._path(self.count), *(carrier(array) for array in arrays))
            self.count += 1
        if self.count == 0:
            raise Error("the reader has no samples", id="TSR-6240", legal="at least one",
                        hint="a reader that was read before begins behind its last sample")
        self.types = [array.dtype for array in self.first]

    def _path(self, number: int) -> str:
        return os.path.join(self.folder, f"{number}.npz")

    def _arrays(self, sample: Any) -> list[np.ndarray]:
        if not isinstance(sample, Mapping):
            raise Error(f"sample {self.count + 1} is a {type(sample).__name__}", id="TSR-6240", legal="{name: array}")
        names = [info.name for info in self.inputs]
        for name in [*(name for name in names if name not in sample), *(name for name in sample if name not in names)]:
            what = "nothing for" if name in names else "an array for"
            raise Error(f"sample {self.count + 1} has {what} '{name}'", id="TSR-6240", legal=", ".join(names))
        arrays = [to_array(sample[info.name], info) for info in self.inputs]
        for info, array in zip(self.inputs, arrays):
            if array.dtype != info.dtype:
                raise Error(f"sample {self.count + 1}: '{info.name}' is {array.dtype.name}", id="TSR-6240", legal=f"{info}")
        return arrays

    def __call__(self, number: int) -> list[tuple[np.ndarray, int]]:
        with np.load(self._path(number)) as arrays:
            return [(arrays[f"arr_{i}"], NUMBER[dtype]) for i, dtype in enumerate(self.types)]


# What the command calls what is an argument here. Of options with a word behind them, what words are; None: any.
_ARGUMENTS = {
    "--activations": ("activation_type", {"u8": "QUInt8", "i8": "QInt8"}), "--adaround": ("ada_round=True", {}),
    "--all": ("all_layers=True", {}), "--bits": ("weight_type", {"4": "QInt4", "8": "QInt8"}),
    "--calib": ("calibration_data_reader", {}), "--equalize": ("equalize=True", {}), "--granularity": ("granularity", None),
    "--group": ("group", None), "--keep": ("nodes_to_exclude", None), "--max-drop": ("max_drop", None),
    "--method": ("calibrate_method", {"minmax": "MinMax", "mse": "Mse", "entropy": "Entropy", "percentile": "Percentile"}),
    "--min-speedup": ("min_speedup", None), "--min-sqnr": ("min_sqnr", None), "--per-layer": ("per_layer", None),
    "--percentile": ("percentile", None),
}
_SCHEMES = {"static": "quantize_static", "dynamic": "quantize_dynamic", "weight-only": "quantize_dynamic(weight_only=True)"}


def _in_python(text: str) -> str:
    """What is said of the command's options, said of arguments."""
    text = re.sub(r"--scheme (weight-only|static|dynamic)", lambda found: _SCHEMES[found[1]], text)
    text = text.replace("--method mse, percentile or entropy", "calibrate_method Mse, Percentile or Entropy")
    text = text.replace(", and --scale, --mean and --std for pictures", "")
    return in_python(text, _ARGUMENTS)


def _quantize(model: Source, output: str | os.PathLike[str], reader: Any, settings: _native.QuantizeSettings, *,
              dims: Any, shapes: Any, labels: Any, threads: int | None, target: str | None) -> dict[str, Any]:
    processor = "native" if target is None else _options.text("target", target)
    num_threads = 0 if threads is None else _options.number("threads", threads)
    given_dims, given_shapes = _options.dims_and_shapes(dims, shapes)
    classes = [] if labels is None else [_options.number("an element of labels", label, 64) for label in labels]
    is_path = isinstance(model, (str, os.PathLike))
    if not is_path and not hasattr(model, "SerializeToString"):
        raise TypeError(f"model_input is a {type(model).__name__}; expected a path or an onnx.ModelProto")
    if not isinstance(output, (str, os.PathLike)):
        raise TypeError(f"model_output is a {type(output).__name__}; expected a path")
    with tempfile.TemporaryDirectory() as folder:
        path = os.fspath(model) if is_path else os.path.join(folder, "model.onnx")
        if not is_path:
            with open(path, "wb") as file:
                file.write(model.SerializeToString())
        try:
            border = _native.border(path, "", "")[0]
            samples = None if reader is None else _Samples(reader, infos((*entry[:3], (), 0) for entry in border), folder)
            if samples is not None:
                _take_sizes(border, samples.first, given_dims, given_shapes)
            report = _native.quantize(path, os.fspath(output), settings, samples or (lambda number: []),
                                      samples.count if samples else 0, processor, num_threads, given_dims, given_shapes, classes)
        except Error as error:
            raise Error(_in_python(error.message), id=error.id, node=error.node, legal=_in_python(error.legal),
                        hint=_in_python(error.hint), reason=error.reason) from None
    return json.loads(report)


def _take_sizes(border: Any, first: Sequence[np.ndarray], dims: dict[str, tuple[int, int, int]], shapes: dict[str, list[int]]) -> None:
    """Sizes that the model and the caller leave open are those of the first sample."""
    for (name, _, declared, names), array in zip(border, first):
        if name in shapes:
            continue
        if declared is None:
            shapes[name] = list(array.shape)
            continue
        for axis, size in enumerate(array.shape[:len(declared)]):
            if declared[axis] < 0 and names[axis] not in dims and f"{name}[{axis}]" not in dims:
                dims[names[axis] or f"{name}[{axis}]"] = (size, size, 1)


def _is_flag(value: Any) -> bool:
    return isinstance(value, (bool, np.bool_))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


_FLAG, _NUMBER = (_is_flag, bool, "True or False"), (_is_number, float, "a number")
_TEXT = (lambda value: isinstance(value, str), str, "a string")
_FURTHER = {
    "equalize": _FLAG, "ada_round": _FLAG, "correct_bias": _FLAG, "sensitivity": _FLAG, "zero_points": _FLAG, "max_drop": _NUMBER,
    "min_sqnr": _NUMBER, "min_speedup": _NUMBER, "per_layer": _TEXT, "granularity": _TEXT,
    "group": (lambda value: isinstance(value, (int, np.integer)) and not isinstance(value, bool), int, "a whole number"),
}


def _checked(argument: str, value: Any, kind: tuple[Any, Any, str]) -> Any:
    accepts, convert, expected = kind
    if not accepts(value):
        raise TypeError(f"{argument} is {value!r:.100}, a {type(value).__name__}; expected {expected}")
    return convert(value)


def _patterns(nodes: Any) -> list[str]:
    if nodes is None or isinstance(nodes, str):
        return [nodes] if nodes else []
    if not isinstance(nodes, Iterable):
        raise TypeError(f"nodes_to_exclude is a {type(nodes).__name__}; expected names of layers")
    return [_checked("a name in nodes_to_exclude", node, _TEXT) for node in nodes]


def _settings(settings: _native.QuantizeSettings, more: Mapping[str, Any]) -> _native.QuantizeSettings:
    for name, value in more.items():
        if name not in _FURTHER:
            raise TypeError(f"unexpected keyword argument {name!r}; known: {', '.join(sorted(_FURTHER))}")
        setattr(settings, name, _checked(name, value, _FURTHER[name]))
    return settings


def quantize_static(
    model_input: Source,
    model_output: str | os.PathLike[str],
    calibration_data_reader: Any,
    quant_format: Any = QuantFormat.QDQ,
    *,
    per_channel: bool = True,
    activation_type: Any = QuantType.QUInt8,
    weight_type: Any = QuantType.QInt8,
    calibrate_method: Any = CalibrationMethod.MinMax,
    nodes_to_exclude: Iterable[str] | None = None,
    percentile: float = 99.99,
    dims: Dims = {},
    shapes: Shapes = {},
    labels: Iterable[int] | None = None,
    all_layers: bool = False,
    threads: int | None = None,
    target: str | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Activations and weights become bytes, by the ranges that samples show. Writes FILE.onnx (pairs of QuantizeLinear and
    DequantizeLinear), FILE.graph or a module, and returns the report of ``tessera quantize --json``.

    ``dims`` and ``shapes`` say sizes as those of :func:`compile`: those with ranges stay open, others that the model leaves
    open are those of the first sample. ``labels`` are the right places of the first output's largest element, one for each
    sample. ``nodes_to_exclude`` are layers that stay in f32, with ``*`` and ``?``. Further arguments are those of the command:
    ``equalize``, ``ada_round``, ``correct_bias``, ``sensitivity``, ``max_drop``, ``min_sqnr``, ``min_speedup``,
    ``per_layer`` (the text of such a file).
    """
    if _name(quant_format, QuantFormat, "quant_format") != "QDQ":
        raise Error("quant_format is QOperator", id="TSR-4085", legal="QDQ")
    if _name(weight_type, QuantType, "weight_type") != "QInt8":
        raise Error(f"weight_type is {weight_type}", id="TSR-4085", legal="QInt8")
    if calibration_data_reader is None:
        raise Error("quantize_static without a calibration_data_reader", id="TSR-4085", legal="samples of the model's inputs",
                    hint="quantize_dynamic needs none")
    settings = _native.QuantizeSettings()
    settings.method = _METHODS[_name(calibrate_method, CalibrationMethod, "calibrate_method")]
    settings.activations = {"QInt8": "i8", "QUInt8": "u8"}.get(_name(activation_type, QuantType, "activation_type"), "")
    settings.granularity = "channel" if _checked("per_channel", per_channel, _FLAG) else "tensor"
    settings.percentile = _checked("percentile", percentile, _NUMBER)
    settings.keep = _patterns(nodes_to_exclude)
    settings.all = _checked("all_layers", all_layers, _FLAG)
    return _quantize(model_input, model_output, calibration_data_reader, _settings(settings, more), dims=dims, shapes=shapes,
                     labels=labels, threads=threads, target=target)


def quantize_dynamic(
    model_input: Source,
    model_output: str | os.PathLike[str],
    *,
    per_channel: bool = True,
    weight_type: Any = QuantType.QInt8,
    nodes_to_exclude: Iterable[str] | None = None,
    weight_only: bool = False,
    calibration_data_reader: Any = None,
    dims: Dims = {},
    shapes: Shapes = {},
    labels: Iterable[int] | None = None,
    all_layers: bool = False,
    threads: int | None = None,
    target: str | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Weights become integers, and activations bytes by the range that they have in each run; with ``weight_only``
    activations stay in f32 and weights have groups of 4 (``weight_type`` QInt4) or 8 bits (QInt8).

    Needs no samples; with a reader the report says what is lost on them. ``dims`` and ``shapes`` say sizes that the model
    leaves open, as those of :func:`compile`. Further arguments as :func:`quantize_static`, and ``group`` and ``zero_points``.
    """
    settings = _native.QuantizeSettings()
    weights = _name(weight_type, QuantType, "weight_type")
    if weights != "QInt8" and not (weight_only and weights == "QInt4"):
        raise Error(f"weight_type is {weight_type}", id="TSR-4085", legal="QInt8, or with weight_only QInt4")
    settings.scheme = "weight-only" if _checked("weight_only", weight_only, _FLAG) else "dynamic"
    settings.bits = 4 if weights == "QInt4" else 8
    settings.granularity = "group" if weight_only else "channel" if _checked("per_channel", per_channel, _FLAG) else "tensor"
    settings.keep = _patterns(nodes_to_exclude)
    settings.all = _checked("all_layers", all_layers, _FLAG)
    return _quantize(model_input, model_output, calibration_data_reader, _settings(settings, more), dims=dims, shapes=shapes,
                     labels=labels, threads=threads, target=target)
