"""A convolution whose window is one element is a product of matrices: all places times channels."""

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

#: The primitives that multiply, each with the order in which it numbers the dims of the weights.
PRODUCTS: dict[str, Order] = {"inner_product": ("O", "I"), "matmul": ("I", "O")}


def channels_last(image: Operand) -> Layout:
    """The order in which an image is one matrix: a row a place."""
    return Layout.plain([*(dim for dim in image.order if dim != "C"), "C"])


def is_product(operands: Sequence[Operand], row: Row) -> bool:
    """One group, a window of one element, and all places of both images one after another.

    The window's steps and pads are the caller's to look at.
    """
    src, weights, dst = operands
    window = [size for dim, size in weights.tensor.dims.items() if dim not in "GOI"]
    return (
        "G" not in weights.order
        and set(window) == {1}
        and all(
            not layout.is_any and layout.same(channels_last(image), image.tensor.dims)
            for image, layout in ((src, row[0]), (dst, row[2]))
        )
    )


def product(kind: str, operands: Sequence[Operand], row: Row) -> Primitive:
    """One of ``PRODUCTS`` on the operands of a convolution for which ``is_product`` holds.

    Raises:
        LayoutNotSupported: oneDNN has no word for the weights' layout.
        Unimplemented, ValueError: it has no such product.
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
    """The layouts of a convolution's operands in which a product works.

    Raises:
        LayoutNotSupported: that of the weights is opaque.
    """
    src, weights, dst = operands
    order = PRODUCTS[primitive.kind]
    matrix = from_desc(primitive.descs["weights"], order, weights.tensor.dtype)
    window = [(dim, 0) for dim in weights.order if dim not in order]
    return [channels_last(src), Layout.of_axes([*window, *matrix.axes]), channels_last(dst)]
