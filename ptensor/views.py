"""Layouts under a view's dim names: an operand and its views are one piece of memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ptensor.encoding import Encoding
from ptensor.layout import Axis, Layout
from vtensor.errors import LayoutError

if TYPE_CHECKING:
    from vtensor.language.tensor import VTensor


def to_base(layout: Layout, tensor: VTensor) -> Layout:
    """Return a view's layout under the names of the operand that it looks at.

    Raises:
        LayoutError: the parts of a split dim are not next to each other, slowest first.
    """
    if tensor.base is None or layout.is_any:
        return layout
    owner = {part: dim for dim, parts in tensor.view.names.items() for part in parts}
    axes: list[Axis] = []
    for i, (part, block) in enumerate(layout.axes):
        parts = tensor.view.names[owner[part]]
        if len(parts) == 1:
            axes.append(Axis(owner[part], block))
        elif part == parts[0] and not block:
            if layout.axes[i : i + len(parts)] != tuple(Axis(part_name, 0) for part_name in parts):
                raise LayoutError(
                    f"layout {layout} of a view tears {owner[part]} apart: {' '.join(parts)} must "
                    "lie together"
                )
            axes.append(Axis(owner[part], 0))
        elif block:
            raise LayoutError(f"layout {layout} of a view blocks {part}, a part of {owner[part]}")
    names = {parts[0]: dim for dim, parts in tensor.view.names.items() if len(parts) == 1}
    return Layout.of_axes(axes, _renamed(layout, names))


def from_base(layout: Layout, tensor: VTensor) -> Layout:
    """Return an operand's layout under the names of a view of it.

    Raises:
        LayoutError: a dim that the view splits is blocked.
    """
    if tensor.base is None or layout.is_any:
        return layout
    axes: list[Axis] = []
    for axis in layout.axes:
        parts = tensor.view.names[axis.dim]
        if len(parts) == 1:
            axes.append(Axis(parts[0], axis.block))
        elif layout.block(axis.dim) != 1:
            raise LayoutError(f"layout {layout} blocks {axis.dim}, which the view splits")
        else:
            axes += [Axis(part, 0) for part in parts]
    names = {dim: parts[0] for dim, parts in tensor.view.names.items() if len(parts) == 1}
    return Layout.of_axes(axes, _renamed(layout, names))


def _renamed(layout: Layout, names: Mapping[str, str]) -> Encoding | None:
    """Return the layout's encoding under other names.

    Raises:
        LayoutError: it names a dim that the view splits.
    """
    if layout.encoding is None:
        return None
    for dim in layout.encoding.named:
        if dim not in names:
            raise LayoutError(f"the encoding of {layout} names {dim}, which the view splits")
    return layout.encoding.renamed(names)


def produced(tensor: VTensor) -> Layout | None:
    """Return the layout in which an operand is produced, under the names of a view of it, or None.

    Raises:
        LayoutError: a dim that the view splits is blocked.
    """
    layout = (tensor if tensor.base is None else tensor.base).produced_layout
    return None if layout is None else from_base(layout, tensor)
