"""The twelve networks compared with the peers: ``python -m eval.bench [NAME...]``.

It works as ``vtensor bench``, on the networks of ``networks/`` and with two more peers, TensorFlow
and PyTorch, for which ``peers/`` translates VTensor's graph. Every peer reads the same ONNX file,
from which VTensor's graph can be loaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from eval.compare import photograph
from eval.networks import NETWORKS, build
from vtensor import save_onnx
from vtensor.benchmark.agreement import BOUNDS
from vtensor.benchmark.race import RaceSettings
from vtensor.benchmark.report import Case
from vtensor.commands.bench import (
    PEERS,
    LimitOption,
    PlotOption,
    PrecisionOption,
    RoundsOption,
    SecondsOption,
    SeedOption,
    chosen,
    present,
)
from vtensor.commands.shared import DebugOption, JsonOption, ThreadsOption, errors
from vtensor.runtime.execution.executor import Executor

#: The peers for which ``peers/`` translates graphs: ``"module:Class"`` by the name in ``--peers``.
FRAMEWORKS = {
    "tensorflow": "eval.peers.drivers:TensorFlow",
    "pytorch": "eval.peers.drivers:PyTorch",
}


def cases(names: Iterable[str], batch: int, size: int | None) -> Iterator[Case]:
    """Yield a case for each network: noise, and an ONNX file that is removed before the next case.

    Args:
        names: names of networks.
        batch: the number of images in a batch.
        size: height and width of an image, in pixels; None is the network's own.
    """
    for name in names:
        with TemporaryDirectory() as folder:
            file, graph = Path(folder) / f"{name}.onnx", build(name, batch, size=size)
            save_onnx(graph, file)
            feeds = {
                key: photograph(tuple(graph.values[key].dims.values())) for key in graph.inputs
            }
            del graph  # its weights are in the file
            yield Case(name, file, feeds)


def main(
    networks: Annotated[
        list[str] | None, typer.Argument(help=f"Of {', '.join(NETWORKS)}.", metavar="NAME...")
    ] = None,
    peers: Annotated[str, typer.Option(help="With commas.")] = ",".join(PEERS | FRAMEWORKS),
    precision: PrecisionOption = "f32",
    batch: Annotated[int, typer.Option(min=1, help="Images in a batch.")] = 1,
    size: Annotated[int | None, typer.Option(help="Height and width of images.")] = None,
    threads: ThreadsOption = None,
    rounds: RoundsOption = 10,
    seconds: SecondsOption = 3.0,
    limit: LimitOption = 600.0,  # inductor takes minutes for the largest
    seed: SeedOption = 0,
    to: PlotOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Time the named networks, or all twelve; the exit code is that of ``vtensor bench``."""
    with errors(debug):
        present(
            cases(chosen(",".join(networks or NETWORKS), NETWORKS, "network"), batch, size),
            chosen(peers, PEERS | FRAMEWORKS, "peer"),
            chosen(precision, BOUNDS, "precision"),
            RaceSettings(Executor.of(threads).threads, rounds, seconds, limit, seed),
            to,
            as_json,
        )


if __name__ == "__main__":
    typer.run(main)
