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

#: The same for ONNX Runtime's operators on images whose channels are the last axis.
CHANNELS_LAST = {3: "N W C", 4: "N H W C", 5: "N D H W C"}


def in_order(names: str) -> Callable[[VTensor], Layout]:
    """Return a function from an operand to its layout with the dims in the order of ``names``.

    ``names`` is a text such as ``"N C H W"``; dims that the operand lacks are left out.
    """
    return lambda x: Layout.plain(dim for dim in names.split() if dim in x.dims)


#: The order of an image's dims in definitions: N, C, then the spatial dims.
image_order = in_order("N C D H W")


def window_attributes(
    node: NodeReader, kernel: Sequence[int], rank: int, **more: int
) -> tuple[dict[str, Sizes], str]:
    """Return the attributes of an ONNX node that describe its sliding window, and its ``auto_pad``.

    The attributes, by name, are ``strides``, ``pads``, ``dilations`` and the names in ``more``.
    Absent ones have their defaults; with auto_pad VALID the pads are 0.

    Args:
        node: the ONNX node.
        kernel: the window's size along each spatial dim.
        rank: the number of spatial dims.
        more: further attributes with a number for each spatial dim: name and default number.

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
    """Divide the total pads of each dim into halves; return those before, then those after.

    Of an odd total, the larger half is after the image if ``auto``, ONNX's auto_pad, is SAME_UPPER,
    else before it.
    """
    less = [total // 2 for total in totals]
    more = [total - half for total, half in zip(totals, less, strict=True)]
    return (*less, *more) if auto == "SAME_UPPER" else (*more, *less)


def read_window(node: NodeReader, x: VTensor, kernel: Sequence[int]) -> dict[str, Any]:
    """Return the attributes ``strides``, ``pads`` and ``dilations`` of an ONNX node, by name.

    If the node has an ``auto_pad``, the pads are those that it means for the image ``x`` and a
    window of the sizes ``kernel``.

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


def images_of(node: Naming | NodeReader, last: bool = False) -> dict[int, str]:
    """Return an image's dim names in the order of the node's axes, by the number of axes.

    Channels are last if ``last`` is True, or if ONNX Runtime's attribute channels_last is set.
    """
    return CHANNELS_LAST if last or node.attribute("channels_last", 0) else IMAGES


def image_names(node: Naming, last: bool = False) -> None:
    """Name the axes of input 0 and of output 0 as an image's.

    Args:
        node: the ONNX node.
        last: True if channels are the last axis, not the one after N.
    """
    for role in ("x0", "y0"):
        if (names := images_of(node, last).get(node.rank(role))) is not None:
            node.name(role, names)


def pool_names(node: Naming, last: bool = False) -> None:
    """Name the axes of input 0 and output 0 as an image's; N and C are the same dims in both.

    ``last`` is True if channels are the last axis.
    """
    image_names(node, last)
    channels = 1 if images_of(node, last) is IMAGES else -1
    for axis in (0, channels):
        node.same("x0", axis, "y0", axis)


def read_image(node: NodeReader, last: bool = False) -> VTensor:
    """Return the first input with an image's dim names.

    The node is refused if the image does not have one to three spatial dims.

    Args:
        node: the ONNX node.
        last: True if channels are the last axis, not the one after N.
    """
    names = images_of(node, last).get(len(node.input(0).dims))
    if names is None:
        raise node.refuse(f"{len(node.input(0).dims) - 2} spatial dims; one to three are taken")
    return node.input(0, names)


def _merged_pads(match: Match) -> dict[str, Sizes] | None:
    """Return the pads of a window and of the Pad before it, added up, under the key ``together``.

    None (the rule does not apply) if the Pad has a negative pad, or one along a dim that is not
    spatial.
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
    """Register a rewrite rule: an operator that slides a window takes over the pads of a Pad.

    The rule replaces the operator and the Pad before it by the operator with larger pads.

    Args:
        name: the operator.
        operands: its operands after the image, as text in the rule, such as ``, w``.
        parameters: its parameters but the pads, as text in the rule.
        image: the dims of the image in the rule's example.
        pad: parameters of the Pad that are not defaults, as text in the rule, such as the value.
        own: the parameters of the operator that replaces both; empty means ``parameters``.
        example: further values of the rule's example, by name.
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
