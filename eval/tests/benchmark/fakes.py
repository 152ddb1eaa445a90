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
    """Is right, and writes when it ran to a file next to the model."""

    distribution: ClassVar[str] = "numpy"
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
        """Return the output of this run."""
        return np.maximum(self.x, 0)

    def conversions(self) -> int | None:
        return 7

    def limits(self) -> dict[str, float]:
        return {"warm": 0.25}


class Disagrees(Agrees):
    def answer(self) -> Array:
        y = super().answer()
        y.flat[0] += 0.01
        return y


class IsNaN(Agrees):
    def answer(self) -> Array:
        y = super().answer()
        y.flat[0] = np.nan
        return y


class OtherSizes(Agrees):
    def answer(self) -> Array:
        return super().answer()[1:]


class Absent(Agrees):
    distribution = "no-such-distribution"


class Refuses(Agrees):
    def load(self, task: Task) -> None:
        raise PeerError(f"it has no {task.precision}")


class Raises(Agrees):
    def load(self, task: Task) -> None:
        raise ZeroDivisionError("one over nothing")


class ClosesItsPipe(Agrees):
    def load(self, task: Task) -> None:
        os.closerange(3, 1 << 10)
        time.sleep(3600)


class HasNoLimits(Agrees):
    def limits(self) -> dict[str, float]:
        raise NativeError("out of luck")


class Dies(Agrees):
    """Ends its process in the second round."""

    def answer(self) -> Array:
        if self.runs > 3:
            os.write(2, b"a word\nmy last word\n")
            os._exit(3)
        return super().answer()


class SaysNothing(Agrees):
    def conversions(self) -> int | None:
        raise NotImplementedError("it does not tell")


class Hangs(Agrees):
    """Answers once."""

    def answer(self) -> Array:
        if self.runs > 1:
            time.sleep(3600)
        return super().answer()


class Spins(Agrees):
    """Keeps a thread running for some seconds after each run."""

    seconds = 0.3

    def answer(self) -> Array:
        until = time.monotonic() + self.seconds

        def spin() -> None:
            while time.monotonic() < until:
                pass

        threading.Thread(target=spin, daemon=True).start()
        return super().answer()


class SpinsOn(Spins):
    seconds = 3600.0


class Hungry(Agrees):
    """Takes memory for a moment."""

    def answer(self) -> Array:
        np.ones(1 << 28, np.uint8)
        return super().answer()


class StartsAnother(Agrees):
    """Starts a process, and writes its number to a file next to the model."""

    def answer(self) -> Array:
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
        self.log.with_suffix(".pid").write_text(str(child.pid))
        return super().answer()
