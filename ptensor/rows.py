"""From what an invoker asked to rows of layouts: one layout an operand, all operands together.

Operands that ask for ANY take one joint layout, each restricted to its own dims.

Source: the paper, Algorithm 1, lines 9 to 18.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from ptensor.layout import Layout
from ptensor.views import from_base, to_base
from vtensor.errors import LayoutError

if TYPE_CHECKING:
    from ptensor.evaluation import Call, Requirement
    from vtensor.tensor import VTensor


def candidate_rows(call: Call, asked: Sequence[Requirement]) -> Iterator[tuple[Layout, ...]]:
    """Rows that fit what was asked, the preferred one first.

    An operand with alternatives takes the layout that it already has where that is one of them,
    else the first. The joint layout of the ANY operands is the first of these that the library
    confirms: the produced layout of a non-constant operand that has all the output's dims, the
    declared order.
    """
    fixed: dict[int, Layout] = {}
    for index, requirement in enumerate(asked):
        if requirement.layouts:
            fixed[index] = _preferred(call.operands[index], requirement.layouts)
    seen: set[tuple[Layout, ...]] = set()
    views = [call.ptensors[i].tensor for i in range(len(call.operands))]
    out = views[len(call.inputs)].dims
    for joint in _joint_layouts(call, views, fixed):
        with suppress(LayoutError):  # it tears apart what a view splits: no layout of the operand
            row = tuple(
                fixed[i] if i in fixed else to_base(restricted(joint, view, out), view)
                for i, view in enumerate(views)
            )
            if row not in seen:
                seen.add(row)
                yield row


def _preferred(operand: VTensor, layouts: Sequence[Layout]) -> Layout:
    produced = operand.produced_layout
    if produced is not None:
        for layout in layouts:
            if layout.same(produced, operand.dims):
                return layout
    return layouts[0]


def _joint_layouts(
    call: Call, views: Sequence[VTensor], fixed: Mapping[int, Layout]
) -> Iterator[Layout]:
    out = views[len(call.inputs)].dims
    if len(fixed) == len(call.operands):
        yield Layout.plain(out)  # nobody takes it; one row is due all the same
        return
    for index, operand in enumerate(call.inputs):
        view = views[index]
        whole = all(view.dims.get(dim) == size for dim, size in out.items())
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
