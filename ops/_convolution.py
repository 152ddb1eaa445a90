"""Shared parts of convolutions: reading them from ONNX, writing them, their cost and traits."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

from ops._codes import MICROSOFT
from ops._microsoft import activated, rank_of_x
from ops._names import same_names
from ops._sliding import Sizes, Tensor
from ops._windows import IMAGES, image_names, image_order, read_image, read_window
from ops._writing import parameters
from vtensor.operators import Cost, Linear, Naming, NodeReader, NodeWriter, Spelling, Write, named
from vtensor.tensor import VTensor

Read = Callable[[NodeReader, VTensor, VTensor], VTensor]


def _kernels(first: str) -> dict[int, str]:
    """Return a table: from the number of a kernel's axes to the names of its dims, as one text.

    The names are in ONNX's order of axes: ``first``, such as ``O I``, then the spatial dims.
    """
    return {rank: first + names.removeprefix("N C").lower() for rank, names in IMAGES.items()}


#: The dim names of a convolution's kernel in ONNX's order of axes, by the number of axes.
KERNELS = _kernels("O I")


def convolution_names(
    node: Naming,
    weights: str = "x1",
    bias: str = "x2",
    kernels: dict[int, str] = KERNELS,
    last: bool = False,
) -> None:
    """Give dim names to the axes of a convolution's image, kernel, bias and output.

    Args:
        node: the convolution as an ONNX node; its input 0 is the image.
        weights: the kernel's role: ``x1`` is input 1.
        bias: the bias's role, likewise.
        kernels: the kernel's dim names, by the number of the kernel's axes.
        last: True if channels are the last axis of the image and the output.
    """
    image_names(node, last)
    if (kernel := kernels.get(node.rank(weights))) is not None:
        node.name(weights, kernel)
    node.name(bias, "C")
    node.same("x0", 0, "y0", 0)


def kernel_sizes(w: Tensor) -> Sizes:
    """Return the sizes of the kernel ``w`` along its spatial dims, in the order d, h, w."""
    return tuple(w.size(dim) for dim in "dhw" if dim in w.dims)


def read_kernel(node: NodeReader, w: VTensor) -> Sizes:
    """Return the sizes of the kernel ``w`` along its spatial dims.

    The node is refused, that is, an error says that it is not supported, if its attribute
    kernel_shape has other sizes.
    """
    kernel = tuple(w.dims.values())[2:]
    if tuple(node.attribute("kernel_shape") or kernel) != kernel:
        raise node.refuse(f"kernel_shape {node.attribute('kernel_shape')}, the kernel is {kernel}")
    return kernel


def read_groups(node: NodeReader, x: VTensor, w: VTensor) -> dict[str, Any]:
    """Return a convolution's strides, pads, dilations and number of groups, by name.

    The node is refused if the channels of the image ``x`` and the kernel ``w`` do not fit the
    groups.
    """
    kernel, group = read_kernel(node, w), int(node.attribute("group", 1))
    if group < 1 or w.size("O") % group or x.size("C") != w.size("I") * group:
        what = f"{x.size('C')} channels, {w.size('O')} kernels of {w.size('I')}"
        raise node.refuse(f"group {group} with {what}")
    return {**read_window(node, x, kernel), "group": group}


def grouped(node: NodeReader, w: VTensor, group: int) -> VTensor:
    """Return a value with a dim O, such as a kernel, whose output channels are in groups G."""
    return node.reshape(w, {"G": group, **w.dims, "O": w.size("O") // group})


def read_convolution(node: NodeReader, x: VTensor, w: VTensor) -> VTensor:
    """Add to the graph the convolution of image ``x`` with kernel ``w``, and return its output.

    The node's attributes give strides, pads, dilations and the number of groups, as for
    ``read_groups``.
    """
    window, rank = read_groups(node, x, w), len(kernel_sizes(w))
    op = named(f"Conv{rank}D")(**window)
    if (group := window.pop("group")) > 1:
        w = grouped(node, w, group)
        if rank == 2 and w.size("I") == 1:
            op = named("DepthwiseConv2D")(**window)
    return node.add(op, x, w)


def with_bias(node: NodeReader, y: VTensor, index: int) -> VTensor:
    """Add to ``y`` the node's input ``index``, a bias along C, and return the sum.

    If the node has no such input, ``y`` itself is returned.
    """
    return node.add(named("BiasAdd")(), y, node.input(index, "C")) if node.has(index) else y


def write_convolution(op_type: str, first: str) -> Write:
    """Return a function that writes a convolution as an ONNX node, with a BiasAdd that follows it.

    Args:
        op_type: the name of the ONNX operator.
        first: the names of the kernel's two dims before the spatial ones, in ONNX's order: ``O I``
            or ``I O``.
    """

    def write(node: NodeWriter, op: Any) -> None:
        x, w = node.inputs
        if w.dims.get("G") == 0:
            raise node.refuse("no groups: ONNX has at least one")
        order = image_order(x).dims
        kernel = [*f"G*{first}".split(), *(dim for dim in "dhw" if dim in w.dims)]
        bias = node.follower(named("BiasAdd"), lambda b: tuple(b.dims) == ("C",))
        operands = [node.operand(x, order), node.operand(w, kernel)]
        operands += [] if bias is None else [node.operand(bias)]
        attributes = {"group": w.dims.get("G", 1), **parameters(op)}
        node.emit(op_type, *operands, order=order, **attributes)

    return write


def spelling(op_type: str, first: str, read: Read) -> Spelling:
    """Return how a convolution over any number of spatial dims is read from and written to ONNX.

    Args:
        op_type: the name of the ONNX operator.
        first: the names of the kernel's two dims before the spatial ones, in ONNX's order: ``O I``
            or ``I O``.
        read: takes an ONNX node, its image and its kernel; adds the convolution without the bias to
            the graph and returns its output.
    """
    kernels = _kernels(first)

    def read_all(node: NodeReader) -> VTensor:
        x = read_image(node)
        return with_bias(node, read(node, x, node.input(1, kernels[len(x.dims)])), 2)

    names = partial(convolution_names, kernels=kernels)
    return Spelling(op_type, 1, read_all, names, write=write_convolution(op_type, first))


def fused(op_type: str, last: bool = False) -> Spelling:
    """Return how ONNX Runtime's convolution with a sum and an activation after it is read.

    Args:
        op_type: the name of ONNX Runtime's operator.
        last: True if channels are the last axis of its images.
    """

    def names(node: Naming) -> None:
        convolution_names(node, last=last)
        same_names(node, "x3")

    def read(node: NodeReader) -> VTensor:
        x = read_image(node, last)
        y = read_convolution(node, x, node.input(1, KERNELS[len(x.dims)]))
        y = with_bias(node, y, 2)
        if node.has(3):
            y = node.add(named("Add")(), y, node.input(3, " ".join(x.dims)))
        return activated(node, y)

    return Spelling(f"{MICROSOFT}{op_type}", 1, read, names, rank=rank_of_x)


def cost(_op: object, _x: VTensor, w: VTensor, *more: VTensor) -> int:
    """Return the number of floating-point operations of a convolution with kernel ``w``.

    Each element of the output, the last of ``more``, takes a product and a sum for each element of
    the kernel of one output channel.
    """
    kernel = prod(size for dim, size in w.dims.items() if dim not in "GO")
    return 2 * more[-1].num_elements * kernel


TRAITS = [Cost(cost), Linear({"w": {"C": "G O"}})]
