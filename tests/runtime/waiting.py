"""Waiting: for background work, and of a session whose native step a test holds up."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ptensor import Layout, PTensor, emit, lib_tagger
from tests.libraries.bench import Bench
from tests.native.stepping import held, step_of
from vtensor import Session
from vtensor.language.operators import Context
from vtensor.language.tensor import VTensor

#: Seconds until a test gives up.
LIMIT_S = 60

Flags = np.ndarray[Any, np.dtype[np.int32]]


def settle(session: Session) -> None:
    """Wait until the session's background work is done."""
    store, until = session._runner.plans, time.monotonic() + LIMIT_S
    while store is not None and not all(task.done for task in store._tasks):
        assert time.monotonic() < until
        time.sleep(0.001)


def settled() -> None:
    """Wait until the background work of the process is done."""
    for thread in threading.enumerate():
        if thread.name == "vtensor-background":
            thread.join(LIMIT_S)


def provisional(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make first plans provisional, and save them although tests have registered operators."""
    monkeypatch.setattr("vtensor.runtime.planning.options.speeds_asked_for", lambda: dict)
    monkeypatch.setattr("vtensor.runtime.cache.plans.no_plugins", lambda: True)


class Waiting:
    """A session of a step that says that it has begun, and waits, in memory that the test sees too.

    The step writes the first flag and waits for the second; both are the output's memory. ``flags``
    are those of a run; by default those of this object.

    Attributes:
        session: to run, once a ``Waiting``.
        feeds: its input.
    """

    def __init__(self, bench: Bench, library: Path, **options: Any) -> None:
        step = held(step_of(library, "waiting"))

        @bench.invoker(python=False)
        def toy(ctx: Context, op: object, x: VTensor, y: VTensor) -> None:
            dst = PTensor(y).require(Layout.ANY)
            if not lib_tagger("toy", [PTensor(x).require(Layout.ANY)], [dst]):
                emit(step, [dst])

        graph = bench.graph("Toy", {"N": 1, "C": 2})
        self.session = Session(graph, optimize="none", threads=1, **options)
        self.feeds = {"x0": np.zeros((1, 2), np.float32)}
        self._flags = self.flags()

    @staticmethod
    def flags() -> Flags:
        return np.zeros(2, np.int32)

    def run(self, flags: Flags | None = None) -> None:
        self.session.run(None, self.feeds, out=self._out(flags))

    async def run_async(self) -> None:
        await self.session.run_async(None, self.feeds, out=self._out(None))

    def begun(self, flags: Flags | None = None) -> bool:
        return bool((self._flags if flags is None else flags)[0])

    def wait(self, flags: Flags | None = None) -> None:
        """Wait until a run has begun."""
        while not self.begun(flags):
            time.sleep(0.001)

    def release(self, flags: Flags | None = None) -> None:
        """Let a run, and all later ones, go on."""
        (self._flags if flags is None else flags)[1] = 1

    def stop(self) -> None:
        """Let the next run wait again."""
        self._flags[:] = 0

    def _out(self, flags: Flags | None) -> dict[str, Any]:
        flags = self._flags if flags is None else flags
        return {"y": flags.view(np.float32).reshape(1, 2)}
