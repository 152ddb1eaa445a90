"""Many attempts, in processes that may die: crashes, hangs and untyped errors are findings."""

from __future__ import annotations

import faulthandler
import os
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path

import numpy as np

from tests.fuzz.mutate import mutated, pick

Attempt = Callable[[bytes, int], tuple[str, str]]

#: What an attempt may take.
LIMIT_S = 10.0
LIMIT_BYTES = 6 << 30

#: Times the limit that a case may wait for a processor.
BUSY_MACHINE = 6

#: A process is replaced after this many attempts: what they leave behind is no finding.
ATTEMPTS_KEPT = 1000

#: Lines of a process's log that a finding shows, and what is in those that it does not.
LOG_LINES = 16
_NO_INTEREST = (
    "/threading.py",
    "/multiprocessing/",
    "/concurrent/",
    "Extension modules",
    "<string>",
)

FAULTS = ("crash", "hang", "untyped")


@dataclass(frozen=True)
class Case:
    """A model and the seed of its inputs; the file it is saved as has both in it."""

    model: bytes
    seed: int
    index: int

    @classmethod
    def make(cls, models: list[bytes], seed: int, index: int) -> Case:
        """Case ``index`` of a campaign: the same for the same arguments."""
        rng = np.random.default_rng([seed, index])
        return cls(mutated(rng, pick(rng, models)), seed, index)

    @classmethod
    def read(cls, file: Path) -> Case:
        """A case that was saved."""
        _, seed, index = file.stem.rsplit("-", 2)
        return cls(file.read_bytes(), int(seed), int(index))

    @property
    def feeds_seed(self) -> int:
        """The seed of the inputs."""
        return self.seed * 1_000_003 + self.index


@dataclass(frozen=True)
class Finding:
    """A fault, what is known of it, and the file that repeats it."""

    kind: str
    detail: str
    file: Path

    @property
    def command(self) -> str:
        """What repeats it."""
        return f"python -m tests.fuzz --replay {self.file}"


class Worker:
    """A process that makes attempts."""

    def __init__(self, attempt: Attempt, limit_s: float, warm: bytes) -> None:
        self._log = tempfile.NamedTemporaryFile("w+", prefix="fuzz-", suffix=".log")  # noqa: SIM115
        context = get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(theirs, attempt, limit_s, self._log.name, warm), daemon=True
        )
        self._process.start()
        theirs.close()
        self.case: Case | None = None
        self._limit_s = self._begin = self._begin_cpu = 0.0
        self.left = ATTEMPTS_KEPT

    def begin(self, case: Case, limit_s: float) -> None:
        """Hand over a case."""
        self.case, self.left = case, self.left - 1
        self._limit_s, self._begin, self._begin_cpu = limit_s, time.monotonic(), self._cpu_s()
        self.pipe.send((case.model, case.feeds_seed))

    @property
    def late(self) -> bool:
        """True when the case takes too long; on a busy machine that is not the case's fault."""
        gone = time.monotonic() - self._begin
        if self.case is None or gone < self._limit_s:
            return False
        busy = self._cpu_s() - self._begin_cpu > self._limit_s / 2
        return busy or gone > BUSY_MACHINE * self._limit_s

    def _cpu_s(self) -> float:
        """Processor time of the process."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def answer(self) -> tuple[str, str]:
        """What became of the case, or of the process."""
        try:
            answer: tuple[str, str] = self.pipe.recv()
        except (EOFError, ConnectionError):
            self._process.join()
            code = self._process.exitcode or 0
            name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            return "crash", f"{name} {self.log()}"
        return answer

    def log(self) -> str:
        """What the process and its crash handler have written, but for frames of no interest."""
        lines = Path(self._log.name).read_text(errors="replace").splitlines()
        kept = [line for line in lines if not any(word in line for word in _NO_INTEREST)]
        return "\n".join(kept[:LOG_LINES])

    def end(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.join()
        self.pipe.close()
        self._log.close()


def _serve(pipe: Connection, attempt: Attempt, limit_s: float, log: str, warm: bytes) -> None:
    """The process: attempts until the pipe ends. Its log tells where it was when it did not."""
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT_BYTES, LIMIT_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with Path(log).open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        faulthandler.enable(file)
        attempt(warm, 0)  # loads what the first attempt would else be charged for
        pipe.send(("ready", ""))
        while True:
            try:
                model, seed = pipe.recv()
            except EOFError:
                sys.exit()
            faulthandler.dump_traceback_later(limit_s * 0.9, file=file)
            answer = attempt(model, seed)
            faulthandler.cancel_dump_traceback_later()
            pipe.send(answer)


@dataclass
class Campaign:
    """Cases from ``models`` by seed until time is up.

    Args:
        folder: where what is found is saved.
        attempt: what is done with a case; a picklable function.
    """

    models: list[bytes]
    seed: int
    folder: Path
    attempt: Attempt
    processes: int = 2
    limit_s: float = LIMIT_S
    counts: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)

    def run(self, seconds: float) -> Iterator[float]:
        """Make attempts; yields the seconds gone, often."""
        cases = (Case.make(self.models, self.seed, index) for index in count())
        yield from self.over(cases, seconds)

    def over(self, cases: Iterator[Case], seconds: float) -> Iterator[float]:
        """The same over these cases."""
        begin = time.monotonic()
        workers = [self._worker() for _ in range(self.processes)]
        try:
            while workers and time.monotonic() - begin < seconds:
                wait([worker.pipe for worker in workers], timeout=0.2)
                workers = [
                    after for worker in workers if (after := self._next(worker, cases)) is not None
                ]
                yield time.monotonic() - begin
        finally:
            for worker in workers:
                worker.end()

    def _worker(self) -> Worker:
        return Worker(self.attempt, self.limit_s, self.models[-1] if self.models else b"")

    def _next(self, worker: Worker, cases: Iterator[Case]) -> Worker | None:
        """The worker with its next case, or another in its place; None when there is no case."""
        if not worker.late and not worker.pipe.poll():
            return worker
        kind, detail = worker.answer() if worker.pipe.poll() else ("hang", worker.log())
        if worker.case is not None:
            self._note(worker.case, kind, detail)
        elif kind != "ready":
            raise RuntimeError(f"a worker does not start: {detail}")
        worker.case = None
        if kind in ("crash", "hang") or not worker.left:
            worker.end()
            return self._worker()
        case = next(cases, None)
        if case is None:
            worker.end()
            return None
        worker.begin(case, self.limit_s)
        return worker

    def _note(self, case: Case, kind: str, detail: str) -> None:
        self.counts[kind] += 1
        if kind in FAULTS:
            self.folder.mkdir(parents=True, exist_ok=True)
            file = self.folder / f"{kind}-{case.seed}-{case.index}.onnx"
            file.write_bytes(case.model)
            self.findings.append(Finding(kind, detail, file))
