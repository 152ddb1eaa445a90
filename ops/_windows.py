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

#: An image's dim names in ONNX's order of axes, by the number of axes.
IMAGES = {3: "N C W", 4: "N C H W", 5: "N C D H W"}


def in_order(names: str) -> Callable[[VTensor], Layout]:
    """Return a function from an operand to the layout of its dims in the order of ``names``."""
    return lambda x: Layout.plain(dim for dim in names.split() if dim in x.dims)


#: The order of an image's dims in definitions: N, C, then the spatial dims.
image_order = in_order("N C D H W")


def window_attributes(
    node: NodeReader, kernel: Sequence[int], rank: int, **more: int
) -> tuple[dict[str, Sizes], str]:
    """Return the attributes of an ONNX node's window by name, and its ``auto_pad``.

    The attributes are ``strides``, ``pads``, ``dilations`` and those in ``more``.

    Args:
        node: the node, which slides a window.
        kernel: the window's sizes.
        rank: the number of spatial dims.
        more: further attributes of one number for each spatial dim, with their defaults.

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
    """Return pads at the beginning of each dim, then at each end, that add up to ``totals``.

    An odd total has one element more at the end if ``auto``, ONNX's auto_pad, is SAME_UPPER, else
    at the beginning.
    """
    less = [total // 2 for total in totals]
    more = [total - half for total, half in zip(totals, less, strict=True)]
    return (*less, *more) if auto == "SAME_UPPER" else (*more, *less)


def read_window(node: NodeReader, x: VTensor, kernel: Sequence[int]) -> dict[str, Any]:
    """Return ``strides``, ``pads`` and ``dilations`` of an ONNX node by name.

    An ``auto_pad`` is turned into pads, for an image ``x`` and a window of the sizes ``kernel``.

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
    """Return a function that writes an operator on one image as an ONNX node ``op_type``.

    The operator's parameters become attributes of the same names; ``renamed`` maps parameters to
    attributes of other names.
    """

    def write(node: NodeWriter, op: Any) -> None:
        [x] = node.inputs
        order = image_order(x).dims
        attributes = {renamed.get(name, name): value for name, value in parameters(op).items()}
        node.emit(op_type, node.operand(x, order), order=order, **attributes)

    return write


def image_names(node: Naming) -> None:
    """Give the dims of the first input and of the output the names of an image: N, C, spatial."""
    for role in ("x0", "y0"):
        if (names := IMAGES.get(node.rank(role))) is not None:
            node.name(role, names)


def pool_names(node: Naming) -> None:
    """Name the dims of input and output as ``image_names`` does; both have the same N and C."""
    image_names(node)
    node.same("x0", 0, "y0", 0)
    node.same("x0", 1, "y0", 1)


def read_image(node: NodeReader) -> VTensor:
    """Return the first input with an image's dim names.

    The node is refused if the image does not have one to three spatial dims.
    """
    names = IMAGES.get(len(node.input(0).dims))
    if names is None:
        raise node.refuse(f"{len(node.input(0).dims) - 2} spatial dims; one to three are taken")
    return node.input(0, names)


def _merged_pads(match: Match) -> dict[str, Sizes] | None:
    """Return as ``together`` the sum of a window's pads and those of the Pad before it.

    None (the rule does not apply) if a pad of the Pad is negative or not along a spatial
    dim.
    """
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
    """Register the rule that merges a Pad into the operator with a window that reads it.

    Args:
        name: the operator that slides the window.
        operands: text of the operator's operands after the image in the rule, such as ``, w``.
        parameters: text of the operator's parameters in the rule, without the pads.
        image: the dims of the image in the rule's example.
        pad: text of further parameters of the Pad, if it does not pad with zeros.
        own: text of the new operator's parameters, if they are not ``parameters``.
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
