"""The bounds of a network: what is measured and how it adds up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest

from ops import Relu
from ptensor.evaluation import Variant
from resolver.lowered import OpNode
from tests.operators.test_variants import SEVERAL
from tests.session.test_session import network
from vtensor.errors import NativeError
from vtensor.language.graph import Graph
from vtensor.language.tensor import VTensor
from vtensor.runtime.session import Session
from vtensor.runtime.tuning import limits as module
from vtensor.runtime.tuning.limits import TimeBounds, limits


def test_fastest_variants_of_the_heavy_nodes_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: Counter[Variant] = Counter()

    def clock(node: OpNode, values: Mapping[str, VTensor], _: object) -> int:
        asked[node.variant] += 1
        return 100 - len(asked)

    with Session(network(32, 6, depth=3), threads=1) as session:
        measured = limits(session)
        assert measured.nodes == 3
        assert min(measured) > 0
        monkeypatch.setattr(module, "node_ns", clock)
        bounds = limits(session)
    assert set(asked.values()) == {1}  # nodes of equal sizes are measured once
    assert len(asked) > 2
    assert (bounds.warm_ns, bounds.nodes) == (3 * (100 - len(asked)), 3)


@pytest.mark.parametrize(("running", "wanted"), [(1, 100), (0, 200), (-1, None)])
def test_variants_that_fail_are_left_out(
    running: int, wanted: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If none is left, the node's own variant counts; if that fails too, there is an error."""
    tried: list[Variant] = []

    def clock(node: OpNode, values: Mapping[str, VTensor], _: object) -> int:
        if not node.variant.kernel and wanted:
            return 200
        tried.append(node.variant)
        if len(tried) > running:
            raise NativeError("out of luck")
        return 100

    monkeypatch.setattr(module, "node_ns", clock)
    with Session(network(32, 6, depth=1), threads=1) as session:
        if wanted is None:
            with pytest.raises(NativeError, match="luck"):
                limits(session)
        else:
            assert limits(session).warm_ns == wanted
            assert len(tried) > 1


def test_network_without_heavy_nodes_has_no_bound() -> None:
    g = Graph("light")
    g.output(g.add(Relu(), g.input("x", {"N": 1, "C": 4})), "y")
    with Session(g, threads=1) as session:
        assert limits(session) == TimeBounds(0, 0, 0)


def test_chain_of_nodes_runs_in_memory_of_any_sizes() -> None:
    """The runner checks that the memory of each step is large enough."""
    g = Graph("sizes")
    for number, case in enumerate(SEVERAL[:2]):
        image, kernel = case.given()
        x = g.input(f"x{number}", image.extents)
        w = g.constant(kernel.array, kernel.dims)
        g.output(g.add(case.op, x, w), f"y{number}")
    with Session(g, threads=1) as session:
        assert limits(session).chain_ns > 0
