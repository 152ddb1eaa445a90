"""The plans that a session used last, and what they were made of."""

from __future__ import annotations

from typing import Any

from vtensor.runtime.last_used import LastUsed

from ops import Relu
from vtensor import Graph, Session
from vtensor.runtime.keys import PlanKey
from vtensor.runtime.plan import Plan


def plan() -> Plan:
    """A plan of one node."""
    graph = Graph()
    graph.output(graph.add(Relu(), graph.input("x", {"N": 2})), "y")
    return Session(graph, libraries=["numpy"], cache_dir=None).plan


def key(name: str) -> PlanKey:
    """A key of its own for each name."""
    return PlanKey((), (name,))


def test_no_more_are_kept_than_it_is_told() -> None:
    last, plans = LastUsed(), [plan() for _ in range(5)]
    for number, one in enumerate(plans[:3]):
        assert last.keep(key(str(number)), one, 10) == []
    last.use(key("0"))
    assert last.keep(key("3"), plans[3], 4) == []
    assert last.keep(key("4"), plans[4], 2) == [plans[1], plans[2], plans[0]]
    assert len(last) == 2
    assert last.keep(key("0"), plans[0], 1) == [plans[3], plans[4]]


def test_an_exchange_for_a_plan_that_is_gone_leaves_the_row_of_its_successor() -> None:
    """The successor may be exchanged in its turn."""
    last, old, successor, new = LastUsed(), plan(), plan(), plan()
    made: list[Any] = [lambda: None, lambda: None]
    last.networks[key("x")] = made[0]
    last.keep(key("x"), old, 1)
    last.keep(key("y"), new, 1)
    last.networks[key("x")] = made[1]
    last.keep(key("x"), successor, 2)
    last.exchange(key("x"), old, new)
    assert last.get(key("x")) is successor
    assert last.networks.get(key("x")) is made[1]
