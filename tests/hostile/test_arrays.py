"""What a run is given: taken rightly, or refused by type, and the session stays usable."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.frontends.support import f32, model
from vtensor import Session, load_onnx
from vtensor.errors import InputError

X = f32(2, 3)
NEGATED = "g (float[2, 3] x) => (float[2, 3] y) { y = Neg(x) }"


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    """y = -x."""
    with Session(model(NEGATED), threads=1) as made:
        yield made


class Raises:
    """Its protocol fails in a way of its own."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise KeyError("planted")


class Consumed:
    """A DLPack capsule that somebody has taken already."""

    def __init__(self) -> None:
        self.capsule = X.__dlpack__()
        np.from_dlpack(self)

    def __dlpack__(self, **options: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


class Odd(np.ndarray[Any, Any]):
    """A subclass with a mind of its own."""

    def reshape(self, *given: Any, **named: Any) -> Any:
        raise AssertionError("a run does not ask a subclass")

    transpose = copy = reshape


@pytest.mark.parametrize(
    "given",
    [
        X.astype(">f4"),
        np.broadcast_to(X[:1], (2, 3)),
        np.full((2, 3), np.nan, np.float32),
        X.view(Odd),
        X.view(np.recarray),
        X.tolist(),
    ],
    ids=["big-endian", "broadcast", "nan", "subclass", "recarray", "list"],
)
def test_right_answers(session: Session, given: Any) -> None:
    [y] = session.run(None, {"x": given})
    assert type(y) is np.ndarray
    np.testing.assert_array_equal(y, -np.asarray(given))


@pytest.mark.parametrize(
    "given",
    [
        X.astype(object),
        X.astype(complex),
        X.astype(str),
        X.astype(np.float64),
        np.zeros((2, 3), [("a", "f4")]),
        X[:0],
        X[None],
        np.float32(3),
        np.ma.masked_array(X, mask=X > 0),
        memoryview(X),  # type: ignore[arg-type]
        X.tolist()[:1],
        X.tobytes(),
        X.__dlpack__(),
        Consumed(),
        Raises(),
        None,
    ],
    ids=lambda given: type(given).__name__ + str(getattr(given, "dtype", "")),
)
def test_typed_refusals(session: Session, given: Any) -> None:
    with pytest.raises(InputError, match="input 'x'"):
        session.run(None, {"x": given})
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], -X)


@pytest.mark.parametrize("feeds", [None, [X], {}, {"x": X, "z": X}, {"x": X, 3: X}])
def test_wrong_feeds(session: Session, feeds: Any) -> None:
    with pytest.raises(InputError, match="inputs"):
        session.run(None, feeds)


def test_outputs_may_be_asked_for_twice_or_not_at_all(session: Session) -> None:
    first, second = session.run(["y", "y"], {"x": X})
    np.testing.assert_array_equal(first, second)
    assert len(session.run([], {"x": X})) == 1  # all
    wrong: list[Any] = [["z"], [3], [[]], 3, "y"]
    for outputs in wrong:
        with pytest.raises(InputError, match="output"):
            session.run(outputs, {"x": X})


def test_a_mask_is_not_written_through(session: Session) -> None:
    with pytest.raises(InputError, match="masked array"):
        session.run(None, {"x": X}, out={"y": np.ma.masked_array(X.copy(), mask=True)})


@pytest.mark.parametrize("threads", [-3, 0, 10**9, True, "2", 2.0])
def test_wrong_threads(threads: Any) -> None:
    with pytest.raises(InputError, match="must be an integer from 1 to 1024"):
        Session(model(NEGATED), threads=threads)


@pytest.mark.parametrize("shapes", [3, {"x": 3}, {"x": (2**70, 3)}, {"x": ("2", 3)}, {"x": "23"}])
def test_wrong_shapes(shapes: Any) -> None:
    with pytest.raises(InputError, match=r"shapes=|not a sequence of sizes|is no size"):
        load_onnx(model(NEGATED.replace("2,", "n,")), shapes=shapes)
