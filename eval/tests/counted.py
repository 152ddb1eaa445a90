"""A program: conversions of networks under a cap, of the layout-aware baseline and of ``aware``.

``python -m eval.tests.counted CAP NETWORKS MIXES SIZE``, lists with commas, prints a line of
JSON for each network and mix. Size is ``small``, or ``whole`` for Table 1's.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

from eval.layout_aware import Conversions, Network
from eval.mixes import mixes
from eval.networks import SMALL, build
from optimizer.pipeline import optimise
from resolver.evaluate import resolve
from resolver.explain import explain_transforms
from resolver.extend import extend
from vtensor import limit_isa
from vtensor.commands.shared import Mix
from vtensor.language.graph import Graph
from vtensor.runtime.planning.library_options import preferences_of

Row = dict[str, object]


def aware(graph: Graph, mix: Mix) -> Conversions:
    """What the resolver's mode for layout-aware operators leaves to convert."""
    resolved = extend(resolve(graph, preferences=preferences_of(*mix)))
    left = explain_transforms(optimise(resolved, ["aware"]))
    return Conversions(len(left), sum(row["bytes"] for row in left))


def rows(name: str, sharing: list[str], size: int | None) -> Iterator[Row]:
    """Both counts of a network in each mix."""
    graph = build(name, size=size)
    for mix in sharing:
        baseline = Network(graph, mixes()[mix]).conversions
        counts = {"baseline": [*baseline], "aware": [*aware(graph, mixes()[mix])]}
        yield {"network": name, "mix": mix, **counts}


def main(cap: str, networks: str, mix_names: str, size: str) -> None:
    """Cap, plan, print."""
    if cap != "max":
        limit_isa(cap)
    for name in networks.split(","):
        for row in rows(name, mix_names.split(","), SMALL[name] if size == "small" else None):
            print(json.dumps({"cap": cap, **row}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
