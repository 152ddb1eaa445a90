"""The same network with other rows: what an optimisation makes of a resolution."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ptensor.evaluation import Variant
from resolver.evaluate import Resolution
from vtensor.language.tensor import VTensor


def revised(resolution: Resolution, variants: Mapping[str, Variant]) -> Resolution:
    """The resolution with some nodes decided otherwise; what was refused before stays on record.

    Args:
        resolution: it is not changed.
        variants: the new ones by node.
    """
    nodes, values = [], dict(resolution.values)
    for node in resolution.nodes:
        made = variants.get(node.name)
        if made is not None:
            node = replace(node, variant=replace(made, refused=node.variant.refused))
            produced = made.layouts[len(node.inputs) :]
            for name, layout in zip(node.outputs, produced, strict=True):
                old = values[name]
                values[name] = VTensor(old.dtype, old.dims, old.option)
                values[name].produced_layout = layout
        nodes.append(node)
    return replace(resolution, values=values, nodes=nodes)
