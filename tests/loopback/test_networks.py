"""Whole networks again, every value of which is scrambled on its way."""

from __future__ import annotations

import pytest
from onnx import ModelProto

from eval.compare import TOLERANCE, difference, photograph, reference
from eval.networks.keras import keras_export
from eval.networks.models import before_softmax, light_model, seeded, with_side
from resolver.lowered import OpNode
from tests.libraries.slow import slow_but
from tests.loopback.bench import check_scrambled
from tests.loopback.invokers import ran
from vtensor import Session

NETWORKS = ("squeezenet", "shufflenet", "keras", "densenet121")


def network(name: str) -> tuple[ModelProto, tuple[int, ...]]:
    """A network on pictures that NumPy is done with soon, and their shape."""
    if name == "keras":
        return keras_export(32), (1, 32, 32, 3)
    light, side = light_model(name), 224 if name == "shufflenet" else 32
    ends = light.graph.node[-1].op_type == "Softmax"
    return with_side(seeded(before_softmax(light) if ends else light, 0), side), (1, 3, side, side)


@pytest.mark.parametrize("others", [(), ("onednn", "eigen")], ids=["alone", "others transform"])
@pytest.mark.parametrize("name", slow_but(NETWORKS[:3], NETWORKS))
def test_agrees_with_onnx_runtime(name: str, others: tuple[str, ...]) -> None:
    model, shape = network(name)
    feeds = {model.graph.input[0].name: photograph(shape)}
    before = sum(ran.values())
    with Session(model, libraries=["loopback", *others], optimize="none", threads=2) as session:
        [answer] = session.run(None, feeds)
        graph = session.plan.graph
    check_scrambled(graph)
    assert sum(ran.values()) - before == sum(isinstance(node, OpNode) for node in graph.nodes)
    assert difference(answer, reference(model, feeds)) <= TOLERANCE
