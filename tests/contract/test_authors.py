"""What an operator's author may forget, beyond the contract of invokers: each is a typed error."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from libdesc import Routine, guideline
from ptensor import Layout, PTensor, emit, lib_tagger, share
from tests.libraries.bench import Bench, message, where
from tests.libraries.steps import READ, WRITE, FloatStep
from tests.libraries.toy import handlers
from vtensor.errors import ContractError, DimError, DTypeError, GraphError, InvokerError
from vtensor.graph import Graph
from vtensor.operators import operator
from vtensor.runtime.session import Session
from vtensor.tensor import VTensor

DIMS = {"x": "*", "y": "*"}


def test_an_operator_without_compute(scratch: None) -> None:
    class Lazy:
        pass

    assert "Lazy has no compute(self, ctx, ...)" in message(
        GraphError, lambda: operator("Lazy", dims=DIMS)(Lazy)
    )


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (lambda ctx, x: None, "compute returned None, no VTensor"),
        (lambda ctx, x: VTensor("f32", x.dims), "output 0 is to be made with ctx.output(0)"),
        (lambda ctx, x: x, "output 0 is to be made with ctx.output(0)"),
    ],
)
def test_an_output_that_is_none(scratch: None, made: Any, text: str) -> None:
    @operator("Odd", dims=DIMS)
    class Odd:
        def compute(self, ctx: Any, x: VTensor) -> Any:
            return made(ctx, x)

    graph = Graph()
    x = graph.input("x", {"N": 2})
    assert f"Odd 'odd': {text}" in message(GraphError, lambda: graph.add(Odd(), x, name="odd"))
    assert not graph.nodes


def test_an_invoker_of_unknown_dtypes(bench: Bench) -> None:
    def register() -> None:
        bench.invoker(dtypes={"x": ["f32", "float32"]})(lambda ctx, op, x, y: None)

    assert "invoker of Toy on toy: dtypes 'float32' are unknown; there are f64, f32, " in message(
        DTypeError, register
    )
    with pytest.raises(Exception, match="no library can run"):
        bench.resolve()  # nothing was registered


@pytest.mark.parametrize("python", [False, True])
@pytest.mark.parametrize("writes", ["step", "share", "nothing"])
def test_an_output_that_nothing_writes(bench: Bench, writes: str, python: bool) -> None:
    def copy(slots: list[Any]) -> None:
        slots[1][:] = slots[0]

    step = FloatStep("copy", [(6, READ), (6, WRITE)], copy)

    @bench.invoker(python=python)
    def invoke(ctx: Any, op: Any, x: Any, y: Any) -> None:
        src, dst = PTensor(x).require(Layout.ANY), PTensor(y).require(Layout.ANY)
        if lib_tagger("toy", [src], [dst]):
            return
        if writes == "step":
            emit(step, [src, dst])
        elif writes == "share":
            share(src, dst)

    if writes == "nothing" and not python:
        text = message(ContractError, lambda: Session(bench.graph()))
        assert text.startswith("Toy 'toy', toy invoker: after lib_tagger no step writes the output")
    else:
        Session(bench.graph()).close()


def test_an_authors_own_error_says_where_it_was(bench: Bench) -> None:
    """It is the cause of a typed one, and the session stays usable."""
    wrong = [True]

    @bench.invoker(python=True)
    def invoke(ctx: Any, op: Any, x: Any, y: Any) -> None:
        src, dst = PTensor(x).require(Layout.ANY), PTensor(y).require(Layout.ANY)
        if lib_tagger("toy", [src], [dst]):
            return
        dst.data()[...] = src.data()
        if wrong.pop():
            raise ZeroDivisionError("mine")

    with Session(bench.graph()) as session:
        [port] = session.inputs
        x = np.ones([size or 1 for size in port.shape], np.float32)
        with pytest.raises(InvokerError, match="ZeroDivisionError: mine") as caught:
            session.run(None, {port.name: x})
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
        assert str(caught.value).startswith("Toy 'toy', toy invoker (")
        assert "test_authors.py:" in str(caught.value)
        wrong.append(False)
        [y] = session.run(None, {port.name: x})
        assert (y == x).all()


def takes(ctx: Any, op: Any, x: Any, y: Any) -> None:
    src, dst = PTensor(x).require("NC"), PTensor(y).require("NC")
    lib_tagger("toy", [src], [dst])


def test_a_condition_that_raises(bench: Bench) -> None:
    """It is the condition that failed, not the invoker: its place, and what it was given."""

    def when(op: Any, x: VTensor, y: VTensor) -> bool:
        return bool(op.groups == 1)  # mark

    bench.invoker(when=when)(takes)
    text = message(InvokerError, bench.resolve)
    assert text.splitlines() == [
        f"Toy 'toy', the condition ({where(when)}) of the toy invoker ({where(takes)}): "
        f"AttributeError: 'Toy' object has no attribute 'groups' (at {where(when, 'mark')})",
        "  x : N=2 C=3   f32",
        "  y : N=2 C=3   f32",
    ]


def test_a_condition_that_asks_for_a_dim_that_is_not_there(bench: Bench) -> None:
    def when(op: Any, x: VTensor, y: VTensor) -> bool:
        return x.size("G") == 1  # mark

    bench.invoker(when=when)(takes)
    text = message(InvokerError, bench.resolve)
    assert f"the condition ({where(when)})" in text
    assert f"(at {where(when, 'mark')})" in text


def test_a_condition_that_answers_nothing(bench: Bench) -> None:
    """A forgotten return would decline each call, for good."""

    def when(op: Any, x: VTensor, y: VTensor) -> None:
        print(op)

    bench.invoker(when=when)(takes)
    text = message(InvokerError, bench.resolve)
    assert f"the condition ({where(when)}) of the toy invoker" in text
    assert "answers None: it must return True, or False or a reason for declining" in text


def test_a_compute_that_raises(scratch: None) -> None:
    @operator("Odd", dims=DIMS)
    class Odd:
        def compute(self, ctx: Any, x: VTensor) -> Any:
            return {"x": x}["y"]  # mark

    graph = Graph()
    x = graph.input("x", {"N": 2})
    text = message(InvokerError, lambda: graph.add(Odd(), x, name="odd"))
    assert text.splitlines() == [
        f"Odd 'odd', compute ({where(Odd.compute)}): KeyError: 'y' "
        f"(at {where(Odd.compute, 'mark')})",
        "  x : N=2   f32",
    ]
    assert not graph.nodes


class Heavy(Routine):
    """A routine that cannot be made without its factor."""

    def __init__(self, factor: Any) -> None:
        super().__init__()
        self.factor = factor + 1  # mark

    preferred = confirm = __call__ = None  # type: ignore[assignment]


@pytest.mark.parametrize("given", [(), ("one",)])
def test_a_routine_that_cannot_be_made(bench: Bench, given: tuple[Any, ...]) -> None:
    @bench.invoker()
    def invoke(ctx: Any, op: Any, x: Any, y: Any) -> None:
        src, dst = PTensor(x), PTensor(y)
        Heavy(*given)  # here
        lib_tagger("toy", [src], [dst])

    text = message(InvokerError, bench.resolve)
    assert text.startswith(f"Toy 'toy', toy invoker ({where(invoke)}): TypeError: ")
    place = where(Heavy.__init__, "mark") if given else where(invoke, "here")
    assert f"(at {place})\n  x : N=2 C=3   f32" in text


@pytest.mark.parametrize("asks", ["guideline", "require nothing"])
def test_a_guideline_that_raises(bench: Bench, monkeypatch: pytest.MonkeyPatch, asks: str) -> None:
    """It is the handler that failed: where it stands, who names it, what it was given."""

    def answer(call: Any) -> Any:
        return call.op.strides

    monkeypatch.setattr(handlers, "answer", answer)

    @bench.invoker()
    def invoke(ctx: Any, op: Any, x: Any, y: Any) -> None:
        src, dst = PTensor(x), PTensor(y)
        if asks == "guideline":
            src.require(guideline("toy", src))
        lib_tagger("toy", [src], [dst])

    text = message(InvokerError, bench.resolve)
    assert text.startswith("Toy 'toy', a handler of toy: ")
    assert "toy.toml: library.guideline = 'tests.libraries.toy.handlers:guideline' (" in text
    assert f"({where(handlers.guideline)}), called with (call): AttributeError: " in text
    assert text.endswith("\n  x : N=2 C=3   f32\n  y : N=2 C=3   f32")


@pytest.mark.parametrize("answer", [True, False, 3])
def test_a_confirm_that_answers_nonsense(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, answer: Any
) -> None:
    monkeypatch.setattr(handlers, "refusal", lambda call, row: answer)
    bench.invoker()(lambda ctx, op, x, y: lib_tagger("toy", [PTensor(x)], [PTensor(y)]))
    text = message(InvokerError, bench.resolve)
    assert "toy.toml: library.confirm = " in text
    assert f"answers {answer!r}, which is neither None nor the reason why not" in text


def test_an_invoker_that_asks_for_a_dim_that_is_not_there(bench: Bench) -> None:
    @bench.invoker()
    def invoke(ctx: Any, op: Any, x: Any, y: Any) -> None:
        PTensor(x).size("G")  # here

    text = message(DimError, bench.resolve)
    assert text.startswith(f"Toy 'toy', toy invoker ({where(invoke)}): ")
    assert f"(at {where(invoke, 'here')})\n  x : N=2 C=3   f32" in text
