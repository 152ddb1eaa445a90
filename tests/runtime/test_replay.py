"""A replayed plan says what its steps say when Python runs them one by one, bit for bit."""

from __future__ import annotations

from contextlib import suppress
from random import Random

import numpy as np
import pytest

from eval.networks import SMALL, build
from tests.libraries.bench import Bench
from tests.optimizer.graphs import random_graph
from tests.runtime.test_placement import wrong
from tests.session.test_session import network
from vtensor import Session
from vtensor.runtime.execution.plan import Plan
from vtensor.runtime.execution.request import Request
from vtensor.runtime.planning.keys import PlanKey
from vtensor.storage.inputs import feed_of, random_array


def differing(session: Session, plan: Plan, seed: int) -> list[str]:
    """The outputs that are not the same both ways, of seeded inputs."""
    generator = np.random.default_rng(seed)
    parts = {p.name: feed_of(random_array(p, generator), p).part for p in session.inputs}
    names = [port.name for port in session.outputs]
    request = Request.of(plan, PlanKey(()), names, True)
    fed = [parts[name].array for name in plan.graph.inputs]
    replayed, stepped = (request.run(fed, one_by_one=how) for how in (False, True))
    return [
        one.name
        for one, other in zip(request.results(replayed), request.results(stepped), strict=True)
        if one.array().tobytes() != other.array().tobytes()
    ]


@pytest.mark.parametrize("name", ["googlenet", "mobilenet_v2"])
def test_networks(name: str) -> None:
    with Session(build(name, size=SMALL[name]), threads=1) as session:
        for seed in (1, 2):
            assert differing(session, session.plan, seed) == []


@pytest.mark.parametrize("seed", range(8))
def test_mixes_of_libraries(seed: int) -> None:
    """Call-backs stand between native steps, with Transforms of each library."""
    graph, random = network(), Random(seed)
    nodes = [name for name in graph.nodes if not name.startswith("conv")]
    pin = {name: random.choice(["numpy", "eigen", "onednn"]) for name in nodes}
    with Session(graph, threads=1, pin=pin) as session:
        assert differing(session, session.plan, seed) == []


@pytest.mark.parametrize("seed", range(8))
def test_random_graphs(seed: int, bench: Bench) -> None:
    with Session(random_graph(seed), threads=1) as session:
        assert session.plan.calls_back
        assert differing(session, session.plan, seed) == []


def test_what_a_misplaced_value_does_is_seen() -> None:
    with Session(build("mobilenet_v1", size=32), threads=1) as session:
        plan, [lane] = session.plan, session._runner.workspace.lanes.every
        assert differing(session, plan, 1) == []
        for placement in wrong(plan.placement):
            with suppress(ValueError):  # some are refused
                plan._programs[lane] = placement.program(lane.arena)
                if differing(session, plan, 1):
                    return
    pytest.fail("no misplaced value was noticed")
