"""Sessions: what goes in, what comes out, threads, and what happens meanwhile."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from ops import Add, Conv2D, Identity, Relu
from vtensor import Graph, Session
from vtensor.errors import ConversionsError, InputError, SessionClosedError
from vtensor.report import why
from vtensor.runtime.execution.executor import Executor
from vtensor.runtime.execution.processors import available_threads
from vtensor.testing import assert_conversions

Array = np.ndarray[Any, Any]
SIZES = {"N": 1, "C": 16, "H": 24, "W": 24}


def network(channels: int = 16, side: int = 24, depth: int = 2) -> Graph:
    """A few convolutions with a residual: x -> conv -> relu -> ... -> + x."""
    graph = Graph("residual")
    generator = np.random.default_rng(1)
    x = value = graph.input("x", {"N": 1, "C": channels, "H": side, "W": side})
    for layer in range(depth):
        weights = generator.standard_normal((channels, channels, 3, 3)).astype(np.float32)
        w = graph.constant(weights / (3 * channels**0.5), "O I h w", f"w{layer}")
        value = graph.add(Conv2D(pads=(1, 1, 1, 1)), value, w, name=f"conv{layer}")
        value = graph.add(Relu(), value, name=f"relu{layer}")
    graph.output(graph.add(Add(), value, x, name="sum"), "y")
    graph.output(value, "last")
    return graph.seal()


def image(channels: int = 16, side: int = 24) -> Array:
    """A seeded input."""
    shape = (1, channels, side, side)
    return np.random.default_rng(2).standard_normal(shape).astype(np.float32)


class Dlpack:
    """An object with nothing but the DLPack protocol."""

    def __init__(self, array: Array) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


class Arrayish:
    """An object with nothing but ``__array__``."""

    def __init__(self, array: Array) -> None:
        self.array = array

    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        return self.array


@pytest.fixture(scope="module")
def session() -> Session:
    """The network on two threads."""
    return Session(network(), threads=2)


def test_onednn_and_numpy_agree(session: Session) -> None:
    x = image()
    with Session(network(), libraries=["numpy"]) as definition:
        for ours, theirs in zip(session.run(None, {"x": x}), definition.run(None, {"x": x})):  # noqa: B905
            np.testing.assert_allclose(ours, theirs, atol=1e-5 * np.abs(theirs).max())
    assert {step.library for step in session.plan.steps} == {"onednn"}


@pytest.mark.parametrize("wrap", [Dlpack, Arrayish])
def test_protocols_are_taken(session: Session, wrap: Any) -> None:
    x = image()
    [plain] = session.run(["y"], {"x": x})
    [wrapped] = session.run(["y"], {"x": wrap(x)})
    np.testing.assert_array_equal(plain, wrapped)


def test_outputs_come_in_the_order_asked_and_are_fresh(session: Session) -> None:
    x = image()
    last, y = session.run(["last", "y"], {"x": x})
    np.testing.assert_allclose(y, last + x, rtol=1e-6)
    kept = y.copy()
    [other] = session.run(["y"], {"x": -x})
    assert not np.array_equal(other, kept)
    np.testing.assert_array_equal(y, kept)
    assert y.flags.writeable
    assert y.flags.c_contiguous
    for names in (["y", "y"], ("last", "y", "y")):
        *_, first, second = session.run(names, {"x": x})
        assert not np.shares_memory(first, second)
        np.testing.assert_array_equal(first, kept)
        np.testing.assert_array_equal(second, kept)
        *_, one, two = (tensor.numpy() for tensor in session.run_tensors(names, {"x": x}))
        assert not np.shares_memory(one, two)


def test_inputs_are_not_changed_and_may_be_read_only(session: Session) -> None:
    x = image()
    kept = x.copy()
    x.setflags(write=False)
    session.run(None, {"x": x})
    np.testing.assert_array_equal(x, kept)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda x: np.asfortranarray(x), id="fortran"),
        pytest.param(lambda x: np.repeat(x, 2, axis=3)[:, :, :, ::2], id="gaps"),
        pytest.param(lambda x: x[:, ::-1].copy()[:, ::-1], id="backwards"),
        pytest.param(lambda x: x.astype(">f4"), id="big-endian"),
    ],
)
def test_arrays_may_lie_as_they_like(session: Session, change: Any) -> None:
    x = image()
    expected = session.run(None, {"x": x})
    for ours, theirs in zip(session.run(None, {"x": change(x)}), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_an_unaligned_array_gives_the_same(session: Session) -> None:
    x = image()
    raw = np.zeros(x.nbytes + 1, np.uint8)
    shifted = raw[1:].view(np.float32).reshape(x.shape)
    shifted[...] = x
    assert not shifted.flags.aligned
    expected = session.run(["y"], {"x": x})
    np.testing.assert_array_equal(session.run(["y"], {"x": shifted}), expected)


def test_channels_last_memory_is_one_more_plan_and_then_none(resolutions: list[str]) -> None:
    with Session(network(), threads=2) as session:
        x = image()
        [expected] = session.run(["y"], {"x": x})
        last = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
        before = len(resolutions)
        [ours] = session.run(["y"], {"x": last})
        assert len(resolutions) == before + 1
        session.run(["y"], {"x": last})
        session.run(["y"], {"x": x})
        assert len(resolutions) == before + 1
        np.testing.assert_allclose(ours, expected, atol=1e-5)


def test_entry_and_delivery_layouts(resolutions: list[str]) -> None:
    options: Any = {"input_layouts": {"x": "NHWC"}, "output_layouts": {"y": "NHWC"}}
    with Session(network(), threads=2, **options) as session:
        entry = session.plan.graph.values["x"].layout
        assert str(entry) == "NHWC"
        x = image()
        last = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
        before = len(resolutions)
        y, other = session.run(None, {"x": last})
        assert len(resolutions) == before, "the first plan was made for this layout"
        assert y.shape == x.shape
        assert y.transpose(0, 2, 3, 1).flags.c_contiguous
        assert other.flags.c_contiguous


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"input_layouts": {"z": "NCHW"}}, "no 'z' here; there are x"),
        ({"input_layouts": {"x": "NCHW:bf16"}}, "its own element type"),
        ({"output_layouts": {"y": "NC"}}, "cannot hold"),
        ({"threads": 0}, "threads=0 must be an integer from 1"),
        ({"threads": -3}, "threads=-3"),
        ({"threads": True}, "threads=True"),
        ({"optimize": ["fastest"]}, "no pass 'fastest'"),
    ],
)
def test_wrong_options_are_typed_errors(options: Any, wanted: str) -> None:
    with pytest.raises(InputError, match=wanted):
        Session(network(), **options)


def test_wrong_outputs_are_typed_errors(session: Session) -> None:
    with pytest.raises(InputError, match="no output z; outputs are y, last"):
        session.run(["z"], {"x": image()})
    with pytest.raises(InputError, match="given as a list"):
        session.run("y", {"x": image()})


def test_closed_is_closed() -> None:
    session = Session(network(), threads=2)
    with session:
        session.run(None, {"x": image()})
    session.close()
    for use in (lambda: session.run(None, {"x": image()}), lambda: session.plan, session.__enter__):
        with pytest.raises(SessionClosedError, match="make a new one"):
            use()


def test_an_input_may_be_an_output() -> None:
    graph = Graph("through")
    x = graph.input("x", {"N": 2, "C": 3})
    graph.output(x, "same")
    graph.output(graph.add(Identity(), x), "alias")
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    with Session(graph) as session:
        for delivered in session.run(None, {"x": array}):
            np.testing.assert_array_equal(delivered, array)
            assert not np.shares_memory(delivered, array)


def test_a_session_may_be_used_from_many_threads(session: Session) -> None:
    inputs = [image() * scale for scale in range(1, 9)]
    expected = [session.run(["y"], {"x": x})[0] for x in inputs]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(5):
            results = pool.map(lambda x: session.run(["y"], {"x": x})[0], inputs)
            for ours, theirs in zip(results, expected, strict=True):
                np.testing.assert_array_equal(ours, theirs)


def test_one_executor_a_budget() -> None:
    assert Executor.of(2) is Executor.of(2)
    assert Executor.of(1) is not Executor.of(2)
    assert Executor.of(None).threads == available_threads()
    outer = Executor.of(2)
    inside = outer.run(lambda: outer.run(threading.get_ident))
    assert inside == outer.run(threading.get_ident)
    assert inside != threading.get_ident()


def test_only_the_last_used_plans_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vtensor.runtime.planning.store.MOST_PLANS", 2)
    orders = [(0, 1, 2, 3), (0, 2, 3, 1), (0, 3, 1, 2)]
    x = image()
    lying = [np.ascontiguousarray(x.transpose(o)).transpose(np.argsort(o)) for o in orders]
    with Session(network(), threads=2) as session:
        plans = [session.plan]
        for array, made in [(1, 2), (0, 2), (2, 3), (0, 3), (1, 4)]:
            session.run(None, {"x": lying[array]})
            if session.plan not in plans:
                plans.append(session.plan)
            assert len(plans) == made


def test_conversions_that_are_too_many_are_listed_with_their_reasons() -> None:
    x = image()
    with Session(
        network(), output_layouts={"y": "NHWC"}, optimize="none", libraries=["numpy"]
    ) as s:
        count = len(s.conversions)
        assert_conversions(s, at_most=count)
        assert count
        with pytest.raises(ConversionsError) as caught:
            assert_conversions(s, at_most=0)
        text = str(caught.value)
        assert f"a run has {count} conversion" in text
        for one in s.conversions:
            assert f"  {one.value}: {one.source} -> {one.target}, " in text
            assert all(f"    {why(reason)}\n" in f"{text}\n" for reason in one.reasons)
        s.run(None, {"x": x[:, :, ::-1]})  # which runs backwards, and is copied
        with pytest.raises(AssertionError, match="  copy of input x, to NCHW, "):
            assert_conversions(s, at_most=count)


@pytest.mark.parametrize("at_most", [-1, 1.5, True, None])
def test_at_most_is_a_number_of_conversions(at_most: Any) -> None:
    with Session(network()) as session, pytest.raises(InputError, match="no number of conversions"):
        assert_conversions(session, at_most)
