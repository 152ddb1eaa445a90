"""Misuse of what an invoker is given: each a typed error that names its place, whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from libdesc import guideline
from ptensor import PTensor, emit, lib_tagger, share
from tests.libraries.bench import Bench, message, where
from tests.libraries.steps import READ, WRITE, FloatStep
from vtensor.errors import ContractError
from vtensor.language.tensor import VTensor

TOY = "Toy 'toy', toy invoker: "
FORGOTTEN = "in partial evaluation; lib_tagger returned True: return there"
STEP = FloatStep("idle", [(6, READ), (6, WRITE)], lambda _: None)
#: The PTensors of x of the evaluations so far.
KEPT: list[PTensor] = []


class Misuse(NamedTuple):
    """An invoker that breaks its contract where it says ``# here``.

    Attributes:
        invoker: of the operator ``op``.
        text: the error's, before the place; ``{first}`` is the place of the comment ``# first``.
        by: what the text begins with.
        op: operator.
        python: whether the invoker may go on in Python after the tagger.
        runs: whether a run comes to the fault; otherwise partial evaluation does.
        calls: which evaluation comes to the fault, from 1 on.
    """

    invoker: Callable[..., None]
    text: str
    by: str = TOY
    op: str = "Toy"
    python: bool = True
    runs: bool = False
    calls: int = 1


MISUSES: list[Misuse] = []


def misuse(text: str, **options: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    def add(invoker: Callable[..., None]) -> Callable[..., None]:
        MISUSES.append(Misuse(invoker, text, **options))
        return invoker

    return add


@misuse("a second require on x; the first is at {first}")
def require_twice(ctx: Any, op: Any, x: Any, y: Any) -> None:
    src = PTensor(x)
    src.require("NC")  # first
    src.require("NC")  # here


@misuse("require on x after lib_tagger")
def require_late(ctx: Any, op: Any, x: Any, y: Any) -> None:
    src, dst = PTensor(x), PTensor(y)
    lib_tagger("toy", [src], [dst])
    src.require("NC")  # here


@misuse("PTensor(<VTensor 'x0' f32 N=2 C=3>) after lib_tagger")
def ptensor_late(ctx: Any, op: Any, x: Any, y: Any) -> None:
    lib_tagger("toy", [PTensor(x)], [PTensor(y)])
    PTensor(x)  # here


@misuse("require on the PTensor of x, which is of another call", calls=2)
def require_on_another_calls_ptensor(ctx: Any, op: Any, x: Any, y: Any) -> None:
    KEPT.append(PTensor(x))
    if len(KEPT) > 1:
        KEPT[0].require("NC")  # here
    lib_tagger("toy", [KEPT[-1]], [PTensor(y)])


@misuse("lib_tagger is given <PTensor x f32 N=2 C=3 NC>, which is no PTensor of this call", calls=2)
def tagger_with_another_calls_ptensor(ctx: Any, op: Any, x: Any, y: Any) -> None:
    KEPT.append(PTensor(x))
    lib_tagger("toy", KEPT[:1], [PTensor(y)])  # here


@misuse("lib_tagger is given <VTensor 'x0' f32 N=2 C=3>, which is no PTensor of this call")
def tagger_with_a_vtensor(ctx: Any, op: Any, x: Any, y: Any) -> None:
    PTensor(x)
    lib_tagger("toy", [x], [PTensor(y)])  # here


@misuse("guideline of x, which is of another call", calls=2)
def guideline_of_another_calls_ptensor(ctx: Any, op: Any, x: Any, y: Any) -> None:
    KEPT.append(PTensor(x))
    guideline("toy", KEPT[0])  # here
    lib_tagger("toy", [KEPT[-1]], [PTensor(y)])


@misuse("guideline('numpy') inside the invoker of 'toy'", by="")
def guideline_of_another_library(ctx: Any, op: Any, x: Any, y: Any) -> None:
    guideline("numpy", PTensor(x))  # here


@misuse("returned without calling lib_tagger")
def no_tagger(ctx: Any, op: Any, x: Any, y: Any) -> None:
    PTensor(x).require("NC")


@misuse("lib_tagger is called a second time")
def tagger_twice(ctx: Any, op: Any, x: Any, y: Any) -> None:
    src, dst = PTensor(x), PTensor(y)
    lib_tagger("toy", [src], [dst])
    lib_tagger("toy", [src], [dst])  # here


@misuse("lib_tagger says 'numpy', the invoker is registered for 'toy'")
def tagger_of_another_library(ctx: Any, op: Any, x: Any, y: Any) -> None:
    lib_tagger("numpy", [PTensor(x)], [PTensor(y)])  # here


@misuse("lib_tagger is not given the PTensor of b, y", by="Pair 'pair', toy invoker: ", op="Pair")
def tagger_without_operands(ctx: Any, op: Any, a: Any, b: Any, y: Any) -> None:
    left, dst = PTensor(a), PTensor(y)
    PTensor(b)
    lib_tagger("toy", [left], [])  # here
    lib_tagger("toy", [left], [dst])


@misuse("layout NHWC is not one of x, whose dims are N C")
def require_with_foreign_dims(ctx: Any, op: Any, x: Any, y: Any) -> None:
    PTensor(x).require("NHWC")  # here


@misuse("require on x with no layout; ANY is Layout.ANY")
def require_with_nothing(ctx: Any, op: Any, x: Any, y: Any) -> None:
    PTensor(x).require([])  # here


@misuse("<VTensor f32 N=2 C=3> is no operand of this call")
def ptensor_of_a_foreign_vtensor(ctx: Any, op: Any, x: Any, y: Any) -> None:
    PTensor(VTensor("f32", {"N": 2, "C": 3}))  # here


@misuse("operand x already has its PTensor")
def second_ptensor_of_an_operand(ctx: Any, op: Any, x: Any, y: Any) -> None:
    PTensor(x)
    PTensor(x)  # here


@misuse("data() of x in partial evaluation; call lib_tagger first")
def data_before_the_tagger(ctx: Any, op: Any, x: Any, y: Any) -> None:
    PTensor(x).data()  # here


@misuse(f"a native step {FORGOTTEN}", python=False)
def step_after_a_forgotten_return(ctx: Any, op: Any, x: Any, y: Any) -> None:
    src, dst = PTensor(x), PTensor(y)
    lib_tagger("toy", [src], [dst])
    emit(STEP, [src, dst])  # here


@misuse(f"data() of y {FORGOTTEN}")
def data_after_a_forgotten_return(ctx: Any, op: Any, x: Any, y: Any) -> None:
    src, dst = PTensor(x), PTensor(y)
    lib_tagger("toy", [src], [dst])
    dst.data()  # here


@misuse(f"share {FORGOTTEN}")
def share_after_a_forgotten_return(ctx: Any, op: Any, x: Any, y: Any) -> None:
    src, dst = PTensor(x), PTensor(y)
    lib_tagger("toy", [src], [dst])
    share(src, dst)  # here


@misuse(
    "data() of x while recording: Python between the tagger and the native call would run once and "
    "be frozen; say python=True, or leave it to the library",
    python=False,
    runs=True,
)
def numpy_line_in_a_native_invoker(ctx: Any, op: Any, x: Any, y: Any) -> None:
    src, dst = PTensor(x).require("NC"), PTensor(y).require("NC")
    if lib_tagger("toy", [src], [dst]):
        return
    src.data()[...] += 1  # here
    emit(STEP, [src, dst])


@misuse("a native step before lib_tagger", runs=True)
def step_before_the_tagger(ctx: Any, op: Any, x: Any, y: Any) -> None:
    src, dst = PTensor(x).require("NC"), PTensor(y).require("NC")
    KEPT.append(src)
    if len(KEPT) > 1:
        emit(STEP, [src, dst])  # here
    lib_tagger("toy", [src], [dst])


@misuse(
    "a native step is given <PTensor x f32 N=2 C=3 NC>, which is no PTensor of this call",
    python=False,
    runs=True,
)
def step_on_another_calls_ptensor(ctx: Any, op: Any, x: Any, y: Any) -> None:
    src, dst = PTensor(x).require("NC"), PTensor(y).require("NC")
    KEPT.append(src)
    if lib_tagger("toy", [src], [dst]):
        return
    emit(STEP, [KEPT[0], dst])  # here


@misuse("share of x with y: 24 bytes cannot share 32 bytes", python=False, runs=True)
def share_of_different_sizes(ctx: Any, op: Any, x: Any, y: Any) -> None:
    src, dst = PTensor(x).require("NC4c"), PTensor(y).require("NC")
    if lib_tagger("toy", [src], [dst]):
        return
    share(src, dst)  # here


@misuse("x was resolved to NC, the invoker now asks for CN", runs=True)
def require_another_layout_later(ctx: Any, op: Any, x: Any, y: Any) -> None:
    KEPT.append(PTensor(x))
    KEPT[-1].require(["NC" if len(KEPT) == 1 else "CN"])  # here
    lib_tagger("toy", [KEPT[-1]], [PTensor(y)])


@misuse("y was resolved to NC, the invoker now asks for NC4c or CN", runs=True)
def require_other_alternatives_later(ctx: Any, op: Any, x: Any, y: Any) -> None:
    KEPT.append(PTensor(y))
    KEPT[-1].require(["NC" if len(KEPT) == 1 else "NC4c", "CN"])  # here
    lib_tagger("toy", [PTensor(x)], [KEPT[-1]])


@misuse("library_desc of x before its layout is decided")
def library_desc_without_a_layout(ctx: Any, op: Any, x: Any, y: Any) -> None:
    PTensor(x).library_desc("toy")  # here


@pytest.mark.parametrize("case", MISUSES, ids=lambda case: case.invoker.__name__)
def test_misuse_is_an_error_that_names_its_place(bench: Bench, case: Misuse) -> None:
    KEPT.clear()
    steps_before = STEP.runs
    bench.invoker(case.op, python=case.python)(case.invoker)
    for _ in range(1, case.calls):
        bench.resolve(case.op)
    evaluate: Callable[[str], object] = bench.run if case.runs else bench.resolve
    place = where(case.invoker, "" if case.invoker is no_tagger else "here")
    first = where(case.invoker, "first") if "{first}" in case.text else ""
    text = message(ContractError, lambda: evaluate(case.op))
    assert text == f"{case.by}{case.text.format(first=first)} ({place})"
    assert STEP.runs == steps_before
