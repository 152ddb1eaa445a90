"""Runs and plans of several threads: streams, runs that are awaited, plans next to runs."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ops import Conv2D, Relu
from ptensor.background_work import checkpoint, stopping
from tests.libraries.bench import Bench
from tests.native.conftest import c_steps
from tests.runtime.waiting import Waiting
from tests.session.test_session import image, network
from vtensor import Graph, Session
from vtensor.errors import BudgetError, InputError, QueueFullError, SessionClosedError
from vtensor.runtime import _replay
from vtensor.runtime.execution import executor
from vtensor.runtime.execution.executor import Executor
from vtensor.runtime.planning.planning_lock import PlanningLock
from vtensor.runtime.recording.workspace import Workspace

assert c_steps  # a fixture
INPUTS = [image() * scale for scale in range(1, 9)]

#: Seconds after which a test gives up, where a fault would make it wait for ever.
LIMIT = 60


def tiny() -> Graph:
    """Return a graph of one node, of an open size."""
    graph = Graph("tiny")
    graph.output(graph.add(Relu(), graph.input("x", {"N": None, "C": 3})), "y")
    return graph.seal()


@pytest.fixture
def processors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four processors, more than a small machine has."""
    monkeypatch.setattr(executor, "available_threads", lambda: 4)


@pytest.mark.usefixtures("processors")
@pytest.mark.parametrize(
    ("asked", "streams", "threads"),
    [
        ({}, 1, 4),
        ({"streams": 2}, 2, 2),
        ({"streams": 3}, 3, 1),
        ({"hint": "throughput"}, 4, 1),
        ({"hint": "throughput", "threads": 3}, 3, 1),
        ({"hint": "throughput", "streams": 2}, 2, 2),
        ({"threads": 2, "streams": 5}, 5, 1),
    ],
)
def test_streams_share_the_threads(asked: dict[str, Any], streams: int, threads: int) -> None:
    with Session(tiny(), **asked) as session:
        assert (session.streams, session.threads) == (streams, threads)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"streams": 0}, "streams=0 must be"),
        ({"streams": True}, "streams=True must be"),
        ({"streams": 1025}, "from 1 to 1024"),
        ({"streams": 2.0}, "streams=2.0"),
        ({"hint": "fast"}, "hint='fast' must be one of latency, throughput"),
        ({"max_queued": -1}, "max_queued=-1 must be"),
        ({"max_queued": 1.5}, "max_queued=1.5"),
    ],
)
def test_wrong_options_are_refused(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        Session(tiny(), **asked)


@pytest.mark.usefixtures("processors")
def test_sessions_of_a_budget_have_its_executors_in_turn() -> None:
    """As many as processors allow; one that runs holds up no other."""
    sessions = [Session(tiny(), threads=2) for _ in range(4)]
    a, b, c, d = (session._runner.executor for session in sessions)
    assert a is c is not b is d
    whole = [Session(tiny(), threads=None)._runner.executor for _ in range(2)]
    assert whole[0] is whole[1] is Executor.of(4)


@pytest.mark.usefixtures("processors")
def test_a_run_does_not_wait_for_another_session_of_its_budget(bench: Bench, c_steps: Path) -> None:
    waiting = Waiting(bench, c_steps)
    with ThreadPoolExecutor(1) as pool, waiting.session, Session(network(), threads=1) as other:
        running = pool.submit(waiting.run)
        waiting.wait()
        assert other.run(["y"], {"x": image()})[0].any()
        assert not running.done()
        waiting.release()
        running.result()


def test_streams_run_side_by_side(bench: Bench, c_steps: Path) -> None:
    """As many runs as there are streams have begun before any ends; another queues."""
    waiting = Waiting(bench, c_steps, streams=2)
    first, second, third = waiting.flags(), waiting.flags(), waiting.flags()
    with ThreadPoolExecutor(3) as pool, waiting.session:
        runs = [pool.submit(waiting.run, flags) for flags in (first, second)]
        waiting.wait(first)
        waiting.wait(second)
        runs.append(pool.submit(waiting.run, third))
        lanes = waiting.session._runner.workspace.lanes.every
        while sum(lane.executor.team.waiting for lane in lanes) < 3:
            time.sleep(0.001)
        assert not any(run.done() for run in runs)
        assert third[0] == 0
        for flags in (first, second, third):
            waiting.release(flags)
        for run in runs:
            run.result()


@pytest.mark.parametrize("streams", [1, 3])
def test_streams_answer_as_one_would(streams: int) -> None:
    several = Session(network(), threads=3, streams=streams)
    with Session(network(), threads=1) as one, several as many:
        expected = [one.run(None, {"x": x}) for x in INPUTS]
        with ThreadPoolExecutor(8) as pool:
            for _ in range(4):
                answers = pool.map(lambda x: many.run(None, {"x": x}), INPUTS)
                np.testing.assert_allclose([*answers], expected, rtol=1e-5, atol=1e-5)
        assert many.memory.arena == streams * many.plan.placement.nbytes


def test_a_plan_with_call_backs_has_one_run_at_a_time() -> None:
    with Session(network(), threads=2, streams=2, pin={"relu0": "numpy"}) as session:
        expected = [session.run(["y"], {"x": x}) for x in INPUTS]
        with ThreadPoolExecutor(8) as pool:
            answers = [*pool.map(lambda x: session.run(["y"], {"x": x}), INPUTS * 3)]
        np.testing.assert_array_equal(answers, expected * 3)


def test_each_stream_counts_in_the_budget() -> None:
    first, *further = Executor.for_streams(2, 2)
    workspace = Workspace(first, 100, further)
    workspace.grow(40, 20)
    with pytest.raises(BudgetError, match="in each of 2 streams"):
        workspace.grow(41, 20)


def test_an_awaited_run_returns_or_raises_as_any_other() -> None:
    async def runs(session: Session) -> list[Any]:
        with pytest.raises(InputError, match="missing: x"):
            await session.run_async(None, {})
        return await asyncio.gather(*(session.run_async(["y"], {"x": x}) for x in INPUTS))

    with Session(network(), threads=2, streams=2) as session:
        expected = [session.run(["y"], {"x": x}) for x in INPUTS]
        np.testing.assert_array_equal(asyncio.run(runs(session)), expected)


async def one_runs_one_waits(waiting: Waiting) -> list[asyncio.Task[None]]:
    """Return a run that has begun, and one in the queue."""
    first = asyncio.create_task(waiting.run_async())
    while not waiting.begun():
        await asyncio.sleep(0.001)
    second = asyncio.create_task(waiting.run_async())
    await asyncio.sleep(0)
    return [first, second]


def test_the_queue_has_a_bound(bench: Bench, c_steps: Path) -> None:
    """A third run is refused; one that is cancelled makes room."""
    waiting = Waiting(bench, c_steps, max_queued=1)

    async def runs() -> None:
        first, second = await one_runs_one_waits(waiting)
        with pytest.raises(QueueFullError, match="1 runs wait already"):
            await waiting.run_async()
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        third = asyncio.create_task(waiting.run_async())
        await asyncio.sleep(0)
        waiting.release()
        await asyncio.gather(first, third)

    with waiting.session:
        asyncio.run(runs())


def test_a_closed_session_awaits_nothing(bench: Bench, c_steps: Path) -> None:
    waiting = Waiting(bench, c_steps)

    async def runs() -> None:
        first, second = await one_runs_one_waits(waiting)
        waiting.session.close()
        waiting.release()
        await first
        for run in (second, waiting.run_async()):
            with pytest.raises(SessionClosedError):
                await run

    asyncio.run(runs())


def of_any_batch(progress: Callable[[str], None] | None = None, streams: int = 1) -> Session:
    """Return a session of an open size on two kernel threads, which makes plans node by node."""
    graph = Graph("convolution")
    x = graph.input("x", {"N": None, "C": 8, "H": 6, "W": 6})
    w = graph.constant(np.ones((16, 8, 3, 3), np.float32), "O I h w")
    graph.output(graph.add(Relu(), graph.add(Conv2D(), x, w)), "y")
    return Session(graph, threads=2, streams=streams, progress=progress, deterministic=True)


def right(session: Session, batch: int) -> None:
    """Run on numbers whose answer is known: every kernel sums 72 elements."""
    x = np.zeros((batch, 8, 6, 6), np.float32)
    x += np.arange(batch, dtype=np.float32).reshape(-1, 1, 1, 1)
    [y] = session.run(None, {"x": x})
    np.testing.assert_array_equal(y, 72 * x[:, :1, :4, :4].repeat(16, 1))


class Held:
    """A progress call-back that waits until it is told to go on, once it is to hold."""

    def __init__(self, holds: bool = True) -> None:
        self.begun, self.released = threading.Event(), threading.Event()
        self.holds = holds
        self.seen: list[str] = []

    def __call__(self, node: str) -> None:
        self.seen.append(node)
        if self.holds:
            self.begun.set()
            assert self.released.wait(LIMIT)


@pytest.fixture
def held() -> Iterator[Held]:
    """A call-back that goes on after the test."""
    held = Held()
    yield held
    held.released.set()


@pytest.mark.parametrize("same", [True, False])
def test_a_run_does_not_wait_for_a_plan(held: Held, same: bool) -> None:
    """Of its session, or of another one, while a session may also make a plan of its own."""
    with ThreadPoolExecutor(1) as pool, of_any_batch(held) as planned, of_any_batch() as other:
        session = planned if same else other
        held.holds = False
        right(session, 2)
        held.holds = True
        planning = pool.submit(right, planned, 3)
        assert held.begun.wait(LIMIT)
        right(session, 2)
        if not same:
            right(session, 4)  # needs a plan of its own
        assert not planning.done()
        held.released.set()
        planning.result()


@pytest.mark.parametrize("streams", [1, 2])
def test_eight_threads_with_eight_shapes_make_eight_plans(streams: int) -> None:
    progress, meet = Held(holds=False), threading.Barrier(8)
    with ThreadPoolExecutor(8) as pool, of_any_batch(progress, streams) as session:

        def runs(batch: int) -> None:
            meet.wait(LIMIT)
            for _ in range(3):
                right(session, batch)

        list(pool.map(runs, range(1, 9)))
        assert len(session._runner.open()) == 8
        for batch in range(1, 9):
            right(session, batch)
    assert len(progress.seen) == 8 * len(set(progress.seen))


def test_a_shape_of_two_threads_is_planned_once(held: Held) -> None:
    with ThreadPoolExecutor(2) as pool, of_any_batch(held) as session:
        first = pool.submit(right, session, 3)
        assert held.begun.wait(LIMIT)
        second = pool.submit(right, session, 3)
        held.released.set()
        first.result(), second.result()
        assert len(held.seen) == len(set(held.seen))


def test_a_session_closed_while_it_is_planned_does_not_run(held: Held) -> None:
    with ThreadPoolExecutor(1) as pool:
        session = of_any_batch(held)
        planning = pool.submit(right, session, 3)
        assert held.begun.wait(LIMIT)
        session.close()
        held.released.set()
        with pytest.raises(SessionClosedError):
            planning.result()


def test_a_plan_that_fails_leaves_its_turn_to_the_next() -> None:
    def fails(_: str) -> None:
        raise KeyError("mine")

    with ThreadPoolExecutor(4) as pool, of_any_batch(fails) as session:
        for run in [pool.submit(right, session, 3) for _ in range(4)]:
            with pytest.raises(KeyError, match="mine"):
                run.result()


def test_planning_leaves_the_number_of_threads_to_the_caller() -> None:
    """The budget is the plan's; the caller has an OpenMP of its own."""
    before = _replay.threads()
    _replay.set_threads(5)
    try:
        with of_any_batch() as session:
            right(session, 2)
        assert _replay.threads() == 5
    finally:
        _replay.set_threads(before)


@pytest.mark.parametrize("times", [1, 3])
def test_background_work_yields_to_requests_for_a_plan(times: int) -> None:
    """Each beginning of the work meets a request, but the last one: it is done."""
    lock, begun, served = PlanningLock(), list[int](), list[int]()

    def work() -> None:
        begun.append(len(served))
        request = partial(lock.take, lambda: served.append(len(begun)))
        thread = threading.Thread(target=request, daemon=True)
        thread.start()
        while not lock.waiting:
            thread.join(0.001)
        checkpoint()

    with stopping(lambda: len(begun) > 5):
        lock.run_background(work, times)
    while len(served) < len(begun):
        pass
    assert begun == [*range(times + 1)], "each request was served before the work began again"
    assert served == [*range(1, times + 2)]
