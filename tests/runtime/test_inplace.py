"""Invokers that may write over an operand: the result is bit for bit the one written elsewhere."""

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

#: Every role that an invoker may write over; of two operands, both may also be one value.
CELLS = [
    pytest.param(op, library, role, twice, id=f"{op}-{library}-{role}{'-twice' * twice}")
    for (op, library, _), info in sorted(registry().invokers.items())
    for role in info.inplace
    for twice in (False, True)[: 1 + (len(OPERATORS[op].inputs) == 2)]
]
#: Cases in which the operand is replaced, and cases that are drawn for them.
WANTED, DRAWN = 2, 60


def tensor_of(given: Given, layout: Layout) -> VTensor:
    """Return an operand that gets memory later; a constant has its own."""
    tensor = VTensor(from_numpy(given.array.dtype), given.extents)
    if given.constant:
        tensor.storage = TensorStorage.of_array(given.array, tensor, layout, constant=True)
    else:
        tensor.storage = TensorStorage(tensor.dtype, tensor.dims, layout)
    return tensor


def both_ways(library: str, op: object, inputs: Sequence[Given], role: str) -> list[bytes] | None:
    """Return a call's first output, written over an operand and elsewhere; None if no plan does so.

    The output and its operand are in an arena, as a plan of nothing but this call places them.

    Raises:
        NoInvokerError: the library does not take the call.
    """
    variant = decide(library, op, inputs)
    pairs = [*zip(inputs, variant.layouts, strict=False)]
    tensors_by_id: dict[int, VTensor] = {}
    tensors = [tensors_by_id.setdefault(id(x), tensor_of(x, layout)) for x, layout in pairs]
    evaluation = RecordEvaluation()
    with installed(evaluation):
        results = run_compute(RecordContext(node="case", variant=variant), op, tensors)
    output = storage_of(results[0])
    if not output.nbytes:
        return None
    operand = storage_of(tensors[info_of(op).roles(len(inputs), 0).index(role)])
    values = {
        storage_of(tensor): TensorStorage.of_array(x.array, tensor, layout, False).data()
        for (x, layout), tensor in zip(pairs, tensors, strict=True)
        if not x.constant
    }
    allowed = [
        replace(s, replaces={y: [x] for y, xs in s.replaces.items() for x in xs if x is operand})
        for s in evaluation.steps
    ]
    never = [replace(step, replaces={}) for step in evaluation.steps]
    over, elsewhere = (run(steps, values, operand, output) for steps in (allowed, never))
    assert not elsewhere[0]
    return [over[1], elsewhere[1]] if over[0] else None


def run(
    steps: Sequence[RecordedStep],
    values: dict[TensorStorage, Array],
    operand: TensorStorage,
    output: TensorStorage,
) -> tuple[bool, bytes]:
    """Return whether the output is where the operand was, and its bytes after these steps."""
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


@pytest.mark.parametrize(("operator", "library", "role", "twice"), CELLS)
def test_a_result_over_an_operand_is_the_one_elsewhere(
    operator: str, library: str, role: str, twice: bool
) -> None:
    replaced = refused = 0
    for index in range(DRAWN):
        case, types = case_of(operator, library, 3, index)
        inputs = operands(case, types, 3, index)
        if twice:
            inputs = [replace(given, constant=False) for given in inputs[:1] * 2]
        elif role not in OPERATORS[operator].roles(len(inputs), 0):
            continue
        try:
            results = both_ways(library, case.op, inputs, role)
        except NoInvokerError:
            refused += 1
            continue
        except DimError:
            assert twice
            refused += 1
            continue
        if results is not None:
            assert results[0] == results[1], f"{case} in {types[0]}"
            replaced += 1
        if replaced == WANTED:
            return
    if twice and refused == DRAWN:
        pytest.skip("its operands are never alike")
    assert replaced, "nothing drawn is ever replaced: it need not be said"


def test_an_operand_that_is_read_in_another_order_too_is_not_replaced() -> None:
    sizes = {"N": 3, "C": 3}
    x, y = (TensorStorage("f32", sizes, Layout("NC")) for _ in range(2))
    turned = TensorStorage("f32", sizes, Layout("CN"))
    turned.share(x)
    before = RecordedStep("before", "", "", None, (x,))
    for other in (x, turned):
        step = RecordedStep("sum", "", "", None, (x, other, y), replaces={y: [x]})
        lives = lifetimes([before, step], (), ())
        assert (lives.of[x] is lives.of[y]) == (other is x)


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
    results = both_ways("toy", bench.op("Toy"), [six], "x")
    assert results is not None
    assert (results[0] == results[1]) == honest
