"""Layout-aware Softmax: normalised exponentials."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from eval.layout_aware.base import Operator, check
from eval.layout_aware.context import Array, Context, Unsupported
from eval.layout_aware.onednn import fastest, followed, unspecified, usual
from eval.layout_aware.tensor import Sizes, Tensor, plain
from libdesc.eigen import native
from libdesc.onednn.native import dnnl


@dataclass(frozen=True)
class Softmax(Operator):
    """Exponentials, divided by their sum along ``axes``."""

    axes: Sizes

    def last(self, x: Tensor) -> Sizes:
        """Return the numbers of all axes of ``x``, the summed ones last."""
        known = all(0 <= axis < len(x.dims) for axis in self.axes)
        check(known and len({*self.axes}) > 0, f"no axes {self.axes}", x.dims)
        return (*(axis for axis in range(len(x.dims)) if axis not in self.axes), *self.axes)

    def onednn(self, ctx: Context, x: Tensor) -> Tensor:
        """Record oneDNN's kernel, in the layout of ``x`` if it is fast in it; return its output."""
        last, dst = plain(x.dims, self.last(x)), unspecified(x.dims)
        if sum(x.dims[axis] > 1 for axis in self.axes) > 1:
            raise Unsupported("sums along one axis only")
        axis = max(self.axes, key=x.dims.__getitem__)
        kernel, _ = fastest(lambda src: dnnl.softmax(src, dst, axis), [*usual(x), last])
        return followed(ctx, x, kernel, "src")

    def eigen(self, ctx: Context, x: Tensor) -> Tensor:
        """Record Eigen's kernel with the summed axes last."""
        last = plain(x.dims, self.last(x))
        src, dst = ctx.convert(x, last), ctx.allocate(last)
        length = prod(x.dims[axis] for axis in self.axes)
        ctx.call_eigen(native.load().softmax(prod(x.dims) // length, length), src, dst)
        return dst

    def numpy(self, ctx: Context, x: Tensor) -> Tensor:
        """Record a call of NumPy's definition, and return its output."""
        self.last(x)

        def compute(x: Array) -> Array:
            power = np.exp(x - x.max(self.axes, keepdims=True))
            return np.asarray(power / power.sum(self.axes, keepdims=True))

        return ctx.call_python(compute, x.dims, x)
