"""The twelve networks: no level costs more than the one before, and EWO says what is least."""

from __future__ import annotations

import pytest

from eval.networks import NAMES, build
from libdesc.registry import registry
from optimizer.pipeline import optimise
from optimizer.settings import Settings
from resolver.check import check
from tests.libraries.slow import slow_but
from tests.optimizer.graphs import extended_of, moved

DRAWN = ("resnet50", "densenet169", "mobilenet_v2")


@pytest.mark.parametrize("name", slow_but(DRAWN, NAMES))
def test_the_order_of_costs(name: str) -> None:
    graph = build(name)
    resolved = extended_of(graph)
    able = [library.name for library in registry().libraries.values() if library.transforms]
    found = [optimise(resolved, level) for level in ("none", "lho", "ewo", "all")]
    for one in found:
        check(one, graph, able)
    costs = [moved(one) for one in found]
    assert costs == sorted(costs, reverse=True)
    certificate = found[2].certificate
    assert certificate is not None
    assert certificate.minimal
    assert certificate.bound == costs[2].bytes
    paper = optimise(resolved, "ewo", Settings("paper"))
    check(paper, graph, able)
    assert moved(paper) >= costs[2]
