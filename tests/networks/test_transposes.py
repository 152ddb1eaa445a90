"""The plans of ONNX's Transposes: Keras-style exports and ShuffleNet."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from eval.compare import reference
from eval.networks.keras import TO_CHANNELS_LAST, keras_export
from eval.networks.models import light_model, seeded
from ptensor import Layout
from tests.libraries.golden import Golden
from tests.libraries.processes import printed
from vtensor import Session
from vtensor.errors import InputError
from vtensor.report import plan_dict

Array = np.ndarray[Any, Any]
LEADING = "model/conv1/Conv2D__6"


def picture(side: int, batch: int = 1) -> dict[str, Array]:
    """Return feeds of a seeded picture, channels last."""
    shape = (batch, side, side, 3)
    return {"input_1": np.random.default_rng(5).standard_normal(shape).astype(np.float32)}


def steps(session: Session) -> dict[str, dict[str, Any]]:
    """Return the plan's steps by node."""
    return {step["node"]: step for step in plan_dict(session, "")["steps"]}


@pytest.mark.parametrize("mean", [True, False])
@pytest.mark.parametrize("side", [32, 224])
def test_keras_exports_agree_with_onnx_runtime(mean: bool, side: int) -> None:
    model, feeds = keras_export(side, mean=mean), picture(side)
    onnx.checker.check_model(model, full_check=True)
    with Session(model) as session:
        [ours] = session.run(None, feeds)
    np.testing.assert_allclose(ours, reference(model, feeds), atol=1e-5)
    assert ours.max() < 0.9, "a saturated softmax would agree with anything"


def test_every_transpose_of_a_keras_export_moves_nothing() -> None:
    model = keras_export(32)
    with Session(model, optimize="none") as session:
        by_node = steps(session)
        nodes = [node.name for node in model.graph.node if node.op_type == "Transpose"]
        assert len(nodes) == 4
        reasons = {row.node: row.reasons[0] for row in session.conversions}
        for name in nodes:
            assert by_node[name]["kernels"] == []
            assert all(
                reasons[forced].requirement is not None for forced in by_node[name]["forces"]
            )


def test_the_leading_transpose_costs_what_the_first_convolution_asks_for() -> None:
    """A picture that lies as the convolution wants it goes in without any change at all."""
    model, feeds = keras_export(32), picture(32)
    with Session(model, optimize="none") as session:
        wanted = Layout(steps(session)["model/conv1/Conv2D"]["inputs"][0]["layout"])
        order = ["NHWC".index(dim) for dim in wanted.dims]
        x = feeds["input_1"]
        lying = np.ascontiguousarray(x.transpose(order)).transpose(np.argsort(order))
        [ours] = session.run(None, {"input_1": lying})
        assert steps(session)[LEADING]["kernels"] == []
        assert steps(session)[LEADING]["forces"] == []
        assert session.copied == set()
        np.testing.assert_allclose(ours, reference(model, feeds), atol=1e-5)


def test_a_transpose_at_the_end_is_done_at_delivery_unless_asked_otherwise() -> None:
    model = keras_export(32)
    del model.graph.node[-4:], model.graph.output[:]
    assert model.graph.node[-1].op_type == "Transpose"
    assert list(model.graph.node[-1].attribute[0].ints) == TO_CHANNELS_LAST
    last = model.graph.node[-1]
    kind = onnx.helper.make_tensor_value_info(last.output[0], 1, [1, 4, 4, 128])
    model.graph.output.append(kind)
    with Session(model, optimize="none") as session:
        [ours] = session.run(None, picture(32))
        np.testing.assert_allclose(ours, reference(model, picture(32)), atol=1e-4)
        assert steps(session)[last.name]["kernels"] == []


def test_a_symbolic_batch_is_planned_by_each_size() -> None:
    model = keras_export(32, "unk__123")
    with Session(model) as session:
        assert session.inputs[0].shape == (None, 32, 32, 3)
        assert session.inputs[0].dims == ("N", "H", "W", "C")
        assert session.outputs[0].shape[0] is None
        with pytest.raises(InputError, match="no plan yet"):
            _ = session.plan
        plans = []
        for batch in (1, 3, 1):
            feeds = picture(32, batch)
            np.testing.assert_allclose(
                session.run(None, feeds)[0], reference(model, feeds), atol=1e-5
            )
            plans.append(session.plan)
        assert plans[0] is plans[2]
        assert plans[0] is not plans[1]


def plan_text(model: onnx.ModelProto, folder: Path) -> list[str]:
    """Return the steps of ``vtensor plan`` under the lowest cap, which every machine has.

    A process of its own: a library fixes its cap at its first use.
    """
    onnx.save(model, str(file := folder / "model.onnx"))
    options = ["--isa", "sse41", "--optimize", "none", "--threads", "1"]
    table = printed("-m", "vtensor.cli", "plan", file, *options).split("\n\n")[1]
    return re.sub(r"(\.py):\d+", r"\1", table).rstrip().splitlines()


def test_keras_plan(tmp_path: Path, golden: Golden) -> None:
    golden.check("\n".join(plan_text(keras_export(64), tmp_path)))


def test_shufflenet_transposes(tmp_path: Path, golden: Golden) -> None:
    """Each shuffle of channels is a Transpose between two Reshapes, which has to move elements."""
    model = seeded(light_model("shufflenet"), seed=0)
    lines = plan_text(model, tmp_path)
    names = [node.name for node in model.graph.node if node.op_type == "Transpose"]
    rows = [at for at, line in enumerate(lines) if line.split()[1] in names]
    assert len(rows) == len(names) > 0
    golden.check("\n".join(line.rstrip() for at in rows for line in lines[at : at + 2]))
