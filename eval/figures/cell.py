"""A program: the layout-aware baseline and VTensor in turns, a line of JSON for each mix.

``python -m eval.figures.cell CELL``: CELL is a ``Cell`` as JSON. ``eval/figures/cells.py`` runs a
process for each network, batch size and cap, since a library fixes its cap at its first use.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np

from eval.compare import photograph
from eval.experiment import Scope
from eval.figures.parted import Array, Clocked, baseline, ours, parts
from eval.figures.turns import take_turns, undisturbed
from eval.layout_aware import Network
from eval.mixes import mixes
from eval.networks import build
from eval.store import Row
from vtensor import limit_isa
from vtensor.benchmark.agreement import difference
from vtensor.errors import PeerError, VTensorError
from vtensor.runtime.session import Session

#: The name of the layout-aware baseline. Times of other engines are divided by its times.
BASELINE = "baseline"


@dataclass(frozen=True)
class Cell:
    """The measurement of one process.

    Attributes:
        network, batch, size: the network; ``size`` None is that of its own images.
        cap: the cap on the instruction set; ``max`` is none.
        engines: the engines by the name of the mix of libraries, the baseline first.
        threads: the number of threads of a run.
        pairs, seconds, seed: as in ``Scope``.
        tries: as in ``undisturbed``.
        oracle: the file of the accepted difference from the expected outputs, and of these, for at
            least as many images.
    """

    network: str
    batch: int
    size: int | None
    cap: str
    engines: Mapping[str, Sequence[str]]
    threads: int
    pairs: int
    seconds: float
    seed: int
    tries: int
    oracle: str

    def to_json(self) -> str:
        """Return the argument of the program."""
        return json.dumps(asdict(self))


def measured(
    makers: Mapping[str, Callable[[], Clocked]], expected: Sequence[Array], bound: float, cell: Cell
) -> list[Row]:
    """Make engines, compare their outputs with the expected ones, and time them in turns.

    A row has an engine's status, its rounds, and its time by kind of step; for all but the first
    one the parts of the difference from the first. An engine that refuses the network or disagrees
    is not timed.
    """
    engines, rows = dict[str, Clocked](), dict[str, Row]()
    for name, make in makers.items():
        row: Row = {"engine": name, "status": "timed", "reason": None, "bound": bound}
        rows[name] = {**row, "difference": None, "conversions": None, "rounds": []}
        try:
            engine = make()
            apart = difference(expected, engine.outputs())
        except VTensorError as error:
            status = "disagrees" if isinstance(error, PeerError) else "failed"
            rows[name] |= {"status": status, "reason": str(error)}
            continue
        rows[name] |= {"difference": apart, "conversions": engine.conversions}
        if apart <= bound:
            engines[name] = engine
        else:
            text = f"its outputs are {apart:.1e} of the largest apart, and {bound:g} are allowed"
            rows[name] |= {"status": "disagrees", "reason": text}
    scope = Scope(pairs=cell.pairs, seconds=cell.seconds, seed=cell.seed)
    turns = partial(take_turns, [*engines.values()], scope)
    _, about = undisturbed(turns, cell.tries)
    for name, engine in engines.items():
        rows[name] |= {"rounds": engine.rounds, "by_kind": engine.by_kind()}
        if name != BASELINE and BASELINE in engines:
            rows[name]["parts"] = parts(engines[BASELINE], engine)
    return [{**row, **about} for row in rows.values()]


def main(text: str) -> None:
    """Cap the instruction set (unless the cap is ``max``), and print the rows of each mix."""
    cell = Cell(**json.loads(text))
    if cell.cap != "max":
        limit_isa(cell.cap)
    graph = build(cell.network, cell.batch, size=cell.size)
    feeds = {name: photograph(tuple(graph.values[name].dims.values())) for name in graph.inputs}
    with np.load(cell.oracle) as file:
        bound, *images = file.values()
    expected = [output[: cell.batch] for output in images]
    for mix, engines in cell.engines.items():
        shared = mixes()[mix]
        with ExitStack() as stack:

            def make(engine: str, stack: ExitStack = stack, shared: Any = shared) -> Clocked:
                if engine == BASELINE:
                    return baseline(Network(graph, shared, cell.threads), feeds)
                options: dict[str, Any] = {"threads": cell.threads, "deterministic": True}
                session = Session(graph, optimize=engine, **shared._asdict(), **options)
                return ours(stack.enter_context(session), feeds)

            makers = {engine: partial(make, engine) for engine in engines}
            rows = measured(makers, expected, float(bound), cell)
        print(json.dumps({"mix": mix, "rows": rows}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
