"""Windows that slide over the spatial axes of an image, and how often they fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from eval.layout_aware.base import check
from eval.layout_aware.tensor import Sizes

if TYPE_CHECKING:
    from libdesc.eigen._eigen import Window as EigenWindow


class Window(NamedTuple):
    """A window that slides over an image, with a number for each spatial axis.

    Attributes:
        kernel: the sizes of the window.
        strides: the strides, in elements.
        pads: elements at the beginnings of all spatial axes, then at their ends.
        dilations: the distances of the window's elements; 1 is no dilation.
    """

    kernel: Sizes
    strides: Sizes
    pads: Sizes
    dilations: Sizes

    @property
    def begins(self) -> Sizes:
        """The pads at the beginnings."""
        return self.pads[: len(self.kernel)]

    @property
    def ends(self) -> Sizes:
        """The pads at the ends."""
        return self.pads[len(self.kernel) :]

    @property
    def reach(self) -> Sizes:
        """The extent of the window along each axis, dilation included."""
        rows = zip(self.kernel, self.dilations, strict=True)
        return tuple(dilation * (size - 1) + 1 for size, dilation in rows)

    def counts(self, image: Sizes, ceil: bool = False) -> Sizes:
        """Return how many windows fit along each axis of an image.

        Args:
            image: the sizes of the image's spatial axes.
            ceil: add a window that does not fit but begins before the pads at the end.

        Raises:
            DimError: the window has another number of axes than the image, has a number out of
                range, or does not fit.
        """
        numbers = (self.kernel, self.strides, self.dilations, self.begins, self.ends)
        check({len(image)} == set(map(len, numbers)), f"{self} is not of this rank", image)
        check(min(*self.kernel, *self.strides, *self.dilations) >= 1, f"{self} has a 0", image)
        check(min(self.pads) >= 0, f"{self} has negative pads", image)
        rows = zip(image, self.begins, self.ends, self.reach, self.strides, strict=True)
        result = []
        for size, begin, end, reach, stride in rows:
            room = size + begin + end - reach
            check(room >= 0, f"{self} does not fit", image)
            count = -(-room // stride) if ceil else room // stride
            result.append(count + (not ceil or count * stride < size + begin))
        return tuple(result)

    def reaching(self, image: Sizes, out: Sizes) -> Window:
        """Return the window with pads at the ends as far as the last window reaches.

        Args:
            image: the sizes of the image's spatial axes.
            out: the number of windows along each.
        """
        rows = zip(image, out, self.strides, self.reach, self.begins, self.ends, strict=True)
        ends = (
            max(end, (count - 1) * stride + reach - begin - size)
            for size, count, stride, reach, begin, end in rows
        )
        return self._replace(pads=(*self.begins, *ends))

    def eigen(self, src: Sizes, dst: Sizes) -> EigenWindow:
        """Return the window as Eigen's kernels take it: with three spatial axes.

        Args:
            src: the sizes of the image: images, channels, spatial axes.
            dst: the sizes of the result, likewise.
        """
        images, channels, *_ = src
        before, after = three(src[2:], 1), three(dst[2:], 1)
        sizes = three(self.kernel, 1), three(self.strides, 1), three(self.dilations, 1)
        return (images, channels, before, after, *sizes, three(self.begins, 0))


def three(sizes: Sizes, missing: int) -> Sizes:
    """Return a number for each of three axes: ``sizes``, preceded by ``missing`` as often as
    needed.
    """
    return (missing,) * (3 - len(sizes)) + sizes
