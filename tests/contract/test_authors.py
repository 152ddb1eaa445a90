"""What an operator's author may forget, beyond the contract of invokers: each is a typed error."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ptensor import Layout, PTensor, emit, lib_tagger, share
from tests.libraries.bench import Bench, message
from tests.libraries.steps import READ, WRITE, FloatStep
from vtensor.errors import ContractError, DTypeError, GraphError, InvokerError
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
