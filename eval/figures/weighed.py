"""A program: the share of a run that conversions take, a line of JSON for each setting.

``python -m eval.figures.weighed CAP KIND SETTINGS SECONDS``: KIND is a key of ``KINDS``, SETTINGS
are BATCH:SIZE:THREADS with commas. ``eval/figures/shares.py`` runs a process for each network.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from eval.compare import photograph
from eval.figures.parted import Clocked, baseline, ours
from eval.figures.turns import interval
from eval.layout_aware import Network
from eval.mixes import mixes
from eval.networks import build
from eval.networks.transformer import transformer
from vtensor import Session, limit_isa

#: The network that stands for a kind of networks. The transformer is no network of the paper.
TRANSFORMER = "transformer"
KINDS = {
    "convolutions": "resnet50",
    "depthwise": "mobilenet_v2",
    "pooling": "googlenet",
    "element-wise": "densenet169",
    TRANSFORMER: TRANSFORMER,
}
#: The mix in which every element-wise operator is another library's.
MIX = "elementwise"
#: The least number of turns.
RUNS = 3

Feeds = Mapping[str, Any]


@contextmanager
def engines(kind: str, batch: int, size: int, threads: int) -> Iterator[tuple[Clocked, Clocked]]:
    """Yield the baseline and VTensor with every pass.

    The transformer has operators that the layout-aware baseline lacks: there the baseline is
    VTensor without passes, from which the result of each exported Transpose is asked as an output.
    """
    options: dict[str, Any] = {"threads": threads, "deterministic": True}
    feeds = {"image": photograph((batch, 3, size, size))}
    if kind == TRANSFORMER:
        moved, whole = (transformer(size, batch, delivered=each) for each in (True, False))
        with (
            Session(moved, optimize="none", **options) as first,
            Session(whole, **options) as second,
        ):
            yield ours(first, feeds), ours(second, feeds)
        return
    graph, mix = build(KINDS[kind], batch, size=size), mixes()[MIX]
    with Session(graph, optimize="all", **mix._asdict(), **options) as second:
        yield baseline(Network(graph, mix, threads), feeds), ours(second, feeds)


def measured(engine: Clocked, seconds: float) -> dict[str, Any]:
    """Run an engine for some seconds, and return the share of a run that conversions take.

    It is the median over turns, with its interval; ``ns`` is the median time of a run.
    """
    engine.warm_up()
    until = time.monotonic() + seconds
    while len(engine.rounds) < RUNS or time.monotonic() < until:
        engine.turn()
    shares = [sum(run[key] for key in engine.converted) / run[""] for run in engine.steps]
    share = interval(np.array(shares), 0)
    ends = [share.value, share.low, share.high]
    return {"share": ends, "ns": float(np.median(engine.whole)), "runs": len(shares)}


def main(cap: str, kind: str, settings: str, seconds: str) -> None:
    """Cap the instruction set (unless ``cap`` is ``max``), and print a row for each setting."""
    if cap != "max":
        limit_isa(cap)
    for setting in settings.split(","):
        batch, size, threads = map(int, setting.split(":"))
        with engines(kind, batch, size, threads) as (first, second):
            row = {"kind": kind, "network": KINDS[kind], "cap": cap, "batch": batch}
            row |= {"size": size, "threads": threads}
            row |= {"before": measured(first, float(seconds))}
            print(json.dumps({**row, "after": measured(second, float(seconds))}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
