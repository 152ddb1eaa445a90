"""Faults of cases under a cap on instruction sets: reference kernels, NaN and infinities.

``capped.py`` looks for them in processes of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import groupby, product
from random import Random

import numpy as np
import pytest

from libdesc.onednn.routines import OneDnnRoutine, is_reference
from libdesc.registry import registry
from libdesc.routine import reference_kernel
from ops import Cast
from ptensor.buffer import TensorStorage
from ptensor.evaluation import Call, Decline, Mode, Step, Variant, installed
from ptensor.layout import Layout
from tests.operators.harness import (
    Array,
    Deciding,
    Given,
    check_close,
    check_pads,
    context,
    definition,
    run,
)
from tests.operators.tables.cases import BOUNDS, CASES, Case
from vtensor.errors import InputError, LayoutError, NoInvokerError
from vtensor.language.dtype import from_numpy
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


class Seeing(Deciding):
    """Recording, in which steps are noted and not run: nothing is allocated."""

    mode = Mode.NORMAL

    def __init__(self, variant: Variant) -> None:
        self.variant = variant
        self.kernels: list[str] = []
        self.routine: OneDnnRoutine | None = None

    def emit(self, call: Call, step: Step, slots: Sequence[VTensor | int]) -> None:
        """Note the kernel and the routine that asked for it."""
        assert isinstance(call.routine, OneDnnRoutine)
        self.kernels.append(step.kernel)  # type: ignore[attr-defined]  # a Primitive
        self.routine = call.routine


def cases(library: str) -> Iterator[Case]:
    """Yield every case of the operators that a library has, unless it must decline the case."""
    names = {op for op, name, _ in registry().invokers if name == library} & CASES.keys()
    return (case for name in sorted(names) for case in CASES[name] if library not in case.refused)


def seen(op: object, inputs: Sequence[Given]) -> Seeing:
    """Return what oneDNN would run for a call, and in which variant."""
    ctx = context(LIBRARY)
    with installed(Deciding()):
        run_compute(ctx, op, [_bare(given, given.layout) for given in inputs])
    assert ctx.variant is not None
    seeing = Seeing(ctx.variant)
    rows = zip(inputs, ctx.variant.layouts, strict=False)
    with installed(seeing):
        run_compute(ctx, op, [_bare(given, layout) for given, layout in rows])
    return seeing


def _bare(given: Given, layout: Layout) -> VTensor:
    """Return an input without memory."""
    tensor = VTensor(from_numpy(given.array.dtype), given.extents)
    tensor.storage = TensorStorage(tensor.dtype, given.extents, layout, constant=given.constant)
    return tensor


def better(routine: OneDnnRoutine) -> str | None:
    """Return layouts for which oneDNN has a kernel of its own; only descriptors are made."""
    for row in product(*(_expressible(operand.tensor.dims) for operand in routine.operands)):
        try:
            primitive = routine.primitive(row)
        except (LayoutError, Decline):
            continue
        if not is_reference(primitive):
            return f"{' '.join(map(str, row))} has {primitive.kernel}"
    return None


def _expressible(dims: Iterable[str]) -> list[Layout]:
    """Return oneDNN's own choice, declared order, each dim last, and blocked channels."""
    names = list(dims)
    layouts = [Layout.ANY, Layout.plain(names)]
    layouts += [Layout.plain([*(d for d in names if d != last), last]) for last in names]
    for channel in [dim for dim in ("C", "O") if dim in names][:1]:
        axes = Layout.plain(names).axes
        layouts += [Layout.of_axes([*axes, (channel, block)]) for block in (8, 16)]
    return list(dict.fromkeys(layouts))


def reference_faults(case: Case, dtype: str = "f32") -> Iterator[str]:
    """Yield the reference kernels of a case that other layouts would spare."""
    for layout in case.layouts():
        seeing = seen(case.op, case.given(layout, dtype))
        if any(map(reference_kernel, seeing.kernels)):
            assert seeing.routine is not None
            if spared := better(seeing.routine):
                yield f"{case} from {layout}: {seeing.kernels}, where {spared}"


def special_faults(case: Case, library: str = LIBRARY) -> Iterator[str]:
    """Yield where a NaN or an infinity of an operand does not come out as the definition says."""
    bound = BOUNDS.get(type(case.op).__name__, 1e-6)
    for layout, value in product(case.layouts(), SPECIAL):
        for index, given in enumerate(case.given(layout)):
            known = library == LIBRARY and (type(case.op).__name__, index, str(value)) in KNOWN
            takes = given.array.dtype.kind == "f" and given.array.size > 0 and not given.constant
            if known or not takes:
                continue
            inputs = case.given(layout)
            inputs[index] = sprinkled(given, value)
            try:
                check_special(library, case, inputs, expected(case, index, value), bound)
            except AssertionError as fault:
                yield f"{case} from {layout}, {value} in operand {index}: {fault}"


def sprinkled(given: Given, value: float) -> Given:
    """Return an input with a few elements replaced."""
    array = given.array.copy()
    array.reshape(-1)[:: max(array.size // 3, 1)] = value
    return replace(given, array=array)


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
    """Check that NaN and infinities are the same and all else is close, or both refuse."""
    if wanted is None:
        with pytest.raises(InputError):
            run(library, case.op, inputs)
        return
    outcome = run(library, case.op, inputs)
    for value, due, storage in zip(outcome.values, wanted, outcome.physical, strict=True):
        if due.dtype.kind == "f" or not isinstance(case.op, Cast):
            check_same(value, due, bound)  # which integer NaN or an infinity is, nobody says
        check_pads(storage)


def check_same(value: Array, wanted: Array, bound: float) -> None:
    """Check what is finite as check_close does, and that all else is equal."""
    finite = np.isfinite(wanted)
    odd, due = value[~finite], wanted[~finite]
    assert np.array_equal(odd.astype(np.float64), due, equal_nan=True), f"{odd[:4]}, not {due[:4]}"
    check_close(np.where(finite, value, 0), np.where(finite, wanted, 0), bound)


def drawn(cap: str, library: str, count: int) -> Iterator[Case]:
    """Yield so many cases of each operator, or all that there are."""
    for kind, group in groupby(cases(library), lambda case: type(case.op)):
        rows = list(group)
        random = Random(f"{cap} {library} {kind.__name__}")
        yield from random.sample(rows, min(count, len(rows)))


def faults(cap: str, library: str, most: int) -> Iterator[str]:
    """Yield the faults of each drawn case, an empty text for a case without.

    On oneDNN a reference kernel where other layouts have a real one is a fault; on any library a
    NaN or an infinity that is lost or made.
    """
    for case in drawn(cap, library, most):
        references = reference_faults(case) if library == LIBRARY else ()
        try:
            yield "\n".join((*references, *special_faults(case, library)))
        except NoInvokerError as error:
            yield f"{case}: {error}"
