"""Normalizations of x over some dims by its own mean, variance or norm."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any

import numpy as np

from libdesc import eigen, invoker, onednn, rewrite
from libdesc.numpy import definition
from libdesc.numpy.arrays import FLOATS, Array, wide
from libdesc.routine import Routine
from ops._codes import MICROSOFT, scalar
from ops._elementwise import Unary
from ops._layers_ahead import LAYERS
from ops._learned import NORMALIZER
from ops._microsoft import biased, rank_of_x
from ops._names import axes_of, fresh, last_names, same_names
from ops._normalizations import channels, dims_from, epsilon, moved_last, positions
from ops._places import has_dims_of_x, one_output
from ops._windows import image_names
from ptensor import Layout, PTensor
from vtensor.language.dtype import numpy_dtype
from vtensor.language.spelling import Naming, NodeReader, NodeWriter, Spelling
from vtensor.language.traits import Linear
from vtensor.operators import Context, Cost, Match, named, operator, param
from vtensor.tensor import VTensor

#: The number that ONNX's MeanVarianceNormalization adds to the standard deviation.
EPSILON = 1e-9


def _names(node: Naming) -> None:
    same_names(node)
    for role in ("x1", "x2"):
        last_names(node, role, "x0")
    for role in ("y1", "y2"):
        same_names(node, role, "x0")


def _parameter(node: NodeReader, index: int, x: VTensor) -> VTensor:
    """Return a node's input ``index``, a scale or bias, with the names of the last dims of ``x``.

    Its dims of size 1 are dropped.
    """
    t, names = node.input(index), list(x.dims)
    rank = len(t.dims)
    if rank > len(names):
        raise node.refuse(f"input {index} has more dims than the first")
    sizes = dict(zip(names[len(names) - rank :], t.dims.values(), strict=True))
    t = node.input(index, " ".join(sizes))
    long = {dim: size for dim, size in sizes.items() if size != 1}
    return t if len(long) == rank else node.reshape(t, long)


def _scaled(op_type: str, since: int, runtimes: str) -> list[Spelling]:
    """Return how a normalization over the last dims is read from and written to ONNX.

    The dims begin at the index in ONNX's attribute ``axis``. ``op_type`` is the operator's name,
    here and in ONNX; ``since`` is the first opset that has the operator. ONNX Runtime has the same
    operator in all opsets, under the name ``runtimes``.
    """

    def read(node: NodeReader) -> list[VTensor]:
        node.attribute("stash_type")  # sums are computed in f32 or f64, whatever it says
        x = node.input(0)
        op = named(op_type)(dims_from(node, x, -1), epsilon(node))
        outputs: Any = node.add(op, x, _parameter(node, 1, x))
        y, *statistics = outputs if isinstance(outputs, tuple) else (outputs,)
        if not statistics and node.gives(1):
            statistics = [_inverse(node, x, op)]
        biased = node.has(2)
        return [
            node.add(named("BiasAdd")(), y, _parameter(node, 2, x)) if biased else y,
            *statistics,
        ]

    def write(node: NodeWriter, op: Any) -> None:
        x, scale = node.inputs
        order = moved_last(list(x.dims), op.axes)
        operands = node.operand(x, order), node.operand(scale, order)
        node.emit(op_type, *operands, order=order, axis=-len(op.axes), epsilon=float(op.epsilon))

    until = since - 1 if runtimes == op_type else None
    return [
        Spelling(op_type, since, read, _names, write=write, ahead=LAYERS.get(op_type)),
        Spelling(runtimes, 1, read, _names, until=until, rank=rank_of_x),
    ]


def _inverse(node: NodeReader, x: VTensor, op: Any) -> VTensor:
    """Return the factor of a normalization by the mean square: 1 / sqrt(E[x^2] + epsilon)."""
    square = node.add(named("Mean")(op.axes), node.add(named("Mul")(), x, x))
    epsilon_of = node.made(np.array(op.epsilon, numpy_dtype(x.dtype)), ())
    root = node.add(named("Sqrt")(), node.add(named("Add")(), square, epsilon_of))
    return node.add(named("Reciprocal")(), root)


def _image_names(node: Naming) -> None:
    image_names(node)
    same_names(node)
    for role in ("x1", "x2"):
        node.same("x0", 1, role, 0)


def _normalized_over(
    node: NodeReader, axes: Iterable[str], x: VTensor, *parameters: VTensor
) -> VTensor:
    """Add a LayerNormalization of x over the dims ``axes`` and a bias; return the biased output.

    ``parameters`` are the scale and the bias.
    """
    scale, bias = parameters
    outputs: Any = node.add(LayerNormalization(tuple(axes), epsilon(node)), x, scale)
    return node.add(named("BiasAdd")(), outputs[0], bias)


def _read_instance(node: NodeReader) -> VTensor:
    x = channels(node)
    return _normalized_over(node, list(x.dims)[2:], x, node.input(1, "C"), node.input(2, "C"))


def _read_group(node: NodeReader) -> VTensor:
    """Add the operators that ONNX's GroupNormalization means to the graph; return its output.

    C is split into the dims ``group`` and ``channel``; each group is normalized over its channels
    and the spatial dims.
    """
    x, groups = channels(node), int(node.attribute("num_groups", 0))
    if groups < 1 or x.size("C") % groups:
        raise node.refuse(f"num_groups {groups} of sizes {list(x.dims.values())}")
    parts = {"group": groups, "channel": x.size("C") // groups}
    batch, _, *inner = x.dims
    sizes = {batch: x.size(batch), **parts, **{dim: x.size(dim) for dim in inner}}
    parameters = (node.reshape(node.input(i), parts) for i in (1, 2))
    y = _normalized_over(node, ("channel", *inner), node.reshape(x, sizes), *parameters)
    return node.reshape(y, dict(x.dims))


def _skip(op_type: str, name: str, bias: int) -> Spelling:
    """Return how ONNX Runtime's normalization of a sum is read; the sum is an output, too.

    Args:
        op_type: the operator of ONNX Runtime. Its inputs are the two terms, the scale, and, for a
            LayerNormalization, the bias of the result.
        name: the operator that normalizes.
        bias: the index of the input that is a third term.
    """

    def names(node: Naming) -> None:
        for role in (*node.roles, "y3"):
            last_names(node, role)

    def read(node: NodeReader) -> list[VTensor]:
        x = biased(node, biased(node, node.input(0), bias), 1)  # libraries fuse a bias first
        by = float(node.attribute("epsilon", 1e-12))
        op = named(name)((node.axis(-1, x),), by)
        result: Any = node.add(op, x, _parameter(node, 2, x))
        y, *statistics = result if isinstance(result, tuple) else (result, x, x)
        if not isinstance(result, tuple) and node.gives(1):
            raise node.refuse("output 1, the mean, is not computed, as in ONNX Runtime")
        if not isinstance(result, tuple) and node.gives(2):
            statistics[1] = _inverse(node, x, op)
        if bias > 3 and node.has(3):
            y = node.add(named("BiasAdd")(), y, _parameter(node, 3, x))
        return [y, *statistics, x]

    return Spelling(f"{MICROSOFT}{op_type}", 1, read, names, rank=rank_of_x)


def _embedding_names(node: Naming) -> None:
    for role in ("x0", "x1", "x7", "y1"):
        for place in range(node.rank(role)):
            node.same(role, place, "y0", place)
    same_names(node, "y2")
    for role in ("x2", "x3", "x4", "x5", "x6"):
        node.same(role, -1, "y0", 2)


def _read_embeddings(node: NodeReader, quantized: bool = False) -> list[VTensor]:
    """Add the embeddings of words, positions and segments, and normalize the sum.

    Args:
        node: the node of ONNX Runtime.
        quantized: whether the tables, and scale and bias of the normalization, are integers. Then
            the scale of input i is input i + 6, and its zero point input i + 11.
    """
    batch, along, hidden = node.output_names()
    row = fresh("row", node.output_names())

    def decoded(index: int, x: VTensor) -> VTensor:
        if not quantized:
            return x
        by = scalar(node, index + 6), scalar(node, index + 11, x.dtype)
        return node.ahead(named("DequantizeLinear")("f32"), x, *by)

    def looked_up(table: int, ids: int, names: str) -> VTensor:
        x, i = node.input(table, f"{row} {hidden}"), node.input(ids, names)
        return decoded(table, node.add(named("Gather")(row), x, i))

    x = looked_up(2, 0, f"{batch} {along}")
    if node.has(8) and not quantized:
        places = looked_up(3, 8, f"{batch} {along}")
    else:
        first = named("Slice")((along,), (0,), (x.size(along),), (1,))
        places = decoded(3, node.add(first, node.input(3, f"{along} {hidden}")))
    x = node.add(named("Add")(), x, places)
    if node.has(1):
        x = node.add(named("Add")(), x, looked_up(4, 1, f"{batch} {along}"))
    scale, bias = (decoded(i, node.input(i, hidden)) for i in (5, 6))
    normalize = LayerNormalization((hidden,), float(node.attribute("epsilon", 1e-12)))
    outputs: Any = node.add(normalize, x, scale)
    y = node.add(named("BiasAdd")(), outputs[0], bias)
    node.attribute("mask_index_type")  # it says whether there is a mask; so does input 7
    words = node.input(7 if node.has(7) else 0, f"{batch} {along}")
    words = words if node.has(7) else node.add(named("Times")(0.0), words)
    one = node.made(np.ones((), numpy_dtype(words.dtype)), ())
    count = node.add(named("Cast")(words.dtype), node.add(named("Equal")(), words, one))
    return [y, node.add(named("ReduceSum")((along,), keepdims=False), count), x]


@operator(
    "LayerNormalization",
    dims={"x": "*", "scale": "*", "y": "*", "mean": "*", "inverse": "*"},
    holds=[has_dims_of_x("scale")],
    onnx=[
        *_scaled("LayerNormalization", 17, "LayerNormalization"),
        Spelling("InstanceNormalization", 6, _read_instance, _image_names),
        Spelling("GroupNormalization", 21, _read_group, _image_names),
        _skip("SkipLayerNormalization", "LayerNormalization", 4),
        Spelling(
            f"{MICROSOFT}EmbedLayerNormalization",
            1,
            lambda node: _read_embeddings(node),
            _embedding_names,
            rank=lambda _: 3,
        ),
        Spelling(
            f"{MICROSOFT}QEmbedLayerNormalization",
            1,
            lambda node: _read_embeddings(node, quantized=True),
            _embedding_names,
            rank=lambda _: 3,
        ),
    ],
    traits=[Cost(6), Linear({"scale": {}})],
)
class LayerNormalization:
    """Normalize x over some dims by its own mean and variance.

    y = (x - mean) * inverse * scale, where mean = E[x] and inverse = 1 / sqrt(E[(x - mean)^2] +
    epsilon), both over ``axes``. Over the spatial dims, with a scale along C, this is instance
    normalization.

    Dims:
        x, y: any, the same    scale: some of x's, of the same sizes
        mean, inverse: x's, of size 1 along ``axes``
    Args:
        axes: the dims that are normalized over.
        epsilon: added to the variance, at least 0.
    Raises:
        DimError: x has no such dim, or scale has a dim that x lacks, or has with another size.

    If x is narrower than f32, sums are computed in f32, and mean and inverse are f32.
    Cost:
        6 operations for each element: two sums, difference, square, two products.

    >>> from vtensor.operators import Context
    >>> x, scale = VTensor("f32", {"N": 2, "T": 7, "F": 64}), VTensor("f32", {"F": 64})
    >>> [t.summary() for t in LayerNormalization(("F",)).compute(Context(), x, scale)[:2]]
    ['f32 N=2 T=7 F=64', 'f32 N=2 T=7 F=1']

    Source: ONNX operators LayerNormalization, opset 17, InstanceNormalization, opset 6, and
    GroupNormalization, opset 21; ONNX Runtime operators LayerNormalization, of all opsets,
    SkipLayerNormalization, EmbedLayerNormalization and QEmbedLayerNormalization.
    """

    axes: tuple[str, ...] = param(dims_of="x")
    epsilon: float = param(default=1e-5, minimum=0)

    def compute(self, ctx: Context, x: VTensor, scale: VTensor) -> tuple[VTensor, VTensor, VTensor]:
        sizes = {dim: 1 if dim in self.axes else size for dim, size in x.dims.items()}
        dtype = "f64" if x.dtype == "f64" else "f32"
        y = VTensor(x.dtype, x.dims, ctx.output(0))
        mean, inverse = (VTensor(dtype, sizes, ctx.output(i)) for i in (1, 2))
        ctx.dispatch(self, [x, scale], [y, mean, inverse])
        return y, mean, inverse


_SPREAD = """
    spread = Sqrt(Add(Mean(square, axes=axes, keepdims=_), scalar(epsilon)))
    inverse = Reciprocal(spread) | Div(1, spread)
"""
_CENTRED = f"""
    mean = Mean(x, axes=axes, keepdims=_)
    centred = Sub(x, mean)
    square = Pow(centred, 2) | Mul(centred, centred)
    {_SPREAD}
"""
_EXAMPLE = {"x": "N T F", "scale": "F", "bias": "F", "axes": ("F",), "epsilon": 1e-5}


def _ones(match: Match) -> dict[str, object] | None:
    """Return a scale of ones along the normalized dims, under the key ``ones``.

    The rule puts it into the LayerNormalization that replaces a match. None (the rule does not
    apply) if no dims are normalized or epsilon is negative.
    """
    axes, epsilon = match["axes"], match.numbers["epsilon"]
    ones = np.ones([match["x"].size(dim) for dim in axes]), axes
    return {"ones": ones} if axes and epsilon >= 0 else None


def _scale(match: Match) -> dict[str, object] | None:
    """Return the scale and the bias of a match, under the keys ``own_scale`` and ``own_bias``.

    Their dims of size 1 are dropped; one that the match lacks is left out. None (the rule does not
    apply) if one of them has a dim that x lacks, or has with another size.
    """
    values: dict[str, object] = {}
    for name in {"scale", "bias"} & match.values.keys():
        t = match[name]
        long = {dim: size for dim, size in t.dims.items() if size != 1}
        if not long.items() <= match["x"].dims.items():
            return None
        values[f"own_{name}"] = np.reshape(match.numbers[name], [*long.values()]), [*long]
    return values


rewrite(
    "layernorm",
    "(x - E[x]) / sqrt(E[(x - E[x])^2] + epsilon)",
    f"{_CENTRED}\n Div(centred, spread) | Mul(centred, inverse)",
    "LayerNormalization(x, ones, axes=axes, epsilon=epsilon)",
    given=_ones,
    example=_EXAMPLE,
)
rewrite(
    "layernorm_scaled",
    "a scale behind a normalization that has none is its own",
    "Mul(LayerNormalization(x, 1, axes=axes, epsilon=epsilon), constant(scale))",
    "LayerNormalization(x, own_scale, axes=axes, epsilon=epsilon)",
    given=_scale,
    example=_EXAMPLE,
)
rewrite(
    "layernorm_spread",
    "x a + (bias - E[x] a) with a = scale / sqrt(E[(x - E[x])^2] + epsilon)",
    f"""{_CENTRED}
    factor = Mul(inverse, constant(scale))
    Add(Mul(x, factor), Sub(constant(bias), Mul(mean, factor)))
    """,
    "BiasAdd(LayerNormalization(x, own_scale, axes=axes, epsilon=epsilon), own_bias)",
    given=_scale,
    example=_EXAMPLE,
)


def _grouped(match: Match) -> dict[str, object] | None:
    """Return the values that the rule ``groupnorm`` puts into its replacement, by name.

    ``groups`` is the shape of x with its channels split into group and channel, ``whole`` the shape
    of x, ``inside`` the normalized dims, and ``own`` the scale. None (the rule does not apply) if
    the match is no group normalization.
    """
    x, scale, y = match["x"], match["scale"], match.output
    if len(match["apart"]) < 3 or len(x.dims) < 3:
        return None
    (_, batch), (_, groups), *inner_dims = match["apart"]
    dims = list(x.dims)
    channels = dims[1]
    long = [dim for dim, size in scale.dims.items() if size != 1]
    alike = [*y.dims.items()] == [*x.dims.items()] and long in ([channels], [])
    inside = match["axes"] == tuple(dim for dim, _ in inner_dims) and batch == x.size(dims[0])
    if not (alike and inside and groups and x.size(channels) % groups == 0):
        return None
    parts = {"group": groups, "channel": x.size(channels) // groups}
    inner = {dim: x.size(dim) for dim in dims[2:]}
    spread = np.broadcast_to(np.reshape(match.numbers["scale"], -1), x.size(channels))
    return {
        "groups": ((dims[0], batch), *parts.items(), *inner.items()),
        "whole": tuple(x.dims.items()),
        "inside": ("channel", *inner),
        "own": (spread.reshape([*parts.values()]), [*parts]),
    }


rewrite(
    "groupnorm",
    "scale (x - E[x]) / sqrt(E[(x - E[x])^2] + epsilon), the means over a group of channels",
    """
    norm = LayerNormalization(Reshape(x, shape=apart), 1, axes=axes, epsilon=epsilon)
    Mul(Reshape(BiasAdd(norm, 0) | norm, shape=together), constant(scale))
    """,
    """Reshape(
        LayerNormalization(Reshape(x, shape=groups), own, axes=inside, epsilon=epsilon), shape=whole
    )""",
    given=_grouped,
    example={
        "x": "N C H W",
        "scale": "C",
        "axes": ("L",),
        "epsilon": 1e-5,
        "apart": lambda s: (("N", s["N"]), ("G", 1), ("L", s["C"] * s["H"] * s["W"])),
        "together": lambda s: tuple((dim, s[dim]) for dim in "NCHW"),
    },
)


@operator(
    "RMSNormalization",
    dims={"x": "*", "scale": "*", "y": "*"},
    holds=[has_dims_of_x("scale")],
    onnx=[
        *_scaled("RMSNormalization", 23, "SimplifiedLayerNormalization"),
        _skip("SkipSimplifiedLayerNormalization", "RMSNormalization", 3),
    ],
    traits=[Cost(4), Linear({"scale": {}})],
)
class RMSNormalization:
    """Divide by the root mean square over some dims.

    y = x / sqrt(E[x^2] + epsilon) * scale, the mean over ``axes``.

    Dims:
        x, y: any, the same    scale: some of x's, of the same sizes
    Args:
        axes: the dims that are normalized over.
        epsilon: added to the mean, at least 0.
    Raises:
        DimError: x has no such dim, or scale has a dim that x lacks, or has with another size.
    Cost:
        4 operations for each element: square, sum, two products.

    >>> from vtensor.operators import Context
    >>> x, scale = VTensor("f32", {"N": 2, "T": 7, "F": 64}), VTensor("f32", {"F": 64})
    >>> RMSNormalization(("F",)).compute(Context(), x, scale).summary()
    'f32 N=2 T=7 F=64'

    Source: ONNX operator RMSNormalization, opset 23; ONNX Runtime operators
    SimplifiedLayerNormalization and SkipSimplifiedLayerNormalization.
    """

    axes: tuple[str, ...] = param(dims_of="x")
    epsilon: float = param(default=1e-5, minimum=0)

    def compute(self, ctx: Context, x: VTensor, scale: VTensor) -> VTensor:
        return one_output(ctx, self, [x, scale], x.dims)


rewrite(
    "rmsnorm",
    "x / sqrt(E[x^2] + epsilon)",
    f"""
    square = Pow(x, 2) | Mul(x, x)
    {_SPREAD}
    Div(x, spread) | Mul(x, inverse)
    """,
    "RMSNormalization(x, ones, axes=axes, epsilon=epsilon)",
    given=_ones,
    example=_EXAMPLE,
)
rewrite(
    "rmsnorm_scaled",
    "a scale behind a normalization that has none is its own",
    "Mul(RMSNormalization(x, 1, axes=axes, epsilon=epsilon), constant(scale))",
    "RMSNormalization(x, own_scale, axes=axes, epsilon=epsilon)",
    given=_scale,
    example=_EXAMPLE,
)


def _read_lp(node: NodeReader) -> VTensor:
    x = node.input(0)
    axis = node.axis(int(node.attribute("axis", -1)), x)
    return node.add(LpNormalization(axis, int(node.attribute("p", 2))), x)


def _write_lp(node: NodeWriter, op: LpNormalization) -> None:
    [x] = node.inputs
    node.emit("LpNormalization", node.operand(x), axis=positions(x, [op.axis])[0], p=op.p)


@operator(
    "LpNormalization",
    dims={"x": "*", "y": "*"},
    onnx=[Spelling("LpNormalization", 1, _read_lp, same_names, write=_write_lp), NORMALIZER],
    traits=[Cost(3)],
)
class LpNormalization(Unary):
    """Divide by the sum of absolute values, or by the root of the sum of squares, along a dim.

    y = x / (sum over axis of |x|^p)^(1/p), and 0 where the sum is 0.

    Dims:
        x, y: any, the same
    Args:
        axis: the dim.
        p: 1 or 2.
    Raises:
        DimError: x has no such dim.
    Cost:
        3 operations for each element: power, sum, quotient.

    >>> from vtensor.operators import Context
    >>> LpNormalization("C").compute(Context(), VTensor("f32", {"N": 2, "C": 64})).summary()
    'f32 N=2 C=64'

    Source: ONNX operator LpNormalization, opset 22.
    """

    axis: str = param(dims_of="x")
    p: int = param(default=2, choices=(1, 2))


def _read_mean_variance(node: NodeReader) -> VTensor:
    x, axes = node.input(0), node.attribute("axes")
    axes = [0, 2, 3] if axes is None else list(axes)
    return node.add(MeanVarianceNormalization(axes_of(node, x, axes)), x)


def _write_mean_variance(node: NodeWriter, op: MeanVarianceNormalization) -> None:
    [x] = node.inputs
    node.emit("MeanVarianceNormalization", node.operand(x), axes=positions(x, op.axes))


@operator(
    "MeanVarianceNormalization",
    dims={"x": "*", "y": "*"},
    onnx=Spelling(
        "MeanVarianceNormalization", 9, _read_mean_variance, same_names, write=_write_mean_variance
    ),
    traits=[Cost(5)],
)
class MeanVarianceNormalization(Unary):
    """Subtract the mean and divide by the standard deviation over some dims.

    y = (x - E[x]) / (sqrt(E[(x - E[x])^2]) + 1e-9), the means over ``axes``.

    Dims:
        x, y: any, the same
    Args:
        axes: the dims.
    Raises:
        DimError: x has no such dim.
    Cost:
        5 operations for each element: two sums, difference, square, quotient.

    >>> from vtensor.operators import Context
    >>> x = VTensor("f32", {"N": 2, "C": 64, "H": 7, "W": 7})
    >>> MeanVarianceNormalization(("N", "H", "W")).compute(Context(), x).summary()
    'f32 N=2 C=64 H=7 W=7'

    Source: ONNX operator MeanVarianceNormalization, opset 13.
    """

    axes: tuple[str, ...] = param(dims_of="x")


def _one_axis(op: LayerNormalization, x: VTensor, scale: VTensor, *_: VTensor) -> bool | str:
    return (op.axes == tuple(scale.dims) and len(op.axes) == 1) or "scales along one dim, the axis"


_TYPES = {"": ["f32", "bf16", "f16"], "scale": ["f32"]}


@invoker("LayerNormalization", library="onednn", dtypes=_TYPES, when=_one_axis)
def onednn_layernorm(ctx: Context, op: LayerNormalization, *operands: VTensor) -> Routine:
    x, scale, *outputs = operands
    return onednn.LayerNormalization(x, scale, outputs, op.axes[0], op.epsilon, ctx.followers)


@invoker("LayerNormalization", library="eigen", dtypes={"": eigen.FRACTIONS})
def eigen_layernorm(ctx: Context, op: LayerNormalization, *operands: VTensor) -> Routine:
    x, scale, *outputs = operands
    return eigen.normalization("layer", x, [scale], outputs, op.axes, op.epsilon, ctx.followers)


@invoker("RMSNormalization", library="eigen", dtypes=eigen.FRACTIONS)
def eigen_rmsnorm(ctx: Context, op: RMSNormalization, *operands: VTensor) -> Routine:
    x, scale, y = operands
    return eigen.normalization("rms", x, [scale], [y], op.axes, op.epsilon, ctx.followers)


@invoker("LpNormalization", library="eigen", dtypes=eigen.FRACTIONS)
def eigen_lpnorm(ctx: Context, op: LpNormalization, x: VTensor, y: VTensor) -> Routine:
    return eigen.normalization(f"l{op.p}", x, [], [y], [op.axis])


@invoker("MeanVarianceNormalization", library="eigen", dtypes=eigen.FRACTIONS)
def eigen_meanvariance(
    ctx: Context, op: MeanVarianceNormalization, x: VTensor, y: VTensor
) -> Routine:
    return eigen.normalization("mean_variance", x, [], [y], op.axes, EPSILON)


def _average(values: Array, axes: tuple[int, ...]) -> Array:
    """Return the mean of ``values`` over ``axes``, which get size 1; of no elements it is 0."""
    count = prod(values.shape[axis] for axis in axes)
    return np.asarray(values.sum(axis=axes, keepdims=True) / max(count, 1))


def _spread(scale: PTensor, x: PTensor) -> Array:
    """Return ``scale`` as an array with an axis for each dim of x, as NumPy's broadcasting needs.

    An axis has length 1 if the scale lacks the dim.
    """
    return wide(scale.data()).reshape([scale.dims.get(dim, 1) for dim in x.dims])


def _like_x(_op: object, x: VTensor, *others: VTensor) -> list[Layout]:
    """Return a layout for each operand: its dims, in the order in which x has them."""
    return [Layout.plain(dim for dim in x.dims if dim in t.dims) for t in (x, *others)]


@definition("LayerNormalization", dtypes=FLOATS, orders=_like_x)
def layernorm(ctx: Context, op: LayerNormalization, *operands: PTensor) -> None:
    (x, scale), (y, mean, inverse) = operands[:2], (t.data() for t in operands[2:])
    axes, values = positions(x, op.axes), wide(x.data()).astype(np.float64)
    middle = _average(values, axes)
    centred = values - middle
    mean[...] = middle
    inverse[...] = 1 / np.sqrt(_average(centred**2, axes) + op.epsilon)
    y[...] = centred * inverse * _spread(scale, x)


@definition("RMSNormalization", dtypes=FLOATS, orders=_like_x)
def rmsnorm(ctx: Context, op: RMSNormalization, x: PTensor, scale: PTensor, y: PTensor) -> None:
    values = wide(x.data()).astype(np.float64)
    square = _average(values**2, positions(x, op.axes))
    y.data()[...] = values / np.sqrt(square + op.epsilon) * _spread(scale, x)


@definition("LpNormalization", dtypes=FLOATS)
def lpnormalization(ctx: Context, op: LpNormalization, x: PTensor, y: PTensor) -> None:
    values = wide(x.data()).astype(np.float64)
    norm = np.linalg.norm(values, op.p, axis=positions(x, [op.axis])[0], keepdims=True)
    y.data()[...] = values / np.where(norm == 0, 1, norm)


@definition("MeanVarianceNormalization", dtypes=FLOATS)
def meanvariance(ctx: Context, op: MeanVarianceNormalization, x: PTensor, y: PTensor) -> None:
    values, axes = wide(x.data()).astype(np.float64), positions(x, op.axes)
    centred = values - _average(values, axes)
    y.data()[...] = centred / (np.sqrt(_average(centred**2, axes)) + EPSILON)
