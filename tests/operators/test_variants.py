"""The variants that libraries have of a call: each computes what the definition says."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest

from libdesc.onednn.products import PRODUCTS
from ops import Conv2D, MatMul, MaxPool, Relu
from tests.operators.harness import check_outcome, decide, definition, prober, run, variants
from tests.operators.tables.cases import CASES, Case, bound
from tests.operators.test_libraries import ROWS
from tests.optimizer.test_planes import LARGEST_ERROR, needs_amx
from vtensor.errors import ContractError, NoInvokerError

POINTS = Case(Conv2D(), ("N=2 C=32 H=5 W=6", "!O=48 I=32 h=1 w=1"))
SEVERAL = [
    POINTS,
    Case(Conv2D(pads=(1, 1, 1, 1)), ("N=1 C=32 H=8 W=8", "!O=32 I=32 h=3 w=3")),
    Case(MatMul("K"), ("M=4 K=32", "!K=32 N=48")),
    Case(MaxPool(kernel_shape=(2, 2)), ("N=1 C=32 H=8 W=8",)),
]


@pytest.mark.parametrize("op", [op for op, library in ROWS if library == "onednn"])
def test_every_variant_computes_the_same(op: str) -> None:
    for case in [*CASES[op], *(row for row in SEVERAL if type(row.op).__name__ == op)]:
        given = case.given()
        with suppress(NoInvokerError):
            for variant in variants("onednn", case.op, given):
                outcome = run("onednn", case.op, given, variant=variant)
                check_outcome(outcome, definition(case.op, given), bound(op, "f32"))


@needs_amx
@pytest.mark.parametrize("op", ["Conv2D", "Conv3D", "ConvTranspose", "DepthwiseConv2D", "MatMul"])
def test_products_of_planes_are_close(op: str) -> None:
    """Every kernel on every case of an operator, into memory full of NaN."""
    count = 0
    for case in CASES[op]:
        given = case.given()
        with suppress(NoInvokerError):
            for variant in variants("onednn", case.op, given, inexact=True):
                if "bf16+bf16" in map(str, (layout.encoding for layout in variant.layouts)):
                    outcome = run("onednn", case.op, given, variant=variant)
                    check_outcome(outcome, definition(case.op, given), LARGEST_ERROR)
                    count += 1
    assert count


@pytest.mark.parametrize("case", SEVERAL, ids=str)
def test_what_can_be_done_in_several_ways_has_variants(case: Case) -> None:
    ways = variants("onednn", case.op, case.given())
    assert len({variant.kernel for variant in ways}) > 1
    assert len(set(ways)) == len(ways)
    assert ways[0].layouts == decide("onednn", case.op, case.given()).layouts


def kinds(case: Case) -> set[str]:
    """Return the kinds of kernels that oneDNN has for a case."""
    return {variant.kernel.split()[0] for variant in variants("onednn", case.op, case.given())}


def test_a_window_of_one_element_is_a_product_too() -> None:
    assert kinds(POINTS) == {"convolution", *PRODUCTS}


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
    assert kinds(case) == {"convolution"}


def test_arithmetic_outweighs_in_some_calls_only() -> None:
    asked = [prober("onednn", case.op, case.given()) for case in SEVERAL]
    assert [asking.heavy(node) for asking, node in asked] == [True, True, True, False]
    relu = Case(Relu(), ("N=1 C=4 H=2 W=2",))
    assert not variants("onednn", relu.op, relu.given())  # it takes whatever comes


def test_a_variant_that_is_wrong_is_seen() -> None:
    """The twin: a variant whose weights are taken to lie as they do not."""
    given = POINTS.given()
    variant = variants("onednn", POINTS.op, given)[0]
    spoilt = [replace(given[0]), replace(given[1], array=given[1].array[::-1])]
    expected = definition(POINTS.op, given)
    with pytest.raises(AssertionError, match="off by"):
        check_outcome(run("onednn", POINTS.op, spoilt, variant=variant), expected, 1e-3)


def test_a_variant_that_is_gone_is_an_error() -> None:
    """A plan that was made elsewhere names a kernel that is not here."""
    given = POINTS.given()
    variant = replace(variants("onednn", POINTS.op, given)[0], kernel="convolution none")
    with pytest.raises(ContractError, match="no kernel convolution none"):
        run("onednn", POINTS.op, given, variant=variant)
