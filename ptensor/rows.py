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
    """Yield rows of layouts, one per operand, that fit the requirements, the preferred row first.

    An operand with alternatives prefers its produced layout, if that is among them, then the other
    alternatives in their order. Operands that ask for ANY share a joint layout. Candidates for it
    are, in this order: the layouts of non-constant inputs that have all dims of the first output (a
    dim of size 1 there may have any size in the input), then the order in which the output's dims
    are declared. There are at most ``MAX_ROWS`` rows.

    Args:
        call: the call in progress, with its PTensors.
        asked: the requirement of each operand, inputs first.
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
    """Yield rows with the fixed layouts and a joint layout for all operands that ask for ANY, one
    row for each joint layout.

    Args:
        call: the call in progress.
        views: each operand as the invoker sees it.
        fixed: the layout by operand index, for operands that do not ask for ANY.
    """
    out = views[len(call.inputs)].dims
    for joint in _joint_layouts(call, views, fixed):
        with suppress(LayoutError):  # the layout separates dims that a view splits
            yield tuple(
                fixed[i]
                if i in fixed
                else to_base(restricted(joint, view, out), view).normalized(view.dtype)
                for i, view in enumerate(views)
            )


def _in_order(operand: VTensor, layouts: Sequence[Layout]) -> Sequence[Layout]:
    """Return the alternatives in their order, but the operand's produced layout first."""
    return sorted(layouts, key=lambda layout: not _has_layout(operand, layout))


def _has_layout(operand: VTensor, layout: Layout) -> bool:
    """Return whether an operand's produced layout is this one; False if the former is unknown."""
    produced = operand.produced_layout
    return produced is not None and layout.same(produced, operand.dims)


def _combinations(
    alternatives: Sequence[Sequence[Layout]], present: Sequence[Layout]
) -> Iterator[Row]:
    """Yield rows of one alternative per operand, the best row first.

    The first row has the preferred layout of each operand. Then there is a row for each layout that
    occurs: all operands that have it among their alternatives get it, all other operands their
    preferred layout. The last rows are those of ``_nearest``.

    Args:
        alternatives: the layouts of each operand, in order of preference.
        present: produced layouts of operands, whose rows come before those of other layouts.
    """
    first = tuple(layouts[0] for layouts in alternatives)
    common = dict.fromkeys(chain(present, *alternatives))
    alike = (
        tuple(layout if layout in layouts else layouts[0] for layouts in alternatives)
        for layout in common
    )
    yield from _distinct(chain([first], alike, _nearest(alternatives)))


def _nearest(alternatives: Sequence[Sequence[Layout]]) -> Iterator[Row]:
    """Yield rows of one alternative per operand, those with the smallest sum of indices first.

    An index says which alternative an operand gets: 0 is the preferred one. There are about
    ``MAX_ROWS`` rows.
    """
    queue = deque([((0,) * len(alternatives), 0)])
    while queue:
        places, begin = queue.popleft()
        yield tuple(layouts[i] for layouts, i in zip(alternatives, places, strict=True))
        for index in range(begin, len(places)):  # earlier operands have been advanced already
            if len(queue) < MAX_ROWS and places[index] + 1 < len(alternatives[index]):
                step = (*places[:index], places[index] + 1, *places[index + 1 :])
                queue.append((step, index))


def _distinct(rows: Iterable[Row]) -> Iterator[Row]:
    """Yield the rows without repetitions, in the order of first occurrence."""
    seen: set[Row] = set()
    for row in rows:
        if row not in seen:
            seen.add(row)
            yield row


def _joint_layouts(
    call: Call, views: Sequence[VTensor], fixed: Mapping[int, Layout]
) -> Iterator[Layout]:
    """Yield layouts that the operands that ask for ANY may share, the preferred one first.

    Each layout has the dims of the first output.

    Args:
        call: the call in progress.
        views: each operand as the invoker sees it.
        fixed: the layout by operand index, for operands that do not ask for ANY.
    """
    out = views[len(call.inputs)].dims
    if len(fixed) == len(call.operands):
        yield Layout.plain(out)  # no operand asks for ANY, but one row has to be made
        return
    for index, operand in enumerate(call.inputs):
        view = views[index]
        # The call reduces along a dim that has size 1 in the output and a larger size in an input.
        has_all_dims = all(
            dim in view.dims and size in (1, view.dims[dim]) for dim, size in out.items()
        )
        layout = fixed.get(index, operand.produced_layout)
        if has_all_dims and not operand.constant and layout is not None:
            with suppress(LayoutError):  # the layout blocks a dim that the view splits
                yield from_base(layout, view).restrict(out)
    yield Layout.plain(out)


def restricted(joint: Layout, view: VTensor, out: Mapping[str, int]) -> Layout:
    """Return the joint layout restricted to the dims of one operand, without blocks on a dim that
    the operand broadcasts.

    If the operand has a dim that the joint layout lacks, return the operand's produced layout, or
    the declared order of its dims if that is unknown.

    Args:
        joint: the joint layout.
        view: the operand as the invoker sees it.
        out: the sizes of the first output by dim.
    """
    if not view.dims.keys() <= set(joint.dims):
        produced = (view if view.base is None else view.base).produced_layout
        with suppress(LayoutError):  # the produced layout blocks a dim that the view splits
            return Layout.plain(view.dims) if produced is None else from_base(produced, view)
        return Layout.plain(view.dims)
    layout = joint.restrict(view.dims)
    for dim, size in view.dims.items():
        if size != out.get(dim):
            layout = layout.unblock(dim)
    return layout
