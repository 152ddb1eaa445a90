"""Where the time of a run goes: what each step took and did, beside what the machine can.

Times are taken where steps are run; nothing else differs from any other run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from time import perf_counter_ns
from typing import Any, ClassVar, NamedTuple

import numpy as np

from resolver.lowered import LoweredGraph, LoweredNode, OpNode, Value
from vtensor.errors import InputError
from vtensor.language.operators import info_of
from vtensor.language.records import dataclass
from vtensor.language.tensor import VTensor
from vtensor.runtime.execution.plan import Plan
from vtensor.runtime.execution.plan_steps import PlanStep
from vtensor.runtime.tuning.peaks import Peaks, peaks_of
from vtensor.runtime.tuning.perfetto import trace_of
from vtensor.storage.inputs import Array

#: The share of all steps that a step has to take for its speed to be worth a look.
NOTABLE = 0.01

#: Runs once, and writes to an array when each step began and ended, in nanoseconds.
Run = Callable[[Array], object]


@dataclass(frozen=True)
class Work:
    """Work and the time that it took.

    Attributes:
        ns: nanoseconds of a run, a median.
        operations: on numbers, as operators declare them (the trait ``Cost``).
        bytes: of operands and results, pads included, each counted once.
        least_ns: what it would take at the machine's peaks; None where they are not known.
    """

    ns: float
    operations: int
    bytes: int
    least_ns: float | None

    @property
    def gflops(self) -> float:
        """10^9 operations a second."""
        return self.operations / self.ns if self.ns else 0.0

    @property
    def gbytes(self) -> float:
        """10^9 bytes a second; more than memory's where caches hold them."""
        return self.bytes / self.ns if self.ns else 0.0

    @property
    def of_peak(self) -> float | None:
        """The share of the machine's peak that it reached: the least possible time by its time."""
        return self.least_ns / self.ns if self.ns and self.least_ns is not None else None

    def to_dict(self, run_ns: float) -> dict[str, Any]:
        """As data, with its share of a run."""
        return {
            "ns": self.ns,
            "share": self.ns / run_ns,
            "operations": self.operations,
            "bytes": self.bytes,
            "gflops": self.gflops,
            "gbytes": self.gbytes,
            "of_peak": self.of_peak,
        }


@dataclass(frozen=True)
class ProfiledStep(Work):
    """A step of a plan; it may be several calls of its library, which count together."""

    step: PlanStep
    layouts: str

    def to_dict(self, run_ns: float) -> dict[str, Any]:
        """As data, with its share of a run."""
        return {
            "node": self.step.node.name,
            "operator": self.step.op,
            "library": self.step.library,
            "kernels": list(self.step.kernels),
            "layouts": self.layouts,
            **super().to_dict(run_ns),
        }


@dataclass(frozen=True)
class Group(Work):
    """Steps that count together."""

    steps: int

    @classmethod
    def of(cls, steps: Iterable[Work]) -> Group:
        """The sum."""
        rows = list(steps)
        least = [one.least_ns for one in rows if one.least_ns is not None]
        return cls(
            sum(one.ns for one in rows),
            sum(one.operations for one in rows),
            sum(one.bytes for one in rows),
            sum(least) if len(least) == len(rows) else None,
            len(rows),
        )

    def to_dict(self, run_ns: float) -> dict[str, Any]:
        """As data, with its share of a run."""
        return {"steps": self.steps, **super().to_dict(run_ns)}


class Gaps(NamedTuple):
    """Nanoseconds of a run in which no step runs: medians."""

    before: float
    between: float
    after: float


@dataclass(frozen=True, eq=False)
class Profile:
    """Where the time of some runs went.

    Attributes:
        name: the network's.
        threads: the budget of kernel threads.
        peaks: what the machine can; None where no library is there to show it.
        steps: those that take time, in order.
        calls: the node, the library and the kernel of each call of a run.
        runs: when each run began and ended, in nanoseconds: an array, runs x 2.
        times: when each call began and ended, on the same clock: runs x calls x 2.
    """

    #: The part of the machine's peak below which a step is weak.
    WEAK: ClassVar[float] = 0.25

    name: str
    threads: int
    peaks: Peaks | None
    steps: tuple[ProfiledStep, ...]
    calls: tuple[tuple[str, str, str], ...]
    runs: Array
    times: Array

    @property
    def run_ns(self) -> float:
        """How long a run takes: the median."""
        return float(np.median(self.runs[:, 1] - self.runs[:, 0]))

    @property
    def busy_ns(self) -> float:
        """How long calls take in a run, all together: the median."""
        return float(np.median((self.times[..., 1] - self.times[..., 0]).sum(axis=1)))

    @property
    def gaps(self) -> Gaps:
        """How long no step runs: before the first, between them, and after the last."""
        if not self.calls:
            return Gaps(self.run_ns, 0.0, 0.0)
        begins, ends = self.times[..., 0], self.times[..., 1]
        between = (begins[:, 1:] - ends[:, :-1]).sum(axis=1)
        parts = begins[:, 0] - self.runs[:, 0], between, self.runs[:, 1] - ends[:, -1]
        return Gaps(*(float(np.median(part)) for part in parts))

    @property
    def total(self) -> Group:
        """All steps."""
        return Group.of(self.steps)

    def by(self, key: Callable[[PlanStep], str]) -> dict[str, Group]:
        """Steps grouped by the result of a function; the group that takes longest comes first."""
        names = dict.fromkeys(key(one.step) for one in self.steps)
        groups = {
            name: Group.of(one for one in self.steps if key(one.step) == name) for name in names
        }
        return dict(sorted(groups.items(), key=lambda item: -item[1].ns))

    def where(self, holds: Callable[[PlanStep], bool]) -> Group:
        """The steps for which a condition holds, together."""
        return Group.of(one for one in self.steps if holds(one.step))

    @property
    def weak(self) -> tuple[ProfiledStep, ...]:
        """Steps far below what the machine can; those that lose the most time come first."""
        least = NOTABLE * self.total.ns
        found = [
            one
            for one in self.steps
            if one.ns > least and one.of_peak is not None and one.of_peak < self.WEAK
        ]
        return tuple(sorted(found, key=lambda one: (one.least_ns or 0.0) - one.ns))

    @property
    def overheads(self) -> dict[str, Group]:
        """What a network could do without."""
        return {
            "conversions": self.where(lambda step: step.is_transform),
            "Python call-backs": self.where(lambda step: step.python),
            "reference kernels": self.where(lambda step: step.is_reference),
        }

    def to_dict(self) -> dict[str, Any]:
        """As data."""
        took, run_ns = self.runs[:, 1] - self.runs[:, 0], self.run_ns

        def rows(groups: dict[str, Group]) -> dict[str, Any]:
            return {name: group.to_dict(run_ns) for name, group in groups.items()}

        return {
            "model": self.name,
            "threads": self.threads,
            "runs": len(took),
            "run_ns": {"median": run_ns, "min": int(took.min()), "max": int(took.max())},
            "busy_ns": self.busy_ns,
            "gaps_ns": {**self.gaps._asdict(), "share": sum(self.gaps) / run_ns},
            "peaks": self.peaks and {"gflops": self.peaks.gflops, "gbytes": self.peaks.gbytes},
            "total": self.total.to_dict(run_ns),
            "overheads": rows(self.overheads),
            "weak": [one.step.node.name for one in self.weak],
            "by_operator": rows(self.by(lambda step: step.op)),
            "by_library": rows(self.by(lambda step: step.library)),
            "steps": [one.to_dict(run_ns) for one in self.steps],
        }

    def to_trace(self) -> dict[str, Any]:
        """As a trace that Perfetto (ui.perfetto.dev) and Chrome show: all runs, all calls."""
        about = {
            one.step.node.name: (
                one.step.op,
                {"layouts": one.layouts, "operations": one.operations, "bytes": one.bytes},
            )
            for one in self.steps
        }
        return trace_of(self.name, self.threads, self.runs, self.times, self.calls, about)


def check_runs(runs: object) -> int:
    """How often to run.

    Raises:
        InputError: it is no integer of at least 1.
    """
    if not isinstance(runs, int) or isinstance(runs, bool) or runs < 1:
        raise InputError(f"runs={runs!r} must be an integer of at least 1")
    return runs


def profile_of(plan: Plan, threads: int, run: Run, runs: int) -> Profile:
    """Run a plan some times and say where the time went.

    Args:
        plan: the one that ``run`` runs; it ran before, so that its memory is there.
        threads: its budget.
        run: runs it once.
        runs: how often.
    """
    peaks = peaks_of(threads)
    calls = tuple((one.node, one.library, one.kernel) for one in plan.recorded)
    walls = np.zeros((runs, 2), np.int64)
    times = np.zeros((runs, len(calls), 2), np.int64)
    for wall, row in zip(walls, times, strict=True):
        wall[0] = perf_counter_ns()
        run(row.reshape(-1))
        wall[1] = perf_counter_ns()
    took = {node: np.zeros(runs, np.int64) for node, _, _ in calls}
    for index, (node, _, _) in enumerate(calls):
        took[node] += times[:, index, 1] - times[:, index, 0]
    steps = tuple(
        _step(plan.graph, one, float(np.median(took[one.node.name])), peaks)
        for one in plan.steps
        if one.kernels
    )
    return Profile(plan.graph.name, threads, peaks, steps, calls, walls, times)


def _step(graph: LoweredGraph, step: PlanStep, ns: float, peaks: Peaks | None) -> ProfiledStep:
    names = dict.fromkeys((*step.node.inputs, *step.node.outputs))
    moved = sum(graph.values[name].nbytes for name in names)
    done = sum(_operations(graph, step.node))
    least = peaks.least_ns(done, moved) if peaks else None
    return ProfiledStep(ns, done, moved, least, step, _layouts(graph, step.node))


def _operations(graph: LoweredGraph, node: LoweredNode) -> Iterator[int]:
    """Of each operator that a node applies."""
    if isinstance(node, OpNode):
        inputs, outputs = (
            [_tensor(graph.values[name]) for name in names] for names in (node.inputs, node.outputs)
        )
        own, followers = node.split(inputs)
        yield info_of(node.op).operations(node.op, own, outputs)
        for one in followers:
            yield info_of(one.op).operations(one.op, [outputs[0], *one.operands], outputs[:1])


def _tensor(value: Value) -> VTensor:
    return VTensor(value.dtype, value.dims)


def _layouts(graph: LoweredGraph, node: LoweredNode) -> str:
    sides = (
        ", ".join(str(graph.values[name].layout) for name in names)
        for names in (node.inputs, node.outputs)
    )
    return " -> ".join(sides)
