"""Every operator on every library that has an invoker for it, against the definition in f64."""

from __future__ import annotations

import numpy as np
import pytest

from libdesc.registry import registry
from libdesc.routine import reference_kernel
from ops import BiasAdd
from ptensor.buffer import Buffer, TensorStorage
from ptensor.layout import Layout
from tests.libraries.slow import ALL
from tests.operators.calls.levels import reference_faults
from tests.operators.harness import (
    Given,
    check_close,
    check_outcome,
    check_pads,
    definition,
    run,
)
from tests.operators.tables import cases
from tests.operators.tables.cases import CASES, Case, bound, expected
from tests.operators.tables.elementwise import ours
from vtensor.errors import NoInvokerError
from vtensor.language.operators import OPERATORS

OURS = ours()
ROWS = [
    (op, library)
    for op, library, device in sorted(registry().invokers)
    if device == "cpu" and op in OURS
]
NARROW = [
    (op, library)
    for op, library in ROWS
    if any("bf16" in row for row in registry().invokers[op, library, "cpu"].dtypes.values())
]


@pytest.mark.parametrize("op", OURS)
def test_every_operator_has_cases(op: str) -> None:
    check_has_cases(op)


def check_has_cases(op: str) -> None:
    """Check that the table has a row of an operator, which would not be tested without."""
    assert CASES.get(op), f"tests/operators/tables/cases.py has no case of {op}"
    assert all(type(case.op) is OPERATORS[op].cls for case in CASES[op])


def test_cases_are_of_operators() -> None:
    assert set(CASES) == set(OURS)


@pytest.mark.parametrize(("op", "library"), ROWS)
def test_agrees_with_the_definition(op: str, library: str) -> None:
    check_all(op, library, "f32", bound(op, "f32", library))


@pytest.mark.parametrize(("op", "library"), NARROW)
def test_agrees_in_bf16(op: str, library: str) -> None:
    """Where the processor has bf16; elsewhere the library declines and says so.

    ``make test`` runs the first three cases of each operator.
    """
    check_all(op, library, "bf16", bound(op, "bf16"), None if ALL else 3)


def check_all(op: str, library: str, dtype: str, bound: float, most: int | None = None) -> None:
    """Check every case of an operator, or so many, from every layout in which its images may be.

    No step runs a reference kernel where other layouts have a real one.
    """
    faults = []
    for case in CASES[op][:most]:
        kernels: list[str] = []
        for layout in case.layouts():
            try:
                kernels += _check(library, case, layout, dtype, bound)
            except (AssertionError, NoInvokerError) as error:
                faults.append(f"{case} from {layout or 'declared order'}: {error}")
        if library == "onednn" and any(map(reference_kernel, kernels)):
            faults += reference_faults(case, dtype)
    assert not faults, "\n".join(["", *faults])


def _check(library: str, case: Case, layout: str, dtype: str, bound: float) -> list[str]:
    """Check a case and return the kernels that ran; none where the library must decline."""
    try:
        outcome = run(library, case.op, case.given(layout, dtype))
    except NoInvokerError as error:
        if library in case.refused or (dtype != "f32" and says_absent(str(error), dtype)):
            return []
        raise
    assert library not in case.refused, "was to be declined"
    check_outcome(outcome, expected(case, dtype), bound)
    return outcome.kernels


def says_absent(text: str, dtype: str) -> bool:
    """Return whether a refusal says that the processor does not compute exactly in a type."""
    return f"kernel for {dtype}" in text or f"takes subnormals of {dtype} for zeros" in text


@pytest.mark.parametrize("library", [library for op, library in ROWS if op == "BiasAdd"])
def test_two_blocks_of_one_size_are_two_axes(library: str) -> None:
    """A dim of 4 blocks of 4 elements of 4: an axis is its dim and its unit, not its block."""
    values = np.arange(128, dtype=np.float32)
    image, bias = values.reshape(2, 64), values[:64]
    layouts = Layout("NC4c4c"), Layout("C")
    inputs = [
        Given(array, tuple(layout.dims), layout)
        for array, layout in zip((image, bias), layouts, strict=True)
    ]
    [biased] = run(library, BiasAdd(), inputs).values
    np.testing.assert_array_equal(biased, image + bias)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("op", [op for op, library in ROWS if library == "numpy"])
def test_the_definition_takes_narrow_types(op: str, dtype: str) -> None:
    """A network in bf16 is not stopped by an operator that has the definition alone."""
    for case in CASES[op][:2]:
        given = case.given(dtype=dtype)
        value, *_ = run("numpy", case.op, given).values
        check_close(value, definition(case.op, given)[0], 2e-2)


def test_a_result_that_is_off_is_seen() -> None:
    """The twin of check_close."""
    right = np.ones((2, 3))
    check_close(right.astype(np.float32), right, 1e-6)
    for wrong in (1 + 2e-6, np.nan, np.inf):
        spoiled = right.astype(np.float32)
        spoiled[1, 2] = wrong
        with pytest.raises(AssertionError):
            check_close(spoiled, right, 1e-6)


def test_pads_that_are_not_zero_are_seen() -> None:
    """The twin of check_pads."""
    layout, extents = Layout("NC8c"), {"N": 1, "C": 3}
    storage = TensorStorage("f32", extents, layout, Buffer.wrap(np.zeros((1, 1, 8), "f4")))
    check_pads(storage)
    storage.data()[0, 0, 7] = np.nan
    with pytest.raises(AssertionError, match="pads of NC8c"):
        check_pads(storage)


def test_an_operator_without_cases_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin of check_has_cases."""
    monkeypatch.delitem(cases.CASES, "Relu")
    with pytest.raises(AssertionError, match="no case of Relu"):
        check_has_cases("Relu")


def test_a_wrong_operator_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin of check_all: cases of another operator than the one that is compared."""
    monkeypatch.setattr(
        "tests.operators.test_libraries.expected",
        lambda case, dtype: [case.given("", dtype)[0].array.astype(np.float64)],
    )
    with pytest.raises(AssertionError, match="off by"):
        check_all("Relu", "onednn", "f32", 1e-6)
