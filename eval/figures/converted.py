"""A program: what networks convert under a cap on instruction sets, in mixes, at each level.

``python -m eval.figures.converted CAP NETWORKS MIXES OBJECTIVE REPEATS THREADS`` (lists with
commas) prints a line of JSON for each network, mix and level. ``eval/processes.py`` says why it is
a process.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

import numpy as np

from eval.mixes import mixes
from eval.networks import build
from libdesc.registry import registry
from optimizer.pipeline import optimise
from optimizer.settings import Settings
from ptensor.buffer import fresh
from resolver.check import check
from resolver.evaluate import resolve
from resolver.explain import explain_transforms
from resolver.extend import extend
from resolver.lowered import LoweredGraph, TransformNode
from vtensor import limit_isa
from vtensor.runtime.execution.executor import Executor
from vtensor.runtime.planning.library_options import preferences_of
from vtensor.runtime.recording.on_numbers import plan_on_numbers
from vtensor.runtime.recording.workspace import Workspace
from vtensor.storage.budget import max_bytes_of

#: What is compared: passes, by what the table calls them. The first two are baselines.
LEVELS: Mapping[str, Sequence[str]] = {
    "(a) aware": ["aware"],
    "(a2) held": ["held"],
    "(b) resolver": "none",
    "(c) + LHO": "lho",
    "(d) + EWO": "ewo",
    "(e) all": "all",
}


@dataclass
class Clock:
    """Times of single Transforms in memory of their own, where a small one is in the cache.

    Transforms with the same library, element type, sizes and layouts are timed once, ``repeats``
    times; the median counts. So two graphs differ only by their conversions.
    """

    repeats: int
    threads: int
    known: dict[object, float] = field(default_factory=dict)

    def seconds(self, graph: LoweredGraph) -> float | None:
        """Return the time of all Transforms of a graph; None if nothing is to be timed."""
        return sum(self._one(graph, node) for node in graph.transforms()) if self.repeats else None

    def _one(self, graph: LoweredGraph, node: TransformNode) -> float:
        source, target = graph.values[node.input], graph.values[node.output]
        sizes = tuple(source.dims.items())
        key = (node.library, source.dtype, sizes, source.layout, target.layout)
        if key not in self.known:
            self.known[key] = Executor.of(self.threads).run(lambda: median(self._runs(graph, node)))
        return self.known[key]

    def _runs(self, graph: LoweredGraph, node: TransformNode) -> list[float]:
        values = {name: graph.values[name] for name in (node.input, node.output)}
        alone = LoweredGraph(node.name, values, [node], node.inputs, {node.output: node.output})
        plan = plan_on_numbers(alone, {}, Workspace(Executor.of(self.threads), max_bytes_of(None)))
        memory = [fresh(value.nbytes) for value in values.values()]
        for buffer in memory:
            buffer.fill(1)  # pages that nobody wrote would all be one page
        times = np.zeros((self.repeats + 1, 2), np.int64)
        for row in times:
            plan.replay(memory, row)
        return [(end - begin) / 1e9 for begin, end in times[1:].tolist()]


def rows(
    name: str, sharing: Sequence[str], settings: Settings, clock: Clock
) -> Iterator[dict[str, Any]]:
    """Yield the remaining conversions of a network in each mix at each level; every graph is
    checked.
    """
    graph, known = build(name), mixes()
    able = [library.name for library in registry().libraries.values() if library.transforms]
    for mix in sharing:
        preferences = preferences_of(*known[mix])
        resolved = extend(resolve(graph, preferences=preferences))
        for level, passes in LEVELS.items():
            optimised = optimise(resolved, passes, settings)
            check(optimised, graph, able)
            left = explain_transforms(optimised)
            yield {
                "network": name,
                "mix": mix,
                "level": level,
                "transforms": len(left),
                "bytes": sum(row["bytes"] for row in left),
                "seconds": clock.seconds(optimised),
                "certificate": asdict(optimised.certificate) if optimised.certificate else None,
            }


def main(
    cap: str, networks: str, mix_names: str, objective: str, repeats: str, threads: str
) -> None:
    """Cap, plan, print."""
    if cap != "max":
        limit_isa(cap)
    clock = Clock(int(repeats), int(threads))
    for name in networks.split(","):
        for row in rows(name, mix_names.split(","), Settings(objective), clock):
            print(json.dumps({"cap": cap, **row}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
