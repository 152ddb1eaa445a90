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
        kernel: the number of elements that the window takes.
        strides: the distance of neighbouring positions of the window, in elements.
        pads: the elements added at the beginnings of all spatial axes, then at their ends.
        dilations: the distance of neighbouring elements of the window, in elements.
    """

    kernel: Sizes
    strides: Sizes
    pads: Sizes
    dilations: Sizes

    @property
    def begins(self) -> Sizes:
        """The pads at the beginning of each axis, in elements."""
        return self.pads[: len(self.kernel)]

    @property
    def ends(self) -> Sizes:
        """The pads at the end of each axis, in elements."""
        return self.pads[len(self.kernel) :]

    @property
    def reach(self) -> Sizes:
        """The elements from the window's first to its last along each axis, gaps included."""
        rows = zip(self.kernel, self.dilations, strict=True)
        return tuple(dilation * (size - 1) + 1 for size, dilation in rows)

    def counts(self, image: Sizes, ceil: bool = False) -> Sizes:
        """Return how many positions the window has along each axis of an image.

        Args:
            image: the sizes of the image's spatial axes.
            ceil: True adds a last position that does not fit if it begins before the end pads.

        Raises:
            DimError: the window has another number of axes than the image, or is larger than the
                padded image; or a size, stride or dilation is below 1, or a pad below 0.
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
        """Return this window, with end pads that reach to the end of its last position.

        Pads that reach further are kept.

        Args:
            image: the sizes of the image's spatial axes.
            out: the number of positions of the window along each axis.
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
            src: the sizes of the images: their number, channels, then spatial axes.
            dst: the sizes of the result: images, channels, spatial axes.
        """
        images, channels, *_ = src
        before, after = three(src[2:], 1), three(dst[2:], 1)
        sizes = three(self.kernel, 1), three(self.strides, 1), three(self.dilations, 1)
        return (images, channels, before, after, *sizes, three(self.begins, 0))


def three(sizes: Sizes, missing: int) -> Sizes:
    """Return three numbers, one for each axis: ``sizes``, with ``missing`` before as needed."""
    return (missing,) * (3 - len(sizes)) + sizes
