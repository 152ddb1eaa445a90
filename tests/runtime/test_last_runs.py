"""The last run of a session: that of the thread that asks, where it has run anything."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.frontends.support import f32, model
from vtensor import Session
from vtensor.errors import InputError, SessionClosedError

TEXT = "g (float[n, 8] x) => (float[n, 8] y) { a = MatMul(x, w) y = Relu(a) }"


@contextmanager
def other_thread() -> Iterator[Callable[[Callable[[], Any]], Any]]:
    """What calls a function on another thread, always the same one, and returns its result."""
    with ThreadPoolExecutor(1) as pool:
        yield lambda work: pool.submit(work).result()


def session() -> Session:
    """A session of any number of rows."""
    return Session(model(TEXT, w=f32(8, 8)), threads=1, cache_dir=None)


def run(session: Session, rows: int, gaps: bool = False) -> None:
    """Run on so many rows, which have gaps between them where the session is to copy them."""
    session.run(None, {"x": f32(2 * rows, 8)[::2] if gaps else f32(rows, 8)})


def rows(session: Session) -> int:
    """Return the number of rows of the plan that a thread is told of."""
    [value] = session.plan.inputs
    return next(iter(value.dims.values()))


@pytest.mark.parametrize("times", [1, 2, 5])
def test_each_thread_is_told_of_its_own(times: int) -> None:
    """Also where its runs are the same ones again and again, which go shorter ways."""
    with session() as one, other_thread() as other:
        for _ in range(times):
            run(one, 2)
        for _ in range(times):
            other(lambda: run(one, 3, gaps=True))
        assert (rows(one), one.copied) == (2, frozenset())
        assert not [row for row in one.conversions if "copied" in str(row)]
        assert other(lambda: (rows(one), one.copied)) == (3, {"x"})
        assert other(lambda: one.conversions)
        for _ in range(times):
            run(one, 4)
        assert (rows(one), other(lambda: rows(one))) == (4, 3)


def test_turns_of_two_threads_on_one_shape_and_another() -> None:
    """Each of them has the session's shortest way in turn."""
    with session() as one, other_thread() as other:
        for turn in range(20):
            for size in (2, 2, 2, 3)[: 1 + turn % 4]:
                run(one, size)
            mine = rows(one)
            for size in (3, 3, 2)[: 1 + turn % 3]:
                other(partial(run, one, size))
            assert rows(one) == mine == (2, 2, 2, 3)[turn % 4]
            assert other(lambda: rows(one)) == (3, 3, 2)[turn % 3]


def test_a_thread_that_has_run_nothing_is_told_of_the_sessions_last() -> None:
    with session() as one, other_thread() as other:
        with pytest.raises(InputError, match="there is no plan yet"):
            other(lambda: one.plan)
        run(one, 2)
        assert other(lambda: rows(one)) == 2
        run(one, 3, gaps=True)
        assert other(lambda: (rows(one), one.copied)) == (3, {"x"})
        asyncio.run(one.run_async(None, {"x": f32(5, 8)}))
        assert other(lambda: rows(one)) == 5


def test_what_is_locked_profiled_and_bound_is_a_threads_own() -> None:
    with session() as one, other_thread() as other:
        run(one, 2)
        bound = one.bind({"x": f32(4, 8)})
        other(lambda: run(one, 3))
        one.lock()
        assert rows(one) == 2
        assert other(lambda: one.lock().text()) != one.lock().text()
        other(bound.run)
        assert (rows(one), other(lambda: rows(one))) == (2, 4)
        other(lambda: one.profile({"x": f32(6, 8)}, runs=1))
        assert (rows(one), other(lambda: rows(one))) == (2, 6)
        assert one.memory != other(lambda: one.memory)


def test_initializers_that_are_overridden_in_another_thread() -> None:
    text = "g (float[n, 8] x, float[8] b) => (float[n, 8] y) { y = Add(x, b) }"
    with (
        Session(model(text, b=f32(8)), threads=1, cache_dir=None) as one,
        other_thread() as other,
    ):
        run(one, 2)
        for size in (3, 3, 3):
            other(partial(one.run, None, {"x": f32(size, 8), "b": f32(8)}))
        assert len(one.plan.inputs) == 1
        assert len(other(lambda: one.plan).inputs) == 2


def test_closing_frees_the_plans_of_all_threads() -> None:
    with other_thread() as other:
        one = session()
        other(lambda: run(one, 3))
        run(one, 2)
        plans = [weakref.ref(other(lambda: one.plan)), weakref.ref(one.plan)]
        one.close()
        gc.collect()
        assert [plan() for plan in plans] == [None, None]
        for ask in (lambda: one.plan, lambda: other(lambda: one.plan)):
            with pytest.raises(SessionClosedError):
                ask()


def test_results_are_right_meanwhile() -> None:
    with session() as one, ThreadPoolExecutor(4) as pool:
        w = f32(8, 8)

        def often(size: int) -> bool:
            x, right = f32(size, 8), True
            for _ in range(30):
                [y] = one.run(None, {"x": x})
                right = right and rows(one) == size
                np.testing.assert_allclose(y, np.maximum(x @ w, 0), atol=1e-4)
            return right

        assert all(pool.map(often, range(1, 9)))
