"""Where values are in memory: none is overwritten before it is read, in little more than needed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import combinations, pairwise
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval.networks import NAMES, SMALL, build
from ptensor.buffer import ALIGNMENT
from tests.libraries.bench import Bench
from tests.libraries.slow import slow_but
from tests.optimizer.graphs import random_graph
from tests.property.strategies import laws
from tests.runtime.simulation import faults
from tests.session.test_session import network
from vtensor import Graph, Session
from vtensor.runtime import _replay
from vtensor.runtime.execution.plan import Plan
from vtensor.runtime.execution.request import Request
from vtensor.runtime.planning.keys import PlanKey
from vtensor.runtime.recording.offsets import Piece, live_bytes, offsets
from vtensor.runtime.recording.placement import Placement
from vtensor.storage.inputs import feed_of, random_array

#: Most bytes of an arena, by bytes that are needed at once.
SLACK = 1.1
QUICK = ("googlenet", "mobilenet_v2")


def faults_of(plan: Plan) -> list[str]:
    return faults(plan.placement, len(plan.graph.inputs))


def differing(session: Session, seed: int) -> list[str]:
    """Return the outputs that differ between a replay and single steps, by seeded inputs."""
    generator, plan = np.random.default_rng(seed), session.plan
    parts = {p.name: feed_of(random_array(p, generator), p).part for p in session.inputs}
    names = [port.name for port in session.outputs]
    request = Request.of(plan, PlanKey(()), names, True)
    fed = [parts[name].array for name in plan.graph.inputs]
    replayed, stepped = (request.run(fed, one_by_one=how) for how in (False, True))
    pairs = zip(request.results(replayed), request.results(stepped), strict=True)
    return [y.name for y, other in pairs if y.array().tobytes() != other.array().tobytes()]


def single(graph: Graph, **options: Any) -> Session:
    return Session(graph, threads=1, **options)


@pytest.mark.parametrize("name", slow_but(QUICK, NAMES))
def test_a_network_keeps_what_it_reads_in_little_memory(name: str) -> None:
    with single(build(name, size=SMALL[name])) as session:
        placement = session.plan.placement
        assert faults_of(session.plan) == []
        assert placement.live <= placement.nbytes <= SLACK * placement.live
        if name in QUICK[:2]:
            assert differing(session, 1) == differing(session, 2) == []


@pytest.mark.parametrize("seed", range(20))
def test_a_random_graph_keeps_what_it_reads(seed: int, bench: Bench) -> None:
    with single(random_graph(seed)) as session:
        assert faults_of(session.plan) == []
        if seed < 8:
            assert session.plan.calls_back
            assert differing(session, seed) == []


@pytest.mark.parametrize("seed", range(8))
def test_a_replay_of_mixed_libraries_answers_as_its_steps_do(seed: int) -> None:
    """Call-backs are between native steps, with Transforms of each library."""
    graph, random = network(), Random(seed)
    nodes = [name for name in graph.nodes if not name.startswith("conv")]
    pin = {name: random.choice(["numpy", "eigen", "onednn"]) for name in nodes}
    with single(graph, pin=pin) as session:
        assert differing(session, seed) == []


def misplaced(placement: Placement) -> Iterator[Placement]:
    """Move one value onto another that lives meanwhile, or out of the arena."""
    begins = placement.offsets
    for step in placement.steps:
        roots = [s.root for s in step.slots if not isinstance(s, int) and s.root in begins]
        for root, other in pairwise(roots):
            if begins[root] != begins[other]:
                yield replace(placement, offsets={**begins, other: begins[root]})
    for root in begins:
        yield replace(placement, offsets={**begins, root: placement.nbytes})


def test_a_misplaced_value_is_a_fault() -> None:
    with single(build("mobilenet_v1", size=32)) as session:
        plan, [lane] = session.plan, session._runner.workspace.lanes.every
        planted, seen = list(misplaced(plan.placement)), list[str]()
        assert len(planted) > 20
        assert all(faults(placement, len(plan.graph.inputs)) for placement in planted)
        assert differing(session, 1) == []
        for placement in planted:
            with suppress(ValueError):  # some are refused
                plan._programs[lane] = placement.program(lane.arena)
                if seen := differing(session, 1):
                    break
    assert seen, "no misplaced value was noticed"


@st.composite
def pieces(draw: st.DrawFn) -> Piece:
    """Return a piece of any size, none included, at any time."""
    first, steps = draw(st.integers(0, 12)), draw(st.integers(0, 6))
    return Piece(draw(st.sampled_from((0, 1, 63, 64, 65, 128, 500, 4096))), first, first + steps)


def overlaps(rows: list[Piece], begins: list[int], size: int) -> list[str]:
    """Return what is wrong with the places of pieces."""
    places = list(zip(rows, begins, strict=True))
    wrong = [
        f"{piece} at {begin} of {size}"
        for piece, begin in places
        if begin % ALIGNMENT or begin < 0 or begin + piece.nbytes > size
    ]
    for (one, here), (other, there) in combinations(places, 2):
        at_once = one.first <= other.last and other.first <= one.last
        if at_once and here < there + other.nbytes and there < here + one.nbytes:
            wrong.append(f"{one} at {here} and {other} at {there}")
    return wrong


@laws(150)
@given(st.lists(pieces(), max_size=30))
def test_pieces_that_live_at_once_do_not_overlap(rows: list[Piece]) -> None:
    begins, size = offsets(rows)
    assert overlaps(rows, begins, size) == []
    at_each = [sum(p.room for p in rows if p.first <= step <= p.last) for step in range(20)]
    assert live_bytes(rows) == max(at_each)
    assert live_bytes(rows) <= size <= sum(piece.room for piece in rows)


@pytest.mark.parametrize(
    "rows",
    [
        [(256, 3, 5), (192, 2, 4), (256, 0, 1), (128, 1, 2)],
        [(192, 4, 5), (256, 2, 2), (192, 3, 4), (192, 2, 4)],
        [(256, 1, 1), (128, 3, 5), (256, 4, 4), (256, 1, 3)],
    ],
    ids=("in the order of steps", "the longest needed first", "either"),
)
def test_another_order_is_taken_where_the_largest_first_needs_more(
    rows: list[tuple[int, int, int]],
) -> None:
    pieces = [Piece(*row) for row in rows]
    assert offsets(pieces)[1] == live_bytes(pieces)


def test_wrong_places_of_pieces_are_found() -> None:
    rows = [Piece(128, 0, 1), Piece(64, 1, 2), Piece(64, 2, 3)]
    assert overlaps(rows, [0, 128, 0], 192) == []
    for wrong in ([0, 64, 0], [0, 100, 0], [128, 0, 0], [0, -64, 0], [0, 192, 0]):
        assert overlaps(rows, wrong, 192)


@pytest.mark.parametrize(
    "rows",
    [
        ([64], [0], []),
        ([-1], [0], [0]),
        ([64], [2], [1]),
        ([64], [-1], [1]),
        ([1 << 62] * 2, [0, 0], [1, 1]),
    ],
)
def test_wrong_pieces_are_refused(rows: tuple[list[int], list[int], list[int]]) -> None:
    with pytest.raises(ValueError, match=r"piece"):
        _replay.offsets(*rows)
