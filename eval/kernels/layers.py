"""VGG19's convolutions, one by one, under an error that is allowed.

``python -m eval.kernels.layers``. Each shape of VGG19's 3x3 convolutions, with the bias and the
ReLU after it, is timed as a network of its own: *tolerant* as in ``eval.kernels.forms``, in turns
with MNN, which has Winograd's kernels, too. *in VGG19* says how often VGG19 has the shape; the last
line is the sum over all its convolutions.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import typer

from eval.experiment import Scope, Store, command
from eval.figures.timing import KEY, TOLERANT, Group, Model, peers, timed
from eval.kernels.forms import logs_of, ratio_cell, time_cell
from eval.markdown import milliseconds, table, told
from ops import BiasAdd, Conv2D, Relu
from vtensor.language.graph import Graph

NAME = "layers"
TITLE = "Layer by layer"
PEER = "mnn"
ENGINES = (TOLERANT, PEER)

#: How often VGG19 has a convolution, by (input channels, output channels, height and width).
LAYERS = {
    (3, 64, 224): 1,
    (64, 64, 224): 1,
    (64, 128, 112): 1,
    (128, 128, 112): 1,
    (128, 256, 56): 1,
    (256, 256, 56): 3,
    (256, 512, 28): 1,
    (512, 512, 28): 3,
    (512, 512, 14): 4,
}


def name_of(layer: tuple[int, int, int]) -> str:
    """Return the name in rows of a layer, a key of ``LAYERS``."""
    channels, outputs, side = layer
    return f"{channels} to {outputs}, {side}x{side}"


class Layer(Model):
    """One convolution as a model; ``layer`` is a key of ``LAYERS``."""

    def __init__(self, layer: tuple[int, int, int], scope: Scope, folder: Path) -> None:
        self.layer = layer
        super().__init__("layer", 1, scope, folder)

    def graph(self, batch: int) -> Graph:
        """Return the graph of the convolution, its bias and a ReLU, with seeded weights."""
        channels, outputs, side = self.layer
        draw, g = np.random.default_rng(0), Graph("layer")
        weights = draw.normal(size=(outputs, channels, 3, 3)) * np.sqrt(2 / (9 * channels))
        x = g.input("x", {"N": batch, "C": channels, "H": side, "W": side})
        w = g.constant(weights.astype(np.float32), "O I h w")
        y = g.add(Conv2D(pads=(1, 1, 1, 1)), x, w)
        b = g.constant(draw.normal(size=outputs).astype(np.float32), "C")
        g.output(g.add(Relu(), g.add(BiasAdd(), y, b)), "y")
        return g.seal()


def measure(scope: Scope, store: Store) -> None:
    """Time the layers whose rows the store lacks, if the scope has peers and MNN is installed.

    A layer that an engine skipped, for instance because MNN's converter failed, is timed again.
    """
    if not scope.peers or PEER not in peers():
        return
    kept = store.table(NAME, KEY)
    for number, layer in enumerate(LAYERS):
        group = Group(name_of(layer), 1, "max", "priority", ENGINES)
        keys = group.keys(scope)
        skipped = [row for key in keys if (row := kept.one(**key)) and row["status"] == "skipped"]
        if store.late or not (skipped or store.missing(kept, keys)):
            continue
        store.advance(f"convolution of {name_of(layer)}", number, len(LAYERS))
        with TemporaryDirectory() as folder:
            model = Layer(layer, scope, Path(folder))
            kept.add(timed(group, scope, model, lambda _: None))


def section(store: Store) -> Iterator[str]:
    """Yield the report's text, and a table with a line for each shape and the sum over VGG19."""
    yield told(__doc__)
    kept = store.table(NAME, KEY)
    by = {(row["network"], row["engine"]): row for row in kept}
    lines, sums = list[Sequence[object]](), dict.fromkeys(ENGINES, 0.0)
    complete = True
    for layer, count in LAYERS.items():
        rows = [by.get((name_of(layer), engine)) for engine in ENGINES]
        ours, theirs = rows
        ratio = None
        if ours and theirs and ours["runs"] and theirs["runs"]:
            for engine, row in ((TOLERANT, ours), (PEER, theirs)):
                sums[engine] += count * row["median_s"]
            ratio = ratio_cell(logs_of(ours, theirs))
        complete &= ratio is not None
        lines.append([name_of(layer), count, *map(time_cell, rows), ratio])
    if sums[PEER]:
        whole = f"**{sums[TOLERANT] / sums[PEER]:.2f}**"
        name = "all" if complete else "those that both ran"
        lines.append([name, None, *map(milliseconds, sums.values()), whole])
    heads = ["convolution", "in VGG19", *(f"{head}, ms" for head in ENGINES)]
    yield table([*heads, f"{TOLERANT} / {PEER}"], lines)


if __name__ == "__main__":
    typer.run(command(sys.modules[__name__]))
