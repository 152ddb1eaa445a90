"""Peers of the network y = Relu(x) that do, or do not, what a peer should. Each is a process."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from vtensor.benchmark.peer import Array, Peer, Task
from vtensor.errors import NativeError, PeerError


class Agrees(Peer):
    """Is right, and writes down when it ran, in a file beside the model."""

    distribution = "numpy"
    runs = 0

    def load(self, task: Task) -> None:
        [self.x] = task.feeds.values()
        self.log = task.model.with_suffix(".log")

    def run(self) -> Sequence[Array]:
        begin = time.monotonic()
        self.runs += 1
        y = self.answer()
        with self.log.open("a") as log:
            log.write(f"{type(self).__name__} {begin} {time.monotonic()}\n")
        return [y]

    def answer(self) -> Array:
        """The output of this run."""
        return np.maximum(self.x, 0)

    def conversions(self) -> int | None:
        return 7

    def limits(self) -> dict[str, float]:
        return {"warm": 0.25}


class Disagrees(Agrees):
    """Is wrong in one element."""

    def answer(self) -> Array:
        y = super().answer()
        y.flat[0] += 0.01
        return y


class IsNaN(Agrees):
    """Has no number in one place."""

    def answer(self) -> Array:
        y = super().answer()
        y.flat[0] = np.nan
        return y


class OtherSizes(Agrees):
    """Has one row less."""

    def answer(self) -> Array:
        return super().answer()[1:]


class Absent(Agrees):
    """Is not installed."""

    distribution: ClassVar[str] = "no-such-distribution"


class Refuses(Agrees):
    """Gives a reason for not taking the model."""

    def load(self, task: Task) -> None:
        raise PeerError(f"it has no {task.precision}")


class Raises(Agrees):
    """Fails while it loads."""

    def load(self, task: Task) -> None:
        raise ZeroDivisionError("one over nothing")


class ClosesItsPipe(Agrees):
    """Closes whatever files it has, and lives on."""

    def load(self, task: Task) -> None:
        os.closerange(3, 1 << 10)
        time.sleep(3600)


class HasNoLimits(Agrees):
    """Cannot measure them."""

    def limits(self) -> dict[str, float]:
        raise NativeError("out of luck")


class Dies(Agrees):
    """Its process ends with its last word in the second round."""

    def answer(self) -> Array:
        if self.runs > 3:
            os.write(2, b"a word\nmy last word\n")
            os._exit(3)
        return super().answer()


class SaysNothing(Agrees):
    """Fails when it is asked about itself."""

    def conversions(self) -> int | None:
        raise NotImplementedError("it does not tell")


class Hangs(Agrees):
    """Answers once and no more."""

    def answer(self) -> Array:
        if self.runs > 1:
            time.sleep(3600)
        return super().answer()


class Spins(Agrees):
    """A thread of its goes on for a while after each run."""

    seconds = 0.3

    def answer(self) -> Array:
        until = time.monotonic() + self.seconds

        def spin() -> None:
            while time.monotonic() < until:
                pass

        threading.Thread(target=spin, daemon=True).start()
        return super().answer()


class SpinsOn(Spins):
    """It goes on for ever."""

    seconds = 3600.0


class Hungry(Agrees):
    """Takes memory for a moment."""

    def answer(self) -> Array:
        np.ones(1 << 28, np.uint8)
        return super().answer()


class StartsAnother(Agrees):
    """Leaves the number of a process that it has started beside the model."""

    def answer(self) -> Array:
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
        self.log.with_suffix(".pid").write_text(str(child.pid))
        return super().answer()
