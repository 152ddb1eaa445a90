"""A program: profiles of one network, a line of JSON for each batch size and level.

``python -m eval.figures.profiled CAP NETWORK BATCHES SIZE MIX LEVELS RUNS THREADS``, BATCHES and
LEVELS with commas: SIZE 0 is the network's own. ``eval/profiles.py`` runs a process for each
network, which frees the memory of one network before the next is loaded.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from eval.mixes import BY_PRIORITY, mixes
from eval.networks import build
from resolver.lowered import OpNode
from vtensor import limit_isa
from vtensor.language.operators import OPERATORS, info_of
from vtensor.runtime.execution.plan_steps import PlanStep
from vtensor.runtime.session import Session
from vtensor.runtime.tuning.profile import Profile

#: The operators of the kind ``heavy``: convolutions and products of matrices.
HEAVY = ("Conv2D", "DepthwiseConv2D", "MatMul")


def kind(step: PlanStep) -> str:
    """Return the kind of a step, a key of ``eval.profiles.KINDS``.

    A step with fused nodes has the kind of its first node.
    """
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
    """Return a profile as a row: the numbers of a whole run, and of each kind of step."""
    data = profile.to_dict()
    del data["steps"]
    kinds = profile.by(kind).items()
    return data | {"by_kind": {name: group.to_dict(profile.run_ns) for name, group in kinds}}


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
            options: dict[str, Any] = {"optimize": level, **shared._asdict()}
            with Session(graph, threads=int(threads), **options) as session:
                profiled = row(session.profile(runs=int(runs)))
            print(json.dumps({**about, **profiled}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
