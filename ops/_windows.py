"""Windows over an image of one to three spatial dims: their number, and how ONNX writes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any, NamedTuple, Protocol

from ops._writing import parameters
from ops.biasadd import BiasAdd
from ptensor import Layout
from vtensor.errors import DimError
from vtensor.operators import Naming, NodeReader, NodeWriter, Write
from vtensor.tensor import VTensor

Sizes = tuple[int, ...]

#: How ONNX's positions of an image are called, by rank.
IMAGES = {3: "N C W", 4: "N C H W", 5: "N C D H W"}


class Windowed(Protocol):
    """The parameters of an operator that slides a window over the spatial dims."""

    @property
    def strides(self) -> Sizes:
        """Step of the window, in elements; none: 1."""

    @property
    def pads(self) -> Sizes:
        """Elements added at all beginnings, then at all ends; none: 0."""

    @property
    def dilations(self) -> Sizes:
        """Distance of neighbours in the window, in elements; none: 1."""


class Window(NamedTuple):
    """What is slid along one dim, all in elements; ``kernel`` is the number of those it takes."""

    dim: str
    size: int
    kernel: int
    stride: int
    begin: int
    end: int
    dilation: int

    @property
    def reach(self) -> int:
        """How far it spans."""
        return self.dilation * (self.kernel - 1) + 1


def spatial(dims: Iterable[str]) -> tuple[str, ...]:
    """The spatial ones of some dims, in the order in which parameters count them.

    >>> spatial(["W", "H", "C", "N"])
    ('H', 'W')
    """
    have = set(dims)
    return tuple(dim for dim in "DHW" if dim in have)


def image_order(x: VTensor) -> Layout:
    """N, C, then the spatial dims: what the definitions are written for."""
    return Layout.plain(("N", "C", *spatial(x.dims)))


def along(x: VTensor, kernel: Sequence[int], op: Windowed) -> list[Window]:
    """The window along each spatial dim of an image.

    Raises:
        DimError: there are not as many parameters as spatial dims.
    """
    dims = spatial(x.dims)
    rank = len(dims)
    strides, dilations = op.strides or (1,) * rank, op.dilations or (1,) * rank
    pads = op.pads or (0, 0) * rank
    if not len(kernel) == len(strides) == len(dilations) == len(pads) / 2 == rank:
        raise DimError(
            f"kernel {tuple(kernel)}, strides {strides}, dilations {dilations} and pads {pads} are "
            f"not those of {rank} spatial dims ({' '.join(dims)})"
        )
    rows = zip(dims, kernel, strides, pads[:rank], pads[rank:], dilations, strict=True)
    return [Window(dim, x.size(dim), *row) for dim, *row in rows]


def count(window: Window, ceil: bool = False) -> int:
    """How many windows fit along a dim.

    Args:
        window: what is slid there.
        ceil: one more window where elements are left over, if it begins before the end's pads.

    Raises:
        DimError: the window is larger than the padded image.

    >>> count(Window("H", 224, kernel=7, stride=2, begin=3, end=3, dilation=1))
    112
    """
    pads = (window.begin, window.end)
    room = window.size + sum(pads) - window.reach
    if window.kernel < 1 or room < 0:
        raise DimError(
            f"a window of {window.reach} along {window.dim} does not fit into {window.size} "
            f"padded by {pads}"
        )
    if not ceil:
        return room // window.stride + 1
    windows = -(-room // window.stride) + 1
    return windows - ((windows - 1) * window.stride >= window.size + window.begin)


def counts(x: VTensor, kernel: Sequence[int], op: Windowed, ceil: bool = False) -> dict[str, int]:
    """How many windows fit along each spatial dim."""
    return {window.dim: count(window, ceil) for window in along(x, kernel, op)}


def refuse_empty(x: VTensor, kernel: Sequence[int], op: Windowed, out: Mapping[str, int]) -> None:
    """See that every window holds an element of the image: the maximum of none is no number.

    Raises:
        DimError: one holds pads alone.
    """
    for row in along(x, kernel, op):
        if max(row.begin, row.end) >= row.reach:
            raise DimError(
                f"pads {op.pads} along {row.dim} are no fewer than the {row.reach} of a window"
            )
        for window in range(out[row.dim] if row.dilation > 1 else 0):
            start = window * row.stride - row.begin
            if not any(0 <= start + j * row.dilation < row.size for j in range(row.kernel)):
                raise DimError(f"window {window} along {row.dim} holds nothing but pads")


def geometry(
    x: VTensor, out: VTensor, kernel: Sequence[int], op: Windowed
) -> tuple[Sizes, Sizes, Sizes, Sizes]:
    """Kernel, strides, pads and dilations, one a spatial dim (pads two).

    The pads are those with which the last window ends inside: ``ceil`` may let it reach further.
    """
    rows = along(x, kernel, op)
    ends = [
        max(row.end, (out.size(row.dim) - 1) * row.stride + row.reach - row.size - row.begin)
        for row in rows
    ]
    return (
        tuple(row.kernel for row in rows),
        tuple(row.stride for row in rows),
        (*(row.begin for row in rows), *ends),
        tuple(row.dilation for row in rows),
    )


def read_window(node: NodeReader, x: VTensor, kernel: Sequence[int]) -> dict[str, Any]:
    """The attributes of an ONNX node that slides a window: ``strides``, ``pads``, ``dilations``.

    Raises:
        VTensorError: an attribute is not what ONNX allows, or the pads are negative.
    """
    rank = len(spatial(x.dims))
    strides = tuple(node.attribute("strides") or (1,) * rank)
    dilations = tuple(node.attribute("dilations") or (1,) * rank)
    pads = tuple(node.attribute("pads") or (0, 0) * rank)
    if not len(strides) == len(dilations) == len(pads) / 2 == len(kernel) == rank:
        what = f"kernel {tuple(kernel)}, strides {strides}, dilations {dilations}, pads {pads}"
        raise node.refuse(f"{what} of a {rank}-D window")
    auto = node.attribute("auto_pad") or "NOTSET"
    if auto == "VALID":
        pads = (0, 0) * rank
    elif auto in ("SAME_UPPER", "SAME_LOWER"):
        pads = _same_pads(x, kernel, strides, dilations, upper=auto == "SAME_UPPER")
    elif auto != "NOTSET":
        raise node.refuse(f"auto_pad {auto!r}")
    if min(pads) < 0:
        raise node.refuse(f"negative pads {pads}")
    return {"strides": strides, "pads": pads, "dilations": dilations}


def _same_pads(
    x: VTensor, kernel: Sequence[int], strides: Sizes, dilations: Sizes, upper: bool
) -> Sizes:
    """As many windows as the image has strides; the odd pad goes to the end, or the beginning."""
    sizes = [x.size(dim) for dim in spatial(x.dims)]
    begins, ends = [], []
    for size, k, stride, dilation in zip(sizes, kernel, strides, dilations, strict=True):
        reach = dilation * (k - 1) + 1
        total = max((-(-size // max(stride, 1)) - 1) * stride + reach - size, 0)
        begins.append(total // 2 if upper else total - total // 2)
        ends.append(total - begins[-1])
    return (*begins, *ends)


def convolution_cost(_op: object, _x: VTensor, w: VTensor, *rest: VTensor) -> int:
    """A product and a sum for each element of y, the last operand, and each of its kernel."""
    kernel = prod(size for dim, size in w.dims.items() if dim not in "GO")
    return 2 * rest[-1].num_elements * kernel


def picks(op: Any, x: VTensor, w: VTensor) -> tuple[dict[str, int], Any] | None:
    """The elements that a convolution by a single one reads; as ``picks`` of ``operator``."""
    dims = spatial(x.dims)
    if any(op.pads) or any(w.size(dim.lower()) != 1 for dim in dims):
        return None
    return dict(zip(dims, op.strides, strict=True)), replace(op, strides=(1,) * len(dims))


def thins(op: Any, x: VTensor, steps: Mapping[str, int]) -> Any:
    """The window that takes larger steps; as ``thins`` of ``operator``."""
    strides = zip(spatial(x.dims), op.strides, strict=True)
    return replace(op, strides=tuple(stride * steps.get(dim, 1) for dim, stride in strides))


def pool_cost(op: Any, _x: VTensor, y: VTensor, *_indices: VTensor) -> int:
    """An operation for each element of each window."""
    kernel: Sizes = op.kernel_shape
    return y.num_elements * prod(kernel)


def write_image(op_type: str) -> Write:
    """One image to another; the parameters are the attributes."""

    def write(node: NodeWriter, op: Any) -> None:
        [x] = node.inputs
        order = image_order(x).dims
        node.emit(op_type, node.operand(x, order), order=order, **parameters(op))

    return write


def write_convolution(node: NodeWriter, op: Any) -> None:
    """A convolution of any rank, with the bias that is added to it alone."""
    x, w = node.inputs
    if w.dims.get("G") == 0:
        raise node.refuse("no groups: ONNX has at least one")
    order = image_order(x).dims
    kernel = ["G*O", "I", *(dim for dim in "dhw" if dim in w.dims)]
    bias = node.follower(BiasAdd, lambda b: tuple(b.dims) == ("C",))
    operands = [node.operand(x, order), node.operand(w, kernel)]
    operands += [] if bias is None else [node.operand(bias)]
    attributes = {"group": w.dims.get("G", 1), **parameters(op)}
    node.emit("Conv", *operands, order=order, **attributes)


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


def read_pool(node: NodeReader, x: VTensor) -> dict[str, Any]:
    """The parameters of an ONNX pooling node."""
    kernel = tuple(node.attribute("kernel_shape") or ())
    ceil = bool(node.attribute("ceil_mode", 0))
    return {"kernel_shape": kernel, **read_window(node, x, kernel), "ceil_mode": ceil}


def read_whole(node: NodeReader, x: VTensor) -> Sizes:
    """The window of a pool over the whole image."""
    whole = tuple(x.size(dim) for dim in spatial(x.dims))
    if min(whole) < 1:
        raise node.refuse("the image has no elements")
    return whole
