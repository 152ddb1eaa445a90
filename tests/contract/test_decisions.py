"""Decisions come back; deciding is pure."""

from __future__ import annotations

from typing import Any

import numpy as np

from libdesc import guideline
from ptensor import Layout, PTensor, emit, lib_tagger
from resolver.evaluate import resolve
from tests.libraries.bench import Bench, message, where
from tests.libraries.steps import READ, WRITE, FloatStep
from tests.libraries.toy import handlers
from vtensor.errors import ContractError, LayoutNotSupported
from vtensor.language.graph import Graph
from vtensor.runtime.session import Session

TOY = "Toy 'toy', toy invoker: "


def test_later_evaluations_answer_with_the_decision(bench: Bench) -> None:
    handlers.answer = lambda call: {0: [Layout("CN"), Layout("NC")], 1: Layout("NC")}
    seen: list[tuple[str, str]] = []

    @bench.invoker()
    def asking(ctx: Any, op: Any, x: Any, y: Any) -> None:
        src, dst = PTensor(x), PTensor(y)
        answer = guideline("toy", src)
        src.require(answer)
        seen.append((str(answer), str(src.required_layout)))
        if lib_tagger("toy", [src], [dst]):
            return
        assert str(src.required_layout) == "NC"
        dst.data()[...] = src.data()

    bench.run()
    assert seen == [
        (str([Layout("CN"), Layout("NC")]), "CN"),  # the first alternative until it is decided
        ("NC", "NC"),
    ]
    assert len(handlers.asked) == 1


def test_the_guideline_is_asked_once_a_call(bench: Bench) -> None:
    handlers.answer = lambda call: {0: Layout("CN"), 1: Layout("CN")}

    @bench.invoker()
    def asking(ctx: Any, op: Any, x: Any, y: Any) -> None:
        src, dst = PTensor(x), PTensor(y)
        for tensor in (src, dst, src):
            assert guideline("toy", tensor) == Layout("CN")
        lib_tagger("toy", [src.require(guideline("toy", src))], [dst])

    bench.resolve()
    assert len(handlers.asked) == 1
    bench.resolve()
    assert len(handlers.asked) == 2


def test_an_invoker_that_asks_for_something_else(bench: Bench) -> None:
    answers = iter(["NC", "CN"])

    @bench.invoker()
    def fickle(ctx: Any, op: Any, x: Any, y: Any) -> None:
        src = PTensor(x)
        src.require([next(answers)])  # here
        lib_tagger("toy", [src], [PTensor(y)])

    assert message(ContractError, bench.run) == (
        f"{TOY}x was resolved to NC, the invoker now asks for CN ({where(fickle, 'here')})"
    )


def test_an_invoker_that_asks_for_other_alternatives(bench: Bench) -> None:
    answers = iter([["NC", "CN"], ["NC4c", "CN"]])

    @bench.invoker()
    def fickle(ctx: Any, op: Any, x: Any, y: Any) -> None:
        src, dst = PTensor(x), PTensor(y)
        dst.require(next(answers))  # here
        lib_tagger("toy", [src], [dst])

    assert message(ContractError, bench.run) == (
        f"{TOY}y was resolved to NC, the invoker now asks for NC4c or CN ({where(fickle, 'here')})"
    )


def test_alternatives_keep_the_decision(bench: Bench) -> None:
    """The produced layout is one of them: later evaluations must not take the first instead."""

    @bench.invoker()
    def open_minded(ctx: Any, op: Any, x: Any, y: Any) -> None:
        src, dst = PTensor(x).require(["CN", "NC"]), PTensor(y).require("NC")
        if lib_tagger("toy", [src], [dst]):
            return
        assert str(src.required_layout) == "NC"
        dst.data()[...] = src.data()

    bench.run()


def test_resolution_is_pure(bench: Bench, allocations: list[int]) -> None:
    """Nothing is allocated, no step runs, no call-back runs, and the graph stays as it was."""

    def add(slots: list[Any]) -> None:
        slots[1][:] = slots[0] + 1

    step, runs = FloatStep("add", [(6, READ), (6, WRITE)], add), []

    @bench.invoker(python=False)
    def native(ctx: Any, op: Any, x: Any, y: Any) -> None:
        src, dst = PTensor(x).require("CN"), PTensor(y).require("CN")
        if lib_tagger("toy", [src], [dst]):
            return
        emit(step, [src, dst])

    @bench.invoker("Pair", python=True)
    def python(ctx: Any, op: Any, a: Any, b: Any, y: Any) -> None:
        left, right, dst = PTensor(a), PTensor(b), PTensor(y)
        if lib_tagger("toy", [left, right], [dst]):
            return
        runs.append(1)
        dst.data()[...] = left.data() + right.data()

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


def test_library_desc_needs_a_layout(bench: Bench) -> None:
    @bench.invoker()
    def hasty(ctx: Any, op: Any, x: Any, y: Any) -> None:
        PTensor(x).library_desc("toy")  # here

    assert message(ContractError, bench.resolve) == (
        f"{TOY}library_desc of x before its layout is decided ({where(hasty, 'here')})"
    )


def test_library_desc_of_a_required_layout(bench: Bench) -> None:
    """A library without mapper has no words of its own: it gets the layout."""

    @bench.invoker()
    def asking(ctx: Any, op: Any, x: Any, y: Any) -> None:
        src = PTensor(x).require("CN")
        assert src.library_desc("toy") == Layout("CN")
        lib_tagger("toy", [src], [PTensor(y)])

    bench.resolve()
    assert issubclass(LayoutNotSupported, Exception)
