"""Three real networks, seeded, against ONNX Runtime; and what becomes of them on the way in."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from onnx import ModelProto, numpy_helper

from eval.compare import TOLERANCE, difference, photograph, reference
from eval.networks.models import before_softmax, light_model, light_names, seeded
from tests.libraries.slow import slow_but
from vtensor import Session, load_onnx

NETWORKS = ("squeezenet", "resnet50", "vgg19")

OPERATORS = {
    "squeezenet": {
        "Conv2D": 26,
        "BiasAdd": 26,
        "Relu": 26,
        "Concat": 8,
        "MaxPool": 3,
        "Identity": 1,
        "AvgPool": 1,
        "Softmax": 1,
    },
    "resnet50": {
        "Conv2D": 53,
        "BatchNorm": 53,
        "Relu": 49,
        "Add": 16,
        "MaxPool": 1,
        "AvgPool": 1,
        "Reshape": 1,
        "MatMul": 1,
        "BiasAdd": 1,
        "Softmax": 1,
    },
    "vgg19": {
        "BiasAdd": 19,
        "Relu": 18,
        "Conv2D": 16,
        "MaxPool": 5,
        "MatMul": 3,
        "Identity": 2,
        "Reshape": 1,
        "Softmax": 1,
    },
}


def weights(name: str, seed: int = 0) -> ModelProto:
    """A network up to its softmax, with seeded weights."""
    return seeded(before_softmax(light_model(name)), seed)


@pytest.mark.parametrize("name", NETWORKS)
def test_operators(name: str) -> None:
    graph = load_onnx(light_model(name))
    assert Counter(node.op_name for node in graph.nodes.values()) == OPERATORS[name]
    [entry] = graph.inputs
    assert graph.values[entry].summary() == "f32 N=1 C=3 H=224 W=224"


@pytest.mark.parametrize("name", light_names())
def test_every_network_loads(name: str) -> None:
    graph = load_onnx(light_model(name))
    for value in graph.values.values():
        # Names come from the operators: a numbered one would be a class that nothing named.
        if name not in ("shufflenet", "densenet121", "inception_v2"):
            assert not any(dim.startswith("D") for dim in value.dims), value


@pytest.mark.parametrize("name", slow_but(("squeezenet", "resnet50"), light_names()))
def test_agrees_with_onnx_runtime(name: str) -> None:
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


@pytest.fixture
def damaged() -> ModelProto:
    """SqueezeNet with one weight of one kernel changed."""
    model = weights("squeezenet")
    [tensor] = [t for t in model.graph.initializer if t.name == "fire5/expand3x3_w_0"]
    values = numpy_helper.to_array(tensor).copy()
    values.flat[1000] += 1
    tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    return model


def test_one_wrong_weight_is_seen(damaged: ModelProto) -> None:
    with Session(damaged, threads=2) as session:
        [port] = session.inputs
        feeds = {port.name: photograph(tuple(size or 1 for size in port.shape))}
        [ours] = session.run(None, feeds)
    assert difference(ours, reference(weights("squeezenet"), feeds)) > TOLERANCE


class TestSeeding:
    """The weights themselves."""

    def test_same_seed_same_weights(self) -> None:
        one, two, three = (weights("squeezenet", seed) for seed in (5, 5, 6))
        assert one.SerializeToString() == two.SerializeToString()
        assert one.SerializeToString() != three.SerializeToString()

    @pytest.mark.parametrize("name", ["squeezenet", "resnet50", "shufflenet", "inception_v2"])
    def test_every_weight_is_drawn(self, name: str) -> None:
        model = seeded(light_model(name), 0)
        for tensor in model.graph.initializer:
            values = numpy_helper.to_array(tensor)
            if values.dtype == np.float32:
                assert np.isfinite(values).all()
                assert values.size == 1 or values.std() > 0.01, tensor.name
        assert not any(node.op_type == "ConstantOfShape" for node in model.graph.node)

    def test_light_models_stay_as_they_are(self) -> None:
        light = light_model("squeezenet")
        before = light.SerializeToString()
        seeded(light, 0)
        before_softmax(light)
        assert light.SerializeToString() == before

    def test_unknown_network(self) -> None:
        with pytest.raises(ValueError, match="there are bvlc_alexnet"):
            light_model("resnet51")

    def test_no_softmax_at_the_end(self) -> None:
        with pytest.raises(ValueError, match="not in a Softmax"):
            before_softmax(light_model("densenet121"))

    def test_resnet_keeps_its_scale(self) -> None:
        model = weights("resnet50")
        name = model.graph.input[0].name
        answer = reference(model, {name: photograph((1, 3, 224, 224))})
        assert 0.1 < answer.std() < 10
