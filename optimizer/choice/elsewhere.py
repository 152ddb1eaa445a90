"""Variants of a node on other libraries and with fewer followers."""

from __future__ import annotations

import sys
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from libdesc.registry import ready
from optimizer.choice.candidates import Candidates, other_libraries
from optimizer.choice.estimate import Estimate
from optimizer.choice.problem import Clock
from ptensor.evaluation import Refusal, Variant
from resolver.lowered import LoweredGraph, OpNode, output_type, pieces
from vtensor.language.records import replace

#: A saving around a node, in nanoseconds, that is so large that every library is asked for
#: variants.
ANY_GAIN = sys.maxsize


class FurtherVariants:
    """Finds variants of nodes on other libraries and with fewer followers fused, if they may make a
    plan faster.

    Args:
        graph: a lowered graph without Transforms.
        clock: the clock by which variants are chosen; it tells whether times are measured.
        spares: by node, the nanoseconds that a plan could save around the node. A library is not
            asked if its estimate exceeds the present estimate of the node by at least that much. A
            node without an entry gets no further variants.
        estimate: estimated times of nodes.
        inexact: True admits approximate variants.
        measured: the names of the nodes whose times are measured.

    Attributes:
        graph: the graph, with more values: those that are made and read inside fused nodes.
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
        values = dict(graph.values)
        for node in graph.operators:
            for piece in pieces(node, 0):
                [first, *_] = piece.outputs
                if first not in values:  # it is made and read inside the fused node
                    dtype = output_type(piece, values)
                    values[first] = replace(values[node.outputs[0]], name=first, dtype=dtype)
        self.graph = replace(graph, values=values)
        self._candidates = Candidates(self.graph)
        self._estimate = estimate
        self._measured = measured
        self._how = "as measured" if clock.measured else "by estimate"
        self._spares = spares
        self._inexact = inexact

    def variants(self, node: OpNode) -> Iterator[Variant]:
        """Yield a node's variants on other libraries and with fewer followers fused.

        If the session prescribes the order of libraries, no other library is tried.
        """
        if node.name not in self._spares:
            return
        limit_ns = self._ns([node]) + self._spares[node.name]
        prescribed = self.graph.preferences.order is not None
        measured = node.name in self._measured
        others = [] if prescribed else other_libraries(self.graph, node, passed=measured)
        for library in others:
            if self._ns([self._on(node, library)]) < limit_ns:
                for variant in self._candidates.on(node, library, self._inexact):
                    yield replace(variant, refused=self._refused(node, library))
        for count in range(len(node.followers)):
            for library in (node.variant.library, *others):
                yield from self._in_pieces(node, count, library, limit_ns)

    def _refused(self, node: OpNode, library: str) -> tuple[Refusal, ...]:
        """Return the refusals of a node's variant on ``library``: which libraries do not run the
        node, and why.

        They are those of the node's present variant, with two changes if ``library`` is another
        than the present one. A refusal of ``library`` is left out, and a refusal of the present
        library is added.
        """
        first = node.variant.library
        if library == first:
            return node.variant.refused
        why = f"the plan takes less time with {library}, {self._how}"
        before = [refusal for refusal in node.variant.refused if refusal.library != library]
        return (*before, Refusal(ready().libraries[first].priority, first, why))

    def _in_pieces(
        self, node: OpNode, count: int, library: str, limit_ns: int
    ) -> Iterator[Variant]:
        """Yield variants in which a node runs on ``library`` in pieces: the first ``count``
        followers are fused, the others are steps of their own.

        Yield nothing if the estimated time is at least ``limit_ns`` nanoseconds.
        """
        lead, *others = pieces(node, count)
        if self._ns(self._on(piece, library) for piece in (lead, *others)) >= limit_ns:
            return
        for first in self._candidates.on(lead, library, self._inexact):
            decided = [replace(lead, variant=first)]
            for piece in others:
                variant = self._after(piece, decided[-1])
                if variant is None:
                    break
                decided.append(replace(piece, variant=variant))
            else:
                yield replace(_combined(decided), refused=self._refused(node, library))

    def _on(self, node: OpNode, library: str) -> OpNode:
        """Return a node as it would be on ``library``, with the layouts that the graph has; only
        for an estimate.
        """
        own = node.variant
        layouts = tuple(self.graph.values[n].layout for n in (*node.inputs, *node.outputs))
        reference = own.reference and library == own.library and len(layouts) == len(own.layouts)
        variant = replace(own.lying(layouts), library=library, reference=reference)
        return replace(node, variant=variant)

    def _ns(self, nodes: Iterable[OpNode]) -> int:
        return sum(self._estimate.node(node, self.graph.tensors) for node in nodes)

    def _after(self, node: OpNode, before: OpNode) -> Variant | None:
        """Return the variant of a node on the first library that can run it; None if no library
        can.

        Libraries are asked in the order of preference. The node reads the output of ``before`` in
        the layout in which the variant of ``before`` makes it.
        """
        names = [node.variant.library, *other_libraries(self.graph, node, passed=True)]
        rank, known = self.graph.preferences.rank, ready().libraries
        produced = {before.outputs[0]: before.variant.layouts[len(before.inputs)]}
        for library in sorted(set(names), key=lambda name: (rank(name), -known[name].priority)):
            if (variant := self._candidates.after(node, library, produced)) is not None:
                return variant
        return None


def _combined(nodes: Sequence[OpNode]) -> Variant:
    """Return one variant that runs consecutive nodes as its pieces, each in its own variant.

    The operands of the variant are those of all nodes, in order, without the values that one node
    makes for the next.
    """
    first, *others = (node.variant for node in nodes)
    input_count = len(nodes[0].inputs)
    layouts, requirements = (
        list(first.layouts[:input_count]),
        list(first.requirements[:input_count]),
    )
    for before, node in pairwise(nodes):
        for name, layout, requirement in zip(
            node.inputs, node.variant.layouts, node.variant.requirements, strict=False
        ):
            if name not in before.outputs:
                layouts.append(layout)
                requirements.append(requirement)
    last = nodes[-1].variant
    return replace(
        first.lying([*layouts, last.layouts[-1], *first.layouts[input_count + 1 :]]),
        requirements=(*requirements, last.requirements[-1], *first.requirements[input_count + 1 :]),
        pieces=(first, *others),
    )


def inexact_nodes(graph: LoweredGraph) -> list[str]:
    """Return the names of the nodes that a library can run in an approximate variant, with all or
    some of their followers fused.
    """
    bare, estimate = graph.bare, Estimate(graph.preferences)
    any_gain = {node.name: ANY_GAIN for node in bare.operators}
    finder = FurtherVariants(bare, estimate, any_gain, estimate, inexact=True)
    return [
        node.name
        for node in bare.operators
        if any(variant.inexact for variant in finder.variants(node))
    ]
