"""Integers minus their zero point, and ONNX's integer products and convolutions.

A product is summed exactly, in 32 bits; scaling then rounds once.
"""

from __future__ import annotations

from collections.abc import Sequence

from ops._convolution import KERNELS, convolution_names, read_convolution
from ops._elementwise import elementwise, pointwise
from ops._products import product_names, read_factors
from ops._windows import read_image
from vtensor.language.dims import broadcast
from vtensor.language.dtype import NARROW_FLOATS, numpy_dtype
from vtensor.operators import Context, Naming, NodeReader, Spelling, named, param
from vtensor.tensor import VTensor


def _parameter(node: NodeReader, index: int, dims: Sequence[str], over: str = "") -> VTensor:
    """Return input ``index``, a scale or a zero point, with named dims.

    A single element gets no dims. A vector is along the last of ``dims`` that is not ``over``. Any
    other input has all of ``dims``; ``over``, along which it must have size 1, is dropped.

    Args:
        node, index: the node and the input's index.
        dims: the dims of the factor that the input belongs to.
        over: the dim over which the product sums; empty if there is none.
    """
    parameter = node.input(index)
    others = [dim for dim in dims if dim != over]
    if parameter.num_elements == 1:
        return node.reshape(parameter, {})
    if parameter.ndimensions() == 1 and others:
        return node.input(index, others[-1])
    parameter = node.input(index, " ".join(dims))
    if over and parameter.size(over) != 1:
        raise node.refuse(f"input {index} changes along {over}, over which the product sums")
    return node.reshape(parameter, {dim: parameter.size(dim) for dim in others})


def _centered(
    node: NodeReader, x: VTensor, zero: int, dims: Sequence[str], over: str = "", to: str = "s32"
) -> VTensor:
    if not node.has(zero):
        return node.add(named("Cast")(to), x)
    return node.add(Centered(to), x, _parameter(node, zero, dims, over))


def _scaled(node: NodeReader, exact: VTensor, scales: Sequence[VTensor], target: int) -> VTensor:
    """Scale an exact product, quantize it, and return the result.

    Args:
        node: the node.
        exact: the product, not yet scaled.
        scales: the scales of the factors.
        target: the index of the result's scale among the inputs; its zero point comes next.
    """
    result_scale, *factors = (
        scale if scale.dtype == "f32" else node.add(named("Cast")("f32"), scale)
        for scale in (_parameter(node, target, ()), *scales)
    )
    number = node.add(named("DequantizeLinear")("f32"), exact, node.add(named("Mul")(), *factors))
    zero = _parameter(node, target + 1, ())
    return node.add(named("QuantizeLinear")(zero.dtype), number, result_scale, zero)


def _read_product(node: NodeReader) -> VTensor:
    a, b, over = read_factors(node)
    left = _centered(node, a, 2, tuple(a.dims), over)
    right = _centered(node, b, 3, tuple(b.dims), over)
    return node.add(named("MatMul")(over), left, right)


def _scaled_product_names(node: Naming) -> None:
    product_names(node, "x3")


def _read_scaled_product(node: NodeReader) -> VTensor:
    a, b, over = read_factors(node, second=3)
    left, right = tuple(a.dims), tuple(b.dims)
    to = "f32" if {a.dtype, b.dtype} & set(NARROW_FLOATS) else "s32"
    exact = node.add(
        named("MatMul")(over),
        _centered(node, a, 2, left, over, to),
        _centered(node, b, 5, right, over, to),
    )
    scales = _parameter(node, 1, left, over), _parameter(node, 4, right, over)
    return _scaled(node, exact, scales, 6)


def _read_convolution(node: NodeReader) -> VTensor:
    x = read_image(node)
    w = node.input(1, KERNELS[x.ndimensions()])
    return read_convolution(node, _centered(node, x, 2, ()), _centered(node, w, 3, ("O",)))


def _scaled_convolution_names(node: Naming) -> None:
    convolution_names(node, "x3", "x8")


def _read_scaled_convolution(node: NodeReader) -> VTensor:
    x = read_image(node)
    w = node.input(3, KERNELS[x.ndimensions()])
    exact = read_convolution(node, _centered(node, x, 2, ()), _centered(node, w, 5, ("O",)))
    if node.has(8):
        exact = node.add(named("BiasAdd")(), exact, node.input(8, "C"))
    return _scaled(node, exact, (_parameter(node, 1, ()), _parameter(node, 4, ("C",))), 6)


def _fits(op: Centered, x: VTensor, zero: VTensor) -> bool:
    return broadcast(x.dims, zero.dims) == x.dims


@elementwise(
    "Centered",
    [
        Spelling("MatMulInteger", 10, _read_product, product_names),
        Spelling("QLinearMatMul", 10, _read_scaled_product, _scaled_product_names),
        Spelling("ConvInteger", 10, _read_convolution, convolution_names),
        Spelling("QLinearConv", 10, _read_scaled_convolution, _scaled_convolution_names),
    ],
    lambda op, x, zero: x.astype(numpy_dtype(op.to)) - zero.astype(numpy_dtype(op.to)),
    {},
    expression=lambda op, x, zero: x.to(op.to) - zero.to(op.to),
    holds=[(_fits, "zero must have dims of x, in their sizes or of size 1")],
    inplace=[],  # the output has another element type
)
class Centered:
    """Subtract the zero point in a wider type, without overflow: y = x - zero.

    Dims:
        x, y: any, the same    zero: some of x's, of the same sizes or of size 1
    Args:
        to: y's element type.
    Raises:
        DimError: zero has a dim that x lacks, or another size than x and 1.

    >>> from vtensor.operators import Context
    >>> x, zero = VTensor("u8", {"N": 2, "C": 3}), VTensor("u8", {})
    >>> Centered().compute(Context(), x, zero).summary()
    's32 N=2 C=3'

    Source: ONNX operators MatMulInteger and ConvInteger, opset 10, QLinearMatMul, opset 21, and
    QLinearConv, opset 10, whose factors it makes.
    """

    to: str = param(default="s32", choices=("s32", "f32"))

    def compute(self, ctx: Context, x: VTensor, zero: VTensor) -> VTensor:
        return pointwise(self, ctx, x, zero)
