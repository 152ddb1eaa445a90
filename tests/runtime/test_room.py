"""A session whose model is used again has room for plans that need more."""

from __future__ import annotations

import numpy as np
import pytest

from tests.frontends.support import f32, model
from tests.runtime.waiting import settle
from vtensor import Session
from vtensor.runtime.execution.executor import Executor
from vtensor.runtime.recording import workspace as workspace_module
from vtensor.runtime.recording.workspace import Workspace

TEXT = """g (float[n, 4] x) => (float[n, 8] y) {
    a = MatMul(x, w) b = Softmax<axis = 0>(a) y = Abs(b)
}"""


def arenas(session: Session) -> tuple[int, int]:
    """The bytes of an arena, and those that the last plan needs."""
    [lane] = session._runner.workspace.lanes.every
    return lane.arena.nbytes, session.plan.placement.nbytes


def test_a_plan_that_is_used_again_leaves_room_for_three_times_as_much() -> None:
    with Session(model(TEXT, w=f32(4, 8)), threads=1, libraries=["eigen"]) as session:
        session.run(None, {"x": f32(6, 4)})
        settle(session)
        have, need = arenas(session)
        assert have == need > 0
        session.run(None, {"x": f32(6, 4)})
        settle(session)
        room, need = arenas(session)
        assert room == 3 * need
        for size, grows in ((12, False), (18, False), (40, True)):
            for _ in range(2):
                [y] = session.run(None, {"x": f32(size, 4)})
            settle(session)
            have, need = arenas(session)
            assert have == (need if grows else room)
            a = f32(size, 4) @ f32(4, 8)
            exponents = np.exp(a - a.max(0))
            np.testing.assert_allclose(y, exponents / exponents.sum(0), rtol=1e-5)


def test_of_much_memory_there_is_some_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace_module, "RESERVE", 1000)
    [executor] = Executor.for_streams(1, 1)
    workspace = Workspace(executor, 1 << 20)
    workspace.grow(5000, 0)
    for _ in range(3):
        workspace.make_room()
        assert workspace.arena.nbytes == 6000


@pytest.mark.parametrize("streams", [1, 2])
def test_room_is_within_the_budget(streams: int) -> None:
    first, *further = Executor.for_streams(streams, streams)
    workspace = Workspace(first, streams * 290, further)
    workspace.grow(100, 0)
    workspace.make_room()
    assert [lane.arena.nbytes for lane in workspace.lanes.every] == [100] * streams
    workspace = Workspace(first, streams * 300, further)
    workspace.grow(100, 0)
    workspace.make_room()
    assert [lane.arena.nbytes for lane in workspace.lanes.every] == [300] * streams
