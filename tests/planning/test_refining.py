"""What plans take over from others, what is proven of them, and which may be replaced; and what
``session.plan.origin`` says of the way that the plan of the last run came.
"""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx
import pytest

from tests.frontends.support import Array, f32, model
from tests.libraries.command import data_of, vtensor
from tests.libraries.slow import slow_but
from tests.planning import cells
from tests.planning.cells import PATIENCE_S, TOLERANCE, apart_by
from tests.planning.rows import Feeds
from vtensor import Session
from vtensor.runtime.execution.origin import Origin
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
        if name in TRANSFORMED[:3]:
            assert (plan.refinement is not None) == may_be_better
        assert not may_be_better or plan.certificate is None
        seen += may_be_better
    assert seen, "no plan with Transforms is of another one's choice"


@pytest.mark.parametrize(
    "name",
    slow_but(["heads", "places", "weights"], [*TRANSFORMED, "weights", "detector", "call-back"]),
)
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


NET = model("net (float[2, 3] x) => (float[2, 3] y) { a = Relu(x) y = Add(a, a) }")
X = {"x": f32(2, 3)}


def ways(session: Session, *feeds: Mapping[str, Array]) -> list[str]:
    """Run on feeds in turn; return how each run's plan came, none of them out of a cache."""
    result: list[str] = []
    for arrays in feeds:
        session.run(None, arrays)
        assert session.plan.origin == Origin(session.plan.origin.way)
        result.append(session.plan.origin.way)
    return result


@pytest.mark.parametrize("x", [f32(2, 3), f32(3, 2).T], ids=["plain", "turned"])
def test_origin_of_a_plan_that_the_constructor_made(x: Any) -> None:
    """To look at it is no use of it."""
    with Session(NET, threads=1, cache_dir=None) as session:
        for _ in range(3):
            assert (len(session.plan.steps) > 0, session.plan.origin) == (True, Origin("planned"))
            session.lock()
        assert ways(session, *[{"x": x}] * 4) == ["planned", *["in memory"] * 3]


def test_origin_of_bindings() -> None:
    """A binding uses a plan once, however often it runs."""
    with Session(NET, threads=1, cache_dir=None) as session:
        first = session.bind(X)
        for _ in range(3):
            first.run()
            assert session.plan.origin == Origin("planned")
        session.bind(X).run()
        assert session.plan.origin == Origin("in memory")


def test_origin_of_a_lock_file(tmp_path: Path) -> None:
    with Session(NET, threads=1, cache_dir=None) as session:
        session.lock().write(tmp_path / "plan.toml")
    with Session(NET, threads=1, cache_dir=None, plan=tmp_path / "plan.toml") as session:
        assert ways(session, X, X) == ["locked", "in memory"]


def test_the_command_prints_the_origin(tmp_path: Path) -> None:
    onnx.save(NET, tmp_path / "net.onnx")
    assert "  plan: planned\n" in vtensor("plan", tmp_path / "net.onnx").output
    assert data_of("plan", tmp_path / "net.onnx")["origin"] == {"way": "planned", "cached": False}
    assert str(Origin("specialised", cached=True)) == "specialised, read from the cache"
