"""Invokers that may write over an operand: the result is what it is elsewhere, bit for bit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from libdesc.registry import registry
from ptensor import Layout, PTensor, lib_tagger
from ptensor.buffer import TensorStorage
from ptensor.evaluation import emit, installed
from tests.conformance.matrix import case_of, operands
from tests.libraries.bench import Bench
from tests.libraries.steps import READ, WRITE, FloatStep
from tests.operators.harness import Given, decide, storage_of
from vtensor.errors import DimError, NoInvokerError
from vtensor.language.dtype import from_numpy
from vtensor.language.operators import OPERATORS, info_of, run_compute
from vtensor.language.tensor import VTensor
from vtensor.runtime._replay import Arena
from vtensor.runtime.execution.evaluations import RecordContext, RecordEvaluation
from vtensor.runtime.execution.executor import Executor
from vtensor.runtime.execution.steps import RecordedStep
from vtensor.runtime.recording.lifetimes import lifetimes
from vtensor.runtime.recording.placement import place

Array = np.ndarray[Any, Any]

#: Every role of every invoker that says so.
CELLS = [
    pytest.param(op, library, role, id=f"{op}-{library}-{role}")
    for (op, library, _), info in sorted(registry().invokers.items())
    for role in info.inplace
]
#: How many cases in which the operand is replaced are wanted, and how many are drawn for them.
WANTED, DRAWN = 2, 60


def tensor_of(given: Given, layout: Layout) -> VTensor:
    """An operand that gets memory later, a constant apart."""
    tensor = VTensor(from_numpy(given.array.dtype), given.extents)
    if given.constant:
        tensor.storage = TensorStorage.of_array(given.array, tensor, layout, constant=True)
    else:
        tensor.storage = TensorStorage(tensor.dtype, tensor.dims, layout)
    return tensor


def both_ways(library: str, op: object, inputs: Sequence[Given], role: str) -> list[bytes] | None:
    """A call's first output, written over an operand and elsewhere; None where no plan does that.

    The output and its operand lie in an arena, as a plan of nothing but this call places them.

    Raises:
        NoInvokerError: the library does not take the call.
    """
    variant = decide(library, op, inputs)
    made: dict[int, VTensor] = {}
    tensors = [
        made.setdefault(id(given), tensor_of(given, layout))
        for given, layout in zip(inputs, variant.layouts, strict=False)
    ]
    evaluation = RecordEvaluation()
    with installed(evaluation):
        output, *_ = map(
            storage_of,
            run_compute(RecordContext(node="case", variant=variant), op, tensors),
        )
    if not output.nbytes:
        return None
    operand = storage_of(tensors[info_of(op).roles(len(inputs), 0).index(role)])
    values = {
        storage_of(tensor): TensorStorage.of_array(given.array, tensor, layout, False).data()
        for given, tensor, layout in zip(inputs, tensors, variant.layouts, strict=False)
        if not given.constant
    }
    allowed = [
        replace(s, replaces={y: [x] for y, xs in s.replaces.items() for x in xs if x is operand})
        for s in evaluation.steps
    ]
    never = [replace(step, replaces={}) for step in evaluation.steps]
    found = [run(steps, values, operand, output) for steps in (allowed, never)]
    assert not found[1][0]
    return [result for _, result in found] if found[0][0] else None


def run(
    steps: Sequence[RecordedStep],
    values: dict[TensorStorage, Array],
    operand: TensorStorage,
    output: TensorStorage,
) -> tuple[bool, bytes]:
    """Whether the output lies where the operand did, and its bytes after these steps."""
    arena = Arena()
    fill = RecordedStep("before", "", "", None, tuple(values), lambda: fill_in())
    placement = place([fill, *steps], [], [])
    arena.grow(placement.nbytes)
    memory = {
        storage: arena.memory()[begin : begin + storage.nbytes]
        for storage, begin in placement.offsets.items()
    }

    def fill_in() -> None:
        arena.memory()[...] = 0xFF  # NaN, in whatever is not written
        for storage, array in values.items():
            memory[storage][...] = array.reshape(-1).view(np.uint8)

    Executor.of(1).replay(placement.program(arena), [])
    offsets = placement.offsets
    return offsets[output] == offsets.get(operand), memory[output].tobytes()


@pytest.mark.parametrize(("operator", "library", "role"), CELLS)
def test_over_an_operand_as_elsewhere(operator: str, library: str, role: str) -> None:
    replaced = 0
    for index in range(DRAWN):
        case, types = case_of(operator, library, 3, index)
        if role not in OPERATORS[operator].roles(len(case.inputs), 0):
            continue
        try:
            found = both_ways(library, case.op, operands(case, types, 3, index), role)
        except NoInvokerError:
            continue
        if found is not None:
            assert found[0] == found[1], f"{case} in {types[0]}"
            replaced += 1
        if replaced == WANTED:
            return
    assert replaced, "nothing drawn is ever replaced: it need not be said"


@pytest.mark.parametrize(
    ("operator", "library", "role"),
    [cell for cell in CELLS if len(OPERATORS[str(cell.values[0])].inputs) == 2],
)
def test_over_an_operand_that_is_given_twice(operator: str, library: str, role: str) -> None:
    found, refused = list[list[bytes]](), 0
    for index in range(DRAWN):
        case, types = case_of(operator, library, 3, index)
        alike = [
            replace(given, constant=False) for given in operands(case, types, 3, index)[:1] * 2
        ]
        try:
            both = both_ways(library, case.op, alike, role)
        except (NoInvokerError, DimError):
            refused += 1
            continue
        found += [both] if both else []
        if len(found) == WANTED:
            break
    if refused == DRAWN:
        pytest.skip("its operands are never alike")
    assert found
    assert all(over == elsewhere for over, elsewhere in found)


def test_an_operand_that_is_read_in_another_order_too_is_not_replaced() -> None:
    sizes = {"N": 3, "C": 3}
    x, y = (TensorStorage("f32", sizes, Layout("NC")) for _ in range(2))
    turned = TensorStorage("f32", sizes, Layout("CN"))
    turned.share(x)
    before = RecordedStep("before", "", "", None, (x,))
    for other in (x, turned):
        step = RecordedStep("sum", "", "", None, (x, other, y), replaces={y: [x]})
        found = lifetimes([before, step], (), ())
        assert (found.of[x] is found.of[y]) == (other is x)


@pytest.mark.parametrize("honest", [True, False])
def test_an_invoker_that_writes_before_it_has_read_is_found(bench: Bench, honest: bool) -> None:
    def total(slots: list[Array]) -> None:
        x, y = slots
        if honest:
            y[:] = x.sum()
        else:
            y[:] = 0
            y += x.sum()

    step = FloatStep("total", [(6, READ), (6, WRITE)], total)

    @bench.invoker(python=False, inplace=["x"])
    def toy(ctx: Any, op: Any, x: Any, y: Any) -> None:
        src, dst = PTensor(x).require("NC"), PTensor(y).require("NC")
        if not lib_tagger("toy", [src], [dst]):
            emit(step, [src, dst])

    six = Given(np.arange(6, dtype=np.float32).reshape(2, 3), ("N", "C"), Layout("NC"))
    found = both_ways("toy", bench.op("Toy"), [six], "x")
    assert found is not None
    assert (found[0] == found[1]) == honest
