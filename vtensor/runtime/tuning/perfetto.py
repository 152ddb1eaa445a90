"""A profile as a trace file for ui.perfetto.dev and chrome://tracing.

Source: Google, "Trace Event Format": complete events (``X``) and metadata (``M``) in a JSON object.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

#: The thread numbers of a trace file's two rows: runs, and the calls within runs.
CALLER, TEAM = 1, 2


def trace_of(
    name: str,
    threads: int,
    runs: Array,
    times: Array,
    calls: Sequence[tuple[str, str, str]],
    about: Mapping[str, tuple[str, dict[str, Any]]],
) -> dict[str, Any]:
    """Return the JSON data of a trace file with all runs and calls of a profile.

    Times count from the begin of the first run.

    Args:
        name: the network's name.
        threads: the number of kernel threads.
        runs: the begin and end of each run, in nanoseconds: an array, runs x 2.
        times: the begin and end of each call, in nanoseconds: an array, runs x calls x 2.
        calls: the node, the library and the kernel of each call of a run.
        about: for each node that takes time, by name: the operator, and further facts to show.
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
    """Return an event with begin and duration, converted to the format's microseconds.

    Args:
        name, kind: the name and category that the event shows.
        row: the thread number of its row.
        begin_ns, ns: its begin and duration, in nanoseconds.
    """
    place = {"pid": 1, "tid": row}
    return {"name": name, "cat": kind, "ph": "X", "ts": begin_ns / 1e3, "dur": ns / 1e3, **place}
