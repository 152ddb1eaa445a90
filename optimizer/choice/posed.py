"""The layout problem of a graph for solvers other than the optimiser's own: all kernels that
libraries list are alternatives.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from optimizer.choice.candidates import Variants, shared_variants
from optimizer.choice.estimate import Estimate
from optimizer.choice.problem import Clock, Problem
from optimizer.joint import MARGIN, in_time, timed_variants
from optimizer.pipeline import MEASURED, PASSES, optimise
from optimizer.settings import Settings
from ptensor.evaluation import Variant
from resolver.lowered import LoweredGraph
from resolver.probe import Prober
from vtensor.errors import VTensorError
from vtensor.language.exact import exact

#: The passes that choose variants of nodes.
CHOOSING = ("ewo", MEASURED)


class Posed(NamedTuple):
    """A layout problem of a graph, with the plan that the optimiser's own choice gives.

    Attributes:
        problem: the alternatives among which any solver may choose, with times.
        planner: the problem that the joint choice solves: the first of these alternatives.
        plan: the graph after that choice.
    """

    problem: Problem
    planner: Problem
    plan: LoweredGraph


def posed(graph: LoweredGraph, passes: Sequence[str], clock: Clock | None = None) -> Posed:
    """Return the layout problem of a graph, with all kernels that libraries list as alternatives.

    The first alternatives of each node are those among which the joint choice decides, in its
    order. The kernels that the node's library lists follow, the fastest for each combination of
    layouts.

    Args:
        graph: a lowered graph with its Transforms, before any pass.
        passes: names of the passes; the plan is the graph after the one that chooses variants.
        clock: the times of nodes and Transforms, if they are measured; None estimates them from
            declared rates.
    """
    names = [name for name in passes if name in PASSES]
    place = next((i for i, name in enumerate(names) if name in CHOOSING), len(names))
    graph = optimise(graph, names[:place])
    settings = Settings("time", clock=clock) if clock and MEASURED in names else Settings()
    plan = optimise(graph, names[place : place + 1], settings)
    clock = clock or Estimate(graph.preferences)
    margin = 0.0 if clock.measured else MARGIN
    known = timed_variants(graph, clock)
    listed = _listed(graph.bare)
    asked = shared_variants(graph, {name: [*known[name], *listed[name]] for name in known})
    variants = _extended(graph.bare, known, asked, clock)
    own = {name: variants[name][: len(row)] for name, row in known.items()}
    problem, planner = (Problem.of(graph, rows, clock, margin) for rows in (variants, own))
    return Posed(problem, planner, plan)


def _listed(graph: LoweredGraph) -> Variants:
    """Return, for each node, the exact kernels that its library lists. Equal calls are asked
    once.
    """
    prober, answers = Prober(graph), dict[object, list[Variant]]()
    listed: Variants = {}
    for node in graph.operators:
        tensors = [graph.values[name] for name in node.inputs]
        ops = exact((node.op, *(follower.op for follower in node.followers)))
        sizes = tuple((tuple(t.dims.items()), t.dtype, t.constant, t.layout) for t in tensors)
        key = (node.op_name, ops, node.variant.library, sizes)
        if key not in answers:
            answers[key] = []
            with suppress(VTensorError):  # the library lists nothing for this call
                answers[key] = [v for v in prober.variants(node) if not v.inexact]
        listed[node.name] = answers[key]
    return listed


def _extended(graph: LoweredGraph, known: Variants, more: Variants, clock: Clock) -> Variants:
    """Return the variants ``known``, and those of ``more`` in other layouts, with their times.

    Of several variants on one library whose operands have the same layouts, constants left out, the
    fastest is kept. Variants of unknown time are dropped.
    """
    tensors, extended = graph.tensors, Variants()
    for node in graph.operators:
        own = [in_time(node, known[node.name][0], tensors, clock), *known[node.name][1:]]
        visible = [not graph.values[name].constant for name in (*node.inputs, *node.outputs)]

        def key(variant: Variant, visible: list[bool] = visible) -> object:
            pairs = zip(variant.layouts, visible, strict=True)
            return variant.library, tuple(layout for layout, seen in pairs if seen)

        taken, best = {key(variant) for variant in own}, dict[object, Variant]()
        for variant in more[node.name]:
            if key(variant) in taken or variant.pieces:
                continue
            timed = in_time(node, variant, tensors, clock)
            before = best.get(key(timed))
            if timed.ns is not None and (before is None or timed.ns < (before.ns or 0)):
                best[key(timed)] = timed
        extended[node.name] = [*own, *best.values()]
    return extended
