"""Layout-aware convolutions: with groups, and depthwise."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from eval.layout_aware import eigen
from eval.layout_aware.base import Operator, check
from eval.layout_aware.context import Context
from eval.layout_aware.onednn import unspecified
from eval.layout_aware.tensor import Sizes, Tensor, channels_last, plain
from eval.layout_aware.windows import Window
from libdesc.eigen import native
from libdesc.numpy.arrays import convolution
from libdesc.onednn.native import dnnl


@dataclass(frozen=True)
class Convolution(Operator):
    """The base of both convolutions: the sum over each window of the image times the kernel.

    Attributes:
        strides: the stride along H and W.
        pads: elements at the beginning of H and W, then at the end of both.
        dilations: the dilation along H and W.
    """

    strides: Sizes = (1, 1)
    pads: Sizes = (0, 0, 0, 0)
    dilations: Sizes = (1, 1)

    def window(self, w: Tensor) -> Window:
        """Return the window that slides over the image, for a kernel ``w``."""
        return Window(w.dims[-2:], self.strides, self.pads, self.dilations)

    def sizes(self, x: Tensor, w: Tensor) -> Sizes:
        """Return the sizes of the result of an image N C H W and a kernel O I h w or G O I h w."""
        fits = len(x.dims) == 4 and len(w.dims) in (4, 5)
        check(fits and prod(w.dims[:-4]) * w.dims[-3] == x.dims[1], "no kernel", x.dims, w.dims)
        return (x.dims[0], prod(w.dims[:-3]), *self.window(w).counts(x.dims[2:]))

    def onednn(self, ctx: Context, x: Tensor, w: Tensor) -> Tensor:
        """Record oneDNN's kernel in the layouts that oneDNN chooses, and return its output."""
        src, weights, dst = map(unspecified, (x.dims, w.dims, self.sizes(x, w)))
        window = self.window(w)
        places = self.strides, self.dilations, window.begins, window.ends
        kernel = dnnl.convolution(src, weights, None, dst, *places)
        x, w = ctx.convert(x, kernel.descs["src"]), ctx.convert(w, kernel.descs["weights"])
        y = ctx.allocate(kernel.descs["dst"])
        ctx.call_onednn(kernel, {"src": x, "weights": w, "dst": y})
        return y

    def numpy(self, ctx: Context, x: Tensor, w: Tensor) -> Tensor:
        """Record a call of NumPy's definition, and return its output."""
        places = self.strides, self.pads, self.dilations
        return ctx.call_python(lambda x, w: convolution(x, w, *places), self.sizes(x, w), x, w)


@dataclass(frozen=True)
class Conv2D(Convolution):
    """A convolution whose kernels read all channels, or, with groups, the channels of a group."""

    group: int = 1

    def sizes(self, x: Tensor, w: Tensor) -> Sizes:
        """Return the sizes of the result, of an image N C H W and a kernel (G) O I h w."""
        check(prod(w.dims[:-4]) == self.group, f"not {self.group} groups", w.dims)
        return super().sizes(x, w)

    def eigen(self, ctx: Context, x: Tensor, w: Tensor) -> Tensor:
        """Record Eigen's kernel with channels last and kernels in the order G h w I O; return its
        output.
        """
        y = ctx.allocate(channels_last(self.sizes(x, w)))
        groups = range(len(w.dims) - 4)
        out, inner, *spatial = range(len(groups), len(w.dims))
        weights = ctx.convert(w, plain(w.dims, (*groups, *spatial, inner, out)))
        window = self.window(w).eigen(x.dims, y.dims)
        kernel = native.load().convolution("f32", window, self.group, w.dims[out])
        ctx.call_eigen(kernel, eigen.last(ctx, x), weights, y)
        return y


@dataclass(frozen=True)
class DepthwiseConv2D(Convolution):
    """A convolution of each channel by itself, with kernels C O 1 h w: O results a channel."""

    def sizes(self, x: Tensor, w: Tensor) -> Sizes:
        """Return the sizes of the result of an image N C H W and a kernel C O 1 h w."""
        fits = len(w.dims) == 5 and (w.dims[0], w.dims[2]) == (x.dims[1], 1)
        check(fits, "not one group a channel", x.dims, w.dims)
        return super().sizes(x, w)

    def eigen(self, ctx: Context, x: Tensor, w: Tensor) -> Tensor:
        """Record Eigen's kernel with channels last and kernels in the order h w C O; return its
        output.
        """
        y = ctx.allocate(channels_last(self.sizes(x, w)))
        weights = ctx.convert(w, plain(w.dims, (3, 4, 0, 1, 2)))
        window = self.window(w).eigen(x.dims, y.dims)
        kernel = native.load().depthwise("f32", window, w.dims[1])
        ctx.call_eigen(kernel, eigen.last(ctx, x), weights, y)
        return y
