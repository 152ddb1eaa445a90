"""What plans take over from others, what is proven of them, and which may be replaced."""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.frontends.support import f32, model
from tests.planning import cells
from tests.planning.cells import PATIENCE_S, TOLERANCE, apart_by
from tests.planning.rows import Feeds
from vtensor import Session
from vtensor.runtime.execution.plan import Plan

#: Rows whose plans keep Transforms, and rows with sizes that some libraries decline.
TRANSFORMED = ["heads", "places", "turning", "spread", "attention"]
DECLINED = ["squeeze", "mobile", "spread", "masks"]


def plans_of(
    name: str, folder: Path, caches: Sequence[bool], *, count: int = 2, **options: Any
) -> Iterator[tuple[Feeds, Plan]]:
    """Yield inputs and their plans: of a session with or without a cache each."""
    row, path = cells.row_of(name), cells.write(name, folder / "net.onnx")
    for cached in caches:
        with cells.opened(row, path, folder if cached else None, **options) as session:
            for feeds in cells.feeds_of(name, count):
                session.run(None, feeds)
                yield feeds, session.plan


@pytest.mark.parametrize("name", TRANSFORMED)
def test_a_plan_of_another_ones_choice_is_not_proven_and_is_looked_at_again(
    name: str, tmp_path: Path
) -> None:
    """A choice is proven the best, whatever sizes, where nothing is converted; else something else
    may be fastest in other sizes, however the plan came.
    """
    seen = 0
    for _, plan in plans_of(name, tmp_path, (False, True, True)):
        may_be_better = plan.taken_from is not None and bool(plan.conversions)
        assert (plan.refinement is not None) == may_be_better
        assert not may_be_better or plan.certificate is None
        seen += may_be_better
    assert seen, "no plan with Transforms is of another one's choice"


@pytest.mark.parametrize("name", [*TRANSFORMED, "weights", "detector", "call-back"])
def test_a_deterministic_session_exchanges_nothing(name: str, tmp_path: Path) -> None:
    for costs in ("declared", "calibrated"):
        caches = (False, True, True)
        for _, plan in plans_of(name, tmp_path, caches, costs=costs, deterministic=True):
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
    before, partly = dict[str, Plan](), 0
    for feeds, plan in plans_of(name, tmp_path, (False,), count=3):
        before[repr({key: array.shape for key, array in feeds.items()})] = plan
        if plan.anew:
            old, new = chosen(before[repr(plan.taken_from)]), chosen(plan)
            assert len(plan.anew) < len(new)
            assert {node: new[node] for node in new.keys() - {*plan.anew}}.items() <= old.items()
            partly += 1
    assert partly


def test_a_provisional_plan_is_replaced(tmp_path: Path) -> None:
    """By the plan that times of this machine choose, which gives the same answers."""
    name = "masks"
    row, path = cells.row_of(name), cells.write(name, tmp_path / "net.onnx")
    feeds = cells.feeds_of(name, 0)[0]
    with cells.opened(row, path, None, "calibrated") as session:
        first, _ = cells.run(session, row, feeds)
        assert session.plan.provisional
        assert session.plan.refinement is not None
        until = time.monotonic() + PATIENCE_S
        while session.plan.provisional and time.monotonic() < until:
            again, _ = cells.run(session, row, feeds)
            assert apart_by(again, first) <= TOLERANCE
        assert not session.plan.provisional


def test_a_plan_goes_with_its_session() -> None:
    """Its holder may look at it; nothing holds it or what it was made of any longer."""
    text = "net (float[n, 64] x) => (float[n, 64] y) { a = MatMul(x, w) y = Relu(a) }"
    gone = list[Any]()
    for closes in (True, False):
        session, plans = Session(model(text, w=f32(64, 64)), threads=1, cache_dir=None), []
        for rows in (2, 3, 5):
            session.run(None, {"x": f32(rows, 64)})
            plans.append(session.plan)
        gone += [weakref.ref(holder) for holder in (session, *plans)]
        if closes:
            session.close()
        del session
        assert [len(plan.steps) for plan in plans] == [len(plans[0].steps)] * 3
        del plans
        gc.collect()
        assert not [reference for reference in gone if reference() is not None]
