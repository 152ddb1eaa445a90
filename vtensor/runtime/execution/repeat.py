"""Turns of a loop's body in one native call, as long as its plan fits.

The plan of one turn fits all further ones if each state has the shape and layout after a turn that
it had before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ptensor.buffer import fresh
from vtensor.language.records import dataclass
from vtensor.runtime.execution.fast_io import FastOutput

if TYPE_CHECKING:
    from vtensor.runtime.execution.plan import CarriedBindings
    from vtensor.runtime.execution.request import Request

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Carried:
    """The values that change from turn to turn, by their names in the body.

    Attributes:
        number: the input that is the turn's number; empty if there is none.
        condition: the output that is true if a further turn follows; empty if one always follows.
        states: inputs, and the outputs that they are in the next turn.
        sources: the inputs that are a row of an array in each turn.
        sinks: the outputs and inputs of which each turn leaves a row.
    """

    number: str
    condition: str
    states: Sequence[tuple[str, str]]
    sources: Sequence[str]
    sinks: Sequence[str]


class Turns(NamedTuple):
    """Turns to run.

    Attributes:
        carried: what changes from turn to turn.
        inputs: the inputs of the first turn, by name.
        rows: for each source an array in C order, whose first axis is that of turns; it begins with
            the row of the first turn.
        first: the number of the first turn.
        most: the most turns.
        max_bytes: the most bytes of the rows of sinks.
    """

    carried: Carried
    inputs: Mapping[str, Array]
    rows: Sequence[Array]
    first: int
    most: int
    max_bytes: int


class Repeated(NamedTuple):
    """Turns that have run.

    Attributes:
        number: how many they are.
        goes_on: whether the condition lets a further turn follow.
        states: the inputs of a further turn that have changed, by name.
        rows: the rows that turns have left, for each sink.
    """

    number: int
    goes_on: bool
    states: Mapping[str, Array]
    rows: Sequence[Array]


def repeated(request: Request, turns: Turns) -> Repeated | None:
    """Run turns of a loop's body in one native call, for about 50 ms at most.

    Args:
        request: the plan of a turn, and its outputs.
        turns: the turns.

    Returns:
        The turns that have run; None if none can run in this way: the plan calls back into Python,
        checks that numbers are finite, reads a value that decides sizes, does not fit the inputs,
        or delivers a state in another shape or layout than it takes.

    Raises:
        NativeError: a library failed.
        InputError: numbers of a turn are at fault, such as an index out of range.
    """
    carried, fed = turns.carried, request.fed(request.names, turns.inputs)
    fits: dict[Carried, Fit | None] = request.fits
    fit = fits[carried] if carried in fits else fits.setdefault(carried, _fit(request, carried))
    if fed is None or fit is None or (fit.late and turns.first == 0):
        return None
    plan, each = request.plan, sum(sink.nbytes for sink in fit.sinks)
    most = min(turns.most, turns.max_bytes // each) if each else turns.most
    if most < 1:
        return None
    memory = [
        _copied(_bytes(array)) if changes else _bytes(array)
        for changes, array in zip(fit.changing, fed, strict=True)
    ]
    memory += map(fresh, plan.own_sizes)
    sinks = [np.empty((most, *sink.shape), sink.dtype) for sink in fit.sinks]
    bindings: CarriedBindings = (
        [(state.binding, output.binding) for state, output in fit.pairs],
        fit.number,
        fit.condition,
        _rows(fit.sources, turns.rows),
        _rows([sink.binding for sink in fit.sinks], sinks),
    )
    count, goes_on = plan.repeat(memory, bindings, turns.first, most)
    found = (pair[count % 2].on(memory) for pair in fit.pairs)
    return Repeated(
        count, goes_on, dict(zip(fit.states, found, strict=True)), [sink[:count] for sink in sinks]
    )


class Fit(NamedTuple):
    """The memory of a request's plan that changes from turn to turn.

    Attributes:
        states: the names of the inputs that are states; ``pairs``: their memory, and that of the
            outputs that they are in the next turn.
        number, condition: the bindings of these, or None.
        sources: the bindings of the inputs that are another row in each turn.
        sinks: what each turn leaves a row of.
        changing: for each input of the plan, whether it changes.
        late: True if another turn has to be the first: the condition or a state is a constant then.
    """

    states: list[str]
    pairs: list[tuple[_Value, _Value]]
    number: int | None
    condition: int | None
    sources: list[int]
    sinks: list[_Value]
    changing: list[bool]
    late: bool


def _fit(request: Request, carried: Carried) -> Fit | None:
    """Return what of a request's plan changes from turn to turn; None if the plan does not fit."""
    plan, values = request.plan, _values(request)
    if plan.calls_back or plan.exponents:
        return None
    constant = {name for name, delivery in plan.deliveries.items() if delivery.binding is None}
    number = [carried.number] if carried.number else []
    condition = [name for name in [carried.condition] if name and name not in constant]
    states = [pair for pair in carried.states if pair[1] not in constant]
    before, after = [pair[0] for pair in states], [pair[1] for pair in states]
    if {*number, *condition, *before, *after, *carried.sources, *carried.sinks} - values.keys():
        return None
    pairs = [(values[name], values[other]) for name, other in states]
    if len({output.binding for _, output in pairs}) < len(pairs):
        return None  # two states are one value
    if any(state[1:] != output[1:] for state, output in pairs):
        return None
    if any(values[name].dtype != np.bool_ for name in condition):
        return None
    changing = {*number, *before, *carried.sources}
    return Fit(
        before,
        pairs,
        next((values[name].binding for name in number), None),
        next((values[name].binding for name in condition), None),
        [values[name].binding for name in carried.sources],
        [values[name] for name in carried.sinks],
        [row.name in changing for row in plan.inputs],
        not constant.isdisjoint([carried.condition, *(pair[1] for pair in carried.states)]),
    )


class _Value(NamedTuple):
    """An input or output in C order: the index of its memory among those that a run binds."""

    binding: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """The bytes of the value."""
        return self.dtype.itemsize * prod(self.shape)

    def on(self, memory: Sequence[Array]) -> Array:
        """Return the value in the memory that a run has bound."""
        return memory[self.binding].view(self.dtype).reshape(self.shape)


def _values(request: Request) -> dict[str, _Value]:
    """Return the inputs and outputs that a run binds in C order, by name."""
    inputs, sizes = request.inputs, request.plan.own_sizes
    values = {
        row.name: _Value(place, row.dtype, row.shape)
        for place, row in enumerate(inputs)
        if row.order is None
    }
    for name, delivery in zip(request.names, request.deliveries, strict=True):
        row = FastOutput.of(delivery, len(inputs))
        if row is not None and row.axes == tuple(range(len(row.axes))):
            value = _Value(row.binding, row.dtype, row.shape)
            if sizes[row.binding - len(inputs)] == value.nbytes:
                values[name] = value
    return values


def _rows(bindings: Sequence[int], arrays: Sequence[Array]) -> list[tuple[int, Array]]:
    """Return the bytes of rows, each with the binding that they are rows of."""
    return [(binding, _bytes(row)) for binding, row in zip(bindings, arrays, strict=True)]


def _copied(array: Array) -> Array:
    """Return a copy of bytes in memory as ``fresh`` gives it."""
    copy = fresh(len(array))
    copy[...] = array
    return copy


def _bytes(array: Array) -> Array:
    """Return the memory of an array in C order as bytes."""
    return array.reshape(-1).view(np.uint8)
