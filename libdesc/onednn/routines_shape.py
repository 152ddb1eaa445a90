"""Primitives that put together, put a border around, and sum up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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


class Concat(FollowingRoutine):
    """Tensors one behind another, all in one layout.

    Args:
        sources: the same dims; sizes differ along ``axis`` only.
        dst: the dims of all.
        axis: the dim.
    """

    def __init__(self, sources: Sequence[VTensor], dst: VTensor, axis: str) -> None:
        order = canonical_order(dst.dims)
        operands = [Operand(f"src{i}", tensor, order) for i, tensor in enumerate(sources)]
        super().__init__([*operands, Operand("dst", dst, order)])
        self.axis = order.index(axis)

    def rows(self) -> Iterator[Row]:
        """Every input's own layout in turn, for all of them; then the usual ones."""
        candidates = [layout for source in self.operands[:-1] for layout in followed(source)]
        own = [produced(source) for source in self.tensors[:-1]]
        first = [layout for layout in own if layout is not None and not layout.is_any]
        for layout in dict.fromkeys([*first, *candidates]):
            yield self.row(layout)

    def row(self, layout: Layout) -> Row:
        """Everything in one layout."""
        return [layout] * len(self.operands)

    def make(self, *descs: Desc) -> Primitive:
        """The primitive on the sources and dst."""
        return dnnl.concat(self.axis, list(descs[:-1]), descs[-1])


class Pad(FollowingRoutine):
    """Zeros around a tensor: dst is zeroed, then src goes to its place in it.

    Args:
        src, dst: the same dims; dst is larger.
        before: how many zeros are in front of src, by dim.
    """

    def __init__(self, src: VTensor, dst: VTensor, before: Mapping[str, int]) -> None:
        order = canonical_order(src.dims)
        super().__init__([Operand("src", src, order), Operand("dst", dst, order)])
        self.begin = [before.get(dim, 0) for dim in order or ("",)]

    def row(self, layout: Layout) -> Row:
        """Both in one layout."""
        return [layout] * 2

    def layouts(self, primitive: Primitive) -> list[Layout]:
        """Those of the row: the primitive sees a part of dst."""
        return layouts_of(primitive, self.operands[:1]) * 2

    def make(self, src: Desc, dst: Desc) -> Primitive:
        """The primitive on src and its place in dst."""
        primitive: Primitive = dnnl.reorder(src, dst.submemory(src.dims, self.begin))
        if lossy := loss(primitive, src, dst):
            raise Decline(lossy)
        return primitive

    def __call__(self, *tensors: PTensor) -> None:
        """A step that zeroes dst, and one that copies."""
        dst = tensors[1]
        zero = self.build(self.operands[1:], [dst.required_layout], _zero)
        emit_on(zero, dict.fromkeys(zero.descs, dst))
        super().__call__(*tensors)


def _zero(dst: Desc) -> Primitive:
    """0 everywhere, pads too, whatever there was: nothing is below itself, nor is NaN.

    oneDNN's "gt" is "not at most", which holds of NaN.
    """
    whole = flat(dst, keeps_zero=True)
    return dnnl.binary("lt", whole, whole, whole)


#: Elements along a dim: how many, the first, and how far one is from the next.
Run = tuple[int, int, int]


class Slice(FollowingRoutine):
    """Copy a part of a tensor: along each dim a range of elements, with a step.

    Args:
        src, dst: the same dims.
        runs: by dim, which elements of src dst gets: how many, the first, and a step above 0. A dim
            that is missing is copied whole.
    """

    def __init__(self, src: VTensor, dst: VTensor, runs: Mapping[str, Run]) -> None:
        order = canonical_order(src.dims)
        super().__init__([Operand("src", src, order), Operand("dst", dst, order)])
        self.runs = [runs.get(dim, (src.dims.get(dim, 1), 0, 1)) for dim in order or ("",)]

    def row(self, layout: Layout) -> Row:
        """Both in one layout."""
        return [layout] * 2

    def layouts(self, primitive: Primitive) -> list[Layout]:
        """Those of the row: the primitive sees a part of src."""
        return layouts_of(primitive, self.operands[1:]) * 2

    def make(self, src: Desc, dst: Desc) -> Primitive:
        """The primitive on a part of src, and dst."""
        return dnnl.reorder(self._part(src), dst)

    def _part(self, src: Desc) -> Desc:
        """The elements of src that are taken, where they lie."""
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
            raise Decline("has no steps that do not divide a dim, in blocks or behind a start")
        split = part.reshape([one for _, n, _, step in rows for one in (n, step)])
        offsets = [at for _, _, start, step in rows for at in (0, start if step > 1 else 0)]
        return split.submemory([at for n in counts for at in (n, 1)], offsets).reshape(counts)


def loss(reorder: Primitive, source: Desc, target: Desc) -> str:
    """What a reorder loses, or nothing."""
    if reorder.kernel.startswith("simple") and source.dtype == target.dtype in ("bf16", "f16"):
        return f"its kernel {reorder.kernel} takes subnormals of {source.dtype} for zeros"
    return ""


#: The most elements of a sum: oneDNN adds them up in f32 in as few lanes as a vector has, which is
#: off by up to 1.5e-8 for each element of a lane where all are alike.
LONG_SUM = 2048


class Reduction(FollowingRoutine):
    """A sum, mean, maximum, ... over the dims that dst lacks or has with size 1.

    Those are numbered last: oneDNN's kernels sum over the last dims only.

    Args:
        alg: oneDNN's name of it: ``"mean"``, ``"sum"``, ``"max"``, ...
        src: any dims.
        dst: some of them.

    Raises:
        Decline: there is nothing to sum up, or a sum is of more than ``LONG_SUM`` elements.
    """

    def __init__(self, alg: str, src: VTensor, dst: VTensor) -> None:
        kept = [dim for dim in canonical_order(src.dims) if dst.dims.get(dim) == src.size(dim)]
        order = tuple(dict.fromkeys([*kept, *canonical_order(src.dims)]))
        super().__init__([Operand("src", src, order), Operand("dst", dst, within(order, dst.dims))])
        self.alg = alg
        if all(dst.dims.get(dim, 1) == size for dim, size in src.dims.items()):
            raise Decline("no dim of more than one element goes")
        if alg in ("sum", "mean") and src.num_elements > LONG_SUM * dst.num_elements:
            raise Decline(f"adds up more than {LONG_SUM} elements in few lanes")

    def row(self, layout: Layout) -> Row:
        """dst as src, without what is reduced: oneDNN's choice may be one that dst cannot have."""
        src, dst = (operand.tensor for operand in self.operands)
        restricted = layout.restrict(dst.dims)
        for dim, size in dst.dims.items():
            restricted = restricted.unblock(dim) if size != src.size(dim) else restricted
        return [layout, restricted]

    def make(self, src: Desc, dst: Desc) -> Primitive:
        """The primitive on src and dst.

        Raises:
            Decline: it is reference code.
        """
        primitive: Primitive = dnnl.reduction(self.alg, src, dst)
        if is_reference(primitive):
            raise Decline(f"only {primitive.kernel} for this {self.alg}")
        return primitive
