"""The joint choice for all nodes, compared with a choice one by one.

``python -m eval.joint``. *session* is level `all`, the default: one integer program chooses the
libraries, layouts and kernels of all nodes, for the least time. *apart* is level `all` with EWO in
place of that program: each node's library is the first by priority, then layouts are chosen for the
fewest bytes. *onednn alone* is *session* on one library (with ``--full`` there is Eigen alone as
well). All run in turns. The peers choose layouts by rules; the table has the numbers of conversions
that they report next to VTensor's.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from statistics import geometric_mean

import typer

from eval.experiment import Scope, Store, command
from eval.figures import peers
from eval.figures.timing import ALONE, APART, KEY, SESSION, SESSIONS, Group, gain
from eval.figures.timing import measure as measure_groups
from eval.figures.timing import table as timings
from eval.markdown import milliseconds, table, told
from eval.networks import build
from eval.store import Row, Table
from vtensor import Session
from vtensor.runtime.execution.plan import Plan

NAME = "joint"
TITLE = "One choice for all nodes"
ENGINES = (APART, SESSION)
#: The one of the sessions on a single library that is measured without ``--full``, too.
MAIN = next(iter(ALONE))
#: Peers that report the number of conversions in a run.
TELLING = ("openvino", "onnxruntime")


def measure(scope: Scope, store: Store) -> None:
    """Time the networks whose rows the store lacks, and compare two plans of each.

    The result of ``differences`` is added to the row of *session*.
    """
    alone = tuple(ALONE) if scope.every_model else (MAIN,)
    engines = (*alone, *ENGINES)
    wanted = [Group(name, 1, "max", "priority", engines) for name in scope.networks]
    measure_groups(scope, store, wanted, NAME)
    kept = store.table(NAME, KEY)
    for group in wanted:
        row = kept.one(**group.keys(scope)[-1])
        if row and "differs" not in row and not store.late:
            store.advance(f"{group.network}: plans are compared", 0, 1)
            kept.add([{**row, "differs": differences(group.network, scope)}])


def differences(network: str, scope: Scope) -> dict[str, int]:
    """Return how many nodes of a network differ in the plans of *apart* and *session*.

    The keys say what differs: ``A to B`` for another library, ``layouts``, or ``not fused alike``
    for a node that is fused into another in one plan only. Keys with the number 0 are left out.
    """
    before, after = (_chosen(network, scope, engine) for engine in ENGINES)
    counts = Counter[str]()
    for name in before.keys() & after.keys():
        (library, *_), (other, *_) = before[name], after[name]
        if library != other:
            counts[f"{library} to {other}"] += 1
        elif before[name] != after[name]:
            counts["layouts"] += 1
    counts["not fused alike"] = len(before.keys() ^ after.keys())
    return dict(+counts)


def _chosen(network: str, scope: Scope, engine: str) -> dict[str, tuple[str, ...]]:
    graph = build(network, size=scope.size)
    with Session(
        graph, threads=scope.threads, optimize=SESSIONS[engine], deterministic=True
    ) as session:
        return _variants(session.plan)


def _variants(plan: Plan) -> dict[str, tuple[str, ...]]:
    """Return, by name of a node of a plan, its library, followed by its layouts."""
    return {
        node.name: (node.variant.library, *map(str, node.variant.layouts))
        for node in plan.graph.operators
    }


def section(store: Store) -> Iterator[str]:
    """Yield the report's text, a table with a line for each network, and mean ratios of times."""
    yield told(__doc__)
    kept = store.table(NAME, KEY)
    lines = list[list[object]]()
    alone = [engine for engine in ALONE if any(row["engine"] == engine for row in kept)]
    ratios: dict[str, list[float]] = {engine: [] for engine in (APART, *alone)}
    for name in dict.fromkeys(row["network"] for row in kept):
        rows = {engine: _row(kept, name, engine) for engine in (*alone, *ENGINES)}
        gains = {engine: gain(rows[engine], rows[SESSION]) for engine in ratios}
        for engine, gained in gains.items():
            ratios[engine] += [1 - gained.median] if gained else []
        times = [row and milliseconds(row.get("median_s")) for row in rows.values()]
        left = [row and row["conversions"] for row in rows.values()]
        theirs = [_conversions(store, name, peer) for peer in TELLING]
        differs = (rows[SESSION] or {}).get("differs", {})
        changed = ", ".join(f"{n} {what}" for what, n in differs.items())
        lines.append([name, *times, *gains.values(), *left, *theirs, changed or "the same"])
    heads = ["network", *(f"{engine}, ms" for engine in (*alone, *ENGINES))]
    heads += [f"gain over {engine}, medians (95 %)" for engine in ratios]
    heads += [f"Transforms, {engine}" for engine in (*alone, *ENGINES)]
    heads += [f"conversions of {peer}" for peer in TELLING]
    yield table([*heads, f"nodes that run otherwise than {APART}"], lines)
    for engine, values in ratios.items():
        if values:
            count, mean = f"over {len(values)} networks", geometric_mean(values)
            yield f"Geometric mean of the times beside *{engine}* {count}: {mean:.3f}."


def _conversions(store: Store, network: str, peer: str) -> int | None:
    """Return the number of conversions in a peer's run of a network, from the table of peers.

    None if the table has no row, or the peer does not report the number.
    """
    rows = timings(store, peers.NAME).rows(network=network, engine=peer)
    return rows[0]["conversions"] if rows else None


def _row(kept: Table, network: str, engine: str) -> Row | None:
    return kept.one(network=network, engine=engine)


if __name__ == "__main__":
    typer.run(command(sys.modules[__name__]))
