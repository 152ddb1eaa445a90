"""A Transform goes where its readers can read the value as it is made.

    f(T(v))  becomes  f(v)

Point-wise nodes and reductions of some libraries read each operand where it lies, in pieces. Such a
node may be slower than one whose operands all lie alike, but not by what the Transform takes. Views
between the two look at the value in its own layout.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field

from libdesc.registry import ready
from libdesc.transforms import LayoutChange
from optimizer.candidates import Candidates, other_libraries
from optimizer.edges import User, rewired, users
from optimizer.estimate import Estimate
from optimizer.settings import Settings
from ptensor.evaluation import Refusal, Variant
from ptensor.layout import Layout
from resolver.lowered import Certificate, LoweredGraph, OpNode, TransformNode
from resolver.probe import Prober
from vtensor.language.operators import info_of
from vtensor.language.records import dataclass, replace
from vtensor.language.traits import VIEWS, Linear


def absorb(graph: LoweredGraph, settings: Settings) -> LoweredGraph:
    """The graph without Transforms whose readers all read the value as it is made.

    A reader may go to another library for it, where the session leaves that open and the estimate
    of both together is no longer. Each rewriting removes a Transform, so it ends.
    """
    if settings.objective not in ("", "time"):
        return graph
    bare, estimate = graph.bare, Estimate(graph.preferences, settings.speeds)
    asked: Prober | None = None
    for name in [node.name for node in graph.transforms()]:
        [node] = (one for one in graph.nodes if one.name == name)
        assert isinstance(node, TransformNode), "it is one of the Transforms"
        asked = Prober(bare, asked)
        one = _Absorbing(graph, bare, estimate, node, asked, settings.light)
        if one.goes():
            graph, bare = one.without(), one.changed(bare)
    return graph


@dataclass
class _Absorbing:
    """One Transform, and what its readers become.

    Attributes:
        graph: as it is now.
        bare: the same without Transforms.
        estimate: of nodes and Transforms; it learns libraries' rates once, for every Transform.
        node: the Transform.
        prober: asks nodes of the graph.
        light: heavy readers are not asked.
        layouts: of values that lie otherwise without it, its own first.
        variants: of the nodes that read those, by name.
    """

    graph: LoweredGraph
    bare: LoweredGraph
    estimate: Estimate
    node: TransformNode
    prober: Prober
    light: bool
    layouts: dict[str, Layout] = field(default_factory=dict)
    variants: dict[str, Variant] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._users = users(self.graph)
        self._nodes = {node.name: node for node in self.bare.operators}
        self._candidates = Candidates(self.bare, self.prober)

    def goes(self) -> bool:
        """No reader needs the Transform; notes how each reads the value."""
        self.layouts[self.node.output] = self.graph.values[self.node.input].layout
        return self._taken(self.node.output)

    def without(self) -> LoweredGraph:
        """The graph without the Transform."""
        left = replace(self.changed(self.graph), certificate=self._certificate())
        return rewired(left, {self.node.output: self.node.input})

    def changed(self, graph: LoweredGraph) -> LoweredGraph:
        """A graph whose readers read the value as noted, without the Transform if it has that."""
        nodes = [
            replace(one, variant=self.variants[one.name])
            if isinstance(one, OpNode) and one.name in self.variants
            else one
            for one in graph.nodes
            if one is not self.node
        ]
        values = {
            name: replace(value, layout=self.layouts[name]) if name in self.layouts else value
            for name, value in graph.values.items()
        }
        return replace(graph, nodes=nodes, values=values)

    def _certificate(self) -> Certificate | None:
        """What was proven, of one Transform less."""
        proven = self.graph.certificate
        moved = sum(self.graph.values[name].nbytes for name in (self.node.input, self.node.output))
        return proven and replace(
            proven, count_after=proven.count_after - 1, bytes_after=proven.bytes_after - moved
        )

    def _taken(self, value: str) -> bool:
        """All readers of a value take it as it now lies; notes how."""
        return all(self._reads(value, reader) for reader in dict.fromkeys(self._users[value]))

    def _reads(self, value: str, reader: User) -> bool:
        if not isinstance(reader, OpNode):  # it is delivered, or transformed again
            return False
        if info_of(reader.op).structural in VIEWS:
            found = self.prober.decide(self._nodes[reader.name], [self.layouts[value]])
            if found is None or found.layouts[0] != self.layouts[value]:
                return False
            self.variants[reader.name] = found
            [out] = reader.outputs
            self.layouts[out] = found.layouts[1]
            alike = found.layouts[1].same(
                self.graph.values[out].layout, self.graph.values[out].dims
            )
            return alike or self._taken(out)
        variant = None if self.light and _is_heavy(reader) else self._reading(reader)
        if variant is not None:
            self.variants[reader.name] = variant
        return variant is not None

    def _reading(self, reader: OpNode) -> Variant | None:
        """The reader's variant that takes its operands as they now lie; None where it has none."""
        names, own = (*reader.inputs, *reader.outputs), self.variants.get(reader.name)
        before = (own or reader.variant).layouts
        layouts = [self.layouts.get(n, at) for n, at in zip(names, before, strict=True)]
        bare, tensors = self._nodes[reader.name], self.bare.tensors
        source, target = self.graph.values[self.node.input], self.graph.values[self.node.output]
        change = LayoutChange(source.layout, target.layout)
        now = self.estimate.node(bare, tensors)
        now += self.estimate.transform(source.tensor(), change)
        for variant in self._variants(bare, layouts):
            took = self.estimate.node(replace(bare, variant=variant), tensors)
            if took <= now and self.prober.takes(bare, variant):
                return variant
        return None

    def _variants(self, reader: OpNode, layouts: Sequence[Layout]) -> Iterator[Variant]:
        """The reader's own, and those on other libraries, with its operands in these layouts."""
        own = reader.variant
        yield own.lying(layouts)
        if self.graph.preferences.order is not None or own.kernel:
            return
        for library in other_libraries(self.bare, reader):
            why = f"the plan takes less time with {library}, which reads a value where it is"
            before = [one for one in own.refused if one.library != library]
            refused = Refusal(ready().libraries[own.library].priority, own.library, why)
            for variant in self._candidates.on(reader, library)[:1]:
                yield replace(variant.lying(layouts), refused=(*before, refused))


def _is_heavy(node: OpNode) -> bool:
    """Arithmetic takes its time: libraries block what it reads for that."""
    info = info_of(node.op)
    return info.trait(Linear) is not None and not info.light
