"""No Python between entry to and return from a run: no frame is entered on any thread."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

from tests.native.stepping import held, step_of
from vtensor.runtime._replay import Arena, Program, Team, empty_step


def frames(team: Team, program: Program, bindings: list[Any]) -> set[str]:
    """The functions that enter a frame or execute an opcode during a run, on whatever thread."""
    seen: list[str] = []

    def profile(frame: FrameType, *_: object) -> None:
        seen.append(frame.f_code.co_qualname)

    def trace(frame: FrameType, *_: object) -> Any:
        frame.f_trace_opcodes = True
        seen.append(frame.f_code.co_qualname)
        return trace

    def watch(on: bool) -> None:
        sys.setprofile(profile if on else None)
        sys.settrace(trace if on else None)

    threading.setprofile(profile)  # for threads that begin meanwhile
    threading.settrace(trace)
    team.call(lambda: watch(True))
    watch(True)
    try:
        team.run(program, bindings)
    finally:
        watch(False)
        team.call(lambda: watch(False))
        threading.setprofile(None)
        threading.settrace(None)
    return {name for name in seen if not name.startswith(frames.__qualname__)}


@pytest.fixture
def steps(c_steps: Path) -> list[tuple[object, list[tuple[int, int]]]]:
    scale = held(step_of(c_steps, "scale"))
    return [(scale, [(0, 0), (1, 0)]), (empty_step(), []), (scale, [(1, 0), (2, 0)])] * 50


X = np.ones(4, np.float32)


def test_no_frame_is_entered_during_a_run(team: Team, steps: list[Any]) -> None:
    program = Program([16, Arena(16), 16], steps)
    for bindings in ([X, X.copy()], [X.copy(), X.copy()]):  # addresses are computed anew
        assert frames(team, program, bindings) == set()


def python() -> None:
    """A step that is no native one."""


def test_a_callable_is_seen(team: Team, steps: list[Any]) -> None:
    program = Program([16, Arena(16), 16], [*steps, (python, [])])
    assert frames(team, program, [X, X.copy()]) == {"python"}
