"""ONNX's AffineGrid, which makes a grid of coordinates, as a product of matrices."""

from __future__ import annotations

import numpy as np

from libdesc.numpy.arrays import Array
from vtensor.language.dtype import numpy_dtype
from vtensor.operators import Naming, NodeReader
from vtensor.tensor import VTensor

#: The spatial dims of a grid, by the number of sizes that ONNX gives, N and C included.
_SPACES = {4: "H W", 5: "D H W"}


def grid_names(node: Naming) -> None:
    """Name the dims of AffineGrid's input 0, the affine matrices, and of its output, the grid."""
    node.name("x0", "N axis column")
    for space in _SPACES.values():
        node.name("y0", f"N {space} axis")


def read_map(node: NodeReader) -> tuple[VTensor, VTensor]:
    """Return the two factors of an AffineGrid: the affine matrices, and coordinates.

    The coordinates have the grid's spatial dims and ``column``. Along ``column``
    there are the coordinates of the spatial dims, from -1 to 1, the last dim's first, and then a 1.
    """
    sizes = [int(size) for size in np.ravel(node.constant(1))]
    theta = node.input(0, "N axis column")
    if (space := _SPACES.get(len(sizes), "").split()) == []:
        raise node.refuse(f"size has {len(sizes)} numbers, not 4 or 5")
    count, *extents = sizes[0], *sizes[2:]
    if tuple(theta.dims.values()) != (count, len(space), len(space) + 1) or min(sizes) < 0:
        raise node.refuse(f"{theta.summary()} is no map for the size {sizes}")
    shape = (*extents, len(space) + 1)
    if count == 0:
        nothing = np.broadcast_to(np.zeros((), numpy_dtype(theta.dtype)), shape)
        return theta, node.made(nothing, [*space, "column"])
    places = np.ones(shape, numpy_dtype(theta.dtype))
    aligned = bool(node.attribute("align_corners", 0))
    for axis, extent in enumerate(extents):
        along = [-1 if i == axis else 1 for i in range(len(extents))]
        places[..., len(space) - 1 - axis] = _centres(extent, aligned).reshape(along)
    return theta, node.made(places, [*space, "column"])


def _centres(extent: int, aligned: bool) -> Array:
    """Return the coordinates of ``extent`` elements between -1 and 1.

    They are the centres of equal parts of that range, or with ``aligned`` run from -1 to 1.
    """
    if aligned:
        return np.linspace(-1, 1, extent)
    return (2 * np.arange(extent) + 1) / max(extent, 1) - 1
