"""Products of matrices instead of convolutions whose window is one element. The matrix of an image
has a row for each pixel and a column for each channel.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

from libdesc.onednn.layouts import Order, from_desc, to_desc
from libdesc.onednn.native import dnnl
from ptensor.layout import Layout

if TYPE_CHECKING:
    from libdesc.onednn._onednn import Primitive
    from libdesc.onednn.routines import Operand, Row

#: The primitives that multiply matrices, each with the order in which it numbers the weights' dims.
PRODUCTS: dict[str, Order] = {"inner_product": ("O", "I"), "matmul": ("I", "O")}


def channels_last(image: Operand) -> Layout:
    """Return the plain layout with C last, in which an image is a matrix with a row per pixel."""
    return Layout.plain([*(dim for dim in image.order if dim != "C"), "C"])


def are_matrices(operands: Sequence[Operand], row: Row) -> bool:
    """Return whether both images of a convolution are stored as matrices with a row per pixel.

    Args:
        operands: src, weights and dst.
        row: the layouts of these.
    """
    src, _, dst = operands
    return all(
        not layout.is_any and layout.same(channels_last(image), image.tensor.dims)
        for image, layout in ((src, row[0]), (dst, row[2]))
    )


def product(kind: str, operands: Sequence[Operand], row: Row) -> Primitive:
    """Return a product primitive for a convolution with one-element windows and images as matrices.

    Args:
        kind: a key of ``PRODUCTS``.
        operands: src, weights and dst of the convolution.
        row: the layouts of these; ``are_matrices`` is true of them.

    Raises:
        LayoutNotSupported: oneDNN has no descriptor of the weights' layout.
        Unimplemented, ValueError: oneDNN has no such product.
    """
    src, weights, dst = operands
    images = []
    for image in (src, dst):
        channels = image.tensor.size("C")
        places = prod(image.tensor.dims.values()) // channels
        extents = {"places": places, "C": channels}
        images.append(to_desc(Layout.plain(extents), tuple(extents), extents, image.tensor.dtype))
    order = PRODUCTS[kind]
    matrix = to_desc(row[1].restrict(order), order, weights.tensor.dims, weights.tensor.dtype)
    multiply = dnnl.inner_product if kind == "inner_product" else dnnl.matmul
    return multiply(images[0], matrix, None, images[1])


def product_layouts(primitive: Primitive, operands: Sequence[Operand]) -> list[Layout]:
    """Return the layouts of a convolution's operands that a product primitive works in.

    Raises:
        LayoutNotSupported: the layout of the weights is opaque.
    """
    src, weights, dst = operands
    order = PRODUCTS[primitive.kind]
    matrix = from_desc(primitive.descs["weights"], order, weights.tensor.dtype)
    window = [(dim, 0) for dim in weights.order if dim not in order]
    return [channels_last(src), Layout.of_axes([*window, *matrix.axes]), channels_last(dst)]
