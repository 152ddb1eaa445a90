"""Outputs and inputs whose rank the model does not say: each rank is a plan of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto

from tests.frontends.support import Array, f32, model, runtime, same_as_runtime
from tests.libraries.command import vtensor
from vtensor import Session, load_onnx
from vtensor.errors import InputError, LockError, ModelError

#: In ONNX's text form, ``float[]`` is of any rank.
RELU = "g (float[] x) => (float[] y) { y = Relu(x) }"
BRANCHES = """y = If(c) < then_branch = a() => (float[n, k] t) { t = Relu(x) },
    else_branch = b() => (float t) { t = ReduceSum<keepdims = 0>(x) } >"""


def check(session: Session, proto: ModelProto, feeds: Mapping[str, Array]) -> None:
    """Check that a session answers as ONNX Runtime does, in new arrays and in given ones."""
    ours = same_as_runtime(session, proto, feeds)
    out = {port.name: np.empty_like(y) for port, y in zip(session.outputs, ours, strict=True)}
    session.run(None, feeds, out=out)
    for mine, written in zip(ours, out.values(), strict=True):
        np.testing.assert_array_equal(mine, written)


def check_all(proto: ModelProto, feeds: Sequence[Mapping[str, Array]], folder: Path) -> None:
    """Check feeds with an empty cache and with a full one, by locked plans, and by bindings."""
    path, lock = folder / "m.onnx", folder / "plan.toml"
    onnx.save(proto, path)
    for _ in range(2):
        with Session(path, cache_dir=folder / "cache") as session:
            for arrays in (*feeds, *reversed(feeds)):
                check(session, proto, arrays)
                session.lock().write(lock)
                with Session(path, plan=lock, cache_dir=None) as locked:
                    check(locked, proto, arrays)


#: Models and feeds: outputs whose rank is open, which values or sizes decide.
OUTPUTS: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "If": (
        f"(float[2, 3] x, bool c) => (float[] y) {{ {BRANCHES} }}",
        [{"x": f32(2, 3), "c": np.array(value)} for value in (True, False)],
    ),
    "Squeeze": (
        "(float[n, 1, m] x) => (float[] y) { y = Squeeze(x) }",
        [{"x": f32(*sizes)} for sizes in ((2, 1, 3), (1, 1, 3), (1, 1, 1))],
    ),
    "HannWindow": (
        "(int64 n) => (float[] y) { y = HannWindow(n) }",
        [{"n": np.array(size)} for size in (5, 8)],
    ),
    "Reshape": (
        "(float[a, b] x, int64[k] s) => (float[] y) { y = Reshape(x, s) }",
        [{"x": f32(2, 6), "s": np.array(s)} for s in ([12], [3, 4], [2, -1, 3])],
    ),
}
#: Nodes that deliver a scalar.
SCALARS = (
    *("y = ReduceMean<keepdims = 0>(x)", "s = Softmax(x) y = ReduceMax<keepdims = 0>(s)"),
    "f = Flatten<axis = 0>(x) t = Transpose(f) d = MatMul(f, t) y = Squeeze(d)",
    *("t = Transpose(x) d = MatMul(t, x) y = Det(d)", "y = Size(x)"),
    "s = Shape(x) z = Constant<value_int = 0>() y = Gather(s, z)",
    "s = Shape(x) y = ReduceProd<keepdims = 0>(s)",
)
RANKS = [((3,),), ((2, 3),), ((1, 2, 3, 3),), ((),), ((4,),)]
#: Inputs, nodes, and shapes of the inputs, of which the rank of some is open.
INPUTS: list[tuple[str, str, Sequence[Sequence[tuple[int, ...]]]]] = [
    ("float[] x", "y = Relu(x)", RANKS),
    ("float[] x", "y = Identity(x)", RANKS),
    *(("float[n, 3] x", nodes, [((2, 3),), ((5, 3),)]) for nodes in SCALARS),
    (
        *("float[] x, float[n, 3] z", "t = Add(x, z) y = Relu(t)"),
        [((3,), (2, 3)), ((4, 2, 3), (2, 3)), ((1, 3), (5, 3))],
    ),
    (
        *("float[] x, float[] z", "t = Mul(x, z) y = Softmax(t)"),
        [((3,), (2, 3)), ((2, 3), (3,)), ((2, 1), (2, 1, 4))],
    ),
    ("float[] x", "s = Shape(x) o = ConstantOfShape(s) y = Sub(x, o)", [((2, 3),), ((4,),)]),
    ("float[] x", "y = Flatten(x)", [((2, 3, 2),), ((4, 5),)]),
    (
        *("float[] x, float[] w", "y = MatMul(x, w)"),
        [((2, 3), (3, 4)), ((3,), (3,)), ((2, 2, 3), (3, 4))],
    ),
    (
        *("float[] x, float[2, 3, 3, 3] w", "t = Conv(x, w) y = Relu(t)"),
        [((1, 3, 5, 5), (2, 3, 3, 3)), ((2, 3, 4, 6), (2, 3, 3, 3))],
    ),
]


@pytest.mark.parametrize("name", OUTPUTS)
def test_outputs_of_any_rank(name: str, tmp_path: Path) -> None:
    text, feeds = OUTPUTS[name]
    proto = model(f"g {text}")
    check_all(proto, feeds, tmp_path)
    with Session(proto) as session:
        assert [str(port) for port in session.outputs] == ["y : f32 of any rank"]
        assert session.outputs[0].any_rank
    with pytest.raises(InputError, match="'y' is of any rank"):
        Session(proto, output_layouts={"y": "D0 D1"})
    with Session(proto, output_layouts={"y": "ANY"}) as session:
        check(session, proto, feeds[0])


@pytest.mark.parametrize(("inputs", "nodes", "shapes"), INPUTS)
def test_inputs_of_any_rank_and_scalars_of_no_declared_shape(
    inputs: str, nodes: str, shapes: Sequence[Sequence[tuple[int, ...]]], tmp_path: Path
) -> None:
    kind = "int64" if any(op in nodes for op in ("Size", "Gather", "ReduceProd")) else "float"
    rank = "[a, b]" if "y = Flatten" in nodes else "[]"
    proto = model(f"g ({inputs}) => ({kind}{rank} y) {{ {nodes} }}")
    names = [port.name for port in proto.graph.input]
    feeds = [
        {
            name: f32(*shape, seed=at)
            for at, (name, shape) in enumerate(zip(names, row, strict=True))
        }
        for row in shapes
    ]
    check_all(proto, feeds, tmp_path)
    with Session(proto) as session:
        for arrays in feeds:
            binding = session.bind(arrays)
            binding.run()
            [y] = runtime(proto, arrays)
            np.testing.assert_allclose(binding.outputs["y"], y, rtol=1e-5, atol=1e-5)


def test_an_input_of_any_rank_whose_value_decides() -> None:
    proto = model("g (float[] x, int64[] s) => (float[] y) { y = Reshape(x, s) }")
    with Session(proto) as session:
        for sizes, target in (((2, 6), [3, 4]), ((12,), [-1, 2, 2]), ((2, 6), [12])):
            check(session, proto, {"x": f32(*sizes), "s": np.array(target)})


def test_other_orders_in_memory() -> None:
    with Session(model(RELU)) as session:
        check(session, model(RELU), {"x": np.asfortranarray(f32(3, 4))})
        assert "x" not in session.copied
        check(session, model(RELU), {"x": f32(6, 4)[::2]})


def test_options_that_name_no_layout() -> None:
    with pytest.raises(InputError, match="'x' is of any rank"):
        Session(model(RELU), input_layouts={"x": "D1 D0"})
    with Session(model(RELU)) as session:
        assert [str(port) for port in session.inputs] == ["x : f32 of any rank"]
        with pytest.raises(InputError, match="type f64 was given, wanted is x : f32 of any"):
            session.run(None, {"x": np.ones(2)})
        with pytest.raises(InputError, match="input 'x' has open sizes"):
            session.profile()


def test_a_lock_is_of_one_rank(tmp_path: Path) -> None:
    with Session(model(RELU)) as session:
        check(session, model(RELU), {"x": f32(2, 3)})
        session.lock().write(tmp_path / "plan.toml")
    with Session(model(RELU), plan=tmp_path / "plan.toml") as session:
        check(session, model(RELU), {"x": f32(2, 3)})
        with pytest.raises(LockError):
            session.run(None, {"x": f32(3)})


def test_the_command_line_and_load_onnx(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(model(RELU), path)
    refused = vtensor("plan", path)
    assert refused.exit_code == 1
    assert "input 'x' declares no rank; give its sizes" in refused.stderr
    for command in ("plan", "explain"):
        ran = vtensor(command, path, "--shape", "x=2,3")
        assert ran.exit_code == 0, ran.output
    with pytest.raises(InputError, match="input 'x' declares no rank"):
        load_onnx(path)
    assert load_onnx(path, shapes={"x": (2, 3)}).values["x"].dims == {"D0": 2, "D1": 3}


def test_an_output_of_no_known_element_type_is_refused() -> None:
    proto = model(f"g (float[2, 3] x, bool c) => (float y) {{ {BRANCHES} }}")
    proto.graph.output[0].type.CopyFrom(onnx.TypeProto())
    proto.graph.output[0].type.tensor_type.SetInParent()
    with pytest.raises(ModelError, match="output 'y'"):
        Session(proto)


def test_a_scalar_that_is_declared_and_delivers_more() -> None:
    with Session(model("g (float[n] x) => (float y) { y = Relu(x) }")) as session:
        assert session.run(None, {"x": f32(2)})[0].shape == (2,)
