"""What reductions share: which dims go, what is left, and how ONNX says so."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ops._names import axes_of
from vtensor.errors import DimError
from vtensor.operators import Context, Naming, NodeReader, param
from vtensor.tensor import VTensor

#: The opset from which on most reductions take their axes as an input.
AXES_ARE_AN_INPUT = 18


def reduction_names(since: int = AXES_ARE_AN_INPUT) -> Callable[[Naming], None]:
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


def reduced_dims(node: NodeReader, x: VTensor, since: int = AXES_ARE_AN_INPUT) -> tuple[str, ...]:
    """The dims that a node reduces: those it names, else all, or none where it says so."""
    axes = node.attribute("axes")
    if node.opset >= since and node.has(1):
        axes = [int(axis) for axis in node.constant(1)]
    if not axes and node.attribute("noop_with_empty_axes", 0):
        axes = []
    elif not axes:
        axes = list(range(len(x.dims)))
    return axes_of(node, x, axes)


def without(x: VTensor, axes: Iterable[str], keepdims: bool) -> dict[str, int]:
    """The sizes of x once some dims are gone, or of size 1.

    Raises:
        DimError: x lacks one of them, or it is named twice.
    """
    gone = tuple(axes)
    if len(set(gone)) < len(gone) or not x.dims.keys() >= set(gone):
        raise DimError(f"axes {' '.join(gone)} must be dims of x, each once")
    if keepdims:
        return {dim: 1 if dim in gone else size for dim, size in x.dims.items()}
    return {dim: size for dim, size in x.dims.items() if dim not in gone}


@dataclass(frozen=True)
class Reduction:
    """The parameters and the result of every reduction."""

    axes: tuple[str, ...] = param()
    keepdims: bool = param(default=True)

    def compute(self, ctx: Context, x: VTensor) -> VTensor:
        """x without those dims."""
        y = VTensor(x.dtype, without(x, self.axes, self.keepdims), ctx.output(0))
        ctx.dispatch(self, [x], [y])
        return y
