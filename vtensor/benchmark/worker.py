"""The program of a worker process: ``python -m vtensor.benchmark.worker FD PLACE``.

FD is the descriptor of a pipe, PLACE the peer's ``"package.module:Class"``. The process answers
requests over the pipe (``messages.py``) in order, and sleeps in between.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Barrier
from time import perf_counter

import numpy as np

from vtensor.benchmark.messages import Answer, Finished, Loaded, Refused, Started, Timed
from vtensor.benchmark.peer import Peer, Task, peer_at
from vtensor.errors import PeerError, VTensorError

#: The name of a process's peak memory in ``/proc/self/status``. ``ru_maxrss`` is not used, since it
#: includes the memory that the parent process had.
_PEAK = "VmHWM:"


def serve(peer: Peer, pipe: Connection) -> None:
    """Answer the requests that come over a pipe, until the other end of the pipe is closed."""
    try:
        pipe.send(Started())
        while True:
            try:
                pipe.send(answer(peer, pipe.recv()))
            except PeerError as error:
                pipe.send(Refused(str(error), failed=False))
            except Exception as error:  # peers may raise errors of any kind
                pipe.send(Refused(f"{type(error).__name__}: {error}", failed=True))
    except EOFError:
        return


def answer(peer: Peer, request: Task | float | None) -> Answer:
    """Do what a request asks for, and return the answer.

    Args:
        peer: the peer.
        request: a task to load, the seconds of a round, or None at the end.

    Raises:
        Exception: of any kind, if the peer fails.
    """
    if isinstance(request, Task):
        return load(peer, request)
    return finished(peer) if request is None else timed(peer, request)


def load(peer: Peer, task: Task) -> Loaded:
    """Load a task, run it once, and return the times and the outputs.

    The outputs are copied, since a peer may use their memory again.
    """
    begin = perf_counter()
    peer.load(task)
    loaded_at = perf_counter()
    outputs = peer.run()
    end = perf_counter()
    return Loaded(loaded_at - begin, end - begin, [np.array(output) for output in outputs])


def timed(peer: Peer, budget_s: float) -> Timed:
    """Time runs for ``budget_s`` seconds, and return the times.

    There is at least one timed run. If ``budget_s`` is above 0, it follows an untimed one, which
    warms the caches.
    """
    callers = peer.callers()
    if len(callers) > 1:
        return Timed(side_by_side(callers, budget_s))
    [run] = callers
    if budget_s:
        run()
    seconds = list[float]()
    until = perf_counter() + budget_s
    while not seconds or perf_counter() < until:
        begin = perf_counter()
        run()
        seconds.append(perf_counter() - begin)
    return Timed(seconds)


def side_by_side(callers: Sequence[Callable[[], object]], budget_s: float) -> list[float]:
    """Call functions concurrently, each in its own thread, and return the seconds between runs.

    A number is the time from the end of one run to the end of the next one, in any thread. Two runs
    may end at once, so each number is the mean over as many successive ends as there are callers.

    Args:
        callers: the functions; a call is a run.
        budget_s: the seconds for which each function is called again and again.
    """
    meet, ends = Barrier(len(callers)), list[float]()

    def calls(run: Callable[[], object]) -> float:
        run()
        meet.wait()
        begin = perf_counter()
        while True:
            run()
            ends.append(now := perf_counter())
            if now - begin >= budget_s:
                return begin

    with ThreadPoolExecutor(len(callers)) as pool:
        begins = list(pool.map(calls, callers))
    marks = [min(begins), *sorted(ends)[len(callers) - 1 :: len(callers)]]
    return [(end - begin) / len(callers) for begin, end in pairwise(marks)]


def finished(peer: Peer) -> Finished:
    """Return the answer at the end: peak memory, conversions and limits.

    If the limits cannot be measured, the answer has the reason instead of limits.
    """
    peak = peak_bytes()  # first, since the calls below need more memory
    conversions, python_steps = peer.conversions(), peer.python_steps()
    try:
        limits, no_limits = dict(peer.limits()), None
    except VTensorError as error:
        limits, no_limits = {}, str(error)
    return Finished(peak, conversions, limits, no_limits, python_steps)


def peak_bytes() -> int | None:
    """Return the peak memory of this process in bytes; None if the system does not report it.

    >>> peak_bytes() is None or peak_bytes() > 1 << 20
    True
    """
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    kibibytes = [int(line.split()[1]) for line in lines if line.startswith(_PEAK)]
    return kibibytes[0] * 1024 if kibibytes else None


if __name__ == "__main__":
    serve(peer_at(sys.argv[2])(), Connection(int(sys.argv[1])))
