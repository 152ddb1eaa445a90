"""Layout-aware products of matrices."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from eval.layout_aware.base import Operator, check
from eval.layout_aware.context import Context
from eval.layout_aware.onednn import fastest, unspecified, usual
from eval.layout_aware.tensor import Sizes, Tensor, plain
from libdesc.eigen import native
from libdesc.onednn.native import dnnl
from libdesc.onednn.routines_matrix import BLOCKED_ISAS

if TYPE_CHECKING:
    from libdesc.onednn._onednn import Desc, Primitive


@dataclass(frozen=True)
class MatMul(Operator):
    """The product of a and b, two stacks of matrices.

    The last two axes of an operand are rows and columns; with ``transpose_a`` those of a are
    columns and rows, with ``transpose_b`` those of b.
    """

    transpose_a: bool = False
    transpose_b: bool = False

    def factors(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Sizes]:
        """Return ``a`` and ``b``, with rows and columns as last axes, and the product's sizes.

        Raises:
            DimError: the sizes of the operands do not fit.
        """
        check(len(a.dims) == len(b.dims) >= 2, "no stacks of matrices", a.dims, b.dims)
        a, b = (_exchanged(a) if self.transpose_a else a, _exchanged(b) if self.transpose_b else b)
        stacks = [*zip(a.dims[:-2], b.dims[:-2], strict=True)]
        fits = a.dims[-1] == b.dims[-2] and all(1 in row or len({*row}) == 1 for row in stacks)
        check(fits, "they do not meet", a.dims, b.dims)
        return a, b, (*(n if m == 1 else m for m, n in stacks), a.dims[-2], b.dims[-1])

    def onednn(self, ctx: Context, a: Tensor, b: Tensor) -> Tensor:
        """Record a call of oneDNN, and return its output.

        If ``b`` is a constant, oneDNN chooses its layout, and that of ``a`` if it has a fast kernel
        then: its kernels for constants are better. Otherwise the operands keep their layouts if
        oneDNN has a fast kernel for them.
        """
        a, b, dims = self.factors(a, b)
        free, dst = unspecified(a.dims), unspecified(dims)
        tried: list[tuple[bool, Desc, Desc]]
        tried = [(False, *descs) for descs in product(usual(a), usual(b))]
        if b.constant:
            fixed = unspecified(b.dims)
            tried = [(False, free, fixed), *((False, desc, fixed) for desc in usual(a))]
            if len(dims) == 2:  # with AVX-512, matmul is better and comes first
                place = dnnl.isa().startswith(BLOCKED_ISAS)
                tried.insert(place, (True, free, unspecified(b.dims[::-1])))

        def make(one: tuple[bool, Desc, Desc]) -> Primitive:
            inner, src, weights = one
            return (dnnl.inner_product if inner else dnnl.matmul)(src, weights, None, dst)

        kernel, (inner, *_) = fastest(make, tried)
        wanted = kernel.descs["weights"]
        weights = ctx.convert(b, wanted.permute((1, 0)) if inner else wanted)
        src, y = ctx.convert(a, kernel.descs["src"]), ctx.allocate(kernel.descs["dst"])
        ctx.call_onednn(kernel, {"src": src, "weights": weights, "dst": y})
        return y

    def eigen(self, ctx: Context, a: Tensor, b: Tensor) -> Tensor:
        """Record Eigen's kernel, with the operands in the order of their axes."""
        a, b, dims = self.factors(a, b)
        left, right = ctx.convert(a, plain(a.dims)), ctx.convert(b, plain(b.dims))
        steps, strides = (_repeated(x) for x in (left, right))
        y = ctx.allocate(plain(dims))
        *stack, rows, columns = dims
        sizes = rows, columns, a.dims[-1]
        kernel = native.load().product("f32", stack, steps, strides, *sizes)
        ctx.call_eigen(kernel, left, right, y)
        return y

    def numpy(self, ctx: Context, a: Tensor, b: Tensor) -> Tensor:
        """Record a call of NumPy's definition, and return its output."""
        a, b, dims = self.factors(a, b)
        return ctx.call_python(np.matmul, dims, a, b)


def _exchanged(x: Tensor) -> Tensor:
    """Return the tensor with its last two axes exchanged, on the same memory."""
    *stack, row, column = range(len(x.dims))
    return replace(x, desc=x.desc.permute([*stack, column, row]))


def _repeated(x: Tensor) -> list[int]:
    """Return the stride, in elements, along each axis of ``x`` but the last two.

    The stride of an axis of size 1 is 0, since its one matrix is repeated.
    """
    rows = [*zip(x.dims, x.desc.strides, strict=True)][:-2]
    return [0 if size == 1 else step for size, step in rows]
