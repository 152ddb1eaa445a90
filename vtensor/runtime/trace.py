"""A profile as a trace that ui.perfetto.dev and chrome://tracing show.

Source: Google, "Trace Event Format": complete events (``X``) and metadata (``M``) in a JSON object.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vtensor.runtime.profile import Profile

#: The two rows of a trace, by their thread numbers: runs, and the calls within them.
CALLER, TEAM = 1, 2


def trace_of(profile: Profile) -> dict[str, Any]:
    """All runs and all calls of a profile; times are from the first run's beginning on."""
    return {
        "displayTimeUnit": "ns",
        "otherData": {"model": profile.name, "threads": profile.threads},
        "traceEvents": [*_names(profile), *_runs(profile), *_calls(profile)],
    }


def _names(profile: Profile) -> Iterator[dict[str, Any]]:
    rows = {CALLER: "runs", TEAM: f"vtensor-{profile.threads}"}
    yield _meta("process_name", 0, f"vtensor: {profile.name}")
    yield from (_meta("thread_name", row, text) for row, text in rows.items())


def _meta(name: str, row: int, text: str) -> dict[str, Any]:
    return {"name": name, "ph": "M", "pid": 1, "tid": row, "args": {"name": text}}


def _runs(profile: Profile) -> Iterator[dict[str, Any]]:
    for number, (begin, end) in enumerate(profile.runs.tolist()):
        yield _complete(f"run {number}", "run", CALLER, begin - profile.runs[0, 0], end - begin)


def _calls(profile: Profile) -> Iterator[dict[str, Any]]:
    steps = {one.step.node.name: one for one in profile.steps}
    origin = int(profile.runs[0, 0])
    for row in profile.times.tolist():
        for (node, library, kernel), (begin, end) in zip(profile.calls, row, strict=True):
            one = steps[node]
            event = _complete(one.step.op, library, TEAM, begin - origin, end - begin)
            about = {"layouts": one.layouts, "operations": one.operations, "bytes": one.bytes}
            yield event | {"args": {"node": node, "kernel": kernel, **about}}


def _complete(name: str, kind: str, row: int, begin_ns: int, ns: int) -> dict[str, Any]:
    """An event with its two ends; the format counts in microseconds."""
    place = {"pid": 1, "tid": row}
    return {"name": name, "cat": kind, "ph": "X", "ts": begin_ns / 1e3, "dur": ns / 1e3, **place}
