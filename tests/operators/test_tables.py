"""Operators that are rows of a table have a name, a place, a type and a text like any other."""

from __future__ import annotations

import doctest
import inspect
import pickle
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import fields
from pathlib import Path
from typing import Any, assert_type

import numpy as np
import pytest

import ops
from libdesc.registry import registry
from ops._elementwise import ROWS, Binary, Unary, binary, unary
from ops.activations import LeakyRelu
from ops.binary import Sub
from ops.extremes import ArgMax
from ops.unary import Abs
from ptensor.layout import Layout
from tests.operators.harness import Given, check_pads, plain, run
from tests.operators.tables.cases import CASES, Case, case
from vtensor.errors import ParameterError
from vtensor.language.dtype import from_numpy, numpy_dtype
from vtensor.language.operators import OPERATORS, result_type, run_compute
from vtensor.language.table import OperatorInfo
from vtensor.language.traits import Linear
from vtensor.operators import Context
from vtensor.tensor import VTensor

registry()

#: The operators without parameters, whose classes the table makes.
MADE = [
    name
    for name, info in OPERATORS.items()
    if info.cls.__bases__[0] in (Unary, Binary)
    and f"class {name}" not in Path(info.file).read_text()
]


def instances(name: str) -> list[Any]:
    """Return the instances of an operator that are tested, and that without parameters."""
    plain = [] if fields(OPERATORS[name].cls) else [OPERATORS[name].cls()]
    return [*plain, *(case.op for case in CASES[name])]


def disagreement(op: object, row: tuple[Callable[..., Any], Any]) -> str:
    """Return where a row's value at 0 is not its function's; empty where it is."""
    function, zero = row
    said = zero(op) if callable(zero) else zero
    takes = registry().invokers[type(op).__name__, "numpy", "cpu"].dtypes.get("x", {"f32"})
    dtype = next(name for name in ("f32", "s32", "bool") if name in takes)
    with np.errstate(all="ignore"):
        value = np.asarray(function(op, np.zeros(2, numpy_dtype(dtype)))).astype(np.float64)
    return "" if np.allclose(value, said, 1e-6, 0, equal_nan=True) else f"{value} is not {said}"


def test_there_are_tables() -> None:
    assert {"Abs", "Sin", "Sub", "Equal", "Not"} <= set(MADE)
    assert len(MADE) > 40


@pytest.mark.parametrize("name", MADE)
def test_a_row_is_a_documented_operator_like_any_other(name: str) -> None:
    cls, info = getattr(ops, name), OPERATORS[name]
    assert cls() == pickle.loads(pickle.dumps(cls()))
    assert repr(cls()) == f"{name}()"
    lines = Path(info.file).read_text(encoding="utf-8").splitlines()
    assert lines[info.line - 1].startswith(f"{name} = ")
    for (op, _, _), invoker in registry().invokers.items():
        if op == name:
            assert (invoker.file, invoker.line) == (info.file, info.line)
    text = inspect.getdoc(cls) or ""
    assert "Dims:" in text
    assert f"Source: ONNX operator {name}, opset" in text
    [found] = doctest.DocTestFinder(recurse=False).find(cls, name, inspect.getmodule(cls))
    assert len(found.examples) == 4  # which run with the other doctests


def test_types_are_known() -> None:
    """To mypy: it fails where a type is another, and where an error that is ignored is none."""
    assert_type(Abs(), Unary)
    assert_type(Sub().compute(Context(), *[VTensor("f32", {"N": 2})] * 2), VTensor)
    assert_type(LeakyRelu(0.5).alpha, float)
    with pytest.raises(TypeError):
        Abs(1)  # type: ignore[call-arg]
    with pytest.raises(ParameterError):
        LeakyRelu("much")  # type: ignore[arg-type]


UNARY = [n for n in ROWS if OPERATORS[n].inputs == ("x",) and not OPERATORS[n].many]


@pytest.mark.parametrize("name", UNARY)
def test_the_value_at_zero_is_the_functions(name: str) -> None:
    assert instances(name)
    for op in instances(name):
        assert disagreement(op, ROWS[name]) == "", op


def test_a_wrong_value_at_zero_is_seen() -> None:
    """The twin."""
    assert disagreement(ops.Exp(), (ROWS["Exp"][0], 0.0))
    assert disagreement(ops.Clip(-1.0), (ROWS["Clip"][0], lambda op: op.low))


@pytest.mark.parametrize("zero", [1.0, lambda _: 1.0, 0.0])
def test_pads_are_zeroed_where_the_row_says_so(zero: Any, scratch: None) -> None:
    row = unary("Raised", "One more: y = x + 1", (1, 1), lambda x: x + 1, zero=zero)
    given = Given(np.zeros((1, 5), np.float32), ("N", "C"), Layout("NC8c"))
    outcome = run("numpy", row(), [given])
    assert outcome.values[0].tolist() == [[1.0] * 5]
    right = zero != 0.0
    with nullcontext() if right else pytest.raises(AssertionError, match="pads"):
        check_pads(outcome.physical[0])


def test_half_floats_are_computed_in_f32(scratch: None) -> None:
    seen: list[Any] = []

    def total(a: Any, b: Any) -> Any:
        seen.append(a.dtype)
        return a + b

    for widen in (True, False):
        row = binary(f"Seen{widen}", "A sum: y = a + b", (7, 7), total, widen=widen)
        given = [plain(np.ones((2, 3), np.float16), "N C")] * 2
        assert run("numpy", row(), given).values[0].dtype == np.float16
    assert {np.dtype("f4"), np.dtype("f2")} == set(seen)


def test_dims_meet_by_name() -> None:
    a, b = VTensor("f32", {"N": 2, "C": 1}), VTensor("f32", {"C": 3})
    assert ops.Sub().compute(Context(), a, b).summary() == "f32 N=2 C=3"
    assert ops.Less().compute(Context(), a, b).summary() == "bool N=2 C=3"


def wrong_types(cases: Iterable[Case]) -> list[str]:
    """Return the cases whose operator declares another type of its output than it makes."""
    rows = []
    for one in cases:
        tensors = [VTensor(from_numpy(g.array.dtype), g.extents) for g in one.given()]
        [made, *_] = run_compute(Context(), one.op, tensors)
        if result_type(one.op, [tensor.dtype for tensor in tensors]) != made.dtype:
            rows.append(str(one))
    return rows


def may_be_fused(info: OperatorInfo) -> bool:
    """Return whether an operator leads other operators into its step, or follows one."""
    return info.light or info.trait(Linear) is not None


def test_operators_that_are_fused_declare_the_type_of_their_output() -> None:
    cases = [one for name, rows in CASES.items() if may_be_fused(OPERATORS[name]) for one in rows]
    assert len(cases) > 50
    assert not wrong_types(cases)


def test_a_wrong_type_is_seen() -> None:
    """The twin."""
    assert wrong_types([case(ArgMax("C"), "N=2 C=3")])
