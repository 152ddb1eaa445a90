"""Images of one to three spatial dims, and how ONNX writes windows over them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from libdesc import rewrite
from ops._sliding import Sizes, spatial
from ops._writing import parameters
from ptensor import Layout
from vtensor.operators import Match, Naming, NodeReader, NodeWriter, Write
from vtensor.tensor import VTensor

#: How ONNX's positions of an image are called, by rank.
IMAGES = {3: "N C W", 4: "N C H W", 5: "N C D H W"}


def in_order(names: str) -> Callable[[VTensor], Layout]:
    """Of these dims, those that an operand has, in this order."""
    return lambda x: Layout.plain(dim for dim in names.split() if dim in x.dims)


#: N, C, then the spatial dims: what the definitions are written for.
image_order = in_order("N C D H W")


def window_attributes(
    node: NodeReader, kernel: Sequence[int], rank: int, **more: int
) -> tuple[dict[str, Sizes], str]:
    """The ``strides``, ``pads`` and ``dilations`` of an ONNX node, and its ``auto_pad``.

    Args:
        node: slides a window.
        kernel: the window's sizes.
        rank: number of spatial dims.
        more: other attributes of one number a dim, and the number that is meant where none is.

    Raises:
        VTensorError: an attribute is not what ONNX allows.
    """
    given = {"strides": 1, "pads": 0, "dilations": 1, **more}
    lengths = {name: 2 * rank if name == "pads" else rank for name in given}
    window = {
        name: tuple(node.attribute(name) or [number] * lengths[name])
        for name, number in given.items()
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
    """Pads at all beginnings, then at all ends; what is odd goes where ``auto_pad`` says."""
    less = [total // 2 for total in totals]
    more = [total - half for total, half in zip(totals, less, strict=True)]
    return (*less, *more) if auto == "SAME_UPPER" else (*more, *less)


def read_window(node: NodeReader, x: VTensor, kernel: Sequence[int]) -> dict[str, Any]:
    """The attributes of an ONNX node that slides a window: ``strides``, ``pads``, ``dilations``.

    Raises:
        VTensorError: an attribute is not what ONNX allows, or the pads are negative.
    """
    dims = spatial(x.dims)
    window, auto = window_attributes(node, kernel, len(dims))
    if auto.startswith("SAME"):  # as many windows as the image has strides
        rows = zip(dims, kernel, window["strides"], window["dilations"], strict=True)
        sizes = ((x.size(dim), max(s, 1), s, d * (k - 1) + 1) for dim, k, s, d in rows)
        totals = [max((-(-n // at) - 1) * s + reach - n, 0) for n, at, s, reach in sizes]
        window["pads"] = halved(totals, auto)
    if min(window["pads"]) < 0:
        raise node.refuse(f"negative pads {window['pads']}")
    return window


def write_image(op_type: str, **renamed: str) -> Write:
    """One image to another; the parameters are the attributes, or others by these names."""

    def write(node: NodeWriter, op: Any) -> None:
        [x] = node.inputs
        order = image_order(x).dims
        attributes = {renamed.get(name, name): given for name, given in parameters(op).items()}
        node.emit(op_type, node.operand(x, order), order=order, **attributes)

    return write


def image_names(node: Naming) -> None:
    """The first input and the output are images."""
    for role in ("x0", "y0"):
        if (names := IMAGES.get(node.rank(role))) is not None:
            node.name(role, names)


def pool_names(node: Naming) -> None:
    """N and C go through, the spatial dims are what windows are counted over."""
    image_names(node)
    node.same("x0", 0, "y0", 0)
    node.same("x0", 1, "y0", 1)


def read_image(node: NodeReader) -> VTensor:
    """The first input as an image, or the refusal of another rank."""
    names = IMAGES.get(len(node.input(0).dims))
    if names is None:
        raise node.refuse(f"{len(node.input(0).dims) - 2} spatial dims; one to three are taken")
    return node.input(0, names)


def _together(match: Match) -> dict[str, Sizes] | None:
    """The pads of a window, and those that were put around its image before."""
    dims, axes, more, own = spatial(match["x"].dims), match["axes"], match["more"], match["pads"]
    own = own or (0, 0) * len(dims)
    if not {*axes} <= {*dims} or min(more, default=0) < 0:
        return None
    around = dict(zip([*axes, *(f"{dim} end" for dim in axes)], more, strict=True))
    places = [*dims, *(f"{dim} end" for dim in dims)]
    return {"together": tuple(a + around.get(at, 0) for a, at in zip(own, places, strict=True))}


def takes_pads(
    name: str,
    operands: str,
    parameters: str,
    image: str,
    pad: str = "",
    own: str = "",
    **example: Any,
) -> None:
    """Register the rule that a window puts around its image itself what was put there before.

    Args:
        name: the operator that slides the window.
        operands: those behind the image.
        parameters: all but its pads, as a rule writes them.
        image: the dims of the image that it is tested on.
        pad: what is put around, where that is not zeros.
        own: parameters that change once the pads are its own.
        example: what else it is tested on.
    """
    axes = tuple(image.split()[2:])
    rewrite(
        f"pad_{name.lower()}",
        "a window over what was put around an image may put it there itself",
        f"{name}(Pad(x, axes=axes, pads=more{pad}){operands}, pads=pads, {parameters})",
        f"{name}(x{operands}, pads=together, {own or parameters})",
        given=_together,
        example={"x": image, "axes": axes, "more": (1, 0) * len(axes), **example},
    )
