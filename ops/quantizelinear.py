"""Quantization: numbers to a narrow element type by a scale and a zero point, and back."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import sub
from typing import Any

import numpy as np

from libdesc import eigen, invoker
from libdesc.numpy import definition
from libdesc.numpy.arrays import wide
from libdesc.numpy.casts import cast
from libdesc.routine import Routine
from ops._blocks import read_dequantized
from ops._codes import MICROSOFT, check_code
from ops._elementwise import FLOATS, Array, elementwise, narrowed, pointwise
from ops._names import same_names
from ops._writing import write_aligned
from ptensor import PTensor
from ptensor.convert import convert
from ptensor.encoding import Encoding, integer_range
from ptensor.evaluation import Decline
from vtensor.language.dims import broadcast
from vtensor.language.dtype import NARROW_FLOATS, NARROW_INTEGERS, from_numpy
from vtensor.operators import (
    Context,
    Encodes,
    Expression,
    Naming,
    NodeReader,
    NodeWriter,
    Spelling,
    named,
    operator,
    param,
)
from vtensor.tensor import VTensor

_INTEGERS = ("s8", "u8", "s16", "u16", *NARROW_INTEGERS)
#: The element types to which numbers are quantized.
_STEPS = (*_INTEGERS, *(name for name in NARROW_FLOATS if name != "f8e8m0"))


def _names(node: Naming) -> None:
    same_names(node)
    for role in node.roles[1:]:
        if node.rank(role) == node.rank("x0"):
            same_names(node, role, "x0")
        elif node.rank(role) == 1:
            node.same(role, 0, "x0", int(node.attribute("axis", 1)))


def _rank(node: Naming) -> int:
    return node.rank("x0")


def _axis(node: NodeReader, x: VTensor) -> str:
    """Return the dim of x along which the scale changes.

    It is the dim whose index is the attribute ``axis``; if x has only one dim, it is that one.
    """
    return node.axis(int(node.attribute("axis", 1)) if x.ndimensions() > 1 else 0, x)


def _parameters(node: NodeReader, x: VTensor) -> list[VTensor]:
    """Return a node's scale, and its zero point if it has one, with names of dims of x.

    With the attribute ``block_size``, an element of the scale belongs to a block of elements of x,
    and is repeated for each of them. A scalar, or a vector with one element, gets no dims. The same
    holds for the zero point.
    """
    check_code(node, 1)
    return [_parameter(node, index, x) for index in (1, 2) if node.has(index)]


def _parameter(node: NodeReader, index: int, x: VTensor) -> VTensor:
    parameter, block = node.input(index), int(node.attribute("block_size", 0))
    if parameter.num_elements == 1 and parameter.ndimensions() < 2:
        return node.reshape(parameter, {})
    if not block:
        if parameter.ndimensions() != 1:
            raise node.refuse(
                f"input {index} of {parameter.ndimensions()} dims without a block_size"
            )
        return node.input(index, _axis(node, x))
    axis = _axis(node, x)
    parameter = node.input(index, " ".join(x.dims))
    blocks, size = parameter.size(axis), x.size(axis)
    if block < 0 or blocks != -(-size // block):
        raise node.refuse(f"{blocks} blocks of {block} along {axis}, which has size {size}")
    return _repeated(node, parameter, axis, block, size)


def _repeated(node: NodeReader, x: VTensor, axis: str, times: int, size: int) -> VTensor:
    """Add operators that repeat each element of ``x`` along a dim, and return the result.

    Args:
        node: the ONNX node that is read.
        x: the tensor.
        axis: the dim.
        times: how often each element is repeated, one after another.
        size: the result's size along ``axis``; elements beyond it are cut off.
    """
    each = f"{axis}_block"
    apart: dict[str, int] = {}
    for dim, count in x.dims.items():
        apart |= {dim: count, each: 1} if dim == axis else {dim: count}
    many = node.ahead(named("Expand")(((each, times),)), node.reshape(x, apart))
    whole = node.reshape(many, {**x.dims, axis: x.size(axis) * times})
    return node.ahead(named("Slice")((axis,), (0,), (size,), (1,)), whole)


def _read(node: NodeReader) -> VTensor:
    x = node.input(0)
    parameters = _parameters(node, x)
    named = node.element_type("output_dtype")
    to = parameters[1].dtype if len(parameters) > 1 else named or "u8"
    if named not in ("", to):
        raise node.refuse(f"output_dtype is {named}, the zero point {to}")
    saturate = bool(node.attribute("saturate", 1))
    op = QuantizeLinear(to, node.element_type("precision"), saturate)
    return node.add(op, x, *parameters)


def _read_dequantize(node: NodeReader) -> VTensor:
    if (packed := read_dequantized(node)) is not None:
        return packed
    x = node.input(0)
    parameters = _parameters(node, x)
    if node.has(2):
        check_code(node, 2, x.dtype)
    to = node.element_type("output_dtype") or parameters[0].dtype
    return node.add(DequantizeLinear(to), x, *parameters)


def _stays_narrow(types: Sequence[str]) -> bool:
    """Return whether a library may have a kernel for integers and scales of these types."""
    return (types[0] in ("s8", "u8", "s32") and types[1] == "f32") or types[0] in NARROW_INTEGERS


def _by(node: NodeWriter) -> tuple[list[str], int | None]:
    """Return ONNX's names of x, the scale and the zero point if there is one, and the axis along
    which the scale changes; None if it does not.
    """
    x, *by = node.inputs
    dims = [[dim for dim, size in value.dims.items() if size != 1] for value in by]
    if len(dims[0]) > 1 or any(row != dims[0] for row in dims):
        raise node.refuse("a scale and a zero point along other dims than one and the same")
    told = [
        node.operand(value, row or list(value.dims)) for value, row in zip(by, dims, strict=True)
    ]
    return [node.operand(x), *told], list(x.dims).index(dims[0][0]) if dims[0] else None


def _write(node: NodeWriter, op: QuantizeLinear) -> None:
    operands, axis = _by(node)
    if len(operands) < 3 and op.to != "u8":
        scale = node.inputs[1]
        operands.append(node.constant(np.zeros(tuple(scale.dims.values())), op.to))
    precision = node.element_type(op.precision) if op.precision else None
    saturate = None if op.saturate else False
    node.emit("QuantizeLinear", *operands, axis=axis, precision=precision, saturate=saturate)


def _write_dequantize(node: NodeWriter, op: DequantizeLinear) -> None:
    operands, axis = _by(node)
    to = None if op.to == node.inputs[1].dtype else node.element_type(op.to)
    node.emit("DequantizeLinear", *operands, axis=axis, output_dtype=to)


class _Linear:
    """The base of operators on a tensor, a scale and a zero point.

    The zero point may be absent. A subclass has the output's element type in ``to``.
    """

    def compute(self, ctx: Context, x: VTensor, *by: VTensor) -> VTensor:
        """Dispatch on x, the scale, and the zero point if there is one."""
        return pointwise(self, ctx, x, *by)


def _fits(op: _Linear, x: VTensor, *by: VTensor) -> bool:
    return len(by) <= 2 and broadcast(x.dims, *(t.dims for t in by)) == x.dims


_HOLDS = [(_fits, "x is scaled by a scale and at most a zero point, whose dims are x's")]


def _exact(array: Array) -> Array:
    return wide(array).astype(np.float64)


def _rounded(array: Array, name: str) -> Array:
    """Round an array to the element type ``name``, and return the rounded numbers as f64.

    If two such arrays are divided in f64 and the quotient is rounded to ``name``, the result equals
    the exact quotient rounded to ``name``.
    """
    return _exact(cast(array, name))


def _quantized(op: QuantizeLinear, x: Array, scale: Array, *zero: Array) -> Array:
    scale_type = from_numpy(scale.dtype)
    to = op.precision or {"s32": "f64", "f8e8m0": "f32"}.get(scale_type, scale_type)
    steps = _rounded(_rounded(x, to) / _rounded(scale, to), to)
    if op.to in _INTEGERS:
        shifted = np.rint(steps) + sum(map(_exact, zero))
        return convert(shifted, Encoding("f64"), Encoding(op.to))
    for shift in zero:
        steps = (steps - (0 - _exact(shift))).astype(np.float32)  # a step of -0 keeps its sign
    return cast(steps, op.to, op.saturate)


def _dequantized(op: DequantizeLinear, x: Array, scale: Array, *zero: Array) -> Array:
    return cast((_exact(x) - sum(map(_exact, zero))) * _exact(scale), op.to)


def _quantized_expression(
    op: QuantizeLinear, x: Expression, scale: Expression, *zero: Expression
) -> Expression:
    precision = op.precision or scale.dtype
    if precision not in eigen.FRACTIONS or (precision != "f32" and x.dtype == "s32"):
        raise Decline(f"divides no {x.dtype or 'value'} by {precision or 'computed'} scales")
    # Eigen divides in f32. For types narrower than f32, the quotient rounded to the type equals the
    # exact quotient rounded once. Zero points are f32, too; the conversion saturates.
    steps = (x.to(precision) / scale.to(precision)).to(precision)
    if op.to not in _INTEGERS:
        for shift in zero:
            steps = steps - (0 - shift.to("f32"))
        return narrowed(steps, op.to, op.saturate)
    steps = steps.apply("round")
    for shift in zero:
        steps = steps + shift.to("f32")
        steps = steps.apply("round") if shift.dtype in FLOATS else steps
    if op.to in eigen.SHORT:
        return steps.to(op.to)
    low, high = integer_range(op.to)
    return steps.max(low).min(high).to(op.to)


def _dequantized_expression(
    op: DequantizeLinear, x: Expression, scale: Expression, *zero: Expression
) -> Expression:
    if x.dtype in _INTEGERS:  # f32 holds them exactly
        x, zero = x.to("f32"), tuple(shift.to("f32") for shift in zero)
    return reduce(sub, zero, x) * scale


@elementwise(
    "QuantizeLinear",
    [
        Spelling("QuantizeLinear", 10, _read, _names, write=_write),
        Spelling(f"{MICROSOFT}QuantizeLinear", 1, _read, _names, rank=_rank),
    ],
    _quantized,
    {"x": (*FLOATS, "s32")},
    widen=False,
    expression=_quantized_expression,
    inplace=[],  # the output has another element type
    holds=_HOLDS,
    traits=[Encodes(back=False)],
)
class QuantizeLinear(_Linear):
    """Quantize a tensor: y = x / scale, rounded to the nearest number, plus the zero point.

    Ties go to the even number; integers saturate. Scale and zero point are repeated along dims that
    they lack, or have with size 1: there is one scale for all of x, one for each index along a dim,
    or one for each element.

    Dims:
        x, y: any, the same    by: some of x's; the scale, then the zero point if there is one
    Args:
        to: y's element type.
        precision: the element type to which the quotient is rounded. Empty means the scale's type,
            but f64 for s32 and f32 for f8e8m0.
        saturate: as for Cast.
    Raises:
        DimError: the scale has a dim that x lacks, or another size than x and 1.

    >>> from vtensor.operators import Context
    >>> x, scale = VTensor("f32", {"N": 2, "C": 3}), VTensor("f32", {"C": 3})
    >>> QuantizeLinear("s4").compute(Context(), x, scale).summary()
    's4 N=2 C=3'

    Source: ONNX operator QuantizeLinear, opset 25.
    """

    to: str = param(default="u8", choices=_STEPS)
    precision: str = param(default="", choices=("", *FLOATS))
    saturate: bool = param(default=True)


@elementwise(
    "DequantizeLinear",
    [
        Spelling(
            "DequantizeLinear",
            10,
            _read_dequantize,
            _names,
            write=_write_dequantize,
            kept=_stays_narrow,
        ),
        Spelling(f"{MICROSOFT}DequantizeLinear", 1, _read_dequantize, _names, rank=_rank),
    ],
    _dequantized,
    {"x": (*_STEPS, "s32", *FLOATS)},
    widen=False,
    expression=_dequantized_expression,
    inplace=[],  # the output has another element type
    holds=_HOLDS,
    traits=[Encodes(back=True)],
)
class DequantizeLinear(_Linear):
    """Dequantize a tensor: y = (x - zero point) * scale, rounded once.

    Dims:
        x, y: any, the same    by: some of x's; the scale, then the zero point if there is one
    Args:
        to: y's element type.
    Raises:
        DimError: the scale has a dim that x lacks, or another size than x and 1.

    >>> from vtensor.operators import Context
    >>> x, scale = VTensor("u8", {"N": 2, "C": 3}), VTensor("f32", {})
    >>> DequantizeLinear().compute(Context(), x, scale).summary()
    'f32 N=2 C=3'

    Source: ONNX operator DequantizeLinear, opset 25.
    """

    to: str = param(default="f32", choices=FLOATS)


def _read_dynamic(node: NodeReader) -> list[VTensor]:
    outputs: Any = node.add(DynamicQuantizeLinear(), node.input(0))
    return list(outputs)


_NAME = "DynamicQuantizeLinear"


@operator(
    _NAME,
    dims={"x": "*", "y": "*", "scale": "*", "zero": "*"},
    onnx=Spelling(_NAME, 11, _read_dynamic, same_names, write=write_aligned(_NAME)),
)
class DynamicQuantizeLinear:
    """Quantize to u8 by the smallest scale that covers every value and 0.

    scale = (max(x, 0) - min(x, 0)) / 255, zero = -min(x, 0) / scale rounded, y = x / scale rounded
    plus zero. If all of x is 0, the scale is 1. A NaN does not count, and becomes 0; if x has
    an infinity, all of y is 0.

    Dims:
        x, y: any, the same    scale, zero: none

    >>> from vtensor.operators import Context
    >>> y, scale, zero = DynamicQuantizeLinear().compute(Context(), VTensor("f32", {"N": 2}))
    >>> y.summary(), scale.summary(), zero.summary()
    ('u8 N=2', 'f32', 'u8')

    Source: ONNX operator DynamicQuantizeLinear, opset 11.
    """

    def compute(self, ctx: Context, x: VTensor) -> tuple[VTensor, VTensor, VTensor]:
        y = VTensor("u8", x.dims, ctx.output(0))
        scale, zero = VTensor("f32", {}, ctx.output(1)), VTensor("u8", {}, ctx.output(2))
        ctx.dispatch(self, [x], [y, scale, zero])
        return y, scale, zero


def dynamic_codes(values: Array) -> tuple[Array, Array, Array]:
    """Return numbers quantized as by ``DynamicQuantizeLinear``, the scale and the zero point."""
    numbers = values[~np.isnan(values)]
    low, high = numbers.min(initial=0), numbers.max(initial=0)
    number = values.dtype.type
    step = (high - low) / number(255) if high > low else number(1)
    origin = np.fmin(np.fmax(np.rint(-low / step), 0), 255)  # fmin and fmax ignore a NaN
    return np.fmin(np.fmax(np.rint(values / step) + origin, 0), 255), step, origin


@invoker(_NAME, library="eigen", dtypes={"x": eigen.DTYPES})
def eigen_dynamic_quantize(
    ctx: Context, op: object, x: VTensor, y: VTensor, scale: VTensor, zero: VTensor
) -> Routine:
    return eigen.dynamic_quantize(x, y, scale, zero)


@definition(_NAME, dtypes={"x": FLOATS})
def dynamic_quantize(
    ctx: Context, op: object, x: PTensor, y: PTensor, scale: PTensor, zero: PTensor
) -> None:
    y.data()[...], scale.data()[...], zero.data()[...] = dynamic_codes(wide(x.data()))
