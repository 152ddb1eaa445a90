"""When conversions matter: their share of a run, by kind of network, batch, image and threads.

``python -m eval.figures.shares``. The share of a run that conversions take in the layout-aware
baseline, and what is left of it in VTensor with every pass, which keeps a conversion where a faster
kernel pays for it. A setting differs from the first one in one number. *convolutions* is ResNet-50,
*depthwise* MobileNet v2, *pooling* GoogLeNet, *element-wise* DenseNet-169 (a norm and a rectifier
before each convolution), all with convolutions and pooling on oneDNN and every element-wise
operator on Eigen. *transformer* is a small one of exported Transposes, on all libraries: its
baseline runs each Transpose as a copy. Shares are medians over runs; their intervals are in the
file of rows.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

import typer

from eval.drawing import bars, drawn
from eval.experiment import Scope, Store, command
from eval.figures.timing import caps
from eval.figures.weighed import KINDS
from eval.markdown import percent, picture, table, told
from eval.processes import measure as run_process
from eval.store import Row

NAME = "shares"
TITLE = "When conversions matter"
KEY = ("kind", "cap", "batch", "size", "threads")
#: The caps: the paper's machine, and none.
CAPS = ("sse41", "max")
#: The batch and the image of the first setting; the batch and the images of the others.
BATCH, SIZE, LARGE, SIZES = 1, 224, 32, (64, 512)
#: How long each engine runs in a setting, and from which share on conversions are worth a look.
SECONDS, WORTH = 0.5, 0.05

Setting = tuple[int, int, int]


def settings(scope: Scope) -> list[Setting]:
    """Return batch, size of the image and number of threads of each setting, the first one first.

    >>> settings(Scope(threads=2))[:3]
    [(1, 224, 2), (1, 224, 1), (32, 224, 2)]
    """
    if scope.size:
        return [(batch, scope.size, scope.threads) for batch in scope.batches]
    found = [(BATCH, SIZE, scope.threads), (BATCH, SIZE, 1), (LARGE, SIZE, scope.threads)]
    found += [(BATCH, size, scope.threads) for size in SIZES]
    return list(dict.fromkeys(found))


def measure(scope: Scope, store: Store) -> None:
    """Measure the settings whose rows the store lacks, in a process for each cap and network."""
    kept, seconds = store.table(NAME, KEY, of_one_commit=True), min(SECONDS, scope.seconds)
    kinds = [*KINDS] if scope.size is None else ["depthwise"]
    todo = [(cap, kind) for cap in caps(scope) if cap in CAPS for kind in kinds]
    for count, (cap, kind) in enumerate(todo):
        keys = [
            {"kind": kind, "cap": cap, "batch": batch, "size": size, "threads": threads}
            for batch, size, threads in settings(scope)
        ]
        if store.late:
            return
        if missing := store.missing(kept, keys):
            store.advance(f"shares of {kind}, {cap}", count, len(todo))
            wanted = ",".join(f"{key['batch']}:{key['size']}:{key['threads']}" for key in missing)
            arguments = (cap, kind, wanted, str(seconds))
            run_process("eval.figures.weighed", arguments, lambda row: kept.add([row]))


def section(store: Store) -> Iterator[str]:
    """Yield what the shares say, a table with a line for each cap and kind, and the picture."""
    rows = list(store.table(NAME, KEY))
    yield told(__doc__)
    yield when(rows)
    shown = list(dict.fromkeys(map(_setting, rows)))
    by = {(row["cap"], row["kind"], _setting(row)): row for row in rows}
    pairs = dict.fromkeys((cap, kind) for cap, kind, _ in by)
    lines = [
        [f"{cap}, {kind}", *(_cell(by.get((cap, kind, setting))) for setting in shown)]
        for cap, kind in pairs
    ]
    yield "The share before, and what is left:"
    yield table(["cap, kind", *map(_words, shown)], lines)
    _plot(store, shown, by)
    yield picture(NAME, "the share of a run that conversions take, by kind and setting")


def _setting(row: Row) -> Setting:
    return row["batch"], row["size"], row["threads"]


def _words(setting: Setting) -> str:
    """Return a setting as text.

    >>> _words((8, 224, 2))
    'batch 8, 224 px, 2 threads'
    """
    batch, size, threads = setting
    return f"batch {batch}, {size} px, {threads} thread{'s' * (threads > 1)}"


def _cell(row: Row | None) -> str | None:
    if row is None:
        return None
    before, after = (percent(row[side]["share"][0]) for side in ("before", "after"))
    return f"{before} to {after}"


def when(rows: Sequence[Row]) -> str:
    """Return sentences on where conversions take much of a run, and on how much of it is left."""
    parts = list[str]()
    for cap in dict.fromkeys(row["cap"] for row in rows):
        inner = [row for row in rows if row["cap"] == cap]
        order = sorted(inner, key=lambda row: float(row["before"]["share"][0]))
        much = [row for row in inner if row["before"]["share"][1] >= WORTH]
        kinds = dict.fromkeys(row["kind"] for row in much)
        left = [row["after"]["share"][0] / row["before"]["share"][0] for row in much]
        text = f"at least {percent(WORTH, 0)} of the baseline's run in {len(much)} of"
        text += f" {len(inner)} settings of small networks of one kind"
        if much:
            text += f" ({', '.join(kinds)}), of which VTensor keeps {percent(max(left), 0)} at most"
        ends = " to ".join(map(_place, (order[0], order[-1])))
        parts.append(f"Under **{cap}**, conversions take {text}; they take {ends}.")
    return " ".join(parts)


def _place(row: Row) -> str:
    return f"{percent(row['before']['share'][0])} ({row['kind']}, {_words(_setting(row))})"


def _plot(store: Store, shown: Sequence[Setting], by: dict[tuple[str, str, Setting], Row]) -> None:
    """Draw a panel for each cap: bars of the baseline's shares for each kind, and dots for what is
    left.
    """
    found = list(dict.fromkeys(cap for cap, _, _ in by))
    kinds = list(dict.fromkeys(kind for _, kind, _ in by))
    with drawn(store.folder / NAME, panels=max(1, len(found)), size=(9, 3)) as panels:
        for axes, cap in zip(panels, found, strict=False):
            shares = {
                setting: [
                    [100 * row[side]["share"][0] if row else None for side in ("before", "after")]
                    for row in (by.get((cap, kind, setting)) for kind in kinds)
                ]
                for setting in shown
            }
            series = {_words(each): [cell[0] for cell in cells] for each, cells in shares.items()}
            width = 0.8 / max(1, len(shown))
            for place, cells in enumerate(shares.values()):
                xs = [index - 0.4 + (place + 0.5) * width for index in range(len(kinds))]
                label = "" if place else "left in VTensor"
                ys = [cell[1] for cell in cells]
                axes.plot(xs, ys, "k.", markersize=4, label=label or "_left", clip_on=False)
            bars(axes, kinds, series, title=cap, ylabel="% of a run")


if __name__ == "__main__":
    typer.run(command(sys.modules[__name__]))
