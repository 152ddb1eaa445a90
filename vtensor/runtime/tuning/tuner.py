"""``Session(tune=True)``: what nodes and Transforms take here, measured once a machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from libdesc.library import RegisteredLibrary
from libdesc.preferences import Preferences
from libdesc.registry import ready
from libdesc.transforms import LayoutChange
from optimizer.clocks import Clock
from ptensor.background_work import checkpoint
from ptensor.evaluation import Basis
from resolver.lowered import OpNode
from vtensor import __version__
from vtensor.errors import VTensorError
from vtensor.language.imported import logger
from vtensor.language.tensor import VTensor
from vtensor.runtime.execution.executor import Executor
from vtensor.runtime.execution.processors import processor
from vtensor.runtime.tuning.measure import GLANCE, TUNING, Effort, node_ns, signature, transform_ns

#: Seconds that a call's variants may run; then no further one is measured.
CALL_SECONDS = 1.0

#: A variant that is only looked at is not run again where it takes so many times as long as the
#: best of its call.
FAR = 3

_log = logger(__name__)


class Tuner(Clock):
    """A clock that measures what is asked for and not yet known.

    Args:
        executor: what measures, and has a budget of kernel threads.
        preferences: which libraries may run Transforms.
        progress: called with what is being measured.
        effort: how a variant is measured.
        call_seconds: what a call's variants may run, the first always; None is ``CALL_SECONDS``.
            Where a variant is only looked at, what it takes to pack its constants counts as well.
        between: between whose runs another executor measures where nobody waits for it.
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
        self._spent: dict[str, float] = {}
        self._failed: set[tuple[str, str]] = set()
        self._best: dict[str, int] = {}

    def node(self, node: OpNode, values: Mapping[str, VTensor]) -> int | None:
        """Nanoseconds of a node in its variant; None if it fails, or no time is left to measure."""
        checkpoint()
        call, way = signature(node, values)
        found = self._timings.get(call, way)
        if found is not None or (call, way) in self._failed:
            return found
        return self._measured(node, values, call, way)

    def transform(self, value: VTensor, change: LayoutChange) -> int | None:
        """Nanoseconds of a Transform; None where it fails, or no library runs it."""
        checkpoint()
        call, way = f"Transform: {value.summary()}", f"{change.source} -> {change.target}"
        found = self._timings.get(call, way)
        if found is not None or (call, way) in self._failed:
            return found
        self._say(f"{call} {way}")
        try:
            found = transform_ns(value, change, self._preferences, self._executor)
        except VTensorError as error:
            _log.info("%s does not run as %s: %s", call, way, error)
            self._failed.add((call, way))
            return None
        self._timings.put(call, way, found)
        return found

    def _measured(
        self, node: OpNode, values: Mapping[str, VTensor], call: str, way: str
    ) -> int | None:
        if self._spent.get(call, -1.0) >= self._call_seconds:
            return None
        self._say(f"{node.op_name} {node.name} on {node.variant.library}: {way}")
        runs, begin = list[float](), time.monotonic()
        try:
            ns = node_ns(
                node, values, self._executor, self._worth(call), runs.append, self._between
            )
        except VTensorError as error:
            _log.info("%s does not run as %s: %s", node.name, way, error)
            self._failed.add((call, way))
            return None
        finally:
            took = sum(runs) if self._effort is TUNING else time.monotonic() - begin
            self._spent[call] = self._spent.get(call, 0.0) + took
        self._best[call] = min(ns, self._best.get(call, ns))
        (self._timings.note if self._effort is GLANCE else self._timings.put)(call, way, ns)
        return ns

    def _worth(self, call: str) -> Effort:
        """How a variant is measured: one that is only looked at, less if it is far from the best
        of its call.
        """
        best = self._best.get(call)
        if self._effort is not GLANCE or best is None:
            return self._effort
        return GLANCE._replace(most_seconds=min(GLANCE.most_seconds, FAR * best / 1e9))

    def save(self) -> None:
        """Write down what was only looked at; all else is already."""
        self._timings.save()

    def _say(self, what: str) -> None:
        if self._progress is not None:
            self._progress(f"measuring {what}")


def environment(threads: int, libraries: Iterable[RegisteredLibrary] | None = None) -> str:
    """What times depend on beside the call, with these libraries; None is all that are there.

    oneDNN's ``ONEDNN_DEFAULT_FPMATH_MODE`` is not among it: every primitive is made strict.
    """
    known = ready().libraries.values() if libraries is None else libraries
    versions = [
        f"{library.name} {library.version()}"
        for library in sorted(known, key=lambda one: one.name)
        if not library.absent
    ]
    return "; ".join([f"vtensor {__version__}", processor(), f"{threads} threads", *versions])
