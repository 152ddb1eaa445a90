"""A program: where the difference of two times comes from, a line of JSON for each level.

``python -m eval.figures.parted CAP NETWORK MIX LEVELS SIZE THREADS PAIRS SECONDS``, LEVELS with
commas; SIZE 0 is the network's own. ``eval/figures/parts.py`` runs a process for each network.
"""

from __future__ import annotations

import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eval.compare import photograph
from eval.experiment import Scope
from eval.figures.turns import LOOK, MIN_PAIRS, interval, narrow_enough
from eval.layout_aware import Network
from eval.mixes import mixes
from eval.networks import build
from resolver.lowered import OpNode
from vtensor import limit_isa
from vtensor.runtime.execution.plan import Plan
from vtensor.runtime.session import Session

#: The key of the time in which no step runs.
GAPS = "gaps"
#: The most slower kernels that are named, and the most faster ones.
NAMED = 8


@dataclass
class Clocked:
    """An engine that times its steps.

    Attributes:
        step_ns: runs once; returns the nanoseconds of the run, and a mapping with the nanoseconds
            of each node by its name, and of each conversion by its key in ``converted``.
        converted: the keys of conversions.
        layouts: the layouts of a node, as text, by its name.
        runs: for each run, that mapping, with two more keys: ``""`` for the whole run, ``GAPS``.
    """

    step_ns: Callable[[], tuple[float, Mapping[str, float]]]
    converted: set[str]
    layouts: Mapping[str, str]
    runs: list[Mapping[str, float]] = field(default_factory=list)

    def run_once(self) -> None:
        """Run once, and keep the times."""
        whole, parts = self.step_ns()
        self.runs.append({**parts, "": whole, GAPS: whole - sum(parts.values())})

    @property
    def whole(self) -> Any:
        """The nanoseconds of each run."""
        return np.array([run[""] for run in self.runs])


def baseline(network: Network, feeds: Mapping[str, Any]) -> Clocked:
    """Return the layout-aware network as an engine."""
    conversions = network.converted()
    keys = [
        _conversion(conversions[index]) if index in conversions else each.step.node
        for index, each in enumerate(network.steps)
    ]

    def step_ns() -> tuple[float, Mapping[str, float]]:
        network.run(feeds)
        begin = time.perf_counter_ns()
        taken = network.step_ns(feeds)
        return time.perf_counter_ns() - begin, _sums(zip(keys, taken.tolist(), strict=True))

    return Clocked(step_ns, {*map(_conversion, conversions.values())}, {})


def ours(session: Session, feeds: Mapping[str, Any]) -> Clocked:
    """Return a session as an engine."""
    session.run(None, feeds)
    plan = session.plan
    names = _keys(plan)
    layouts = {each.step.node.name: each.layouts for each in session.profile(feeds, runs=1).steps}

    def step_ns() -> tuple[float, Mapping[str, float]]:
        profile = session.profile(feeds, runs=1)
        [times], [[begin, end]] = profile.times, profile.runs
        taken = (times[:, 1] - times[:, 0]).tolist()
        keys = (names[node] for node, _, _ in profile.calls)
        return float(end - begin), _sums(zip(keys, taken, strict=True))

    converted = {names[step.node.name] for step in plan.steps if step.is_transform}
    return Clocked(step_ns, converted, layouts)


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


def _sums(pairs: Iterator[tuple[str, float]]) -> dict[str, float]:
    sums = defaultdict[str, float](float)
    for key, ns in pairs:
        sums[key] += ns
    return dict(sums)


def alternate(first: Clocked, second: Clocked, pairs: int, seconds: float) -> None:
    """Run two engines in turns, A B B A, until the ratio is known or the time is over.

    Args:
        first, second: the engines.
        pairs: the least number of pairs, if there is time for so many.
        seconds: the most seconds.
    """
    for each in (first, second):
        each.run_once()  # a warm-up, which does not count
        each.runs.clear()
    until = time.monotonic() + seconds
    while (number := len(first.runs)) < MIN_PAIRS or time.monotonic() < until:
        look = number >= pairs and number % LOOK == 0
        if look and narrow_enough(interval(second.whole / first.whole, 0), Scope.within):
            return
        for each in (first, second) if number % 2 == 0 else (second, first):
            each.run_once()


def parts(first: Clocked, second: Clocked) -> dict[str, Any]:
    """Return where the difference of the second engine's time to the first one's comes from.

    Its parts are means over the half of the pairs whose ratios are in the middle, so that they add
    up to the difference of the means. *Other kernels* are those of which it is not known whether
    they are slower or faster.
    """
    ratios = second.whole / first.whole
    low, high = np.quantile(ratios, [0.25, 0.75])
    middle = [index for index, ratio in enumerate(ratios) if low <= ratio <= high]
    before, after = (_means([one.runs[index] for index in middle]) for one in (first, second))
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
        "runs_ns": [[round(ns) for ns in one.whole] for one in (first, second)],
    }


def _is_known(key: str, first: Clocked, second: Clocked, pairs: list[int]) -> bool:
    """Return whether it is known which of two engines is faster at a node: the interval of the
    difference excludes 0.
    """
    before, after = ([one.runs[index].get(key, 0.0) for index in pairs] for one in (first, second))
    found = interval(np.array(after) - np.array(before), 0)
    return found.low > 0 or found.high < 0


def _means(runs: list[Mapping[str, float]]) -> dict[str, float]:
    return {key: float(np.mean([run[key] for run in runs])) for key in runs[0]}


def main(
    cap: str,
    name: str,
    mix: str,
    levels: str,
    size: str,
    threads: str,
    pairs: str,
    seconds: str,
) -> None:
    """Cap the instruction set (unless ``cap`` is ``max``), and print a row for each level.

    The arguments are those of the program, in the module's docstring.
    """
    if cap != "max":
        limit_isa(cap)
    graph, shared = build(name, 1, size=int(size) or None), mixes()[mix]
    feeds = {each: photograph(tuple(graph.values[each].dims.values())) for each in graph.inputs}
    first = baseline(Network(graph, shared, int(threads)), feeds)
    for level in levels.split(","):
        options: dict[str, Any] = {"optimize": level, **shared._asdict(), "deterministic": True}
        with Session(graph, threads=int(threads), **options) as session:
            second = ours(session, feeds)
            alternate(first, second, int(pairs), float(seconds))
            about = {"network": name, "cap": cap, "mix": mix, "level": level}
            print(json.dumps({**about, **parts(first, second)}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
