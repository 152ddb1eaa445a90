"""Outputs into the caller's arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.test_session import image, network
from vtensor import Session, from_array
from vtensor.errors import InputError

Array = np.ndarray[Any, Any]
SHAPE = (1, 16, 24, 24)


@pytest.fixture(scope="module")
def session() -> Session:
    """A small network with the outputs ``y`` and ``last``."""
    return Session(network())


def room(order: tuple[int, ...] = (0, 1, 2, 3)) -> Array:
    """An array to write to, which presents its axes in order and holds them in another."""
    shape = [SHAPE[axis] for axis in order]
    return np.full(shape, np.nan, np.float32).transpose(np.argsort(order))


@pytest.mark.parametrize(
    "into",
    [
        room(),
        room((0, 2, 3, 1)),
        np.full((1, 32, 24, 48), np.nan, np.float32)[:, ::2, ::-1, ::2],
        np.zeros(4 * 16 * 24 * 24 + 1, np.uint8)[1:].view(np.float32).reshape(SHAPE),
    ],
)
def test_any_strides_are_written(session: Session, into: Array) -> None:
    expected = session.run(None, {"x": image()})
    got = session.run(None, {"x": image()}, out={"last": into})
    assert got[1] is into
    for have, want in zip(got, expected, strict=True):
        np.testing.assert_array_equal(have, want)


def test_tensors_and_several(session: Session) -> None:
    y, last = room(), room()
    expected = session.run(["last", "y"], {"x": image()})
    out = {"y": from_array(y, "N C H W"), "last": last}
    got = session.run(["last", "y"], {"x": image()}, out=out)
    np.testing.assert_array_equal(y, expected[1])
    np.testing.assert_array_equal(last, expected[0])
    assert np.shares_memory(got[1], y)


def test_halves_of_one_array_do_not_overlap(session: Session) -> None:
    both = np.zeros((2, *SHAPE), np.float32)
    session.run(None, {"x": image()}, out={"y": both[0], "last": both[1]})
    for have, want in zip(both, session.run(None, {"x": image()}), strict=True):
        np.testing.assert_array_equal(have, want)


def test_what_cannot_be_written_is_refused_before_the_run(session: Session) -> None:
    x = image()
    read_only = room()
    read_only.flags.writeable = False
    one = np.zeros((1, 1, 24, 24), np.float32)
    folded = np.lib.stride_tricks.as_strided(one, SHAPE, (0, 0, 96, 4))
    window = np.lib.stride_tricks.as_strided(np.zeros(10**5, np.float32), SHAPE, (4, 8, 96, 4))
    same = room()
    cases: list[tuple[Any, str]] = [
        ({"z": room()}, "not one of the outputs"),
        ({"y": room()[0]}, "the output has"),
        ({"y": room()[:, :8]}, "the output has"),
        ({"y": room().astype(np.float64)}, "element type f64"),
        ({"y": room().astype(">f4")}, "element type >f4"),
        ({"y": room().astype(object)}, "wanted is"),
        ({"y": read_only}, "read-only"),
        ({"y": folded}, "its elements overlap"),
        ({"y": window}, "its elements overlap"),
        ({"y": x}, "that of input 'x'"),
        ({"y": same, "last": same}, "that of out 'y'"),
        ({"y": [1.0]}, "is no array"),
        ([room()], "is given as"),
    ]
    for out, wanted in cases:
        before = x.copy()
        with pytest.raises(InputError, match=wanted):
            session.run(None, {"x": x}, out=out)
        np.testing.assert_array_equal(x, before)
    with pytest.raises(InputError, match="not one of the outputs"):
        session.run(["y"], {"x": x}, out={"last": room()})
    with pytest.raises(InputError, match="wanted, once"):
        session.run(["y", "y"], {"x": x}, out={"y": room()})


def test_sizes_that_each_run_decides(tmp_path: Path) -> None:
    node = helper.make_node("Relu", ["x"], ["y"])
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", 3]) for n in "xy"]
    model = helper.make_model(
        helper.make_graph([node], "g", ports[:1], ports[1:]),
        opset_imports=[helper.make_opsetid("", 17)],
    )
    onnx.save(model, str(tmp_path / "m.onnx"))
    with Session(tmp_path / "m.onnx") as session:
        x, y = np.array([[-1, 0, 1], [2, -2, 3]], np.float32), np.zeros((2, 3), np.float32)
        session.run(None, {"x": x}, out={"y": y})
        np.testing.assert_array_equal(y, np.maximum(x, 0))
        kept = np.full((3, 3), 7, np.float32)
        with pytest.raises(InputError, match="D0=2 D1=3"):
            session.run(None, {"x": x}, out={"y": kept})
        assert (kept == 7).all()
