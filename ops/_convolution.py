"""Shared parts of convolutions: their ONNX spelling, cost and traits."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

from ops._sliding import Sizes, Tensor
from ops._windows import IMAGES, image_names, image_order, read_image, read_window
from ops._writing import parameters
from vtensor.operators import Cost, Linear, Naming, NodeReader, NodeWriter, Spelling, Write, named
from vtensor.tensor import VTensor

Read = Callable[[NodeReader, VTensor, VTensor], VTensor]


def _kernels(first: str) -> dict[int, str]:
    """Return a kernel's dim names in ONNX's order of axes, by the number of axes.

    ``first`` has the names of the two dims before the spatial ones, such as ``O I``.
    """
    return {rank: first + names.removeprefix("N C").lower() for rank, names in IMAGES.items()}


#: The dim names of a convolution's kernel in ONNX's order of axes, by the number of axes.
KERNELS = _kernels("O I")


def convolution_names(
    node: Naming, weights: str = "x1", bias: str = "x2", kernels: dict[int, str] = KERNELS
) -> None:
    """Name the dims of a convolution's image, kernel, bias and output.

    Args:
        node: the node, whose first input is the image.
        weights, bias: the roles of the kernel and of the bias, such as ``x1`` for input 1.
        kernels: the kernel's dim names, by the number of its axes.
    """
    image_names(node)
    if (kernel := kernels.get(node.rank(weights))) is not None:
        node.name(weights, kernel)
    node.name(bias, "C")
    node.same("x0", 0, "y0", 0)


def kernel_sizes(w: Tensor) -> Sizes:
    """Return the sizes of the kernel ``w`` along its spatial dims, in the order d, h, w."""
    return tuple(w.size(dim) for dim in "dhw" if dim in w.dims)


def read_kernel(node: NodeReader, w: VTensor) -> Sizes:
    """Return the spatial sizes of the kernel ``w``; refuse the node if its kernel_shape differs."""
    kernel = tuple(w.dims.values())[2:]
    if tuple(node.attribute("kernel_shape") or kernel) != kernel:
        raise node.refuse(f"kernel_shape {node.attribute('kernel_shape')}, the kernel is {kernel}")
    return kernel


def read_convolution(node: NodeReader, x: VTensor, w: VTensor) -> VTensor:
    """Add to the graph the convolution of image ``x`` with kernel ``w``, and return its output.

    The node's attributes give the window and the groups. The node is refused if sizes do not fit.
    """
    kernel, group = read_kernel(node, w), int(node.attribute("group", 1))
    if group < 1 or w.size("O") % group or x.size("C") != w.size("I") * group:
        what = f"{x.size('C')} channels, {w.size('O')} kernels of {w.size('I')}"
        raise node.refuse(f"group {group} with {what}")
    window = read_window(node, x, kernel)
    op = named(f"Conv{len(kernel)}D")(**window, group=group)
    if group > 1:
        w = node.reshape(w, {"G": group, **w.dims, "O": w.size("O") // group})
        if len(kernel) == 2 and w.size("I") == 1:
            op = named("DepthwiseConv2D")(**window)
    return node.add(op, x, w)


def with_bias(node: NodeReader, y: VTensor, index: int) -> VTensor:
    """Return ``y`` plus the bias along C, input ``index``; ``y`` itself if the node has no bias."""
    return node.add(named("BiasAdd")(), y, node.input(index, "C")) if node.has(index) else y


def write_convolution(op_type: str, first: str) -> Write:
    """Return a function that writes a convolution and a BiasAdd after it as one ONNX node.

    Args:
        op_type: the ONNX operator.
        first: the names of the kernel's two dims before the spatial ones, in ONNX's order.
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
    """Return the ONNX spelling of a convolution of any rank.

    Args:
        op_type: the ONNX operator.
        first: the names of the kernel's two dims before the spatial ones, in ONNX's order.
        read: adds the operator on an image and a kernel, without the bias, and returns its output.
    """
    kernels = _kernels(first)

    def read_all(node: NodeReader) -> VTensor:
        x = read_image(node)
        return with_bias(node, read(node, x, node.input(1, kernels[len(x.dims)])), 2)

    names = partial(convolution_names, kernels=kernels)
    return Spelling(op_type, 1, read_all, names, write=write_convolution(op_type, first))


def cost(_op: object, _x: VTensor, w: VTensor, *more: VTensor) -> int:
    """Return the floating-point operations of a convolution.

    There are two for each element of y, the last of ``more``, and each element of one output
    channel's kernel.
    """
    kernel = prod(size for dim, size in w.dims.items() if dim not in "GO")
    return 2 * more[-1].num_elements * kernel


TRAITS = [Cost(cost), Linear({"w": {"C": "G O"}})]
