"""Primitives that slide a window over an image, or sample it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import prod
from typing import TYPE_CHECKING, TypeVar

from libdesc.onednn.layouts import canonical_order
from libdesc.onednn.native import dnnl
from libdesc.onednn.products import PRODUCTS, lies_as_rows, product, product_layouts
from libdesc.onednn.routines import (
    FollowingRoutine,
    Operand,
    Row,
    compiled,
    followed,
    is_reference,
)
from libdesc.onednn.routines_fused import FusingRoutine
from ptensor.evaluation import Decline
from ptensor.layout import Layout
from vtensor.language.operators import Follower
from vtensor.language.tensor import VTensor

if TYPE_CHECKING:
    from libdesc.onednn._onednn import Attr, Desc, Primitive

T = TypeVar("T")

#: The most elements of a mean: oneDNN adds them up in f32 one after another, which is off by up to
#: 1.5e-8 for each where all are alike. Half floats are rounded more coarsely themselves.
LONG_MEAN = {"f32": 1 << 9, "bf16": 1 << 14, "f16": 1 << 14}
#: How many outputs lie together in weights of ``brgconv_1x1``; it takes one of them for each size.
TOGETHER = (24, 16)


class Sliding(FusingRoutine):
    """What slides a kernel over an image; oneDNN chooses every layout.

    oneDNN's kernels work along the last spatial dim: a dim of one place is numbered before the
    others, which costs nothing since it may lie anywhere.

    Args:
        src: N C and spatial dims.
        weights: O I and spatial dims, and G for groups; the depthwise ones have I = 1.
        dst: N C and spatial dims.
        strides, dilations: one number a spatial dim; 1 is dense.
        pads: all beginnings, then all ends.
        follow: operators fused behind it.
    """

    heavy = True

    def __init__(
        self,
        src: VTensor,
        weights: VTensor,
        dst: VTensor,
        strides: Sequence[int],
        pads: Sequence[int],
        dilations: Sequence[int],
        follow: Sequence[Follower] = (),
    ) -> None:
        named = {"src": src, "weights": weights, "dst": dst}
        orders = [canonical_order(tensor.dims) for tensor in named.values()]
        places = [max(src.size(dim), dst.size(dim)) for dim in orders[0][-len(strides) :]]
        turn = sorted(range(len(strides)), key=lambda place: places[place] > 1)
        operands = [
            Operand(name, tensor, (*order[: -len(turn)], *turned(order[-len(turn) :], turn)))
            for (name, tensor), order in zip(named.items(), orders, strict=True)
        ]
        super().__init__(operands, follow)
        begins, ends = (turned(half, turn) for half in halves(pads))
        self.window = (turned(strides, turn), turned(dilations, turn), begins, ends)

    def primitive(self, row: Row) -> Primitive:
        """What slides, with all that is behind it.

        Where that was decided before, or is what oneDNN has just answered, it is asked for this
        alone, unless it has nothing good.
        """
        if (self.decided or self.answered) and len(row) == len(self.operands):
            found = self.together(self.own, row, self.make)
            if not is_reference(found):
                return found
        return self.fused(self.own, row, self.make)

    def together(
        self, own: Sequence[Operand], row: Row, make: Callable[..., Primitive], matrix: bool = False
    ) -> Primitive:
        """All of it on one kernel; no sigmoid on those that make 0 of NaN there: products of
        matrices, and convolutions that serve as deconvolutions.

        Raises:
            LayoutNotSupported, Decline: as FusingRoutine; or there is such a sigmoid.
        """
        found = super().together(own, row, make, matrix)
        unclean = "gemm" in found.kernel or found.kernel.startswith("conv:")
        if unclean and any(post[0] == "logistic" for post in self.chain):
            raise Decline(f"{found.kernel} makes 0 of NaN in a sigmoid behind it")
        return found

    def tried_rows(self) -> Iterator[Row]:
        """Those asked for anyhow; then each order of images, on both sides or on one."""
        yield from self.rows()
        for layout in followed(self.operands[0]):
            for src, dst in ((layout, layout), (layout, Layout.ANY), (Layout.ANY, layout)):
                yield [src, Layout.ANY, dst]


class Convolution(Sliding):
    """A convolution, or where its window is one element a product of matrices.

    Args: as Sliding.
    """

    def rows(self) -> Iterator[Row]:
        """As oneDNN likes; before that, what takes less time than its favourite."""
        if self._is_slow_favourite:
            taps = [dim for dim in self.own[1].order if dim not in ("O", "I")]
            for block in TOGETHER:
                weights = Layout.of_axes([*((dim, 0) for dim in ("O", *taps, "I")), ("O", block)])
                yield [Layout.ANY, weights, Layout.ANY]
        yield from super().rows()

    @property
    def _is_slow_favourite(self) -> bool:
        """Whether oneDNN's favourite for a window of one element takes more time than its second.

        On AVX2 the first (``jit_1x1``) works on four points at a time and on outputs in eights.
        Measured on Zen 5, allowed AVX2 only: with 25 to 100 points the second (``brgconv_1x1``)
        takes 0.82 to 1.00 of its time, into 16 or 32 outputs 0.85 to 0.93; elsewhere up to 1.1.
        """
        src, weights, dst = (operand.tensor for operand in self.own)
        if src.dtype != "f32" or not dnnl.isa().startswith("avx2") or not self._is_dense:
            return False
        outputs, inputs = weights.size("O"), weights.size("I")
        return 25 <= dst.num_elements // outputs <= 100 or (
            outputs in (16, 32) and inputs > outputs
        )

    @property
    def _is_dense(self) -> bool:
        """Whether its window is one element that moves by one, with no groups."""
        strides, _, *pads = self.window
        weights = self.own[1]
        alone = all(size == 1 for dim, size in weights.tensor.dims.items() if dim not in "OI")
        return (
            "G" not in weights.order and alone and set(strides) == {1} and not any(map(any, pads))
        )

    def kernels(self, row: Row) -> Iterator[Primitive]:
        """Those of the convolution, then, if nothing is behind it, those of the product."""
        yield from super().kernels(row)
        if self._is_dense and not self.follows and lies_as_rows(self.own, row):
            for kind in PRODUCTS:
                make = partial(product, kind, self.own, row)
                yield from compiled(lambda: self.build((), (), make))  # noqa: B023  # used at once

    def layouts(self, primitive: Primitive) -> list[Layout]:
        """Those of either."""
        if primitive.kind in PRODUCTS:
            return product_layouts(primitive, self.own)
        return super().layouts(primitive)

    def make(
        self, src: Desc, weights: Desc, bias: Desc | None, dst: Desc, attr: Attr | None = None
    ) -> Primitive:
        """The primitive on src, weights, bias, dst."""
        return dnnl.convolution(src, weights, bias, dst, *self.window, attr)


class Deconvolution(Sliding):
    """The gradient of a convolution: each element of src is spread over a window of dst.

    Args: as Sliding; ``pads`` are cut off, and an end below 0, by less than a stride, adds.
    """

    def rows(self) -> Iterator[Row]:
        """As oneDNN likes; then channels last and first, for its choice may leave pads unclean."""
        yield from super().rows()
        order = self.operands[0].order
        for dims in ((order[0], *order[2:], order[1]), order):
            layout = Layout.plain(dims)
            yield [layout, Layout.ANY, layout]

    def make(
        self, src: Desc, weights: Desc, bias: Desc | None, dst: Desc, attr: Attr | None = None
    ) -> Primitive:
        """The primitive on src, weights, bias, dst."""
        return dnnl.deconvolution(src, weights, bias, dst, *self.window, attr)


class Resampling(FollowingRoutine):
    """An image at other sizes: element y of dst lies at (y + 1/2) * src size / dst size - 1/2.

    Args:
        alg: ``"nearest"`` or ``"linear"``.
        src, dst: the same dims, in sizes that differ from the third on, as oneDNN numbers them.

    Raises:
        Decline: sizes differ before, or there is a linear sum along a dim that keeps its size:
            oneDNN adds a neighbour there that counts nothing, which may be infinite.
    """

    def __init__(self, alg: str, src: VTensor, dst: VTensor) -> None:
        order = canonical_order(src.dims)
        changed = [src.size(dim) != dst.size(dim) for dim in order]
        if any(changed[:2]) or (alg == "linear" and not all(changed[2:])):
            raise Decline(
                "resamples to the nearest from the third dim on, or linearly all of these"
            )
        super().__init__([Operand("src", src, order), Operand("dst", dst, order)])
        self.alg = alg

    def make(self, src: Desc, dst: Desc) -> Primitive:
        """The primitive on src and dst."""
        return dnnl.resampling(self.alg, src, dst)


class Pooling(FollowingRoutine):
    """Pooling, in the order in which its input lies.

    Args:
        kind: ``"max"``, ``"avg_include_padding"`` or ``"avg_exclude_padding"``.
        src, dst: N C and spatial dims.
        kernel, strides, dilations: one number a spatial dim; dilation 1 is dense.
        pads: all beginnings, then all ends.

    Raises:
        Decline: as OneDnnRoutine, or a mean is of more than ``LONG_MEAN`` elements.
    """

    def __init__(
        self,
        kind: str,
        src: VTensor,
        dst: VTensor,
        kernel: Sequence[int],
        strides: Sequence[int],
        pads: Sequence[int],
        dilations: Sequence[int],
    ) -> None:
        named = {"src": src, "dst": dst}
        super().__init__([Operand(k, t, canonical_order(t.dims)) for k, t in named.items()])
        if kind != "max" and prod(kernel) > LONG_MEAN[src.dtype]:
            raise Decline(f"adds up more than {LONG_MEAN[src.dtype]} elements one after another")
        self.kind = kind
        self.window = (tuple(kernel), tuple(strides), tuple(dilations), *halves(pads))

    def make(self, src: Desc, dst: Desc) -> Primitive:
        """The primitive on src and dst."""
        return dnnl.pooling(self.kind, src, dst, *self.window)


def turned(numbers: Sequence[T], turn: Sequence[int]) -> tuple[T, ...]:
    """What is said of each spatial dim, in another order of them."""
    return tuple(numbers[place] for place in turn)


def halves(pads: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Pads at the beginnings, and at the ends."""
    middle = len(pads) // 2
    return tuple(pads[:middle]), tuple(pads[middle:])
