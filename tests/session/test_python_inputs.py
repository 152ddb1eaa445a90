"""What Python programs give a session beside arrays: lists, numbers, no names; and copies of it."""

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
    given = ", ".join(f"{kind} {name}" for name, kind in TYPES.items())
    made = ", ".join(f"{kind} {name}_" for name, kind in TYPES.items())
    nodes = " ".join(f"{name}_ = Identity({name})" for name in TYPES)
    with Session(model(f"g ({given}) => ({made}) {{ {nodes} }}")) as one:
        yield one


FEEDS: dict[str, Any] = {
    "x": np.array([[1, 2]], np.float32),
    "b": np.array([True, False]),
    "i": np.array([-3, 4], np.int8),
    "s": np.float16(2),
}
NAMES = [f"{name}_" for name in TYPES]


@pytest.mark.parametrize("names", [None, [], (), iter([]), np.array([])])
def test_no_names_are_all_outputs(session: Session, names: Any) -> None:
    for _ in range(3):  # the first run takes another way than later ones
        found = session.run(names, FEEDS)
        assert [one.tolist() for one in found] == [[[1, 2]], [True, False], [-3, 4], 2]
    assert len(session.run([], FEEDS, out={"i_": np.zeros(2, np.int8)})) == len(NAMES)
    assert len(session.run_tensors(names, FEEDS)) == len(NAMES)
    assert len(asyncio.run(session.run_async(names, FEEDS))) == len(NAMES)


@pytest.mark.parametrize("names", ["x_", b"x_"])
def test_a_name_is_no_list_of_names(session: Session, names: Any) -> None:
    with pytest.raises(InputError, match="outputs are given as a list of names"):
        session.run(names, FEEDS)


@pytest.mark.parametrize(
    ("name", "given", "want"),
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
def test_lists_and_numbers_become_the_inputs_element_type(
    session: Session, name: str, given: object, want: object
) -> None:
    feeds = FEEDS | {name: given}
    for _ in range(2):
        [found] = session.run([f"{name}_"], feeds)
        assert found.dtype == np.asarray(FEEDS[name]).dtype
        assert found.tolist() == np.asarray(want, found.dtype).tolist()
    [tensor] = session.run_tensors([f"{name}_"], feeds)
    np.testing.assert_array_equal(tensor.numpy(), found)


@pytest.mark.parametrize(
    ("name", "given", "why"),
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
    ],
)
def test_what_does_not_convert_is_named(
    session: Session, name: str, given: object, why: str
) -> None:
    with pytest.raises(InputError, match=why) as caught:
        session.run(None, FEEDS | {name: given})
    assert f"input {name!r}: " in str(caught.value)
    assert f"wanted is {name} : " in str(caught.value) or "is no array;" in str(caught.value)


@pytest.mark.parametrize(
    ("dtype", "given", "fits"),
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
def test_every_element_type_has_its_range(dtype: str, given: list[Any], fits: bool) -> None:
    port = Port("x", dtype, (None,), ("N",))
    if fits:
        found = converted(given, port)
        assert found.dtype == numpy_dtype(dtype)
        np.testing.assert_array_equal(found, np.array(given, found.dtype))
    else:
        with pytest.raises(InputError, match=f"no array of {dtype}"):
            converted(given, port)


def test_memory_that_is_bound_is_an_array(session: Session) -> None:
    with pytest.raises(InputError, match="input 'x': list is no array"):
        session.bind(FEEDS | {"x": [[1, 2]], "s": np.array(2, np.float16)})


def test_lists_may_calibrate() -> None:
    proto = model("g (float[N,2] x) => (float[N,2] y) { y = Relu(x) }")
    Session(proto, calibrate={"x": [[1, 2]]}).close()
    with pytest.raises(InputError, match="calibrate: input 'x': this list is no array of f32"):
        Session(proto, calibrate={"x": [[1], [2, 3]]})


def test_wrong_values_of_other_arguments_are_typed_errors(session: Session) -> None:
    proto: Any = None
    with pytest.raises(ModelError, match="NoneType is no model"):
        Session(proto)
    number: Any = 5
    with pytest.raises(InputError, match="plan=5 is no path of a lock file"):
        Session(model("g (float x) => (float y) { y = Relu(x) }"), plan=number)
    with pytest.raises(InputError, match="tolerances=5 is no list of numbers"):
        session.frontier(number)


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, pickle.dumps])
def test_what_has_threads_and_memory_is_not_copied(session: Session, how: Any) -> None:
    session.run(None, FEEDS)
    bound = session.bind(FEEDS | {"s": np.array(2, np.float16)})
    for one in (session, bound, session.plan):
        with pytest.raises(PickleError, match=f"a {type(one).__name__} is neither copied") as error:
            how(one)
        assert isinstance(error.value, TypeError)  # as of Python's own objects
        assert "open a Session in each process" in str(error.value)
    session.run(None, FEEDS)


def test_a_session_is_not_sent_to_a_process_that_is_spawned(session: Session) -> None:
    child = multiprocessing.get_context("spawn").Process(target=print, args=(session,))
    with pytest.raises(PickleError):
        child.start()


def test_what_says_how_a_session_is_made_is_copied(session: Session) -> None:
    for one in (session.inputs, session.memory, session.conversions):
        assert pickle.loads(pickle.dumps(one)) == copy.deepcopy(one) == one


def test_other_types_stay_errors(session: Session) -> None:
    """Only Python's own numbers have no element type yet."""
    for given in (np.zeros((1, 2)), np.float64(1), np.zeros((1, 2), ml_dtypes.bfloat16)):
        with pytest.raises(InputError, match=r"element type|rank"):
            session.run(None, FEEDS | {"x": given})


def test_a_run_for_which_no_thread_starts_never_happens(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_run_that_fails_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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

    def counted(request: Request, *given: Any, **named: Any) -> Any:
        runs.append(request)
        return run(request, *given, **named)

    monkeypatch.setattr(Request, "run", counted)
    with Session(tmp_path / "m.onnx", cache_dir=tmp_path / "cache") as session:
        with pytest.raises(InputError, match="99"):
            session.run(None, feeds | {"places": np.full(2000, 99)})
        assert len(runs) == 1
