"""A program: profiles of one network, a line of JSON for each batch size and level.

``python -m eval.figures.profiled CAP NETWORK BATCHES SIZE MIX LEVELS RUNS THREADS``, BATCHES and
LEVELS with commas: SIZE 0 is the network's own, a level may be ``baseline``. ``eval/profiles.py``
and ``eval/figures/breakdown.py`` run a process for each network, which frees the memory of one
network before the next is loaded.
"""

from __future__ import annotations

import json
import sys
from statistics import median
from time import perf_counter_ns
from typing import Any

from eval.compare import photograph
from eval.layout_aware import Network
from eval.layout_aware.context import CONVERSION
from eval.mixes import BY_PRIORITY, mixes
from eval.networks import build
from resolver.lowered import OpNode
from vtensor import limit_isa
from vtensor.commands.shared import Mix
from vtensor.language.graph import Graph
from vtensor.language.operators import OPERATORS, info_of
from vtensor.runtime.execution.plan_steps import PlanStep
from vtensor.runtime.session import Session
from vtensor.runtime.tuning.profile import Profile

#: Convolutions and products of matrices.
HEAVY = ("Conv2D", "DepthwiseConv2D", "MatMul")


def kind(step: PlanStep) -> str:
    """Return the kind of a step, fused nodes included: a key of ``eval.profiles.KINDS``."""
    if not isinstance(step.node, OpNode):
        return "conversions"
    return kind_of(info_of(step.node.op).name)


def kind_of(operator: str) -> str:
    """Return the kind of an operator, given by its name: a key of ``eval.profiles.KINDS``."""
    info = OPERATORS[operator]
    if info.name in HEAVY:
        return "heavy"
    if info.elementwise:
        return "element-wise"
    return "pooling" if "Pool" in info.name else "other"


def row(profile: Profile) -> dict[str, Any]:
    """Return a profile's row: the figures of a whole run and of each kind of step."""
    data = profile.to_dict()
    del data["steps"]
    kinds = profile.by(kind).items()
    return data | {"by_kind": {name: group.to_dict(profile.run_ns) for name, group in kinds}}


def baseline_row(graph: Graph, mix: Mix, runs: int, threads: int) -> dict[str, Any]:
    """Return the row of a profile of the layout-aware operators, timed over a number of runs.

    The conversions that run inside operators are a kind of their own.
    """
    network = Network(graph, mix, threads)
    feeds = {name: photograph(tuple(graph.values[name].dims.values())) for name in graph.inputs}
    network.run(feeds)
    took, groups = list[float](), dict[str, float]()
    for _ in range(runs):
        begin = perf_counter_ns()
        network.run(feeds)
        took.append(perf_counter_ns() - begin)
    for name, seconds in network.times(feeds, runs).items():
        group = "conversions" if name == CONVERSION else kind_of(name)
        groups[group] = groups.get(group, 0.0) + seconds * 1e9
    run_ns = median(took)
    return {
        "run_ns": {"median": run_ns, "min": min(took), "max": max(took)},
        "gaps_ns": {"share": max(0.0, 1 - sum(groups.values()) / run_ns)},
        "by_kind": {name: {"ns": ns, "share": ns / run_ns} for name, ns in groups.items()},
    }


def main(
    cap: str,
    name: str,
    batches: str,
    size: str,
    mix: str,
    levels: str,
    runs: str,
    threads: str,
) -> None:
    """Cap the instruction set (unless ``cap`` is ``max``), profile the network, print the rows.

    The arguments are those of the program, in the module's docstring.
    """
    if cap != "max":
        limit_isa(cap)
    shared = {"priority": BY_PRIORITY, **mixes()}[mix]
    for batch in batches.split(","):
        graph = build(name, int(batch), size=int(size) or None)
        for level in levels.split(","):
            about = {"network": name, "batch": int(batch), "optimize": level}
            if level == "baseline":
                profiled = baseline_row(graph, shared, int(runs), int(threads))
            else:
                options: dict[str, Any] = {"optimize": level, **shared._asdict()}
                with Session(graph, threads=int(threads), **options) as session:
                    profiled = row(session.profile(runs=int(runs)))
            print(json.dumps({**about, **profiled}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
