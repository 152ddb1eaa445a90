"""The clock of ``Session(tune=True)``: it measures each node and Transform once per machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from libdesc.library import RegisteredLibrary
from libdesc.preferences import Preferences
from libdesc.registry import ready
from libdesc.transforms import LayoutChange
from optimizer.choice.clocks import Clock
from ptensor.background_work import checkpoint
from ptensor.evaluation import Basis
from resolver.lowered import OpNode
from vtensor import __version__
from vtensor.errors import VTensorError
from vtensor.language.process.imported import logger
from vtensor.language.tensor import VTensor
from vtensor.runtime.execution.executor import Executor
from vtensor.runtime.execution.processors import processor
from vtensor.runtime.tuning.measure import GLANCE, TUNING, Effort, node_ns, signature, transform_ns

#: The seconds that all runs of a call (equal nodes in any variant) may take together in exact
#: variants, and again in approximate ones. After that no further such variant of the call is
#: measured. Approximate variants are measured last: with one limit for both there would often be
#: no time left for them.
CALL_SECONDS = 1.0

#: In short measurements, a run that takes more than this multiple of the call's best time is the
#: last one of its variant.
FAR_FROM_BEST = 3

_log = logger(__name__)


class Tuner(Clock):
    """A clock that returns known times of nodes and Transforms, and measures the missing ones.

    Args:
        executor: the executor that measures, on its number of kernel threads.
        preferences: the libraries that may run Transforms.
        progress: called with a description of each measurement.
        effort: the settings of the measurement of a node in one variant.
        call_seconds: the seconds that all runs of a call (equal nodes) may take together in exact
            variants, and again in approximate ones, after which no further such variant is
            measured; None is ``CALL_SECONDS``. In short measurements the time of packing constants
            counts, too.
        between: in background work, an executor: a measurement takes one turn in its queue. None
            queues each run of it on ``executor``.
    """

    basis: Basis = "measured"

    def __init__(
        self,
        executor: Executor,
        preferences: Preferences,
        progress: Callable[[str], None] | None = None,
        effort: Effort = TUNING,
        call_seconds: float | None = None,
        between: Executor | None = None,
    ) -> None:
        from vtensor.runtime.tuning.timings import Timings

        self._executor, self._between = executor, between
        self._effort = effort
        self._call_seconds = CALL_SECONDS if call_seconds is None else call_seconds
        self._preferences = preferences
        self._progress = progress
        how = "; large constants cold" if effort.cold else f"; {effort.seconds} s a variant"
        self._timings = Timings(environment(executor.threads) + how)
        self._spent: dict[tuple[str, bool], float] = {}
        self._failed: set[tuple[str, str]] = set()
        self._best: dict[str, int] = {}

    def node(self, node: OpNode, values: Mapping[str, VTensor]) -> int | None:
        """Return the nanoseconds of a node in its variant; None if it fails or no time is left.

        Args:
            node: the node in its variant.
            values: the values that the node reads and writes, by name.
        """
        checkpoint()
        call, way = signature(node, values)
        ns = self._timings.get(call, way)
        if ns is not None or (call, way) in self._failed:
            return ns
        return self._measured(node, values, call, way)

    def transform(self, value: VTensor, change: LayoutChange) -> int | None:
        """Return the nanoseconds of a Transform; None if it fails or no library runs it.

        Args:
            value: the type and dims of the value.
            change: the layouts before and after.
        """
        checkpoint()
        call, way = f"Transform: {value.summary()}", f"{change.source} -> {change.target}"
        ns = self._timings.get(call, way)
        if ns is not None or (call, way) in self._failed:
            return ns
        self._say(f"{call} {way}")
        try:
            ns = transform_ns(value, change, self._preferences, self._executor)
        except VTensorError as error:
            _log.info("%s does not run as %s: %s", call, way, error)
            self._failed.add((call, way))
            return None
        self._timings.put(call, way, ns)
        return ns

    def _measured(
        self, node: OpNode, values: Mapping[str, VTensor], call: str, way: str
    ) -> int | None:
        limited = call, node.variant.inexact
        if self._spent.get(limited, -1.0) >= self._call_seconds:
            return None
        self._say(f"{node.op_name} {node.name} on {node.variant.library}: {way}")
        runs, begin = list[float](), time.monotonic()
        try:
            ns = node_ns(
                node, values, self._executor, self._effort_for(call), runs.append, self._between
            )
        except VTensorError as error:
            _log.info("%s does not run as %s: %s", node.name, way, error)
            self._failed.add((call, way))
            return None
        finally:
            seconds = sum(runs) if self._effort is TUNING else time.monotonic() - begin
            self._spent[limited] = self._spent.get(limited, 0.0) + seconds
        self._best[call] = min(ns, self._best.get(call, ns))
        (self._timings.note if self._effort is GLANCE else self._timings.put)(call, way, ns)
        return ns

    def _effort_for(self, call: str) -> Effort:
        """Return the settings for measuring the next variant of a call.

        A short measurement ends early if the variant is far slower than the call's best variant so
        far.
        """
        best = self._best.get(call)
        if self._effort is not GLANCE or best is None:
            return self._effort
        return GLANCE._replace(most_seconds=min(GLANCE.most_seconds, FAR_FROM_BEST * best / 1e9))

    def save(self) -> None:
        """Save the times of short measurements on disk; other times are saved when measured."""
        self._timings.save()

    def _say(self, what: str) -> None:
        if self._progress is not None:
            self._progress(f"measuring {what}")


def environment(threads: int, libraries: Iterable[RegisteredLibrary] | None = None) -> str:
    """Return a text that names all on which times depend besides the calls themselves: the
    processor, the number of threads, the libraries.

    ``ONEDNN_DEFAULT_FPMATH_MODE`` is not in it, because every primitive is created strict.

    Args:
        threads: the number of kernel threads.
        libraries: the libraries whose versions matter; None is all that are installed.
    """
    known = ready().libraries.values() if libraries is None else libraries
    versions = [
        f"{library.name} {library.version()}"
        for library in sorted(known, key=lambda one: one.name)
        if not library.absent
    ]
    return "; ".join([f"vtensor {__version__}", processor(), f"{threads} threads", *versions])
