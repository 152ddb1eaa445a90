"""A Transform is removed if all its readers can read its input in the layout that the input has.

    f(T(v))  becomes  f(v)

Point-wise nodes and reductions of some libraries can read each operand in a layout of its own. Such
a node may be slower than one whose operands share a layout, but it loses less time than the
Transform takes. Views between the Transform and its readers get new variants, for the layout of the
Transform's input.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field

from libdesc.registry import ready
from libdesc.transforms import LayoutChange
from optimizer.choice.candidates import Candidates, other_libraries
from optimizer.choice.estimate import Estimate
from optimizer.edges import User, rewired, users
from optimizer.settings import Settings
from ptensor.evaluation import Refusal, Variant
from ptensor.layout import Layout
from resolver.lowered import Certificate, LoweredGraph, OpNode, TransformNode
from resolver.probe import Prober
from vtensor.language.operators import info_of
from vtensor.language.records import dataclass, replace
from vtensor.language.traits import VIEWS, Linear


def absorb(graph: LoweredGraph, settings: Settings) -> LoweredGraph:
    """Return the graph without those Transforms whose readers can all read the Transform's input
    directly.

    A reader may move to another library if it then takes, by estimate, no longer than reader and
    Transform take together now. It may not if the session fixes libraries. If the objective is
    ``shared`` or ``paper``, the graph is unchanged. Each removal leaves one Transform less, so the
    pass ends.
    """
    if settings.objective not in ("", "time"):
        return graph
    bare, estimate = graph.bare, Estimate(graph.preferences, settings.speeds)
    prober: Prober | None = None
    for name in [node.name for node in graph.transforms()]:
        [transform] = (node for node in graph.nodes if node.name == name)
        assert isinstance(transform, TransformNode), "it is one of the Transforms"
        prober = Prober(bare, prober)
        removal = _Removal(graph, bare, estimate, transform, prober, settings.light)
        if removal.is_possible():
            graph, bare = removal.without_transform(), removal.with_new_readers(bare)
    return graph


@dataclass
class _Removal:
    """The removal of one Transform: new layouts of values and new variants of their readers.

    Attributes:
        graph: the graph with its Transforms.
        bare: the same graph without Transforms.
        estimate: the clock that estimates times; all Transforms of a pass share it.
        node: the Transform.
        prober: asks libraries in which variants they run nodes of the graph.
        light: True keeps the Transform if one of its readers is heavy: dominated by arithmetic
            (``_is_heavy``).
        layouts: the new layouts of values, by value: of the Transform's output, then of views of
            that output.
        variants: new variants of the nodes that read these values, by node.
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

    def is_possible(self) -> bool:
        """Return whether all readers can do without the Transform. Note the new layouts and
        variants.
        """
        self.layouts[self.node.output] = self.graph.values[self.node.input].layout
        return self._all_read(self.node.output)

    def without_transform(self) -> LoweredGraph:
        """Return the graph without the Transform, with the noted layouts and variants."""
        remaining = replace(self.with_new_readers(self.graph), certificate=self._certificate())
        return rewired(remaining, {self.node.output: self.node.input})

    def with_new_readers(self, graph: LoweredGraph) -> LoweredGraph:
        """Return ``graph`` with the noted layouts and variants, and without the Transform."""
        nodes = [
            replace(node, variant=self.variants[node.name])
            if isinstance(node, OpNode) and node.name in self.variants
            else node
            for node in graph.nodes
            if node is not self.node
        ]
        values = {
            name: replace(value, layout=self.layouts[name]) if name in self.layouts else value
            for name, value in graph.values.items()
        }
        return replace(graph, nodes=nodes, values=values)

    def _certificate(self) -> Certificate | None:
        """Return the graph's certificate with the Transform left out of its counts; None if the
        graph has no certificate.
        """
        proven = self.graph.certificate
        moved = sum(self.graph.values[name].nbytes for name in (self.node.input, self.node.output))
        return proven and replace(
            proven, count_after=proven.count_after - 1, bytes_after=proven.bytes_after - moved
        )

    def _all_read(self, value: str) -> bool:
        """Return whether all readers of a value can read it in its new layout. Note their new
        variants.
        """
        return all(self._reads(value, reader) for reader in dict.fromkeys(self._users[value]))

    def _reads(self, value: str, reader: User) -> bool:
        """Return whether ``reader`` can read ``value`` in the value's new layout. Note the reader's
        new variant.

        If the reader is a view, all readers of its output must be able to read that output in its
        new layout, too.
        """
        if not isinstance(reader, OpNode):  # an output of the graph, or another Transform
            return False
        if info_of(reader.op).structural in VIEWS:
            variant_of_view = self.prober.decide(self._nodes[reader.name], [self.layouts[value]])
            if variant_of_view is None or variant_of_view.layouts[0] != self.layouts[value]:
                return False
            self.variants[reader.name] = variant_of_view
            [out] = reader.outputs
            self.layouts[out] = variant_of_view.layouts[1]
            alike = variant_of_view.layouts[1].same(
                self.graph.values[out].layout, self.graph.values[out].dims
            )
            return alike or self._all_read(out)
        variant = None if self.light and _is_heavy(reader) else self._variant_for(reader)
        if variant is not None:
            self.variants[reader.name] = variant
        return variant is not None

    def _variant_for(self, reader: OpNode) -> Variant | None:
        """Return a variant of ``reader`` that takes its operands in their new layouts.

        Returns None if no library has such a variant. Returns None, too, if each such variant takes
        longer than the reader and the Transform together take now.
        """
        names, noted = (*reader.inputs, *reader.outputs), self.variants.get(reader.name)
        old_layouts = (noted or reader.variant).layouts
        layouts = [self.layouts.get(n, at) for n, at in zip(names, old_layouts, strict=True)]
        bare, tensors = self._nodes[reader.name], self.bare.tensors
        source, target = self.graph.values[self.node.input], self.graph.values[self.node.output]
        change = LayoutChange(source.layout, target.layout)
        present_ns = self.estimate.node(bare, tensors)
        present_ns += self.estimate.transform(source.tensor(), change)
        for variant in self._variants(bare, layouts):
            alone_ns = self.estimate.node(replace(bare, variant=variant), tensors)
            if alone_ns <= present_ns and self.prober.takes(bare, variant):
                return variant
        return None

    def _variants(self, reader: OpNode, layouts: Sequence[Layout]) -> Iterator[Variant]:
        """Yield the variants of ``reader`` to try: that on its own library, then those on other
        libraries.

        Other libraries are left out if the session prescribes libraries, or if the reader's kernel
        is fixed.

        Args:
            reader: a node that reads the Transform's output or a view of it.
            layouts: the layout of each operand, inputs first.
        """
        own = reader.variant
        yield own.lying(layouts)
        if self.graph.preferences.order is not None or own.kernel:
            return
        for library in other_libraries(self.bare, reader):
            why = f"the plan takes less time with {library}, which reads a value where it is"
            before = [refusal for refusal in own.refused if refusal.library != library]
            refused = Refusal(ready().libraries[own.library].priority, own.library, why)
            for variant in self._candidates.on(reader, library)[:1]:
                yield replace(variant.lying(layouts), refused=(*before, refused))


def _is_heavy(node: OpNode) -> bool:
    """Return whether a node is heavy: arithmetic takes most of its time. Libraries then want
    operands in blocked layouts.
    """
    info = info_of(node.op)
    return info.trait(Linear) is not None and not info.light
