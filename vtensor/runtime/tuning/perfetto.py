"""A profile as a trace file for ui.perfetto.dev and chrome://tracing.

Source: Google, "Trace Event Format": complete events (``X``) and metadata (``M``) in a JSON object.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

#: The thread numbers of a trace's two rows: runs, and the calls within them.
CALLER, TEAM = 1, 2


def trace_of(
    name: str,
    threads: int,
    runs: Array,
    times: Array,
    calls: Sequence[tuple[str, str, str]],
    about: Mapping[str, tuple[str, dict[str, Any]]],
) -> dict[str, Any]:
    """Return a trace of all runs and calls of a profile; times count from the first run's begin.

    Args:
        name, threads, runs, times, calls: as in ``Profile``.
        about: the operator and further facts of each node that takes time, by name.
    """
    origin = int(runs[0, 0])
    events = [
        _meta("process_name", 0, f"vtensor: {name}"),
        _meta("thread_name", CALLER, "runs"),
        _meta("thread_name", TEAM, f"vtensor-{threads}"),
    ]
    for number, (begin, end) in enumerate(runs.tolist()):
        events.append(_complete(f"run {number}", "run", CALLER, begin - origin, end - begin))
    for row in times.tolist():
        for (node, library, kernel), (begin, end) in zip(calls, row, strict=True):
            op, known = about[node]
            event = _complete(op, library, TEAM, begin - origin, end - begin)
            events.append(event | {"args": {"node": node, "kernel": kernel, **known}})
    other = {"model": name, "threads": threads}
    return {"displayTimeUnit": "ns", "otherData": other, "traceEvents": events}


def _meta(name: str, row: int, text: str) -> dict[str, Any]:
    return {"name": name, "ph": "M", "pid": 1, "tid": row, "args": {"name": text}}


def _complete(name: str, kind: str, row: int, begin_ns: int, ns: int) -> dict[str, Any]:
    """Return an event with begin and duration; the format counts in microseconds."""
    place = {"pid": 1, "tid": row}
    return {"name": name, "cat": kind, "ph": "X", "ts": begin_ns / 1e3, "dur": ns / 1e3, **place}
