"""Two-dimensional convolution."""

from __future__ import annotations

from libdesc import guideline, invoker, onednn
from libdesc.numpy.arrays import NUMBERS, convolution
from ops._windows import counts, read_window
from ptensor import PTensor, lib_tagger
from vtensor.operators import (
    Context,
    Naming,
    NodeReader,
    Pads,
    Pair,
    Spelling,
    info_of,
    operator,
    param,
)
from vtensor.tensor import VTensor


def _names(node: Naming) -> None:
    node.name("x0", "N C H W")
    node.name("x1", "O I h w")
    node.name("x2", "C")
    node.name("y0", "N C H W")
    node.same("x0", 0, "y0", 0)


def _read(node: NodeReader) -> VTensor:
    if len(node.input(0).dims) != 4 or len(node.input(1).dims) != 4:
        raise node.refuse("only convolutions over two spatial dims are taken")
    x, w = node.input(0, "N C H W"), node.input(1, "O I h w")
    kernel = (w.size("h"), w.size("w"))
    if tuple(node.attribute("kernel_shape") or kernel) != kernel:
        raise node.refuse(f"kernel_shape {node.attribute('kernel_shape')}, the kernel is {kernel}")
    group = int(node.attribute("group", 1))
    if group < 1 or w.size("O") % group or x.size("C") != w.size("I") * group:
        what = f"{x.size('C')} channels, {w.size('O')} kernels of {w.size('I')}"
        raise node.refuse(f"group {group} with {what}")
    window = read_window(node, x, kernel)
    if group > 1:
        groups = {"G": group, "O": w.size("O") // group, **{d: w.size(d) for d in "Ihw"}}
        w = node.reshape(w, groups)
    if group > 1 and w.size("I") == 1:
        y = node.add(_operator("DepthwiseConv2D")(**window), x, w)
    else:
        y = node.add(Conv2D(**window, group=group), x, w)
    return node.add(_operator("BiasAdd")(), y, node.input(2, "C")) if node.has(2) else y


def _operator(name: str) -> type:
    from vtensor.operators import OPERATORS

    return OPERATORS[name].cls
