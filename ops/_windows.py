"""Images of one to three spatial dims, and the attributes of windows over them in ONNX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from libdesc import rewrite
from ops._sliding import Sizes, spatial
from ops._writing import parameters
from ptensor import Layout
from vtensor.operators import Match, Naming, NodeReader, NodeWriter, Write
from vtensor.tensor import VTensor

#: Names of an image's dims at ONNX's positions, by rank.
IMAGES = {3: "N C W", 4: "N C H W", 5: "N C D H W"}


def in_order(names: str) -> Callable[[VTensor], Layout]:
    """Return a function that orders an operand's dims as ``names`` does."""
    return lambda x: Layout.plain(dim for dim in names.split() if dim in x.dims)


#: The order of an image's dims in definitions: N, C, then the spatial dims.
image_order = in_order("N C D H W")


def window_attributes(
    node: NodeReader, kernel: Sequence[int], rank: int, **more: int
) -> tuple[dict[str, Sizes], str]:
    """Return ``strides``, ``pads`` and ``dilations`` of an ONNX node, and its ``auto_pad``.

    Args:
        node: the node, which slides a window.
        kernel: the window's sizes.
        rank: the number of spatial dims.
        more: other attributes of one number for each dim, with their defaults.

    Raises:
        VTensorError: an attribute is not what ONNX allows.
    """
    defaults = {"strides": 1, "pads": 0, "dilations": 1, **more}
    lengths = {name: 2 * rank if name == "pads" else rank for name in defaults}
    window = {
        name: tuple(node.attribute(name) or [number] * lengths[name])
        for name, number in defaults.items()
    }
    rows = {"kernel": tuple(kernel), **window}
    if any(len(row) != lengths.get(name, rank) for name, row in rows.items()):
        what = ", ".join(f"{name} {row}" for name, row in rows.items())
        raise node.refuse(f"{what} of a {rank}-D window")
    auto = node.attribute("auto_pad") or "NOTSET"
    if auto not in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"):
        raise node.refuse(f"auto_pad {auto!r}")
    return (window | {"pads": (0, 0) * rank} if auto == "VALID" else window), auto


def halved(totals: Sequence[int], auto: str) -> Sizes:
    """Return pads at all beginnings, then at all ends; ``auto_pad`` places an odd element."""
    less = [total // 2 for total in totals]
    more = [total - half for total, half in zip(totals, less, strict=True)]
    return (*less, *more) if auto == "SAME_UPPER" else (*more, *less)


def read_window(node: NodeReader, x: VTensor, kernel: Sequence[int]) -> dict[str, Any]:
    """Return ``strides``, ``pads`` and ``dilations`` of an ONNX node, ``auto_pad`` resolved.

    Raises:
        VTensorError: an attribute is not what ONNX allows, or the pads are negative.
    """
    dims = spatial(x.dims)
    window, auto = window_attributes(node, kernel, len(dims))
    if auto.startswith("SAME"):  # ceil(size / stride) windows
        rows = zip(dims, kernel, window["strides"], window["dilations"], strict=True)
        sizes = ((x.size(dim), max(s, 1), s, d * (k - 1) + 1) for dim, k, s, d in rows)
        totals = [max((-(-n // at) - 1) * s + reach - n, 0) for n, at, s, reach in sizes]
        window["pads"] = halved(totals, auto)
    if min(window["pads"]) < 0:
        raise node.refuse(f"negative pads {window['pads']}")
    return window


def write_image(op_type: str, **renamed: str) -> Write:
    """Return a writer of an operator on one image, whose parameters are ONNX's attributes.

    ``renamed`` maps parameters to attributes of other names.
    """

    def write(node: NodeWriter, op: Any) -> None:
        [x] = node.inputs
        order = image_order(x).dims
        attributes = {renamed.get(name, name): value for name, value in parameters(op).items()}
        node.emit(op_type, node.operand(x, order), order=order, **attributes)

    return write


def image_names(node: Naming) -> None:
    """Name the dims of the first input and of the output as images."""
    for role in ("x0", "y0"):
        if (names := IMAGES.get(node.rank(role))) is not None:
            node.name(role, names)


def pool_names(node: Naming) -> None:
    """Name input and output as images with the same N and C."""
    image_names(node)
    node.same("x0", 0, "y0", 0)
    node.same("x0", 1, "y0", 1)


def read_image(node: NodeReader) -> VTensor:
    """Return the first input as an image; refuse other ranks."""
    names = IMAGES.get(len(node.input(0).dims))
    if names is None:
        raise node.refuse(f"{len(node.input(0).dims) - 2} spatial dims; one to three are taken")
    return node.input(0, names)


def _merged_pads(match: Match) -> dict[str, Sizes] | None:
    """Return the pads of a window plus those of the Pad before it; None if that does not fit."""
    dims, axes, more = spatial(match["x"].dims), match["axes"], match["more"]
    pads = match["pads"] or (0, 0) * len(dims)
    if not {*axes} <= {*dims} or min(more, default=0) < 0:
        return None
    around = dict(zip([*axes, *(f"{dim} end" for dim in axes)], more, strict=True))
    places = [*dims, *(f"{dim} end" for dim in dims)]
    return {"together": tuple(a + around.get(at, 0) for a, at in zip(pads, places, strict=True))}


def takes_pads(
    name: str,
    operands: str,
    parameters: str,
    image: str,
    pad: str = "",
    own: str = "",
    **example: Any,
) -> None:
    """Register the rule that merges a Pad into the window that reads it.

    Args:
        name: the operator that slides the window.
        operands: its operands after the image, as a rule writes them.
        parameters: its parameters without the pads, as a rule writes them.
        image: the dims of the image in the rule's example.
        pad: further parameters of the Pad, if it does not pad with zeros.
        own: the parameters of the new operator, if they differ.
        example: further values of the rule's example.
    """
    axes = tuple(image.split()[2:])
    rewrite(
        f"pad_{name.lower()}",
        "a window over what was put around an image may put it there itself",
        f"{name}(Pad(x, axes=axes, pads=more{pad}){operands}, pads=pads, {parameters})",
        f"{name}(x{operands}, pads=together, {own or parameters})",
        given=_merged_pads,
        example={"x": image, "axes": axes, "more": (1, 0) * len(axes), **example},
    )
