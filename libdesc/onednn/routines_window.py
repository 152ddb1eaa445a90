"""Convolutions, pooling and resampling."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import prod
from typing import TYPE_CHECKING, TypeVar

from libdesc.onednn.layouts import canonical_order
from libdesc.onednn.native import dnnl
from libdesc.onednn.products import PRODUCTS, are_matrices, product, product_layouts
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

#: How many elements a mean may have, by element type. oneDNN adds them up in f32 one after another;
#: longer sums would lose digits. Half floats have fewer digits, so that more may be lost.
MAX_MEAN = {"f32": 1 << 9, "bf16": 1 << 14, "f16": 1 << 14}
#: Sizes of a block of output channels in the weights of the kernel ``brgconv_1x1``. It takes one of
#: them, depending on the sizes of the call.
OUTPUT_BLOCKS = (24, 16)


class WindowRoutine(FusingRoutine):
    """The base class of convolutions: a filter slides over an image. oneDNN chooses all layouts.

    oneDNN's kernels work along the last spatial dim. A spatial dim of size 1 is therefore numbered
    before the others; where it is in memory makes no difference.

    Args:
        src: N C and spatial dims.
        weights: O I and spatial dims, and G for groups; I is 1 in a depthwise convolution.
        dst: N C and spatial dims.
        strides, dilations: one number per spatial dim; 1 is dense.
        pads: pads before each spatial dim, then after each, in elements.
        follow: fused followers, see ``FusingRoutine``.
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
            Operand(name, tensor, (*order[: -len(turn)], *reordered(order[-len(turn) :], turn)))
            for (name, tensor), order in zip(named.items(), orders, strict=True)
        ]
        super().__init__(operands, follow)
        begins, ends = (reordered(half, turn) for half in halves(pads))
        self.window = (reordered(strides, turn), reordered(dilations, turn), begins, ends)

    def primitive(self, row: Row) -> Primitive:
        """Return the primitive with its followers, for a layout per operand.

        Its kernel must be that of the primitive without followers, unless the layouts were decided
        before, or oneDNN has just chosen them.
        """
        if (self.decided or self.answered) and len(row) == len(self.operands):
            fused = self.together(self.core, row, self.make)
            if not is_reference(fused):
                return fused
        return self.fused(self.core, row, self.make)

    def together(
        self,
        operands: Sequence[Operand],
        row: Row,
        make: Callable[..., Primitive],
        matrix: bool = False,
    ) -> Primitive:
        """Return the primitive with its followers, on any kernel that fuses a sigmoid correctly.

        Kernels on matrix products, and deconvolutions run as convolutions, make 0 of NaN in a
        fused sigmoid.

        Args: see ``FusingRoutine.together``.

        Raises:
            LayoutNotSupported: oneDNN has no descriptor of a layout.
            Decline: oneDNN has no kernel, or only one that loses a NaN in a fused sigmoid.
        """
        primitive = super().together(operands, row, make, matrix)
        unclean = "gemm" in primitive.kernel or primitive.kernel.startswith("conv:")
        if unclean and any(post[0] == "logistic" for post in self.chain):
            raise Decline(f"{primitive.kernel} makes 0 of NaN in a fused sigmoid")
        return primitive

    def tried_rows(self) -> Iterator[Row]:
        """Yield rows of layouts whose kernels are worth measuring: ``rows``, then rows with usual
        layouts of src, of dst, or of both.
        """
        yield from self.rows()
        for layout in followed(self.operands[0]):
            for src, dst in ((layout, layout), (layout, Layout.ANY), (Layout.ANY, layout)):
                yield [src, Layout.ANY, dst]


class Convolution(WindowRoutine):
    """A convolution. If the window has one element, it may also be computed as a product of
    matrices.

    Args: see ``WindowRoutine``.
    """

    def rows(self) -> Iterator[Row]:
        """Yield rows of layouts to try, one per operand. In the last row oneDNN chooses all
        layouts.

        If oneDNN has a faster kernel than the one that it would choose, rows with layouts for this
        kernel come first.
        """
        if self._second_kernel_is_faster:
            taps = [dim for dim in self.core[1].order if dim not in ("O", "I")]
            for block in OUTPUT_BLOCKS:
                weights = Layout.of_axes([*((dim, 0) for dim in ("O", *taps, "I")), ("O", block)])
                yield [Layout.ANY, weights, Layout.ANY]
        yield from super().rows()

    @property
    def _second_kernel_is_faster(self) -> bool:
        """True if oneDNN's second kernel for a window of one element is faster than its first.

        On AVX2 the first (``jit_1x1``) computes four pixels and eight outputs at a time. The second
        (``brgconv_1x1``) is faster for 25 to 100 pixels, and for 16 or 32 outputs.
        """
        src, weights, dst = (operand.tensor for operand in self.core)
        if src.dtype != "f32" or not dnnl.isa().startswith("avx2") or not self._is_dense:
            return False
        outputs, inputs = weights.size("O"), weights.size("I")
        return 25 <= dst.num_elements // outputs <= 100 or (
            outputs in (16, 32) and inputs > outputs
        )

    @property
    def _is_dense(self) -> bool:
        """True for a window of one element with strides of 1, without pads and groups."""
        strides, _, *pads = self.window
        weights = self.core[1]
        alone = all(size == 1 for dim, size in weights.tensor.dims.items() if dim not in "OI")
        return (
            "G" not in weights.order and alone and set(strides) == {1} and not any(map(any, pads))
        )

    def kernels(self, row: Row) -> Iterator[Primitive]:
        """Yield the kernels of the convolution, then those of a product of matrices that computes
        the same.

        There is a product only if both images are stored as matrices and there are no followers.
        """
        yield from super().kernels(row)
        if self._is_dense and not self.follows and are_matrices(self.core, row):
            for kind in PRODUCTS:
                make = partial(product, kind, self.core, row)
                yield from compiled(lambda: self.build((), (), make))  # noqa: B023  # used at once

    def layouts(self, primitive: Primitive) -> list[Layout]:
        """Return the layouts, one per operand, of a primitive: a convolution or a product."""
        if primitive.kind in PRODUCTS:
            return product_layouts(primitive, self.core)
        return super().layouts(primitive)

    def make(
        self, src: Desc, weights: Desc, bias: Desc | None, dst: Desc, attr: Attr | None = None
    ) -> Primitive:
        """Return the convolution primitive for these descriptors."""
        return dnnl.convolution(src, weights, bias, dst, *self.window, attr)


class Deconvolution(WindowRoutine):
    """A transposed convolution: each element of src is spread over a window of dst.

    Args: see ``WindowRoutine``, except for ``pads``. They are the elements that are cut off before
    and after each spatial dim of dst. After a dim the number may be below 0, by less than the
    stride; dst is then longer.
    """

    def rows(self) -> Iterator[Row]:
        """Yield rows of layouts to try: first one in which oneDNN chooses all layouts, then rows in
        which src and dst are plain.

        If oneDNN chooses a layout with pads, it may leave them without zeros. The plain layouts
        have no pads; channels last is tried before channels first.
        """
        yield from super().rows()
        order = self.operands[0].order
        for dims in ((order[0], *order[2:], order[1]), order):
            layout = Layout.plain(dims)
            yield [layout, Layout.ANY, layout]

    def make(
        self, src: Desc, weights: Desc, bias: Desc | None, dst: Desc, attr: Attr | None = None
    ) -> Primitive:
        """Return the deconvolution primitive for these descriptors."""
        return dnnl.deconvolution(src, weights, bias, dst, *self.window, attr)


class Resampling(FollowingRoutine):
    """Resampling of an image to other sizes.

    Element y of dst along a dim is taken from src at position (y + 1/2) * src size / dst size -
    1/2.

    Args:
        alg: ``"nearest"`` or ``"linear"``.
        src, dst: the same dims. Only the sizes of the third dim and later ones, in oneDNN's order N
            C D H W, may differ.

    Raises:
        Decline: the sizes of the first two dims differ. Or ``alg`` is ``"linear"`` and a later dim
            keeps its size: along this dim oneDNN would add 0 times a neighbour, which is NaN if the
            neighbour is infinite.
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
        """Return the resampling primitive for the descriptors of src and dst."""
        return dnnl.resampling(self.alg, src, dst)


class Pooling(FollowingRoutine):
    """Pooling of an image. dst has the layout of src.

    Args:
        kind: ``"max"``, ``"avg_include_padding"`` or ``"avg_exclude_padding"``.
        src, dst: N C and spatial dims.
        kernel, strides, dilations: one number per spatial dim; dilation 1 is dense.
        pads: pads before each spatial dim, then after each, in elements.

    Raises:
        Decline: oneDNN does not run the call, or a mean has more than ``MAX_MEAN`` elements.
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
        if kind != "max" and prod(kernel) > MAX_MEAN[src.dtype]:
            raise Decline(f"adds up more than {MAX_MEAN[src.dtype]} elements one after another")
        self.kind = kind
        self.window = (tuple(kernel), tuple(strides), tuple(dilations), *halves(pads))

    def make(self, src: Desc, dst: Desc) -> Primitive:
        """Return the pooling primitive for the descriptors of src and dst."""
        return dnnl.pooling(self.kind, src, dst, *self.window)


def reordered(numbers: Sequence[T], turn: Sequence[int]) -> tuple[T, ...]:
    """Return ``numbers`` in another order. For each position of the result, ``turn`` has the index
    of its number in ``numbers``.
    """
    return tuple(numbers[place] for place in turn)


def halves(pads: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Split pads into two tuples: those before each spatial dim, and those after each."""
    middle = len(pads) // 2
    return tuple(pads[:middle]), tuple(pads[middle:])
