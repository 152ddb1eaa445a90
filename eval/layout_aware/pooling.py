"""Layout-aware pools: one value for each window of an image."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from eval.layout_aware import eigen
from eval.layout_aware.base import Operator, check
from eval.layout_aware.context import Array, Context, Unsupported
from eval.layout_aware.onednn import fastest, followed, unspecified, usual
from eval.layout_aware.tensor import Sizes, Tensor, channels_last
from eval.layout_aware.windows import Window, three
from libdesc.eigen import native
from libdesc.numpy.arrays import windows
from libdesc.onednn.native import dnnl


@dataclass(frozen=True)
class Pool(Operator):
    """The base of both pools.

    Attributes:
        kernel_shape: the sizes of the window.
        strides, dilations: one for each spatial axis; empty is 1 for all.
        pads: elements at the beginnings, then at the ends, of spatial axes; empty is 0 for all.
        ceil_mode: add a last window that reaches beyond the pads, if it begins before the end pads.
    """

    kernel_shape: Sizes
    strides: Sizes = ()
    pads: Sizes = ()
    dilations: Sizes = ()
    ceil_mode: bool = False

    @property
    @abstractmethod
    def kind(self) -> str:
        """The name of the operation in oneDNN and in Eigen."""

    @property
    def given(self) -> Window:
        """The window that the operator's parameters describe."""
        ones = (1,) * len(self.kernel_shape)
        places = self.strides or ones, self.pads or (0, 0) * len(ones), self.dilations or ones
        return Window(self.kernel_shape, *places)

    def sizes(self, x: Tensor) -> Sizes:
        """Return the sizes of the result for an image ``x``.

        Raises:
            DimError: the window does not fit, or may have only pads.
        """
        check(len(x.dims) > 2, "no image", x.dims)
        counts = self.given.counts(x.dims[2:], self.ceil_mode)
        pads = zip(self.given.begins, self.given.ends, self.given.reach, strict=True)
        inside = all(max(begin, end) < reach for begin, end, reach in pads)
        check(inside, f"a window of {self} may hold nothing but pads", x.dims)
        return (*x.dims[:2], *counts)

    def window(self, x: Tensor) -> Window:
        """Return the sliding window, with pads at the ends as far as the last window reaches.

        Raises:
            Unsupported: pads count in a mean, and the last window reaches beyond the given pads.
        """
        window = self.given.reaching(x.dims[2:], self.sizes(x)[2:])
        if "include" in self.kind and window != self.given:
            raise Unsupported("counts what ceil_mode reaches beyond the pads")
        return window

    def onednn(self, ctx: Context, x: Tensor) -> Tensor:
        """Record oneDNN's kernel, in the layout of ``x`` if it is fast in it; return its output."""
        window, dst = self.window(x), unspecified(self.sizes(x))
        places = window.kernel, window.strides, window.dilations, window.begins, window.ends
        kernel, _ = fastest(lambda src: dnnl.pooling(self.kind, src, dst, *places), usual(x))
        return followed(ctx, x, kernel)

    def eigen(self, ctx: Context, x: Tensor) -> Tensor:
        """Record Eigen's kernel with channels last, and return its output."""
        window, y = self.window(x), ctx.allocate(channels_last(self.sizes(x)))
        places = window.eigen(x.dims, y.dims)
        kernel = native.load().pooling(self.kind, places, three(window.ends, 0), 0)
        ctx.call_eigen(kernel, eigen.last(ctx, x), y)
        return y

    def numpy(self, ctx: Context, x: Tensor) -> Tensor:
        """Record a call of NumPy's definition, and return its output."""
        window = self.given.reaching(x.dims[2:], self.sizes(x)[2:])
        return ctx.call_python(lambda x: self.of(x, window), self.sizes(x), x)

    @abstractmethod
    def of(self, x: Array, window: Window) -> Array:
        """Return the pool of an array over a window, computed with NumPy."""


@dataclass(frozen=True)
class MaxPool(Pool):
    """The largest element of each window."""

    kind = "max"

    def of(self, x: Array, window: Window) -> Array:
        """Return the largest element of each window, computed with NumPy."""
        inner = tuple(range(-len(window.kernel), 0))
        return np.asarray(windows(x, *window, fill=-np.inf).max(inner))


@dataclass(frozen=True)
class AvgPool(Pool):
    """The mean of each window; pads count only with ``count_include_pad``."""

    count_include_pad: bool = False

    @property
    def kind(self) -> str:
        """The name of the operation in oneDNN and in Eigen."""
        return f"avg_{'include' if self.count_include_pad else 'exclude'}_padding"

    def of(self, x: Array, window: Window) -> Array:
        """Return the mean of each window, computed with NumPy."""
        inner, declared = tuple(range(-len(window.kernel), 0)), self.given
        pads: Any = declared.pads if self.count_include_pad else (0,) * len(declared.pads)
        around = [(0, 0), (0, 0), *zip(pads[: len(inner)], pads[len(inner) :], strict=True)]
        counted = np.pad(np.ones_like(x[:1, :1]), around, constant_values=1)
        beyond = tuple(reached - pad for reached, pad in zip(window.pads, pads, strict=True))
        number = windows(counted, *window._replace(pads=beyond)).sum(inner)
        return np.asarray(windows(x, *window).sum(inner) / number)
