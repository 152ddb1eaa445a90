"""A program: the conversions of networks under a cap on the instruction set, by mix and level.

``python -m eval.figures.converted CAP NETWORKS MIXES OBJECTIVE REPEATS THREADS`` (NETWORKS and
MIXES with commas) prints a line of JSON for each network, mix and level. OBJECTIVE is EWO's,
REPEATS how often a Transform is timed. ``eval/processes.py`` says why it is a process.
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

#: The columns of the table, with the level or the passes of each. The first two are baselines.
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
    """A source of the times of Transforms, each run alone, in memory of its own.

    Transforms with the same library, element type, sizes and layouts are timed once and have one
    time, so that the times of two graphs differ only by their conversions. The memory of a small
    one is in the processor's cache.

    Attributes:
        repeats: how many runs a time is the median of; 0 times nothing.
        threads: the number of threads of a run.
        known: seconds by library, element type, sizes and layouts.
    """

    repeats: int
    threads: int
    known: dict[object, float] = field(default_factory=dict)

    def seconds(self, graph: LoweredGraph) -> float | None:
        """Return the sum of the times of a graph's Transforms, in seconds; None if ``repeats`` is
        0.
        """
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
            buffer.fill(1)  # until they are written, all pages may be one page of physical memory
        times = np.zeros((self.repeats + 1, 2), np.int64)
        for row in times:
            plan.replay(memory, row)
        return [(end - begin) / 1e9 for begin, end in times[1:].tolist()]


def rows(
    name: str, sharing: Sequence[str], settings: Settings, clock: Clock
) -> Iterator[dict[str, Any]]:
    """Yield a row for each mix and level: the conversions that remain in a network's checked graph.

    Args:
        name: the name of the network.
        sharing: the names of the mixes.
        settings: the settings of the passes.
        clock: times the Transforms.
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
    """Cap the instruction set (unless ``cap`` is ``max``), plan the networks and print the rows.

    The arguments are those of the program, in the module's docstring.
    """
    if cap != "max":
        limit_isa(cap)
    clock = Clock(int(repeats), int(threads))
    for name in networks.split(","):
        for row in rows(name, mix_names.split(","), Settings(objective), clock):
            print(json.dumps({"cap": cap, **row}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
