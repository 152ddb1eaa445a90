"""The joint choice: the variants of all nodes on all libraries that take the least time together
with the Transforms.

Times are measured if the session measures, else estimated. By estimates alone, the library of
highest priority runs a node unless another one saves the share ``MARGIN`` of the node's time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from itertools import compress
from types import MappingProxyType

from libdesc.transforms import LayoutChange
from optimizer.choice.candidates import Variants, other_libraries, shared_variants
from optimizer.choice.elsewhere import FurtherVariants
from optimizer.choice.errors import Allowed, ErrorMeter
from optimizer.choice.estimate import Estimate
from optimizer.choice.problem import Clock, Problem, with_doubt
from optimizer.ewo import chosen_by, nothing_to_gain, reconcile
from optimizer.settings import Settings
from ptensor.evaluation import Variant
from ptensor.layout import Layout
from resolver.errors import planes_form
from resolver.lowered import LoweredGraph, OpNode, Value, in_variant
from resolver.probe import Prober
from vtensor.errors import InvokerError, VTensorError
from vtensor.language.exact import exact
from vtensor.language.records import replace
from vtensor.language.tensor import VTensor

#: By estimate, another library must save this fraction of a node's time to be chosen for the node.
MARGIN = 0.1

#: The variants of another library are measured for a node if its estimate exceeds the node's own
#: estimate by less than this multiple of the latter.
MAX_EXCESS = 2.0

#: Other variants of a node are measured if its time is more than this multiple of its estimate. An
#: estimate below ``MIN_DOUBTED_NS`` is never doubted.
DOUBT_RATIO, MIN_DOUBTED_NS = 1.75, 20_000

#: Fractions of the network's estimated time. One of several equal nodes is measured if these
#: together take at least ``MIN_SHARE``. Other variants of them are measured if they could save at
#: least ``MIN_SAVED_SHARE``. One measurement takes milliseconds, and a node has about a dozen
#: variants.
MIN_SHARE, MIN_SAVED_SHARE = 1 / 1000, 1 / 100

#: The number of nodes that are measured among nodes that differ only in sizes. If none of these is
#: far from its estimate, the others are taken not to be, either.
SAMPLES = 4

#: A kernel is not measured if pads make its packed constants larger by the factor
#: ``MAX_PAD_RATIO``, and larger than ``MIN_PADDED_BYTES``, which a core's nearest caches hold.
MAX_PAD_RATIO, MIN_PADDED_BYTES = 8, 1 << 16

#: By the number of planes: the error that a node's result has at least if operands are stored in a
#: narrower type. Variants are measured only if the error of the results may be that large. In bf16,
#: an element has a relative error of up to 2**-8; as the sum of two bf16, of up to 2**-17.
LEAST_ROUNDED = {1: 2.0**-10, 2: 2.0**-19}

#: Other kernels of a node are measured if the Transforms next to it take more than this fraction of
#: the node's time.
TRANSFORM_RATIO = 0.2


def joint(graph: LoweredGraph, settings: Settings) -> LoweredGraph:
    """Minimise sum of ns[variant] * x[variant] + sum of ns[e] * z[e] over all nodes.

    x is 1 for a variant that runs, z is 1 for a Transform e that is needed; else they are 0. Return
    the graph in the best variants; nodes keep their variants if nothing is gained. A variant with
    estimated time on another library than the resolver's is charged a tenth of the node's time. A
    Transform next to a node that was measured while planning is also charged the noise of that
    time. If the settings ask for bytes or edges, these are minimised as EWO does.
    """
    if settings.objective not in ("", "time"):
        return reconcile(graph, settings)
    estimate = Estimate(graph.preferences, settings.speeds)
    clock = settings.clock or estimate
    try:
        probed = _probed(graph, settings, estimate)
        if settings.clock is None and not (probed or _improvable(graph)):
            return nothing_to_gain(graph, "time")
        variants = timed_variants(graph, clock, estimate, probed, settings.only, settings.allowed)
    finally:
        if settings.probe is not None:
            settings.probe.save()
    margin = 0.0 if clock.measured else MARGIN
    allowed, room, price = settings.allowed, settings.room, settings.price
    problem = Problem.of(graph, variants, clock, margin, allowed, room, price)
    return chosen_by(graph, problem, "time", settings)


def _probed(graph: LoweredGraph, settings: Settings, estimate: Estimate) -> dict[str, Clock]:
    """Return the nodes whose other variants are to be measured: the clock that measures them, by
    name of the node.

    These are nodes whose time is far above their estimate, and nodes next to costly Transforms,
    which another kernel may not need. Equal nodes count together. Of nodes that differ only in
    sizes, SAMPLES are measured. The rest are measured only if one of these is far from its
    estimate, or if they have Transforms. Empty if ``settings.probe`` is None.
    """
    if (probe := settings.probe) is None:
        return {}
    bare, declared = graph.bare, Estimate(graph.preferences)
    declared_ns = {node.name: declared.node(node, bare.tensors) for node in bare.operators}
    equal_nodes = dict[object, list[OpNode]]()
    for node in bare.operators:
        if settings.may_change(node.name) and declared_ns[node.name] >= MIN_DOUBTED_NS:
            equal_nodes.setdefault((_kind(node), _sizes(bare, node)), []).append(node)
    least = MIN_SHARE * sum(declared_ns.values())
    large = [
        nodes for nodes in equal_nodes.values() if len(nodes) * declared_ns[nodes[0].name] >= least
    ]
    if not large:
        return {}
    ends_ns = Counter[str]()
    for names, ns in _transforms(graph, estimate):
        ends_ns.update(dict.fromkeys(names, ns))
    estimated_ns = {node.name: estimate.node(node, bare.tensors) for node in bare.operators}

    def saved(nodes: Sequence[OpNode]) -> int:
        """Return the nanoseconds that other variants of equal nodes could save together.

        Returns 0 if the nodes are close to their estimate and have no costly Transforms.
        """
        count, transforms_ns = len(nodes), sum(ends_ns[node.name] for node in nodes)
        measured_ns = count * (probe.node(nodes[0], bare.tensors) or 0)
        estimated = count * estimated_ns[nodes[0].name]
        doubtful = (
            measured_ns + transforms_ns > DOUBT_RATIO * estimated
            or transforms_ns > TRANSFORM_RATIO * measured_ns
        )
        if not measured_ns or not doubtful:
            return 0
        return max(
            measured_ns + transforms_ns - estimated,
            transforms_ns if transforms_ns > TRANSFORM_RATIO * measured_ns else 0,
        )

    savings = list[tuple[Sequence[OpNode], int]]()
    kinds = dict[object, list[list[OpNode]]]()
    for nodes in sorted(large, key=lambda nodes: estimated_ns[nodes[0].name]):
        kinds.setdefault(_kind(nodes[0]), []).append(nodes)
    for alike in kinds.values():
        places = {round(i * (len(alike) - 1) / (SAMPLES - 1)) for i in range(SAMPLES)}
        samples = [(alike[place], saved(alike[place])) for place in sorted(places)]
        all_of_them = any(ns > 0 for _, ns in samples)
        savings += samples
        savings += [
            (nodes, saved(nodes))
            for place, nodes in enumerate(alike)
            if place not in places and (all_of_them or any(ends_ns[node.name] for node in nodes))
        ]
    least = MIN_SAVED_SHARE * sum(estimated_ns.values())
    return {node.name: probe for nodes, ns in savings for node in nodes if ns > least}


def _kind(node: OpNode) -> object:
    """Return a key of a node that is equal for nodes that differ only in sizes."""
    ops = exact((node.op, *(follower.op for follower in node.followers)))
    return ops, node.variant.library, node.variant.layouts


def _sizes(graph: LoweredGraph, node: OpNode) -> object:
    """Return a key of a node's sizes. Nodes for which it and ``_kind`` are equal take equal
    time.
    """
    values = [graph.values[name] for name in (*node.inputs, *node.outputs)]
    return tuple((value.dtype, *value.dims.items(), value.constant) for value in values)


def _improvable(graph: LoweredGraph) -> bool:
    """Return whether the graph has a Transform or a node in reference code, which another choice
    could remove.
    """
    return any(graph.transforms()) or any(node.variant.reference for node in graph.operators)


def timed_variants(
    graph: LoweredGraph,
    clock: Clock,
    estimate: Estimate | None = None,
    probed: Mapping[str, Clock] = MappingProxyType({}),
    only: Container[str] | None = None,
    allowed: Allowed | None = None,
) -> Variants:
    """Return the variants of every node with their times. The variant that the resolver chose is
    first.

    The candidates are the variants of ``shared_variants``, and variants on other libraries and with
    fewer followers fused. For a node that is measured, all kernels of its library are candidates.
    Of variants that differ at most in layouts of constants, the fastest is kept. A variant of
    unknown time is dropped.

    Args:
        graph: a lowered graph with its Transforms.
        clock: times of nodes and Transforms.
        estimate: the clock that estimates times. Variants that its estimates show to be hopeless
            are not tried. None estimates from declared rates.
        probed: by name of a node, the clock to use for the node in place of ``clock``.
        only: names of the nodes that may change; None is all.
        allowed: the error that the results may have. It admits approximate variants that are faster
            than the resolver's variant and than the exact ones in the same layouts, and variants
            that round operands as far as ``LEAST_ROUNDED`` lets them fit. None admits neither.
    """
    estimate = estimate or Estimate(graph.preferences)
    spares = Counter(dict(_possible_savings(graph, clock, estimate)))
    graph = graph.bare
    for node in graph.operators:
        if node.name in probed:
            spares[node.name] += probed[node.name].node(node, graph.tensors) or 0
    measured = {node.name for node in graph.operators if probed.get(node.name, clock).measured}
    further = FurtherVariants(graph, clock, spares, estimate, allowed is not None, measured)
    prober = Prober(graph)
    more: Variants = {}
    for node in graph.operators:
        if only is not None and node.name not in only:
            continue
        more[node.name] = [*further.variants(node)]
        if node.name in measured:
            others = prober.variants(node)
            if node.name in probed:
                others = [variant for variant in others if not _padded(graph, node, variant)]
            more[node.name] += others
    if allowed is not None:
        wanted = [node for node in graph.operators if node.name in more.keys() & measured]
        for name, rounding in _rounding(graph, wanted, prober, allowed).items():
            more[name] += rounding
    variants = shared_variants(graph, more, only)
    tensors = further.graph.tensors
    return {
        node.name: _fastest(tensors, node, variants[node.name], probed.get(node.name, clock))
        for node in graph.operators
    }


def _rounding(
    graph: LoweredGraph, nodes: Sequence[OpNode], prober: Prober, allowed: Allowed
) -> Variants:
    """Return the variants of nodes, on any library, that store operands in a narrower type, by name
    of node, as far as the allowed error may admit them; not those that store constants alone in a
    single narrower plane, unless their step splits other operands into planes.
    """
    errors = dict[str, list[tuple[float, Variant]]]()
    for node in nodes:
        operands = [graph.values[name] for name in (*node.inputs, *node.outputs)]
        for library in (node.variant.library, *other_libraries(graph, node, passed=True)):
            variant = replace(node.variant, library=library, inexact=True)
            try:
                others = prober.variants(replace(node, variant=variant))
            except InvokerError:  # the library is broken, and all its forms would be missing
                raise
            except VTensorError:  # the library declines the node
                continue
            for other in others:
                planes = {
                    len(layout.encoding.planes)
                    for value, layout in zip(operands, other.layouts, strict=True)
                    if layout.encoding and layout.rounds(value.dtype) and not value.constant
                }
                if planes_form(other):
                    planes = {1 if _loses(node, operands, other, allowed.meter) else 2}
                if planes:
                    error = LEAST_ROUNDED[min(2, *planes)]
                    errors.setdefault(node.name, []).append((error, other))
    asked = [node for node in nodes if node.name in errors]
    gains = zip(asked, allowed.meter.gains(asked), strict=True)
    return {
        node.name: [other for error, other in errors[node.name] if error * gain <= allowed.limit]
        for node, gain in gains
        if gain is not None
    }


def _loses(node: OpNode, operands: Sequence[Value], variant: Variant, meter: ErrorMeter) -> bool:
    """Return whether a variant stores constants of a node in a single plane of a type that cannot
    hold all of their elements.
    """
    pairs = zip(node.inputs, operands, variant.layouts, strict=False)
    return any(
        value.constant
        and layout.encoding is not None
        and layout.encoding.rest is None
        and not meter.holds(name, layout.encoding)
        for name, value, layout in pairs
    )


def _is_rounded(value: Value | VTensor, layout: Layout) -> bool:
    """Return whether a layout rounds a value that is no constant."""
    return not value.constant and layout.rounds(value.dtype)


def _padded(graph: LoweredGraph, node: OpNode, variant: Variant) -> bool:
    """Return whether a packed constant of a variant consists mostly of pads, which the kernel has
    to read as well.
    """
    for name, layout in zip(node.inputs, variant.layouts, strict=False):
        value = graph.values[name]
        unpadded = Layout.plain(value.dims).nbytes(value.dims, value.dtype)
        limit = max(MIN_PADDED_BYTES, MAX_PAD_RATIO * unpadded)
        if value.constant and layout.nbytes(value.dims, value.dtype) > limit:
            return True
    return False


def _possible_savings(
    graph: LoweredGraph, clock: Clock, estimate: Estimate
) -> Iterator[tuple[str, int]]:
    """Yield (name, nanoseconds) for each node of which another variant could save time: what a plan
    could save by it.

    It is the time of the Transforms next to the node or next to its island: the connected nodes on
    the same library (``_island``). For a node in reference code, MAX_EXCESS times its estimate is
    added. If times are measured, this is added for every node.
    """
    bare = graph.bare
    saved = Counter[str]()
    for names, ns in _transforms(graph, clock):
        for island in {frozenset(_island(bare, name)) for name in names}:
            saved.update(dict.fromkeys(island, ns))
    for node in bare.operators:
        if clock.measured or node.variant.reference:
            saved[node.name] += round(MAX_EXCESS * estimate.node(node, bare.tensors))
    yield from saved.items()


def _transforms(graph: LoweredGraph, clock: Clock) -> Iterator[tuple[set[str], int]]:
    """Yield (nodes, nanoseconds) for each Transform: the names of the nodes that make and read its
    values, and its time, 0 if unknown.
    """
    makers = {name: node.name for node in graph.operators for name in node.outputs}
    for node in graph.transforms():
        source, target = graph.values[node.input], graph.values[node.output]
        change = LayoutChange(source.layout, target.layout)
        ends = {
            makers.get(source.name, ""),
            *(reason.consumer for reason in node.reasons if reason.op),
        }
        yield ends - {""}, clock.transform(source.tensor(), change) or 0


def _island(bare: LoweredGraph, name: str) -> set[str]:
    """Return the island of the node ``name``: the names of the nodes on its library that are
    connected with it.

    The island is the node alone if no other library runs more nodes of the graph.
    """
    nodes = {node.name: node for node in bare.operators}
    [(common, _)] = Counter(node.variant.library for node in bare.operators).most_common(1)
    library, island, pending = nodes[name].variant.library, {name}, [name]
    while pending and library != common:
        current = nodes[pending.pop()]
        values = {v for v in (*current.inputs, *current.outputs) if not bare.values[v].constant}
        for node in bare.operators:
            touches = not values.isdisjoint((*node.inputs, *node.outputs))
            if touches and node.variant.library == library and node.name not in island:
                island.add(node.name)
                pending.append(node.name)
    return island


def _fastest(
    values: Mapping[str, VTensor], node: OpNode, variants: Sequence[Variant], clock: Clock
) -> list[Variant]:
    """Return the resolver's variant, and the fastest variant for each combination of layouts of
    operands.

    Layouts of constants do not count here. Times are those of ``clock``. If they are estimates, the
    fastest variant of each library is kept. Approximate variants are added if they are faster than
    the resolver's variant and than the exact one in the same layouts. Variants that store operands
    in a narrower type are compared with each other only, since they may save Transforms.
    """
    if len(variants) == 1:
        return [*variants]
    timed = _no_slower_fused([in_time(node, variant, values, clock) for variant in variants])
    first_ns = timed[0].ns
    if first_ns is None:  # no time to compare with
        return [variants[0]]
    operands = [values[name] for name in (*node.inputs, *node.outputs)]
    visible = [not value.constant for value in operands]
    best: dict[tuple[object, ...], Variant] = {}
    known = (variant for variant in timed if variant.ns is not None)
    for variant in sorted(known, key=lambda variant: (variant.inexact, with_doubt(variant))):
        library = "" if clock.measured else variant.library
        key = (library, *compress(variant.layouts, visible))
        if not variant.inexact:
            best.setdefault(key, variant)
        elif any(map(_is_rounded, operands, variant.layouts)):
            best.setdefault((*key, variant.library), variant)
        elif with_doubt(variant) < min(first_ns, with_doubt(best.get(key, timed[0]))):
            best.setdefault((*key, variant.library, variant.kernel), variant)
    return [timed[0], *(variant for variant in best.values() if variant is not timed[0])]


def _no_slower_fused(timed: Sequence[Variant]) -> list[Variant]:
    """Return the variants, with a corrected time of each fused kernel.

    It is at most the time of the same kernel with its followers as separate steps. If a measured
    time is longer, other processes have disturbed the measurement.
    """
    parts: dict[object, int] = {}
    for variant in timed:
        if variant.pieces and variant.ns is not None and variant.basis == "measured":
            known = parts.get(_kernel(variant), variant.ns)
            parts[_kernel(variant)] = min(known, variant.ns)
    return [
        variant
        if variant.pieces or variant.ns is None or not variant.kernel
        else replace(variant, ns=min(variant.ns, parts.get(_kernel(variant), variant.ns)))
        for variant in timed
    ]


def _kernel(variant: Variant) -> object:
    return variant.library, variant.kernel, variant.layouts


def in_time(node: OpNode, variant: Variant, values: Mapping[str, VTensor], clock: Clock) -> Variant:
    """Return a variant of ``node`` with its time set in the field ``ns``; None there if the time is
    unknown.

    The time of a variant that runs in several pieces is the sum of the pieces' times and of the
    Transforms between them.

    Args:
        node: the node.
        variant: the variant.
        values: the tensors of the graph by name.
        clock: times of nodes and Transforms.
    """
    if not variant.pieces:
        ns = clock.node(replace(node, variant=variant), values)
        return replace(variant, ns=ns, basis=clock.basis)
    unknown = replace(variant, ns=None)
    total, produced, pieces = 0, dict[str, Layout](), list[Variant]()
    for piece, part in zip(in_variant(node, variant), variant.pieces, strict=True):
        ns = clock.node(piece, values)
        if ns is None:
            return unknown
        total += ns
        pieces.append(replace(part, ns=ns, basis=clock.basis))
        for name, layout in zip(piece.inputs, piece.variant.layouts, strict=False):
            before = produced.get(name)
            if before is not None and not layout.same(before, values[name].dims):
                transform_ns = clock.transform(values[name], LayoutChange(before, layout))
                if transform_ns is None:
                    return unknown
                total += transform_ns
        produced[piece.outputs[0]] = piece.variant.layouts[len(piece.inputs)]
    return replace(variant, ns=total, basis=clock.basis, pieces=tuple(pieces))
