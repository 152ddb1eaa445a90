"""The cells of the matrix: cases of one operator on one library, and their results.

A case is a number: operator, seed and number make the call, whatever the library; the library's
invoker says of which element types it may be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import inf
from random import Random

import numpy as np
import pytest

from libdesc.registry import registry
from ptensor.layout import Layout
from tests.conformance.draw import draw
from tests.operators.harness import Given, check_outcome, decide, definition, run
from tests.operators.tables.cases import IMAGES, SERIES, VOLUMES, Case, bound, input_of
from vtensor.errors import InputError, NoInvokerError
from vtensor.language.operators import OPERATORS

#: The element types of an invoker that takes all.
TYPES = ("f32", "f64", "f16", "bf16", "s64", "s32", "s8", "u8", "bool")
#: Element types in which no case runs: random numbers are no number there, or have no order.
UNTRIED = {"f8e8m0", "c64", "c128"}

ORDERS = [Layout(order) for order in (*IMAGES, *SERIES, *VOLUMES)]


@dataclass
class Cell:
    """The results of the cases of an operator on a library.

    Attributes:
        run: the number of cases.
        declined: the number of cases that the library did not take, by reason.
        failed: faults, by the command that repeats each.
        met: the number of taken cases with a feature: an element type, a kind of extent, blocks.
        lacking: the element types that the library refused for want of instructions.
    """

    operator: str
    library: str
    run: int = 0
    declined: Counter[str] = field(default_factory=Counter)
    failed: dict[str, str] = field(default_factory=dict)
    met: Counter[str] = field(default_factory=Counter)
    lacking: Counter[str] = field(default_factory=Counter)

    @property
    def taken(self) -> int:
        """The number of cases that the library took."""
        return self.run - self.declined.total()

    def add(self, seed: int, index: int) -> None:
        """Run one case."""
        self.run += 1
        case, types = case_of(self.operator, self.library, seed, index)
        inputs = operands(case, types, seed, index)
        try:
            conform(self.library, case, types[0], inputs)
        except NoInvokerError as error:
            why = reason(error, self.library)
            self.declined[why] += 1
            self.lacking.update(dtype for dtype in {*types} if f"kernel for {dtype} on" in why)
            return
        except Exception as error:  # whatever a library's invoker raises is a finding
            layouts = " ".join(str(given.layout) for given in inputs)
            text = f"{case} in {types[0]} from {layouts}: {type(error).__name__}: {error}"
            self.failed[command(self.operator, self.library, seed, index)] = text
        self.met.update(features(types[0], inputs))


def cells(operators: Sequence[str] = (), libraries: Sequence[str] = ()) -> list[Cell]:
    """Return a cell for each invoker of the operators that a library next to NumPy has.

    Names of operators and of libraries restrict the cells, if there are any.
    """
    pairs = {(op, library) for op, library, device in registry().invokers if device == "cpu"}
    native = {op for op, library in pairs if library not in ("numpy", "onnx_reference")}
    return [
        Cell(op, library)
        for op, library in sorted(pairs)
        if op in native and op in (operators or native) and library in (libraries or {library})
    ]


def run_all(matrix: Iterable[Cell], seed: int, numbers: Sequence[int]) -> Iterator[Cell]:
    """Run these cases of each cell, and yield it after each of them."""
    for cell in matrix:
        for index in numbers:
            cell.add(seed, index)
            yield cell


def case_of(operator: str, library: str, seed: int, index: int) -> tuple[Case, list[str]]:
    """Return a case by its number, and the element type of each input."""
    info, (case, odds) = OPERATORS[operator], drawn(operator, seed, index)
    declared = registry().invokers[operator, library, "cpu"].dtypes
    roles = (role.rstrip("0123456789") for role in info.roles(len(case.inputs), 0))
    rows = [sorted({*declared.get(role, declared.get("", TYPES))} - UNTRIED) for role in roles]
    lead = "f32" if "f32" in rows[0] and odds < 0.6 else rows[0][index % len(rows[0])]
    return case, [lead if lead in row else "f32" for row in rows]


@lru_cache(1024)  # it is the same for each library
def drawn(operator: str, seed: int, index: int) -> tuple[Case, float]:
    """Return a call, and the next random number."""
    random = Random(f"{operator} {seed} {index}")
    return draw(OPERATORS[operator], random), random.random()


def operands(case: Case, types: Sequence[str], seed: int, index: int) -> list[Given]:
    """Return the inputs of a case with their values, each in some layout."""
    random = Random(f"{seed} {index}")
    values = np.random.default_rng([seed, index])
    rows = zip(case.inputs, types, strict=True)
    inputs = (input_of(text, "", dtype, values) for text, dtype in rows)
    return [x if x.constant else replace(x, layout=_layout(x, random)) for x in inputs]


def _layout(given: Given, random: Random) -> Layout:
    """Return mostly a layout of images; else any order, with up to two blocks of any dims."""
    usual = [order for order in ORDERS if {*order.dims} == {*given.dims}]
    if usual and random.random() < 0.6:
        return random.choice(usual)
    axes = Layout.plain(random.sample(given.dims, len(given.dims))).axes
    count = random.choice((0, 0, 1, 2)) if given.dims else 0
    blocks = [(random.choice(given.dims), random.choice((2, 3, 4, 8, 16))) for _ in range(count)]
    return Layout.of_axes([*axes, *blocks])


def conform(library: str, case: Case, dtype: str, inputs: Sequence[Given]) -> None:
    """Check that a library gives the definition's result and zero pads, or both refuse the values.

    Where summands cancel, the error is bounded by the sum of their absolute values, not by the sum:
    N. J. Higham, Accuracy and Stability of Numerical Algorithms, section 4.2.

    Raises:
        NoInvokerError: the library does not take the call.
        AssertionError: it does not.
    """
    try:
        expected = definition(case.op, inputs)
    except InputError:
        decide(library, case.op, inputs)
        with pytest.raises(InputError):
            run(library, case.op, inputs)
        return
    outcome = run(library, case.op, inputs)
    allowed = bound(type(case.op).__name__, dtype, library)
    try:
        check_outcome(outcome, expected, allowed)
    except AssertionError:
        # integers are exact, and some are marks: a leaf of a tree is -1
        fractions = [x if x.array.dtype.kind == "i" else _positive(x) for x in inputs]
        whole = definition(case.op, fractions)
        scale = max(float(np.abs(values).max(initial=0)) for values in whole)
        check_outcome(outcome, expected, allowed, scale)


def _positive(given: Given) -> Given:
    return replace(given, array=np.abs(given.array))


def reason(error: NoInvokerError, library: str) -> str:
    """Return why a library declined, in the error's own words."""
    rows = (line.partition(" : ") for line in str(error).splitlines())
    return next(row[2] for row in rows if row[0].split()[-1:] == [library])


def command(operator: str, library: str, seed: int, index: int) -> str:
    """Return the command that repeats one case."""
    which = f"--operator {operator} --library {library} --seed {seed} --case {index}"
    return f"python -m tests.conformance {which}"


#: Kinds of extents: the least of each and the largest.
KINDS = {"none": (0, 0), "one": (1, 1), "odd": (3, 7), "block": (8, 8), "beyond": (9, inf)}


def features(dtype: str, inputs: Sequence[Given]) -> Iterator[str]:
    """Yield the features of a case: its element type, kinds of extents, blocks."""
    yield dtype
    sizes = {size for given in inputs for size in given.array.shape}
    yield from (kind for kind, (low, high) in KINDS.items() if any(low <= s <= high for s in sizes))
    if any(not given.layout.is_plain for given in inputs):
        yield "blocked"
