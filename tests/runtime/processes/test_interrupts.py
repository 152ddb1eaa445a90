"""Exceptions out of signals' handlers, at any moment: they come out, and all goes on as before.

As a program, this raises them at chosen events of VTensor's code. Its arguments: what is
interrupted, the first event, and the step from one event to the next. An event is the call or the
return of a function, or the return of a function in C, in the code that takes locks and changes
what threads share. The program prints a line for each event after which something is wrong, and at
last how many events it tried.
"""

from __future__ import annotations

import faulthandler
import signal
import sys
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from pathlib import Path
from types import FrameType, GeneratorType
from typing import Any

import numpy as np
import pytest

from tests.libraries.processes import ROOT, run_python
from tests.libraries.slow import ALL, slow_but
from tests.runtime.exact_net import answer, feeds, model
from vtensor import Session

#: What is interrupted, and about how many events that has.
CASES = {
    "open": 500,
    "open-cached": 300,
    "run": 2600,
    "run-cached": 1500,
    "run-deterministic": 2600,
    "again": 300,
    "lock": 1100,
    "close": 37,
}

#: Each event is tried, in several processes, or some of them in one.
PROCESSES, EVENTS = 4, 12

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
    """Raises an exception at one event of the calling thread.

    Attributes:
        place: the event, or empty until it comes.
        closed: it came as Python closed a generator, which ignores all exceptions.
    """

    def __init__(self) -> None:
        self.kind: type[BaseException] = Foreign
        self.left, self.place = 0, ""
        self.closed = False
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
        """Run ``work`` and raise at an event; return what is wrong with what it raised."""
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


def elsewhere(work: Callable[[], object]) -> None:
    """Call it on another thread, which holds none of the locks of this one."""
    done: Future[object] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:  # the caller raises it
            done.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    try:
        done.result(PATIENCE_S / 2)
    except FutureTimeout:
        faulthandler.dump_traceback(all_threads=True)
        raise


class Case:
    """What is interrupted, in a session of its own.

    Args:
        name: what, and after a hyphen how sessions are made.
    """

    def __init__(self, name: str, folder: str) -> None:
        self.what, _, how = name.partition("-")
        self.options: dict[str, Any] = {"threads": 2, "cache_dir": None}
        if how == "cached":
            self.options["cache_dir"] = folder
        if how == "deterministic":
            self.options["deterministic"] = True
        self.model = model().SerializeToString()
        self.right = {size: answer(size) for size in (1, 3, 4, 5)}

    def open(self) -> Session:
        return Session(self.model, **self.options)

    def check(self, session: Session, *sizes: int) -> None:
        for size in sizes:
            [y] = session.run(None, feeds(size))
            np.testing.assert_array_equal(y, self.right[size])

    def interrupt(self, interrupter: Interrupter, event: int) -> str:
        """Return what is wrong, in words."""
        opened: list[Session] = []
        if self.what == "open":
            wrong = interrupter.run(lambda: opened.append(self.open()), event)
        session = opened[0] if opened else self.open()
        if self.what != "open":
            self.check(session, *((1, 3, 4) if self.what == "again" else (1,)))
            work = {"lock": session.lock, "close": session.close}.get(self.what)
            wrong = interrupter.run(work or (lambda: session.run(None, feeds(3))), event)
        after = ""
        try:
            if self.what != "close":
                self.check(session, 3)
                elsewhere(lambda: self.check(session, 4))
                self.check(session, 5)
            elsewhere(session.close)
            session.close()
            if event % 8 == 1:
                elsewhere(lambda: self.check(self.open(), 3))
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


@pytest.mark.parametrize("part", range(PROCESSES if ALL else 1))
@pytest.mark.parametrize("case", slow_but({*CASES} - {"open", "run-cached"}, CASES))
def test_an_exception_of_a_handler_comes_out_and_leaves_all_whole(case: str, part: int) -> None:
    step = PROCESSES if ALL else CASES[case] // EVENTS | 1
    done = run_python(
        "-m", "tests.runtime.processes.test_interrupts", case, 1 + part, step, timeout=3000
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    [last] = done.stdout.splitlines()
    assert int(last.removeprefix("tried ")) >= (8 if ALL else 3)


if __name__ == "__main__":
    main()
