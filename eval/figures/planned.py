"""A program: how long the graph work before a first run takes, phase by phase, as a line of JSON.

``python -m eval.figures.planned CAP NETWORK MIX ENGINE SIZE THREADS``: ENGINE is ``ewo`` or
``baseline``, SIZE 0 is the network's own. The process is new, so that nothing is in a cache yet.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any, TypeVar

from eval.layout_aware import Network
from eval.mixes import mixes
from eval.networks import build
from libdesc.registry import registry
from optimizer.pipeline import optimise
from resolver.check import check
from resolver.evaluate import resolve
from resolver.extend import extend
from resolver.lowered import LoweredGraph, TransformNode
from vtensor import limit_isa
from vtensor.commands.shared import Mix
from vtensor.language.graph import Graph
from vtensor.runtime.execution.executor import Executor
from vtensor.runtime.planning.library_options import preferences_of
from vtensor.runtime.recording.on_numbers import plan_on_numbers
from vtensor.runtime.recording.workspace import Workspace
from vtensor.storage.budget import max_bytes_of

T = TypeVar("T")
#: The phases, in order. The baseline has neither resolver nor passes: its operators ask libraries
#: for kernels (``operators``), and compare and convert layouts (``layout pass``).
PHASES = (
    *("DLR", "insertion", "LHO", "EWO", "operators", "layout pass"),
    *("check", "constants", "recording"),
)


class Phases:
    """A clock for phases; ``seconds`` has the time of each phase so far."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PHASES, 0.0)

    def __call__(self, phase: str, run: Callable[[], T]) -> T:
        """Call a function, add its time to a phase, and return its result."""
        begin = time.perf_counter()
        result = run()
        self.seconds[phase] += time.perf_counter() - begin
        return result


def planned(graph: Graph, mix: Mix, threads: int) -> dict[str, Any]:
    """Plan and record a network with the paper's passes, and return a row.

    The row has the seconds of each phase and of EWO's solver, and the number of Transforms before
    the passes (``inserted``) and after them (``left``).
    """
    phases, preferences = Phases(), preferences_of(*mix)
    resolved = phases("DLR", lambda: resolve(graph, {}, preferences))
    extended = phases("insertion", lambda: extend(resolved))
    hoisted = phases("LHO", lambda: optimise(extended, ["lho"]))
    chosen = phases("EWO", lambda: optimise(hoisted, ["ewo"]))
    lowered = phases("LHO", lambda: optimise(chosen, ["lho"]))
    able = [library.name for library in registry().libraries.values() if library.transforms]
    phases("check", lambda: check(lowered, graph, able))
    _recorded(graph, lowered, threads, phases)
    counts = {"inserted": _transforms(extended), "left": _transforms(lowered)}
    proof = lowered.certificate
    return {"seconds": phases.seconds, "solver_s": proof and proof.seconds, **counts}


def baseline(graph: Graph, mix: Mix, threads: int) -> dict[str, Any]:
    """Return the row of ``planned`` for the layout-aware operators, which keep all conversions."""
    network = Network(graph, mix, threads)
    phases = {**network.phases, "layout pass": network.phases["conversions"]}
    seconds = {phase: phases.get(phase, 0.0) for phase in PHASES}
    count = network.conversions.number
    return {"seconds": seconds, "solver_s": None, "inserted": count, "left": count}


def _recorded(graph: Graph, lowered: LoweredGraph, threads: int, phases: Phases) -> None:
    """Record a lowered graph's plan; nodes that transform a constant count as ``constants``."""
    begun = {node.name: 0.0 for node in lowered.nodes}
    workspace = Workspace(Executor.of(threads), max_bytes_of(None))

    def progress(node: str) -> None:
        begun[node] = time.perf_counter()

    phases("recording", lambda: plan_on_numbers(lowered, graph.constants, workspace, progress))
    order = [*begun.items(), ("", time.perf_counter())]
    ahead = {
        node.name
        for node in lowered.nodes
        if isinstance(node, TransformNode) and lowered.values[node.input].constant
    }
    for (name, begin), (_, end) in pairwise(order):
        if name in ahead:
            phases.seconds["constants"] += end - begin
            phases.seconds["recording"] -= end - begin


def _transforms(graph: LoweredGraph) -> int:
    """Return the number of a graph's Transforms that run each time: not those of constants."""
    return sum(not graph.values[node.input].constant for node in graph.transforms())


def main(cap: str, name: str, mix: str, engine: str, size: str, threads: str) -> None:
    """Cap the instruction set (unless ``cap`` is ``max``), plan the network and print the row.

    The arguments are those of the program, in the module's docstring.
    """
    if cap != "max":
        limit_isa(cap)
    graph = build(name, size=int(size) or None)
    plan = baseline if engine == "baseline" else planned
    row = plan(graph, mixes()[mix], int(threads))
    print(json.dumps({"nodes": len(graph.nodes), **row}))


if __name__ == "__main__":
    main(*sys.argv[1:])
