"""A program that raises exceptions out of a signal's handler at chosen places of VTensor's code.

Its arguments: what is interrupted, the first event, and the step from one event to the next. An
event is the call or the return of a function, or the return of a function in C, in the code that
takes locks and changes what threads share. The program prints a line for each event after which
something is wrong, and at last how many events it tried.
"""

from __future__ import annotations

import faulthandler
import signal
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType, GeneratorType
from typing import Any

import numpy as np

from tests.runtime.exact_net import answer, feeds, model
from vtensor import Session

ROOT = Path(__file__).parents[2]

#: The code that is interrupted.
INTERRUPTED = tuple(
    str(ROOT / part)
    for part in ("vtensor/runtime/", "vtensor/language/process/forks", "ptensor/stopping")
)

#: Seconds after which a run, or the whole program between two events, hangs.
PATIENCE_S = 60.0


class Foreign(Exception):
    """An exception of a class that VTensor does not know."""


class Fatal(BaseException):
    """An exception that is no ``Exception``."""


#: What the handler raises, in turn.
KINDS = (Foreign, TimeoutError, Fatal)


class Interrupter:
    """Raises an exception at one event of the calling thread."""

    def __init__(self) -> None:
        self.kind: type[BaseException] = Foreign
        self.left, self.place = 0, ""
        self.closed = False  # it came as Python closed a generator, which ignores all exceptions
        signal.signal(signal.SIGUSR1, self._handle)
        sys.unraisablehook = self._ignored

    def _ignored(self, about: sys.UnraisableHookArgs) -> None:
        self.closed = isinstance(about.object, GeneratorType)
        if not self.closed:
            print("ignored in", about.object, flush=True)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        raise self.kind("interrupted")

    def _profile(self, frame: FrameType, event: str, about: object) -> None:
        code = frame.f_code
        if event == "c_call" or not code.co_filename.startswith(INTERRUPTED):
            return
        self.left -= 1
        if self.left == 0:
            name = getattr(about, "__qualname__", "") if event == "c_return" else code.co_qualname
            file = Path(code.co_filename).name
            self.place = f"{file}:{frame.f_lineno} {event} {name}"
            signal.raise_signal(signal.SIGUSR1)

    def run(self, work: Callable[[], object], event: int) -> str:
        """Run ``work`` and raise at an event; what is wrong with what came of it, in words."""
        self.left, self.place, self.closed = event, "", False
        self.kind = KINDS[event % len(KINDS)]
        came: BaseException | None = None
        sys.setprofile(self._profile)
        try:
            work()
        except BaseException as error:  # whatever it became
            came = error
        sys.setprofile(None)
        if not self.place:
            if came is not None:
                raise came
            return ""
        if came is None:
            return "" if self.closed else f"{self.kind.__name__} swallowed"
        if type(came) is not self.kind:
            return f"{self.kind.__name__} became {type(came).__name__}: {came}".partition("\n")[0]
        return ""


def beside(work: Callable[[], object]) -> None:
    """Do it on another thread, which holds no lock that this one has left behind."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # the caller raises it
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(PATIENCE_S / 2)
    if thread.is_alive():
        faulthandler.dump_traceback(all_threads=True)
        raise TimeoutError("another thread waits for ever")
    if failed:
        raise failed[0]


class Case:
    """What is interrupted, in a session of its own.

    Args:
        name: ``open``, ``run``, ``lock`` or ``close``, and after a hyphen how sessions are made.
    """

    def __init__(self, name: str, folder: str) -> None:
        self.what, _, how = name.partition("-")
        self.options: dict[str, Any] = {"threads": 2, "cache_dir": None}
        if how == "cached":
            self.options["cache_dir"] = folder
        if how == "deterministic":
            self.options["deterministic"] = True
        self.graph = model().SerializeToString()
        self.right = {size: answer(size) for size in (1, 3, 4, 5)}

    def check(self, session: Session, size: int) -> None:
        [found] = session.run(None, feeds(size))
        np.testing.assert_array_equal(found, self.right[size])

    def interrupt(self, interrupter: Interrupter, event: int) -> str:
        if self.what == "open":
            opened: list[Session] = []
            wrong = interrupter.run(
                lambda: opened.append(Session(self.graph, **self.options)), event
            )
            session = opened[0] if opened else Session(self.graph, **self.options)
        else:
            session = Session(self.graph, **self.options)
            self.check(session, 1)
            if self.what == "run":
                wrong = interrupter.run(lambda: session.run(None, feeds(3)), event)
            elif self.what == "again":
                self.check(session, 3)
                self.check(session, 4)
                wrong = interrupter.run(lambda: session.run(None, feeds(3)), event)
            elif self.what == "lock":
                wrong = interrupter.run(session.lock, event)
            else:
                wrong = interrupter.run(session.close, event)
        after = ""
        try:
            if self.what != "close":
                self.check(session, 3)
                beside(lambda: self.check(session, 4))
                self.check(session, 5)
            beside(session.close)
            session.close()
            if event % 8 == 1:
                beside(lambda: self.check(Session(self.graph, **self.options), 3))
        except Exception as error:  # it is told
            after = f"afterwards {type(error).__name__}: {str(error).splitlines()[0]}"
        return "; ".join(text for text in (wrong, after) if text)


def main() -> None:
    """Interrupt one event after the other, until there are no more."""
    name, event, step = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    interrupter, tried = Interrupter(), 0
    with tempfile.TemporaryDirectory() as folder:
        case = Case(name, folder)
        while True:
            faulthandler.dump_traceback_later(PATIENCE_S, exit=True)
            wrong = case.interrupt(interrupter, event)
            if not interrupter.place:
                break
            tried += 1
            if wrong:
                print(event, interrupter.place, wrong, flush=True)
            event += step
        print("tried", tried, flush=True)


if __name__ == "__main__":
    main()
