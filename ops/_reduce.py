"""What reductions share: which dims go, what is left, and how ONNX says so."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ops._names import axes_of
from vtensor.operators import Naming, NodeReader
from vtensor.tensor import VTensor


def reduction_names(since: int) -> Callable[[Naming], None]:
    """Names of a reduction whose axes are an input from opset ``since`` on."""

    def names(node: Naming) -> None:
        rank = node.rank("x0")
        if node.rank("y0") == rank:
            kept = list(range(rank))
        elif node.opset >= since:
            return  # which dims go is an input's value; reading the node names what is left
        else:
            gone = {axis % rank for axis in node.attribute("axes") or range(rank)}
            kept = [position for position in range(rank) if position not in gone]
        for place, position in enumerate(kept):
            node.same("x0", position, "y0", place)

    return names


def reduced_dims(node: NodeReader, x: VTensor, since: int) -> tuple[str, ...]:
    """The dims that a node reduces: those it names, else all, or none where it says so."""
    axes = node.attribute("axes")
    if node.opset >= since and node.has(1):
        axes = [int(axis) for axis in node.constant(1)]
    if not axes:
        axes = [] if node.attribute("noop_with_empty_axes", 0) else list(range(len(x.dims)))
    return axes_of(node, x, axes)


def without(x: VTensor, axes: Iterable[str], keepdims: bool) -> dict[str, int]:
    """The sizes of x once some dims are gone, or of size 1."""
    gone = set(axes)
    kept = {dim: 1 if dim in gone else size for dim, size in x.dims.items()}
    return {dim: size for dim, size in kept.items() if keepdims or dim not in gone}
