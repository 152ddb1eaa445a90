"""Windows that slide over the spatial axes of an image, and how often they fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from eval.layout_aware.base import check
from eval.layout_aware.tensor import Sizes

if TYPE_CHECKING:
    from libdesc.eigen._eigen import Window as EigenWindow


class Window(NamedTuple):
    """A number for each spatial axis; pads at all beginnings, then all ends; 1 is no dilation."""

    kernel: Sizes
    strides: Sizes
    pads: Sizes
    dilations: Sizes

    @property
    def begins(self) -> Sizes:
        """Pads at the beginnings."""
        return self.pads[: len(self.kernel)]

    @property
    def ends(self) -> Sizes:
        """Pads at the ends."""
        return self.pads[len(self.kernel) :]

    @property
    def reach(self) -> Sizes:
        """The extent of the window along each axis."""
        rows = zip(self.kernel, self.dilations, strict=True)
        return tuple(dilation * (size - 1) + 1 for size, dilation in rows)

    def counts(self, image: Sizes, ceil: bool = False) -> Sizes:
        """Return how many windows fit along each axis; ``ceil`` adds one that begins before the
        end's pads.

        Raises:
            DimError: the parameters are not those of this image, or the window does not fit.
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
        """Return the window with pads at the ends that the last of ``out`` windows reaches."""
        rows = zip(image, out, self.strides, self.reach, self.begins, self.ends, strict=True)
        ends = (
            max(end, (count - 1) * stride + reach - begin - size)
            for size, count, stride, reach, begin, end in rows
        )
        return self._replace(pads=(*self.begins, *ends))

    def eigen(self, src: Sizes, dst: Sizes) -> EigenWindow:
        """Return the argument of Eigen's kernels for an image and a result: three spatial axes."""
        images, channels, *_ = src
        before, after = three(src[2:], 1), three(dst[2:], 1)
        sizes = three(self.kernel, 1), three(self.strides, 1), three(self.dilations, 1)
        return (images, channels, before, after, *sizes, three(self.begins, 0))


def three(sizes: Sizes, missing: int) -> Sizes:
    """Return a number for each of three axes; missing ones come first."""
    return (missing,) * (3 - len(sizes)) + sizes
