"""A session whose one native step waits, in native code, until a test lets it go on."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from ptensor import Layout, PTensor, emit, lib_tagger
from tests.libraries.bench import Bench
from tests.native.stepping import held, step_of
from vtensor import Session
from vtensor.language.operators import Context
from vtensor.language.tensor import VTensor

#: Of the input and of the output: as many bytes as the step's flags take.
SIZES = {"N": 1, "C": 2}


class Waiting:
    """A session on a step that says that it has begun, in memory that the test sees too.

    Attributes:
        session: to run, once a ``Waiting``.
        feeds: its input.
    """

    def __init__(self, bench: Bench, library: Path) -> None:
        step = held(step_of(library, "waiting"))

        @bench.invoker(python=False)
        def toy(ctx: Context, op: object, x: VTensor, y: VTensor) -> None:
            dst = PTensor(y).require(Layout.ANY)
            if lib_tagger("toy", [PTensor(x).require(Layout.ANY)], [dst]):
                return
            emit(step, [dst])

        self.session = Session(bench.graph("Toy", SIZES), optimize="none", threads=1)
        self.feeds = {"x0": np.zeros((1, 2), np.float32)}
        self._flags = np.zeros(2, np.int32)

    def run(self) -> None:
        """One run; what it writes is what it waits on."""
        self.session.run(None, self.feeds, out={"y": self._flags.view(np.float32).reshape(1, 2)})

    def wait(self) -> None:
        """Until it runs."""
        while not self._flags[0]:
            time.sleep(0.001)

    def go_on(self) -> None:
        """What waits need not any more, nor any later run."""
        self._flags[1] = 1

    def stop(self) -> None:
        """The next run waits again."""
        self._flags[:] = 0
