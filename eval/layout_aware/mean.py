"""Layout-aware means over axes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from eval.layout_aware.base import Operator, check
from eval.layout_aware.context import Context
from eval.layout_aware.onednn import fastest, unspecified, usual
from eval.layout_aware.tensor import Sizes, Tensor, plain
from libdesc.eigen import native
from libdesc.onednn.native import dnnl


@dataclass(frozen=True)
class Mean(Operator):
    """The mean over ``axes``, which keep size 1 with ``keepdims``, else are dropped."""

    axes: Sizes
    keepdims: bool = True

    def sizes(self, x: Tensor) -> Sizes:
        """Return the sizes of the result, with size 1 for the reduced axes."""
        known = len({*self.axes}) == len(self.axes) and {*self.axes} <= {*range(len(x.dims))}
        check(known and len(self.axes) < len(x.dims), f"{self} has no such axes", x.dims)
        return tuple(1 if axis in self.axes else size for axis, size in enumerate(x.dims))

    def delivered(self, y: Tensor) -> Tensor:
        """Return the result ``y``, without its reduced axes unless ``keepdims`` is true."""
        kept = tuple(size for axis, size in enumerate(y.dims) if axis not in self.axes)
        return y if self.keepdims else replace(y, desc=y.desc.reshape(kept))

    def onednn(self, ctx: Context, x: Tensor) -> Tensor:
        """Record oneDNN's kernel, which reduces the last axes, in the layout of ``x`` if oneDNN is
        fast in it.
        """
        dims = self.sizes(x)
        order = sorted(range(len(dims)), key=self.axes.__contains__)
        back = [order.index(axis) for axis in range(len(dims))]
        out = unspecified(tuple(dims[axis] for axis in order))
        kernel, desc = fastest(
            lambda src: dnnl.reduction("mean", src.permute(order), out), usual(x)
        )
        y = ctx.allocate(kernel.descs["dst"].permute(back))
        ctx.call_onednn(kernel, {"src": ctx.convert(x, desc), "dst": y})
        return self.delivered(y)

    def eigen(self, ctx: Context, x: Tensor) -> Tensor:
        """Record Eigen's kernel with axes in this order: kept ones, reduced ones, kept channels."""
        dims, channels = self.sizes(x), [1] if 1 not in self.axes else []
        kept = [axis for axis in range(len(dims)) if axis not in (*self.axes, *channels)]
        order = (*kept, *self.axes, *channels)
        src, y = ctx.convert(x, plain(x.dims, order)), ctx.allocate(plain(dims, order))
        parts = (prod(x.dims[axis] for axis in part) for part in (kept, self.axes, channels))
        outer, gone, inner = parts
        results = (0, (outer, inner), 0, (gone * inner, 1), 0, (inner, 1), 0)
        reduced, sizes = (
            (0, (gone,), 0, (inner,), 0, (0,), 0),
            (outer * gone * inner, outer * inner),
        )
        kernel = native.load().reduction("mean", "f32", *sizes, [results], [reduced], [])
        ctx.call_eigen(kernel, src, y)
        return self.delivered(y)

    def numpy(self, ctx: Context, x: Tensor) -> Tensor:
        """Record a call of NumPy's definition, and return its output."""
        return self.delivered(
            ctx.call_python(lambda x: x.mean(self.axes, keepdims=True), self.sizes(x), x)
        )
