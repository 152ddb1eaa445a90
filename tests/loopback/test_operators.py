"""The operator suite again, with every operand where nobody would look for it."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from libdesc.onnx_reference.node import OneNode, OnnxNode
from libdesc.preferences import DEFINITION
from libdesc.registry import invokers_of, registry
from tests.frontends.support import model
from tests.libraries.slow import ALL, slow_but
from tests.loopback.bench import check_case
from tests.loopback.handlers import scrambles
from tests.loopback.invokers import ran
from tests.operators.harness import check_close, check_pads, run
from tests.operators.tables.cases import BOUNDS, CASES, Case, expected
from tests.operators.test_libraries import ROWS
from vtensor.language.operators import OPERATORS

TRANSFORMERS = [
    name for name, one in registry().libraries.items() if one.transforms and name != DEFINITION
]
#: The element types, and the operators that ``make test`` runs in the second one.
DTYPES = ("f32", "bf16")
NARROW = ("Conv2D", "MatMul", "Softmax", "MaxPool", "Concat", "LSTM", "Pad", "BatchNorm", "Cast")


def test_every_operator_has_an_invoker() -> None:
    assert {info.op for info in invokers_of("loopback")} == OPERATORS.keys()


@pytest.mark.parametrize(
    ("op", "dtype"),
    slow_but([*product(CASES, ["f32"]), *product(NARROW, ["bf16"])], product(CASES, DTYPES)),
)
def test_an_operator_gives_what_it_gives_elsewhere(op: str, dtype: str) -> None:
    """``make test`` runs the first four cases of each operator."""
    before = ran[op]
    plans = [check_case(case, dtype) for case in CASES[op][: None if ALL else 4]]
    made = [any(plan.values[name].nbytes for name in plan.outputs.values()) for plan in plans]
    assert ran[op] - before == sum(made) > 0  # what makes no element has nothing to run


def test_a_node_of_the_reference_gives_what_it_gives_elsewhere() -> None:
    proto = model("g (float[2, 3] x) => (float[2, 3] y) { y = Elu<alpha = 0.5>(x) }")
    node = OneNode(proto.SerializeToString())
    check_case(Case(OnnxNode(node, (("f32", (("N", 2), ("C", 3))),)), ("N=2 C=3",)))
    assert ran["OnnxNode"] == 1


@pytest.mark.parametrize("library", TRANSFORMERS)
def test_a_library_with_a_transformer_runs_what_it_can(library: str) -> None:
    if absent := registry().libraries[library].absent:
        pytest.skip(absent)
    plans = [check_case(cases[0], libraries=(library,)) for cases in CASES.values()]
    assert any(node.library == library for plan in plans for node in plan.transforms())


@pytest.mark.parametrize(("op", "library"), ROWS)
def test_a_library_takes_what_loopback_leaves(op: str, library: str) -> None:
    for case in CASES[op]:
        if library not in case.refused:
            check_left(library, case)


def check_left(library: str, case: Case) -> None:
    """A case on a library, its inputs coming in scrambled layouts."""
    given = [
        replace(one, layout=next(scrambles(f"{case} {index}", one.extents)))
        for index, one in enumerate(case.given())
    ]
    found = run(library, case.op, given)
    bound = BOUNDS.get(type(case.op).__name__, 1e-6)
    for value, storage, wanted in zip(found.values, found.physical, expected(case), strict=True):
        check_close(value, wanted, bound)
        check_pads(storage)
