"""Lists, numbers and no names as inputs of a session; copies of a session; runs that fail."""

from __future__ import annotations

import asyncio
import copy
import multiprocessing
import pickle
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest

from tests.frontends.support import model
from vtensor import Session
from vtensor.errors import InputError, ModelError, PickleError, QueueFullError
from vtensor.language.dtype import numpy_dtype
from vtensor.runtime.execution.request import Request
from vtensor.storage.inputs import Port, converted

#: An input of each of some element types, which is an output, too.
TYPES = {"x": "float[N,2]", "b": "bool[2]", "i": "int8[2]", "s": "float16"}


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    inputs, outputs = (
        ", ".join(f"{kind} {name}{mark}" for name, kind in TYPES.items()) for mark in ("", "_")
    )
    nodes = " ".join(f"{name}_ = Identity({name})" for name in TYPES)
    with Session(model(f"g ({inputs}) => ({outputs}) {{ {nodes} }}")) as session:
        yield session


FEEDS: dict[str, Any] = {
    "x": np.array([[1, 2]], np.float32),
    "b": np.array([True, False]),
    "i": np.array([-3, 4], np.int8),
    "s": np.float16(2),
}
NAMES = [f"{name}_" for name in TYPES]


@pytest.mark.parametrize("names", [None, [], (), iter([]), np.array([])])
def test_run_without_names_returns_all_outputs(session: Session, names: Any) -> None:
    for _ in range(3):  # later runs take a shorter way than the first one
        outputs = session.run(names, FEEDS)
        assert [y.tolist() for y in outputs] == [[[1, 2]], [True, False], [-3, 4], 2]
    assert len(session.run([], FEEDS, out={"i_": np.zeros(2, np.int8)})) == len(NAMES)
    assert len(session.run_tensors(names, FEEDS)) == len(NAMES)
    assert len(asyncio.run(session.run_async(names, FEEDS))) == len(NAMES)


@pytest.mark.parametrize(
    ("name", "value", "want"),
    [
        ("x", [[1, 2.5]], [[1, 2.5]]),
        ("x", ((1, 2), (3, 4)), [[1, 2], [3, 4]]),
        ("x", [[True, np.float64(0.5)]], [[1, 0.5]]),
        ("x", [np.arange(2), (3, 4)], [[0, 1], [3, 4]]),
        ("x", [[0.1, float("inf")]], [[np.float32(0.1), np.inf]]),
        ("b", [1, 0], [True, False]),
        ("i", [-128, 127], [-128, 127]),
        ("i", (True, 2), [1, 2]),
        ("s", 3, 3),
        ("s", 1.5, 1.5),
    ],
)
def test_lists_and_numbers_are_converted_to_the_element_type(
    session: Session, name: str, value: object, want: object
) -> None:
    feeds = FEEDS | {name: value}
    for _ in range(2):
        [y] = session.run([f"{name}_"], feeds)
        assert y.dtype == np.asarray(FEEDS[name]).dtype
        assert y.tolist() == np.asarray(want, y.dtype).tolist()
    [tensor] = session.run_tensors([f"{name}_"], feeds)
    np.testing.assert_array_equal(tensor.numpy(), y)


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("x", [[1, 2], [3]], "inhomogeneous"),
        ("x", [["1", "2"]], "NumPy makes <U1 of it"),
        ("x", [[None, 1]], "NumPy makes object of it"),
        ("x", [[1e300, 1]], "out of its range"),
        ("x", [[10**400, 1]], "NumPy makes object of it"),
        ("x", [[1j, 1]], "NumPy makes complex128 of it"),
        ("x", [1, 2], r"rank 1 was given \(shape \(2,\)\)"),
        ("x", [], r"rank 1 was given \(shape \(0,\)\)"),
        ("b", [2, 0], "out of its range"),
        ("i", [128, 0], "out of its range"),
        ("i", [1.0, 2], "NumPy makes float64 of it"),
        ("s", 1e9, "out of its range"),
        ("s", "1", "str is no array"),
        ("s", None, "NoneType is no array"),
        # Python's numbers alone have no element type yet.
        ("x", np.zeros((1, 2)), "element type"),
        ("x", np.float64(1), "element type|rank"),
        ("x", np.zeros((1, 2), ml_dtypes.bfloat16), "element type"),
    ],
)
def test_value_that_cannot_be_converted_is_named(
    session: Session, name: str, value: object, why: str
) -> None:
    with pytest.raises(InputError, match=why) as caught:
        session.run(None, FEEDS | {name: value})
    assert f"input {name!r}: " in str(caught.value)
    assert f"wanted is {name} : " in str(caught.value) or "is no array;" in str(caught.value)


@pytest.mark.parametrize(
    ("dtype", "value", "fits"),
    [
        ("bf16", [1.5, float("inf")], True),
        ("bf16", [1e39], False),
        ("f8e5m2", [57344.0], True),
        ("f8e5m2", [1e6], False),
        ("s4", [-8, 7], True),
        ("s4", [8], False),
        ("u64", [2**63], True),
        ("u64", [-1], False),
        ("s64", [-(2**63), 2**53 + 1], True),
        ("s64", [2**63], False),
        ("u8", [256], False),
        ("c64", [1j, 2], True),
        ("f64", [2**63, 0.1], True),
        ("s32", [], True),
    ],
)
def test_every_element_type_has_its_range(dtype: str, value: list[Any], fits: bool) -> None:
    port = Port("x", dtype, (None,), ("N",))
    if fits:
        array = converted(value, port)
        assert array.dtype == numpy_dtype(dtype)
        np.testing.assert_array_equal(array, np.array(value, array.dtype))
    else:
        with pytest.raises(InputError, match=f"no array of {dtype}"):
            converted(value, port)


def test_wrong_arguments_are_typed_errors(session: Session) -> None:
    wrong: Any = 5
    proto = model("g (float[N,2] x) => (float[N,2] y) { y = Relu(x) }")
    Session(proto, calibrate={"x": [[1, 2]]}).close()
    with pytest.raises(InputError, match="calibrate: input 'x': this list is no array of f32"):
        Session(proto, calibrate={"x": [[1], [2, 3]]})
    with pytest.raises(InputError, match="plan=5 is no path of a lock file"):
        Session(proto, plan=wrong)
    with pytest.raises(InputError, match="tolerances=5 is no list of numbers"):
        session.frontier(wrong)
    with pytest.raises(InputError, match="outputs are given as a list of names"):
        session.run(b"x_", FEEDS)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="input 'x': list is no array"):
        session.bind(FEEDS | {"x": [[1, 2]], "s": np.array(2, np.float16)})
    with pytest.raises(ModelError, match="NoneType is no model"):
        Session(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, pickle.dumps])
def test_session_is_neither_copied_nor_sent_to_a_process(session: Session, how: Any) -> None:
    session.run(None, FEEDS)
    bound = session.bind(FEEDS | {"s": np.array(2, np.float16)})
    for owner in (session, bound, session.plan):
        name = type(owner).__name__
        with pytest.raises(PickleError, match=f"a {name} is neither copied") as error:
            how(owner)
        assert isinstance(error.value, TypeError)  # as of Python's own objects
        assert "open a Session in each process" in str(error.value)
    session.run(None, FEEDS)
    child = multiprocessing.get_context("spawn").Process(target=print, args=(session,))
    with pytest.raises(PickleError):
        child.start()
    for description in (session.inputs, session.memory, session.conversions):
        copied = pickle.loads(pickle.dumps(description))
        assert copied == copy.deepcopy(description) == description


def test_run_never_happens_when_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    starts, out = threading.Thread.start, np.zeros(2, np.float32)

    def start(thread: threading.Thread) -> None:
        if thread.name.startswith("vtensor-run"):
            raise RuntimeError("can't start new thread")
        starts(thread)

    async def runs(session: Session) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", start)
            with pytest.raises(QueueFullError, match="no thread can be started"):
                await session.run_async(None, {"x": np.ones(2, np.float32)}, out={"y": out})
        [y] = await session.run_async(None, {"x": np.full(2, 2, np.float32)})
        assert y.tolist() == [-2, -2]

    with Session(model("g (float[2] x) => (float[2] y) { y = Neg(x) }"), cache_dir=None) as session:
        asyncio.run(runs(session))
        # A run that was queued before this one has begun when it ends.
        asyncio.run(session.run_async(None, {"x": np.ones(2, np.float32)}))
    assert out.tolist() == [0, 0]


def test_failed_run_is_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """g (float[N] x, int64[2] shape, int64[k] places) => (float[k, b] y)
        { r = Reshape(x, shape) y = Gather(r, places) }"""
    onnx.save(model(text), tmp_path / "m.onnx")
    feeds: dict[str, Any] = {
        "x": np.arange(6, dtype=np.float32),
        "shape": np.array([2, 3]),
        "places": np.zeros(2000, np.int64),
    }
    with Session(tmp_path / "m.onnx", cache_dir=tmp_path / "cache") as session:
        session.run(None, feeds)
    runs, run = list[Request](), Request.run

    def counted(request: Request, *operands: Any, **named: Any) -> Any:
        runs.append(request)
        return run(request, *operands, **named)

    monkeypatch.setattr(Request, "run", counted)
    with Session(tmp_path / "m.onnx", cache_dir=tmp_path / "cache") as session:
        with pytest.raises(InputError, match="99"):
            session.run(None, feeds | {"places": np.full(2000, 99)})
        assert len(runs) == 1
