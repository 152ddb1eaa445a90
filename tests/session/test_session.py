"""Sessions of a network in native code: inputs, outputs, plans, threads, conversions."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from ops import Add, Conv2D, Relu
from vtensor import Graph, Session
from vtensor.errors import ConversionsError, InputError
from vtensor.report import why
from vtensor.runtime.execution.executor import Executor
from vtensor.runtime.execution.processors import available_threads
from vtensor.testing import assert_conversions

Array = np.ndarray[Any, Any]


def network(channels: int = 16, side: int = 24, depth: int = 2) -> Graph:
    """Return convolutions with a residual: x -> conv -> relu -> ... -> + x."""
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
    """Return a seeded input."""
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
    """Open the network on two threads."""
    return Session(network(), threads=2)


def test_onednn_and_numpy_agree(session: Session) -> None:
    x = image()
    with Session(network(), libraries=["numpy"]) as definition:
        answers = zip(session.run(None, {"x": x}), definition.run(None, {"x": x}), strict=True)
    for ours, theirs in answers:
        np.testing.assert_allclose(ours, theirs, atol=1e-5 * np.abs(theirs).max())
    assert {step.library for step in session.plan.steps} == {"onednn"}


def test_outputs_are_fresh_and_in_the_requested_order(session: Session) -> None:
    x = image()
    last, y = session.run(["last", "y"], {"x": x})
    np.testing.assert_allclose(y, last + x, rtol=1e-6)
    before = y.copy()
    [other] = session.run(["y"], {"x": -x})
    assert not np.array_equal(other, before)
    np.testing.assert_array_equal(y, before)
    assert y.flags.writeable
    assert y.flags.c_contiguous
    for names in (["y", "y"], ("last", "y", "y")):
        *_, first, second = session.run(names, {"x": x})
        assert not np.shares_memory(first, second)
        np.testing.assert_array_equal(first, before)
        np.testing.assert_array_equal(second, before)
        *_, first, second = (tensor.numpy() for tensor in session.run_tensors(names, {"x": x}))
        assert not np.shares_memory(first, second)


def unaligned(x: Array) -> Array:
    shifted = np.zeros(x.nbytes + 1, np.uint8)[1:].view(np.float32).reshape(x.shape)
    shifted[...] = x
    assert not shifted.flags.aligned
    return shifted


@pytest.mark.parametrize(
    "array",
    [
        pytest.param(np.asfortranarray(image()), id="fortran"),
        pytest.param(np.repeat(image(), 2, axis=3)[:, :, :, ::2], id="gaps"),
        pytest.param(image()[:, ::-1].copy()[:, ::-1], id="backwards"),
        pytest.param(image().astype(">f4"), id="big-endian"),
        pytest.param(unaligned(image()), id="unaligned"),
    ],
)
def test_arrays_may_have_any_strides_and_are_not_written(session: Session, array: Any) -> None:
    before = array.copy()
    array.setflags(write=False)
    expected, answers = session.run(None, {"x": image()}), session.run(None, {"x": array})
    for ours, theirs in zip(answers, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
        if not array.flags.aligned:
            np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(array, before)


def test_output_layout_of_other_dims_is_refused() -> None:
    with pytest.raises(InputError, match="cannot hold"):
        Session(network(), output_layouts={"y": "NC"})


def test_executor_is_one_for_each_number_of_threads() -> None:
    assert Executor.of(2) is Executor.of(2)
    assert Executor.of(1) is not Executor.of(2)
    assert Executor.of(None).threads == available_threads()
    outer = Executor.of(2)
    inside = outer.run(lambda: outer.run(threading.get_ident))
    assert inside == outer.run(threading.get_ident)
    assert inside != threading.get_ident()


def test_session_keeps_the_plans_that_were_used_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vtensor.runtime.planning.store.MOST_PLANS", 2)
    orders = [(0, 1, 2, 3), (0, 2, 3, 1), (0, 3, 1, 2)]
    arrays = [np.ascontiguousarray(image().transpose(o)).transpose(np.argsort(o)) for o in orders]
    with Session(network(), threads=2) as session:
        plans = [session.plan]
        for order, count in [(1, 2), (0, 2), (2, 3), (0, 3), (1, 4)]:
            session.run(None, {"x": arrays[order]})
            if session.plan not in plans:
                plans.append(session.plan)
            assert len(plans) == count


def test_conversions_are_listed_with_their_reasons_when_too_many() -> None:
    with Session(
        network(), output_layouts={"y": "NHWC"}, optimize="none", libraries=["numpy"]
    ) as session:
        count = len(session.conversions)
        assert count
        assert_conversions(session, at_most=count)
        with pytest.raises(ConversionsError) as caught:
            assert_conversions(session, at_most=0)
        text = f"{caught.value}\n"
        assert f"a run has {count} conversion" in text
        for conversion in session.conversions:
            assert f"  {conversion.value}: {conversion.source} -> {conversion.target}, " in text
            assert all(f"    {why(reason)}\n" in text for reason in conversion.reasons)
        session.run(None, {"x": image()[:, :, ::-1]})  # which runs backwards, and is copied
        with pytest.raises(AssertionError, match="  copy of input x, to NCHW, "):
            assert_conversions(session, at_most=count)
        for at_most in (-1, 1.5, True, None):
            with pytest.raises(InputError, match="no number of conversions"):
                assert_conversions(session, at_most)  # type: ignore[arg-type]
