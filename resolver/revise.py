"""The same network with other rows: what an optimisation makes of a resolution."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ptensor.evaluation import Decision
from resolver.evaluate import Resolution
from vtensor.tensor import VTensor


def revised(resolution: Resolution, decisions: Mapping[str, Decision]) -> Resolution:
    """The resolution with some nodes decided otherwise; what was refused before stays on record.

    Args:
        resolution: it is not changed.
        decisions: the new ones by node.
    """
    nodes, values = [], dict(resolution.values)
    for node in resolution.nodes:
        made = decisions.get(node.name)
        if made is not None:
            node = replace(node, decision=replace(made, refused=node.decision.refused))
            produced = made.layouts[len(node.inputs) :]
            for name, layout in zip(node.outputs, produced, strict=True):
                old = values[name]
                values[name] = VTensor(old.dtype, old.dims, old.option)
                values[name].produced_layout = layout
        nodes.append(node)
    return replace(resolution, values=values, nodes=nodes)
