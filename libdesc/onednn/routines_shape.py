"""Concatenation, padding, slicing and reductions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING

from libdesc.onednn.layouts import canonical_order
from libdesc.onednn.native import dnnl
from libdesc.onednn.routines import (
    FollowingRoutine,
    Operand,
    Row,
    emit_on,
    followed,
    is_reference,
    layouts_of,
    within,
)
from libdesc.onednn.routines_pointwise import flat
from ptensor.evaluation import Decline
from ptensor.layout import Layout
from ptensor.tensor import PTensor
from ptensor.views import produced
from vtensor.language.tensor import VTensor

if TYPE_CHECKING:
    from libdesc.onednn._onednn import Desc, Primitive


#: oneDNN's concatenation copies one piece of a source after another. Where there are more than
#: ``FEW_PIECES`` of fewer than ``SHORT_PIECE`` elements, that takes several times as long as a copy
#: of elements at a stride.
FEW_PIECES, SHORT_PIECE = 64, 16


class Concat(FollowingRoutine):
    """Concatenation along a dim, all operands in one layout, whose pieces are not many and short.

    Args:
        sources: tensors of the same dims, whose sizes differ along ``axis`` only.
        dst: the same dims.
        axis: the dim of the concatenation.
    """

    def __init__(self, sources: Sequence[VTensor], dst: VTensor, axis: str) -> None:
        order = canonical_order(dst.dims)
        operands = [Operand(f"src{i}", tensor, order) for i, tensor in enumerate(sources)]
        super().__init__([*operands, Operand("dst", dst, order)])
        self.axis = order.index(axis)

    def rows(self) -> Iterator[Row]:
        """Yield rows of layouts to try, in which all operands have the same layout: that of each
        input, then usual layouts. A current layout in which pieces are short is the last row: other
        libraries take it as it is.
        """
        candidates = [layout for source in self.operands[:-1] for layout in followed(source)]
        current = [produced(source) for source in self.tensors[:-1]]
        first = [layout for layout in current if layout is not None and not layout.is_any]
        for layout in dict.fromkeys([*first, *candidates]):
            yield self.row(layout)
            if layout in first and layout.is_plain and self._is_short(layout):
                return

    def _is_short(self, layout: Layout) -> bool:
        source, axis = self.tensors[0], self.operands[0].order[self.axis]
        stride = layout.strides(source.dims)[layout.dims.index(axis)]
        return _has_short_pieces(source.size(axis) * stride, source.num_elements)

    def row(self, layout: Layout) -> Row:
        """Return a layout per operand: ``layout`` for all."""
        return [layout] * len(self.operands)

    def make(self, *descs: Desc) -> Primitive:
        """Return the concat primitive for a descriptor per operand.

        Raises:
            Decline: pieces of the first source are many and short.
        """
        lead, at = descs[0], self.axis
        piece = lead.dims[at] * lead.strides[at]
        if not lead.inner_blocks and _has_short_pieces(piece, prod(lead.dims)):
            raise Decline(f"copies pieces of {piece} elements, one after another")
        return dnnl.concat(self.axis, list(descs[:-1]), descs[-1])


def _has_short_pieces(piece: int, elements: int) -> bool:
    """Return whether a concatenation copies many short pieces of a source.

    Args:
        piece: the elements of the source that are neighbours in the result.
        elements: all elements of the source.
    """
    return elements > FEW_PIECES * piece and piece < SHORT_PIECE


class Pad(FollowingRoutine):
    """Padding with zeros: dst is zeroed, then src is copied into it.

    Args:
        src, dst: the same dims; dst is larger.
        before: number of zeros before src, by dim; 0 for a missing dim.
    """

    def __init__(self, src: VTensor, dst: VTensor, before: Mapping[str, int]) -> None:
        order = canonical_order(src.dims)
        super().__init__([Operand("src", src, order), Operand("dst", dst, order)])
        self.begin = [before.get(dim, 0) for dim in order or ("",)]

    def row(self, layout: Layout) -> Row:
        """Return a layout per operand: ``layout`` for both."""
        return [layout] * 2

    def layouts(self, primitive: Primitive) -> list[Layout]:
        """Return the layout of src, for src and for dst: the primitive works on a part of dst
        only.
        """
        return layouts_of(primitive, self.operands[:1]) * 2

    def make(self, src: Desc, dst: Desc) -> Primitive:
        """Return the reorder from src to the part of dst inside the padding.

        Raises:
            Decline: the reorder loses values, see ``loss``.
        """
        primitive: Primitive = dnnl.reorder(src, dst.submemory(src.dims, self.begin))
        if lossy := loss(primitive, src, dst):
            raise Decline(lossy)
        return primitive

    def __call__(self, *tensors: PTensor) -> None:
        """Emit a step that zeroes dst, and one that copies src."""
        dst = tensors[1]
        zero = self.build(self.operands[1:], [dst.required_layout], _zero)
        emit_on(zero, dict.fromkeys(zero.descs, dst))
        super().__call__(*tensors)


def _zero(dst: Desc) -> Primitive:
    """Return a primitive that sets dst and its pads to 0: x < x is 0 for every x, also for NaN.

    oneDNN's "gt" computes "not <=", which is true for NaN.
    """
    whole = flat(dst, keeps_zero=True)
    return dnnl.binary("lt", whole, whole, whole)


#: (count, first index, stride): a range of indices of a dim.
Run = tuple[int, int, int]


class Slice(FollowingRoutine):
    """A copy of a part of a tensor: along each dim a range of elements, with a stride.

    Args:
        src, dst: the same dims.
        runs: by dim, which indices of src are copied: (count, first index, stride), with a stride
            of at least 1. A missing dim is copied whole.
    """

    def __init__(self, src: VTensor, dst: VTensor, runs: Mapping[str, Run]) -> None:
        order = canonical_order(src.dims)
        super().__init__([Operand("src", src, order), Operand("dst", dst, order)])
        self.runs = [runs.get(dim, (src.dims.get(dim, 1), 0, 1)) for dim in order or ("",)]

    def row(self, layout: Layout) -> Row:
        """Return a layout per operand: ``layout`` for both."""
        return [layout] * 2

    def layouts(self, primitive: Primitive) -> list[Layout]:
        """Return the layout of dst, for src and for dst: the primitive works on a part of src
        only.
        """
        return layouts_of(primitive, self.operands[1:]) * 2

    def make(self, src: Desc, dst: Desc) -> Primitive:
        """Return the reorder from the elements of src that are copied to dst."""
        return dnnl.reorder(self._part(src), dst)

    def _part(self, src: Desc) -> Desc:
        """Return a descriptor of the elements of src that are copied, in the memory of src.

        Raises:
            Decline: there is no such descriptor. src has blocks or a first index is above 0, and
                for a stride above 1, count * stride is not the size of the dim.
        """
        counts, starts = [count for count, _, _ in self.runs], [start for _, start, _ in self.runs]
        steps = [step if step == 1 or count > 1 else 1 for count, _, step in self.runs]
        if not src.inner_blocks and not any(starts):
            strides = [stride * step for stride, step in zip(src.strides, steps, strict=True)]
            strided: Desc = dnnl.Desc.strided(counts, src.dtype, strides)
            return strided
        rows = list(zip(src.dims, counts, starts, steps, strict=True))
        near = [(size, 0) if step > 1 else (n, start) for size, n, start, step in rows]
        part = src.submemory(*([row[i] for row in near] for i in (0, 1)))
        if all(step == 1 for step in steps):
            return part
        if any(step > 1 and n * step != size for size, n, _, step in rows):
            raise Decline("has no steps that do not divide a dim, in blocks or after a start")
        split = part.reshape([size for _, n, _, step in rows for size in (n, step)])
        offsets = [at for _, _, start, step in rows for at in (0, start if step > 1 else 0)]
        return split.submemory([at for n in counts for at in (n, 1)], offsets).reshape(counts)


def loss(reorder: Primitive, source: Desc, target: Desc) -> str:
    """Return which values a reorder (oneDNN's copy) between equal element types would lose, as a
    text; empty if none, or if the element types differ.

    Args:
        reorder: the primitive.
        source, target: the descriptors of the two tensors.
    """
    if reorder.kernel.startswith("simple") and source.dtype == target.dtype in ("bf16", "f16"):
        return f"its kernel {reorder.kernel} takes subnormals of {source.dtype} for zeros"
    return ""


#: How many elements a sum may have. oneDNN adds them up in f32, in only as many partial sums as a
#: vector has elements; longer sums would lose digits.
MAX_SUM = 2048


class Reduction(FollowingRoutine):
    """A reduction (sum, mean, maximum, ...) over the dims that dst lacks or has with size 1.

    These dims are numbered last: oneDNN's kernels reduce the last dims only.

    Args:
        alg: oneDNN's name of the reduction: ``"mean"``, ``"sum"``, ``"max"``, ...
        src: any dims.
        dst: some dims of src, each with its size there or size 1.

    Raises:
        Decline: no dim of more than one element is reduced, or a sum has more than ``MAX_SUM``
            elements.
    """

    def __init__(self, alg: str, src: VTensor, dst: VTensor) -> None:
        remaining = [dim for dim in canonical_order(src.dims) if dst.dims.get(dim) == src.size(dim)]
        order = tuple(dict.fromkeys([*remaining, *canonical_order(src.dims)]))
        super().__init__([Operand("src", src, order), Operand("dst", dst, within(order, dst.dims))])
        self.alg = alg
        if all(dst.dims.get(dim, 1) == size for dim, size in src.dims.items()):
            raise Decline("no dim of more than one element goes")
        if alg in ("sum", "mean") and src.num_elements > MAX_SUM * dst.num_elements:
            raise Decline(f"adds up more than {MAX_SUM} elements in few lanes")

    def row(self, layout: Layout) -> Row:
        """Return a layout per operand: ``layout`` for src, and for dst ``layout`` without the
        reduced dims.

        oneDNN might choose a layout that dst cannot have, so that the choice is not left to it.
        """
        src, dst = (operand.tensor for operand in self.operands)
        restricted = layout.restrict(dst.dims)
        for dim, size in dst.dims.items():
            restricted = restricted.unblock(dim) if size != src.size(dim) else restricted
        return [layout, restricted]

    def make(self, src: Desc, dst: Desc) -> Primitive:
        """Return the reduction primitive for the descriptors of src and dst.

        Raises:
            Decline: oneDNN has only reference code.
        """
        primitive: Primitive = dnnl.reduction(self.alg, src, dst)
        if is_reference(primitive):
            raise Decline(f"only {primitive.kernel} for this {self.alg}")
        return primitive
