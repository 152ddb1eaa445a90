"""The last run of a session: that of the thread that asks, if it has run anything."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.frontends.support import f32, model
from vtensor import Session
from vtensor.errors import InputError, SessionClosedError

OnOther = Callable[[Callable[[], Any]], Any]


@pytest.fixture
def other() -> Iterator[OnOther]:
    """A function that calls one on another thread, always the same one, and returns its result."""
    with ThreadPoolExecutor(1) as pool:
        yield lambda work: pool.submit(work).result()


@pytest.fixture
def session() -> Iterator[Session]:
    """A session of any number of rows."""
    text = "g (float[n, 8] x) => (float[n, 8] y) { a = MatMul(x, w) y = Relu(a) }"
    with Session(model(text, w=f32(8, 8)), threads=1, cache_dir=None) as session:
        yield session


def run(session: Session, rows: int, gaps: bool = False) -> None:
    """Run on some rows; gaps between them make the session copy them."""
    session.run(None, {"x": f32(2 * rows, 8)[::2] if gaps else f32(rows, 8)})


def rows(session: Session) -> int:
    """Return the number of rows of the plan that a thread is told of."""
    [value] = session.plan.inputs
    return next(iter(value.dims.values()))


@pytest.mark.parametrize("times", [1, 2, 5])
def test_each_thread_is_told_of_its_own_last_run(
    times: int, session: Session, other: OnOther
) -> None:
    """Also if its runs are the same ones again and again, which go shorter ways."""
    for _ in range(times):
        run(session, 2)
    for _ in range(times):
        other(lambda: run(session, 3, gaps=True))
    assert (rows(session), session.copied) == (2, frozenset())
    assert not [row for row in session.conversions if "copied" in str(row)]
    assert other(lambda: (rows(session), session.copied)) == (3, {"x"})
    assert other(lambda: session.conversions)
    for _ in range(times):
        run(session, 4)
    assert (rows(session), other(lambda: rows(session))) == (4, 3)


def test_two_threads_take_turns_on_the_shortest_way(session: Session, other: OnOther) -> None:
    for turn in range(20):
        for size in (2, 2, 2, 3)[: 1 + turn % 4]:
            run(session, size)
        mine = rows(session)
        for size in (3, 3, 2)[: 1 + turn % 3]:
            other(partial(run, session, size))
        assert rows(session) == mine == (2, 2, 2, 3)[turn % 4]
        assert other(lambda: rows(session)) == (3, 3, 2)[turn % 3]


def test_a_thread_that_has_run_nothing_is_told_of_the_sessions_last_run(
    session: Session, other: OnOther
) -> None:
    with pytest.raises(InputError, match="there is no plan yet"):
        other(lambda: session.plan)
    run(session, 2)
    assert other(lambda: rows(session)) == 2
    run(session, 3, gaps=True)
    assert other(lambda: (rows(session), session.copied)) == (3, {"x"})
    asyncio.run(session.run_async(None, {"x": f32(5, 8)}))
    assert other(lambda: rows(session)) == 5


def test_locks_profiles_and_bindings_are_of_the_threads_own_run(
    session: Session, other: OnOther
) -> None:
    run(session, 2)
    binding = session.bind({"x": f32(4, 8)})
    other(lambda: run(session, 3))
    session.lock()
    assert rows(session) == 2
    assert other(lambda: session.lock().text()) != session.lock().text()
    other(binding.run)
    assert (rows(session), other(lambda: rows(session))) == (2, 4)
    other(lambda: session.profile({"x": f32(6, 8)}, runs=1))
    assert (rows(session), other(lambda: rows(session))) == (2, 6)
    assert session.memory != other(lambda: session.memory)


def test_closing_frees_the_plans_of_all_threads(session: Session, other: OnOther) -> None:
    other(lambda: run(session, 3))
    run(session, 2)
    plans = [weakref.ref(other(lambda: session.plan)), weakref.ref(session.plan)]
    session.close()
    gc.collect()
    assert [plan() for plan in plans] == [None, None]
    for ask in (lambda: session.plan, lambda: other(lambda: session.plan)):
        with pytest.raises(SessionClosedError):
            ask()


def test_results_are_right_while_other_threads_run(session: Session) -> None:
    w = f32(8, 8)

    def often(size: int) -> None:
        x = f32(size, 8)
        for _ in range(30):
            [y] = session.run(None, {"x": x})
            assert rows(session) == size
            np.testing.assert_allclose(y, np.maximum(x @ w, 0), atol=1e-4)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(often, range(1, 9)))
