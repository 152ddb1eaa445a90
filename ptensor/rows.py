"""Rows of layouts: combinations of one layout per operand that fit an invoker's requirements.

An invoker requires of each operand one layout, or one of several, or ANY. All operands with ANY
take one *joint layout*, each without the dims that the operand lacks.

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

#: The approximate maximum of rows of layouts that a library is asked for: the number of
#: combinations grows exponentially. If it takes none of them, it counts as declining.
MAX_ROWS = 64


def candidate_rows(call: Call, asked: Sequence[Requirement]) -> Iterator[Row]:
    """Yield rows of layouts that fit the requirements, the preferred row first. A row has one
    layout per operand.

    An operand with several required layouts prefers the one in which it is produced, if that is
    among them; then the others in their order. Operands whose requirement is ANY share a joint
    layout. The first candidates for it are the layouts of inputs that are not constant and have all
    dims of the first output; a dim that has size 1 in the output may have any size in the input.
    The last candidate is the order in which the output's dims are declared. There are at most
    ``MAX_ROWS`` rows.

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
    """Yield a row of layouts for each joint layout, that is, a layout which all operands that ask
    for ANY share.

    Each row has the layouts ``fixed``, and the joint layout restricted to an operand's own dims for
    all other operands.

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
    """Return required layouts in their order, but with the operand's produced layout first if it is
    among them.
    """
    return sorted(layouts, key=lambda layout: not _has_layout(operand, layout))


def _has_layout(operand: VTensor, layout: Layout) -> bool:
    """Return whether an operand is produced in this layout; False if its produced layout is
    unknown.
    """
    produced = operand.produced_layout
    return produced is not None and layout.same(produced, operand.dims)


def _combinations(
    alternatives: Sequence[Sequence[Layout]], present: Sequence[Layout]
) -> Iterator[Row]:
    """Yield rows of layouts, with one of its alternatives for each operand, the best row first.

    The first row has the preferred layout of each operand. Then comes a row for each layout that
    occurs: all operands that have it among their alternatives get it, and all others get their
    preferred layout. The rows of ``_nearest`` come last.

    Args:
        alternatives: the layouts of each operand, in order of preference.
        present: layouts in which operands are produced; the rows for these layouts come before
            those for others.
    """
    first = tuple(layouts[0] for layouts in alternatives)
    common = dict.fromkeys(chain(present, *alternatives))
    alike = (
        tuple(layout if layout in layouts else layouts[0] for layouts in alternatives)
        for layout in common
    )
    yield from _distinct(chain([first], alike, _nearest(alternatives)))


def _nearest(alternatives: Sequence[Sequence[Layout]]) -> Iterator[Row]:
    """Yield rows of layouts, with one of its alternatives for each operand. Rows close to the
    preferred layouts come first.

    The rows are sorted by the sum of the indices of their alternatives; index 0 is the preferred
    one. There are about ``MAX_ROWS`` rows.
    """
    queue = deque([((0,) * len(alternatives), 0)])
    while queue:
        places, begin = queue.popleft()
        yield tuple(layouts[i] for layouts, i in zip(alternatives, places, strict=True))
        for index in range(begin, len(places)):  # no row is reached in two ways
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
    """Return the layout that an operand gets from a joint layout, which it shares with other
    operands.

    It is the joint layout without the dims that the operand lacks, and without blocks on a dim
    whose size differs from the output's. If the operand has a dim that the joint layout lacks, it
    keeps its produced layout, or the declared order of its dims if that is unknown.

    Args:
        joint: the joint layout.
        view: the operand as the invoker sees it.
        out: the sizes of the call's first output, by dim.
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
