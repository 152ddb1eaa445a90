"""Windows over an image: their number, and how ONNX writes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from vtensor.errors import DimError
from vtensor.operators import Naming, NodeReader, Pads, Pair
from vtensor.tensor import VTensor


class Windowed(Protocol):
    """The parameters of an operator that slides a window over H and W."""

    @property
    def strides(self) -> Pair:
        """Step of the window, in elements."""

    @property
    def pads(self) -> Pads:
        """Elements added at begin H, begin W, end H, end W."""

    @property
    def dilations(self) -> Pair:
        """Distance of neighbours in the window, in elements."""


def count(
    dim: str, size: int, kernel: int, stride: int, pads: Pair, dilation: int, ceil: bool = False
) -> int:
    """How many windows fit along a dim.

    Args:
        dim: its name, for the error.
        size, kernel: of the image and of the window, in elements.
        pads: elements added at the beginning and at the end.
        ceil: one more window where elements are left over, if it begins before the end's pads.

    Raises:
        DimError: the window is larger than the padded image.

    >>> count("H", 224, 7, 2, (3, 3), 1)
    112
    """
    reach = dilation * (kernel - 1) + 1
    room = size + sum(pads) - reach
    if kernel < 1 or room < 0:
        raise DimError(f"a window of {reach} along {dim} does not fit into {size} padded by {pads}")
    if not ceil:
        return room // stride + 1
    windows = -(-room // stride) + 1
    return windows - ((windows - 1) * stride >= size + pads[0])


def counts(x: VTensor, kernel: Sequence[int], op: Windowed, ceil: bool = False) -> dict[str, int]:
    """How many windows fit along H and along W."""
    return {
        dim: count(
            dim,
            x.size(dim),
            kernel[i],
            op.strides[i],
            (op.pads[i], op.pads[i + 2]),
            op.dilations[i],
            ceil,
        )
        for i, dim in enumerate("HW")
    }


def refuse_empty(x: VTensor, kernel: Sequence[int], op: Windowed, out: Mapping[str, int]) -> None:
    """See that every window holds an element of the image: the maximum of none is no number.

    Raises:
        DimError: one holds pads alone.
    """
    for i, dim in enumerate("HW"):
        size, reach = x.size(dim), op.dilations[i] * (kernel[i] - 1) + 1
        if max(op.pads[i], op.pads[i + 2]) >= reach:
            raise DimError(f"pads {op.pads} along {dim} are no fewer than the {reach} of a window")
        for window in range(out[dim] if op.dilations[i] > 1 else 0):
            start = window * op.strides[i] - op.pads[i]
            if not any(0 <= start + j * op.dilations[i] < size for j in range(kernel[i])):
                raise DimError(f"window {window} along {dim} holds nothing but pads")


def fitted_pads(x: VTensor, out: VTensor, kernel: Sequence[int], op: Windowed) -> Pads:
    """The pads with which the last window ends inside: ``ceil`` may let it reach further."""
    ends = []
    for i, dim in enumerate("HW"):
        reach = op.dilations[i] * (kernel[i] - 1) + 1
        last = (out.size(dim) - 1) * op.strides[i] + reach
        ends.append(max(op.pads[i + 2], last - x.size(dim) - op.pads[i]))
    return (op.pads[0], op.pads[1], ends[0], ends[1])


def read_window(node: NodeReader, x: VTensor, kernel: Sequence[int]) -> dict[str, Any]:
    """The attributes of an ONNX node that slides a window: ``strides``, ``pads``, ``dilations``.

    Raises:
        VTensorError: an attribute is not what ONNX allows, or the pads are negative.
    """
    strides = tuple(node.attribute("strides") or (1, 1))
    dilations = tuple(node.attribute("dilations") or (1, 1))
    pads = tuple(node.attribute("pads") or (0, 0, 0, 0))
    if (len(strides), len(dilations), len(pads), len(kernel)) != (2, 2, 4, 2):
        raise node.refuse(f"strides {strides}, dilations {dilations}, pads {pads} of a 2-D window")
    auto = node.attribute("auto_pad") or "NOTSET"
    if auto == "VALID":
        pads = (0, 0, 0, 0)
    elif auto in ("SAME_UPPER", "SAME_LOWER"):
        pads = _same_pads(x, kernel, strides, dilations, upper=auto == "SAME_UPPER")
    elif auto != "NOTSET":
        raise node.refuse(f"auto_pad {auto!r}")
    if min(pads) < 0:
        raise node.refuse(f"negative pads {pads}")
    return {"strides": strides, "pads": pads, "dilations": dilations}


def _same_pads(
    x: VTensor, kernel: Sequence[int], strides: Pair, dilations: Pair, upper: bool
) -> Pads:
    """As many windows as the image has strides; the odd pad goes to the end, or the beginning."""
    sizes = list(x.dims.values())[2:]
    begins, ends = [], []
    for size, k, stride, dilation in zip(sizes, kernel, strides, dilations, strict=True):
        reach = dilation * (k - 1) + 1
        total = max((-(-size // stride) - 1) * stride + reach - size, 0)
        begins.append(total // 2 if upper else total - total // 2)
        ends.append(total - begins[-1])
    return (begins[0], begins[1], ends[0], ends[1])


def pool_names(node: Naming) -> None:
    """N and C go through, H and W are what windows are counted over."""
    node.name("x0", "N C H W")
    node.name("y0", "N C H W")
    node.same("x0", 0, "y0", 0)
    node.same("x0", 1, "y0", 1)


def read_image(node: NodeReader) -> VTensor:
    """The first input as an image, or the refusal of another rank."""
    spatial = len(node.input(0).dims) - 2
    if spatial != 2:
        raise node.refuse(f"{spatial} spatial dims; only two are taken")
    return node.input(0, "N C H W")


def read_pool(node: NodeReader, x: VTensor) -> dict[str, Any]:
    """The parameters of an ONNX pooling node."""
    kernel = tuple(node.attribute("kernel_shape") or ())
    ceil = bool(node.attribute("ceil_mode", 0))
    return {"kernel_shape": kernel, **read_window(node, x, kernel), "ceil_mode": ceil}


def read_whole(node: NodeReader, x: VTensor) -> Pair:
    """The window of a pool over the whole image."""
    if x.size("H") < 1 or x.size("W") < 1:
        raise node.refuse("the image has no elements")
    return x.size("H"), x.size("W")
