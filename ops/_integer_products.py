"""ONNX's products and convolutions of integers: how they are read and written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from libdesc.groups import Groups
from ops._codes import BYTES, check_bytes, check_code, parameter
from ops._convolution import KERNELS, convolution_names, grouped, read_groups, with_bias
from ops._names import broadcast_input, fresh, last_names
from ops._products import product_names, read_factors
from ops._windows import image_order, read_image
from ops._writing import parameters
from vtensor.language.dtype import numpy_dtype
from vtensor.operators import Naming, NodeReader, NodeWriter, named
from vtensor.tensor import VTensor


def _zeros(node: NodeReader, rows: Sequence[tuple[int, VTensor, str]]) -> list[VTensor]:
    """Return the zero points of both factors of a product; none if the node has none.

    Args:
        node: the product as an ONNX node.
        rows: for each factor, the index of its zero point among the node's inputs, the factor, and
            the dim over which the product sums.
    """
    if not any(node.has(index) for index, _, _ in rows):
        return []
    zeros = []
    for index, factor, over in rows:
        if node.has(index):
            check_code(node, index, factor.dtype)
            dims = ("O",) if "O" in factor.dims else tuple(factor.dims)
            zeros.append(parameter(node, index, dims, over))
        else:
            zeros.append(node.made(np.zeros((), numpy_dtype(factor.dtype)), ()))
    return zeros


def _scale(node: NodeReader, index: int, dims: Sequence[str] = (), over: str = "") -> VTensor:
    """Return the scale in a node's input ``index`` in f32; see ``parameter``."""
    check_code(node, index)
    scale = parameter(node, index, dims, over)
    return scale if scale.dtype == "f32" else node.ahead(named("Cast")("f32"), scale)


def _requantize(node: NodeReader, acc: VTensor, scale: VTensor, target: int) -> VTensor:
    """Add the scaling of exact sums to integers, and return these.

    Args:
        node: the ONNX node.
        acc: the sums.
        scale: the number that 1 of the sums stands for.
        target: the index of the result's scale among the node's inputs; its zero point is next.
    """
    multiplier = node.ahead(named("Div")(), scale, _scale(node, target))
    check_bytes(node, target + 1)
    zero = parameter(node, target + 1, ())
    return node.add(named("Requantize")(zero.dtype), acc, multiplier, zero)


def _product(
    node: NodeReader, a: VTensor, b: VTensor, over: str, zeros: tuple[int, int]
) -> VTensor:
    """Add the exact product of two factors, and return it.

    Args:
        node: the ONNX node.
        a, b, over: the factors, and the dim to sum over.
        zeros: the indices of their zero points among the node's inputs.
    """
    rows = [(zeros[0], a, over), (zeros[1], b, over)]
    return node.add(named("MatMulInteger")(over), a, b, *_zeros(node, rows))


def read_product(node: NodeReader) -> VTensor:
    check_bytes(node, 0, 1)
    return _product(node, *read_factors(node), (2, 3))


def write_product(node: NodeWriter, op: Any) -> None:
    a, b, *zeros = node.inputs
    (batch, rows, columns, _), over = Groups.of(a, b, op.over), op.over
    if max(len(rows), len(columns)) > 1 or (batch and len(rows) + len(columns) < 2):
        raise node.refuse("ONNX multiplies stacks of matrices, of one dim of rows and of columns")
    left, right, product = (order.dims for order in Groups.of(a, b, over).orders)
    orders = [[dim for dim in dims if dim != over] for dims in (left, right)]
    told = (node.operand(zero, own) for zero, own in zip(zeros, orders, strict=False))
    node.emit("MatMulInteger", node.operand(a, left), node.operand(b, right), *told, order=product)


def _with_bias(node: NodeReader, y: VTensor, index: int) -> VTensor:
    """Add to ``y`` the bias in input ``index``, if there is one, and return the sum."""
    if not node.has(index):
        return y
    bias = broadcast_input(node, index)
    whole = all(y.size(dim) == size for dim, size in bias.dims.items())
    return node.add(named("BiasAdd" if whole else "Add")(), y, bias)


def read_to_float(node: NodeReader) -> VTensor:
    check_bytes(node, 0, 1)
    a, b, over = read_factors(node)
    rows = (2, tuple(a.dims), over), (3, tuple(b.dims), over)
    scale = node.ahead(named("Mul")(), *(_scale(node, *row) for row in rows))
    acc = _product(node, a, b, over, (4, 5))
    to = node.input(2).dtype
    return _with_bias(node, node.add(named("DequantizeLinear")(to), acc, scale), 6)


def read_dynamic(node: NodeReader) -> VTensor:
    check_bytes(node, 1)
    x, b, over = read_factors(node)
    quantized: Any = node.add(named("DynamicQuantizeLinear")(), x)
    a, a_scale, a_zero = quantized
    scale = node.add(named("Mul")(), a_scale, _scale(node, 2, tuple(b.dims), over))
    zeros = _zeros(node, [(3, b, over)]) or [node.made(np.zeros((), numpy_dtype(b.dtype)), ())]
    acc = node.add(named("MatMulInteger")(over), a, b, a_zero, *zeros)
    return _with_bias(node, node.add(named("DequantizeLinear")("f32"), acc, scale), 4)


def gemm_names(node: Naming) -> None:
    left, right = (bool(node.attribute(name, 0)) for name in ("transA", "transB"))
    node.same("x0", not left, "x3", right)
    node.same("x0", left, "y0", 0)
    node.same("x3", not right, "y0", 1)
    last_names(node, "x6")


def read_gemm(node: NodeReader) -> VTensor:
    if len(node.input(0).dims) != 2 or len(node.input(3).dims) != 2:
        raise node.refuse("both factors must be matrices")
    check_bytes(node, 0, 3)
    (rows, columns), alpha = node.output_names(), float(node.attribute("alpha", 1.0))
    left, right = (bool(node.attribute(name, 0)) for name in ("transA", "transB"))
    over = fresh(list(node.input(0).dims)[not left], (rows, columns))
    a = node.input(0, f"{over} {rows}" if left else f"{rows} {over}")
    b = node.input(3, f"{columns} {over}" if right else f"{over} {columns}")
    acc = _with_bias(node, _product(node, a, b, over, (2, 5)), 6)
    scales = _scale(node, 1), _scale(node, 4, (columns,))
    scale = node.ahead(named("Mul")(), *scales)
    if alpha != 1:
        scale = node.ahead(named("Mul")(), node.made(np.array(alpha, np.float32), ()), scale)
    if not node.has(7):
        return node.add(named("DequantizeLinear")("f32"), acc, scale)
    return _requantize(node, acc, scale, 7)


def scaled_product_names(node: Naming) -> None:
    product_names(node, "x3")


def read_scaled_product(node: NodeReader) -> VTensor:
    a, b, over = read_factors(node, second=3)
    rows = (1, tuple(a.dims), over), (4, tuple(b.dims), over)
    scales = [_scale(node, *row) for row in rows]
    if {a.dtype, b.dtype} <= {*BYTES}:
        acc = _product(node, a, b, over, (2, 5))
        return _requantize(node, acc, node.ahead(named("Mul")(), *scales), 6)
    zeros = (parameter(node, i + 1, dims, over) for i, dims, over in rows)
    factors = zip((a, b), scales, zeros, strict=True)
    numbers = [node.add(named("DequantizeLinear")("f32"), *factor) for factor in factors]
    y, zero = node.add(named("MatMul")(over), *numbers), parameter(node, 7, ())
    return node.add(named("QuantizeLinear")(zero.dtype), y, _scale(node, 6), zero)


def _convolved(node: NodeReader, second: int, zeros: tuple[int, int]) -> VTensor:
    """Add the exact convolution of the node's input 0 with the kernel in input ``second``.

    ``zeros`` are the indices of their zero points among the node's inputs.
    """
    check_bytes(node, 0, second)
    x = read_image(node)
    w = node.input(second, KERNELS[x.ndimensions()])
    by = _zeros(node, [(zeros[0], x, ""), (zeros[1], w, "")])
    window = read_groups(node, x, w)
    if (group := window["group"]) > 1:
        w, *by = (grouped(node, v, group) if "O" in v.dims else v for v in (w, *by))
    return node.add(named("ConvInteger")(**window), x, w, *by)


def read_conv(node: NodeReader) -> VTensor:
    return _convolved(node, 1, (2, 3))


def write_conv(node: NodeWriter, op: Any) -> None:
    x, w, *zeros = node.inputs
    order = image_order(x).dims
    kernel = [*["G*O", "I"], *(dim for dim in "dhw" if dim in w.dims)]
    told = (node.operand(zero, ["G*O"] if zero.dims else None) for zero in zeros)
    operands = (node.operand(x, order), node.operand(w, kernel), *told)
    node.emit("ConvInteger", *operands, order=order, **parameters(op))


def scaled_conv_names(node: Naming) -> None:
    convolution_names(node, "x3", "x8")


def read_scaled_conv(node: NodeReader) -> VTensor:
    acc = with_bias(node, _convolved(node, 3, (2, 5)), 8)
    scale = node.ahead(named("Mul")(), _scale(node, 1), _scale(node, 4, ("C",)))
    return _requantize(node, acc, scale, 6)
