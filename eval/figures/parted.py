"""Engines with a clock around each step, and the parts of the difference of two engines' times.

The clocks are part of all times: a tenth of a microsecond a step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eval.figures.profiled import kind, kind_of
from eval.figures.turns import budget, interval
from eval.layout_aware import Network
from eval.layout_aware.context import CONVERSION
from resolver.lowered import OpNode
from vtensor.runtime.execution.plan import Plan
from vtensor.runtime.session import Session
from vtensor.runtime.tuning.profile import layouts_of

Array = np.ndarray[Any, Any]

#: The key of the time in which no step runs.
GAPS = "gaps"
#: The kind of conversions.
CONVERSIONS = "conversions"
#: The most slower kernels that are named, and the most faster ones.
NAMED = 8


@dataclass
class Clocked:
    """An engine that times its steps. A run lasts from the begin of the first to the end of the
    last one.

    Attributes:
        run: runs once, writes the begin and the end of each step, in nanoseconds, to its argument
            (int64, steps x 2), and returns the outputs.
        keys: for each step, the name of its node, or the key of a conversion.
        kinds: the kind of each key, in ``eval.profiles.KINDS``.
        conversions: how often a run converts.
        layouts: the layouts of a node, as text, by its name.
        rounds: for each turn, the seconds of each of its runs.
        steps: for each turn, the nanoseconds of the steps of its median run by their keys, with
            two more keys: ``""`` for the whole run, ``GAPS``.
        budget_s: the seconds of a turn; 0 is one run.
    """

    run: Callable[[Array], Sequence[Array]]
    keys: Sequence[str]
    kinds: Mapping[str, str]
    conversions: int
    layouts: Mapping[str, str]
    rounds: list[Sequence[float]] = field(default_factory=list)
    steps: list[Mapping[str, float]] = field(default_factory=list)
    budget_s: float = 0.0

    @property
    def running(self) -> bool:
        """True: the engine takes part in all turns."""
        return True

    @property
    def converted(self) -> set[str]:
        """The keys of conversions."""
        return {key for key, group in self.kinds.items() if group == CONVERSIONS}

    @property
    def whole(self) -> Array:
        """The nanoseconds of the median run of each turn."""
        return np.array([run[""] for run in self.steps])

    def by_kind(self) -> dict[str, float]:
        """Return the nanoseconds of a run that steps of each kind take: medians over turns."""
        sums: dict[str, Array] = defaultdict(lambda: np.zeros(len(self.steps)))
        for turn, run in enumerate(self.steps):
            for key, group in self.kinds.items():
                sums[group][turn] += run[key]
        return {group: float(np.median(ns)) for group, ns in sums.items()}

    def outputs(self) -> Sequence[Array]:
        """Run once, and return the outputs."""
        return self.run(np.zeros((len(self.keys), 2), np.int64))

    def warm_up(self) -> None:
        """Forget all turns, run once, and set ``budget_s``."""
        self.rounds.clear()
        self.steps.clear()
        self.budget_s = budget(_seconds(self._timed()))

    def turn(self) -> None:
        """Run once, or for a short while after one run that does not count."""
        if self.budget_s:
            self._timed()
        runs = [self._timed()]
        while sum(map(_seconds, runs)) < self.budget_s:
            runs.append(self._timed())
        self.rounds.append([_seconds(run) for run in runs])
        median = sorted(runs, key=_seconds)[(len(runs) - 1) // 2]
        sums, whole = defaultdict[str, float](float), _seconds(median) * 1e9
        for key, ns in zip(self.keys, (median[:, 1] - median[:, 0]).tolist(), strict=True):
            sums[key] += ns
        gaps = whole - sum(sums.values())
        self.steps.append({**sums, "": whole, GAPS: gaps})

    def _timed(self) -> Array:
        times = np.zeros((len(self.keys), 2), np.int64)
        self.run(times)
        return times


def _seconds(times: Array) -> float:
    """Return the seconds of a run from the times of its steps."""
    return float(times[-1, 1] - times[0, 0]) / 1e9


def baseline(network: Network, feeds: Mapping[str, Any]) -> Clocked:
    """Return the layout-aware network as an engine."""
    conversions = network.converted()
    keys = [
        _conversion(conversions[index]) if index in conversions else each.step.node
        for index, each in enumerate(network.steps)
    ]
    kinds = {
        key: CONVERSIONS if each.kind == CONVERSION else kind_of(each.kind)
        for key, each in zip(keys, network.steps, strict=True)
    }
    return Clocked(
        lambda times: network.run(feeds, times), keys, kinds, network.conversions.number, {}
    )


def ours(session: Session, feeds: Mapping[str, Any]) -> Clocked:
    """Return a session as an engine; its plan is made already, and stays."""
    plan = session.plan
    names = _keys(plan)
    kinds = {names[step.node.name]: kind(step) for step in plan.steps if step.kernels}
    layouts = {step.node.name: layouts_of(plan.graph, step.node) for step in plan.steps}
    return Clocked(
        # the session's own run has no clocks, and its profile runs three times to time one
        lambda times: session._runner.run(None, feeds, times=times.reshape(-1)),
        [names[step.node] for step in plan.recorded],
        kinds,
        len(session.conversions),
        layouts,
    )


def _conversion(value: str) -> str:
    return f"> {value}"


def _keys(plan: Plan) -> dict[str, str]:
    """Return the key of each of a plan's nodes: its name, or for a Transform that of the value that
    it changes.
    """
    makers = {name: node for node in plan.graph.nodes for name in node.outputs}
    keys = {}
    for node in plan.graph.nodes:
        [value, *_] = node.inputs or ("",)
        while (maker := makers.get(value)) is not None and not isinstance(maker, OpNode):
            [value] = maker.inputs
        keys[node.name] = node.name if isinstance(node, OpNode) else _conversion(value)
    return keys


def parts(first: Clocked, second: Clocked) -> dict[str, Any]:
    """Return where the difference of the second engine's time to the first one's comes from.

    Its parts are means over the half of the pairs whose ratios are in the middle, so that they add
    up to the difference of the means. *Other kernels* are those of which it is not known whether
    they are slower or faster.
    """
    ratios = second.whole / first.whole
    low, high = np.quantile(ratios, [0.25, 0.75])
    middle = [index for index, ratio in enumerate(ratios) if low <= ratio <= high]
    before, after = (_means([one.steps[index] for index in middle]) for one in (first, second))
    gone, new = first.converted - second.converted, second.converted - first.converted
    kept = first.converted & second.converted
    nodes = {
        key: after.get(key, 0.0) - before.get(key, 0.0)
        for key in {*before, *after} - first.converted - second.converted - {"", GAPS}
    }
    known = {key for key in nodes if _is_known(key, first, second, middle)}
    order = sorted(known, key=nodes.__getitem__)
    faster = [key for key in order if nodes[key] < 0]
    slower = [key for key in reversed(order) if nodes[key] > 0]

    def named(keys: list[str]) -> list[dict[str, Any]]:
        return [
            {
                "node": key,
                "layouts": second.layouts.get(key),
                "before_ns": round(before.get(key, 0.0)),
                "after_ns": round(after.get(key, 0.0)),
            }
            for key in keys[:NAMED]
        ]

    ratio = interval(ratios, 0)
    return {
        "pairs": len(ratios),
        "ratio": [ratio.value, ratio.low, ratio.high],
        "before_ns": before[""],
        "after_ns": after[""],
        "parts_ns": {
            "conversions gone": -sum(before[key] for key in gone),
            "conversions new": sum(after[key] for key in new),
            "conversions that stay": sum(after[key] - before[key] for key in kept),
            "faster kernels": sum(nodes[key] for key in faster),
            "slower kernels": sum(nodes[key] for key in slower),
            "other kernels": sum(nodes[key] for key in nodes.keys() - known),
            "gaps": after[GAPS] - before[GAPS],
        },
        "converting_ns": [
            sum(times[key] for key in one.converted)
            for times, one in ((before, first), (after, second))
        ],
        "faster": named(faster),
        "slower": named(slower),
    }


def _is_known(key: str, first: Clocked, second: Clocked, pairs: list[int]) -> bool:
    """Return whether it is known which of two engines is faster at a node: the interval of the
    difference excludes 0.
    """
    before, after = ([one.steps[index].get(key, 0.0) for index in pairs] for one in (first, second))
    found = interval(np.array(after) - np.array(before), 0)
    return found.low > 0 or found.high < 0


def _means(runs: list[Mapping[str, float]]) -> dict[str, float]:
    return {key: float(np.mean([run[key] for run in runs])) for key in runs[0]}
