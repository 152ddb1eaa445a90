"""The variants among which each node may choose.

A variant is admissible only if the node's own library decides for it when its inputs come so:
nothing is forced on an invoker, and reference kernels lose where the library itself rates them so.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from types import MappingProxyType

from libdesc.invokers import InvokerInfo
from libdesc.precedence import precedes
from libdesc.registry import ready
from ptensor.evaluation import Variant
from ptensor.layout import Layout
from resolver.lowered import LoweredGraph, OpNode, Value
from resolver.modes import channels_last
from resolver.probe import Prober
from vtensor.language.operators import info_of
from vtensor.language.records import replace
from vtensor.language.tensor import VTensor

Variants = dict[str, list[Variant]]


def shared_variants(
    graph: LoweredGraph,
    others: Mapping[str, Sequence[Variant]] = MappingProxyType({}),
    only: Container[str] | None = None,
) -> Variants:
    """The variants of every node, for the objective ``shared``; the resolver's is the first.

    Tried are: declared order, channels last, and every layout in which some value of the same dims
    is made or wanted, among them those of all fixed ports.

    Args:
        others: more variants, by node, which are admissible as they are.
        only: nodes that may change; None is all.
    """
    graph = graph.bare
    probe = Candidates(graph)
    variants: Variants = {n.name: [n.variant, *others.get(n.name, ())] for n in graph.operators}
    known: dict[frozenset[str], dict[Layout, None]] = {}
    for node in graph.operators:
        for name, layout in chain.from_iterable(
            _operands(node, variant) for variant in variants[node.name]
        ):
            value = graph.values[name]
            if not value.constant:
                known.setdefault(frozenset(value.dims), {})[layout] = None
    able = [node for node in graph.operators if only is None or node.name in only]
    tried: set[tuple[str, Layout]] = set()
    fresh = True
    while fresh:  # a variant may bring a layout of other names: those, too, are tried, each once
        fresh = False
        for node in able:
            lead = probe.lead(node)
            if lead is None:
                continue
            layouts = [*usual(lead), *known.get(frozenset(lead.dims), ())]
            layouts += probe.behind(node, lead, known)
            for layout in layouts:
                if (node.name, layout) in tried:
                    continue
                tried.add((node.name, layout))
                for name, made in probe.add(variants[node.name], node, layout):
                    known.setdefault(frozenset(graph.values[name].dims), {})[made] = None
                    fresh = True
    return variants


def paper_variants(graph: LoweredGraph) -> Variants:
    """The variants of element-wise nodes, for the objective ``paper``; all others are fixed.

    Source: the paper, section 5.2: the layouts of the inputs, unless a smaller operand cannot be
    represented in them, and NHWC and NCHW, which here are channels last and declared order.
    The resolver's own variant stays first: it is known to work.
    """
    graph = graph.bare
    probe = Candidates(graph)
    variants: Variants = {}
    for node in graph.operators:
        lead = probe.lead(node)
        if lead is not None and info_of(node.op).elementwise:
            variants[node.name] = [node.variant]
            for layout in [*_inherited(graph, node, lead), *usual(lead)]:
                probe.add(variants[node.name], node, layout)
    return variants


def other_libraries(graph: LoweredGraph, node: OpNode, passed: bool = False) -> list[str]:
    """Libraries that may take a node, and have invokers of it; no call-back instead of native code.

    Who may take it may take what is fused behind it, too.

    Args:
        graph, node: a node of that graph.
        passed: those, too, that its own library goes before here: no estimate tells its kernels
            from theirs, measurements do.
    """
    ops = {node.name: node.op, **{one.name: one.op for one in node.followers}}
    names = {name: info_of(op).name for name, op in ops.items()}
    device = graph.bare.tensors[node.outputs[0]].device
    able = {one.library: one for _, one in ready().candidates(names[node.name], device)}
    own = able.get(node.variant.library)
    behind = () if passed or own is None else _behind(graph, node, own)
    return [
        library
        for library, one in able.items()
        if one is not own
        and library not in behind
        and (own is None or one.python <= own.python)
        and not any(graph.preferences.refusal(name, op, library) for name, op in names.items())
    ]


def _behind(graph: LoweredGraph, node: OpNode, own: InvokerInfo) -> tuple[str, ...]:
    """The libraries that its own goes before."""
    if own.first is None:
        return ()
    inputs, _ = node.split([graph.tensors[name] for name in node.inputs])
    return own.before if precedes(own, node.name, node.op, inputs) else ()


def usual(value: VTensor) -> list[Layout]:
    """Declared order and channels last."""
    return [Layout.plain(value.dims), channels_last(value.dims)]


def _inherited(graph: LoweredGraph, node: OpNode, lead: VTensor) -> Iterator[Layout]:
    """The layouts in which whole inputs come, where the others can be represented in them."""
    inputs = [graph.values[name] for name in node.inputs]
    for value in inputs:
        whole = value.dims == lead.dims and not value.constant
        if whole and all(_representable(other, value.layout) for other in inputs):
            yield value.layout


def _representable(value: Value, layout: Layout) -> bool:
    """Each extent is a multiple of the layout's block of its dim."""
    return all(value.dims[dim] % layout.block(dim) == 0 for dim in value.dims if dim in layout.dims)


class Candidates:
    """Probes nodes of one graph, each equal question once.

    Args:
        graph: with its Transforms, or without.
        prober: of the graph; None is a new one.
    """

    def __init__(self, graph: LoweredGraph, prober: Prober | None = None) -> None:
        self._graph = graph.bare
        self._values = self._graph.tensors
        self._prober = prober or Prober(graph)
        self._layouts: dict[frozenset[str], dict[Layout, None]] = defaultdict(dict)
        for value in self._graph.values.values():
            self._layouts[frozenset(value.dims)][value.layout] = None

    def on(self, node: OpNode, library: str, inexact: bool = False) -> list[Variant]:
        """The variants in which a library takes a node; none where it declines.

        Tried are the layouts of ``shared_variants``, as far as the graph itself has them.

        Args:
            node: which.
            library: it is asked for one variant a layout; where that is inexact, for all that it
                has.
            inexact: such variants may be among them.
        """
        lead = self.lead(node)
        if lead is None:
            return []
        there = replace(node, variant=replace(node.variant, library=library, inexact=inexact))
        variants: list[Variant] = []
        for layout in dict.fromkeys([*self._layouts[frozenset(lead.dims)], *usual(lead)]):
            self.add(variants, there, layout)
        if any(variant.inexact for variant in variants):
            named = self._prober.variants(replace(there, variant=variants[0]))
            known = {one.layouts for one in named}
            variants = [*named, *(one for one in variants if one.layouts not in known)]
        return variants

    def after(self, node: OpNode, library: str, given: Mapping[str, Layout]) -> Variant | None:
        """What a library decides for a node whose inputs come in these layouts, or as they do."""
        there = replace(node, variant=replace(node.variant, library=library))
        layouts = [given.get(n) or self._graph.values[n].layout for n in node.inputs]
        return self._prober.decide(there, layouts)

    def lead(self, node: OpNode) -> VTensor | None:
        """The operand whose layout the others follow: a whole input, or the first non-constant."""
        values = self._values
        inputs = [values[name] for name in node.inputs if not values[name].constant]
        out = values[node.outputs[0]].dims if node.outputs else {}
        return next((v for v in inputs if v.dims == out), inputs[0] if inputs else None)

    def behind(
        self, node: OpNode, lead: VTensor, known: Mapping[frozenset[str], Iterable[Layout]]
    ) -> list[Layout]:
        """Layouts known of an output that is the lead under other names, in the lead's names."""
        own = {name: self._values[name] for name in (*node.inputs, *node.outputs)}
        layouts = {own[name].name: layout for name, layout in _operands(node, node.variant)}
        before, after = layouts[lead.name], layouts[node.outputs[0]]
        output = own[node.outputs[0]]
        if output.dims.keys() == lead.dims.keys() or len(before.axes) != len(after.axes):
            return []
        pairs = zip(before.axes, after.axes, strict=True)
        names = {there: here for (here, _), (there, _) in pairs}
        if [lead.dims.get(names[dim]) for dim in output.dims] != list(output.dims.values()):
            return []
        return [layout.rename(names) for layout in known.get(frozenset(output.dims), ())]

    def add(
        self, variants: list[Variant], node: OpNode, layout: Layout
    ) -> Iterable[tuple[str, Layout]]:
        """Add the variant for inputs that come in a layout, if it is another; its operands then."""
        lead = self.lead(node)
        assert lead is not None, "a node of constants alone has no lead"
        values = [self._values[name] for name in node.inputs]
        made = self._prober.decide(node, [_as(value, layout, lead) for value in values])
        if made is None or any(self._alike(node, made, variant) for variant in variants):
            return []
        variants.append(made)
        return [
            (name, layout)
            for name, layout in _operands(node, made)
            if not self._values[name].constant
        ]

    def _alike(self, node: OpNode, one: Variant, other: Variant) -> bool:
        """True when two variants of a library differ at most in how constants lie."""
        if one.library != other.library or other.pieces:
            return False
        values = self._values
        pairs = zip(_operands(node, one), other.layouts, strict=True)
        return all(
            values[name].constant or layout.same(twin, values[name].dims)
            for (name, layout), twin in pairs
        )


def _as(value: VTensor, layout: Layout, lead: VTensor) -> Layout:
    """How an operand comes when the lead comes in a layout: the same, on the dims that it has."""
    have = value.produced_layout
    if value.constant or not value.dims.keys() <= set(layout.dims):
        return Layout.plain(value.dims) if have is None else have
    own = layout.restrict(value.dims)
    for dim, size in value.dims.items():
        own = own.unblock(dim) if size == 1 != lead.size(dim) else own
    return own


def _operands(node: OpNode, variant: Variant) -> Sequence[tuple[str, Layout]]:
    names = (*node.inputs, *node.outputs)
    return list(zip(names, variant.layouts, strict=True))
