"""Layout-aware batch normalization, for inference."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from eval.layout_aware import eigen
from eval.layout_aware.base import Operator, check
from eval.layout_aware.context import Array, Context
from eval.layout_aware.onednn import as_it_lies, fastest
from eval.layout_aware.tensor import Sizes, Tensor, plain
from libdesc.onednn.native import dnnl


@dataclass(frozen=True)
class BatchNorm(Operator):
    """(x - mean) / sqrt(var + epsilon) * scale + bias, with vectors of a number for each channel.

    The methods take them in the order scale, bias, mean, var.
    """

    epsilon: float = 1e-5

    def spread(self, x: Tensor, vectors: tuple[Tensor, ...]) -> list[Tensor]:
        """Return the vectors with as many axes as ``x``, of size 1 except for the channels."""
        check(len(x.dims) > 1, "no channels", x.dims)
        for vector in vectors:
            check(vector.dims == x.dims[1:2], "not a number a channel", x.dims, vector.dims)
        dims: Sizes = (1, x.dims[1], *[1] * (len(x.dims) - 2))
        return [replace(vector, desc=plain(dims)) for vector in vectors]

    def onednn(self, ctx: Context, x: Tensor, *vectors: Tensor) -> Tensor:
        """Record oneDNN's kernel, in the layout of ``x`` if it is fast in it; return its output."""
        self.spread(x, vectors)
        kernel, desc = fastest(
            lambda desc: dnnl.batch_normalization(desc, desc, self.epsilon), as_it_lies(x)
        )
        scale, shift, mean, variance = vectors
        arguments = {"scale": scale, "shift": shift, "mean": mean, "variance": variance}
        src, y = ctx.convert(x, desc), ctx.allocate(desc)
        ctx.call_onednn(kernel, {"src": src, "dst": y, **arguments}, ["src"])
        return y

    def eigen(self, ctx: Context, x: Tensor, *vectors: Tensor) -> Tensor:
        """Record Eigen's kernel with channels last, and return its output."""
        steps = [("sub", [0, 3]), ("add", [4, 5]), ("sqrt", [7]), ("div", [6, 8])]
        steps += [("mul", [9, 1]), ("add", [10, 2])]
        inputs = [x, *self.spread(x, vectors)]
        return eigen.pointwise(ctx, inputs, x.dims, steps, [self.epsilon])

    def numpy(self, ctx: Context, x: Tensor, *vectors: Tensor) -> Tensor:
        """Record a call of NumPy's definition, and return its output."""

        def compute(x: Array, scale: Array, bias: Array, mean: Array, var: Array) -> Array:
            return np.asarray((x - mean) / np.sqrt(var + self.epsilon) * scale + bias)

        return ctx.call_python(compute, x.dims, x, *self.spread(x, vectors))
