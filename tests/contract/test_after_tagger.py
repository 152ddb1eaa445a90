"""What may happen after the tagger, and what before it, in each mode."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ptensor import Layout, PTensor, emit, lib_tagger, share
from resolver.evaluate import resolve
from tests.libraries.bench import Bench, message
from tests.libraries.steps import READ, WRITE, FloatStep
from vtensor.errors import ContractError, NativeError
from vtensor.language.graph import Graph
from vtensor.runtime.session import Session

TOY = "Toy 'toy', toy invoker: "
SIX = np.arange(6, dtype=np.float32).reshape(2, 3)


def doubling() -> FloatStep:
    """y = 2 x on six elements."""

    def double(slots: list[Any]) -> None:
        slots[1][:] = 2 * slots[0]

    return FloatStep("double", [(6, READ), (6, WRITE)], double)


def test_constants_may_be_read_in_partial_evaluation(bench: Bench) -> None:
    seen: list[Any] = []

    @bench.invoker("Pair")
    def curious(ctx: Any, op: Any, a: Any, b: Any, y: Any) -> None:
        left, right, dst = PTensor(a), PTensor(b).require("NC"), PTensor(y)
        assert (left.constant, right.constant) == (False, True)
        seen.append(right.data().copy())
        lib_tagger("toy", [left, right], [dst])

    graph = Graph("constants")
    x, w = graph.input("x", {"N": 2, "C": 3}), graph.constant(SIX, "N C", "w")
    graph.output(graph.add(bench.op("Pair"), x, w), "y")
    resolve(graph.seal())
    assert len(seen) == 1
    np.testing.assert_array_equal(seen[0], SIX)


def test_numpy_lines_run_each_time_in_a_python_invoker(bench: Bench) -> None:
    runs: list[int] = []

    @bench.invoker(python=True)
    def plus_one(ctx: Any, op: Any, x: Any, y: Any) -> None:
        src, dst = PTensor(x).require("NC"), PTensor(y).require("NC")
        if lib_tagger("toy", [src], [dst]):
            return
        runs.append(1)
        dst.data()[...] = src.data() + 1

    with Session(bench.graph()) as session:
        assert runs == []
        for round_ in (1, 2):
            [result] = session.run(None, {"x0": SIX * round_})
            np.testing.assert_array_equal(result, SIX * round_ + 1)
            assert len(runs) == round_


def test_a_native_step_is_recorded_once_and_run_each_time(bench: Bench) -> None:
    step, calls = doubling(), []

    @bench.invoker(python=False)
    def native(ctx: Any, op: Any, x: Any, y: Any) -> None:
        src, dst = PTensor(x).require("NC"), PTensor(y).require("NC")
        if lib_tagger("toy", [src], [dst]):
            return
        calls.append(1)
        emit(step, [src, dst])

    with Session(bench.graph()) as session:
        assert (len(calls), step.runs) == (1, 0)
        for round_ in (1, 2, 3):
            [result] = session.run(None, {"x0": SIX * round_})
            np.testing.assert_array_equal(result, 2 * SIX * round_)
        assert (len(calls), step.runs) == (1, 3)
        assert session.plan.kernels() == {("toy", "double"): 1}


def test_a_step_in_a_python_invoker_is_executed_at_once(bench: Bench) -> None:
    step = doubling()

    @bench.invoker(python=True)
    def both(ctx: Any, op: Any, x: Any, y: Any) -> None:
        src, dst = PTensor(x).require("NC"), PTensor(y).require("NC")
        if lib_tagger("toy", [src], [dst]):
            return
        emit(step, [src, dst])
        dst.data()[...] += 1

    np.testing.assert_array_equal(bench.run("Toy", SIX), 2 * SIX + 1)


def test_what_is_no_step(bench: Bench) -> None:
    @bench.invoker(python=False)
    def wrong(ctx: Any, op: Any, x: Any, y: Any) -> None:
        src, dst = PTensor(x), PTensor(y)
        if lib_tagger("toy", [src], [dst]):
            return
        emit(object(), [src, dst])  # type: ignore[arg-type]

    assert message(NativeError, bench.run) == (
        "step of 'toy': a step is an object with a method __vtensor_step__"
    )


def test_a_step_that_fails(bench: Bench) -> None:
    step = FloatStep("failing", [(6, READ), (6, WRITE)], lambda slots: "out of paper")

    @bench.invoker(python=False)
    def native(ctx: Any, op: Any, x: Any, y: Any) -> None:
        src, dst = PTensor(x), PTensor(y)
        if lib_tagger("toy", [src], [dst]):
            return
        emit(step, [src, dst])

    assert message(NativeError, bench.run) == "step of 'toy': failing: out of paper"


def test_share_moves_nothing(bench: Bench) -> None:
    @bench.invoker(python=False)
    def alias(ctx: Any, op: Any, x: Any, y: Any) -> None:
        src, dst = PTensor(x).require(Layout.ANY), PTensor(y).require(Layout.ANY)
        if lib_tagger("toy", [src], [dst]):
            return
        share(src, dst)

    with Session(bench.graph()) as session:
        [result] = session.run(None, {"x0": SIX})
        np.testing.assert_array_equal(result, SIX)
        assert result.base is not SIX
        assert session.plan.recorded == ()


@pytest.mark.parametrize("call", [emit, share])
def test_outside_a_call(call: Any) -> None:
    what = {emit: "a native step", share: "share"}[call]
    assert message(ContractError, lambda: call(None, None)).startswith(f"{what} outside a call (")
