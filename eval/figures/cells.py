"""The cells of the paper's comparison, from whose pairs several figures are made.

A cell is a network, a batch size, a cap on the instruction set and a mix of libraries. In it, the
layout-aware baseline and VTensor's levels run in turns in one process (``cell.py``), with a clock
around each step. The same pairs give latencies (the table ``timings``), the parts of a difference
(``parts``) and the time by kind of operator (``breakdown``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from eval.compare import photograph
from eval.experiment import Scope, Store
from eval.figures.cell import BASELINE, Cell
from eval.figures.timing import Group, caps, oracle_of, table, times
from eval.networks import build
from eval.processes import measure as run_process
from eval.profiles import KEY as PROFILES_KEY
from eval.store import Row

#: VTensor's levels: the resolver alone, the paper's passes (LHO, EWO, LHO), and every pass.
RESOLVED, PAPERS, ALL = "none", "ewo", "all"
#: The paper's mix of libraries, in which further levels are measured.
MIX = "tensorflow"
#: The tables of parts and of the time by kind of operator, and the columns that identify a row.
PARTS, PARTS_KEY = "parts", ("network", "cap", "mix", "level", "threads")
BREAKDOWN, BREAKDOWN_KEY = "breakdown", PROFILES_KEY
#: The network that is broken down.
BROKEN_DOWN = "resnet50"


def groups(scope: Scope) -> list[Group]:
    """Return the cells of batch size 1, for each network, cap and mix of libraries.

    The baseline is compared with the paper's passes; in TensorFlow's mix also with every pass, and
    under a cap for batches with the resolver alone. The scope's ``only`` has names of networks,
    caps and mixes: of each of the three of which it has a name, only what it names is timed.
    """
    wanted = []
    for network in scope.networks:
        for cap in caps(scope):
            for mix in scope.mixes:
                resolved = (RESOLVED,) if mix == MIX and cap in scope.batch_caps else ()
                every = (ALL,) if mix == MIX else ()
                engines = BASELINE, *resolved, PAPERS, *every
                wanted.append(Group(network, 1, cap, mix, engines))
    for name in ("network", "cap", "mix"):
        if named := {getattr(group, name) for group in wanted} & {*scope.only}:
            wanted = [group for group in wanted if getattr(group, name) in named]
    return wanted


def batch_groups(scope: Scope) -> list[Group]:
    """Return the cells of batches above 1, in TensorFlow's mix."""
    return [
        Group(network, batch, cap, MIX, (BASELINE, PAPERS))
        for network in scope.batch_networks
        for cap in scope.batch_caps
        if cap in caps(scope)
        for batch in scope.batches
        if batch > 1
    ]


def measure(scope: Scope, store: Store, wanted: Iterable[Group]) -> None:
    """Measure those cells of which a row is missing, one network after another.

    Args:
        scope: the extent of the measurement.
        store: the folder of results.
        wanted: the cells.
    """
    timings = table(store)
    missing = [group for group in wanted if store.missing(timings, group.keys(scope))]
    order = {name: place for place, name in enumerate(scope.networks)}
    missing.sort(key=lambda group: (order[group.network], group.batch))
    count = 0
    for network, alike in groupby(missing, lambda group: group.network):
        with TemporaryDirectory() as folder:
            oracle, cells = Path(folder) / "oracle.npz", list(alike)
            if not store.late:
                store.advance(f"{network}: NumPy answers", count, len(missing))
                _ask_numpy(network, max(cell.batch for cell in cells), scope.size, oracle)
            for (batch, cap), mixes in groupby(cells, lambda group: (group.batch, group.cap)):
                if store.late:
                    return
                store.advance(f"{network}, batch {batch}, {cap}", count, len(missing))
                here = {group.mix: group for group in mixes}
                engines = {mix: group.engines for mix, group in here.items()}
                limits = (scope.threads, scope.pairs, scope.seconds, scope.seed, scope.tries)
                cell = Cell(network, batch, scope.size, cap, engines, *limits, str(oracle))
                done = partial(_keep, store, scope, here)
                run_process("eval.figures.cell", [cell.to_json()], done)
                count += len(here)


def _ask_numpy(network: str, batch: int, size: int | None, file: Path) -> None:
    """Write the outputs of NumPy's definitions to a file, and the accepted difference from them."""
    graph = build(network, 1, size=size)
    [name] = graph.inputs
    dims = [*graph.values[name].dims.values()]
    outputs, bound = oracle_of(graph, {name: photograph((batch, *dims[1:]))})
    np.savez(file, bound, *outputs)


def _keep(store: Store, scope: Scope, here: Mapping[str, Group], answer: Row) -> None:
    """Add the rows of a cell to the tables. Latencies come last, since a cell that has them counts
    as measured.

    Args:
        store, scope: the folder of results, and the extent of the measurement.
        here: the cells of the process, by mix.
        answer: the mix of the cell and its rows.
    """
    group, rows = here[answer["mix"]], answer["rows"]
    timings, apart, kinds = list[Row](), list[Row](), list[Row]()
    about = {"network": group.network, "cap": group.cap, "mix": group.mix}
    for key, row in zip(group.keys(scope), rows, strict=True):
        parts, by_kind = row.pop("parts", None), row.pop("by_kind", {})
        taken = times(row.pop("rounds"), scope.seed)
        timings.append({**key, **row, **taken})
        if parts:
            apart.append({**about, "level": row["engine"], "threads": scope.threads, **parts})
        if by_kind:
            run_ns = 1e9 * taken["median_s"]
            of_kind = {kind: {"ns": ns, "share": ns / run_ns} for kind, ns in by_kind.items()}
            gaps = max(0.0, 1 - sum(by_kind.values()) / run_ns)
            of_run = {"run_ns": {"median": run_ns}, "gaps_ns": {"share": gaps}, "by_kind": of_kind}
            of_cell = {"size": scope.size, "batch": group.batch, "optimize": row["engine"]}
            kinds.append({**about, **of_cell, **of_run})
    if group.batch == 1:
        store.table(PARTS, PARTS_KEY, of_one_commit=True).add(apart)
    if group.network == broken_down(scope) and group.mix == MIX and group.cap in scope.batch_caps:
        store.table(BREAKDOWN, BREAKDOWN_KEY, of_one_commit=True).add(kinds)
    table(store).add(timings)


def broken_down(scope: Scope) -> str:
    """Return the network whose time is broken down by kind of operator."""
    return BROKEN_DOWN if BROKEN_DOWN in scope.networks else scope.networks[0]
