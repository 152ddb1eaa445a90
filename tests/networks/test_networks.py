"""Whole networks, seeded, against ONNX Runtime; and what becomes of them on the way in."""

from __future__ import annotations

import json
from collections import Counter
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, numpy_helper

from eval.compare import TOLERANCE, difference, photograph, reference
from eval.networks import build
from eval.networks.models import before_softmax, light_model, light_names, seeded, with_batch
from tests.libraries.processes import printed
from tests.libraries.slow import slow_but
from vtensor import Session, load_onnx, save_onnx

OPERATORS = {
    "squeezenet": "26 Conv2D, 26 BiasAdd, 26 Relu, 8 Concat, 3 MaxPool, 1 Identity, 1 AvgPool",
    "resnet50": "53 Conv2D, 53 BatchNorm, 49 Relu, 16 Add, 1 MaxPool, 1 AvgPool, 1 Reshape, "
    "1 MatMul, 1 BiasAdd",
    "vgg19": "16 Conv2D, 19 BiasAdd, 18 Relu, 5 MaxPool, 3 MatMul, 2 Identity, 1 Reshape",
}


def weights(name: str, seed: int = 0) -> ModelProto:
    """Return a network up to its softmax, with seeded weights."""
    return seeded(before_softmax(light_model(name)), seed)


@pytest.mark.parametrize("name", OPERATORS)
def test_a_network_becomes_these_operators(name: str) -> None:
    graph = load_onnx(light_model(name))
    counts = Counter(node.op_name for node in graph.nodes.values())
    expected = (part.split() for part in f"{OPERATORS[name]}, 1 Softmax".split(", "))
    assert counts == {operator: int(count) for count, operator in expected}
    [entry] = graph.inputs
    assert graph.values[entry].summary() == "f32 N=1 C=3 H=224 W=224"


@pytest.mark.parametrize("name", light_names())
def test_every_network_loads(name: str) -> None:
    graph = load_onnx(light_model(name))
    for value in graph.values.values():
        # Names come from the operators: a numbered one would be a class that nothing named.
        if name not in ("shufflenet", "densenet121", "inception_v2"):
            assert not any(dim.startswith("D") for dim in value.dims), value


@pytest.mark.parametrize("name", slow_but(["squeezenet"], light_names()))
def test_a_network_agrees_with_onnx_runtime(name: str) -> None:
    light = light_model(name)
    model = seeded(before_softmax(light) if light.graph.node[-1].op_type == "Softmax" else light, 0)
    with Session(model, threads=2) as session:
        [port] = session.inputs
        feeds = {port.name: photograph(tuple(size or 1 for size in port.shape))}
        [ours] = session.run(None, feeds)
        [again] = session.run(None, feeds)
        assert session.outputs[0].name == model.graph.output[0].name
    np.testing.assert_array_equal(ours, again)
    assert difference(ours, reference(model, feeds)) <= TOLERANCE


def test_one_wrong_weight_is_seen() -> None:
    model = weights("squeezenet")
    [tensor] = [t for t in model.graph.initializer if t.name == "fire5/expand3x3_w_0"]
    values = numpy_helper.to_array(tensor).copy()
    values.flat[1000] += 1
    tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    with Session(model, threads=2) as session:
        [port] = session.inputs
        feeds = {port.name: photograph(tuple(size or 1 for size in port.shape))}
        [ours] = session.run(None, feeds)
    assert difference(ours, reference(weights("squeezenet"), feeds)) > TOLERANCE


@pytest.mark.parametrize("name", ["mobilenet_v2", "resnet50"])
def test_a_graph_is_fused_and_agrees_with_the_model_that_it_is_written_as(
    name: str, tmp_path: Path
) -> None:
    graph = build(name, size=64)
    save_onnx(graph, tmp_path / "net.onnx")
    [entry] = graph.inputs
    feeds = {entry: photograph(tuple(graph.values[entry].dims.values()))}
    with Session(graph) as session:
        [ours] = session.run(None, feeds)
        steps = session.plan.steps
    assert difference(ours, reference(tmp_path / "net.onnx", feeds)) <= TOLERANCE
    assert len(steps) < len(graph.nodes) / 2


#: What no kernel of a cap may be called.
BEYOND = {"sse41": ("avx",), "avx2": ("avx512",), "avx512": ("amx",), "max": ()}
#: What ``make test`` runs: networks that take two seconds, not ten.
QUICK = [("sse41", "squeezenet"), ("max", "shufflenet")]


@pytest.mark.parametrize(("cap", "name"), slow_but(QUICK, product(BEYOND, light_names())))
def test_a_network_agrees_and_no_kernel_goes_beyond_its_cap(cap: str, name: str) -> None:
    text = printed("-m", "eval.figures.capped", cap, name, "priority", "1,3")
    rows = [json.loads(line) for line in text.splitlines()]
    assert [row["batch"] for row in rows] == [1, 3]
    for row in rows:
        assert row["shape"][0] == row["batch"]
        assert row["difference"] <= TOLERANCE
        assert row["reference"] == []
        assert not [k for k in row["kernels"] for beyond in BEYOND[cap] if beyond in k]


def test_another_batch_rewrites_activations_and_no_weight() -> None:
    model = seeded(light_model("inception_v1"), 0)
    before = model.SerializeToString()
    three = with_batch(model, 3)
    assert model.SerializeToString() == before
    given = {tensor.name: numpy_helper.to_array(tensor) for tensor in three.graph.initializer}
    shapes = [given[n.input[1]].tolist() for n in three.graph.node if n.op_type == "Reshape"]
    assert sorted(shapes) == [[3, 1024], [1000, 1024]]
    assert three.graph.input[0].type.tensor_type.shape.dim[0].dim_value == 3


def test_a_seed_decides_the_weights() -> None:
    first, again, other = (weights("squeezenet", seed).SerializeToString() for seed in (5, 5, 6))
    assert first == again != other


@pytest.mark.parametrize("name", ["squeezenet", "resnet50", "shufflenet", "inception_v2"])
def test_every_weight_is_drawn(name: str) -> None:
    model = seeded(light_model(name), 0)
    for tensor in model.graph.initializer:
        values = numpy_helper.to_array(tensor)
        if values.dtype == np.float32:
            assert np.isfinite(values).all()
            assert values.size == 1 or values.std() > 0.01, tensor.name
    assert not any(node.op_type == "ConstantOfShape" for node in model.graph.node)


def test_light_models_stay_as_they_are() -> None:
    light = light_model("squeezenet")
    before = light.SerializeToString()
    seeded(light, 0)
    before_softmax(light)
    assert light.SerializeToString() == before


def test_resnet_keeps_its_scale() -> None:
    model = weights("resnet50")
    answer = reference(model, {model.graph.input[0].name: photograph((1, 3, 224, 224))})
    assert 0.1 < answer.std() < 10


def test_a_network_that_is_not_there_or_has_no_softmax_is_refused() -> None:
    with pytest.raises(ValueError, match="there are bvlc_alexnet"):
        light_model("resnet51")
    with pytest.raises(ValueError, match="not in a Softmax"):
        before_softmax(light_model("densenet121"))
