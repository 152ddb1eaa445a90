"""From what an invoker asked to rows of layouts: one layout an operand, all operands together.

Operands that ask for ANY take one joint layout, each restricted to its own dims.

Source: the paper, Algorithm 1, lines 9 to 18.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, islice
from typing import TYPE_CHECKING

from ptensor.layout import Layout
from ptensor.views import from_base, to_base
from vtensor.errors import LayoutError

if TYPE_CHECKING:
    from ptensor.call import Call, Requirement
    from vtensor.language.tensor import VTensor

Row = tuple[Layout, ...]

#: How many rows a library is asked about before it counts as declining.
MOST_ROWS = 64


def candidate_rows(call: Call, asked: Sequence[Requirement]) -> Iterator[Row]:
    """Rows that fit what was asked, the preferred one first.

    An operand with alternatives prefers the layout that it already has where that is one of them,
    then the others in their order. The joint layout of the ANY operands is the first of these that
    the library confirms: the produced layout of a non-constant operand that has all the output's
    dims, of those that are reduced to size 1 any size; the declared order. There are at most
    ``MOST_ROWS`` rows.
    """
    alternatives = {
        index: _in_order(call.operands[index], requirement.layouts)
        for index, requirement in enumerate(asked)
        if requirement.layouts
    }
    views = [call.ptensors[i].tensor for i in range(len(call.operands))]
    lying = [
        layouts[0]
        for index, layouts in alternatives.items()
        if _lies(call.operands[index], layouts[0])
    ]
    rows = (
        row
        for chosen in _combinations(list(alternatives.values()), lying)
        for row in _completed(call, views, dict(zip(alternatives, chosen, strict=True)))
    )
    yield from islice(_distinct(rows), MOST_ROWS)


def _completed(call: Call, views: Sequence[VTensor], fixed: Mapping[int, Layout]) -> Iterator[Row]:
    """Rows of what is fixed, each with one joint layout for the operands that asked for ANY."""
    out = views[len(call.inputs)].dims
    for joint in _joint_layouts(call, views, fixed):
        with suppress(LayoutError):  # it tears apart what a view splits: no layout of the operand
            yield tuple(
                fixed[i]
                if i in fixed
                else to_base(restricted(joint, view, out), view).normalized(view.dtype)
                for i, view in enumerate(views)
            )


def _in_order(operand: VTensor, layouts: Sequence[Layout]) -> Sequence[Layout]:
    """Alternatives, the layout that the operand already has first."""
    return sorted(layouts, key=lambda layout: not _lies(operand, layout))


def _lies(operand: VTensor, layout: Layout) -> bool:
    produced = operand.produced_layout
    return produced is not None and layout.same(produced, operand.dims)


def _combinations(
    alternatives: Sequence[Sequence[Layout]], lying: Sequence[Layout]
) -> Iterator[Row]:
    """One of each operand's alternatives, the best first.

    First the preferred ones. Then one layout for all operands that take it, those first in which an
    operand already lies. Then the others, those first that are the nearest to the preferred ones.
    """
    first = tuple(layouts[0] for layouts in alternatives)
    common = dict.fromkeys(chain(lying, *alternatives))
    alike = (
        tuple(one if one in layouts else layouts[0] for layouts in alternatives) for one in common
    )
    yield from _distinct(chain([first], alike, _nearest(alternatives)))


def _nearest(alternatives: Sequence[Sequence[Layout]]) -> Iterator[Row]:
    """Combinations, by the sum of their places among the alternatives; ``MOST_ROWS`` or so."""
    queue = deque([((0,) * len(alternatives), 0)])
    while queue:
        places, begin = queue.popleft()
        yield tuple(layouts[i] for layouts, i in zip(alternatives, places, strict=True))
        for index in range(begin, len(places)):  # those before it have had their turn
            if len(queue) < MOST_ROWS and places[index] + 1 < len(alternatives[index]):
                step = (*places[:index], places[index] + 1, *places[index + 1 :])
                queue.append((step, index))


def _distinct(rows: Iterable[Row]) -> Iterator[Row]:
    seen: set[Row] = set()
    for row in rows:
        if row not in seen:
            seen.add(row)
            yield row


def _joint_layouts(
    call: Call, views: Sequence[VTensor], fixed: Mapping[int, Layout]
) -> Iterator[Layout]:
    out = views[len(call.inputs)].dims
    if len(fixed) == len(call.operands):
        yield Layout.plain(out)  # nobody takes it, but there must be a row
        return
    for index, operand in enumerate(call.inputs):
        view = views[index]
        # Along a dim of size 1 that an input is longer in, the call reduces.
        whole = all(dim in view.dims and size in (1, view.dims[dim]) for dim, size in out.items())
        layout = fixed.get(index, operand.produced_layout)
        if whole and not operand.constant and layout is not None:
            with suppress(LayoutError):  # a block of what the view splits: no layout of the view
                yield from_base(layout, view).restrict(out)
    yield Layout.plain(out)


def restricted(joint: Layout, view: VTensor, out: Mapping[str, int]) -> Layout:
    """The joint layout on one operand: its own dims, and no blocks on a dim that it broadcasts."""
    if not view.dims.keys() <= set(joint.dims):
        produced = (view if view.base is None else view.base).produced_layout
        with suppress(LayoutError):  # it blocks what the view splits
            return Layout.plain(view.dims) if produced is None else from_base(produced, view)
        return Layout.plain(view.dims)
    layout = joint.restrict(view.dims)
    for dim, size in view.dims.items():
        if size != out.get(dim):
            layout = layout.unblock(dim)
    return layout
