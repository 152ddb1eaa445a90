"""A check of networks as ONNX files: they are read back equal, and agree with ONNX Runtime.

``python -m eval.networks.exported`` checks all twelve, one after another.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import onnx
import typer
from rich.console import Console
from rich.table import Table

from eval.compare import TOLERANCE, difference, photograph, reference
from eval.mixes import mixes
from eval.networks import NAMES, build
from eval.networks.models import before_softmax
from eval.processes import chosen
from vtensor import Graph, Session, load_onnx, save_onnx
from vtensor.commands.shared import print_json, progress
from vtensor.frontends.export import OPSET

#: The mixes that are run: oneDNN alone, and two of oneDNN and Eigen.
MIXES = {name: mix for name, mix in mixes().items() if name not in ("eigen", "numpy")}


def compared(name: str, batch: int, opset: int = OPSET) -> dict[str, Any]:
    """Write a network as ONNX, and return its row: the bytes of its files, and the results of
    ``same`` and ``differences``.
    """
    graph = build(name, batch)
    with TemporaryDirectory() as folder:
        file = Path(folder) / f"{name}.onnx"
        save_onnx(graph, file, opset=opset)
        return {
            "network": name,
            "batch": batch,
            "opset": opset,
            "bytes": sum(part.stat().st_size for part in Path(folder).iterdir()),
            "same": same(graph, file),
            "differences": differences(graph, file),
        }


def same(graph: Graph, file: Path) -> bool:
    """Return whether a file, once it is found valid, is read as a graph that equals ``graph``.

    Raises:
        onnx.checker.ValidationError: the file is not valid.
    """
    onnx.checker.check_model(str(file), full_check=True)
    return load_onnx(file) == graph


def differences(graph: Graph, file: Path) -> dict[str, float]:
    """Return the largest difference between VTensor and ONNX Runtime for each mix.

    The compared value is the input of the file's last Softmax; it is relative to the largest value.
    """
    cut = before_softmax(onnx.load(file, load_external_data=False))
    onnx.save(cut, file.with_name("cut.onnx"))  # weights in another file stay there
    [image], [inner] = graph.inputs, cut.graph.output
    feeds = {image: photograph(tuple(graph.values[image].dims.values()))}
    theirs = reference(file.with_name("cut.onnx"), feeds)
    errors = {}
    for name, mix in MIXES.items():
        with Session(graph, threads=2, **mix._asdict()) as session:
            [ours] = session.run([inner.name], feeds)
        errors[name] = difference(ours, theirs)
    return errors


def wrong(row: dict[str, Any]) -> list[str]:
    """Return the faults of a row of ``compared``: ``read again``, and the mixes that differ."""
    apart = [mix for mix, error in row["differences"].items() if not error <= TOLERANCE]
    return apart if row["same"] else ["read again", *apart]


def table(rows: Iterable[dict[str, Any]]) -> Table:
    """Return a table of differences: a line for each network and batch, a column for each mix."""
    title = "largest difference to ONNX Runtime, of the largest value before the last Softmax"
    result = Table("network", "batch", "MB", "read again", *MIXES, title=title)
    for row in rows:
        errors = (f"{row['differences'][mix]:.1e}" for mix in MIXES)
        again = "equal" if row["same"] else "another"
        result.add_row(
            row["network"], f"{row['batch']}", f"{row['bytes'] / 1e6:.0f}", again, *errors
        )
    return result


def main(
    networks: Annotated[str, typer.Option(help="With commas.")] = ",".join(NAMES),
    opset: Annotated[int, typer.Option(help="Of ONNX's operators.")] = OPSET,
    as_json: Annotated[bool, typer.Option("--json", help="Print rows as JSON.")] = False,
) -> None:
    """Write, read and run each network at batch 1 and 2; the exit code is 1 if one has a fault."""
    rows = []
    with progress("networks") as advance:
        for name in chosen(networks, NAMES):
            for batch in (1, 2):
                advance(f"{name}, batch {batch}")
                rows.append(compared(name, batch, opset))
    if as_json:
        print_json({"networks": rows})
    else:
        Console().print(table(rows))
    if failed := [
        f"{row['network']}: {', '.join(faults)}" for row in rows if (faults := wrong(row))
    ]:
        raise SystemExit(f"FAILED: {'; '.join(failed)}")


if __name__ == "__main__":
    typer.run(main)
