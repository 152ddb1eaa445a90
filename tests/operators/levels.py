"""A program: every case on a native library under a cap on instruction sets.

``python -m tests.operators.levels CAP [LIBRARY [COUNT]]`` prints a line for each fault: on oneDNN a
reference kernel where other layouts have a real one; on any a NaN or an infinity that is lost or
made. With a count it draws so many cases of each operator; each cap draws its own. It is a process
of its own because libraries fix their cap at their first use.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby, product
from random import Random
from typing import Any

import numpy as np
import pytest

from libdesc.dispatcher import DispatchContext
from libdesc.onednn.routines import OneDnnRoutine, is_reference
from libdesc.preferences import Preferences
from libdesc.registry import registry
from libdesc.routine import reference_kernel
from ops import Cast
from ptensor.buffer import TensorStorage
from ptensor.evaluation import Call, Decline, Mode, Step, installed
from ptensor.layout import Layout
from tests.operators.cases import BOUNDS, CASES, Case
from tests.operators.harness import Deciding, Given, check_close, check_pads, definition, run
from vtensor import limit_isa
from vtensor.errors import InputError, LayoutError, NoInvokerError
from vtensor.language.operators import run_compute
from vtensor.language.tensor import VTensor

LIBRARY = "onednn"
CAPS = ("sse41", "avx2", "avx512", "max")
SPECIAL = (np.nan, np.inf, -np.inf)

#: Where oneDNN 3.2 deviates and nothing cheap mends it: operator, operand, value.
KNOWN = {
    **{("LRN", 0, v): "NaN reaches beyond the window" for v in ("nan", "inf", "-inf")},
    **{("PRelu", 1, v): "also where the slope is not used" for v in ("nan", "inf", "-inf")},
}

Array = np.ndarray[Any, Any]


class Seeing(Deciding):
    """Steps are looked at, not run: nothing is allocated."""

    mode = Mode.NORMAL

    def __init__(self) -> None:
        self.kernels: list[str] = []
        self.routine: OneDnnRoutine | None = None

    def emit(self, call: Call, step: Step, slots: Sequence[VTensor | int]) -> None:
        """Note the kernel and who asked for it."""
        assert isinstance(call.routine, OneDnnRoutine)
        self.kernels.append(step.kernel)  # type: ignore[attr-defined]  # a Primitive
        self.routine = call.routine


def cases(library: str) -> Iterator[Case]:
    """Every case of every operator that a library has an invoker for, unless it must decline."""
    taken = {op for op, name, _ in registry().invokers if name == library}
    for name in sorted(taken & CASES.keys()):
        yield from (case for case in CASES[name] if library not in case.refused)


def seen(case: Case, layout: str) -> Seeing:
    """What a case would run, its images coming in a layout."""
    given = case.given(layout)
    ctx = DispatchContext(node="case", preferences=Preferences(nodes={"case": LIBRARY}))
    with installed(Deciding()):
        run_compute(ctx, case.op, [_bare(one, one.layout) for one in given])
    assert ctx.variant is not None
    layouts = ctx.variant.layouts[: len(given)]
    seeing = Seeing()
    with installed(seeing):
        run_compute(ctx, case.op, [_bare(*pair) for pair in zip(given, layouts, strict=True)])
    return seeing


def _bare(given: Given, layout: Layout) -> VTensor:
    """An input without memory."""
    tensor = VTensor("f32" if given.array.dtype.kind == "f" else "s64", given.extents)
    tensor.storage = TensorStorage(tensor.dtype, given.extents, layout, constant=given.constant)
    tensor.produced_layout = layout
    return tensor


def better(routine: OneDnnRoutine) -> str | None:
    """Layouts for which oneDNN has more than a reference kernel; only descriptors are asked for."""
    for row in product(*(_expressible(operand.tensor.dims) for operand in routine.operands)):
        try:
            primitive = routine.primitive(row)
        except (LayoutError, Decline):
            continue
        if not is_reference(primitive):
            return f"{' '.join(map(str, row))} has {primitive.kernel}"
    return None


def _expressible(dims: Iterable[str]) -> list[Layout]:
    """oneDNN's own choice, declared order, channels last, each dim last, blocked channels."""
    names = list(dims)
    layouts = [Layout.ANY, Layout.plain(names)]
    layouts += [Layout.plain([*(d for d in names if d != last), last]) for last in names]
    channel = next((dim for dim in ("C", "O") if dim in names), None)
    if channel is not None:
        axes = Layout.plain(names).axes
        layouts += [Layout.of_axes([*axes, (channel, block)]) for block in (8, 16)]
    return list(dict.fromkeys(layouts))


def reference_faults(case: Case) -> Iterator[str]:
    """Reference kernels of a case that other layouts would spare."""
    for layout in case.layouts():
        found = seen(case, layout)
        if any(map(reference_kernel, found.kernels)):
            assert found.routine is not None
            if spared := better(found.routine):
                yield f"{case} from {layout}: {found.kernels}, where {spared}"


def special_faults(case: Case, library: str = LIBRARY) -> Iterator[str]:
    """NaN and infinities in what is computed that do not come out as the definition says."""
    for layout, value in product(case.layouts(), SPECIAL):
        for index, given in enumerate(case.given(layout)):
            what = (type(case.op).__name__, index, str(value))
            known = library == LIBRARY and what in KNOWN
            if not known and _takes(given):
                yield from _lost(library, case, layout, index, value)


def _takes(given: Given) -> bool:
    return given.array.dtype.kind == "f" and given.array.size > 0 and not given.constant


def _lost(library: str, case: Case, layout: str, index: int, value: float) -> Iterator[str]:
    """What is wrong with one value in one operand."""
    inputs = case.given(layout)
    inputs[index] = sprinkled(inputs[index], value)
    try:
        bound = BOUNDS.get(type(case.op).__name__, 1e-6)
        check_special(library, case, inputs, expected(case, index, value), bound)
    except AssertionError as fault:
        yield f"{case} from {layout}, {value} in operand {index}: {fault}"


def sprinkled(given: Given, value: float) -> Given:
    """A few elements of an input replaced."""
    array = given.array.copy()
    array.reshape(-1)[:: max(array.size // 3, 1)] = value
    return Given(array, given.dims, given.layout, given.constant)


@lru_cache(maxsize=64)
def expected(case: Case, index: int, value: float) -> list[Array] | None:
    """Return what the definition makes of a value in one operand; None if it refuses the value."""
    inputs = case.given()
    inputs[index] = sprinkled(inputs[index], value)
    try:
        with np.errstate(all="ignore"):
            return definition(case.op, inputs)
    except InputError:
        return None


def check_special(
    library: str, case: Case, inputs: Sequence[Given], wanted: Sequence[Array] | None, bound: float
) -> None:
    """The same NaN, the same infinities, and all else close; or both refuse the values."""
    if wanted is None:
        with pytest.raises(InputError):
            run(library, case.op, inputs)
        return
    found = run(library, case.op, inputs)
    for value, due, storage in zip(found.values, wanted, found.physical, strict=True):
        if due.dtype.kind == "f" or not isinstance(case.op, Cast):
            check_same(value, due, bound)  # which integer NaN or an infinity is, nobody says
        check_pads(storage)


def check_same(value: Array, wanted: Array, bound: float) -> None:
    """As check_close, for what is finite; elsewhere equal."""
    finite = np.isfinite(wanted)
    odd, due = value[~finite], wanted[~finite]
    assert np.array_equal(odd.astype(np.float64), due, equal_nan=True), f"{odd[:4]}, not {due[:4]}"
    check_close(np.where(finite, value, 0), np.where(finite, wanted, 0), bound)


def faults(case: Case, library: str) -> Iterator[str]:
    """All of a case; only oneDNN has reference kernels."""
    if library == LIBRARY:
        yield from reference_faults(case)
    yield from special_faults(case, library)


def drawn(cap: str, library: str, count: int) -> Iterator[Case]:
    """So many cases of each operator, or all that there are."""
    for kind, group in groupby(cases(library), lambda case: type(case.op)):
        rows = list(group)
        random = Random(f"{cap} {library} {kind.__name__}")
        yield from random.sample(rows, min(count, len(rows)))


def main(cap: str, library: str = LIBRARY, most: str = "1000") -> None:
    """Print all faults, then the number of cases."""
    if cap != "max":
        limit_isa(cap)
    count = 0
    for case in drawn(cap, library, int(most)):
        count += 1
        try:
            for fault in faults(case, library):
                print(fault)
        except NoInvokerError as error:
            print(f"{case}: {error}")
    print(count)


if __name__ == "__main__":
    main(*sys.argv[1:])
