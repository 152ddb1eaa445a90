"""Which constants are factors of sums of products, where tiny numbers count for nothing."""

from __future__ import annotations

from resolver.lowered import LoweredGraph, OpNode
from vtensor.language.operators import info_of
from vtensor.language.traits import Linear


def of_products(graph: LoweredGraph) -> frozenset[str]:
    """The constants that are factors of sums of products, and nothing else."""
    factors, others = set[str](), {*graph.outputs.values()}
    for node in graph.nodes:
        if not isinstance(node, OpNode):
            others.add(node.input)
            continue
        linear = info_of(node.op).trait(Linear)
        roles = linear.inputs if linear is not None else ()
        for name, role in zip(node.inputs, node.roles, strict=False):
            value = graph.values[name]
            is_factor = value.constant and role in roles and len(value.dims) > 1
            (factors if is_factor else others).add(name)
    return frozenset(factors - others)
