"""A program: errors of networks under a cap on the instruction set, by mix and batch size.

``python -m eval.figures.capped CAP NETWORKS MIXES BATCHES``, the last three lists with commas,
prints a line of JSON for each network, batch size and mix. ``eval/processes.py`` says why it is a
process of its own.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from onnx import ModelProto

from eval.compare import Array, difference, photograph, reference
from eval.mixes import BY_PRIORITY, mixes
from eval.networks import NAMES, build
from eval.networks.keras import keras_export
from eval.networks.models import before_softmax, light_model, light_names, seeded, with_batch
from vtensor import Session, limit_isa
from vtensor.commands.shared import Mix
from vtensor.frontends.export import export


def _light(name: str) -> ModelProto:
    return seeded(light_model(name), 0)


def _built(name: str) -> ModelProto:
    return export(build(name))


Makers = dict[str, Callable[[], ModelProto]]
#: By name, the function that makes a network which others defined.
FOREIGN: Makers = {name: partial(_light, name) for name in light_names()} | {"keras": keras_export}
#: The same for the paper's twelve networks; ``FOREIGN`` has three of their names, hence the prefix.
BUILT: Makers = {f"built/{name}": partial(_built, name) for name in NAMES}
NETWORKS = FOREIGN | BUILT


def rows(name: str, sharing: Mapping[str, Mix], batches: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Yield a row for each batch size and mix: the difference from ONNX Runtime, and the kernels.

    Args:
        name: a key of ``NETWORKS``; a Softmax at the network's end is left out.
        sharing: the mixes, by name.
        batches: the batch sizes.
    """
    model = NETWORKS[name]()
    if model.graph.node[-1].op_type == "Softmax":
        model = before_softmax(model)
    for batch in batches:
        rewritten = with_batch(model, batch)
        [image] = rewritten.graph.input
        shape = tuple(dim.dim_value for dim in image.type.tensor_type.shape.dim)
        feeds = {image.name: photograph(shape)}
        expected = reference(rewritten, feeds)
        for mix, options in sharing.items():
            with Session(rewritten, threads=2, deterministic=True, **options._asdict()) as session:
                [ours] = session.run(None, feeds)
                row = {"network": name, "mix": mix, "batch": batch}
                yield row | _row(session, ours, expected)


def _row(session: Session, ours: Array, expected: Array) -> dict[str, Any]:
    running = [step for step in session.plan.steps if step.kernels]
    libraries = defaultdict(set)
    for step in running:
        for op in step.op.split(" + "):
            libraries[op].add(step.library)
    return {
        "shape": ours.shape,
        "difference": difference(ours, expected),
        "reference": [f"{step.op} {step.kernels}" for step in running if step.is_reference],
        "kernels": sorted({kernel for _, kernel in session.plan.kernels()}),
        "libraries": {op: sorted(names) for op, names in libraries.items()},
        "unlisted": sorted({step.op for step in running if step.unlisted}),
    }


def main(cap: str, networks: str, mix_names: str, batches: str) -> None:
    """Cap the instruction set (unless ``cap`` is ``max``), run the networks and print the rows.

    The arguments are those of the program, in the module's docstring.
    """
    if cap != "max":
        limit_isa(cap)
    known = {"priority": BY_PRIORITY, **mixes()}
    sharing = {name: known[name] for name in mix_names.split(",")}
    for name in networks.split(","):
        for row in rows(name, sharing, [int(batch) for batch in batches.split(",")]):
            print(json.dumps({"cap": cap, **row}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
