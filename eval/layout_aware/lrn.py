"""Layout-aware local response normalization over channels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from eval.layout_aware import eigen
from eval.layout_aware.base import Operator, check
from eval.layout_aware.context import Array, Context, Unsupported
from eval.layout_aware.onednn import fastest, followed, unspecified, usual
from eval.layout_aware.tensor import Tensor, channels_last
from libdesc.eigen import native
from libdesc.onednn.native import dnnl


@dataclass(frozen=True)
class LRN(Operator):
    """x / (bias + alpha / size * s)**beta; s is the sum of squares in ``size`` channels around."""

    size: int
    alpha: float = 1e-4
    beta: float = 0.75
    bias: float = 1.0

    def check(self, x: Tensor) -> None:
        """Raise DimError unless ``x`` is an image and ``size`` is above 0."""
        check(len(x.dims) > 2 and self.size > 0, f"no image for {self}", x.dims)

    def onednn(self, ctx: Context, x: Tensor) -> Tensor:
        """Record oneDNN's kernel, in the layout of ``x`` if it is fast in it; return its output."""
        self.check(x)
        if self.size % 2 == 0:
            raise Unsupported("sums over an odd number of channels only")
        dst, numbers = unspecified(x.dims), (self.size, self.alpha, self.beta, self.bias)
        kernel, _ = fastest(lambda src: dnnl.lrn("across_channels", src, dst, *numbers), usual(x))
        return followed(ctx, x, kernel)

    def eigen(self, ctx: Context, x: Tensor) -> Tensor:
        """Record Eigen's kernel with channels last, and return its output."""
        self.check(x)
        src, dst = eigen.last(ctx, x), ctx.allocate(channels_last(x.dims))
        images, channels, *spatial = x.dims
        rows, numbers = images * int(np.prod(spatial)), (self.alpha, self.beta, self.bias)
        ctx.call_eigen(native.load().lrn(rows, channels, self.size, *numbers), src, dst)
        return dst

    def numpy(self, ctx: Context, x: Tensor) -> Tensor:
        """Record a call of NumPy's definition, and return its output."""
        self.check(x)
        around = [min(reach, x.dims[1]) for reach in ((self.size - 1) // 2, self.size // 2)]
        pads = [(0, 0), tuple(around), *[(0, 0)] * (len(x.dims) - 2)]

        def compute(x: Array) -> Array:
            view = sliding_window_view(np.pad(x * x, pads), sum(around) + 1, axis=1)
            scale: Array = self.bias + self.alpha / self.size * view.sum(axis=-1)
            return np.asarray(x / scale**self.beta)

        return ctx.call_python(compute, x.dims, x)
