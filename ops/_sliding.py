"""Windows that slide over an image along each spatial dim, and how often they fit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from ptensor import PTensor
from vtensor.errors import DimError
from vtensor.tensor import VTensor

Sizes = tuple[int, ...]
Tensor = VTensor | PTensor


class Windowed(Protocol):
    """The parameters of an operator that slides a window over the spatial dims."""

    @property
    def strides(self) -> Sizes:
        """The distance of neighbouring windows along each spatial dim, in elements; empty is 1."""

    @property
    def pads(self) -> Sizes:
        """The elements added at the beginning of each spatial dim, then at each end; empty is 0."""

    @property
    def dilations(self) -> Sizes:
        """The distance of a window's elements along each spatial dim, in elements; empty is 1."""


class Window(NamedTuple):
    """A window along one dim of an image.

    Attributes:
        dim: the dim's name.
        size: the number of the image's elements along the dim.
        kernel: the number of elements that a window takes.
        stride: the distance of neighbouring windows, in elements.
        begin, end: the pads before and after the image, in elements.
        dilation: the distance of neighbours in a window, in elements.
    """

    dim: str
    size: int
    kernel: int
    stride: int
    begin: int
    end: int
    dilation: int

    @property
    def reach(self) -> int:
        """The number of elements that a window spans from its first to its last, gaps included."""
        return self.dilation * (self.kernel - 1) + 1

    @property
    def spread(self) -> int:
        """The size of the smallest image, without pads, on which the window has ``size`` positions.

        A transposed convolution without output_padding makes an image of this size from one of
        ``size`` elements.
        """
        return (self.size - 1) * self.stride + self.reach - self.begin - self.end


def spatial(dims: Iterable[str]) -> tuple[str, ...]:
    """Return those of ``dims`` that are D, H or W, in this order, the order of parameters.

    >>> spatial(["W", "H", "C", "N"])
    ('H', 'W')
    """
    present = set(dims)
    return tuple(dim for dim in "DHW" if dim in present)


def along(x: Tensor, kernel: Sequence[int], op: Windowed) -> list[Window]:
    """Return the sliding window of an operator, as a ``Window`` for each spatial dim of an image.

    Args:
        x: the image.
        kernel: the window's size along each spatial dim.
        op: gives strides, pads and dilations.

    Raises:
        DimError: a parameter has another number of values than there are spatial dims.
    """
    dims = spatial(x.dims)
    rank = len(dims)
    strides, dilations = op.strides or (1,) * rank, op.dilations or (1,) * rank
    pads = op.pads or (0, 0) * rank
    if not len(kernel) == len(strides) == len(dilations) == len(pads) / 2 == rank:
        raise DimError(
            f"kernel {tuple(kernel)}, strides {strides}, dilations {dilations} and pads {pads} are "
            f"not those of {rank} spatial dims ({' '.join(dims)})"
        )
    rows = zip(dims, kernel, strides, pads[:rank], pads[rank:], dilations, strict=True)
    return [Window(dim, x.size(dim), *row) for dim, *row in rows]


def count(window: Window, ceil: bool = False) -> int:
    """Return how many positions a window has along a dim of an image.

    Args:
        window: the window along the dim.
        ceil: True adds a position for elements that are left over after the last one, if it begins
            before the pads at the end.

    Raises:
        DimError: the window is larger than the padded image.

    >>> count(Window("H", 224, kernel=7, stride=2, begin=3, end=3, dilation=1))
    112
    """
    pads = (window.begin, window.end)
    room = window.size + sum(pads) - window.reach
    if window.kernel < 1 or room < 0:
        raise DimError(
            f"a window of {window.reach} along {window.dim} does not fit into {window.size} "
            f"padded by {pads}"
        )
    if not ceil:
        return room // window.stride + 1
    windows = -(-room // window.stride) + 1
    return windows - ((windows - 1) * window.stride >= window.size + window.begin)


def counts(x: Tensor, kernel: Sequence[int], op: Windowed, ceil: bool = False) -> dict[str, int]:
    """Return, by spatial dim, how many positions a window has on the image ``x``.

    ``kernel`` and ``op`` are as for ``along``, ``ceil`` is as for ``count``.
    """
    return {window.dim: count(window, ceil) for window in along(x, kernel, op)}


def geometry(
    x: Tensor, out: Tensor, kernel: Sequence[int], op: Windowed
) -> tuple[Sizes, Sizes, Sizes, Sizes]:
    """Return a window's sizes, strides, pads and dilations, with end pads that suit the output.

    Each has a number for each spatial dim; the pads have the beginnings of all dims, then the ends.
    With the returned pads, the window has exactly as many positions as ``out`` has elements. They
    differ from the pads of ``op`` if rounding up (``ceil``) changed the number of positions.

    Args:
        x: the image.
        out: the output, with one element for each position of the window.
        kernel: the window's size along each spatial dim.
        op: gives strides, pads and dilations.
    """
    rows = along(x, kernel, op)
    ends = (_end(row, out.size(row.dim)) for row in rows)
    columns = ((row.kernel, row.stride, row.begin, row.dilation) for row in rows)
    sizes, strides, begins, dilations = zip(*columns, strict=True)
    return sizes, strides, (*begins, *ends), dilations


def _end(window: Window, places: int) -> int:
    """Return the end pad, in elements, with which the window has exactly ``places`` positions."""
    needed = (places - 1) * window.stride + window.reach - window.begin - window.size
    return max(needed, 0 if count(window) > places else window.end)
