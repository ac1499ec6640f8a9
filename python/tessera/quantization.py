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
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Union

import numpy as np

from . import _native, _options
from ._arrays import carrier, to_array
from ._dtypes import NUMBER
from ._errors import Error
from ._info import TensorInfo, infos

if TYPE_CHECKING:
    import onnx

__all__ = ["CalibrationDataReader", "CalibrationMethod", "QuantFormat", "QuantType", "quantize_dynamic", "quantize_static"]

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


class _Random:
    """Numbers that measure times and hint at losses, for the schemes that need no samples."""

    def __init__(self, inputs: Sequence[TensorInfo]) -> None:
        random = np.random.default_rng(0)
        self.first = []
        for info in inputs:
            if info.shape is None or not all(isinstance(dim, int) for dim in info.shape):
                raise Error(f"input '{info.name}' leaves sizes open", id="TSR-4085", legal="shapes={'%s': (...)}" % info.name)
            is_real = info.dtype.kind in "fV"
            numbers = random.random(info.shape) if is_real else random.integers(0, 2 if info.dtype.kind == "b" else 10, info.shape)
            self.first.append(numbers.astype(info.dtype))
        self.count = 1

    def __call__(self, number: int) -> list[tuple[np.ndarray, int]]:
        return [(carrier(array), NUMBER[array.dtype]) for array in self.first]


def _quantize(model: Source, output: str | os.PathLike[str], reader: Any, settings: _native.QuantizeSettings, *,
              shapes: Mapping[str, Sequence[int]], threads: int | None, target: str | None) -> dict[str, Any]:
    processor = "native" if target is None else _options.text("target", target)
    num_threads = 0 if threads is None else _options.number("threads", threads)
    with tempfile.TemporaryDirectory() as folder:
        path = os.fspath(model) if isinstance(model, (str, os.PathLike)) else os.path.join(folder, "model.onnx")
        if not isinstance(model, (str, os.PathLike)):
            with open(path, "wb") as file:
                file.write(model.SerializeToString())
        inputs = [TensorInfo(info.name, info.dtype, tuple(shapes[info.name])) if info.name in shapes else info
                  for info in infos(_border_inputs(path))]
        samples = _Random(inputs) if reader is None else _Samples(reader, inputs, folder)
        fixed = {info.name: list(array.shape) for info, array in zip(inputs, samples.first)
                 if info.name in shapes or info.shape is None or not all(isinstance(dim, int) for dim in info.shape)}
        return json.loads(_native.quantize(path, os.fspath(output), settings, samples, samples.count, processor, num_threads,
                                           fixed))


def _border_inputs(path: str) -> list[tuple[Any, ...]]:
    return [(name, dtype, None if dims is None else tuple(dim if dim >= 0 else names[axis] or "?" for axis, dim in enumerate(dims)), (), 0)
            for name, dtype, dims, names in _native.border(path, "", "")[0]]


def _settings(settings: _native.QuantizeSettings, more: Mapping[str, Any]) -> _native.QuantizeSettings:
    legal = {"keep", "equalize", "ada_round", "correct_bias", "sensitivity", "max_drop", "min_sqnr", "min_speedup", "per_layer",
             "granularity", "group", "zero_points"}
    for name, value in more.items():
        if name not in legal:
            raise TypeError(f"unexpected keyword argument {name!r}; known: {', '.join(sorted(legal))}")
        setattr(settings, name, value)
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
    all_layers: bool = False,
    threads: int | None = None,
    target: str | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Activations and weights become bytes, by the ranges that samples show. Writes FILE.onnx (pairs of QuantizeLinear and
    DequantizeLinear), FILE.graph or a module, and returns the report of ``tessera quantize --json``.

    ``nodes_to_exclude`` are layers that stay in f32, with ``*`` and ``?``. Further arguments are those of the command:
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
    settings.granularity = "channel" if per_channel else "tensor"
    settings.percentile = percentile
    settings.keep = [nodes_to_exclude] if isinstance(nodes_to_exclude, str) else list(nodes_to_exclude or ())
    settings.all = all_layers
    return _quantize(model_input, model_output, calibration_data_reader, _settings(settings, more), shapes={}, threads=threads,
                     target=target)


def quantize_dynamic(
    model_input: Source,
    model_output: str | os.PathLike[str],
    *,
    per_channel: bool = True,
    weight_type: Any = QuantType.QInt8,
    nodes_to_exclude: Iterable[str] | None = None,
    weight_only: bool = False,
    calibration_data_reader: Any = None,
    shapes: Mapping[str, Sequence[int]] = {},
    all_layers: bool = False,
    threads: int | None = None,
    target: str | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Weights become integers, and activations bytes by the range that they have in each run; with ``weight_only``
    activations stay in f32 and weights have groups of 4 (``weight_type`` QInt4) or 8 bits (QInt8).

    Needs no samples; with a reader the report says what is lost on them. ``shapes`` are those of inputs that leave sizes
    open. Further arguments as :func:`quantize_static`, and ``group`` and ``zero_points``.
    """
    settings = _native.QuantizeSettings()
    weights = _name(weight_type, QuantType, "weight_type")
    if weights != "QInt8" and not (weight_only and weights == "QInt4"):
        raise Error(f"weight_type is {weight_type}", id="TSR-4085", legal="QInt8, or with weight_only QInt4")
    settings.scheme = "weight-only" if weight_only else "dynamic"
    settings.bits = 4 if weights == "QInt4" else 8
    settings.granularity = "group" if weight_only else "channel" if per_channel else "tensor"
    settings.keep = [nodes_to_exclude] if isinstance(nodes_to_exclude, str) else list(nodes_to_exclude or ())
    settings.all = all_layers
    settings.correct_bias = calibration_data_reader is not None
    return _quantize(model_input, model_output, calibration_data_reader, _settings(settings, more), shapes=shapes, threads=threads,
                     target=target)
