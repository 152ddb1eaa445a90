"""Evaluations of an invoker: deciding is pure, decisions come back, and what follows the tagger."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from libdesc import guideline
from ptensor import Layout, PTensor, emit, lib_tagger, share
from resolver.evaluate import resolve
from tests.contract.invokers import calling, copying, requiring, tagging
from tests.libraries.bench import Bench, message, where
from tests.libraries.steps import READ, WRITE, FloatStep
from tests.libraries.toy import handlers
from vtensor.errors import ContractError, NativeError
from vtensor.language.graph import Graph
from vtensor.language.operators import Context, operator
from vtensor.language.tensor import VTensor
from vtensor.runtime.session import Session

SIX = np.arange(6, dtype=np.float32).reshape(2, 3)


def doubling() -> FloatStep:
    def double(slots: list[Any]) -> None:
        slots[1][:] = 2 * slots[0]

    return FloatStep("double", [(6, READ), (6, WRITE)], double)


def emitting(step: Any, calls: list[int], layout: str = "NC") -> Any:
    """Return a native invoker that emits a step, and counts when it does."""

    def run(src: PTensor, dst: PTensor) -> None:
        calls.append(1)
        emit(step, [src, dst])

    return calling(requiring(layout, layout), run)


def test_require_returns_the_ptensor_and_parses_text(bench: Bench) -> None:
    def good(src: PTensor, dst: PTensor) -> None:
        assert src.require("CN") is src
        assert src.library_desc("toy") == Layout("CN")  # the library has no names of its own
        dst.require(Layout("NC"))
        assert (src.size("C"), src.ndimensions(), src.dtype, src.role) == (3, 2, "f32", "x")

    bench.invoker()(calling(good))
    assert bench.layouts() == ["CN", "NC"]


def test_later_evaluations_answer_with_the_decision(bench: Bench) -> None:
    """The guideline is asked once a call."""
    handlers.answer = lambda call: {0: [Layout("CN"), Layout("NC")], 1: Layout("NC")}
    seen: list[tuple[str, str]] = []

    def ask(src: PTensor, dst: PTensor) -> None:
        answer = guideline("toy", src)
        assert str(guideline("toy", dst)) == "NC"
        assert guideline("toy", src) == answer
        src.require(answer)
        seen.append((str(answer), str(src.required_layout)))

    def run(src: PTensor, dst: PTensor) -> None:
        assert str(src.required_layout) == "NC"
        dst.data()[...] = src.data()

    bench.invoker()(calling(ask, run))
    bench.run()
    first = (str([Layout("CN"), Layout("NC")]), "CN")  # the first alternative until it is decided
    assert seen == [first, ("NC", "NC")]
    assert len(handlers.asked) == 1
    bench.resolve()
    assert len(handlers.asked) == 2


def test_alternatives_keep_the_decision(bench: Bench) -> None:
    """The produced layout is one of them: later evaluations must not take the first instead."""

    def run(src: PTensor, dst: PTensor) -> None:
        assert str(src.required_layout) == "NC"
        dst.data()[...] = src.data()

    bench.invoker()(calling(requiring(["CN", "NC"], "NC"), run))
    bench.run()


def test_resolution_is_pure(bench: Bench, allocations: list[int]) -> None:
    """Nothing is allocated, no step runs, no call-back runs, and the graph stays as it was."""
    step, runs = doubling(), []
    bench.invoker(python=False)(emitting(step, [], "CN"))

    def python(left: PTensor, right: PTensor, dst: PTensor) -> None:
        runs.append(1)
        dst.data()[...] = left.data() + right.data()

    bench.invoker("Pair", python=True)(calling(run=python))
    graph = Graph("pure")
    x, w = graph.input("x", {"N": 2, "C": 3}), graph.constant(np.ones((2, 3), "f4"), "N C", "w")
    graph.output(graph.add(bench.op("Pair"), graph.add(bench.op("Toy"), x), w), "y")
    graph.seal()
    text = str(graph)
    allocations.clear()
    resolution = resolve(graph)
    assert (allocations, step.runs, runs, str(graph)) == ([], 0, [], text)
    assert all(value.produced_layout is None for value in graph.values.values())
    assert [node.variant.library for node in resolution.operators] == ["toy", "toy"]
    with Session(graph) as session:
        session.run(None, {"x": np.zeros((2, 3), np.float32)})
    assert allocations  # the count does see what a run allocates
    assert (step.runs, runs) == (1, [1])


def test_requirements_keep_their_place(bench: Bench) -> None:
    @bench.invoker()
    def asking(ctx: Any, op: Any, x: Any, y: Any) -> None:
        src = PTensor(x)
        src.require(["CN", "NC"])  # source
        dst = PTensor(y).require(Layout.ANY)  # target
        lib_tagger("toy", [src], [dst])

    source, target = bench.decide().requirements
    assert str(source) == f"CN or NC ({where(asking, 'source')})"
    assert str(target) == f"ANY ({where(asking, 'target')})"
    assert (source.open, target.open) == (True, True)


def test_constants_may_be_read_in_partial_evaluation(bench: Bench) -> None:
    seen: list[Any] = []

    def curious(left: PTensor, right: PTensor, dst: PTensor) -> None:
        assert (left.constant, right.constant) == (False, True)
        seen.append(right.require("NC").data().copy())

    bench.invoker("Pair")(calling(curious))
    graph = Graph("constants")
    x, w = graph.input("x", {"N": 2, "C": 3}), graph.constant(SIX, "N C", "w")
    graph.output(graph.add(bench.op("Pair"), x, w), "y")
    resolve(graph.seal())
    assert len(seen) == 1
    np.testing.assert_array_equal(seen[0], SIX)


def test_a_constant_that_a_node_reads_twice_is_constant_twice(bench: Bench) -> None:
    def curious(left: PTensor, right: PTensor, dst: PTensor) -> None:
        assert (left.constant, right.constant) == (True, True)

    bench.invoker("Pair")(calling(curious))
    graph = Graph("twice")
    w = graph.constant(SIX, "N C", "w")
    graph.output(graph.add(bench.op("Pair"), w, w), "y")
    resolve(graph.seal())


def test_numpy_lines_run_each_time_in_a_python_invoker(bench: Bench) -> None:
    bench.invoker(python=True)(copying(plus=1))
    with Session(bench.graph()) as session:
        for factor in (1, 2):
            [result] = session.run(None, {"x0": SIX * factor})
            np.testing.assert_array_equal(result, SIX * factor + 1)


def test_a_native_step_is_recorded_once_and_run_each_time(bench: Bench) -> None:
    step, calls = doubling(), list[int]()
    bench.invoker(python=False)(emitting(step, calls))
    with Session(bench.graph()) as session:
        assert (len(calls), step.runs) == (1, 0)
        for factor in (1, 2, 3):
            [result] = session.run(None, {"x0": SIX * factor})
            np.testing.assert_array_equal(result, 2 * SIX * factor)
        assert (len(calls), step.runs) == (1, 3)
        assert session.plan.kernels() == {("toy", "double"): 1}


def test_a_step_in_a_python_invoker_is_executed_at_once(bench: Bench) -> None:
    step = doubling()

    def both(src: PTensor, dst: PTensor) -> None:
        emit(step, [src, dst])
        dst.data()[...] += 1

    bench.invoker(python=True)(calling(requiring("NC", "NC"), both))
    np.testing.assert_array_equal(bench.run("Toy", SIX), 2 * SIX + 1)


@pytest.mark.parametrize(
    ("step", "text"),
    [
        (object(), "a step is an object with a method __vtensor_step__"),
        (FloatStep("jam", [(6, READ), (6, WRITE)], lambda _: "no paper"), "jam: no paper"),
    ],
)
def test_what_is_no_step_or_fails_is_an_error(bench: Bench, step: Any, text: str) -> None:
    bench.invoker(python=False)(emitting(step, []))
    assert message(NativeError, bench.run) == f"step of 'toy': {text}"


def test_share_moves_nothing(bench: Bench) -> None:
    bench.invoker(python=False)(calling(requiring("ANY", "ANY"), share))
    with Session(bench.graph()) as session:
        [result] = session.run(None, {"x0": SIX})
        np.testing.assert_array_equal(result, SIX)
        assert result.base is not SIX
        assert session.plan.recorded == ()


def test_outside_a_call_each_use_is_an_error_with_its_place() -> None:
    x, here = VTensor("f32", {"N": 2}), f"({__file__}:"
    for use, text in (
        (lambda: PTensor(x), "PTensor(<VTensor f32 N=2>) outside an invoker "),
        (lambda: lib_tagger("toy", [], []), "lib_tagger('toy') outside a call "),
        (lambda: emit(None, None), "a native step outside a call "),  # type: ignore[arg-type]
        (lambda: share(None, None), "share outside a call "),  # type: ignore[arg-type]
    ):
        assert message(ContractError, use).startswith(text + here)


def test_a_new_thread_sees_an_empty_context(bench: Bench) -> None:
    errors: list[str] = []

    def elsewhere(x: VTensor) -> None:
        errors.append(message(ContractError, lambda: PTensor(x)))  # here

    def dispatching(ctx: Any, op: Any, x: VTensor, y: VTensor) -> None:
        errors.append(message(ContractError, lambda: ctx.dispatch(op, [x], [y])))

    @bench.invoker()
    def threaded(ctx: Any, op: Any, x: Any, y: Any) -> None:
        for target, args in ((elsewhere, (x,)), (dispatching, (ctx, op, x, y))):
            thread = threading.Thread(target=target, args=args)
            thread.start()
            thread.join()
        tagging(ctx, op, x, y)

    bench.resolve()
    assert errors == [
        f"PTensor(<VTensor 'x0' f32 N=2 C=3>) outside an invoker ({where(elsewhere, 'here')})",
        "no evaluation is installed here: operators run through a Session",
    ]


def test_a_compute_that_forgets_to_dispatch_is_refused(bench: Bench) -> None:
    @operator("Idle", dims={"x": "*", "y": "*"})
    class Idle:
        def compute(self, ctx: Context, x: VTensor) -> VTensor:
            return VTensor(x.dtype, x.dims, ctx.output(0))

    assert message(ContractError, lambda: bench.resolve("Idle")) == (
        "Idle 'idle': compute did not call ctx.dispatch"
    )
