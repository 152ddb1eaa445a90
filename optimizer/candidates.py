"""The rows among which each node may choose.

A row is admissible only if the node's own library decides for it when its inputs come so: nothing
is forced on an invoker, and reference kernels lose where the library itself rates them so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from types import MappingProxyType

from ptensor.evaluation import Decision
from ptensor.layout import Layout
from resolver.evaluate import Resolution
from resolver.extended import OpNode
from resolver.modes import channels_last
from resolver.probe import Prober
from vtensor.operators import info_of
from vtensor.tensor import VTensor

Rows = dict[str, list[Decision]]


def shared_rows(
    resolution: Resolution, offered: Mapping[str, Sequence[Decision]] = MappingProxyType({})
) -> Rows:
    """The rows of every node, for the objective ``shared``; the resolver's is the first.

    Tried are: declared order, channels last, and every layout in which some value of the same dims
    is made or wanted, among them those of all fixed ports.

    Args:
        offered: more rows, by node, which are admissible as they are.
    """
    probe = _Candidates(resolution)
    rows: Rows = {n.name: [n.decision, *offered.get(n.name, ())] for n in resolution.nodes}
    known: dict[frozenset[str], dict[Layout, None]] = {}
    for node in resolution.nodes:
        for name, layout in chain.from_iterable(_operands(node, row) for row in rows[node.name]):
            value = resolution.values[name]
            if not value.constant:
                known.setdefault(frozenset(value.dims), {})[layout] = None
    tried: set[tuple[str, Layout]] = set()
    fresh = True
    while fresh:  # a row may bring a layout of other names: those, too, are tried, each once
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
                for name, made in probe.add(rows[node.name], node, layout):
                    known.setdefault(frozenset(resolution.values[name].dims), {})[made] = None
                    fresh = True
    return rows


def paper_rows(resolution: Resolution) -> Rows:
    """The rows of element-wise nodes, for the objective ``paper``; all others are fixed.

    Source: the paper, section 5.2: the layouts of the inputs, unless a smaller operand cannot be
    represented in them, and NHWC and NCHW, which here are channels last and declared order.
    The resolver's own row stays first: it is known to work.
    """
    probe = _Candidates(resolution)
    rows: Rows = {}
    for node in resolution.nodes:
        lead = probe.lead(node)
        if lead is not None and info_of(node.op).elementwise:
            rows[node.name] = [node.decision]
            for layout in [*_inherited(resolution, node, lead), *usual(lead)]:
                probe.add(rows[node.name], node, layout)
    return rows


def rows_on(resolution: Resolution, node: OpNode, library: str) -> list[Decision]:
    """The rows in which another library takes a node; none where it declines.

    Tried are the layouts of ``shared_rows``, as far as the resolution itself has them.
    """
    probe = _Candidates(resolution)
    lead = probe.lead(node)
    if lead is None:
        return []
    there = replace(node, decision=replace(node.decision, library=library))
    values = resolution.values.values()
    known = (value.produced_layout for value in values if value.dims.keys() == lead.dims.keys())
    rows: list[Decision] = []
    for layout in dict.fromkeys([*filter(None, known), *usual(lead)]):
        probe.add(rows, there, layout)
    return rows


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
        row = {own[name].name: layout for name, layout in _operands(node, node.decision)}
        before, after = row[lead.name], row[node.outputs[0]]
        output = own[node.outputs[0]]
        if output.dims.keys() == lead.dims.keys() or len(before.axes) != len(after.axes):
            return []
        pairs = zip(before.axes, after.axes, strict=True)
        names = {there: here for (here, _), (there, _) in pairs}
        if [lead.dims.get(names[dim]) for dim in output.dims] != list(output.dims.values()):
            return []
        return [layout.rename(names) for layout in known.get(frozenset(output.dims), ())]

    def add(
        self, rows: list[Decision], node: OpNode, layout: Layout
    ) -> Iterable[tuple[str, Layout]]:
        """Add the row for inputs that come in a layout, if it is another; its operands then."""
        lead = self.lead(node)
        assert lead is not None, "a node of constants alone has no lead"
        values = [self._resolution.values[name] for name in node.inputs]
        made = self._prober.decide(node, [_as(value, layout, lead) for value in values])
        if made is None or any(self._alike(node, made, row) for row in rows):
            return []
        rows.append(made)
        return [
            (name, layout)
            for name, layout in _operands(node, made)
            if not self._resolution.values[name].constant
        ]

    def _alike(self, node: OpNode, one: Decision, other: Decision) -> bool:
        """True when two rows differ at most in how constants lie."""
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


def _operands(node: OpNode, decision: Decision) -> Sequence[tuple[str, Layout]]:
    names = (*node.inputs, *node.outputs)
    return list(zip(names, decision.layouts, strict=True))


__all__ = ["Rows", "paper_rows", "rows_on", "shared_rows", "usual"]
