"""Every operator on every library that has an invoker for it, against the definition in f64."""

from __future__ import annotations

from pathlib import Path

import pytest

import ops
from libdesc.registry import registry
from tests.operators.cases import BOUNDS, CASES, Case
from tests.operators.harness import check_close, check_pads, definition, run
from vtensor.errors import NoInvokerError
from vtensor.operators import OPERATORS

OURS = [name for name in dir(ops) if Path(OPERATORS[name].file).parent.name == "ops"]
ROWS = [
    (op, library)
    for op, library, device in sorted(registry().invokers)
    if device == "cpu" and op in OURS
]


@pytest.mark.parametrize("op", OURS)
def test_every_operator_has_cases(op: str) -> None:
    assert CASES.get(op), f"tests/operators/cases.py has no case of {op}"
    assert all(type(case.op) is OPERATORS[op].cls for case in CASES[op])


def test_cases_are_of_operators() -> None:
    assert set(CASES) == set(OURS)


def _check(op: str, library: str, case: Case, layout: str, dtype: str, bound: float) -> None:
    given = case.given(layout, dtype)
    if library in case.refused:
        with pytest.raises(NoInvokerError):
            run(library, case.op, given)
        return
    found = run(library, case.op, given)
    for value, storage, expected in zip(
        found.values, found.physical, definition(case.op, given), strict=True
    ):
        check_close(value, expected, bound)
        check_pads(storage)
    layouts = " ".join(str(one) for one in found.decision.layouts)
    for kernel in found.kernels:
        if kernel.startswith("ref") and not case.reference:
            raise AssertionError(f"runs {kernel} on {layouts}")


@pytest.mark.parametrize(("op", "library"), ROWS)
def test_agrees_with_the_definition(op: str, library: str) -> None:
    faults = []
    for case in CASES.get(op, []):
        for layout in case.layouts():
            try:
                _check(op, library, case, layout, "f32", BOUNDS.get(op, 1e-6))
            except (AssertionError, NoInvokerError) as error:
                faults.append(f"{case} from {layout or 'declared order'}: {error}")
    assert not faults, "\n".join(["", *faults])
