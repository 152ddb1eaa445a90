"""Products of matrices, and of rows of matrices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from libdesc.onednn.layouts import Order
from libdesc.onednn.native import dnnl
from libdesc.onednn.routines import Operand, Row, compiled, followed, is_reference, layouts_of
from libdesc.onednn.routines_fused import FusingRoutine
from ptensor.evaluation import Decline
from ptensor.layout import Layout
from vtensor.errors import LayoutError
from vtensor.language.operators import Follower
from vtensor.language.tensor import VTensor

if TYPE_CHECKING:
    from libdesc.onednn._onednn import Attr, Desc, Primitive


class MatMul(FusingRoutine):
    """A contraction over one dim: dst = sum over K of left * right.

    Dims that both factors have besides K are a batch. oneDNN takes one row dim M and one column dim
    N; what a factor has beyond that is batch too, over which the other factor is repeated. A matrix
    of constants is oneDNN's inner product first: for AVX2 it has better kernels for that.

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

    heavy = True
    columns = -1

    def rows(self) -> Iterator[Row]:
        """Constants as oneDNN likes; factors that are computed as they lie, else as declared."""
        src, weights, _ = self.own
        if weights.tensor.constant:
            yield [Layout.ANY] * 3
        rights = [Layout.ANY] if weights.tensor.constant else list(followed(weights))
        for left in followed(src):
            for right in rights:
                yield [left, right, Layout.ANY]

    def primitive(self, row: Row) -> Primitive:
        """The inner product where it has a kernel, else the matrix product."""
        if self.inner:
            try:
                found = self.fused(self.inner, row, self.make_inner)
                if not is_reference(found):
                    return found
            except (LayoutError, Decline):
                pass
        return self.fused(self.own, row, self.make, matrix=True)

    def kernels(self, row: Row) -> Iterator[Primitive]:
        """Those of both primitives."""
        if self.inner:
            yield from compiled(lambda: self.fused(self.inner, row, self.make_inner))
        yield from compiled(lambda: self.fused(self.own, row, self.make, matrix=True))

    def layouts(self, primitive: Primitive) -> list[Layout]:
        """The layouts that either primitive works in."""
        inner = primitive.kind == "inner_product"
        return layouts_of(primitive, self.all(self.inner if inner else self.own, not inner))

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
