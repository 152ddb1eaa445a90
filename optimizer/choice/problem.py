"""The choice of variants as a problem: the layouts in which values are made and wanted, and the
costs.

Each node runs in one of its variants. A node with several variants is open; a node with one is
fixed, as are the graph's inputs and outputs. A Transform is needed for each layout in which a value
is wanted but not made; identical Transforms count once. A choice maps open nodes to the index of a
variant. For a node that it lacks, the index is 0, the variant that the resolver chose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from math import ceil
from typing import NamedTuple

from libdesc.transforms import LayoutChange
from optimizer.choice.clocks import Clock as Clock
from optimizer.choice.clocks import Probing as Probing
from optimizer.choice.errors import Allowed, Shares, charged
from ptensor.evaluation import Variant
from ptensor.layout import Layout
from resolver.errors import Share, expected
from resolver.lowered import LoweredGraph, OpNode, Value
from vtensor.language.cached import cached_property
from vtensor.language.records import dataclass

#: The nanoseconds charged for a Transform of unknown time. They are more than any plan gains, so
#: that a plan has such a Transform only if the resolver's own variants need it.
UNTIMED_NS = 10**9

#: The noise of measured times, as a fraction of them. ``NOISE`` is for times measured while
#: planning, which are compared with estimates. ``TUNED_NOISE`` is for times of a tuned plan, whose
#: kernels ran on memory of their own.
NOISE, TUNED_NOISE = 0.05, 0.1

#: The noise of the measured time of a node whose followers are steps of their own, as a fraction of
#: that time. Followers were timed with warm caches, and a kernel's time varies with its memory by
#: more than a follower takes.
PIECES_NOISE = 0.2

#: A Transform that a choice may need: a value, the layout in which it is made, and the layout in
#: which it is wanted.
Edge = tuple[str, Layout, Layout]


def with_doubt(variant: Variant) -> int:
    """Return a variant's time in nanoseconds; 0 if it is unknown.

    If the variant has several pieces and its time was measured, the noise of that time is added.
    """
    ns = variant.ns or 0
    return ns + ceil(ns * PIECES_NOISE) if variant.pieces and variant.basis == "measured" else ns


class Traffic(NamedTuple):
    """The padded bytes that Transforms read and write, and the number of Transforms."""

    bytes: int
    transforms: int


class Use(NamedTuple):
    """A use of a value: by a node, or as an output of the graph.

    Attributes:
        node: the name of the node; empty for an output of the graph.
        place: index of the value among the node's inputs.
        layout: the layout in which an output of the graph is wanted; None for a node, because the
            node's variant decides.
    """

    node: str
    place: int
    layout: Layout | None = None


@dataclass(frozen=True)
class Problem:
    """The variants of a graph's nodes, the edges between them, and limits.

    Attributes:
        graph: the lowered graph, without Transforms.
        variants: the variants of each open node (a node with several), the resolver's variant
            first. Nodes are in topological order.
        clock: the clock with the times of Transforms, for the objective ``time``; else None.
        margin: what the objective ``time`` charges a variant that differs from the first one in
            library or kernel or has fewer followers fused: a fraction of the time of the first
            variant. A variant with a measured time is not charged it; if it has pieces, the noise
            of that time is added instead (``with_doubt``).
        shares: by node and index of a variant, what each approximate variant adds to the error of
            the results.
        allowed: the limit of what the approximate variants of a choice add together; None if none
            is admitted.
        room: the bytes that packed constants may take beyond those of the resolver's variants; None
            for no limit.
        price: nanoseconds that ``time`` charges for each Transform on top of its time.
    """

    graph: LoweredGraph
    variants: Mapping[str, Sequence[Variant]]
    clock: Clock | None = None
    margin: float = 0.0
    shares: Shares = field(default_factory=dict)
    allowed: Allowed | None = None
    room: int | None = None
    price: int = 0
    _known: dict[object, dict[Layout, Layout]] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls,
        graph: LoweredGraph,
        variants: Mapping[str, Sequence[Variant]],
        clock: Clock | None = None,
        margin: float = 0.0,
        allowed: Allowed | None = None,
        room: int | None = None,
        price: float = 0.0,
    ) -> Problem:
        """Return the problem of a graph. Nodes with a single variant are left out of its
        ``variants``.

        ``price`` is here a fraction of the time that all nodes take in their first variants. All
        other arguments are the attributes of these names.
        """
        charge = ceil(price * sum(of_node[0].ns or 0 for of_node in variants.values()))
        graph, shares = graph.bare, Shares()
        if allowed is not None:
            nodes = {node.name: node for node in graph.operators}
            variants, shares = charged(nodes, variants, allowed)
        several = {name: tuple(of_node) for name, of_node in variants.items() if len(of_node) > 1}
        return cls(graph, several, clock, margin, shares, allowed, room, charge)

    @cached_property
    def nodes(self) -> dict[str, OpNode]:
        """The nodes by name."""
        return {node.name: node for node in self.graph.operators}

    @cached_property
    def makers(self) -> dict[str, str]:
        """By name of a value, the name of the node that makes it."""
        return {name: node.name for node in self.graph.operators for name in node.outputs}

    @cached_property
    def uses(self) -> dict[str, list[Use]]:
        """The uses of each value that is no constant, by value.

        An output of the graph that may have any layout is no use.
        """
        uses: dict[str, list[Use]] = {}
        for node in self.graph.operators:
            for index, name in enumerate(node.inputs):
                if not self.value(name).constant:
                    uses.setdefault(name, []).append(Use(node.name, index))
        for alias, name in self.graph.outputs.items():
            layout = self.graph.delivery.get(alias, Layout.plain(self.value(name).dims))
            if not layout.is_any and not self.value(name).constant:
                uses.setdefault(name, []).append(Use("", 0, layout))
        return uses

    def value(self, name: str) -> Value:
        """Return the value of the graph named ``name``."""
        return self.graph.values[name]

    def variants_of(self, node: str) -> Sequence[Variant]:
        """Return all variants of a node; a fixed node has one."""
        return self.variants.get(node) or (self.nodes[node].variant,)

    def same(self, value: str, layout: Layout) -> Layout:
        """Return the layout that represents all layouts that are equal to ``layout`` in memory, for
        the sizes of ``value``.
        """
        dims = self.value(value).dims
        known = self._known.setdefault(tuple(dims.items()), {})
        if layout not in known:
            alike = (known[other] for other in known if other.same(layout, dims))
            known[layout] = next(alike, layout)
        return known[layout]

    def made(self, value: str, number: int) -> Layout:
        """Return the layout in which a value is made if its maker runs in the variant with index
        ``number``.

        If no node makes the value, it is the layout that the value has in the graph.
        """
        if value not in self.makers:
            return self.same(value, self.value(value).layout)
        node = self.nodes[self.makers[value]]
        place = len(node.inputs) + node.outputs.index(value)
        return self.same(value, self.variants_of(node.name)[number].layouts[place])

    def wanted(self, value: str, use: Use, number: int) -> Layout:
        """Return the layout in which ``use`` wants a value if its node runs in the variant with
        index ``number``.

        If the use is an output of the graph, ``number`` does not matter.
        """
        if use.layout is not None:
            return self.same(value, use.layout)
        return self.same(value, self.variants_of(use.node)[number].layouts[use.place])

    def bytes(self, value: str, source: Layout, target: Layout) -> int:
        """Return the bytes that a Transform of a value reads and writes, pads included."""
        tensor = self.value(value)
        return sum(layout.nbytes(tensor.dims, tensor.dtype) for layout in (source, target))

    def ns(self, value: str, source: Layout, target: Layout) -> int:
        """Return what the objective ``time`` charges for a Transform, in nanoseconds: its time, its
        noise and its price.

        It is ``UNTIMED_NS`` if the time is unknown.
        """
        assert self.clock is not None, "the objective time has a clock"
        ns = self.clock.transform(self.graph.tensors[value], LayoutChange(source, target))
        return UNTIMED_NS if ns is None else ns + self.doubt(value) + self.price

    def doubt(self, value: str) -> int:
        """Return what the objective ``time`` charges for any Transform of a value as noise, in
        nanoseconds.

        It is the noise of the longest measured time of an open node that makes or reads it, in the
        node's first variant or in a faster approximate one. Of two choices whose times differ by
        less, the one with fewer Transforms is then cheaper.
        """
        around = {self.makers.get(value, ""), *(use.node for use in self.uses.get(value, ()))}
        open_nodes = (self.variants[node] for node in around & self.variants.keys())
        ns = max(
            (
                min(v.ns or 0 for v in of_node if v is of_node[0] or v.inexact)
                for of_node in open_nodes
                if of_node[0].basis == "measured"
            ),
            default=0,
        )
        return ceil(ns * (NOISE if self.margin else TUNED_NOISE))

    def charged(self, node: str, number: int) -> int:
        """Return what the objective ``time`` charges for an open node in the variant with index
        ``number``, in nanoseconds.

        It is the time of the variant, and the noise (``with_doubt``) or the ``margin`` that applies
        to it.
        """
        first, variant = self.variants[node][0], self.variants[node][number]
        same = (variant.library, variant.kernel) == (first.library, first.kernel)
        doubtful = (not same or bool(variant.pieces)) and variant.basis != "measured"
        return with_doubt(variant) + doubtful * ceil((first.ns or 0) * self.margin)

    def chosen_shares(self, chosen: Mapping[str, int]) -> tuple[Share, ...]:
        """Return what each approximate variant of a choice adds to the error of the results."""
        none: Mapping[int, Share] = {}
        rows = ((self.shares.get(name, none), number) for name, number in chosen.items())
        return tuple(shares[number] for shares, number in rows if number in shares)

    def packed_more(self, node: str, number: int) -> int:
        """Return the bytes that the packed constants of a variant take beyond those of the node's
        first variant.

        The number is negative if they take less.
        """
        first, variant = self.variants[node][0], self.variants[node][number]
        return sum(
            now.nbytes(value.dims, value.dtype) - then.nbytes(value.dims, value.dtype)
            for name, then, now in zip(
                self.nodes[node].inputs, first.layouts, variant.layouts, strict=False
            )
            if (value := self.value(name)).constant
        )

    def fits(self, chosen: Mapping[str, int]) -> bool:
        """Return whether a choice keeps within the error budget (``allowed``) and the room for
        packed constants.
        """
        if self.allowed and expected(self.chosen_shares(chosen)) > self.allowed.limit:
            return False
        more = sum(self.packed_more(name, chosen.get(name, 0)) for name in self.variants)
        return self.room is None or not more or more <= self.room

    def edges(
        self, chosen: Mapping[str, int], values: Iterable[str] | None = None
    ) -> Iterator[tuple[str, Layout, Layout, Use]]:
        """Yield (value, layout in which it is made, layout in which it is wanted, use) for each use
        of a value in a choice.

        Args:
            chosen: the index of the variant by node; 0 for nodes that it lacks.
            values: the values whose edges are yielded; None is all.
        """
        for value in self.uses if values is None else values:
            source = self.made(value, chosen.get(self.makers.get(value, ""), 0))
            for use in self.uses.get(value, ()):
                yield value, source, self.wanted(value, use, chosen.get(use.node, 0)), use

    def avoidable(self, edge: Edge) -> bool:
        """Return whether there is a choice that does not need the Transform ``edge``."""
        value, source, _ = edge
        if any(self.made(value, i) != source for i in self._numbers(self.makers.get(value))):
            return True
        return all(self._can_avoid(edge, use.node) for use in self.uses[value])

    def _can_avoid(self, edge: Edge, node: str) -> bool:
        """Return whether a node has a variant that wants the value of the Transform ``edge`` in
        another layout than the one after the Transform.
        """
        value, _, target = edge
        uses = [use for use in self.uses[value] if use.node == node]
        numbers = self._numbers(node)
        return any(all(self.wanted(value, use, i) != target for use in uses) for i in numbers)

    def _numbers(self, node: str | None) -> range:
        """Return the indices of a node's variants.

        The only index is 0 for a fixed node, and if ``node`` is no node of the graph.
        """
        return range(len(self.variants.get(node or "", [0])))

    def shared_cost(
        self, chosen: Mapping[str, int], values: Iterable[str] | None = None
    ) -> Traffic:
        """Return the cost of a choice for the objective ``shared``: bytes and number of Transforms,
        identical ones counted once.

        Args:
            chosen: the index of the variant by node; 0 for nodes that it lacks.
            values: the values whose Transforms are counted; None is all.
        """
        owed = self._owed(chosen, values)
        return Traffic(sum(self.bytes(*edge) for edge in owed), len(owed))

    def time_cost(self, chosen: Mapping[str, int]) -> int:
        """Return the cost of a choice for the objective ``time``, in nanoseconds: of open nodes and
        of Transforms. Identical Transforms are counted once.
        """
        kernels = (self.charged(node, chosen.get(node, 0)) for node in self.variants)
        return sum(kernels) + sum(self.ns(*edge) for edge in self._owed(chosen))

    def without_idle_changes(self, chosen: Mapping[str, int]) -> dict[str, int]:
        """Return a choice without those changes that gain no time: the index of the variant by
        node.

        A node has a change if the index of its variant is above 0. It is left out if its first
        variant costs no more nanoseconds.
        """
        kept = {node: number for node, number in chosen.items() if number}
        for name in reversed(list(kept)):
            without = {node: number for node, number in kept.items() if node != name}
            node = self.nodes[name]
            around = self.uses.keys() & {*node.inputs, *node.outputs}
            ns_without, ns_kept = (
                self.charged(name, choice.get(name, 0))
                + sum(self.ns(*edge) for edge in self._owed(choice, around))
                for choice in (without, kept)
            )
            kept = without if ns_without <= ns_kept else kept
        return kept

    def objective(self, name: str) -> Callable[[Mapping[str, int]], int]:
        """Return the cost function of an objective: it maps a choice to a whole number of bytes,
        edges or nanoseconds.
        """
        return {
            "shared": lambda chosen: self.shared_cost(chosen).bytes,
            "paper": self.paper_cost,
            "time": self.time_cost,
        }[name]

    def _owed(self, chosen: Mapping[str, int], values: Iterable[str] | None = None) -> set[Edge]:
        """Return the Transforms that a choice needs, of ``values`` only unless that is None."""
        return {(v, s, t) for v, s, t, _ in self.edges(chosen, values) if s != t}

    def paper_cost(self, chosen: Mapping[str, int]) -> int:
        """Return the cost of a choice for the objective ``paper``: the number of edges whose two
        ends differ in layout.

        Source: the paper, section 5.2, the cost matrix C_ij.
        """
        return sum(source != target for _, source, target, _ in self.edges(chosen))
