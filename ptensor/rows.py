"""From what an invoker asked to rows of layouts: one layout an operand, all operands together.

Operands that ask for ANY take one joint layout, each restricted to its own dims.

Source: the paper, Algorithm 1, lines 9 to 18.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ptensor.layout import Layout

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
    for joint in _joint_layouts(call, fixed):
        row = tuple(
            fixed[i] if i in fixed else restricted(joint, operand, call.outputs[0].dims)
            for i, operand in enumerate(call.operands)
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


def _joint_layouts(call: Call, fixed: Mapping[int, Layout]) -> Iterator[Layout]:
    out = call.outputs[0].dims
    declared = Layout.plain(out)
    if len(fixed) == len(call.operands):
        yield declared  # nobody takes it; one row is due all the same
        return
    for index, operand in enumerate(call.inputs):
        whole = all(operand.dims.get(dim) == size for dim, size in out.items())
        layout = fixed.get(index, operand.produced_layout)
        if whole and not operand.constant and layout is not None:
            yield layout.restrict(out)
    yield declared


def restricted(joint: Layout, operand: VTensor, out: Mapping[str, int]) -> Layout:
    """The joint layout on one operand: its own dims, and no blocks on a dim that it broadcasts."""
    if not operand.dims.keys() <= set(joint.dims):
        produced = operand.produced_layout
        return Layout.plain(operand.dims) if produced is None else produced
    layout = joint.restrict(operand.dims)
    for dim, size in operand.dims.items():
        if size != out.get(dim):
            layout = layout.unblock(dim)
    return layout
