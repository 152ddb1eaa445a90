"""Outputs and inputs whose rank the model does not say: each rank is a plan of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto
from typer.testing import CliRunner

from tests.frontends.support import Array, f32, model, runtime
from tests.libraries.processes import printed
from vtensor import Session, load_onnx
from vtensor.cli import app
from vtensor.errors import InputError, LockError, ModelError
from vtensor.runtime.cache import plans

#: A model that delivers a scalar of open sizes, and declares nothing of it: its nodes.
SCALARS = [
    "y = ReduceMean<keepdims = 0>(x)",
    "y = Size(x)",
    "s = Softmax(x) y = ReduceMax<keepdims = 0>(s)",
    "f = Flatten<axis = 0>(x) t = Transpose(f) d = MatMul(f, t) y = Squeeze(d)",
    "s = Shape(x) z = Constant<value_int = 0>() y = Gather(s, z)",
    "s = Shape(x) y = ReduceProd<keepdims = 0>(s)",
    "t = Transpose(x) d = MatMul(t, x) y = Det(d)",
]
BRANCHES = """y = If(c) < then_branch = a() => (float[n, k] t) { t = Relu(x) },
    else_branch = b() => (float t) { t = ReduceSum<keepdims = 0>(x) } >"""


def without_shapes(text: str, *names: str) -> ModelProto:
    """A model some of whose inputs and outputs declare no shape."""
    proto = model(text)
    for value in (*proto.graph.input, *proto.graph.output):
        if value.name in names:
            value.type.tensor_type.ClearField("shape")
    return proto


def check(session: Session, proto: ModelProto, feeds: Mapping[str, Array]) -> None:
    """A session says what ONNX Runtime says, in new arrays and in given ones."""
    ours, theirs = session.run(None, feeds), runtime(proto, feeds)
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.shape == np.shape(other)
        np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-5)
    out = {port.name: np.empty_like(one) for port, one in zip(session.outputs, ours, strict=True)}
    session.run(None, feeds, out=out)
    for mine, written in zip(ours, out.values(), strict=True):
        np.testing.assert_array_equal(mine, written)


def plans_of(proto: ModelProto, feeds: Sequence[Mapping[str, Array]], folder: Path) -> None:
    """Run feeds with an empty cache and with a full one, and by plans that were written down."""
    path = folder / "m.onnx"
    onnx.save(proto, path)
    for _ in range(2):
        with Session(path, cache_dir=folder / "cache") as session:
            for given in (*feeds, *reversed(feeds)):
                check(session, proto, given)
                session.lock().write(folder / "plan.toml")
                with Session(path, plan=folder / "plan.toml", cache_dir=None) as locked:
                    check(locked, proto, given)


@pytest.mark.parametrize("nodes", SCALARS)
def test_scalars_without_a_declared_shape(nodes: str, tmp_path: Path) -> None:
    kind = "int64" if "Shape" in nodes or "Size" in nodes else "float"
    proto = without_shapes(f"g (float[n, 3] x) => ({kind}[] y) {{ {nodes} }}", "y")
    plans_of(proto, [{"x": f32(2, 3)}, {"x": f32(5, 3)}], tmp_path)
    with Session(proto) as session:
        binding = session.bind({"x": f32(2, 3)})
        binding.run()
        np.testing.assert_allclose(
            binding.outputs["y"], runtime(proto, {"x": f32(2, 3)})[0], rtol=1e-5, atol=1e-5
        )


@pytest.mark.parametrize(
    ("text", "feeds"),
    [
        (
            f"g (float[2, 3] x, bool c) => (float[] y) {{ {BRANCHES} }}",
            [{"x": f32(2, 3), "c": np.array(value)} for value in (True, False)],
        ),
        (
            "g (float[n, 1, m] x) => (float[] y) { y = Squeeze(x) }",
            [{"x": f32(*sizes)} for sizes in ((2, 1, 3), (1, 1, 3), (1, 1, 1))],
        ),
        (
            "g (int64 n) => (float[] y) { y = HannWindow(n) }",
            [{"n": np.array(size)} for size in (5, 8)],
        ),
        (
            "g (float[a, b] x, int64[k] s) => (float[] y) { y = Reshape(x, s) }",
            [{"x": f32(2, 6), "s": np.array(s)} for s in ([12], [3, 4], [2, -1, 3])],
        ),
    ],
    ids=["If", "Squeeze", "HannWindow", "Reshape"],
)
def test_outputs_of_any_rank(text: str, feeds: list[dict[str, Array]], tmp_path: Path) -> None:
    proto = without_shapes(text, "y")
    plans_of(proto, feeds, tmp_path)
    with Session(proto) as session:
        [port] = session.outputs
        assert port.any_rank
        assert str(port) == "y : f32 of any rank"
    with pytest.raises(InputError, match="'y' is of any rank"):
        Session(proto, output_layouts={"y": "D0 D1"})
    with Session(proto, output_layouts={"y": "ANY"}) as session:
        check(session, proto, feeds[0])


RANKS = [(3,), (2, 3), (1, 2, 3, 3), (), (4,)]


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("g (float[] x) => (float[] y) { y = Relu(x) }", [{"x": s} for s in RANKS]),
        ("g (float[] x) => (float[] y) { y = Identity(x) }", [{"x": s} for s in RANKS]),
        (
            "g (float[] x, float[n, 3] z) => (float[] y) { t = Add(x, z) y = Relu(t) }",
            [{"x": (3,), "z": (2, 3)}, {"x": (4, 2, 3), "z": (2, 3)}, {"x": (1, 3), "z": (5, 3)}],
        ),
        (
            "g (float[] x, float[] z) => (float[] y) { t = Mul(x, z) y = Softmax(t) }",
            [{"x": (3,), "z": (2, 3)}, {"x": (2, 3), "z": (3,)}, {"x": (2, 1), "z": (2, 1, 4)}],
        ),
        (
            "g (float[] x) => (float[] y) { s = Shape(x) o = ConstantOfShape(s) y = Sub(x, o) }",
            [{"x": (2, 3)}, {"x": (4,)}],
        ),
        (
            "g (float[] x) => (float[a, b] y) { y = Flatten(x) }",
            [{"x": (2, 3, 2)}, {"x": (4, 5)}],
        ),
        (
            "g (float[] x, float[] w) => (float[] y) { y = MatMul(x, w) }",
            [{"x": (2, 3), "w": (3, 4)}, {"x": (3,), "w": (3,)}, {"x": (2, 2, 3), "w": (3, 4)}],
        ),
        (
            "g (float[] x, float[2, 3, 3, 3] w) => (float[] y) { t = Conv(x, w) y = Relu(t) }",
            [{"x": (1, 3, 5, 5), "w": (2, 3, 3, 3)}, {"x": (2, 3, 4, 6), "w": (2, 3, 3, 3)}],
        ),
    ],
)
def test_inputs_of_any_rank(
    text: str, shapes: list[dict[str, tuple[int, ...]]], tmp_path: Path
) -> None:
    names = [name for name in "xyzw" if f"float[] {name}" in text]
    proto = without_shapes(text, *names)
    feeds = [
        {name: f32(*size, seed=seed) for seed, (name, size) in enumerate(one.items())}
        for one in shapes
    ]
    plans_of(proto, feeds, tmp_path)
    with Session(proto) as session:
        for given in feeds:
            binding = session.bind(given)
            binding.run()
            np.testing.assert_allclose(
                binding.outputs["y"], runtime(proto, given)[0], rtol=1e-5, atol=1e-5
            )


def test_an_input_of_any_rank_whose_value_decides() -> None:
    text = "g (float[] x, int64[] s) => (float[] y) { y = Reshape(x, s) }"
    proto = without_shapes(text, "x", "y", "s")
    with Session(proto) as session:
        for sizes, target in (((2, 6), [3, 4]), ((12,), [-1, 2, 2]), ((2, 6), [12])):
            check(session, proto, {"x": f32(*sizes), "s": np.array(target)})


def test_other_orders_in_memory() -> None:
    proto = without_shapes("g (float[] x) => (float[] y) { y = Relu(x) }", "x", "y")
    x = np.asfortranarray(f32(3, 4))
    with Session(proto) as session:
        check(session, proto, {"x": x})
        assert "x" not in session.copied
        check(session, proto, {"x": f32(6, 4)[::2]})


def test_another_process(tmp_path: Path) -> None:
    proto = without_shapes("g (float[] x) => (float[] y) { y = Exp(x) }", "x", "y")
    onnx.save(proto, tmp_path / "m.onnx")
    code = f"""
import numpy as np
from vtensor import Session
with Session({str(tmp_path / "m.onnx")!r}, cache_dir={str(tmp_path / "cache")!r}) as session:
    for shape in ((2,), (2, 3), (), (4, 1, 2)):
        [y] = session.run(None, {{"x": np.ones(shape, np.float32)}})
        assert y.shape == shape and np.allclose(y, np.e), y
"""
    for _ in range(2):
        printed("-c", code)


def test_options_that_name_no_layout() -> None:
    proto = without_shapes("g (float[] x) => (float[] y) { y = Relu(x) }", "x", "y")
    with pytest.raises(InputError, match="'x' is of any rank"):
        Session(proto, input_layouts={"x": "D1 D0"})
    with Session(proto) as session:
        assert [str(port) for port in session.inputs] == ["x : f32 of any rank"]
        with pytest.raises(
            InputError, match="element type f64 was given, wanted is x : f32 of any"
        ):
            session.run(None, {"x": np.ones(2)})
        with pytest.raises(InputError, match="input 'x' has open sizes"):
            session.profile()


def test_a_lock_is_of_one_rank(tmp_path: Path) -> None:
    proto = without_shapes("g (float[] x) => (float[] y) { y = Relu(x) }", "x", "y")
    with Session(proto) as session:
        check(session, proto, {"x": f32(2, 3)})
        session.lock().write(tmp_path / "plan.toml")
    with Session(proto, plan=tmp_path / "plan.toml") as session:
        check(session, proto, {"x": f32(2, 3)})
        with pytest.raises(LockError):
            session.run(None, {"x": f32(3)})


def test_the_command_line_and_load_onnx(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(without_shapes("g (float[] x) => (float[] y) { y = Relu(x) }", "x", "y"), path)
    refused = CliRunner().invoke(app, ["plan", str(path)])
    assert refused.exit_code == 1
    assert "input 'x' declares no rank; give its sizes" in refused.stderr
    for command in ("plan", "explain"):
        result = CliRunner().invoke(app, [command, str(path), "--shape", "x=2,3"])
        assert result.exit_code == 0, result.output
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
    proto = model("g (float[n] x) => (float y) { y = Relu(x) }")
    with Session(proto) as session:
        [y] = session.run(None, {"x": f32(2)})
    assert y.shape == (2,)


def test_plans_on_disk_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Other tests of this process may have registered operators.
    monkeypatch.setattr(plans, "no_plugins", lambda: True)
    proto = without_shapes("g (float[] x) => (float[] y) { y = Relu(x) }", "x", "y")
    onnx.save(proto, tmp_path / "m.onnx")
    x = f32(3, 4)
    for known in (False, True, True):  # the first one saves its plan
        with Session(tmp_path / "m.onnx", cache_dir=tmp_path / "cache") as session:
            np.testing.assert_array_equal(session.run(None, {"x": x})[0], np.maximum(x, 0))
            assert (session._runner.open().source._loaded_once is None) == known
