"""A program: the profile of one of the twelve networks, as a line of JSON.

``python -m eval.profiled NETWORK RUNS THREADS``; ``eval/profiles.py`` runs one for each network, so
that the memory of one is gone before the next is loaded.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from eval.networks import build
from resolver.lowered import OpNode
from vtensor.language.operators import info_of
from vtensor.runtime.plan import PlanStep
from vtensor.runtime.profile import Profile
from vtensor.runtime.session import Session

#: Convolutions and products of matrices.
HEAVY = ("Conv2D", "DepthwiseConv2D", "MatMul")


def kind(step: PlanStep) -> str:
    """What a step counts as in the table, with what is fused behind it."""
    if not isinstance(step.node, OpNode):
        return "conversions"
    info = info_of(step.node.op)
    if info.name in HEAVY:
        return "heavy"
    if info.elementwise:
        return "element-wise"
    return "pooling" if "Pool" in info.name else "other"


def row(profile: Profile) -> dict[str, Any]:
    """A profile without its steps, which are many, and by kinds of operators."""
    data = profile.to_dict()
    del data["steps"]
    kinds = profile.by(kind).items()
    return data | {"by_kind": {name: group.to_dict(profile.run_ns) for name, group in kinds}}


def main(name: str, runs: str, threads: str) -> None:
    """Build, plan, profile."""
    with Session(build(name), threads=int(threads)) as session:
        print(json.dumps({"network": name, **row(session.profile(runs=int(runs)))}))


if __name__ == "__main__":
    main(*sys.argv[1:])
