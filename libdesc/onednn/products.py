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


def lies_as_rows(operands: Sequence[Operand], row: Row) -> bool:
    """All places of both images lie one after another, where a window is one element that moves by
    one, with no groups.
    """
    src, _, dst = operands
    return all(
        not layout.is_any and layout.same(channels_last(image), image.tensor.dims)
        for image, layout in ((src, row[0]), (dst, row[2]))
    )


def product(kind: str, operands: Sequence[Operand], row: Row) -> Primitive:
    """One of ``PRODUCTS`` on the operands of a convolution for which ``lies_as_rows`` holds.

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
