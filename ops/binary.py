"""Arithmetic of elements, and a choice between two; dims are matched by name."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from libdesc import rewrite
from libdesc.numpy.arrays import FLOATS, NUMBERS, Array
from ops._elementwise import (
    Binary,
    Unary,
    binary,
    elementwise,
    parameter_of,
    pointwise,
    spelled,
)
from ops._learned import BINARIZER, IMPUTER, SCALER
from ops._names import broadcast_inputs, broadcast_names
from ops._places import has_dims_of_x
from ops._writing import write_aligned
from vtensor.errors import ModelError
from vtensor.operators import (
    Affine,
    Commutes,
    Context,
    Expression,
    Moves,
    NodeReader,
    NodeWriter,
    Opaque,
    Spelling,
    Structural,
    param,
    select,
    written,
)
from vtensor.tensor import VTensor


def _quotient(a: Array, b: Array) -> Array:
    if a.dtype.kind not in "iu":
        return np.asarray(a / b)
    return np.asarray(a // b + ((a % b != 0) & ((a < 0) != (b < 0))))


def _power(a: Array, b: Array) -> Array:
    """Return a to the power b; integers are computed in f64 if an exponent is negative."""
    fractions = a.dtype.kind in "iu" and b.dtype.kind in "iu" and (b < 0).any()
    return np.asarray(np.power(a.astype(np.float64) if fractions else a, b))


@elementwise(
    "Add",
    lambda add: [*spelled("Add", 1, add), *spelled("Sum", 6, add, many=True)],
    np.add,
    onednn="add",
    expression=lambda a, b: a + b,
    traits=[Affine(lambda _, a, b: (1, b if a is None else a)), Commutes()],
)
class Add(Binary):
    """Add two tensors, dims matched by name: y = a + b.

    An operand is repeated along a dim that it lacks, or has with size 1, to the other's size.

    Dims:
        a, b: any    y: the dims of both
    Raises:
        DimError: a dim that both have has two sizes, and neither is 1.

    >>> from vtensor import VTensor
    >>> from vtensor.operators import Context
    >>> a = VTensor("f32", {"N": 2, "C": 3, "H": 7, "W": 7})
    >>> Add().compute(Context(), a, VTensor("f32", {"C": 3, "H": 1})).summary()
    'f32 N=2 C=3 H=7 W=7'

    Source: ONNX operators Add, opset 14, and Sum, opset 13.
    """


@elementwise(
    "Mul",
    lambda mul: [*spelled("Mul", 1, mul), SCALER],
    np.multiply,
    onednn="mul",
    expression=lambda a, b: a * b,
    traits=[Affine(lambda _, a, b: (b if a is None else a, 0)), Commutes()],
)
class Mul(Binary):
    """Multiply two tensors, dims matched by name: y = a * b.

    An operand is repeated along a dim that it lacks, or has with size 1, to the other's size.

    Dims:
        a, b: any    y: the dims of both
    Raises:
        DimError: a dim that both have has two sizes, and neither is 1.

    >>> from vtensor import VTensor
    >>> from vtensor.operators import Context
    >>> a = VTensor("f32", {"N": 2, "C": 3, "H": 7, "W": 7})
    >>> Mul().compute(Context(), a, VTensor("f32", {"C": 3, "H": 1})).summary()
    'f32 N=2 C=3 H=7 W=7'

    Source: ONNX operator Mul, opset 14.
    """


Sub = binary(
    "Sub",
    "Subtract: y = a - b",
    (1, 14),
    np.subtract,
    onednn="sub",
    expression=lambda a, b: a - b,
    traits=[Affine(lambda _, a, b: (1, -b) if a is None else (-1, a))],
)
Div = binary(
    "Div",
    "Divide, integers rounding towards 0: y = a / b",
    (1, 14),
    _quotient,
    onednn="div",
    expression=lambda a, b: a / b,
)
Pow = binary(
    "Pow",
    "Raise to a power, in a's element type: y = a**b",
    (1, 15),
    _power,
    expression=lambda a, b: a**b,
)
rewrite("square", "x^2, which a product has exactly", "Pow(x, 2)", "Mul(x, x)")
Max = binary(
    "Max",
    "Return the larger of two elements: y = max(a, b); NaN if one is NaN",
    (6, 13),
    np.maximum,
    expression=Expression.max,
    many=True,
)
Min = binary(
    "Min",
    "Return the smaller of two elements: y = min(a, b); NaN if one is NaN",
    (6, 13),
    np.minimum,
    expression=Expression.min,
    many=True,
)


#: The first opset in which ONNX defines the remainder of floats with the divisor's sign.
FLOORED_FLOATS = 28


def _read_mod(node: NodeReader) -> VTensor:
    op, dtype = Mod(bool(node.attribute("fmod", 0))), node.input(0).dtype
    if not op.fmod and dtype in FLOATS and node.opset < FLOORED_FLOATS:
        text = f"Mod {node.name!r}: opset {node.opset} defines a remainder of {dtype} with fmod=1"
        text += " alone; to fix: set fmod=1, which gives it the dividend's sign, or opset "
        raise ModelError(f"{text}{FLOORED_FLOATS}")
    return node.add(op, *broadcast_inputs(node))


def _write_mod(node: NodeWriter, op: Mod) -> None:
    dtype = node.inputs[0].dtype
    if not op.fmod and dtype in FLOATS and node.opset < FLOORED_FLOATS:
        text = f"no remainder of {dtype} with the divisor's sign before opset {FLOORED_FLOATS}"
        raise node.refuse(f"{text}; write that opset, or use fmod=True")
    write_aligned("Mod")(node, op)


@elementwise(
    "Mod",
    Spelling("Mod", 10, _read_mod, broadcast_names, write=_write_mod),
    lambda op, a, b: np.fmod(a, b) if op.fmod else np.mod(a, b),
    expression=lambda op, a, b: a.fmod(b) if op.fmod else a % b,
)
class Mod(Binary):
    """Return the remainder of a division: y = a - b * floor(a / b).

    An operand is repeated along a dim that it lacks, or has with size 1, to the other's size.

    Dims:
        a, b: any    y: the dims of both
    Args:
        fmod: True rounds the quotient towards 0, so that the result has the sign of ``a``.
    Raises:
        DimError: a dim that both have has two sizes, and neither is 1.

    >>> from vtensor.operators import Context
    >>> a = VTensor("f32", {"N": 2, "C": 3})
    >>> Mod().compute(Context(), a, VTensor("f32", {"C": 3})).summary()
    'f32 N=2 C=3'

    Source: ONNX operator Mod, opset 13.
    """

    fmod: bool = param(default=False)


@elementwise(
    "Where",
    lambda where: [*spelled("Where", 9, where), IMPUTER, BINARIZER],
    np.where,
    {"c": ["bool"]},
    widen=False,
    expression=select,
    inplace=["a", "b"],
    traits=[Moves(("a", "b")), Opaque()],
)
class Where:
    """Choose between the elements of two tensors: y = a if c else b.

    An operand is repeated along a dim that it lacks, or has with size 1, to the others' size.

    Dims:
        c, a, b: any    y: the dims of all three
    Raises:
        DimError: a dim has two sizes, and neither is 1.

    >>> from vtensor.operators import Context
    >>> c, a = VTensor("bool", {"N": 2, "C": 1}), VTensor("f32", {"C": 3})
    >>> Where().compute(Context(), c, a, VTensor("f32", {})).summary()
    'f32 N=2 C=3'

    Source: ONNX operator Where, opset 16.
    """

    def result_type(self, types: Sequence[str]) -> str:
        """Return the element type of ``a``, which is the output's."""
        return types[1]

    def compute(self, ctx: Context, c: VTensor, a: VTensor, b: VTensor) -> VTensor:
        return pointwise(self, ctx, c, a, b)


@elementwise(
    "MeanOf",
    lambda cls: spelled("Mean", 6, cls),
    lambda *x: sum(x) / len(x),
    FLOATS,
    expression=lambda *x: sum(x[1:], x[0]) / len(x),
    inplace=[],
)
class MeanOf:
    """Average several tensors, dims matched by name: y = (x0 + x1 + ...) / number of them.

    An operand is repeated along a dim that it lacks, or has with size 1, to the others' size.

    Dims:
        x: any    y: the dims of all
    Raises:
        DimError: a dim has two sizes, and neither is 1.

    >>> from vtensor.operators import Context
    >>> x = VTensor("f32", {"N": 2, "C": 3})
    >>> MeanOf().compute(Context(), x, x, VTensor("f32", {"C": 1})).summary()
    'f32 N=2 C=3'

    Source: ONNX operator Mean, opset 13.
    """

    def compute(self, ctx: Context, *x: VTensor) -> VTensor:
        return pointwise(self, ctx, *x)


@elementwise(
    "BiasAdd",
    written("Add", 7, write_aligned("Add")),
    np.add,
    onednn="add",
    expression=lambda x, b: x + b,
    inplace=["x"],
    traits=[
        Affine(lambda _, x, b: (1, b) if x is None else (1, x)),
        Structural("bias"),
    ],
    holds=[has_dims_of_x("b")],
)
class BiasAdd:
    """Add ``b`` to ``x``, repeated along the dims that b lacks.

    y[..., C, ...] = x[..., C, ...] + b[C]

    Dims:
        x, y: any, the same    b: some of x's, of the same sizes; mostly C alone
    Raises:
        DimError: b has a dim that x lacks, or has with another size.

    >>> from vtensor.operators import Context
    >>> x, b = VTensor("f32", {"N": 1, "C": 64, "H": 7, "W": 7}), VTensor("f32", {"C": 64})
    >>> BiasAdd().compute(Context(), x, b).summary()
    'f32 N=1 C=64 H=7 W=7'

    Source: ONNX operators Conv and Gemm, whose third input it is; the paper, section 6.
    """

    def compute(self, ctx: Context, x: VTensor, b: VTensor) -> VTensor:
        return pointwise(self, ctx, x, b)


def _times(op: Times, x: Array) -> Array:
    scaled: Array = x * parameter_of(x, op.factor)
    return scaled


def _write(node: NodeWriter, op: Times) -> None:
    [x] = node.inputs
    if x.dtype[0] in "su" and op.factor != int(op.factor):
        raise node.refuse(f"{x.dtype} times {op.factor}, which is no integer")
    node.emit("Mul", node.operand(x), node.constant(op.factor, x.dtype))


@elementwise(
    "Times",
    written("Mul", 7, _write),
    _times,
    NUMBERS,
    widen=False,
    onednn=("linear", "factor"),
    expression=lambda op, x: x * op.factor,
    traits=[Affine(lambda op, _: (op.factor, 0))],
)
class Times(Unary):
    """Multiply each element by a number: y = factor * x; integers are rounded towards zero.

    Dims:
        x, y: any, the same
    Args:
        factor: the number.

    >>> from vtensor import VTensor
    >>> from vtensor.operators import Context
    >>> Times(0.5).compute(Context(), VTensor("f32", {"N": 2, "C": 3})).summary()
    'f32 N=2 C=3'

    Source: ONNX operator Gemm, whose alpha and beta it is.
    """

    factor: float = param()
