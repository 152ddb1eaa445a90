"""Equal calls are evaluated once, and nobody can tell."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from eval.networks import build
from libdesc.preferences import Preferences
from optimizer.pipeline import optimise, pass_names, simplify
from ptensor import Layout, PTensor, lib_tagger
from ptensor.evaluation import Refusal, Variant, forms_on
from resolver import calls
from resolver.calls import _CallResult
from resolver.canonical_dims import Names
from resolver.evaluate import resolve
from resolver.extend import extend
from tests.frontends.support import f32, model
from tests.libraries.bench import Bench
from vtensor import load_onnx
from vtensor.errors import VTensorError
from vtensor.language.graph import Graph
from vtensor.language.operators import Context, run_compute
from vtensor.language.tensor import VTensor

#: Equal blocks, whose dims have names that were made up for each.
BLOCK = """
    q{i} = MatMul(x{i}, w{i}) t{i} = Transpose<perm = [0, 2, 1]>(q{i}) s{i} = MatMul(q{i}, t{i})
    p{i} = Softmax(s{i}) o{i} = MatMul(p{i}, q{i}) r{i} = Reshape(o{i}, four)
    u{i} = ReduceSum<keepdims = 1>(r{i}, last) v{i} = Mul(r{i}, u{i}) z{i} = Reshape(v{i}, three)
    x{j} = Add(z{i}, x{i})
"""
ENDS = "m = ReduceMax<axes = [1], keepdims = 0>(s1) n = ReduceMax<axes = [2], keepdims = 0>(s1)"
BLOCKS = 4


def blocks() -> Graph:
    """A network of equal blocks, as files have them: with names of dims that say nothing."""
    body = "".join(BLOCK.format(i=i, j=i + 1) for i in range(BLOCKS)) + ENDS
    outputs = f"float[2, 6, 16] x{BLOCKS}, float[2, 6] m, float[2, 6] n"
    text = f"blocks (float[2, 6, 16] x0) => ({outputs}) {{ {body} }}"
    axes = {"four": [2, 6, 4, 4], "three": [2, 6, 16], "last": [3]}
    weights = {f"w{i}": f32(16, 16, seed=i) for i in range(BLOCKS)}
    arrays = {name: np.array(values, np.int64) for name, values in axes.items()}
    return load_onnx(model(text, 17, **weights, **arrays))


def lowered(name: str, preferences: Preferences) -> tuple[list[str], int]:
    """A network's plan at every level, all of it, and how many calls were evaluated."""
    graph = blocks() if name == "blocks" else build(name, size=64)
    texts, counted = list[str](), Counter[str]()

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


@pytest.mark.parametrize(
    ("name", "part"), [("mobilenet_v2", 0.8), ("resnet50", 0.8), ("blocks", 0.45)]
)
def test_plans_stay_without_the_cache(
    name: str, part: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    preferences = Preferences(operators={"Relu6": "eigen"})
    plans, few = lowered(name, preferences)
    monkeypatch.setattr(calls, "_key", lambda *_: (None, ()))
    expected, many = lowered(name, preferences)
    assert plans == expected
    assert few < part * many


@pytest.mark.parametrize("name", ["blocks", "mobilenet_v2"])
def test_a_key_without_sizes_is_found_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, _ = lowered(name, Preferences())
    kind = Names.kind

    def lacking(*args: Any) -> Any:
        dtype, places, _, *rest = kind(*args)
        return dtype, places, *rest

    monkeypatch.setattr(Names, "kind", lacking)
    with pytest.raises((AssertionError, ValueError, VTensorError)):
        assert lowered(name, Preferences())[0] == expected


FORMS = forms_on("cpu", [Layout.plain({"D1": 2, "D2": 3})])
PLAIN, REFUSED = Variant("toy", FORMS), Variant("toy", FORMS, refused=(Refusal(1, "a", "D1"),))


@pytest.mark.parametrize(
    ("variant", "names", "others"),
    [
        (PLAIN, ("D1", "D2"), True),
        (PLAIN, ("D1",), False),  # the other dim comes from nowhere
        (REFUSED, ("D1", "D2"), False),
    ],
)
def test_a_text_that_names_a_dim_is_of_its_own_call_alone(
    variant: Variant, names: tuple[str, ...], others: bool
) -> None:
    known = _CallResult.of(variant, [VTensor("f32", {"D1": 2, "D2": 3})], names)
    assert known.on(names) is known
    reused = known.on(tuple(f"{name}0" for name in names))
    assert (reused is not None) == others
    if reused is not None:
        assert str(reused.variant.layouts[0]) == "D10 D20"
        assert reused.outputs == (("f32", {"D10": 2, "D20": 3}),)


def test_a_pin_makes_another_call() -> None:
    graph = build("mobilenet_v1", size=32)
    relu = [name for name, node in graph.nodes.items() if node.op_name.startswith("Relu")]
    pins = Preferences(nodes={relu[2]: "numpy"})
    taken = {node.name: node.variant.library for node in resolve(graph, {}, pins).operators}
    assert [taken[name] == "numpy" for name in relu[:4]] == [False, False, True, False]


@pytest.mark.parametrize("look", [True, False])
def test_an_invoker_that_reads_a_constant_is_asked_each_time(bench: Bench, look: bool) -> None:
    @bench.invoker("Pair")
    def pair(ctx: Context, op: object, a: VTensor, b: VTensor, y: VTensor) -> None:
        xs, constant = PTensor(a), PTensor(b)
        flat = look and float(constant.data().flat[0]) > 0
        lib_tagger("toy", [xs.require("CN" if flat else "NC"), constant], [PTensor(y)])

    graph = Graph("constants")
    value = graph.input("x", {"N": 2, "C": 3})
    for number in (0.0, 1.0, 0.0, 1.0):
        added = graph.constant(np.full((2, 3), number, np.float32), "N C")
        value = graph.add(bench.op("Pair"), value, added)
    graph.output(value, "y")
    layouts = [str(node.variant.layouts[0]) for node in resolve(graph.seal()).operators]
    assert layouts == (["NC", "CN", "NC", "CN"] if look else ["NC"] * 4)
