"""The interface of a peer: an inference engine, VTensor included, that runs one model in a process.

A peer is a class, which the worker process imports; the text ``"package.module:Class"`` is its
place. The engine's package is imported in that process only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

import numpy as np

from vtensor.language.records import dataclass

Array = np.ndarray[Any, Any]
#: The element type of products and sums; ``default`` is the one that the peer uses without options.
Precision = Literal["f32", "bf16", "default"]
Hint = Literal["latency", "throughput"]
HINTS: tuple[Hint, ...] = ("latency", "throughput")


@dataclass(frozen=True)
class Task:
    """A model for a peer, with its inputs and options.

    Attributes:
        model: an ONNX file.
        feeds: all inputs by name, with their axes as in the model; the same for every run.
        threads: the most threads of a run; for throughput, of all concurrent runs together.
        precision: the element type in which the peer multiplies and adds; inputs keep theirs.
        hint: ``latency``: runs one after another; ``throughput``: concurrent runs, each on one
            thread.
        options: options for this peer only.
    """

    model: Path
    feeds: Mapping[str, Array]
    threads: int
    precision: Precision
    hint: Hint = "latency"
    options: Mapping[str, Any] = field(default_factory=dict)


class Peer(ABC):
    """An inference engine that runs one model in this process; ``distribution`` names its package
    on PyPI.

    The engine is imported in ``load``, whose time is measured.
    """

    #: The distribution on PyPI that must be installed.
    distribution: ClassVar[str]

    @classmethod
    def absent(cls) -> str | None:
        """Return why the engine is not available, without importing it; None if it is available."""
        try:
            version(cls.distribution)
        except PackageNotFoundError:
            return f"{cls.distribution} is not installed: pip install vtensor-layouts[peers]"
        return None

    @classmethod
    def version(cls) -> str:
        """Return the version of the engine's installed distribution."""
        return version(cls.distribution)

    @abstractmethod
    def load(self, task: Task) -> None:
        """Read and compile a model, and lay out its inputs as the peer prefers.

        Raises:
            PeerError: the peer cannot run this model, or not in this precision.
        """

    @abstractmethod
    def run(self) -> Sequence[Array]:
        """Run once on the task's inputs; return the outputs in order, with axes as in the model."""

    def callers(self) -> Sequence[Callable[[], object]]:
        """Return functions that run the model; each is called repeatedly by its own thread."""
        return [self.run]

    def conversions(self) -> int | None:
        """Return the number of layout conversions in a run; None if it is not known."""
        return None

    def python_steps(self) -> int | None:
        """Return the number of steps of a run that call back into Python; None if unknown."""
        return None

    def limits(self) -> Mapping[str, float]:
        """Return lower bounds of the time of a run with the peer's kernels, in seconds, by the
        bound's name.

        Raises:
            VTensorError: the bounds cannot be measured.
        """
        return {}


def peer_at(place: str) -> type[Peer]:
    """Import and return the class of a peer, given its place, ``"package.module:Class"``.

    >>> peer_at("vtensor.benchmark.ours:VTensor").absent() is None
    True
    """
    module, name = place.split(":")
    return cast("type[Peer]", getattr(import_module(module), name))
