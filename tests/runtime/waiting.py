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


def settle(session: Session) -> None:
    """Wait until the session's background work is done."""
    store, until = session._runner.plans, time.monotonic() + LIMIT_S
    while store is not None and not all(task.done for task in store._tasks):
        assert time.monotonic() < until
        time.sleep(0.001)


def provisional(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make first plans provisional, as where speeds are asked for, and save them, although other
    tests have registered operators.
    """
    monkeypatch.setattr("vtensor.runtime.planning.options.speeds_asked_for", lambda: dict)
    monkeypatch.setattr("vtensor.runtime.cache.plans.no_plugins", lambda: True)


def settled() -> None:
    """Wait until the background work of the process is done."""
    for thread in threading.enumerate():
        if thread.name == "vtensor-background":
            thread.join(LIMIT_S)


Flags = np.ndarray[Any, np.dtype[np.int32]]

#: Of the input and of the output: as many bytes as the step's flags take.
SIZES = {"N": 1, "C": 2}


class Waiting:
    """A session on a step that says that it has begun, in memory that the test sees too.

    Attributes:
        session: to run, once a ``Waiting``.
        feeds: its input.
    """

    def __init__(self, bench: Bench, library: Path, **options: Any) -> None:
        step = held(step_of(library, "waiting"))

        @bench.invoker(python=False)
        def toy(ctx: Context, op: object, x: VTensor, y: VTensor) -> None:
            dst = PTensor(y).require(Layout.ANY)
            if lib_tagger("toy", [PTensor(x).require(Layout.ANY)], [dst]):
                return
            emit(step, [dst])

        graph = bench.graph("Toy", SIZES)
        self.session = Session(graph, optimize="none", threads=1, **options)
        self.feeds = {"x0": np.zeros((1, 2), np.float32)}
        self._flags = self.flags()

    @staticmethod
    def flags() -> Flags:
        """For a run of its own."""
        return np.zeros(2, np.int32)

    def run(self, flags: Flags | None = None) -> None:
        """One run; what it writes is what it waits on."""
        self.session.run(None, self.feeds, out=self._out(flags))

    async def run_async(self) -> None:
        """One run that is awaited."""
        await self.session.run_async(None, self.feeds, out=self._out(None))

    def begun(self, flags: Flags | None = None) -> bool:
        """It runs, or has run."""
        return bool((self._flags if flags is None else flags)[0])

    def wait(self, flags: Flags | None = None) -> None:
        """Until it runs."""
        while not self.begun(flags):
            time.sleep(0.001)

    def checkpoint(self, flags: Flags | None = None) -> None:
        """What waits need not any more, nor any later run."""
        (self._flags if flags is None else flags)[1] = 1

    def _out(self, flags: Flags | None) -> dict[str, Any]:
        flags = self._flags if flags is None else flags
        return {"y": flags.view(np.float32).reshape(1, 2)}

    def stop(self) -> None:
        """The next run waits again."""
        self._flags[:] = 0
