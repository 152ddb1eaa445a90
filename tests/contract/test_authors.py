"""What an operator's author may forget, beyond the contract of invokers: each is a typed error."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from libdesc import Routine, guideline
from ptensor import Layout, PTensor, emit, lib_tagger, share
from tests.contract.invokers import tagging
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

OPERANDS = ["  x : N=2 C=3   f32", "  y : N=2 C=3   f32"]


# Operators


def plain(self: Any, ctx: Any, x: VTensor) -> VTensor:
    y = VTensor(x.dtype, x.dims, ctx.output(0))
    ctx.dispatch(self, [x], [y])
    return y


def odd(name: Any = "Odd", compute: Any = plain, **options: Any) -> Any:
    """An operator of whose declaration one thing is wrong."""
    cls = type("Odd", (), {"compute": compute, **options.pop("body", {})})
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
def test_a_wrong_declaration_is_refused(scratch: None, options: Any, fault: str) -> None:
    assert message(GraphError, lambda: odd(**options)).startswith(f"operator{fault}")
    assert not {"Odd", "My Op"} & OPERATORS.keys()


def test_a_class_without_compute_is_refused(scratch: None) -> None:
    declare = operator("Lazy", dims={"x": "*", "y": "*"})
    text = message(GraphError, lambda: declare(type("Lazy", (), {})))
    assert "Lazy has no compute(self, ctx, ...)" in text


@pytest.mark.parametrize("row", ["N, C", "N-C", "N N"])
def test_a_row_of_dims_that_is_none_says_whose_it_is(scratch: None, row: str) -> None:
    text = message(DimError, lambda: odd(dims={"x": "N", "y": row}))
    assert text.startswith(f"operator Odd: dims of y: {row!r} must be dim names")


def test_an_operator_that_is_made_without_a_file_has_a_place(scratch: None) -> None:
    """At a prompt, a class has no source; its ``compute`` says where it was made."""
    odd()
    info = OPERATORS["Odd"]
    assert f"{info.file}:{info.line}" == where(plain)


def raising(self: Any, ctx: Any, x: VTensor) -> Any:
    return {"x": x}["y"]  # mark


OUTPUT_0 = "Odd 'odd': output 0 must be made with ctx.output(0)"
COMPUTED: list[tuple[Any, Any, str]] = [
    (lambda self, ctx, x: None, GraphError, "Odd 'odd': compute returned None, no VTensor"),
    (lambda self, ctx, x: VTensor("f32", x.dims), GraphError, OUTPUT_0),
    (lambda self, ctx, x: x, GraphError, OUTPUT_0),
    (
        lambda self, ctx, x: VTensor("float32", x.dims, ctx.output(0)),
        DTypeError,
        "Odd 'odd': unknown element type 'float32'; one of ",
    ),
    (
        raising,
        InvokerError,
        f"Odd 'odd', compute ({where(raising)}): KeyError: 'y' (at {where(raising, 'mark')})\n",
    ),
]


@pytest.mark.parametrize(("compute", "error", "text"), COMPUTED)
def test_a_wrong_compute_is_refused(scratch: None, compute: Any, error: Any, text: str) -> None:
    graph = Graph()
    x = graph.input("x", {"N": 2, "C": 3})
    said = message(error, lambda: graph.add(odd(compute=compute)(), x, name="odd"))
    assert said.startswith(text)
    assert error is GraphError or said.endswith(f"\n{OPERANDS[0]}")
    assert not graph.nodes


# Invokers

LIST, FUNCTION = " must be element types in a list", " must be a function of (op, *"
NAMES = " dtypes or inplace names {!r}; the operands of Toy are x, y"
BOTH = ": first and before go together: give both or neither"


@pytest.mark.parametrize(
    ("options", "kind", "fault"),
    [
        ({"dtypes": "f32"}, DTypeError, f": dtypes: 'f32'{LIST} ({{place}})"),
        ({"dtypes": {"x": "f32"}}, DTypeError, f": dtypes: 'f32'{LIST}"),
        ({"dtypes": {"x": ["f32", "float32"]}}, DTypeError, ": dtypes 'float32' are unknown; "),
        ({"dtypes": {"z": ["f32"]}}, LibraryError, f" ({{place}}):{NAMES.format('z')}"),
        ({"inplace": ["y"]}, LibraryError, f" ({{place}}):{NAMES.format('y')}"),
        ({"inplace": "x"}, LibraryError, ": inplace='x' must be roles in a list ({place})"),
        ({"priority": "5"}, LibraryError, ": priority='5' must be an integer ({place})"),
        ({"when": True}, LibraryError, f": when=True{FUNCTION}operands)"),
        ({"first": 5}, LibraryError, f": first=5{FUNCTION}inputs) ({{place}})"),
        ({"first": bool}, LibraryError, BOTH),
        ({"before": ["onednn"]}, LibraryError, BOTH),
        (
            {"before": "eigen"},
            LibraryError,
            ": before='eigen' must be libraries in a list ({place})",
        ),
        ({"device": None}, LibraryError, ": device=None must be a name ({place})"),
    ],
)
def test_an_invoker_with_wrong_options_fails(
    bench: Bench, options: Any, kind: Any, fault: str
) -> None:
    text = message(kind, lambda: bench.invoker(**options)(tagging))
    assert text.startswith(f"invoker of Toy on toy{fault.format(place=where(tagging))}")
    assert "float32" not in text or "there are f64, f32, " in text
    message(NoInvokerError, bench.resolve)


def test_an_invoker_that_is_no_function_is_refused(bench: Bench) -> None:
    for thing in (None, 3, Bench, partial(tagging)):
        text = message(LibraryError, lambda thing=thing: bench.invoker()(thing))  # type: ignore[misc]
        assert text.startswith(f"invoker of Toy on toy: {thing!r} is no function: write def ")


def few(ctx: Any, x: Any, y: Any) -> None: ...


def many(ctx: Any, op: Any, x: Any, w: Any, y: Any) -> None: ...


@pytest.mark.parametrize(("invoker", "names"), [(few, "ctx, x, y"), (many, "ctx, op, x, w, y")])
def test_an_invoker_of_another_signature_is_refused(bench: Bench, invoker: Any, names: str) -> None:
    assert message(LibraryError, lambda: bench.invoker()(invoker)) == (
        f"invoker of Toy on toy ({where(invoker)}): it takes ({names}), "
        "and is called with (ctx, op, x, y)"
    )


@pytest.mark.parametrize("python", [False, True])
@pytest.mark.parametrize("writes", ["step", "share", "nothing"])
def test_an_output_that_nothing_writes_is_refused(bench: Bench, writes: str, python: bool) -> None:
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

    feeds = {"x0": np.ones((2, 3), np.float32)}
    with Session(bench.graph()) as session:
        with pytest.raises(InvokerError, match="ZeroDivisionError: mine") as caught:
            session.run(None, feeds)
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
        assert str(caught.value).startswith("Toy 'toy', toy invoker (")
        assert "test_authors.py:" in str(caught.value)
        wrong.append(False)
        assert (session.run(None, feeds)[0] == feeds["x0"]).all()


# Conditions and handlers


def no_parameter(op: Any, x: VTensor, y: VTensor) -> bool:
    return bool(op.groups == 1)  # mark


def no_dim(op: Any, x: VTensor, y: VTensor) -> bool:
    return x.size("G") == 1  # mark


@pytest.mark.parametrize("when", [no_parameter, no_dim])
def test_a_condition_that_raises_says_where(bench: Bench, when: Any) -> None:
    """The condition failed, not the invoker: its place, and what it was given."""
    bench.invoker(when=when)(tagging)
    first, *operands = message(InvokerError, bench.resolve).splitlines()
    place = f"Toy 'toy', the condition ({where(when)}) of the toy invoker ({where(tagging)}): "
    assert first.startswith(place)
    assert first.endswith(f" (at {where(when, 'mark')})")
    assert operands == OPERANDS
    if when is no_parameter:
        assert "): AttributeError: 'Toy' object has no attribute 'groups' (at " in first


def test_a_condition_that_answers_nothing_is_refused(bench: Bench) -> None:
    """A forgotten return would decline each call, for good."""
    bench.invoker(when=lambda op, x, y: None)(tagging)
    text = message(InvokerError, bench.resolve)
    assert "Toy 'toy', the condition (" in text
    assert ") of the toy invoker" in text
    assert "answers None: it must return True, or False or a reason for declining" in text


@pytest.mark.parametrize("asks", [True, False])
def test_a_raising_guideline_is_named(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, asks: bool
) -> None:
    """The handler failed: where it stands, who names it, what it was given."""
    monkeypatch.setattr(handlers, "answer", lambda call: call.op.strides)

    @bench.invoker()
    def invoke(ctx: Any, op: Any, x: Any, y: Any) -> None:
        src, dst = PTensor(x), PTensor(y)
        if asks:
            src.require(guideline("toy", src))
        lib_tagger("toy", [src], [dst])

    text = message(InvokerError, bench.resolve)
    assert text.startswith("Toy 'toy', a handler of toy: ")
    assert "toy.toml: library.guideline = 'tests.libraries.toy.handlers:guideline' (" in text
    assert f"({where(handlers.guideline)}), called with (call): AttributeError: " in text
    assert text.endswith("\n".join(["", *OPERANDS]))


@pytest.mark.parametrize("answer", [True, False, 3])
def test_a_confirm_that_answers_nonsense_is_refused(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, answer: Any
) -> None:
    monkeypatch.setattr(handlers, "refusal", lambda call, row: answer)
    bench.invoker()(tagging)
    text = message(InvokerError, bench.resolve)
    assert "toy.toml: library.confirm = " in text
    assert f"answers {answer!r}, which is neither None nor the reason why not" in text


class Heavy(Routine):
    """A routine that cannot be made without its factor."""

    def __init__(self, factor: Any) -> None:
        super().__init__(())
        self.factor = factor + 1  # mark

    preferred = confirm = __call__ = None  # type: ignore[assignment]


def heavy(ctx: Any, op: Any, x: Any, y: Any) -> None:
    Heavy("one")


def without_factor(ctx: Any, op: Any, x: Any, y: Any) -> None:
    Heavy()  # type: ignore[call-arg]  # here


def foreign_dim(ctx: Any, op: Any, x: Any, y: Any) -> None:
    PTensor(x).size("G")  # here


def unreadable_layout(ctx: Any, op: Any, x: Any, y: Any) -> None:
    PTensor(x).require("N?C")  # here


@pytest.mark.parametrize(
    ("invoker", "error", "text", "place"),
    [
        (heavy, InvokerError, " ({at}): TypeError: ", where(Heavy.__init__, "mark")),
        (without_factor, InvokerError, " ({at}): TypeError: ", where(without_factor, "here")),
        (foreign_dim, DimError, " ({at}): ", where(foreign_dim, "here")),
        (unreadable_layout, LayoutError, ": require on x (", where(unreadable_layout, "here")),
    ],
)
def test_an_invokers_error_says_where(
    bench: Bench, invoker: Any, error: Any, text: str, place: str
) -> None:
    bench.invoker()(invoker)
    said = message(error, bench.resolve)
    assert said.startswith(f"Toy 'toy', toy invoker{text.format(at=where(invoker))}")
    unread = f"require on x ({place}): layout 'N?C', "
    assert (unread if error is LayoutError else f"(at {place})\n{OPERANDS[0]}") in said
