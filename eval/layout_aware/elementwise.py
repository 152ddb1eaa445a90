"""Layout-aware element-wise operators: sums, products, bounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from eval.layout_aware import eigen
from eval.layout_aware.base import Operator, check
from eval.layout_aware.context import Context, Unsupported
from eval.layout_aware.onednn import bounded, fastest, in_a_row, unspecified
from eval.layout_aware.tensor import Sizes, Tensor, plain
from libdesc.onednn.native import dnnl

if TYPE_CHECKING:
    from libdesc.onednn._onednn import Desc, Primitive


class Binary(Operator):
    """A function of two elements; an operand of size 1 along an axis is repeated along it.

    Attributes:
        alg: the function's name in oneDNN and Eigen.
        function: the function in NumPy.
    """

    alg: ClassVar[str]
    function: ClassVar[Callable[..., Any]]

    def aligned(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Sizes]:
        """Return both operands, with as many axes as the result, and the result's sizes.

        Raises:
            DimError: the sizes do not fit.
        """
        rows = [*zip(a.dims, b.dims, strict=False)]
        fits = len(a.dims) == len(b.dims) and all(1 in row or len({*row}) == 1 for row in rows)
        check(fits, "the operands do not meet", a.dims, b.dims)
        return a, b, tuple(n if m == 1 else m for m, n in rows)

    def onednn(self, ctx: Context, a: Tensor, b: Tensor) -> Tensor:
        """Record oneDNN's kernel, in the layout of an operand that is not repeated.

        oneDNN repeats only its second operand, so the operands may be exchanged.
        """
        a, b, dims = self.aligned(a, b)
        if a.dims != dims:
            a, b = b, a
        if a.dims != dims:
            raise Unsupported("repeats one operand only, not both")
        whole = b.dims == dims

        def make(desc: Desc) -> Primitive:
            if whole:
                row = in_a_row(desc)
                return dnnl.binary(self.alg, row, row, row)
            return dnnl.binary(self.alg, desc, unspecified(b.dims), desc)

        layouts = [x.desc for x in (a, b) if x.dims == dims and not x.constant]
        kernel, desc = fastest(make, [*layouts, plain(dims)])
        b = ctx.convert(b, desc if whole else kernel.descs["src1"])
        a, y = ctx.convert(a, desc), ctx.allocate(desc)
        ctx.call_onednn(kernel, {"src0": a, "src1": b, "dst": y}, ["src0"])
        return y

    def eigen(self, ctx: Context, a: Tensor, b: Tensor) -> Tensor:
        """Record Eigen's kernel with channels last, and return its output."""
        a, b, dims = self.aligned(a, b)
        return eigen.pointwise(ctx, [a, b], dims, [(self.alg, [0, 1])])

    def numpy(self, ctx: Context, a: Tensor, b: Tensor) -> Tensor:
        """Record a call of NumPy's definition, and return its output."""
        a, b, dims = self.aligned(a, b)
        return ctx.call_python(type(self).function, dims, a, b)


class Add(Binary):
    """The operator a + b."""

    alg = "add"
    function = np.add


class Mul(Binary):
    """The operator a * b."""

    alg = "mul"
    function = np.multiply


class BiasAdd(Binary):
    """The sum of a tensor and a number for each channel; axis 1 is the channels."""

    alg = "add"
    function = np.add

    def aligned(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Sizes]:
        """Return the tensor ``a``, the bias ``b`` with as many axes, and the result's sizes."""
        check(b.dims == a.dims[1:2], "not a number a channel", a.dims, b.dims)
        spread = plain((1, *b.dims, *[1] * (len(a.dims) - 2)))
        return a, replace(b, desc=spread), a.dims


class Relu(Operator):
    """The operator max(x, 0); NaN stays NaN."""

    def onednn(self, ctx: Context, x: Tensor) -> Tensor:
        """Record oneDNN's kernel, in the layout of ``x`` if it is fast in it; return its output."""
        return bounded(ctx, x, inf)

    def eigen(self, ctx: Context, x: Tensor) -> Tensor:
        """Record Eigen's kernel with channels last, and return its output."""
        return eigen.pointwise(ctx, [x], x.dims, [("max", [0, 1])], [0.0])

    def numpy(self, ctx: Context, x: Tensor) -> Tensor:
        """Record a call of NumPy's definition, and return its output."""
        return ctx.call_python(lambda x: np.maximum(x, 0), x.dims, x)


class Relu6(Operator):
    """The operator min(max(x, 0), 6); NaN stays NaN."""

    def onednn(self, ctx: Context, x: Tensor) -> Tensor:
        """Record oneDNN's kernels, in the layout of ``x`` if oneDNN is fast in it."""
        return bounded(ctx, x, 6.0)

    def eigen(self, ctx: Context, x: Tensor) -> Tensor:
        """Record Eigen's kernel with channels last, and return its output."""
        steps = [("max", [0, 1]), ("min", [3, 2])]
        return eigen.pointwise(ctx, [x], x.dims, steps, [0.0, 6.0])

    def numpy(self, ctx: Context, x: Tensor) -> Tensor:
        """Record a call of NumPy's definition, and return its output."""
        return ctx.call_python(lambda x: np.clip(x, 0, 6), x.dims, x)
