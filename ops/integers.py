"""Exact products and convolutions of 8-bit integers, and the scaling of their sums.

A quantized integer stands for (integer - zero point) * scale. A product of such integers is summed
exactly, in 32 bits; scaling then rounds once.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from libdesc import invoker, narrow
from libdesc.groups import Groups
from libdesc.numpy import definition
from libdesc.numpy.arrays import Array, convolution
from libdesc.routine import Routine
from ops._codes import BYTES, MICROSOFT
from ops._convolution import convolution_names, cost, kernel_sizes
from ops._elementwise import FLOATS, elementwise, pointwise
from ops._integer_products import (
    gemm_names,
    read_conv,
    read_dynamic,
    read_gemm,
    read_product,
    read_scaled_conv,
    read_scaled_product,
    read_to_float,
    scaled_conv_names,
    scaled_product_names,
    write_conv,
    write_product,
)
from ops._places import one_output
from ops._products import product_names, product_rank
from ops._sliding import counts
from ops._windows import image_order, in_order
from ptensor import Layout, PTensor
from ptensor.encoding import integer_range
from vtensor.language.dims import broadcast
from vtensor.operators import Context, Cost, Expression, Linear, Spelling, operator, param
from vtensor.tensor import VTensor


def _zeros_fit(op: MatMulInteger, a: VTensor, b: VTensor, *zeros: VTensor) -> bool:
    """Return whether there are two zero points or none, each a scalar or along dims of its factor
    that are not summed over.
    """
    factors = zip((a, b), zeros, strict=False)
    own = ({d: n for d, n in x.dims.items() if d != op.over} for x, _ in factors)
    pairs = zip(own, zeros, strict=False)
    return len(zeros) in (0, 2) and all(zero.dims.items() <= dims.items() for dims, zero in pairs)


@operator(
    "MatMulInteger",
    dims={"a": "*", "b": "*", "zeros": "*", "y": "*"},
    holds=[
        (lambda op, a, b, *_: a.size(op.over) == b.size(op.over), "{op.over} has two sizes"),
        (_zeros_fit, "zero points are along dims of their factors that are not summed over"),
    ],
    traits=[
        Cost(lambda op, a, _b, *more: 2 * more[-1].num_elements * a.size(op.over)),
        Linear({"a": {}, "b": {}}),
    ],
    onnx=[
        Spelling("MatMulInteger", 10, read_product, product_names, write=write_product),
        *(
            Spelling(f"{MICROSOFT}{name}", 1, read, product_names, rank=product_rank)
            for name, read in (
                ("MatMulIntegerToFloat", read_to_float),
                ("DynamicQuantizeMatMul", read_dynamic),
            )
        ),
        Spelling(f"{MICROSOFT}QGemm", 1, read_gemm, gemm_names, rank=lambda _: 2),
    ],
)
class MatMulInteger:
    """Multiply integers exactly and sum over a dim that both operands have.

    y[B, M, N] = sum over K of (a[B, M, K] - a_zero) * (b[B, K, N] - b_zero), wrapping around in 32
    bits; dims as in MatMul.

    Dims:
        a: over and any others    b: over and any others    y: a's others, then b's others
        zeros: none, or both zero points: a's, of no dims or of a's others; b's, likewise
    Args:
        over: the dim to sum over.
    Raises:
        DimError: an operand lacks ``over``, or a dim that both have has two sizes.
    Cost:
        2 * B*M*N*K operations.

    >>> from vtensor.operators import Context
    >>> a, b = VTensor("u8", {"N": 8, "C": 2048}), VTensor("s8", {"O": 1000, "C": 2048})
    >>> MatMulInteger("C").compute(Context(), a, b).summary()
    's32 N=8 O=1000'

    Source: ONNX operator MatMulInteger, opset 10.
    """

    over: str = param()
    to = "s32"

    def compute(self, ctx: Context, a: VTensor, b: VTensor, *zeros: VTensor) -> VTensor:
        left, right = ({d: s for d, s in t.dims.items() if d != self.over} for t in (a, b))
        sizes = broadcast(left, right)
        dims = {dim: sizes[dim] for dim in (*left, *right)}
        return one_output(ctx, self, [a, b, *zeros], dims, "s32")


def _slides(op: ConvInteger, x: VTensor, w: VTensor, *_: VTensor) -> bool:
    """Return whether image and kernel have the same spatial dims, one to three."""
    image, kernel = set(x.dims) - {*"NC"}, set(w.dims) - {*"GOI"}
    return bool(image) and image <= {*"DHW"} and kernel == {dim.lower() for dim in image}


def _centers(op: ConvInteger, x: VTensor, w: VTensor, *zeros: VTensor) -> bool:
    """Return whether there are two zero points or none, the kernel's along its outputs."""
    return not zeros or (
        len(zeros) == 2
        and not zeros[0].dims
        and zeros[1].dims.items() <= {(dim, w.dims.get(dim)) for dim in "GO"}
    )


@operator(
    "ConvInteger",
    dims={"x": "N C *", "w": "G? O I *", "zeros": "*", "y": "N C *"},
    equal=[("w.G", "group"), ("x.C", "w.I * group"), ("y.C", "w.O * group")],
    holds=[
        (_slides, "image and kernel have one to three spatial dims, the same ones"),
        (_centers, "zero points are x's, of no dims, and w's, of no dims or of its outputs"),
    ],
    traits=[Cost(lambda op, x, w, *more: cost(op, x, w, more[-1])), Linear({"w": {"C": "G O"}})],
    onnx=Spelling("ConvInteger", 10, read_conv, convolution_names, write=write_conv),
)
class ConvInteger:
    """Slide a kernel of integers over an image of integers, and sum each window exactly.

    y is the convolution of x - x_zero with w - w_zero over one to three spatial dims, wrapping
    around in 32 bits. Outside of its elements, x counts as x_zero.

    Dims:
        x: N C and up to three of D H W    w: O I, or G O I with G = group, and the same of d h w
        y: N C and x's spatial dims, with C = O * group
        zeros: none, or both zero points: x's, of no dims; w's, of no dims or of O, or G O
    Args:
        strides, pads, dilations, group: as for Conv2D, a number for each spatial dim; empty means
            strides and dilations of 1, and no pads.
    Raises:
        DimError: x and w disagree on the number of channels, or the window does not fit.
    Cost:
        2 * N*O*H'*W' * I*h*w operations.

    >>> from vtensor.operators import Context
    >>> x = VTensor("u8", {"N": 1, "C": 3, "H": 224, "W": 224})
    >>> w = VTensor("s8", {"O": 64, "I": 3, "h": 7, "w": 7})
    >>> ConvInteger(strides=(2, 2), pads=(3, 3, 3, 3)).compute(Context(), x, w).summary()
    's32 N=1 C=64 H=112 W=112'

    Source: ONNX operator ConvInteger, opset 10.
    """

    strides: tuple[int, ...] = param(default=(), minimum=1)
    pads: tuple[int, ...] = param(default=(), minimum=0)
    dilations: tuple[int, ...] = param(default=(), minimum=1)
    group: int = param(default=1, minimum=1)
    to = "s32"

    def compute(self, ctx: Context, x: VTensor, w: VTensor, *zeros: VTensor) -> VTensor:
        channels = w.dims.get("G", 1) * w.size("O")
        sizes = counts(x, kernel_sizes(w), self)
        return one_output(ctx, self, [x, w, *zeros], {**x.dims, "C": channels, **sizes}, "s32")


def _requantized(op: Requantize, acc: Array, multiplier: Array, *zero: Array) -> Array:
    low, high = integer_range(op.to)
    steps = np.rint(acc.astype(np.float32) * multiplier.astype(np.float32))
    return np.clip(sum(map(_wide, zero), steps.astype(np.float64)), low, high)


def _wide(array: Array) -> Array:
    return array.astype(np.float64)


def _requantized_expression(
    op: Requantize, acc: Expression, multiplier: Expression, *zero: Expression
) -> Expression:
    steps = (acc.to("f32") * multiplier.to("f32")).apply("round")
    for shift in zero:
        steps = steps + shift
    low, high = integer_range(op.to)
    return steps.max(low).min(high).to(op.to)


@elementwise(
    "Requantize",
    [
        Spelling("QLinearMatMul", 10, read_scaled_product, scaled_product_names),
        Spelling("QLinearConv", 10, read_scaled_conv, scaled_conv_names),
        Spelling(
            f"{MICROSOFT}QLinearConv",
            1,
            read_scaled_conv,
            scaled_conv_names,
            rank=lambda node: node.rank("x0"),
        ),
    ],
    _requantized,
    {"acc": ("s32",), "multiplier": FLOATS, "zero": BYTES},
    widen=False,
    expression=_requantized_expression,
    inplace=[],  # the output has another element type
    holds=[
        (
            lambda _, acc, by, *zero: (
                len(zero) < 2 and broadcast(acc.dims, by.dims, *(t.dims for t in zero)) == acc.dims
            ),
            "acc is scaled by a multiplier and at most a zero point, whose dims are acc's",
        )
    ],
)
class Requantize:
    """Scale exact sums and quantize them: y = acc * multiplier, rounded to the nearest integer,
    plus the zero point, saturated.

    acc is rounded to f32, and so is its product with the multiplier; ties go to the even integer.

    Dims:
        acc, y: any, the same    multiplier, zero: some of acc's, or none
    Args:
        to: y's element type.
    Raises:
        DimError: multiplier or zero has a dim that acc lacks, or another size than acc and 1.

    >>> from vtensor.operators import Context
    >>> acc, multiplier = VTensor("s32", {"N": 2, "C": 3}), VTensor("f32", {"C": 3})
    >>> Requantize("s8").compute(Context(), acc, multiplier).summary()
    's8 N=2 C=3'

    Source: ONNX operators QLinearMatMul, opset 10, and QLinearConv, opset 10.
    """

    to: str = param(default="u8", choices=BYTES)

    def compute(self, ctx: Context, acc: VTensor, multiplier: VTensor, *zero: VTensor) -> VTensor:
        return pointwise(self, ctx, acc, multiplier, *zero)


@invoker("MatMulInteger", library="narrow", dtypes=dict.fromkeys(("a", "b", "zeros"), BYTES))
def narrow_matmul(ctx: Context, op: MatMulInteger, *operands: VTensor) -> Routine:
    a, b, *zeros, y = operands
    return narrow.MatMul(a, b, zeros, y, op.over, follow=ctx.followers)


@invoker("ConvInteger", library="narrow", dtypes=dict.fromkeys(("x", "w", "zeros"), BYTES))
def narrow_conv(ctx: Context, op: ConvInteger, *operands: VTensor) -> Routine:
    x, w, *zeros, y = operands
    window = op.strides, op.pads, op.dilations
    return narrow.Convolution(x, w, zeros, y, *window, follow=ctx.followers)


def _orders(op: MatMulInteger, a: VTensor, b: VTensor, *more: VTensor) -> list[Layout]:
    """Return layouts in which a, b and the output are stacks of matrices, and zero points have
    their dims in the order of their factor's.
    """
    left, right, product = Groups.of(a, b, op.over).orders
    zeros = [
        Layout.plain(dim for dim in order.dims if dim in zero.dims)
        for order, zero in zip((left, right), more[:-1], strict=False)
    ]
    return [left, right, *zeros, product]


def _centered(x: PTensor, zero: PTensor | None) -> Array:
    """Return the integers of x minus their zero point, as s32, with one axis for each dim.

    The zero point has its dims in the order of x's.
    """
    values = x.data().astype(np.int32)
    if zero is None:
        return values
    shape = [x.size(dim) if dim in zero.dims else 1 for dim in x.required_layout.dims]
    return values - zero.data().astype(np.int32).reshape(shape)


@definition("MatMulInteger", dtypes=dict.fromkeys(("a", "b", "zeros"), BYTES), orders=_orders)
def matmul_integer(ctx: Context, op: MatMulInteger, *operands: PTensor) -> None:
    a, b, *zeros, y = operands
    (batch, rows, columns, _), over = Groups.of(a.tensor, b.tensor, op.over), op.over
    a_zero, b_zero = zeros or (None, None)
    x, w = _centered(a, a_zero), _centered(b, b_zero)
    x = x.reshape(*map(a.size, batch), prod(map(a.size, rows)), a.size(over))
    w = w.reshape(*map(b.size, batch), b.size(over), prod(map(b.size, columns)))
    y.data()[...] = (x @ w).reshape(y.data().shape)


def _image_orders(op: ConvInteger, x: VTensor, w: VTensor, *more: VTensor) -> list[Layout]:
    zeros = [in_order("G O")(zero) for zero in more[:-1]]
    return [image_order(x), in_order("G O I d h w")(w), *zeros, image_order(more[-1])]


@definition("ConvInteger", dtypes=dict.fromkeys(("x", "w", "zeros"), BYTES), orders=_image_orders)
def conv_integer(ctx: Context, op: ConvInteger, *operands: PTensor) -> None:
    x, w, *zeros, y = operands
    x_zero, w_zero = zeros or (None, None)
    rank = len(kernel_sizes(w))
    window: Any = (
        op.strides or (1,) * rank,
        op.pads or (0, 0) * rank,
        op.dilations or (1,) * rank,
    )
    y.data()[...] = convolution(_centered(x, x_zero), _centered(w, w_zero), *window)
