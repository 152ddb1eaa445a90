"""Products of matrices, and of rows of matrices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from libdesc.onednn.layouts import Order
from libdesc.onednn.matrices import RowWise, matrix
from libdesc.onednn.native import dnnl
from libdesc.onednn.routines import Operand, Row, compiled, followed, is_reference, layouts_of
from libdesc.onednn.routines_fused import FusingRoutine
from ptensor.evaluation import Decline
from ptensor.layout import Layout
from ptensor.views import produced
from vtensor.errors import LayoutError
from vtensor.language.cached import cached_property
from vtensor.language.dims import same_sizes
from vtensor.language.operators import Follower
from vtensor.language.tensor import VTensor

if TYPE_CHECKING:
    from libdesc.onednn._onednn import Attr, Desc, Primitive


#: oneDNN's kernel for filters of one element, and the instruction sets with which it takes five
#: sixths of the time of those for matrices of constants (Zen 3; sizes of transformers).
FILTERED, FILTERING = "jit_1x1:avx2", ("avx2", "avx2_vnni", "avx2_vnni_2")

#: Where oneDNN's product of two matrices has kernels of blocks: then it goes before its inner
#: product. Of many rows it takes 0.75 to 1.05 of the time, of 8 to 48 up to 1.2 (Sapphire Rapids;
#: sizes of transformers); and its blocks of constants are the same for any number of rows, so that
#: other sizes have them as they are packed.
BLOCKS = ("avx512", "amx")


class MatMul(RowWise, FusingRoutine):
    """A contraction over one dim: dst = sum over K of left * right.

    Dims that both factors have besides K are a batch. oneDNN takes one row dim M and one column dim
    N; what a factor has beyond that is batch too, over which the other factor is repeated. By one
    matrix, rows are multiplied in whatever order they lie; by constants all rows are one matrix
    first, since a batch of few rows has slow kernels. With AVX-512 a product by a matrix of
    constants is oneDNN's product of matrices first, else its inner product; for AVX2 it is a
    convolution whose window is one element, of an image that has a row of M pixels, where that has
    the kernel written for it.

    Args:
        left, right: the factors; which is which makes no difference to the values.
        dst: the dims of both, without K.
        over: K.
        follow: operators fused behind it.
    """

    def __init__(
        self,
        left: VTensor,
        right: VTensor,
        dst: VTensor,
        over: str,
        follow: Sequence[Follower] = (),
    ) -> None:
        if left.constant and not right.constant:
            left, right = right, left
        orders = _orders(tuple(left.dims), tuple(right.dims), over)
        named = {"src": left, "weights": right, "dst": dst}
        pairs = zip(named.items(), orders, strict=True)
        super().__init__([Operand(name, t, order) for (name, t), order in pairs], follow)
        src, weights, out = self.own
        turned = weights._replace(order=weights.order[::-1])
        single = len(weights.order) == 2 and right.constant
        self.inner = (src, turned, out) if single else ()
        pixels = right.constant and _takes_images(left, over)
        self.image = _image(src, turned, out) if single and pixels else ()
        self.always_flat = right.constant and not single
        self.over, self.column = over, out.order[-1]
        whole = [i for i, t in enumerate(self.tensors) if i > 1 and same_sizes(t.dims, dst.dims)]
        self.row_dims = {0: over, **dict.fromkeys(whole, self.column)}

    heavy = True
    columns = -1

    @cached_property
    def matrices(self) -> MatMul | None:
        """The product of two matrices; None where there is a batch, or the right factor is none."""
        left, right, dst = (one.tensor for one in self.own)
        if right.dims.keys() != {self.over, self.column} or self.column in left.dims:
            return None
        rows = f"{self.over}_{self.column}"  # a name that no other dim has
        follow = list[Follower]()
        for one in self.follow:
            if not all(self._of_rows(operand) for operand in one.operands):
                return None
            made = (matrix(t, rows, self.column) if len(t.dims) > 1 else t for t in one.operands)
            follow.append(replace(one, operands=tuple(made)))
        flat = matrix(left, rows, self.over), matrix(dst, rows, self.column)
        return MatMul(flat[0], right, flat[1], self.over, follow)

    def _of_rows(self, operand: VTensor) -> bool:
        """An operand has all of dst's rows, or is the same for all of them."""
        return operand.dims.keys() <= {self.column} or operand.dims == self.own[-1].tensor.dims

    def rows(self) -> Iterator[Row]:
        """Constants as oneDNN likes; factors that are computed as they lie, else as declared.

        Rows of a matrix stay where they are, also if that takes blocks to say.
        """
        src, weights, _ = self.own
        if weights.tensor.constant:
            here = [produced(src.tensor) or Layout.ANY, Layout.ANY, Layout.ANY]
            if self.flat(here) is not None:
                yield here
            yield [Layout.ANY] * 3
        rights = [Layout.ANY] if weights.tensor.constant else list(followed(weights))
        for left in followed(src):
            for right in rights:
                yield [left, right, Layout.ANY]

    def primitive(self, row: Row) -> Primitive:
        """The convolution or inner product where it has its kernel, else the matrix product."""
        if (found := self.flat(row)) is not None:
            matrices, there = found
            return matrices.primitive(there)
        for kernel in self._of_images(row):
            return kernel
        if self.inner and not dnnl.isa().startswith(BLOCKS):
            with suppress(LayoutError, Decline):
                inner = self.fused(self.inner, row, self.make_inner)
                if not is_reference(inner):
                    return inner
        return self.fused(self.own, row, self.make, matrix=True)

    def kernels(self, row: Row) -> Iterator[Primitive]:
        """Those of all primitives."""
        if (found := self.flat(row)) is not None:
            matrices, there = found
            yield from matrices.kernels(there)
            return
        yield from self._of_images(row)
        inner = partial(self.fused, self.inner, row, self.make_inner)
        product = partial(self.fused, self.own, row, self.make, matrix=True)
        ways = [inner, product] if self.inner else [product]
        for way in reversed(ways) if dnnl.isa().startswith(BLOCKS) else ways:
            yield from compiled(way)

    def _of_images(self, row: Row) -> Iterator[Primitive]:
        """The kernel for filters of one element, if there is one."""
        if self.image:
            with suppress(LayoutError, Decline):
                found = self.fused(self.image, row, self.make_image)
                if found.kernel == FILTERED:
                    yield found

    def layouts(self, primitive: Primitive) -> list[Layout]:
        """The layouts that the primitive works in."""
        kinds = {"inner_product": self.inner, "convolution": self.image}
        own = kinds.get(primitive.kind, self.own)
        return layouts_of(primitive, self.all(own, matrix=primitive.kind not in kinds))

    def make(
        self, src: Desc, weights: Desc, bias: Desc | None, dst: Desc, attr: Attr | None = None
    ) -> Primitive:
        """The primitive on left, right, bias and dst."""
        return dnnl.matmul(src, weights, bias, dst, attr)

    def make_inner(
        self, src: Desc, weights: Desc, bias: Desc | None, dst: Desc, attr: Attr | None = None
    ) -> Primitive:
        """The primitive on left, the transposed numbering of right, bias and dst."""
        return dnnl.inner_product(src, weights, bias, dst, attr)

    def make_image(
        self, src: Desc, weights: Desc, bias: Desc | None, dst: Desc, attr: Attr | None = None
    ) -> Primitive:
        """The convolution of a row of pixels, filters of one element, bias and dst."""
        return dnnl.convolution(src, weights, bias, dst, *((1, 1),) * 2, *((0, 0),) * 2, attr)


def _takes_images(left: VTensor, over: str) -> bool:
    """There is a kernel for filters of one element that outruns those for matrices.

    A row of one pixel does not say that channels are the last dim, as the kernel wants them.
    """
    several = left.num_elements > left.size(over)
    return left.dtype == "f32" and several and dnnl.isa() in FILTERING


def _image(src: Operand, weights: Operand, dst: Operand) -> tuple[Operand, ...]:
    """A product as a convolution: M is the width, what is summed and N are channels."""
    pixels = [one._replace(order=("", one.order[1], "", one.order[0])) for one in (src, dst)]
    return pixels[0], weights._replace(order=(*weights.order, "", "")), pixels[1]


def _orders(left: Sequence[str], right: Sequence[str], over: str) -> tuple[Order, Order, Order]:
    """The numbering of both factors and of the result.

    >>> _orders(["B", "M", "K"], ["K", "N"], "K")
    (('B', 'M', 'K'), ('', 'K', 'N'), ('B', 'M', 'N'))
    """
    batch = tuple(dim for dim in left if dim in right and dim != over)
    rows = tuple(dim for dim in left if dim not in right) or ("",)
    columns = tuple(dim for dim in right if dim not in left) or ("",)
    m, n, more_rows, more_columns = rows[-1], columns[-1], rows[:-1], columns[:-1]
    return (
        (*batch, *more_rows, *("" for _ in more_columns), m, over),
        (*batch, *("" for _ in more_rows), *more_columns, over, n),
        (*batch, *more_rows, *more_columns, m, n),
    )
