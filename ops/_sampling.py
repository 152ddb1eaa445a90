"""Interpolation: values of an image between its elements and beyond its border."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import product

import numpy as np

from libdesc.numpy.arrays import Array, wide
from ops._sliding import spatial

#: A condition for ``holds``: the sampled image has elements along all spatial dims.
HAS_ELEMENTS = (
    lambda _, x, *_more: all(x.size(dim) != 0 for dim in spatial(x.dims)),
    "there are no elements to sample",
)


def linear(distance: Array) -> Array:
    """Return the weight of an element in a linear interpolation, by its distance from the sample.

    The weight falls from 1 at distance 0 to 0 at 1, and is 0 beyond.
    """
    return np.asarray(np.clip(1 - np.abs(distance), 0, None))


def cubic(distance: Array, a: float = -0.75) -> Array:
    """Return the weight of an element in a cubic interpolation, by its distance from the sample.

    The weight is 1 at distance 0, and 0 from 2 on; ``a`` is its slope at distance 1.

    Source: R. Keys, Cubic convolution interpolation for digital image processing, equation 4.
    """
    d = np.abs(distance)
    near = (a + 2) * d**3 - (a + 3) * d**2 + 1
    far = a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a
    return np.asarray(np.where(d <= 1, near, np.where(d < 2, far, np.where(d >= 2, 0, d))))


def shaped(row: Array, axis: int, rank: int) -> Array:
    """Return the vector ``row`` as an array of ``rank`` axes, all of length 1 but ``axis``."""
    return row.reshape([-1 if i == axis else 1 for i in range(rank)])


def sample(x: Array, places: Sequence[Array], mode: str, padding: str, corners: bool) -> Array:
    """Return the values of an image at given coordinates, which may be between its elements.

    Args:
        x: the image: N C and any number of spatial dims.
        places: for each spatial dim, the coordinates along it, in elements; an array of N and any
            further dims P. A coordinate NaN gives the value NaN.
        mode: ``nearest``, with ties to even, ``linear`` or ``cubic``.
        padding, corners: as for ``terms``.

    Returns:
        An array N C P: a value for each image, channel and place.
    """
    if mode == "nearest":
        places = [np.rint(row) for row in places]
    values = sum(terms(x, places, mode, padding, corners))
    return np.asarray(values)


def terms(
    x: Array, places: Sequence[Array], mode: str, padding: str = "zeros", corners: bool = True
) -> Iterator[Array]:
    """Yield arrays N C P whose sum is the result of ``sample``.

    An array has the values of one neighbour of each sample, times their weights. In mode
    ``linear`` a sample has two neighbours along each dim, in mode ``cubic`` four.

    Args:
        x: the image: N C and any number of spatial dims.
        places: for each spatial dim, the coordinates along it, in elements; the arrays broadcast to
            N and further dims P.
        mode: ``linear``, ``cubic``, or ``nearest``, for coordinates that are whole numbers.
        padding: the values beyond the border: ``zeros``, the border's elements (``border``), or
            the image mirrored at the border (``reflection``).
        corners: True mirrors at the centres of the border's elements, False at their outer ends.
    """
    places = np.broadcast_arrays(*places)
    sizes, batch = x.shape[2:], np.arange(len(x)).reshape(-1, *(1,) * (places[0].ndim - 1))
    steps = {"nearest": range(1), "linear": range(2), "cubic": range(-1, 3)}[mode]
    weigh = cubic if mode == "cubic" else linear
    for step in product(steps, repeat=len(sizes)):
        near = [np.floor(row) + more for row, more in zip(places, step, strict=True)]
        weight = reduce(np.multiply, (weigh(n - row) for n, row in zip(near, places, strict=True)))
        if padding == "zeros":
            for n, size in zip(near, sizes, strict=True):
                weight = np.where((n < 0) | (n >= size), 0 * weight, weight)
        elif padding == "reflection":
            near = [_reflected(n, size, corners) for n, size in zip(near, sizes, strict=True)]
        index = [
            np.clip(np.nan_to_num(n), 0, size - 1).astype(np.int64)
            for n, size in zip(near, sizes, strict=True)
        ]
        if mode == "nearest" and x.dtype.kind in "iub":
            weight = weight == 1  # a large integer times a float would be rounded
        yield np.moveaxis(wide(x)[(batch, slice(None), *index)], -1, 1) * weight[:, np.newaxis]


def _reflected(near: Array, size: int, corners: bool) -> Array:
    """Return the coordinates ``near``, mirrored at the ends of a dim until they are inside it.

    ``size`` is the number of elements along the dim; ``corners`` is as for ``terms``.
    """
    low, span = (0.0, size - 1.0) if corners else (-0.5, float(size))
    if span == 0:
        return np.zeros_like(near)
    folded = np.mod(np.abs(near - low), 2 * span)
    return np.asarray(low + np.minimum(folded, 2 * span - folded))
