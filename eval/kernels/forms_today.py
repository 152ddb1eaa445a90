"""Today's convolutional networks, under an error that is allowed.

``python -m eval.kernels.forms_today``. The models of ``eval.today`` that consist of convolutions,
timed as ``eval.kernels.forms`` times the paper's networks, in turns with the same peers: a few by
default, with ``--full`` all that can be made on this machine.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import typer

from eval.experiment import Scope, Store, command
from eval.figures.timing import STRICT, TOLERANT, Group, Model, peers
from eval.figures.timing import measure as measure_groups
from eval.kernels.forms import PEERS, compared
from eval.markdown import told
from eval.models_today.__main__ import made
from eval.today import EXPORTER
from vtensor import load_onnx
from vtensor.language.graph import Graph

NAME = "forms_today"
TITLE = "Today's networks under an error that is allowed"
DEFAULT_MODELS = ("efficientnet_b0", "resnet50d", "yolo")
NETWORKS = (
    *("convnext_tiny", "densenet121", "efficientnet_b0", "ghostnet_100", "mobilenetv3_large_100"),
    *("regnety_008", "repvgg_a2", "resnet50d", "resnext50_32x4d", "deeplab_mobilenet", "unet"),
    *("yolo", "ppocr4_det", "ppocr6_det"),
)


class Written(Model):
    """A model of today: its ONNX file and its inputs exist before, and are not made here."""

    def __init__(self, network: str, batch: int, scope: Scope, folder: Path) -> None:
        case = made(network, EXPORTER)
        assert case is not None, "it was there before"
        super().__init__(network, batch, scope, folder, (case.model, case.feeds))

    def graph(self, batch: int) -> Graph:  # noqa: ARG002  # the batch size is that of its inputs
        """Return the network's graph in the sizes of its inputs; ``batch`` is ignored."""
        return load_onnx(
            self.file, shapes={name: array.shape for name, array in self.feeds.items()}
        )


def measure(scope: Scope, store: Store) -> None:
    """Time all engines on each network of which the store lacks a row, if the scope has peers."""
    if not scope.peers:
        return
    others = [peer for peer in PEERS if peer in peers()]
    wanted = [
        Group(name, 1, "max", "priority", (STRICT, TOLERANT, *others))
        for name in (NETWORKS if scope.every_model else DEFAULT_MODELS)
        if made(name, EXPORTER) is not None
    ]
    measure_groups(scope, store, wanted, NAME, Written)


def section(store: Store) -> Iterator[str]:
    """Yield the report's text, a table with a line for each network and the means, and a plot."""
    yield told(__doc__)
    yield from compared(store, NAME)


if __name__ == "__main__":
    typer.run(command(sys.modules[__name__]))
