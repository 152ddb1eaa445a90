"""Layout-aware concatenation."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from eval.layout_aware import eigen
from eval.layout_aware.base import Operator, check
from eval.layout_aware.context import Context
from eval.layout_aware.onednn import fastest, like, usual
from eval.layout_aware.tensor import Sizes, Tensor, channels_last
from libdesc.onednn.native import dnnl

if TYPE_CHECKING:
    from libdesc.onednn._onednn import Desc, Primitive


@dataclass(frozen=True)
class Concat(Operator):
    """A concatenation of tensors along the axis with the number ``axis``."""

    axis: int

    def sizes(self, inputs: tuple[Tensor, ...]) -> Sizes:
        """Return the sizes of the result of a concatenation of ``inputs``."""
        first = list(inputs[0].dims)
        check(0 <= self.axis < len(first), f"no axis {self.axis}", inputs[0].dims)
        for x in inputs:
            other = list(x.dims)
            fits = len(other) == len(first)
            other[self.axis : self.axis + 1] = first[self.axis : self.axis + 1]
            check(fits and other == first, "they do not meet", inputs[0].dims, x.dims)
        first[self.axis] = sum(x.dims[self.axis] for x in inputs)
        return tuple(first)

    def onednn(self, ctx: Context, *inputs: Tensor) -> Tensor:
        """Record oneDNN's kernel with all tensors in one layout: that of an input if oneDNN is fast
        in it.
        """
        dims = self.sizes(inputs)

        def make(desc: Desc) -> Primitive:
            return dnnl.concat(self.axis, [like(desc, x.dims) for x in inputs], like(desc, dims))

        kernel, desc = fastest(make, [*(x.desc for x in inputs), *usual(inputs[0])])
        named = {f"src{i}": ctx.convert(x, like(desc, x.dims)) for i, x in enumerate(inputs)}
        y = ctx.allocate(like(desc, dims))
        ctx.call_onednn(kernel, {**named, "dst": y})
        return y

    def eigen(self, ctx: Context, *inputs: Tensor) -> Tensor:
        """Record Eigen's kernel with channels last, and return its output."""
        y = ctx.allocate(channels_last(self.sizes(inputs)))
        sources, zero = [eigen.last(ctx, x) for x in inputs], (0,) * len(y.dims)
        ends = accumulate(x.dims[self.axis] for x in inputs)
        boxes = []
        for index, (x, end) in enumerate(zip(sources, ends, strict=True)):
            place = [0] * len(zero)
            place[self.axis] = end - x.dims[self.axis]
            boxes.append(eigen.box(index, x, zero, x.dims, y, tuple(place)))
        eigen.copy(ctx, sources, y, boxes)
        return y

    def numpy(self, ctx: Context, *inputs: Tensor) -> Tensor:
        """Record a call of NumPy's definition, and return its output."""
        dims = self.sizes(inputs)
        return ctx.call_python(lambda *x: np.concatenate(x, self.axis), dims, *inputs)
