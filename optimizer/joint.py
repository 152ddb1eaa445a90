"""The variants of all nodes at once, on whatever libraries: least time of kernels and Transforms.

Times are measured where the session measures, else estimated. Without measurements priority still
decides between libraries, except where the plan gains clearly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from itertools import compress
from types import MappingProxyType

from libdesc.transforms import LayoutChange
from optimizer.candidates import Variants, shared_variants
from optimizer.elsewhere import Elsewhere
from optimizer.estimate import Estimate
from optimizer.ewo import chosen_by, nothing_to_gain, reconcile
from optimizer.problem import Clock, Problem, with_doubt
from optimizer.settings import Settings
from ptensor.evaluation import Variant
from ptensor.layout import Layout
from resolver.lowered import LoweredGraph, OpNode, in_variant
from resolver.probe import Prober
from vtensor.language.exact import exact
from vtensor.language.records import replace
from vtensor.language.tensor import VTensor

#: What another library has to gain by estimate, as a part of what the node takes.
MARGIN = 0.1

#: How far above a node's estimate another may be whose time is worth to be measured.
FAR = 2.0

#: How far above its estimate a node's time has to be for other variants of it to be measured; and
#: nanoseconds, below which no estimate is worth to be doubted.
DOUBT, LEAST_NS = 1.75, 20_000

#: What equal nodes have to take together by what libraries declare, for one of them to be looked
#: at; and what other variants of them could spare, for these to be measured: as parts of what the
#: network takes. A look takes some milliseconds, and a node has a dozen variants.
LEAST_SHARE, COMPARED = 1 / 1000, 1 / 100

#: Of so many nodes that differ in sizes alone none is far from its estimate: then no other is.
SAMPLES = 4

#: Constants that take so many times the bytes that they have without pads, and more than a core's
#: nearest caches hold: no look is taken at such a kernel.
PADDED, PADDED_BYTES = 8, 1 << 16

#: What the Transforms at a node's ends have to take, as a part of what the node takes, for other
#: kernels of it to be measured.
WORTH = 0.2


def joint(graph: LoweredGraph, settings: Settings) -> LoweredGraph:
    """Minimise sum of ns[variant] * x[variant] + sum of ns[e] * z[e] over all nodes.

    Where nothing is gained the graph stays as it was. An estimate charges a variant on another
    library than the resolver's a tenth of the node's time. Beside nodes that are measured in
    passing a Transform is charged what such times may be off by, too. Where the settings ask for
    bytes or edges, those are minimised as EWO does.
    """
    if settings.objective not in ("", "time"):
        return reconcile(graph, settings)
    estimate = Estimate(graph.preferences, settings.speeds)
    clock = settings.clock or estimate
    inexact = settings.allowed is not None
    try:
        probed = _probed(graph, settings, estimate)
        if settings.clock is None and not (probed or _improvable(graph)):
            return nothing_to_gain(graph, "time")
        variants = timed_variants(graph, clock, estimate, probed, settings.only, inexact)
    finally:
        if settings.probe is not None:
            settings.probe.save()
    margin = 0.0 if clock.measured else MARGIN
    allowed, room, price = settings.allowed, settings.room, settings.price
    problem = Problem.of(graph, variants, clock, margin, allowed, room, price)
    return chosen_by(graph, problem, "time", settings)


def _probed(graph: LoweredGraph, settings: Settings, estimate: Estimate) -> dict[str, Clock]:
    """The clock of each node that is far from its estimate, or costs large Transforms: all its
    variants are timed, for another kernel may do without them.

    Equal nodes count together. Of nodes that differ in sizes alone, some are looked at; the others
    where one of these is far from its estimate.
    """
    if (probe := settings.probe) is None:
        return {}
    bare, declared = graph.bare, Estimate(graph.preferences)
    takes = {one.name: declared.node(one, bare.tensors) for one in bare.operators}
    calls = dict[object, list[OpNode]]()
    for node in bare.operators:
        if settings.may_change(node.name) and takes[node.name] >= LEAST_NS:
            calls.setdefault((_kind(node), _sizes(bare, node)), []).append(node)
    least = LEAST_SHARE * sum(takes.values())
    large = [nodes for nodes in calls.values() if len(nodes) * takes[nodes[0].name] >= least]
    if not large:
        return {}
    ends = Counter[str]()
    for names, ns in _transforms(graph, estimate):
        ends.update(dict.fromkeys(names, ns))
    expected = {one.name: estimate.node(one, bare.tensors) for one in bare.operators}

    def spared(nodes: Sequence[OpNode]) -> int:
        """What other variants of equal nodes could spare together, where there is doubt."""
        count, before = len(nodes), sum(ends[one.name] for one in nodes)
        took = count * (probe.node(nodes[0], bare.tensors) or 0)
        own = count * expected[nodes[0].name]
        doubtful = took + before > DOUBT * own or before > WORTH * took
        if not took or not doubtful:
            return 0
        return max(took + before - own, before if before > WORTH * took else 0)

    found = list[tuple[Sequence[OpNode], int]]()
    kinds = dict[object, list[list[OpNode]]]()
    for nodes in sorted(large, key=lambda nodes: expected[nodes[0].name]):
        kinds.setdefault(_kind(nodes[0]), []).append(nodes)
    for alike in kinds.values():
        places = {round(one * (len(alike) - 1) / (SAMPLES - 1)) for one in range(SAMPLES)}
        samples = [(alike[place], spared(alike[place])) for place in sorted(places)]
        all_of_them = any(ns > 0 for _, ns in samples)
        found += samples
        found += [
            (nodes, spared(nodes))
            for place, nodes in enumerate(alike)
            if place not in places and (all_of_them or any(ends[one.name] for one in nodes))
        ]
    least = COMPARED * sum(expected.values())
    return {one.name: probe for nodes, ns in found for one in nodes if ns > least}


def _kind(node: OpNode) -> object:
    """What a node has in common with those that differ from it in sizes alone."""
    ops = exact((node.op, *(one.op for one in node.followers)))
    return ops, node.variant.library, node.variant.layouts


def _sizes(graph: LoweredGraph, node: OpNode) -> object:
    """What it has in common with those that differ from it in nothing that takes time."""
    values = [graph.values[name] for name in (*node.inputs, *node.outputs)]
    return tuple((one.dtype, *one.dims.items(), one.constant) for one in values)


def _improvable(graph: LoweredGraph) -> bool:
    """There is a Transform, or a kernel that its own library would rather not use."""
    return any(graph.transforms()) or any(node.variant.reference for node in graph.operators)


def timed_variants(
    graph: LoweredGraph,
    clock: Clock,
    estimate: Estimate | None = None,
    probed: Mapping[str, Clock] = MappingProxyType({}),
    only: Container[str] | None = None,
    inexact: bool = False,
) -> Variants:
    """The variants of every node with what they take; the resolver's is the first.

    Tried are those of ``shared_variants``, those of other libraries and with fewer followers, and
    where times are measured all kernels that libraries have. Of those that differ at most in how
    constants lie the fastest is left; one whose time is not known is none. The estimate says what
    is not worth to be tried.

    Args:
        graph: with its Transforms.
        clock: what nodes and Transforms take.
        estimate: what nodes would take; by default at the speeds that libraries declare.
        probed: another clock for some nodes.
        only: nodes that may change; None is all.
        inexact: variants may be inexact; those are left that are faster than any that is not.
    """
    estimate = estimate or Estimate(graph.preferences)
    spares = Counter(dict(_spares(graph, clock, estimate)))
    graph = graph.bare
    for node in graph.operators:
        if node.name in probed:
            spares[node.name] += probed[node.name].node(node, graph.tensors) or 0
    measured = {one.name for one in graph.operators if probed.get(one.name, clock).measured}
    elsewhere = Elsewhere(graph, clock, spares, estimate, inexact, measured)
    prober = Prober(graph)
    more: Variants = {}
    for node in graph.operators:
        if only is not None and node.name not in only:
            continue
        more[node.name] = [*elsewhere.variants(node)]
        if node.name in measured:
            others = prober.variants(node)
            if node.name in probed:
                others = [one for one in others if not _padded(graph, node, one)]
            more[node.name] += others
    variants = shared_variants(graph, more, only)
    tensors = elsewhere.graph.tensors
    return {
        node.name: _fastest(tensors, node, variants[node.name], probed.get(node.name, clock))
        for node in graph.operators
    }


def _padded(graph: LoweredGraph, node: OpNode, variant: Variant) -> bool:
    """The constants of a variant are little else than pads, which it reads all the same."""
    for name, layout in zip(node.inputs, variant.layouts, strict=False):
        value = graph.values[name]
        unpadded = Layout.plain(value.dims).nbytes(value.dims, value.dtype)
        most = max(PADDED_BYTES, PADDED * unpadded)
        if value.constant and layout.nbytes(value.dims, value.dtype) > most:
            return True
    return False


def _spares(graph: LoweredGraph, clock: Clock, estimate: Estimate) -> Iterator[tuple[str, int]]:
    """By node, what a plan could save with another variant of it.

    Estimated: the Transforms at its ends, or at those of the nodes around it that are on the same
    library where most are on another; and what reference code takes. Measured: any node could be
    faster, unless its estimate is far from it.
    """
    bare = graph.bare
    saved = Counter[str]()
    for names, ns in _transforms(graph, clock):
        for island in {frozenset(_island(bare, name)) for name in names}:
            saved.update(dict.fromkeys(island, ns))
    for node in bare.operators:
        if clock.measured or node.variant.reference:
            saved[node.name] += round(FAR * estimate.node(node, bare.tensors))
    yield from saved.items()


def _transforms(graph: LoweredGraph, clock: Clock) -> Iterator[tuple[set[str], int]]:
    """The nodes at the ends of each Transform, and what it takes."""
    makers = {name: node.name for node in graph.operators for name in node.outputs}
    for node in graph.transforms():
        source, target = graph.values[node.input], graph.values[node.output]
        change = LayoutChange(source.layout, target.layout)
        ends = {makers.get(source.name, ""), *(one.consumer for one in node.reasons if one.op)}
        yield ends - {""}, clock.transform(source.tensor(), change) or 0


def _island(bare: LoweredGraph, name: str) -> set[str]:
    """A node, and those around it that are on its library if most nodes are on another."""
    nodes = {node.name: node for node in bare.operators}
    [(most, _)] = Counter(node.variant.library for node in bare.operators).most_common(1)
    library, found, left = nodes[name].variant.library, {name}, [name]
    while left and library != most:
        here = nodes[left.pop()]
        values = {v for v in (*here.inputs, *here.outputs) if not bare.values[v].constant}
        for node in bare.operators:
            touches = not values.isdisjoint((*node.inputs, *node.outputs))
            if touches and node.variant.library == library and node.name not in found:
                found.add(node.name)
                left.append(node.name)
    return found


def _fastest(
    values: Mapping[str, VTensor], node: OpNode, variants: Sequence[Variant], clock: Clock
) -> list[Variant]:
    """The resolver's variant, and for each that its neighbours may see the fastest."""
    if len(variants) == 1:
        return [*variants]
    timed = _no_slower_fused([in_time(node, one, values, clock) for one in variants])
    first = timed[0].ns
    if first is None:  # then there is nothing to compare with
        return [variants[0]]
    seen = [not values[name].constant for name in (*node.inputs, *node.outputs)]
    best: dict[tuple[object, ...], Variant] = {}
    known = (variant for variant in timed if variant.ns is not None)
    for variant in sorted(known, key=lambda one: (one.inexact, with_doubt(one))):
        library = "" if clock.measured else variant.library
        seen_so = (library, *compress(variant.layouts, seen))
        if not variant.inexact:
            best.setdefault(seen_so, variant)
        elif with_doubt(variant) < min(first, with_doubt(best.get(seen_so, timed[0]))):
            best.setdefault((*seen_so, variant.library, variant.kernel), variant)
    return [timed[0], *(variant for variant in best.values() if variant is not timed[0])]


def _no_slower_fused(timed: Sequence[Variant]) -> list[Variant]:
    """Where a kernel took less without its followers, and these as steps of their own, than with
    them, its own measurement was disturbed: it takes as little as those.
    """
    parts: dict[object, int] = {}
    for one in timed:
        if one.pieces and one.ns is not None and one.basis == "measured":
            known = parts.get(_kernel(one), one.ns)
            parts[_kernel(one)] = min(known, one.ns)
    return [
        one
        if one.pieces or one.ns is None or not one.kernel
        else replace(one, ns=min(one.ns, parts.get(_kernel(one), one.ns)))
        for one in timed
    ]


def _kernel(variant: Variant) -> object:
    return variant.library, variant.kernel, variant.layouts


def in_time(node: OpNode, variant: Variant, values: Mapping[str, VTensor], clock: Clock) -> Variant:
    """A variant with what it takes; with Transforms where the node runs as several nodes."""
    if not variant.pieces:
        ns = clock.node(replace(node, variant=variant), values)
        return replace(variant, ns=ns, basis=clock.basis)
    unknown = replace(variant, ns=None)
    total, made, pieces = 0, dict[str, Layout](), list[Variant]()
    for piece, own in zip(in_variant(node, variant), variant.pieces, strict=True):
        ns = clock.node(piece, values)
        if ns is None:
            return unknown
        total += ns
        pieces.append(replace(own, ns=ns, basis=clock.basis))
        for name, layout in zip(piece.inputs, piece.variant.layouts, strict=False):
            before = made.get(name)
            if before is not None and not layout.same(before, values[name].dims):
                changed = clock.transform(values[name], LayoutChange(before, layout))
                if changed is None:
                    return unknown
                total += changed
        made[piece.outputs[0]] = piece.variant.layouts[len(piece.inputs)]
    return replace(variant, ns=total, basis=clock.basis, pieces=tuple(pieces))
