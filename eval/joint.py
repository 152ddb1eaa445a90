"""Choosing for all nodes together, beside choosing one by one.

``python -m eval.joint``. *apart* is level `all` with the choice that EWO makes in place of its own:
each node's library by priority, then layouts by bytes. *session* is level `all` as it is: library,
layouts and kernels of all nodes in one program, by time. Both run in turns, on whatever libraries
there are.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Iterator

import typer

from eval.experiment import Scope, Store, command
from eval.markdown import milliseconds, table, told
from eval.networks import build
from eval.store import Row, Table
from eval.timing import APART, KEY, SESSION, SESSIONS, Group, gain
from eval.timing import measure as measure_groups
from vtensor import Session
from vtensor.runtime.plan import Plan

NAME = "joint"
TITLE = "One choice for all nodes"
ENGINES = (APART, SESSION)


def measure(scope: Scope, store: Store) -> None:
    """Time what is missing, and say where the two plans differ."""
    wanted = [Group(name, 1, "max", "priority", ENGINES) for name in scope.networks]
    measure_groups(scope, store, wanted, NAME)
    kept = store.table(NAME, KEY)
    for group in wanted:
        row = kept.one(**group.keys(scope)[-1])
        if row and "differs" not in row and not store.late:
            store.advance(f"{group.network}: plans are compared", 0, 1)
            kept.add([{**row, "differs": differences(group.network, scope)}])


def differences(network: str, scope: Scope) -> dict[str, int]:
    """How many nodes run otherwise in the joint plan, by what is other."""
    before, after = (_chosen(network, scope, engine) for engine in ENGINES)
    found = Counter[str]()
    for name in before.keys() & after.keys():
        (library, *_), (other, *_) = before[name], after[name]
        if library != other:
            found[f"{library} to {other}"] += 1
        elif before[name] != after[name]:
            found["layouts"] += 1
    found["not fused alike"] = len(before.keys() ^ after.keys())
    return dict(+found)


def _chosen(network: str, scope: Scope, engine: str) -> dict[str, tuple[str, ...]]:
    graph = build(network, size=scope.size)
    with Session(graph, threads=scope.threads, optimize=SESSIONS[engine]) as session:
        return _variants(session.plan)


def _variants(plan: Plan) -> dict[str, tuple[str, ...]]:
    """The library and the layouts of each node by its name."""
    return {
        node.name: (node.variant.library, *map(str, node.variant.layouts))
        for node in plan.graph.operators
    }


def section(store: Store) -> Iterator[str]:
    """A line a network, then what it comes to."""
    yield told(__doc__)
    kept = store.table(NAME, KEY)
    lines, ratios = list[list[object]](), list[float]()
    for name in dict.fromkeys(row["network"] for row in kept):
        before, after = (_row(kept, name, engine) for engine in ENGINES)
        found = gain(before, after)
        if found:
            ratios.append(1 - found.median)
        times = [row and milliseconds(row.get("median_s")) for row in (before, after)]
        left = [row and row["conversions"] for row in (before, after)]
        changed = ", ".join(f"{n} {what}" for what, n in (after or {}).get("differs", {}).items())
        lines.append([name, *times, found, *left, changed or "the same"])
    heads = ["network", f"{APART}, ms", f"{SESSION}, ms", "gain, medians (95 %)"]
    yield table([*heads, f"Transforms, {APART}", SESSION, "nodes that run otherwise"], lines)
    if ratios:
        mean = math.exp(math.fsum(map(math.log, ratios)) / len(ratios))
        yield f"Geometric mean of the times over {len(ratios)} networks: {mean:.3f}."


def _row(kept: Table, network: str, engine: str) -> Row | None:
    return kept.one(network=network, engine=engine)


if __name__ == "__main__":
    typer.run(command(sys.modules[__name__]))
