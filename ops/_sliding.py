"""What is slid over an image along each of its spatial dims, and how often it fits."""

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
        """Step of the window, in elements; none: 1."""

    @property
    def pads(self) -> Sizes:
        """Elements added at all beginnings, then at all ends; none: 0."""

    @property
    def dilations(self) -> Sizes:
        """Distance of neighbours in the window, in elements; none: 1."""


class Window(NamedTuple):
    """What is slid along one dim, all in elements; ``kernel`` is the number of those it takes."""

    dim: str
    size: int
    kernel: int
    stride: int
    begin: int
    end: int
    dilation: int

    @property
    def reach(self) -> int:
        """How far it spans."""
        return self.dilation * (self.kernel - 1) + 1

    @property
    def spread(self) -> int:
        """How many elements windows make that lie a stride apart, one for each of ``size``."""
        return (self.size - 1) * self.stride + self.reach - self.begin - self.end


def spatial(dims: Iterable[str]) -> tuple[str, ...]:
    """The spatial ones of some dims, in the order in which parameters count them.

    >>> spatial(["W", "H", "C", "N"])
    ('H', 'W')
    """
    have = set(dims)
    return tuple(dim for dim in "DHW" if dim in have)


def along(x: Tensor, kernel: Sequence[int], op: Windowed) -> list[Window]:
    """The window along each spatial dim of an image.

    Raises:
        DimError: there are not as many parameters as spatial dims.
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
    """How many windows fit along a dim.

    Args:
        window: what is slid there.
        ceil: one more window where elements are left over, if it begins before the end's pads.

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
    """How many windows fit along each spatial dim."""
    return {window.dim: count(window, ceil) for window in along(x, kernel, op)}


def geometry(
    x: Tensor, out: Tensor, kernel: Sequence[int], op: Windowed
) -> tuple[Sizes, Sizes, Sizes, Sizes]:
    """Kernel, strides, pads and dilations, one a spatial dim (pads two).

    The pads are those with which the last window ends inside, and no other fits behind it: ``ceil``
    may let it reach further, and has no window that begins in the pads of the end.
    """
    rows = along(x, kernel, op)
    ends = (_end(row, out.size(row.dim)) for row in rows)
    columns = ((row.kernel, row.stride, row.begin, row.dilation) for row in rows)
    sizes, strides, begins, dilations = zip(*columns, strict=True)
    return sizes, strides, (*begins, *ends), dilations


def _end(window: Window, places: int) -> int:
    """The pad at the end with which so many windows fit along a dim."""
    needed = (places - 1) * window.stride + window.reach - window.begin - window.size
    return max(needed, 0 if count(window) > places else window.end)
