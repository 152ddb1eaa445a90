"""Equal calls are evaluated once, and nobody can tell."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from eval.networks import build
from libdesc.preferences import Preferences
from optimizer.pipeline import optimise, pass_names, simplify
from ptensor import PTensor, lib_tagger
from resolver import calls
from resolver.evaluate import resolve
from resolver.extend import extend
from tests.libraries.bench import Bench
from vtensor.language.graph import Graph
from vtensor.language.operators import Context, run_compute
from vtensor.language.tensor import VTensor


def lowered(name: str, preferences: Preferences) -> tuple[list[str], int]:
    """A network's plan at every level, all of it, and how many calls were evaluated."""
    graph, texts, counted = build(name, size=64), list[str](), Counter[str]()

    def counting(ctx: Context, op: object, inputs: list[VTensor]) -> tuple[VTensor, ...]:
        counted[ctx.node] += 1
        return run_compute(ctx, op, inputs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calls, "run_compute", counting)
        for level in ("none", "ewo", "all"):
            passes = pass_names(level)
            simple = simplify(graph, passes, preferences)
            plan = optimise(extend(resolve(simple, {}, preferences)), passes)
            texts += [str(plan), repr([node.variant for node in plan.operators])]
            texts += [repr({name: value.dims for name, value in plan.values.items()})]
    return texts, sum(counted.values())


@pytest.mark.parametrize("name", ["mobilenet_v2", "resnet50"])
def test_plans_are_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    preferences = Preferences(operators={"Relu6": "eigen"})
    found, few = lowered(name, preferences)
    monkeypatch.setattr(calls, "_key", lambda *_: None)
    expected, many = lowered(name, preferences)
    assert found == expected
    assert few < 0.8 * many


def test_a_pin_makes_another_call() -> None:
    graph = build("mobilenet_v1", size=32)
    relu = [name for name, node in graph.nodes.items() if node.op_name.startswith("Relu")]
    pins = Preferences(nodes={relu[2]: "numpy"})
    made = {node.name: node.variant.library for node in resolve(graph, {}, pins).operators}
    assert [made[name] == "numpy" for name in relu[:4]] == [False, False, True, False]


@pytest.mark.parametrize("look", [True, False])
def test_who_looks_at_a_constant_is_asked_each_time(bench: Bench, look: bool) -> None:
    @bench.invoker("Pair")
    def pair(ctx: Context, op: object, a: VTensor, b: VTensor, y: VTensor) -> None:
        xs, constant = PTensor(a), PTensor(b)
        flat = look and float(constant.data().flat[0]) > 0
        xs.require("CN" if flat else "NC")
        if lib_tagger("toy", [xs, constant], [PTensor(y)]):
            return

    graph = Graph("constants")
    value = graph.input("x", {"N": 2, "C": 3})
    for number in (0.0, 1.0, 0.0, 1.0):
        added = graph.constant(np.full((2, 3), number, np.float32), "N C")
        value = graph.add(bench.op("Pair"), value, added)
    graph.output(value, "y")
    layouts = [str(node.variant.layouts[0]) for node in resolve(graph.seal()).operators]
    assert layouts == (["NC", "CN", "NC", "CN"] if look else ["NC"] * 4)
