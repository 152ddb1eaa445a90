"""Shapes that change between runs, from one thread or eight, and runs that need too much memory."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import numpy as np
import pytest

from tests.frontends.support import f32, model
from tests.libraries.processes import printed
from tests.runtime.waiting import settle
from vtensor import Session
from vtensor.errors import BudgetError, VTensorError
from vtensor.runtime.execution.executor import Executor
from vtensor.runtime.recording import workspace as workspace_module
from vtensor.runtime.recording.workspace import Workspace

TEXT = "g (float[n, c, h, w] x) => (float[n, 8, h, w] y) { a = Conv(x, k) y = Relu(a) }"
#: More shapes than plans are kept.
SHAPES = [(n, 4, h, w) for n in (1, 2) for h, w in ((6, 5), (5, 6), (9, 3), (1, 1), (16, 16))]


def convolution() -> Session:
    """Return a session of any number of images of any size, with four channels."""
    return Session(model(TEXT, k=f32(8, 4, 1, 1)), threads=1)


@pytest.mark.parametrize("shape", [(1, 5, 6, 6), (1, 4, 6), (1, 4, 6, 6, 1), (1, 4, 0, 6)])
def test_a_shape_that_does_not_fit_changes_nothing(shape: tuple[int, ...]) -> None:
    x = f32(1, 4, 6, 6)
    with convolution() as session:
        expected = session.run(None, {"x": x})
        for wrong in (f32(*shape), x.astype(np.float64)):
            with pytest.raises(VTensorError, match=r"Conv|'x'"):
                session.run(None, {"x": wrong})
            np.testing.assert_array_equal(session.run(None, {"x": x}), expected)


@pytest.mark.parametrize("threads", [1, 8])
def test_each_shape_has_its_answer_in_any_order(threads: int) -> None:
    images = [f32(*shape) for shape in SHAPES]
    with convolution() as alone:
        expected = [alone.run(None, {"x": x})[0] for x in images]
    with convolution() as session:

        def caller(seed: int) -> None:
            for index in Random(seed).choices(range(len(images)), k=30):
                out = {"y": np.empty_like(expected[index])} if seed % 2 else None
                [y] = session.run(None, {"x": images[index]}, out=out)
                np.testing.assert_array_equal(y, expected[index])

        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(caller, range(8)))
        assert session.memory.arena >= session.memory.planned


#: A small run, one for which the process may not have the memory, and the small one again.
LARGE = """
import resource, sys
import numpy as np
from tests.frontends.support import f32, model
from vtensor import Session
from vtensor.errors import BudgetError
text = "g (float[n, 4] x) => (float[n, 4] y) { a = MatMul(x, v) b = Relu(a) y = MatMul(b, w) }"
with Session(model(text, v=f32(4, 4096), w=f32(4096, 4)), threads=1) as session:
    small, large = f32(2, 4), f32(30_000, 4)
    [expected] = session.run(None, {"x": small})
    pages = int(open("/proc/self/statm").read().split()[0])
    limit = pages * resource.getpagesize() + (300 << 20)
    if sys.argv[1:]:
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for _ in range(2):
        try:
            session.run(None, {"x": large})
        except BudgetError as error:
            print(str(error).splitlines()[0].split(":")[0])
        assert session.run(None, {"x": small})[0].tobytes() == expected.tobytes()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the system's limit is asked of /proc")
@pytest.mark.parametrize("limited", [True, False])
def test_memory_that_the_system_does_not_give_is_an_error(limited: bool) -> None:
    """A matrix of 490 MB where there are 300 MiB; the twin has them."""
    output = printed("-c", LARGE, *["limited"] * limited)
    assert output.splitlines() == ["memory ran out before the budget did"] * 2 * limited


def test_a_plan_over_the_budget_leaves_the_session_as_it_was() -> None:
    text = "g (float[n, 4] x) => (float[n, 8] y) { a = MatMul(x, w) y = Relu(a) }"
    options: Any = {"threads": 1, "max_bytes": 100_000, "deterministic": True}  # makes no room
    x, large = {"x": f32(3, 4)}, {"x": f32(10_000, 4)}
    with Session(model(text, w=f32(4, 8)), **options) as session:
        expected = session.run(None, x)
        before = session.memory
        for _ in range(2):
            with pytest.raises(BudgetError, match="to fix: raise max_bytes="):
                session.run(None, large)
            with pytest.raises(BudgetError):
                session.bind(large)
            np.testing.assert_array_equal(session.run(None, x), expected)
        assert session.memory == before


def test_a_plan_that_is_used_again_makes_room_for_three_times_as_much() -> None:
    text = """g (float[n, 4] x) => (float[n, 8] y) {
        a = MatMul(x, w) b = Softmax<axis = 0>(a) y = Abs(b)
    }"""
    with Session(model(text, w=f32(4, 8)), threads=1, libraries=["eigen"]) as session:

        def run(size: int) -> tuple[int, int]:
            """Return the bytes of the arena, and those that the last plan needs."""
            [y] = session.run(None, {"x": f32(size, 4)})
            settle(session)
            a = f32(size, 4) @ f32(4, 8)
            exponents = np.exp(a - a.max(0))
            np.testing.assert_allclose(y, exponents / exponents.sum(0), rtol=1e-5)
            [lane] = session._runner.workspace.lanes.every
            return lane.arena.nbytes, session.plan.placement.nbytes

        have, need = run(6)
        assert have == need > 0
        room, need = run(6)
        assert room == 3 * need
        for size, grows in ((12, False), (18, False), (40, True)):
            run(size)
            have, need = run(size)
            assert have == (need if grows else room)


@pytest.mark.parametrize(
    ("streams", "budget", "needed", "room"),
    [
        (1, 1 << 20, 5000, 6000),  # of much memory there is some room
        *((streams, 290 * streams, 100, 100) for streams in (1, 2)),
        *((streams, 300 * streams, 100, 300) for streams in (1, 2)),
    ],
)
def test_room_is_within_the_budget_and_the_reserve(
    streams: int, budget: int, needed: int, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workspace_module, "RESERVE", 1000)
    first, *further = Executor.for_streams(streams, streams)
    workspace = Workspace(first, budget, further)
    workspace.grow(needed, 0)
    for _ in range(3):
        workspace.make_room()
        assert [lane.arena.nbytes for lane in workspace.lanes.every] == [room] * streams
