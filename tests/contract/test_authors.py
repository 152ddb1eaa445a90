"""What an operator's author may forget, beyond the contract of invokers: each is a typed error."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from libdesc import Routine, guideline
from ptensor import Layout, PTensor, emit, lib_tagger, share
from tests.libraries.bench import Bench, message, where
from tests.libraries.steps import READ, WRITE, FloatStep
from tests.libraries.toy import handlers
from vtensor.errors import (
    ContractError,
    DimError,
    DTypeError,
    GraphError,
    InvokerError,
    LayoutError,
    LibraryError,
    NoInvokerError,
)
from vtensor.language.graph import Graph
from vtensor.language.operators import OPERATORS, operator
from vtensor.language.tensor import VTensor
from vtensor.runtime.session import Session

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
        (lambda ctx, x: VTensor("f32", x.dims), "output 0 must be made with ctx.output(0)"),
        (lambda ctx, x: x, "output 0 must be made with ctx.output(0)"),
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
        super().__init__(())
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


@pytest.mark.parametrize(
    ("options", "kind", "fault"),
    [
        (
            {"dtypes": "f32"},
            DTypeError,
            ": dtypes: 'f32' must be element types in a list ({place})",
        ),
        ({"dtypes": {"x": "f32"}}, DTypeError, ": dtypes: 'f32' must be element types in a list"),
        (
            {"dtypes": {"z": ["f32"]}},
            LibraryError,
            " ({place}): dtypes or inplace names 'z'; the operands of Toy are x, y",
        ),
        ({"inplace": ["y"]}, LibraryError, " ({place}): dtypes or inplace names 'y'; the operands"),
        ({"inplace": "x"}, LibraryError, ": inplace='x' must be roles in a list ({place})"),
        ({"priority": "5"}, LibraryError, ": priority='5' must be an integer ({place})"),
        ({"when": True}, LibraryError, ": when=True must be a function of (op, *operands)"),
        ({"first": 5}, LibraryError, ": first=5 must be a function of (op, *inputs) ({place})"),
        ({"first": bool}, LibraryError, ": first and before go together: give both or neither"),
        (
            {"before": ["onednn"]},
            LibraryError,
            ": first and before go together: give both or neither",
        ),
        (
            {"before": "eigen"},
            LibraryError,
            ": before='eigen' must be libraries in a list ({place})",
        ),
        ({"device": None}, LibraryError, ": device=None must be a name ({place})"),
    ],
)
def test_an_invoker_of_which_nonsense_is_said(
    bench: Bench, options: Any, kind: Any, fault: str
) -> None:
    """It is refused where it stands; nothing is registered."""
    text = message(kind, lambda: bench.invoker(**options)(takes))
    assert text.startswith(f"invoker of Toy on toy{fault.format(place=where(takes))}")
    with pytest.raises(NoInvokerError):
        bench.resolve()


def test_an_invoker_that_is_no_function(bench: Bench) -> None:
    for thing in (None, 3, Bench, partial(takes)):
        text = message(LibraryError, lambda thing=thing: bench.invoker()(thing))  # type: ignore[misc]
        assert text.startswith(f"invoker of Toy on toy: {thing!r} is no function: write def ")


@pytest.mark.parametrize("more", [0, 2])
def test_an_invoker_of_another_signature(bench: Bench, more: int) -> None:
    def few(ctx: Any, x: Any, y: Any) -> None:
        pass

    def many(ctx: Any, op: Any, x: Any, w: Any, y: Any) -> None:
        pass

    made: Any = many if more else few
    names = "ctx, op, x, w, y" if more else "ctx, x, y"
    assert message(LibraryError, lambda: bench.invoker()(made)) == (
        f"invoker of Toy on toy ({where(made)}): it takes ({names}), "
        "and is called with (ctx, op, x, y)"
    )


def test_a_layout_that_does_not_parse(bench: Bench) -> None:
    @bench.invoker()
    def invoke(ctx: Any, op: Any, x: Any, y: Any) -> None:
        PTensor(x).require("N?C")  # here

    text = message(LayoutError, bench.resolve)
    here = where(invoke, "here")
    assert text.startswith(f"Toy 'toy', toy invoker: require on x ({here}): layout 'N?C', ")


def odd(name: Any = "Odd", compute: Any = None, **options: Any) -> Any:
    """An operator of whose declaration one thing is wrong."""

    def plain(self: Any, ctx: Any, x: VTensor) -> VTensor:
        y = VTensor(x.dtype, x.dims, ctx.output(0))
        ctx.dispatch(self, [x], [y])
        return y

    cls = type("Odd", (), {"compute": compute or plain, **options.pop("body", {})})
    return operator(name, **{"dims": {"x": "N C", "y": "N C"}, **options})(cls)


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"name": "My Op"}, " 'My Op': its name must be an identifier, such as 'Scale'"),
        ({"dims": {"X": "N", "y": "N"}}, " Odd: dims say nothing of {'x'}; did you mean 'X'?"),
        ({"dims": {"x": "N"}}, " Odd: dims name no output, only x, which compute takes"),
        ({"dims": "N C"}, " Odd: dims='N C' must be a row of names by role: {'x': 'N C', ...}"),
        ({"dims": {"x": ["N"], "y": "N"}}, " Odd: dims={'x': ['N'], 'y': 'N'} must be a row of"),
        ({"compute": lambda self, x: x}, " Odd: compute(self, x) must be compute(self, ctx, ...)"),
        ({"equal": [("x.C", "w.C")]}, " Odd: equal: 'w.C': there is no role 'w'; roles are x, y"),
        ({"equal": [("x.C", "y.K")]}, " Odd: equal: 'y.K': y has no dim 'K'; its dims are N C"),
        (
            {"equal": [("x.C", "y.C * groups")], "body": {"__annotations__": {"group": int}}},
            " Odd: equal: 'y.C * groups': there is no parameter 'groups'; parameters are group",
        ),
        ({"equal": ("x.C", "y.C")}, " Odd: equal=('x.C', 'y.C') must be pairs of products: "),
        ({"equal": [("x.C", "y.C + 1")]}, " Odd: equal: 'y.C + 1' is no product of "),
        (
            {"body": {"__annotations__": {"mode": "Mood"}}},
            " Odd: the type of a parameter is not known: NameError: name 'Mood' is not defined",
        ),
        ({"body": {"__annotations__": {"k": list}, "k": []}}, " Odd: Odd: mutable default "),
    ],
)
def test_an_operator_of_which_nonsense_is_said(scratch: None, options: Any, fault: str) -> None:
    """It is refused where it stands; nothing is registered."""
    assert message(GraphError, lambda: odd(**options)).startswith(f"operator{fault}")
    assert not {"Odd", "My Op"} & OPERATORS.keys()


def test_a_row_of_dims_that_is_none_says_whose_it_is(scratch: None) -> None:
    for row in ("N, C", "N-C", "N N"):
        text = message(DimError, lambda row=row: odd(dims={"x": "N", "y": row}))  # type: ignore[misc]
        assert text.startswith(f"operator Odd: dims of y: {row!r} must be dim names")


def test_an_operator_made_where_there_is_no_file(scratch: None) -> None:
    """At a prompt, a class has no source; its ``compute`` says where it was made."""
    cls = odd()
    info = OPERATORS["Odd"]
    assert f"{info.file}:{info.line}" == where(cls.compute)


def test_a_compute_of_an_unknown_element_type(scratch: None) -> None:
    def compute(self: Any, ctx: Any, x: VTensor) -> VTensor:
        return VTensor("float32", x.dims, ctx.output(0))

    graph = Graph()
    x = graph.input("x", {"N": 2, "C": 3})
    text = message(DTypeError, lambda: graph.add(odd(compute=compute)(), x, name="odd"))
    assert text.startswith("Odd 'odd': unknown element type 'float32'; one of ")
    assert text.endswith("\n  x : N=2 C=3   f32")
