"""How much Python a run enters: little around the native replay, none inside."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import numpy as np
import pytest

from tests.native.test_no_python import frames
from tests.test_session import image, network
from vtensor import Session
from vtensor.runtime._replay import Program

#: Python functions that a run with plain arrays may enter.
MOST = 15


def entered(run: Callable[[], object]) -> list[str]:
    """The Python functions that a call enters on this thread, itself left out."""
    seen: list[str] = []

    def watch(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            seen.append(frame.f_code.co_qualname)

    sys.setprofile(watch)
    try:
        run()
    finally:
        sys.setprofile(None)
    return seen[1:]


def test_a_run_with_plain_arrays_enters_few_functions() -> None:
    with Session(network(), threads=1) as session:
        binding = session.bind({"x": image()})
        assert len(entered(lambda: session.run(None, {"x": image()}))) > MOST  # the long way
        feeds = {"x": image()}
        short = entered(lambda: session.run(None, feeds))
        assert "Request.run" in short
        assert len(short) <= MOST
        assert len(entered(binding.run)) <= MOST


def test_other_lists_of_names_take_the_long_way() -> None:
    with Session(network(), threads=1) as session:
        want = session.run(["y", "last"], {"x": image()})
        for names in (np.array(["y", "last"]), ("y", "last"), iter(["y", "last"])):
            for found, one in zip(session.run(names, {"x": image()}), want, strict=True):  # type: ignore[arg-type]
                np.testing.assert_array_equal(found, one)


def inside(session: Session, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The Python functions that a run enters between entry to and return from the native one."""
    honest, seen = session._runner.executor.team, set[str]()

    class Watching:
        call = honest.call

        def run(self, program: Program, bindings: Sequence[Any], *_: object) -> None:
            seen.update(frames(honest, program, list(bindings)))

    feeds = {"x": image()}
    want = session.run(None, feeds)
    with monkeypatch.context() as patched:
        patched.setattr(session._runner.executor, "team", Watching())
        got = session.run(None, feeds)
    for one, other in zip(got, want, strict=True):
        np.testing.assert_array_equal(one, other)
    return seen


def test_no_python_function_is_entered_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    with Session(network(), threads=1) as session:
        assert inside(session, monkeypatch) == set()


def test_a_call_back_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    with Session(network(), threads=1, pin={"relu0": "numpy"}) as session:
        assert "PTensor.data" in inside(session, monkeypatch)
