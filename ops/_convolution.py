"""What convolutions share: how ONNX writes them, and what passes may know of them."""

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
    """How ONNX's positions of a kernel are called, by rank."""
    return {rank: first + names.removeprefix("N C").lower() for rank, names in IMAGES.items()}


#: How those of a convolution's weights are called.
KERNELS = _kernels("O I")


def convolution_names(
    node: Naming, weights: str = "x1", bias: str = "x2", kernels: dict[int, str] = KERNELS
) -> None:
    """The dims of image and kernel; the roles say which inputs the kernel and the bias are."""
    image_names(node)
    if (kernel := kernels.get(node.rank(weights))) is not None:
        node.name(weights, kernel)
    node.name(bias, "C")
    node.same("x0", 0, "y0", 0)


def kernel_sizes(w: Tensor) -> Sizes:
    """The sizes of a kernel along the spatial dims."""
    return tuple(w.size(dim) for dim in "dhw" if dim in w.dims)


def read_kernel(node: NodeReader, w: VTensor) -> Sizes:
    """The sizes of a kernel, which the node may say once more."""
    kernel = tuple(w.dims.values())[2:]
    if tuple(node.attribute("kernel_shape") or kernel) != kernel:
        raise node.refuse(f"kernel_shape {node.attribute('kernel_shape')}, the kernel is {kernel}")
    return kernel


def read_convolution(node: NodeReader, x: VTensor, w: VTensor) -> VTensor:
    """The convolution that a node's attributes describe, of this image with this kernel."""
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
    """A result, and what an optional input adds to its channels."""
    return node.add(named("BiasAdd")(), y, node.input(index, "C")) if node.has(index) else y


def write_convolution(op_type: str, first: str) -> Write:
    """With the bias that is added to it alone; ``first`` are the kernel's dims but the spatial."""

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
    """How ONNX writes a convolution of any rank.

    Args:
        op_type: ONNX's operator.
        first: the kernel's dims at its first two positions.
        read: adds the operator for an image and a kernel; the bias is added here.
    """
    kernels = _kernels(first)

    def read_all(node: NodeReader) -> VTensor:
        x = read_image(node)
        return with_bias(node, read(node, x, node.input(1, kernels[len(x.dims)])), 2)

    names = partial(convolution_names, kernels=kernels)
    return Spelling(op_type, 1, read_all, names, write=write_convolution(op_type, first))


def cost(_op: object, _x: VTensor, w: VTensor, *rest: VTensor) -> int:
    """A product and a sum for each element of y, the last operand, and each of its kernel."""
    kernel = prod(size for dim, size in w.dims.items() if dim not in "GO")
    return 2 * rest[-1].num_elements * kernel


TRAITS = [Cost(cost), Linear({"w": {"C": "G O"}})]
