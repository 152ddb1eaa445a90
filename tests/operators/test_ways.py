"""The ways that libraries offer to be measured: each computes what the definition says."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest

from libdesc.onednn.products import PRODUCTS
from ops import Conv2D, MatMul, MaxPool, Relu
from tests.operators.cases import CASES, Case, bound
from tests.operators.harness import check_outcome, decide, definition, offer, run
from tests.operators.test_libraries import ROWS
from vtensor.errors import ContractError, NoInvokerError

POINTS = Case(Conv2D(), ("N=2 C=32 H=5 W=6", "!O=48 I=32 h=1 w=1"))
OFFERING = [
    POINTS,
    Case(Conv2D(pads=(1, 1, 1, 1)), ("N=1 C=32 H=8 W=8", "!O=32 I=32 h=3 w=3")),
    Case(MatMul("K"), ("M=4 K=32", "!K=32 N=48")),
    Case(MaxPool(kernel_shape=(2, 2)), ("N=1 C=32 H=8 W=8",)),
]


@pytest.mark.parametrize("op", [op for op, library in ROWS if library == "onednn"])
def test_every_way_computes_the_same(op: str) -> None:
    for case in [*CASES[op], *(one for one in OFFERING if type(one.op).__name__ == op)]:
        given = case.given()
        with suppress(NoInvokerError):
            for way in offer("onednn", case.op, given).ways:
                found = run("onednn", case.op, given, way=way)
                check_outcome(found, definition(case.op, given), bound(op, "f32"))


@pytest.mark.parametrize("case", OFFERING, ids=str)
def test_what_can_be_done_in_several_ways_is_offered_so(case: Case) -> None:
    ways = offer("onednn", case.op, case.given()).ways
    assert len({way.form for way in ways}) > 1
    assert len(set(ways)) == len(ways)
    assert ways[0].layouts == decide("onednn", case.op, case.given()).layouts


def test_a_window_of_one_element_is_a_product_too() -> None:
    kinds = {way.form.split()[0] for way in offer("onednn", POINTS.op, POINTS.given()).ways}
    assert {"convolution", *PRODUCTS} == kinds


@pytest.mark.parametrize(
    "case",
    [
        Case(Conv2D(strides=(2, 2)), POINTS.inputs),
        Case(Conv2D(pads=(1, 1, 1, 1)), POINTS.inputs),
        Case(Conv2D(), ("N=2 C=32 H=5 W=6", "!O=48 I=32 h=2 w=1")),
        Case(Conv2D(group=2), ("N=2 C=32 H=5 W=6", "!G=2 O=24 I=16 h=1 w=1")),
    ],
    ids=str,
)
def test_other_windows_are_no_product(case: Case) -> None:
    ways = offer("onednn", case.op, case.given()).ways
    assert {way.form.split()[0] for way in ways} == {"convolution"}


def test_arithmetic_outweighs_in_some_calls_only() -> None:
    assert [offer("onednn", case.op, case.given()).heavy for case in OFFERING] == [
        True,
        True,
        True,
        False,
    ]
    relu = Case(Relu(), ("N=1 C=4 H=2 W=2",))
    assert not offer("onednn", relu.op, relu.given()).ways  # it takes whatever comes


def test_a_way_that_is_wrong_is_seen() -> None:
    """The twin: a way whose weights are taken to lie as they do not."""
    given = POINTS.given()
    way = offer("onednn", POINTS.op, given).ways[0]
    spoilt = [replace(given[0]), replace(given[1], array=given[1].array[::-1])]
    expected = definition(POINTS.op, given)
    with pytest.raises(AssertionError, match="off by"):
        check_outcome(run("onednn", POINTS.op, spoilt, way=way), expected, 1e-3)


def test_a_way_that_is_gone_is_an_error() -> None:
    """A plan that was made elsewhere names a kernel that is not here."""
    given = POINTS.given()
    way = replace(offer("onednn", POINTS.op, given).ways[0], form="convolution none")
    with pytest.raises(ContractError, match="no kernel convolution none"):
        run("onednn", POINTS.op, given, way=way)
