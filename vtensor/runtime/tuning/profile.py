"""A profile: the time of a run step by step, compared with the machine's peaks.

Times are taken on the thread that runs the steps; otherwise the run is like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
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

#: The share of all steps' time above which a slow step is reported.
NOTABLE = 0.01

#: Runs a plan once and writes each step's begin and end to an array, in nanoseconds.
Run = Callable[[Array], object]


@dataclass(frozen=True)
class Work:
    """An amount of work, such as that of a step, and the time that it takes.

    Attributes:
        ns: the median time in a run, in nanoseconds.
        operations: arithmetic operations, as operators declare them (the trait ``Cost``).
        bytes: bytes of operands and results, padding included, each counted once.
        least_ns: the least time that the work takes at the machine's peaks, in nanoseconds; None if
            the peaks are unknown.
    """

    ns: float
    operations: int
    bytes: int
    least_ns: float | None

    @property
    def gflops(self) -> float:
        """The rate of arithmetic, in 10^9 operations per second."""
        return self.operations / self.ns if self.ns else 0.0

    @property
    def gbytes(self) -> float:
        """The rate of data, in 10^9 bytes per second; above memory speed if operands are cached."""
        return self.bytes / self.ns if self.ns else 0.0

    @property
    def of_peak(self) -> float | None:
        """The share of the machine's peak that the work reaches: ``least_ns / ns``. None if
        ``least_ns`` is unknown.
        """
        return self.least_ns / self.ns if self.ns and self.least_ns is not None else None

    def to_dict(self, run_ns: float) -> dict[str, Any]:
        """Return the work as JSON data, with its share of the time of a run, ``run_ns``."""
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
    """The work of a node of a plan; native calls of one node count together.

    Attributes:
        step: the node, as ``plan.steps`` shows it.
        layouts: the layouts of inputs and outputs, as text.
    """

    step: PlanStep
    layouts: str

    def to_dict(self, run_ns: float) -> dict[str, Any]:
        """Return the step as JSON data, with its share of the time of a run, ``run_ns``."""
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
    """The sum of the work of several steps.

    Attributes:
        steps: the number of steps.
    """

    steps: int

    @classmethod
    def of(cls, steps: Iterable[Work]) -> Group:
        """Return the sum of the work of steps. Its ``least_ns`` is None if that of one step is
        None.
        """
        rows = list(steps)
        least = [work.least_ns for work in rows if work.least_ns is not None]
        return cls(
            sum(work.ns for work in rows),
            sum(work.operations for work in rows),
            sum(work.bytes for work in rows),
            sum(least) if len(least) == len(rows) else None,
            len(rows),
        )

    def to_dict(self, run_ns: float) -> dict[str, Any]:
        """Return the group as JSON data, with its share of the time of a run, ``run_ns``."""
        return {"steps": self.steps, **super().to_dict(run_ns)}


class Gaps(NamedTuple):
    """The nanoseconds of a run in which no step runs: before the first step, between steps, and
    after the last. Each is a median over runs.
    """

    before: float
    between: float
    after: float


@dataclass(frozen=True, eq=False)
class Profile:
    """The times of several runs of a plan.

    Attributes:
        name: the network's name.
        threads: the number of kernel threads.
        peaks: the machine's peaks; None if no library offers steps to measure them.
        steps: the nodes that take time, in order.
        calls: the node, the library and the kernel of each call of a run.
        runs: the begin and end of each run, in nanoseconds: an array, runs x 2.
        times: the begin and end of each call, on the same clock: an array, runs x calls x 2.
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
        """The median time of a run, in nanoseconds."""
        return float(np.median(self.runs[:, 1] - self.runs[:, 0]))

    @property
    def busy_ns(self) -> float:
        """The median time of all calls of a run together, in nanoseconds."""
        return float(np.median((self.times[..., 1] - self.times[..., 0]).sum(axis=1)))

    @property
    def gaps(self) -> Gaps:
        """The median times of a run in which no step runs, in nanoseconds."""
        if not self.calls:
            return Gaps(self.run_ns, 0.0, 0.0)
        begins, ends = self.times[..., 0], self.times[..., 1]
        between = (begins[:, 1:] - ends[:, :-1]).sum(axis=1)
        parts = begins[:, 0] - self.runs[:, 0], between, self.runs[:, 1] - ends[:, -1]
        return Gaps(*(float(np.median(part)) for part in parts))

    @property
    def total(self) -> Group:
        """The sum of all steps."""
        return Group.of(self.steps)

    def by(self, key: Callable[[PlanStep], str]) -> dict[str, Group]:
        """Return the sums of groups of steps by the text of the group, the slowest group first.

        A step belongs to the group whose text ``key`` returns for it.
        """
        names = dict.fromkeys(key(profiled.step) for profiled in self.steps)
        groups = {
            name: Group.of(profiled for profiled in self.steps if key(profiled.step) == name)
            for name in names
        }
        return dict(sorted(groups.items(), key=lambda item: -item[1].ns))

    def where(self, holds: Callable[[PlanStep], bool]) -> Group:
        """Return the sum of the steps for which ``holds`` returns True."""
        return Group.of(profiled for profiled in self.steps if holds(profiled.step))

    @property
    def weak(self) -> tuple[ProfiledStep, ...]:
        """The steps that reach less than ``WEAK`` of the machine's peak, those with the most time
        above ``least_ns`` first.

        Steps that take less than the share ``NOTABLE`` of the time of all steps are left out.
        """
        least = NOTABLE * self.total.ns
        weak_steps = [
            profiled
            for profiled in self.steps
            if profiled.ns > least and profiled.of_peak is not None and profiled.of_peak < self.WEAK
        ]
        return tuple(
            sorted(weak_steps, key=lambda profiled: (profiled.least_ns or 0.0) - profiled.ns)
        )

    @property
    def overheads(self) -> dict[str, Group]:
        """The sums of the steps that a network could do without, by name: conversions, call-backs
        into Python, and reference kernels.
        """
        return {
            "conversions": self.where(lambda step: step.is_transform),
            "Python call-backs": self.where(lambda step: step.python),
            "reference kernels": self.where(lambda step: step.is_reference),
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the profile as JSON data; times are in nanoseconds."""
        lengths, run_ns = self.runs[:, 1] - self.runs[:, 0], self.run_ns

        def rows(groups: dict[str, Group]) -> dict[str, Any]:
            return {name: group.to_dict(run_ns) for name, group in groups.items()}

        return {
            "model": self.name,
            "threads": self.threads,
            "runs": len(lengths),
            "run_ns": {"median": run_ns, "min": int(lengths.min()), "max": int(lengths.max())},
            "busy_ns": self.busy_ns,
            "gaps_ns": {**self.gaps._asdict(), "share": sum(self.gaps) / run_ns},
            "peaks": self.peaks and {"gflops": self.peaks.gflops, "gbytes": self.peaks.gbytes},
            "total": self.total.to_dict(run_ns),
            "overheads": rows(self.overheads),
            "weak": [profiled.step.node.name for profiled in self.weak],
            "by_operator": rows(self.by(lambda step: step.op)),
            "by_library": rows(self.by(lambda step: step.library)),
            "steps": [profiled.to_dict(run_ns) for profiled in self.steps],
        }

    def to_trace(self) -> dict[str, Any]:
        """Return all runs and calls as the JSON data of a trace file for Perfetto and Chrome."""
        node_facts = {
            profiled.step.node.name: (
                profiled.step.op,
                {
                    "layouts": profiled.layouts,
                    "operations": profiled.operations,
                    "bytes": profiled.bytes,
                },
            )
            for profiled in self.steps
        }
        return trace_of(self.name, self.threads, self.runs, self.times, self.calls, node_facts)


def check_runs(runs: object) -> int:
    """Return ``runs`` after a check.

    Raises:
        InputError: ``runs`` is no integer of at least 1.
    """
    if not isinstance(runs, int) or isinstance(runs, bool) or runs < 1:
        raise InputError(f"runs={runs!r} must be an integer of at least 1")
    return runs


def profile_of(parts: Sequence[tuple[Plan, Run]], threads: int, runs: int) -> Profile:
    """Run the plans of a network several times and return where the time went.

    Args:
        parts: the plan of each segment, which has run before, so that its memory is allocated; and
            a function that runs it once and writes the begin and end of each step to its argument.
        threads: the number of kernel threads that the plans run on.
        runs: the number of runs.
    """
    peaks = peaks_of(threads)
    calls = tuple(
        (step.node, step.library, step.kernel) for plan, _ in parts for step in plan.recorded
    )
    walls = np.zeros((runs, 2), np.int64)
    times = np.zeros((runs, len(calls), 2), np.int64)
    for wall, row in zip(walls, times, strict=True):
        rest = row
        wall[0] = perf_counter_ns()
        for plan, run in parts:
            count = len(plan.recorded)
            run(rest[:count].reshape(-1))
            rest = rest[count:]
        wall[1] = perf_counter_ns()
    spent, steps = times[..., 1] - times[..., 0], list[ProfiledStep]()
    for plan, _ in parts:
        node_times = {step.node: np.zeros(runs, np.int64) for step in plan.recorded}
        for index, step in enumerate(plan.recorded):
            node_times[step.node] += spent[:, index]
        spent = spent[:, len(plan.recorded) :]
        steps += [
            _step(plan.graph, shown, float(np.median(node_times[shown.node.name])), peaks)
            for shown in plan.steps
            if shown.kernels
        ]
    name = parts[0][0].graph.name
    return Profile(name, threads, peaks, tuple(steps), calls, walls, times)


def _step(graph: LoweredGraph, step: PlanStep, ns: float, peaks: Peaks | None) -> ProfiledStep:
    names = dict.fromkeys((*step.node.inputs, *step.node.outputs))
    moved = sum(graph.values[name].nbytes for name in names)
    done = sum(_operations(graph, step.node))
    least = peaks.least_ns(done, moved) if peaks else None
    return ProfiledStep(ns, done, moved, least, step, layouts_of(graph, step.node))


def _operations(graph: LoweredGraph, node: LoweredNode) -> Iterator[int]:
    """Yield the arithmetic operations of each operator of a node, followers included.

    Yields nothing for a Transform.
    """
    if isinstance(node, OpNode):
        inputs, outputs = (
            [_tensor(graph.values[name]) for name in names] for names in (node.inputs, node.outputs)
        )
        operands, followers = node.split(inputs)
        yield info_of(node.op).operations(node.op, operands, outputs)
        for follower in followers:
            yield info_of(follower.op).operations(
                follower.op, [outputs[0], *follower.operands], outputs[:1]
            )


def _tensor(value: Value) -> VTensor:
    return VTensor(value.dtype, value.dims)


def layouts_of(graph: LoweredGraph, node: LoweredNode) -> str:
    """Return the layouts of a node's inputs and outputs, as text."""
    sides = (
        ", ".join(graph.values[name].stored_as for name in names)
        for names in (node.inputs, node.outputs)
    )
    return " -> ".join(sides)
