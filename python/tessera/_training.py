"""Training of a model's weights by compiled steps, as ``tessera train`` does it (docs/training.md)."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Union

import numpy as np

from . import _native, _options
from ._dtypes import NUMBER
from ._errors import Error
from ._flag_words import in_python
from ._graph import Graph
from .parallel import DeviceMesh, rank
from .plots import draw_losses, pyplot

Size = Union[int, "tuple[int, int]", "tuple[int, int, int]"]

# Options of the command whose arguments have other names, or whose words are not texts.
_ARGUMENTS: dict[str, tuple[str, Mapping[str, str] | None]] = {
    "--distill": ("teacher", None), "--distill-features": ("features", None), "--freeze": ("frozen", None),
    "--ignore": ("ignored", None), "--qat": ("qat=True", {}), "--nesterov": ("nesterov=True", {}),
    "--classes-last": ("classes_last=True", {}), "--in-order": ("shuffle=False", {}), "--with-step": ("with_step=True", {}),
} | {
    f"--{name.replace('_', '-')}": (name, None)
    for name in (
        "loss", "label_smoothing", "optimizer", "lr", "schedule", "warmup", "momentum", "weight_decay", "clip_norm", "epochs",
        "batch", "seed", "leaves", "zero", "micro_batches", "pipeline", "chunks", "products", "loss_scale", "distill_weight",
        "temperature", "feature_weight", "prune", "importance", "qat_bits", "checkpoint", "checkpoint_steps", "resume", "step",
        "scale", "max_memory",
    )
}


def _array(what: str, value: Any) -> tuple[np.ndarray, int]:
    array = np.asarray(value, order="C")
    if array.dtype not in NUMBER:
        array = array.astype(array.dtype.newbyteorder("="), copy=False)
    if array.dtype not in NUMBER or array.dtype.hasobject:
        raise Error(f"{what} are {array.dtype.name}[{','.join(map(str, array.shape))}]", id="TSR-6230", legal="rows of numbers")
    return array, NUMBER[array.dtype]


def _rows(name: str, samples: Any, targets: Any) -> list[tuple[np.ndarray, int]]:
    return [_array(f"{name}samples", samples), _array(f"{name}targets", targets)]


def _path_of(model: Any, name: str, folder: str) -> str:
    if isinstance(model, (str, os.PathLike)):
        return os.fspath(model)
    if isinstance(model, Graph):
        path = os.path.join(folder, f"{name}.graph")
        model.save(path)
        return path
    if hasattr(model, "SerializeToString"):
        path = os.path.join(folder, f"{name}.onnx")
        with open(path, "wb") as file:
            file.write(model.SerializeToString())
        return path
    raise TypeError(f"{name} is a {type(model).__name__}; expected a path, a tessera.graph.Graph or an onnx.ModelProto")


def _processes(mesh: DeviceMesh | str | None, micro_batches: int, pipeline: str, chunks: int) -> _native.PipelineSettings | None:
    """The stages that processes are; None: this one trains alone."""
    settings = _native.PipelineSettings()
    settings.micro_batches, settings.kind = _options.number("micro_batches", micro_batches, 64), _options.text("pipeline", pipeline)
    settings.chunks = _options.number("chunks", chunks, 64)
    if mesh is None:
        if settings.micro_batches != 1:
            raise Error(f"micro_batches={micro_batches} without a mesh", id="TSR-4080", legal='mesh="stage=2", as many processes')
        return None
    grid = mesh if isinstance(mesh, DeviceMesh) else DeviceMesh(mesh)
    if any(name not in ("data", "stage", "model") for name in grid.names) or list(grid.names) != sorted(
        grid.names, key=("data", "stage", "model").index
    ):
        raise Error(f"the mesh {grid} for training", id="TSR-2110", legal="some of data=N,stage=N,model=N, in this order")
    grid._require_size()
    settings.stages = grid.size("stage") if "stage" in grid.names else 1
    settings.tensor = grid.size("model") if "model" in grid.names else 1
    return settings


def _progress(epochs: int) -> Callable[[dict[str, Any]], None]:
    def show(report: dict[str, Any]) -> None:
        line = f"epoch {report['epoch']:3}/{epochs}  loss {report['loss']:.5f}"
        if report["test_total"]:
            line += f"  test {100 * report['test_right'] / report['test_total']:6.2f} %"
        elif report["test_loss"]:
            line += f"  test loss {report['test_loss']:.5f}"
        print(f"{line}  {report['steps_per_second']:.0f} steps/s", flush=True)

    return show


def train(
    model: Any,
    samples: Any,
    targets: Any,
    output: str | os.PathLike[str] | None = None,
    *,
    test: tuple[Any, Any] | None = None,
    loss: str = "cross_entropy",
    label_smoothing: float = 0.0,
    ignored: int | None = None,
    classes_last: bool = False,
    optimizer: str = "adam",
    lr: float = 1e-3,
    schedule: str = "constant",
    warmup: int = 0,
    momentum: float = 0.0,
    nesterov: bool = False,
    weight_decay: float = 0.0,
    clip_norm: float = 0.0,
    frozen: Iterable[str] = (),
    epochs: int = 20,
    batch: int = 32,
    shuffle: bool = True,
    seed: int = 0,
    leaves: int = 0,
    mesh: DeviceMesh | str | None = None,
    zero: int = 0,
    micro_batches: int = 1,
    pipeline: str = "1f1b",
    chunks: int = 0,
    products: str = "f32",
    loss_scale: float = 0.0,
    teacher: Any = None,
    distill_weight: float = 0.9,
    temperature: float = 4.0,
    features: Mapping[str, str] = {},
    feature_weight: float = 1.0,
    prune: str | float | None = None,
    importance: str = "l1",
    qat: bool = False,
    qat_bits: int = 8,
    with_step: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_steps: int = 0,
    resume: str | os.PathLike[str] | None = None,
    step: str | os.PathLike[str] | None = None,
    curve: str | os.PathLike[str] | None = None,
    on_epoch: Callable[[dict[str, Any]], Any] | None = None,
    verbose: bool = False,
    dims: Mapping[str, Size] = {},
    shapes: Mapping[str, Sequence[Size]] = {},
    threads: int | None = None,
    target: str | None = None,
    max_memory: int | str | None = None,
) -> dict[str, Any]:
    """Trains the weights of a model by compiled steps, and writes it to ``output``: a module, FILE.onnx or FILE.graph.

    ``model``, and ``teacher``, are paths, :class:`tessera.graph.Graph` or ``onnx.ModelProto``, with weights to begin with. Rows of
    ``samples`` are what the model takes, rows of ``targets`` numbers of classes, or with ``loss="mse"`` what it is to answer;
    ``test`` has both of samples that it does not see. The arguments are the options of ``tessera train`` (docs/cli.md):
    ``prune`` is a share of the weights (0.8), "2:4", or "channels:0.5" by ``importance``; with ``qat`` it learns with
    ``qat_bits`` bits in mind, and what is written has integers; ``features`` are values of the teacher and of the model that
    learn to be like them. ``with_step`` writes two modules in one file, which :func:`load` takes by their names, "infer" and "step".

    With ``mesh`` (:func:`tessera.parallel.world`, or a mesh of the axes ``data``, ``stage`` and ``model``) the processes that ``mpirun`` or
    ``torchrun`` has started train together, each of which calls this with the same arguments: a batch is shared along ``data``, and
    the model is cut into stages along ``stage``, through which batches go in ``micro_batches``, as ``pipeline`` ("1f1b", "gpipe",
    "interleaved") says; ``zero`` is what each keeps a part of only (docs/parallel.md). The first one writes; all have the result.

    ``on_epoch`` gets {"epoch", "loss", "accuracy", "test_right", "test_total", "test_loss", "steps_per_second"} after each epoch, and
    ends the training where it answers False: what has been learnt is written then. ``verbose`` prints a line instead.
    ``curve`` is a picture of every step's loss, as the file's name says: PNG, SVG, PDF (by matplotlib).
    Returns what ``tessera train --json`` prints: "losses" of every step, "test_right" and so on.

    Raises :class:`tessera.Error`; no file is written then, but for checkpoints.
    """
    if test is not None and (not isinstance(test, (tuple, list)) or len(test) != 2):
        raise TypeError("test is no pair (samples, targets)")
    settings = _native.TrainSettings()
    settings.loss, settings.label_smoothing, settings.ignored = loss, float(label_smoothing), ignored
    settings.classes_last, settings.optimizer, settings.rate = bool(classes_last), optimizer, float(lr)
    settings.schedule, settings.warmup, settings.momentum = schedule, _options.number("warmup", warmup, 64), float(momentum)
    settings.nesterov, settings.weight_decay, settings.clip_norm = bool(nesterov), float(weight_decay), float(clip_norm)
    settings.frozen = [frozen] if isinstance(frozen, str) else list(frozen)
    settings.epochs, settings.batch = _options.number("epochs", epochs, 64), _options.number("batch", batch, 64)
    settings.in_order, settings.seed = not shuffle, _options.number("seed", seed, 64)
    settings.leaves, settings.zero = _options.number("leaves", leaves, 64), _options.number("zero", zero, 64)
    settings.products, settings.loss_scale = products, float(loss_scale)
    settings.distill_weight, settings.temperature = float(distill_weight), float(temperature)
    settings.features, settings.feature_weight = list(features.items()), float(feature_weight)
    settings.prune = "" if prune is None else prune if isinstance(prune, str) else repr(float(prune))
    settings.importance, settings.qat, settings.qat_bits = importance, bool(qat), _options.number("qat_bits", qat_bits)
    settings.with_step, settings.checkpoint_steps = bool(with_step), _options.number("checkpoint_steps", checkpoint_steps, 64)
    processes = _processes(mesh, micro_batches, pipeline, chunks)
    settings.checkpoint, settings.resume, settings.step = ("" if path is None else os.fspath(path) for path in (checkpoint, resume, step))
    given_dims, given_shapes = _options.dims_and_shapes(dims, shapes)
    if curve is not None:
        pyplot()  # is missing before the first step or never
    data = _rows("", samples, targets) + ([] if test is None else _rows("test ", *test))
    is_first = processes is None or rank() == 0
    hear = on_epoch if on_epoch or not (verbose and is_first) else _progress(settings.epochs)
    with tempfile.TemporaryDirectory() as folder:
        path = _path_of(model, "model", folder)
        settings.teacher = "" if teacher is None else _path_of(teacher, "teacher", folder)
        try:
            report = _native.train(
                path, "" if output is None else os.fspath(output), settings, data, hear,
                "native" if target is None else _options.text("target", target),
                0 if threads is None else _options.number("threads", threads), given_dims, given_shapes,
                0 if max_memory is None else _options.amount(max_memory), processes,
            )
        except Error as error:
            raise Error(in_python(error.message, _ARGUMENTS), id=error.id, node=error.node, legal=in_python(error.legal, _ARGUMENTS),
                        hint=in_python(error.hint, _ARGUMENTS), reason=error.reason) from None
    result = json.loads(report)
    if curve is not None and is_first:
        draw_losses(curve, os.path.basename(path), result["losses"])
    return result
