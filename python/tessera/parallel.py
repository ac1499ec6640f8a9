"""Processes that share a model: which of them this is, and what each computes (docs/parallel.md).

The same script runs in one process and in many, as ``mpirun -n 4 python script.py`` or ``torchrun`` starts them::

    from tessera import parallel
    from tessera.parallel import DeviceMesh, Shard

    mesh = DeviceMesh("data=2,model=2")
    plan = parallel.parallelize("gpt.graph", mesh, {"tokens": [Shard(0), Replicate()]})
    (scores,) = plan.compile().run([tokens])              # whole inputs and outputs, a part of the work

    tessera.train("lenet.graph", x, y, "lenet.so", mesh=parallel.world())   # each has a part of every batch
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, Union

from . import _native, _options
from ._derivatives import _graph
from ._errors import Error
from ._graph import Graph
from ._model import Model

__all__ = ["DeviceMesh", "Partial", "Placement", "Plan", "Replicate", "Shard", "communicator", "parallelize", "rank", "ranks", "world"]


@dataclasses.dataclass(frozen=True)
class Shard:
    """Along a mesh axis, each process has an equal part of dimension ``dim``."""

    dim: int


@dataclasses.dataclass(frozen=True)
class Replicate:
    """Along a mesh axis, each process has a copy."""


@dataclasses.dataclass(frozen=True)
class Partial:
    """Along a mesh axis, a value is the ``combiner`` ("sum", "prod", "min", "max") of what the processes have. Of results alone."""

    combiner: str = "sum"


Placement = Union[Shard, Replicate, Partial]


def rank() -> int:
    """This process's number, as ``mpirun`` or ``torchrun`` says in the environment (OMPI_COMM_WORLD_RANK, PMI_RANK, RANK); 0 alone."""
    return _native.this_process()[0]


def ranks() -> int:
    """How many processes there are (OMPI_COMM_WORLD_SIZE, PMI_SIZE, WORLD_SIZE); 1 alone."""
    return _native.this_process()[1]


def communicator() -> str:
    """The device that their collectives run on: "mpi", or "gloo" between processes of ``torchrun``."""
    return _native.this_process()[2]


class DeviceMesh:
    """Processes as a grid: axes with names and extents, ranks in row-major order, so that the last axis is counted first.

    ``DeviceMesh("data=2,model=2")``, ``DeviceMesh({"data": 2, "model": 2})`` or ``DeviceMesh((2, 2), ("data", "model"))``.
    Immutable. Raises :class:`tessera.Error` (TSR-2110) for what is no grid.
    """

    def __init__(self, shape: str | Mapping[str, int] | Sequence[int], names: Sequence[str] | None = None) -> None:
        if isinstance(shape, str):
            axes = dict(re.findall(r"([^=,]+)=([^=,]*)", shape))
            text = shape
        else:
            pairs = shape.items() if isinstance(shape, Mapping) else zip(names or (), shape)
            axes = {name: _options.number("an extent of a mesh", extent, 64) for name, extent in pairs}
            if not isinstance(shape, Mapping) and len(axes) != len(shape):
                raise Error(
                    f"a mesh of {len(shape)} axes with {len(names or ())} names", id="TSR-2110",
                    legal="a name for each axis, no two alike",
                )
            text = ",".join(f"{name}={extent}" for name, extent in axes.items())
        self._text: str = _native.checked_mesh(text)
        self.names: tuple[str, ...] = tuple(axes)
        self.shape: tuple[int, ...] = tuple(int(extent) for extent in axes.values())

    def __repr__(self) -> str:
        return f"DeviceMesh({self._text!r})"

    def __str__(self) -> str:
        return self._text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeviceMesh) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)

    def _axis(self, name: str) -> int:
        if name not in self.names:
            raise Error(f"the mesh {self._text} has no axis {name!r}", id="TSR-2110", legal=", ".join(self.names))
        return self.names.index(name)

    def size(self, name: str | None = None) -> int:
        """How many processes there are, or the extent of an axis."""
        if name is not None:
            return self.shape[self._axis(name)]
        count = 1
        for extent in self.shape:
            count *= extent
        return count

    def get_coordinate(self, of: int | None = None) -> tuple[int, ...]:
        """Where a process stands along each axis; this one, where none is named."""
        self._require_size()
        rest, place = rank() if of is None else of, []
        for extent in reversed(self.shape):
            place.append(rest % extent)
            rest //= extent
        return tuple(reversed(place))

    def get_local_rank(self, name: str) -> int:
        """Where this process stands along an axis."""
        return self.get_coordinate()[self._axis(name)]

    def _require_size(self) -> None:
        if ranks() != self.size():
            raise Error(
                f"the mesh {self._text} is of {self.size()} processes, and this run has {ranks()}", id="TSR-6251",
                legal="as many processes as the mesh has", hint=f"mpirun -n {self.size()} python ...",
            )


def world() -> DeviceMesh:
    """All processes of this run along the axis ``data``."""
    return DeviceMesh({"data": ranks()})


def _placement(text: str, names: Sequence[str]) -> tuple[Placement, ...]:
    dims, *partial = text.split("+")
    cut = {axis: d for d, axes in enumerate(dims[2:-1].split(",")) for axis in axes.split(".")}
    combiners = {found[2]: found[1] for found in (re.fullmatch(r"(\w+)\((\w+)\)", part) for part in partial) if found}
    return tuple(
        Partial(combiners[name]) if name in combiners else Shard(cut[name]) if name in cut else Replicate() for name in names
    )


class Plan:
    """What each process of a mesh computes of a model, and what that costs. Made by :func:`parallelize`; immutable."""

    def __init__(self, native: _native.ShardedModel, mesh: DeviceMesh) -> None:
        self._native = native
        self.mesh = mesh

    def __str__(self) -> str:
        return self._native.text(False)

    def __repr__(self) -> str:
        return f"<tessera.parallel.Plan {self.mesh}>"

    @property
    def text(self) -> str:
        """The sharding of each value, the collectives between them, and why nodes were not divided."""
        return self._native.text(True)

    @property
    def report(self) -> dict[str, Any]:
        """What ``tessera parallelize --json`` prints: "collectives", "weight_bytes" of a process, "compute_seconds" and so on."""
        return json.loads(self._native.json())

    def placements(self, value: str) -> tuple[Placement, ...]:
        """How a value of the model lies, for each axis of the mesh."""
        text = self._native.sharding(value)
        if not text:
            raise Error(f"the model has no value {value!r}", id="TSR-4034", legal="a name that plan.text has")
        return _placement(text, self.mesh.names)

    def graph(self, rank: int | None = None) -> Graph:
        """What a process runs (this one, where none is named): whole inputs and outputs, and collectives."""
        if rank is None:
            self.mesh._require_size()
            rank = _native.this_process()[0]
        if not 0 <= rank < self.mesh.size():
            raise Error(f"rank is {rank}", id="TSR-4034", legal=f"0 to {self.mesh.size() - 1}")
        return _graph(self._native.graph(rank))

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes the plan and all graphs, for ``mpirun -n N tessera run FOLDER``."""
        self._native.save(os.fspath(folder))

    def compile(self, **options: Any) -> Model:
        """This process's part, compiled: all processes run it at the same time, with the same inputs, and all have the outputs.

        ``options`` are those of :func:`tessera.compile`.
        """
        from . import compile as compile_model

        device = communicator()
        places = [*options.pop("places", ()), *([f"*={device}"] if device != "mpi" and self.report["collectives"] else [])]
        return compile_model(self.graph(), places=places, **options)


def parallelize(
    model: Any,
    mesh: DeviceMesh | str,
    placements: Mapping[str, Sequence[Placement]] = {},
    *,
    bandwidth: float = 5e9,
    latency: float = 2e-5,
    dims: Mapping[str, Any] = {},
    shapes: Mapping[str, Sequence[Any]] = {},
) -> Plan:
    """Plans how the processes of a mesh run a model together, as ``tessera parallelize`` does.

    ``model`` is a :class:`tessera.graph.Graph` or whatever :func:`tessera.compile` takes; ``dims`` and ``shapes`` fix sizes that
    it leaves open. ``placements`` says how inputs and constants lie, a placement for each axis of the mesh; the rest follows. An
    axis called ``data`` cuts the other inputs along dimension 0. ``bandwidth`` (bytes a second that a process sends) and
    ``latency`` (seconds of a collective) are those of the links that the plan is for.

    Raises :class:`tessera.Error`: TSR-2110 for a mesh or placements that do not fit, TSR-2111 for a model with states.
    """
    mesh = mesh if isinstance(mesh, DeviceMesh) else DeviceMesh(mesh)
    graph = model if isinstance(model, Graph) else Graph.from_model(model, dims=dims, shapes=shapes)
    places = []
    for name, given in placements.items():
        for placement in given:
            if not isinstance(placement, (Shard, Replicate)) or (isinstance(placement, Shard) and placement.dim < 0):
                raise Error(f"{placement!r} for {name!r}", id="TSR-2110", legal="Shard(0), Shard(1) and so on, or Replicate()")
        places.append((_options.text("a name in placements", name), [p.dim if isinstance(p, Shard) else -1 for p in given]))
    return Plan(_native.ShardedModel(graph._native, str(mesh), places, float(bandwidth), float(latency)), mesh)
