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
    """Translate a layout from the dim names of a view to those of the tensor that it is a view of.

    Args:
        layout: a layout under the dim names of ``tensor``.
        tensor: the view; if it is no view, the layout comes back as it is.

    Raises:
        LayoutError: the view splits a dim into several, and these are not next to each other in the
            layout, slowest first. Or one of them has blocks, scales, zero points or a tile.
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
    """Translate a layout from the dim names of a view's base, the tensor that it is a view of, to
    those of the view.

    Args:
        layout: a layout under the dim names of the base.
        tensor: the view; if it is no view, the layout comes back as it is.

    Raises:
        LayoutError: a dim that the view splits has blocks, or the encoding has scales, zero points
            or a tile along it.
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
    """Return a layout's encoding with its dims renamed; None if it has none.

    Args:
        layout: the layout.
        names: the new name by old name, for all dims that the view does not split.

    Raises:
        LayoutError: the encoding has scales, zero points or a tile along a dim that the view
            splits.
    """
    if layout.encoding is None:
        return None
    for dim in layout.encoding.named:
        if dim not in names:
            raise LayoutError(f"the encoding of {layout} names {dim}, which the view splits")
    return layout.encoding.renamed(names)


def produced(tensor: VTensor) -> Layout | None:
    """Return the layout in which a tensor is produced; None if unknown.

    For a view, it is the layout of the view's base under the view's dim names.

    Raises:
        LayoutError: a dim that the view splits has blocks, scales, zero points or a tile.
    """
    layout = (tensor if tensor.base is None else tensor.base).produced_layout
    return None if layout is None else from_base(layout, tensor)
