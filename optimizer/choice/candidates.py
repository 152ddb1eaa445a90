"""The variants of each node among which a pass chooses.

A library's invoker decides the variant in which it runs a node, given layouts of the node's inputs.
Only variants that a library decides so are admitted. No variant is forced on an invoker, and a
library prefers its real kernels to reference code.
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
    """Return the variants of every node for the objective ``shared``. The variant that the resolver
    chose is first.

    Libraries are asked with the node's inputs in declared order, in channels last, and in each
    layout in which a value of the same dims is made or wanted. The graph's inputs and outputs are
    among these values.

    Args:
        graph: a lowered graph, with its Transforms or without.
        others: further admissible variants, by node.
        only: names of the nodes that may change; None is all.
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
    changeable = [node for node in graph.operators if only is None or node.name in only]
    tried: set[tuple[str, Layout]] = set()
    found_layouts = True
    while found_layouts:  # repeat until no variant brings a new layout
        found_layouts = False
        for node in changeable:
            lead = probe.lead(node)
            if lead is None:
                continue
            layouts = [*default_layouts(lead), *known.get(frozenset(lead.dims), ())]
            layouts += probe.layouts_behind(node, lead, known)
            for layout in layouts:
                if (node.name, layout) in tried:
                    continue
                tried.add((node.name, layout))
                for name, new_layout in probe.add(variants[node.name], node, layout):
                    known.setdefault(frozenset(graph.values[name].dims), {})[new_layout] = None
                    found_layouts = True
    return variants


def paper_variants(graph: LoweredGraph) -> Variants:
    """Return the variants of element-wise nodes for the objective ``paper``. Other nodes have one
    variant.

    Libraries are asked with the node's inputs in these layouts: those of its inputs, unless a
    smaller operand cannot be represented in them; channels last and declared order, the paper's
    NHWC and NCHW. The variant that the resolver chose is first, since it is known to work.

    Source: the paper, section 5.2.
    """
    graph = graph.bare
    probe = Candidates(graph)
    variants: Variants = {}
    for node in graph.operators:
        lead = probe.lead(node)
        if lead is not None and info_of(node.op).elementwise:
            variants[node.name] = [node.variant]
            for layout in [*_inherited(graph, node, lead), *default_layouts(lead)]:
                probe.add(variants[node.name], node, layout)
    return variants


def other_libraries(graph: LoweredGraph, node: OpNode, passed: bool = False) -> list[str]:
    """Return the libraries, other than the node's own one, that may run a node and its followers.

    If the node's library is native, libraries that call back into Python are left out.

    Args:
        graph: a lowered graph.
        node: a node of that graph.
        passed: True also lists libraries that the node's own library declares to be slower than
            itself: estimates cannot tell their kernels apart, measurements can.
    """
    ops = {node.name: node.op, **{follower.name: follower.op for follower in node.followers}}
    names = {name: info_of(op).name for name, op in ops.items()}
    device = graph.bare.tensors[node.outputs[0]].device
    able = {info.library: info for _, info in ready().candidates(names[node.name], device)}
    own = able.get(node.variant.library)
    slower = () if passed or own is None else _slower_libraries(graph, node, own)
    return [
        library
        for library, info in able.items()
        if info is not own
        and library not in slower
        and (own is None or info.python <= own.python)
        and not any(graph.preferences.refusal(name, op, library) for name, op in names.items())
    ]


def _slower_libraries(graph: LoweredGraph, node: OpNode, own: InvokerInfo) -> tuple[str, ...]:
    """Return the libraries that the library ``own`` declares to be slower than itself for a node's
    call.

    Args:
        graph: a lowered graph.
        node: a node of that graph.
        own: the invoker of the node's library.
    """
    if own.first is None:
        return ()
    inputs, _ = node.split([graph.tensors[name] for name in node.inputs])
    return own.before if precedes(own, node.name, node.op, inputs) else ()


def default_layouts(value: VTensor) -> list[Layout]:
    """Return declared order and channels last for a value's dims."""
    return [Layout.plain(value.dims), channels_last(value.dims)]


def _inherited(graph: LoweredGraph, node: OpNode, lead: VTensor) -> Iterator[Layout]:
    """Yield the layout of each input of a node that has the dims of the lead, the input whose
    layouts are tried.

    A layout is left out if its blocks do not divide the sizes of all inputs. ``lead`` is what
    ``Candidates.lead`` returns.
    """
    inputs = [graph.values[name] for name in node.inputs]
    for value in inputs:
        whole = value.dims == lead.dims and not value.constant
        if whole and all(_representable(other, value.layout) for other in inputs):
            yield value.layout


def _representable(value: Value, layout: Layout) -> bool:
    """Return whether each size of a value is a multiple of the block that ``layout`` has for its
    dim.
    """
    return all(value.dims[dim] % layout.block(dim) == 0 for dim in value.dims if dim in layout.dims)


class Candidates:
    """Finds variants of a graph's nodes by asking libraries in which variant they run a node.

    A library is asked only once for equal nodes and layouts.

    Args:
        graph: a lowered graph, with its Transforms or without.
        prober: a prober of that graph; None makes one.
    """

    def __init__(self, graph: LoweredGraph, prober: Prober | None = None) -> None:
        self._graph = graph.bare
        self._values = self._graph.tensors
        self._prober = prober or Prober(graph)
        self._layouts: dict[frozenset[str], dict[Layout, None]] = defaultdict(dict)
        for value in self._graph.values.values():
            self._layouts[frozenset(value.dims)][value.layout] = None

    def on(self, node: OpNode, library: str, inexact: bool = False) -> list[Variant]:
        """Return the variants in which a library runs a node; empty if the library declines it.

        The library is asked with the node's inputs in declared order, in channels last, and in the
        layouts of the graph's values of the same dims.

        Args:
            node: a node of the graph.
            library: the library. It gives one variant per layout. If one of these is approximate,
                all its variants are taken.
            inexact: True admits approximate variants.
        """
        lead = self.lead(node)
        if lead is None:
            return []
        on_library = replace(node, variant=replace(node.variant, library=library, inexact=inexact))
        variants: list[Variant] = []
        for layout in dict.fromkeys([*self._layouts[frozenset(lead.dims)], *default_layouts(lead)]):
            self.add(variants, on_library, layout)
        if any(variant.inexact for variant in variants):
            listed = self._prober.variants(replace(on_library, variant=variants[0]))
            known = {variant.layouts for variant in listed}
            variants = [*listed, *(v for v in variants if v.layouts not in known)]
        return variants

    def after(self, node: OpNode, library: str, known: Mapping[str, Layout]) -> Variant | None:
        """Return a library's variant of a node for given layouts of inputs; None if the library
        declines.

        ``known`` has these layouts, by name of the input. Any other input has the layout that it
        has in the graph.
        """
        on_library = replace(node, variant=replace(node.variant, library=library))
        layouts = [known.get(n) or self._graph.values[n].layout for n in node.inputs]
        return self._prober.decide(on_library, layouts)

    def lead(self, node: OpNode) -> VTensor | None:
        """Return the lead of a node: the input whose layouts are tried. The other inputs then get
        the same layout, as far as possible (``_operand_layout``).

        The lead is the first input that is no constant and has the output's dims; else the first
        input that is no constant. Returns None if all inputs are constants.
        """
        values = self._values
        inputs = [values[name] for name in node.inputs if not values[name].constant]
        out = values[node.outputs[0]].dims if node.outputs else {}
        return next((v for v in inputs if v.dims == out), inputs[0] if inputs else None)

    def layouts_behind(
        self, node: OpNode, lead: VTensor, known: Mapping[frozenset[str], Iterable[Layout]]
    ) -> list[Layout]:
        """Return the known layouts of a node's output, in the names of the lead's dims.

        Empty unless the output has the dims of the lead under other names.

        Args:
            node: a node of the graph.
            lead: the input that ``self.lead(node)`` returns: the one whose layouts are tried.
            known: layouts of values, by the set of the value's dims.
        """
        operands = {name: self._values[name] for name in (*node.inputs, *node.outputs)}
        layouts = {operands[name].name: layout for name, layout in _operands(node, node.variant)}
        before, after = layouts[lead.name], layouts[node.outputs[0]]
        output = operands[node.outputs[0]]
        if output.dims.keys() == lead.dims.keys() or len(before.axes) != len(after.axes):
            return []
        pairs = zip(before.axes, after.axes, strict=True)
        names = {new: old for (old, _), (new, _) in pairs}
        if [lead.dims.get(names[dim]) for dim in output.dims] != list(output.dims.values()):
            return []
        return [layout.rename(names) for layout in known.get(frozenset(output.dims), ())]

    def add(
        self, variants: list[Variant], node: OpNode, layout: Layout
    ) -> Iterable[tuple[str, Layout]]:
        """Add to ``variants`` the variant in which a node's library runs it for inputs in
        ``layout``.

        Nothing is added if the library declines. Nothing is added, too, if ``variants`` has a
        variant on the same library that differs at most in the layouts of constants.

        Args:
            variants: the variants so far.
            node: a node of the graph.
            layout: a layout of the lead, the input that ``self.lead(node)`` returns. The layouts of
                all other inputs follow from it (``_operand_layout``).

        Returns:
            (value, layout) of the added variant's non-constant operands; empty if nothing was
            added.
        """
        lead = self.lead(node)
        assert lead is not None, "a node of constants alone has no lead"
        values = [self._values[name] for name in node.inputs]
        decided = self._prober.decide(
            node, [_operand_layout(value, layout, lead) for value in values]
        )
        if decided is None or any(self._alike(node, decided, variant) for variant in variants):
            return []
        variants.append(decided)
        return [
            (name, layout)
            for name, layout in _operands(node, decided)
            if not self._values[name].constant
        ]

    def _alike(self, node: OpNode, variant: Variant, other: Variant) -> bool:
        """Return whether two variants of a node are on one library and differ at most in the
        layouts of constants.

        False if ``other`` runs followers as steps of their own (its ``pieces``).
        """
        if variant.library != other.library or other.pieces:
            return False
        values = self._values
        pairs = zip(_operands(node, variant), other.layouts, strict=True)
        return all(
            values[name].constant or layout.same(twin, values[name].dims)
            for (name, layout), twin in pairs
        )


def _operand_layout(value: VTensor, layout: Layout, lead: VTensor) -> Layout:
    """Return the layout of an operand if the lead, the input whose layouts are tried, has
    ``layout``.

    It has the same order and blocks, restricted to the dims of the operand. A dim that the operand
    broadcasts has no blocks. A constant, or an operand with dims that ``layout`` lacks, keeps its
    own layout.
    """
    produced = value.produced_layout
    if value.constant or not value.dims.keys() <= set(layout.dims):
        return Layout.plain(value.dims) if produced is None else produced
    restricted = layout.restrict(value.dims)
    for dim, size in value.dims.items():
        restricted = restricted.unblock(dim) if size == 1 != lead.size(dim) else restricted
    return restricted


def _operands(node: OpNode, variant: Variant) -> Sequence[tuple[str, Layout]]:
    """Return the name of each operand of a node, inputs first, with its layout in a variant."""
    names = (*node.inputs, *node.outputs)
    return list(zip(names, variant.layouts, strict=True))
