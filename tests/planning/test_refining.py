"""What plans take over from others, what is proven of them, and which may be replaced."""

from __future__ import annotations

import gc
import time
import weakref
from pathlib import Path
from typing import Any

import pytest

from tests.frontends.support import f32, model
from tests.planning import cells
from tests.planning.cells import PATIENCE_S, TOLERANCE, apart_by
from vtensor import Session
from vtensor.runtime.execution.plan import Plan

#: Rows whose plans keep Transforms, and rows with sizes that some libraries decline.
TRANSFORMED = ["heads", "places", "turning", "spread", "attention"]
DECLINED = ["squeeze", "mobile", "spread", "masks"]


@pytest.mark.parametrize("name", TRANSFORMED)
def test_a_proof_is_of_the_sizes_of_its_plan(name: str, tmp_path: Path) -> None:
    """A plan of another choice is proven the best where nothing is converted, whatever sizes."""
    row, model = cells.row_of(name), cells.write(name, tmp_path / "net.onnx")
    seen = []
    for cache in (None, tmp_path, tmp_path):
        with cells.opened(row, model, cache) as session:
            for feeds in cells.feeds_of(name, 2):
                session.run(None, feeds)
                plan = session.plan
                if plan.taken_from is None or not plan.conversions:
                    continue
                seen.append(plan)
                assert plan.certificate is None
    assert seen, "no plan with Transforms is of another one's choice"


@pytest.mark.parametrize("name", TRANSFORMED[:3])
def test_a_plan_with_transforms_is_looked_at_again_in_other_sizes(
    name: str, tmp_path: Path
) -> None:
    """However it came: what is fastest may be something else there."""
    row, model = cells.row_of(name), cells.write(name, tmp_path / "net.onnx")
    for cache in (None, tmp_path, tmp_path):
        with cells.opened(row, model, cache) as session:
            for feeds in cells.feeds_of(name, 2):
                session.run(None, feeds)
                plan = session.plan
                may_be_better = plan.taken_from is not None and bool(plan.conversions)
                assert (plan.refinement is not None) == may_be_better


@pytest.mark.parametrize("name", [*TRANSFORMED, "weights", "detector", "call-back"])
def test_a_deterministic_session_exchanges_nothing(name: str, tmp_path: Path) -> None:
    row, model = cells.row_of(name), cells.write(name, tmp_path / "net.onnx")
    for costs in ("declared", "calibrated"):
        for cache in (None, tmp_path, tmp_path):
            with cells.opened(row, model, cache, costs, deterministic=True) as session:
                for feeds in cells.feeds_of(name, 2):
                    session.run(None, feeds)
                    plan = session.plan
                    assert (plan.refinement, plan.provisional) == (None, False)


def chosen(plan: Plan) -> dict[str, object]:
    """Return what runs each node, by its name."""
    return {
        step.node.name: (step.op, step.library, step.kernels)
        for step in plan.steps
        if not step.is_transform
    }


@pytest.mark.parametrize("name", DECLINED)
def test_what_libraries_take_is_kept_where_they_decline_the_rest(name: str, tmp_path: Path) -> None:
    """Only some nodes are chosen again: ``plan.anew`` names them, and the others are as before."""
    row, model = cells.row_of(name), cells.write(name, tmp_path / "net.onnx")
    before, partly = dict[str, Plan](), 0
    with cells.opened(row, model, None) as session:
        for feeds in cells.feeds_of(name, 3):
            session.run(None, feeds)
            plan = session.plan
            before[repr({key: array.shape for key, array in feeds.items()})] = plan
            if plan.anew:
                old, new = chosen(before[repr(plan.taken_from)]), chosen(plan)
                assert len(plan.anew) < len(new)
                assert {one: new[one] for one in new.keys() - {*plan.anew}}.items() <= old.items()
                partly += 1
    assert partly


def test_a_provisional_plan_is_replaced(tmp_path: Path) -> None:
    """By the plan that times of this machine choose, which gives the same answers."""
    name = "masks"
    row, model = cells.row_of(name), cells.write(name, tmp_path / "net.onnx")
    feeds = cells.feeds_of(name, 0)[0]
    with cells.opened(row, model, None, "calibrated") as session:
        first, _ = cells.run(session, row, feeds)
        assert session.plan.provisional
        assert session.plan.refinement is not None
        until = time.monotonic() + PATIENCE_S
        while session.plan.provisional and time.monotonic() < until:
            again, _ = cells.run(session, row, feeds)
            assert apart_by(again, first) <= TOLERANCE
        assert not session.plan.provisional


def test_a_plan_goes_with_its_session() -> None:
    """Whoever has it may look at it; nothing holds it or what it was made of any longer."""
    proto = model(
        "net (float[n, 64] x) => (float[n, 64] y) { a = MatMul(x, w) y = Relu(a) }", w=f32(64, 64)
    )
    gone = list[Any]()
    for closes in (True, False):
        session = Session(proto, threads=1, cache_dir=None)
        plans = list[Plan]()
        for rows in (2, 3, 5):
            session.run(None, {"x": f32(rows, 64)})
            plans.append(session.plan)
        gone += [weakref.ref(one) for one in (session, *plans)]
        if closes:
            session.close()
        del session
        assert [len(one.steps) for one in plans] == [len(plans[0].steps)] * 3
        del plans
        gc.collect()
        assert not [one for one in gone if one() is not None]
