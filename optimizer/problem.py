"""The choice of variants as a problem: the layouts in which values are made and wanted, and costs.

Each node runs in one of its variants; a node with one variant is fixed. A graph's inputs and
outputs are fixed too. A Transform is owed for each (value, layout) that somebody wants and that is
not the layout in which the value is made; identical ones count once. A choice is the number of a
variant by open node; 0, the resolver's, where nothing is said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from math import ceil
from typing import NamedTuple

from libdesc.transforms import LayoutChange
from optimizer.clocks import Clock as Clock
from optimizer.clocks import Probing as Probing
from optimizer.errors import Allowed, Shares, charged
from ptensor.evaluation import Variant
from ptensor.layout import Layout
from resolver.errors import Share, expected
from resolver.lowered import LoweredGraph, OpNode, Value
from vtensor.language.cached import cached_property
from vtensor.language.records import dataclass

#: The price of a Transform that has no time: more than any plan gains, so that a plan has one only
#: where the resolver's own variants need it.
UNTIMED_NS = 10**9

#: What a time may be off by, as a part of it: one that was measured in passing and is compared with
#: estimates; and one of a plan that is measured, where each kernel ran on memory of its own.
NOISE, TUNED_NOISE = 0.05, 0.1

#: What the time of a node whose followers run as steps of their own may be off by, as a part of it:
#: these were timed with all that they read in the caches, and the same kernel on other memory
#: differs by more than a follower takes.
PIECES_NOISE = 0.2

#: What may need a Transform: a value, the layout in which it is made, and the one that is wanted.
Edge = tuple[str, Layout, Layout]


def with_doubt(variant: Variant) -> int:
    """What a variant takes; if it was measured as several steps, and what that may be off by."""
    ns = variant.ns or 0
    return ns + ceil(ns * PIECES_NOISE) if variant.pieces and variant.basis == "measured" else ns


class Cost(NamedTuple):
    """What Transforms move, padded bytes read plus written; and how many there are."""

    bytes: int
    transforms: int


class Use(NamedTuple):
    """Who wants a value: an input of a node, by its place; a delivery has a layout and no node."""

    node: str
    place: int
    layout: Layout | None = None


@dataclass(frozen=True)
class Problem:
    """Variants, and the edges between them.

    Attributes:
        graph: whose nodes and values these are, without Transforms.
        variants: the variants of each open node, the resolver's first; nodes in topological order.
        clock: what the objective ``time`` takes Transforms' nanoseconds from.
        margin: what ``time`` charges for another library or kernel than the first variant's, and
            for fewer followers, as a part of what the first takes, unless times were measured; then
            see ``with_doubt``.
        shares: what each inexact variant adds to the error of the results.
        allowed: what all of them may add; None where there is no inexact variant.
        room: bytes by which packed constants may take more than in the resolver's variants; None
            is any.
        price: nanoseconds that ``time`` charges for each Transform beside all else.
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
        """The problem of a graph; nodes with one variant are left out.

        Here the price of a Transform is a part of what all nodes take in their first variants.
        """
        charge = ceil(price * sum(found[0].ns or 0 for found in variants.values()))
        graph, shares = graph.bare, Shares()
        if allowed is not None:
            nodes = {node.name: node for node in graph.operators}
            variants, shares = charged(nodes, variants, allowed)
        several = {name: tuple(found) for name, found in variants.items() if len(found) > 1}
        return cls(graph, several, clock, margin, shares, allowed, room, charge)

    @cached_property
    def nodes(self) -> dict[str, OpNode]:
        """The nodes by name."""
        return {node.name: node for node in self.graph.operators}

    @cached_property
    def makers(self) -> dict[str, str]:
        """The node that makes a value."""
        return {name: node.name for node in self.graph.operators for name in node.outputs}

    @cached_property
    def uses(self) -> dict[str, list[Use]]:
        """Who wants each value that is no constant; nobody who takes it in whatever layout."""
        found: dict[str, list[Use]] = {}
        for node in self.graph.operators:
            for index, name in enumerate(node.inputs):
                if not self.value(name).constant:
                    found.setdefault(name, []).append(Use(node.name, index))
        for alias, name in self.graph.outputs.items():
            layout = self.graph.delivery.get(alias, Layout.plain(self.value(name).dims))
            if not layout.is_any and not self.value(name).constant:
                found.setdefault(name, []).append(Use("", 0, layout))
        return found

    def value(self, name: str) -> Value:
        """A value of the network."""
        return self.graph.values[name]

    def variants_of(self, node: str) -> Sequence[Variant]:
        """All variants of a node."""
        return self.variants.get(node) or (self.nodes[node].variant,)

    def same(self, value: str, layout: Layout) -> Layout:
        """One layout for all that put every element of a value at the same place."""
        dims = self.value(value).dims
        known = self._known.setdefault(tuple(dims.items()), {})
        if layout not in known:
            alike = (known[other] for other in known if other.same(layout, dims))
            known[layout] = next(alike, layout)
        return known[layout]

    def made(self, value: str, number: int) -> Layout:
        """The layout in which a value is made when its maker runs in a variant."""
        if value not in self.makers:
            return self.same(value, self.value(value).layout)
        node = self.nodes[self.makers[value]]
        place = len(node.inputs) + node.outputs.index(value)
        return self.same(value, self.variants_of(node.name)[number].layouts[place])

    def wanted(self, value: str, use: Use, number: int) -> Layout:
        """The layout in which a use wants a value when its node runs in a variant."""
        if use.layout is not None:
            return self.same(value, use.layout)
        return self.same(value, self.variants_of(use.node)[number].layouts[use.place])

    def bytes(self, value: str, source: Layout, target: Layout) -> int:
        """What a Transform of a value reads and writes, pads included."""
        tensor = self.value(value)
        return sum(layout.nbytes(tensor.dims, tensor.dtype) for layout in (source, target))

    def ns(self, value: str, source: Layout, target: Layout) -> int:
        """What a Transform of a value takes on this machine; ``UNTIMED_NS`` if it has no time."""
        assert self.clock is not None, "the objective time has a clock"
        found = self.clock.transform(self.graph.tensors[value], LayoutChange(source, target))
        return UNTIMED_NS if found is None else found + self.doubt(value) + self.price

    def doubt(self, value: str) -> int:
        """What the objective ``time`` charges for any Transform of a value beside what it takes.

        It is the noise of measured times: of two choices that differ by less, the one with fewer
        Transforms is the cheaper.
        """
        around = {self.makers.get(value, ""), *(use.node for use in self.uses.get(value, ()))}
        firsts = (self.variants[node][0] for node in around & self.variants.keys())
        ns = max((one.ns or 0 for one in firsts if one.basis == "measured"), default=0)
        return ceil(ns * (NOISE if self.margin else TUNED_NOISE))

    def charged(self, node: str, number: int) -> int:
        """What the objective ``time`` charges for an open node in a variant, in nanoseconds."""
        first, variant = self.variants[node][0], self.variants[node][number]
        same = (variant.library, variant.kernel) == (first.library, first.kernel)
        doubtful = (not same or bool(variant.pieces)) and variant.basis != "measured"
        return with_doubt(variant) + doubtful * ceil((first.ns or 0) * self.margin)

    def chosen_shares(self, chosen: Mapping[str, int]) -> tuple[Share, ...]:
        """What the inexact variants of a choice add to the error of the results."""
        none: Mapping[int, Share] = {}
        found = ((self.shares.get(name, none), number) for name, number in chosen.items())
        return tuple(shares[number] for shares, number in found if number in shares)

    def packed_more(self, node: str, number: int) -> int:
        """By how many bytes an open node's constants take more in a variant than in the first."""
        first, variant = self.variants[node][0], self.variants[node][number]
        return sum(
            now.nbytes(value.dims, value.dtype) - then.nbytes(value.dims, value.dtype)
            for name, then, now in zip(
                self.nodes[node].inputs, first.layouts, variant.layouts, strict=False
            )
            if (value := self.value(name)).constant
        )

    def fits(self, chosen: Mapping[str, int]) -> bool:
        """A choice keeps to the budget of errors and to the room for constants."""
        if self.allowed and expected(self.chosen_shares(chosen)) > self.allowed.budget:
            return False
        more = sum(self.packed_more(name, chosen.get(name, 0)) for name in self.variants)
        return self.room is None or not more or more <= self.room

    def edges(
        self, chosen: Mapping[str, int], values: Iterable[str] | None = None
    ) -> Iterator[tuple[str, Layout, Layout, Use]]:
        """Value, layout in which it is made, layout in which it is wanted, by whom.

        ``values`` are those to look at; None is all.
        """
        for value in self.uses if values is None else values:
            source = self.made(value, chosen.get(self.makers.get(value, ""), 0))
            for use in self.uses.get(value, ()):
                yield value, source, self.wanted(value, use, chosen.get(use.node, 0)), use

    def avoidable(self, edge: Edge) -> bool:
        """Some choice needs no such Transform: its value is made, or wanted, otherwise."""
        value, source, _ = edge
        if any(self.made(value, one) != source for one in self._numbers(self.makers.get(value))):
            return True
        return all(self._spares(edge, use.node) for use in self.uses[value])

    def _spares(self, edge: Edge, node: str) -> bool:
        """In some variant a node wants the value of an edge otherwise, wherever it takes it."""
        value, _, target = edge
        uses = [use for use in self.uses[value] if use.node == node]
        numbers = self._numbers(node)
        return any(all(self.wanted(value, use, one) != target for use in uses) for one in numbers)

    def _numbers(self, node: str | None) -> range:
        """The numbers of a node's variants; callers, who give and take, have one."""
        return range(len(self.variants.get(node or "", [0])))

    def shared_cost(self, chosen: Mapping[str, int], values: Iterable[str] | None = None) -> Cost:
        """The objective ``shared``: identical Transforms of a value count once."""
        owed = self._owed(chosen, values)
        return Cost(sum(self.bytes(*edge) for edge in owed), len(owed))

    def time_cost(self, chosen: Mapping[str, int]) -> int:
        """The objective ``time``: nanoseconds of open nodes, and of Transforms as in ``shared``."""
        kernels = (self.charged(node, chosen.get(node, 0)) for node in self.variants)
        return sum(kernels) + sum(self.ns(*edge) for edge in self._owed(chosen))

    def returned(self, chosen: Mapping[str, int]) -> dict[str, int]:
        """A choice without what gains no time: such nodes keep the variant that they had."""
        kept = {node: number for node, number in chosen.items() if number}
        for name in reversed(list(kept)):
            back = {node: number for node, number in kept.items() if node != name}
            node = self.nodes[name]
            around = self.uses.keys() & {*node.inputs, *node.outputs}
            then, now = (
                self.charged(name, one.get(name, 0))
                + sum(self.ns(*edge) for edge in self._owed(one, around))
                for one in (back, kept)
            )
            kept = back if then <= now else kept
        return kept

    def objective(self, name: str) -> Callable[[Mapping[str, int]], int]:
        """A cost function by the name of what it is the objective of."""
        return {
            "shared": lambda chosen: self.shared_cost(chosen).bytes,
            "paper": self.paper_cost,
            "time": self.time_cost,
        }[name]

    def _owed(self, chosen: Mapping[str, int], values: Iterable[str] | None = None) -> set[Edge]:
        return {(v, s, t) for v, s, t, _ in self.edges(chosen, values) if s != t}

    def paper_cost(self, chosen: Mapping[str, int]) -> int:
        """The objective ``paper``: the edges whose two ends differ.

        Source: the paper, section 5.2, the cost matrix C_ij.
        """
        return sum(source != target for _, source, target, _ in self.edges(chosen))
