"""Products of matrices, and of tensors whose rows form matrices."""

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


#: oneDNN's kernel of convolutions with filters of one element; and the instruction sets on which
#: this kernel multiplies by a constant matrix faster than oneDNN's kernels for matrices do.
FILTER_KERNEL, FILTER_ISAS = "jit_1x1:avx2", ("avx2", "avx2_vnni", "avx2_vnni_2")

#: How the names of the instruction sets begin on which oneDNN's matmul has kernels for blocked
#: layouts. There matmul is tried before the inner product, since its packed constants are the same
#: for any number of rows.
BLOCKED_ISAS = ("avx512", "amx")


class MatMul(RowWise, FusingRoutine):
    """A contraction over one dim: dst = sum over K of left * right.

    Dims that both factors have, besides K, are batch dims. oneDNN takes one row dim M and one
    column dim N. All further dims of a factor are batch dims, too, along which the other factor is
    repeated. If right is one matrix, the rows of left may be stored in any order. If this matrix is
    constant, left is treated as one matrix, too, since oneDNN's kernels for batches of few rows are
    slow.

    There are several primitives for a product by one constant matrix. With AVX-512 matmul is tried
    first, otherwise the inner product. On AVX2 a convolution with a window of one element is tried
    before both, if it has ``FILTER_KERNEL``; its image has one row of M pixels.

    Args:
        left, right: the factors; they may be exchanged, which does not change dst.
        dst: the dims of both factors, without K.
        over: K.
        follow: fused followers, see ``FusingRoutine``.
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
        src, weights, out = self.core
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
        """The same call with left as one matrix and dst as one matrix; None if there is no such
        call.

        There is one if right is one matrix, and if each operand of a follower has a row for each
        row of dst, or a single row.
        """
        left, right, dst = (operand.tensor for operand in self.core)
        if right.dims.keys() != {self.over, self.column} or self.column in left.dims:
            return None
        rows = f"{self.over}_{self.column}"  # a name that no other dim has
        follow = list[Follower]()
        for op in self.follow:
            if not all(self._of_rows(operand) for operand in op.operands):
                return None
            operands = (matrix(t, rows, self.column) if len(t.dims) > 1 else t for t in op.operands)
            follow.append(replace(op, operands=tuple(operands)))
        flat = matrix(left, rows, self.over), matrix(dst, rows, self.column)
        return MatMul(flat[0], right, flat[1], self.over, follow)

    def _of_rows(self, operand: VTensor) -> bool:
        """Return whether an operand has a row for each row of dst, or one row for all of them."""
        return operand.dims.keys() <= {self.column} or operand.dims == self.core[-1].tensor.dims

    def rows(self) -> Iterator[Row]:
        """Yield rows of layouts to try, the best row first. oneDNN chooses the layouts of
        constants; factors that a node computes keep theirs.

        Left may have a layout with blocks if it can be multiplied as one matrix.
        """
        src, weights, _ = self.core
        if weights.tensor.constant:
            in_place = [produced(src.tensor) or Layout.ANY, Layout.ANY, Layout.ANY]
            if self.flat(in_place) is not None:
                yield in_place
            yield [Layout.ANY] * 3
        rights = [Layout.ANY] if weights.tensor.constant else list(followed(weights))
        for left in followed(src):
            for right in rights:
                yield [left, right, Layout.ANY]

    def primitive(self, row: Row) -> Primitive:
        """Return the best primitive for a layout per operand. The docstring of the class says which
        one is best.
        """
        if (flat := self.flat(row)) is not None:
            matrices, layouts = flat
            return matrices.primitive(layouts)
        for kernel in self._of_images(row):
            return kernel
        if self.inner and not dnnl.isa().startswith(BLOCKED_ISAS):
            with suppress(LayoutError, Decline):
                inner = self.fused(self.inner, row, self.make_inner)
                if not is_reference(inner):
                    return inner
        return self.fused(self.core, row, self.make, matrix=True)

    def kernels(self, row: Row) -> Iterator[Primitive]:
        """Yield the kernels of all primitives that compute the product, the best first."""
        if (flat := self.flat(row)) is not None:
            matrices, layouts = flat
            yield from matrices.kernels(layouts)
            return
        yield from self._of_images(row)
        inner = partial(self.fused, self.inner, row, self.make_inner)
        product = partial(self.fused, self.core, row, self.make, matrix=True)
        ways = [inner, product] if self.inner else [product]
        for way in reversed(ways) if dnnl.isa().startswith(BLOCKED_ISAS) else ways:
            yield from compiled(way)

    def _of_images(self, row: Row) -> Iterator[Primitive]:
        """Yield the convolution with ``FILTER_KERNEL``, if there is one for these layouts."""
        if self.image:
            with suppress(LayoutError, Decline):
                convolution = self.fused(self.image, row, self.make_image)
                if convolution.kernel == FILTER_KERNEL:
                    yield convolution

    def layouts(self, primitive: Primitive) -> list[Layout]:
        """Return the layouts, one per operand, that a primitive of any of the kinds works in."""
        kinds = {"inner_product": self.inner, "convolution": self.image}
        operands = kinds.get(primitive.kind, self.core)
        return layouts_of(primitive, self.all(operands, matrix=primitive.kind not in kinds))

    def make(
        self, src: Desc, weights: Desc, bias: Desc | None, dst: Desc, attr: Attr | None = None
    ) -> Primitive:
        """Return the matmul primitive for these descriptors."""
        return dnnl.matmul(src, weights, bias, dst, attr)

    def make_inner(
        self, src: Desc, weights: Desc, bias: Desc | None, dst: Desc, attr: Attr | None = None
    ) -> Primitive:
        """Return the inner product primitive; in ``weights``, dim 0 is N and dim 1 is K."""
        return dnnl.inner_product(src, weights, bias, dst, attr)

    def make_image(
        self, src: Desc, weights: Desc, bias: Desc | None, dst: Desc, attr: Attr | None = None
    ) -> Primitive:
        """Return the convolution primitive, of an image of one row with one-element filters."""
        return dnnl.convolution(src, weights, bias, dst, *((1, 1),) * 2, *((0, 0),) * 2, attr)


def _takes_images(left: VTensor, over: str) -> bool:
    """Return whether ``FILTER_KERNEL`` can compute a product of ``left``, summed over ``over``.

    It needs several rows: with a single pixel, strides do not show that channels are last.
    """
    several = left.num_elements > left.size(over)
    return left.dtype == "f32" and several and dnnl.isa() in FILTER_ISAS


def _image(src: Operand, weights: Operand, dst: Operand) -> tuple[Operand, ...]:
    """Return the operands of a product of matrices as the operands of a convolution.

    The rows (dim M) become the width of an image. The dim K, which is summed over, becomes its
    input channels; the columns (dim N) become its output channels.
    """
    pixels = [
        operand._replace(order=("", operand.order[1], "", operand.order[0]))
        for operand in (src, dst)
    ]
    return pixels[0], weights._replace(order=(*weights.order, "", "")), pixels[1]


def _orders(left: Sequence[str], right: Sequence[str], over: str) -> tuple[Order, Order, Order]:
    """Return the dims of left, right and the result as matmul numbers them.

    A dim that an operand lacks is "".

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
