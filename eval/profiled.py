"""A program: profiles of one network, a line of JSON each.

``python -m eval.profiled CAP NETWORK BATCHES SIZE MIX LEVELS RUNS THREADS``, batches and levels
with commas: SIZE 0 is the network's own, a level may be a pass. ``eval/profiles.py`` and
``eval/breakdown.py`` run one for each network, so that the memory of one is gone before the next is
loaded.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from eval.mixes import BY_PRIORITY, mixes
from eval.networks import build
from optimizer.pipeline import LEVELS
from resolver.lowered import OpNode
from vtensor import limit_isa
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
    """Cap; build, plan, profile."""
    if cap != "max":
        limit_isa(cap)
    shared = {"priority": BY_PRIORITY, **mixes()}[mix]._asdict()
    for batch in batches.split(","):
        graph = build(name, int(batch), size=int(size) or None)
        for level in levels.split(","):
            optimize: Any = level if level in LEVELS else [level]
            about = {"network": name, "batch": int(batch), "optimize": level}
            with Session(graph, threads=int(threads), optimize=optimize, **shared) as session:
                print(json.dumps({**about, **row(session.profile(runs=int(runs)))}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
