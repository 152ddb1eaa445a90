"""A program: the profile of one network, as a line of JSON.

``python -m eval.figures.profiled NETWORK SIZE RUNS THREADS``: SIZE 0 is the network's own.
``eval/profiles.py`` runs a process for each network, which frees its memory before the next.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from eval.networks import build
from resolver.lowered import OpNode
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


def main(name: str, size: str, runs: str, threads: str) -> None:
    """Profile a network as ``Session(model)`` runs it, and print the row.

    The arguments are those of the program, in the module's docstring.
    """
    graph = build(name, size=int(size) or None)
    with Session(graph, threads=int(threads)) as session:
        print(json.dumps(row(session.profile(runs=int(runs)))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
