"""Networks in narrow types, as the usual tools write them, against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
import pytest
from onnx import ModelProto, numpy_helper

from eval.narrow.quantised import BITS4, CONVERSIONS, DYNAMIC, STATIC, prepared, quiet
from tests.frontends.support import runtime
from tests.libraries.slow import slow_but
from tests.networks.drawn import FAMILIES, Array, inputs_of
from tests.networks.mixed import mixed
from tests.networks.single import OPERATORS, Single
from vtensor import Session

#: What ONNX Runtime computes node by node.
unoptimised = partial(runtime, optimised=False)

#: Static conversions and families that ``make test`` runs.
QUICK = [
    ("mobile", "qdq-u8s8-tensor"),
    ("mobile", "qop-s8s8-channel"),
    ("efficient", "qop-u8s8-tensor"),
    ("detector", "qdq-s8s8-channel"),
    ("transformer", "qdq-u8s8-channel"),
]


@cache
def converted(family: str, conversion: str) -> ModelProto:
    """Return a family's network in a conversion of ``eval/narrow/quantised.py``."""
    with TemporaryDirectory() as folder, quiet():
        file, model = Path(folder) / "narrow.onnx", prepared(FAMILIES[family]())
        CONVERSIONS[conversion](model, file, inputs_of(model))
        return onnx.load(file)


def computed(model: ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    """Return what a session computes; no step of its plan calls back into Python."""
    with Session(model, threads=2) as session:
        outputs = session.run(None, dict(feeds))
        assert [step.op for step in session.plan.steps if step.python] == []
        return [np.asarray(output) for output in outputs]


def steps_of(model: ModelProto) -> list[float]:
    """Return the scale of each output that a DequantizeLinear writes, and 0 for other outputs."""
    scales = {row.name: numpy_helper.to_array(row) for row in model.graph.initializer}
    last = {node.output[0]: node for node in model.graph.node if node.op_type == "DequantizeLinear"}
    return [
        float(scales[last[port.name].input[1]].max()) if port.name in last else 0.0
        for port in model.graph.output
    ]


def apart(model: ModelProto, feeds: Mapping[str, Array]) -> list[float]:
    """Return the largest difference of each output from ONNX Runtime's, in steps of its scale."""
    return [
        float(np.abs(ours - theirs).max() / step) if step else float(np.abs(ours - theirs).max())
        for ours, theirs, step in zip(
            computed(model, feeds), unoptimised(model, feeds), steps_of(model), strict=True
        )
    ]


@pytest.mark.parametrize(
    ("family", "conversion"),
    slow_but(QUICK, [(family, how) for family in FAMILIES for how in STATIC]),
)
def test_a_quantised_network_is_within_one_step(family: str, conversion: str) -> None:
    model = converted(family, conversion)
    for seed, batch in ((0, 2), (1, 3)):
        feeds = inputs_of(model, seed, batch, length=5 + batch)
        assert max(apart(model, feeds)) <= 1.001


def test_one_wrong_weight_of_a_quantised_network_is_seen() -> None:
    model = converted("mobile", "qdq-u8s8-tensor")
    feeds, wrong = inputs_of(model), onnx.ModelProto.FromString(model.SerializeToString())
    [tensor] = [t for t in wrong.graph.initializer if list(t.dims) == [16, 10]]
    values = numpy_helper.to_array(tensor).copy()
    values[:, 3] = -values[:, 3]
    tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    [ours], [theirs] = computed(wrong, feeds), unoptimised(model, feeds)
    assert np.abs(ours - theirs).max() > steps_of(model)[0] * 1.001


@pytest.mark.parametrize(
    ("family", "conversion"),
    slow_but(
        [("transformer", "dynamic-s8-tensor"), ("recogniser", "dynamic-s8-channel")],
        [(family, how) for family in FAMILIES for how in DYNAMIC],
    ),
)
def test_a_network_with_scales_of_each_run_agrees(family: str, conversion: str) -> None:
    """A value halfway between two steps may fall to either: that is one step of 255."""
    model = converted(family, conversion)
    for seed in (0, 1):
        feeds = inputs_of(model, seed)
        for ours, theirs in zip(computed(model, feeds), unoptimised(model, feeds), strict=True):
            np.testing.assert_allclose(ours, theirs, atol=np.abs(theirs).max() / 255)


#: How far ONNX Runtime's answers may be: its QLinearSoftmax multiplies by 1 / scale rounded down,
#: and int8 above 127 becomes negative in it.
ONE_STEP = {"QLinearSoftmax": 1}


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("part", slow_but([(0,)], [(part,) for part in range(20)]))
def test_a_single_operator_gives_the_same_bits(operator: str, part: int) -> None:
    for seed in range(3 * part, 3 * part + 3):
        one = Single(1000 * seed + len(operator))
        model = OPERATORS[operator](one)
        [ours], [theirs] = computed(model, one.feeds), unoptimised(model, one.feeds)
        assert ours.dtype == theirs.dtype
        if operator in ONE_STEP:
            difference = ours.astype(np.uint8) - theirs.astype(np.uint8)
            assert np.abs(difference.astype(np.int8)).max() <= ONE_STEP[operator]
        else:
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("seed", slow_but(range(6), range(400)))
def test_random_pairs_of_conversions(seed: int) -> None:
    """A tie that falls to the other side grows to a few steps at an output, of few elements."""
    model, steps = mixed(seed, opset=10 + seed % 12)
    feeds = inputs_of(model, seed, batch=1 + seed % 3)
    outputs = computed(model, feeds), unoptimised(model, feeds)
    for ours, theirs, step in zip(*outputs, steps.values(), strict=True):
        assert ours.dtype == theirs.dtype
        difference = np.abs(ours.astype(np.float64) - theirs) / (step or np.abs(theirs).max() / 255)
        assert difference.max() <= 3.01
        assert difference.mean() <= 0.05


@pytest.mark.parametrize(
    "family", slow_but([("mobile",), ("transformer",)], [(f,) for f in FAMILIES])
)
def test_a_network_in_f16_is_at_least_as_accurate_as_each_node_rounded(family: str) -> None:
    model, wide = converted(family, "f16"), FAMILIES[family]()
    feeds = inputs_of(model)
    ours, theirs, exact = (
        computed(model, feeds),
        unoptimised(model, feeds),
        unoptimised(wide, feeds),
    )
    for output, other, due in zip(ours, theirs, exact, strict=True):
        assert output.dtype == np.float32
        largest = np.abs(due).max()
        rounded = np.abs(other - due).max()  # ONNX Runtime computes in f32 between its casts
        assert np.abs(output - due).max() <= max(4 * rounded, largest * 2**-9)


@pytest.mark.parametrize("conversion", BITS4)
def test_weights_of_four_bits(conversion: str) -> None:
    model = converted("transformer", conversion)
    assert any(node.op_type == "MatMulNBits" for node in model.graph.node)
    for length in (1, 40):
        feeds = inputs_of(model, batch=1, length=length)
        [ours], [theirs] = computed(model, feeds), unoptimised(model, feeds)
        bound = 2e-2 if "level4" in conversion else 1e-5  # level 4 rounds activations to 8 bits
        np.testing.assert_allclose(ours, theirs, atol=np.abs(theirs).max() * bound)
