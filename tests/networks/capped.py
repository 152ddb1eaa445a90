"""A program: a network under a cap on instruction sets, at several batch sizes, compared.

``python -m tests.networks.capped CAP NETWORK BATCH...`` prints a line of JSON for each batch. It is
a process of its own because a library fixes its cap at its first use.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from eval.models import before_softmax, light_model, seeded, with_batch
from tests.networks.test_networks import difference, photograph, reference
from vtensor import Session, limit_isa


def main(cap: str, name: str, batches: Sequence[str]) -> None:
    """Run, compare with ONNX Runtime, print."""
    if cap != "max":
        limit_isa(cap)
    light = light_model(name)
    model = seeded(before_softmax(light) if light.graph.node[-1].op_type == "Softmax" else light, 0)
    for batch in map(int, batches):
        rewritten = with_batch(model, batch)
        feeds = {rewritten.graph.input[0].name: photograph((batch, 3, 224, 224))}
        with Session(rewritten, threads=2) as session:
            [ours] = session.run(None, feeds)
            steps = [step for step in session.plan.steps if step.is_reference]
            kernels = sorted({kernel for _, kernel in session.plan.kernels()})
        print(
            json.dumps(
                {
                    "batch": batch,
                    "shape": ours.shape,
                    "difference": difference(ours, reference(rewritten, feeds)),
                    "reference": [f"{step.op} {step.kernels}" for step in steps],
                    "kernels": kernels,
                }
            )
        )


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
