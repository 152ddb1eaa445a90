"""Runs side by side: streams of a session, sessions of small budgets, runs that are awaited."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ops import Relu
from tests.libraries.bench import Bench
from tests.libraries.processes import run_python
from tests.native.conftest import c_steps
from tests.runtime.waiting import Waiting
from tests.session.test_session import image, network
from vtensor import Graph, Session
from vtensor.errors import BudgetError, InputError, QueueFullError, SessionClosedError
from vtensor.runtime.execution import executor
from vtensor.runtime.execution.executor import Executor
from vtensor.runtime.execution.processors import available_threads
from vtensor.runtime.recording.workspace import Workspace

assert c_steps  # a fixture
ROOT = Path(__file__).parents[2]


def tiny() -> Graph:
    """One node, of an open size."""
    graph = Graph("tiny")
    graph.output(graph.add(Relu(), graph.input("x", {"N": None, "C": 3})), "y")
    return graph.seal()


@pytest.fixture
def processors(monkeypatch: pytest.MonkeyPatch) -> int:
    """More than a small machine has."""
    monkeypatch.setattr(executor, "available_threads", lambda: 4)
    return 4


def test_threads_are_shared_out(processors: int) -> None:
    for asked, streams, threads in [
        ({}, 1, processors),
        ({"streams": 2}, 2, 2),
        ({"streams": 3}, 3, 1),
        ({"hint": "throughput"}, 4, 1),
        ({"hint": "throughput", "threads": 3}, 3, 1),
        ({"hint": "throughput", "streams": 2}, 2, 2),
        ({"threads": 2, "streams": 5}, 5, 1),
    ]:
        with Session(tiny(), **asked) as session:  # type: ignore[arg-type]
            assert (session.streams, session.threads) == (streams, threads), asked


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
        waiting.checkpoint()
        running.result()


def test_streams_run_side_by_side(bench: Bench, c_steps: Path) -> None:
    """As many runs as there are streams have begun before any ends; another queues."""
    waiting = Waiting(bench, c_steps, streams=2)
    first, second, third = waiting.flags(), waiting.flags(), waiting.flags()
    with ThreadPoolExecutor(3) as pool, waiting.session:
        runs = [pool.submit(waiting.run, one) for one in (first, second)]
        waiting.wait(first)
        waiting.wait(second)
        runs.append(pool.submit(waiting.run, third))
        lanes = waiting.session._runner.workspace.lanes.every
        while sum(lane.executor.team.waiting for lane in lanes) < 3:
            time.sleep(0.001)
        assert not any(run.done() for run in runs)
        assert third[0] == 0
        for one in (first, second, third):
            waiting.checkpoint(one)
        for run in runs:
            run.result()


@pytest.mark.parametrize("streams", [1, 3])
def test_streams_answer_as_one_would(streams: int) -> None:
    inputs = [image() * scale for scale in range(1, 9)]
    several = Session(network(), threads=3, streams=streams)
    with Session(network(), threads=1) as one, several as many:
        want = [one.run(None, {"x": x}) for x in inputs]
        with ThreadPoolExecutor(8) as pool:
            for _ in range(4):
                for got, expected in zip(
                    pool.map(lambda x: many.run(None, {"x": x}), inputs), want, strict=True
                ):
                    for have, array in zip(got, expected, strict=True):
                        np.testing.assert_allclose(have, array, rtol=1e-5, atol=1e-5)
        assert many.memory.arena == streams * many.plan.placement.nbytes


def test_a_plan_with_call_backs_has_one_run_at_a_time() -> None:
    inputs = [image() * scale for scale in range(1, 9)]
    with Session(network(), threads=2, streams=2, pin={"relu0": "numpy"}) as session:
        want = [session.run(["y"], {"x": x})[0] for x in inputs]
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda x: session.run(["y"], {"x": x})[0], inputs * 3))
        for have, array in zip(found, want * 3, strict=True):
            np.testing.assert_array_equal(have, array)


def test_each_stream_counts_in_the_budget() -> None:
    first, *further = Executor.for_streams(2, 2)
    workspace = Workspace(first, 100, further)
    workspace.grow(40, 20)
    with pytest.raises(BudgetError, match="in each of 2 streams"):
        workspace.grow(41, 20)


def test_runs_are_awaited() -> None:
    inputs = [image() * scale for scale in range(1, 9)]

    async def runs(session: Session) -> list[Any]:
        return await asyncio.gather(*(session.run_async(["y"], {"x": x}) for x in inputs))

    with Session(network(), threads=2, streams=2) as session:
        want = [session.run(["y"], {"x": x})[0] for x in inputs]
        for [have], array in zip(asyncio.run(runs(session)), want, strict=True):
            np.testing.assert_array_equal(have, array)


def test_what_a_run_raises_is_what_who_awaits_gets() -> None:
    async def runs(session: Session) -> None:
        with pytest.raises(InputError, match="missing: x"):
            await session.run_async(None, {})

    with Session(network(), threads=1) as session:
        asyncio.run(runs(session))


def test_the_queue_has_a_bound(bench: Bench, c_steps: Path) -> None:
    """One runs and one waits; a third is refused, and one that is cancelled makes room."""
    waiting = Waiting(bench, c_steps, max_queued=1)

    async def runs() -> None:
        first = asyncio.create_task(waiting.run_async())
        while not waiting.begun():
            await asyncio.sleep(0.001)
        second = asyncio.create_task(waiting.run_async())
        await asyncio.sleep(0)
        with pytest.raises(QueueFullError, match="1 runs wait already"):
            await waiting.run_async()
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        third = asyncio.create_task(waiting.run_async())
        await asyncio.sleep(0)
        waiting.checkpoint()
        await asyncio.gather(first, third)

    with waiting.session:
        asyncio.run(runs())


def test_a_closed_session_awaits_nothing(bench: Bench, c_steps: Path) -> None:
    waiting = Waiting(bench, c_steps)

    async def runs() -> None:
        first = asyncio.create_task(waiting.run_async())
        while not waiting.begun():
            await asyncio.sleep(0.001)
        second = asyncio.create_task(waiting.run_async())
        await asyncio.sleep(0)
        waiting.session.close()
        waiting.checkpoint()
        await first
        with pytest.raises(SessionClosedError):
            await second
        with pytest.raises(SessionClosedError):
            await waiting.run_async()

    asyncio.run(runs())


ENDINGS = {
    "streams": "session.run(None, feeds)",
    "awaited": "asyncio.run(session.run_async(None, feeds))",
    "awaited, and a child": """
asyncio.run(session.run_async(None, feeds))
if (child := os.fork()) == 0:
    signal.alarm(60)
    [y] = asyncio.run(session.run_async(None, feeds))
    os._exit(int(y.sum() != 6))
assert os.waitpid(child, 0)[1] == 0
asyncio.run(session.run_async(None, feeds))
""",
}


@pytest.mark.parametrize("code", ENDINGS.values(), ids=ENDINGS)
def test_the_interpreter_ends(code: str) -> None:
    setup = """
import asyncio, os, signal, warnings
warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
import numpy as np
from ops import Relu
from vtensor import Graph, Session
graph = Graph("tiny")
graph.output(graph.add(Relu(), graph.input("x", {"N": 2, "C": 3})), "y")
session = Session(graph, threads=2, streams=2)
feeds = {"x": np.ones((2, 3), np.float32)}
"""
    done = run_python("-c", setup + code)
    assert (done.returncode, done.stderr) == (0, "")


def test_available_threads_are_what_is_shared() -> None:
    with Session(tiny(), hint="throughput") as session:
        assert (session.streams, session.threads) == (available_threads(), 1)


def test_shapes_side_by_side() -> None:
    with Session(tiny(), threads=2, streams=2) as session:
        meet = threading.Barrier(4)

        def runs(batch: int) -> None:
            meet.wait(60)
            for sign in (1, -1, 1):
                x = np.full((batch, 3), sign, np.float32)
                np.testing.assert_array_equal(session.run(None, {"x": x})[0], np.maximum(x, 0))

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(runs, range(1, 5)))
