"""Rows of layouts from an invoker's requirements: one layout per operand, all operands together.

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

#: Largest number of rows that a library is asked about before it counts as declining: combinations
#: of alternatives grow exponentially.
MAX_ROWS = 64


def candidate_rows(call: Call, asked: Sequence[Requirement]) -> Iterator[Row]:
    """Yield rows of layouts that fit the requirements, the preferred one first.

    An operand with alternatives prefers the layout that it already has, if it is one of them, then
    the others in their order. The joint layout of the ANY operands is the first that the library
    confirms among: the produced layouts of the non-constant operands that have all the output's
    dims (a dim that is reduced to size 1 may have any size), then the declared order. There are at
    most ``MAX_ROWS`` rows.

    Args:
        call: the call in progress, with its PTensors.
        asked: the requirement of each operand.
    """
    alternatives = {
        index: _in_order(call.operands[index], requirement.layouts)
        for index, requirement in enumerate(asked)
        if requirement.layouts
    }
    views = [call.ptensors[i].tensor for i in range(len(call.operands))]
    present = [
        layouts[0]
        for index, layouts in alternatives.items()
        if _has_layout(call.operands[index], layouts[0])
    ]
    rows = (
        row
        for chosen in _combinations(list(alternatives.values()), present)
        for row in _with_joint_layout(call, views, dict(zip(alternatives, chosen, strict=True)))
    )
    yield from islice(_distinct(rows), MAX_ROWS)


def _with_joint_layout(
    call: Call, views: Sequence[VTensor], fixed: Mapping[int, Layout]
) -> Iterator[Row]:
    """Yield rows with the fixed layouts and one joint layout for the operands that asked for ANY.

    Args:
        call: the call in progress.
        views: each operand as the invoker sees it.
        fixed: layouts by operand index.
    """
    out = views[len(call.inputs)].dims
    for joint in _joint_layouts(call, views, fixed):
        with suppress(LayoutError):  # it separates dims that a view splits
            yield tuple(
                fixed[i]
                if i in fixed
                else to_base(restricted(joint, view, out), view).normalized(view.dtype)
                for i, view in enumerate(views)
            )


def _in_order(operand: VTensor, layouts: Sequence[Layout]) -> Sequence[Layout]:
    """Return the alternatives, the layout that the operand already has first."""
    return sorted(layouts, key=lambda layout: not _has_layout(operand, layout))


def _has_layout(operand: VTensor, layout: Layout) -> bool:
    """Return whether an operand is produced in this layout."""
    produced = operand.produced_layout
    return produced is not None and layout.same(produced, operand.dims)


def _combinations(
    alternatives: Sequence[Sequence[Layout]], present: Sequence[Layout]
) -> Iterator[Row]:
    """Yield rows of one alternative per operand, the best first.

    First the preferred ones. Then one layout for all operands that take it; layouts that an operand
    already has come first. Then the others, the nearest to the preferred ones first.

    Args:
        alternatives: the layouts of each operand, in order of preference.
        present: layouts that operands already have.
    """
    first = tuple(layouts[0] for layouts in alternatives)
    common = dict.fromkeys(chain(present, *alternatives))
    alike = (
        tuple(layout if layout in layouts else layouts[0] for layouts in alternatives)
        for layout in common
    )
    yield from _distinct(chain([first], alike, _nearest(alternatives)))


def _nearest(alternatives: Sequence[Sequence[Layout]]) -> Iterator[Row]:
    """Yield rows by the sum of their indices among the alternatives, about ``MAX_ROWS`` of them."""
    queue = deque([((0,) * len(alternatives), 0)])
    while queue:
        places, begin = queue.popleft()
        yield tuple(layouts[i] for layouts, i in zip(alternatives, places, strict=True))
        for index in range(begin, len(places)):  # earlier operands have been advanced already
            if len(queue) < MAX_ROWS and places[index] + 1 < len(alternatives[index]):
                step = (*places[:index], places[index] + 1, *places[index + 1 :])
                queue.append((step, index))


def _distinct(rows: Iterable[Row]) -> Iterator[Row]:
    """Yield each row at its first occurrence."""
    seen: set[Row] = set()
    for row in rows:
        if row not in seen:
            seen.add(row)
            yield row


def _joint_layouts(
    call: Call, views: Sequence[VTensor], fixed: Mapping[int, Layout]
) -> Iterator[Layout]:
    """Yield layouts that the ANY operands may share, the preferred one first.

    Args:
        call: the call in progress.
        views: each operand as the invoker sees it.
        fixed: layouts by operand index.
    """
    out = views[len(call.inputs)].dims
    if len(fixed) == len(call.operands):
        yield Layout.plain(out)  # no operand takes it, but there must be a row
        return
    for index, operand in enumerate(call.inputs):
        view = views[index]
        # The call reduces along a dim that has size 1 in the output and a larger size in an input.
        has_all_dims = all(
            dim in view.dims and size in (1, view.dims[dim]) for dim, size in out.items()
        )
        layout = fixed.get(index, operand.produced_layout)
        if has_all_dims and not operand.constant and layout is not None:
            with suppress(LayoutError):  # it blocks a dim that the view splits
                yield from_base(layout, view).restrict(out)
    yield Layout.plain(out)


def restricted(joint: Layout, view: VTensor, out: Mapping[str, int]) -> Layout:
    """Return the joint layout on one operand: its own dims, and no blocks on a dim that it
    broadcasts.

    An operand with a dim that the joint layout lacks keeps its produced layout, or declared order.
    """
    if not view.dims.keys() <= set(joint.dims):
        produced = (view if view.base is None else view.base).produced_layout
        with suppress(LayoutError):  # it blocks a dim that the view splits
            return Layout.plain(view.dims) if produced is None else from_base(produced, view)
        return Layout.plain(view.dims)
    layout = joint.restrict(view.dims)
    for dim, size in view.dims.items():
        if size != out.get(dim):
            layout = layout.unblock(dim)
    return layout
