"""The variants among which each node may choose.

A variant is admissible only if the node's own library decides for it when its inputs come so:
nothing is forced on an invoker, and reference kernels lose where the library itself rates them so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from types import MappingProxyType

from ptensor.evaluation import Variant
from ptensor.layout import Layout
from resolver.evaluate import Resolution
from resolver.extended import OpNode
from resolver.modes import channels_last
from resolver.probe import Prober
from vtensor.language.operators import info_of
from vtensor.language.tensor import VTensor

Variants = dict[str, list[Variant]]


def shared_variants(
    resolution: Resolution, others: Mapping[str, Sequence[Variant]] = MappingProxyType({})
) -> Variants:
    """The variants of every node, for the objective ``shared``; the resolver's is the first.

    Tried are: declared order, channels last, and every layout in which some value of the same dims
    is made or wanted, among them those of all fixed ports.

    Args:
        others: more variants, by node, which are admissible as they are.
    """
    probe = _Candidates(resolution)
    variants: Variants = {n.name: [n.variant, *others.get(n.name, ())] for n in resolution.nodes}
    known: dict[frozenset[str], dict[Layout, None]] = {}
    for node in resolution.nodes:
        for name, layout in chain.from_iterable(
            _operands(node, variant) for variant in variants[node.name]
        ):
            value = resolution.values[name]
            if not value.constant:
                known.setdefault(frozenset(value.dims), {})[layout] = None
    tried: set[tuple[str, Layout]] = set()
    fresh = True
    while fresh:  # a variant may bring a layout of other names: those, too, are tried, each once
        fresh = False
        for node in resolution.nodes:
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
                    known.setdefault(frozenset(resolution.values[name].dims), {})[made] = None
                    fresh = True
    return variants


def paper_variants(resolution: Resolution) -> Variants:
    """The variants of element-wise nodes, for the objective ``paper``; all others are fixed.

    Source: the paper, section 5.2: the layouts of the inputs, unless a smaller operand cannot be
    represented in them, and NHWC and NCHW, which here are channels last and declared order.
    The resolver's own variant stays first: it is known to work.
    """
    probe = _Candidates(resolution)
    variants: Variants = {}
    for node in resolution.nodes:
        lead = probe.lead(node)
        if lead is not None and info_of(node.op).elementwise:
            variants[node.name] = [node.variant]
            for layout in [*_inherited(resolution, node, lead), *usual(lead)]:
                probe.add(variants[node.name], node, layout)
    return variants


def variants_on(resolution: Resolution, node: OpNode, library: str) -> list[Variant]:
    """The variants in which another library takes a node; none where it declines.

    Tried are the layouts of ``shared_variants``, as far as the resolution itself has them.
    """
    probe = _Candidates(resolution)
    lead = probe.lead(node)
    if lead is None:
        return []
    there = replace(node, variant=replace(node.variant, library=library))
    values = resolution.values.values()
    known = (value.produced_layout for value in values if value.dims.keys() == lead.dims.keys())
    variants: list[Variant] = []
    for layout in dict.fromkeys([*filter(None, known), *usual(lead)]):
        probe.add(variants, there, layout)
    return variants


def usual(value: VTensor) -> list[Layout]:
    """Declared order and channels last."""
    return [Layout.plain(value.dims), channels_last(value.dims)]


def _inherited(resolution: Resolution, node: OpNode, lead: VTensor) -> Iterator[Layout]:
    """The layouts in which whole inputs come, where the others can be represented in them."""
    inputs = [resolution.values[name] for name in node.inputs]
    for value in inputs:
        layout = value.produced_layout
        whole = value.dims == lead.dims and not value.constant
        if whole and layout is not None and all(_representable(other, layout) for other in inputs):
            yield layout


def _representable(value: VTensor, layout: Layout) -> bool:
    """Each extent is a multiple of the layout's block of its dim."""
    return all(value.size(dim) % layout.block(dim) == 0 for dim in value.dims if dim in layout.dims)


class _Candidates:
    """Probes nodes of one resolution."""

    def __init__(self, resolution: Resolution) -> None:
        self._resolution = resolution
        self._prober = Prober(resolution)

    def lead(self, node: OpNode) -> VTensor | None:
        """The operand whose layout the others follow: a whole input, or the first non-constant."""
        values = self._resolution.values
        inputs = [values[name] for name in node.inputs if not values[name].constant]
        out = values[node.outputs[0]].dims if node.outputs else {}
        return next((v for v in inputs if v.dims == out), inputs[0] if inputs else None)

    def behind(
        self, node: OpNode, lead: VTensor, known: Mapping[frozenset[str], Iterable[Layout]]
    ) -> list[Layout]:
        """Layouts known of an output that is the lead under other names, in the lead's names."""
        own = {name: self._resolution.values[name] for name in (*node.inputs, *node.outputs)}
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
        values = [self._resolution.values[name] for name in node.inputs]
        made = self._prober.decide(node, [_as(value, layout, lead) for value in values])
        if made is None or any(self._alike(node, made, variant) for variant in variants):
            return []
        variants.append(made)
        return [
            (name, layout)
            for name, layout in _operands(node, made)
            if not self._resolution.values[name].constant
        ]

    def _alike(self, node: OpNode, one: Variant, other: Variant) -> bool:
        """True when two variants differ at most in how constants lie."""
        values = self._resolution.values
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


__all__ = ["Variants", "paper_variants", "shared_variants", "usual", "variants_on"]
