"""Variants with what they take on this machine, for the objective ``time``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import compress
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol

from optimizer.candidates import Variants, shared_variants
from ptensor.evaluation import Variant
from ptensor.layout import Layout
from resolver.evaluate import Resolution
from resolver.extended import OpNode
from resolver.probe import Prober
from vtensor.language.tensor import VTensor

if TYPE_CHECKING:
    from libdesc.transforms import LayoutChange


class Clock(Protocol):
    """What nodes and Transforms take on this machine, in nanoseconds."""

    def node(self, node: OpNode, values: Mapping[str, VTensor]) -> int | None:
        """Of a node as it is decided; None where that is not known."""

    def transform(self, value: VTensor, change: LayoutChange) -> int | None:
        """Of a value from one layout to the other; None where that is not known."""


def timed_variants(resolution: Resolution, clock: Clock) -> Variants:
    """The variants of every node, each as fast as its library runs it; the resolver's is the first.

    Tried are the variants of ``shared_variants`` and those that libraries have beside. Of those
    that differ at most in how constants lie the fastest is left; one whose time is not known is
    none.
    """
    prober = Prober(resolution)
    others = {node.name: prober.variants(node) for node in resolution.nodes}
    variants = shared_variants(resolution, others)
    return {
        node.name: _fastest(resolution, node, variants[node.name], clock)
        for node in resolution.nodes
    }


def _fastest(
    resolution: Resolution, node: OpNode, variants: Sequence[Variant], clock: Clock
) -> list[Variant]:
    """The resolver's variant, and for each that its neighbours may see the fastest."""
    if len(variants) == 1:
        return [*variants]
    values = resolution.values
    timed = [
        replace(one, ns=clock.node(replace(node, variant=one), values), measured=True)
        for one in variants
    ]
    if timed[0].ns is None:  # then there is nothing to compare with
        return [variants[0]]
    seen = [not values[name].constant for name in (*node.inputs, *node.outputs)]
    best: dict[tuple[Layout, ...], Variant] = {}
    for variant in sorted(
        (variant for variant in timed if variant.ns is not None), key=attrgetter("ns")
    ):
        best.setdefault(tuple(compress(variant.layouts, seen)), variant)
    return [timed[0], *(variant for variant in best.values() if variant is not timed[0])]
