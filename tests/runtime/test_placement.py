"""Where values lie: nobody writes over what is still to be read, in little more than is needed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import pytest

from eval.networks import NAMES, SMALL, build
from tests.libraries.bench import Bench
from tests.libraries.slow import slow_but
from tests.optimizer.graphs import random_graph
from tests.runtime.simulation import faults
from vtensor import Graph, Session
from vtensor.runtime.execution.plan import Plan
from vtensor.runtime.recording.placement import Placement

#: Of what is needed at once, at most.
SLACK = 1.1
QUICK = ("googlenet", "mobilenet_v2", "densenet169")


def plan_of(graph: Graph) -> Plan:
    with Session(graph, threads=1) as session:
        return session.plan


@pytest.fixture(scope="module", params=slow_but(QUICK, NAMES))
def plan(request: pytest.FixtureRequest) -> Plan:
    """Of each of the twelve networks, small."""
    return plan_of(build(request.param, size=SMALL[request.param]))


def test_networks_keep_what_they_read(plan: Plan) -> None:
    assert faults(plan.placement, len(plan.graph.inputs)) == []


def test_networks_need_little_more_than_lives_at_once(plan: Plan) -> None:
    assert plan.placement.live <= plan.placement.nbytes <= SLACK * plan.placement.live


@pytest.mark.parametrize("seed", range(20))
def test_random_graphs_keep_what_they_read(seed: int, bench: Bench) -> None:
    plan = plan_of(random_graph(seed))
    assert faults(plan.placement, len(plan.graph.inputs)) == []


def wrong(placement: Placement) -> Iterator[Placement]:
    """The placement with one value moved onto another that lives meanwhile, or out of the arena."""
    begins = placement.offsets
    for step in placement.steps:
        ours = [s.root for s in step.slots if not isinstance(s, int) and s.root in begins]
        for one, other in pairwise(ours):
            if begins[one] != begins[other]:
                yield replace(placement, offsets={**begins, other: begins[one]})
    for root in begins:
        yield replace(placement, offsets={**begins, root: placement.nbytes})


def test_wrong_places_are_found() -> None:
    plan = plan_of(build("mobilenet_v1", size=32))
    planted = list(wrong(plan.placement))
    assert len(planted) > 20
    assert all(faults(one, len(plan.graph.inputs)) for one in planted)
