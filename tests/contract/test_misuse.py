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

FORGOTTEN = "in partial evaluation; lib_tagger returned True: return there"
FROZEN = """data() of x while recording: Python between the tagger and the native call would run \
once and be frozen; say python=True, or leave it to the library"""
STEP = FloatStep("idle", [(6, READ), (6, WRITE)], lambda _: None)
STRANGER = VTensor("f32", {"N": 2, "C": 3})
#: The PTensors of x of the evaluations so far.
KEPT: list[PTensor] = []


class Misuse(NamedTuple):
    """An invoker that breaks its contract, in its line or where it says ``# here``.

    Attributes:
        text: the error's, before the place; ``{first}`` is the place of the comment ``# first``.
        invoker: of the operator ``op``.
        by: what the text begins with.
        op: operator.
        python: whether the invoker may go on in Python after the tagger.
        runs: whether a run comes to the fault; otherwise partial evaluation does.
        calls: which evaluation comes to the fault, from 1 on.
    """

    text: str
    invoker: Callable[..., Any]
    by: str = "Toy 'toy', toy invoker: "
    op: str = "Toy"
    python: bool = True
    runs: bool = False
    calls: int = 1


def tagged(x: VTensor, y: VTensor) -> tuple[PTensor, PTensor]:
    """PTensors of x and y that the tagger has had."""
    src, dst = PTensor(x), PTensor(y)
    lib_tagger("toy", [src], [dst])
    return src, dst


MISUSES: list[Misuse] = [
    Misuse("require on x after lib_tagger", lambda ctx, op, x, y: tagged(x, y)[0].require("NC")),
    Misuse(
        "PTensor(<VTensor 'x0' f32 N=2 C=3>) after lib_tagger",
        lambda ctx, op, x, y: (tagged(x, y), PTensor(x)),
    ),
    Misuse(
        "lib_tagger is given <VTensor 'x0' f32 N=2 C=3>, which is no PTensor of this call",
        lambda ctx, op, x, y: (PTensor(x), lib_tagger("toy", [x], [PTensor(y)])),
    ),
    Misuse(
        "guideline('numpy') inside the invoker of 'toy'",
        lambda ctx, op, x, y: guideline("numpy", PTensor(x)),
        by="",
    ),
    Misuse(
        "returned without calling lib_tagger",
        lambda ctx, op, x, y: (PTensor(x).require("NC"), None)[1],
    ),
    Misuse(
        "lib_tagger is called a second time",
        lambda ctx, op, x, y: (pair := tagged(x, y), lib_tagger("toy", [pair[0]], [pair[1]])),
    ),
    Misuse(
        "lib_tagger says 'numpy', the invoker is registered for 'toy'",
        lambda ctx, op, x, y: lib_tagger("numpy", [PTensor(x)], [PTensor(y)]),
    ),
    Misuse(
        "layout NHWC is not one of x, whose dims are N C",
        lambda ctx, op, x, y: PTensor(x).require("NHWC"),
    ),
    Misuse(
        "require on x with no layout; ANY is Layout.ANY",
        lambda ctx, op, x, y: PTensor(x).require([]),
    ),
    Misuse(
        "<VTensor f32 N=2 C=3> is no operand of this call",
        lambda ctx, op, x, y: PTensor(STRANGER),
    ),
    Misuse("operand x already has its PTensor", lambda ctx, op, x, y: (PTensor(x), PTensor(x))),
    Misuse(
        "data() of x in partial evaluation; call lib_tagger first",
        lambda ctx, op, x, y: PTensor(x).data(),
    ),
    Misuse(
        "library_desc of x before its layout is decided",
        lambda ctx, op, x, y: PTensor(x).library_desc("toy"),
    ),
    Misuse(
        f"a native step {FORGOTTEN}",
        lambda ctx, op, x, y: emit(STEP, tagged(x, y)),
        python=False,
    ),
    Misuse(f"data() of y {FORGOTTEN}", lambda ctx, op, x, y: tagged(x, y)[1].data()),
    Misuse(f"share {FORGOTTEN}", lambda ctx, op, x, y: share(*tagged(x, y))),
]


def misuse(text: str, **options: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the decorated invoker to the table."""

    def add(invoker: Callable[..., None]) -> Callable[..., None]:
        MISUSES.append(Misuse(text, invoker, **options))
        return invoker

    return add


@misuse("a second require on x; the first is at {first}")
def require_twice(ctx: Any, op: Any, x: Any, y: Any) -> None:
    src = PTensor(x)
    src.require("NC")  # first
    src.require("NC")  # here


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


@misuse("guideline of x, which is of another call", calls=2)
def guideline_of_another_calls_ptensor(ctx: Any, op: Any, x: Any, y: Any) -> None:
    KEPT.append(PTensor(x))
    guideline("toy", KEPT[0])  # here
    lib_tagger("toy", [KEPT[-1]], [PTensor(y)])


@misuse("lib_tagger is not given the PTensor of b, y", by="Pair 'pair', toy invoker: ", op="Pair")
def tagger_without_operands(ctx: Any, op: Any, a: Any, b: Any, y: Any) -> None:
    left, dst = PTensor(a), PTensor(y)
    PTensor(b)
    lib_tagger("toy", [left], [])  # here
    lib_tagger("toy", [left], [dst])


@misuse(FROZEN, python=False, runs=True)
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


@pytest.mark.parametrize("case", MISUSES, ids=lambda case: case.text)
def test_misuse_is_an_error_that_names_its_place(bench: Bench, case: Misuse) -> None:
    KEPT.clear()
    steps_before = STEP.runs
    bench.invoker(case.op, python=case.python)(case.invoker)
    for _ in range(1, case.calls):
        bench.resolve(case.op)
    evaluate: Callable[[str], object] = bench.run if case.runs else bench.resolve
    place = where(case.invoker, "" if case.invoker.__name__ == "<lambda>" else "here")
    first = where(case.invoker, "first") if "{first}" in case.text else ""
    text = message(ContractError, lambda: evaluate(case.op))
    assert text == f"{case.by}{case.text.format(first=first)} ({place})"
    assert STEP.runs == steps_before
