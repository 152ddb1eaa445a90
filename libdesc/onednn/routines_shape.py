"""Primitives that put together and sum up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import TYPE_CHECKING

from libdesc.onednn.layouts import canonical_order
from libdesc.onednn.routines import FollowingRoutine, Operand, Row, followed
from libdesc.onednn.routines_pointwise import within
from ptensor.layout import Layout
from ptensor.tensor import PTensor
from vtensor.operators import Follower

if TYPE_CHECKING:
    from libdesc.onednn._onednn import Desc, Primitive


class Concat(FollowingRoutine):
    """Tensors one behind another, all in one layout.

    Args:
        sources: the same dims; sizes differ along ``axis`` only.
        dst: the dims of all.
        axis: the dim.
        post: operators fused behind it.
    """

    def __init__(
        self,
        sources: Sequence[PTensor],
        dst: PTensor,
        axis: str,
        post: Sequence[Follower] = (),
    ) -> None:
        order = canonical_order(dst.dims)
        operands = [Operand(f"src{i}", tensor, order) for i, tensor in enumerate(sources)]
        super().__init__([*operands, Operand("dst", dst, order)], post)
        self.axis = order.index(axis)

    def rows(self) -> Iterator[Row]:
        """Every input's own layout in turn, for all of them; then the usual ones."""
        candidates = [layout for source in self.operands[:-1] for layout in followed(source)]
        own = [source.tensor.produced_layout for source in self.operands[:-1]]
        first = [layout for layout in own if layout is not None and not layout.is_any]
        for layout in dict.fromkeys([*first, *candidates]):
            yield self.row(layout)

    def row(self, layout: Layout) -> Row:
        """Everything in one layout."""
        return [layout] * len(self.operands)

    def make(self, dnnl: ModuleType, *descs: Desc) -> Primitive:
        """The primitive on the sources and dst."""
        primitive: Primitive = dnnl.concat(self.axis, list(descs[:-1]), descs[-1])
        return primitive


class Reduction(FollowingRoutine):
    """A sum, mean, maximum, ... over the dims that dst lacks or has with size 1.

    Those are numbered last: oneDNN's kernels sum over the last dims only.

    Args:
        alg: oneDNN's name of it: ``"mean"``, ``"sum"``, ``"max"``, ...
        src: any dims.
        dst: some of them.
        post: operators fused behind it.
    """

    def __init__(self, alg: str, src: PTensor, dst: PTensor, post: Sequence[Follower] = ()) -> None:
        kept = [dim for dim in canonical_order(src.dims) if dst.dims.get(dim) == src.size(dim)]
        order = tuple(dict.fromkeys([*kept, *canonical_order(src.dims)]))
        super().__init__(
            [Operand("src", src, order), Operand("dst", dst, within(order, dst.dims))], post
        )
        self.alg = alg

    def row(self, layout: Layout) -> Row:
        """dst as src, without what is reduced: oneDNN's choice may be one that dst cannot have."""
        src, dst = (operand.tensor for operand in self.operands)
        restricted = layout.restrict(dst.dims)
        for dim, size in dst.dims.items():
            restricted = restricted.unblock(dim) if size != src.size(dim) else restricted
        return [layout, restricted]

    def make(self, dnnl: ModuleType, *descs: Desc) -> Primitive:
        """The primitive on src and dst."""
        primitive: Primitive = dnnl.reduction(self.alg, *descs)
        return primitive
