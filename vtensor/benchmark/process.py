"""The start, the requests and the end of a peer's process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing import Pipe
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from vtensor.benchmark.messages import Answer, Refused, Started
from vtensor.benchmark.peer import Task
from vtensor.errors import VTensorError

A = TypeVar("A", bound=Answer)

#: Environment variables of every worker process: one forbids a lower precision than the requested
#: one, one limits messages. Then the variables that set the number of threads.
_ENVIRONMENT = {"ONEDNN_DEFAULT_FPMATH_MODE": "STRICT", "TF_CPP_MIN_LOG_LEVEL": "2"}
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")

#: The most seconds that a process may keep running after its answer, and the poll interval of the
#: wait for its sleep, in seconds.
REST_S, LOOK_S = 2.0, 0.002


class Gone(VTensorError):
    """A worker process refused a request (``failed`` is False), or failed, died or hung."""

    def __init__(self, reason: str, *, failed: bool = True) -> None:
        super().__init__(reason)
        self.failed = failed


class Worker:
    """A worker process, which runs a peer and answers requests.

    Args:
        place: the peer's place, ``"package.module:Class"``.
        threads: the number of threads of the process's libraries.
        environment: further environment variables of the process.
    """

    def __init__(
        self, place: str, threads: int, environment: Mapping[str, str] | None = None
    ) -> None:
        self._log = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115  # see close()
        self._pipe, theirs = Pipe()
        program = [sys.executable, "-m", "vtensor.benchmark.worker", str(theirs.fileno()), place]
        self._process = subprocess.Popen(
            program,
            env=os.environ
            | _ENVIRONMENT
            | dict.fromkeys(_THREADS, str(threads))
            | dict(environment or {}),
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,  # so that its child processes can be ended with it
        )
        theirs.close()
        self._started = False

    def ask(self, request: Task | float | None, wanted: type[A], limit_s: float) -> A:
        """Send a request, wait until the process sleeps again, and return its answer.

        Args:
            request: a task, the seconds of a round, or None.
            wanted: the type of the answer; see ``messages.py``.
            limit_s: the most seconds to wait for the answer; before the first answer, also for the
                import of the peer.

        Raises:
            Gone: the worker refused, failed, died, or took too long.
        """
        try:
            if not self._started:
                self._receive(Started, limit_s)
                self._started = True
            self._pipe.send(request)
            answer = self._receive(wanted, limit_s)
        except (EOFError, OSError):
            raise Gone(self._cause_of_death()) from None
        self._wait_until_asleep()
        return answer

    @property
    def process_id(self) -> int:
        """The system's number of the process."""
        return self._process.pid

    def close(self) -> None:
        """End the process and its child processes."""
        self._pipe.close()
        with suppress(ProcessLookupError):
            os.killpg(self.process_id, signal.SIGKILL)
        self._process.wait()
        self._log.close()

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _receive(self, wanted: type[A], limit_s: float) -> A:
        """Return the next message of the process, which must be of the type ``wanted``.

        Raises:
            Gone: the worker refused or failed, or sent no message within ``limit_s`` seconds.
        """
        if not self._pipe.poll(limit_s):
            raise Gone(f"no answer within {limit_s:g} s")
        answer = self._pipe.recv()
        if isinstance(answer, Refused):
            raise Gone(answer.reason, failed=answer.failed)
        assert isinstance(answer, wanted), f"{answer} in place of {wanted}"
        return answer

    def _wait_until_asleep(self) -> None:
        """Wait until no thread of the process runs; threads of a pool wait in a busy loop before
        they sleep.

        The threads are observed one after another; in between, one may fall asleep and wake another
        that was observed before. The process counts as asleep if all threads are found asleep twice
        in succession.

        Raises:
            Gone: a thread still runs after ``REST_S`` seconds; it would disturb the next timing.
        """
        until, asleep = time.monotonic() + REST_S, 0
        while asleep < 2:
            asleep = 0 if runs(self.process_id) else asleep + 1
            if not asleep and time.monotonic() > until:
                raise Gone(f"its threads still run {REST_S:g} s after its answer")
            time.sleep(LOOK_S)

    def _cause_of_death(self) -> str:
        try:
            code = self._process.wait(REST_S)
        except subprocess.TimeoutExpired:
            return "its process closed the pipe, and lives on"
        cause = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        self._log.seek(0)
        lines = self._log.read().strip().splitlines()
        return f"its process died, {cause}" + (f": {lines[-1]}" if lines else "")


def runs(process: int) -> bool:
    """Return whether any thread of a process runs or is ready; False if the system cannot tell.

    Args:
        process: the system's number of the process.
    """
    tasks = Path(f"/proc/{process}/task")
    if not tasks.exists():
        return False
    states = (_state(task / "stat") for task in tasks.iterdir())
    return "R" in states


def _state(stat: Path) -> str:
    """Return the state of a thread from its file ``stat``: one letter, R if it runs or is ready.

    Empty if the thread has ended.
    """
    try:
        return stat.read_text().rpartition(")")[2].split()[0]
    except OSError:  # the thread has just ended
        return ""
