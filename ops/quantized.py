"""Arithmetic on integers that stand for numbers, ONNX Runtime's operators on such integers, and the
rewrite rules that make integer operators of those between dequantization and quantization.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from math import prod
from operator import add, mul
from typing import Any

import numpy as np

from libdesc import rewrite
from libdesc.numpy.arrays import FLOATS, Array
from ops._codes import BYTES, MICROSOFT, integers, numbers, on_numbers
from ops._elementwise import elementwise, pointwise
from ops._names import axis_of, broadcast_input, last_names, same_names
from ptensor.encoding import integer_range
from vtensor.language.operators import OPERATORS
from vtensor.operators import Context, Expression, Match, Naming, NodeReader, Spelling, named
from vtensor.tensor import VTensor


def _two_names(node: Naming) -> None:
    last_names(node, "x0")
    last_names(node, "x3")


def _most(*roles: str) -> Callable[[Naming], int]:
    """Return a function from a node to the largest rank of its values in ``roles``."""
    return lambda node: max(map(node.rank, roles))


def _spelled(op: str) -> list[Spelling]:
    """Return how ONNX Runtime's operator ``QLinear`` and ``op``, on two tensors, is read."""

    def read(node: NodeReader) -> VTensor:
        a, b = (numbers(node, at, broadcast_input(node, at)) for at in (0, 3))
        return integers(node, node.add(named(op)(), a, b), 6, node.input(0).dtype)

    return [Spelling(f"{MICROSOFT}QLinear{op}", 1, read, _two_names, rank=_most("x0", "x3"))]


def _alone(op: str, opset: Callable[[Any], int] = lambda node: node.opset) -> Spelling:
    """Return how ONNX Runtime's operator ``QLinear`` and ``op``, on one tensor, is read.

    Args:
        op: ONNX's operator on numbers.
        opset: returns the opset in whose spelling the operator on numbers is read.
    """

    def spelling(node: Any) -> Spelling:
        return OPERATORS.spellings(op, opset(node) or 13)[0]

    def read(node: NodeReader) -> VTensor:
        return on_numbers(spelling(node).read)(node)

    return Spelling(
        f"{MICROSOFT}QLinear{op}", 1, read, lambda node: spelling(node).names(node), rank=_rank
    )


def _rank(node: Naming) -> int:
    """Return the rank of an output that has as many axes as the input, or lacks reduced ones."""
    kept = node.attribute("keepdims", 1)
    return node.rank("x0") - (0 if kept else len(node.attribute("axes", ())))


def _each(node: Naming) -> range:
    """Return the indices of the tensors that a QLinearConcat concatenates, among its inputs."""
    return range(2, len(node.roles), 3)


def _concat_names(node: Naming) -> None:
    for at in _each(node):
        same_names(node, f"x{at}")


def _read_concat(node: NodeReader) -> VTensor:
    names, count = " ".join(node.output_names()), len(node.inputs)
    parts = [numbers(node, at, node.input(at, names)) for at in range(2, count, 3)]
    y = node.add(named("Concat")(axis_of(node, parts[0], default=1)), *parts)
    return integers(node, y, 0, node.input(1).dtype)


def _where_names(node: Naming) -> None:
    for role in ("x0", "x1", "x4"):
        last_names(node, role)


def _read_where(node: NodeReader) -> VTensor:
    a, b = (numbers(node, at, broadcast_input(node, at)) for at in (1, 4))
    y = node.add(named("Where")(), broadcast_input(node, 0), a, b)
    return integers(node, y, 7, node.input(1).dtype)


_ALONE = [
    *map(_alone, ("Sigmoid", "LeakyRelu", "AveragePool", "GlobalAveragePool", "ReduceMean")),
    _alone("Softmax", lambda node: int(node.attribute("opset", 13))),
    Spelling(f"{MICROSOFT}QLinearConcat", 1, _read_concat, _concat_names, rank=_most("x2")),
    Spelling(
        f"{MICROSOFT}QLinearWhere", 1, _read_where, _where_names, rank=_most("x0", "x1", "x4")
    ),
]

_ROLES = ("a", "a_scale", "a_zero", "b", "b_scale", "b_zero")
_TYPES = {role: FLOATS if role.endswith("scale") else BYTES for role in _ROLES}


class _Binary:
    """The base of operators on two tensors of integers that stand for numbers.

    Each number is (integer - zero point) * scale, rounded once to f32. An operand is repeated along
    a dim that it lacks, or has with size 1, to the other's size.

    Dims:
        a, b: any    y: the dims of both    a_scale, a_zero, b_scale, b_zero: some of y's, or none
    Raises:
        DimError: a dim that two operands have has two sizes, and neither is 1.
    """

    to = "f32"

    def compute(
        self,
        ctx: Context,
        a: VTensor,
        a_scale: VTensor,
        a_zero: VTensor,
        b: VTensor,
        b_scale: VTensor,
        b_zero: VTensor,
    ) -> VTensor:
        """Dispatch on both operands, each with its scale and zero point."""
        return pointwise(self, ctx, a, a_scale, a_zero, b, b_scale, b_zero)


def _decoded(x: Array, scale: Array, zero: Array) -> Array:
    return (x.astype(np.float32) - zero.astype(np.float32)) * scale


def _decoded_expression(x: Expression, scale: Expression, zero: Expression) -> Expression:
    return (x.to("f32") - zero.to("f32")) * scale


def _on_decoded(
    name: str, onnx: list[Spelling], function: Callable[..., Any]
) -> Callable[[type[_Binary]], type[_Binary]]:
    """Return a decorator that registers a class as a function of the numbers of both operands."""
    return elementwise(
        name,
        onnx,
        lambda *x: function(_decoded(*x[:3]), _decoded(*x[3:])),
        _TYPES,
        widen=False,
        expression=lambda *x: function(_decoded_expression(*x[:3]), _decoded_expression(*x[3:])),
        inplace=[],  # the output has another element type
    )


@_on_decoded("DequantizedAdd", [*_spelled("Add"), *_ALONE], add)
class DequantizedAdd(_Binary):
    """Add the numbers that integers stand for.

    Dims:
        a, b: any    y: the dims of both    a_scale, a_zero, b_scale, b_zero: some of y's, or none
    Raises:
        DimError: a dim that two operands have has two sizes, and neither is 1.

    >>> from vtensor.operators import Context
    >>> x, scale, zero = VTensor("u8", {"N": 2}), VTensor("f32", {}), VTensor("u8", {})
    >>> DequantizedAdd().compute(Context(), x, scale, zero, x, scale, zero).summary()
    'f32 N=2'

    Source: ONNX Runtime operators QLinearAdd, QLinearSigmoid, QLinearLeakyRelu, QLinearAveragePool,
    QLinearGlobalAveragePool, QLinearReduceMean, QLinearSoftmax, QLinearConcat and QLinearWhere,
    version 1; all but the first are read as operators between others that dequantize and quantize.
    """


@_on_decoded("DequantizedMul", _spelled("Mul"), mul)
class DequantizedMul(_Binary):
    """Multiply the numbers that integers stand for.

    Dims:
        a, b: any    y: the dims of both    a_scale, a_zero, b_scale, b_zero: some of y's, or none
    Raises:
        DimError: a dim that two operands have has two sizes, and neither is 1.

    >>> from vtensor.operators import Context
    >>> x, scale, zero = VTensor("s8", {"N": 2}), VTensor("f32", {}), VTensor("s8", {})
    >>> DequantizedMul().compute(Context(), x, scale, zero, x, scale, zero).summary()
    'f32 N=2'

    Source: ONNX Runtime operator QLinearMul, version 1.
    """


# Rules. In their patterns, x is a tensor of integers, sx its scale and zx its zero point.

#: The largest integer up to which f32 holds each integer.
MAX_SUM = 1 << 24

#: The scale by which integers stand for themselves.
_ONE: dict[str, object] = {"one": (1.0, (), "f32")}


def _decoding(x: str) -> str:
    """Return the pattern of the numbers that integers stand for, with or without a zero point."""
    return (
        f"(DequantizeLinear({x}, constant(s{x}), constant(z{x}))"
        f" | DequantizeLinear({x}, constant(s{x})))"
    )


def _zero(match: Match, x: str) -> dict[str, object]:
    """Return a zero point of 0 for the integers ``x``, for a pattern without one."""
    return {f"z{x}": (0, (), match[x].dtype)}


def _are_bytes(*values: VTensor) -> bool:
    return all(value.dtype in BYTES for value in values)


def _numbers_of(match: Match, name: str) -> Array:
    """Return the constant that a name of the pattern stands for, as an array in f32."""
    return np.asarray(match.numbers[name], np.float32)


def _conv(match: Match) -> dict[str, object] | None:
    """Return the scale of a convolution of integers, and its zero points where there are none.

    None (the rule does not apply) if the image has several scales, or the kernel's change along
    other dims than its output channels.
    """
    x, w, sw = match["x"], match["w"], match["sw"]
    if not _are_bytes(x, w) or match["sx"].num_elements != 1 or not {*sw.dims} <= {"G", "O"}:
        return None
    groups = [w.dims.get(dim, 1) for dim in ("G", "O")]
    scales = _numbers_of(match, "sw").reshape([sw.dims.get(dim, 1) for dim in ("G", "O")])
    if sw.num_elements > 1:
        scales = np.broadcast_to(scales, groups).reshape(-1)
    scale = scales.reshape(scales.size if sw.num_elements > 1 else ()) * _numbers_of(match, "sx")
    return {
        **_zero(match, "x"),
        **_zero(match, "w"),
        "scale": (scale, ("C",) * scale.ndim, "f32"),
        "group": w.dims.get("G", 1),
    }


def _product(match: Match) -> dict[str, object] | None:
    """Return the scale of a product of integers, and its zero points where there are none.

    None (the rule does not apply) if a scale changes along the dim that is summed over, or both
    factors have several.
    """
    a, b, over = match["a"], match["b"], match["over"]
    scales = [match[name] for name in ("sa", "sb")]
    if not _are_bytes(a, b) or min(scale.num_elements for scale in scales) > 1:
        return None
    dims = tuple(dim for scale in scales if scale.num_elements > 1 for dim in scale.dims)
    if over in dims:
        return None
    scale = _numbers_of(match, "sa") * _numbers_of(match, "sb")
    return {**_zero(match, "a"), **_zero(match, "b"), "scale": (scale, dims, "f32")}


def _bias(match: Match) -> dict[str, object] | None:
    """Return no parameters if the integers of a bias and of sums stand for the same numbers."""
    sums, bias = (_numbers_of(match, name) for name in ("sacc", "sb"))
    alike = sums.size == 1 or bias.size == 1 or sums.shape == bias.shape
    if match["acc"].dtype != "s32" or match["b"].dtype != "s32" or not alike:
        return None
    zero = match.numbers.get("zb", 0)
    return {} if np.allclose(sums, bias, 1e-6, 0) and not np.any(zero) else None


def _requantized(match: Match) -> dict[str, object] | None:
    """Return the multiplier that makes integers of sums, and a zero point where there is none."""
    if match["acc"].dtype != "s32" or match["to"] not in BYTES or match["s"].num_elements != 1:
        return None
    if match["s"].dtype != "f32" or match["sacc"].dtype != "f32":
        return None
    multiplier = _numbers_of(match, "sacc") / _numbers_of(match, "s")
    dims = tuple(match["sacc"].dims) if multiplier.ndim else ()
    return {"by": (multiplier, dims, "f32"), "z": (0, (), match["to"])}


def _one_dim(match: Match) -> dict[str, object] | None:
    """Return the constant ``b`` as a bias along the only dim along which it changes."""
    b, acc = match["b"], match["acc"]
    dims = [dim for dim, size in b.dims.items() if size != 1]
    if acc.dtype != "s32" or len(dims) != 1 or not b.dims.keys() <= acc.dims.keys():
        return None
    if b.size(dims[0]) != acc.size(dims[0]):
        return None
    return {"bias": (np.asarray(match.numbers["b"]).reshape(-1), dims, "f32")}


def _scaled(match: Match) -> dict[str, object] | None:
    """Return no parameters if sums of integers are multiplied by a scale that is repeated."""
    acc, scale = match["acc"], match["scale"]
    repeated = dict(match.output.dims) == dict(acc.dims) and scale.dims.keys() <= acc.dims.keys()
    return {} if acc.dtype == "s32" and scale.dtype == "f32" and repeated else None


def _largest(match: Match, x: str, over: Collection[str] = ()) -> int:
    """Return the largest sum of |integer - zero point| along the dims ``over`` of the tensor ``x``.

    It is a bound by the element type if the integers are no constants with one zero point.
    """
    value, array = match[x], match.numbers.get(x)
    zero = match.numbers.get(f"z{x}", None if f"z{x}" in match.values else 0)
    known = isinstance(zero, int | float | np.ndarray)
    zeros = np.unique(zero).astype(np.int64) if known else None
    if over and isinstance(array, np.ndarray) and zeros is not None and zeros.size == 1:
        axes = tuple(axis for axis, dim in enumerate(value.dims) if dim in over)
        middle = zeros[0].astype(array.dtype)
        distances = (np.maximum(array, middle) - np.minimum(array, middle)).view(np.uint8)
        return int(distances.sum(axes, dtype=np.uint64).max(initial=0))
    low, high = integer_range(value.dtype)
    most = high - low if zeros is None else max(high - zeros.min(), zeros.max() - low)
    return int(most * prod(value.size(dim) for dim in over))


def _fit(first: str, second: str, kept: Collection[str] = ()) -> Callable[[Match], bool]:
    """Return a function that tells whether f32 holds each sum of products of the integers in two
    holes, along the dims of the second one but ``kept``, in any order.

    Without ``kept`` the sum is along the parameter ``over``.
    """

    def holds(match: Match) -> bool:
        over = {*match[second].dims}.difference(kept) if kept else {match["over"]}
        return _largest(match, first) * _largest(match, second, over) <= MAX_SUM

    return holds


def _wide_conv(op: str) -> Callable[[Match], dict[str, object] | None]:
    """Return a function that returns the scale 1, and the window where parameters leave it out;
    None (the rule does not apply) if ``op`` is no operator for this convolution.
    """

    def given(match: Match) -> dict[str, object] | None:
        w, rank = match["w"], match["x"].ndimensions() - 2
        deep = rank == 2 and "G" in w.dims and w.size("I") == 1
        if op != ("DepthwiseConv2D" if deep else f"Conv{rank}D"):
            return None
        defaults = {"strides": (1,) * rank, "pads": (0,) * 2 * rank, "dilations": (1,) * rank}
        return _ONE | {name: match[name] or default for name, default in defaults.items()}

    return given


def _both(match: Match) -> dict[str, object] | None:
    """Return zero points of 0 where there are none, if no operand is a constant."""
    constant = {"a", "b"} & match.numbers.keys()
    if constant or not _are_bytes(match["a"], match["b"]):
        return None
    return {**_zero(match, "a"), **_zero(match, "b")}


def _beyond(low: float, high: float) -> Callable[[Match], dict[str, object] | None]:
    """Return the condition of a rule that drops bounds before a quantization.

    They must lie outside of what the integers stand for. A match has the bounds as the parameters
    ``low`` and ``high``; the arguments are the bounds of an operator without parameters.
    """

    def given(match: Match) -> dict[str, object] | None:
        if match["s"].num_elements != 1 or match["to"] not in BYTES:
            return None
        scale, zero = np.float32(match.numbers["s"]), float(match.numbers.get("z", 0))
        if not (np.isfinite(scale) and scale > 0):
            return None
        bounds = match.parameters.get("low", low), match.parameters.get("high", high)
        first, last = (float(np.rint(np.float32(bound) / scale)) + zero for bound in bounds)
        least, most = integer_range(match["to"])
        return {} if first <= least and last >= most else None

    return given


_WINDOW = "strides=strides, pads=pads, dilations=dilations"
_GROUPS = f"{_WINDOW}, group=group"
for _name, _image, _kernel in (
    ("Conv1D", "N C W", "O I=C w=2"),
    ("Conv2D", "N C H W", "O I=C h=2 w=2"),
    ("Conv3D", "N C D H W", "O I=C d=2 h=1 w=2"),
    ("DepthwiseConv2D", "N C H W", "G=C O I=1 h=2 w=2"),
):
    _axes, _own = len(_image.split()) - 2, _WINDOW if _name.startswith("Depthwise") else _GROUPS
    _example = {
        "x": f"u8 {_image}",
        "w": f"s8 {_kernel}",
        "zx": "u8",
        "zw": "s8",
        "strides": (1,) * _axes,
        "pads": (0, 1) * _axes,
        "dilations": (1,) * _axes,
        "group": (lambda sizes: sizes["C"]) if _own == _WINDOW else 1,
    }
    rewrite(
        f"{_name.lower()}_integer",
        "the sum of products of s * (x - z) is s times that of the integers x - z, which is exact",
        f"{_name}({_decoding('x')}, {_decoding('w')}, {_own})",
        f"DequantizeLinear(ConvInteger(x, w, zx, zw, {_GROUPS}), scale)",
        given=_conv,
        example=_example | {"sx": 0.5, "sw": 0.25},
        early=True,
    )
    rewrite(
        f"{_name.lower()}_wide",
        "f32 holds a sum of products of integers exactly if it is at most 2^24",
        f"ConvInteger(x, w, zx, zw, {_GROUPS}) | ConvInteger(x, w, {_GROUPS})",
        f"""
        Cast({_name}(DequantizeLinear(x, one, zx), DequantizeLinear(w, one, zw), {_own}), to="s32")
        """,
        given=_wide_conv(_name),
        holds=_fit("x", "w", kept="GO"),
        example=_example,
        early=True,
    )

rewrite(
    "matmul_integer",
    "the sum of products of s * (a - z) is s times that of the integers a - z, which is exact",
    f"MatMul({_decoding('a')}, {_decoding('b')}, over=over)",
    "DequantizeLinear(MatMulInteger(a, b, za, zb, over=over), scale)",
    given=_product,
    example={
        "a": "u8 N M K",
        "b": "s8 K O",
        "sa": 0.5,
        "sb": 0.25,
        "za": "u8",
        "zb": "s8",
        "over": "K",
    },
    early=True,
)

rewrite(
    "matmul_wide",
    "f32 holds a sum of products of integers exactly if it is at most 2^24",
    "MatMulInteger(a, b, za, zb, over=over) | MatMulInteger(a, b, over=over)",
    """
    Cast(MatMul(DequantizeLinear(a, one, za), DequantizeLinear(b, one, zb), over=over), to="s32")
    """,
    given=lambda _: _ONE,
    holds=lambda match: _fit("a", "b")(match) or _fit("b", "a")(match),
    example={"a": "u8 N M K", "b": "s8 K O", "za": "u8", "zb": "s8", "over": "K"},
    early=True,
)

rewrite(
    "bias_integer",
    "s * acc + s * b is s * (acc + b), and the sum of integers is exact",
    f"BiasAdd(DequantizeLinear(acc, constant(sacc)), {_decoding('b')})",
    "DequantizeLinear(BiasAdd(acc, b), sacc)",
    given=_bias,
    example={"acc": "s32 N C", "sacc": 0.5, "b": "s32 C", "sb": 0.5, "zb": 0},
    early=True,
)

rewrite(
    "bias_of_sums",
    "what is added along one dim alone is a bias",
    "Add(DequantizeLinear(acc, scale), constant(b))",
    "BiasAdd(DequantizeLinear(acc, scale), bias)",
    given=_one_dim,
    example={"acc": "s32 N C", "scale": "", "b": "N=1 C"},
    early=True,
)

rewrite(
    "scaled_sums",
    "sums of products of integers times their scale are numbers",
    'Mul(Cast(acc, to="f32"), scale)',
    "DequantizeLinear(acc, scale)",
    given=_scaled,
    example={"acc": "s32 N C", "scale": "C"},
    early=True,
)

rewrite(
    "requantize",
    "quantizing s * acc in steps of t rounds acc * (s / t)",
    """
    numbers = DequantizeLinear(acc, constant(sacc))
    (QuantizeLinear(numbers, constant(s), constant(z), to=to)
    | QuantizeLinear(numbers, constant(s), to=to))
    """,
    "Requantize(acc, by, z, to=to)",
    given=_requantized,
    example={"acc": "s32 N C", "sacc": 0.125, "s": 4.0, "z": "s8", "to": "s8"},
    early=True,
)

for _name, _more, _low, _high in (
    ("Relu", "", 0.0, np.inf),
    ("Relu6", "", 0.0, 6.0),
    ("Clip", ", low=low, high=high", -np.inf, np.inf),
):
    rewrite(
        f"quantize_{_name.lower()}",
        "bounds that no integer stands for change nothing",
        f"""
        bounded = {_name}(x{_more})
        (QuantizeLinear(bounded, constant(s), constant(z), to=to)
        | QuantizeLinear(bounded, constant(s), to=to))
        """,
        "QuantizeLinear(x, s, z, to=to)",
        given=_beyond(_low, _high),
        example={"x": "N C", "s": 0.015625, "z": 0, "to": "u8", "low": 0.0, "high": 9.0},
        early=True,
    )

for _name in ("Add", "Mul"):
    rewrite(
        f"dequantized_{_name.lower()}",
        "arithmetic on the numbers that integers stand for is one operator",
        f"{_name}({_decoding('a')}, {_decoding('b')})",
        f"Dequantized{_name}(a, sa, za, b, sb, zb)",
        given=_both,
        example={
            "a": "u8 N C",
            "sa": 0.5,
            "za": "u8",
            "b": "s8 N C",
            "sb": 0.25,
            "zb": "s8",
        },
        early=True,
    )
