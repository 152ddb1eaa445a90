"""What a peer is: somebody else (or ourselves) who runs a model, one in a process.

A peer is a class that the worker process makes from its place, ``"package.module:Class"``; so its
own package is imported there, and nowhere else.
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
Precision = Literal["f32", "bf16"]
Hint = Literal["latency", "throughput"]
HINTS: tuple[Hint, ...] = ("latency", "throughput")


@dataclass(frozen=True)
class Task:
    """What a peer is to run.

    Attributes:
        model: an ONNX file; ``vtensor.load_onnx`` reads a network of ours back as its graph.
        feeds: all inputs by name, in the order of the model's dims; every run is given the same.
        threads: how many threads a run may use; or all runs together, where they are side by side.
        precision: the element type in which a peer may multiply and add; the feeds' stays.
        hint: what counts: that each run is soon done, one after another; or that many are, side by
            side, on a thread each.
        options: what one peer is told beside that, and others are not.
    """

    model: Path
    feeds: Mapping[str, Array]
    threads: int
    precision: Precision
    hint: Hint = "latency"
    options: Mapping[str, Any] = field(default_factory=dict)


class Peer(ABC):
    """Runs one model in this process.

    Whatever of the peer has to be imported is imported in ``load``, whose time is measured.
    """

    #: The distribution on PyPI that must be installed.
    distribution: ClassVar[str]

    @classmethod
    def absent(cls) -> str | None:
        """Why it cannot be asked at all, or None; imports nothing of it."""
        try:
            version(cls.distribution)
        except PackageNotFoundError:
            return f"{cls.distribution} is not installed: pip install vtensor-layouts[peers]"
        return None

    @classmethod
    def version(cls) -> str:
        """Of the distribution that is installed."""
        return version(cls.distribution)

    @abstractmethod
    def load(self, task: Task) -> None:
        """Make ready to run: read, compile, lay the feeds out as the peer likes them best.

        Raises:
            PeerError: it does not run this model, or not in this precision.
        """

    @abstractmethod
    def run(self) -> Sequence[Array]:
        """Run once, from the task's feeds; outputs in the order and the dims of the model."""

    def callers(self) -> Sequence[Callable[[], object]]:
        """What runs: each is called again and again by a thread of its own."""
        return [self.run]

    def conversions(self) -> int | None:
        """How many changes of layout are left in a run; None where nobody knows."""
        return None

    def limits(self) -> Mapping[str, float]:
        """Seconds below which this peer's own kernels cannot come, by what they are called.

        Raises:
            VTensorError: they cannot be measured.
        """
        return {}


def peer_at(place: str) -> type[Peer]:
    """The class at ``"package.module:Class"``.

    >>> peer_at("vtensor.benchmark.ours:VTensor").absent() is None
    True
    """
    module, name = place.split(":")
    return cast("type[Peer]", getattr(import_module(module), name))
