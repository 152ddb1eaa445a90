"""The variants of a node that its own library did not decide: other libraries, fewer followers."""

from __future__ import annotations

import sys
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from libdesc.registry import ready
from optimizer.candidates import Candidates, other_libraries
from optimizer.estimate import Estimate
from optimizer.problem import Clock
from ptensor.evaluation import Refusal, Variant
from resolver.lowered import LoweredGraph, OpNode, pieces
from vtensor.language.records import replace

#: What a plan could save around a node where every library is to be asked.
ANY_GAIN = sys.maxsize


class Elsewhere:
    """Looks for such variants, as long as they could be worth it.

    Args:
        graph: without Transforms.
        clock: whether times are measured.
        spares: by node, what a plan could save around it. No library is asked whose estimate for a
            node is above the node's by as much, nor of other nodes: no plan is faster for it.
        estimate: what nodes would take.
        inexact: variants may be inexact.
        measured: the nodes whose times are measured.

    Attributes:
        graph: with the values that pass inside of fused nodes.
    """

    def __init__(
        self,
        graph: LoweredGraph,
        clock: Clock,
        spares: Mapping[str, int],
        estimate: Estimate,
        inexact: bool = False,
        measured: Container[str] = (),
    ) -> None:
        inside = {
            name: replace(graph.values[node.outputs[0]], name=name)
            for node in graph.operators
            for piece in pieces(node, 0)
            for name in piece.outputs
            if name not in graph.values
        }
        self.graph = replace(graph, values={**graph.values, **inside})
        self._candidates = Candidates(self.graph)
        self._estimate = estimate
        self._measured = measured
        self._how = "as measured" if clock.measured else "by estimate"
        self._spares = spares
        self._inexact = inexact

    def variants(self, node: OpNode) -> Iterator[Variant]:
        """On other libraries, where none is prescribed; and with each shorter run of followers."""
        if node.name not in self._spares:
            return
        most = self._ns([node]) + self._spares[node.name]
        bound = self.graph.preferences.order is not None
        measured = node.name in self._measured
        others = [] if bound else other_libraries(self.graph, node, passed=measured)
        for library in others:
            if self._ns([self._on(node, library)]) < most:
                for variant in self._candidates.on(node, library, self._inexact):
                    yield replace(variant, refused=self._refused(node, library))
        for count in range(len(node.followers)):
            for library in (node.variant.library, *others):
                yield from self._in_pieces(node, count, library, most)

    def _refused(self, node: OpNode, library: str) -> tuple[Refusal, ...]:
        """Why the library that priority chooses does not have it."""
        first = node.variant.library
        if library == first:
            return node.variant.refused
        why = f"the plan takes less time with {library}, {self._how}"
        before = [one for one in node.variant.refused if one.library != library]
        return (*before, Refusal(ready().libraries[first].priority, first, why))

    def _in_pieces(self, node: OpNode, count: int, library: str, most: int) -> Iterator[Variant]:
        """With so many followers on a library, and each other one as a node of its own."""
        lead, *others = pieces(node, count)
        if self._ns(self._on(one, library) for one in (lead, *others)) >= most:
            return
        for first in self._candidates.on(lead, library, self._inexact):
            made = [replace(lead, variant=first)]
            for one in others:
                found = self._after(one, made[-1])
                if found is None:
                    break
                made.append(replace(one, variant=found))
            else:
                yield replace(_together(made), refused=self._refused(node, library))

    def _on(self, node: OpNode, library: str) -> OpNode:
        """A node on a library, as far as it is known before that is asked."""
        own = node.variant
        layouts = tuple(self.graph.values[n].layout for n in (*node.inputs, *node.outputs))
        reference = own.reference and library == own.library and len(layouts) == len(own.layouts)
        variant = replace(own.lying(layouts), library=library, reference=reference)
        return replace(node, variant=variant)

    def _ns(self, nodes: Iterable[OpNode]) -> int:
        return sum(self._estimate.node(one, self.graph.tensors) for one in nodes)

    def _after(self, node: OpNode, before: OpNode) -> Variant | None:
        """What the first library decides that takes a node by itself behind another."""
        names = [node.variant.library, *other_libraries(self.graph, node, passed=True)]
        rank, known = self.graph.preferences.rank, ready().libraries
        given = {before.outputs[0]: before.variant.layouts[len(before.inputs)]}
        for library in sorted(set(names), key=lambda name: (rank(name), -known[name].priority)):
            if (found := self._candidates.after(node, library, given)) is not None:
                return found
        return None


def _together(nodes: Sequence[OpNode]) -> Variant:
    """What nodes one behind another are as one: its operands are those of all, in order."""
    first, *others = (node.variant for node in nodes)
    taken = len(nodes[0].inputs)
    layouts, asked = list(first.layouts[:taken]), list(first.requirements[:taken])
    for before, node in pairwise(nodes):
        for name, layout, one in zip(
            node.inputs, node.variant.layouts, node.variant.requirements, strict=False
        ):
            if name not in before.outputs:
                layouts.append(layout)
                asked.append(one)
    last = nodes[-1].variant
    return replace(
        first.lying([*layouts, last.layouts[-1], *first.layouts[taken + 1 :]]),
        requirements=(*asked, last.requirements[-1], *first.requirements[taken + 1 :]),
        pieces=(first, *others),
    )


def inexact_nodes(graph: LoweredGraph) -> list[str]:
    """The nodes of which a library has inexact variants, with all that is fused to them or less."""
    bare, estimate = graph.bare, Estimate(graph.preferences)
    any_gain = {node.name: ANY_GAIN for node in bare.operators}
    looking = Elsewhere(bare, estimate, any_gain, estimate, inexact=True)
    return [
        node.name
        for node in bare.operators
        if any(variant.inexact for variant in looking.variants(node))
    ]
